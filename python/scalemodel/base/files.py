"""Files that are written whole or not at all, by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scalemodel.base.errors import ScaleModelError


def unwritable(path: str | os.PathLike[str], error: OSError) -> ScaleModelError:
    """What is said of a file that cannot be written."""
    reason = error.strerror or error
    return ScaleModelError(
        f"out={os.fspath(path)!r}: cannot be written ({reason})", "unwritable_file"
    )


def _lock(handle: int) -> bool:
    """Whether no other process holds the file; the lock ends with the process."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: there the last complete file wins
        pass
    return True


def _opened(draft: Path, path: str | os.PathLike[str]) -> int:
    """Descriptor of a draft that no other process writes."""
    while True:
        handle = os.open(draft, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(handle):
            os.close(handle)
            raise ScaleModelError(
                f"out={os.fspath(path)!r}: another process is writing it", "busy_file"
            )
        # Its last writer may have renamed or removed it between the opening and the lock.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), draft.stat()):
                return handle
        os.close(handle)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes what is there already: all of it under its name, or nothing.

    For short files of one writer; `replacing` is for those that take long. Text is UTF-8. Symbolic
    links are followed; devices and pipes are written at once.

    Raises
    ------
    OSError : the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(folder + "/a.txt", "whole")
    ...     os.listdir(folder), Path(folder, "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    target = Path(os.path.realpath(path))
    data = content.encode() if isinstance(content, str) else content
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.incomplete")
    try:
        draft.write_bytes(data)
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


@contextmanager
def replacing(path: str | os.PathLike[str], *, keep: bool = False) -> Iterator[Path]:
    """A draft to write to that becomes `path` at the end: what is cut short leaves no file.

    The draft is empty or what a killed process left of it. Symbolic links are followed; devices and
    pipes, which cannot be replaced, are written at once.

    Parameters
    ----------
    path : path
    keep : bool
        Leave the draft where it is cut short, to be continued.

    Raises
    ------
    ScaleModelError : the file cannot be written, or another process is writing it.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            yield target
            return
        draft = target.with_name(f".{target.name}.incomplete")
        handle = _opened(draft, path)
        try:
            yield draft
            draft.replace(target)
        except BaseException:
            if not keep:
                with suppress(OSError):
                    draft.unlink()
            raise
        finally:
            os.close(handle)
    except OSError as error:
        raise unwritable(path, error) from None
