"""Published runs of recommendation and vision models: a row becomes a question of layer groups.

The row names a composed model of the catalogue; its tables are spread as its software does it, its
layers replicated or sharded as the row says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.layer_groups import GroupEstimate, GroupStrategy, compose
from scalemodel.resolve.stack_choice import stack_for, unstated
from scalemodel.resolve.tasks import Precision, Training
from scalemodel.validation.place import Place, cluster_of, place
from scalemodel.validation.recomputation import recomputation
from scalemodel.validation.rows import Row, SkippedRowError
from scalemodel.validation.sharding_text import sharding_name
from scalemodel.validation.training import fill_batch, precisions

if TYPE_CHECKING:
    import scalemodel._core as _core

    Prefetch = Literal["none", "one", "unlimited"]
    Buckets = Literal["unit", "group"]

#: Parallelism of layers by the name of their sharding.
_LAYERS = {"ddp": "ddp", "zero1": "zero1", "zero2": "zero1", "zero3": "fsdp", "hsdp": "fsdp"}


@dataclass(frozen=True)
class GroupQuestion:
    """A row as a question of layer groups; equal questions get equal answers.

    ``precisions`` and ``recomputations`` list what to try in turn where the row leaves a choice.
    ``tokens`` are those of a sample, 0 for the model's own.
    """

    model: str
    place: Place
    global_batch: int
    micro_batches: int
    tables: str
    layers: str
    prefetch: Prefetch
    buckets: Buckets
    stack: str
    precisions: tuple[Precision, ...]
    recomputations: tuple[bool, ...]
    notes: tuple[str, ...]
    tokens: int = 0


def _tokens(row: Row) -> int:
    """Tokens of a sample of a diffusion transformer, whose latents are a sequence; else 0."""
    diffusion = re.search(r"diffusion", row.text("task").lower())
    return (row.count("seq_len") or 0) if diffusion else 0


def _model(row: Row) -> str:
    name = row.text("model")
    if not re.search(r"train", row.text("task").lower() or "train"):
        raise SkippedRowError("unsupported:task")
    try:
        return catalog.find("composed", name)
    except ScaleModelError:
        raise SkippedRowError(f"unknown_architecture:{name}" if name else "missing:model") from None


def _tables(text: str) -> str:
    """Parallelism of embedding tables as the sharding column prints it."""
    for name, pattern in (
        ("row_wise", r"row"),
        ("column_wise", r"column"),
        ("hybrid", r"hybrid|model.?parallel"),
        ("table_wise", r"table"),
        ("ddp", r"\bddp\b|data.?parallel|replicat"),
    ):
        if re.search(pattern, text):
            return name
    return "hybrid"


def _layers(row: Row, ranks: int, node: int) -> str:
    """Parallelism of all other layers: what tensor and context ranks leave is data-parallel."""
    tp, cp = (row.count(degree) or 1 for degree in ("tp", "cp"))
    if (row.count("pp") or 1) > 1:
        raise SkippedRowError("unsupported:mesh")
    if ranks % (tp * cp):
        raise SkippedRowError("illegal:mesh")
    inner = [f"{name}@{degree}" for name, degree in (("tp", tp), ("cp", cp)) if degree > 1]
    text = row.text("sharding").lower()
    return "+".join([*inner, _replicated(text, ranks // (tp * cp), max(1, node // (tp * cp)))])


def _replicated(text: str, ranks: int, node: int) -> str:
    # What a text says of tables is not said of layers.
    own = re.sub(r"(embeddings?|tables?)[^,;]*[,;]?|hybrid", "", text)
    name = _LAYERS[sharding_name(own)]
    if sharding_name(own) == "hsdp" and ranks > node:
        return f"fsdp@{node}+ddp@{ranks // node}"
    return f"{name}@{ranks}"


def question(row: Row, *, stack: str | None = None) -> GroupQuestion:
    """The question of one row.

    Raises
    ------
    SkippedRowError
        The row lacks something needed or asks for something outside the model; the text of the
        exception is the skip reason.
    """
    notes: list[str] = []
    model = _model(row)
    where = place(row, notes)
    ranks = where.accelerators
    year = row.number("year")
    name = stack or stack_for(
        row.text("framework"), None if year is None else round(year), row.text("task")
    )
    layers = _layers(row, ranks, where.node_accelerators)
    replicas = ranks // math.prod(row.count(degree) or 1 for degree in ("tp", "cp"))
    micro_batch = row.count("micro_batch") or -(-row.required_count("global_batch") // replicas)
    batch = fill_batch(row, micro_batch, replicas, notes)
    text = row.text("sharding").lower()
    habits: Mapping[str, object] = unstated(name)
    prefetch = cast("Prefetch", habits.get("prefetch", "one"))
    if re.search(r"\bnone\b|\bno\b", row.text("overlap").lower()):
        prefetch = "none"
    found, _ = recomputation(row, notes)
    return GroupQuestion(
        model=model,
        place=where,
        global_batch=batch,
        micro_batches=batch // (micro_batch * replicas),
        tables=f"{_tables(text)}@{ranks}",
        layers=layers,
        prefetch=prefetch,
        buckets=cast("Buckets", habits.get("buckets", "unit")),
        stack=name,
        precisions=precisions(row, notes),
        recomputations=tuple(dict.fromkeys(kind == "full" for kind in found)),
        notes=tuple(notes),
        tokens=_tokens(row),
    )


@catalog.kept(512)
def answer(asked: GroupQuestion, constants: _core.Stack | None = None) -> tuple[GroupEstimate, str]:
    """The lightest step of a question that fits, else the last, and what was assumed.

    Raises
    ------
    SkippedRowError
        The engine refuses; the text of the exception is the skip reason.
    """
    refusal = "unsupported:dtype"
    for precision in asked.precisions:
        try:
            estimates = [
                _estimate(asked, precision, recompute, constants)
                for recompute in asked.recomputations
            ]
        except SkippedRowError as skipped:
            refusal = str(skipped)
            if "precision" in refusal:
                continue
            break
        chosen = next((e for e in estimates if e.verdict == "ok"), estimates[-1])
        notes = list(asked.notes)
        if len(asked.recomputations) > 1:
            kind = "full" if chosen.strategy.recompute else "none"
            fits = "lightest that fits" if chosen.verdict == "ok" else "none fits"
            notes.append(f"recompute {kind} assumed: {fits}")
        return chosen, "; ".join(notes)
    raise SkippedRowError(refusal)


def _estimate(
    asked: GroupQuestion, precision: Precision, recompute: bool, constants: _core.Stack | None
) -> GroupEstimate:
    from scalemodel.layer_groups.estimate import estimate_groups

    model = compose(asked.model)
    try:
        found = estimate_groups(
            model.with_tokens(asked.tokens) if asked.tokens else model,
            cluster_of(asked.place),
            Training(global_batch=asked.global_batch, sequence=1, precision=precision),
            GroupStrategy(
                {"embedding": asked.tables, "*": asked.layers},
                micro_batches=asked.micro_batches,
                prefetch=asked.prefetch,
                buckets=asked.buckets,
                recompute=recompute,
            ),
            constants or asked.stack,
            None,
        )
    except ScaleModelError as error:
        raise SkippedRowError(f"illegal:{error.code}") from None
    if found.illegal:
        raise SkippedRowError(found.verdict)
    return found
