// Samples of a training step: read, decoded and copied to the devices beside the step before.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// One sample as it is stored, and what it becomes.
struct StoredSample {
  Bytes stored;    ///< read of it
  Bytes decoded;   ///< copied to a device
  Seconds decode;  ///< of one CPU core

  bool operator==(const StoredSample&) const = default;
};

/// What feeds the steps of a job.
struct DataPath {
  double nodes = 1;             ///< that load data
  double devices = 1;           ///< that data is copied to
  double cores = 1;             ///< of a node, that decode
  BytesPerSecond node_storage;  ///< of a node, from storage
  BytesPerSecond shared;        ///< of the storage as a whole; 0 = it does not limit the nodes
  BytesPerSecond node_network;  ///< of a node, from remote storage; 0 = storage of the node
  BytesPerSecond host_link;     ///< of a device

  bool operator==(const DataPath&) const = default;
};

/// Samples per second that each part of a path passes; infinite where a sample asks nothing of it.
constexpr Hertz storage_rate(const StoredSample& sample, const DataPath& path) {
  const BytesPerSecond nodes = path.nodes * path.node_storage;
  return (path.shared > BytesPerSecond{} ? min(nodes, path.shared) : nodes) / sample.stored;
}
constexpr Hertz network_rate(const StoredSample& sample, const DataPath& path) {
  if (!(path.node_network > BytesPerSecond{})) return Hertz{kInfinity};
  return path.nodes * path.node_network / sample.stored;
}
constexpr Hertz decode_rate(const StoredSample& sample, const DataPath& path) {
  if (!(sample.decode > Seconds{})) return Hertz{kInfinity};
  return path.nodes * path.cores / sample.decode;
}
constexpr Hertz host_link_rate(const StoredSample& sample, const DataPath& path) {
  return path.devices * path.host_link / sample.decoded;
}

/// Parts of a step that load data and work at the same time, so the slowest decides.
constexpr Hertz loading_rate(const StoredSample& sample, const DataPath& path) {
  return min(min(storage_rate(sample, path), network_rate(sample, path)),
             min(decode_rate(sample, path), host_link_rate(sample, path)));
}

/// Of every step, waiting for its samples: what loading takes longer than the step where batches
/// are fetched ahead, the whole loading where they are not.
constexpr Seconds exposed_loading(double samples, Hertz rate, Seconds step, bool prefetches) {
  const Seconds loading = samples / rate;
  return prefetches ? max(Seconds{}, loading - step) : loading;
}

/// Cores of a node that decode as fast as a step asks.
constexpr double cores_needed(const StoredSample& sample, Hertz needed, double nodes) {
  return needed * sample.decode / nodes;
}

template <>
struct RecordOf<StoredSample> {
  static constexpr std::string_view name = "StoredSample";
  using T = StoredSample;
  static constexpr FieldTable fields{
      field("stored_bytes", &T::stored, 1e-3, 1e15, "read of it"),
      field("decoded_bytes", &T::decoded, 1e-3, 1e15, "copied to a device"),
      field("decode_s", &T::decode, 0, 1e6, "of one CPU core")};
};

template <>
struct RecordOf<DataPath> {
  static constexpr std::string_view name = "DataPath";
  using T = DataPath;
  static constexpr FieldTable fields{
      field("nodes", &T::nodes, 1e-3, 1e9, "that load data"),
      field("devices", &T::devices, 1, 1e9, "that data is copied to"),
      field("cores", &T::cores, 1e-3, 1e6, "of a node, that decode"),
      field("node_storage_bytes_per_s", &T::node_storage, 1, 1e15, "of a node, from storage"),
      field("shared_bytes_per_s", &T::shared, 0, 1e18, "of the whole storage; 0 = no limit"),
      field("node_network_bytes_per_s", &T::node_network, 0, 1e18,
            "of a node, from remote storage; 0 = storage of the node"),
      field("host_link_bytes_per_s", &T::host_link, 1, 1e15, "of a device")};
};

}  // namespace scalemodel
