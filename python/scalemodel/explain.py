"""Where the numbers of an estimate come from: a tree of terms with formula, inputs and source.

Values are read from the estimate and its operators; only the parts that have no column of their
own are differences, so that the children of a term always sum to it.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.diagnose import operator_class, recomputation_s, what_limits
from scalemodel.errors import ScaleModelError, nearest
from scalemodel.estimate import MEMORY_COLUMNS, TIME_COLUMNS, operator_rows, stack_of, tables_for
from scalemodel.messages import (
    count_text,
    message,
    money_text,
    percent_text,
    shard_group,
    size_text,
    time_text,
)
from scalemodel.units import source_of

if TYPE_CHECKING:
    from scalemodel.estimate import Estimate


@dataclass(frozen=True, repr=False)
class Explanation:
    """One term and what it is made of.

    Attributes
    ----------
    name : str
    value : float or None
        In `unit`; None where the strategy has no such number.
    unit : str
        ``"s"``, ``"B"``, ``"J"``, ``"USD"``, ``"fraction"``; empty for the root.
    share_fraction : float or None
        Of the term at the top of its branch (the step time, the capacity, the energy).
    formula, source : str
        How the value is computed, and where formula and constants were published.
    inputs : mapping of str to object
        What enters the formula.
    children : tuple of Explanation
        Parts; where they have the term's unit they sum to its value.
    """

    name: str
    value: float | None
    unit: str
    share_fraction: float | None
    formula: str
    source: str
    inputs: Mapping[str, object] = field(default_factory=dict)
    children: tuple[Explanation, ...] = ()

    def walk(self) -> Iterator[Explanation]:
        """Yield the term, then everything below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "share_fraction": self.share_fraction,
            "formula": self.formula,
            "source": self.source,
            "inputs": {key: _plain(value) for key, value in self.inputs.items()},
            "children": [child.to_dict() for child in self.children],
        }

    def value_text(self) -> str:
        """Value and share for people."""
        if self.value is None:
            return ""
        texts = {
            "s": time_text,
            "B": size_text,
            "J": lambda value: f"{count_text(value)}J",
            "USD": money_text,
            "fraction": percent_text,
        }
        text = texts[self.unit](self.value)
        shown = self.share_fraction is not None and self.unit != "fraction"
        return f"{text} ({percent_text(self.share_fraction or 0)})" if shown else text

    def inputs_text(self) -> str:
        """Inputs as ``name = value``, quantities with their units."""
        return ", ".join(f"{key} = {_shown(key, value)}" for key, value in self.inputs.items())

    def __repr__(self) -> str:
        return f"Explanation({f'{self.name} {self.value_text()}'.rstrip()})"

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        pad = "  " * depth
        yield f"{pad}{self.name} {self.value_text()}".rstrip()
        if self.formula:
            yield f"{pad}  = {self.formula}"
        if self.inputs:
            yield f"{pad}    {self.inputs_text()}"
        if self.source:
            yield f"{pad}    source: {self.source}"
        for child in self.children:
            yield from child._lines(depth + 1)

    def _repr_html_(self) -> str:
        return f'<div style="{_BOX}">{self._details(is_open=True)}</div>'

    def _details(self, *, is_open: bool = False) -> str:
        head = f"<b>{_e(self.name)}</b> {_e(self.value_text())}"
        facts = [("formula", self.formula), ("inputs", self.inputs_text()), ("source", self.source)]
        listed = "".join(
            f"<dt style='font-style:italic'>{label}</dt><dd>{_e(text)}</dd>"
            for label, text in facts
            if text
        )
        below = "".join(child._details() for child in self.children)
        return (
            f"<details{' open' if is_open else ''} style='margin-left:1em'>"
            f"<summary>{head}</summary><dl style='margin:.2em 1em'>{listed}</dl>{below}</details>"
        )


def _plain(value: object) -> object:
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def _shown(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for suffix, write in (
        ("_bytes_per_s", lambda v: f"{count_text(v)}B/s"),
        ("_flop_per_s", lambda v: f"{count_text(v)}FLOP/s"),
        ("_flop", lambda v: f"{count_text(v)}FLOP"),
        ("bytes", size_text),
        ("_s", time_text),
        ("_w", lambda v: f"{count_text(v)}W"),
    ):
        if key.endswith(suffix):
            return write(float(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# --------------------------------------------------------------------------------------- sources
def _entry_source(kind: str, name: str, *path: str) -> str:
    """Source that a catalogue entry gives for a number, or what is to be said without one."""
    try:
        cell: object = (
            resolve.accelerator_table(name) if kind == "accelerators" else catalog.load(kind, name)
        )
    except ScaleModelError:
        return f"{'.'.join(path)} as given with the question"
    own = ""
    for key in path:
        if not isinstance(cell, Mapping) or key not in cell:
            break
        cell = cell[key]
        own = source_of(cell) or own
    return f"{kind}/{name}: {own}" if own else f"{kind}/{name}"


class _Sources:
    """Citations of one estimate: formulas with the constants of its accelerator and networks."""

    def __init__(self, est: Estimate) -> None:
        self.est = est
        accelerator = est.cluster.accelerator
        self.stack = f"stacks/{est.stack}"
        self.gemm = "tile form of ops/gemm.hpp; " + _entry_source(
            "accelerators", accelerator, "gemm"
        )
        self.attention = (
            "FlashAttention forward and backward rates (Dao, arXiv 2307.08691; Shah et al., "
            "arXiv 2407.08608); "
            + _entry_source("accelerators", accelerator, "attention", "flash2_forward")
        )
        self.moving = "memory-bound kernels of ops/memory_bound.hpp; " + _entry_source(
            "accelerators", accelerator, "elementwise", "add_fraction"
        )
        self.capacity = _entry_source("accelerators", accelerator, "memory", "capacity")
        self.host = _entry_source("accelerators", accelerator, "host", "bandwidth")
        self.power = "Fernandez et al., arXiv 2411.13055; " + _entry_source(
            "accelerators", accelerator, "power", "tdp"
        )
        self.network = "; ".join(
            ["collectives/collectives.hpp, fits to nccl-tests and NCCL src/graph/tuning.cc"]
            + [
                _entry_source("clusters", est.cluster.name, part, "bandwidth")
                for part in ("scale_up", "fabric")
            ]
        )

    def operator(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Formula and source of an operator."""
        kind = operator_class(dict(row))
        times = "micro_batches × layers_per_stage × (forward + backward)"
        if kind == "product":
            return f"{times}; C[m,n] = A[m,k] B[k,n], backward dA and dB", self.gemm
        if kind == "attention":
            return f"{times}; flop / (rate × peak), 2.5 times the flop backward", self.attention
        if kind == "collective":
            return f"{times}; time of the collectives before overlap", self.network
        return f"{times}; launch + bytes / (fraction × memory bandwidth)", self.moving


# ------------------------------------------------------------------------------------------ time
_CLASSES_OF_CAUSE = {
    "compute_s": ("product", "attention", "moving"),
    "exposed_tp_s": ("tensor_parallel",),
    "exposed_cp_s": ("context_parallel",),
    "exposed_ep_s": ("expert_parallel",),
}
_REST = {
    "compute_s": (
        "slowest stage, embedding, launches",
        "what the slowest stage computes beyond the operators of the mean one: more layers, head "
        "or embedding, layers that the host cannot launch faster",
    ),
    "exposed_tp_s": (
        "ends, repeats, hidden part",
        "embedding and head, recomputed layers and the slowest stage, less what compute hides",
    ),
    "exposed_cp_s": (
        "repeats, hidden part",
        "recomputed layers and the slowest stage, less what attention hides",
    ),
    "exposed_ep_s": (
        "repeats, hidden part",
        "recomputed layers and the slowest stage, less what compute hides",
    ),
}


def _rows_of_cause(column: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = _CLASSES_OF_CAUSE.get(column, ())
    return [row for row in rows if operator_class(row) in wanted or row["operator"] in wanted]


def _operator_nodes(
    rows: list[dict[str, Any]], sources: _Sources, step: float
) -> tuple[Explanation, ...]:
    nodes = []
    for row in rows:
        formula, source = sources.operator(row)
        keys = ("m", "n", "k", "batch", "bytes", "forward_s", "backward_s", "layers_per_stage")
        given = {key: row[key] for key in keys if row[key]}
        given["micro_batches"] = sources.est.core.micro_batches
        time_s = float(row["step_s"])
        nodes.append(
            Explanation(row["operator"], time_s, "s", time_s / step, formula, source, given)
        )
    return tuple(nodes)


def _layer_nodes(rows: list[dict[str, Any]], sources: _Sources, step: float) -> list[Explanation]:
    """One node per layer kind, its operators below."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["layer_kind"], []).append(row)
    nodes = []
    for kind, members in kinds.items():
        below = _operator_nodes(members, sources, step)
        total = sum(node.value or 0.0 for node in below)
        count = members[0]["layers_per_stage"]
        nodes.append(
            Explanation(
                kind,
                total,
                "s",
                total / step,
                "sum of its operators over the micro-batches of a step, on the mean stage",
                "operators of the engine, costs/layer_cost.cpp",
                {"layers_per_stage": count, "micro_batches": sources.est.core.micro_batches},
                below,
            )
        )
    return nodes


def _cause_facts(est: Estimate, column: str, sources: _Sources) -> tuple[str, str, dict[str, Any]]:
    """Formula, source and inputs of a cause."""
    s, core, stack = est.strategy, est.core, stack_of(est)
    network = est.cluster.core
    links = {
        "scale_up_bytes_per_s": network.scale_up.bandwidth_bytes_per_s,
        "domain": network.scale_up.domain,
        "fabric_bytes_per_s": network.fabric.bandwidth_bytes_per_s,
    }
    reach = {"overlap_efficiency": stack.overlap_efficiency}
    facts: dict[str, tuple[str, str, dict[str, Any]]] = {
        "compute_s": (
            "micro_batches × (forward + backward + recomputation of the slowest stage)"
            " + contention × hidden",
            f"kernels: {sources.gemm}; {sources.stack}",
            {
                "micro_batches": core.micro_batches,
                "recompute": s.recompute,
                "gemm_efficiency": stack.gemm_efficiency,
                "memory_efficiency": stack.memory_efficiency,
                "host_launch_s": stack.host_launch_s,
            },
        ),
        "exposed_tp_s": (
            "micro_batches × layers × max(0, collectives − reach × matrix products); all-gather "
            "and reduce-scatter with sequence parallelism, else all-reduce",
            f"Korthikanti et al., arXiv 2205.05198; {sources.network}",
            {"tp": s.tp, "sequence_parallel": s.sequence_parallel, "overlap_tp": s.overlap_tp}
            | links,
        ),
        "exposed_cp_s": (
            "micro_batches × layers × max(0, exchange of keys and values − reach × attention)",
            f"Liu et al., ring attention, arXiv 2310.01889; {sources.network}",
            {"cp": s.cp, "context": s.context} | links | reach,
        ),
        "exposed_ep_s": (
            "micro_batches × layers × 2 all-to-alls each way (dispatch, combine)",
            f"Lepikhin et al., GShard, arXiv 2006.16668; {sources.network}",
            {"ep": s.ep, "etp": s.etp, "imbalance": est.task.imbalance} | links,
        ),
        "exposed_pp_s": (
            "2 (steady transfers + pp − 1) × time of one transfer; none steady where the stack "
            "overlaps them",
            f"Narayanan et al., arXiv 2104.04473; {sources.network}",
            {"pp": s.pp, "vpp": s.vpp, "overlap_p2p": stack.overlap_p2p} | links,
        ),
        "exposed_dp_s": (
            "gradient reduction and parameter gathering, less reach × the compute above them; at "
            "least one bucket stays open",
            f"Rajbhandari et al., ZeRO, arXiv 1910.02054; {sources.network}",
            {"dp": core.dp, "sharding": s.sharding, "shard_ranks": shard_group(est)}
            | links
            | reach,
        ),
        "exposed_offload_s": (
            "host transfers each way − reach × compute",
            f"Rajbhandari et al., ZeRO-Infinity, arXiv 2104.07857; {sources.host}",
            {
                "host_bandwidth_bytes_per_s": network.accelerator.host_bandwidth_bytes_per_s,
                "host_memory_bytes": core.host_memory_bytes,
            },
        ),
        "bubble_s": (
            "1f1b and gpipe: time of the other stages; interleaved: / vpp; zero_bubble: less 2 "
            "(pp − 1) weight-gradient times; dualpipe: (pp/2 − 1)(both + backward − 3 weight)",
            "arXiv 1811.06965, 2104.04473, 2401.10241, 2412.19437",
            {"pp": s.pp, "vpp": s.vpp, "schedule": s.schedule, "micro_batches": core.micro_batches},
        ),
        "optimizer_s": (
            "bytes of gradients, states and weights of a rank's share / (fraction × bandwidth)",
            f"Rajbhandari et al., ZeRO, arXiv 1910.02054; {sources.moving}",
            {
                "optimizer": est.task.optimizer,
                "sharding": s.sharding,
                "memory_bandwidth_bytes_per_s": network.accelerator.memory_bandwidth_bytes_per_s,
            },
        ),
        "overhead_s": (
            "data, clipping, logging, once per step",
            sources.stack,
            {"step_overhead_s": stack.step_overhead_s},
        ),
    }
    return facts[column]


def _compute_parts(est: Estimate, step: float, sources: _Sources) -> list[Explanation]:
    """Recomputation and contention, which are no operators of their own."""
    parts = []
    again = recomputation_s(est)
    if again > 0:
        parts.append(
            Explanation(
                "recomputation",
                again,
                "s",
                again / step,
                "compute of this strategy − compute of the same one without recomputation",
                "Korthikanti et al., arXiv 2205.05198",
                {
                    "recompute": est.strategy.recompute,
                    "recompute_layers": est.strategy.recompute_layers,
                },
            )
        )
    contention = stack_of(est).contention
    slowed = contention * est.core.hidden_s
    if slowed > 0:
        parts.append(
            Explanation(
                "contention",
                slowed,
                "s",
                slowed / step,
                "contention × hidden communication",
                sources.stack,
                {"contention": contention, "hidden_s": est.core.hidden_s},
            )
        )
    return parts


def _cause_node(
    est: Estimate, column: str, rows: list[dict[str, Any]], sources: _Sources
) -> Explanation:
    step, value = float(est.core.step_time_s), float(getattr(est.core, column))
    formula, source, inputs = _cause_facts(est, column, sources)
    below = _layer_nodes(_rows_of_cause(column, rows), sources, step)
    if column == "compute_s":
        below += _compute_parts(est, step, sources)
    if below:
        rest = value - sum(node.value or 0.0 for node in below)
        name, meaning = _REST[column]
        origin = "difference of the column and its operators"
        below.append(Explanation(name, rest, "s", rest / step, meaning, origin))
    name = column.removesuffix("_s")
    return Explanation(name, value, "s", value / step, formula, source, inputs, tuple(below))


def _step_time(est: Estimate, sources: _Sources) -> Explanation:
    rows = operator_rows(est)
    causes = tuple(_cause_node(est, column, rows, sources) for column in TIME_COLUMNS)
    return Explanation(
        "step_time",
        float(est.core.step_time_s),
        "s",
        1.0,
        "sum of its causes",
        "estimator/evaluate.cpp",
        {"micro_batches": est.core.micro_batches, "hidden_s": est.core.hidden_s},
        causes,
    )


# ---------------------------------------------------------------------------------------- memory
_ZERO = "Rajbhandari et al., ZeRO, arXiv 1910.02054"
_ACTIVATIONS = "Korthikanti et al., arXiv 2205.05198, section 4"
_MEMORY_FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "weights": (
        "parameters of the stage / (tp or ep etp) × bytes, / shard ranks with zero3 and hsdp",
        _ZERO,
        ("tp", "pp", "ep", "sharding", "offload_weights"),
    ),
    "gradients": (
        "trainable parameters × gradient bytes, / shard ranks with zero2, zero3 and hsdp",
        _ZERO,
        ("tp", "pp", "ep", "sharding"),
    ),
    "optimizer": (
        "trainable parameters × (master + moments) bytes, / shard ranks except with ddp",
        _ZERO,
        ("tp", "pp", "ep", "sharding", "offload_optimizer"),
    ),
    "activations": (
        "micro-batches in flight × bytes kept per layer × layers of the stage",
        f"{_ACTIVATIONS}; micro-batches in flight: Narayanan et al., arXiv 2104.04473",
        ("micro_batch", "tp", "cp", "pp", "vpp", "schedule", "recompute", "offload_activations"),
    ),
    "logits": (
        "tokens × vocab / tp × bytes of logits, gradient and FP32 copies",
        "cross-entropy kernels, costs/layer_cost.cpp",
        ("micro_batch", "tp", "cp"),
    ),
    "temporary": (
        "largest working set of a layer, a recomputed layer included, beyond the logits",
        _ACTIVATIONS,
        ("micro_batch", "tp", "cp", "recompute"),
    ),
    "communication": (
        "gathered sequence-parallel stream and two pipeline buffers",
        _ACTIVATIONS,
        ("tp", "pp", "sequence_parallel"),
    ),
    "gathered": (
        "two layers and the ends in full with zero3 and hsdp, and one layer's gradient",
        "Zhao et al., PyTorch FSDP, arXiv 2304.11277",
        ("sharding", "tp"),
    ),
}


def _memory(est: Estimate, sources: _Sources) -> Explanation:
    core, s, stack = est.core, est.strategy, stack_of(est)
    capacity = float(core.memory_capacity_bytes)
    children = []
    for column in MEMORY_COLUMNS:
        kind = column.removeprefix("memory_").removesuffix("_bytes")
        size = float(getattr(core, column))
        inputs: dict[str, object]
        if kind == "reserve":
            formula = "reserve + fragmentation × what the allocator hands out"
            source = sources.stack
            inputs = {
                "reserve_bytes": stack.reserve_bytes,
                "fragmentation_fraction": stack.fragmentation_fraction,
                "allocated_bytes": core.memory_allocated_bytes,
            }
        else:
            formula, source, knobs = _MEMORY_FACTS[kind]
            inputs = {name: getattr(s, name) for name in knobs}
        children.append(Explanation(kind, size, "B", size / capacity, formula, source, inputs))
    return Explanation(
        "memory",
        float(core.memory_bytes),
        "B",
        float(core.memory_bytes) / capacity,
        "sum of its kinds on the fullest accelerator; share of the capacity",
        f"estimator/evaluate.cpp; capacity: {sources.capacity}",
        {"capacity_bytes": capacity, "fullest_stage": core.fullest_stage},
        tuple(children),
    )


# ------------------------------------------------------------------- energy, cost, utilisation
def _energy(est: Estimate, sources: _Sources) -> Explanation:
    core, cluster = est.core, est.cluster.core
    total, step = float(core.energy_j), float(core.step_time_s)
    nodes = est.cluster.nodes
    accelerators = float(core.power_w) * est.cluster.accelerators * step
    hosts = float(cluster.host_power_w) * nodes * step
    cooling = total - accelerators - hosts
    name = est.cluster.name
    children = (
        Explanation(
            "accelerators",
            accelerators,
            "J",
            accelerators / total,
            "step × accelerators × (shares computing, waiting and idle × their power)",
            sources.power,
            {"power_w": core.power_w, "accelerators": est.cluster.accelerators},
        ),
        Explanation(
            "hosts",
            hosts,
            "J",
            hosts / total,
            "step × nodes × host power",
            _entry_source("clusters", name, "node", "host_power"),
            {"host_power_w": cluster.host_power_w, "nodes": nodes},
        ),
        Explanation(
            "facility",
            cooling,
            "J",
            cooling / total,
            "(pue − 1) × what the equipment draws",
            _entry_source("clusters", name, "power", "pue"),
            {"pue": cluster.pue},
        ),
    )
    return Explanation(
        "energy",
        total,
        "J",
        1.0,
        "pue × step × (accelerators × power + nodes × host power)",
        "economics/step.hpp",
        {"step_time_s": step},
        children,
    )


def _cost(est: Estimate) -> Explanation:
    price = est.cluster.core.price_usd_per_s
    source = est.cluster.price_source
    return Explanation(
        "cost",
        est.cost_usd,
        "USD",
        None,
        "accelerators × step × price",
        f"prices/{source}" if source else "no price known for this accelerator",
        {
            "accelerators": est.cluster.accelerators,
            "step_time_s": est.core.step_time_s,
            "usd_per_accelerator_hour": 3600 * price,
        },
    )


def _utilisation(est: Estimate, sources: _Sources) -> tuple[Explanation, Explanation]:
    core = est.core
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    forward, attention = tables.model_flop()
    from scalemodel import _core

    peaks = dict(zip(_core.precisions(), est.cluster.core.accelerator.peak_flop_per_s, strict=True))
    inputs = {
        "forward_of_a_sequence_flop": forward,
        "attention_of_it_flop": attention,
        "global_batch": est.task.global_batch,
        "step_time_s": core.step_time_s,
        "accelerators": est.cluster.accelerators,
        "dense_peak_flop_per_s": peaks[est.task.precision],
    }
    peak_source = _entry_source(
        "accelerators", est.cluster.accelerator, "compute", est.task.precision
    )
    source = f"Chowdhery et al., PaLM, arXiv 2204.02311; peak: {peak_source}"
    mfu = Explanation(
        "mfu",
        float(core.mfu_fraction),
        "fraction",
        None,
        "3 × forward flop × sequences / (step × accelerators × dense peak); causal attention "
        "counted once, recomputation left out, frozen weights without weight gradient",
        source,
        inputs,
    )
    hfu = Explanation(
        "hfu",
        float(core.hfu_fraction),
        "fraction",
        None,
        "as mfu, recomputed flop included",
        source,
        {**inputs, "recompute": est.strategy.recompute},
    )
    return mfu, hfu


# ------------------------------------------------------------------------------------------ tree
def _tree(est: Estimate) -> Explanation:
    if est.illegal:
        return Explanation(
            "estimate",
            None,
            "",
            None,
            message(est, []),
            "strategy/legal.cpp",
            est.strategy.to_dict(),
        )
    sources = _Sources(est)
    mfu, hfu = _utilisation(est, sources)
    return Explanation(
        "estimate",
        None,
        "",
        None,
        "one training step, closed form",
        "estimator/evaluate.cpp",
        {
            "model": est.model.name,
            "cluster": est.cluster.name,
            "accelerators": est.cluster.accelerators,
            "strategy": repr(est.strategy),
            "stack": est.stack,
            "verdict": est.verdict,
        },
        (
            _step_time(est, sources),
            _memory(est, sources),
            _energy(est, sources),
            _cost(est),
            mfu,
            hfu,
        ),
    )


def _bare(name: str) -> str:
    """A name as terms are looked up: ``exposed_tp_s`` and ``memory_weights_bytes`` are columns."""
    name = name.strip().lower().replace("_", " ")
    for suffix in (" s", " bytes", " j", " usd", " fraction"):
        name = name.removesuffix(suffix)
    return name.removeprefix("memory ").removeprefix("exposed ")


def _find(tree: Explanation, path: list[str]) -> Explanation | None:
    """First term, breadth first, whose name is the head of the path and holds the rest."""
    level: list[Explanation] = [tree]
    while level:
        for node in level:
            if _bare(node.name) == path[0]:
                if len(path) == 1:
                    return node
                below = [
                    found
                    for child in node.children
                    if (found := _find(child, path[1:])) is not None
                ]
                if below:
                    return below[0]
        level = [child for node in level for child in node.children]
    return None


def explain(est: Estimate, term: str | None = None) -> Explanation:
    """The tree of terms behind an estimate, or one branch of it.

    Parameters
    ----------
    est : Estimate
    term : str, optional
        Name of a term or column, or a path of names joined by points: ``"memory"``,
        ``"exposed_tp_s"``, ``"compute.layer 0.qkv"``.

    Raises
    ------
    ScaleModelError : no such term; the message names the nearest ones.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> memory = explain(est, "memory")
    >>> abs(sum(part.value for part in memory.children) / memory.value - 1) < 1e-9
    True
    """
    tree = _tree(est)
    if term is None:
        return tree
    path = [_bare(part) for part in str(term).split(".")]
    found = _find(tree, path)
    if found is None:
        known = list(dict.fromkeys(node.name for node in tree.walk()))
        raise ScaleModelError(
            f"term={term!r}: unknown; {nearest(str(term), known)}",
            code="unknown_term",
            details={"term": term},
        )
    return found


# ------------------------------------------------------------------------------------------ HTML
_BOX = "font-family:system-ui,sans-serif;font-size:90%;max-width:60em"
_CELL = "padding:.1em .6em;text-align:left"


def _e(text: object) -> str:
    return html.escape(str(text), quote=True)


def _bar_html(share: float) -> str:
    width = 100 * min(1.0, max(0.0, share))
    return (
        "<div aria-hidden='true' style='width:8em;border:1px solid currentColor;opacity:.7'>"
        f"<div style='width:{width:.1f}%;height:.7em;background:currentColor'></div></div>"
    )


def _table_html(caption: str, first: str, parts: tuple[Explanation, ...]) -> str:
    rows = "".join(
        f"<tr><th scope='row' style='{_CELL}'>{_e(part.name)}</th>"
        f"<td style='{_CELL}'>{_e(part.value_text())}</td>"
        f"<td style='{_CELL}'>{_bar_html(part.share_fraction or 0)}</td></tr>"
        for part in parts
        if part.value
    )
    return (
        f"<table><caption style='text-align:left'>{_e(caption)}</caption><thead><tr>"
        f"<th scope='col' style='{_CELL}'>{_e(first)}</th><th scope='col' style='{_CELL}'>value"
        f"</th><th scope='col' style='{_CELL}'>share</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def estimate_html(est: Estimate) -> str:
    """An estimate for notebooks: self-contained, foldable, readable without colours."""
    title = f"{est.model.name} on {est.cluster.accelerators} × {est.cluster.accelerator}"
    head = f"<p><b>{_e(title)}</b><br><code>{_e(repr(est.strategy))}</code></p>"
    if est.illegal:
        return f'<div style="{_BOX}">{head}<pre>{_e(message(est))}</pre></div>'
    tree = _tree(est)
    step, memory, energy, cost, mfu, _ = tree.children
    facts = [
        f"verdict {est.verdict}",
        f"step {time_text(est.core.step_time_s)}",
        f"{count_text(est.core.tokens_per_s)} tokens/s",
        f"MFU {mfu.value_text()}",
        f"memory {memory.value_text()}",
        f"energy {energy.value_text().split(' (')[0]}",
    ]
    if cost.value is not None:
        facts.append(f"cost {cost.value_text()}")
    tables = (
        "<details open><summary>Time</summary>"
        + _table_html("Time of a step by cause", "cause", step.children)
        + "</details><details><summary>Memory</summary>"
        + _table_html("Memory of the fullest accelerator by kind", "kind", memory.children)
        + "</details>"
    )
    return (
        f'<div style="{_BOX}">{head}<p>{_e(" · ".join(facts))}</p>'
        f"<p>limited by: {_e(what_limits(est))}</p>{tables}"
        f"<details><summary>Explanation</summary>{tree._details(is_open=True)}</details></div>"
    )
