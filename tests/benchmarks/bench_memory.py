"""What sweeps and searches hold; run with ``pytest -s tests/benchmarks/bench_memory.py``.

Each runs in a process of its own, whose peak the system tells. Goals are written beside what was
measured (``extra_info``) and not asserted: what is asserted is that all rows were there. The
largest takes a quarter of an hour of one core and 2 GB of disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark")

MB = 1e6
QUESTION = (
    *("llama3_405b", "--cluster", "dgx_h100", "--nodes", "2048"),
    *("--global-batch", "2048", "--sequence", "8192"),
)
KNOBS = (
    *("--micro-batch", "1", "2", "4", "8", "16", "32", "--pp", "1", "2", "4", "8", "16"),
    *("32", "64", "128", "--overlap-tp", "off", "ring", "pipelined", "--schedule", "1f1b"),
    *("interleaved", "zero_bubble", "gpipe", "dualpipe"),
    *(
        part
        for knob in ("offload-weights", "offload-activations", "split-p2p", "overlap-grad-reduce")
        for part in (f"--{knob}", "on", "off")
    ),
    *("--overlap-param-gather", "on", "off"),
)
REDUNDANT = (
    *("--redundant", "overlap_tp", "split_p2p", "offload_activations", "overlap_grad_reduce"),
    *("overlap_param_gather", "regather", "sequence_parallel", "offload_weights"),
    *("--vpp", "1", "2", "3", "4", "6", "7", "9", "14", "18", "21", "42", "63"),
    *("--recompute-layers", "0", "1", "2", "3", "4", "6", "8"),
)


def run(*arguments: str) -> tuple[str, float, float]:
    """What a command of the package writes, its peak of memory in MB and its processor time."""
    command = [sys.executable, "-m", "scalemodel", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, text
    return text, 1024 * usage.ru_maxrss / MB, usage.ru_utime + usage.ru_stime


#: Spaces of more than 10^9 strategies: of many layouts, and of many options of each.
LARGE = {
    "layouts": ("deepseek_v3", *QUESTION[1:], *KNOBS),
    "options": (*QUESTION, *KNOBS, *REDUNDANT),
}


def rows_of(*arguments: str) -> int:
    return int(run("sweep", *arguments, "--count")[0])


@pytest.mark.parametrize("shards", [100, 10, 1])
def test_a_sweep_to_parquet(benchmark: Any, tmp_path: Path, shards: int) -> None:
    """Goal: 400 MB for 10^8 rows of all columns, and as much for a tenth and a hundredth."""
    parquet = pytest.importorskip("pyarrow.parquet")
    file, shard = tmp_path / "rows.parquet", ("--shard", f"1/{shards}")
    found: list[tuple[str, float, float]] = []

    def sweep() -> None:
        found.append(
            run("sweep", *QUESTION, *KNOBS, *shard, "--threads", "1", "--out", str(file), "--json")
        )

    benchmark.pedantic(sweep, rounds=1)
    rows = parquet.read_metadata(file).num_rows
    _, peak_mb, processor_s = found[0]
    benchmark.extra_info.update(
        goal_mb=400, peak_mb=round(peak_mb), rows=rows, processor_s=round(processor_s, 1)
    )
    print(f"{rows:,} rows to Parquet: {peak_mb:.0f} MB, {processor_s:.0f} s of processor time")
    every = rows_of(*QUESTION, *KNOBS)
    assert rows == every if shards == 1 else 0.5 < rows * shards / every < 1.5


@pytest.mark.parametrize("space", LARGE)
def test_a_search_of_a_thousand_million(benchmark: Any, space: str) -> None:
    """Goal: 200 MB."""
    rows = rows_of(*LARGE[space])
    assert rows > 10**9
    found: list[tuple[str, float, float]] = []

    def search() -> None:
        found.append(run("search", *LARGE[space], "--threads", "1", "--json"))

    benchmark.pedantic(search, rounds=1)
    text, peak_mb, processor_s = found[0]
    benchmark.extra_info.update(
        goal_mb=200, peak_mb=round(peak_mb), rows=rows, processor_s=round(processor_s, 1)
    )
    print(f"search of {rows:,} ({space}): {peak_mb:.0f} MB, {processor_s:.1f} s of processor time")
    assert json.loads(text)
