// Recurrent mixers as lists of operators: state spaces, delta rules, linear attention,
// convolutions.
#pragma once

#include "scalemodel/model/layer_units.hpp"

namespace scalemodel {

/// The recurrent mixer of a layer. `beside` attention, whose block it is then: it reads the same
/// norm and is added to the same sum.
Unit recurrent_unit(const LayerShape& layer, bool beside);

}  // namespace scalemodel
