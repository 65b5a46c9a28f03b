"""The table of a study: every column is there, a screen shows the points and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

import scalemodel._core as _core
from scalemodel.base.text import count_text, money_text, percent_text, time_text
from scalemodel.estimator.summary import strategy_text
from scalemodel.search.compact import memory_text, table_html, table_text

_KNOBS = tuple(str(row["name"]) for row in _core.Strategy.fields())
#: Columns that a study must have to be shown as one.
_NEEDED = (*_KNOBS, "verdict", "step_time_s", "mfu_fraction", "memory_bytes")
#: What every study shows, and what an objective need not repeat.
_SHOWN = ("step_time_s", "mfu_fraction", "memory_bytes", "cost_usd")
#: What stands behind a number of each dimension.
_SYMBOLS = {"bytes": "B", "bytes_per_s": "B/s", "flop_per_s": "FLOP/s", "w": "W", "hz": "Hz"}
_KINDS = {"int": int, "bool": bool, "choice": str}


def _known(value: Any) -> bool:
    return value is not None and value is not pd.NA and value == value


def _value_text(value: Any, unit: str = "") -> str:
    """A value of a hardware quantity or of an objective.

    Examples
    --------
    >>> _value_text(5e10, "bytes_per_s"), _value_text(2.0, "count"), _value_text("ring", "text")
    ('50.0 GB/s', '2', 'ring')
    """
    if not _known(value):
        return ""
    if isinstance(value, str):
        return value
    number = float(value)
    if unit == "s":
        return time_text(number)
    if unit == "usd_per_s":
        return f"{money_text(3600 * number)}/h"
    if unit in _SYMBOLS:
        text = count_text(number)
        # Without a prefix there is no space yet between the number and its unit.
        return f"{text}{_SYMBOLS[unit]}" if text[-1].isalpha() else f"{text} {_SYMBOLS[unit]}"
    return f"{number:,.0f}" if number == round(number) and abs(number) < 1e9 else f"{number:.4g}"


def _answer(row: Mapping[str, Any]) -> dict[str, str]:
    """What the best strategy of a point answers; where none runs, why."""
    if row["verdict"] not in ("ok", "out_of_memory"):
        return {"strategy": str(row["verdict"])}
    fields = _core.Strategy.fields()
    knobs = {name["name"]: _KINDS[name["kind"]](row[name["name"]]) for name in fields}
    step, between = time_text(float(row["step_time_s"])), ""
    if _known(row.get("step_time_low_s")) and _known(row.get("step_time_high_s")):
        low, high = float(row["step_time_low_s"]), float(row["step_time_high_s"])
        between = f" ({time_text(low)} to {time_text(high)})"
    cost = row.get("cost_usd")
    return {
        "step": step + between,
        "MFU": percent_text(float(row["mfu_fraction"])),
        "memory": memory_text(float(row["memory_bytes"]), float(row["memory_capacity_bytes"])),
        "cost": money_text(float(cost)) if _known(cost) else "",  # type: ignore[arg-type]
        "strategy": strategy_text(_core.Strategy(**knobs), int(row["dp"])),
    }


class StudyTable(pd.DataFrame):
    """A table of hardware points whose text and HTML are the columns that matter.

    Printed, and in a notebook, it shows the varied quantities and of every point the step with its
    interval, MFU, memory, cost and the strategy as one label. All columns are there as in any
    DataFrame, and ``pd.DataFrame(study)`` shows them; so does a part of the table that lacks what
    is shown.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> study = sm.codesign("llama3_8b", "dgx_h100", task, vary={"fabric.bandwidth": [1, 2]})
    >>> str(study).split()[:3], str(study).splitlines()[1].split("  ")[0]
    (['fabric.bandwidth', 'step', 'MFU'], '50.0 GB/s')
    """

    @property
    def _constructor(self) -> type[StudyTable]:
        return StudyTable

    def _is_whole(self) -> bool:
        """Whether all that is shown is there."""
        units = self.attrs.get("units")
        wanted = (*_NEEDED, *units) if isinstance(units, dict) else ()
        return bool(wanted) and all(name in self.columns for name in wanted)

    def _rows_shown(self) -> int:
        """As many as pandas shows of any table."""
        return min(len(self), int(pd.get_option("display.max_rows") or len(self)))

    def _compact(self) -> tuple[list[str], list[list[object]]]:
        """Header and cells: the point, its answers, the strategy; empty columns are left out."""
        units: dict[str, str] = self.attrs["units"]
        objective = self.attrs.get("objective")
        further = [objective] if isinstance(objective, str) and objective not in _SHOWN else []
        further += ["design_cost"] if "design_cost" in self.columns else []
        lines = []
        for row in self.head(self._rows_shown()).astype(object).to_dict("records"):
            point = {path: _value_text(row[path], unit) for path, unit in units.items()}
            answer = _answer({str(name): value for name, value in row.items()})
            strategy = answer.pop("strategy")
            own = {name: _value_text(row.get(name)) for name in further}
            lines.append({**point, **answer, **own, "strategy": strategy})
        names = list(dict.fromkeys(name for line in lines for name in line if name != "strategy"))
        shown = [name for name in names if any(line.get(name) for line in lines)] + ["strategy"]
        return shown, [[line.get(name, "") for name in shown] for line in lines]

    def _foot(self) -> str:
        left = len(self) - self._rows_shown()
        more = f"{left:,} more points; " if left else ""
        return f"{more}{len(self):,} points, {len(self.columns)} columns: pd.DataFrame(study)"

    def __repr__(self) -> str:
        if not self._is_whole() or not len(self):
            return str(super().__repr__())
        return f"{table_text(*self._compact())}\n{self._foot()}"

    def _repr_html_(self) -> str | None:
        if not self._is_whole() or not len(self):
            html = pd.DataFrame(self)._repr_html_()  # type: ignore[operator]
            return None if html is None else str(html)
        return f"<div>{table_html(*self._compact())}<p>{escape(self._foot())}</p></div>"
