#include "bindings/version.hpp"

namespace scalemodel::bindings {

const char* version() { return SCALEMODEL_VERSION; }

}  // namespace scalemodel::bindings
