"""Why a search chose what it chose: `explain_choice`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress, watched
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, tables_for
from scalemodel.search.framework_cases import Case
from scalemodel.search.frameworks import accepts, startable
from scalemodel.search.objective import holds, limits_of
from scalemodel.search.ranking import Question, Ranking

if TYPE_CHECKING:
    import pandas as pd

#: Degrees whose change moves the data-parallel degree.
_MESH = ("tp", "cp", "pp")


class Choice:
    """A winner beside its runner-up, and the worth of every knob around it.

    Attributes
    ----------
    winner, runner_up : Estimate
        The runner-up is the best strategy with another objective value than the winner; None when
        the ranking has no such strategy.
    terms : DataFrame
        Columns cause, winner_s, runner_up_s, difference_s (runner-up minus winner): the differences
        sum to that of the step times.
    memory : DataFrame
        The same of memory: kind, winner_bytes, runner_up_bytes, difference_bytes.
    knobs : DataFrame
        One row per knob whose other values in the space make a difference: knob, chosen; the best
        other value with every other knob as chosen (alone, alone_change_fraction) and with all
        others searched again (again, again_change_fraction). Changes are of the objective, positive
        for worse; missing where nothing fits.
    """

    def __init__(
        self,
        question: Question,
        winner: Estimate,
        runner_up: Estimate | None,
        knobs: list[dict[str, Any]],
    ) -> None:
        self.question = question
        self.winner = winner
        self.runner_up = runner_up
        self._knobs = knobs

    @property
    def differences(self) -> dict[str, tuple[object, object]]:
        """Knobs in which the runner-up differs: (winner's value, runner-up's value)."""
        if self.runner_up is None:
            return {}
        ours, theirs = self.winner.strategy.to_dict(), self.runner_up.strategy.to_dict()
        return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}

    @property
    def terms(self) -> pd.DataFrame:
        """Time by cause of both."""
        if self.runner_up is None:
            return self._frame("cause", "s", {}, {})
        return self._frame(
            "cause", "s", self.winner.time_by_cause(), self.runner_up.time_by_cause()
        )

    @property
    def memory(self) -> pd.DataFrame:
        """Memory by kind of both."""
        if self.runner_up is None:
            return self._frame("kind", "bytes", {}, {})
        ours, theirs = (
            {
                column.removesuffix("_bytes").removeprefix("memory_"): getattr(est, column)
                for column in MEMORY_COLUMNS
            }
            for est in (self.winner, self.runner_up)
        )
        return self._frame("kind", "bytes", ours, theirs)

    @staticmethod
    def _frame(
        name: str, unit: str, ours: dict[str, float], theirs: dict[str, float]
    ) -> pd.DataFrame:
        import pandas as pd

        rows = [(label, ours[label], theirs[label], theirs[label] - ours[label]) for label in ours]
        header = [name, f"winner_{unit}", f"runner_up_{unit}", f"difference_{unit}"]
        return pd.DataFrame(rows, columns=header)

    @property
    def knobs(self) -> pd.DataFrame:
        """The worth of every knob."""
        import pandas as pd

        columns = ("knob", "chosen", "alone", "alone_change_fraction")
        header = [*columns, "again", "again_change_fraction"]
        table = pd.DataFrame(self._knobs, columns=header)
        changes = {name: "Float64" for name in header if name.endswith("_fraction")}
        return table.astype(changes)

    def text(self) -> str:
        """The choice in words."""
        from scalemodel.base.text import percent_text, time_text

        lines = [
            f"winner     {self.winner.strategy!r}: {time_text(self.winner.step_time_s)} a step"
        ]
        if self.runner_up is not None:
            behind = self.runner_up.step_time_s / self.winner.step_time_s - 1
            changed = ", ".join(
                f"{name} {ours}→{theirs}" for name, (ours, theirs) in self.differences.items()
            )
            slower = f"{100 * behind:+.2f} %".replace("-", "−")
            lines.append(f"runner-up  {changed}: step {slower}")
            gaps: dict[str, float] = dict(
                zip(self.terms.cause, self.terms.difference_s, strict=True)
            )
            parts = [
                f"{cause} {time_text(gap, signed=True)}"
                for cause, gap in sorted(gaps.items(), key=lambda item: -abs(item[1]))
                if abs(gap) > 1e-6 * self.winner.step_time_s
            ]
            lines.append("           because of " + (", ".join(parts) or "nothing but its order"))
        ranked = sorted(
            self._knobs, key=lambda row: -(row["again_change_fraction"] or float("inf"))
        )
        for row in ranked:
            change = row["again_change_fraction"]
            if change is None:
                lines.append(f"  {row['knob']} must be {row['chosen']}: nothing else fits")
            elif change > 0:
                worth = percent_text(change)
                lines.append(
                    f"  {row['knob']}={row['chosen']} is worth {worth}: best with "
                    f"{row['knob']}={row['again']} and all else searched again"
                )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        head = escape(self.text().split("\n  ", 1)[0])
        tables = (table.to_html(index=False) for table in (self.terms, self.knobs))
        return f"<pre>{head}</pre>" + "".join(tables)


def _runner_up(ranking: Ranking, terms: list[tuple[str, float]]) -> Estimate | None:
    best = _core.score(ranking[0].core, terms)
    for est in ranking[1:]:
        if _core.score(est.core, terms) != best:
            return est
    return None


def _changed(strategy: _core.Strategy, knob: str, value: object) -> _core.Strategy:
    changes: dict[str, object] = {knob: value}
    if knob in _MESH:
        changes["dp"] = 0
    return strategy.replace(**changes)


def _change(score: float, best: float, single: bool) -> float:
    """Relative worsening: of the objective, or of the weighted geometric mean."""
    import math

    return (score - best) / abs(best) if single else math.expm1(score - best)


def _search(question: Question, threads: int | None) -> Ranking:
    """The best strategies of a question, of those that its framework starts where it names one."""

    def run(asked: Question) -> Ranking:
        return asked.run_search(0, asked.size, threads)

    return (
        run(question)
        if question.framework is None
        else startable(question, question.framework, run)
    )


def _starts(question: Question, strategy: _core.Strategy) -> bool:
    """Whether the framework of a question, if it names one, starts a strategy."""
    q = question
    if q.framework is None:
        return True
    case = Case(q.model, q.cluster, q.task, strategy, resolve.stack(q.stack))
    return accepts(q.framework, case)


def _worths(
    question: Question,
    winner: Estimate,
    values: Mapping[str, Sequence[Any]],
    threads: int | None,
    tell: Callable[[int, int], object] | None,
) -> Iterator[dict[str, Any]]:
    terms = list(question.objective)
    single = len(terms) == 1
    best = _core.score(winner.core, terms)
    tables = tables_for(question.model, question.cluster, question.task, question.stack)
    limits = limits_of(question.constraints, question.headroom)
    chosen = winner.strategy.to_dict()
    for done, (knob, listed) in enumerate(values.items()):
        if tell is not None:
            tell(done, len(values))
        others = [value for value in listed if value != chosen[knob]]
        if knob == "dp" or not others:
            continue
        alone: tuple[float, object] | None = None
        for value in others:
            changed = _changed(winner.strategy, knob, value)
            core = tables.estimate(changed)
            if core.verdict != "ok" or not all(holds(core, limit) for limit in limits):
                continue
            if not _starts(question, changed):
                continue
            score = _core.score(core, terms)
            if alone is None or score < alone[0]:
                alone = score, value
        elsewhere = replace(question, space=question.space.replace(**{knob: others}), top=1)
        again = _search(elsewhere, threads)
        elsewhere_score = _core.score(again[0].core, terms) if again else None
        if alone is not None and alone[0] == best == elsewhere_score:
            continue  # the knob changes nothing here
        yield {
            "knob": knob,
            "chosen": chosen[knob],
            "alone": None if alone is None else alone[1],
            "alone_change_fraction": None if alone is None else _change(alone[0], best, single),
            "again": again[0].strategy.to_dict()[knob] if again else None,
            "again_change_fraction": (
                None if elsewhere_score is None else _change(elsewhere_score, best, single)
            ),
        }


@named_arguments
def explain_choice(
    ranking: Ranking, *, threads: int | None = None, progress: Progress = None
) -> Choice:
    """Why the winner of a search beats the runner-up, and what each knob is worth around it.

    Parameters
    ----------
    ranking : Ranking
        Of `search`; not empty.
    threads : int, optional
        As of `search`: every knob is searched once without the chosen value.
    progress : bool or function of (done, total), optional
        Of the knobs. Default: a line once a second has passed, on a terminal or in a notebook. True
        shows a bar of tqdm, False nothing.

    Returns
    -------
    Choice

    Raises
    ------
    ScaleModelError : the ranking is empty; the message says why nothing fits.

    Examples
    --------
    >>> import scalemodel as sm
    >>> best = sm.search("llama3_8b", sm.cluster("dgx_h100"),
    ...                  sm.Training(global_batch=64, sequence=8192))
    >>> choice = explain_choice(best)
    >>> gap = choice.runner_up.step_time_s - choice.winner.step_time_s
    >>> bool(abs(choice.terms.difference_s.sum() - gap) < 1e-9)
    True
    """
    if not isinstance(ranking, Ranking):
        raise ScaleModelError(f"ranking={ranking!r}: must be a Ranking, as `search` returns it")
    if not ranking:
        raise ScaleModelError(f"ranking: nothing fits: {ranking.why_infeasible()}")
    question, winner = ranking.question, ranking[0]
    values = question.space.values(question.model, question.cluster, question.task)
    with watched(progress, len(values), " knobs") as tell:
        knobs = list(_worths(question, winner, values, threads, tell))
    return Choice(question, winner, _runner_up(ranking, list(question.objective)), knobs)
