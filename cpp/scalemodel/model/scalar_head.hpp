// A decoder that ends in one number instead of words, as reward models do.
#pragma once

#include "scalemodel/model/model.hpp"

namespace scalemodel {

/// The same decoder with one row of weights for an LM head: one score of a token, no
/// multi-token-prediction modules. The token embedding stays, and is tied to nothing. Source:
/// NVIDIA-NeMo/RL, dtensor_policy_worker_v2.py: reward models are sequence classifiers of one
/// label.
inline Model with_scalar_head(Model model) {
  model.vocab = 1;
  model.tied_embeddings = false;
  model.head_parameters = model.hidden;
  model.mtp_layers = 0;
  return model;
}

}  // namespace scalemodel
