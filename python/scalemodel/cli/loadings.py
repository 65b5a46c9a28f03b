"""``scalemodel data-loading``: whether samples come as fast as steps take them."""

from __future__ import annotations

import argparse
from typing import Any, cast

from scalemodel.cli.options import add_formats, add_question, add_strategy, number, whole
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json, print_table
from scalemodel.cli.recoveries import running_job
from scalemodel.cli.runs import number_or_name

#: Options that `data_loading` takes by the same names.
_OPTIONS = (
    *("shared_bytes_per_s", "token_bytes", "image_bytes", "frames", "frame_height"),
    *("frame_width", "cores", "prefetch"),
)


def add_data_loading(commands: Any) -> None:
    """The command that sets storage, links and CPU cores against a step."""
    parser = commands.add_parser(
        "data-loading",
        help="find whether data comes as fast as steps take it",
        description="Samples per second that storage, the network to it, CPU cores and host links "
        "pass, which of them binds, and what every step waits for.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_data_loading)
    add_question(parser)
    add_strategy(parser)
    group = parser.add_argument_group("data")
    group.add_argument(
        "--read",
        default="shared_file_system",
        metavar="NAME|N",
        help="shared_file_system, object_store, local_disk, or bytes per second of a node",
    )
    group.add_argument(
        "--shared-bytes-per-s", type=number, metavar="N", help="of the storage, to all nodes"
    )
    group.add_argument("--token-bytes", type=whole, metavar="N", help="stored (by the vocabulary)")
    group.add_argument(
        "--images-per-sample", type=whole, metavar="N", help="JPEG (those of the task)"
    )
    group.add_argument("--image-bytes", type=number, metavar="N", help="of an image (150 kB)")
    group.add_argument("--frames", type=whole, default=0, metavar="N", help="of video, per sample")
    group.add_argument("--frame-height", type=whole, default=1080, metavar="N")
    group.add_argument("--frame-width", type=whole, default=1920, metavar="N")
    group.add_argument(
        "--decode",
        default="dataloader",
        metavar="NAME|N",
        help="dataloader, decoder, or bytes of JPEG per second and core",
    )
    group.add_argument(
        "--cores", type=number, metavar="N", help="of a node that decode (14 per accelerator)"
    )
    group.add_argument(
        "--prefetch", type=whole, default=2, metavar="N", help="batches ahead (default 2)"
    )
    add_formats(parser)


def _data_loading(options: argparse.Namespace) -> int:
    from scalemodel.economics import data_loading

    est = running_job(options)
    if est is None:
        return INFEASIBLE
    asked = {name: getattr(options, name) for name in _OPTIONS}
    found = data_loading(
        est,
        read=number_or_name(options.read),
        images=options.images_per_sample,
        decode=cast(Any, number_or_name(options.decode)),
        **asked,
    )
    row = found.to_dict()
    rates = row.pop("rates_per_s")
    if options.json:
        print_json({**row, "rates_per_s": rates})
    elif options.csv:
        flat = {**row, **{f"{part}_per_s": rate for part, rate in rates.items()}}
        print_csv(list(flat), [list(flat.values())])
    else:
        _print(found)
    return OK if found.verdict == "ok" else INFEASIBLE


def _print(found: Any) -> None:
    from scalemodel.base.text import count_text

    print(found)
    cells = [
        [part, count_text(rate), "binds" if part == found.bound else ""]
        for part, rate in found.rates_per_s.items()
    ]
    print_table(("part", "samples/s", ""), cells)
