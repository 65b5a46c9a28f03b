"""Passes configurations of torchtitan through its own configuration classes.

Run by an interpreter that has ``torchtitan`` of a release that takes TOML (0.2). Reads a list of
jobs as JSON, and writes one line for each: an empty one, or what is refused.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

from answering import answer

warnings.simplefilter("ignore")


def _check_batch(parallelism: Any, training: Any) -> None:
    """What the trainer asks of the batch before its first step."""
    replicas = parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree
    assert training.global_batch_size % (training.local_batch_size * replicas) == 0


def _check_pipeline(parallelism: Any, training: Any) -> None:
    """The schedule that PyTorch builds, with stages that only count themselves."""
    from torch.distributed.pipelining import schedules

    degree = parallelism.pipeline_parallel_degree
    if degree == 1:
        return
    passes, rest = divmod(training.local_batch_size, parallelism.pipeline_parallel_microbatch_size)
    assert rest == 0
    parts = parallelism.module_fqns_per_model_part
    assert len(parts) % degree == 0
    assert all(any(name.startswith("layers.") for name in part) for part in parts)
    kind = schedules.get_schedule_class(parallelism.pipeline_parallel_schedule)
    looped = issubclass(kind, schedules.PipelineScheduleMulti)
    assert looped == (len(parts) > degree)
    if looped and kind is schedules.ScheduleInterleaved1F1B:
        assert passes % max(1, passes // degree) == 0, "micro-batches are no whole rounds"


def check(job: dict[str, Any]) -> None:
    """Read the file and the options, and lay the mesh, as ``torchtitan.train`` does."""
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "torchtitan.toml"
        path.write_text(job["files"]["torchtitan.toml"], encoding="utf-8")
        words = job["words"][job["words"].index("torchtitan.train") + 1 :]
        words = [word for word in words if not word.startswith("--job.config_file")]
        read = ConfigManager().parse_args([f"--job.config_file={path}", *words])
    mesh = read.parallelism
    ParallelDims(
        dp_replicate=mesh.data_parallel_replicate_degree,
        dp_shard=mesh.data_parallel_shard_degree,
        cp=mesh.context_parallel_degree,
        tp=mesh.tensor_parallel_degree,
        pp=mesh.pipeline_parallel_degree,
        ep=mesh.expert_parallel_degree,
        etp=mesh.expert_tensor_parallel_degree,
        world_size=job["world"],
    )
    _check_batch(mesh, read.training)
    _check_pipeline(mesh, read.training)
    if read.model.flavor != "debugmodel":
        _check_model(read)


def _check_model(read: Any) -> None:
    """The model that torchtitan ships takes the settings, and is split where stages are asked."""
    from torchtitan.protocols.train_spec import get_train_spec

    spec = get_train_spec(read.model.name)
    spec.model_args[read.model.flavor].update_from_config(read)
    assert read.parallelism.pipeline_parallel_degree == 1 or spec.pipelining_fn, "no pipelining"
    if read.parallelism.tensor_parallel_degree > 1:
        compiled = read.compile.enable and "model" in read.compile.components
        assert compiled or not read.parallelism.enable_async_tensor_parallel, "Async TP"


answer(check)
