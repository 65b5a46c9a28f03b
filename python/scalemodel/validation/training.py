"""Published training runs: a row becomes a question.

Only the columns of `INPUT_COLUMNS` reach a question. Labels (source, row_id, ...), measurements
and everything derived from them are outside it, so they cannot change a prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel.resolve import recipes
from scalemodel.resolve.stack_choice import stack_for, unstated
from scalemodel.resolve.tasks import Precision
from scalemodel.validation.architecture import architecture
from scalemodel.validation.fine_tuning import adapters, packed
from scalemodel.validation.layout import filled
from scalemodel.validation.place import frozen, place
from scalemodel.validation.recomputation import recomputation, stated
from scalemodel.validation.rows import Row, SkippedRowError, states
from scalemodel.validation.sharding_text import shard_degree, sharding_name
from scalemodel.validation.stated_facts import facts

# fmt: off
INPUT_COLUMNS = (
    "year", "framework", "model", "model_family",
    "n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "gated_ffn", "vocab",
    "params_B", "moe_experts", "moe_topk", "moe_shared", "moe_ffn", "arch_note",
    "task", "seq_len", "micro_batch", "global_batch", "precision", "precision_class",
    "gpu", "gpu_mem_GB", "n_gpus", "gpus_per_node", "nvlink", "nic_gbps_per_gpu", "network",
    "tp", "pp", "dp", "cp", "ep", "etp", "vpp", "sharding",
    "recompute", "flash_attn", "seq_parallel", "overlap", "other_flags",
)
# fmt: on

_NOT_LANGUAGE = re.compile(r"\b(dlrm|dcn|vit|recommend\w*|diffusion|unet|resnet|image|vision)\b")
# Published recipes of deep models interleave in 4 to 12 chunks, those of a hundred layers and more
# in 8 (Llama 3.1 405B, Nemotron-4 340B) or 12 (GPT-3).
_USUAL_CHUNKS = 8
_BELIEVED_FLASH_SINCE = 2023  # FlashAttention appeared in mid-2022


@dataclass(frozen=True)
class Question:
    """A row as arguments of `scalemodel.estimate`; equal questions get equal answers.

    ``precisions`` and ``recomputations`` list what to try in turn where the row leaves a choice;
    where a recipe chose, ``spare_recomputations`` lists what else would have been open: a recipe
    may recompute modules that the engine keeps, so that they only tell whether the run can fit.
    ``facts`` are those of the stack that the run, or its recipe, has otherwise. ``evidence`` tells
    what it was timed for (`scalemodel.estimator.uncertainty.Situation`).
    """

    model: tuple[tuple[str, Any], ...]
    accelerator: str
    node_accelerators: int
    scale_up: tuple[tuple[str, Any], ...]
    fabric: tuple[tuple[str, Any], ...]
    accelerators: int
    method: str
    task: tuple[tuple[str, Any], ...]
    strategy: tuple[tuple[str, Any], ...]
    stack: str
    precisions: tuple[Precision, ...]
    recomputations: tuple[str, ...]
    notes: tuple[str, ...]
    spare_recomputations: tuple[str, ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()
    evidence: str = ""


# -------------------------------------------------------------------------------------- cluster


def is_language_model(task: str, family: str) -> bool:
    """Whether a row is a language model's, as far as its task and family texts tell."""
    return _NOT_LANGUAGE.search(f"{task} {family}".lower()) is None


def _method(row: Row) -> str:
    """How the weights are trained: ``pretrain``, ``full`` (fine-tuning) or ``lora``."""
    task = row.text("task").lower()
    if not is_language_model(task, row.text("model_family")) or "qlora" in task:
        raise SkippedRowError("unsupported:task")
    if "lora" in task:
        return "lora"
    if re.search(r"\bsft\b|fine-?\s?tun", task):
        return "full"
    if not task or "train" in task:
        return "pretrain"
    raise SkippedRowError("unsupported:task")


def precisions(row: Row, notes: list[str]) -> tuple[Precision, ...]:
    """Formats of GEMMs to try in turn."""
    text = row.text("precision").lower() or row.text("precision_class").lower()
    if not text:
        notes.append("precision bf16 assumed")
        return ("bf16", "fp16")
    if "16bit" in text or ("bf16" in text and re.search(r"(?<!b)fp16", text)):
        return ("bf16", "fp16")
    named: tuple[tuple[Precision, str], ...] = (
        ("fp8", r"fp8|float8|e4m3|e5m2"),
        ("fp4", r"fp4|float4|e2m1"),
        ("bf16", r"bf16|bfloat16"),
        ("fp16", r"fp16|float16|half"),
        ("tf32", r"tf32"),
        ("fp32", r"fp32|float32|single"),
    )
    for name, pattern in named:
        if re.search(pattern, text):
            return (name,)
    if re.search(r"mixed|amp", text):
        return ("bf16", "fp16")
    raise SkippedRowError("unsupported:dtype")


def _is_megatron(row: Row) -> bool:
    framework, task = row.text("framework").lower(), row.text("task").lower()
    return any(word in framework for word in ("megatron", "nemo")) or "(mlperf)" in task


def _follows_megatron(row: Row) -> bool:
    """Whether a run does as Megatron does where its row is silent: Neuron's examples do, too.

    Their compiler fuses the softmax of scores (NEURON_FUSE_SOFTMAX), their optimizer shards its
    states, their tensor parallelism splits by sequence: aws-neuron/neuronx-distributed,
    examples/training/llama.
    """
    framework = row.text("framework").lower()
    return _is_megatron(row) or any(word in framework for word in ("neuron", "nxd"))


_SPLITTING_FRAMEWORKS = ("maxtext", "pax", "jax", "torchtitan", "nanotron")


def _splits_residuals(row: Row) -> bool:
    """Whether the framework's tensor parallelism splits what lies between its regions, unasked.

    Megatron by sequence, torchtitan and nanotron too; MaxText and PaxML shard embeddings over the
    tensor axis, which costs the same memory and traffic.
    """
    framework = row.text("framework").lower()
    return _follows_megatron(row) or any(word in framework for word in _SPLITTING_FRAMEWORKS)


def _attention_kernel(row: Row) -> str:
    flags = row.text("other_flags").lower()
    kernel = re.search(r"kernel\s*=\s*([^;]+)", flags)
    text = (kernel.group(1) if kernel else row.text("flash_attn")).strip().lower()
    slow = "fused_softmax" if _follows_megatron(row) else "unfused"
    if not text:
        year = row.number("year")
        return "stack" if year is None or year >= _BELIEVED_FLASH_SINCE else slow
    if version := re.search(r"(?:flash[_ -]?att\w*?|\bfa)[_ -]?v?-?([123])", text):
        return f"flash{version.group(1)}"
    if "fused softmax" in text or text.startswith("fused"):
        return "fused_softmax"
    if text.startswith(("torch", "math", "eager", "unfused")):
        return "unfused"
    if re.match(r"(no|false|0(\.0)?|off)\b", text):
        return slow
    if re.search(r"\bte\b|cudnn|transformer engine", text):
        return "flash3"
    if kernel is not None and "flash" in text:
        return "flash1"
    return "stack"


def _gradient_precision(row: Row) -> str:
    mixed = re.search(r"mixed_precision\s*=\s*(\w+)", row.text("other_flags"), re.IGNORECASE)
    if mixed is None and re.search(r"\bautocast\b", row.text("other_flags"), re.IGNORECASE):
        return "fp32"
    return {"pure": "bf16", "default": "fp32"}.get(mixed.group(1).lower() if mixed else "", "stack")


def _sharding(row: Row, data_parallel: int, node: int, notes: list[str]) -> dict[str, Any]:
    """Sharding and the ranks that share one copy (0: all data-parallel ranks)."""
    text = row.text("sharding").lower()
    if not text:
        name = "zero1" if _follows_megatron(row) else "zero3"
        notes.append(f"sharding {name} assumed")
        return {"sharding": name, "shard_degree": 0}
    flags = row.text("other_flags").lower()
    name, degree = sharding_name(text), shard_degree(text) or shard_degree(flags)
    if name not in ("zero3", "hsdp"):
        return {"sharding": name, "shard_degree": 0}
    if name == "hsdp" and not degree:
        degree = node
        notes.append(f"sharding group of {node}, a node, assumed")
    if degree < 1 or degree >= data_parallel:
        return {"sharding": "zero3", "shard_degree": 0}
    if data_parallel % degree:
        notes.append(f"sharding group {degree} does not divide dp {data_parallel}: all ranks")
        return {"sharding": "zero3", "shard_degree": 0}
    return {"sharding": "hsdp", "shard_degree": degree}


def _overlap(row: Row) -> dict[str, bool]:
    """Overlap switches that the row states; the stack decides the others.

    Whatever it shards (metaseq: Megatron's layers, as Megatron-LM's own optimizer could not then),
    FullyShardedDataParallel gathers ahead and reduces beside the backward pass.
    """
    text = row.text("overlap").lower()
    data_parallel = ("overlap_grad_reduce", "overlap_param_gather")
    if not text or "default" in text:
        fully = re.search(r"\bfsdp|fully[- ]?shard", row.text("sharding").lower())
        return dict.fromkeys(data_parallel, True) if fully else {}
    if text in ("none", "no", "false"):
        return dict.fromkeys((*data_parallel, "overlap_tp"), False)
    if text.startswith("none for dp"):
        return dict.fromkeys(data_parallel, False)
    patterns = {
        "overlap_grad_reduce": r"grad[-_ ]?reduce|dp grad",
        "overlap_param_gather": r"param[-_ ]?gather|dp grad/param",
        "overlap_tp": r"tp[-_ ]comm|async[-_ ]tp",
    }
    stated = {name: states(text, pattern) for name, pattern in patterns.items()}
    return {name: said for name, said in stated.items() if said is not None}


def _chunks(
    row: Row, layers: int, stages: int, defaults: Mapping[str, object], notes: list[str]
) -> int:
    """Model chunks per pipeline stage.

    Scripts that interleave dense models unless told otherwise publish 1 where nothing was set;
    "none" says that they do not.
    """
    stated = row.count("vpp")
    interleaved = "interleav" in row.text("vpp").lower()
    wanted = stated if stated is not None else (_USUAL_CHUNKS if interleaved else 1)
    if stages == 1 or row.text("vpp").lower() == "none":
        return 1
    usual = None if row.count("moe_experts", least=0) else defaults.get("vpp")
    assumed = stated is None and wanted > 1
    if isinstance(usual, int) and wanted == 1:
        wanted, assumed = usual, True
    # Embedding and head may each fill a chunk: 126 layers go into 128.
    chunks = max(1, min(wanted, (layers + 2) // stages))
    if assumed:
        notes.append(f"vpp {chunks} assumed")
    elif chunks < wanted:
        notes.append(f"vpp {chunks}: fewer layers than chunks")
    return chunks


def _expert_split(
    row: Row, defaults: Mapping[str, object], ranks: int, tp: int, notes: list[str]
) -> int:
    """Tensor-parallel degree of the experts; 0 leaves it to the engine.

    ``ranks`` are those of one pipeline stage. Scripts that split experts like the dense part where
    nothing is said can do so only where expert groups of that size divide the stage.
    """
    stated = row.count("etp")
    ep = row.count("ep") or 1
    if stated is not None or ep == 1 or defaults.get("etp") != "tp" or ranks % (ep * tp):
        return stated or 0
    if tp > 1:
        notes.append(f"etp {tp} assumed")
    return tp


def _micro_batch(row: Row, defaults: Mapping[str, object], notes: list[str]) -> int:
    """Sequences of a pass; where nothing is said, those of the framework's scripts."""
    stated, usual = row.count("micro_batch"), defaults.get("micro_batch")
    if stated is None and isinstance(usual, int):
        notes.append(f"micro_batch {usual} assumed")
        return usual
    return row.required_count("micro_batch")


def _strategy(
    row: Row,
    accelerators: int,
    node: int,
    layers: int,
    defaults: Mapping[str, object],
    notes: list[str],
) -> dict[str, Any]:
    tp, pp, cp = (row.count(name) or 1 for name in ("tp", "pp", "cp"))
    if accelerators % (tp * pp * cp):
        raise SkippedRowError("illegal:mesh")
    dp = accelerators // (tp * pp * cp)
    if row.count("dp") not in (None, dp):
        raise SkippedRowError("illegal:mesh")
    chunks = _chunks(row, layers, pp, defaults, notes)
    stated = row.flag("seq_parallel")
    usual = defaults.get("sequence_parallel", _splits_residuals(row))
    sequence_parallel = tp > 1 and bool(usual if stated is None else stated)
    if stated is None and tp > 1:
        notes.append(f"sequence parallelism {'on' if sequence_parallel else 'off'} assumed")
    return {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": row.count("ep") or 1,
        "etp": _expert_split(row, defaults, accelerators // pp, tp, notes),
        "vpp": chunks,
        "micro_batch": _micro_batch(row, defaults, notes),
        "sequence_parallel": sequence_parallel,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        **_sharding(row, dp, node, notes),
        **_overlap(row),
    }


def _year(row: Row) -> int | None:
    year = row.number("year")
    return None if year is None else round(year)


def _framework(row: Row) -> str:
    """The row's framework, a development branch as the release it stands for."""
    return recipes.released(row.text("framework"), _year(row))


def _routing(row: Row) -> str:
    """Whether the router is made to spread tokens evenly, as far as the run says."""
    forced = states(row.text("other_flags").lower(), r"force\w*[-_ ](load[-_ ])?balanc")
    return "forced" if forced else "natural"


def _recipe(
    row: Row,
    method: str,
    model: Mapping[str, Any],
    accelerator: str,
    strategy: Mapping[str, Any],
) -> recipes.Recipe:
    """What the published recipe of the row's framework does for such a model."""
    return recipes.recipe_for(
        recipes.Run(
            framework=f"{_framework(row)} {row.text('framework')} {row.text('task')}",
            model_class=recipes.model_class(model),
            accelerator=accelerator,
            number_format=precisions(row, [])[0],
            method=method,
            year=_year(row),
            routing=_routing(row),
            model=row.text("model"),
            **{key: strategy[key] for key in ("tp", "pp", "cp")},
        )
    )


def _followed(
    row: Row, recipe: recipes.Recipe, open_choices: tuple[str, ...], notes: list[str]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Recomputation and overlap by a recipe, as far as the row leaves them open."""
    choices: tuple[str, ...] = open_choices
    fields: dict[str, Any] = {}
    if recipe.recompute and not stated(row):
        choices, layers = recipe.recompute, recipe.recompute_layers
        part = f" of {layers} layers" if layers else ""
        notes.append(f"recompute {' or '.join(choices)}{part} by the recipe")
        if layers:
            fields["recompute_layers"] = layers
    said = row.text("overlap").lower()
    if recipe.overlap_tp is not None and (not said or "default" in said):
        fields["overlap_tp"] = recipe.overlap_tp
    return choices, fields


def _imbalance(recipe: recipes.Recipe, model: Mapping[str, Any], ranks: int) -> float:
    """Load of the busiest of the ranks of experts over the mean, as far as the recipe tells."""
    if recipe.expert_spread and ranks > 1:
        return _core.rank_imbalance(recipe.expert_spread, model["experts"], ranks)
    return recipe.imbalance


def _evidence(row: Row, one_node: bool) -> str:
    """Whether a model was cut to what one node holds, as simulators check themselves."""
    return "cut" if one_node and row.text("params_B").lower() == "proxy" else ""


def fill_batch(row: Row, micro_batch: int, data_parallel: int, notes: list[str]) -> int:
    """Sequences per step, filled up to whole micro-batches.

    A step whose batch is not a multiple still runs ceil(batch / (micro_batch dp)) passes on its
    busiest replica; the last pass of some replicas is merely smaller.
    """
    batch = row.required_count("global_batch")
    wave = micro_batch * data_parallel
    if batch < wave:
        raise SkippedRowError("illegal:batch")
    passes = -(-batch // wave)
    if passes * wave != batch:
        notes.append(f"global_batch {batch} takes the {passes} micro-batches of {passes * wave}")
    return passes * wave


def question(row: Row, *, stack: str | None = None) -> Question:
    """Arguments of `scalemodel.estimate` for one row.

    Raises
    ------
    SkippedRowError
        The row lacks something needed or asks for something outside the model; the text of the
        exception is the skip reason.
    """
    notes: list[str] = []
    if not row.text("gpu"):
        raise SkippedRowError("missing:gpu")
    method = _method(row)
    row.required_count("n_gpus")
    row = filled(row, method, notes)
    sequence = row.required_count("seq_len")
    row.required_count("global_batch")
    model = architecture(row, notes)
    stack = stack or stack_for(_framework(row), _year(row), row.text("task"))
    where = place(row, notes)
    node = where.node_accelerators
    strategy = _strategy(row, where.accelerators, node, model["layers"], unstated(stack), notes)
    left_open, extra = recomputation(row, notes)
    recipe = _recipe(row, method, model, where.accelerator, strategy)
    recomputations, followed = _followed(row, recipe, left_open, notes)
    kernel = _attention_kernel(row)
    if recipe.attention and kernel in ("stack", "flash3"):  # no more than the name of a library
        kernel = recipe.attention
        notes.append(f"attention {kernel} by the recipe")
    task: dict[str, Any] = {
        "global_batch": fill_batch(row, strategy["micro_batch"], strategy["dp"], notes),
        "sequence": sequence,
        "attention": kernel,
        "gradient_precision": _gradient_precision(row),
    }
    if (imbalance := _imbalance(recipe, model, strategy["ep"])) > 1:
        task["imbalance"] = imbalance
    if method != "pretrain":
        packed(row, task, strategy, recipe, notes)
    if recipe.context and strategy["cp"] > 1:
        strategy["context"] = recipe.context
    flags = row.text("other_flags").lower()
    said = re.search(r"\boptimizer\s*=\s*(?:\w+_)?(adam|muon)", flags)
    if optimizer := said[1] if said else recipe.optimizer:
        task["optimizer"] = optimizer
    if re.search(r"\bexp_avg_dtype\s*=\s*(bfloat16|bf16|fp16)\b", flags):
        task["moment_bytes"] = 2
    elif recipe.moment_bytes:
        task["moment_bytes"] = recipe.moment_bytes
    if re.search(r"\b(rms|norm) kernel", flags):
        task["fused_norm"] = True
    elif re.search(r"\beager\b", flags):
        task["fused_norm"] = False
    if method == "lora":
        task |= adapters(flags, recipe.lora_targets, notes)
    return Question(
        model=frozen(model),
        accelerator=where.accelerator,
        node_accelerators=node,
        scale_up=where.scale_up,
        fabric=where.fabric,
        accelerators=where.accelerators,
        method=method,
        task=frozen(task),
        strategy=frozen(strategy | extra | followed),
        stack=stack,
        precisions=precisions(row, notes),
        recomputations=recomputations,
        notes=tuple(notes),
        spare_recomputations=tuple(r for r in left_open if r not in recomputations),
        facts=frozen(facts(row, recipe, stack)),
        evidence=_evidence(row, where.accelerators <= node) or recipe.evidence,
    )
