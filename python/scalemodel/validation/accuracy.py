"""The accuracy table and the uncertainty of the catalogue, from a table of measured runs.

``python -m scalemodel.validation.accuracy runs.csv --readme FILE`` scores every (source,
accelerator, number format) three times: with the catalogue's stacks (fitted to these runs), with
constants that have not seen the source (`left_out`), and with the plain stack. It writes
``accuracy.toml`` and ``uncertainty.toml`` into the catalogue's ``reference`` folder and the
condensed tables into FILE, which is the README.md of this folder; ``--refit`` first fits the
stacks and writes their constants.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.uncertainty import Uncertainty
from scalemodel.validation.errors import MACRO_ROWS, kendall_tau_b, percent, summarised
from scalemodel.validation.fit import (
    JUDGED_COLUMNS,
    fit_stacks,
    measured_step_time_s,
    read_runs,
    write_constants,
)
from scalemodel.validation.left_out import predict_left_out
from scalemodel.validation.prediction import Prediction, predict
from scalemodel.validation.residuals import (
    Residual,
    residuals_of,
    uncertainties_without,
    uncertainty_of,
)
from scalemodel.validation.rows import Table, read_table
from scalemodel.validation.score import merged_source

if TYPE_CHECKING:
    import pandas as pd

WAYS = ("fitted", "left_out", "plain")
TARGET = 0.18  # left-out error above which the summary names a group
_ACCURACY_COMMENT = """\
Written by python -m scalemodel.validation.accuracy. Errors are predicted/measured - 1 of the step
time. way: fitted = stacks of the catalogue; left_out = constants that have not seen the source;
plain = without a named stack. constants: own = fitted to the stack's (other) runs; mean = mean of
the other stacks. mape, p90: mean and 90th percentile of the size; bias: median; kendall_tau: rank
correlation; covered: share of rows inside their 80 % interval, made without their source.
gain: plain less this error. macro: mean over groups (source, accelerator) of at least 5 rows;
shared: over groups of stacks with runs from several sources."""
_UNCERTAINTY_COMMENT = """\
Written by python -m scalemodel.validation.accuracy. cells: the factor between a predicted step time
and either end of its interval, for runs alike in constants (named stack or plain), accelerator
architecture, precision class and scale (largest number of accelerators; 0: beyond 1024); an empty
text and -1 stand for any. seen: the largest runs measured. widening: what logarithms of factors
are multiplied with where a question lies beyond all of them."""
_BEGIN, _END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"


class Scored(NamedTuple):
    """A measured row with what one way of predicting says about it."""

    source: str
    gpu: str
    precision: str
    stack: str
    """The named stack of the row, in every way of predicting it."""
    origin: str
    measured_s: float
    predicted_s: float | None
    low_s: float | None
    high_s: float | None

    @property
    def error_fraction(self) -> float | None:
        """Signed relative error."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Errors:
    """Errors of a set of rows; NaN where nothing was predicted."""

    rows: int
    predicted: int
    mape_fraction: float
    bias_fraction: float
    p90_fraction: float
    kendall_tau: float
    covered_fraction: float


def errors_of(rows: Sequence[Scored]) -> Errors:
    """Errors of a set of rows, and the share inside their intervals."""
    pairs = [(row.predicted_s, row.measured_s) for row in rows if row.predicted_s is not None]
    summary = summarised([predicted / measured - 1 for predicted, measured in pairs])
    inside = [
        row.low_s <= row.measured_s <= row.high_s
        for row in rows
        if row.low_s is not None and row.high_s is not None
    ]
    return Errors(
        rows=len(rows),
        predicted=len(pairs),
        mape_fraction=summary.mape_fraction,
        bias_fraction=summary.bias_fraction,
        p90_fraction=summary.p90_fraction,
        kendall_tau=kendall_tau_b([pair[0] for pair in pairs], [pair[1] for pair in pairs]),
        covered_fraction=sum(inside) / len(inside) if inside else math.nan,
    )


@dataclass(frozen=True)
class Accuracy:
    """Every measured row, predicted in each of the three ways, and the intervals they give."""

    rows: Mapping[str, Sequence[Scored]]
    uncertainty: Uncertainty
    total_rows: int

    def groups(
        self, way: str, key: Callable[[Scored], tuple[str, ...]]
    ) -> dict[tuple[str, ...], list[Scored]]:
        """The rows of a way by key, keys sorted."""
        found: dict[tuple[str, ...], list[Scored]] = {}
        for row in self.rows[way]:
            found.setdefault(key(row), []).append(row)
        return {name: found[name] for name in sorted(found)}

    def macro(self, way: str, *, stacks: Iterable[str] | None = None) -> tuple[float, int]:
        """Mean error over groups (source, accelerator) of at least five rows; their number."""
        wanted = None if stacks is None else set(stacks)
        mapes = []
        for rows in self.groups(way, lambda row: (row.source, row.gpu)).values():
            if wanted is None or {row.stack for row in rows} <= wanted:
                mape = errors_of(rows).mape_fraction
                if len(rows) >= MACRO_ROWS and math.isfinite(mape):
                    mapes.append(mape)
        return (sum(mapes) / len(mapes) if mapes else math.nan), len(mapes)

    def shared_stacks(self) -> list[str]:
        """Stacks with runs from more than one source."""
        sources: dict[str, set[str]] = {}
        for row in self.rows["fitted"]:
            sources.setdefault(row.stack, set()).add(row.source)
        return sorted(name for name, found in sources.items() if name and len(found) > 1)


# ----------------------------------------------------------------------------------- measurement
def _labels(table: Table) -> list[tuple[str, str, str, float | None]]:
    columns = ("source", "gpu", "precision_class", "precision", *JUDGED_COLUMNS)
    labels = []
    for row in table.select((*columns, "norm_step_time_s")):
        precision = row.text("precision_class") or row.text("precision")
        source = merged_source(row.text("source"))
        labels.append((source, row.text("gpu"), precision, measured_step_time_s(row)))
    return labels


def _scored(
    labels: Sequence[tuple[str, str, str, float | None]],
    predictions: Sequence[Prediction],
    named: Sequence[tuple[str, str]],
    intervals: Callable[[str], Uncertainty],
) -> list[Scored]:
    """Measured rows with their predictions; `named`: stack and origin of its constants."""
    rows = []
    for (source, gpu, precision, measured_s), prediction, (stack, origin) in zip(
        labels, predictions, named, strict=True
    ):
        if measured_s is None:
            continue
        low_s, high_s, _ = prediction.interval(intervals(source))
        rows.append(
            Scored(
                source,
                gpu,
                precision,
                stack,
                origin,
                measured_s,
                prediction.step_time_s,
                low_s,
                high_s,
            )
        )
    return rows


def _residuals(
    labels: Sequence[tuple[str, str, str, float | None]], predictions: Sequence[Prediction]
) -> list[Residual]:
    return residuals_of(
        (source, prediction, measured_s)
        for (source, _, _, measured_s), prediction in zip(labels, predictions, strict=True)
        if measured_s is not None
    )


def _refitted(fitted: pd.DataFrame) -> dict[str, _core.Stack]:
    """Stacks with the constants of `fit_stacks`."""
    return {
        str(name): resolve.stack(str(name)).replace(
            **dict(zip(rows["constant"], rows["value"].astype(float), strict=True))
        )
        for name, rows in fitted.groupby("stack")
    }


def measure(table: Table, stacks: Mapping[str, _core.Stack] | None = None) -> Accuracy:
    """Predict every measured row of a table in the three ways.

    Parameters
    ----------
    table : Table
    stacks : mapping of str to _core.Stack, optional
        To take in place of the catalogue's where constants are fitted to these runs.

    Raises
    ------
    ScaleModelError
        The table lacks a required column, or holds no measured run.
    """
    labels = _labels(table)
    if not any(measured_s for *_, measured_s in labels):
        raise ScaleModelError("table: holds no measured run to score")
    left_out = predict_left_out(table, read_runs(table))
    plain = predict(table, stack="plain")
    fitted = predict(table, constants=stacks)
    residuals = _residuals(labels, [row.prediction for row in left_out])
    residuals += _residuals(labels, plain)
    uncertainty = uncertainty_of(residuals)
    without = uncertainties_without(residuals)
    names = [prediction.stack for prediction in fitted]
    predicted = [row.prediction for row in left_out]
    origins = [row.origin for row in left_out]

    def of(one_origin: str) -> list[tuple[str, str]]:
        return [(name, one_origin) for name in names]

    return Accuracy(
        rows={
            "fitted": _scored(labels, fitted, of("own"), lambda source: uncertainty),
            "left_out": _scored(labels, predicted, list(zip(names, origins, strict=True)), without),
            "plain": _scored(labels, plain, of("plain"), without),
        },
        uncertainty=uncertainty,
        total_rows=len(table.rows),
    )


# ------------------------------------------------------------------------------------------ files
def _number(value: float) -> float:
    return round(value, 4)


def _errors_record(errors: Errors) -> dict[str, object]:
    """The errors without what is not a number."""
    named = {
        "mape_fraction": errors.mape_fraction,
        "bias_fraction": errors.bias_fraction,
        "p90_fraction": errors.p90_fraction,
        "kendall_tau": errors.kendall_tau,
        "covered_fraction": errors.covered_fraction,
    }
    finite = {key: _number(value) for key, value in named.items() if math.isfinite(value)}
    return {"rows": errors.rows, "predicted": errors.predicted, **finite}


def _distinct(rows: Iterable[Scored], of: Callable[[Scored], str]) -> str:
    return ", ".join(sorted({of(row) for row in rows} - {""}))


def table_of(accuracy: Accuracy) -> dict[str, Any]:
    """The accuracy table as ``accuracy.toml`` holds it.

    ``groups`` has a line per way, source, accelerator and number format; ``sources`` and ``stacks``
    sum over the others; ``totals`` is row-weighted and macro (groups of at least five rows).
    """

    def lines(**keys: Callable[[Scored], str]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        by_way: dict[tuple[str, tuple[str, ...]], dict[str, object]] = {}
        for way in WAYS:
            grouped = accuracy.groups(way, lambda row: tuple(of(row) for of in keys.values()))
            for names, rows in grouped.items():
                if not all(names):  # rows that no stack predicts count in their source
                    continue
                label: dict[str, object] = {"way": way, **dict(zip(keys, names, strict=True))}
                if "gpu" not in keys:
                    label["gpus"] = _distinct(rows, lambda row: row.gpu)
                if "stack" not in keys:
                    label["stacks"] = _distinct(rows, lambda row: row.stack)
                label["constants"] = _distinct(rows, lambda row: row.origin)
                record = _errors_record(errors_of(rows))
                by_way[way, names] = record
                found.append({**label, **record})
        for line in found:  # what the stack of the row gains over the plain one
            names = tuple(str(line[key]) for key in keys)
            plain, own = (by_way[way, names] for way in ("plain", str(line["way"])))
            if line["way"] != "plain" and "mape_fraction" in plain and "mape_fraction" in own:
                gain = float(str(plain["mape_fraction"])) - float(str(own["mape_fraction"]))
                line["gain_fraction"] = _number(gain)
        return found

    totals: list[dict[str, object]] = []
    shared = accuracy.shared_stacks()
    for way in WAYS:
        rows = accuracy.rows[way]
        sizes = sorted(abs(row.error_fraction) for row in rows if row.error_fraction is not None)
        macro, groups = accuracy.macro(way)
        line: dict[str, object] = {"way": way, **_errors_record(errors_of(rows))}
        line |= {"median_fraction": _number(sizes[len(sizes) // 2]) if sizes else 0.0}
        line |= {"macro_mape_fraction": _number(macro), "macro_groups": groups}
        if shared:
            of_shared, count = accuracy.macro(way, stacks=shared)
            line |= {"shared_macro_mape_fraction": _number(of_shared), "shared_groups": count}
        totals.append({key: value for key, value in line.items() if value == value})
    return {
        "totals": totals,
        "sources": lines(source=lambda row: row.source),
        "stacks": lines(stack=lambda row: row.stack),
        "groups": lines(
            source=lambda row: row.source,
            gpu=lambda row: row.gpu,
            precision=lambda row: row.precision,
        ),
    }


def _toml_value(value: object) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, float) and value == math.floor(value) and abs(value) >= 1e15:
        return f"{value:.6e}"
    return repr(value)


def _inline(record: Mapping[str, object]) -> str:
    inner = ", ".join(f"{key} = {_toml_value(value)}" for key, value in record.items())
    return f"{{ {inner} }}"


def _array(name: str, records: Iterable[Mapping[str, object]]) -> list[str]:
    return [f"{name} = [", *(f"  {_inline(record)}," for record in records), "]"]


def _header(name: str, title: str, described: str, date: str, comment: str) -> list[str]:
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f'name = "{name}"', f'title = "{title}"', f'date = "{date}"']
    return [*lines, f'source = "{described}"']


def accuracy_text(accuracy: Accuracy, described: str, date: str) -> str:
    """``accuracy.toml``."""
    table = table_of(accuracy)
    title = "Errors against published training runs"
    lines = _header("accuracy", title, described, date, _ACCURACY_COMMENT)
    counted = _inline({"value": len(accuracy.rows["fitted"]), "unit": "runs", "source": described})
    for name in ("totals", "sources", "stacks", "groups"):
        lines += ["", *_array(name, table[name])]
    return "\n".join([*lines, "", "[data]", f"runs = {counted}", ""])


def uncertainty_text(uncertainty: Uncertainty, described: str, date: str) -> str:
    """``uncertainty.toml``."""
    title = "How far measured steps stray from predicted ones"
    lines = _header("uncertainty", title, described, date, _UNCERTAINTY_COMMENT)
    cells = [
        {
            **key._asdict(),
            "factor": round(cell.factor, 4),
            "rows": cell.rows,
            "sources": cell.sources,
        }
        for key, cell in sorted(uncertainty.cells.items())
    ]
    seen = [item._asdict() for item in uncertainty.seen]
    lines += ["", *_array("cells", cells), "", *_array("seen", seen)]
    share = _inline(
        {"value": uncertainty.coverage_fraction, "unit": "of measured steps", "source": "chosen"}
    )
    lines += ["", "[interval]", f"coverage_fraction = {share}", "", "[widening]"]
    for kind, factor in uncertainty.widening.items():
        record = {
            "value": round(factor, 3),
            "unit": "on the logarithm of the factor",
            "source": "the same runs, what is named left out",
        }
        lines.append(f"{kind} = {_inline(record)}")
    return "\n".join([*lines, ""])


def _by_way(table: Mapping[str, Any], name: str, key: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Lines of a part of the table: label -> way -> line."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in table[name]:
        found.setdefault(line[key], {})[line["way"]] = line
    return found


def _cell(line: Mapping[str, Any], key: str) -> str:
    return percent(float(line[key])) if key in line else "-"


def _markdown(titles: Sequence[str], texts: int, rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose first columns are texts, the others numbers."""
    rule = ["---"] * texts + ["--:"] * (len(titles) - texts)
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(rule)}|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def readme_section(table: Mapping[str, Any]) -> str:
    """The condensed table of an ``accuracy.toml`` in Markdown.

    Examples
    --------
    >>> from scalemodel import catalog
    >>> readme_section(catalog.load("reference", "accuracy")).splitlines()[0]
    '| source | accelerators | runs | fitted | left out | bias | P90 | plain |'
    """
    rows = []
    for source, ways in _by_way(table, "sources", "source").items():
        fitted, left_out = ways["fitted"], ways["left_out"]
        rows.append(
            [
                re.sub(r"\s*\(.*?\)", "", source),
                fitted["gpus"],
                str(fitted["rows"]),
                _cell(fitted, "mape_fraction"),
                *(_cell(left_out, f"{key}_fraction") for key in ("mape", "bias", "p90")),
                _cell(ways["plain"], "mape_fraction"),
            ]
        )
    totals = {line["way"]: line for line in table["totals"]}
    fitted, left_out, plain = (totals[way] for way in WAYS)
    pooled = [_cell(left_out, f"{key}_fraction") for key in ("mape", "bias", "p90")]
    ends = [_cell(line, "mape_fraction") for line in (fitted, plain)]
    rows.append(["**all runs**", "", str(fitted["rows"]), ends[0], *pooled, ends[1]])
    macro = [_cell(line, "macro_mape_fraction") for line in (fitted, left_out, plain)]
    groups = f"{fitted['macro_groups']} groups"
    rows.append(["**mean of groups**", groups, "", *macro[:2], "", "", macro[2]])
    titles = ("source", "accelerators", "runs", "fitted", "left out", "bias", "P90", "plain")
    lines = _markdown(titles, 2, rows)
    rows = [
        [
            f"`{stack}`",
            str(ways["fitted"]["rows"]),
            *(_cell(ways[way], "mape_fraction") for way in WAYS),
            _cell(ways["left_out"], "gain_fraction"),
        ]
        for stack, ways in _by_way(table, "stacks", "stack").items()
    ]
    lines += ["", *_markdown(("stack", "runs", "fitted", "left out", "plain", "gain"), 1, rows)]
    covered = percent(float(left_out.get("covered_fraction", math.nan)))
    held = f"Of the left-out runs {covered} % lie inside their 80 % interval"
    return "\n".join([*lines, "", f"{held} ({table['date']}, {table['source']})."])


def with_section(readme: str, section: str) -> str:
    """A README with its accuracy section replaced.

    Raises
    ------
    ScaleModelError
        The README has no place for it.
    """
    if _BEGIN not in readme or _END not in readme:
        raise ScaleModelError(f"readme: needs the lines {_BEGIN} and {_END}")
    before, rest = readme.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    return f"{before}{_BEGIN}\n{section}\n{_END}{after}"


# ---------------------------------------------------------------------------------------- command
def _description(path: Path, accuracy: Accuracy) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    sources = len({row.source for row in accuracy.rows["fitted"]})
    return (
        f"{len(accuracy.rows['fitted'])} published training runs of {sources} sources, "
        f"table of {accuracy.total_rows} rows, sha256 {digest}"
    )


def summary(accuracy: Accuracy) -> str:
    """What the tables say, in a few lines."""
    lines = []
    for line in table_of(accuracy)["totals"]:
        parts = [
            f"{line['way']!s:9}macro {percent(line['macro_mape_fraction'])} % of "
            f"{line['macro_groups']} groups",
            f"runs {percent(line['mape_fraction'])} %",
            f"median {percent(line['median_fraction'])} %",
            f"P90 {percent(line['p90_fraction'])} %",
            f"bias {percent(line['bias_fraction'])} %",
            f"inside the interval {percent(line.get('covered_fraction', math.nan))} %",
        ]
        if "shared_macro_mape_fraction" in line:
            shared = percent(line["shared_macro_mape_fraction"])
            parts.append(f"stacks of several sources {shared} % of {line['shared_groups']} groups")
        lines.append(", ".join(parts))
    above = []
    for (source, gpu), rows in accuracy.groups(
        "left_out", lambda row: (row.source, row.gpu)
    ).items():
        errors = errors_of(rows)
        if len(rows) >= MACRO_ROWS and errors.mape_fraction > TARGET:
            signed = f"{percent(errors.mape_fraction)} % (bias {percent(errors.bias_fraction)})"
            above.append(f"  {source}, {gpu}: {signed}")
    title = f"left-out groups above {percent(TARGET)} %:"
    return "\n".join([*lines, title, *(above or ["  none"])])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write both tables and the README's section, print a summary."""
    parser = argparse.ArgumentParser(
        prog="python -m scalemodel.validation.accuracy", description=__doc__
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="CSV of measured training runs")
    folder = Path(catalog.__file__).resolve().parent / "reference"
    parser.add_argument("--out", type=Path, default=folder, metavar="FOLDER", help="of both tables")
    parser.add_argument(
        "--refit", action="store_true", help="first write the stacks' constants fitted to FILE"
    )
    parser.add_argument("--readme", type=Path, metavar="FILE", help="page to update")
    options = parser.parse_args(argv)
    stacks = None
    if options.refit:
        refit = fit_stacks(options.file)
        written = write_constants(refit, options.out.parent / "stacks")
        print("\n".join(f"written {path}" for path in written))
        stacks = _refitted(refit)
    accuracy = measure(read_table(options.file), stacks)
    described, date = _description(options.file, accuracy), datetime.date.today().isoformat()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("accuracy", accuracy_text(accuracy, described, date)),
        ("uncertainty", uncertainty_text(accuracy.uncertainty, described, date)),
    ):
        path = options.out / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        print(f"written {path}")
    if options.readme:
        section = readme_section(catalog.read_toml(options.out / "accuracy.toml"))
        text = options.readme.read_text(encoding="utf-8")
        options.readme.write_text(with_section(text, section), encoding="utf-8")
        print(f"written {options.readme}")
    print(summary(accuracy))
    return 0


if __name__ == "__main__":
    sys.exit(main())
