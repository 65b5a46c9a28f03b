"""Settings of torchtitan: ``--section.name`` options, and tables or objects with the same names.

Names are those of its ``JobConfig`` and ``Trainer.Config`` (pytorch/torchtitan, 0.2 and later).
The architecture is torchtitan's own, chosen by name, and is not among the settings.
"""

from __future__ import annotations

from typing import Any, Final

import scalemodel._core as _core
from scalemodel.interop.settings.given import Given, leaves
from scalemodel.interop.settings.question import Job, Launch, Settings
from scalemodel.resolve.tasks import Training

_SCHEDULE: Final = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zero_bubble": "ZBVZeroBubble",
    "dualpipe": "DualPipeV",
}
_SCHEDULE_READ: Final = {
    **{"1f1b": "1f1b", "interleaved1f1b": "interleaved", "gpipe": "gpipe"},
    **{"zbvzerobubble": "zero_bubble", "interleavedzerobubble": "zero_bubble"},
    **{"dualpipev": "dualpipe", "loopedbfs": "interleaved"},
}
_RECOMPUTE_READ: Final = {"none": "none", "selective": "selective", "full": "full"}
_ROTATION: Final = {"ring": "alltoall", "all_gather": "allgather"}
_ROTATION_READ: Final = {"alltoall": "ring", "allgather": "all_gather"}
_PRECISION_READ: Final = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}


def write(job: Job) -> Launch:
    """Options that follow a torchtitan configuration of the same model."""
    plan = job.strategy
    notes: list[str] = [f"needs torchtitan's own configuration of {job.model.title or 'the model'}"]
    shard = job.shard_degree if plan.sharding != "ddp" else 1
    options: dict[str, object] = {
        "training.local_batch_size": job.task.global_batch // job.dp,
        "training.global_batch_size": job.task.global_batch,
        "training.seq_len": job.task.sequence,
        "parallelism.data_parallel_replicate_degree": job.dp * plan.cp // shard
        if plan.sharding != "ddp"
        else job.dp,
        "parallelism.data_parallel_shard_degree": max(1, shard // plan.cp),
        "parallelism.tensor_parallel_degree": plan.tp,
        "parallelism.context_parallel_degree": plan.cp,
        "parallelism.pipeline_parallel_degree": plan.pp,
        "activation_checkpoint.mode": plan.recompute,
    }
    if plan.pp == 1:
        options["training.local_batch_size"] = plan.micro_batch
    if plan.sharding == "zero1":
        notes.append("torchtitan shards gradients and parameters too; they stay gathered in a step")
    if plan.sharding in ("zero1", "zero2"):
        options["parallelism.fsdp_reshard_after_forward"] = "never"
    elif plan.sharding in ("zero3", "hsdp"):
        options["parallelism.fsdp_reshard_after_forward"] = "always"
    if plan.pp > 1:
        schedule = "interleaved" if plan.vpp > 1 else plan.schedule
        options["parallelism.pipeline_parallel_schedule"] = _SCHEDULE[schedule]
        options["parallelism.pipeline_parallel_microbatch_size"] = plan.micro_batch
    if plan.cp > 1:
        if plan.context in _ROTATION:
            options["parallelism.context_parallel_rotate_method"] = _ROTATION[plan.context]
        else:
            notes.append(f"not expressed: context parallelism by {plan.context}")
    if job.model.shape.experts:
        options["parallelism.expert_parallel_degree"] = plan.ep
        options["parallelism.expert_tensor_parallel_degree"] = job.etp
    overlap_tp = plan.overlap_tp
    if plan.tp > 1 and (job.stack.overlap_tp if overlap_tp == "stack" else overlap_tp != "off"):
        options["parallelism.enable_async_tensor_parallel"] = True
    if plan.recompute == "full" and plan.recompute_layers:
        notes.append("not expressed: recomputation of some layers only")
    if job.precision == "fp8":
        options["model.converters"] = "quantize.linear.float8"
    elif job.precision != "bf16":
        notes.append(f"not expressed: {job.precision}")
    if plan.placement != "tp-cp-dp-pp":
        notes.append(f"not expressed: placement {plan.placement}")
    words = [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()
    ]
    return Launch(
        framework="torchtitan",
        command=job.torchrun("-m", "torchtitan.train", *words),
        environment={},
        files={},
        notes=tuple(notes),
    )


def _inner(values: dict[str, object]) -> dict[str, object]:
    """Settings by their innermost name."""
    return leaves({key.rpartition(".")[2]: cell for key, cell in values.items()})


def _sharding(given: Given, cp: int) -> tuple[str, int]:
    replicate = given.count("data_parallel_replicate_degree", default=1)
    # -1, the default, is all that is left.
    raw = given.raw("data_parallel_shard_degree")
    shard = 0 if raw is None or str(raw) == "-1" else given.count("data_parallel_shard_degree")
    if shard == 1 and cp == 1:
        return "ddp", 0
    if replicate > 1:
        return "hsdp", shard * cp
    never = given.text("fsdp_reshard_after_forward", default="default") == "never"
    return ("zero2" if never else "zero3"), 0


def read(values: dict[str, object], accelerators: int) -> Settings:
    """Task and strategy of torchtitan's options."""
    given = Given(_inner(values), "torchtitan")
    tp, pp, cp = (
        given.count(f"{axis}_parallel_degree", default=1)
        for axis in ("tensor", "pipeline", "context")
    )
    sharding, shard_degree = _sharding(given, cp)
    schedule = given.choice(_SCHEDULE_READ, "pipeline_parallel_schedule", default="1f1b")
    local = given.count("local_batch_size", default=1)
    micro_batch = given.count("pipeline_parallel_microbatch_size", default=1) if pp > 1 else local
    ep = given.count("expert_parallel_degree", default=1)
    chosen: dict[str, Any] = {"etp": given.count("expert_tensor_parallel_degree", default=1)}
    strategy = _core.Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        **(chosen if ep > 1 else {}),
        vpp=2 if schedule == "interleaved" and pp > 1 else 1,
        schedule=schedule if pp > 1 else "1f1b",
        micro_batch=micro_batch,
        sharding=sharding,
        shard_degree=shard_degree,
        recompute=given.choice(_RECOMPUTE_READ, "mode", default="selective"),
        context=given.choice(_ROTATION_READ, "context_parallel_rotate_method", default="ring"),
        overlap_tp="ring" if given.flag("enable_async_tensor_parallel") else "stack",
    )
    narrow = "float8" in given.text("converters") or given.flag("enable_fsdp_float8_all_gather")
    task = None
    batch = given.raw("global_batch_size")
    if given.raw("seq_len") is not None and (batch is not None or accelerators):
        replicas = max(1, accelerators // (tp * pp * cp))
        whole = -1 if batch is None or str(batch) == "-1" else given.count("global_batch_size")
        dtype = given.choice(_PRECISION_READ, "mixed_precision_param", default="bf16")
        task = Training(
            global_batch=whole if whole > 0 else local * replicas,
            sequence=given.count("seq_len"),
            precision="fp8" if narrow else dtype,  # type: ignore[arg-type]
        )
    return Settings("torchtitan", None, task, strategy, accelerators)
