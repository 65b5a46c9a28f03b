"""Settings of NVIDIA-NeMo/RL: its YAML, and overrides of a command by path.

Names are those of examples/configs of its main branch in August 2026.
"""

from __future__ import annotations

from typing import Any, Final

from scalemodel.interop.post_training_settings.values import Reader, flag, spelled
from scalemodel.interop.settings.launches import Launch
from scalemodel.post_training import RlEstimate

_FILE: Final = "nemo_rl.yaml"
_BASE: Final = "examples/configs/grpo_math_1B.yaml"
_REFIT: Final = {"broadcast": None, "reshard": "nccl_reshard", "rdma": "nixl"}
_DTYPE: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}
_DTYPE_READ: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8": "fp8"}
_GENERATION: Final = "policy.generation"
_ENGINE: Final = "policy.generation.vllm_cfg"
#: What only the owner of the run knows; a penalty is on or off in a prediction.
_KL: Final = 0.01


def write(step: RlEstimate, asked: dict[str, Any]) -> Launch:
    """A configuration on top of the repository's own, and the command that starts it."""
    notes = ["policy.model_name, data, env and learning rate are yours to set"]
    if asked["algorithm"] == "ppo":
        notes.append("not expressed: algorithm=ppo: GRPO without a critic is started")
    for name in ("reward_model", "critic_model"):
        if getattr(step.task, name) is not None:
            notes.append(f"not expressed: {name}: set up an environment of it")
    if asked["refit"] not in _REFIT:
        notes.append(f"not expressed: refit={asked['refit']}")
    if asked["stale_fraction"] < 1:
        notes.append("not expressed: stale_fraction: ages of trajectories are whole steps")
    command = ("uv", "run", "examples/run_grpo.py", f"--config={_FILE}")
    return Launch(
        framework="nemo_rl",
        command=command,
        environment={},
        files={_FILE: f"defaults: {_BASE}\n{yaml_of(_settings(asked))}"},
        notes=tuple(notes),
        run=("grpo.max_num_steps=1000", "policy.model_name=MODEL"),
    )


def _settings(v: dict[str, Any]) -> dict[str, object]:
    settings: dict[str, object] = {
        "grpo.num_prompts_per_step": v["prompts"],
        "grpo.num_generations_per_prompt": v["generations"],
        "grpo.use_dynamic_sampling": v["algorithm"] == "dapo",
        "grpo.batch_multiplier": v["oversampling"],
        "grpo.use_leave_one_out_baseline": v["algorithm"] == "rloo",
        "grpo.async_grpo.enabled": v["staleness"] > 0,
        "grpo.async_grpo.max_trajectory_age_steps": max(1, v["staleness"]),
        "grpo.async_grpo.in_flight_weight_updates": bool(v["partial_rollouts"]),
        "loss_fn.reference_policy_kl_penalty": _KL if v["reference"] else 0,
        "loss_fn.force_on_policy_ratio": not v["logprob"],
        "policy.train_global_batch_size": v["train_batch"],
        "policy.train_micro_batch_size": 1,
        "policy.logprob_batch_size": v["logprob_batch"],
        "policy.sequence_packing.enabled": True,
        **backend("policy", v),
    }
    return settings | generation(v) | nodes(v)


def backend(root: str, v: dict[str, Any]) -> dict[str, object]:
    """How a model is cut, below its own part of the settings."""
    sharded = v["sharding"] in ("zero2", "zero3", "hsdp")
    name = f"{root}.dtensor_cfg" if sharded else f"{root}.megatron_cfg"
    settings: dict[str, object] = {
        f"{root}.max_total_sequence_length": v["limit_tokens"],
        f"{root}.precision": _DTYPE.get(v["precision"], "bfloat16"),
        f"{root}.megatron_cfg.enabled": not sharded,
        f"{root}.dtensor_cfg.enabled": sharded,
        f"{name}.sequence_parallel": bool(v["sequence_parallel"]),
        f"{name}.activation_checkpointing": v["recompute"] != "none",
    }
    if sharded:
        return settings | {
            f"{name}.tensor_parallel_size": v["tp"],
            f"{name}.context_parallel_size": v["cp"],
        }
    return settings | {
        f"{name}.tensor_model_parallel_size": v["tp"],
        f"{name}.context_parallel_size": v["cp"],
        f"{name}.pipeline_model_parallel_size": v["pp"],
        f"{name}.expert_model_parallel_size": v["ep"],
        f"{name}.fp8_cfg.enabled": v["precision"] == "fp8",
    }


def generation(v: dict[str, Any]) -> dict[str, object]:
    """The engine of the policy, and where it runs."""
    apart, node = v["rollout_accelerators"], v["per_node"]
    settings: dict[str, object] = {
        f"{_GENERATION}.backend": "vllm",
        f"{_GENERATION}.refit_transport": _REFIT.get(v["refit"]) if apart else None,
        f"{_GENERATION}.colocated.enabled": not apart,
        f"{_ENGINE}.tensor_parallel_size": v["rollout_tp"],
        f"{_ENGINE}.pipeline_parallel_size": v["rollout_pp"],
        f"{_ENGINE}.gpu_memory_utilization": v["memory_share"],
        f"{_ENGINE}.precision": _DTYPE.get(v["rollout_precision"], v["rollout_precision"]),
        f"{_ENGINE}.max_model_len": v["limit_tokens"],
        f"{_ENGINE}.async_engine": v["staleness"] > 0,
    }
    if apart:
        resources = f"{_GENERATION}.colocated.resources"
        settings[f"{resources}.gpus_per_node"] = min(node, apart)
        settings[f"{resources}.num_nodes"] = -(-apart // node)
    return settings


def nodes(v: dict[str, Any]) -> dict[str, object]:
    """Accelerators of all pools."""
    total, node = v["train_accelerators"] + v["rollout_accelerators"], v["per_node"]
    return {"cluster.gpus_per_node": node, "cluster.num_nodes": -(-total // node)}


def yaml_of(settings: dict[str, object]) -> str:
    """Values by their paths as nested tables."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *outer, name = path.split(".")
        table = tree
        for part in outer:
            table = table.setdefault(part, {})
        table[name] = value
    return "".join(_lines(tree, 0))


def _lines(table: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for name, value in table.items():
        margin = "  " * depth
        if isinstance(value, dict):
            lines += [f"{margin}{name}:\n", *_lines(value, depth + 1)]
        else:
            lines.append(f"{margin}{name}: {spelled(value)}\n")
    return lines


def read(texts: dict[str, str]) -> dict[str, Any]:
    """Parts of a step from settings by their paths."""
    r = Reader("NeMo-RL", texts)
    r.take("prompts", "grpo.num_prompts_per_step", int)
    r.take("generations", "grpo.num_generations_per_prompt", int)
    r.take("limit_tokens", "policy.max_total_sequence_length", int)
    r.take("train_batch", "policy.train_global_batch_size", int)
    r.take("oversampling", "grpo.batch_multiplier", float)
    r.take("logprob_batch", "policy.logprob_batch_size", int)
    r.take("reference", "loss_fn.reference_policy_kl_penalty", lambda text: float(text) > 0)
    r.take("logprob", "loss_fn.force_on_policy_ratio", lambda text: not flag(text))
    if "grpo.use_dynamic_sampling" in texts:
        plain = "rloo" if r.text("grpo.use_leave_one_out_baseline") == "true" else "grpo"
        r.take("algorithm", "grpo.use_dynamic_sampling", lambda t: "dapo" if flag(t) else plain)
    read_backend(r, "policy")
    r.take("memory_share", f"{_ENGINE}.gpu_memory_utilization", float)
    r.take("rollout_tp", f"{_ENGINE}.tensor_parallel_size", int)
    r.take("rollout_pp", f"{_ENGINE}.pipeline_parallel_size", int)
    r.take("rollout_precision", f"{_ENGINE}.precision", _DTYPE_READ.__getitem__)
    _read_pools(r)
    return r.values


def read_backend(r: Reader, root: str, of: str = "") -> None:
    """How the model below `root` is cut; `of`: what its parts are named by."""
    sharded = r.text(f"{root}.dtensor_cfg.enabled").lower() == "true"
    backend = f"{root}.dtensor_cfg" if sharded else f"{root}.megatron_cfg"
    parallel = "parallel_size" if sharded else "model_parallel_size"
    if r.text(f"{backend}.enabled"):
        r.values[f"{of}sharding"] = "zero3" if sharded else "zero1"
        if sharded:
            r.values |= {f"{of}pp": 1, f"{of}ep": 1}
    r.take(f"{of}tp", f"{backend}.tensor_{parallel}", int)
    r.take(f"{of}cp", f"{backend}.context_parallel_size", int)
    r.take(f"{of}pp", f"{backend}.pipeline_{parallel}", int)
    r.take(f"{of}ep", f"{backend}.expert_{parallel}", int)
    r.take(f"{of}sequence_parallel", f"{backend}.sequence_parallel", flag)
    r.take(f"{of}precision", f"{root}.precision", _DTYPE_READ.__getitem__)
    if r.text(f"{backend}.fp8_cfg.enabled").lower() == "true":
        r.values[f"{of}precision"] = "fp8"
    r.take(
        f"{of}recompute",
        f"{backend}.activation_checkpointing",
        lambda text: "full" if flag(text) else "none",
    )


def _read_pools(r: Reader) -> None:
    node = r.count("cluster.gpus_per_node", 0)
    total = node * r.count("cluster.num_nodes", 1)
    apart = 0
    if r.text(f"{_GENERATION}.colocated.enabled").lower() == "false":
        resources = f"{_GENERATION}.colocated.resources"
        width = r.count(f"{resources}.gpus_per_node", node)
        apart = width * r.count(f"{resources}.num_nodes", 1)
        ways = {spelled(setting): way for way, setting in _REFIT.items()}
        r.values["refit"] = ways.get(
            r.text(f"{_GENERATION}.refit_transport") or "null", "broadcast"
        )
    if node:
        r.values |= {"train_accelerators": total - apart, "rollout_accelerators": apart}
    if r.text("grpo.async_grpo.enabled").lower() == "true":
        r.take("staleness", "grpo.async_grpo.max_trajectory_age_steps", int)
        r.take("partial_rollouts", "grpo.async_grpo.in_flight_weight_updates", flag)
        r.values["stale_fraction"] = 1.0
    elif r.text("grpo.async_grpo.enabled"):
        r.values |= {"staleness": 0, "partial_rollouts": False, "stale_fraction": 1.0}
