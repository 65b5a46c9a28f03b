"""Settings of Hugging Face Accelerate: its configuration file for FSDP.

Names are those of ``accelerate config`` (huggingface/accelerate, 1.10 and later).
"""

from __future__ import annotations

from typing import Any, Final

import scalemodel._core as _core
from scalemodel.interop.settings.given import Given, leaves
from scalemodel.interop.settings.question import Job, Launch, Settings

_FILE: Final = "accelerate.yaml"
_READ: Final = {
    **{"full_shard": "zero3", "1": "zero3", "shard_grad_op": "zero2", "2": "zero2"},
    **{"no_shard": "ddp", "3": "ddp", "hybrid_shard": "hsdp", "4": "hsdp"},
    **{"hybrid_shard_zero2": "hsdp", "5": "hsdp"},
}


def _text(table: dict[str, Any], indent: str = "") -> str:
    """Words, whole numbers and switches as YAML."""
    lines = []
    for key, cell in table.items():
        if isinstance(cell, dict):
            lines.append(f"{indent}{key}:\n{_text(cell, indent + '  ')}")
        else:
            shown = str(cell).lower() if isinstance(cell, bool) else cell
            lines.append(f"{indent}{key}: {shown}\n")
    return "".join(lines)


def write(job: Job) -> Launch:
    """A configuration file, and the command that starts a script with it."""
    plan = job.strategy
    notes: list[str] = []
    per_node = min(job.per_node, job.accelerators)
    table: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if plan.sharding == "ddp" else "FSDP",
        "mixed_precision": job.precision,
        "num_machines": -(-job.accelerators // per_node),
        "num_processes": job.accelerators,
    }
    if plan.sharding != "ddp":
        table["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": plan.sharding in ("zero3", "hsdp"),
            "fsdp_activation_checkpointing": plan.recompute == "full",
            "fsdp_offload_params": plan.offload_weights or plan.offload_optimizer,
        }
        if plan.sharding == "zero1":
            notes.append("FSDP shards gradients too; predicted was zero1")
        groups = job.dp * plan.cp // job.shard_degree
        degrees = {
            "dp_replicate_size": groups,
            "dp_shard_size": max(1, job.shard_degree // plan.cp),
            "tp_size": plan.tp,
            "cp_size": plan.cp,
        }
        table["parallelism_config"] = {
            f"parallelism_config_{name}": degree for name, degree in degrees.items()
        }
    elif plan.tp > 1 or plan.cp > 1:
        notes.append("not expressed: tensor or context parallelism without FSDP")
    if plan.pp > 1:
        notes.append("not expressed: pipeline stages")
    if plan.recompute == "selective":
        notes.append("not expressed: selective recomputation")
    accumulation = job.task.global_batch // (job.dp * plan.micro_batch)
    notes.append(
        f"in the script: batch {plan.micro_batch} per replica, {accumulation} accumulation steps"
    )
    return Launch(
        framework="accelerate",
        command=("accelerate", "launch", f"--config_file={_FILE}", "train.py"),
        environment={},
        files={_FILE: _text(table)},
        notes=tuple(notes),
    )


def read(values: dict[str, Any], accelerators: int) -> Settings:
    """Strategy of a configuration; batch and sequence are the script's, so there is no task."""
    given = Given(leaves(values), "accelerate")
    processes = accelerators or given.count("num_processes", default=0)
    kind = given.text("distributed_type", default="no")
    groups = given.count("parallelism_config_dp_replicate_size", default=1)
    cp = given.count("parallelism_config_cp_size", default=1)
    shard = given.count("parallelism_config_dp_shard_size", default=1)
    sharding = "ddp"
    if kind == "fsdp":
        whole = given.flag("fsdp_reshard_after_forward", default=True)
        usual = "zero3" if whole else "zero2"
        sharding = given.choice(_READ, "fsdp_sharding_strategy", default=usual)
        if groups > 1:
            sharding = "hsdp"
    offloaded = given.flag("fsdp_offload_params")
    strategy = _core.Strategy(
        tp=given.count("parallelism_config_tp_size", default=1),
        cp=cp,
        sequence_parallel=False,
        sharding=sharding,
        shard_degree=shard * cp if groups > 1 else 0,
        recompute="full" if given.flag("fsdp_activation_checkpointing") else "none",
        offload_weights=offloaded,
        offload_optimizer=offloaded,
    )
    return Settings("accelerate", None, None, strategy, processes)
