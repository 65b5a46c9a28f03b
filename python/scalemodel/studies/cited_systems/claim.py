"""One published number and how it is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scalemodel.studies.published import published


@dataclass(frozen=True)
class Claim:
    """A number of a paper and the function that predicts it.

    Attributes
    ----------
    system, key : str
        Where the published number stands in its entry.
    what : str
        What is claimed.
    predict : callable
        Gives the prediction, in the unit of the claim.
    within : float
        Largest error of a claim that counts as met.
    dimension : str
        Of the published value, such as ``"bytes"``; empty: a plain number.
    reason : str
        Why a claim that is missed is missed.
    entry : str
        Of the catalogue's reference data, where the published number stands.
    """

    system: str
    key: str
    what: str
    predict: Callable[[], float]
    within: float = 0.1
    dimension: str = ""
    reason: str = ""
    entry: str = "cited_systems"

    def published(self) -> float:
        """The published number, in base units."""
        return published(self.system, self.key, self.dimension, entry=self.entry)
