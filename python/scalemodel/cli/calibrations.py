"""``scalemodel measure``, ``calibrate`` and ``check``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import whole
from scalemodel.cli.output import OK, print_csv

if TYPE_CHECKING:
    from scalemodel.calibration import Calibration
    from scalemodel.calibration.spread import RankSpread


def add_calibrate(commands: Any) -> None:
    """The command that refits the constants of a machine."""
    parser = commands.add_parser(
        "calibrate",
        help="fit constants to measurements of a machine",
        description="Fit the few constants of an accelerator or an interconnect to a table of "
        "measured times, and print them with their error bars.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_calibrate)
    parser.add_argument(
        "--kind",
        metavar="KIND",
        help="gemm, attention, training_attention, elementwise or collectives; spread, of a "
        "cluster's ranks; kernels by their work: linear_attention, mamba2, sparse_attention, msa, "
        "mhc, moe_fused_a2a, encoder_attention",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="CSV that scalemodel measure writes; of a spread, traces of ranks or a CSV of times; "
        "without --kind, the folder of measure --all",
    )
    parser.add_argument("--accelerator", metavar="NAME|TOML", help="entry to begin from")
    parser.add_argument("--cluster", metavar="NAME|TOML", help="cluster of the collectives")
    parser.add_argument("--stack", metavar="NAME", help="stack that gets the spread: plain")
    parser.add_argument("--name", metavar="NAME", help="name of the new catalogue entry")
    parser.add_argument(
        "--folds", type=whole, default=5, metavar="N", help="parts held out in turn"
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="write the entry below FOLDER (SCALEMODEL_CATALOG_PATH)"
    )
    parser.add_argument("--rows", metavar="FILE", help="write the rows with their predictions")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="one JSON document")
    formats.add_argument("--csv", action="store_true", help="a CSV table of the constants")


def add_measure(commands: Any) -> None:
    """The command that measures kernels and collectives."""
    parser = commands.add_parser(
        "measure",
        help="measure kernels or collectives here",
        description="Time kernels or collectives of the accelerator of this machine with torch "
        "and write the table that calibrate and validate read. Collectives are started by "
        "torchrun. With --all, everything that a training step of plain torch is made of, on the "
        "cores of a CPU or on GPUs.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_measure)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--kind", metavar="KIND", help="gemm, attention, elementwise or collectives")
    what.add_argument("--all", action="store_true", help="a whole machine, into a folder")
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="CSV file to write; a folder with --all"
    )
    parser.add_argument("--device", default="cuda", metavar="NAME", help="with --all: cpu or cuda")
    parser.add_argument(
        "--ranks",
        type=whole,
        default=2,
        metavar="N",
        help="with --all: cores or GPUs that exchange",
    )
    parser.add_argument("--samples", type=whole, default=40, metavar="N", help="shapes or sizes")
    parser.add_argument("--seed", type=whole, default=0, metavar="N", help="of the shapes")
    parser.add_argument("--repeats", type=whole, default=60, metavar="N", help="timings of a shape")
    parser.add_argument("--dtype", default="bfloat16", metavar="NAME", help="of the operands")


def add_check(commands: Any) -> None:
    """The command that trains small models on a calibrated machine."""
    parser = commands.add_parser(
        "check",
        help="train small transformers here and compare with predictions",
        description="Train small transformers for a few steps on a machine that measure --all and "
        "calibrate went over (one and two ranks; data, fully sharded, tensor and pipeline "
        "parallelism), and print predicted beside measured steps.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_check)
    parser.add_argument("folder", metavar="FOLDER", help="what measure --all wrote")
    parser.add_argument("--steps", type=whole, default=20, metavar="N", help="timed steps of each")
    parser.add_argument("--csv", action="store_true", help="a CSV table")


def _check(options: argparse.Namespace) -> int:
    from scalemodel.calibration.check import check_machine

    found = check_machine(options.folder, steps=options.steps)
    if options.csv:
        header = [str(column) for column in found.table.columns]
        print_csv(header, found.table.astype(object).to_numpy().tolist())
    else:
        print(found.text())
    return OK


def _calibrate_folder(options: argparse.Namespace) -> int:
    """A machine that measure --all went over: its entries go into the folder it was read from."""
    from scalemodel.calibration.machine import calibrate_machine

    folder = Path(options.file[0])
    if len(options.file) > 1 or not folder.is_dir():
        raise ScaleModelError(
            f"{options.file[-1]}: without --kind, one folder is calibrated that "
            "scalemodel measure --all wrote; a table needs --kind"
        )
    machine = calibrate_machine(folder, name=options.name or "here")
    written = machine.write(options.out or folder / "catalog")
    if options.csv:
        header = [str(column) for column in machine.errors.columns]
        print_csv(header, machine.errors.astype(object).to_numpy().tolist())
    elif options.json:
        found = [calibration.to_dict() for calibration in machine.calibrations]
        print(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(machine.text(), "", *(f"written {path}" for path in written), sep="\n")
    return OK


def _calibrate(options: argparse.Namespace) -> int:
    from scalemodel.calibration import calibrate
    from scalemodel.calibration.spread import calibrate_spread
    from scalemodel.resolve.stacks import DEFAULT_STACK
    from scalemodel.validation import write_csv

    files = options.file
    if options.kind is None:
        return _calibrate_folder(options)
    if options.kind == "spread":
        ranks = calibrate_spread(files, stack=options.stack or DEFAULT_STACK, name=options.name)
        found: Calibration | RankSpread = ranks
        rows = ranks.table
    else:
        if len(files) > 1:
            raise ScaleModelError(f"{files[1]}: --kind {options.kind} takes one file")
        constants = calibrate(
            options.kind,
            files[0],
            accelerator=options.accelerator,
            cluster=options.cluster,
            name=options.name,
            folds=options.folds,
        )
        found, rows = constants, constants.samples
    written = found.write(options.out) if options.out else []
    if options.rows:
        write_csv(rows, options.rows)
    if options.json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    elif options.csv:
        header = [str(column) for column in found.table.columns]
        print_csv(header, found.table.astype(object).to_numpy().tolist())
    else:
        print(found.text())
        print()
        if written:
            print("\n".join(f"written {path}" for path in written))
        else:
            print("\n".join(found.entries.values()))
    return OK


def _measure(options: argparse.Namespace) -> int:
    from scalemodel.calibration import measure

    if options.all:
        from scalemodel.calibration.machine import measure_machine

        paths = measure_machine(
            options.out,
            device=options.device,
            count=options.ranks,
            samples=options.samples,
            seed=options.seed,
            repeats=options.repeats,
        )
        print("\n".join(f"written {path}" for path in paths))
        return OK
    folder = Path(options.out).resolve().parent
    if not folder.is_dir():  # found out before the measurement, not after
        raise ScaleModelError(f"--out {options.out}: {folder} is no folder", code="unwritable_file")
    rows = measure.measure(
        options.kind,
        samples=options.samples,
        seed=options.seed,
        repeats=options.repeats,
        dtype=options.dtype,
    )
    if rows:
        measure.write_table(options.kind, rows, options.out)
        print(f"{len(rows)} rows written to {options.out}")
    return OK
