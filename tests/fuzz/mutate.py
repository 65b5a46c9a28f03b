"""Mutation testing of a C++ source: does some test notice every changed operator or constant?

``python tests/fuzz/mutate.py BUILD FILE [COUNT [SEED]]``: BUILD is a build directory with
``SCALEMODEL_TESTS=ON``. COUNT places of FILE are changed one at a time, the tests rebuilt and run;
printed are those changes that no test noticed. The file is put back, whatever happens.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: What is changed into what: outside comments and texts, with blanks around, as the format has it.
SWAPS = {
    **{" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "},
    **{" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "},
    **{" && ": " || ", " || ": " && ", "std::max(": "std::min(", "std::min(": "std::max("},
}
_PLACE = re.compile("|".join(re.escape(sign) for sign in sorted(SWAPS, key=len, reverse=True)))
_SILENT = re.compile(r'//.*|"(?:\\.|[^"\\])*"|^\s*#.*', re.MULTILINE)


class Mutant(NamedTuple):
    """A changed place of a file."""

    line: int
    text: str
    changed: str


def mutants(source: str) -> list[Mutant]:
    """Every change that can be made, one at a time.

    Examples
    --------
    >>> mutants("a = b + c;  // d + e")
    [Mutant(line=1, text='a = b + c;  // d + e', changed='a = b - c;  // d + e')]
    """
    silent = [match.span() for match in _SILENT.finditer(source)]
    found = []
    for match in _PLACE.finditer(source):
        at = match.start()
        if any(begin <= at < end for begin, end in silent):
            continue
        line = source.count("\n", 0, at)
        changed = source[:at] + SWAPS[match[0]] + source[match.end() :]
        rows = source.split("\n")[line], changed.split("\n")[line]
        found.append(Mutant(line + 1, rows[0].strip(), rows[1].strip()))
    return found


def noticed(build: Path) -> bool:
    """Whether the changed source fails to compile, or some test."""
    made = subprocess.run(
        ["cmake", "--build", str(build), "--target", "scalemodel_tests"], capture_output=True
    )
    if made.returncode:
        return True
    try:
        ran = subprocess.run([build / "scalemodel_tests"], capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return True
    return ran.returncode != 0


def main(arguments: list[str]) -> int:
    """Prints what survived; 1 where something did."""
    build, path = Path(arguments[0]), Path(arguments[1])
    count = int(arguments[2]) if len(arguments) > 2 else 20
    source = path.read_text(encoding="utf-8")
    found = mutants(source)
    random.Random(int(arguments[3]) if len(arguments) > 3 else 0).shuffle(found)
    chosen, survived = found[:count], 0
    try:
        for mutant in chosen:
            rows = source.split("\n")
            rows[mutant.line - 1] = rows[mutant.line - 1].replace(mutant.text, mutant.changed)
            path.write_text("\n".join(rows), encoding="utf-8")
            if not noticed(build):
                survived += 1
                print(f"{path}:{mutant.line}: {mutant.text}  ->  {mutant.changed}", flush=True)
    finally:
        path.write_text(source, encoding="utf-8")
    print(f"{path}: {len(chosen) - survived} of {len(chosen)} changes were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
