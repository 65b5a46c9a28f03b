#include <algorithm>
#include <cmath>
#include <span>

#include "scalemodel/serving/replica.hpp"

namespace scalemodel {

/// The longest run of blocks from the start that are held, and what is left to compute. The last
/// token is computed in any case: its logits give the next one. A name stands for everything up to
/// and including its block: one that is held behind other blocks is not the same.
void Replica::find_prefix(Prompt& prompt) {
  prompt.chain = {};
  double hit = 0;
  for (const BlockHash name : caching_.prefixes.of(prompt.request)) {
    const int block = prefixes_.find(name);
    if (block == PrefixCache::kNone || prefixes_.parent(block) != prompt.chain.last) break;
    prompt.chain.last = block;
    ++prompt.chain.count;
    hit += prefixes_.tokens(block);
  }
  if (requests_[prompt.request].prefilled && prompt.rest <= 0) return;
  const double block_tokens = times_.engine().block_tokens;
  const double most = std::floor((prompt.tokens - 1) / block_tokens) * block_tokens;
  const double rest = prompt.tokens - std::min(hit, most);
  backlog_ += rest - prompt.rest;
  prompt.rest = rest;
}

/// What tiers hold behind the blocks of the KV cache is loaded instead of computed, up to the last
/// token.
void Replica::load_prefix(Prompt& prompt) {
  const std::span<const BlockHash> names = caching_.prefixes.of(prompt.request);
  for (int block = prompt.chain.last; block != PrefixCache::kNone;
       block = prefixes_.parent(block)) {
    tiers_.found_again(now_, prefixes_.name(block), prefixes_.tokens(block));
  }
  if (prompt.rest <= 1) return;
  const double own = times_.engine().block_tokens;
  const double last = std::floor((prompt.tokens - 1) / own) * own;
  const double held = std::min(last, prompt.tokens - prompt.rest);
  const CacheTiers::Load loaded =
      tiers_.load(now_, names.subspan(static_cast<std::size_t>(prompt.chain.count)), last - held);
  if (loaded.tokens <= 0) return;
  backlog_ -= loaded.tokens;
  prompt.rest -= loaded.tokens;
  prompt.since = loaded.ready;
  prompt.waits = !loaded.layerwise;
  if (prompt.waits) ++loading_;
  served_[prompt.request].tier = std::max(served_[prompt.request].tier, loaded.deepest);
}

/// Names the blocks that `computed` tokens of a sequence fill; of a last one that a prompt fills in
/// part, whole blocks of the engine.
void Replica::extend(Chain& chain, std::size_t request, double computed) {
  const std::span<const BlockHash> names = caching_.prefixes.of(request);
  const double size = caching_.prefixes.block_tokens, input = requests_[request].input;
  while (static_cast<std::size_t>(chain.count) < names.size()) {
    const double begin = chain.count * size;
    double tokens = size;
    if (computed < begin + size) {
      if (input >= begin + size || computed < input) return;
      const double own = times_.engine().block_tokens;
      tokens = std::floor((input - begin) / own) * own;
      if (tokens <= 0) return;
    }
    const BlockHash name = names[static_cast<std::size_t>(chain.count)];
    const int block = prefixes_.find(name);
    if (block != PrefixCache::kNone) {
      if (prefixes_.parent(block) != chain.last) return;
      prefixes_.share(block);
      chain.last = block;
    } else {
      if (keeps_beside() && !make_room(tokens)) return;
      chain.last = prefixes_.add(name, chain.last, tokens);
      if (!tiers_.empty()) tiers_.computed(now_, name, tokens);
    }
    ++chain.count;
  }
}

/// What does not fit beside running sequences any more leaves.
void Replica::trim_prefixes() {
  if (keeps_beside()) return;
  const double spare = all_blocks_ - used();
  while (prefixes_.idle_tokens() > 0 && token_blocks_ * prefixes_.idle_tokens() > spare) {
    forget_oldest();
  }
}

void Replica::forget_oldest() {
  if (!tiers_.empty()) {
    const int block = prefixes_.oldest();
    tiers_.evicted(now_, prefixes_.name(block), prefixes_.tokens(block));
  }
  prefixes_.forget_oldest();
}

/// Room for a block in a store beside the KV cache; false: everything in it is in use.
bool Replica::make_room(double tokens) {
  while (prefixes_.held_tokens() + tokens > caching_.store_tokens) {
    if (prefixes_.idle_tokens() <= 0) return false;
    forget_oldest();
  }
  return true;
}

}  // namespace scalemodel
