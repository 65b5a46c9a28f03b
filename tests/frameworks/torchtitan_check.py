"""Passes configurations of torchtitan through its own configuration classes.

Run by an interpreter that has ``torchtitan`` 0.2, which takes the TOML file, or 0.3, which takes
the module beside it. Reads a list of jobs as JSON, and writes one line for each: an empty one, or
what is refused.
"""

from __future__ import annotations

import importlib.util
import sys
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


def _check_mesh_of_experts(mesh: Any, world: int) -> None:
    """The ranks of the experts are those of the dense layers, laid anew."""
    copies = mesh.data_parallel_replicate_degree * mesh.pipeline_parallel_degree
    assert world // copies % mesh.expert_parallel_degree == 0, "experts need other ranks"


def _dimensions(mesh: Any, world: int, **more: int) -> Any:
    from torchtitan.distributed.parallel_dims import ParallelDims

    return ParallelDims(
        dp_replicate=mesh.data_parallel_replicate_degree,
        dp_shard=mesh.data_parallel_shard_degree,
        cp=mesh.context_parallel_degree,
        tp=mesh.tensor_parallel_degree,
        pp=mesh.pipeline_parallel_degree,
        ep=mesh.expert_parallel_degree,
        world_size=world,
        **more,
    )


def _options(job: dict[str, Any]) -> list[str]:
    return list(job["words"][job["words"].index("torchtitan.train") + 1 :])


def _check_file(job: dict[str, Any], folder: Path) -> None:
    """0.2: the file itself."""
    from torchtitan.config.manager import ConfigManager

    words = [word for word in _options(job) if not word.startswith(("--module=", "--config="))]
    path = folder / "torchtitan.toml"
    read = ConfigManager().parse_args([f"--job.config_file={path}", *words])
    mesh = read.parallelism
    _dimensions(mesh, job["world"], etp=mesh.expert_tensor_parallel_degree)
    _check_batch(mesh, read.training)
    _check_pipeline(mesh, read.training)
    if read.model.flavor != "debugmodel":
        _check_model(read)


def _check_module(job: dict[str, Any], folder: Path) -> None:
    """0.3: the module that reads the file, up to the trainer's first distributed step."""
    from torchtitan.config import ConfigManager

    sys.modules.pop("torchtitan_job", None)
    sys.path.insert(0, str(folder))
    try:
        read = ConfigManager().parse_args(_options(job))
    finally:
        sys.path.remove(str(folder))
    mesh, training = read.parallelism, read.training
    _dimensions(mesh, job["world"])
    _check_mesh_of_experts(mesh, job["world"])
    beside = 2 * mesh.context_parallel_degree if mesh.context_parallel_degree > 1 else 1
    assert training.seq_len % (mesh.tensor_parallel_degree * beside) == 0
    _check_batch(mesh, training)
    _check_pipeline(mesh, training)
    read.model_spec.model.update_from_config(config=read)
    assert mesh.pipeline_parallel_degree == 1 or read.model_spec.pipelining_fn, "no pipelining"
    _check_parts(read)
    _check_attention(read)


def _check_parts(read: Any) -> None:
    """Every module of the model is in one part, by the names that the model has."""
    parts = read.parallelism.module_fqns_per_model_part
    if read.parallelism.pipeline_parallel_degree > 1:
        layers = [f"layers.{at}" for at in range(len(read.model_spec.model.layers))]
        assert [name for part in parts for name in part] == [
            "tok_embeddings",
            *layers,
            "norm",
            "lm_head",
        ]


def _check_attention(read: Any) -> None:
    """What `full_dtensor.validate_config` refuses of the modules, asked of their configurations."""
    from torchtitan.models.common.attention import ScaledDotProductAttention, VarlenAttention

    if read.parallelism.context_parallel_degree > 1:
        for kind in (ScaledDotProductAttention, VarlenAttention):
            assert not any(read.model_spec.model.traverse(kind.Config)), f"{kind.__name__} and CP"


def check(job: dict[str, Any]) -> None:
    """Read the file and the options, and lay the mesh, as ``torchtitan.train`` does."""
    old = importlib.util.find_spec("torchtitan.config.job_config") is not None
    with tempfile.TemporaryDirectory() as folder:
        for name, text in job["files"].items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        (_check_file if old else _check_module)(job, Path(folder))


def _check_model(read: Any) -> None:
    """The model that torchtitan ships takes the settings, and is split where stages are asked."""
    from torchtitan.protocols.train_spec import get_train_spec

    spec = get_train_spec(read.model.name)
    spec.model_args[read.model.flavor].update_from_config(read)
    assert read.parallelism.pipeline_parallel_degree == 1 or spec.pipelining_fn, "no pipelining"
    if read.parallelism.tensor_parallel_degree > 1:
        compiled = read.compile.enable and "model" in read.compile.components
        assert compiled or not read.parallelism.enable_async_tensor_parallel, "Async TP"


def _have_float8() -> None:
    """What this machine lacks is taken for there: accelerators with FP8."""
    try:
        from torchtitan.components.quantization import float8
    except ImportError:
        return
    float8.has_cuda_capability = lambda *_: True


answer(check, _have_float8)
