"""``scalemodel plan-stages``: the same numbers as Python, and what a file may get wrong."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm

FILE = """
model = "llama3_8b"
cluster = "dgx_h100"
price = 2.5
grid = "fra"

[[stages]]
name = "pretrain"
cluster = "dgx_h100:2"
task = { global_batch = 64, sequence = 8192 }
search = true
tokens = 1e12

[[stages]]
name = "sft"
kind = "fine_tuning"
task = { global_batch = 64, sequence = 8192 }
strategy = { tp = 2 }
samples = 1e6
price = 3.0

[[stages]]
name = "rl"
kind = "rl"
rollout = "dgx_h100:1"
task = { prompts = 16, generations = 16, prompt_tokens = 128, generated_tokens = 800, \
limit_tokens = 4096 }
strategy = { tp = 2, recompute = "full" }
layout = { tp = 1 }
steps = 100
"""


@pytest.fixture
def stages(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "stages.toml"
        path.write_text(text)
        return str(path)

    return write


def python_plan() -> sm.StagePlan:
    one = sm.cluster("dgx_h100")
    training: dict[str, Any] = {"global_batch": 64, "sequence": 8192}
    two = sm.cluster("dgx_h100", nodes=2)
    base = sm.search("llama3_8b", two, sm.Training(**training), top=1)[0]
    tuned = sm.estimate("llama3_8b", one, sm.FineTuning(**training), sm.Strategy(tp=2))
    task = sm.Rl(
        prompts=16, generations=16, prompt_tokens=128, generated_tokens=800, limit_tokens=4096
    )
    layout = sm.Strategy(tp=2, recompute="full")
    step = sm.estimate_rl("llama3_8b", one, task, layout, rollout=one)
    return sm.plan_stages(
        [
            sm.Stage("pretrain", base, tokens=1e12),
            sm.Stage("sft", tuned, samples=1e6, price=3.0),
            sm.Stage("rl", step, steps=100),
        ],
        price=2.5,
        grid="fra",
    )


def test_a_file_is_planned_as_in_python(run: Any, stages: Any) -> None:
    ran = run("plan-stages", stages(FILE), "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == json.loads(json.dumps(python_plan().to_dict()))


def test_words_and_columns(run: Any, stages: Any) -> None:
    ran = run("plan-stages", stages(FILE))
    assert ran.out == f"{python_plan()}\n"
    rows = list(csv.DictReader(io.StringIO(run("plan-stages", stages(FILE), "--csv").out)))
    assert [row["stage"] for row in rows] == ["pretrain", "sft", "rl", "total"]
    total = float(rows[3]["cost_usd"])
    assert total == pytest.approx(sum(float(row["cost_usd"]) for row in rows[:3]))


def test_a_plan_that_cannot_run(run: Any, stages: Any) -> None:
    ran = run(
        "plan-stages", stages(FILE.replace("llama3_8b", "llama3_405b").replace("search", "#"))
    )
    assert ran.code == 3
    assert "out_of_memory" in ran.out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('kind = "rl"', 'kind = "rlhf"', "stages[2].kind='rlhf'"),
        ("tokens = 1e12\n", "", "exactly one of tokens, samples, steps"),
        ("strategy = { tp = 2 }", "strategy = 2", "stages[1].strategy=2: must be a table"),
        ('"dgx_h100:2"', '"dgx_h100:two"', "stages[0].cluster=dgx_h100:two"),
        ('grid = "fra"', 'grit = "fra"', "grit: "),
        ("steps = 100", "steps = 100\nsearch = true", "stages[2].search=true"),
        ("steps = 100", "steps = 100\nstalness = 1", "stalness"),
        ('model = "llama3_8b"', "", "stages[0].model: missing"),
        ('name = "sft"', "", "name=''"),
        ("[[stages]]", "[[stage]]", "stages: missing"),
    ],
)
def test_mistakes_of_a_file_are_named(run: Any, stages: Any, old: str, new: str, said: str) -> None:
    ran = run("plan-stages", stages(FILE.replace(old, new)))
    assert ran.code == 2
    assert said in ran.err


def test_a_file_that_is_not_there(run: Any) -> None:
    ran = run("plan-stages", "nowhere.toml")
    assert ran.code == 2
    assert "nowhere.toml" in ran.err
