"""The command line; `make_parser` lists its commands.

Exit codes: 0 done, 2 malformed question (one line on the error stream), 3 a strategy that cannot
run or does not fit, 4 nothing feasible found, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from scalemodel._core import __version__
from scalemodel.base import interrupts
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.agents import add_mcp, add_schema
from scalemodel.cli.benchmarks import add_compare_bench
from scalemodel.cli.calibrations import add_calibrate, add_check, add_measure
from scalemodel.cli.catalogue import add_list, add_validate
from scalemodel.cli.clusters import add_compare_clusters
from scalemodel.cli.codesigns import add_codesign
from scalemodel.cli.completion import add_completion
from scalemodel.cli.estimates import add_estimate, record, summary
from scalemodel.cli.fleets import add_fleet
from scalemodel.cli.generation import add_generate
from scalemodel.cli.jobs import add_compare_log, add_launch
from scalemodel.cli.loadings import add_data_loading
from scalemodel.cli.merges import add_merge
from scalemodel.cli.options import Parser, option_name, read_model
from scalemodel.cli.output import (
    FAILED,
    INFEASIBLE,
    INTERRUPTED,
    MALFORMED,
    NOTHING_FEASIBLE,
    OK,
    report,
)
from scalemodel.cli.pages import add_export_page
from scalemodel.cli.post_trainings import add_rl
from scalemodel.cli.projections import add_project
from scalemodel.cli.recoveries import add_plan_checkpoints, add_plan_spares, add_replan
from scalemodel.cli.reports import add_report
from scalemodel.cli.routes import add_route
from scalemodel.cli.scalings import add_scaling
from scalemodel.cli.schedules import add_compare_schedules
from scalemodel.cli.searches import add_search, add_sweep
from scalemodel.cli.serving import add_serve
from scalemodel.cli.stage_plans import add_plan_stages
from scalemodel.cli.traces import add_trace
from scalemodel.cli.tunings import add_tune

__all__ = [
    "FAILED",
    "INFEASIBLE",
    "INTERRUPTED",
    "MALFORMED",
    "NOTHING_FEASIBLE",
    "OK",
    "main",
    "make_parser",
    "option_name",
    "record",
    "summary",
]


#: A disk, a quota or a limit on files that is exhausted.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# In the order of the help text.
_COMMANDS = (
    add_estimate,
    add_search,
    add_sweep,
    add_merge,
    add_report,
    add_export_page,
    add_codesign,
    add_scaling,
    add_compare_clusters,
    add_compare_schedules,
    add_plan_stages,
    add_plan_checkpoints,
    add_plan_spares,
    add_replan,
    add_data_loading,
    add_rl,
    add_tune,
    add_serve,
    add_generate,
    add_trace,
    add_fleet,
    add_route,
    add_launch,
    add_compare_log,
    add_project,
    add_compare_bench,
    add_list,
    add_validate,
    add_calibrate,
    add_measure,
    add_check,
    add_mcp,
    add_schema,
    add_completion,
)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="scalemodel",
        description="Predict time, memory, energy and cost of training and serving large models.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"scalemodel {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in _COMMANDS:
        add(commands)
    return parser


def _run(options: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = options.run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            read_model(options)
            return command(options)
        finally:
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    report("warning", warning.message)


def _drop_output() -> None:
    """Keeps the interpreter from flushing into a stream that takes no more as it ends."""
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; default: those of the process.

    Returns
    -------
    int
        0 done, 2 malformed question, 3 strategy that cannot run or does not fit, 4 nothing
        feasible found, 130 interrupted, 1 anything else.

    Examples
    --------
    >>> main(["estimate", "llama3_8b", "--cluster", "dgx_h100", "--global-batch", "64",
    ...       "--sequence", "8192", "--tp", "2", "--csv"])
    model,cluster,...
    0
    """
    interrupts.restore()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a terminal without Unicode still gets an answer
            reconfigure(errors="replace")
    try:
        parser = make_parser()
        options = parser.parse_args(argv)
        if not hasattr(options, "run"):  # no command: what there is
            parser.print_help()
            return OK
        code = _run(options)
        sys.stdout.flush()
        return code
    except SystemExit as leaving:  # argparse has printed its line, or the help
        return leaving.code if isinstance(leaving.code, int) else OK
    except ScaleModelError as error:
        report("error", error)
        return MALFORMED
    except KeyboardInterrupt:
        if argv is None:  # a process: to take pandas down in order would take most of a second
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()  # the reader has gone
        return OK
    except OSError as error:
        if error.errno not in _FULL:
            report("internal error", f"{type(error).__name__}: {error}")
            return FAILED
        _drop_output()
        report("error", f"standard output: cannot be written ({error.strerror})")
        return FAILED
    except Exception as error:  # a fault of scalemodel itself: still one line, no traceback
        report("internal error", f"{type(error).__name__}: {error}")
        return FAILED
