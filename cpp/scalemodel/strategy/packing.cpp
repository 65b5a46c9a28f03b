#include "scalemodel/strategy/packing.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "scalemodel/base/order_statistics.hpp"

namespace scalemodel {
namespace {

/// Context ranks that a document takes: as few, by halves of all of them, as hold its tokens.
double context_of(int length, int sequence, int cp, PackOrder order) {
  if (order != PackOrder::dynamic_cp) return cp;
  double ranks = cp;
  while (ranks >= 2 && std::fmod(ranks, 2) == 0 && 2.0 * length * cp <= ranks * sequence) {
    ranks /= 2;
  }
  return ranks;
}

int padded(int length, int sequence, double cp, int tp) {
  const int multiple = static_cast<int>(cp > 1 ? 2 * cp : 1) * tp;
  return std::min(sequence, (length + multiple - 1) / multiple * multiple);
}

bool alike(const std::vector<int>& lengths) {
  return std::ranges::all_of(lengths, [&](int each) { return each == lengths.front(); });
}

/// A few documents stand for many: they come again until they fill enough packs, so that the last
/// one, half empty, does not count.
constexpr double kLeastPacks = 64;
/// Packs of more documents than this, all in all, are alike, and full but for padding.
constexpr double kMaxDocuments = 1e6;

double copies_of(const std::vector<int>& lengths, int sequence) {
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  return std::ceil(kLeastPacks * sequence / tokens);
}

bool too_many(const std::vector<int>& lengths, int sequence) {
  const double copies = copies_of(lengths, sequence);
  return copies > 1 && copies * static_cast<double>(lengths.size()) > kMaxDocuments;
}

std::vector<int> repeated(const std::vector<int>& lengths, int sequence) {
  const auto copies = static_cast<int>(copies_of(lengths, sequence));
  std::vector<int> all;
  all.reserve(lengths.size() * static_cast<std::size_t>(copies));
  for (int copy = 0; copy < copies; ++copy) all.insert(all.end(), lengths.begin(), lengths.end());
  return all;
}

/// Mean of the third power of standardised values.
double skew_of(const std::vector<double>& values, double mean, double deviation) {
  if (deviation <= 0) return 0;
  double sum = 0;
  for (const double value : values) sum += std::pow((value - mean) / deviation, 3);
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::vector<std::vector<int>> pack_documents(const std::vector<int>& lengths, int sequence) {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length_of = [&](int document) { return lengths[static_cast<std::size_t>(document)]; };
  std::ranges::stable_sort(order, std::greater<>{}, length_of);
  std::vector<std::vector<int>> packs;
  std::multimap<int, std::size_t> room;  // of packs that are not full
  for (const int document : order) {
    const int length = length_of(document);
    std::size_t pack = packs.size();
    int left = sequence;
    if (const auto found = room.lower_bound(length); found != room.end()) {
      left = found->first;
      pack = found->second;
      room.erase(found);
    } else {
      packs.emplace_back();
    }
    packs[pack].push_back(document);
    if (left > length) room.emplace(left - length, pack);
  }
  return packs;
}

PackShape pack_shape(const Packing& packing, int sequence, const PackSplit& split) {
  PackShape shape;
  double tokens = 0, squares = 0, context = 0, exchanged = 0;
  std::vector<int> slots;
  for (const int length : packing.lengths) {
    const double ranks = context_of(length, sequence, split.cp, packing.order);
    slots.push_back(padded(length, sequence, ranks, split.tp));
    tokens += length;
    squares += static_cast<double>(length) * length;
    context += length * ranks;
    exchanged += length * (ranks - 1);
  }
  if (alike(packing.lengths)) {
    const int length = packing.lengths.front();
    const int documents = sequence / slots.front();
    shape.fill = 1.0 * documents * length / sequence;
    shape.attended = length;
  } else if (too_many(slots, sequence)) {
    shape.fill = tokens / std::accumulate(slots.begin(), slots.end(), 0.0);
    shape.attended = squares / tokens;
  } else {
    const std::vector<int> all = repeated(slots, sequence);
    const auto packs = static_cast<double>(pack_documents(all, sequence).size());
    const double copies = static_cast<double>(all.size()) / static_cast<double>(slots.size());
    shape.fill = copies * tokens / (packs * sequence);
    shape.attended = squares / tokens;
  }
  shape.context = context / tokens;
  shape.documents = shape.fill * sequence * static_cast<double>(packing.lengths.size()) / tokens;
  if (split.cp > 1) shape.exchange = exchanged / (tokens * (split.cp - 1));
  return shape;
}

PackSpread pack_spread(const Packing& packing, int sequence) {
  PackSpread spread;
  if (!packing.packed() || alike(packing.lengths)) return spread;
  if (too_many(packing.lengths, sequence)) return spread;
  const std::vector<int> all = repeated(packing.lengths, sequence);
  std::vector<double> attention;
  for (const std::vector<int>& pack : pack_documents(all, sequence)) {
    double squares = 0;
    for (const int document : pack) {
      squares += std::pow(all[static_cast<std::size_t>(document)], 2);
    }
    attention.push_back(squares);
  }
  const auto count = static_cast<double>(attention.size());
  const double mean = std::accumulate(attention.begin(), attention.end(), 0.0) / count;
  double variance = 0;
  for (const double each : attention) variance += (each - mean) * (each - mean) / count;
  spread.deviation = std::sqrt(variance) / mean;
  spread.skew = std::max(0.0, skew_of(attention, mean, std::sqrt(variance)));
  const auto [least, most] = std::ranges::minmax(attention);
  spread.lightest = least / mean;
  spread.heaviest = most / mean;
  return spread;
}

double pack_imbalance(const PackSpread& spread, PackOrder order, const PackGroup& group) {
  if (spread.deviation <= 0 || group.ranks <= 1) return 0;
  const double most = spread.heaviest - 1;
  if (order != PackOrder::plain) {
    return std::max(0.0, most - (group.packs - 1) * (1 - spread.lightest)) / group.packs;
  }
  const double z = expected_maximum(group.ranks);
  const double root = std::sqrt(group.packs);
  const double expanded = z + spread.skew / root * (z * z - 1) / 6;
  return std::min(most, spread.deviation / root * std::max(z, expanded));
}

double pack_imbalance_in_step(const PackSpread& spread, PackOrder order, const PackGroup& group,
                              double rounds) {
  const double alone = pack_imbalance(spread, order, {group.ranks, group.packs * rounds});
  if (group.ranks <= 1) return 0;
  if (order == PackOrder::plain) return pack_imbalance(spread, order, group);
  const double range = (spread.heaviest - spread.lightest) / (2 * group.packs * rounds);
  return std::max(alone, range);
}

}  // namespace scalemodel
