"""How far measured serving strays from predictions: intervals of rates and of times to tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scalemodel import catalog
from scalemodel.resolve.reader import Reader

#: What intervals are made for: output tokens per second, time to the first token, time per token.
QUANTITIES = ("rate", "ttft", "tpot")


class ServingSituation(NamedTuple):
    """What published runs must share with a question to speak for it.

    Attributes
    ----------
    load : str
        ``offline`` (as much as fits), ``online`` (requests arrive) or ``running`` (a number of
        sequences is kept running).
    kind : str
        ``dense`` or ``experts``.
    architecture : str
        Of the accelerator.
    """

    load: str
    kind: str
    architecture: str

    def keys(self, quantity: str) -> Iterator[tuple[str, str, str, str]]:
        """Cells that may hold the factor, the most specific first; an empty text is any."""
        for load in (self.load, ""):
            for kind, architecture in (
                (self.kind, self.architecture),
                (self.kind, ""),
                ("", self.architecture),
                ("", ""),
            ):
                yield quantity, load, kind, architecture


class ServingInterval(NamedTuple):
    """Both ends of an interval, and the share of comparable runs inside."""

    low: float
    high: float
    coverage_fraction: float


Factors = Mapping[tuple[str, str, str, str], float]


@catalog.kept(1)
def factors() -> tuple[Factors, float]:
    """Factor between a prediction and either end of its interval by cell, and the coverage."""
    table = catalog.load("reference", "serving_uncertainty")
    cells = {
        (item["quantity"], item["load"], item["kind"], item["architecture"]): float(item["factor"])
        for item in table["cells"]
    }
    interval = Reader(table["interval"], "serving_uncertainty.interval")
    return cells, interval.number("coverage_fraction")


def factor_of(
    situation: ServingSituation, quantity: str, cells: Factors | None = None
) -> float | None:
    """Factor of the most specific cell; None where no comparable run was published.

    Examples
    --------
    >>> factor_of(ServingSituation("offline", "dense", "hopper"), "rate") > 1
    True
    """
    known = factors()[0] if cells is None else cells
    return next((known[key] for key in situation.keys(quantity) if key in known), None)


def interval_around(
    situation: ServingSituation, quantity: str, predicted: float | None
) -> ServingInterval | None:
    """The interval around a prediction; None without a prediction or comparable runs.

    Parameters
    ----------
    situation : ServingSituation
    quantity : str
        One of `QUANTITIES`.
    predicted : float or None

    Examples
    --------
    >>> found = interval_around(ServingSituation("offline", "dense", "hopper"), "rate", 1000.0)
    >>> found.low < 1000 < found.high
    True
    """
    factor = factor_of(situation, quantity)
    if predicted is None or factor is None:
        return None
    return ServingInterval(predicted / factor, predicted * factor, factors()[1])
