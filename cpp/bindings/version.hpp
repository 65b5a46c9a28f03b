#pragma once

namespace scalemodel::bindings {

/// Of the package, as pyproject.toml says it.
const char* version();

}  // namespace scalemodel::bindings
