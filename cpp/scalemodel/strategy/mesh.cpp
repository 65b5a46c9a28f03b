#include "scalemodel/strategy/mesh.hpp"

#include <algorithm>
#include <charconv>

#include "scalemodel/base/error.hpp"

namespace scalemodel {
namespace {

[[noreturn]] void malformed(std::string_view text, const std::string& why) {
  throw MalformedQuestion("mesh='" + std::string(text) + "': " + why);
}

[[noreturn]] void malformed(std::string_view text, std::string_view part, const std::string& why) {
  malformed(text, std::string("'").append(part).append("' ").append(why));
}

/// Fraction that makes a term vanish beside any other.
constexpr double kFree = 1e30;

/// What the fabric leaves to an axis: shards of embedding tables exchange answers as experts do.
double share_of(Parallelism parallelism, const NetworkShares& shares) {
  switch (parallelism) {
    case Parallelism::none:
      return 1;
    case Parallelism::tp:
    case Parallelism::sp:
      return shares.tp;
    case Parallelism::cp:
      return shares.cp;
    case Parallelism::ddp:
    case Parallelism::zero1:
    case Parallelism::fsdp:
      return shares.dp;
    case Parallelism::ep:
    case Parallelism::table_wise:
    case Parallelism::row_wise:
    case Parallelism::column_wise:
    case Parallelism::hybrid:
      return shares.ep;
  }
  return 1;
}

}  // namespace

int Mesh::ranks() const {
  int product = 1;
  for (const MeshAxis& axis : axes) product *= axis.degree;
  return product;
}

int Mesh::degree(Parallelism parallelism) const {
  for (const MeshAxis& axis : axes) {
    if (axis.parallelism == parallelism) return axis.degree;
  }
  return 1;
}

Mesh Mesh::of_parameters() const {
  Mesh merged = *this;
  for (std::size_t i = 0; i + 1 < kMaxAxes; ++i) {
    if (merged.axes[i].parallelism != Parallelism::cp) continue;
    merged.axes[i + 1].degree *= merged.axes[i].degree;
    merged.axes[i] = {};
  }
  return merged;
}

Mesh Mesh::of_experts() const {
  Mesh mesh = of_parameters();
  for (MeshAxis& axis : mesh.axes) {
    if (axis.parallelism == Parallelism::sp) axis.parallelism = Parallelism::tp;
  }
  return mesh;
}

Mesh parse_mesh(std::string_view text, int accelerators) {
  Mesh mesh;
  std::size_t count = 0, open = kMaxAxes;
  long long known = 1;
  std::string_view rest = text;
  while (true) {
    const std::size_t plus = rest.find('+');
    const std::string_view part = rest.substr(0, plus);
    const std::size_t at = part.find('@');
    const std::string_view name = part.substr(0, at);
    const auto parallelism = enum_from<Parallelism>(name);
    if (!parallelism || *parallelism == Parallelism::none) {
      std::string legal = all_names<Parallelism>();
      malformed(text, name, "is none of " + legal.substr(legal.find(' ') + 1));
    }
    if (count == kMaxAxes) malformed(text, "at most " + std::to_string(kMaxAxes) + " axes");
    if (std::ranges::any_of(mesh.axes,
                            [&](const MeshAxis& a) { return a.parallelism == *parallelism; })) {
      malformed(text, name, "stands there twice");
    }
    MeshAxis& axis = mesh.axes[count];
    axis.parallelism = *parallelism;
    if (at == std::string_view::npos) {
      if (open != kMaxAxes) malformed(text, "only one degree may be left out");
      open = count;
    } else {
      const std::string_view digits = part.substr(at + 1);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), axis.degree);
      if (error != std::errc{} || end != digits.data() + digits.size() || axis.degree < 1 ||
          axis.degree > 100'000'000) {
        malformed(text, digits, "must be a whole number from 1 to 1e8");
      }
      known *= axis.degree;
      if (known > 100'000'000) malformed(text, "more than 1e8 ranks");
    }
    ++count;
    if (plus == std::string_view::npos) break;
    rest = rest.substr(plus + 1);
  }
  if (open != kMaxAxes) {
    // A degree that does not come out whole is a mesh that does not match: a verdict, not an error.
    mesh.axes[open].degree = static_cast<std::int32_t>(std::max(1LL, accelerators / known));
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh.axes) {
    if (axis.parallelism == Parallelism::none) continue;
    if (!text.empty()) text += '+';
    text.append(name_of(axis.parallelism)).append("@").append(std::to_string(axis.degree));
  }
  return text;
}

bool suits(const Mesh& mesh, GroupKind kind, bool experts) {
  for (const MeshAxis& axis : mesh.axes) {
    switch (axis.parallelism) {
      case Parallelism::none:
      case Parallelism::ddp:
        break;
      case Parallelism::tp:
      case Parallelism::zero1:
      case Parallelism::fsdp:
        if (kind == GroupKind::embedding_tables) return false;
        break;
      case Parallelism::ep:
        if (!experts) return false;
        break;
      case Parallelism::sp:
      case Parallelism::cp:
        // Experts partition tokens, layers of click models have no sequence.
        // Neither do maps that are convolved: of their edges a neighbour would need a part.
        if (experts || kind == GroupKind::embedding_tables || kind == GroupKind::mlp ||
            kind == GroupKind::interaction || kind == GroupKind::convolution) {
          return false;
        }
        break;
      case Parallelism::table_wise:
      case Parallelism::row_wise:
      case Parallelism::column_wise:
      case Parallelism::hybrid:
        if (kind != GroupKind::embedding_tables) return false;
        break;
    }
  }
  return true;
}

std::array<GroupShape, kMaxAxes> axis_groups(const Mesh& mesh, const Cluster& cluster) {
  std::array<GroupShape, kMaxAxes> groups{};
  int stride = 1;
  for (std::size_t i = 0; i < kMaxAxes; ++i) {
    const auto& [parallelism, degree] = mesh.axes[i];
    groups[i] = group_shape(cluster, degree, stride, share_of(parallelism, cluster.fabric.shares));
    stride *= degree;
  }
  return groups;
}

Cluster ablated(const Cluster& cluster, const Ablation& ablation) {
  Cluster changed = cluster;
  Accelerator& a = changed.accelerator;
  ScaleUp& up = changed.scale_up;
  Fabric& fabric = changed.fabric;
  if (ablation.gemm_fraction > 0) {
    a.gemm.tiled = false;
    a.gemm.roofline_compute_fraction = ablation.gemm_fraction;
    a.gemm.roofline_memory_fraction = kFree;
  }
  if (ablation.memory_fraction > 0) {
    a.elementwise.add_fraction = a.elementwise.norm_fraction = a.elementwise.softmax_fraction =
        ablation.memory_fraction;
    a.elementwise.activation_fraction = 0;
  }
  const auto fits = {&up.all_reduce, &up.all_gather, &up.reduce_scatter, &up.all_to_all};
  if (ablation.network_fraction > 0) {
    changed.measured = MeasuredCurves{};
    up.in_switch.bandwidth_fraction = 0;
    fabric.in_network_reduction = false;
    for (CollectiveFit* fit : fits) {
      // Never below the wire's own time; the latency branch must not win.
      fit->bandwidth_fraction1 = 1 / kFree;
      fit->bandwidth_fraction2 = ablation.network_fraction;
      fit->own_share = fit->host_share = 0;
    }
    up.p2p_fraction = fabric.p2p_fraction = ablation.network_fraction;
    up.levels = HostLevels{};
    fabric.bandwidth_fraction = fabric.all_to_all_fraction = ablation.network_fraction;
  }
  if (!ablation.latency) {
    a.gemm.roofline_launch = a.attention.launch = a.elementwise.launch = Seconds{};
    a.gemm.dense16.launch = a.gemm.fp8.launch = a.gemm.fp4.launch = Seconds{};
    for (CollectiveFit* fit : fits) {
      fit->start1 = fit->start2 = fit->per_rank1 = fit->per_rank2 = fit->pipeline_fill = Seconds{};
    }
    up.in_switch.start = up.in_switch.pipeline_fill = Seconds{};
    fabric.latency_factor = 0;
    up.p2p_latency = fabric.p2p_latency = Seconds{};
  }
  return changed;
}

}  // namespace scalemodel
