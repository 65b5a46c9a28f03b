#include "scalemodel/routing/policies/spray.hpp"

#include <algorithm>

namespace scalemodel {

Routing spray(const RoutingInstance& instance) {
  Routing routing;
  routing.sprayed = true;
  for (std::size_t f = 0; f < instance.size(); ++f) {
    const std::int32_t paths = instance.paths_of(f);
    const auto begin = static_cast<std::ptrdiff_t>(routing.share.size());
    double sum = 0;
    for (std::int32_t p = 0; p < paths; ++p) {
      double narrowest = kInfinity;
      for (const std::int32_t link : instance.links(f, p)) {
        narrowest = std::min(narrowest, instance.graph.capacity(link).base());
      }
      routing.choice.push_back(p);
      routing.share.push_back(narrowest);
      sum += narrowest;
    }
    std::for_each(routing.share.begin() + begin, routing.share.end(),
                  [&](double& share) { share /= sum; });
    if (paths == 0) {
      routing.choice.push_back(PathSets::kNone);
      routing.share.push_back(1);
    }
    routing.first.push_back(static_cast<std::int32_t>(routing.choice.size()));
  }
  return routing;
}

}  // namespace scalemodel
