#include "scalemodel/search/space.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "scalemodel/base/error.hpp"
#include "scalemodel/base/poll.hpp"
#include "scalemodel/search/options.hpp"
#include "scalemodel/search/strategy_fields.hpp"

namespace scalemodel {
namespace {

/// A rank of a dense model has no experts to split; a value that repeats the derived one is left
/// out where that is listed as well.
std::vector<std::uint8_t> expert_degrees(const Space& space, int tp, int ep, bool with_experts) {
  auto listed = values_or_default<&Strategy::etp>(space);
  if (!with_experts) return {0};
  const int derived = ep > 1 ? 1 : tp;
  if (contains<std::uint8_t>(listed, 0)) {
    std::erase_if(listed, [&](std::uint8_t etp) { return etp == derived; });
  }
  return listed;
}

std::vector<Schedule> schedules(const Space& space, int pp, int vpp) {
  auto listed = values_or_default<&Strategy::schedule>(space);
  if (pp == 1) return {Strategy{}.schedule};
  // One schedule may be listed under two names.
  if (vpp > 1) {
    std::erase_if(listed, [&](Schedule schedule) {
      const Schedule written = written_schedule(schedule);
      return written != schedule && contains(listed, written);
    });
  }
  return listed;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// The first listed value of every knob.
Strategy first_options(const Space& space) {
  Strategy s;
  constexpr auto fields = RecordOf<Strategy>::fields;
  const auto set = [&](const auto& field, const auto& listed) {
    if (!listed.empty()) s.*(field.member) = listed.front();
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (set(field_at<I>(fields), std::get<I>(space.values)), ...);
  }(std::make_index_sequence<std::tuple_size_v<Space::Values>>());
  return s;
}

}  // namespace

const OptionGroup& Options::group_of(std::uint64_t row) const noexcept {
  return *std::ranges::upper_bound(groups, row, {}, &OptionGroup::end);
}

Strategy Options::at(std::uint64_t row) const noexcept {
  const OptionGroup& group = group_of(row);
  return with_member(group.leader, members_of(group).rows[row - group.begin]);
}

Strategy joined(const Strategy& point, const Strategy& options) noexcept {
  Strategy s = options;
  s.dp = point.dp;
  s.tp = point.tp;
  s.cp = point.cp;
  s.pp = point.pp;
  s.ep = point.ep;
  s.micro_batch = point.micro_batch;
  s.etp = point.etp;
  s.vpp = point.vpp;
  s.schedule = point.schedule;
  return s;
}

Enumeration::Enumeration(const Space& space, const Model& model, const Cluster& cluster,
                         const Task& task)
    : number_(next_number()) {
  if (space.exclusions.size() > 64 || space.of<&Strategy::shard_degree>().size() > 64 ||
      space.of<&Strategy::secondary_degree>().size() > 64 ||
      space.of<&Strategy::recompute_layers>().size() > 64) {
    throw MalformedQuestion(
        "space: at most 64 exclusions, shard degrees, secondary degrees and numbers of recomputed"
        " layers");
  }
  const auto refuse = [&](const Strategy& s, Rule rule, Reason reason, std::size_t relation) {
    const auto number = static_cast<std::uint32_t>(relation);
    const auto known = std::ranges::find_if(refusals_, [&](const Refusal& r) {
      return r.rule == rule && r.reason == reason && r.relation == number;
    });
    if (known == refusals_.end()) {
      refusals_.push_back({rule, reason, number, s, 1});
    } else {
      ++known->combinations;
    }
  };
  const auto illegal = [&](const Strategy& s, Reason reason) {
    refuse(s, Rule::strategy, reason, 0);
  };
  const bool with_experts = model.routed();
  const auto listed_dp = values_or_default<&Strategy::dp>(space);
  const std::vector<OrDefault<Precision>> precisions = legal_precisions(space, cluster, task);
  if (precisions.empty()) {
    illegal(first_options(space), Reason::precision);
    return;
  }
  std::map<Signature, std::uint32_t> known;
  std::uint64_t listed = 0;  // option groups of all signatures

  const auto add = [&](Strategy s) {
    poll_point();
    // Judged with the options out of the way; each of them is judged where it is expanded.
    s.sequence_parallel = false;
    s.linear_precision = precisions.front();
    const Degrees d = resolve_degrees(s, cluster, task);
    if (const Reason reason = first_violation(s, d, model, cluster, task); reason != Reason::ok) {
      illegal(s, reason);
      return;
    }
    for (std::size_t i = 0; i < space.relations.size(); ++i) {
      if (holds(space.relations[i], d, model, cluster, task)) continue;
      refuse(s, Rule::relation, Reason::ok, i);
      return;
    }
    s.dp = static_cast<std::uint32_t>(d.dp);
    const Signature signature = signature_of(space, s, d, model, cluster, task);
    auto [at, fresh] = known.try_emplace(signature, static_cast<std::uint32_t>(options_.size()));
    if (fresh) {
      options_.push_back(make_options(space, signature, task, precisions));
      listed += options_.back().groups.size();
      require_listable(listed);
    }
    const Options& options = options_[at->second];
    if (options.groups.empty()) {
      const Strategy example = joined(s, first_options(space));
      const Degrees own = resolve_degrees(example, cluster, task);
      const Reason reason = first_violation(example, own, model, cluster, task);
      refuse(example, reason == Reason::ok ? Rule::exclusion : Rule::strategy, reason, 0);
      return;
    }
    points_.push_back({s, at->second, size_});
    size_ += options.size();
    groups_ += options.groups.size();
  };
  const auto add_micro_batches = [&](Strategy s) {
    for (const auto micro_batch : values_or_default<&Strategy::micro_batch>(space)) {
      s.micro_batch = micro_batch;
      add(s);
    }
  };
  const auto add_pipelines = [&](Strategy s) {
    for (const auto vpp : values_or_default<&Strategy::vpp>(space)) {
      s.vpp = vpp;
      if (s.pp == 1 && vpp > 1) {
        illegal(s, Reason::vpp_without_pp);
        continue;
      }
      for (const Schedule schedule : schedules(space, s.pp, vpp)) {
        s.schedule = schedule;
        add_micro_batches(s);
      }
    }
  };
  const auto add_experts = [&](Strategy s) {
    for (const auto ep : values_or_default<&Strategy::ep>(space)) {
      s.ep = ep;
      if (!with_experts && ep > 1) {
        illegal(s, Reason::ep_experts);
        continue;
      }
      for (const auto etp : expert_degrees(space, s.tp, ep, with_experts)) {
        s.etp = etp;
        add_pipelines(s);
      }
    }
  };
  Strategy s;
  for (const auto tp : values_or_default<&Strategy::tp>(space)) {
    s.tp = tp;
    for (const auto pp : values_or_default<&Strategy::pp>(space)) {
      s.pp = pp;
      for (const auto cp : values_or_default<&Strategy::cp>(space)) {
        s.cp = cp;
        const long long ranks = static_cast<long long>(tp) * pp * cp;
        const bool divides = cluster.accelerators % ranks == 0;
        const auto dp = static_cast<std::uint32_t>(cluster.accelerators / ranks);
        if (!divides || (!contains<std::uint32_t>(listed_dp, 0) && !contains(listed_dp, dp))) {
          s.dp = listed_dp.front();
          illegal(s, Reason::mesh);
          continue;
        }
        s.dp = dp;
        add_experts(s);
      }
    }
  }
}

std::size_t Enumeration::point_of(std::uint64_t row) const noexcept {
  const auto after = std::ranges::upper_bound(points_, row, {},
                                              [](const Point& point) { return point.first_row; });
  return static_cast<std::size_t>(after - points_.begin()) - 1;
}

std::uint64_t Enumeration::cut_near(std::uint64_t row, std::uint64_t most) const noexcept {
  const std::size_t number = point_of(row);
  const Point& point = points_[number];
  const std::uint64_t before = row - point.first_row;
  const std::uint64_t after = point.first_row + options(point).size() - row;
  if (std::min(before, after) > most) return row;
  return before <= after ? row - before : row + after;
}

std::vector<std::uint64_t> Enumeration::parts(std::uint64_t count) const {
  // Of size i / count the whole part, without a product beyond what a number holds.
  const std::uint64_t each = size_ / count, left = size_ % count, most = size_ / count / 4;
  std::vector<std::uint64_t> starts;
  starts.reserve(count + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t row = i * each + i * left / count;
    starts.push_back(i == 0 || row >= size_ ? row : cut_near(row, most));
  }
  starts.push_back(size_);
  return starts;
}

Strategy Enumeration::at(std::uint64_t row) const noexcept {
  const Point& point = points_[point_of(row)];
  return joined(point.degrees, options(point).at(row - point.first_row));
}

}  // namespace scalemodel
