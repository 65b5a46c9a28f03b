"""Errors of predicted watts: per source or task and accelerator, and pooled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.validation.errors import (
    GroupErrors,
    cells_of,
    columns,
    error_lines,
    grouped,
    percent,
    positive,
    share_text,
    without_nan,
)
from scalemodel.validation.power import is_serving

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PowerScores:
    """All scores of a validated table of power; `text` prints them."""

    groups: list[GroupErrors]
    pooled: GroupErrors
    worst: list[tuple[str, float, float]]
    rows: int
    rows_predicted: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        return {name: without_nan(value) for name, value in asdict(self).items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of errors by name, all with the same columns."""
        document = self.to_dict()
        return {"groups": document["groups"], "pooled": [document["pooled"]]}

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        lines = error_lines([*self.groups, self.pooled], ("rows", "gpu"), ranked=False)
        lines += ["", f"coverage: {share_text(self.rows_predicted, self.rows)}"]
        far = [
            [label, f"{measured:.0f}", f"{predicted:.0f}", percent(predicted / measured - 1)]
            for label, measured, predicted in self.worst
        ]
        if far:
            lines += ["", *columns(("farthest off", "W", "predicted W", "error %"), far, texts=1)]
        return "\n".join(lines)


def _pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, str, float, float | None]]:
    """Group, accelerator, name, measured and predicted watts of every measured row."""
    if not is_serving(list(frame.columns)):
        yield from _training_pairs(frame)
        return
    # The package's tables of both kinds may follow one another.
    serves = frame["avg_batch"].astype(str) != ""
    if "workload" in frame.columns:
        yield from _training_pairs(frame[~serves])
    names = ("task", "gpu", "model", "power_W_per_gpu", "predicted_power_w_per_gpu")
    for task, gpu, model, measured, predicted in zip(
        *(cells_of(frame[serves], name) for name in names), strict=True
    ):
        watts = positive(measured)
        if watts is not None:
            yield str(task), str(gpu), str(model), watts, positive(predicted)


def _training_pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, str, float, float | None]]:
    columns_read = (
        "workload",
        "accelerator",
        "nodes",
        "mean_node_W_during_run",
        "mean_W_per_accel_all_in",
        "predicted_node_power_w",
        "predicted_power_w_per_gpu",
    )
    for workload, gpu, nodes, node, single, node_predicted, predicted in zip(
        *(cells_of(frame, name) for name in columns_read), strict=True
    ):
        name = f"{workload}, {nodes} nodes"
        at_node = positive(node)
        if at_node is not None:
            yield str(workload), str(gpu), name, at_node, positive(node_predicted)
            continue
        alone = "gpu only" in str(single).lower() or "idle" in str(workload).lower()
        watts = positive(single) if alone else None
        if watts is not None:
            yield f"{workload} (GPU)", str(gpu), name, watts, positive(predicted)


def score(frame: pd.DataFrame) -> PowerScores:
    """Compare the watts of `validate` with those beside them.

    Runs that serve are grouped by task and accelerator; nodes that train by workload, and by the
    plugs of the node or, where only they were measured, the accelerators alone.
    """
    pairs = list(_pairs(frame))
    named = [(name, watts, found) for _, _, name, watts, found in pairs if found is not None]
    named.sort(key=lambda item: -abs(item[2] / item[1] - 1))
    return PowerScores(
        groups=[
            GroupErrors.of(*labels, [pair[3:] for pair in group], ranked=False)
            for labels, group in grouped(pairs, lambda pair: pair[:2]).items()
        ],
        pooled=GroupErrors.of("all measured rows", "", [pair[3:] for pair in pairs], ranked=False),
        worst=named[:5],
        rows=len(frame),
        rows_predicted=sum(
            positive(value) is not None for value in cells_of(frame, "predicted_power_w_per_gpu")
        ),
    )
