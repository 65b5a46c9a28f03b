// What a page asks of the engine.
#pragma once

#include <string>
#include <string_view>

namespace scalemodel::page {

/// The answer to one question, both as JSON. Cost tables stay for the next question about the same
/// model, cluster, task and stack. Throws MalformedQuestion.
std::string answer(std::string_view question);

}  // namespace scalemodel::page
