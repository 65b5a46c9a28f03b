"""Errors of predicted watts: per source or task and accelerator, and pooled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.validation.errors import columns, percent, summarised, without_nan
from scalemodel.validation.power import is_serving
from scalemodel.validation.rows import number_in

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PowerErrors:
    """Errors of one group of rows; fractions, NaN where nothing was predicted."""

    label: str
    gpu: str
    rows: int
    predicted: int
    mape_fraction: float
    bias_fraction: float
    mean_error_fraction: float
    p90_fraction: float


@dataclass(frozen=True)
class PowerScores:
    """All scores of a validated table of power; `text` prints them."""

    groups: list[PowerErrors]
    pooled: PowerErrors
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
        titles = ("n", "predicted", "MAPE %", "bias %", "mean %", "P90 %")
        cells = [
            [
                row.label,
                row.gpu,
                str(row.rows),
                str(row.predicted),
                percent(row.mape_fraction),
                percent(row.bias_fraction),
                percent(row.mean_error_fraction),
                percent(row.p90_fraction),
            ]
            for row in (*self.groups, self.pooled)
        ]
        lines = columns(("rows", "gpu", *titles), cells, texts=2)
        lines += ["", f"coverage: {self.rows_predicted} of {self.rows} rows"]
        far = [
            [label, f"{measured:.0f}", f"{predicted:.0f}", percent(predicted / measured - 1)]
            for label, measured, predicted in self.worst
        ]
        if far:
            lines += ["", *columns(("farthest off", "W", "predicted W", "error %"), far, texts=1)]
        return "\n".join(lines)


def _cells(frame: pd.DataFrame, name: str) -> list[Any]:
    if name not in frame.columns:
        return [""] * len(frame)
    return ["" if item != item else item for item in frame[name].astype(object).tolist()]


def _number(value: object) -> float | None:
    number = number_in(value) if isinstance(value, str) else value
    return float(number) if isinstance(number, (int, float)) and number > 0 else None


def _pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, str, float, float | None]]:
    """Group, accelerator, name, measured and predicted watts of every measured row."""
    if is_serving(list(frame.columns)):
        names = ("task", "gpu", "model", "power_W_per_gpu", "predicted_power_w_per_gpu")
        for task, gpu, model, measured, predicted in zip(
            *(_cells(frame, name) for name in names), strict=True
        ):
            watts = _number(measured)
            if watts is not None:
                yield str(task), str(gpu), str(model), watts, _number(predicted)
        return
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
        *(_cells(frame, name) for name in columns_read), strict=True
    ):
        name = f"{workload}, {nodes} nodes"
        at_node = _number(node)
        if at_node is not None:
            yield str(workload), str(gpu), name, at_node, _number(node_predicted)
            continue
        alone = "gpu only" in str(single).lower() or "idle" in str(workload).lower()
        watts = _number(single) if alone else None
        if watts is not None:
            yield f"{workload} (GPU)", str(gpu), name, watts, _number(predicted)


def _errors(label: str, gpu: str, pairs: list[tuple[float, float | None]]) -> PowerErrors:
    found = [predicted / measured - 1 for measured, predicted in pairs if predicted is not None]
    return PowerErrors(label, gpu, len(pairs), len(found), **summarised(found)._asdict())


def score(frame: pd.DataFrame) -> PowerScores:
    """Compare the watts of `validate` with those beside them.

    Runs that serve are grouped by task and accelerator; nodes that train by workload, and by the
    plugs of the node or, where only they were measured, the accelerators alone.
    """
    groups: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    everything: list[tuple[float, float | None]] = []
    named: list[tuple[str, float, float]] = []
    for label, gpu, name, measured, predicted in _pairs(frame):
        groups.setdefault((label, gpu), []).append((measured, predicted))
        everything.append((measured, predicted))
        if predicted is not None:
            named.append((name, measured, predicted))
    named.sort(key=lambda item: -abs(item[2] / item[1] - 1))
    return PowerScores(
        groups=[_errors(*labels, groups[labels]) for labels in sorted(groups)],
        pooled=_errors("all measured rows", "", everything),
        worst=named[:5],
        rows=len(frame),
        rows_predicted=sum(
            _number(value) is not None for value in _cells(frame, "predicted_power_w_per_gpu")
        ),
    )
