"""Settings that start a step of preference tuning or of distillation: NVIDIA-NeMo/RL, verl.

Names are those of NVIDIA-NeMo/RL, examples/configs/{dpo,rm,distillation_math}.yaml, and of verl,
docs/algo/opd.md, in autumn 2026.
"""

from __future__ import annotations

from typing import Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.post_training_settings import nemo_rl, verl
from scalemodel.interop.post_training_settings.tuning_values import asked_of
from scalemodel.interop.post_training_settings.values import degrees_of
from scalemodel.interop.settings.launches import Launch
from scalemodel.post_training import Distillation, Preference, TuningEstimate

_FILE: Final = "nemo_rl.yaml"
#: Script, configuration that is built on, and key of the steps, by what is tuned.
_RECIPES: Final = {
    "dpo": ("run_dpo.py", "dpo.yaml", "dpo.max_num_steps"),
    "reward": ("run_rm.py", "rm.yaml", "rm.max_num_steps"),
    "distillation": (
        "run_distillation.py",
        "distillation_math.yaml",
        "distillation.max_num_steps",
    ),
}
_LOSS: Final = "distillation.distillation_loss"
_TEACHER: Final = "distillation.teacher_models.teacher_model"


def write(step: TuningEstimate, framework: str) -> Launch:
    """How a framework starts the step; raises where it has nothing of the kind."""
    task, asked = step.task, _asked(step)
    if isinstance(task, Preference):
        if framework != "nemo_rl":
            raise _refused(framework, "has no preference tuning; nemo_rl has")
        return _nemo_preference(step, task, asked)
    if not task.on_policy:
        raise _refused(framework, "distils on answers of the student; Distillation(on_policy=True)")
    if framework == "nemo_rl":
        return _nemo_distillation(step, task, asked)
    return _verl(step, task, asked)


def _refused(framework: str, why: str) -> ScaleModelError:
    return ScaleModelError(f"framework={framework!r}: {why}", code="unknown_framework")


def _asked(step: TuningEstimate) -> dict[str, Any]:
    """Everything of a step that settings may say, as one of reinforcement learning would."""
    train = step.training.cluster
    return {
        "rollout_accelerators": 0,
        **asked_of(step),
        "per_node": min(int(train.core.node_accelerators), int(train.accelerators)),
        # What a trainer of reinforcement learning is told besides: no more than is needed.
        "algorithm": "grpo",
        "oversampling": 1.0,
        "reference": False,
        "logprob": False,
        "staleness": 0,
        "partial_rollouts": False,
        "stale_fraction": 1.0,
    }


# ------------------------------------------------------------------------------ NVIDIA-NeMo/RL
def _nemo(recipe: str, settings: dict[str, object], notes: list[str], *names: str) -> Launch:
    script, base, steps = _RECIPES[recipe]
    text = nemo_rl.yaml_of(settings)
    return Launch(
        framework="nemo_rl",
        command=("uv", "run", f"examples/{script}", f"--config={_FILE}"),
        environment={},
        files={_FILE: f"defaults: examples/configs/{base}\n{text}"},
        notes=(f"{', '.join(names)}, data and learning rate are yours to set", *notes),
        run=(f"{steps}=1000", *(f"{name}=MODEL" for name in names)),
    )


def _nemo_preference(step: TuningEstimate, task: Preference, v: dict[str, Any]) -> Launch:
    if task.method not in _RECIPES:
        raise ScaleModelError(
            f"framework='nemo_rl': has no method={task.method!r}; it has dpo and reward",
            code="unknown_framework",
        )
    notes = []
    if task.precomputed_reference:
        notes.append("not expressed: precomputed_reference: every step makes its own pass")
    if step.frozen == "resident":
        notes.append("not expressed: frozen=resident: the reference waits on the host")
    if task.packing:
        notes.append("not expressed: packing: sequences are padded")
    elif task.pad_to == "micro_batch" and task.spread:
        notes.append("not expressed: pad_to=micro_batch: to the longest of a batch")
    sharded = _sharded(v)
    if task.lora_rank and not sharded:
        notes.append(f"not expressed: lora_rank={task.lora_rank}: adapters need full sharding")
    settings: dict[str, object] = {
        "policy.train_global_batch_size": task.pairs,
        "policy.train_micro_batch_size": v["micro_batch"],
        "policy.sequence_packing.enabled": False,
        **_nemo_model("policy", v),
    }
    if task.lora_rank and sharded:
        lora = "policy.dtensor_cfg.lora_cfg"
        settings |= {
            f"{lora}.enabled": True,
            f"{lora}.dim": task.lora_rank,
            f"{lora}.match_all_linear": task.lora_targets == "all",
        }
        if task.lora_targets != "all":
            notes.append(f"{lora}.target_modules: name the matrices of {task.lora_targets}")
    return _nemo(task.method, settings | nemo_rl.nodes(v), notes, "policy.model_name")


def _nemo_distillation(step: TuningEstimate, task: Distillation, v: dict[str, Any]) -> Launch:
    assert step.teacher is not None
    notes = []
    if step.teacher_apart:
        notes.append("not expressed: teacher_cluster: the teacher works where the student trains")
    elif step.frozen == "resident":
        notes.append("not expressed: frozen=resident: the teacher waits on the host")
    if task.top_k is None:
        notes.append("not expressed: top_k=None: set topk_logits_k, which counts the logits")
    if task.lora_rank:
        notes.append(f"not expressed: lora_rank={task.lora_rank}: all weights learn")
    taught = {**v, **degrees_of(step.teacher.strategy), "recompute": "none"}
    for root, cut in (("policy", v), ("teacher", taught)):
        if _sharded(cut) and cut["sequence_parallel"]:  # which packing does not go with
            cut["sequence_parallel"] = False
            if cut["tp"] > 1:
                notes.append(f"not expressed: sequence_parallel=True of {root}")
    settings: dict[str, object] = {
        "distillation.num_prompts_per_step": task.prompts,
        "distillation.num_generations_per_prompt": task.generations,
        "policy.train_global_batch_size": task.batch,
        "policy.train_micro_batch_size": 1,
        "policy.logprob_batch_size": v["logprob_batch"],
        **_packed("policy"),
        **_nemo_model("policy", v),
        **_packed("teacher"),
        **_nemo_model("teacher", taught),
        **nemo_rl.generation(v),
        **nemo_rl.nodes(v),
    }
    if task.top_k is not None:
        settings["distillation.topk_logits_k"] = task.top_k
    return _nemo("distillation", settings, notes, "policy.model_name", "teacher.model_name")


def _sharded(v: dict[str, Any]) -> bool:
    return v["sharding"] in ("zero2", "zero3", "hsdp")


def _nemo_model(root: str, v: dict[str, Any]) -> dict[str, object]:
    """How a model is cut, lengths that its ranks divide, and Megatron's optimizer alone."""
    multiple = v["tp"] * (2 * v["cp"] if v["cp"] > 1 else 1)
    settings = {
        **nemo_rl.backend(root, v),
        f"{root}.make_sequence_length_divisible_by": multiple,
    }
    return settings if _sharded(v) else {**settings, f"{root}.optimizer": None}


def _packed(root: str) -> dict[str, object]:
    return {
        f"{root}.dynamic_batching.enabled": False,
        f"{root}.sequence_packing.enabled": True,
    }


# ---------------------------------------------------------------------------------------- verl
def _verl(step: TuningEstimate, task: Distillation, v: dict[str, Any]) -> Launch:
    if not step.teacher_apart:
        raise _refused("verl", "its teacher has accelerators of its own (teacher_cluster=)")
    if task.top_k is None:
        raise _refused("verl", "its teacher hands on the largest logits alone (top_k=)")
    assert step.teacher is not None
    teacher, plan = step.teacher.cluster, step.teacher.strategy
    node = min(int(teacher.core.node_accelerators), int(teacher.accelerators))
    notes = ["models, data, rewards and learning rate are yours to set"]
    if not step.colocated:
        notes.append("not expressed: rollout: the accelerators that train generate")
    if plan.cp > 1:
        notes.append(f"not expressed: cp={plan.cp} of the teacher, which an engine runs")
    if task.lora_rank:
        notes.append(f"not expressed: lora_rank={task.lora_rank}: all weights learn")
    settings = verl.settings_of(step, {**v, "rollout_accelerators": 0}) | {
        "distillation.enabled": True,
        "distillation.n_gpus_per_node": node,
        "distillation.nnodes": -(-int(teacher.accelerators) // node),
        f"{_TEACHER}.inference.name": "vllm",
        f"{_TEACHER}.inference.tensor_model_parallel_size": int(plan.tp),
        f"{_TEACHER}.inference.pipeline_model_parallel_size": int(plan.pp),
        f"{_TEACHER}.inference.max_model_len": task.limit_tokens + 1,
        f"{_LOSS}.loss_mode": "forward_kl_topk",
        f"{_LOSS}.topk": task.top_k,
        f"{_LOSS}.use_task_rewards": False,
    }
    return Launch(
        framework="verl",
        command=(
            *("python3", "-m", "verl.trainer.main_ppo"),
            *(f"{path}={verl.word(value)}" for path, value in settings.items()),
        ),
        environment={},
        files={},
        notes=tuple(notes),
        run=(
            "actor_rollout_ref.model.path=MODEL",
            f"{_TEACHER}.model_path=TEACHER",
            "data.train_files=DATA",
        ),
    )
