#include "scalemodel/serving/batches.hpp"

#include <algorithm>
#include <cmath>

#include "scalemodel/serving/prompt_steps.hpp"

namespace scalemodel {

BatchPass batch_pass(Seconds alone, Seconds full, double padded, double most) noexcept {
  const Seconds each = (full - alone) / std::max(1.0, most - padded);
  return {alone, max(Seconds{}, each), padded, most};
}

BatchState full_batches(const BatchPass& pass) noexcept {
  BatchState state;
  state.batch = pass.most;
  state.pass = state.latency = pass.of(pass.most);
  state.utilisation = state.busy = 1;
  state.leaving = state.batch / state.pass;
  return state;
}

Watts batch_power(const BatchPass& pass, const BatchState& state, Watts alone, Watts full,
                  Watts idle) noexcept {
  const double filled = (state.batch - pass.padded) / std::max(1.0, pass.most - pass.padded);
  const Watts running = alone + std::max(0.0, filled) * (full - alone);
  return state.busy * running + (1 - state.busy) * idle;
}

BatchState batch_state_at(const BatchPass& pass, Hertz rate) noexcept {
  constexpr int kMaxRounds = 200;
  constexpr double kTolerance = 1e-9;
  BatchState state;
  const Seconds full = pass.of(pass.most);
  state.utilisation = rate * full / pass.most;
  state.saturated = state.utilisation >= 1;
  state.batch = pass.most;
  state.pass = full;
  state.leaving = pass.most / full;
  state.busy = 1;
  if (state.saturated) return state;
  state.leaving = rate;
  state.pass = pass.alone;
  for (int round = 0; round < kMaxRounds; ++round) {
    const double came = rate * state.pass;
    state.batch = std::min(pass.most, came + std::exp(-came));
    const Seconds next = pass.of(state.batch);
    const double change = std::abs(next / state.pass - 1);
    state.pass = next;
    if (change < kTolerance) break;
  }
  const double came = rate * state.pass;
  const double grows = std::min(0.95, rate * pass.more);
  // Of a Poisson number that is one instead of none, and of the passes it comes from.
  const double squares = came + came * came + std::exp(-came);
  const double varied = std::max(0.0, squares - state.batch * state.batch);
  const Seconds spread = varied / (1 - grows * grows) * (pass.more * pass.more / state.pass);
  const Seconds biased = state.pass + (state.batch > pass.padded ? spread : Seconds{});
  const double busy = state.busy = std::min(1.0, came / state.batch);
  Seconds wait = 0.5 * busy * biased;
  const Seconds half = wait;
  for (int round = 0; round < kMaxRounds; ++round) {
    const Seconds next = half + full_steps_ahead(rate * wait, pass.most) * full;
    const double change = std::abs(next / wait - 1);
    wait = next;
    if (change < kTolerance) break;
  }
  // Beside it are those that came during the pass it met, as far as there is room.
  const double places = pass.most - 1;
  const double beside = places > 0 ? places * (1 - std::exp(-(rate * biased) / places)) : 0;
  const Seconds own = pass.of(1 + beside);
  state.latency = wait + busy * own + (1 - busy) * pass.of(1);
  return state;
}

double latent_places(const LatentGrid& grid, int height, int width, int frames) noexcept {
  return height / grid.pixels * (width / grid.pixels) *
         (1 + std::floor((frames - 1) / grid.frames));
}

}  // namespace scalemodel
