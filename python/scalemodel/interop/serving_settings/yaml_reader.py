"""Documents of YAML that others wrote."""

from __future__ import annotations

import re
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain

#: Tables within tables; the parser takes long to find out that there are too many.
_DEEPEST: Final = 100
_LONGEST: Final = 1_000_000  # signs


def _nesting(text: str) -> int:
    """Most brackets that are open at once, those in texts among them."""
    most = depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return most


def read_documents(text: str, where: str) -> list[Any]:
    r"""Every document of a text.

    Raises
    ------
    ScaleModelError : PyYAML is not installed, or the text is no YAML.

    Examples
    --------
    >>> read_documents("kind: A\n---\nkind: B\n", "example")
    [{'kind': 'A'}, {'kind': 'B'}]
    """
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ScaleModelError(
            f"{where}: reading YAML needs PyYAML: pip install pyyaml; or pass the parsed table",
            code="missing_extra",
        ) from None
    if len(text) > _LONGEST or _nesting(text) > _DEEPEST:
        raise ScaleModelError(f"{where}: too long or nested too deeply", code="unreadable_file")
    try:
        # An alias may stand for a table of aliases: a few lines could become millions of entries.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ScaleModelError(
                f"{where}: has aliases; pass the parsed table", code="unreadable_file"
            )
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = plain(error) or "nested too deeply"
        raise ScaleModelError(f"{where}: {reason}", code="unreadable_file") from None


def read_yaml(text: str, where: str) -> Any:
    """The one document of a text; an empty text is an empty table."""
    found = read_documents(text, where)
    if len(found) > 1:
        raise ScaleModelError(f"{where}: holds {len(found)} documents, not one")
    return found[0] if found else {}
