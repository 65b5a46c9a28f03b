// Collectives that were timed on the network in question: measured points instead of a model.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };

template <>
struct EnumNames<Collective> {
  static constexpr std::string_view what = "collective";
  static constexpr std::array<std::string_view, 4> names{"all_reduce", "all_gather",
                                                         "reduce_scatter", "all_to_all"};
};

/// Times of one operation on one shape of group, sizes ascending; unused points are zero.
struct MeasuredCurve {
  static constexpr std::size_t kPoints = 16;
  Collective op = Collective::all_reduce;
  int ranks = 0;    ///< 0 = no curve
  int domains = 1;  ///< scale-up domains the group spanned
  std::array<Bytes, kPoints> size{};
  std::array<Seconds, kPoints> time{};

  bool operator==(const MeasuredCurve&) const = default;
};

/// Curves of one cluster; those in use come first.
inline constexpr std::size_t kMeasuredCurves = 8;
using MeasuredCurves = std::array<MeasuredCurve, kMeasuredCurves>;

template <>
struct RecordOf<MeasuredCurve> {
  static constexpr std::string_view name = "MeasuredCurve";
  using T = MeasuredCurve;
  static constexpr FieldTable fields{
      field("op", &T::op, "collective that was timed"),
      field("ranks", &T::ranks, 0, 1e8, "of the group; 0 = no curve"),
      field("domains", &T::domains, 1, 1e8, "scale-up domains the group spanned"),
      field("size_bytes", &T::size, 0, 1e18,
            "ascending sizes, in nccl-tests convention; 0 = unused"),
      field("time_s", &T::time, 0, 1e6, "measured times; 0 = unused")};
};

}  // namespace scalemodel
