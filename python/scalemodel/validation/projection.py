"""Projections from a measured size of a job to larger ones, judged by published runs.

Sources that publish one model, stack and format at several sizes are asked as a user would ask: the
smallest size is known, the larger ones are predicted, once as they are and once with the ratio of
measured over predicted at the smallest. ``python -m scalemodel.validation.projection`` measures the
errors again and writes ``catalog/reference/projection.toml``, from which `scalemodel.project` takes
what it carries over and its intervals.

Mean errors of the larger sizes in percent, without and with the measured size
(``scalemodel list reference projection`` has all lines):

===================  ========  ====  =======  ====
constants            layout    runs  without  with
===================  ========  ====  =======  ====
source never seen    the same  199   6.9      3.1
source never seen    another   105   9.5      6.9
no named stack       the same  199   14.6     4.3
no named stack       another   105   14.7     10.9
fitted to the runs   the same  199   4.1      3.2
fitted to the runs   another   105   5.0      5.0
===================  ========  ====  =======  ====

*The same* layout: nothing but the number of replicas grows. From runs of one node it is 15 runs,
4.9 without and 2.7 with. What does not improve: Aleph Alpha's runs (their larger ones reduce
gradients more slowly than the smaller say), and layouts that change where the constants were fitted
to the runs already.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.estimator.projection import Carried, projected_s
from scalemodel.resolve.recipes import released
from scalemodel.validation.errors import MACRO_ROWS, columns, percent
from scalemodel.validation.fit import JUDGED_COLUMNS, measured_step_time_s
from scalemodel.validation.left_out import predict_left_out
from scalemodel.validation.prediction import predict
from scalemodel.validation.published import published_table
from scalemodel.validation.residuals import COVERAGE
from scalemodel.validation.rows import SkippedRowError, Table, read_table
from scalemodel.validation.score import merged_source
from scalemodel.validation.training import INPUT_COLUMNS, Question, question

if TYPE_CHECKING:
    import pandas as pd

#: Knobs that the number of replicas brings along: the layout of a replica is the others.
_REPLICAS = ("dp", "shard_degree")
#: How the constants came about, and which cell of the table their projections make.
WAYS = {"left_out": "named", "plain": "plain", "fitted": ""}


class Projected(NamedTuple):
    """A published run beside what a smaller one of its job says of it.

    Attributes
    ----------
    source, stack, accelerator : str
    known, accelerators : int
        Sizes of the smaller run and of this one.
    one_node : bool
        Whether the smaller run was on one node.
    same_layout : bool
        Whether nothing but the number of replicas differs.
    measured_s, predicted_s : float
        Of this run.
    known_ratio : float
        Measured over predicted of the smaller: the median of its runs.
    """

    source: str
    stack: str
    accelerator: str
    known: int
    accelerators: int
    one_node: bool
    same_layout: bool
    measured_s: float
    predicted_s: float
    known_ratio: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    def error_fraction(self, carried_fraction: float) -> float:
        """Signed error of the step that is projected with this share of the known ratio."""
        step_s = projected_s(self.predicted_s, self.known_ratio, carried_fraction)
        return step_s / self.measured_s - 1


class _Run(NamedTuple):
    source: str
    question: Question
    measured_s: float
    predicted_s: float

    @property
    def ratio(self) -> float:
        return self.measured_s / self.predicted_s

    @property
    def job(self) -> tuple[object, ...]:
        """What runs of one job at several sizes share."""
        asked = self.question
        task = tuple(item for item in asked.task if item[0] != "global_batch")
        what = (self.source, asked.stack, asked.model, asked.accelerator)
        return (*what, asked.precisions, asked.method, task)

    @property
    def layout(self) -> tuple[object, ...]:
        """What a replica is."""
        kept = tuple(item for item in self.question.strategy if item[0] not in _REPLICAS)
        return (kept, self.question.recomputations)


def _runs(table: Table, way: str) -> list[_Run]:
    """Measured runs of releases: those of a development branch differ in more than their size."""
    if way == "left_out":
        predictions = [row.prediction for row in predict_left_out(table)]
    else:
        predictions = predict(table, stack="plain" if way == "plain" else None)
    names = (*INPUT_COLUMNS, *JUDGED_COLUMNS, "norm_step_time_s", "source")
    found = []
    for row, prediction in zip(table.select(names), predictions, strict=True):
        measured_s = measured_step_time_s(row)
        framework = row.text("framework")
        if measured_s is None or prediction.step_time_s is None or released(framework) != framework:
            continue
        try:
            asked = question(row)
        except SkippedRowError:
            continue
        source = merged_source(row.text("source"))
        found.append(_Run(source, asked, measured_s, prediction.step_time_s))
    return found


def _of_job(runs: Sequence[_Run], *, same_layout: bool) -> Iterable[Projected]:
    known = min(run.question.accelerators for run in runs)
    small = [run for run in runs if run.question.accelerators == known]
    layouts = {run.layout for run in small}
    ratio = median(run.ratio for run in small)
    for run in runs:
        asked = run.question
        if asked.accelerators == known or (not same_layout and run.layout in layouts):
            continue
        yield Projected(
            source=run.source,
            stack=asked.stack,
            accelerator=asked.accelerator,
            known=known,
            accelerators=asked.accelerators,
            one_node=known <= asked.node_accelerators,
            same_layout=same_layout,
            measured_s=run.measured_s,
            predicted_s=run.predicted_s,
            known_ratio=ratio,
        )


def projections(table: Table | None = None, *, way: str = "left_out") -> list[Projected]:
    """Every published run of a job that was published at a smaller size too.

    A run whose layout of a replica was measured at a smaller size is known by the smallest of
    these; any other by the runs of its job at its smallest size.

    Parameters
    ----------
    table : Table, optional
        Measured training runs; default: those of the package.
    way : str
        ``"left_out"``: constants that have not seen the source; ``"plain"``: no named stack;
        ``"fitted"``: the catalogue's, some of which the runs were fitted to.

    Examples
    --------
    >>> found = projections(way="fitted")
    >>> {item.same_layout for item in found} == {True, False}
    True
    >>> all(item.accelerators > item.known for item in found)
    True
    """
    jobs: dict[tuple[object, ...], list[_Run]] = defaultdict(list)
    for run in _runs(published_table("training") if table is None else table, way):
        jobs[run.job].append(run)
    found: list[Projected] = []
    for runs in jobs.values():
        layouts: dict[tuple[object, ...], list[_Run]] = defaultdict(list)
        for run in runs:
            layouts[run.layout].append(run)
        for alike in layouts.values():
            found += _of_job(alike, same_layout=True)
        found += _of_job(runs, same_layout=False)
    return found


# ----------------------------------------------------------------------------------- what it says
def _weights(pairs: Sequence[Projected]) -> list[float]:
    """A long table decides no more than the square root of its rows, as in fits of constants."""
    counts = Counter(pair.source for pair in pairs)
    return [counts[pair.source] ** -0.5 for pair in pairs]


def carried_fraction(pairs: Sequence[Projected]) -> float:
    """How much of the known ratio shows again at the larger size: a slope through zero, 0 to 1.

        ln(ratio) = carried ln(known ratio), weighted least squares

    Examples
    --------
    >>> pair = Projected("a", "plain", "x", 8, 64, True, True, 1.21, 1.0, 1.21)
    >>> round(carried_fraction([pair]), 3)
    1.0
    """
    weighted = list(zip(_weights(pairs), pairs, strict=True))
    over = sum(w * math.log(p.known_ratio) * math.log(p.ratio) for w, p in weighted)
    under = sum(w * math.log(p.known_ratio) ** 2 for w, p in weighted)
    return min(1.0, max(0.0, over / under)) if under else 1.0


def _misses(pairs: Sequence[Projected], carried: float) -> list[float]:
    return [abs(math.log(pair.ratio) - carried * math.log(pair.known_ratio)) for pair in pairs]


def _bound(pairs: Sequence[Projected], carried: float) -> float:
    """Logarithm of the factor that holds the stated share, a new source being one more draw."""
    sources = len({pair.source for pair in pairs})
    found = float(_core.conformal_bound(_misses(pairs, carried), _weights(pairs), COVERAGE))
    return found * math.sqrt((sources + 1) / (sources - 1)) if sources > 1 else math.inf


def _without(pairs: Sequence[Projected]) -> Iterable[tuple[list[Projected], list[Projected]]]:
    """For every source: its runs, and those of all others."""
    for source in dict.fromkeys(pair.source for pair in pairs):
        yield (
            [pair for pair in pairs if pair.source == source],
            [pair for pair in pairs if pair.source != source],
        )


def carried_over(pairs: Sequence[Projected]) -> Carried:
    """The constants of a projection, from runs that are alike.

    The factor is stretched until factors made without a source hold the stated share of that
    source's runs, in the mean of sources with `MACRO_ROWS` of them, as intervals of estimates are
    (`scalemodel.validation.residuals`).
    """
    share = carried_fraction(pairs)
    scores, weights = [], []
    for own, others in _without(pairs):
        if len(own) < MACRO_ROWS:  # one or two runs are no share of anything
            continue
        bound = _bound(others, carried_fraction(others))
        misses = _misses(own, carried_fraction(others))
        scores += [miss / bound for miss in misses]
        weights += [1 / len(own)] * len(own)
    stretch = float(_core.conformal_bound(scores, weights, COVERAGE))
    factor = math.exp(_bound(pairs, share) * stretch)
    return Carried(share, factor, len(pairs), len({pair.source for pair in pairs}))


def _error_row(part: str, pairs: Sequence[Projected], of: dict[str, Carried]) -> dict[str, Any]:
    plain = [abs(pair.error_fraction(0.0)) for pair in pairs]
    known = [abs(pair.error_fraction(of[pair.source].carried_fraction)) for pair in pairs]
    inside = [
        _misses([pair], of[pair.source].carried_fraction)[0] <= math.log(of[pair.source].factor)
        for pair in pairs
    ]
    return {
        "part": part,
        "runs": len(pairs),
        "error_fraction": sum(plain) / len(plain),
        "projected_error_fraction": sum(known) / len(known),
        "covered_fraction": sum(inside) / len(inside),
    }


def scores_of(found: Mapping[str, Sequence[Projected]]) -> pd.DataFrame:
    """Mean errors at the larger sizes without and with the smaller one, by way and layout.

    The share of a ratio that is carried over, and the interval, come from the other sources.

    Parameters
    ----------
    found : mapping of str to sequence of Projected
        By way, what `projections` gives.

    Returns
    -------
    DataFrame
        Columns way, same_layout, part (``all``, ``from one node`` or a source), runs,
        error_fraction (as predicted), projected_error_fraction (with the smaller size known),
        covered_fraction (inside the interval of the projection).

    Examples
    --------
    >>> pair = Projected("a", "plain", "x", 8, 64, True, True, 1.21, 1.0, 1.21)
    >>> scores_of({"plain": [pair] * 5}).projected_error_fraction.round(3).tolist()
    [0.0, 0.0, 0.0]
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for way, every in found.items():
        for same_layout in (True, False):
            pairs = [pair for pair in every if pair.same_layout == same_layout]
            if not pairs:
                continue
            of = {own[0].source: carried_over(others or own) for own, others in _without(pairs)}
            parts = {"all": pairs, "from one node": [pair for pair in pairs if pair.one_node]}
            parts |= {own[0].source: own for own, _ in _without(pairs)}
            rows += [
                {"way": way, "same_layout": same_layout} | _error_row(part, alike, of)
                for part, alike in parts.items()
                if alike
            ]
    return pd.DataFrame(rows)


# --------------------------------------------------------------------------------------- command
_COMMENT = """\
# Written by python -m scalemodel.validation.projection. cells: how much of measured over predicted
# at one size shows at another (carried_fraction, an exponent), and the factor between a projected
# step time and either end of its interval, of named stacks and the plain one. errors: mean errors
# at the larger sizes without and with the smaller one known."""


def _cell_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{round(float(str(value)), 4):g}"


def _lines(name: str, rows: Iterable[dict[str, Any]]) -> list[str]:
    listed = (", ".join(f"{key} = {_cell_text(cell)}" for key, cell in row.items()) for row in rows)
    return [f"{name} = [", *(f"  {{ {row} }}," for row in listed), "]"]


def toml(by_way: Mapping[str, Sequence[Projected]]) -> str:
    """The text of ``catalog/reference/projection.toml``."""
    cells: list[dict[str, Any]] = []
    for way, constants in WAYS.items():
        if not constants:
            continue
        every = by_way[way]
        for same_layout in (True, False):
            found = carried_over([pair for pair in every if pair.same_layout == same_layout])
            cells.append({"constants": constants, "same_layout": same_layout, **found._asdict()})
    errors = scores_of(by_way).to_dict("records")
    runs = max(map(len, by_way.values()))
    about = f"{runs} published runs of jobs that were published at a smaller size too"
    lines = [
        _COMMENT,
        'name = "projection"',
        'title = "How far a measured size of a job tells the larger ones"',
        f'date = "{datetime.date.today().isoformat()}"',
        f'source = "{about}"',
        "",
        *_lines("cells", cells),
        "",
        *_lines("errors", [{str(key): cell for key, cell in row.items()} for row in errors]),
        "",
        "[interval]",
        f'coverage_fraction = {{ value = {COVERAGE}, unit = "of steps", source = "chosen" }}',
    ]
    return "\n".join(lines) + "\n"


def text(frame: pd.DataFrame) -> str:
    """What `scores_of` found, for a terminal."""
    titles = ("way", "layout", "runs of", "runs", "as predicted %", "projected %", "inside %")
    shown = [
        [
            str(row["way"]),
            "same" if row["same_layout"] else "another",
            str(row["part"])[:40],
            str(row["runs"]),
            percent(row["error_fraction"]),
            percent(row["projected_error_fraction"]),
            percent(row["covered_fraction"]),
        ]
        for row in frame.to_dict("records")
    ]
    return "\n".join(columns(titles, shown, texts=3))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the errors, write the table of the catalogue, print both."""
    parser = argparse.ArgumentParser(
        prog="python -m scalemodel.validation.projection", description=__doc__
    )
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="CSV of measured training runs"
    )
    folder = Path(catalog.__file__).resolve().parent / "reference"
    parser.add_argument("--out", type=Path, default=folder, metavar="FOLDER", help="of the table")
    options = parser.parse_args(argv)
    table = None if options.file is None else read_table(options.file)
    path = options.out / "projection.toml"
    by_way = {way: projections(table, way=way) for way in WAYS}
    path.write_text(toml(by_way), encoding="utf-8")
    print(f"written {path}")
    print(text(scores_of(by_way)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
