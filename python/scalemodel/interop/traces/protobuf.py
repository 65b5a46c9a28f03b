"""The wire format of protocol buffers, as far as execution traces need it.

Fields are a tag (number and wire type) and a value: a varint, eight or four bytes, or a length and
as many bytes (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; negative numbers as 64 bits.

    Examples
    --------
    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


def whole(number: int, value: int) -> bytes:
    """A field that is a whole number."""
    return varint(number << 3 | VARINT) + varint(value)


def data(number: int, value: bytes | str) -> bytes:
    """A field that is text, bytes or a message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(raw)) + raw


def packed(number: int, values: list[int]) -> bytes:
    """A field that repeats whole numbers; nothing where there are none."""
    return data(number, b"".join(varint(value) for value in values)) if values else b""


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """A varint and where it ends.

    Raises
    ------
    ValueError : the bytes end, or it is longer than 64 bits.
    """
    value, shift = 0, 0
    while True:
        if at >= len(raw) or shift > 63:
            raise ValueError("not protocol buffers")
        value |= (raw[at] & 0x7F) << shift
        at += 1
        if raw[at - 1] < 0x80:
            return value & ((1 << 64) - 1), at
        shift += 7


def fields(raw: bytes) -> Iterator[tuple[int, int | bytes | float]]:
    """Number and value of each field of a message; eight and four bytes as floating point.

    Raises
    ------
    ValueError : the bytes are no message.

    Examples
    --------
    >>> list(fields(whole(1, 7) + data(2, "abc")))
    [(1, 7), (2, b'abc')]
    """
    at = 0
    while at < len(raw):
        tag, at = read_varint(raw, at)
        kind = tag & 7
        value: int | bytes | float
        if kind == VARINT:
            value, at = read_varint(raw, at)
        elif kind == BYTES:
            size, at = read_varint(raw, at)
            value, at = _slice(raw, at, size)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            cut, at = _slice(raw, at, size)
            value = float(struct.unpack("<d" if size == 8 else "<f", cut)[0])
        else:
            raise ValueError("not protocol buffers")
        yield tag >> 3, value


def _slice(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(raw):
        raise ValueError("not protocol buffers")
    return raw[at : at + size], at + size


def unpacked(value: int | bytes | float) -> list[int]:
    """Whole numbers of a repeated field, packed or one of them."""
    if isinstance(value, int):
        return [value]
    if isinstance(value, float):
        raise ValueError("not protocol buffers")
    out, at = [], 0
    while at < len(value):
        number, at = read_varint(value, at)
        out.append(number)
    return out


def signed(value: int) -> int:
    """A 64-bit whole number with its sign."""
    return value - (1 << 64) if value >= 1 << 63 else value
