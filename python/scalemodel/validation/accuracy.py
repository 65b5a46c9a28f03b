"""The accuracy table and the uncertainty of the catalogue, from a table of measured runs.

``python -m scalemodel.validation.accuracy --readme FILE`` scores every (source, accelerator, number
format) of the published runs of the package, or of a CSV of your own, three times: with the
catalogue's stacks (fitted to these runs), with constants that have not seen the source
(`left_out`), and with the plain stack. Rows whose column ``fitted`` says no, to which no constant
was fitted, are scored apart, once, with the catalogue's stacks. It writes ``accuracy.toml`` and
``uncertainty.toml`` into the catalogue's ``reference`` folder and the condensed tables into FILE,
which is the README.md of this folder; ``--refit`` first fits the stacks and writes their constants.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.uncertainty import Uncertainty
from scalemodel.validation.accuracy_table import (
    ELSEWHERE,
    NEW_SOURCE,
    WAYS,
    Accuracy,
    errors_of,
    measure,
    refitted,
    table_of,
)
from scalemodel.validation.errors import MACRO_ROWS, percent
from scalemodel.validation.fit import (
    fit_stacks,
    write_constants,
)
from scalemodel.validation.published import path_of, published_table
from scalemodel.validation.rows import read_table

if TYPE_CHECKING:
    pass

TARGET = 0.18  # left-out error above which the summary names a group
_ACCURACY_COMMENT = """\
Written by python -m scalemodel.validation.accuracy. Errors are predicted/measured - 1 of the step
time. way: fitted = stacks of the catalogue; left_out = constants that have not seen the source;
plain = without a named stack; elsewhere = constants that have not seen the architecture.
constants: own = fitted to the stack's (other) runs; mean = mean of the other stacks.
mape, p90: mean and 90th percentile of the size; bias: median; kendall_tau: rank
correlation; covered: share of rows inside their 80 % interval, made without their source.
gain: plain less this error. macro: mean over groups (source, accelerator) of at least 5 rows;
shared: over groups of stacks with runs from several sources. unseen: runs that no constant was
fitted to, which came after all others, by the stacks of the catalogue. classes: runs that resemble
each other, of left_out and of unseen."""
_UNCERTAINTY_COMMENT = """\
Written by python -m scalemodel.validation.accuracy. cells: the factor between a predicted step time
and either end of its interval, for runs alike in constants (named stack or plain), accelerator
architecture, precision class, scale (largest number of accelerators; 0: beyond 1024), kind (of a
dense model, of experts, tuning of either) and evidence (what they were timed for, if not to train);
an empty text and -1 stand for any. seen: the largest
runs measured. widening: what logarithms of factors
are multiplied with where a question lies beyond all of them. scales: what they are multiplied with
for runs of a stack, most of all for how far those of other models and sources strayed."""
_BEGIN, _END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"


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
    for name in ("totals", "unseen", "classes", "sources", "stacks", "groups"):
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
    lines += ["", "[scales]"]
    for stack, scale in uncertainty.scales.items():
        record = {
            "value": round(scale, 3),
            "unit": "on the logarithm of the factor",
            "source": "runs of the stack by constants that have not seen their source",
        }
        lines.append(f"{stack} = {_inline(record)}")
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
    if table.get("unseen"):
        lines += ["", *_unseen_section(table["unseen"])]
    if table.get("classes"):
        lines += ["", *_classes_section(table["classes"])]
    covered = percent(float(left_out.get("covered_fraction", math.nan)))
    new = totals[ELSEWHERE]
    lines += [
        "",
        f"With the architecture left out instead of the source: {_cell(new, 'mape_fraction')} % of "
        f"runs, {_cell(new, 'macro_mape_fraction')} % in the mean of groups, "
        f"P90 {_cell(new, 'p90_fraction')} %.",
    ]
    alone = percent(float(totals[NEW_SOURCE].get("covered_fraction", math.nan)))
    held = (
        f"Of the left-out runs {covered} % lie inside their 80 % interval, made without their "
        f"source and model, {alone} % inside one that no run of their source made"
    )
    return "\n".join([*lines, "", f"{held} ({table['date']}, {table['source']})."])


def _unseen_section(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Runs that came after all fits: one line per source."""
    keys = ("mape_fraction", "bias_fraction", "p90_fraction", "covered_fraction")
    rows = [
        [
            "**all of them**" if line["source"] == "all" else str(line["source"]),
            line["gpus"],
            str(line["rows"]),
            *(_cell(line, key) for key in keys),
        ]
        for line in found
    ]
    titles = ("no constant fitted to", "accelerators", "runs", "error", "bias", "P90", "inside")
    return _markdown(titles, 2, rows)


def _classes_section(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Shares of runs inside their intervals: one line per class."""
    named: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in found:
        named.setdefault(line["class"], {})[line["way"]] = line
    keys = ("rows", "mape_fraction", "covered_fraction")
    rows = []
    for title, ways in named.items():
        row = [title]
        for way in ("left_out", "unseen"):
            line = ways.get(way, {})
            row += [str(line.get("rows", "-")), *(_cell(line, key) for key in keys[1:])]
        rows.append(row)
    titles = ("class", "left out", "error", "inside", "no constant fitted to", "error", "inside")
    return _markdown(titles, 1, rows)


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
def described(path: Path, accuracy: Accuracy) -> str:
    """Which runs a table was measured on: their number, and what tells their file from others."""
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
            f"{line['way']!s:11}macro {percent(line['macro_mape_fraction'])} % of "
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
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="CSV of measured training runs (default: those that the package carries)",
    )
    folder = Path(catalog.__file__).resolve().parent / "reference"
    parser.add_argument("--out", type=Path, default=folder, metavar="FOLDER", help="of both tables")
    parser.add_argument(
        "--refit", action="store_true", help="first write the stacks' constants fitted to FILE"
    )
    parser.add_argument("--readme", type=Path, metavar="FILE", help="page to update")
    options = parser.parse_args(argv)
    file = options.file or path_of("training")
    table = published_table("training") if options.file is None else read_table(file)
    stacks = None
    if options.refit:
        refit = fit_stacks(options.file)
        written = write_constants(refit, options.out.parent / "stacks")
        print("\n".join(f"written {path}" for path in written))
        # What lies in the catalogue is read from it, and gives way where it was not fitted.
        stacks = None if options.out == folder else refitted(refit)
    accuracy = measure(table, stacks)
    runs, date = described(file, accuracy), datetime.date.today().isoformat()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("accuracy", accuracy_text(accuracy, runs, date)),
        ("uncertainty", uncertainty_text(accuracy.uncertainty, runs, date)),
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
