// How far measurements stray from predictions, by those that were compared before.
#pragma once

#include <span>

namespace scalemodel {

/// The value that the next one of a weighted sample does not exceed with probability `coverage`:
/// the smallest v with
///
///     sum of the weights of values <= v  >=  coverage * (sum of all weights + weight of the next)
///
/// The next value itself may lie beyond all seen; infinite where the sample is too small to promise
/// anything. Its weight is the mean one where `next_weight` is 0. Holds for any distribution whose
/// values are exchangeable: Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World (2005),
/// section 2.2; with weights: Tibshirani et al., Conformal prediction under covariate shift (2019).
/// Values of exchangeable groups weigh 1 / (values of their group), the next one, of a group of its
/// own, 1: Lee, Barber, Willett, Distribution-free inference with hierarchical data (2023).
/// Preconditions: as many weights as values, all positive; 0 < coverage < 1; next_weight >= 0.
double conformal_bound(std::span<const double> values, std::span<const double> weights,
                       double coverage, double next_weight = 0);

}  // namespace scalemodel
