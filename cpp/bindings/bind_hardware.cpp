#include "bindings/bind.hpp"
#include "bindings/record.hpp"
#include "scalemodel/hardware/accelerator.hpp"
#include "scalemodel/hardware/cluster.hpp"

namespace scalemodel::bindings {

void bind_hardware(py::module_& m) {
  bind_record<TileGemm>(m, "Constants of the tile form of a matrix multiplication.");
  bind_record<GemmKernels>(m, "How matrix multiplications run on an accelerator.");
  bind_record<AttentionKernels>(m, "Rates of flash-attention kernels.");
  bind_record<ElementwiseKernels>(m, "Rates of memory-bound kernels.");
  bind_record<ScanKernels>(m, "Constants of the scans of recurrent mixers.");
  bind_record<PowerPhases>(m, "Power of an accelerator by phase.");
  bind_record<Accelerator>(m, "An accelerator.");
  bind_record<CollectiveFit>(m, "Constants of one collective inside a domain.");
  bind_record<InSwitchFit>(m, "Constants of reduction inside the switch of a domain.");
  bind_record<MeasuredCurve>(m, "Measured times of one collective on one shape of group.");
  bind_record<HostLevels>(m, "Switches and sockets of a host, and what crosses between them.");
  bind_record<ScaleUp>(m, "The network inside a scale-up domain.");
  bind_record<NetworkShares>(m, "Parts of the ideal bandwidth that each axis gets.");
  bind_record<Fabric>(m, "The network between domains.");
  bind_record<Cluster>(m, "A cluster.");
}

}  // namespace scalemodel::bindings
