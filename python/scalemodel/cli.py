"""The command line: ``scalemodel estimate | list | validate``.

Exit codes: 0 done, 2 malformed question (one line on the error stream), 3 a strategy that cannot
run or does not fit.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalemodel import _core
from scalemodel._core import __version__
from scalemodel.errors import ScaleModelError

if TYPE_CHECKING:
    from scalemodel.estimate import Estimate
    from scalemodel.tasks import Training

OK, FAILED, MALFORMED, INFEASIBLE = 0, 1, 2, 3
_FINE_TUNING = ("method", "lora_rank", "lora_targets")
_BAR_WIDTH = 10


# ---------------------------------------------------------------------------------------- parser
class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(MALFORMED, f"{self.prog}: error: {message}\n")


def option_name(field: str) -> str:
    """Option of a field: ``micro_batch`` is ``--micro-batch``.

    Examples
    --------
    >>> option_name("micro_batch")
    '--micro-batch'
    """
    return "--" + field.replace("_", "-")


def _add_field(group: Any, row: Mapping[str, Any], *, required: bool = False) -> None:
    """One option of a field table; left out, the engine's own default holds."""
    default = row["default"]
    text = row["meaning"].replace("%", "%%")
    kind: dict[str, Any]
    if row["kind"] == "bool":
        default = "on" if default else "off"
        kind = {"action": argparse.BooleanOptionalAction}
    elif row["kind"] == "choice":
        long = len(row["choices"]) > 8
        kind = {"choices": row["choices"], "metavar": "ORDER" if long else None}
    else:
        kind = {"type": int if row["kind"] == "int" else float, "metavar": "N"}
    group.add_argument(
        option_name(row["name"]),
        dest=row["name"],
        default=None,
        required=required,
        help=text if required else f"{text} (default {default})",
        **kind,
    )


def _add_formats(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="one JSON document")
    formats.add_argument("--csv", action="store_true", help="a CSV table")


def _add_estimate(commands: Any) -> None:
    parser = commands.add_parser(
        "estimate",
        help="predict one training step",
        description="Predict step time, memory, energy and cost of one training step.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_estimate)
    parser.add_argument("model", metavar="MODEL", help="catalogue name, .toml or config.json")
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=int, metavar="N", help="nodes of the job")
    size.add_argument("--accelerators", type=int, metavar="N", help="accelerators of the job")
    cluster.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    task = parser.add_argument_group("task")
    tuning = parser.add_argument_group(
        "fine-tuning (any of these makes the task one; rank or targets alone mean lora)"
    )
    for row in _core.Task.fields():
        group = tuning if row["name"] in _FINE_TUNING else task
        _add_field(group, row, required=row["name"] in ("global_batch", "sequence"))
    strategy = parser.add_argument_group("strategy")
    for row in _core.Strategy.fields():
        _add_field(strategy, row)
    output = parser.add_argument_group("output")
    output.add_argument("--explain", action="store_true", help="where every number comes from")
    _add_formats(parser)


def _add_list(commands: Any) -> None:
    parser = commands.add_parser(
        "list",
        help="show the catalogue",
        description="Show what the catalogue holds: all kinds, one kind, or one entry.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_list)
    parser.add_argument("kind", nargs="?", metavar="KIND", help="accelerators, clusters, models...")
    parser.add_argument("name", nargs="?", metavar="NAME", help="entry: its numbers and sources")
    _add_formats(parser)


def _add_validate(commands: Any) -> None:
    parser = commands.add_parser(
        "validate",
        help="compare predictions with measurements",
        description="Predict every row of a table of measurements and report the errors.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_validate)
    parser.add_argument("--kind", required=True, metavar="KIND", help="training, ...")
    parser.add_argument("file", nargs="?", metavar="FILE", help="CSV (default: the catalogue's)")
    parser.add_argument("--out", metavar="FILE", help="write the rows with their predictions")
    parser.add_argument("--stack", metavar="NAME", help="software stack of every row")
    _add_formats(parser)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="scalemodel",
        description="Predict step time, memory, energy and cost of training large models.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"scalemodel {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_estimate(commands)
    _add_list(commands)
    _add_validate(commands)
    return parser


# -------------------------------------------------------------------------------------- estimate
def _given(options: argparse.Namespace, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    found = {row["name"]: getattr(options, row["name"]) for row in rows}
    return {name: value for name, value in found.items() if value is not None}


def _task(options: argparse.Namespace) -> Training:
    from scalemodel.tasks import FineTuning, Training

    given = _given(options, _core.Task.fields())
    if any(name in given for name in _FINE_TUNING):
        given.setdefault("method", "lora")  # rank and targets speak of adapters
        return FineTuning(**given)
    return Training(**given)


def _ask(options: argparse.Namespace) -> Estimate:
    from scalemodel import resolve
    from scalemodel.estimate import estimate

    cluster = resolve.cluster(
        options.cluster, nodes=options.nodes, accelerators=options.accelerators
    )
    strategy = _core.Strategy(**_given(options, _core.Strategy.fields()))
    model = resolve.model(options.model)
    return estimate(model, cluster, _task(options), strategy, stack=options.stack)


def record(est: Estimate) -> dict[str, Any]:
    """One flat row: the question, then every column of the estimate."""
    return {
        "model": est.model.name,
        "cluster": est.cluster.name,
        "accelerator": est.cluster.accelerator,
        "accelerators": est.cluster.accelerators,
        "stack": est.stack,
        **est.task.core.to_dict(),
        **est.to_dict(),
    }


def strategy_text(est: Estimate) -> str:
    """The strategy in short: degrees above one, then what is not a degree."""
    s = est.strategy
    degrees = {"tp": s.tp, "cp": s.cp, "pp": s.pp, "vpp": s.vpp, "ep": s.ep, "dp": est.core.dp}
    parts = [f"{name}{value}" for name, value in degrees.items() if value > 1 or name == "dp"]
    kept = ("micro_batch", "sharding", "recompute")
    usual = _core.Strategy()
    further = [
        f"{name} {value}" if not isinstance(value, bool) else f"{name} {'on' if value else 'off'}"
        for name, value in s.to_dict().items()
        if name not in degrees and (name in kept or value != getattr(usual, name))
    ]
    return " ".join(parts) + " · " + " · ".join(further)


def _header(est: Estimate) -> str:
    from scalemodel.messages import count_text

    cluster, core = est.cluster, est.cluster.core
    nodes = f"{cluster.nodes:g} × {core.node_accelerators}"
    gbit = count_text(8 * core.fabric.bandwidth_bytes_per_s)
    where = f"{cluster.accelerators} × {cluster.accelerator} ({nodes}, {cluster.name}, {gbit}bit/s)"
    task = f"{est.task.precision}, {est.task.global_batch} × {est.task.sequence} tokens"
    return f"{est.model.name} · {where} · {task} · {strategy_text(est)} · stack {est.stack}"


def _rates(est: Estimate) -> str:
    from scalemodel.messages import count_text, money_text, percent_text, time_text

    core, cluster = est.core, est.cluster
    tokens = est.task.global_batch * est.task.sequence
    facility_w = core.energy_j / core.step_time_s
    parts = [
        f"step {time_text(core.step_time_s)}",
        f"{count_text(core.tokens_per_s)} tokens/s",
        f"{core.tokens_per_s / cluster.accelerators:,.0f} tokens/s per accelerator",
        f"MFU {percent_text(core.mfu_fraction)}",
    ]
    if core.hfu_fraction > core.mfu_fraction:
        parts.append(f"HFU {percent_text(core.hfu_fraction)}")
    energy = [
        f"power {core.power_w:,.0f} W per accelerator, {count_text(facility_w)}W facility",
        f"energy {count_text(core.energy_j)}J a step",
    ]
    if est.cost_usd is not None:
        hourly = 3600 * cluster.core.price_usd_per_s
        per_million = money_text(est.cost_usd / tokens * 1e6)
        energy.append(
            f"cost {money_text(est.cost_usd)} a step, {per_million} / M tokens "
            f"at {hourly:.2f} USD/h ({cluster.price_source})"
        )
    return "   ".join(parts) + "\n" + "   ".join(energy)


def _bar(fraction: float) -> str:
    return "█" * max(0, round(_BAR_WIDTH * fraction))


def _time_line(est: Estimate) -> str:
    from scalemodel.estimate import TIME_COLUMNS
    from scalemodel.messages import percent_text, time_text

    core = est.core
    seconds = {column: float(getattr(core, column)) for column in TIME_COLUMNS}
    parts = []
    for column in sorted(seconds, key=lambda name: -seconds[name]):
        share = seconds[column] / core.step_time_s
        if share < 0.0005:
            continue
        cause = column.removesuffix("_s").removeprefix("exposed_")
        exposed = " exposed" if column.startswith("exposed_") else ""
        bar = _bar(share)
        parts.append(f"{cause}{exposed} {percent_text(share)}{' ' + bar if bar else ''}")
    hidden = f" (hidden underneath: {time_text(core.hidden_s)})" if core.hidden_s > 0 else ""
    return "time    " + "  ".join(parts) + hidden


def summary(est: Estimate) -> str:
    """One screen: the question, time, memory, verdict, what limits it, what to try next."""
    from scalemodel import diagnose
    from scalemodel.messages import fix_text, kinds_text, message, size_text

    if est.illegal:
        return _header(est) + "\n" + message(est)
    core = est.core
    spare = core.memory_capacity_bytes - core.memory_bytes
    lines = [_header(est), _rates(est), _time_line(est)]
    if not est.fits:
        return "\n".join([*lines, message(est)])
    lines.append(
        f"memory  {size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}  "
        f"{kinds_text(est)}"
    )
    lines.append(f"verdict {est.verdict}: fits, {size_text(spare)} spare")
    lines.append(f"limited by: {diagnose.what_limits(est)}")
    better = [fix_text(fix, relative=True) for fix in diagnose.next_knobs(est)]
    lines.append("next best knobs: " + (" · ".join(better) if better else "no single one helps"))
    return "\n".join(lines)


def _estimate(options: argparse.Namespace) -> int:
    est = _ask(options)
    if options.json:
        document = record(est)
        if not est.fits:
            fixes = est.fixes()
            from scalemodel.messages import message

            document["message"] = message(est, fixes)
            document["fixes"] = [
                {
                    "change": fix.change,
                    "verdict": fix.verdict,
                    "step_time_s": fix.step_time_s,
                    "memory_bytes": fix.memory_bytes,
                }
                for fix in fixes
            ]
        if options.explain:
            document["explanation"] = est.explain().to_dict()
        _print_json(document)
    elif options.csv:
        row = record(est)
        _print_csv(list(row), [list(row.values())])
    else:
        print(summary(est))
        if options.explain and not est.illegal:
            print()
            print(est.explain())
    return OK if est.fits else INFEASIBLE


# ---------------------------------------------------------------------------------------- output
def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str))


def _cell(value: object) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _print_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(header[i]), *(len(row[i]) for row in texts)) if texts else len(header[i])
        for i in range(len(header))
    ]
    for line in [list(header), *texts]:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


# ------------------------------------------------------------------------------- list, validate
def _list(options: argparse.Namespace) -> int:
    from scalemodel import catalog

    frame = catalog.list_catalog(options.kind, options.name)
    header = [str(column) for column in frame.columns]
    rows = frame.astype(object).to_numpy().tolist()
    if options.json:
        _print_json([dict(zip(header, row, strict=True)) for row in rows])
    elif options.csv:
        _print_csv(header, rows)
    else:
        shown = header.index("key") if "key" in header else 0
        _print_table(header[shown:], [row[shown:] for row in rows])
    return OK


def _validate(options: argparse.Namespace) -> int:
    from scalemodel import validation

    frame = validation.validate(options.kind, options.file, stack=options.stack)
    if options.out:
        validation.write_csv(frame, options.out)
    scores = validation.score(frame)
    if options.json:
        _print_json(scores.to_dict())
    elif options.csv:
        document = scores.to_dict()
        tables = {name: document[name] for name in ("groups", "merged", "kinds", "others")}
        tables["pooled"] = [document["pooled"]]
        rows = [{"table": name, **row} for name, table in tables.items() for row in table]
        header = list(rows[0])
        _print_csv(header, [[row[name] for name in header] for row in rows])
    else:
        print(scores.text())
    return OK


# ------------------------------------------------------------------------------------------ main
def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _report(kind: str, text: object) -> None:
    print(f"scalemodel: {kind}: {_one_line(text)}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return command(options)
        finally:
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    _report("warning", warning.message)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; default: those of the process.

    Returns
    -------
    int
        0 done, 2 malformed question, 3 strategy that cannot run or does not fit, 1 anything else.

    Examples
    --------
    >>> main(["estimate", "llama3_8b", "--cluster", "dgx_h100", "--global-batch", "64",
    ...       "--sequence", "8192", "--tp", "2", "--csv"])
    model,cluster,...
    0
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without Unicode still gets an answer
            reconfigure(errors="replace")
    try:
        code = _run(make_parser().parse_args(argv))
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse has printed its line, or the help
        return leaving.code if isinstance(leaving.code, int) else OK
    except ScaleModelError as error:
        _report("error", error)
        return MALFORMED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has gone; keep the interpreter from flushing into the closed pipe at exit.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
        return OK
    except Exception as error:  # a fault of scalemodel itself: still one line, no traceback
        _report("internal error", f"{type(error).__name__}: {error}")
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
