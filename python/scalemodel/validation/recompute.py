"""Published pairs of training runs that differ in what is recomputed or offloaded.

Rows of one ``group`` are one run with different modules; the first of a group that repeats the
fewest is what the others are compared with. Batches and virtual stages that a row does not state
are those of its group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from scalemodel.validation.prediction import Predictor
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns
from scalemodel.validation.training import INPUT_COLUMNS, Question, question

OUTPUT_COLUMNS = (
    *("predicted_step_time_s", "predicted_memory_gb", "predicted_memory_change_gb"),
    *("predicted_memory_change_pct", "predicted_time_change_pct", "predicted_note", "skip_reason"),
)
REQUIRED_COLUMNS = ("model", "n_gpus", "recompute_modules", "group")
#: What a run keeps from the one that it is a variant of.
_KEPT_COLUMNS = ("micro_batch", "global_batch", "vpp")
_INPUT_COLUMNS = (
    *("source", "date", "model", "task", "gpu", "n_gpus", "gpus_per_node", "precision", "seq_len"),
    *("micro_batch", "global_batch", "tp", "pp", "vpp", "dp", "ep", "cp"),
    *("recompute_modules", "offload", "group", "framework", "other_flags", "memory_kind"),
)
#: What a source trained with where the row does not say, by a word of its name.
_FRAMEWORKS = (("primus", "Primus (Megatron-LM)"), ("", "Megatron-Bridge main"))
#: Where a row of memory alone names no accelerator: it hardly matters, and this one holds it.
_LARGEST_ACCELERATOR = "GB300"
_MICRO_BATCHES = 16  # of each replica where a row does not say: enough to fill a pipeline


class Prediction(NamedTuple):
    """What a row would show: changes are those against the first row of its group."""

    step_time_s: float | None = None
    memory_gb: float | None = None
    memory_change_gb: float | None = None
    memory_change_pct: float | None = None
    time_change_pct: float | None = None
    note: str = ""
    skip_reason: str = ""


class _Step(NamedTuple):
    step_time_s: float
    memory_gb: float
    note: str


def _modules(row: Row) -> str:
    """The row's modules as training runs state them."""
    text = row.text("recompute_modules").lower()
    if not text or text.startswith("none"):
        return "none"
    if text.startswith("full"):
        return "full"
    return f"modules: {text}"


def _as_run(row: Row) -> tuple[Row, list[str]]:
    """The row with the columns of a training run, and what was assumed."""
    notes = []
    cells = {name: row.text(name) for name in _INPUT_COLUMNS}
    framework = next(name for word, name in _FRAMEWORKS if word in cells["source"].lower())
    cells |= {
        "framework": cells["framework"] or framework,
        "recompute": _modules(row),
        "sharding": "distributed optimizer" if _replicas(row) > 1 else "none",
    }
    year = re.search(r"\b(20\d\d)\b", cells["date"])
    cells["year"] = year[1] if year else ""
    if not cells["gpu"]:
        cells["gpu"] = _LARGEST_ACCELERATOR
        notes.append(f"accelerator {_LARGEST_ACCELERATOR} assumed")
    if not cells["micro_batch"]:
        cells["micro_batch"] = "1"
        notes.append("micro_batch 1 assumed")
    if not cells["global_batch"]:
        replicas = _replicas(row)
        cells["global_batch"] = str(_MICRO_BATCHES * replicas)
        notes.append(f"{_MICRO_BATCHES} micro-batches assumed")
    if re.search(r"activation|fine.?grained|layer", cells["offload"].lower()):
        cells["recompute"] += ", offload"
    return Row({name: cells.get(name, "") for name in INPUT_COLUMNS}), notes


def _replicas(row: Row) -> int:
    ranks = row.required_count("n_gpus")
    for name in ("tp", "pp", "cp"):
        ranks //= row.count(name) or 1
    return max(1, ranks)


def _variants(rows: list[Row]) -> Iterator[Row]:
    """Rows that say what their group's first rows say where they are silent."""
    stated: dict[tuple[str, str], str] = {}
    for row in rows:
        cells = {name: row.text(name) for name in _INPUT_COLUMNS}
        for name in _KEPT_COLUMNS:
            key = (cells["group"], name)
            cells[name] = cells[name] or stated.get(key, "")
            stated.setdefault(key, cells[name])
        yield Row(cells)


def _asked(row: Row, run: Row) -> Question:
    """The question of a row; an estimate of what an accelerator needs is that of the fullest."""
    asked = question(run)
    kind = row.text("memory_kind").lower()
    facts = dict(asked.facts)
    if re.search(r"estimate|saving", kind):
        facts["memory_report"] = "allocated"
    if "saving" in kind:
        # Yan et al., arXiv 2603.07685, section 4: router weights inside the activation are another
        # saving (26.3 of 199.5 GB), which the need before any saving is without.
        facts["weighted_activation"] = False
    if facts != dict(asked.facts):
        asked = replace(asked, facts=tuple(sorted(facts.items())))
    return asked


def _step(row: Row, predictor: Predictor) -> _Step:
    if re.search(r"optimi[sz]er", row.text("offload").lower()):
        raise SkippedRowError("unsupported:offload")
    run, notes = _as_run(row)
    answer = predictor.predict(_asked(row, run))
    if answer.step_time_s is None or answer.memory_gb is None:
        raise SkippedRowError(answer.skip_reason)
    note = "; ".join((*notes, *filter(None, (answer.note,))))
    return _Step(answer.step_time_s, answer.memory_gb, note)


def _beside(step: _Step, base: _Step) -> Prediction:
    more = step.memory_gb - base.memory_gb
    return Prediction(
        step_time_s=step.step_time_s,
        memory_gb=step.memory_gb,
        memory_change_gb=more,
        memory_change_pct=100 * more / base.memory_gb,
        time_change_pct=100 * (step.step_time_s / base.step_time_s - 1),
        note=step.note,
    )


def _predicted(rows: list[Row]) -> Iterator[Prediction]:
    predictor = Predictor()
    bases: dict[str, _Step] = {}
    for row in _variants(rows):
        try:
            step = _step(row, predictor)
        except SkippedRowError as skipped:
            yield Prediction(skip_reason=str(skipped))
            continue
        yield _beside(step, bases.setdefault(row.text("group"), step))


def predict(table: Table) -> list[Prediction]:
    """One prediction per row of a table of kind ``recompute``, in order.

    Raises
    ------
    ScaleModelError
        The table lacks a column that every row would need. Nothing in a row raises.
    """
    needed = ", ".join(REQUIRED_COLUMNS)
    require_columns(table, REQUIRED_COLUMNS, f"kind 'recompute' needs {needed}")
    return list(_predicted(table.select(_INPUT_COLUMNS)))
