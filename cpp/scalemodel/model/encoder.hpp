// Encoders of encoder-decoder models: what every layer of the decoder attends to beside its own
// tokens.
#pragma once

#include "scalemodel/model/decoder.hpp"
#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// The encoder of a decoder whose shape asks for one, as a tower with a patch for each position of
/// a source. It reads source tokens by the decoder's token embedding (T5, arXiv 1910.10683, section
/// 2.1), or frames by two convolutions three frames wide, the second of which keeps one of
/// `encoder_stride` (Whisper, arXiv 2212.04356, section 2.2).
VisionTower make_encoder(const DecoderShape& shape);

}  // namespace scalemodel
