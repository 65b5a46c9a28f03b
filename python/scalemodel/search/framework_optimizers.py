"""Optimizers of training frameworks: which of ours each has, and what they work beside."""

from __future__ import annotations

from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import Case, Rule

_ARGUMENTS: Final = "NVIDIA/Megatron-LM, megatron/training/arguments.py"
_OPTIMIZER: Final = "NVIDIA/Megatron-LM, megatron/core/optimizer/__init__.py"
_LAYER_WISE: Final = "NVIDIA/Megatron-LM, megatron/core/optimizer/layer_wise_optimizer.py"
_BRIDGE: Final = "NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/optim.py"
_DEEPSPEED: Final = "deepspeedai/DeepSpeed, deepspeed/runtime/"
#: Optimizers that Megatron-Core takes from the package emerging_optimizers.
_EMERGING: Final = ("muon", "lion")

#: Framework -> the optimizers that its settings can ask for, and where it names them. None of them
#: starts Shampoo, and the SOAP of Megatron-Core is another: eigenbases at every step.
OPTIMIZERS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "megatron": (("adam", "sgd", "sgd_momentum", *_EMERGING), f"{_ARGUMENTS}: --optimizer"),
    "megatron_bridge": (("adam", "sgd", "sgd_momentum", *_EMERGING), f"{_BRIDGE}: setup_optimizer"),
    # The Megatron-Core 0.14 and 0.15 of NeMo 2 make these two alone from an OptimizerConfig.
    "nemo": (("adam", "sgd", "sgd_momentum"), f"{_OPTIMIZER} of 0.15: get_megatron_optimizer"),
    # DistMuon needs a layout of every parameter, which its Kimi K2 alone writes.
    "torchtitan": (("adam",), "pytorch/torchtitan, torchtitan/components/optimizer/optimizer.py"),
    "deepspeed": (
        ("adam", "sgd", "sgd_momentum", *_EMERGING),
        f"{_DEEPSPEED}engine.py: _configure_basic_optimizer",
    ),
    # No setting names it: the training script makes the optimizer, AdamW by default.
    "accelerate": (("adam",), "huggingface/accelerate, src/accelerate/accelerator.py: prepare"),
}


def check_optimizer(framework: str, task: Training) -> None:
    """Refuse a task whose optimizer a framework does not have.

    Examples
    --------
    >>> task = Training(global_batch=8, sequence=4096, optimizer="muon")
    >>> check_optimizer("megatron", task)
    >>> try:
    ...     check_optimizer("torchtitan", task)
    ... except ScaleModelError as error:
    ...     print(str(error).partition(" (")[0])
    optimizer='muon': torchtitan has adam alone
    """
    names, source = OPTIMIZERS[framework]
    if task.optimizer not in names:
        raise ScaleModelError(
            f"optimizer={task.optimizer!r}: {framework} has {_listed(names)} ({source})",
            code="framework_optimizer",
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) > 1 else f"{names[0]} alone"


def optimizer_rule(framework: str) -> Rule:
    """The rule of the optimizers that a framework has.

    Examples
    --------
    >>> optimizer_rule("nemo").says
    'the optimizers are adam, sgd, sgd_momentum'
    """
    names, source = OPTIMIZERS[framework]
    return Rule(
        "optimizer",
        f"the optimizers are {_listed(names)}",
        source,
        lambda case: case.task.optimizer not in names,
    )


# -------------------------------------------------------------------------------- Megatron-Core
def _bad_layers(case: Case) -> bool:
    """Ranks own whole matrices, but embeddings and norms only beside Muon."""
    sharding = case.strategy.sharding
    if case.task.optimizer == "lion":
        return sharding != "ddp"
    return case.task.optimizer == "muon" and sharding not in ("ddp", "zero1")


EMERGING_RULES: Final = (
    Rule(
        "emerging_precision",
        "Muon and Lion take no fp16",
        f"{_OPTIMIZER}: _get_megatron_emerging_optimizer",
        lambda case: case.task.optimizer in _EMERGING and case.precision == "fp16",
    ),
    Rule(
        "emerging_sharding",
        "Muon needs sharding ddp or zero1, and Lion ddp",
        f"{_ARGUMENTS}: validate_args; {_LAYER_WISE}: _shard_params_from_layout",
        _bad_layers,
    ),
    Rule(
        "emerging_experts",
        "Muon beside zero1 and ep > 1 needs experts without biases",
        f"{_OPTIMIZER}: _get_megatron_emerging_optimizer",
        lambda case: (
            case.task.optimizer == "muon"
            and case.strategy.sharding == "zero1"
            and case.strategy.ep > 1
            and bool(case.shape.mlp_bias or case.shape.out_bias)
        ),
    ),
)
BRIDGE_RULES: Final = (
    Rule(
        # Its dist_muon shards states, but all-reduces the gradients of every matrix.
        "unsharded_muon",
        "Muon needs sharding ddp: no layout of whole matrices is asked for",
        f"{_BRIDGE}: setup_optimizer",
        lambda case: case.task.optimizer == "muon" and case.strategy.sharding != "ddp",
    ),
)


# ------------------------------------------------------------------------------------ DeepSpeed
def _bad_muon(case: Case) -> bool:
    """Stage 1 in BF16 beside FP32 sums is an optimizer of its own."""
    plan, task = case.strategy, case.task
    chosen = task.gradient_precision
    fp32 = bool(case.stack.gradients_fp32) if chosen == "stack" else chosen == "fp32"
    own = plan.sharding == "zero1" and case.precision == "bf16" and fp32
    several = max(plan.tp, plan.cp) > 1 or int(case.shape.experts) > 0
    return task.optimizer == "muon" and own and several and not plan.offload_optimizer


DEEPSPEED_RULES: Final = (
    Rule(
        "muon_stage",
        "Muon needs ZeRO below stage 3, which refuses it beside reduce-scatter",
        f"{_DEEPSPEED}zero/stage3.py",
        lambda case: case.task.optimizer == "muon" and case.strategy.sharding in ("zero3", "hsdp"),
    ),
    Rule(
        "muon_groups",
        "Muon in stage 1 with BF16 weights and FP32 gradients needs a dense model, tp = cp = 1",
        f"{_DEEPSPEED}bf16_optimizer.py",
        _bad_muon,
    ),
)
