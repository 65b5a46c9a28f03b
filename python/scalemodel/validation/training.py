"""Published training runs: a row becomes a question, the question an estimate.

Only the columns of `INPUT_COLUMNS` reach a question. Labels (source, row_id, ...), measurements
and everything derived from them are outside it, so they cannot change a prediction.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.errors import ScaleModelError
from scalemodel.stacks import stack_for
from scalemodel.validation.rows import Row, SkippedRowError, Table

if TYPE_CHECKING:
    from scalemodel import Cluster, Estimate, Model

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
REQUIRED_COLUMNS = ("gpu", "n_gpus", "global_batch")
LLM_COLUMNS = ("seq_len", "micro_batch")
ARCHITECTURE_COLUMNS = ("n_layers", "hidden", "n_heads", "ffn", "vocab")
OUTPUT_COLUMNS = (
    "predicted_step_time_s",
    "predicted_memory_gb",
    "predicted_fits",
    "predicted_stack",
    "predicted_note",
    "skip_reason",
)

_GIB = 2.0**30
_RECOMPUTATION = ("none", "selective", "full")  # lightest first
_NOT_LANGUAGE = re.compile(r"\b(dlrm|dcn|vit|recommend\w*|diffusion|unet|resnet|image|vision)\b")
_BELIEVED_FLASH_SINCE = 2023  # FlashAttention appeared in mid-2022
_LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512}  # DeepSeek-V2, arXiv:2405.04434, section 3.1

# One direction of a x16 slot after line coding, by PCIe generation.
_PCIE_BANDWIDTH = {3: "15.75 GB/s", 4: "31.5 GB/s", 5: "63 GB/s", 6: "121 GB/s"}

# First match wins: a row that names several networks (compute and management) is served by the
# first of this list.
_FABRICS = (
    ("omnipath", r"omni-?\s?path"),
    ("slingshot", r"slingshot"),
    ("efa", r"\befa\b|elastic fabric"),
    ("tcpx", r"tcpx|gpudirect-tcp"),
    ("infiniband", r"infini-?band|\bib\b|\b[hn]dr(\d+)?\b|\bselene\b|quantum"),
    ("roce", r"roce|\brdma\b|spectrum-x"),
    ("tpu_dcn", r"\bdcn\b|jupiter"),
    ("ethernet", r"ethernet|\d+\s?gbe|\bbf3\b"),
)


@dataclass(frozen=True)
class Family:
    """Conventions of a model family for what the columns do not tell."""

    position: str
    norm: str
    gated: bool
    biases: bool
    tied_embeddings: bool


_GPT = Family("learned", "layernorm", gated=False, biases=True, tied_embeddings=True)
_LLAMA = Family("rope", "rmsnorm", gated=True, biases=False, tied_embeddings=False)
_FAMILIES = {
    "gpt": _GPT,
    "mpt": _GPT,
    "opt": _GPT,
    "nemotron": Family("rope", "layernorm", gated=False, biases=False, tied_embeddings=False),
    "bloom": Family("alibi", "layernorm", gated=False, biases=True, tied_embeddings=True),
    "llama": _LLAMA,
    "moe": _LLAMA,
}


def _frozen(table: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(table.items())


@dataclass(frozen=True)
class Question:
    """A row as arguments of `scalemodel.estimate`; equal questions get equal answers.

    ``precisions`` and ``recomputations`` list what to try in turn where the row leaves a choice.
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
    precisions: tuple[str, ...]
    recomputations: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """What the model says about one row; a row that is skipped has a reason and nothing else."""

    step_time_s: float | None = None
    memory_gb: float | None = None
    fits: bool | None = None
    stack: str = ""
    note: str = ""
    skip_reason: str = ""


# --------------------------------------------------------------------------------- architecture


def _latent_attention(head_dim: str, arch_note: str, notes: list[str]) -> dict[str, int]:
    """Multi-head latent attention of a head_dim cell such as ``MLA qk128+64 v128``."""
    sizes = re.search(r"qk\s*(\d+)\s*\+\s*(\d+)\s*v\s*(\d+)", head_dim, re.IGNORECASE)
    if sizes is None:
        raise SkippedRowError("missing:head_dim")
    nope, rope, value = (int(size) for size in sizes.groups())
    table = {"head_dim": nope + rope, "qk_rope_head_dim": rope, "v_head_dim": value}
    for key, default in _LATENT.items():
        stem = key.removesuffix("_rank")
        rank = re.search(rf"{stem}(?:_rank)?\s*=?\s*(\d+)", arch_note, re.IGNORECASE)
        table[key] = int(rank.group(1)) if rank else default
        if rank is None:
            notes.append(f"{key} {default} assumed")
    return table


def _attention(row: Row, base: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    heads = row.count("n_heads") or base.get("heads")
    if heads is None:
        raise SkippedRowError("missing:n_heads")
    table["heads"] = heads
    kv_heads = row.count("n_kv_heads")
    if kv_heads is None and "kv_heads" not in base:
        kv_heads = heads
        notes.append("n_kv_heads = n_heads assumed")
    if kv_heads is not None:
        table["kv_heads"] = kv_heads
    head_dim = row.text("head_dim")
    if head_dim.lower().startswith("mla"):
        table |= _latent_attention(head_dim, row.text("arch_note"), notes)
    elif (size := row.number("head_dim")) is not None and size >= 1:
        table["head_dim"] = round(size)
    elif "head_dim" not in base:
        table["head_dim"] = max(1, round((row.count("hidden") or base["hidden"]) / heads))
    note = row.text("arch_note").lower()
    if window := re.search(r"sliding[- ]window\D{0,12}(\d+)", note):
        table["window"] = int(window.group(1))
        table["full_attention_every"] = 2 if "alternat" in note else 0
    return table


def _experts(row: Row, ffn: int) -> dict[str, Any]:
    experts = row.count("moe_experts", least=0) or 0
    if experts == 0:
        return {}
    note = row.text("arch_note").lower()
    dense = re.search(r"(\d+)\s+dense\s+layer", note)
    every = re.search(r"moe every (\d+)(?:st|nd|rd|th)? layer|moe every layer", note)
    return {
        "experts": experts,
        "experts_per_token": row.required_count("moe_topk"),
        "shared_experts": row.count("moe_shared", least=0) or 0,
        "expert_ffn": row.count("moe_ffn") or ffn,
        "first_dense_layers": int(dense.group(1)) if dense else 0,
        "moe_every": int(every.group(1) or 1) if every else 1,
    }


def _conventions(row: Row, gated: bool | None) -> Family:
    """Conventions of the row's family; a family without an entry follows its gated MLP."""
    family = row.text("model_family").lower()
    return _FAMILIES.get(family, _GPT if gated is False else _LLAMA)


def _catalogue_architecture(name: str) -> dict[str, Any] | None:
    """Architecture of a catalogue model, or None when the catalogue does not know the name."""
    from scalemodel import catalog

    for candidate in dict.fromkeys((name, re.sub(r"\s*\(.*\)\s*$", "", name))):
        try:
            table = catalog.load("models", catalog.find("models", candidate))["architecture"]
        except (ScaleModelError, KeyError):
            continue
        return {key: value for key, value in table.items() if key != "source"}
    return None


def architecture(row: Row, notes: list[str]) -> dict[str, Any]:
    """Architecture of a row: its columns, then the catalogue entry of its model name.

    Raises
    ------
    SkippedRowError
        The columns are incomplete and no catalogue model has the name, or the columns say that
        the layers are not a transformer's.
    """
    note = row.text("arch_note").lower()
    if "mamba" in note or row.text("model_family").lower() == "hybrid":
        raise SkippedRowError("unsupported:architecture")
    base: dict[str, Any] = {}
    incomplete = [name for name in ARCHITECTURE_COLUMNS if row.number(name) is None]
    if incomplete:
        found = _catalogue_architecture(row.text("model"))
        if found is None:
            if row.text("model"):
                raise SkippedRowError(f"unknown_architecture:{row.text('model')}")
            raise SkippedRowError(f"missing:{incomplete[0]}")
        base = found
        notes.append("architecture of the named model")
    table: dict[str, Any] = {}
    for key, column in (("layers", "n_layers"), ("hidden", "hidden"), ("vocab", "vocab")):
        value = row.count(column)
        if value is not None or key not in base:
            table[key] = row.required_count(column) if value is None else value
    table |= _attention(row, base, notes)
    ffn = row.count("ffn")
    if ffn is None and "ffn" not in base:
        raise SkippedRowError("missing:ffn")
    if ffn is not None:
        table["ffn"] = ffn
    gated = row.flag("gated_ffn")
    if gated is not None:
        table["gated"] = gated
    if not base:
        family = _conventions(row, gated)
        table |= {
            "gated": family.gated if gated is None else gated,
            "position": family.position,
            "norm": family.norm,
            "tied_embeddings": family.tied_embeddings,
            "qkv_bias": family.biases,
            "out_bias": family.biases,
            "mlp_bias": family.biases,
        }
        if family.position == "learned":
            table["positions"] = row.required_count("seq_len")
    table |= _experts(row, ffn if ffn is not None else base["ffn"])
    dense = table.get("first_dense_layers", 0)
    if row.text("params_B").lower() == "proxy" and dense > 1:
        # The full model has dozens of layers behind these; a few-layer proxy of it keeps one.
        table["first_dense_layers"] = 1
        notes.append(f"proxy: 1 of {dense} leading dense layers kept")
    if re.search(r"\bmtp\b", row.text("other_flags"), re.IGNORECASE):
        table["mtp_layers"] = 1
    return base | table


# -------------------------------------------------------------------------------------- cluster


def accelerator_name(label: str, memory_gb: float | None) -> str:
    """Catalogue name of a label; a capacity beside it chooses among parts sold under one name.

    Raises
    ------
    SkippedRowError
        The catalogue does not know the label.
    """
    from scalemodel import catalog

    if memory_gb is not None and not re.search(r"\d\s*gi?b", label, re.IGNORECASE):
        try:
            return catalog.find("accelerators", f"{label}-{memory_gb:.0f}GB")
        except ScaleModelError:
            pass
    try:
        return catalog.find("accelerators", label)
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{label}") from None


def _usual_nic_gbps(accelerator: str) -> int:
    """Network rate of the usual server of an accelerator, Gbit/s each."""
    for prefixes, rate in ((("a100", "a800"), 200), (("b300", "gb300"), 800), (("v100",), 100)):
        if accelerator.startswith(prefixes):
            return rate
    return 400


def _fabric(row: Row, accelerator: str, several_nodes: bool, notes: list[str]) -> dict[str, str]:
    rate = row.number("nic_gbps_per_gpu")
    if rate is None or rate <= 0:
        rate = _usual_nic_gbps(accelerator)
        if several_nodes:
            notes.append(f"nic {rate} Gbit/s assumed")
    network = row.text("network").lower()
    named = (name for name, pattern in _FABRICS if re.search(pattern, network))
    usual = "tpu_dcn" if accelerator.startswith("tpu") else "infiniband"
    return {"bandwidth": f"{rate:g} Gbit/s", "class": next(named, usual)}


def _scale_up(row: Row, node_accelerators: int) -> dict[str, Any]:
    """Scale-up table when the row says PCIe; otherwise the accelerator's own entry holds."""
    text = row.text("nvlink").lower()
    if "pcie" not in text or "nvlink" in text:
        return {}
    found = re.search(r"(?:gen\s*|pcie\s*)(\d)", text)
    generation = int(found.group(1)) if found else 4
    generation = min(max(generation, min(_PCIE_BANDWIDTH)), max(_PCIE_BANDWIDTH))
    return {
        "class": f"pcie{min(generation, 5)}",
        "bandwidth": _PCIE_BANDWIDTH[generation],
        "domain": node_accelerators,
    }


def _node_accelerators(row: Row, accelerators: int, notes: list[str]) -> int:
    stated = row.count("gpus_per_node")
    node = min(stated or 8, accelerators)
    if stated is None and accelerators > node:
        notes.append("gpus_per_node 8 assumed")
    if accelerators % node:
        node = max(size for size in range(1, node + 1) if accelerators % size == 0)
        notes.append(f"{node} accelerators per node")
    return node


# ------------------------------------------------------------------------------- task and flags


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


def _precisions(row: Row, notes: list[str]) -> tuple[str, ...]:
    text = row.text("precision").lower() or row.text("precision_class").lower()
    if not text:
        notes.append("precision bf16 assumed")
        return ("bf16", "fp16")
    if "16bit" in text or ("bf16" in text and re.search(r"(?<!b)fp16", text)):
        return ("bf16", "fp16")
    for name, pattern in (
        ("fp8", r"fp8|float8|e4m3|e5m2"),
        ("fp4", r"fp4|float4|e2m1"),
        ("bf16", r"bf16|bfloat16"),
        ("fp16", r"fp16|float16|half"),
        ("tf32", r"tf32"),
        ("fp32", r"fp32|float32|single"),
    ):
        if re.search(pattern, text):
            return (name,)
    if re.search(r"mixed|amp", text):
        return ("bf16", "fp16")
    raise SkippedRowError("unsupported:dtype")


def _is_megatron(row: Row) -> bool:
    framework, task = row.text("framework").lower(), row.text("task").lower()
    return any(word in framework for word in ("megatron", "nemo")) or "(mlperf)" in task


def _attention_kernel(row: Row) -> str:
    flags = row.text("other_flags").lower()
    kernel = re.search(r"kernel\s*=\s*([^;]+)", flags)
    text = (kernel.group(1) if kernel else row.text("flash_attn")).strip().lower()
    slow = "fused_softmax" if _is_megatron(row) else "unfused"
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
    return {"pure": "bf16", "default": "fp32"}.get(mixed.group(1).lower() if mixed else "", "stack")


def _sharding_name(text: str) -> str:
    if "hsdp" in text or "hybrid_shard" in text or "hybrid shard" in text:
        return "hsdp"
    if stage := re.search(r"(?:zero|stage)[-_ ]?([0123])", text):
        return "ddp" if stage.group(1) == "0" else f"zero{stage.group(1)}"
    if "shard_grad_op" in text:
        return "zero2"
    if "fsdp" in text or "fully shard" in text:
        return "zero3"
    return "zero1" if re.search(r"dist(ributed)?[-_ ]?opt", text) else "ddp"


def _shard_degree(text: str) -> int:
    """Ranks of one sharding group as printed (``FSDP (64)``, ``dcn_FSDP=16 ici_FSDP=8``); or 0."""
    if alone := re.search(r"[fh]sdp\d?\s*\((\d+)\)", text):
        return int(alone.group(1))
    sizes = re.findall(r"(?:fsdp|hsdp|shard)\s*=\s*(\d+)", text)
    return math.prod(int(size) for size in sizes) if sizes else 0


def _sharding(row: Row, data_parallel: int, node: int, notes: list[str]) -> dict[str, Any]:
    """Sharding and the ranks that share one copy (0: all data-parallel ranks)."""
    text = row.text("sharding").lower()
    if not text:
        name = "zero1" if _is_megatron(row) else "zero3"
        notes.append(f"sharding {name} assumed")
        return {"sharding": name, "shard_degree": 0}
    name, degree = _sharding_name(text), _shard_degree(text)
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


def _recomputation(row: Row, notes: list[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Recomputation to try in turn, and the strategy fields that belong to it."""
    text = row.text("recompute").lower()
    offload = "offload" in text or bool(
        re.search(r"offload\s*=\s*true", row.text("other_flags").lower())
    )
    extra: dict[str, Any] = {"offload_activations": True} if offload else {}
    if not text:
        return _RECOMPUTATION, extra
    if text.startswith("modules"):
        # Nearly all of a layer's forward pass is repeated once its feed-forward part is.
        heavy = re.search(r"\b(mlp|moe|experts?)\b", text) is not None
        notes.append("recomputed modules taken as " + ("full" if heavy else "selective"))
        return ("full" if heavy else "selective",), extra
    if re.match(r"(none|no|false|off|0)\b", text) or text.startswith("offload"):
        return ("none",), extra
    if "selective" in text or re.search(r"core.?att|att\w* only", text):
        return ("selective",), extra
    if part := re.search(r"(\d+)\s*(?:of \d+\s*)?layers", text):
        extra["recompute_layers"] = int(part.group(1))
    return ("full",), extra


def _overlap(row: Row) -> dict[str, bool]:
    """Overlap switches that the row states; the stack decides the others."""
    text = row.text("overlap").lower()
    data_parallel = ("overlap_grad_reduce", "overlap_param_gather")
    if not text or "default" in text:
        return {}
    if text in ("none", "no", "false"):
        return dict.fromkeys((*data_parallel, "overlap_tp"), False)
    if text.startswith("none for dp"):
        return dict.fromkeys(data_parallel, False)
    stated = {
        "overlap_grad_reduce": r"grad[-_ ]?reduce|dp grad",
        "overlap_param_gather": r"param[-_ ]?gather|dp grad/param",
        "overlap_tp": r"tp[-_ ]comm|async[-_ ]tp",
    }
    return {name: True for name, pattern in stated.items() if re.search(pattern, text)}


def _chunks(row: Row, layers: int, stages: int, notes: list[str]) -> int:
    """Model chunks per pipeline stage."""
    text = row.text("vpp").lower()
    stated = row.count("vpp")
    wanted = stated if stated is not None else (2 if "interleav" in text else 1)
    if stages == 1:
        return 1
    chunks = max(1, min(wanted, layers // stages))
    if stated is None and wanted > 1:
        notes.append(f"vpp {chunks} assumed")
    elif chunks < wanted:
        notes.append(f"vpp {chunks}: fewer layers than chunks")
    return chunks


def _strategy(
    row: Row, accelerators: int, node: int, layers: int, notes: list[str]
) -> dict[str, Any]:
    tp, pp, cp = (row.count(name) or 1 for name in ("tp", "pp", "cp"))
    if accelerators % (tp * pp * cp):
        raise SkippedRowError("illegal:mesh")
    dp = accelerators // (tp * pp * cp)
    if row.count("dp") not in (None, dp):
        raise SkippedRowError("illegal:mesh")
    chunks = _chunks(row, layers, pp, notes)
    stated = row.flag("seq_parallel")
    sequence_parallel = tp > 1 and (_is_megatron(row) if stated is None else stated)
    if stated is None and tp > 1:
        notes.append(f"sequence parallelism {'on' if sequence_parallel else 'off'} assumed")
    return {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": row.count("ep") or 1,
        "etp": row.count("etp") or 0,
        "vpp": chunks,
        "micro_batch": row.required_count("micro_batch"),
        "sequence_parallel": sequence_parallel,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        **_sharding(row, dp, node, notes),
        **_overlap(row),
    }


def _global_batch(row: Row, micro_batch: int, data_parallel: int, notes: list[str]) -> int:
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
    label = row.text("gpu")
    if not label:
        raise SkippedRowError("missing:gpu")
    method = _method(row)
    accelerators = row.required_count("n_gpus")
    sequence = row.required_count("seq_len")
    row.required_count("micro_batch")
    row.required_count("global_batch")
    model = architecture(row, notes)
    accelerator = accelerator_name(label, row.number("gpu_mem_GB"))
    node = _node_accelerators(row, accelerators, notes)
    strategy = _strategy(row, accelerators, node, model["layers"], notes)
    recomputations, extra = _recomputation(row, notes)
    task: dict[str, Any] = {
        "global_batch": _global_batch(row, strategy["micro_batch"], strategy["dp"], notes),
        "sequence": sequence,
        "attention": _attention_kernel(row),
        "gradient_precision": _gradient_precision(row),
    }
    if "rms kernel" in row.text("other_flags").lower():
        task["fused_norm"] = True
    if method == "lora":
        task |= {"lora_rank": 16, "lora_targets": "attention"}
        notes.append("LoRA rank 16 on attention assumed")
    year = row.number("year")
    return Question(
        model=_frozen(model),
        accelerator=accelerator,
        node_accelerators=node,
        scale_up=_frozen(_scale_up(row, node)),
        fabric=_frozen(_fabric(row, accelerator, accelerators > node, notes)),
        accelerators=accelerators,
        method=method,
        task=_frozen(task),
        strategy=_frozen(strategy | extra),
        stack=stack
        or stack_for(
            row.text("framework"), None if year is None else round(year), row.text("task")
        ),
        precisions=_precisions(row, notes),
        recomputations=recomputations,
        notes=tuple(notes),
    )


# ----------------------------------------------------------------------------------- prediction


class Predictor:
    """Answers questions; remembers models, clusters and whole answers, because rows repeat."""

    def __init__(self) -> None:
        self._models: dict[object, Model] = {}
        self._clusters: dict[object, Cluster] = {}
        self._answers: dict[Question, Prediction] = {}

    def predict(self, question: Question) -> Prediction:
        """Prediction for a question; what the engine refuses becomes a skip reason."""
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._answer(question)
        return answer

    def candidates(self, question: Question) -> list[Estimate]:
        """Estimates of every recomputation a row leaves open, lightest first."""
        for precision in question.precisions:
            found = []
            try:
                for recompute in question.recomputations:
                    estimate = self._estimate(question, precision, recompute)
                    if recompute == "full" and len(question.recomputations) > 1 and estimate.fits:
                        estimate = self._fewest_layers(question, precision, estimate)
                    found.append(estimate)
            except SkippedRowError:
                continue
            return found
        return []

    def _answer(self, question: Question) -> Prediction:
        refusal = "unsupported:dtype"
        for precision in question.precisions:
            try:
                return self._with_precision(question, precision)
            except SkippedRowError as skipped:
                refusal = str(skipped)
                if refusal != "unsupported:dtype":
                    break
        return Prediction(skip_reason=refusal)

    def _with_precision(self, question: Question, precision: str) -> Prediction:
        notes = list(question.notes)
        if precision != question.precisions[0]:
            notes.append(f"precision {precision}: no {question.precisions[0]} on this accelerator")
        for recompute in question.recomputations:
            estimate = self._estimate(question, precision, recompute)
            if estimate.fits:
                break
        if len(question.recomputations) > 1:
            if recompute == "full" and estimate.fits:
                estimate = self._fewest_layers(question, precision, estimate)
            why = "lightest that fits" if estimate.fits else "none fits"
            layers = estimate.strategy.recompute_layers
            notes.append(
                f"recompute {recompute}{f' of {layers} layers' if layers else ''} assumed: {why}"
            )
        step_time_s = _positive(estimate.step_time_s, "step_time")
        memory_bytes = _positive(estimate.memory_allocated_bytes, "memory")
        return Prediction(
            step_time_s=step_time_s,
            memory_gb=memory_bytes / _GIB,
            fits=bool(estimate.fits),
            stack=question.stack,
            note="; ".join(notes),
        )

    def _fewest_layers(self, question: Question, precision: str, full: Estimate) -> Estimate:
        """The estimate that recomputes as few layers per pipeline rank as memory allows."""
        low, high, best = 1, full.model.shape.layers // full.strategy.pp, full
        while low < high:
            middle = (low + high) // 2
            trial = self._estimate(question, precision, "full", recompute_layers=middle)
            if trial.fits:
                high, best = middle, trial
            else:
                low = middle + 1
        return best

    def _estimate(
        self, question: Question, precision: str, recompute: str, recompute_layers: int = 0
    ) -> Estimate:
        import scalemodel as sm

        task_of = sm.Training if question.method == "pretrain" else sm.FineTuning
        arguments = dict(question.task)
        if question.method != "pretrain":
            arguments["method"] = question.method
        try:
            estimate = sm.estimate(
                self._model(question),
                self._cluster(question),
                task_of(precision=precision, **arguments),
                sm.Strategy(
                    **{"recompute_layers": recompute_layers, **dict(question.strategy)},
                    recompute=recompute,
                ),
                stack=question.stack,
            )
        except ScaleModelError as error:
            raise _refused(f"illegal:{error.code}") from None
        except (ValueError, TypeError, OverflowError):
            # Numbers beyond what the engine's integers hold.
            raise SkippedRowError("illegal:malformed") from None
        if str(estimate.verdict).startswith("illegal"):
            raise _refused(str(estimate.verdict))
        return estimate

    def _model(self, question: Question) -> Model:
        import scalemodel as sm

        model = self._models.get(question.model)
        if model is None:
            # The name of the row stays out, so that it cannot matter.
            model = sm.model({"name": "row", "architecture": dict(question.model)})
            self._models[question.model] = model
        return model

    def _cluster(self, question: Question) -> Cluster:
        import scalemodel as sm

        key = (
            question.accelerator,
            question.node_accelerators,
            question.scale_up,
            question.fabric,
            question.accelerators,
        )
        cluster = self._clusters.get(key)
        if cluster is None:
            table: dict[str, Any] = {
                "accelerator": question.accelerator,
                "node": {"accelerators": question.node_accelerators},
                "fabric": dict(question.fabric),
            }
            if question.scale_up:
                table["scale_up"] = dict(question.scale_up)
            cluster = sm.cluster(table, accelerators=question.accelerators)
            self._clusters[key] = cluster
        return cluster


def _positive(value: float | None, what: str) -> float:
    if value is None or not math.isfinite(value) or value <= 0:
        raise SkippedRowError(f"illegal:{what}")
    return float(value)


def _refused(reason: str) -> SkippedRowError:
    """Skip reason of a refusal: a missing rate is a matter of the number format."""
    return SkippedRowError("unsupported:dtype" if "precision" in reason else reason)


def check_columns(table: Table) -> None:
    """Refuse a table that lacks a column every row would need.

    Raises
    ------
    ScaleModelError
        Names the column.
    """
    needed = list(REQUIRED_COLUMNS)
    tasks, families = table.column("task"), table.column("model_family")
    if any(is_language_model(*pair) for pair in zip(tasks, families, strict=True)):
        needed += LLM_COLUMNS
        if "model" not in table.header:
            needed += ARCHITECTURE_COLUMNS
    for column in needed:
        if column not in table.header:
            raise ScaleModelError(
                f"required column {column!r} is missing from the table; kind 'training' needs "
                f"{', '.join((*REQUIRED_COLUMNS, *LLM_COLUMNS))} and model or "
                f"{', '.join(ARCHITECTURE_COLUMNS)}",
                code="missing_column",
                details={"column": column},
            )


def predict(table: Table, *, stack: str | None = None) -> list[Prediction]:
    """One prediction per row of a table, in order; no row can fail the run."""
    check_columns(table)
    predictor = Predictor()
    predictions = []
    for row in table.select(INPUT_COLUMNS):
        try:
            prediction = predictor.predict(question(row, stack=stack))
        except SkippedRowError as skipped:
            prediction = Prediction(skip_reason=str(skipped))
        predictions.append(prediction)
    return predictions
