// Chosen constants of a record from measured times.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

/// One measured time. Samples of one shape share a fold, so that holding a fold out holds the
/// shape out.
struct TimedSample {
  Seconds time;
  double weight = 1;
  int fold = 0;
};

/// A field that may be fitted, and the positive range physics allows it, in base units. Tied fields
/// follow it by the same factor: where samples show one scale but not its parts.
struct FreeField {
  std::string name;
  double low = 0, high = 1;
  // Braces, so that a list without tied fields is complete to every compiler.
  std::vector<std::string> tied{};  // NOLINT(readability-redundant-member-init)
};

/// What became of a field.
struct FittedField {
  std::string name;
  double value = 0;
  double prior = 0;
  double relative_error = 0;  ///< standard error of the logarithm
  bool frozen = false;        ///< the samples cannot see it: it keeps its prior
  bool at_bound = false;      ///< it ends at an end of its range
};

struct TimesFit {
  std::vector<FittedField> fields;
  std::vector<double> predicted_s;  ///< of every sample, all samples fitted
  std::vector<double> held_out_s;   ///< of every sample, its fold left out; empty with one fold
};

/// Writes the time of every sample for given values of the free fields.
using TimesOf = std::function<void(std::span<const double> values, std::span<double> times_s)>;

/// Minimises sum weight soft-L1(ln(predicted/measured)), scale .05, over the logarithms of the
/// fields, from the prior and from four further starts (a smooth maximum of branches has more than
/// one basin). A field that samples of 2-10 % scatter would leave uncertain by more than a quarter
/// is frozen at its prior, the worst one first, and the rest fitted again: what the samples cannot
/// see they must not move. Larger scatter is the model's fault and widens the error bars only;
/// smaller is luck, as repeated timings of one kernel differ by 2 %.
TimesFit fit_times(const TimesOf& times_of, std::span<const TimedSample> samples,
                   std::span<const FreeField> fields, std::span<const double> priors);

// ------------------------------------------------------------------------------------- by name
template <class M>
inline constexpr bool kIsNumber = std::is_same_v<M, double>;
template <Dim D>
inline constexpr bool kIsNumber<Quantity<D>> = true;

/// Calls `visit` with the numeric member of `record` named `name`, as a reference to its base
/// units' number; false when there is no such field.
template <Record T, class Visit>
bool visit_number(T& record, std::string_view name, Visit&& visit) {
  bool found = false;
  for_each_field<std::remove_const_t<T>>([&](const auto& field) {
    using M = typename std::remove_cvref_t<decltype(field)>::Member;
    if constexpr (kIsNumber<M>) {
      if (field.name != name) return;
      found = true;
      visit(record.*(field.member));
    }
  });
  return found;
}

template <Record T>
bool set_number(T& record, std::string_view name, double value) {
  return visit_number(record, name, [&](auto& member) {
    member = std::remove_reference_t<decltype(member)>{value};
  });
}

/// The number of a field in base units; 0 where the record has no such field.
template <Record T>
double number_of(T record, std::string_view name) {
  double number = 0;
  visit_number(record, name, [&](const auto& member) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, double>) {
      number = member;
    } else {
      number = member.base();
    }
  });
  return number;
}

/// The fitted fields, each followed by the fields tied to it. `numbers_of(name)` gives the value
/// and the prior of a field.
template <class NumbersOf>
std::vector<FittedField> with_tied(std::span<const FittedField> fitted,
                                   std::span<const FreeField> fields, const NumbersOf& numbers_of) {
  std::vector<FittedField> all;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    all.push_back(fitted[i]);
    for (const std::string& name : fields[i].tied) {
      FittedField follower = fitted[i];
      follower.name = name;
      std::tie(follower.value, follower.prior) = numbers_of(name);
      all.push_back(follower);
    }
  }
  return all;
}

template <Record T>
struct RecordFit {
  T record;
  TimesFit fit;
};

/// Fits the named fields of `prior`, everything else of it kept. `times_of(record, times_s)`
/// writes the time of every sample.
template <Record T, class TimesOfRecord>
RecordFit<T> fit_record(const T& prior, std::span<const TimedSample> samples,
                        std::span<const FreeField> fields, const TimesOfRecord& times_of) {
  std::vector<double> priors;
  for (const FreeField& field : fields) priors.push_back(number_of(prior, field.name));
  const auto with = [&](std::span<const double> values) {
    T record = prior;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      set_number(record, fields[i].name, values[i]);
      const double factor = priors[i] > 0 ? values[i] / priors[i] : 1;
      for (const std::string& name : fields[i].tied) {
        set_number(record, name, factor * number_of(prior, name));
      }
    }
    return record;
  };
  RecordFit<T> result;
  result.fit = fit_times([&](std::span<const double> values,
                             std::span<double> times_s) { times_of(with(values), times_s); },
                         samples, fields, priors);
  std::vector<double> values;
  values.reserve(result.fit.fields.size());
  for (const FittedField& field : result.fit.fields) values.push_back(field.value);
  result.record = with(values);
  result.fit.fields = with_tied(result.fit.fields, fields, [&](const std::string& name) {
    return std::pair{number_of(result.record, name), number_of(prior, name)};
  });
  return result;
}

}  // namespace scalemodel
