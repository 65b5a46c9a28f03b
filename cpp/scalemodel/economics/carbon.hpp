// Greenhouse gas of electricity and of making the machines, in kg of CO2 equivalent.
#pragma once

#include <tuple>

#include "scalemodel/base/quantity.hpp"
#include "scalemodel/base/record.hpp"

namespace scalemodel {

inline constexpr Joules kKilowattHour{3.6e6};

/// kg emitted for an energy at the facility's meter, by the intensity of its grid in g/kWh.
constexpr double operational_kg(Joules energy, double grid_g_per_kwh) {
  return 1e-3 * grid_g_per_kwh * (energy / kKilowattHour);
}

/// Intensity of the grid, in g/kWh, that a published footprint implies. Precondition: energy > 0.
constexpr double implied_grid_g_per_kwh(double emitted_kg, Joules energy) {
  return 1e3 * emitted_kg / (energy / kKilowattHour);
}

/// How a chip is made: per cm2 of good die, before yield.
struct ChipProcess {
  double energy_kwh_per_cm2 = 0;  ///< electricity of the fab
  double gas_g_per_cm2 = 0;       ///< gases let out, 95 % abated
  double material_g_per_cm2 = 0;  ///< wafers, chemicals
  double grid_g_per_kwh = 0;      ///< of the fab
  double yield_fraction = 1;

  bool operator==(const ChipProcess&) const = default;
};

/// kg of making a die:  area (energy grid + gas + material) / yield.
/// Source: Gupta et al., ACT, ISCA 2022.
constexpr double die_kg(double area_cm2, const ChipProcess& process) {
  return 1e-3 * area_cm2 *
         (process.energy_kwh_per_cm2 * process.grid_g_per_kwh + process.gas_g_per_cm2 +
          process.material_g_per_cm2) /
         process.yield_fraction;
}

/// kg of making memory, by its capacity and the grams per GB (1e9 bytes) of its technology.
constexpr double memory_kg(Bytes capacity, double g_per_gb) {
  return 1e-3 * g_per_gb * (capacity / unit::GB);
}

/// What a server is made of beside its accelerators, kg each.
struct ServerParts {
  double casing_kg = 0, assembly_kg = 0, board_kg = 0, supplies_kg = 0, processors_kg = 0;
  double memory_kg = 0;

  bool operator==(const ServerParts&) const = default;
};

/// kg of one accelerator with its share of the server: a sum over parts (the Boavizta form).
constexpr double accelerator_share_kg(double accelerator_kg, const ServerParts& server,
                                      double accelerators) {
  return accelerator_kg + (server.casing_kg + server.assembly_kg + server.board_kg +
                           server.supplies_kg + server.processors_kg + server.memory_kg) /
                              accelerators;
}

/// The part of something bought once that a use of `used` seconds has to carry.
constexpr double amortised(double whole, Seconds used, Seconds lifetime,
                           double utilisation_fraction) {
  return whole * (used / lifetime) / utilisation_fraction;
}

template <>
struct RecordOf<ChipProcess> {
  static constexpr std::string_view name = "ChipProcess";
  using T = ChipProcess;
  static constexpr FieldTable fields{
      field("energy_kwh_per_cm2", &T::energy_kwh_per_cm2, 0, 1e3, "electricity of the fab"),
      field("gas_g_per_cm2", &T::gas_g_per_cm2, 0, 1e6, "gases let out"),
      field("material_g_per_cm2", &T::material_g_per_cm2, 0, 1e6, "wafers, chemicals"),
      field("grid_g_per_kwh", &T::grid_g_per_kwh, 0, 1e4, "of the fab"),
      field("yield_fraction", &T::yield_fraction, 0.01, 1, "good dies of all")};
};

template <>
struct RecordOf<ServerParts> {
  static constexpr std::string_view name = "ServerParts";
  using T = ServerParts;
  static constexpr FieldTable fields{
      field("casing_kg", &T::casing_kg, 0, 1e6, "of the server"),
      field("assembly_kg", &T::assembly_kg, 0, 1e6, "of the server"),
      field("board_kg", &T::board_kg, 0, 1e6, "of the server"),
      field("supplies_kg", &T::supplies_kg, 0, 1e6, "of all power supplies"),
      field("processors_kg", &T::processors_kg, 0, 1e6, "of all host processors"),
      field("memory_kg", &T::memory_kg, 0, 1e6, "of the host memory")};
};

}  // namespace scalemodel
