"""The configuration of a model on the Hugging Face Hub: one small file, never weights.

Only an id that the user names leads here, so no other question needs a network. The library
``huggingface_hub`` (the extra ``hub``) fetches the file and keeps it in its own cache.
"""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import parse_json, read_text
from scalemodel.resolve.hub import is_hub_id
from scalemodel.resolve.unknown import unknown_model

_FILE: Final = "config.json"
_REVISION: Final = re.compile(r"[A-Za-z0-9_][\w./+-]*", re.ASCII)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")

#: What the library raises, by the name of the class, since the module that holds the classes
#: differs by version: the code and what is said of it. The first class that an error is one of
#: counts, so a class stands before those it derives from.
_SAID: Final = (
    (
        "GatedRepoError",
        "gated_model",
        "is gated on the Hugging Face Hub: accept its terms there and log in with 'hf auth login'",
    ),
    (
        "RevisionNotFoundError",
        "unknown_revision",
        "the Hugging Face Hub has the model but not this revision, which must be a branch, a tag "
        "or a whole commit hash",
    ),
    (
        "RepositoryNotFoundError",
        "unknown_model",
        "unknown to the catalogue and to the Hugging Face Hub, or private there",
    ),
    ("HFValidationError", "unknown_model", "no id that the Hugging Face Hub allows"),
    (
        "OfflineModeIsEnabled",
        "unreachable_hub",
        "unknown to the catalogue, and HF_HUB_OFFLINE forbids to ask the Hugging Face Hub",
    ),
    (
        "LocalEntryNotFoundError",
        "unreachable_hub",
        "unknown to the catalogue, and the Hugging Face Hub cannot be reached nor has its cache "
        "here the config.json",
    ),
    (
        "EntryNotFoundError",
        "unknown_model",
        "its repository on the Hugging Face Hub holds no config.json",
    ),
)


class HubAddress(NamedTuple):
    """An id of the Hub and what was asked of it; no revision means the newest commit."""

    repository: str
    revision: str


class HubConfig(NamedTuple):
    """A ``config.json`` and the commit that it is of; empty where the cache does not tell."""

    table: dict[str, Any]
    commit: str


def hub_address(text: str) -> HubAddress | None:
    """The id and the revision that a text names, `None` where it is no id.

    Examples
    --------
    >>> hub_address("org/name@v1.0"), hub_address("./org/name")
    (HubAddress(repository='org/name', revision='v1.0'), None)
    """
    repository, sign, revision = text.partition("@")
    if not is_hub_id(repository):
        return None
    if sign and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ScaleModelError(
            f"model={text!r}: revision {revision!r} must be a branch, a tag or a whole commit "
            "hash, such as 'org/name@main'",
            code="unknown_revision",
        )
    return HubAddress(repository, revision)


def _library() -> Any:
    return importlib.import_module("huggingface_hub")


def _refused(label: str, code: str, said: str) -> ScaleModelError:
    return unknown_model(label, ScaleModelError("", code=code, details={"name": label}), said)


def _refusal(label: str, error: Exception) -> ScaleModelError:
    raised = {kind.__name__ for kind in type(error).__mro__}
    for kind, code, said in _SAID:
        if kind in raised:
            return _refused(label, code, said)
    lines = str(error).strip().splitlines()
    why = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return _refused(
        label, "unreachable_hub", f"its config.json cannot be had from the Hugging Face Hub ({why})"
    )


@lru_cache(maxsize=64)
def hub_config(address: HubAddress) -> HubConfig:
    """The ``config.json`` of a model on the Hub, asked for once per process.

    Raises
    ------
    ScaleModelError : ``huggingface_hub`` is missing, the Hub cannot be reached or does not give the
        file; the message says which, and what may stand in its place.
    """
    label = f"{address.repository}@{address.revision}" if address.revision else address.repository
    try:
        library = _library()
    except ImportError:
        raise _refused(
            label,
            "missing_extra",
            "unknown to the catalogue; pip install 'scalemodel[hub]' to read it from the Hugging "
            "Face Hub",
        ) from None
    try:
        path = Path(
            library.hf_hub_download(address.repository, _FILE, revision=address.revision or None)
        )
    # Which classes come from the connection depends on the library's version (requests, httpx).
    except Exception as error:
        raise _refusal(label, error) from error
    try:
        table = parse_json(read_text(path), _FILE)
    except ScaleModelError as error:
        raise _refused(label, "malformed", str(error)) from None
    if not isinstance(table, dict):
        raise _refused(label, "malformed", f"{_FILE} must hold a JSON object")
    # The cache keeps the file in a folder named by the commit.
    commit = path.parent.name
    return HubConfig(table, commit if _COMMIT.fullmatch(commit) else "")
