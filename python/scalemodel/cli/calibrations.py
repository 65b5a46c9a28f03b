"""``scalemodel calibrate`` and ``scalemodel measure``."""

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
        required=True,
        metavar="KIND",
        help="gemm, attention, elementwise or collectives; spread, of a cluster's ranks; kernels "
        "by their work: linear_attention, mamba2, sparse_attention, msa, mhc, moe_fused_a2a, "
        "encoder_attention",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="CSV that scalemodel measure writes; of a spread, traces of ranks or a CSV of times",
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
        "torchrun.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_measure)
    parser.add_argument(
        "--kind",
        required=True,
        metavar="KIND",
        help="gemm, attention, elementwise or collectives",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="CSV file to write")
    parser.add_argument("--samples", type=whole, default=40, metavar="N", help="shapes or sizes")
    parser.add_argument("--seed", type=whole, default=0, metavar="N", help="of the shapes")
    parser.add_argument("--repeats", type=whole, default=60, metavar="N", help="timings of a shape")
    parser.add_argument("--dtype", default="bfloat16", metavar="NAME", help="of the operands")


def _calibrate(options: argparse.Namespace) -> int:
    from scalemodel.calibration import calibrate
    from scalemodel.calibration.spread import calibrate_spread
    from scalemodel.resolve.stacks import DEFAULT_STACK
    from scalemodel.validation import write_csv

    files = options.file
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
