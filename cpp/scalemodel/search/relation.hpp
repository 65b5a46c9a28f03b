// Rules between the degrees of a strategy.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "scalemodel/strategy/legal.hpp"

namespace scalemodel {

/// Quantities a relation may speak of.
enum class Variable : std::uint8_t {
  tp,
  cp,
  pp,
  dp,
  ep,
  etp,
  vpp,
  micro_batch,
  micro_batches,
  accelerators,
  node_accelerators,
  domain,
  layers,
  hidden,
  heads,
  kv_heads,
  experts,
  sequence,
  global_batch
};

template <>
struct EnumNames<Variable> {
  static constexpr std::string_view what = "variable";
  static constexpr std::array<std::string_view, 19> names{"tp",
                                                          "cp",
                                                          "pp",
                                                          "dp",
                                                          "ep",
                                                          "etp",
                                                          "vpp",
                                                          "micro_batch",
                                                          "micro_batches",
                                                          "accelerators",
                                                          "node_accelerators",
                                                          "domain",
                                                          "layers",
                                                          "hidden",
                                                          "heads",
                                                          "kv_heads",
                                                          "experts",
                                                          "sequence",
                                                          "global_batch"};
};

enum class Comparison : std::uint8_t {
  less,
  less_equal,
  equal,
  not_equal,
  greater_equal,
  greater,
  multiple_of
};

template <>
struct EnumNames<Comparison> {
  static constexpr std::string_view what = "comparison";
  static constexpr std::array<std::string_view, 7> names{
      "<", "<=", "==", "!=", ">=", ">", "multiple_of"};
};

/// factor times the variables.
struct Product {
  double factor = 1;
  std::vector<Variable> variables;

  bool operator==(const Product&) const = default;
};

/// A rule between degrees, such as tp cp <= domain.
struct Relation {
  Product left;
  Comparison comparison = Comparison::less_equal;
  Product right;

  bool operator==(const Relation&) const = default;
};

/// Whether degrees keep a rule.
bool holds(const Relation& relation, const Degrees& degrees, const Model& model,
           const Cluster& cluster, const Task& task);

}  // namespace scalemodel
