// What completes the degrees of a point: the options that are legal there and change something.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scalemodel/search/space.hpp"

namespace scalemodel {

/// The listed values of a field, or its default alone.
template <auto Member>
auto values_or_default(const Space& space) {
  using Values = std::remove_cvref_t<decltype(space.of<Member>())>;
  const Values& values = space.of<Member>();
  return values.empty() ? Values{Strategy{}.*Member} : values;
}

template <class T>
bool contains(const std::vector<T>& values, T value) {
  return std::ranges::find(values, value) != values.end();
}

/// Everything about a point that decides which of its options are legal and matter. Points that
/// agree in it share one list.
struct Signature {
  int tp = 1, cp = 1, pp = 1, dp = 1;  ///< 1 or 2: whether the axis has more than one rank
  bool expert_replicas = false;        ///< several ranks hold the same experts
  int node_shard = 0;                  ///< what HSDP's shard_degree 0 stands for, where listed
  bool splits_sequence = true;         ///< sequence parallelism is legal
  bool splits_heads = true;            ///< all-to-all context parallelism is legal
  std::uint64_t shards = 0;            ///< listed shard degrees that HSDP takes, a bit each
  std::uint64_t secondaries = 0;       ///< listed secondary degrees that ZeRO-3 takes
  std::uint64_t layers = 0;            ///< listed numbers of recomputed layers that matter
  std::uint64_t exclusions = 0;        ///< exclusions that this point's degrees match

  auto operator<=>(const Signature&) const = default;
};

/// `point`: its degrees resolved to `degrees`.
Signature signature_of(const Space& space, const Strategy& point, const Degrees& degrees,
                       const Model& model, const Cluster& cluster, const Task& task);

/// Option groups are held in memory, half a gigabyte of them at most. Throws MalformedQuestion
/// where they are too many for that.
void require_listable(std::uint64_t groups);

/// All options of the points with a signature.
Options make_options(const Space& space, const Signature& at, const Task& task,
                     const std::vector<OrDefault<Precision>>& precisions);

/// Listed precisions that the accelerator has a rate for, each once.
std::vector<OrDefault<Precision>> legal_precisions(const Space& space, const Cluster& cluster,
                                                   const Task& task);

}  // namespace scalemodel
