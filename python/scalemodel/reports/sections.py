"""What a page says of a study: one function per section, from the question to how to repeat it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, plot
from scalemodel.base.text import count_text, money_text, percent_text, size_text, time_text
from scalemodel.base.units import source_of, value_of
from scalemodel.codesign.sensitivity import DEFAULT_PATHS, sensitivity
from scalemodel.codesign.vary import Hardware
from scalemodel.estimator import uncertainty
from scalemodel.estimator.diagnosis import Diagnosis, diagnose, fix_text
from scalemodel.estimator.explain.explanation import folded_html, safe
from scalemodel.estimator.explain.terms import term_tree
from scalemodel.estimator.uncertainty import step_text
from scalemodel.plot.columns import number_text, scale_of
from scalemodel.reports.markup import Section, figure, listing, paragraph, table
from scalemodel.resolve.clusters import network_text
from scalemodel.resolve.stacks import StackLike, stack_text
from scalemodel.search.choice import Choice, explain_choice
from scalemodel.search.objective import is_maximised
from scalemodel.search.pareto import pareto

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.estimator.estimate import Estimate
    from scalemodel.search.ranking import Question, Ranking

#: Shares of the accelerator's memory within which the best strategy is searched.
MEMORY_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
_LEAST_LOSS = 0.002  # of the step: smaller ones are not listed


def column_of(question: Question) -> str:
    """The column that trade-offs and sensitivities are drawn in: the objective, if it is one."""
    names = [name for name, _ in question.objective]
    return names[0] if len(names) == 1 else "step_time_s"


def objective_text(question: Question) -> str:
    """What was optimised, in words."""
    terms = question.objective
    if len(terms) > 1:
        return "weighted logarithms of " + ", ".join(f"{n} (weight {w:g})" for n, w in terms)
    return f"{'most' if is_maximised(terms[0][0]) else 'least'} {terms[0][0]}"


# ------------------------------------------------------------------------------------ the question
def question_section(question: Question) -> Section:
    """Model, cluster, task and space."""
    model, cluster, core = question.model, question.cluster, question.cluster.core
    gbit = count_text(8 * core.fabric.bandwidth_bytes_per_s)
    rows = [
        ("model", f"{model.label}: {count_text(model.parameters)} parameters"),
        (
            "cluster",
            f"{cluster.name}: {cluster.accelerators:,} × {cluster.accelerator} "
            f"({cluster.nodes:g} nodes of {core.node_accelerators}, {gbit}bit/s per accelerator "
            "between domains)",
        ),
        ("task", repr(question.task)),
        ("software stack", question.stack),
        ("strategies", f"{question.size:,} in {question.space!r}"),
        ("objective", objective_text(question)),
        ("constraints", "; ".join(question.constraints) or "none beyond memory"),
        ("memory left free", f"at least {percent_text(question.headroom)}"),
    ]
    return Section("question", "The question", table("What was asked", (), rows))


# -------------------------------------------------------------------------------------- the answer
def _facts(est: Estimate) -> Iterator[str]:
    core = est.core
    yield f"{count_text(core.tokens_per_s)} tokens/s"
    yield f"MFU {percent_text(core.mfu_fraction)}"
    yield f"{size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}"
    yield f"{core.power_w:,.0f} W per accelerator"
    yield f"{count_text(core.energy_j)}J a step"
    if est.cost_usd is not None:
        yield f"{money_text(est.cost_usd)} a step"


def no_answer_section(ranking: Ranking) -> Section:
    """Why nothing fits, and what comes nearest."""
    return Section(
        "answer", "No strategy fits", paragraph(ranking.why_infeasible(), kind="warning")
    )


def answer_section(ranking: Ranking) -> Section:
    """The best strategy in a few numbers, and the strategies after it."""
    best = ranking[0]
    body = (
        f'<div class="answer"><strong>{safe(step_text(best))} a step</strong><br>'
        f"<code>{safe(repr(best.strategy))}</code><br>{safe(' · '.join(_facts(best)))}</div>"
    )
    if best.extrapolates:
        body += paragraph("Extrapolates: " + "; ".join(best.extrapolates), kind="warning")
    rows = []
    for place, est in enumerate(ranking[:], 1):
        low_s, high_s = est.step_time_low_s, est.step_time_high_s
        between = "" if low_s is None else f"{time_text(low_s)} to {time_text(high_s or low_s)}"
        cost = "" if est.cost_usd is None else money_text(est.cost_usd)
        rows.append(
            (
                place,
                repr(est.strategy),
                time_text(est.core.step_time_s),
                between,
                percent_text(est.core.mfu_fraction),
                size_text(est.core.memory_bytes),
                f"{count_text(est.core.energy_j)}J",
                cost,
            )
        )
    interval = best.interval()
    share = "" if interval is None else f"{100 * interval.coverage_fraction:.0f} % "
    header = ("", "strategy", "step", f"{share}interval", "MFU", "memory", "energy", "cost")
    body += table("The best strategies", header, rows) + paragraph(ranking.why_infeasible())
    return Section("answer", "The best strategies", body)


def parts_section(choice: Choice) -> Section:
    """Where time and memory go, of the winner and the strategy it beat."""
    shown = [choice.winner] if choice.runner_up is None else [choice.winner, choice.runner_up]
    names = "the best strategy" if len(shown) == 1 else "the best strategy and its runner-up"
    body = figure(plot.breakdown(shown), "time", f"Time of a step by cause: {names}.")
    body += figure(
        plot.memory(shown), "memory", f"Memory of the fullest accelerator by kind: {names}."
    )
    return Section("parts", "Where time and memory go", body)


def choice_section(choice: Choice) -> Section:
    """Why this one: the runner-up, and what each knob is worth."""

    def changed(value: object, change: Any) -> str:
        if change is None:
            return "nothing fits"
        return f"{value} ({percent_text(float(change), signed=True)})"

    knobs = choice.knobs.astype(object).where(choice.knobs.notna(), None)
    order = choice.knobs.again_change_fraction.sort_values(ascending=False, na_position="first")
    rows = [
        (
            row["knob"],
            row["chosen"],
            changed(row["alone"], row["alone_change_fraction"]),
            changed(row["again"], row["again_change_fraction"]),
        )
        for row in knobs.loc[order.index].to_dict("records")
    ]
    # The winner, and with a runner-up two lines on that; the knobs follow as a table.
    said = choice.text().splitlines()[: 1 if choice.runner_up is None else 3]
    body = f"<pre>{safe(chr(10).join(said))}</pre>"
    header = ("knob", "chosen", "next best, all else kept", "next best, all else searched again")
    body += table("What each knob is worth: change of the objective without it", header, rows)
    return Section("choice", "Why this one", body)


# ---------------------------------------------------------------------------------- around the best
def memory_front(question: Question, threads: int | None) -> pd.DataFrame:
    """The best strategy within each share of the memory that nothing beats in both."""
    import pandas as pd

    column = column_of(question)
    if column == "memory_bytes":
        column = "step_time_s"
    tables = []
    for share in MEMORY_SHARES:
        limit = f"memory_bytes <= {share:g} * memory_capacity_bytes"
        within = replace(
            question,
            objective=((column, 1.0),),
            constraints=(*question.constraints, limit),
            top=1,
        )
        tables.append(within.run_search(0, within.size, threads).table)
    found = pd.concat([each for each in tables if len(each)], ignore_index=True)
    larger = [column] if is_maximised(column) else []
    smaller = [name for name in (column, "memory_bytes") if name not in larger]
    return pareto(found, minimize=smaller, maximize=larger).drop_duplicates(
        [column, "memory_bytes"]
    )


def front_section(question: Question, threads: int | None) -> Section:
    """What less memory costs."""
    front = memory_front(question, threads)
    directions = front.attrs["minimize"], front.attrs["maximize"]
    column = next(name for names in directions for name in names if name != "memory_bytes")
    caption = (
        f"The best {column} within ever less memory, searched anew at each limit; what the plot "
        "names is where giving up a little of one gains most of the other."
    )
    drawn = plot.pareto(front, column, "memory_bytes")
    return Section("front", "What less memory costs", figure(drawn, "front", caption))


def hardware_section(question: Question, threads: int | None) -> Section:
    """What each quantity of the machine is worth, the best strategy searched again."""
    column = column_of(question)
    hardware = Hardware(question.cluster)
    paths = [path for path in DEFAULT_PATHS if hardware.quantity(path).scales]
    if "usd" not in column:
        paths = [path for path in paths if not path.startswith("price.")]
    found = sensitivity(
        question.model,
        question.cluster,
        question.task,
        question.space,
        paths=paths,
        objective=column,
        constraints=question.constraints,
        headroom=question.headroom,
        stack=question.stack,
        threads=threads,
        progress=False,
    )
    scale = scale_of(column)

    def shown(value: Any) -> str:
        return "nothing fits" if value is None else number_text(float(value) / scale.divisor)

    def elasticity(value: Any) -> str:
        return "" if value is None else f"{float(value):+.2f}".replace("-", "−")

    cells = found.astype(object).where(found.notna(), None)
    rows = [
        (
            row["name"],
            shown(row["low_value"]),
            shown(row["high_value"]),
            elasticity(row["elasticity"]),
            elasticity(row["fixed_elasticity"]),
        )
        for row in cells.to_dict("records")
    ]
    low, high = found.low.iloc[0], found.high.iloc[0]
    header = (
        "quantity",
        f"× {low:.3g}",
        f"× {high:.3g}",
        "per % of it, in %",
        "same strategy kept",
    )
    body = ""
    drawable = found.dropna(subset=["low_value", "high_value"])
    drawable = drawable[(drawable.low_value != drawable.high_value)]
    if len(drawable):
        drawable.attrs = found.attrs
        caption = "Each quantity of the machine a tenth less and a tenth more."
        body = figure(plot.tornado(drawable), "hardware", caption)
    body += table(f"{scale.label} of the best strategy on changed machines", header, rows)
    return Section("hardware", "What the machine is worth", body)


def help_section(best: Estimate) -> Section:
    """What limits the best strategy, and what would help."""
    found: Diagnosis = diagnose(best, 5)
    body = paragraph(f"Limited by {found.limit}.")
    if found.speed_of_light_s is not None and found.step_time_s:
        share = percent_text(found.speed_of_light_s / found.step_time_s)
        body += paragraph(
            f"At the dense peak of every accelerator the model's own operations would take "
            f"{time_text(found.speed_of_light_s)}; this strategy reaches {share} of that."
        )
        least = _LEAST_LOSS * found.step_time_s
        rows = [
            (loss.words, time_text(loss.time_s), percent_text(loss.time_s / found.step_time_s))
            for loss in found.losses
            if loss.time_s > least
        ]
        header = ("what an ideal machine would not spend", "time", "of the step")
        body += table("Losses, largest first; they may overlap", header, rows)
    if found.changes:
        intro = "Single changes of the strategy that shorten the step:"
        body += listing(intro, (fix_text(fix, relative=True) for fix in found.changes))
    else:
        body += paragraph("No single change of a knob shortens the step.")
    return Section("help", "What would help most", body)


# ------------------------------------------------------------------------------------ how sure
def certainty_section(best: Estimate) -> Section:
    """Where the interval comes from, and in what the question is unlike any measured run."""
    interval, situation = best.interval(), uncertainty.situation_of(best)
    cell = uncertainty.embedded().cell(situation)
    if interval is None or cell is None:
        text = "No published run is comparable: the estimate has no interval."
    else:
        text = (
            f"A measured step would lie between {time_text(interval.low_s)} and "
            f"{time_text(interval.high_s)} in {100 * interval.coverage_fraction:.0f} % of cases, "
            f"by {cell.rows} comparable published runs of {cell.sources} sources, each predicted "
            "by constants that had not seen its source. Strategies on this page share most of "
            "their error, so that their order is surer than their times."
        )
    body = paragraph(text)
    if best.extrapolates:
        listed = "".join(f"<li>{safe(each)}</li>" for each in best.extrapolates)
        body += (
            f"<p>Beyond every measured run, for which the interval is widened:</p><ul>{listed}</ul>"
        )
    else:
        body += paragraph("The question lies within what has been measured.")
    return Section("certainty", "How sure this is", body)


def _stack_rows(stack: StackLike) -> Iterator[tuple[str, object, str]]:
    if not isinstance(stack, str):
        yield from ((name, value, "given") for name, value in stack.to_dict().items())
        return
    facts = catalog.load("stacks", catalog.find("stacks", stack)).get("stack", {})
    if isinstance(facts, Mapping):
        for key, cell in facts.items():
            yield str(key), value_of(cell), source_of(cell)


def assumptions_section(best: Estimate) -> Section:
    """Network, software and prices, then every term with its formula, inputs and source."""
    rows = [("network", network_text(best.cluster))]
    if best.cost_usd is not None:
        hourly = 3600 * best.cluster.core.price_usd_per_s
        source = best.cluster.price_source
        rows.append(("price", f"{hourly:.2f} USD per accelerator and hour ({source})"))
    body = table("Of the machine", (), rows)
    header = ("constant or fact", "value", "source")
    title = f"Of the software stack {stack_text(best.stack)}"
    body += table(title, header, _stack_rows(best.stack))
    body += paragraph("Every number of the best strategy, with formula, inputs and source:")
    return Section("assumptions", "Assumptions", body + folded_html(term_tree(best), is_open=True))


def repeat_section(question: Question, code: str) -> Section:
    """How to get this page again."""
    text = "The same page, with the catalogue entries of the machine that wrote it:"
    body = paragraph(text) + f"<pre>{safe(code)}</pre>"
    return Section("repeat", "To repeat it", body)


def sections_of(ranking: Ranking, code: str, threads: int | None) -> list[Callable[[], Section]]:
    """What makes the page of a study, in order; without an answer only question and reason."""
    question = ranking.question
    asked, again = partial(question_section, question), partial(repeat_section, question, code)
    if not ranking:
        return [asked, partial(no_answer_section, ranking), again]
    best = ranking[0]
    choice = lru_cache(partial(explain_choice, ranking, threads=threads, progress=False))
    return [
        asked,
        partial(answer_section, ranking),
        lambda: parts_section(choice()),
        lambda: choice_section(choice()),
        partial(front_section, question, threads),
        partial(hardware_section, question, threads),
        partial(help_section, best),
        partial(certainty_section, best),
        partial(assumptions_section, best),
        again,
    ]
