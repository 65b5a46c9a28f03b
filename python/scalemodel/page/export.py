"""The folder of a page: its texts, the resolved catalogue and the engine in WebAssembly."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import unwritable, write_whole
from scalemodel.page import catalogue, serving
from scalemodel.page.settings import settings

_SITE = Path(__file__).with_name("site")
#: Where a build with SCALEMODEL_PAGE leaves the engine.
ENGINE = Path(__file__).with_name("engine.wasm")
_MAGIC = b"\0asm"


def _engine_bytes(path: str | os.PathLike[str] | None) -> bytes:
    """The compiled engine, or an error that says how to come by one."""
    source = ENGINE if path is None else Path(path)
    try:
        content = source.read_bytes()
    except OSError as error:
        if path is None:
            raise ScaleModelError(
                "engine: this installation holds none for pages; in a checkout, "
                "pip install 'scalemodel[page]', then cmake -S . -B build/page "
                "-DSCALEMODEL_PAGE=ON -DSCALEMODEL_BINDINGS=OFF and cmake --build build/page "
                "--target page write build/page/engine.wasm: name it as the engine",
                code="missing_engine",
            ) from None
        raise ScaleModelError(
            f"engine={os.fspath(path)!r}: cannot be read ({error.strerror}); must be the "
            "engine.wasm that a build with -DSCALEMODEL_PAGE=ON writes",
            code="unreadable_file",
        ) from None
    if not content.startswith(_MAGIC):
        raise ScaleModelError(
            f"engine={os.fspath(source)!r}: is no WebAssembly; must be the engine.wasm that a "
            "build with -DSCALEMODEL_PAGE=ON writes",
            code="unreadable_file",
        )
    return content


def catalogue_text() -> str:
    """Everything the page knows beside the engine, as JSON.

    Examples
    --------
    >>> sorted(json.loads(catalogue_text()))
    ['clusters', 'engines', 'kernel_sets', 'kernel_values', 'kernels', 'models', 'settings',
     'stack_records', 'stacks', 'version']
    """
    clusters, records = catalogue.clusters()
    models = catalogue.models()
    shapes = {name: resolve.model(name).shape for name in models}
    kernels = serving.kernels(clusters, shapes.values())
    for name, number in kernels.of_cluster.items():
        clusters[name]["kernels"] = number
    for name, shape in shapes.items():
        models[name]["attention"] = serving.attention_name(shape)
    held = {
        "version": _core.__version__,
        "models": models,
        "clusters": clusters,
        "engines": serving.engines(),
        "kernels": kernels.entries,
        "kernel_sets": kernels.sets,
        "kernel_values": kernels.values,
        "stacks": catalogue.stack_titles(),
        "stack_records": records,
        "settings": settings(),
    }
    return json.dumps(held, separators=(",", ":"), allow_nan=False)


def export_page(
    out: str | os.PathLike[str], *, engine: str | os.PathLike[str] | None = None
) -> tuple[Path, ...]:
    """Write the page without installation: a folder that any static host serves, or none.

    A reader chooses model, cluster, task and strategy of a training step and sees step time by
    cause, memory by kind, the best of a small space of strategies and the GEMMs below the roofs of
    the accelerator; and of a serving engine what throughput trades against the speed of a user's
    answer: from the engine of the package itself, compiled to WebAssembly. The question is the
    address.
    Nothing is fetched from elsewhere; ``index.html`` opens from a disk too.

    Parameters
    ----------
    out : path
        The folder; it is made where there is none, and files of these names are replaced.
    engine : path, optional
        ``engine.wasm`` of a build with ``-DSCALEMODEL_PAGE=ON``; default: that of an installation
        which was built so.

    Returns
    -------
    tuple of Path
        The files written, ``index.html`` first.

    Raises
    ------
    ScaleModelError : no engine, one that is none, or a folder that cannot be written.

    Examples
    --------
    >>> import scalemodel as sm
    >>> try:
    ...     export_page("site", engine="missing.wasm")
    ... except sm.ScaleModelError as error:
    ...     print(error.code)
    unreadable_file
    """
    compiled = base64.b64encode(_engine_bytes(engine)).decode("ascii")
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # before the seconds that the catalogue takes
        raise unwritable(out, error) from None
    # Scripts, not files to fetch: a page from a disk may not fetch.
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(_SITE.iterdir())}
    files["catalogue.js"] = f"const CATALOGUE = {catalogue_text()};\n"
    files["engine-code.js"] = f'const ENGINE_CODE = "{compiled}";\n'
    try:
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise unwritable(out, error) from None
    return tuple(folder / name for name in sorted(files, key=lambda name: name != "index.html"))
