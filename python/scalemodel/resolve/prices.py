"""List prices of accelerators: from whom, on which terms, of which date."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.base.vocabulary import folded

SELLERS: Final = ("hyperscaler", "neocloud")
TERMS: Final = ("on_demand", "reserved", "spot")
#: Kinds of price that can be compared: what one kind of seller asks on the same terms.
BASES: Final = (*(f"{seller}_{terms}" for seller in SELLERS for terms in TERMS), "reserved", "spot")
#: Bases of a cluster that names no price, the first that knows its accelerator.
USUAL: Final = ("neocloud_on_demand", "hyperscaler_on_demand")
_HOUR_S: Final = 3600.0


class Price(NamedTuple):
    """What an accelerator costs per second, and where that comes from.

    Attributes
    ----------
    usd_per_s : float
    source : str
        Entry of the catalogue, or what else names the price.
    seller, kind, terms, date : str
        Who asks it, of which kind (``hyperscaler``, ``neocloud``), on which terms, when; empty
        where a price was given.
    """

    usd_per_s: float
    source: str
    seller: str = ""
    kind: str = ""
    terms: str = ""
    date: str = ""

    @property
    def usd_per_hour(self) -> float:
        """Per accelerator-hour, as prices are listed."""
        return _HOUR_S * self.usd_per_s

    @property
    def basis(self) -> str:
        """Kind of seller and terms; empty where a price was given."""
        return f"{self.kind}_{self.terms}" if self.kind else ""

    def __str__(self) -> str:
        """As it stands beside a cost.

        Examples
        --------
        >>> print(list_price("h100_sxm_80", "neocloud_on_demand"))
        2.99 USD/h (Lambda, on demand, 2026-03)
        """
        terms = self.terms.replace("_", " ")
        told = [part for part in (self.seller, terms, self.date) if part] or [self.source]
        return f"{self.usd_per_hour:.2f} USD/h ({', '.join(told)})"


def entry_price(name: str) -> Price:
    """The price of one entry.

    Examples
    --------
    >>> entry_price("aws_p5_2025_06").basis
    'hyperscaler_on_demand'
    """
    entry = catalog.load("prices", name)
    usd = parse_quantity(value_of(entry["usd_per_accelerator_hour"]), "usd_per_s", f"prices/{name}")
    terms = str(entry["type"])
    kind = str(entry.get("seller", "neocloud" if terms == "neocloud" else "hyperscaler"))
    terms = "on_demand" if terms == "neocloud" else terms  # entries that name no kind of seller
    return Price(usd, name, str(entry["provider"]), kind, terms, str(entry["date"]))


@catalog.kept(256)
def prices_of(accelerator: str) -> tuple[Price, ...]:
    """Every list price of an accelerator, the newest first, of the same date the cheapest."""
    names = [
        name
        for name in catalog.names("prices")
        if catalog.load("prices", name)["accelerator"] == accelerator
    ]
    cheapest = sorted((entry_price(name) for name in names), key=lambda price: price.usd_per_s)
    return tuple(sorted(cheapest, key=lambda price: price.date, reverse=True))


def _on(price: Price, basis: str) -> bool:
    """Whether a price is on a basis: a kind of seller and terms, terms, or a seller's name."""
    seller = folded(price.seller)
    on_demand = price.terms == "on_demand"
    names = {price.basis, price.terms, f"{seller}_{price.terms}"} - {"on_demand"}
    return folded(basis) in {*map(folded, names), *([seller] if on_demand else [])}


def list_price(accelerator: str, basis: str) -> Price | None:
    """The newest price of an accelerator on one basis; None where the catalogue knows none.

    Parameters
    ----------
    accelerator : str
        Catalogue name.
    basis : str
        Kind of seller and terms (``"neocloud_on_demand"``), terms alone (``"spot"``), or a seller
        (``"CoreWeave"``, on demand) and terms (``"AWS reserved"``).

    Raises
    ------
    ScaleModelError : no such basis; the message lists them.

    Examples
    --------
    >>> list_price("b200", "hyperscaler on demand").seller, list_price("b200", "coreweave").date
    ('AWS', '2026-05')
    >>> list_price("mi355x", "spot") is None
    True
    """
    if not is_basis(basis):
        raise unknown_basis(basis)
    return next((price for price in prices_of(accelerator) if _on(price, basis)), None)


@catalog.kept(1)
def _every_price() -> tuple[Price, ...]:
    return tuple(entry_price(name) for name in catalog.names("prices"))


def is_basis(text: str) -> bool:
    """Whether a text names a basis rather than one price.

    Examples
    --------
    >>> is_basis("Neocloud on-demand"), is_basis("aws_p5_2025_06")
    (True, False)
    """
    known = folded(text) in map(folded, BASES)
    return known or any(_on(price, text) for price in _every_price())


def unknown_basis(text: str) -> ScaleModelError:
    """The error of a text that names neither a price nor a basis."""
    sellers = sorted({price.seller for price in _every_price()})
    near = nearest(text, [*catalog.names("prices"), *BASES, *sellers])
    likely = f"{near} It" if near.startswith("did you mean") else "it"
    return ScaleModelError(
        f"price={text!r}: unknown; {likely} must be USD per accelerator-hour, a list price of "
        f"sm.list_catalog('prices'), a basis ({', '.join(BASES)}) or a seller "
        f"({', '.join(sellers)})",
        code="unknown_price",
    )


def no_price(accelerator: str, basis: str | None = None) -> str:
    """What is said where an accelerator has no price: which it has, and what to pass.

    Examples
    --------
    >>> no_price("mi355x")
    'mi355x has no list price in the catalogue; pass price=USD per accelerator-hour'
    """
    listed = [f"{price.source} {price}" for price in prices_of(accelerator)]
    on = f" on the basis {basis!r}" if basis else ""
    known = f" (it has {'; '.join(listed[:4])})" if listed else ""
    return (
        f"{accelerator} has no list price{on} in the catalogue{known}; pass price=USD per "
        "accelerator-hour"
    )


def usual_price(accelerator: str) -> Price | None:
    """The price of a cluster that names none: on demand, of a neocloud if there is one."""
    found = (list_price(accelerator, basis) for basis in USUAL)
    return next((price for price in found if price is not None), None)


def one_basis(prices: Iterable[Price | None]) -> bool:
    """Whether costs at these prices can be compared: one kind of seller, on the same terms."""
    return len({price.basis for price in prices if price is not None}) <= 1
