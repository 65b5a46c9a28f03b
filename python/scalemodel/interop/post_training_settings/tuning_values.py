"""Parts of a predicted step of tuning by name, read from settings, and the step they start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.post_training_settings import nemo_rl, verl
from scalemodel.interop.post_training_settings.values import Reader, degrees_of, flag
from scalemodel.post_training import Distillation, Preference, TuningEstimate, estimate_tuning

#: What settings may say of a step, by the kind of its task.
_BOTH: Final = ("limit_tokens", "precision", "lora_rank", "lora_targets")
_OF_TASK: Final[dict[type, tuple[str, ...]]] = {
    Preference: (*_BOTH, "pairs", "method", "packing", "pad_to", "precomputed_reference"),
    Distillation: (
        *(*_BOTH, "prompts", "generations", "train_batch", "top_k", "on_policy"),
        "rollout_precision",
    ),
}
_DEGREES: Final = ("tp", "cp", "pp", "ep", "sharding", "sequence_parallel")
_STRATEGY: Final = (*_DEGREES, "recompute")
_OPTIONS: Final = ("memory_share", "logprob_batch", "refit")
_POOLS: Final = ("train_accelerators", "rollout_accelerators")
#: Paths that only the settings of a kind of step have.
_METHODS: Final = {"dpo": "dpo", "rm": "reward"}
_LORA: Final = "policy.dtensor_cfg.lora_cfg"
_LOSS: Final = "distillation.distillation_loss"
_INFERENCE: Final = "distillation.teacher_models.teacher_model.inference"


def asked_of(step: TuningEstimate) -> dict[str, Any]:
    """Everything of a step that settings may say.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Preference(pairs=128, prompt_tokens=200, generated_tokens=300, limit_tokens=2048)
    >>> asked = asked_of(sm.estimate_tuning("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2)))
    >>> asked["pairs"], asked["micro_batch"], asked["train_accelerators"], asked["frozen"]
    (128, 1, 8, 'host')
    """
    task, plan = step.task, step.training.strategy
    values = {name: getattr(task, name) for name in _OF_TASK[type(task)]}
    values |= {**degrees_of(plan), **step.options, "frozen": step.frozen}
    values["train_accelerators"] = int(step.training.cluster.accelerators)
    if isinstance(task, Preference):
        return values | {"micro_batch": max(1, int(plan.micro_batch) // 2)}
    values["train_batch"] = task.batch
    if step.teacher is not None:
        taught = degrees_of(step.teacher.strategy)
        values |= {f"teacher_{name}": taught[name] for name in _DEGREES}
        apart = int(step.teacher.cluster.accelerators) if step.teacher_apart else 0
        values["teacher_accelerators"] = apart
    if step.serving is not None:
        layout, rollout = step.serving.layout, step.serving.cluster
        values |= {"rollout_tp": int(layout.tp), "rollout_pp": int(layout.pp)}
        values["rollout_accelerators"] = 0 if step.colocated else int(rollout.accelerators)
    return values


def started(step: TuningEstimate, changes: Mapping[str, Any]) -> TuningEstimate:
    """The step with some of its parts changed, predicted once more."""
    known = asked_of(step)
    if strange := sorted(changes.keys() - known.keys()):
        kind = type(step.task).__name__
        raise ScaleModelError(f"like: is a {kind}, and the settings say {', '.join(strange)}")
    values = {**known, **changes}
    plan = {name: values[name] for name in _STRATEGY}
    options: dict[str, Any] = {name: values[name] for name in _OPTIONS}
    if values["frozen"] in ("host", "resident"):
        options["frozen"] = values["frozen"]
    if step.teacher is not None:
        options |= _teaching(step, values)
    if step.serving is not None:
        options |= _generating(step, values)
    return estimate_tuning(
        step.training.model,
        _pool(step.training.cluster, values["train_accelerators"]),
        type(step.task)(
            **{**vars(step.task), **{name: values[name] for name in _OF_TASK[type(step.task)]}}
        ),
        step.training.strategy.replace(dp=0, micro_batch=values.get("micro_batch", 1), **plan),
        stack=step.training.stack,
        framework=step.framework,  # type: ignore[arg-type]
        **options,
    )


def _pool(like: resolve.Cluster, accelerators: int) -> resolve.Cluster:
    if accelerators == like.accelerators:
        return like
    return resolve.cluster(like, accelerators=accelerators)


def _teaching(step: TuningEstimate, values: Mapping[str, Any]) -> dict[str, Any]:
    assert step.teacher is not None
    cut = {name: values[f"teacher_{name}"] for name in _DEGREES}
    options: dict[str, Any] = {
        "teacher_strategy": step.teacher.strategy.replace(dp=0, micro_batch=1, **cut)
    }
    if apart := values["teacher_accelerators"]:
        options["teacher_cluster"] = _pool(step.teacher.cluster, apart)
    return options


def _generating(step: TuningEstimate, values: Mapping[str, Any]) -> dict[str, Any]:
    assert step.serving is not None
    options: dict[str, Any] = {
        "layout": _core.ServingLayout(tp=values["rollout_tp"], pp=values["rollout_pp"]),
        "engine": step.serving.engine,
    }
    if apart := values["rollout_accelerators"]:
        options["rollout"] = _pool(step.serving.cluster, apart)
    return options


# -------------------------------------------------------------------------------------- reading
def read(framework: str, texts: dict[str, str]) -> dict[str, Any]:
    """Parts of a step from settings by their paths."""
    if framework == "verl":
        return _read_verl(texts)
    r = Reader("NeMo-RL", texts)
    sections = {path.partition(".")[0] for path in texts}
    recipe = r.text("defaults").rpartition("/")[2]
    r.values = _shared(nemo_rl.read(texts))
    for section, method in _METHODS.items():
        if section in sections or recipe == f"{section}.yaml":
            _read_preference(r, method)
            return r.values
    if "distillation" in sections or recipe.startswith("distillation"):
        _read_distillation(r)
        return r.values
    raise ScaleModelError(
        "NeMo-RL: neither of dpo, rm and distillation is among the settings; read_rl reads others",
        code="missing_setting",
    )


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """What steps of reinforcement learning have too."""
    names = {name for of_kind in _OF_TASK.values() for name in of_kind}
    names |= {*_STRATEGY, *_OPTIONS, *_POOLS, "rollout_tp", "rollout_pp"}
    return {name: value for name, value in values.items() if name in names}


def _read_preference(r: Reader, method: str) -> None:
    r.values.pop("rollout_accelerators", None)
    r.values |= {"method": method, "precomputed_reference": False}
    if "train_batch" in r.values:
        r.values["pairs"] = r.values.pop("train_batch")
    r.take("micro_batch", "policy.train_micro_batch_size", int)
    r.take("packing", "policy.sequence_packing.enabled", flag)
    if not r.values.get("packing", True):
        r.values["pad_to"] = "batch"
    if r.text(f"{_LORA}.enabled").lower() == "true":
        r.take("lora_rank", f"{_LORA}.dim", int)
        if r.text(f"{_LORA}.match_all_linear").lower() == "true":
            r.values["lora_targets"] = "all"
    else:
        r.values["lora_rank"] = 0


def _read_distillation(r: Reader) -> None:
    r.values |= {"on_policy": True, "lora_rank": 0, "teacher_accelerators": 0}
    r.take("prompts", "distillation.num_prompts_per_step", int)
    r.take("generations", "distillation.num_generations_per_prompt", int)
    r.take("top_k", "distillation.topk_logits_k", int)
    nemo_rl.read_backend(r, "teacher", "teacher_")
    for name in ("recompute", "precision"):  # its passes keep nothing, in the student's format
        r.values.pop(f"teacher_{name}", None)


def _read_verl(texts: dict[str, str]) -> dict[str, Any]:
    r = Reader("verl", texts)
    r.values = _shared(verl.read(texts)) | {"on_policy": True, "lora_rank": 0}
    r.values.pop("refit", None)
    r.values["rollout_accelerators"] = 0
    r.take("top_k", f"{_LOSS}.topk", int)
    r.take("teacher_tp", f"{_INFERENCE}.tensor_model_parallel_size", int)
    r.take("teacher_pp", f"{_INFERENCE}.pipeline_model_parallel_size", int)
    r.values |= {"teacher_cp": 1, "teacher_ep": 1}
    nodes = r.count("distillation.nnodes", 0)
    if nodes:
        r.values["teacher_accelerators"] = nodes * r.count("distillation.n_gpus_per_node", 8)
    return r.values
