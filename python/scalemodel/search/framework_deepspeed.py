"""Which strategies DeepSpeed can start: its argument checks, as rules."""

from __future__ import annotations

from typing import Final

from scalemodel.search.framework_cases import Case, Rule
from scalemodel.search.framework_optimizers import DEEPSPEED_RULES, optimizer_rule

_SOURCE: Final = "deepspeedai/DeepSpeed, deepspeed/runtime/"


def _bad_zero_plus_plus(case: Case) -> bool:
    plan = case.strategy
    asked = bool(plan.secondary_degree) or plan.quantized_gather or plan.quantized_reduce
    return plan.secondary_degree == 1 or (plan.sharding == "hsdp" and asked)


RULES: Final = (
    optimizer_rule("deepspeed"),
    *DEEPSPEED_RULES,
    Rule(
        "heads",
        "heads must divide by tp * cp: Ulysses exchanges heads",
        "deepspeedai/DeepSpeed, deepspeed/sequence/layer.py",
        lambda case: int(case.shape.heads) % (case.strategy.tp * case.strategy.cp) != 0,
    ),
    Rule(
        "offload_optimizer",
        "optimizer states on the host need ZeRO",
        f"{_SOURCE}zero/config.py",
        lambda case: case.strategy.offload_optimizer and case.strategy.sharding == "ddp",
    ),
    Rule(
        "offload_weights",
        "weights on the host need ZeRO stage 3",
        f"{_SOURCE}zero/config.py",
        lambda case: case.strategy.offload_weights and case.strategy.sharding not in ("zero3",),
    ),
    Rule(
        "zero_plus_plus",
        "MiCS (hsdp) has no second copy and quantizes nothing; a second copy takes 2 ranks or more",
        f"{_SOURCE}zero/mics.py: MiCS_Init; zero/config.py: zero_hpz_partition_size",
        _bad_zero_plus_plus,
    ),
    Rule(
        "batch",
        "the batch must be micro-batch * accumulation steps * replicas",
        f"{_SOURCE}config.py: _batch_assertion",
        lambda case: case.task.global_batch % (case.degrees.dp * case.strategy.micro_batch) != 0,
    ),
    Rule(
        "precision",
        "formats are fp32, fp16 and bf16",
        f"{_SOURCE}config.py",
        lambda case: case.precision not in ("fp32", "fp16", "bf16"),
    ),
)
