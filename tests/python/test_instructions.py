"""Instructions of one evaluation: what a search costs, whoever else uses the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

#: Of one strategy of GPT-3 175B on 1,024 accelerators, its share of the cost tables included;
#: g++ 12 needs 4,680. At four instructions per cycle of a 3 GHz core: 0.4 us.
MOST_INSTRUCTIONS = 4_800
ROWS = 200_000

SEARCH = """
import sys
import scalemodel as sm
from scalemodel.search import Question
model, cluster = sm.model("gpt3_175b"), sm.cluster("dgx_a100", nodes=128)
task = sm.Training(global_batch=1536, sequence=2048, batch_is_limit=True)
space = sm.Space.calculon(model, cluster, task)
question = Question(model, cluster, task, space, prune=False)
middle = question.size // 2
found = question.run_search(middle, middle + int(sys.argv[1]), 1)
assert found.evaluated == int(sys.argv[1])
"""


def instructions(rows: int, valgrind: str) -> int:
    """Instructions of a process that evaluates so many rows."""
    tool = ["--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}"]
    done = subprocess.run(
        [valgrind, *tool, sys.executable, "-c", SEARCH, str(rows)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    counted = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert counted, done.stderr
    return int(counted[1].replace(",", ""))


@pytest.mark.slow
def test_an_evaluation_takes_few_instructions() -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind not present")
    start, end = instructions(0, valgrind), instructions(ROWS, valgrind)
    each = (end - start) / ROWS
    assert 0 < each < MOST_INSTRUCTIONS
