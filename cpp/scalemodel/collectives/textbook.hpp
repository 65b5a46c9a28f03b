// Collectives of textbooks on ranks that are all alike, in the alpha-beta and LogGP models.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <tuple>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Algorithms as Thakur, Rabenseifner and Gropp (IJHPCA 2005) analyse them; `bruck` are the
/// logarithmic ones of Bruck et al. (TPDS 1997), `torus` is the two-dimensional all-reduce of
/// Mikami et al. (arXiv 1811.05233), `parameter_server` pushes to and pulls from sharded servers.
enum class TextbookAlgorithm : std::uint8_t {
  ring_all_gather,
  recursive_doubling_all_gather,
  bruck_all_gather,
  recursive_halving_reduce_scatter,
  ring_all_reduce,
  recursive_doubling_all_reduce,
  rabenseifner_all_reduce,
  torus_all_reduce,
  parameter_server,
  pairwise_all_to_all,
  bruck_all_to_all,
};

template <>
struct EnumNames<TextbookAlgorithm> {
  static constexpr std::string_view what = "textbook algorithm";
  static constexpr std::array<std::string_view, 11> names{
      "ring_all_gather",         "recursive_doubling_all_gather",
      "bruck_all_gather",        "recursive_halving_reduce_scatter",
      "ring_all_reduce",         "recursive_doubling_all_reduce",
      "rabenseifner_all_reduce", "torus_all_reduce",
      "parameter_server",        "pairwise_all_to_all",
      "bruck_all_to_all"};
};

/// Every message costs `latency + size / bandwidth`, and a rank sends and receives at once.
struct AlphaBeta {
  Seconds latency;
  BytesPerSecond bandwidth;
};

/// Rounds of an algorithm that doubles what a rank knows: log2 of the ranks, rounded up.
constexpr int doubling_rounds(int ranks) noexcept {
  return ranks <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1));
}

/// Time of one collective of `ranks`. `size` follows `collective_time`: the buffer of a rank for
/// all-reduce and all-to-all, that of all ranks together for the others. `groups` is the number of
/// columns of a torus (it divides the ranks) or of parameter servers. Recursive algorithms are
/// those of powers of two; other counts pay the round they do not fill.
constexpr Seconds textbook_time(TextbookAlgorithm algorithm, Bytes size, int ranks,
                                const AlphaBeta& link, int groups = 1) noexcept {
  if (ranks <= 1 || size <= Bytes{}) return Seconds{};
  const double n = ranks, log_n = doubling_rounds(ranks);
  const Seconds whole = size / link.bandwidth;
  const Seconds all_but_own = ((n - 1) / n) * whole;
  switch (algorithm) {
    case TextbookAlgorithm::ring_all_gather:
      return (n - 1) * link.latency + all_but_own;
    case TextbookAlgorithm::recursive_doubling_all_gather:
    case TextbookAlgorithm::bruck_all_gather:
    case TextbookAlgorithm::recursive_halving_reduce_scatter:
      return log_n * link.latency + all_but_own;
    case TextbookAlgorithm::ring_all_reduce:
      return 2 * (n - 1) * link.latency + 2 * all_but_own;
    case TextbookAlgorithm::recursive_doubling_all_reduce:
      return log_n * (link.latency + whole);
    case TextbookAlgorithm::rabenseifner_all_reduce:
      return 2 * log_n * link.latency + 2 * all_but_own;
    case TextbookAlgorithm::torus_all_reduce: {
      // Reduce-scatter along a row, all-reduce of the shares along a column, all-gather along the
      // row.
      const double columns = groups, rows = n / groups;
      return (2 * (columns - 1) + 2 * (rows - 1)) * link.latency +
             (2 * (columns - 1) / columns + 2 * (rows - 1) / (rows * columns)) * whole;
    }
    case TextbookAlgorithm::parameter_server: {
      // A server's link carries the shares of all workers, a worker's link the whole buffer.
      const double busiest = n > groups ? n / groups : 1;
      return 2 * (link.latency + busiest * whole);
    }
    case TextbookAlgorithm::pairwise_all_to_all:
      return (n - 1) * link.latency + all_but_own;
    case TextbookAlgorithm::bruck_all_to_all:
      // Every round sends half of the buffer.
      return log_n * (link.latency + 0.5 * whole);
  }
  return Seconds{};
}

/// Parameters of LogGP (Alexandrov et al., SPAA 1995). LogP (Culler et al., PPoPP 1993) is the case
/// of short messages, `gap_per_byte` = 0.
struct LogGP {
  Seconds latency;       ///< L, from sender to receiver
  Seconds overhead;      ///< o, of a processor that sends or receives
  Seconds gap;           ///< g, at least between two messages of a processor
  Seconds gap_per_byte;  ///< G, of a long message

  bool operator==(const LogGP&) const = default;
};

template <>
struct RecordOf<LogGP> {
  static constexpr std::string_view name = "LogGP";
  using T = LogGP;
  static constexpr FieldTable fields{
      field("latency_s", &T::latency, 0, 1, "L, from sender to receiver"),
      field("overhead_s", &T::overhead, 0, 1, "o, of a processor that sends or receives"),
      field("gap_s", &T::gap, 0, 1, "g, at least between two messages of a processor"),
      field("gap_per_byte_s", &T::gap_per_byte, 0, 1, "G, between the bytes of a message")};
};

/// Time until the last of `messages` of `size`, sent back to back, has been received:
/// o + (k-1) G + L + o, and max(g, o + (k-1) G) for every message in front of it.
constexpr Seconds loggp_time(Bytes size, int messages, const LogGP& p) noexcept {
  if (messages <= 0 || size <= Bytes{}) return Seconds{};
  const double bytes = size / Bytes{1};
  const Seconds long_part = (bytes > 1 ? bytes - 1 : 0) * p.gap_per_byte;
  const Seconds between = max(p.gap, p.overhead + long_part);
  return (messages - 1) * between + 2 * p.overhead + long_part + p.latency;
}

/// Time of the fastest broadcast of a short message (Culler et al., figure 3): every
/// rank that has the message goes on sending it, one every max(g, o), to ranks without it.
inline Seconds logp_broadcast_time(int ranks, const LogGP& p) {
  using Senders = std::priority_queue<double, std::vector<double>, std::greater<>>;
  Senders next_send({}, std::vector<double>{0.0});
  const double pause = max(p.gap, p.overhead) / Seconds{1};
  const double travel = (p.latency + 2 * p.overhead) / Seconds{1};
  double last = 0;
  for (int reached = 1; reached < ranks; ++reached) {
    const double at = next_send.top();
    next_send.pop();
    last = at + travel;
    next_send.push(at + pause);
    next_send.push(last);
  }
  return Seconds{last};
}

/// The alpha-beta link that costs long messages the same: alpha = L + 2 o, 1 / beta = G.
/// Precondition: G is above zero.
constexpr AlphaBeta alpha_beta_of(const LogGP& p) noexcept {
  return {p.latency + 2 * p.overhead, Bytes{1} / p.gap_per_byte};
}

}  // namespace scalemodel
