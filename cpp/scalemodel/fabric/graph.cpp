#include "scalemodel/fabric/graph.hpp"

namespace scalemodel {

std::int32_t LinkGraph::add_node(NodeKind kind) {
  kinds_.push_back(kind);
  return nodes() - 1;
}

std::int32_t LinkGraph::add_cable(std::int32_t a, std::int32_t b, BytesPerSecond capacity,
                                  Seconds latency) {
  const std::int32_t first = links();
  from_.insert(from_.end(), {a, b});
  to_.insert(to_.end(), {b, a});
  capacity_.insert(capacity_.end(), 2, capacity.base());
  built_.insert(built_.end(), 2, capacity.base());
  latency_.insert(latency_.end(), 2, latency.base());
  return first;
}

void LinkGraph::add_nic(std::int32_t node) { nic_nodes_.push_back(node); }

void LinkGraph::finish() {
  out_first_.assign(kinds_.size() + 1, 0);
  for (const std::int32_t node : from_) ++out_first_[node + 1];
  for (std::size_t n = 1; n < out_first_.size(); ++n) out_first_[n] += out_first_[n - 1];
  out_links_.resize(from_.size());
  std::vector<std::int32_t> next(out_first_.begin(), out_first_.end() - 1);
  for (std::int32_t link = 0; link < links(); ++link) out_links_[next[from_[link]]++] = link;
}

std::int32_t LinkGraph::only_link(std::int32_t nic) const {
  const auto out = links_from(nic_nodes_[nic]);
  if (out.size() != 1) return -1;
  const NodeKind neighbour = kinds_[to_[out[0]]];
  return neighbour == NodeKind::domain || neighbour == NodeKind::nic ? -1 : out[0];
}

void LinkGraph::fail_node(std::int32_t node) {
  for (const std::int32_t link : links_from(node)) fail_cable(link);
}

void LinkGraph::fail_cable(std::int32_t link) { scale_cable(link, 0); }

void LinkGraph::scale_cable(std::int32_t link, double factor) {
  for (const std::int32_t direction : {link, reverse(link)}) {
    capacity_[direction] = factor * built_[direction];
  }
}

}  // namespace scalemodel
