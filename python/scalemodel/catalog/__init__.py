"""The catalogue: accelerators, clusters, models, stacks, storage, prices: each one TOML file.

Names are resolved through entry names and aliases. Directories listed in the environment variable
``SCALEMODEL_CATALOG_PATH`` (separated like ``PATH``) hold further entries in the same folders and
win over the embedded ones.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import read_text
from scalemodel.base.safe_text import plain, plain_cells
from scalemodel.base.units import source_of, value_of
from scalemodel.base.words import named_arguments
from scalemodel.catalog.entries import Entry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    import pandas as pd

KINDS = (
    "accelerators",
    "clusters",
    "composed",
    "engines",
    "interconnects",
    "kernels",
    "models",
    "prices",
    "reference",
    "stacks",
    "storage",
    "workloads",
)
_EMBEDDED = Path(__file__).parent
_EMBEDDED_FOLDERS = {kind: str(_EMBEDDED / kind) for kind in KINDS}
_VENDOR = re.compile(r"nvidia|amd( instinct)?|google|intel|tesla")
# The time of the TOML parser grows with the square of a key's parts.
_LONG_KEY = re.compile(r"\.(?:[^.,\n]{0,64}\.){63}")
_SEPARATORS = re.compile(r"[\s_\-]+")
_HUB_ID = re.compile(r"[\w.\-]+/(?P<model>[\w.\-]+)")
# How a checkpoint was trained further, behind a model's name; its shape stays.
_TUNED = re.compile(r"(?:[\s_\-]+(?:base|chat|hf|instruct|it|thinking))+$", re.IGNORECASE)


def normalised(label: str) -> str:
    """`label` as names are compared: lower case, no vendor words, no spaces, hyphens, underscores.

    Examples
    --------
    >>> normalised("NVIDIA H100-SXM5-80GB")
    'h100sxm580gb'
    """
    return _SEPARATORS.sub("", _VENDOR.sub("", label.lower()))


# ------------------------------------------------------------------------------- what is remembered
_P = ParamSpec("_P")
_T = TypeVar("_T")
_FORGETTING: list[Callable[[], object]] = []
_SEEN: dict[object, object] = {}


def when_changed(clear: Callable[[], object]) -> None:
    """Call a function when an entry, or the folders entries are read from, have changed."""
    _FORGETTING.append(clear)


def kept(maxsize: int) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Remember what a function makes of entries until one of them, or their folders, change.

    A change is noticed when the catalogue is read the next time; `forget` does not wait for that.

    Examples
    --------
    >>> @kept(8)
    ... def title(name):
    ...     return load("clusters", name)["title"]
    >>> title("dgx_h100")
    'NVIDIA DGX H100'
    """

    def keep(function: Callable[_P, _T]) -> Callable[_P, _T]:
        remembered = lru_cache(maxsize)(function)
        when_changed(remembered.cache_clear)
        return cast("Callable[_P, _T]", remembered)

    return keep


def forget() -> None:
    """Forget all that was made of entries, so that they are read again."""
    for clear in _FORGETTING:
        clear()


def _notice(what: object, state: object) -> None:
    """Have all forgotten that was made of entries, if a file or folder is not what it was."""
    if _SEEN.setdefault(what, state) != state:
        _SEEN[what] = state
        forget()


# ----------------------------------------------------------------------------------------- entries
def _private() -> list[Path]:
    given = os.environ.get("SCALEMODEL_CATALOG_PATH", "")
    if not given:
        return []
    # A user who does not exist leaves the path as it is, as in a shell.
    return [Path(os.path.expanduser(item)) for item in given.split(os.pathsep) if item]


def _folders(kind: str, private: Sequence[Path]) -> list[str]:
    if kind not in _EMBEDDED_FOLDERS:
        raise ScaleModelError(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    return [*(str(root / kind) for root in private), _EMBEDDED_FOLDERS[kind]]


def _modified_ns(path: str | Path) -> int:
    """When a file was written; 0 where the system does not say, reading it then tells why."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _private_files(private: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    """Every private entry and when it was written: an entry may be made of others by name."""
    found: list[tuple[str, int]] = []
    for root in private:
        for kind in KINDS:
            with suppress(OSError), os.scandir(root / kind) as files:
                found += [(file.path, _modified_ns(file.path)) for file in files]
    return tuple(sorted(found))


@lru_cache(maxsize=64)
def _listed(folders: tuple[tuple[str, int], ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for folder, _ in folders:
        for path in sorted(Path(folder).glob("*.toml")):
            found.setdefault(plain(path.stem), path)
    return found


def _paths(kind: str) -> dict[str, Path]:
    """Entry name -> file; earlier folders win. A folder is listed again when it changes.

    Asked a hundred times for one answer: a look at each folder is all that it may take.
    """
    private = _private()
    folders = []
    for folder in _folders(kind, private):
        try:
            state = os.stat(folder)
        except OSError:
            continue
        if stat.S_ISDIR(state.st_mode):
            folders.append((folder, state.st_mtime_ns))
    _notice("private entries", _private_files(private) if private else ())
    return _listed(tuple(folders))


def read_toml(path: Path) -> dict[str, Any]:
    """Contents of a TOML file, texts on one line each; a ScaleModelError names file and line."""
    text = read_text(path)
    if _LONG_KEY.search(text):
        raise ScaleModelError(f"{path}: a key has more than 64 parts")
    try:
        return Entry(plain_cells(tomllib.loads(text)), f"{path.parent.name}/{path.stem}")
    except RecursionError:
        raise ScaleModelError(f"{path}: nested too deeply") from None
    except ValueError as error:
        raise ScaleModelError(f"{path}: not valid TOML ({error})") from error


@lru_cache(maxsize=4096)
def _read_cached(path: Path, modified_ns: int) -> dict[str, Any] | ScaleModelError:
    """A broken entry is remembered too: every look for an alias passes by it."""
    try:
        return read_toml(path)
    except ScaleModelError as error:
        return error


def _read(path: Path) -> dict[str, Any]:
    modified_ns = _modified_ns(path)
    _notice(path, modified_ns)
    found = _read_cached(path, modified_ns)
    if isinstance(found, ScaleModelError):
        raise ScaleModelError(str(found), found.code)
    return found


def names(kind: str) -> list[str]:
    """Entry names of a kind, sorted.

    Examples
    --------
    >>> "dgx_h100" in names("clusters")
    True
    """
    return sorted(_paths(kind))


def _aliases_of(entry: Mapping[str, Any], path: Path) -> list[str]:
    aliases = entry.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ScaleModelError(f"{path}: aliases={aliases!r}: must be a list of names")
    return aliases


@lru_cache(maxsize=32)
def _aliases(kind: str, paths: tuple[tuple[str, Path, int], ...]) -> dict[str, str]:
    index: dict[str, str] = {}
    without_owner: dict[str, str] = {}
    for name, path, _ in paths:
        with suppress(ScaleModelError):  # a broken entry has no aliases; its own name tells why
            entry = _read(path)
            aliases = [name, *_aliases_of(entry, path), entry.get("title", name)]
            for alias in aliases:
                index.setdefault(normalised(str(alias)), name)
            for alias in aliases if kind == "models" else ():
                if found := _HUB_ID.fullmatch(str(alias)):
                    without_owner.setdefault(normalised(found["model"]), name)
    for key, name in without_owner.items():  # after all that stands for an entry as it is
        index.setdefault(key, name)
    for name, _, _ in paths:  # an entry's own name wins over another one's alias
        index[normalised(name)] = name
    return index


@dataclass(frozen=True)
class _KnownAliases:
    """Names that the aliases of a kind stand for, as its files were."""

    paths: Mapping[str, Path]
    written_ns: Mapping[str, int]
    names_of: Mapping[str, str]
    looked_s: float  # when, by the monotonic clock


_KNOWN_ALIASES: dict[str, _KnownAliases] = {}
_LOOK_EVERY_S = 0.2  # at all files of the package, for what no alias stands for
when_changed(_KNOWN_ALIASES.clear)


def _by_alias(kind: str, paths: Mapping[str, Path], label: str) -> str | None:
    """Entry that a label stands for, by a look at one file where that is known already.

    `_paths` has looked at the folders and at every private file. A file of the package that was
    edited since is noticed where it is the one found, and soon where nothing is.
    """
    wanted = normalised(str(label))
    known = _KNOWN_ALIASES.get(kind)
    now_s = time.monotonic()
    if known is not None and known.paths is paths:
        found = known.names_of.get(wanted)
        if found is None and now_s < known.looked_s + _LOOK_EVERY_S:
            return None
        if found is not None and _modified_ns(paths[found]) == known.written_ns[found]:
            return found
    written_ns = {name: _modified_ns(path) for name, path in paths.items()}
    stamped = tuple((name, path, written_ns[name]) for name, path in paths.items())
    names_of = _aliases(kind, stamped)
    _KNOWN_ALIASES[kind] = _KnownAliases(paths, written_ns, names_of, now_s)
    return names_of.get(wanted)


def _meant(kind: str, paths: Mapping[str, Path], label: str) -> str | None:
    """Entry that a label stands for; of models also without words that say how it was tuned."""
    found = _by_alias(kind, paths, label)
    if found is None and kind == "models" and (bare := _TUNED.sub("", str(label))) != label:
        return _by_alias(kind, paths, bare)
    return found


def is_entry(kind: str, label: str) -> bool:
    """Whether a name, alias or title stands for an entry.

    Examples
    --------
    >>> is_entry("models", "Llama-3-8B"), is_entry("models", "config.json")
    (True, False)
    """
    paths = _paths(kind)
    return label in paths or _meant(kind, paths, label) is not None


def find(kind: str, label: str) -> str:
    """Entry name that `label` (a name, alias or title) stands for.

    Ids of the Hugging Face Hub need no owner, and a model goes by its name with words behind it
    that say how it was tuned: "Instruct", "Chat", "it", "Thinking", "Base", "hf".

    Raises
    ------
    ScaleModelError : no entry of that name; ``code`` is ``"unknown_<kind>"`` in the singular.

    Examples
    --------
    >>> find("accelerators", "NVIDIA H100 80GB HBM3")
    'h100_sxm_80'
    >>> find("models", "gemma-2-9b-it")
    'gemma2_9b'
    """
    return _found(kind, _paths(kind), label)


def _found(kind: str, paths: Mapping[str, Path], label: str) -> str:
    if label in paths:
        return label
    found = _meant(kind, paths, label)
    if found is None:
        singular = kind.rstrip("s")
        missing = [str(folder) for folder in _private() if not folder.is_dir()]
        hint = f"; SCALEMODEL_CATALOG_PATH: no folder {', '.join(missing)}" if missing else ""
        raise ScaleModelError(
            f"{singular}={label!r}: unknown; {nearest(str(label), paths)}{hint}",
            code=f"unknown_{singular}",
            details={"name": label},
        )
    return found


def load(kind: str, name: str) -> dict[str, Any]:
    """The tables of one entry, as written; they do not change, a `copy.deepcopy` of them does.

    Examples
    --------
    >>> load("clusters", "dgx_h100")["accelerator"]
    'h100_sxm_80'
    """
    return _read(path_of(kind, name))


def path_of(kind: str, name: str) -> Path:
    """File of an entry, for readers that keep what they made of it.

    Examples
    --------
    >>> path_of("stacks", "plain").name
    'plain.toml'
    """
    paths = _paths(kind)
    return paths[_found(kind, paths, name)]


def _flatten(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, object, str]]:
    """Rows (key path, value, source) of a nested table."""
    rows: list[tuple[str, object, str]] = []
    shared = str(table.get("source", ""))
    for key, cell in table.items():
        path = f"{prefix}{key}"
        if isinstance(cell, Mapping) and "value" not in cell:
            rows += _flatten(cell, f"{path}.")
        elif isinstance(cell, list) and cell and all(isinstance(item, Mapping) for item in cell):
            for number, item in enumerate(cell):
                if key == "group":
                    rows += _flatten(item, f"{path}[{number}].")
                    continue
                listed = ", ".join(f"{name} {value}" for name, value in item.items() if value != "")
                rows.append((f"{path}[{number}]", listed, shared))
        elif key != "source":
            rows.append((path, value_of(cell), source_of(cell) or shared))
    return rows


@named_arguments
def list_catalog(kind: str | None = None, name: str | None = None) -> pd.DataFrame:
    """What the catalogue holds.

    Parameters
    ----------
    kind : str, optional
        One of `KINDS`; all kinds when left out.
    name : str, optional
        An entry; then one row per number, with its source.

    Returns
    -------
    DataFrame
        Columns kind, name, title, aliases; or kind, name, key, value, source for one entry.

    Raises
    ------
    ScaleModelError : unknown kind or entry; the message names the nearest ones.

    Warns
    -----
    UserWarning : a file holds no entry; it is named and left out.

    Examples
    --------
    >>> len(list_catalog("accelerators")) >= 25
    True
    >>> rows = list_catalog("accelerators", "h100_sxm_80").set_index("key")
    >>> rows.value["memory.bandwidth"]
    '3.35 TB/s'
    """
    import pandas as pd

    if name is not None:
        if kind is None:
            raise ScaleModelError(f"kind=None: needed to look up name={name!r}")
        entry = find(kind, name)
        rows = _flatten(load(kind, entry))
        return pd.DataFrame(
            [(kind, entry, *row) for row in rows],
            columns=["kind", "name", "key", "value", "source"],
        )
    listed = []
    for each in KINDS if kind is None else (kind,):
        for entry, path in sorted(_paths(each).items()):
            try:
                table = _read(path)
                aliases = ", ".join(_aliases_of(table, path))
            except ScaleModelError as broken:
                warnings.warn(f"left out: {broken}", stacklevel=2)
                continue
            listed.append((each, entry, str(table.get("title", entry)), aliases))
    return pd.DataFrame(listed, columns=["kind", "name", "title", "aliases"])
