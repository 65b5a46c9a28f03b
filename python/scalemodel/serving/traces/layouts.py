"""Formats of traces, told apart by their columns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from scalemodel.base.errors import ScaleModelError, nearest


@dataclass(frozen=True)
class TraceLayout:
    """How a format names what a trace has.

    Attributes
    ----------
    name : str
    columns : dict
        Name in the file of each column of a `Trace`.
    clock : str
        Of arrivals: ``"s"``, ``"ms"`` or ``"utc"`` (text of date and time).
    block_tokens : int
        That a block has; 0: a column says it.
    drop_empty : bool
        A length of 0 means that the request failed.
    """

    name: str
    columns: dict[str, str]
    clock: str
    block_tokens: int = 0
    drop_empty: bool = False
    needed: tuple[str, ...] = field(default=("arrival_s", "input_tokens", "output_tokens"))

    @property
    def needed_columns(self) -> list[str]:
        """Names in the file of the columns that it cannot do without."""
        return [self.columns[name] for name in self.needed]


def _layout(
    name: str, arrival: str, prompt: str, answer: str, clock: str, **further: str
) -> tuple[str, dict[str, str], str]:
    needed = {"arrival_s": arrival, "input_tokens": prompt, "output_tokens": answer}
    return name, needed | further, clock


_OWN = ("session", "turn", "tool_wait_s", "tenant", "block_ids", "block_tokens")
LAYOUTS = {
    layout.name: layout
    for layout in (
        TraceLayout(
            *_layout(
                *("scalemodel", "arrival_s", "input_tokens", "output_tokens", "s"),
                **{name: name for name in _OWN},
            )
        ),
        TraceLayout(
            *_layout(
                *("mooncake", "timestamp", "input_length", "output_length", "ms"),
                block_ids="hash_ids",
            ),
            block_tokens=512,
        ),
        TraceLayout(*_layout("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", "utc")),
        TraceLayout(
            *_layout(
                *("burstgpt", "Timestamp", "Request tokens", "Response tokens", "s"),
                session="Session ID",
            ),
            drop_empty=True,
        ),
    )
}


def layout_of(columns: Collection[str], asked: str | None, where: str) -> TraceLayout:
    """The format that has these columns.

    Parameters
    ----------
    columns : names in the file
    asked : str, optional
        The format that it is said to be.
    where : str
        What stands before a complaint.

    Examples
    --------
    >>> layout_of(["TIMESTAMP", "ContextTokens", "GeneratedTokens", "NumImages"], None, "t").name
    'azure'
    """
    if asked is not None and asked not in LAYOUTS:
        raise ScaleModelError(f"format={asked!r}: no such format; {nearest(asked, LAYOUTS)}")
    candidates = list(LAYOUTS.values()) if asked is None else [LAYOUTS[asked]]
    missing = [[n for n in each.needed_columns if n not in columns] for each in candidates]
    least = min(range(len(candidates)), key=lambda place: len(missing[place]))
    if not missing[least]:
        return candidates[least]
    if asked is None and len(missing[least]) == len(candidates[least].needed):
        known = "; ".join(f"{each.name}: {', '.join(each.needed_columns)}" for each in candidates)
        raise ScaleModelError(f"{where}: columns {', '.join(columns)}: must be those of {known}")
    layout = candidates[least]
    raise ScaleModelError(
        f"{where}: column {', '.join(missing[least])} missing: a trace of format {layout.name} "
        f"must have {', '.join(layout.needed_columns)}"
    )
