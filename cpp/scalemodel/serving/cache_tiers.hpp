// Prefixes below the KV cache: host memory, SSDs, a pool that replicas share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scalemodel/base/enum_names.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"
#include "scalemodel/serving/block_cache.hpp"

namespace scalemodel {

/// When a block is written to a tier: once it is computed, once it has been found again, or once
/// the tier above evicts it. Source: SGLang HiCache, `--hicache-write-policy`.
enum class TierWrites : std::uint8_t { write_through, write_through_selective, write_back };

template <>
struct EnumNames<TierWrites> {
  static constexpr std::string_view what = "writes";
  static constexpr std::array<std::string_view, 3> names{"write_through", "write_through_selective",
                                                         "write_back"};
};

/// One tier, as a replica sees it: bandwidths are those of all its ranks together, and where the
/// tier is shared those of the whole tier.
struct CacheTier {
  Bytes capacity{1};
  BytesPerSecond read{1}, write{1};  ///< to and from the accelerators
  /// To one replica, where the tier is shared: as fast as its own ports; 0: no limit of its own.
  BytesPerSecond link{0};
  Seconds latency;  ///< of a transfer, beside its bytes
  TierWrites writes = TierWrites::write_through;
  double threshold_tokens = 0;  ///< fewer tokens than these are computed, not loaded
  bool layerwise =
      false;            ///< layers are computed as they come; else a prompt waits for all of them
  bool shared = false;  ///< one tier, and one bandwidth, for all replicas

  bool operator==(const CacheTier&) const = default;
};

template <>
struct RecordOf<CacheTier> {
  static constexpr std::string_view name = "CacheTier";
  using T = CacheTier;
  static constexpr FieldTable fields{
      field("capacity_bytes", &T::capacity, 0, 1e21, "of the tier"),
      field("read_bytes_per_s", &T::read, 1, 1e18,
            "to all ranks of a replica; of all replicas where shared"),
      field("write_bytes_per_s", &T::write, 1, 1e18, "from all ranks of a replica"),
      field("link_bytes_per_s", &T::link, 0, 1e18, "to one replica of a shared tier; 0: no limit"),
      field("latency_s", &T::latency, 0, 1e3, "of a transfer, beside its bytes"),
      field("writes", &T::writes, "when blocks are written to it"),
      field("threshold_tokens", &T::threshold_tokens, 0, 1e9,
            "fewer tokens than these are computed, not loaded"),
      field("layerwise", &T::layerwise, "layers are computed as they come"),
      field("shared", &T::shared, "one tier for all replicas")};
};

/// What a tier did.
struct TierTotals {
  double hits = 0;        ///< requests that loaded from it
  double hit_tokens = 0;  ///< prompt tokens they loaded
  Bytes read, written, evicted;
  Seconds read_busy, write_busy;
  Seconds read_wait;  ///< behind other reads, sum over hits

  bool operator==(const TierTotals&) const = default;
};

template <>
struct RecordOf<TierTotals> {
  static constexpr std::string_view name = "TierTotals";
  using T = TierTotals;
  static constexpr FieldTable fields{
      field("hits", &T::hits, "requests that loaded from it"),
      field("hit_tokens", &T::hit_tokens, "prompt tokens they loaded"),
      field("read_bytes", &T::read, "loaded"),
      field("written_bytes", &T::written, "written to it"),
      field("evicted_bytes", &T::evicted, "the least recently used, for lack of room"),
      field("read_busy_s", &T::read_busy, "time it was read"),
      field("write_busy_s", &T::write_busy, "time it was written"),
      field("read_wait_s", &T::read_wait, "behind other reads, sum over hits")};
};

TierTotals sum_of(const TierTotals& one, const TierTotals& other);

/// Time to load `bytes` from an idle tier: latency + bytes/bandwidth.
constexpr Seconds load_time(const CacheTier& tier, Bytes bytes) {
  const bool limited = tier.link > BytesPerSecond{} && tier.link < tier.read;
  return tier.latency + bytes / (limited ? tier.link : tier.read);
}

/// The blocks of one tier, the least recently used first. Reads queue on its read bandwidth, writes
/// on its write bandwidth; a block is there once it is written.
class TierStore {
 public:
  struct Entry {
    BlockHash name;
    Bytes bytes;
  };

  explicit TierStore(const CacheTier& settings) : settings_(settings) {}

  const CacheTier& settings() const noexcept { return settings_; }
  const TierTotals& totals() const noexcept { return totals_; }
  Bytes held() const noexcept { return held_; }
  /// Of a block that can be read, else 0.
  Bytes held_of(BlockHash name, Seconds now) const;
  /// A block is the most recently used.
  void touch(BlockHash name);
  /// When `tokens` of `bytes` are loaded.
  Seconds read(Seconds now, Bytes bytes, double tokens);
  /// Writes a block, unless it is there or larger than the tier. What it evicts follows in `left`.
  void write(Seconds now, const Entry& entry, std::vector<Entry>& left);
  /// Its content is lost, its totals stay.
  void clear();

 private:
  struct Node {
    Entry entry;
    Seconds written;
    int before, after;
  };
  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  void unlink(int node);
  void link_newest(int node);

  CacheTier settings_;
  TierTotals totals_;
  Bytes held_;
  Seconds read_free_, write_free_;
  std::unordered_map<BlockHash, int> places_;
  std::vector<Node> nodes_;
  std::vector<int> unused_;
  int oldest_ = -1, newest_ = -1;
};

/// The tiers of one replica, the nearest first. The stores outlive it; empty: none.
class CacheTiers {
 public:
  struct Load {
    double tokens = 0;
    Seconds ready;
    std::uint8_t deepest = 0;  ///< 1: the nearest tier
    bool layerwise = true;     ///< in every tier it comes from
  };

  CacheTiers() = default;
  CacheTiers(std::vector<TierStore*> stores, Bytes token)
      : stores_(std::move(stores)),
        token_(token),
        found_(stores_.size()),
        link_free_(stores_.size()) {}

  bool empty() const noexcept { return stores_.empty(); }
  /// Loads the longest run of `names` that tiers hold, `most` tokens at most. A tier that holds
  /// less of it than its threshold ends the run.
  Load load(Seconds now, std::span<const BlockHash> names, double most);
  /// A block was computed, found again in the KV cache, or evicted from there.
  void computed(Seconds now, BlockHash name, double tokens) {
    write(now, name, tokens, TierWrites::write_through);
  }
  void found_again(Seconds now, BlockHash name, double tokens) {
    write(now, name, tokens, TierWrites::write_through_selective);
  }
  void evicted(Seconds now, BlockHash name, double tokens);
  /// What is not shared is lost.
  void clear();

 private:
  struct Found {
    double tokens = 0;
    std::size_t first = 0;  ///< place of its first block in the run
  };
  /// A block of the run, and where it is.
  struct Step {
    std::size_t tier;
    double tokens;
  };
  void write(Seconds now, BlockHash name, double tokens, TierWrites policy);
  void write_down(Seconds now, std::size_t tier, const TierStore::Entry& entry);

  std::vector<TierStore*> stores_;
  Bytes token_;
  std::vector<Found> found_;
  std::vector<Seconds> link_free_;  ///< of each tier's link to this replica
  std::vector<Step> run_;
};

}  // namespace scalemodel
