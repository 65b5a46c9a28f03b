"""MAD-Max's formulas, to compare with and to show what each of its simplifications costs.

Hsia et al., "MAD-Max Beyond Single-Node", ISCA 2024, arXiv 2310.02784. A layer is one compute
operation and a few collectives, each lasting quantity / (peak x constant utilisation); two streams
that keep their order, compute and communication, give the step time. Nothing here enters the
engine. `step` reproduces the public code; ``corrected`` replaces single formulas by right ones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from scalemodel.studies.madmax_original.sizes import Mesh, Question, Unit, product

FLOP_UTILISATION, MEMORY_UTILISATION = 0.705, 0.836
BACKWARD_OVER_FORWARD = 2

#: What `step` can compute rightly instead, and what the original does.
CORRECTIONS = {
    "pooled_exchange": "looked-up rows cross the network before they are pooled",
    "embedding_update": "the backward pass of a table moves its looked-up bytes once",
    "embedding_replicas": "replicas of sharded tables are never brought into step",
    "shared_adapters": "the tensor-parallel groups of a node each have all its network adapters",
    "expert_exchange": "an expert exchange carries activations / experts",
    "only_sharded_gathers": "a backward pass of prefetched gathers begins with one for any mesh",
    "frozen_backward": "a frozen layer costs twice its forward pass in backward",
    "named_waits": "transformer blocks between MLPs wait for operations of the wrong layer",
}


@dataclass(frozen=True)
class Result:
    """Seconds of a step and of the sums of its operations by kind; bytes per GPU."""

    step_s: float
    forward_s: float
    sums_s: dict[str, float]
    operations: Counter[str]
    weights_bytes: dict[str, float]
    lookup_bytes: float
    local_flop: float

    @property
    def exposed_s(self) -> float:
        """Time that neither products nor lookups fill."""
        return self.step_s - self.sums_s["gemm"] - self.sums_s["lookup"]

    @property
    def communication_s(self) -> float:
        """Sum of all collectives."""
        computed = self.sums_s["gemm"] + self.sums_s["lookup"]
        return sum(self.sums_s.values()) - computed


class _Streams:
    """Two queues that keep their order; an operation also waits for named ends of the other."""

    def __init__(self) -> None:
        self.clock = {"compute": 0.0, "communication": 0.0}
        self.ends: dict[tuple[str, str, int], float] = {}
        self.sums: dict[str, float] = defaultdict(float)
        self.operations: Counter[str] = Counter()

    def add(self, kind: str, name: Name, seconds: float, after: Iterable[Name | None]) -> None:
        stream = "compute" if kind in ("gemm", "lookup") else "communication"
        waits = [self.ends.get(other, 0.0) for other in after if other]
        end = max([self.clock[stream], *waits]) + seconds
        self.clock[stream] = self.ends[name] = end
        self.sums[kind] += seconds
        self.operations[stream] += 1

    def barrier(self) -> float:
        now = max(self.clock.values())
        self.clock = dict.fromkeys(self.clock, now)
        self.ends = {}
        return now


Name = tuple[str, str, int]
EMBEDDING_COLLECTIVE: Name = ("collective", "embedding", 0)


class _Step:
    """The operations of a question, in the order of issue of its family."""

    def __init__(self, question: Question, corrected: frozenset[str]) -> None:
        self.question, self.corrected = question, corrected
        self.workload, self.system = question.workload, question.system
        self.all_to_all, self.all_reduce = self.system.rates(question.gpus)
        self.streams = _Streams()
        q, w = question, question.workload
        self.bottom = w.units("bottom", q.mlp, q.mlp_batch)
        self.top = w.units("top", q.mlp, q.mlp_batch)
        self.attention = w.units("attention", q.transformer, q.transformer_batch)
        self.ffn = w.units("ffn", q.transformer, q.transformer_batch)
        shards = product(q.embedding, ("tp", "fsdp", "mp"))
        self.looked_up_bytes = w.lookup_bytes * q.embedding_batch / shards

    @staticmethod
    def rate(rates: list[float], level: int, mesh: Mesh) -> float:
        return rates[level - len(mesh)]  # a single level spans the nodes: the last rate

    # ------------------------------------------------------------------------------- operations
    def compute(self, unit: Unit, *after: Name | None, backward: bool = False) -> None:
        flop = unit.flop * unit.batch / unit.tensor_parallel
        if backward:
            held = "frozen_backward" in self.corrected and not self.trained(unit)
            flop *= 1 if held else BACKWARD_OVER_FORWARD
        peak = self.system.flop_per_s[self.workload.parameter_bytes] * FLOP_UTILISATION
        self.streams.add("gemm", ("C", unit.part, unit.index), flop / peak, after)

    def gather(self, unit: Unit, *after: Name | None, always: bool = False) -> None:
        if "only_sharded_gathers" in self.corrected:
            always = False
        if unit.gathers or always:
            size = unit.weight_bytes / unit.sharded * unit.mesh[0][1]
            rate = 2 * self.rate(self.all_reduce, 0, unit.mesh)
            self.streams.add("all_gather", ("AG", unit.part, unit.index), size / rate, after)

    def reduce(self, unit: Unit, level: int, mesh: Mesh | None = None) -> None:
        """The all-reduce of a tensor-parallel layer's output or input gradient."""
        size = unit.batch * unit.activation_bytes
        rate = self.rate(self.all_reduce, level, mesh or unit.mesh)
        if "shared_adapters" in self.corrected and level == 1:
            nodes = unit.mesh[1][1]
            rate /= self.system.gpus_per_node * (nodes - 1) / nodes
        name, wait = ("TP", unit.part, unit.index), ("C", unit.part, unit.index)
        self.streams.add("all_reduce", name, size / rate, [wait])

    def exchange(self, unit: Unit, name: str, *after: Name) -> None:
        """One of the two all-to-alls of an expert layer, only with tensor parallelism."""
        for level, (parallelism, degree) in enumerate(unit.mesh):
            if unit.experts and parallelism == "tp":
                size = unit.batch * unit.activation_bytes / unit.experts
                if "expert_exchange" in self.corrected:
                    # Each rank of the group owns its share of the tokens.
                    size *= unit.experts * unit.active_experts / degree * (degree - 1) / degree
                rate = self.rate(self.all_to_all, level, unit.mesh)
                self.streams.add("all_to_all", (name, unit.part, unit.index), size / rate, after)

    def after_forward(self, unit: Unit, *, reduces: bool = True) -> None:
        for level, (parallelism, _) in enumerate(unit.mesh):
            if parallelism == "tp" and reduces:
                self.reduce(unit, level)
        self.exchange(unit, "A2A2", ("C", unit.part, unit.index))

    def after_backward(
        self, unit: Unit, *, reduces: bool = True, rate_of: Mesh | None = None
    ) -> None:
        """Gradient collectives and the tensor-parallel reduction, innermost level first."""
        left, wait = unit.sharded, [("C", unit.part, unit.index)]
        for level, (parallelism, degree) in enumerate(unit.mesh):
            if parallelism == "ddp" and self.trained(unit):
                rate = self.rate(self.all_reduce, level, unit.mesh)
                name = ("gradient", unit.part, unit.index)
                self.streams.add("all_reduce", name, unit.weight_bytes / left / rate, wait)
            elif parallelism == "fsdp":
                left //= degree
                if self.trained(unit):
                    rate = 2 * self.rate(self.all_reduce, 0, unit.mesh)
                    name = ("gradient", unit.part, unit.index)
                    self.streams.add("reduce_scatter", name, unit.weight_bytes / left / rate, wait)
            elif parallelism == "tp":
                left //= degree
                if reduces:
                    self.reduce(unit, level, rate_of)
                self.exchange(unit, "A2A2", ("C", unit.part, unit.index))

    def trained(self, unit: Unit) -> bool:
        freeze = self.question.freeze
        if unit.part == "top":
            return not freeze.get("freeze_top_mlp")
        if unit.part == "bottom":
            return not freeze.get("freeze_bot_mlp")
        first_frozen = freeze.get("min_frozen_layer", math.inf)
        return not freeze.get("freeze_transformer") and unit.index < first_frozen

    # --------------------------------------------------------------------------------- embedding
    def lookup(self, *after: Name, backward: bool = False) -> None:
        seconds = self.looked_up_bytes / (self.system.memory_bytes_per_s * MEMORY_UTILISATION)
        if backward and "embedding_update" in self.corrected:
            seconds *= 2  # rows are read, changed and written
        self.streams.add("lookup", ("C", "embedding", 0), seconds, after)

    def embedding_collectives(self, *after: Name, backward: bool = False) -> None:
        q, w = self.question, self.workload
        for level, (parallelism, degree) in enumerate(q.embedding):
            if parallelism == "mp":
                size = 2 * self.looked_up_bytes / degree
                if "pooled_exchange" in self.corrected and w.tables:
                    pooled = w.tables * w.dim * w.embedding_bytes
                    size = pooled * q.embedding_batch / degree * (degree - 1) / degree
                kind, rates = "all_to_all", self.all_to_all
            elif backward and (
                q.embedding[0][0] == "ddp" or "embedding_replicas" in self.corrected
            ):
                kind, rates, size = "all_reduce", self.all_reduce, self.looked_up_bytes
            else:
                continue
            rate = self.rate(rates, level, q.embedding)
            self.streams.add(kind, EMBEDDING_COLLECTIVE, size / rate, after)

    # ----------------------------------------------------------------------------------- forward
    def mlp_forward(self, units: list[Unit], first: list[Name], gathers: list[Name]) -> None:
        part = units[0].part
        for unit in units:
            i = unit.index
            if i < 2:
                self.gather(unit, *gathers[i : i + 1])
            else:
                self.gather(unit, ("C", part, i - 2))
            self.exchange(unit, "A2A1")
            before = first if i == 0 else [("TP", part, i - 1)]
            self.compute(unit, ("AG", part, i), ("A2A1", part, i), *before)
            self.after_forward(unit, reduces=i % 2 == 1)

    def blocks_forward(self, first: list[Name], gathers: list[Name]) -> None:
        for attention, ffn in zip(self.attention, self.ffn, strict=True):
            i = attention.index
            waits = [("C", "attention", i - 1)] if i else gathers[:1]
            self.gather(attention, *waits)
            before = [("TP", "ffn", i - 1), ("A2A2", "ffn", i - 1)] if i else first
            self.compute(attention, ("AG", "attention", i), *before)
            self.after_forward(attention)
            self.gather(ffn, *([("C", "ffn", i - 1)] if i else gathers[1:]))
            self.exchange(ffn, "A2A1")
            waits = [("AG", "ffn", i), ("TP", "attention", i), ("A2A1", "ffn", i)]
            self.compute(ffn, *waits)
            self.after_forward(ffn)

    def forward(self) -> None:
        self.lookup()
        self.embedding_collectives(("C", "embedding", 0))
        embedded = [EMBEDDING_COLLECTIVE]
        if not self.bottom:
            self.blocks_forward(embedded, [])
            return
        self.mlp_forward(self.bottom, [], [])
        last = len(self.bottom) - 1
        ends: list[Name] = [("C", "bottom", last - 1), ("C", "bottom", last)]
        embedded.append(("TP", "bottom", last))
        if self.attention:
            self.blocks_forward(embedded, ends)
            last = len(self.attention) - 1
            ends, embedded = [("C", "attention", last), ("C", "ffn", last)], [("TP", "ffn", last)]
        self.mlp_forward(self.top, embedded, ends)

    # ---------------------------------------------------------------------------------- backward
    def mlp_backward(
        self, units: list[Unit], first: list[Name], gathers: list[Name], rate_of: Mesh | None
    ) -> None:
        part, last = units[0].part, len(units) - 1
        for unit in reversed(units):
            i = unit.index
            if last - i < 2:
                self.gather(unit, *gathers[last - i : last - i + 1])
            else:
                self.gather(unit, ("C", part, i + 2))
            self.exchange(unit, "A2A1")
            before = first if i == last else [("TP", part, i + 1)]
            self.compute(unit, ("AG", part, i), ("A2A1", part, i), *before, backward=True)
            self.after_backward(unit, reduces=i % 2 == 0, rate_of=rate_of)

    def blocks_backward(self, first: list[Name], gathers: list[Name]) -> None:
        """Blocks from the last to the first; ``gathers`` are the waits of the first two."""
        early, last = self.question.prefetch_all, len(self.ffn) - 1
        between = bool(self.bottom)
        wrong = between and "named_waits" not in self.corrected
        if early:
            self.gather(self.ffn[-1], always=True)
        for attention, ffn in zip(reversed(self.attention), reversed(self.ffn), strict=True):
            i = ffn.index
            if early:
                self.gather(attention)
            else:
                self.gather(ffn, *([("C", "ffn", i + 1)] if i < last else gathers[:1]))
            self.exchange(ffn, "A2A1")
            before = [("TP", "attention", i + 1)] if i < last else first
            waits = [("AG", "ffn", i), ("A2A1", "ffn", i), *before]
            self.compute(ffn, *waits, backward=True)
            self.after_backward(ffn)
            if not early:
                waits = [("C", "attention", i + 1)] if i < last else gathers[1:]
                self.gather(attention, *waits)
            elif i:
                self.gather(self.ffn[i - 1])
            waits = [("AG", "attention", i), ("A2A2", "ffn", i)]
            waits.append(("TP", "ffn", i + 1 if wrong else i))
            self.compute(attention, *waits, backward=True)
            self.after_backward(attention, rate_of=self.question.mlp if between else None)

    def backward(self) -> None:
        freeze, q = self.question.freeze, self.question
        ends: list[Name] = []
        entry: list[Name] = []
        if self.top:
            self.mlp_backward(self.top, [], [], q.transformer or None)
            entry = [("TP", "top", 0), ("A2A2", "top", 0)]
            ends = [("C", "top", 1), ("C", "top", 0)]
        if self.attention:
            self.blocks_backward(entry, ends)
        whole = not freeze.get("freeze_emb")
        first_layer = ("C", "attention" if self.attention else "top", 0)
        if whole:
            self.embedding_collectives(first_layer, backward=True)
        if self.bottom and not freeze.get("freeze_bot_mlp"):
            gathers = [("C", "ffn", 0), ("C", "top", 0)] if self.attention else []
            if self.attention and "named_waits" in self.corrected:
                entry = [("TP", "attention", 0)]
            self.mlp_backward(self.bottom, entry, gathers, None)
        if whole:
            self.lookup(EMBEDDING_COLLECTIVE, backward=True)

    # ------------------------------------------------------------------------------------ result
    def result(self) -> Result:
        self.forward()
        forward_s = self.streams.barrier()
        if self.question.task != "inference":
            self.backward()
        w, q = self.workload, self.question
        shards = product(q.embedding, ("tp", "fsdp", "mp"))
        held = {"embedding": w.embedding_parameters * w.embedding_bytes / shards}
        for group, units in (
            ("mlp", self.bottom + self.top),
            ("transformer", self.attention + self.ffn),
        ):
            held[group] = sum(unit.weight_bytes / unit.sharded for unit in units)
        dense = self.bottom + self.top + self.attention + self.ffn
        return Result(
            step_s=self.streams.barrier(),
            forward_s=forward_s,
            sums_s={kind: self.streams.sums[kind] for kind in KINDS},
            operations=self.streams.operations,
            weights_bytes=held,
            lookup_bytes=self.looked_up_bytes,
            local_flop=sum(unit.flop * unit.batch / unit.tensor_parallel for unit in dense),
        )


KINDS = ("gemm", "lookup", "all_to_all", "all_reduce", "all_gather", "reduce_scatter")


def step(question: Question, corrected: Iterable[str] = ()) -> Result:
    """One step by the original's formulas, those named in ``corrected`` (`CORRECTIONS`) mended."""
    return _Step(question, frozenset(corrected)).result()
