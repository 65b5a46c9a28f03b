"""An estimate as HTML for notebooks: tables by cause and kind, and the foldable tree."""

from __future__ import annotations

from scalemodel.base.text import count_text
from scalemodel.estimator.diagnosis import message
from scalemodel.estimator.evaluation import Evaluation
from scalemodel.estimator.explain.explanation import BOX, Explanation, folded_html, safe
from scalemodel.estimator.explain.terms import term_tree
from scalemodel.estimator.losses import what_limits
from scalemodel.estimator.uncertainty import extrapolations, step_text

_CELL = "padding:.1em .6em;text-align:left"


def bar_html(share: float) -> str:
    """A share as a bar, readable without colours."""
    width = 100 * min(1.0, max(0.0, share))
    return (
        "<div aria-hidden='true' style='width:8em;border:1px solid currentColor;opacity:.7'>"
        f"<div style='width:{width:.1f}%;height:.7em;background:currentColor'></div></div>"
    )


def _table_html(caption: str, first: str, parts: tuple[Explanation, ...]) -> str:
    rows = "".join(
        f"<tr><th scope='row' style='{_CELL}'>{safe(part.name)}</th>"
        f"<td style='{_CELL}'>{safe(part.value_text())}</td>"
        f"<td style='{_CELL}'>{bar_html(part.share_fraction or 0)}</td></tr>"
        for part in parts
        if part.value
    )
    return (
        f"<table><caption style='text-align:left'>{safe(caption)}</caption><thead><tr>"
        f"<th scope='col' style='{_CELL}'>{safe(first)}</th><th scope='col' style='{_CELL}'>value"
        f"</th><th scope='col' style='{_CELL}'>share</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _warning_html(est: Evaluation) -> str:
    """In what the question lies beyond every measured run."""
    listed = "; ".join(extrapolations(est))
    return f"<p>extrapolates: {safe(listed)}</p>" if listed else ""


def estimate_html(est: Evaluation) -> str:
    """An estimate for notebooks: self-contained, foldable, readable without colours."""
    title = f"{est.model.label} on {est.cluster.accelerators} × {est.cluster.accelerator}"
    head = f"<p><b>{safe(title)}</b><br><code>{safe(repr(est.strategy))}</code></p>"
    if est.illegal:
        return f'<div style="{BOX}">{head}<pre>{safe(message(est))}</pre></div>'
    tree = term_tree(est)
    step, memory, energy, cost, mfu, _ = tree.children
    facts = [
        f"verdict {est.verdict}",
        f"step {step_text(est)}",
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
        f'<div style="{BOX}">{head}<p>{safe(" · ".join(facts))}</p>'
        f"<p>limited by: {safe(what_limits(est))}</p>{_warning_html(est)}{tables}"
        f"<details><summary>Explanation</summary>{folded_html(tree, is_open=True)}</details></div>"
    )
