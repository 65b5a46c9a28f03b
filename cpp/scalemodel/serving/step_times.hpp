// What one step of a serving engine costs: everything that depends on the tokens of the step alone
// is tabulated once per layout; attention, which also depends on lengths, is computed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "scalemodel/base/lanes.hpp"
#include "scalemodel/base/memo.hpp"
#include "scalemodel/base/quantity.hpp"
#include "scalemodel/hardware/cluster.hpp"
#include "scalemodel/model/model.hpp"
#include "scalemodel/ops/gemm.hpp"
#include "scalemodel/serving/drafts.hpp"
#include "scalemodel/serving/engine.hpp"
#include "scalemodel/serving/expert_pool.hpp"
#include "scalemodel/serving/layout.hpp"

namespace scalemodel {

/// What one step of an instance does, summed over its sequences, or what several steps do side by
/// side.
template <class Number>
struct StepWorkOf {
  Number sequences{};       ///< running, one or more new tokens each
  double context = 0;       ///< mean tokens a running sequence attends to
  double query_tokens = 1;  ///< new tokens of a running sequence, drafts to verify included, >= 1
  Number prompts{};         ///< prompts, or chunks of one, in this step
  Number prompt_tokens{};   ///< new tokens of all prompts
  Number longest{};         ///< new tokens of the longest of them; 0: all are as long
  Number prompt_keys{};     ///< tokens a prompt attends to at its end, cached ones included; of
                            ///< different prompts what equal ones with as many pairs attend to
  double draft_tokens = 0;  ///< passes of the draft one behind the other, >= 0
  double draft_width = 1;   ///< tokens of a running sequence in each of them but the first, >= 1
  double draft_first = 1;   ///< the same in the first of a draft model, which sees what the last
                            ///< step accepted, >= 1
  Number images{};          ///< to encode, of all prompts; a chunk has its share of them

  StepWorkOf<double> at(std::size_t place) const noexcept {
    return {at_place(sequences, place),
            context,
            query_tokens,
            at_place(prompts, place),
            at_place(prompt_tokens, place),
            at_place(longest, place),
            at_place(prompt_keys, place),
            draft_tokens,
            draft_width,
            draft_first,
            at_place(images, place)};
  }
};
using StepWork = StepWorkOf<double>;

/// Tokens that equal prompts would attend to at their end, for those of a step, where a token and
/// one it attends to make `pairs` pairs in all.
constexpr double equal_prompt_keys(const StepWork& work, double pairs) noexcept {
  return pairs / work.prompt_tokens + work.prompt_tokens / (2 * work.prompts);
}

/// Seconds of one step by cause; they sum to `total`.
struct StepTime {
  Seconds linear;             ///< GEMMs of dense layers and projections
  Seconds experts;            ///< expert layers
  Seconds prefill_attention;  ///< attention of prompts
  Seconds decode_attention;   ///< attention of running sequences
  Seconds elementwise;        ///< norms, activations, rotary embedding
  Seconds head;               ///< logits and sampling
  Seconds draft;              ///< proposing tokens
  Seconds encoder;            ///< vision tower and projector, with their communication
  Seconds tp, ep, cp, pp;     ///< communication
  Seconds host;               ///< exposed CPU overhead
  Seconds total;

  bool operator==(const StepTime&) const = default;
};

template <>
struct RecordOf<StepTime> {
  static constexpr std::string_view name = "StepTime";
  using T = StepTime;
  static constexpr FieldTable fields{
      field("linear_s", &T::linear, "GEMMs of dense layers"),
      field("experts_s", &T::experts, "expert layers"),
      field("prefill_attention_s", &T::prefill_attention, "prefill attention"),
      field("decode_attention_s", &T::decode_attention, "decode attention"),
      field("elementwise_s", &T::elementwise, "norms, activations, rotary embedding"),
      field("head_s", &T::head, "logits and sampling"),
      field("draft_s", &T::draft, "draft layers or draft model of speculative decoding"),
      field("encoder_s", &T::encoder, "vision tower and projector on images of prompts"),
      field("exposed_tp_s", &T::tp, "tensor-parallel communication"),
      field("exposed_ep_s", &T::ep, "expert-parallel communication"),
      field("exposed_cp_s", &T::cp, "context-parallel communication"),
      field("exposed_pp_s", &T::pp, "transfers between stages"),
      field("host_s", &T::host, "exposed CPU overhead"),
      field("step_time_s", &T::total, "whole step")};
};

/// Images through an instance that has the encoder of a model and nothing else, and what it takes
/// to send what becomes of one to the instance that has the decoder.
struct EncoderPass {
  Seconds time;    ///< of all of them
  Bytes memory;    ///< of the fullest rank: weights and activations
  Bytes encoding;  ///< of one image
  Seconds sending;

  bool operator==(const EncoderPass&) const = default;
};

template <>
struct RecordOf<EncoderPass> {
  static constexpr std::string_view name = "EncoderPass";
  using T = EncoderPass;
  static constexpr FieldTable fields{
      field("time_s", &T::time, "all of them in one step"),
      field("memory_bytes", &T::memory, "weights and activations of the fullest rank"),
      field("encoding_bytes", &T::encoding, "what becomes of one image"),
      field("sending_s", &T::sending, "one of them to another node")};
};

/// Bytes of what becomes of an image in the storage precision, and their way to another node.
Bytes encoding_bytes(const Model& model, double patches) noexcept;
Seconds encoding_time(const Model& model, const Cluster& cluster, double patches);

/// What steps are asked about, whatever the layout. See the constructor of StepTimes.
struct StepQuestion {
  const Model& model;
  const Cluster& cluster;
  const Engine& engine;
  const ServingKernels& kernels;
  double imbalance = 1;
  double image_patches = 0;
  const Draft& draft;
  std::shared_ptr<const ExpertPool> pool = nullptr;
};

class LayoutTimes;

/// Costs of one (model, cluster, engine, kernels, layout, imbalance).
class StepTimes {
 public:
  /// `imbalance` of the experts' ranks, beyond that of random routing; 0: as experts are chosen in
  /// service. `image_patches` of an image of the prompts, or of a source; 0: none has any. `draft`
  /// proposes tokens in steps that ask for them; where it has no model, one more layer does.
  /// `pool`: accelerators of an expert pool that are not of the cluster; null: all are.
  /// Preconditions:
  /// check_layout(...) and check_draft(...) are ok, imbalance 0 or >= 1.
  StepTimes(const Model& model, const Cluster& cluster, const Engine& engine,
            const ServingKernels& kernels, const ServingLayout& layout, double imbalance,
            double image_patches = 0, const Draft& draft = {},
            std::shared_ptr<const ExpertPool> pool = nullptr)
      : StepTimes(
            {model, cluster, engine, kernels, imbalance, image_patches, draft, std::move(pool)},
            layout, nullptr) {}

  /// Time of one step. The sequences of a pipeline are split over its stages: each has a batch in
  /// flight in every stage, and a sequence receives its tokens once all of them have passed.
  StepTime of(const StepWork& whole) const noexcept;
  /// Its `total` alone, at a third of the cost.
  Seconds total(const StepWork& whole) const noexcept {
    return total(whole, prefill_attention(whole) + decode_attention(whole));
  }
  /// The same where the time of attention is known: that of prompts does not depend on the running
  /// sequences, nor that of these on the prompts.
  Seconds total(const StepWork& whole, Seconds attention) const noexcept;
  Seconds prefill_attention(const StepWork& whole) const noexcept;
  Seconds decode_attention(const StepWork& whole) const noexcept;
  /// Whether nothing is in a step but layers of one rank or of tensor-parallel ranks, the head and
  /// attention: of such steps several are computed side by side.
  bool is_plain() const noexcept {
    return layout_.dp == 1 && layout_.cp == 1 && layout_.batches() == 1 &&
           !layout_.two_batch_overlap && !layout_.has_expert_pool() && scans_.empty() &&
           !engine_.guided.any();
  }
  /// The same of one step or of several plain ones side by side: see step_totals.hpp.
  template <class Number>
  SecondsOf<Number> total_of(const StepWorkOf<Number>& whole,
                             SecondsOf<Number> attention) const noexcept;
  template <class Number>
  SecondsOf<Number> decode_attention_of(const StepWorkOf<Number>& whole) const noexcept;

  /// What the pools of a step are busy with; of experts without a pool of their own nothing.
  PoolLoad pools(const StepWork& whole) const noexcept;

  /// Images that an instance of encoders alone encodes in one step, the CPU's part included.
  Seconds encode(double images) const noexcept;

  const Engine& engine() const noexcept { return engine_; }
  const ServingLayout& layout() const noexcept { return layout_; }

 private:
  /// What depends on the number of tokens alone, of all layers of the fullest stage.
  struct TokenCost {
    Seconds linear, experts, elementwise, tp;
    Seconds ep;        ///< dispatch, combine and the waits before them
    Seconds combine;   ///< of these
    Seconds waits;     ///< of these
    Seconds occupied;  ///< compute lost to kernels of the exchange beside it, in time of all of it

    TokenCost plus(double factor, const TokenCost& more) const noexcept;
  };
  /// What halves of a step overlap, of all layers of the fullest stage.
  struct Overlap {
    Seconds experts, dispatch, combine, waits;
    double occupied = 0;  ///< share of the accelerator that the exchange takes from compute
  };
  /// One exchange of tokens with their experts.
  struct Exchange {
    Seconds dispatch, combine;
    double occupied = 0;  ///< share of the accelerator that its kernels take
    Seconds hidden;       ///< behind compute of the same tokens
  };
  /// What the experts of a layer take, and the exchange before and behind them.
  struct Routed {
    Seconds experts;
    Exchange way;
  };
  /// What layouts of one question have in common, each value computed once.
  struct Shared {
    enum Kind : std::uint8_t { kLinear, kStorage, kExpert, kAllReduce, kHead };

    Memo<Seconds, 6> seconds;
    Memo<Routed, 6> routed;
    std::vector<const FeedForwardShape*> experts;  ///< that differ, of the question's model

    /// The first of those that are alike: kinds of layers often differ in their mixers alone.
    const FeedForwardShape* first_alike(const FeedForwardShape& shape) {
      for (const FeedForwardShape* known : experts) {
        if (*known == shape) return known;
      }
      return experts.emplace_back(&shape);
    }
  };
  /// What steps take on layouts that differ in the ranks of their experts alone, each value
  /// computed once: what attention takes, and the exchange of those that share a sequence.
  struct Alike {
    Memo<Seconds, 4> prefill;
    Memo<Seconds, 3> decode, context;

    void clear() noexcept {
      prefill.clear();
      decode.clear();
      context.clear();
    }
  };
  friend class LayoutTimes;

  /// `shared`: of layouts of the same question; null: there are no others.
  StepTimes(const StepQuestion& question, const ServingLayout& layout, Shared* shared);
  /// Makes this what another layout is told apart from it by: the number of its experts' ranks.
  /// Precondition: neither an expert pool nor the model of a draft depends on that.
  void set_expert_ranks(const Model& model, std::uint16_t ep, Shared& shared);

  /// Powers of two and the numbers half-way between, up to 2^20 tokens: 1, 2, 3, 4, 6, 8, 12 ...
  static constexpr std::size_t kPoints = 41;
  static constexpr double point(std::size_t index) noexcept {
    if (index == 0) return 1;
    const auto power = static_cast<double>(std::uint64_t{1} << (index + 1) / 2);
    return index % 2 == 1 ? power : 1.5 * power;
  }
  /// Position of a count on the grid: straight lines between points.
  struct Position {
    std::size_t index;
    double share;
  };
  template <std::size_t N>
  struct Positions {
    std::array<std::size_t, N> index;
    Lanes<N> share;
  };
  static Position position(double count) noexcept {
    if (count <= 2) return {0, std::max(0.0, count - 1)};
    constexpr int kFractionBits = 52, kBias = 1023;
    const auto bits = std::bit_cast<std::uint64_t>(count);
    const auto below = 2 * static_cast<std::size_t>((bits >> kFractionBits) - kBias) - 1;
    if (below + 2 >= kPoints) return {kPoints - 2, count / point(kPoints - 2) - 1};
    // The number over the power of two below: its fraction with the exponent of one.
    constexpr std::uint64_t kFraction = (std::uint64_t{1} << kFractionBits) - 1;
    constexpr std::uint64_t kOne = std::uint64_t{kBias} << kFractionBits;
    const auto rest = std::bit_cast<double>((bits & kFraction) | kOne);
    return rest < 1.5 ? Position{below, 2 * (rest - 1)} : Position{below + 1, 2 * rest - 3};
  }
  template <std::size_t N>
  static Positions<N> position(Lanes<N> count) noexcept;
  static Seconds at(const std::array<Seconds, kPoints>& grid, const Position& p) noexcept {
    return grid[p.index] + p.share * (grid[p.index + 1] - grid[p.index]);
  }
  template <std::size_t N>
  static SecondsOf<Lanes<N>> at(const std::array<Seconds, kPoints>& grid,
                                const Positions<N>& p) noexcept;
  static Seconds at(const std::array<Seconds, kPoints>& grid, double count) noexcept {
    return at(grid, position(count));
  }
  template <std::size_t N>
  static SecondsOf<Lanes<N>> at(const std::array<Seconds, kPoints>& grid, Lanes<N> count) noexcept {
    return at(grid, position(count));
  }

  struct AttentionKind {
    AttentionCall call;
    DecodeCase decode;  ///< with one query of every sequence
    double layers = 0;
    double cached_values = 0;  ///< of one token on one rank
    bool of_source = false;    ///< keys are those of the source, however long the sequence is
  };

  /// A recurrent mixer: its scan of prompts, its state in decoding. Ranks that share a sequence
  /// have a share of the heads each, over all of its tokens.
  struct ScanKind {
    RecurrentShape shape;  ///< of one rank
    double layers = 0;
    /// Values of a token that ranks of a prompt exchange, and those that they put together again.
    double exchanged = 0, outputs = 0;
  };

  void add_attention(const LayerOperator& op, double layers);
  void add_scan(const RecurrentShape& whole, double layers);
  void add_gemm(TokenCost& cost, const Unit& unit, const LayerOperator& op, double m) const;
  void add_elementwise(TokenCost& cost, const LayerOperator& op, double m, double ranks,
                       double written) const;
  Seconds spread_over_multiprocessors(Seconds block) const noexcept;
  Seconds adapter_time(double m, double depth, double columns, double slices, double groups,
                       const AdapterBlocks& blocks) const;
  void add_adapters(TokenCost& cost, const Unit& unit, const LayerOperator& op, double m) const;
  void add_expert_adapters(TokenCost& cost, const Unit& unit, double tokens) const;
  void add_routed(TokenCost& cost, const LayerKind& kind, double m, double tokens) const;
  Seconds shared_beside(const LayerKind& kind, double m) const;
  Seconds hidden_exchange(const LayerKind& kind, double m, double tokens,
                          const Exchange& way) const;
  ExpertLayer expert_layer(const FeedForwardShape& ff, double tokens, bool received) const;
  Routed routed(const LayerKind& kind, double m, double tokens) const;
  void add_experts(TokenCost& cost, const LayerKind& kind, const Unit& unit, double m,
                   double tokens) const;
  double tokens_of_rank(double tokens) const noexcept { return std::max(1.0, tokens / layout_.dp); }
  bool moves_tokens() const noexcept { return layout_.dp > 1 || layout_.cp > 1; }
  void sum_up(std::size_t at);
  void add_pool(TokenCost& cost, const LayerKind& kind, double m, double tokens) const;
  Seconds shared_time(const Unit& unit, double m) const;
  const Cluster& expert_cluster() const noexcept { return pool_ ? pool_->cluster : cluster_; }
  const ServingKernels& expert_kernels() const noexcept {
    return pool_ ? pool_->kernels : kernels_;
  }
  double imbalance_of(const FeedForwardShape& ff, double tokens, double places) const;
  Seconds expert_time(const FeedForwardShape& ff, double m, double tokens, bool received) const;
  Exchange gathered(const FeedForwardShape& ff, double tokens) const;
  DispatchWork dispatch_work(const FeedForwardShape& ff, double tokens, double blocks,
                             bool once) const;
  Seconds exchange_time(const DispatchWork& work, const DispatchKernel& kernel) const;
  Exchange sent(const FeedForwardShape& ff, double tokens, double blocks, const DispatchKernel& out,
                const DispatchKernel& back) const;
  TokenCost layer_tokens(const LayerKind& kind, double tokens) const;
  Seconds expert_elementwise_time(double bytes) const;
  Seconds linear(Shared::Kind kind, double m, double n, double k, double batch,
                 bool quantised) const;
  /// A value that depends on these numbers alone.
  template <class Make, class... Parts>
  Seconds known(const Make& make, const Parts&... parts) const {
    return shared_ ? shared_->seconds.of(key_of<6>(parts...), make) : make();
  }
  Seconds elementwise_time(double bytes, double fraction) const;
  Seconds wait(int ranks) const;
  Seconds all_reduce(Bytes bytes, int ranks) const;
  double written_bytes() const noexcept;
  Seconds head_time(double sequences) const;
  Seconds head_of_rank(double m) const;
  Seconds tower_attention(AttentionWork work, double images, double patches) const;
  Seconds tower_block(const VisionTower& tower, double images, double patches, int ranks) const;
  Seconds encoder_time(const VisionTower& tower, double patches, double images) const;
  Seconds source_keys_time(const Model& model, double tokens, double sources) const;
  double keys_of(const AttentionKind& kind, double keys) const noexcept;
  Seconds encoder(const StepWork& stage) const noexcept;
  Seconds prefill(const StepWork& work) const noexcept;
  Seconds prefill_scans(const StepWork& work) const noexcept;
  Seconds decode_scans(const StepWork& work) const noexcept;
  template <class Number>
  SecondsOf<Number> decode(const StepWorkOf<Number>& work) const noexcept;
  DecodeCase decode_case(AttentionCall call, double queries) const noexcept;
  Seconds context_exchange(const StepWork& work) const noexcept;
  Seconds context_time(const StepWork& work) const noexcept;
  StepWork of_stage(StepWork work) const noexcept;
  template <class Number>
  Number tokens(const StepWorkOf<Number>& stage) const noexcept;
  double prompt_tokens_by_rank(const StepWork& work) const noexcept;
  double tokens_by_rank(const StepWork& stage) const noexcept;
  Seconds overlapped(double by_rank, double count, Seconds attention) const noexcept;
  PoolTimes pool_times(double by_rank, double count, Seconds attention) const noexcept;
  Seconds before_pools(double by_rank, Seconds attention) const noexcept;
  Seconds through_pools(double by_rank, double count, Seconds attention) const noexcept;
  Seconds between_stages(double tokens) const noexcept;
  template <class Number>
  SecondsOf<Number> device(const StepWorkOf<Number>& whole,
                           SecondsOf<Number> attention) const noexcept;
  template <class Number>
  SecondsOf<Number> device_by_stage(const StepWorkOf<Number>& work,
                                    SecondsOf<Number> attention) const noexcept;
  Seconds device(const StepWork& whole) const noexcept {
    return device(whole, prefill_attention(whole) + decode_attention(whole));
  }
  Seconds draft_time(const StepWork& stage) const noexcept;
  Seconds draft_pass(const StepWork& pass) const noexcept;
  template <class Number>
  SecondsOf<Number> host(const StepWorkOf<Number>& whole, SecondsOf<Number> device) const noexcept;
  Seconds host_between(const StepWork& whole) const noexcept;
  double masks(const StepWork& whole) const noexcept;
  Seconds host_with_masks(const StepWork& whole, Seconds device, bool hides) const noexcept;

  Engine engine_;
  ServingLayout layout_;
  Cluster cluster_;
  ServingKernels kernels_;
  int hidden_ = 0;
  double vocab_ = 0, imbalance_ = 1;
  double source_ = 0;  ///< tokens of a source that layers attend to
  double stream_ = 0;  ///< values of a token between layers: of all residual streams
  std::shared_ptr<const ExpertPool> pool_;
  GemmTimer linear_timer_, storage_timer_, expert_timer_;
  Seconds host_fixed_, host_each_;    ///< per step, and per sequence and step
  Seconds prompt_host_;               ///< per prompt, its adapters included, mean
  bool host_hides_ = false;           ///< behind the device
  bool host_hides_drafting_ = false;  ///< the same of steps that draft
  std::vector<AttentionKind> attention_;
  std::vector<ScanKind> scans_;
  std::array<TokenCost, kPoints> tokens_{};
  std::array<TokenCost, kPoints> draft_{};
  std::array<Seconds, kPoints> tokens_total_{}, draft_total_{};  ///< sums of the causes
  std::array<Seconds, kPoints> own_total_{}, shared_total_{};  ///< without experts; of these alone
  std::array<Overlap, kPoints> overlap_{};
  std::array<Seconds, kPoints> dense_total_{};  ///< of layers without experts
  double routed_share_ = 0;                     ///< of the layers, those with experts
  std::array<Seconds, kPoints> head_{};
  std::array<Seconds, kPoints> encoder_{};        ///< by images of a data-parallel rank
  std::shared_ptr<const StepTimes> draft_model_;  ///< null: one more layer drafts
  Seconds draft_launch_;      ///< the CPU launches a pass of the draft model; 0: as one graph
  Shared* shared_ = nullptr;  ///< while the tables are filled
  Alike* alike_ = nullptr;    ///< of layouts alike; null: there are no others
};

}  // namespace scalemodel
