"""Lengths of documents that fill the sequences of a training step."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import LARGEST_DOCUMENT, reading
from scalemodel.base.words import choice

#: As `Training` takes them: numbers, a file, a distribution, or none.
Lengths = Sequence[int] | str | os.PathLike[str] | None
ORDERS: Final = ("plain", "balanced", "dynamic_cp")
#: Documents of a distribution, at even quantiles; those of a file or a list at most.
_QUANTILES: Final = 2048
_MOST: Final = 1_000_000
_DISTRIBUTION: Final = re.compile(r"\s*\w+\s*=")


def order_of(packing: object, packed: bool) -> str:
    """The way of packing that a text spells.

    Examples
    --------
    >>> order_of("Dynamic-CP", packed=True)
    'dynamic_cp'
    """
    order = choice(packing, ORDERS)
    if order not in ORDERS:
        raise ScaleModelError(f"packing={packing!r}: unknown; {nearest(str(packing), ORDERS)}")
    if order != "plain" and not packed:
        raise ScaleModelError(
            f"packing={packing!r}: documents as long as the sequence need none; give lengths="
        )
    return str(order)


def kept(lengths: Any) -> tuple[int, ...] | str:
    """Lengths as a value that can be compared: numbers, those of a file, or a distribution."""
    if isinstance(lengths, str) and _DISTRIBUTION.match(lengths):
        return lengths
    if isinstance(lengths, str | os.PathLike):
        return _read(str(os.fspath(lengths)))
    if not isinstance(lengths, Iterable) or isinstance(lengths, Mapping):
        raise ScaleModelError(
            f"lengths={lengths!r}: must be whole numbers, a file, or a text such as 'mean=1000'"
        )
    return _whole(list(lengths), "lengths")


def tokens_of(lengths: tuple[int, ...] | str, sequence: int) -> list[int]:
    """Tokens of each document: those told, or even quantiles of a distribution.

    Examples
    --------
    >>> tokens_of("mean=1000,spread=0", 4096)[:2]
    [1000, 1000]
    >>> tokens_of((4096, 512), 4096)
    [4096, 512]
    """
    if isinstance(lengths, str):
        return _drawn(lengths, sequence)
    for length in lengths:
        if not 1 <= length <= sequence:
            raise ScaleModelError(
                f"lengths: a document of {length} tokens; each must have from 1 to "
                f"sequence={sequence}"
            )
    return list(lengths)


def _whole(numbers: Sequence[Any], argument: str) -> tuple[int, ...]:
    if not 1 <= len(numbers) <= _MOST:
        raise ScaleModelError(f"{argument}: {len(numbers)} documents; must be from 1 to {_MOST}")
    found = []
    for number in numbers:
        try:
            whole = int(number)
        except (TypeError, ValueError, OverflowError):
            whole = None
        if (
            whole is None
            or isinstance(number, bool)
            or (not isinstance(number, str) and whole != number)
        ):
            raise ScaleModelError(f"{argument}: {number!r} is no whole number of tokens")
        found.append(whole)
    return tuple(found)


def _read(path: str) -> tuple[int, ...]:
    argument = f"lengths={path}"
    with reading(Path(path), "lengths=") as file:
        data = file.read(8 * LARGEST_DOCUMENT + 1)
    if len(data) > 8 * LARGEST_DOCUMENT:
        raise ScaleModelError(f"{argument}: larger than {8 * LARGEST_DOCUMENT} bytes")
    text = data.decode("utf-8", errors="replace").strip()
    try:
        numbers = json.loads(text) if text.startswith("[") else re.split(r"[\s,;]+", text)
    except ValueError as error:
        raise ScaleModelError(f"{argument}: no JSON ({error})") from None
    return _whole(numbers, argument)


def _drawn(text: str, sequence: int) -> list[int]:
    """Even quantiles of log-normal lengths that the sequence cuts."""
    given = {"spread": 0.0}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in ("mean", "spread"):
            raise ScaleModelError(f"lengths={text!r}: {name!r} is unknown; mean and spread are")
        try:
            given[name] = float(value)
        except ValueError:
            raise ScaleModelError(f"lengths={text!r}: {name} must be a number") from None
    if not 1 <= given.get("mean", 0.0) <= sequence:
        raise ScaleModelError(f"lengths={text!r}: mean must be from 1 to sequence={sequence}")
    if not 0 <= given["spread"] <= 3:
        raise ScaleModelError(f"lengths={text!r}: spread must be from 0 to 3")
    drawn = _core.answer_lengths(given["mean"], sequence, given["spread"], _QUANTILES)
    return [min(sequence, max(1, round(tokens))) for tokens in drawn.tolist()]
