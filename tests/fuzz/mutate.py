"""Mutation testing: does some test notice every changed operator of a source?

``python tests/fuzz/mutate.py FILE COUNT COMMAND...``: COUNT places of FILE, C++ or Python, are
changed one at a time; COMMAND builds and tests, and is expected to fail. Printed are those changes
that went unnoticed. The file is put back, whatever happens.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

#: What is changed into what: outside comments and texts, with blanks around, as formatters have it.
SWAPS = {
    **{" + ": " - ", " - ": " + ", " * ": " / ", " / ": " * "},
    **{" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "},
    **{" && ": " || ", " || ": " && ", " and ": " or ", " or ": " and "},
    **{"max(": "min(", "min(": "max("},
}
_PLACE = re.compile("|".join(re.escape(sign) for sign in sorted(SWAPS, key=len, reverse=True)))
_SILENT = re.compile(
    r'""".*?"""|//[^\n]*|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*|  # [^\n]*|^(?:from|import) [^\n]*',
    re.MULTILINE | re.DOTALL,
)
#: A change that never ends is noticed too.
_LONGEST_S = 1800


class Mutant(NamedTuple):
    """A changed place of a file."""

    line: int
    before: str
    after: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """Every change that can be made, one at a time.

    Examples
    --------
    >>> [mutant[:3] for mutant in mutants("a = b + c;  // d + e")]
    [(1, 'a = b + c;  // d + e', 'a = b - c;  // d + e')]
    """
    silent = [match.span() for match in _SILENT.finditer(source)]
    found = []
    for match in _PLACE.finditer(source):
        at = match.start()
        if any(begin <= at < end for begin, end in silent):
            continue
        line = source.count("\n", 0, at)
        changed = source[:at] + SWAPS[match[0]] + source[match.end() :]
        rows = source.split("\n")[line].strip(), changed.split("\n")[line].strip()
        found.append(Mutant(line + 1, *rows, changed))
    return found


def noticed(command: list[str]) -> bool:
    """Whether the command fails, as it should."""
    try:
        return subprocess.run(command, capture_output=True, timeout=_LONGEST_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main(arguments: list[str]) -> int:
    """Prints what went unnoticed; 1 where something did, 2 where the tests fail as it is."""
    path, count, command = Path(arguments[0]), int(arguments[1]), arguments[2:]
    if noticed(command):
        print(f"{' '.join(command)}: fails before anything was changed")
        return 2
    source = path.read_text(encoding="utf-8")
    chosen = mutants(source)
    random.Random(0).shuffle(chosen)
    chosen, missed = chosen[:count], 0
    try:
        for mutant in chosen:
            path.write_text(mutant.source, encoding="utf-8")
            if not noticed(command):
                missed += 1
                print(f"{path}:{mutant.line}: {mutant.before}  ->  {mutant.after}", flush=True)
    finally:
        path.write_text(source, encoding="utf-8")
    print(f"{path}: {len(chosen) - missed} of {len(chosen)} changes were noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
