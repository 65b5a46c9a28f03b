#include "scalemodel/serving/cache_tiers.hpp"

#include <algorithm>

#include "scalemodel/base/poll.hpp"

namespace scalemodel {

TierTotals sum_of(const TierTotals& one, const TierTotals& other) {
  return {one.hits + other.hits,
          one.hit_tokens + other.hit_tokens,
          one.read + other.read,
          one.written + other.written,
          one.evicted + other.evicted,
          one.read_busy + other.read_busy,
          one.write_busy + other.write_busy,
          one.read_wait + other.read_wait};
}

Bytes TierStore::held_of(BlockHash name, Seconds now) const {
  const auto place = places_.find(name);
  const bool there = place != places_.end() && at(place->second).written <= now;
  return there ? at(place->second).entry.bytes : Bytes{};
}

void TierStore::unlink(int node) {
  const Node& one = at(node);
  (one.before < 0 ? oldest_ : at(one.before).after) = one.after;
  (one.after < 0 ? newest_ : at(one.after).before) = one.before;
}

void TierStore::link_newest(int node) {
  at(node).before = newest_;
  at(node).after = -1;
  (newest_ < 0 ? oldest_ : at(newest_).after) = node;
  newest_ = node;
}

void TierStore::touch(BlockHash name) {
  const auto place = places_.find(name);
  if (place == places_.end()) return;
  unlink(place->second);
  link_newest(place->second);
}

Seconds TierStore::read(Seconds now, Bytes bytes, double tokens) {
  const Seconds begin = max(now, read_free_);
  read_free_ = begin + bytes / settings_.read;
  totals_.hits += 1;
  totals_.hit_tokens += tokens;
  totals_.read += bytes;
  totals_.read_busy += read_free_ - begin;
  totals_.read_wait += begin - now;
  return read_free_ + settings_.latency;
}

void TierStore::write(Seconds now, const Entry& entry, std::vector<Entry>& left) {
  if (entry.bytes > settings_.capacity) return;
  if (places_.contains(entry.name)) {
    touch(entry.name);
    return;
  }
  while (held_ + entry.bytes > settings_.capacity) {
    const int node = oldest_;
    unlink(node);
    const Entry gone = at(node).entry;
    places_.erase(gone.name);
    unused_.push_back(node);
    held_ = held_ - gone.bytes;
    totals_.evicted += gone.bytes;
    left.push_back(gone);
  }
  const Seconds begin = max(now, write_free_);
  write_free_ = begin + entry.bytes / settings_.write;
  totals_.written += entry.bytes;
  totals_.write_busy += write_free_ - begin;
  int node = static_cast<int>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  at(node).entry = entry;
  at(node).written = write_free_ + settings_.latency;
  link_newest(node);
  places_[entry.name] = node;
  held_ += entry.bytes;
}

void TierStore::clear() {
  places_.clear();
  nodes_.clear();
  unused_.clear();
  oldest_ = newest_ = -1;
  held_ = {};
  read_free_ = write_free_ = {};
}

CacheTiers::Load CacheTiers::load(Seconds now, std::span<const BlockHash> names, double most) {
  Load loaded;
  std::fill(found_.begin(), found_.end(), Found{});
  run_.clear();
  double sum = 0;
  for (const BlockHash name : names) {
    poll_point();
    if (sum >= most) break;
    std::size_t tier = 0;
    Bytes bytes;
    while (tier < stores_.size() && !(bytes > Bytes{})) bytes = stores_[tier++]->held_of(name, now);
    if (!(bytes > Bytes{})) break;
    --tier;
    if (found_[tier].tokens <= 0) found_[tier].first = run_.size();
    const double tokens = std::min(bytes / token_, most - sum);
    found_[tier].tokens += tokens;
    sum += tokens;
    run_.push_back({tier, tokens});
  }
  // What lies behind a block that is not loaded has to be computed too.
  std::size_t end = run_.size();
  for (std::size_t tier = stores_.size(); tier-- > 0;) {
    const bool few = found_[tier].tokens < stores_[tier]->settings().threshold_tokens;
    if (found_[tier].tokens > 0 && few) end = std::min(end, found_[tier].first);
  }
  std::fill(found_.begin(), found_.end(), Found{});
  for (std::size_t i = 0; i < end; ++i) {
    found_[run_[i].tier].tokens += run_[i].tokens;
    loaded.tokens += run_[i].tokens;
  }
  // The end of a run is forgotten before its start.
  for (std::size_t i = end; i-- > 0;) {
    for (TierStore* store : stores_) store->touch(names[i]);
  }
  for (std::size_t tier = 0; tier < stores_.size(); ++tier) {
    const double tokens = found_[tier].tokens;
    if (tokens <= 0) continue;
    const CacheTier& settings = stores_[tier]->settings();
    const Bytes bytes = tokens * token_;
    loaded.ready = max(loaded.ready, stores_[tier]->read(now, bytes, tokens));
    if (settings.link > BytesPerSecond{}) {
      link_free_[tier] = max(now, link_free_[tier]) + bytes / settings.link;
      loaded.ready = max(loaded.ready, link_free_[tier] + settings.latency);
    }
    loaded.deepest = static_cast<std::uint8_t>(tier + 1);
    loaded.layerwise = loaded.layerwise && settings.layerwise;
  }
  return loaded;
}

void CacheTiers::write(Seconds now, BlockHash name, double tokens, TierWrites policy) {
  for (std::size_t tier = 0; tier < stores_.size(); ++tier) {
    if (stores_[tier]->settings().writes == policy) {
      write_down(now, tier, {name, tokens * token_});
    }
  }
}

/// Writes a block; what it evicts goes to the tier below where that one takes it then.
void CacheTiers::write_down(Seconds now, std::size_t tier, const TierStore::Entry& entry) {
  std::vector<TierStore::Entry> entries{entry};
  std::vector<TierStore::Entry> left;
  for (; tier < stores_.size() && !entries.empty(); ++tier) {
    for (const TierStore::Entry& each : entries) stores_[tier]->write(now, each, left);
    entries = std::exchange(left, {});
    const std::size_t below = tier + 1;
    if (below == stores_.size()) return;
    if (stores_[below]->settings().writes != TierWrites::write_back) return;
  }
}

void CacheTiers::evicted(Seconds now, BlockHash name, double tokens) {
  if (!stores_.empty() && stores_.front()->settings().writes == TierWrites::write_back) {
    write_down(now, 0, {name, tokens * token_});
  }
}

void CacheTiers::clear() {
  for (TierStore* store : stores_) {
    if (!store->settings().shared) store->clear();
  }
}

}  // namespace scalemodel
