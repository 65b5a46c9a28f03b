#include <doctest/doctest.h>

#include <vector>

#include "approx.hpp"
#include "scalemodel/calibration/fit_kernels.hpp"

namespace scalemodel::testing {
namespace {

DispatchKernel planted() {
  DispatchKernel kernel;
  kernel.launch = 20 * unit::us;
  kernel.domain_rate = 150 * unit::GB / unit::s;
  kernel.network_rate = 45 * unit::GB / unit::s;
  return kernel;
}

/// Calls inside a node and over several, on links of half and of all the rate of the constants.
std::vector<DispatchCall> calls() {
  std::vector<DispatchCall> found;
  for (const double tokens : {16.0, 256.0, 4096.0}) {
    for (const double ranks : {8.0, 32.0, 128.0}) {
      for (const double scale : {0.5, 1.0}) {
        found.push_back({{tokens, 7168, 8, 256, ranks, ranks / 8, 0, 132}, 1, scale});
      }
    }
  }
  return found;
}

std::vector<TimedSample> times(const DispatchKernel& kernel,
                               const std::vector<DispatchCall>& calls) {
  std::vector<TimedSample> samples;
  for (const DispatchCall& call : calls) {
    DispatchKernel there = kernel;
    there.value_bytes = call.value_bytes;
    there.domain_rate = call.domain_scale * kernel.domain_rate;
    samples.push_back({dispatch_time(call.work, there)});
  }
  return samples;
}

}  // namespace

TEST_CASE("constants of a dispatch library come back from accelerators with different links") {
  DispatchKernel prior = planted();
  prior.launch = 5 * unit::us;
  prior.domain_rate = 90 * unit::GB / unit::s;
  prior.network_rate = 20 * unit::GB / unit::s;
  const std::vector<FreeField> fields{{"launch_s", 1e-6, 1e-3},
                                      {"domain_bytes_per_s", 1e10, 1e12},
                                      {"network_bytes_per_s", 1e9, 1e11}};
  const auto asked = calls();
  const auto fitted = fit_dispatch(prior, asked, times(planted(), asked), fields);
  CHECK(fitted.record.launch.base() == Approx(planted().launch.base()).epsilon(0.02));
  CHECK(fitted.record.domain_rate.base() == Approx(planted().domain_rate.base()).epsilon(0.02));
  CHECK(fitted.record.network_rate.base() == Approx(planted().network_rate.base()).epsilon(0.02));
  CHECK(fitted.record.value_bytes == prior.value_bytes);  // a fact of each call
}

TEST_CASE("calls inside one node leave the network as it was") {
  std::vector<DispatchCall> inside;
  for (const DispatchCall& call : calls()) {
    if (call.work.nodes == 1) inside.push_back(call);
  }
  DispatchKernel prior = planted();
  prior.network_rate = 20 * unit::GB / unit::s;
  const std::vector<FreeField> fields{{"network_bytes_per_s", 1e9, 1e11}};
  const auto fitted = fit_dispatch(prior, inside, times(planted(), inside), fields);
  CHECK(fitted.fit.fields.at(0).frozen);
  CHECK(fitted.record.network_rate == prior.network_rate);
}

}  // namespace scalemodel::testing
