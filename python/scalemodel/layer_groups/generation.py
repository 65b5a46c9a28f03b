"""What stands around the denoising step of an image or video generator, from its entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import value_of

_KEYS = ("pixels", "frames", "steps", "passes", "text_encoders", "text_tokens", "decoder")


@dataclass(frozen=True)
class GenerationFacts:
    """How a generator makes samples of the latents that its layers denoise.

    Attributes
    ----------
    grid : LatentGrid
        Pixels and frames of one place of the latents.
    steps : int
        Denoising steps that its own pipeline takes unless asked otherwise.
    passes : int
        Forward passes of a step: 2 with classifier-free guidance, one with the text and one without
        (Ho and Salimans, arXiv 2207.12598), 1 where guidance was distilled into the weights.
    text_encoders : tuple of str
        Models of the catalogue that encode the text, once.
    text_tokens : int
        Tokens of an encoded text.
    decoder : str
        Model of the catalogue that makes pixels of the latents; empty where none is known.
    """

    grid: _core.LatentGrid
    steps: int
    passes: int
    text_encoders: tuple[str, ...] = ()
    text_tokens: int = 1
    decoder: str = ""


def facts_from(table: Any, where: str) -> GenerationFacts | None:
    """The facts of a ``[generation]`` table; None without one.

    Raises
    ------
    ScaleModelError : an unknown key, a missing or malformed number; the message names it.

    Examples
    --------
    >>> facts_from({"pixels": 16, "steps": 28, "passes": 1}, "flux.toml").grid
    LatentGrid(pixels=16.0)
    """
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ScaleModelError(f"{where}: generation={table!r}: must be a table")
    for key in table:
        if key not in _KEYS:
            raise ScaleModelError(
                f"{where}: generation.{key}: unknown key; {nearest(str(key), _KEYS)}",
                code="unknown_key",
            )
    given: dict[str, Any] = {key: value_of(cell) for key, cell in table.items()}
    for key in ("pixels", "steps", "passes"):
        if key not in given:
            raise ScaleModelError(f"{where}: generation.{key}: missing")
    for key, most in (("steps", 100_000), ("passes", 2), ("text_tokens", 1_000_000)):
        value = given.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ScaleModelError(
                f"{where}: generation.{key}={value!r}: must be a whole number from 1 to {most}"
            )
    encoders = given.get("text_encoders", ())
    if not isinstance(encoders, (list, tuple)) or not all(isinstance(e, str) for e in encoders):
        raise ScaleModelError(f"{where}: generation.text_encoders={encoders!r}: must be names")
    try:
        grid = _core.LatentGrid(pixels=given["pixels"], frames=given.get("frames", 1))
    except ScaleModelError as error:
        raise ScaleModelError(f"{where}: generation.{error}", code=error.code) from None
    return GenerationFacts(
        grid=grid,
        steps=given["steps"],
        passes=given["passes"],
        text_encoders=tuple(encoders),
        text_tokens=given.get("text_tokens", 1),
        decoder=str(given.get("decoder", "")),
    )
