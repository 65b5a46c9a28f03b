"""Files that others wrote: read whole up to a size, with one error for all that can go wrong."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from scalemodel.base.errors import ScaleModelError

_MIB: Final = 2**20
#: Configurations and catalogue entries: the largest known ones have less than 0.1 MiB; parsers need
#: up to a second and 50 times the memory for as many bytes.
LARGEST_DOCUMENT: Final = 2 * _MIB
#: Recordings, rankings and tables: as Python objects they take ten times as much memory.
LARGEST_RECORD: Final = 1024 * _MIB
#: Traces shrink to a twentieth, simulated ones, which repeat themselves, to a fiftieth. What
#: shrinks more holds no trace; small files may be anything.
_MOST_EXPANSION: Final = 200
_EXPANSION_FROM: Final = 16 * _MIB
_CHUNK: Final = _MIB
_GZIP: Final = b"\x1f\x8b"


def _unreadable(path: object, why: object, argument: str) -> ScaleModelError:
    named = f"{argument}{path}" if argument else f"{path}:"
    return ScaleModelError(f"{named} cannot be read ({why})", code="unreadable_file")


@contextmanager
def reading(path: str | os.PathLike[str], argument: str = "") -> Iterator[IO[bytes]]:
    """An open file; what the system says against it becomes a ScaleModelError.

    Parameters
    ----------
    path : path
    argument : str
        What stands before the path in the message.
    """
    try:
        with open(path, "rb") as file:
            yield file
    except ScaleModelError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _unreadable(path, f"broken gzip, not JSON: {error}", argument) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or error, argument) from None
    except ValueError as error:  # no path: it holds a null byte, or half of a surrogate pair
        raise _unreadable(repr(os.fspath(path)), error, argument) from None
    except MemoryError:
        raise _unreadable(path, "needs more memory than there is", argument) from None


def _parts(source: IO[bytes], path: object, limit: int, argument: str = "") -> Iterator[bytes]:
    """The contents part by part: room for `limit` bytes is taken only where they are there."""
    size = 0
    while part := source.read(_CHUNK):
        size += len(part)
        if size > limit:
            raise _unreadable(path, f"holds more than {limit // _MIB:,} MiB", argument)
        yield part


def read_bytes(
    path: str | os.PathLike[str], limit: int = LARGEST_DOCUMENT, argument: str = ""
) -> bytes:
    """The contents of a file of at most `limit` bytes."""
    with reading(path, argument) as file:
        return b"".join(_parts(file, path, limit, argument))


def read_text(
    path: str | os.PathLike[str], limit: int = LARGEST_DOCUMENT, argument: str = ""
) -> str:
    """The text of a file of at most `limit` bytes, which must be UTF-8."""
    try:
        return read_bytes(path, limit, argument).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"not UTF-8: {error}", argument) from None


def read_unpacked(path: str | os.PathLike[str], limit: int = LARGEST_RECORD) -> bytes:
    """The contents of a file that may be compressed with gzip, unpacked part by part.

    A few bytes can unpack to any number: reading ends where `limit` is reached, or where the parts
    so far are larger than a trace of this compressed size can be.
    """
    parts: list[bytes] = []
    size = 0
    with reading(path) as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        source = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
        for part in _parts(source, path, limit):
            parts.append(part)
            size += len(part)
            if packed and size > max(_EXPANSION_FROM, _MOST_EXPANSION * file.tell()):
                why = f"unpacks to more than {_MOST_EXPANSION} times its size: no trace"
                raise _unreadable(path, why, "")
    return b"".join(parts)


# -------------------------------------------------------------------------------------------- JSON
def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ; parsers keep the last of equal ones and say nothing."""
    table = dict(pairs)
    if len(table) < len(pairs):
        doubled = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ScaleModelError(f"{doubled}: stands there twice; must be given once")
    return table


def parse_json(text: str | bytes, where: object, *, unique: bool = True) -> Any:
    """What a JSON text holds; a key that an object has twice is refused.

    Examples
    --------
    >>> parse_json('{"layers": 2, "layers": 4}', "config.json")
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: config.json: layers: stands there twice...
    """
    try:
        return json.loads(text, object_pairs_hook=_once if unique else None)
    except ScaleModelError as error:
        raise ScaleModelError(f"{where}: {error}", code=error.code) from None
    except RecursionError:
        why = "nested too deeply"
    except MemoryError:
        why = "needs more memory than there is"
    except ValueError as error:
        why = f"not JSON ({error})"
    raise ScaleModelError(f"{where}: {why}", code="unreadable_file")


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object that a JSON file holds."""
    read = parse_json(read_text(path), Path(path))
    if not isinstance(read, dict):
        raise ScaleModelError(f"{path}: must hold a JSON object, not {type(read).__name__}")
    return read
