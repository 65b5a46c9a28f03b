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
    engine : str
        Catalogue name; empty where it is not asked about.
    """

    load: str
    kind: str
    architecture: str
    engine: str = ""

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
    """Both ends of an interval, and the share of comparable runs inside.

    Attributes
    ----------
    low, high, coverage_fraction : float
    borrowed : tuple of str
        What the question shares with no or too few published runs: the interval is that of others,
        as wide as the widest of them.
    """

    low: float
    high: float
    coverage_fraction: float
    borrowed: tuple[str, ...] = ()


Factors = Mapping[tuple[str, str, str, str], float]


class Known(NamedTuple):
    """What published runs say of intervals.

    Attributes
    ----------
    cells : mapping
        Factor between a prediction and either end of its interval, by quantity, load, kind and
        architecture.
    engines : mapping of str to tuple of str
        Quantity -> engines of the runs.
    coverage_fraction : float
        Share of runs inside.
    """

    cells: Factors
    engines: Mapping[str, tuple[str, ...]]
    coverage_fraction: float


@catalog.kept(1)
def known() -> Known:
    """The table ``reference/serving_uncertainty.toml``."""
    table = catalog.load("reference", "serving_uncertainty")
    cells = {
        (item["quantity"], item["load"], item["kind"], item["architecture"]): float(item["factor"])
        for item in table["cells"]
    }
    interval = Reader(table["interval"], "serving_uncertainty.interval")
    engines = {item["quantity"]: tuple(item["names"]) for item in table.get("engines", ())}
    return Known(cells, engines, interval.number("coverage_fraction"))


def factor_of(
    situation: ServingSituation, quantity: str, cells: Factors | None = None
) -> float | None:
    """Factor of the most specific cell; None where no comparable run was published.

    Where kind and architecture were not measured together, the wider of both alone.

    Examples
    --------
    >>> factor_of(ServingSituation("offline", "dense", "hopper"), "rate") > 1
    True
    """
    told = known().cells if cells is None else cells
    for load in (situation.load, ""):
        levels = (
            ((situation.kind, situation.architecture),),
            ((situation.kind, ""), ("", situation.architecture)),
            (("", ""),),
        )
        for level in levels:
            keys = ((quantity, load, *alike) for alike in level)
            found = [told[key] for key in keys if key in told]
            if found:
                return max(found)
    return None


def borrowed_by(
    situation: ServingSituation, quantity: str, of: Known | None = None
) -> tuple[str, ...]:
    """What a question shares with no or too few published runs, by kind of difference.

    Examples
    --------
    >>> borrowed_by(ServingSituation("offline", "dense", "hopper"), "rate")
    ()
    >>> borrowed_by(ServingSituation("offline", "dense", "cdna3", "sglang_2025"), "rate")
    ('architecture cdna3', 'engine sglang_2025')
    """
    cells, engines, _ = of or known()
    found = next((key for key in situation.keys(quantity) if key in cells), None)
    named = (
        (f"load {situation.load}", found and found[1]),
        (f"kind {situation.kind}", found and found[2]),
        (f"architecture {situation.architecture or 'unknown'}", found and found[3]),
    )
    listed = [text for text, cell in named if not cell]
    if situation.engine and situation.engine not in engines.get(quantity, ()):
        listed.append(f"engine {situation.engine}")
    return tuple(listed)


def _widest(
    situation: ServingSituation, quantity: str, borrowed: tuple[str, ...], of: Known
) -> float:
    """The widest factor of runs that differ in what is borrowed, and are alike in all else.

    Rates and times all follow from the time of a step: where the engine is borrowed, an interval is
    no narrower than that of another quantity. Cells that hold runs of any kind or architecture
    count only where none is told for what was asked: they are as wide as the worst of the others.
    """
    free = {text.split(" ", 1)[0] for text in borrowed}
    asked = {
        "load": situation.load,
        "kind": situation.kind,
        "architecture": situation.architecture,
    }
    found: dict[str, tuple[int, float]] = {}
    for (measured, *key), factor in of.cells.items():
        if measured != quantity and "engine" not in free:
            continue
        told = [
            (cell, asked[name]) for name, cell in zip(asked, key, strict=True) if name not in free
        ]
        if any(cell not in (wanted, "") for cell, wanted in told):
            continue
        unlike = sum(cell == "" for cell, _ in told)
        fewest, widest = found.get(measured, (unlike, factor))
        if unlike <= fewest:
            found[measured] = (unlike, max(widest, factor) if unlike == fewest else factor)
    return max((factor for _, factor in found.values()), default=1.0)


def half_width(situation: ServingSituation, quantity: str, of: Known | None = None) -> float | None:
    """Factor between a prediction and either end of its interval; None where nothing is known.

    That of a quantity of which no run tells is the widest of the others in the same situation.

    Examples
    --------
    >>> half_width(ServingSituation("offline", "dense", "hopper"), "rate") < 1.2
    True
    """
    return (
        _half_width(situation, quantity) if of is None else _half_width_of(situation, quantity, of)
    )


@catalog.kept(1024)
def _half_width(situation: ServingSituation, quantity: str) -> float | None:
    return _half_width_of(situation, quantity, known())


def _half_width_of(situation: ServingSituation, quantity: str, runs: Known) -> float | None:
    told = {measured for measured, *_ in runs.cells}
    widest = 1.0
    for alike in (quantity,) if quantity in told else told:
        factor = factor_of(situation, alike, runs.cells)
        borrowed = borrowed_by(situation, alike, runs)
        also = _widest(situation, alike, borrowed, runs) if borrowed else 1.0
        widest = max(widest, 1.0 if factor is None else factor, also)
    return widest if widest != 1.0 else None


def interval_around(
    situation: ServingSituation, quantity: str, predicted: float | None
) -> ServingInterval | None:
    """The interval around a prediction; None without a prediction or runs of its quantity.

    Where no comparable run was published it is borrowed, and as wide as the widest it may borrow.

    Parameters
    ----------
    situation : ServingSituation
    quantity : str
        One of `QUANTITIES`.
    predicted : float or None

    Examples
    --------
    >>> found = interval_around(ServingSituation("offline", "dense", "hopper"), "rate", 1000.0)
    >>> found.low < 1000 < found.high, found.borrowed
    (True, ())
    """
    factor = half_width(situation, quantity)
    if predicted is None or factor is None:
        return None
    borrowed = borrowed_by(situation, quantity)
    share = known().coverage_fraction
    return ServingInterval(predicted / factor, predicted * factor, share, borrowed)
