"""Instructions of one evaluation: what a search costs, whoever else uses the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Of one strategy of GPT-3 175B on 1,024 accelerators, its share of the cost tables included, once
#: the critical paths of the pipelines are known; more than half of them are too large, and a search
#: asks no more of these. g++ 12 needs 867 where the processor has AVX2.
MOST_INSTRUCTIONS = 940
ROWS = 200_000

#: Before each script. A child that ends at once tells the instructions up to there: what is counted
#: is the difference of two, and the start of Python, most of the time, is paid once per script.
COUNTED = """
import os
def count_instructions():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
"""

#: Of finding the critical paths of all these strategies' pipelines, once per process; g++ 12 needs
#: 194 million. A search with bounds looks for those of few of them.
MOST_INSTRUCTIONS_OF_PATHS = 230_000_000

SEARCH = """
import scalemodel as sm
from scalemodel.estimator.evaluation import tables_by
from scalemodel.search.ranking import Question
model, cluster = sm.model("gpt3_175b"), sm.cluster("dgx_a100", nodes=128)
task = sm.Training(global_batch=1536, sequence=2048, batch_is_limit=True)
space = sm.Space.calculon(model, cluster, task)
question = Question(model, cluster, task, space, prune=False)
middle = question.size // 2
for rows in (0, ROWS, ROWS):
    tables_by.cache_clear()  # each search fills tables of its own
    found = question.run_search(middle, middle + rows, 1)
    assert found.evaluated == rows
    count_instructions()
""".replace("ROWS", str(ROWS))

#: Of a search with bounds of all 11.7 million of these strategies, its cost tables included, once
#: the critical paths of those that are looked at are known; g++ 12 needs 286 million.
MOST_INSTRUCTIONS_OF_BOUNDS = 320_000_000

BOUNDED_SEARCH = """
import scalemodel as sm
from scalemodel.estimator.evaluation import tables_by
from scalemodel.search.ranking import Question
model, cluster = sm.model("gpt3_175b"), sm.cluster("dgx_a100", nodes=128)
task = sm.Training(global_batch=1536, sequence=2048, batch_is_limit=True)
space = sm.Space.calculon(model, cluster, task)
question = Question(model, cluster, task, space, objective=(("tokens_per_s", 1.0),))
for _ in range(2):
    tables_by.cache_clear()  # each search fills tables of its own
    found = question.run_search(0, question.size, 1)
    assert found.evaluated + found.pruned == 11_698_528
    count_instructions()
"""

#: Of one strategy of a click model like DLRM-A on 128 accelerators, every layer group with a mesh
#: of its own, in the order of a search; g++ 12 needs 1,740.
MOST_INSTRUCTIONS_OF_GROUPS = 1_900
#: A space of 49,152 strategies, so many times.
GROUP_ROWS, TIMES = 49_152, 2

GROUP_SEARCH = """
import scalemodel as sm
layers = (3994,) * 11
model = sm.compose("click_model", groups=[
    sm.EmbeddingTables(name="embedding", tables=4096, rows=2_080_000, dim=94, pooling=15),
    sm.Mlp(name="bottom_mlp", widths=layers, after=()),
    sm.Interaction(name="interaction", how="concat", features=42, dim=95,
                   after=("embedding", "bottom_mlp")),
    sm.Mlp(name="top_mlp", widths=layers),
])
cluster = sm.cluster("zionex", nodes=16)
task = sm.Training(global_batch=65536, sequence=1, precision="tf32")
tables = ["table_wise", "row_wise", "column_wise", "hybrid", "table_wise@8+ddp",
          "row_wise@8+table_wise", "ddp@8+table_wise", "table_wise@8+row_wise"]
layers = ["ddp", "fsdp", "tp", "zero1", "tp@8+ddp", "fsdp@8+ddp", "ddp@8+fsdp", "tp@8+fsdp"]
space = sm.GroupSpace(
    {"embedding": tables, "bottom_mlp": layers, "interaction": layers, "top_mlp": layers},
    queues=("one", "per_level"), prefetch=("none", "one", "unlimited"),
    backward_gather=("before", "behind"),
)
for _ in range(1 + TIMES):
    found = sm.search(model, cluster, task, space, top=1, threads=1)
    assert found.size == 49_152
    count_instructions()
""".replace("TIMES", str(TIMES))

#: Of a steady state at one of many rates of arrival, eight of them side by side, its row in the
#: table included; g++ 12 needs 3,200.
MOST_INSTRUCTIONS_OF_A_RATE = 3_600
RATES = 20_000

AT_RATES = """
import numpy as np
import scalemodel as sm
task = sm.Inference(input_tokens=1000, output_tokens=200)
plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1, concurrency=100)
most = sm.serve("llama3_8b", "dgx_h100", task, replicas=1, requests_per_s=1e4).requests_per_s
for _ in range(2):
    plan.at_rates(np.linspace(0.1, 0.9, RATES) * most)
    count_instructions()
""".replace("RATES", str(RATES))

#: Of a turn of the explorer's settings, its HTML included; Python 3.11 needs 6.2 million: two to
#: three milliseconds, where a hand notices fifty.
MOST_INSTRUCTIONS_OF_A_TURN = 7_000_000
TURNS = 132  # each setting through all of its values

EXPLORER = """
import itertools
import scalemodel as sm
cluster = sm.cluster("dgx_h100", nodes=16)
explorer = sm.explore("deepseek_v3", cluster, sm.Training(global_batch=256, sequence=8192))
explorer.pin()
explorer.listen(explorer.html)
menus = ("model", "accelerator", "stack")
turns = [
    (name, value)
    for name, setting in explorer.settings.items()
    if name not in menus
    for value in (*setting.values, explorer.values[name])
]
turned = itertools.cycle(turns)
for _ in range(2):
    for name, value in itertools.islice(turned, TURNS):
        explorer.set(**{name: value})
    count_instructions()
""".replace("TURNS", str(TURNS))


def instructions(script: str, valgrind: str) -> list[int]:
    """Instructions of a script up to each place where it counts them."""
    tool = ["--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={os.devnull}"]
    done = subprocess.run(
        [valgrind, *tool, sys.executable, "-c", COUNTED + script],
        check=True,
        capture_output=True,
        text=True,
        # Idle threads of NumPy's BLAS spin, for as many instructions as they please.
        env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    )
    counted = re.findall(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert counted, done.stderr
    return [int(count.replace(",", "")) for count in counted[:-1]]  # the last is of the end


@pytest.fixture(scope="module")
def valgrind() -> str:
    found = shutil.which("valgrind")
    if found is None:
        pytest.skip("valgrind not present")
    return found


@pytest.mark.slow
def test_an_evaluation_takes_few_instructions(valgrind: str) -> None:
    start, first, twice = instructions(SEARCH, valgrind)
    assert 0 < (twice - first) / ROWS < MOST_INSTRUCTIONS
    assert 0 < (first - start) - (twice - first) < MOST_INSTRUCTIONS_OF_PATHS


@pytest.mark.slow
def test_bounds_take_few_instructions(valgrind: str) -> None:
    once, twice = instructions(BOUNDED_SEARCH, valgrind)
    assert 0 < twice - once < MOST_INSTRUCTIONS_OF_BOUNDS


@pytest.mark.slow
def test_an_evaluation_of_layer_groups_takes_few_instructions(valgrind: str) -> None:
    start, *_, end = instructions(GROUP_SEARCH, valgrind)
    each = (end - start) / (TIMES * GROUP_ROWS)
    assert 0 < each < MOST_INSTRUCTIONS_OF_GROUPS


@pytest.mark.slow
def test_a_rate_of_many_takes_few_instructions(valgrind: str) -> None:
    if " avx2 " not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the processor solves one rate at a time")
    once, twice = instructions(AT_RATES, valgrind)
    assert 0 < (twice - once) / RATES < MOST_INSTRUCTIONS_OF_A_RATE


@pytest.mark.slow
def test_a_turn_of_the_explorer_takes_few_instructions(valgrind: str) -> None:
    once, twice = instructions(EXPLORER, valgrind)
    assert 0 < (twice - once) / TURNS < MOST_INSTRUCTIONS_OF_A_TURN
