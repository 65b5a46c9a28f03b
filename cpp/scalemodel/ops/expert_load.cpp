#include "scalemodel/ops/expert_load.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

namespace scalemodel {
namespace {

using Counts = std::vector<std::int64_t>;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): the standard distributions differ between
/// libraries, this does not.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}

  /// Uniform on [0, 1).
  double next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

/// Draws from a density proportional to x^-exponent on [low, high], by inversion.
class PowerLaw {
 public:
  PowerLaw(double exponent, double low, double high)
      : inverse_(1 - exponent),
        low_(std::pow(low, inverse_)),
        span_(std::pow(high, inverse_) - low_),
        logarithmic_(std::abs(inverse_) < 1e-9),
        least_(low),
        ratio_(high / low) {}

  double at(double uniform) const {
    if (logarithmic_) return least_ * std::pow(ratio_, uniform);
    return std::pow(low_ + span_ * uniform, 1 / inverse_);
  }

 private:
  double inverse_, low_, span_;
  bool logarithmic_;
  double least_, ratio_;
};

/// Adds `amount` one by one to the smallest of `counts`. Leaves them in ascending order: which of
/// several equal experts is raised does not matter.
void raise_lowest(std::span<std::int64_t> counts, std::int64_t amount) {
  std::ranges::sort(counts);
  std::size_t level = 1;  // the first `level` counts are equal
  while (amount > 0) {
    while (level < counts.size() && counts[level] == counts[0]) ++level;
    const auto width = static_cast<std::int64_t>(level);
    const std::int64_t room =
        level < counts.size() ? counts[level] - counts[0] : amount / width + 1;
    const std::int64_t step = std::min(room, amount / width);
    for (std::size_t i = 0; i < level; ++i) counts[i] += step;
    amount -= step * width;
    if (step < room) {  // less than one each is left
      for (std::size_t i = level - static_cast<std::size_t>(amount); i < level; ++i) ++counts[i];
      amount = 0;
    }
  }
}

/// Hands out `amount` one by one, rank after rank, always to the rank's smallest count below `cap`.
void hand_out(Counts& counts, int ranks, std::int64_t amount, std::int64_t cap) {
  const auto local = counts.size() / static_cast<std::size_t>(ranks);
  const auto of_rank = [&](std::size_t rank) {
    return std::span<std::int64_t>(counts).subspan(rank * local, local);
  };
  std::vector<std::int64_t> room, share(static_cast<std::size_t>(ranks), 0);
  for (std::size_t rank = 0; rank < share.size(); ++rank) {
    const auto own = of_rank(rank);
    room.push_back(static_cast<std::int64_t>(local) * cap -
                   std::accumulate(own.begin(), own.end(), std::int64_t{0}));
  }
  while (amount > 0) {
    std::int64_t open = 0, least = 0;
    for (const std::int64_t left : room) {
      if (left == 0) continue;
      least = open == 0 ? left : std::min(least, left);
      ++open;
    }
    if (open == 0) return;
    const std::int64_t rounds = std::min(least, amount / open);
    for (std::size_t rank = 0; rank < room.size() && amount > 0; ++rank) {
      if (room[rank] == 0) continue;
      const std::int64_t given = rounds > 0 ? rounds : 1;
      share[rank] += given;
      room[rank] -= given;
      amount -= given;
    }
  }
  for (std::size_t rank = 0; rank < share.size(); ++rank) {
    if (share[rank] > 0) raise_lowest(of_rank(rank), share[rank]);
  }
}

/// Rows of every expert in one draw of the power law.
Counts drawn_counts(const ExpertRouting& routing, Generator& generator) {
  const double pairs = routing.tokens * routing.topk;
  const bool crowded = pairs > routing.experts;
  const double low = crowded ? 1 : 0.01, high = crowded ? 0.8 * routing.tokens : 2;
  const PowerLaw law(routing.skew, low, std::max(high, low));
  std::vector<double> popularity(static_cast<std::size_t>(routing.experts));
  for (double& each : popularity) each = law.at(generator.next());
  const double total = std::accumulate(popularity.begin(), popularity.end(), 0.0);
  const auto cap = static_cast<std::int64_t>(routing.tokens);
  std::int64_t sum = 0, overflow = 0;
  Counts counts;
  counts.reserve(popularity.size());
  for (const double each : popularity) {
    const auto rounded = static_cast<std::int64_t>(std::nearbyint(each / total * pairs));
    overflow += std::max<std::int64_t>(rounded - cap, 0);
    counts.push_back(std::min(rounded, cap));
    sum += counts.back();
  }
  hand_out(counts, routing.ranks, overflow, cap);
  const std::int64_t missing = static_cast<std::int64_t>(pairs) - sum - overflow;
  if (missing >= 0) {
    hand_out(counts, routing.ranks, missing, cap);
  } else {  // taking from the fullest is giving to the emptiest of the complement
    for (std::int64_t& count : counts) count = cap - count;
    hand_out(counts, routing.ranks, -missing, cap);
    for (std::int64_t& count : counts) count = cap - count;
  }
  return counts;
}

std::size_t busiest_rank(const Counts& counts, int ranks) {
  const std::size_t local = counts.size() / static_cast<std::size_t>(ranks);
  std::size_t busiest = 0;
  std::int64_t most = -1;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
    const auto begin = counts.begin() + static_cast<std::ptrdiff_t>(rank * local);
    const std::int64_t load =
        std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(local), std::int64_t{0});
    if (load > most) {
      most = load;
      busiest = rank;
    }
  }
  return busiest;
}

/// Everything but the distinct tokens.
ExpertLoad load_of(std::span<const std::int64_t> counts) {
  ExpertLoad load;
  for (const std::int64_t count : counts) {
    load.pairs += static_cast<double>(count);
    load.active += count > 0 ? 1 : 0;
  }
  return load;
}

/// Distinct tokens of the experts [first, first + local): experts in order of popularity take
/// consecutive tokens, wrapping around after the last one.
double touched_tokens(const Counts& counts, std::size_t first, std::size_t local,
                      std::int64_t tokens) {
  if (local == counts.size()) return static_cast<double>(tokens);
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Equal counts in the order of their experts.
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
  });
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  std::int64_t start = 0;
  for (const std::size_t expert : order) {
    const std::int64_t end = start + counts[expert];
    if (expert >= first && expert < first + local && end > start) {
      taken.emplace_back(start, std::min(end, tokens));
      if (end > tokens) taken.emplace_back(0, end - tokens);
    }
    start = end % tokens;
  }
  std::ranges::sort(taken);
  std::int64_t touched = 0, reached = 0;
  for (const auto& [begin, end] : taken) {
    touched += std::max<std::int64_t>(end - std::max(begin, reached), 0);
    reached = std::max(reached, end);
  }
  return static_cast<double>(touched);
}

ExpertLoad power_law_load(const ExpertRouting& routing) {
  ExpertLoad mean;
  const auto local = static_cast<std::size_t>(routing.experts / routing.ranks);
  for (int draw = 0; draw < kDraws; ++draw) {
    Generator generator(static_cast<std::uint64_t>(draw));
    const Counts counts = drawn_counts(routing, generator);
    const std::size_t first = busiest_rank(counts, routing.ranks) * local;
    const ExpertLoad load = load_of(std::span(counts).subspan(first, local));
    mean.pairs += load.pairs / kDraws;
    mean.active += load.active / kDraws;
    mean.touched +=
        touched_tokens(counts, first, local, static_cast<std::int64_t>(routing.tokens)) / kDraws;
  }
  return mean;
}

ExpertLoad balanced_load(const ExpertRouting& routing) {
  const auto experts = static_cast<std::int64_t>(routing.experts);
  const auto topk = static_cast<std::int64_t>(routing.topk);
  const auto tokens = static_cast<std::int64_t>(routing.tokens);
  const std::int64_t stride = (experts + topk - 1) / topk;
  // Tokens by their first expert: only that decides what a token chooses.
  Counts starting(static_cast<std::size_t>(experts), 0);
  if (tokens < stride) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      ++starting[static_cast<std::size_t>(i * stride / tokens)];
    }
  } else {
    for (std::int64_t e = 0; e < experts; ++e) {
      starting[static_cast<std::size_t>(e)] = tokens / experts + (e < tokens % experts ? 1 : 0);
    }
  }
  Counts counts(starting.size(), 0);
  const auto choice = [&](std::size_t start, std::int64_t j) {
    return static_cast<std::size_t>((static_cast<std::int64_t>(start) + j * stride) % experts);
  };
  for (std::size_t start = 0; start < starting.size(); ++start) {
    if (starting[start] == 0) continue;
    for (std::int64_t j = 0; j < topk; ++j) counts[choice(start, j)] += starting[start];
  }
  const std::size_t local = counts.size() / static_cast<std::size_t>(routing.ranks);
  const std::size_t first = busiest_rank(counts, routing.ranks) * local;
  ExpertLoad load = load_of(std::span(counts).subspan(first, local));
  for (std::size_t start = 0; start < starting.size(); ++start) {
    if (starting[start] == 0) continue;
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::size_t expert = choice(start, j);
      if (expert < first || expert >= first + local) continue;
      load.touched += static_cast<double>(starting[start]);
      break;
    }
  }
  return load;
}

}  // namespace

ExpertLoad expert_load(const ExpertRouting& routing) {
  if (routing.tokens <= 0) return {};
  return routing.skew > 0 ? power_law_load(routing) : balanced_load(routing);
}

const ExpertLoad& ExpertLoads::of(const ExpertRouting& routing) {
  const auto found = known_.find(routing);
  if (found != known_.end()) return found->second;
  return known_.emplace(routing, expert_load(routing)).first->second;
}

}  // namespace scalemodel
