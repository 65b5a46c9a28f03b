"""Settings of Hugging Face Accelerate: its configuration file for FSDP.

Names are those of ``accelerate config`` (huggingface/accelerate, 1.10 and later).
"""

from __future__ import annotations

from typing import Any, Final

import scalemodel._core as _core
from scalemodel.interop.settings.facts import with_facts
from scalemodel.interop.settings.given import Given, leaves
from scalemodel.interop.settings.launches import MAIN_ADDRESS, MAIN_PORT, Launch
from scalemodel.interop.settings.question import Job, Settings

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


_ROTATION: Final = {"ring": "alltoall", "all_gather": "allgather"}
_ROTATION_READ: Final = {"alltoall": "ring", "allgather": "all_gather"}
#: What only the owner of the job knows, by the names of Hugging Face's training arguments.
_RUN: Final = (
    *("--max_steps", "1000", "--learning_rate", "1e-4", "--dataset", "DATASET"),
    *("--output_dir", "outputs"),
)


def write(job: Job) -> Launch:
    """A configuration file, and the command that starts a script with it."""
    plan = job.strategy
    notes: list[str] = ["train.py is yours: it builds the model and takes the options behind it"]
    accumulation = job.task.global_batch // (job.dp * plan.micro_batch)
    words = ["accelerate", "launch", f"--config_file={_FILE}"]
    if job.nodes > 1:
        words += [MAIN_ADDRESS, MAIN_PORT]
    words += ["train.py", f"--per_device_train_batch_size={plan.micro_batch}"]
    words += [f"--gradient_accumulation_steps={accumulation}"]
    return Launch(
        framework="accelerate",
        command=tuple(words),
        environment={},
        files={_FILE: _text(_configuration(job))},
        notes=tuple(notes),
        run=_RUN,
    )


def _configuration(job: Job) -> dict[str, Any]:
    plan = job.strategy
    table: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if plan.sharding == "ddp" else "FSDP",
        "mixed_precision": "no" if job.precision == "fp32" else job.precision,
        "num_machines": job.nodes,
        "num_processes": job.accelerators,
        "rdzv_backend": "c10d",
        "same_network": False,
    }
    if plan.sharding != "ddp":
        table["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": plan.sharding in ("zero3", "hsdp"),
            "fsdp_activation_checkpointing": plan.recompute == "full",
            "fsdp_offload_params": plan.offload_weights or plan.offload_optimizer,
        }
        degrees = {
            "dp_replicate_size": job.dp * plan.cp // job.shard_degree,
            "dp_shard_size": max(1, job.shard_degree // plan.cp),
            "tp_size": plan.tp,
            "cp_size": plan.cp,
        }
        table["parallelism_config"] = {
            f"parallelism_config_{name}": degree for name, degree in degrees.items()
        }
        if plan.cp > 1:
            rotation = _ROTATION.get(plan.context, "allgather")
            table["parallelism_config"]["parallelism_config_cp_comm_strategy"] = rotation
    return table


def read(values: dict[str, Any], accelerators: int, base: _core.Stack) -> Settings:
    """Strategy of a configuration; the sequence is the script's, so there is no task."""
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
    rotation = given.choice(
        _ROTATION_READ, "parallelism_config_cp_comm_strategy", default="all_gather"
    )
    strategy = _core.Strategy(
        tp=given.count("parallelism_config_tp_size", default=1),
        cp=cp,
        context=rotation if cp > 1 else "ring",
        sequence_parallel=False,
        micro_batch=given.count("per_device_train_batch_size", default=1),
        sharding=sharding,
        shard_degree=shard * cp if groups > 1 else 0,
        recompute="full" if given.flag("fsdp_activation_checkpointing") else "none",
        offload_weights=offloaded,
        offload_optimizer=offloaded,
    )
    stack = with_facts(base, "accelerate", {})
    return Settings("accelerate", None, None, strategy, processes, stack=stack)
