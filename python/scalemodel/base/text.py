"""How quantities are written for people."""

from __future__ import annotations

from collections.abc import Iterable

GIB = 2.0**30


def time_text(seconds: float, *, signed: bool = False) -> str:
    """Seconds with three digits and the unit that suits them; ``signed`` writes changes.

    Examples
    --------
    >>> time_text(17.234), time_text(0.0042), time_text(0.0), time_text(-0.5, signed=True)
    ('17.2 s', '4.20 ms', '0 s', '−500 ms')
    """
    if signed:
        return f"{'−' if seconds < 0 else '+'}{time_text(abs(seconds))}"
    if seconds == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def size_text(size_bytes: float) -> str:
    """Bytes in the binary unit that suits them.

    Examples
    --------
    >>> size_text(85899345920), size_text(2.0**29), size_text(0)
    ('80.0 GiB', '512 MiB', '0 B')
    """
    if size_bytes == 0:
        return "0 B"
    for unit, factor in (("TiB", 2.0**40), ("GiB", GIB), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if abs(size_bytes) >= factor:
            return f"{_three_digits(size_bytes / factor)} {unit}"
    return f"{size_bytes:.0f} B"


def percent_text(fraction: float, *, signed: bool = False) -> str:
    """A fraction as percent; ``signed`` writes changes.

    Examples
    --------
    >>> percent_text(0.4391), percent_text(-0.048, signed=True)
    ('43.9 %', '−4.8 %')
    """
    if signed:
        return f"{'−' if fraction < 0 else '+'}{abs(100 * fraction):.1f} %"
    return f"{100 * fraction:.1f} %"


def count_text(number: float) -> str:
    """A large number with a thousand-step prefix.

    Examples
    --------
    >>> count_text(488123.0), count_text(953.4), count_text(2.5e9)
    ('488 k', '953', '2.50 G')
    """
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= factor:
            return f"{_three_digits(number / factor)} {prefix}"
    return _three_digits(number)


def money_text(usd: float) -> str:
    """US dollars with at least two significant digits.

    Examples
    --------
    >>> money_text(6.844), money_text(0.00312), money_text(12345.6)
    ('6.84 USD', '0.0031 USD', '12,346 USD')
    """
    if usd >= 1000:
        return f"{usd:,.0f} USD"
    return f"{usd:.2f} USD" if usd >= 0.1 else f"{usd:.2g} USD"


def _three_digits(number: float) -> str:
    size = abs(number)
    if size >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"


def values_text(values: Iterable[object], limit: int = 12) -> str:
    """A set of legal values, shortened in the middle.

    Examples
    --------
    >>> values_text([1, 2, 4]), values_text(range(1, 100), limit=4)
    ('{1, 2, 4}', '{1, 2, 3, ..., 99}')
    """
    listed = [str(value) for value in values]
    if len(listed) > limit:
        listed = [*listed[: limit - 1], "...", listed[-1]]
    return "{" + ", ".join(listed) + "}"
