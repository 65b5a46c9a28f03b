// Collects the operators of one layer: what each costs, and the CPU overhead of launching it.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "scalemodel/costs/layer_cost.hpp"
#include "scalemodel/ops/attention.hpp"
#include "scalemodel/ops/memory_bound.hpp"
#include "scalemodel/ops/scan.hpp"

namespace scalemodel {

/// Which passes a GEMM has.
struct LinearOptions {
  bool frozen = false;  ///< no weight gradient
  double batch = 1;     ///< independent GEMMs (experts)
  const GemmTimer* timer = nullptr;
  bool grouped = false;          ///< one GEMM per expert
  bool fused = false;            ///< with the activation and quantisation beside it
  bool weightless = false;       ///< of two activations
  double taps = 1;               ///< of a convolution as a GEMM
  double gradient_slowdown = 1;  ///< of the GEMM of its input's gradient
  /// Pieces of a GEMM that a ring exchange among tensor ranks feeds or empties rank by rank, and of
  /// the GEMM of its input's gradient.
  double pieces = 1, gradient_pieces = 1;
};

/// Streams that the pieces of a GEMM under a ring exchange take turns on. Source:
/// NVIDIA/TransformerEngine, comm_gemm_overlap.h: num_max_streams.
inline constexpr double kRingStreams = 3;

/// Launches of every piece behind the first: its GEMM, what sends and what awaits the next one.
/// Counted in CommOverlapP2PBase::split_overlap_ag (comm_gemm_overlap.cpp), not timed.
inline constexpr double kPieceKernels = 3;

/// Kernels of one GEMM in a narrow format: scale factors of both operands are laid out for the
/// tensor cores, then multiplied (counted in Transformer Engine, not timed).
inline constexpr double kNarrowKernels = 3;

/// An operation of the framework, called from Python, in launches of its kernel: it finds the
/// kernel, allocates what that writes and notes it for the backward pass. Chosen on packed runs of
/// Qwen3-30B-A3B on H100, whose rotary embeddings take 70 operations a document and layer.
inline constexpr double kOperationLaunches = 1.2;

/// What a scale per row costs beyond one per tensor, bytes a value. The two GEMMs that read x, dy
/// or w sum over different axes and want scales, hence casts, of their own: along rows 3 (read,
/// write), along columns 5 (read twice), of which 6 are part of every narrow GEMM for x and dy.
/// Backward GEMMs accumulate exactly, for which the kernel with row scales is so slow that cuBLAS
/// runs instead and another kernel scales its result: 4 (pytorch/ao, float8/float8_linear.py and
/// float8_ops.py; pytorch/ao#2184; counted, not fitted).
inline constexpr double kRowScaledInput = 2, kRowScaledResult = 4;
inline constexpr double kRowScaledWeightForward = 3, kRowScaledWeightBackward = 5;

/// Operations of the framework around a region that runs again in the backward pass, beside those
/// within it: 350 us, and 30 to 50 us where states of random numbers are kept, of 7.1 us each in
/// the mean (pytorch/torchtitan#1323, #2380: torch.utils.checkpoint on a node of eight GPUs).
inline constexpr double kCheckpointOperations = 55;

/// Collects the operators of a layer.
class LayerBuilder {
 public:
  LayerBuilder(const Conditions& conditions, const Cluster& cluster, OperatorList* list,
               MessageList* messages)
      : conditions_(conditions), cluster_(cluster), list_(list), messages_(messages) {}

  /// The module that operators belong to from here on; none: nothing repeats them by itself. A
  /// kernel that is part of the linear layer behind it is no region of its own.
  void enter(std::optional<Module> module, bool region = true) {
    module_ = module ? &modules_[static_cast<std::size_t>(*module)] : nullptr;
    if (module_ != nullptr && region) module_->entered += 1;
  }

  /// y[m,n] = x[m,k] w[k,n]: forward, dx = dy w' and dw = x' dy, the last accumulated into the
  /// gradient buffer (read and written). Narrow formats quantise x and dy once, in the layouts of
  /// both GEMMs that read them; beside frozen weights one does (NVIDIA/TransformerEngine,
  /// pytorch/module/linear.py: columnwise usage where the weight requires a gradient).
  void linear(std::string_view name, double m, double n, double k, const LinearOptions& options) {
    const double element = operand_bytes(conditions_.storage);
    const GemmTimer& timer = *options.timer;
    const double efficiency = conditions_.stack.gemm_efficiency;
    // Products launched expert by expert fill the accelerator one at a time.
    const bool one_by_one = options.grouped && !conditions_.stack.grouped_launch;
    const double together = one_by_one ? 1 : options.batch;
    const double taps = options.taps;
    const auto gemm_time = [&](double rows, double columns, double depth, double output_bytes,
                               bool quantised, bool transposed = false, double pieces = 1) {
      // Of pieces a few run side by side.
      const double beside = pieces > 1 ? std::min(pieces, kRingStreams) : together;
      const double rounds = pieces > 1 ? pieces / beside : options.batch / together;
      return rounds *
             timer.time({rows / pieces, columns, depth, beside, output_bytes, quantised, transposed,
                         taps, options.frozen}) /
             efficiency;
    };
    const Seconds forward = gemm_time(m, n, k, element, options.fused, false, options.pieces);
    // The gradient of a convolution's input is a convolution of that of its output.
    const Seconds input_gradient =
        options.gradient_slowdown *
        gemm_time(m, k / taps, n * taps, element, options.fused, false, options.gradient_pieces);
    // Added up inside the GEMM, the sum is read and written. Otherwise the GEMM writes a
    // gradient of its own, which another kernel adds to the sum: 3 values; where the sum is in FP32
    // this one is then cast (6 bytes), added to that (12) and zeroed (2).
    // Under autocast it is cast to FP32 by itself, and added to others only once a step.
    const bool cast = conditions_.stack.autocast && !options.weightless && element < 4;
    const bool fused = conditions_.stack.fused_accumulation && !cast;
    const double sum = conditions_.gradients_fp32 ? 4 : element;
    const double widened = conditions_.gradients_fp32 ? 16 + 2 * element : 0;
    const double output = fused ? 2 * sum : element;
    Seconds weight_gradient;
    if (!options.frozen) {
      weight_gradient = taps > 1 ? gemm_time(k, n, m, output, true, true)
                                 : gemm_time(n, k, m, output, true, true);
    }
    const bool added = !fused && !options.frozen && !cast;
    if (added) {
      // Whole matrices stream as in a tight loop, whatever slows smaller kernels between others.
      weight_gradient +=
          memory_time(Bytes{options.batch * n * k * (3 * element + widened)},
                      cluster_.accelerator.elementwise.add_fraction, cluster_.accelerator);
    }
    run(forward);
    backward_ += input_gradient + weight_gradient;
    weight_gradient_ += weight_gradient;
    linear_forward_ += forward;
    linear_backward_ += input_gradient + weight_gradient;
    last_linear_ = forward;
    if (module_ != nullptr) module_->last_linear = forward;
    // Narrow formats quantise one operand each way and arrange the scales of both for each GEMM.
    const bool narrow = conditions_.precision != conditions_.storage;
    const double gemm = narrow ? kNarrowKernels : 1, quantising = narrow ? 1 : 0;
    const double weight_gradients = options.frozen ? 0 : gemm + (added ? 1 : 0);
    const double kernels = one_by_one ? options.batch : 1;
    if (one_by_one && !conditions_.stack.drops_tokens) {
      expert_launches_forward_ += options.batch * (gemm + quantising);
      expert_launches_backward_ += options.batch * (gemm + quantising);
      expert_launches_weight_ += options.batch * weight_gradients;
    } else {
      launch(kernels * (gemm + quantising) + kPieceKernels * (options.pieces - 1));
      kernels_backward_ += kernels * (gemm + quantising + weight_gradients) +
                           kPieceKernels * (options.gradient_pieces - 1);
      kernels_weight_ += kernels * weight_gradients;
    }
    note({name, m, n, k, options.batch, forward, input_gradient + weight_gradient, Bytes{}});
    if (conditions_.stack.row_scales && timer.narrow()) {
      const double x = m * k, dy = m * n, w = options.batch * n * k;
      const double results = options.batch * (x + (options.frozen ? 0 : n * k));
      elementwise("row_scales", Bytes{kRowScaledWeightForward * w},
                  Bytes{kRowScaledInput * options.batch * (x + dy) + kRowScaledWeightBackward * w +
                        kRowScaledResult * results},
                  cluster_.accelerator.elementwise.add_fraction);
    }
    if (cast) {
      const Bytes wide{options.batch * n * k * (4 + element)};
      elementwise("weight_cast", wide, options.frozen ? Bytes{} : wide,
                  cluster_.accelerator.elementwise.add_fraction, 1, options.frozen ? 0 : 1);
    }
  }

  /// A memory-bound step of `forward_bytes` and `backward_bytes` in `kernels` launches each way.
  void elementwise(std::string_view name, Bytes forward_bytes, Bytes backward_bytes,
                   double fraction, int kernels = 1) {
    elementwise(name, forward_bytes, backward_bytes, fraction, kernels, kernels);
  }

  void elementwise(std::string_view name, Bytes forward_bytes, Bytes backward_bytes,
                   double fraction, int forward_kernels, int backward_kernels) {
    const double rate = fraction * conditions_.stack.memory_efficiency;
    const auto pass = [&](Bytes bytes, int kernels) {
      if (kernels == 0) return Seconds{};
      return memory_time(bytes, rate, cluster_.accelerator) +
             (kernels - 1) * cluster_.accelerator.elementwise.launch;
    };
    const Seconds forward = pass(forward_bytes, forward_kernels);
    const Seconds backward = pass(backward_bytes, backward_kernels);
    run(forward);
    backward_ += backward;
    elementwise_forward_ += forward;
    launch(forward_kernels);
    kernels_backward_ += backward_kernels;
    note({name, 0, 0, 0, 0, forward, backward, forward_bytes});
  }

  /// Of the kernels so far, those launched for one expert after another, like its GEMMs: where
  /// these wait until the CPU knows the rows of each expert, they wait too.
  void launch_with_experts(double forward, double backward) {
    if (conditions_.stack.grouped_launch || conditions_.stack.drops_tokens) return;
    kernels_forward_ -= forward;
    kernels_backward_ -= backward;
    expert_launches_forward_ += forward;
    expert_launches_backward_ += backward;
  }

  /// Scores of `experts` experts in FP32, as Transformer Engine's GEMMs make them: of 16-bit
  /// operands, forward. Their gradients are products of FP32 operands in TF32, the input widened
  /// and its gradient narrowed by passes of their own. Source: NVIDIA/Megatron-LM,
  /// megatron/core/transformer/moe/moe_utils.py, RouterGatingLinearFunction;
  /// NVIDIA/TransformerEngine, common/gemm/cublaslt_gemm.cu: TF32 for GEMMs all in FP32.
  void wide_router(double tokens, double experts, double hidden, bool frozen,
                   const GemmTimer& timer) {
    const Accelerator& accelerator = cluster_.accelerator;
    const double element = operand_bytes(conditions_.storage), values = tokens * hidden;
    const double streamed = accelerator.elementwise.add_fraction;
    const Seconds forward = timer.time({tokens, experts, hidden, 1, 4, false, false, 1}) /
                            conditions_.stack.gemm_efficiency;
    const Seconds cast = memory_time(Bytes{values * (element + 4)}, streamed, accelerator);
    const FlopPerSecond tf32 = accelerator.peak_of(Precision::tf32);
    const FlopPerSecond peak = tf32 > FlopPerSecond{} ? tf32 : accelerator.single_precision_peak();
    const FlopPerSecond rate = accelerator.gemm.roofline_compute_fraction * peak;
    const Seconds product = max(Flop{2 * values * experts} / rate,
                                memory_time(Bytes{4 * values}, streamed, accelerator));
    const double gradients = frozen ? 1 : 2;
    const Seconds backward = gradients * (cast + product);
    run(forward);
    backward_ += backward;
    launch(1);
    kernels_backward_ += gradients * 3;  // the weight or its gradient is cast, too
    note({"router", tokens, experts, hidden, 1, forward, backward, Bytes{}});
  }

  void attention(std::string_view name, const AttentionTime& time) {
    run(time.forward);
    backward_ += time.backward;
    attention_forward_ += time.forward;
    attention_backward_ += time.backward;
    attention_recompute_ += time.recompute;
    const int kernels = is_flash(conditions_.attention) ? 1 : 5;
    launch(kernels);
    kernels_backward_ += 2 * kernels;
    note({name, 0, 0, 0, 0, time.forward, time.backward, Bytes{}});
  }

  /// The scan of a recurrent mixer: cumulated decays, states of chunks, their chain, the output.
  void scan(const ScanTime& time) {
    constexpr double kKernels = 5;
    forward_ += time.forward;
    backward_ += time.backward;
    kernels_forward_ += kKernels;
    kernels_backward_ += 2 * kKernels;
    note({"scan", 0, 0, 0, 0, time.forward, time.backward, Bytes{}});
  }

  /// Kernels too short to cost an accelerator anything: they cost CPU overhead only.
  void launches(double forward, double backward) {
    launch(forward);
    kernels_backward_ += backward;
  }

  /// Operations of the framework that the CPU calls one by one; it takes longer than to launch
  /// what they do.
  void operations(double forward, double backward) {
    const double each = kOperationLaunches * cluster_.accelerator.host_slowdown;
    launches(each * forward, each * backward);
  }

  /// CPU overhead of collectives that the CPU calls one by one.
  void collectives(double forward, double backward) {
    const double each = conditions_.stack.collective_operations;
    operations(each * forward, each * backward);
  }

  /// CPU overhead of `count` modules each way beside that of their kernels.
  void modules(double count) {
    const double each = conditions_.stack.module_operations * count;
    operations(each, each);
  }

  /// Time of one collective, with its calls in each pass, or, without `op`, of one transfer.
  Seconds message(const Message& one) {
    if (messages_ != nullptr) messages_->push_back(one);
    return one.op ? collective_time(*one.op, one.size, one.group, cluster_)
                  : p2p_time(one.size, one.group, cluster_);
  }

  void communicate(std::string_view name, Seconds forward, Seconds backward, Bytes bytes) {
    note({name, 0, 0, 0, 0, forward, backward, bytes});
  }

  Seconds host(double kernels) const { return kernels * conditions_.stack.host_launch; }
  /// Launches that the CPU queues ahead: none where graphs hold whole layers.
  Seconds queued(double kernels) const {
    const Stack& stack = conditions_.stack;
    const bool whole = stack.graphed_attention && stack.graphed_scans && stack.graphed_routing;
    return stack.cuda_graphs && whole ? Seconds{} : host(kernels);
  }
  /// Compute beside the launches of its kernels.
  Seconds launched(Seconds compute, double kernels) const {
    const Seconds launching = queued(kernels);
    return conditions_.stack.host_computes ? compute + launching : max(compute, launching);
  }
  /// Single experts are launched only once the CPU knows their rows.
  Seconds forward() const {
    return launched(forward_, kernels_forward_) + host(expert_launches_forward_);
  }
  /// Input and weight gradients keep their own launch floor: a schedule may defer the latter.
  Seconds backward() const {
    return launched(backward_ - weight_gradient_, kernels_backward_ - kernels_weight_) +
           host(expert_launches_backward_) + weight_gradient();
  }
  Seconds weight_gradient() const {
    return launched(weight_gradient_, kernels_weight_) + host(expert_launches_weight_);
  }
  /// The forward pass as a region that runs again as a whole.
  Seconds forward_again() const {
    return launched(forward_, kernels_forward_ + checkpoint_launches()) +
           host(expert_launches_forward_);
  }
  /// Accelerator idle for want of launches: what is in flight goes on meanwhile.
  Seconds idle_forward() const { return forward() - forward_; }
  Seconds idle_backward() const { return backward() - backward_; }
  Seconds linear_forward() const { return linear_forward_; }
  Seconds linear_backward() const { return linear_backward_; }
  Seconds last_linear() const { return last_linear_; }
  Seconds elementwise_forward() const { return elementwise_forward_; }
  Seconds attention_forward() const { return attention_forward_; }
  Seconds attention_backward() const { return attention_backward_; }
  Seconds attention_recompute() const { return attention_recompute_; }
  /// What a module's forward pass adds to the backward pass of its layer, which the CPU may have
  /// launched ahead of it or not.
  Seconds repeated(Module module) const {
    const Repeated& again = modules_[static_cast<std::size_t>(module)];
    // Nothing asks for the output of a block's last GEMM.
    const bool block =
        module == Module::mlp || module == Module::moe || module == Module::shared_experts;
    const bool stops = block && conditions_.stack.early_stop;
    const Seconds time = again.time - (stops ? again.last_linear : Seconds{});
    const Seconds compute = backward_ - weight_gradient_;
    const double kernels = kernels_backward_ - kernels_weight_;
    const double repeated = again.kernels + regions(module) * checkpoint_launches();
    return launched(compute + time, kernels + repeated) - launched(compute, kernels);
  }

  /// Launches so far that the CPU queues ahead.
  struct Queue {
    double forward = 0, backward = 0, weight = 0;
    std::array<double, kModuleNames.size()> modules{};
  };
  Queue queue() const {
    Queue now{kernels_forward_, kernels_backward_, kernels_weight_, {}};
    for (std::size_t i = 0; i < modules_.size(); ++i) now.modules[i] = modules_[i].kernels;
    return now;
  }
  /// A graph holds what was launched since: it costs the CPU nothing.
  void graph_since(const Queue& before) {
    kernels_forward_ = before.forward;
    kernels_backward_ = before.backward;
    kernels_weight_ = before.weight;
    for (std::size_t i = 0; i < modules_.size(); ++i) modules_[i].kernels = before.modules[i];
  }

 private:
  /// Forward pass of one module.
  struct Repeated {
    Seconds time, last_linear;
    double kernels = 0;
    double entered = 0;  ///< times that operators began to belong to a region of it
  };

  /// Regions of a layer that run again for a module: of norms each may be one, of other modules a
  /// layer has one at most, and what lies inside a repeated one has none of its own.
  double regions(Module module) const {
    if (!holds(conditions_.stack.selective_modules, module)) return 0;
    const double entered = modules_[static_cast<std::size_t>(module)].entered;
    return module == Module::layernorm ? entered : std::min(1.0, entered);
  }

  /// Launches that a region which runs again costs beside its own, where a stack tells what its
  /// modules cost the CPU beside their kernels.
  double checkpoint_launches() const {
    return conditions_.stack.module_operations > 0
               ? kCheckpointOperations * kOperationLaunches * cluster_.accelerator.host_slowdown
               : 0;
  }

  void run(Seconds forward) {
    forward_ += forward;
    if (module_ != nullptr) module_->time += forward;
  }
  void launch(double kernels) {
    kernels_forward_ += kernels;
    if (module_ != nullptr) module_->kernels += kernels;
  }
  void note(const OperatorCost& cost) {
    if (list_ != nullptr) list_->push_back(cost);
  }

  const Conditions& conditions_;
  const Cluster& cluster_;
  OperatorList* list_;
  MessageList* messages_;
  Seconds forward_, backward_, weight_gradient_;
  Seconds linear_forward_, linear_backward_, elementwise_forward_, last_linear_;
  Seconds attention_forward_, attention_backward_, attention_recompute_;
  double kernels_forward_ = 0, kernels_backward_ = 0, kernels_weight_ = 0;
  std::array<Repeated, kModuleNames.size()> modules_{};
  Repeated* module_ = nullptr;
  double expert_launches_forward_ = 0, expert_launches_backward_ = 0, expert_launches_weight_ = 0;
};

}  // namespace scalemodel
