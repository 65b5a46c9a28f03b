// Requests that one forward pass answers (encoders, ranking), gathered into batches as they come.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// Time of a pass over some requests: `alone` up to `padded` of them, `more` for every further one,
/// never above `most`.
struct BatchPass {
  Seconds alone, more;
  double padded = 1, most = 1;

  Seconds of(double requests) const noexcept {
    return alone + (requests > padded ? requests - padded : 0.0) * more;
  }
  bool operator==(const BatchPass&) const = default;
};

template <>
struct RecordOf<BatchPass> {
  static constexpr std::string_view name = "BatchPass";
  using T = BatchPass;
  static constexpr FieldTable fields{
      field("alone_s", &T::alone, 1e-9, 1e6, "time of the smallest pass"),
      field("more_s", &T::more, 0, 1e6, "time that every further request adds"),
      field("padded", &T::padded, 1, 1e9, "requests of the smallest pass"),
      field("most", &T::most, 1, 1e9, "requests of the largest pass")};
};

/// The line through the times of two passes, of `padded` and of `most` requests.
BatchPass batch_pass(Seconds alone, Seconds full, double padded, double most) noexcept;

/// A server of batches in its steady state.
struct BatchState {
  double batch = 0;        ///< requests of a pass, mean
  Seconds pass;            ///< time of a pass
  Seconds latency;         ///< latency of a request, waiting included; 0: it grows without bound
  double utilisation = 0;  ///< rate over that of full batches
  bool saturated = false;
  Hertz leaving;    ///< requests answered per second: all that arrive, or what full batches take
  double busy = 0;  ///< share of the time in which a pass runs

  bool operator==(const BatchState&) const = default;
};

template <>
struct RecordOf<BatchState> {
  static constexpr std::string_view name = "BatchState";
  using T = BatchState;
  static constexpr FieldTable fields{
      field("batch", &T::batch, "requests of a pass, mean"),
      field("pass_s", &T::pass, "time of a pass"),
      field("latency_s", &T::latency,
            "latency of a request, waiting included; 0 = it grows without bound"),
      field("utilisation", &T::utilisation, "rate over that of full batches"),
      field("saturated", &T::saturated, "more arrive than full batches take"),
      field("leaving_per_s", &T::leaving, "requests answered per second"),
      field("busy_fraction", &T::busy, "share of the time in which a pass runs")};
};

/// With requests arriving at random. Requests that arrive during a pass are in the next one, and an
/// idle server starts with the first to come, so that a pass of mean time X takes rate X +
/// exp(-rate X) requests; a request waits for half of the pass it meets, for full passes of those
/// ahead (prompt_steps.hpp), and takes its own.
BatchState batch_state_at(const BatchPass& pass, Hertz rate) noexcept;

/// With full batches one after another.
BatchState full_batches(const BatchPass& pass) noexcept;

/// Mean power of an accelerator of such a server: between the watts of both passes that
/// `batch_pass` was made of, by how full its batches are, and idle between passes.
Watts batch_power(const BatchPass& pass, const BatchState& state, Watts alone, Watts full,
                  Watts idle) noexcept;

/// What an autoencoder makes one place of: pixels either way, and frames of a video, of which the
/// first stands alone (Kingma and Welling's codes as latent diffusion uses them, arXiv 2112.10752;
/// causal ones of videos, Wan, arXiv 2503.20314, section 4.1).
struct LatentGrid {
  double pixels = 1, frames = 1;

  bool operator==(const LatentGrid&) const = default;
};

template <>
struct RecordOf<LatentGrid> {
  static constexpr std::string_view name = "LatentGrid";
  using T = LatentGrid;
  static constexpr FieldTable fields{
      field("pixels", &T::pixels, 1, 4096, "pixels of a place, either way"),
      field("frames", &T::frames, 1, 4096, "frames of a place; the first stands alone")};
};

/// Places of an image, or of a video of several frames, of that many pixels.
double latent_places(const LatentGrid& grid, int height, int width, int frames) noexcept;

/// Parts of a generation, for as many samples as go through it together: encoders of the text once,
/// a denoising step as often as asked, the decoder once.
struct GenerationPass {
  Seconds encoders, denoising, decoder;
  int steps = 1;

  Seconds total() const noexcept { return encoders + steps * denoising + decoder; }
  bool operator==(const GenerationPass&) const = default;
};

template <>
struct RecordOf<GenerationPass> {
  static constexpr std::string_view name = "GenerationPass";
  using T = GenerationPass;
  static constexpr FieldTable fields{
      field("encoders_s", &T::encoders, 0, 1e9, "encoders of the text"),
      field("denoising_s", &T::denoising, 0, 1e9, "one denoising step"),
      field("decoder_s", &T::decoder, 0, 1e9, "decoder of the latents"),
      field("steps", &T::steps, 1, 100'000, "denoising steps")};
};

}  // namespace scalemodel
