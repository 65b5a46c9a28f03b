"""Scripts as a shell starts them, and the checks of frameworks that read them.

A framework rarely lives beside this package: ``SCALEMODEL_TOOLS_PYTHON`` names interpreters that
have some, separated as in ``PATH``. How many strategies a slow test draws, and with which seed, are
``SCALEMODEL_DRAWN`` and ``SCALEMODEL_SEED``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
#: Stands for the programs that start processes: keeps its words and the variables it was given.
_STARTER = """set -e
torchrun() { printf '%s\\0' "$@" > .words; env -0 > .variables; }
accelerate() { torchrun "$@"; }
"""
_SHELL = {"PATH": os.environ.get("PATH", ""), "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
#: What a shell sets by itself.
_OWN = ("PWD", "OLDPWD", "SHLVL", "_", *_SHELL)
#: Compute capability of an architecture of accelerators, as CUDA counts it.
_CAPABILITY = {"ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0), "blackwell": (10, 0)}


def drawn(usual: int) -> int:
    """How many strategies a test draws."""
    return int(os.environ.get("SCALEMODEL_DRAWN", usual))


def seed(usual: int) -> int:
    """The seed of what a test draws."""
    return int(os.environ.get("SCALEMODEL_SEED", usual))


@lru_cache
def _has(python: str, module: str) -> bool:
    found = subprocess.run(
        [python, "-c", f"import importlib.util as u; assert u.find_spec({module!r})"],
        check=False,
        capture_output=True,
        env=environment(),
    )
    return found.returncode == 0


def environment() -> dict[str, str]:
    """Variables of another interpreter, which looks nothing up in the network."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def interpreter_with(module: str) -> str:
    """An interpreter that has a module; the test is skipped where none has."""
    named = os.environ.get("SCALEMODEL_TOOLS_PYTHON", "").split(os.pathsep)
    for python in (sys.executable, *filter(None, named)):
        if _has(python, module):
            return python
    pytest.skip(f"{module} is not installed")


def answers(python: str, program: str, asked: list[Any]) -> list[Any]:
    """What a program of this folder answers, one line for each question."""
    run = subprocess.run(
        [python, "-W", "ignore", str(HERE / program)],
        check=False,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment(),
    )
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == len(asked), run.stderr[-3000:]
    return found


def job_of(script: str, folder: Path, cluster: Any) -> dict[str, Any]:
    """Words, variables and files of what a script starts, as a shell runs it."""
    folder.mkdir()
    run = subprocess.run(
        ["bash", "-c", _STARTER + script],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=_SHELL,
    )
    assert run.returncode == 0, run.stderr
    words, variables = (
        (folder / name).read_text(encoding="utf-8").split("\0")[:-1]
        for name in (".words", ".variables")
    )
    pairs = dict(line.split("=", 1) for line in variables)
    entry = cluster.table.get("accelerator", {})
    return {
        "words": words,
        "environment": {name: value for name, value in pairs.items() if name not in _OWN},
        "files": {
            path.name: path.read_text(encoding="utf-8")
            for path in folder.iterdir()
            if not path.name.startswith(".")
        },
        "world": cluster.accelerators,
        "device": str(entry.get("title", "")),
        "capability": _CAPABILITY.get(str(entry.get("architecture", "")), (9, 0)),
    }
