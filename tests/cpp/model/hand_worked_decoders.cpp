// Parameters that no published count contains, by hand.
#include "support.hpp"

namespace scalemodel {
namespace {

TEST_CASE("by hand: a prediction module joins two streams") {
  // 2 h x h, and the norms of both streams and of what follows: 3 h (DeepSeek-V3, arXiv
  // 2412.19437).
  const Model model = make_decoder(testing::latent_experts_shape());
  CHECK(model.mtp_projection_parameters == 2.0 * 2048 * 2048 + 3 * 2048);
}

}  // namespace
}  // namespace scalemodel
