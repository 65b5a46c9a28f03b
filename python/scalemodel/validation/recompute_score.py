"""Errors of predicted changes of memory and time by recomputation, in points of the run's own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.validation.errors import cells_of, positive, share_text, without_nan
from scalemodel.validation.rows import number_in

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PointErrors:
    """Predicted less measured changes of one group and quantity, in points of a percent."""

    group: str
    quantity: str
    rows: int
    mean_points: float
    worst_points: float
    bias_points: float

    @staticmethod
    def of(group: str, quantity: str, errors: list[float]) -> PointErrors:
        """Errors of a group with at least one row."""
        worst = max(errors, key=abs)
        size = sum(map(abs, errors)) / len(errors)
        return PointErrors(group, quantity, len(errors), size, worst, sum(errors) / len(errors))


@dataclass(frozen=True)
class RecomputeScores:
    """All scores of a table of kind recompute; `text` prints them."""

    groups: list[PointErrors]
    rows: int
    rows_predicted: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        return {name: without_nan(value) for name, value in asdict(self).items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The table of errors by name."""
        return {"groups": self.to_dict()["groups"]}

    def text(self) -> str:
        """Tables for a terminal; points of a percent."""
        head = f"{'group':16s} {'change of':10s} {'n':>3s} {'mean':>6s} {'worst':>6s} {'bias':>6s}"
        lines = [
            f"{e.group:16s} {e.quantity:10s} {e.rows:3d} {e.mean_points:6.1f} "
            f"{e.worst_points:+6.1f} {e.bias_points:+6.1f}"
            for e in self.groups
        ]
        coverage = f"coverage: {share_text(self.rows_predicted, self.rows)}"
        return "\n".join([head, *lines, "", coverage])


def _measured(
    frame: pd.DataFrame,
) -> Iterator[tuple[str, str, float, float, bool]]:
    """Group, quantity, measured and predicted value, whether it is a difference already."""
    names = ("group", "status", "memory_kind", "memory_GB", "step_time_ms", "tflops_per_gpu")
    blank = [""] * len(frame)
    columns = [cells_of(frame, name) if name in frame.columns else blank for name in names]
    found = [frame["predicted_memory_gb"], frame["predicted_step_time_s"]]
    for group, status, kind, memory, step, rate, memory_found, step_found in zip(
        *columns, *found, strict=True
    ):
        if not positive(step_found):
            continue
        value = number_in(str(memory))
        # What a run held when it failed is no peak.
        if value is not None and str(status).lower() in ("", "ok"):
            yield str(group), "memory", value, float(memory_found), "saving" in str(kind)
        time = positive(step) or (1 / rate if (rate := positive(rate)) else None)
        if time is not None:
            yield str(group), "time", time, float(step_found), False


def score(frame: pd.DataFrame) -> RecomputeScores:
    """Compare the changes of `validate` with those measured, group by group."""
    bases: dict[tuple[str, str], tuple[float, float]] = {}
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for group, quantity, measured, predicted, difference in _measured(frame):
        key = (group, quantity)
        if key not in bases:
            bases[key] = (measured, predicted)
            continue
        base, base_found = bases[key]
        change = measured / base if difference else measured / base - 1
        errors[key].append(100 * (predicted / base_found - 1 - change))
    return RecomputeScores(
        groups=[PointErrors.of(*key, listed) for key, listed in errors.items()],
        rows=len(frame),
        rows_predicted=sum(cell == "" for cell in cells_of(frame, "skip_reason")),
    )
