"""Fail on words, paths, sizes and top-level names that have no place in the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST_FILE_BYTES = 1_000_000
TOP_LEVEL = {
    "CHANGELOG.md",
    "CMakeLists.txt",
    "LICENSE",
    "README.md",
    "cpp",
    "notebooks",
    "pyproject.toml",
    "python",
    "tests",
}
FORBIDDEN = {
    "unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
    "a path of one machine": re.compile(r"(?<![\w./~$}-])/(?:work|tmp|home|root|mnt)\b(?!-)"),
    "a path outside the repository": re.compile(r"\.\./shared"),
}
# Words of our own where the field has a noun, and what to say instead, in engine and package.
PRIVATE = {
    "GEMM": re.compile(r"\bmatrix products?\b", re.IGNORECASE),
    "lookup": re.compile(r"\blook(?:-|_)ups?\b", re.IGNORECASE),
    "shard, partition, replicate": re.compile(r"\bshare[sd]? out\b(?! of)", re.IGNORECASE),
    "version": re.compile(r"\beras?\b", re.IGNORECASE),
    "a noun": re.compile(r"\b(?:whoever|nobody|so many|so much|at hand)\b", re.IGNORECASE),
    "CdclSolver": re.compile(r"\bClauseSearch\b"),
    "closed loop": re.compile(r"\bKeptRunning\b"),
    "preempted, preemptions (evict stays for cache blocks)": re.compile(
        r"\b(?:evictions?|evicted (?:request|sequence)s?)\b", re.IGNORECASE
    ),
    "exposed": re.compile(r"\b(?:in|stays in) the open\b", re.IGNORECASE),
    "token embedding": re.compile(r"\btoken tables?\b", re.IGNORECASE),
    "slowdown": re.compile(r"\bslow-downs?\b", re.IGNORECASE),
    "saved for backward": re.compile(r"\bkept (?:for|from) (?:the )?(?:backward|forward)\b"),
    "prefill attention, decode attention": re.compile(r"\b(?:prompt|answer)_attention\b"),
    "chunked prefill": re.compile(r"\bcut prompts?\b", re.IGNORECASE),
    "CPU overhead": re.compile(r"\bhost (?:time|overhead|cost)\b", re.IGNORECASE),
    "overlappable": re.compile(r"\b(?:cover_left|uncovered|k\w*Cover)\b"),
    "unpaired": re.compile(r"\blone_passes\b"),
    "kMax...": re.compile(r"\bkMost[A-Z]\w*"),
    # Former keys of catalogue entries stand in quotes where they are still read.
    "max_..., chunked_prefill, mixed_batches": re.compile(
        r"(?<!\")\b(?:splits_prompts|mixes_phases|(?:least_group|most_(?:group|heads|splits))"
        r"|most_(?:admitted|prompts|sequences))\b"
    ),
}
PRIVATE_IN = ("cpp/", "python/")
# Bytes of a notebook's picture in letters: any word turns up in them.
PICTURE = re.compile(r'\s*"image/png": "[\w+/=\\]+",?$')
# This file spells the words out; the tests' configuration names the usual place of the corpora.
ALLOWED_IN = {
    "unfinished work": {".ci/check_words.py"},
    "a path of one machine": {".ci/check_words.py"},
    "a path outside the repository": {
        ".ci/check_words.py",
    },
}


def repository_files(root: Path) -> list[str]:
    """Tracked files and new ones that git would not ignore."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted({name for name in listing.split("\0") if name and (root / name).is_file()})


def problems(root: Path, names: list[str]) -> Iterator[str]:
    """One line per offence."""
    for name in names:
        top = name.split("/")[0]
        if top not in TOP_LEVEL and not top.startswith("."):
            yield f"{name}: {top} may not stand at the top of the repository"
        content = (root / name).read_bytes()
        if len(content) > LARGEST_FILE_BYTES:
            yield f"{name}: {len(content)} bytes, more than {LARGEST_FILE_BYTES}"
        if b"\0" in content:
            continue
        text = content.decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            if PICTURE.match(line):
                continue
            for what, pattern in FORBIDDEN.items():
                if name not in ALLOWED_IN[what] and (match := pattern.search(line)):
                    yield f"{name}:{number}: {what}: {match[0]}"
            for instead, pattern in PRIVATE.items() if name.startswith(PRIVATE_IN) else ():
                if match := pattern.search(line):
                    yield f"{name}:{number}: {match[0]}: say {instead}"


def main(root: Path) -> int:
    found = list(problems(root, repository_files(root)))
    print("\n".join(found) if found else "words: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])))
