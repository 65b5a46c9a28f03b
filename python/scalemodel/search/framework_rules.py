"""Which strategies a training framework can start: its own argument checks, as rules.

A rule names what breaks it and where the framework says so. Checks that a framework leaves out and
then fails on later (Megatron-Core's ``TransformerConfig`` accepts 8 experts on 3 ranks) are rules
too. A search leaves what no setting says, and degrees that a rule refuses, out of its space.
"""

from __future__ import annotations

from typing import Final

from scalemodel.resolve.tasks import FineTuning
from scalemodel.search.framework_cases import THERE_AND_BACK, Case, Rule, chunks
from scalemodel.search.framework_deepspeed import RULES as DEEPSPEED_RULES
from scalemodel.search.framework_optimizers import (
    BRIDGE_RULES,
    EMERGING_RULES,
    optimizer_rule,
)

#: Frameworks that build their models from Megatron-Core.
MEGATRON_CORE: Final = ("megatron", "megatron_bridge", "nemo")
FRAMEWORKS: Final = (*MEGATRON_CORE, "torchtitan", "deepspeed", "accelerate")

#: Facts of a stack that Megatron-Core's overlap of the expert exchange stands for.
OVERLAP_OF_EXPERTS: Final = ("overlap_ep", "overlap_ep_between")
#: Facts of a stack that torch.compile of the model stands for.
COMPILED: Final = ("fused_norm", "fused_activation", "fused_rope")

_CORE: Final = "NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py"
_ARGUMENTS: Final = "NVIDIA/Megatron-LM, megatron/training/arguments.py: validate_args"
_SCHEDULES: Final = "NVIDIA/Megatron-LM, megatron/core/pipeline_parallel/schedules.py"
_TITAN: Final = "pytorch/torchtitan, torchtitan/distributed/parallel_dims.py"
_TITAN_TRAINER: Final = "pytorch/torchtitan, torchtitan/trainer.py"
_PIPELINING: Final = "pytorch/pytorch, torch/distributed/pipelining/schedules.py"
_ACCELERATE: Final = "huggingface/accelerate, src/accelerate/parallelism_config.py"


# -------------------------------------------------------------------------------- Megatron-Core
def _uneven(case: Case) -> bool:
    stages = case.strategy.pp * case.strategy.vpp
    return not case.layout and int(case.shape.layers) % stages != 0


def _bad_groups(case: Case) -> bool:
    groups, heads, tp = case.kv_heads, int(case.shape.heads), case.strategy.tp
    return heads % groups != 0 or (groups % tp != 0 and tp % groups != 0)


def _bad_interleaving(case: Case) -> bool:
    plan = case.strategy
    passes = case.micro_batches
    return plan.vpp > 1 and (passes < plan.pp or passes % plan.pp != 0)


def _bad_overlap(case: Case) -> bool:
    plan = case.strategy
    refused = (
        plan.recompute == "full"
        or (plan.pp > 1 and plan.vpp == 1)
        or case.precision == "fp32"
        or int(case.shape.mtp_layers) > 1
        or (int(case.shape.mtp_layers) == 1 and plan.pp == 1)
    )
    return plan.ep > 1 and refused and case.uses(*OVERLAP_OF_EXPERTS)


def _bad_offload(case: Case) -> bool:
    plan = case.strategy
    return plan.offload_activations and (plan.pp > 1 or plan.recompute != "none")


def _is_fsdp(case: Case) -> bool:
    return case.strategy.sharding in ("zero2", "zero3", "hsdp")


_MEGATRON_CORE: Final = (
    Rule(
        "layers",
        "layers must divide by pp * vpp, or a pipeline layout must be written",
        _ARGUMENTS,
        _uneven,
    ),
    Rule(
        "pipeline_stages",
        "every pipeline chunk must hold a layer, the embedding or the loss",
        "NVIDIA/Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py",
        lambda case: case.strategy.pp * case.strategy.vpp > int(case.shape.layers) + 2,
    ),
    Rule(
        "virtual_stages",
        "virtual stages need pp > 1, and pp > 2 where transfers do not overlap",
        _ARGUMENTS,
        lambda case: (
            case.strategy.vpp > 1 and case.strategy.pp <= (1 if case.stack.overlap_p2p else 2)
        ),
    ),
    Rule(
        "interleaving",
        "with virtual stages, micro-batches must be a multiple of pp",
        _SCHEDULES,
        _bad_interleaving,
    ),
    Rule(
        "heads",
        "attention heads must divide by tp",
        _CORE,
        lambda case: int(case.shape.heads) % case.strategy.tp != 0,
        degree="tp",
    ),
    Rule(
        "query_groups",
        "query groups must divide the heads, and be a multiple or divisor of tp",
        _CORE,
        _bad_groups,
        degree="tp",
    ),
    Rule(
        "experts",
        "experts must divide by ep, and ep > 1 needs experts and no fp16",
        _ARGUMENTS,
        lambda case: (
            case.strategy.ep > 1
            and (
                int(case.shape.experts) == 0
                or int(case.shape.experts) % case.strategy.ep != 0
                or case.precision == "fp16"
            )
        ),
        degree="ep",
    ),
    Rule(
        "expert_bias",
        "experts beside layers with biases need etp = 1",
        _CORE,
        lambda case: (
            # One switch adds the biases of all linear layers: attention's output counts as well.
            int(case.shape.experts) > 0
            and bool(case.shape.mlp_bias or case.shape.out_bias)
            and case.degrees.etp > 1
        ),
    ),
    Rule(
        "expert_sequences",
        "experts beside tp > 1 need sequence parallelism",
        "NVIDIA/Megatron-LM, megatron/core/transformer/moe/moe_layer.py: MoELayer.forward",
        lambda case: (
            int(case.shape.experts) > 0
            and case.strategy.tp > 1
            and not case.strategy.sequence_parallel
        ),
    ),
    Rule(
        "sequence",
        "the sequence must be a multiple of 2 * cp",
        _ARGUMENTS,
        lambda case: case.strategy.cp > 1 and case.task.sequence % (2 * case.strategy.cp) != 0,
        degree="cp",
    ),
    Rule(
        "context_heads",
        "cp by all-to-all must divide the heads and query groups of a tensor rank",
        "NVIDIA/TransformerEngine, pytorch/attention: AttnFuncWithCPAndQKVOA2A",
        lambda case: (
            case.strategy.cp > 1
            and case.strategy.context == "all_to_all"
            and case.kv_heads % (case.strategy.tp * case.strategy.cp) != 0
        ),
    ),
    Rule(
        "expert_overlap",
        "overlapping the expert exchange needs no full recomputation, virtual stages where pp > 1, "
        "16-bit weights and at most one multi-token-prediction layer behind pp > 1",
        _CORE,
        _bad_overlap,
    ),
    Rule(
        "cuda_graphs",
        "CUDA graphs (grouped_launch of the stack) need no full recomputation",
        _ARGUMENTS,
        lambda case: case.strategy.recompute == "full" and case.uses("grouped_launch"),
    ),
    Rule(
        "offload_optimizer",
        "optimizer states on the host need the distributed optimizer (zero1) and Adam",
        f"{_ARGUMENTS}; megatron/core/optimizer/optimizer_config.py",
        lambda case: (
            case.strategy.offload_optimizer
            and (case.strategy.sharding != "zero1" or case.task.optimizer != "adam")
        ),
    ),
    Rule(
        "offload_activations",
        "activations on the host need pp = 1 and no recomputation",
        _CORE,
        _bad_offload,
    ),
    Rule(
        "param_gather",
        "overlapping parameter gathers needs overlapped gradient reduction",
        _ARGUMENTS,
        lambda case: (
            case.strategy.sharding != "ddp"
            and _on(case, "overlap_param_gather")
            and not _on(case, "overlap_grad_reduce")
        ),
    ),
    Rule(
        "adapters",
        "adapters are no arguments of pre-training",
        _ARGUMENTS,
        lambda case: isinstance(case.task, FineTuning) and case.task.method == "lora",
    ),
)

_MEGATRON: Final = (optimizer_rule("megatron"), *_MEGATRON_CORE, *EMERGING_RULES)
_BRIDGE: Final = (
    optimizer_rule("megatron_bridge"),
    *_MEGATRON_CORE,
    *EMERGING_RULES,
    *BRIDGE_RULES,
    Rule(
        "placement",
        "Megatron FSDP needs the pipeline outermost (tp-cp-dp-pp)",
        "NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/config.py: validate",
        lambda case: _is_fsdp(case) and case.strategy.placement == "tp-cp-pp-dp",
    ),
)

_NEMO: Final = (
    optimizer_rule("nemo"),
    *_MEGATRON_CORE,
    Rule(
        "tensor_groups",
        "query groups must be a multiple of tp (Megatron-Core 0.14 of NeMo 2.5)",
        _CORE,
        lambda case: case.kv_heads % case.strategy.tp != 0,
        degree="tp",
    ),
    Rule(
        "fsdp",
        "MegatronStrategy shards optimizer states only (ddp or zero1)",
        "NVIDIA/NeMo, nemo/lightning/pytorch/strategies/megatron_strategy.py",
        _is_fsdp,
    ),
)


def _on(case: Case, name: str) -> bool:
    chosen = getattr(case.strategy, name)
    return bool(getattr(case.stack, name)) if chosen == "stack" else chosen == "on"


# ----------------------------------------------------------------------------------- torchtitan
def _bad_rounds(case: Case) -> bool:
    plan, passes = case.strategy, case.micro_batches
    if plan.pp == 1 or plan.schedule in THERE_AND_BACK:
        return False
    if plan.vpp == 1:
        return bool(passes < plan.pp)
    return bool(passes % max(1, int(passes) // plan.pp) != 0)


def _bad_expert_mesh(case: Case) -> bool:
    plan, degrees = case.strategy, case.degrees
    if plan.ep == 1:
        return False
    if degrees.etp != 1:
        return True
    beside = plan.cp * plan.tp
    shard = max(1, degrees.shard // plan.cp)
    return plan.ep % beside != 0 or (shard * beside) % plan.ep != 0


def _longest(case: Case) -> int:
    """Positions that the rotations of torchtitan's DeepSeek-V3, Qwen3, and others are made for."""
    if case.shape.kv_lora_rank:
        return 16384
    return 40960 if case.shape.qk_norm or case.shape.qk_norm_full else 131072


_TORCHTITAN: Final = (
    Rule(
        "length",
        "sequences must be within 16384 tokens for DeepSeek-V3, 40960 for Qwen3 and 131072 for "
        "others",
        "pytorch/torchtitan, torchtitan/models/common/decoder.py: update_from_config",
        lambda case: case.task.sequence > _longest(case),
    ),
    Rule(
        "shards",
        "the ranks that shard must be a multiple of cp",
        _TITAN,
        lambda case: case.strategy.sharding != "ddp" and case.degrees.shard % case.strategy.cp != 0,
    ),
    Rule(
        "heads",
        "heads and query groups must divide by tp",
        "pytorch/torchtitan, torchtitan/models/llama3/parallelize.py: colwise wq, wk and wv",
        lambda case: (
            int(case.shape.heads) % case.strategy.tp != 0
            or (not case.shape.kv_lora_rank and case.kv_heads % case.strategy.tp != 0)
        ),
        degree="tp",
    ),
    Rule(
        "replication",
        "DDP allows no other parallelism beside it",
        "pytorch/torchtitan, torchtitan/models/llama3/parallelize.py",
        lambda case: (
            case.strategy.sharding == "ddp"
            and max(case.strategy.tp, case.strategy.pp, case.strategy.cp, case.strategy.ep) > 1
        ),
    ),
    Rule(
        "sequence",
        "the sequence must be a multiple of tp * 2 * cp",
        _TITAN_TRAINER,
        lambda case: (
            case.task.sequence
            % (case.strategy.tp * (2 * case.strategy.cp if case.strategy.cp > 1 else 1))
            != 0
        ),
    ),
    Rule(
        "micro_batches",
        "1F1B needs as many micro-batches as stages, interleaving whole rounds of them",
        _PIPELINING,
        _bad_rounds,
    ),
    Rule(
        "pipeline_stages",
        "every pipeline chunk must hold a layer",
        "pytorch/torchtitan, torchtitan/distributed/pipeline_parallel.py",
        lambda case: (
            case.strategy.pp > 1
            and case.strategy.pp * chunks(case.strategy) > int(case.shape.layers)
        ),
    ),
    Rule(
        "split_backward",
        "ZBVZeroBubble and DualPipeV split the backward pass, which torch.compile of the model "
        "does not allow",
        f"{_PIPELINING}: _check_torch_compile_compatibility",
        lambda case: (
            case.strategy.pp > 1
            and case.strategy.schedule in THERE_AND_BACK
            and all(getattr(case.stack, name) for name in COMPILED)
        ),
    ),
    Rule(
        "pipeline",
        "Qwen3 and GPT-OSS (norms of queries and keys, or attention sinks) are not split: pp = 1",
        "pytorch/torchtitan, torchtitan/models/qwen3/__init__.py: pipelining_fn",
        lambda case: (
            case.strategy.pp > 1
            and bool(case.shape.qk_norm or case.shape.qk_norm_full or case.shape.attention_sinks)
        ),
        degree="pp",
    ),
    Rule(
        "async_tensor_parallel",
        "overlapping tensor parallelism needs torch.compile of the model (fused norms, activations "
        "and rotations of the stack)",
        "pytorch/torchtitan, torchtitan/distributed/tensor_parallel.py: maybe_enable_async_tp",
        lambda case: case.overlaps_tp and not all(getattr(case.stack, name) for name in COMPILED),
    ),
    Rule(
        "expert_mesh",
        "etp must be 1 beside ep > 1; ep borrows cp and tp, then shards of dp",
        _TITAN,
        _bad_expert_mesh,
    ),
    Rule(
        "experts",
        "experts must divide by ep",
        _TITAN,
        lambda case: case.strategy.ep > 1 and int(case.shape.experts) % case.strategy.ep != 0,
        degree="ep",
    ),
    Rule(
        "context",
        "context parallelism needs scaled_dot_product_attention: not DeepSeek-V3's or GPT-OSS's",
        "pytorch/torchtitan, torchtitan/models/deepseek_v3/infra/parallelize.py",
        lambda case: (
            case.strategy.cp > 1
            and bool(case.shape.kv_lora_rank or case.shape.attention_sinks or case.shape.window)
        ),
        degree="cp",
    ),
    Rule(
        "float8_tensor_parallel",
        "FP8 beside tp > 1 is for dense models only",
        "pytorch/torchtitan, torchtitan/models/deepseek_v3/infra/parallelize.py",
        lambda case: (
            case.precision == "fp8" and int(case.shape.experts) > 0 and case.strategy.tp > 1
        ),
        degree="tp",
    ),
    Rule(
        "expert_exchange",
        "DeepEP (deduplicated_dispatch of the stack) needs etp = 1",
        "pytorch/torchtitan, torchtitan/models/deepseek_v3/infra/parallelize.py",
        lambda case: (
            case.strategy.ep > 1 and case.degrees.etp > 1 and bool(case.stack.deduplicated_dispatch)
        ),
    ),
    optimizer_rule("torchtitan"),
)


# ---------------------------------------------------------------------------------- Accelerate
def _bad_mesh(case: Case) -> bool:
    plan = case.strategy
    beside = max(plan.tp, plan.cp) > 1
    if plan.sharding == "ddp":
        return beside
    shards = max(1, case.degrees.shard // plan.cp)
    copies = case.degrees.dp * plan.cp // case.degrees.shard
    return shards == 1 and ((copies > 1 and beside) or plan.cp == 1)


_ACCELERATE_RULES: Final = (
    optimizer_rule("accelerate"),
    Rule(
        "mesh",
        "tensor and context parallelism need FSDP over ranks of dp, and FSDP some ranks to shard "
        "over",
        _ACCELERATE,
        _bad_mesh,
    ),
    Rule(
        "heads",
        "heads and query groups must divide by tp",
        "huggingface/transformers, src/transformers/integrations/tensor_parallel.py",
        lambda case: (
            int(case.shape.heads) % case.strategy.tp != 0 or case.kv_heads % case.strategy.tp != 0
        ),
    ),
    Rule(
        "sequence",
        "the sequence must be a multiple of 2 * cp",
        "pytorch/pytorch, torch/distributed/tensor/experimental: context_parallel",
        lambda case: case.strategy.cp > 1 and case.task.sequence % (2 * case.strategy.cp) != 0,
    ),
    Rule(
        "precision",
        "formats are fp32, fp16, bf16 and fp8",
        "huggingface/accelerate, src/accelerate/utils/dataclasses.py: PrecisionType",
        lambda case: case.precision not in ("fp32", "fp16", "bf16", "fp8"),
    ),
)

RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "megatron": _MEGATRON,
    "megatron_bridge": _BRIDGE,
    "nemo": _NEMO,
    "torchtitan": _TORCHTITAN,
    "deepspeed": DEEPSPEED_RULES,
    "accelerate": _ACCELERATE_RULES,
}
