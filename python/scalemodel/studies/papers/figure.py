"""One figure of a study: what it was published as, and how it is computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from scalemodel.studies.published import published as _published

#: A number of ``reference/studied_papers.toml``, in base units: paper, key and dimension.
published = partial(_published, entry="studied_papers")


def above(limit: float) -> dict[str, Any]:
    """`Figure.holds` and its words, of a figure that lies above a limit.

    Examples
    --------
    >>> above(1)["words"], above(1)["holds"](1.2)
    ('above 1', True)
    """
    return {"holds": lambda value: value > limit, "words": f"above {limit:g}"}


def below(limit: float) -> dict[str, Any]:
    """`Figure.holds` and its words, of a figure that lies below a limit."""
    return {"holds": lambda value: value < limit, "words": f"below {limit:g}"}


@dataclass(frozen=True)
class Figure:
    """A figure of a paper's study.

    Attributes
    ----------
    study : int
        Number of the study within its paper.
    name, what : str
        The study; what the figure is.
    predict : callable
        Computes it.
    asked : callable, optional
        Computes what was published, or what the original's own formulas say.
    within : float
        Largest error of a figure that is met, of the published one.
    holds : callable, optional
        Where no number was published: whether the prediction is as the paper says.
    words : str
        What `holds` asks, in words.
    reason : str
        Why a figure that is not met is not met.
    computed : bool
        Whether what was published is no number that the paper prints, but computed: by the
        original's own formulas, by its public simulator or its rules, or as its theorem says.
    """

    study: int
    name: str
    what: str
    predict: Callable[[], float]
    asked: Callable[[], float] | None = None
    within: float = 0.1
    holds: Callable[[float], bool] | None = None
    words: str = ""
    reason: str = ""
    computed: bool = False

    def __post_init__(self) -> None:
        assert (self.asked is None) != (self.holds is None), self.what
        assert (self.holds is None) == (self.words == ""), self.what
        assert not (self.computed and self.words), self.what

    def answer(self) -> dict[str, object]:
        """A row of `scalemodel.studies.papers.figures`."""
        found = float(self.predict())
        asked = float(self.asked()) if self.asked else None
        error = found / asked - 1 if asked else None
        if self.holds:
            met = bool(self.holds(found))
        else:
            assert asked is not None
            met = abs(found - asked) <= self.within * abs(asked) + 1e-12
        return {
            "study": self.study,
            "name": self.name,
            "figure": self.what,
            "published": self.words or asked,
            "computed": self.computed,
            "predicted": found,
            "error_fraction": error,
            "met": met,
            "reason": "" if met else self.reason,
        }
