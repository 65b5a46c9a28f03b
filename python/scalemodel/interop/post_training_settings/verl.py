"""Settings of verl: overrides of its trainers by path, or YAML of the same names.

Names are those of its documentation in August 2026, recipes of asynchronous trainers among them.
"""

from __future__ import annotations

from typing import Any, Final

from scalemodel.interop.post_training_settings.values import Reader, flag, prompt_room, spelled
from scalemodel.interop.settings.launches import Launch
from scalemodel.post_training import RlEstimate, TuningEstimate

_ESTIMATOR: Final = {"grpo": "grpo", "dapo": "grpo", "rloo": "rloo", "ppo": "gae"}
_ESTIMATOR_READ: Final = {"grpo": "grpo", "rloo": "rloo", "gae": "ppo"}
_DTYPE: Final = {"bf16": "bfloat16", "fp16": "float16"}
_DTYPE_READ: Final = {"bfloat16": "bf16", "float16": "fp16"}
_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_CHECKPOINT_ENGINE: Final = "async_training.checkpoint_engine.enable"


def write(step: RlEstimate, asked: dict[str, Any]) -> Launch:
    """The command of the trainer that runs pools as the step does."""
    notes = ["model, data, rewards and learning rate are yours to set"]
    if asked["train_batch"] % asked["generations"]:
        notes.append(f"not expressed: train_batch={asked['train_batch']}: prompts count, whole")
    if asked["staleness"] > 1:
        notes.append(f"not expressed: staleness={asked['staleness']}: one step at most")
    if asked["rollout_accelerators"] and not asked["staleness"]:
        notes.append("not expressed: staleness=0 with a pool of its own: it runs one step ahead")
    if asked["precision"] not in ("bf16", "fp32"):
        notes.append(f"not expressed: precision={asked['precision']}: actors train in BF16")
    if asked["refit"] in ("rdma", "rdma_whole"):
        notes.append(f"not expressed: refit={asked['refit']}")
    if step.task.critic_model is not None:
        notes.append("critic.model.path is yours to set")
    settings = settings_of(step, asked)
    return Launch(
        framework="verl",
        command=(
            *("python3", "-m", _trainer(asked)),
            *(f"{path}={word(value)}" for path, value in settings.items()),
        ),
        environment={},
        files={},
        notes=tuple(notes),
        run=("actor_rollout_ref.model.path=MODEL", "data.train_files=DATA"),
    )


def _trainer(v: dict[str, Any]) -> str:
    if not v["rollout_accelerators"]:
        return "verl.trainer.main_ppo"
    if v["partial_rollouts"]:
        return "recipe.fully_async_policy.fully_async_main"
    return "recipe.one_step_off_policy.main_ppo"


def word(value: object) -> str:
    """A value as a command has it."""
    return str(value) if isinstance(value, bool) else spelled(value)


def settings_of(step: RlEstimate | TuningEstimate, v: dict[str, Any]) -> dict[str, object]:
    """Overrides of a trainer by their paths."""
    sharded = v["sharding"] in ("zero2", "zero3", "hsdp")
    room, node = prompt_room(step), v["per_node"]
    settings: dict[str, object] = {
        "algorithm.adv_estimator": _ESTIMATOR[v["algorithm"]],
        "algorithm.filter_groups.enable": v["algorithm"] == "dapo",
        "data.train_batch_size": v["prompts"],
        "data.gen_batch_size": round(v["prompts"] * v["oversampling"]),
        "data.max_prompt_length": room,
        "data.max_response_length": v["limit_tokens"] - room,
        "actor_rollout_ref.hybrid_engine": not v["rollout_accelerators"],
        "actor_rollout_ref.model.enable_gradient_checkpointing": v["recompute"] != "none",
        f"{_ACTOR}.strategy": "fsdp2" if sharded else "megatron",
        f"{_ACTOR}.ppo_mini_batch_size": max(1, v["train_batch"] // v["generations"]),
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": v["limit_tokens"] // v["cp"],
        f"{_ACTOR}.use_kl_loss": bool(v["reference"]),
        f"{_ACTOR}.use_rollout_log_probs": not v["logprob"],
    }
    if sharded:
        settings[f"{_ACTOR}.ulysses_sequence_parallel_size"] = v["cp"]
    else:
        for axis, name in (("tensor", "tp"), ("context", "cp"), ("pipeline", "pp")):
            path = "context_parallel_size" if axis == "context" else f"{axis}_model_parallel_size"
            settings[f"{_ACTOR}.megatron.{path}"] = v[name]
        settings[f"{_ACTOR}.megatron.expert_model_parallel_size"] = v["ep"]
    settings |= {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": v["generations"],
        f"{_ROLLOUT}.tensor_model_parallel_size": v["rollout_tp"],
        f"{_ROLLOUT}.pipeline_model_parallel_size": v["rollout_pp"],
        f"{_ROLLOUT}.gpu_memory_utilization": v["memory_share"],
        f"{_ROLLOUT}.dtype": _DTYPE.get(v["rollout_precision"], "bfloat16"),
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": v["logprob_batch"]
        * v["limit_tokens"]
        // v["cp"],
        "reward_model.enable": getattr(step.task, "reward_model", None) is not None,
    }
    if v["rollout_precision"] == "fp8":
        settings[f"{_ROLLOUT}.quantization"] = "fp8"
    pools = {"trainer": v["train_accelerators"], "rollout": v["rollout_accelerators"]}
    for pool, count in pools.items():
        if count:
            settings[f"{pool}.n_gpus_per_node"] = min(node, count)
            settings[f"{pool}.nnodes"] = -(-count // node)
    if v["partial_rollouts"]:
        settings["async_training.partial_rollout"] = True
        settings["async_training.staleness_threshold"] = v["stale_fraction"]
    if v["rollout_accelerators"]:
        settings[_CHECKPOINT_ENGINE] = v["refit"] == "reshard"
    return settings


def read(texts: dict[str, str]) -> dict[str, Any]:
    """Parts of a step from settings by their paths."""
    r = Reader("verl", texts)
    r.take("prompts", "data.train_batch_size", int)
    r.take("generations", f"{_ROLLOUT}.n", int)
    if r.text("data.max_response_length"):
        r.take("limit_tokens", "data.max_response_length", int)
        r.values["limit_tokens"] += r.count("data.max_prompt_length", 512)
    generations = r.values.get("generations", 1)
    r.take("train_batch", f"{_ACTOR}.ppo_mini_batch_size", lambda text: int(text) * generations)
    r.take("algorithm", "algorithm.adv_estimator", _ESTIMATOR_READ.__getitem__)
    if r.text("algorithm.filter_groups.enable").lower() == "true":
        r.values["algorithm"] = "dapo"
        prompts = r.values.get("prompts", 1)
        r.take("oversampling", "data.gen_batch_size", lambda text: int(text) / prompts)
    r.take("reference", f"{_ACTOR}.use_kl_loss", flag)
    r.take("logprob", f"{_ACTOR}.use_rollout_log_probs", lambda text: not flag(text))
    _read_actor(r)
    r.take("rollout_tp", f"{_ROLLOUT}.tensor_model_parallel_size", int)
    r.take("rollout_pp", f"{_ROLLOUT}.pipeline_model_parallel_size", int)
    r.take("memory_share", f"{_ROLLOUT}.gpu_memory_utilization", float)
    r.take("rollout_precision", f"{_ROLLOUT}.dtype", _DTYPE_READ.__getitem__)
    r.take("rollout_precision", f"{_ROLLOUT}.quantization", str)
    _read_pools(r)
    return r.values


def _read_actor(r: Reader) -> None:
    if r.text(f"{_ACTOR}.strategy"):
        megatron = r.text(f"{_ACTOR}.strategy") == "megatron"
        r.values["sharding"] = "zero1" if megatron else "zero3"
        if not megatron:
            r.values |= {"tp": 1, "pp": 1, "ep": 1}
    r.take("cp", f"{_ACTOR}.ulysses_sequence_parallel_size", int)
    r.take("cp", f"{_ACTOR}.megatron.context_parallel_size", int)
    r.take("tp", f"{_ACTOR}.megatron.tensor_model_parallel_size", int)
    r.take("pp", f"{_ACTOR}.megatron.pipeline_model_parallel_size", int)
    r.take("ep", f"{_ACTOR}.megatron.expert_model_parallel_size", int)
    r.take(
        "recompute",
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        lambda text: "full" if flag(text) else "none",
    )
    tokens = r.count(f"{_ROLLOUT}.log_prob_max_token_len_per_gpu", 0)
    if tokens and "limit_tokens" in r.values:
        packs = tokens * r.values.get("cp", 1) / r.values["limit_tokens"]
        r.values["logprob_batch"] = max(1, round(packs))


def _read_pools(r: Reader) -> None:
    pools = {}
    for pool in ("trainer", "rollout"):
        nodes = r.count(f"{pool}.nnodes", 0)
        pools[pool] = nodes * r.count(f"{pool}.n_gpus_per_node", 8)
    if pools["trainer"]:
        r.values["train_accelerators"] = pools["trainer"]
        r.values["rollout_accelerators"] = pools["rollout"]
        r.values["staleness"] = 1 if pools["rollout"] else 0
        r.values["partial_rollouts"] = False
        r.values["stale_fraction"] = 1.0
    r.take("partial_rollouts", "async_training.partial_rollout", flag)
    r.take("stale_fraction", "async_training.staleness_threshold", float)
    r.take("refit", _CHECKPOINT_ENGINE, lambda text: "reshard" if flag(text) else "broadcast")
