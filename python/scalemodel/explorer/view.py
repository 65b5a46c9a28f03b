"""An answer beside a pinned one, as HTML that is quick to write and to draw."""

from __future__ import annotations

from scalemodel.base.text import count_text, money_text, percent_text, size_text, time_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import MEMORY_COLUMNS
from scalemodel.estimator.explain.explanation import safe
from scalemodel.estimator.explain.page import bar_html
from scalemodel.estimator.losses import what_limits
from scalemodel.estimator.uncertainty import step_text
from scalemodel.estimator.verdicts import verdict_message
from scalemodel.search.compact import is_tight

_BOX = "font-family:system-ui,sans-serif;font-size:90%"
#: Dark on light, so that the words can be read on any page.
_TIGHT, _TOO_MUCH = "background:#ffd9a8;color:#5c2e00", "background:#f8c4c4;color:#6b0000"
_CELL = "style='padding:.1em .6em;text-align:left'"


def _against(value: float, pinned: float | None) -> str:
    """The change against the pinned answer."""
    if not pinned:
        return ""
    return percent_text(value / pinned - 1, signed=True)


def _facts(est: Estimate, pinned: Estimate | None) -> str:
    core, other = est.core, None if pinned is None else pinned.core
    facts = [
        ("tokens/s", count_text(core.tokens_per_s), "tokens_per_s"),
        ("MFU", percent_text(core.mfu_fraction), "mfu_fraction"),
        ("power per accelerator", f"{core.power_w:,.0f} W", "power_w"),
        ("energy a step", f"{count_text(core.energy_j)}J", "energy_j"),
    ]
    if est.cost_usd is not None:
        facts.append(("cost a step", money_text(est.cost_usd), "cost_usd"))
    told = []
    for name, text, column in facts:
        before = None if other is None else float(getattr(other, column))
        change = _against(float(getattr(core, column)), before)
        told.append(f"{name} <b>{safe(text)}</b>{f' ({safe(change)})' if change else ''}")
    return " · ".join(told)


def _row(name: str, text: str, share: float, change: str) -> str:
    return (
        f"<tr><th scope='row' {_CELL}>{safe(name)}</th><td {_CELL}>{safe(text)}</td>"
        f"<td {_CELL}>{bar_html(share)}</td><td {_CELL}>{safe(change)}</td></tr>"
    )


def _times(est: Estimate, pinned: Estimate | None) -> str:
    rows = []
    before = {} if pinned is None else pinned.time_by_cause()
    for cause, value in est.time_by_cause().items():
        if value or before.get(cause):
            change = _against(value, before.get(cause))
            name = cause.replace("_", " ")
            rows.append(_row(name, time_text(value), value / est.core.step_time_s, change))
    return "".join(rows)


def _sizes(est: Estimate, pinned: Estimate | None) -> str:
    rows = []
    capacity = float(est.core.memory_capacity_bytes)
    for column in MEMORY_COLUMNS:
        value = float(getattr(est.core, column))
        before = None if pinned is None else float(getattr(pinned.core, column))
        if value or before:
            name = column.removeprefix("memory_").removesuffix("_bytes")
            rows.append(_row(name, size_text(value), value / capacity, _against(value, before)))
    return "".join(rows)


def _table(caption: str, rows: str) -> str:
    """A table of HTML rows below an HTML caption."""
    return (
        "<table style='display:inline-table;vertical-align:top;margin-right:1em'>"
        f"<caption style='text-align:left'>{caption}</caption><tbody>{rows}</tbody></table>"
    )


def _memory_caption(est: Estimate) -> str:
    """Memory of its capacity, with a word in a warning colour where little or nothing is free."""
    used, capacity = float(est.core.memory_bytes), float(est.core.memory_capacity_bytes)
    text = safe(f"Memory: {size_text(used)} of {size_text(capacity)}")
    if used > capacity:
        return f"{text} {_flag(f'{size_text(used - capacity)} too much', _TOO_MUCH)}"
    if is_tight(used, capacity):
        return f"{text} {_flag(f'tight: {size_text(capacity - used)} free', _TIGHT)}"
    return text


def _flag(text: str, colours: str) -> str:
    return f"<b style='{colours};padding:0 .4em;border-radius:.2em'>{safe(text)}</b>"


def view_html(est: Estimate, pinned: Estimate | None = None) -> str:
    """An answer in a few numbers and bars, each with its change against a pinned one."""
    where = f"{est.model.label} on {est.cluster.accelerators:,} × {est.cluster.accelerator}"
    head = f"<p><b>{safe(where)}</b><br><code>{safe(repr(est.strategy))}</code></p>"
    if not est.fits:
        # What would help takes a search of its own: it is asked for, not shown at every turn.
        head += f"<pre style='white-space:pre-wrap'>{safe(verdict_message(est))}</pre>"
    if est.illegal:
        return f'<div style="{_BOX}">{head}</div>'
    core = est.core
    step_s = None if pinned is None else float(pinned.core.step_time_s)
    change = _against(float(core.step_time_s), step_s)
    extrapolates = (
        f"<br>extrapolates: {safe('; '.join(est.extrapolates))}" if est.extrapolates else ""
    )
    return (
        f'<div style="{_BOX}">{head}<p style="font-size:140%">step <b>{safe(step_text(est))}</b>'
        f"{f' ({safe(change)})' if change else ''}</p><p>{_facts(est, pinned)}</p>"
        f"<p>limited by: {safe(what_limits(est))}{extrapolates}</p>"
        f"{_table(safe('Time of a step'), _times(est, pinned))}"
        f"{_table(_memory_caption(est), _sizes(est, pinned))}</div>"
    )
