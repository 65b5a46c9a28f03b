"""The one exception of scalemodel, and the reason codes it shares with verdicts."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from scalemodel.base.vocabulary import SYNONYMS, folded

#: Signs of a message that are read; what others wrote may stand in it, of any length.
_LONGEST: Final = 4000
#: Signs of a name that are compared with the known ones.
_LONGEST_NAME: Final = 200


def _shown(message: str) -> str:
    """A message without terminal escapes and the like, its middle left out where it is long."""
    if len(message) > _LONGEST:
        message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 2 :]}"
    if message.isprintable():
        return message
    return "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in message)


class ScaleModelError(ValueError):
    """A malformed question: an unknown name, a wrong unit, a number out of range.

    A well-formed strategy that cannot run is no error but an `Estimate` with a verdict.

    Parameters
    ----------
    message : str
        Names the argument, its value and what would be legal.
    code : str
        Short machine-readable kind, for example ``"malformed"`` or ``"unknown_accelerator"``.
    details : mapping, optional
        Values the message was made of.

    Examples
    --------
    >>> import scalemodel as sm
    >>> try:
    ...     sm.cluster("dgx_h10")
    ... except sm.ScaleModelError as error:
    ...     print(error.code)
    unknown_cluster
    """

    def __init__(
        self,
        message: str,
        code: str = "malformed",
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(_shown(message))
        self.code = code
        self.details: dict[str, object] = dict(details or {})

    def __reduce__(self) -> tuple[type[ScaleModelError], tuple[str, str, dict[str, object]]]:
        return type(self), (str(self), self.code, self.details)


def nearest(name: object, known: Iterable[object], count: int = 3) -> str:
    """Text that names the known names nearest to `name`, or a few of them; keys may be anything.

    Examples
    --------
    >>> nearest("gpus", ["nodes", "accelerators"])
    "did you mean 'accelerators'?"
    >>> nearest("llama4", ["llama_7b", "llama4_scout", "llama_13b"], 2)
    "did you mean 'llama4_scout' or 'llama_7b'?"
    """
    given, listed = str(name)[:_LONGEST_NAME], [str(item) for item in known]
    for meant in SYNONYMS.get(folded(given), ()):
        if meant in listed:
            return f"did you mean {meant!r}?"
    close = difflib.get_close_matches(given, listed, n=count, cutoff=0.5)
    part = given.lower()
    if len(part) >= 3:  # part of a longer name, its beginning above all, is likelier than a slip
        holding = [item for item in listed if part in item.lower()]
        holding.sort(key=lambda item: (not item.lower().startswith(part), len(item)))
        close = list(dict.fromkeys([*holding, *close]))[:count]
    if close:
        return "did you mean " + " or ".join(repr(item) for item in close) + "?"
    return "known: " + ", ".join(listed[:12]) + (", ..." if len(listed) > 12 else "")
