"""A short run of the fuzzers; the long ones are those of long.sh."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from fuzz import hostile, importers

CORPUS = Path(__file__).parent / "corpus/importers"


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_recorded_inputs_give_an_answer_or_a_reason(path: Path) -> None:
    importers.one_input(path.read_bytes())


@pytest.mark.parametrize("seed", range(4))
def test_random_inputs_give_an_answer_or_a_reason(seed: int) -> None:
    draw = importers.random_inputs(random.Random(seed).randrange(2**32))
    answers = [importers.one_input(draw()) for _ in range(400)]
    assert any(answers)  # documents are broken here and there, not everywhere
    assert not all(answers)


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda: sm.read_settings("deepspeed", "a\0b"), "deepspeed: .* cannot be read"),
        (lambda: sm.compare_log("a\0b", None), "log=.* cannot be read"),
        (lambda: sm.read_chakra("a\0b"), "cannot be read"),
        (lambda: sm.cluster("a\0b.toml"), "null byte"),
        (lambda: sm.cluster({"name": "x", "accelerator": "h100_sxm_80", 3: 4}), "unknown key"),
        (lambda: sm.Mlp(widths=True), "mlp: widths=True: must be whole numbers"),
        (lambda: sm.Mlp(widths=(8, 8), after=3), "after=3: must be names of groups"),
        (lambda: sm.Transformer(tokens=1e308), "tokens=1e.308: must be from 0 to 1e9"),
        (lambda: sm.compose({"name": "x", "group": [{"kind": []}]}), "known: embedding_tables"),
    ],
)
def test_what_fuzzing_found_is_refused_by_name(ask: Any, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        ask()


@pytest.mark.parametrize(
    "table, key",
    [
        ("attention", "flash3_forward"),
        ("elementwise", "norm_fraction"),
        ("gemm", "memory_fraction"),
    ],
)
def test_a_kernel_that_reaches_nothing_is_refused(table: str, key: str) -> None:
    """Its time would be no number."""
    from scalemodel import catalog

    entry = catalog.load("accelerators", "h100_sxm_80")
    changed = {**entry, table: {**entry[table], key: 0}}
    cluster = {**catalog.load("clusters", "dgx_h100"), "accelerator": changed}
    with pytest.raises(sm.ScaleModelError, match=rf"{table}\.{key}=0.*must be above 0"):
        sm.cluster(cluster)


@pytest.mark.parametrize("peak", [1e-300, 989.0, "1 FLOP/s"])
def test_a_peak_in_the_wrong_unit_is_refused(peak: object) -> None:
    from scalemodel import catalog

    entry = catalog.load("accelerators", "h100_sxm_80")
    changed = {**entry, "compute": {**entry["compute"], "bf16": peak}}
    cluster = {**catalog.load("clusters", "dgx_h100"), "accelerator": changed}
    with pytest.raises(sm.ScaleModelError, match=r"compute\.bf16=.*at least 1e\+06"):
        sm.cluster(cluster)


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    est = sm.estimate("llama3_8b", "dgx_h100", importers.TASK, sm.Strategy(tp=2))
    (file,) = sm.write_kineto(est.timeline(), tmp_path)
    raw = bytearray(file.read_bytes())
    raw[40:60] = bytes(20)
    file.write_bytes(raw)
    with pytest.raises(sm.ScaleModelError, match="not JSON"):
        sm.read_kineto(file)


@pytest.mark.parametrize("kind", sorted(hostile.KINDS))
def test_hostile_files_give_an_answer_or_a_reason_soon(kind: str) -> None:
    """In a process of its own, whose memory is bounded; hostile.py alone runs more of them."""
    command = [sys.executable, hostile.__file__, "-files=12", kind]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_what_runs_hangs_or_escapes_is_a_failure(tmp_path: Path) -> None:
    faults = {
        "runs": "os.system('true')",
        "escapes": "{}['x']",
        "slow": "sum(range(10**9))",
        "large": "bytearray(10**9)",
    }
    for fault, code in faults.items():
        lines = [
            "import os; from fuzz import hostile",
            f"read = lambda path: {code} if path.read_bytes() != b'a' else None",
            "hostile.KINDS['x'] = hostile.Kind(lambda: (b'a',), read)",
            "assert hostile.run('x', 3).failures",
        ]
        ran = subprocess.run(
            [sys.executable, "-c", "\n".join(lines)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            check=False,
        )
        assert ran.returncode == 0, fault
