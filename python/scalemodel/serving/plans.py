"""Serving plans that hold their limits, as a table."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.limits import LIMITS, METRICS
from scalemodel.serving.serve import Serving
from scalemodel.serving.verdicts import layout_text

if TYPE_CHECKING:
    import pandas as pd

#: Degrees of a layout, as columns.
DEGREES = ("tp", "pp", "ep", "dp", "cp")
_SHOWN = 20  # rows of a table for people


def _milliseconds(value: float | None) -> str:
    return "-" if value is None or value != value else f"{1e3 * value:,.3g}"


def _times(row: Mapping[str, Any], metric: str, percents: Sequence[int]) -> str:
    """The mean of a metric and its percentiles, in milliseconds."""
    names = [f"{metric}_s", *(f"{metric}_p{percent}_s" for percent in percents)]
    return " / ".join(_milliseconds(row.get(name)) for name in names)


def table_cells(
    rows: Sequence[Mapping[str, Any]], limits: Mapping[str, float], first: Sequence[str] = ()
) -> list[list[str]]:
    """Header and rows of the table of serving plans for people.

    Parameters
    ----------
    rows : sequence of mapping
        engine, replicas, layout, times by the names of limits, requests_per_s, accelerators,
        usd_per_million_output_tokens, binds, and what `first` names.
    limits : mapping
        The limits that were asked for: they decide the percentiles that are shown.
    first : sequence of str
        Columns to begin with.
    """
    percents = {
        metric: sorted(
            {p for name, p in LIMITS.items() if p[0] == metric and name in limits and p[1]}
        )
        for metric in METRICS
    }
    asked = {metric: [percent for _, percent in found] for metric, found in percents.items()}
    shown = {metric: asked[metric] or [99] for metric in ("ttft", "tpot")}
    if any(LIMITS[name][0] == "e2e" for name in limits):
        shown["e2e"] = asked["e2e"]
    header = [*first, "engine", "replicas", "layout"]
    for metric, found in shown.items():
        header.append(f"{metric.upper()} " + "/".join(["mean", *(f"p{p}" for p in found)]) + " ms")
    header += ["requests/s", "GPUs", "USD/M tokens", "binds"]
    cells = [header]
    for row in rows[:_SHOWN]:
        cost = row.get("usd_per_million_output_tokens")
        cells.append(
            [
                *(str(row[name]) for name in first),
                str(row["engine"]),
                str(row["replicas"]),
                str(row["layout"]),
                *(_times(row, metric, found) for metric, found in shown.items()),
                f"{row['requests_per_s']:,.4g}" if row["requests_per_s"] is not None else "-",
                "-" if row["accelerators"] is None else f"{row['accelerators']:,.0f}",
                "-" if cost is None or cost != cost else f"{cost:,.3g}",
                str(row["binds"] or "-"),
            ]
        )
    return cells


def cells_text(cells: Sequence[Sequence[str]]) -> str:
    """A table of text with its columns aligned."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def cells_html(cells: Sequence[Sequence[str]], caption: str) -> str:
    """The same as an HTML table."""

    def line(row: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    body = "".join(line(row, "td") for row in cells[1:])
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead>{line(cells[0], 'th')}</thead><tbody>{body}</tbody></table>"
    )


def plan_row(plan: Serving) -> dict[str, Any]:
    """What a table says of a plan: times as simulated, where they are, else of the steady state."""
    return {
        "engine": plan.engine,
        "replicas": plan.replicas,
        "layout": layout_text(plan.layout),
        "ttft_s": plan.ttft_s,
        "tpot_s": plan.tpot_s,
        "e2e_s": plan.latency_s,
        **plan.simulated,
        "requests_per_s": plan.requests_per_s,
        "accelerators": plan.accelerators,
        "usd_per_million_output_tokens": plan.usd_per_million_output_tokens,
        "binds": plan.binds,
    }


def plans_frame(found: Sequence[Serving], limits: Mapping[str, float]) -> pd.DataFrame:
    """One row per plan; numbers of one instance, `replicas` of which carry the rate."""
    import pandas as pd

    percentiles = [
        name for name in LIMITS if name in limits or name in ("ttft_p99_s", "tpot_p99_s")
    ]
    percentiles = [name for name in percentiles if LIMITS[name][1]]
    rows = []
    for plan in found:
        state, ranks = plan.state, plan.accelerators // plan.replicas
        assert state is not None
        tokens = state.requests_per_s * plan.task.output_tokens
        rows.append(
            {
                **plan.layout.to_dict(),
                "layout": layout_text(plan.layout),
                "most_tokens": plan.max_batched_tokens,
                "concurrency": state.concurrency,
                "replicas": plan.replicas,
                "requests_per_s": state.requests_per_s,
                "step_time_s": state.step_time_s,
                "tpot_s": plan.tpot_s,
                "ttft_s": plan.ttft_s,
                "e2e_s": plan.latency_s,
                **{name: plan.simulated.get(name, float("nan")) for name in percentiles},
                "utilisation_fraction": state.utilisation,
                "prompt_fraction": state.prompt_fraction,
                "output_tokens_per_s": tokens,
                "output_tokens_per_s_per_accelerator": tokens / ranks,
                "accelerators": plan.accelerators,
                "usd_per_million_output_tokens": plan.usd_per_million_output_tokens,
                "binds": plan.binds,
            }
        )
    names = [*DEGREES, *_BEFORE, *percentiles, *_AFTER]
    return pd.DataFrame(rows, columns=names)


_BEFORE = (
    "layout",
    "most_tokens",
    "concurrency",
    "replicas",
    "requests_per_s",
    "step_time_s",
    "tpot_s",
    "ttft_s",
    "e2e_s",
)
_AFTER = (
    "utilisation_fraction",
    "prompt_fraction",
    "output_tokens_per_s",
    "output_tokens_per_s_per_accelerator",
    "accelerators",
    "usd_per_million_output_tokens",
    "binds",
)


@dataclass(frozen=True, eq=False, repr=False)
class ServingPlans:
    """Plans that a search found, best first. Made by `plan_serving`.

    A sequence of `Serving`: ``plans[0]`` is the best, and runs and starts what was promised.

    Attributes
    ----------
    found : tuple of Serving
        Best first, no two of one layout.
    best : DataFrame
        The same as a table; numbers of one instance, `replicas` of which carry the rate asked for.
    front : DataFrame
        Plans that no other beats in both output tokens per second and accelerator and TPOT, with
        sequences kept running, in steady state.
    plans, feasible : int
        Tried in steady state, and within the limits there.
    limits : dict
        Of latency, by name.
    message, binds : str
        Why there is no plan, with the nearest miss, and the limit that binds; empty where there is
        one.

    Examples
    --------
    >>> import scalemodel as sm
    >>> chat = sm.Inference(input_tokens=1000, output_tokens=300)
    >>> plans = sm.plan_serving("llama3_8b", "dgx_h100", chat, ttft_s=0.001)
    >>> len(plans), plans.binds
    (0, 'ttft_s')
    """

    found: tuple[Serving, ...]
    best: pd.DataFrame
    front: pd.DataFrame
    plans: int
    feasible: int
    limits: Mapping[str, float]
    message: str = ""
    binds: str = ""

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Serving]:
        return iter(self.found)

    def __getitem__(self, row: int) -> Serving:
        if not self.found:
            raise ScaleModelError(f"plans[{row}]: {self.message}")
        return self.found[row]

    def layout(self, row: int = 0) -> _core.ServingLayout:
        """Degrees of a plan."""
        return self[row].layout

    def _cells(self) -> list[list[str]]:
        return table_cells([plan_row(plan) for plan in self.found], self.limits)

    def __repr__(self) -> str:
        return cells_text(self._cells()) if self.found else f"ServingPlans(0 plans: {self.message})"

    def _repr_html_(self) -> str:
        if not self.found:
            return f"<p>{html.escape(self.message)}</p>"
        return cells_html(self._cells(), f"{self.found[0].model.label}, {len(self.found)} plans")
