"""``scalemodel export-page``: a folder that answers in a browser, without installation."""

from __future__ import annotations

import argparse
from typing import Any

from scalemodel.base.text import size_text
from scalemodel.cli.output import OK, print_json


def add_export_page(commands: Any) -> None:
    """The command that writes the page without installation."""
    parser = commands.add_parser(
        "export-page",
        help="write a page that answers without installation",
        description="Write a static folder whose index.html answers questions about training "
        "steps in any browser: the catalogue, and the engine in WebAssembly. It opens from a disk "
        "or any host of files, and fetches nothing from elsewhere.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_export_page)
    parser.add_argument("out", metavar="OUT", help="the folder; made where there is none")
    parser.add_argument(
        "--engine",
        metavar="FILE",
        help="engine.wasm of a build with -DSCALEMODEL_PAGE=ON (default: the installation's)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _export_page(options: argparse.Namespace) -> int:
    from scalemodel.page import export_page

    files = export_page(options.out, engine=options.engine)
    sizes = {path.name: path.stat().st_size for path in files}
    if options.json:
        print_json({"out": options.out, "files": sizes})
    else:
        print(f"written to {files[0]} ({len(files)} files, {size_text(sum(sizes.values()))})")
    return OK
