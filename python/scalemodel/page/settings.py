"""What can be turned on a page, and what it looks for by itself."""

from __future__ import annotations

from typing import Any

import scalemodel._core as _core
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS
from scalemodel.explorer.settings import (
    ACCELERATOR,
    MACHINE,
    MODEL,
    QUESTION,
    STACK,
    STRATEGY,
    TASK,
)
from scalemodel.page.serving import CACHES, PER_OCTAVE, WEIGHTS
from scalemodel.plot.canvas import COLOURS
from scalemodel.resolve.engines import DEFAULT_ENGINE
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.search.objective import HEADROOM
from scalemodel.search.space import Space
from scalemodel.serving.task import Inference

_DEGREES = (1, 2, 4, 8, 16, 32, 64)
#: Values of each knob in its menu; an address may give others.
_KNOBS: dict[str, tuple[Any, ...]] = {
    "tp": _DEGREES,
    "cp": _DEGREES,
    "pp": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32),
    "vpp": (1, 2, 3, 4, 5, 6, 7, 8),
    "ep": (*_DEGREES, 128, 256),
    "micro_batch": (1, 2, 4, 8, 16),
    "schedule": (),
    "sharding": (),
    "recompute": (),
    "sequence_parallel": (True, False),
}
#: The strategies that a page ranks at every turn: few enough to be answered while a reader looks.
#: Every knob is listed, so that it has no automatic values here and no others on the page.
SPACE = Space(
    tp=[1, 2, 4, 8],
    cp=[1, 2, 4, 8],
    pp=[1, 2, 4, 8, 16],
    vpp=[1, 2, 4],
    ep=[1, 2, 4, 8, 16, 32, 64],
    micro_batch=[1, 2, 4],
    sharding=["zero1", "zero3"],
    recompute=["none", "selective", "full"],
    etp=0,
    context="ring",
    placement="tp-cp-dp-pp",
    sequence_parallel=True,
    regather=True,
    offload_optimizer=False,
)
#: Strategies of that ranking on the page.
TOP = 8
#: The question of a page that is opened without one.
FIRST: dict[str, Any] = {
    "model": "llama3_70b",
    "cluster": "dgx_h100",
    "nodes": 64,
    "stack": DEFAULT_STACK,
    "global_batch": 1024,
    "sequence": 8192,
    "precision": "bf16",
    **_core.Strategy(tp=4, pp=4, vpp=5).to_dict(),
}

#: The same of its serving front: what else that is asked about, and how it begins.
SERVING: dict[str, Any] = {
    "engine": DEFAULT_ENGINE,
    "weights": "fp8",
    "kv_cache": "fp8",
    "input_tokens": 2000,
    "output_tokens": 300,
    "source_tokens": 512,
    "instance_accelerators": 8,
}
_SERVED = {
    "engine": "the serving engine and its version",
    "weights": "format of the weights that are served",
    "kv_cache": "format of cached keys and values",
    "instance_accelerators": "the most accelerators of an instance",
}
_SERVED_VALUES: dict[str, tuple[Any, ...]] = {
    "weights": WEIGHTS,
    "kv_cache": CACHES,
    "instance_accelerators": (1, 2, 4, 8, 16, 32, 64),
}

_REASONS = {
    "ok": "fits in memory",
    "out_of_memory": "needs more memory than an accelerator has",
    "mesh": "tp · cp · pp does not divide the accelerators of the cluster",
    "tp_heads": "tp does not divide the attention heads",
    "tp_ffn": "tp does not divide the width of the feed-forward layer",
    "pp_layers": "more pipeline stages than layers, or more chunks than layers, embedding and head",
    "vpp_without_pp": "interleaving (vpp) needs a pipeline (pp)",
    "vpp_schedule": "this schedule has no interleaved form, or needs vpp of 2 or more",
    "dualpipe_stages": "DualPipe needs an even pp and at least twice as many micro-batches",
    "dualpipe_v_batches": "DualPipeV needs at least twice as many micro-batches as stages",
    "cp_sequence": "cp does not divide the sequence",
    "cp_heads": "all-to-all context parallelism: tp · cp does not divide the heads",
    "sp_sequence": "sequence parallelism: tp does not divide the tokens of a rank",
    "ep_experts": "ep does not divide the experts, or the model has none",
    "ep_mesh": "ep · etp does not divide the ranks of a pipeline stage",
    "etp_ffn": "etp does not divide the width of an expert",
    "batch": "the global batch is not a multiple of dp · micro_batch",
    "shard_degree": "the sharding group does not divide the data-parallel ranks",
    "quantized_sharding": "only zero3 and hsdp gather parameters, whose traffic may be quantized",
    "secondary_degree": "a second copy needs zero3 or hsdp, and equal parts of the sharding group",
    "recompute_layers": "more recomputed layers than the model has",
    "precision": "the accelerator has no rate for this precision",
    "offload": "host memory is smaller than what is offloaded",
}


def _part(column: str, colour: int) -> dict[str, str]:
    """A part of a bar: its column, name and colour, as plots have them."""
    name = column.removeprefix("memory_").removesuffix("_bytes").removesuffix("_s")
    meanings = {row["name"]: row["meaning"] for row in _core.Estimate.fields()}
    return {
        "column": column,
        "name": name.replace("_", " "),
        "meaning": str(meanings[column]),
        "colour": COLOURS[colour % len(COLOURS)],
    }


def _serving_controls() -> list[dict[str, Any]]:
    rows = {row["name"]: row for row in _core.RequestMix.fields()}

    def control(name: str) -> dict[str, Any]:
        row = rows.get(name, {"meaning": _SERVED.get(name), "low": None, "high": None})
        values = list(_SERVED_VALUES.get(name, ()))
        kind = "catalogue" if name == "engine" else "choice" if values else "number"
        limits = {"low": row["low"], "high": row["high"]}
        meaning = str(row["meaning"])
        return {"group": "serving", "name": name, "meaning": meaning, "kind": kind, **limits} | {
            "values": values
        }

    return [control(name) for name in SERVING]


def _controls() -> list[dict[str, Any]]:
    rows = {row["name"]: row for row in (*_core.Task.fields(), *_core.Strategy.fields())}

    def named(group: str, name: str, meaning: str) -> dict[str, Any]:
        return {"group": group, "name": name, "meaning": meaning, "kind": "catalogue"}

    def of_record(group: str, name: str, values: tuple[Any, ...] = ()) -> dict[str, Any]:
        row = rows[name]
        listed = [*values] or list(row["choices"])
        return {
            "group": group,
            "name": name,
            "meaning": str(row["meaning"]),
            "kind": "choice" if listed else "number",
            "values": listed,
            "low": row["low"],
            "high": row["high"],
        }

    nodes = {"group": MACHINE, "name": "nodes", "kind": "number", "low": 1, "high": 1_000_000}
    return [
        named(QUESTION, MODEL, "of the catalogue"),
        named(QUESTION, STACK, "the software that runs the step"),
        named(MACHINE, "cluster", f"of the catalogue: {ACCELERATOR}s, nodes and networks"),
        {**nodes, "values": [], "meaning": "of the cluster in the job"},
        of_record(TASK, "global_batch"),
        of_record(TASK, "sequence"),
        of_record(TASK, "precision"),
        *(of_record(STRATEGY, name, values) for name, values in _KNOBS.items()),
        *_serving_controls(),
    ]


def reasons() -> dict[str, str]:
    """What every verdict means, in the words of a page.

    Examples
    --------
    >>> reasons()["tp_heads"]
    'tp does not divide the attention heads'
    """
    return {name: _REASONS[name] for name in _core.reasons()}


def settings() -> dict[str, Any]:
    """Controls, names and colours of a page, and the space that it ranks."""
    knobs = {name: list(values) for name, values in SPACE.knobs}
    return {
        "controls": _controls(),
        "first": {**FIRST, **SERVING},
        "per_octave": PER_OCTAVE,
        "imbalance": Inference(input_tokens=1, output_tokens=1).rank_imbalance,
        "reasons": reasons(),
        "space": knobs,
        "top": TOP,
        "headroom": HEADROOM,
        "strategy": _core.Strategy().to_dict(),
        "colours": COLOURS,
        "times": [_part(column, i) for i, column in enumerate(TIME_COLUMNS)],
        "kinds": [_part(column, i) for i, column in enumerate(MEMORY_COLUMNS)],
    }
