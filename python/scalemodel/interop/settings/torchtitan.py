"""Settings of torchtitan: its TOML file, ``--section.name`` options, and tables of the same names.

Names are those of its ``JobConfig`` (pytorch/torchtitan, 0.2); for 0.3 a module is written that
reads the same file (`torchtitan_module`). The architecture is torchtitan's own, chosen by name and
flavor.
"""

from __future__ import annotations

import json
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.interop.settings.facts import with_facts
from scalemodel.interop.settings.given import Given, paths
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.layouts import chunk_layers, counts_ends
from scalemodel.interop.settings.question import Job, Settings
from scalemodel.interop.settings.torchtitan_module import FUNCTION, MODULE, NAME
from scalemodel.resolve import Model
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import chunks
from scalemodel.search.framework_rules import COMPILED

_FILE: Final = "torchtitan.toml"
_SCHEDULE: Final = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zero_bubble_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
_SCHEDULE_READ: Final = {
    **{"1f1b": "1f1b", "interleaved1f1b": "interleaved", "gpipe": "gpipe"},
    **{"zbvzerobubble": "zero_bubble_v", "interleavedzerobubble": "zero_bubble"},
    **{"dualpipev": "dualpipe_v", "loopedbfs": "interleaved"},
}
_RECOMPUTE_READ: Final = {"none": "none", "selective": "selective", "full": "full"}
_ROTATION: Final = {"ring": "alltoall", "all_gather": "allgather"}
_ROTATION_READ: Final = {"alltoall": "ring", "allgather": "all_gather"}
_PRECISION_READ: Final = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
#: Models that torchtitan ships, by their entry in the catalogue: name and flavor.
FLAVORS: Final = {
    "llama3_8b": ("llama3", "8B"),
    "llama3_70b": ("llama3", "70B"),
    "llama3_1_405b": ("llama3", "405B"),
    "deepseek_v3": ("deepseek_v3", "671B"),
    "qwen3_0_6b": ("qwen3", "0.6B"),
    "qwen3_1_7b": ("qwen3", "1.7B"),
    "qwen3_4b": ("qwen3", "4B"),
    "qwen3_8b": ("qwen3", "8B"),
    "qwen3_14b": ("qwen3", "14B"),
    "qwen3_32b": ("qwen3", "32B"),
    "qwen3_30b_a3b": ("qwen3", "30B-A3B"),
    "qwen3_235b_a22b": ("qwen3", "235B-A22B"),
    "gpt_oss_20b": ("gpt_oss", "20b"),
    "gpt_oss_120b": ("gpt_oss", "120b"),
}
_HEAD: Final = (
    f"# torchtitan 0.3 by {NAME}.py; 0.2 reads it as job.config_file, where steps, data and\n"
    "# learning rate of the run are options of the command.\n"
)
#: Sections whose names are short: they are read with their section's name.
_SECTIONS: Final = {"compile": "compile", "model": "model", "activation_checkpoint": "checkpoint"}
#: Sections that say nothing about cost and use the names of others.
_IRRELEVANT: Final = ("validation", "checkpoint", "comm", "metrics", "profiling", "job", "debug")


def flavor_of(model: Model) -> tuple[str, str] | None:
    """Name and flavor of a model that torchtitan ships; None for any other.

    Examples
    --------
    >>> flavor_of(resolve.model("llama3_8b")), flavor_of(resolve.model("gpt3_175b"))
    (('llama3', '8B'), None)
    """
    for name, flavor in FLAVORS.items():
        if model.name == name or resolve.model(name).shape == model.shape:
            return flavor
    return None


# ---------------------------------------------------------------------------------------- writing
def write(job: Job) -> Launch:
    """A configuration file, and the command that starts torchtitan with it."""
    flavor = flavor_of(job.model)
    notes: list[str] = []
    options = _options(job)
    if flavor is None:
        notes.append(
            f"needs a torchtitan flavor of {job.model.title or 'the model'}: it ships none"
        )
    else:
        options = {"model.name": flavor[0], "model.flavor": flavor[1], **options}
    if job.precision not in ("bf16", "fp32", "fp8"):
        notes.append(f"not expressed: {job.precision}")
    return Launch(
        framework="torchtitan",
        command=job.torchrun("-m", "torchtitan.train", f"--module={NAME}", f"--config={FUNCTION}"),
        environment={},
        files={_FILE: _toml(options), f"{NAME}.py": MODULE},
        notes=tuple(notes),
    )


def _toml(options: dict[str, object]) -> str:
    """Options as tables of their sections."""
    tables: dict[str, list[str]] = {}
    for path, value in options.items():
        section, _, name = path.rpartition(".")
        tables.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    parts = ["\n".join([f"[{section}]", *lines]) for section, lines in tables.items()]
    return _HEAD + "\n\n".join(parts) + "\n"


def _options(job: Job) -> dict[str, object]:
    plan = job.strategy
    shard = job.shard_degree if plan.sharding != "ddp" else 1
    replicas = job.dp * plan.cp // shard if plan.sharding != "ddp" else job.dp
    options: dict[str, object] = {
        "training.local_batch_size": plan.micro_batch
        if plan.pp == 1
        else job.task.global_batch // job.dp,
        "training.global_batch_size": job.task.global_batch,
        "training.seq_len": job.task.sequence,
        "training.mixed_precision_param": "float32" if job.precision == "fp32" else "bfloat16",
        "parallelism.data_parallel_replicate_degree": replicas,
        "parallelism.data_parallel_shard_degree": max(1, shard // plan.cp),
        "parallelism.tensor_parallel_degree": plan.tp,
        "parallelism.context_parallel_degree": plan.cp,
        "parallelism.pipeline_parallel_degree": plan.pp,
        "activation_checkpoint.mode": plan.recompute,
    }
    if plan.recompute == "selective":
        options["activation_checkpoint.selective_ac_option"] = "op"
    if plan.sharding in ("zero1", "zero2"):
        options["parallelism.fsdp_reshard_after_forward"] = "never"
    elif plan.sharding in ("zero3", "hsdp"):
        options["parallelism.fsdp_reshard_after_forward"] = "always"
    if plan.pp > 1:
        schedule = "interleaved" if plan.vpp > 1 else plan.schedule
        if schedule in _SCHEDULE:  # torchtitan has no other; the rules of the framework say so
            options["parallelism.pipeline_parallel_schedule"] = _SCHEDULE[schedule]
        options["parallelism.pipeline_parallel_microbatch_size"] = plan.micro_batch
        options["parallelism.module_fqns_per_model_part"] = _parts(job)
    if plan.cp > 1:
        rotation = _ROTATION.get(plan.context, "allgather")
        options["parallelism.context_parallel_rotate_method"] = rotation
    if job.model.shape.experts:
        options["parallelism.expert_parallel_degree"] = plan.ep
        options["parallelism.expert_tensor_parallel_degree"] = job.etp
        if plan.ep > 1 and job.stack.deduplicated_dispatch:
            options["parallelism.expert_parallel_comm_backend"] = "deepep"
    options["parallelism.enable_async_tensor_parallel"] = job.overlaps_tp
    components = ["model"] if all(getattr(job.stack, name) for name in COMPILED) else []
    components += ["loss"] if job.stack.fused_loss else []
    options["compile.enable"] = bool(components)
    options["compile.components"] = components
    if job.precision == "fp8":
        experts = ["quantize.grouped_mm.float8"] if job.model.shape.experts else []
        options["model.converters"] = ["quantize.linear.float8", *experts]
    return options


def _parts(job: Job) -> list[list[str]]:
    """Modules of every pipeline chunk, by the names of torchtitan's models."""
    plan, layers = job.strategy, int(job.model.shape.layers)
    held = chunk_layers(layers, plan.pp * chunks(plan), bool(job.stack.ends_as_layers))
    parts: list[list[str]] = []
    first = 0
    for count in held:
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0] = ["tok_embeddings", *parts[0]]
    parts[-1] = [*parts[-1], "norm", "output"]
    return parts


# ---------------------------------------------------------------------------------------- reading
def _inner(values: dict[str, object]) -> dict[str, object]:
    """Settings by their innermost name, those of some sections with the section's."""
    named: dict[str, object] = {}
    for key, cell in paths(values).items():
        section, _, name = key.rpartition(".")
        if section in _SECTIONS:
            name = f"{_SECTIONS[section]}_{name}"
        if section not in _IRRELEVANT:
            named[name] = cell
    return named


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


def _held(given: Given) -> list[int]:
    """Layers of every pipeline chunk where they are written out."""
    parts = given.raw("module_fqns_per_model_part")
    if not isinstance(parts, list):
        return []
    return [sum("layers." in str(module) for module in part) for part in parts if part]


def _words(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(word) for word in value]
    return str(value).replace(",", " ").strip("[]").replace("'", "").split() if value else []


def _facts(given: Given, held: list[int]) -> dict[str, object]:
    compiled = given.flag("compile_enable", "compile")
    named = given.raw("compile_components")
    components = _words(named) if named is not None else ["model", "loss"]
    model = compiled and "model" in components
    exchange = given.text("expert_parallel_comm_backend", default="standard")
    deduplicated = exchange in ("deepep", "hybridep")
    return {
        **dict.fromkeys(COMPILED, model),
        "fused_loss": compiled and "loss" in components,
        "overlap_tp": given.flag("enable_async_tensor_parallel"),
        "row_scales": given.text("recipe_name", default="").startswith("rowwise"),
        "deduplicated_dispatch": deduplicated,
        "deduplicated_between": deduplicated,
        "ends_as_layers": bool(counts_ends(held, sum(held))) if held else True,
    }


def _model(given: Given) -> Model | None:
    wanted = (given.text("model_name"), given.text("model_flavor"))
    for name, (model, flavor) in FLAVORS.items():
        if wanted == (model, flavor.lower()):
            return resolve.model(name)
    return None


def _vpp(given: Given, held: list[int], schedule: str, pp: int) -> int:
    if schedule != "interleaved" or pp == 1:
        return 1
    return len(held) // pp if held else 2


def read(values: dict[str, object], accelerators: int, base: _core.Stack) -> Settings:
    """Model, task, strategy and stack of torchtitan's options."""
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
    held = _held(given)
    strategy = _core.Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        **(chosen if ep > 1 else {}),
        vpp=_vpp(given, held, schedule, pp),
        schedule=schedule if pp > 1 else "1f1b",
        micro_batch=micro_batch,
        sharding=sharding,
        shard_degree=shard_degree,
        recompute=given.choice(_RECOMPUTE_READ, "checkpoint_mode", default="selective"),
        context=given.choice(_ROTATION_READ, "context_parallel_rotate_method", default="ring"),
        overlap_tp="ring" if given.flag("enable_async_tensor_parallel") else "stack",
    )
    task = _task(given, accelerators // (tp * pp * cp), local)
    stack = with_facts(base, "torchtitan", _facts(given, held))
    return Settings(*("torchtitan", _model(given), task, strategy, accelerators), stack=stack)


def _task(given: Given, replicas: int, local: int) -> Training | None:
    converters = " ".join(_words(given.raw("model_converters", "converters")))
    narrow = "float8" in converters or given.flag("enable_fsdp_float8_all_gather")
    batch = given.raw("global_batch_size")
    if given.raw("seq_len") is None or (batch is None and not replicas):
        return None
    whole = -1 if batch is None or str(batch) == "-1" else given.count("global_batch_size")
    dtype = given.choice(_PRECISION_READ, "mixed_precision_param", default="bf16")
    return Training(
        global_batch=whole if whole > 0 else local * max(1, replicas),
        sequence=given.count("seq_len"),
        precision="fp8" if narrow else dtype,  # type: ignore[arg-type]
    )
