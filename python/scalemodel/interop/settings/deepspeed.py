"""Settings of DeepSpeed's JSON: ZeRO stages, offloading, batch.

Names are those of its configuration page (deepspeed.ai/docs/config-json). The architecture is the
script's, and so are pipeline stages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.settings.facts import with_facts
from scalemodel.interop.settings.given import Given
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.question import Job, Settings

_STAGE: Final = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}
_FILE: Final = "ds_config.json"
#: What asks for an optimizer; the script makes Adam where nothing does.
_OPTIMIZER: Final[dict[str, dict[str, Any]]] = {
    "sgd": {"type": "SGD", "params": {"lr": 1e-4}},
    "sgd_momentum": {"type": "SGD", "params": {"lr": 1e-4, "momentum": 0.9}},
    "muon": {"type": "Muon", "params": {"lr": 1e-4, "momentum": 0.95}},
    "lion": {"type": "Lion", "params": {"lr": 1e-4}},
}
_OPTIMIZER_READ: Final = {"adam": "adam", "adamw": "adam", "muon": "muon", "lion": "lion"}

#: What only the owner of the job knows, by the names of Hugging Face's training arguments.
_RUN: Final = (
    *("--max_steps", "1000", "--learning_rate", "1e-4", "--dataset", "DATASET"),
    *("--output_dir", "outputs"),
)


def write(job: Job) -> Launch:
    """A configuration file, and the command that starts a script with it."""
    plan = job.strategy
    notes: list[str] = ["train.py is yours: it builds the model and takes the settings of the run"]
    if plan.sharding == "hsdp":
        notes.append("sharding=hsdp: mics_shard_size is known to DeepSpeed before 0.19 only")
    if plan.pp > 1:
        notes.append(f"pp={plan.pp}: build the model as a PipelineModule of as many stages")
    if plan.recompute != "none":
        notes.append(f"recompute={plan.recompute}: checkpoint layers in the model's code")
    if job.precision not in ("bf16", "fp16", "fp32"):
        notes.append(f"not expressed: {job.precision}")
    if job.task.optimizer in _OPTIMIZER:
        notes.append(f"optimizer.params.lr of {_FILE} was not predicted: set it for yours")
    return Launch(
        framework="deepspeed",
        command=job.torchrun("train.py", "--deepspeed", "--deepspeed_config", _FILE),
        environment={},
        files={_FILE: json.dumps(_configuration(job), indent=2) + "\n"},
        notes=tuple(notes),
        run=_RUN,
    )


def _zero_plus_plus(plan: _core.Strategy) -> dict[str, Any]:
    """Settings of ZeRO++, those that are on."""
    every = {
        "zero_hpz_partition_size": plan.secondary_degree,
        "zero_quantized_weights": plan.quantized_gather,
        "zero_quantized_gradients": plan.quantized_reduce,
    }
    return {name: value for name, value in every.items() if value}


def _configuration(job: Job) -> dict[str, Any]:
    plan = job.strategy
    zero: dict[str, Any] = {
        "stage": _STAGE[plan.sharding],
        "overlap_comm": job.switched("overlap_grad_reduce"),
        "contiguous_gradients": True,
    }
    if plan.sharding == "hsdp":
        zero["mics_shard_size"] = job.shard_degree
    else:
        zero |= _zero_plus_plus(plan)
    if plan.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if plan.offload_weights:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    table: dict[str, Any] = {
        "train_batch_size": job.task.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": job.task.global_batch // (job.dp * plan.micro_batch),
        "bf16": {"enabled": job.precision == "bf16"},
        "fp16": {"enabled": job.precision == "fp16"},
        "zero_optimization": zero,
    }
    if job.precision in ("bf16", "fp16") and plan.sharding != "ddp":
        # Without ZeRO the two formats must be one: runtime/engine.py.
        table["data_types"] = {"grad_accum_dtype": "fp32" if job.gradients_fp32 else job.precision}
    if plan.tp > 1:
        table["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.cp > 1:
        table["sequence_parallel_size"] = plan.cp
    if plan.recompute != "none":
        table["activation_checkpointing"] = {
            "partition_activations": False,
            "cpu_checkpointing": plan.offload_activations,
        }
    if job.task.optimizer in _OPTIMIZER:
        table["optimizer"] = _OPTIMIZER[job.task.optimizer]
    if job.task.optimizer.startswith("sgd") and plan.sharding != "ddp":
        # ZeRO names those that it was tried with, which are not PyTorch's SGD: zero/utils.py.
        table["zero_allow_untested_optimizer"] = True
    return table


def _table(values: Mapping[str, Any], name: str) -> Given:
    inner = values.get(name, {})
    if not isinstance(inner, Mapping):
        raise ScaleModelError(
            f"deepspeed: {name}={inner!r}: must be a table", code="malformed_setting"
        )
    return Given(inner, f"deepspeed: {name}")


def _offloaded(zero: Given, name: str) -> bool:
    inner = zero.raw(name)
    return isinstance(inner, Mapping) and str(inner.get("device", "none")) in ("cpu", "nvme")


def _gradients_fp32(values: dict[str, Any], stage: int) -> bool:
    """Gradients add up in the model's format unless told otherwise: runtime/engine.py."""
    sixteen = any(_table(values, name).flag("enabled") for name in ("bf16", "fp16"))
    named = _table(values, "data_types").text("grad_accum_dtype")
    return not sixteen or (stage > 0 and named in ("fp32", "float32"))


def _optimizer(values: dict[str, Any]) -> str:
    """The optimizer that a configuration names; empty where none, or one that is not ours."""
    given = _table(values, "optimizer")
    named = given.text("type")
    if named == "sgd":
        momentum = str(_table({"params": given.raw("params") or {}}, "params").raw("momentum"))
        return "sgd" if momentum in ("None", "0", "0.0") else "sgd_momentum"
    return _OPTIMIZER_READ.get(named, "")


def read(values: dict[str, Any], accelerators: int, base: _core.Stack) -> Settings:
    """Strategy and stack of a configuration; the sequence is the script's, so there is no task."""
    given, zero = Given(values, "deepspeed"), _table(values, "zero_optimization")
    stage = zero.count("stage", default=0)
    if stage > 3:
        raise ScaleModelError(
            f"deepspeed: zero_optimization.stage={stage}: must be from 0 to 3",
            code="malformed_setting",
        )
    groups = (
        zero.count("mics_shard_size", default=0) if str(zero.raw("mics_shard_size")) != "-1" else 0
    )
    partitions = zero.count("zero_hpz_partition_size", default=1)
    gathers = stage == 3 and not groups
    checkpoints = _table(values, "activation_checkpointing")
    strategy = _core.Strategy(
        tp=_table(values, "tensor_parallel").count("autotp_size", default=1),
        cp=given.count("sequence_parallel_size", default=1),
        context="all_to_all",
        sequence_parallel=False,
        micro_batch=given.count("train_micro_batch_size_per_gpu", default=1),
        sharding="hsdp" if groups else ("ddp", "zero1", "zero2", "zero3")[stage],
        shard_degree=groups,
        secondary_degree=partitions if gathers and partitions > 1 else 0,
        quantized_gather=gathers and zero.flag("zero_quantized_weights"),
        quantized_reduce=gathers and zero.flag("zero_quantized_gradients"),
        overlap_grad_reduce="on" if zero.flag("overlap_comm", default=stage == 3) else "off",
        offload_optimizer=_offloaded(zero, "offload_optimizer"),
        offload_weights=_offloaded(zero, "offload_param"),
        offload_activations=checkpoints.flag("cpu_checkpointing"),
        recompute="full" if "activation_checkpointing" in values else "none",
    )
    stated = {
        "gradients_fp32": _gradients_fp32(values, stage),
        "overlap_grad_reduce": strategy.overlap_grad_reduce == "on",
    }
    stack = with_facts(base, "deepspeed", stated)
    optimizer = _optimizer(values)
    unread = ["optimizer"] if "optimizer" in values and not optimizer else []
    # Which parameters are frozen, a configuration does not say.
    if zero.flag("zero_quantized_nontrainable_weights"):
        unread.append("zero_optimization.zero_quantized_nontrainable_weights")
    return Settings(
        *("deepspeed", None, None, strategy, accelerators, tuple(unread)),
        stack=stack,
        optimizer=optimizer,
    )
