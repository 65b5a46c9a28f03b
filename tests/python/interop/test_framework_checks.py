"""What searches offer for a framework is taken by the framework's own argument checks.

The strategies are drawn at random over models, clusters, lengths, formats, schedules and parts of
the space; each is written as a script, a shell starts it, and the framework's parser and
configuration classes read what it is given. See `frameworks.tools` for where the frameworks are
looked for.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import scalemodel as sm
from frameworks import draws, tools

#: Module that must be there, and the program that asks it.
CHECKS = {
    "megatron": ("megatron.training", "megatron_check.py"),
    "megatron_bridge": ("megatron.bridge", "megatron_bridge_check.py"),
    "nemo": ("nemo.lightning", "nemo_check.py"),
    "torchtitan": ("torchtitan.config.configs", "torchtitan_check.py"),
    "torchtitan 0.2": ("torchtitan.config.job_config", "torchtitan_check.py"),
    "deepspeed": ("deepspeed", "deepspeed_check.py"),
    "accelerate": ("accelerate", "accelerate_check.py"),
}
#: Strategies that a slow test draws: fewer where each command takes the framework's parser long.
DRAWN = {
    **{"megatron": 1000, "megatron_bridge": 1000, "nemo": 1000},
    **{"torchtitan": 350, "torchtitan 0.2": 350},
    **{"deepspeed": 1000, "accelerate": 1000},
}


def refused(framework: str, count: int, seed: int, folder: Path) -> list[str]:
    """What a framework refuses of strategies that searches offer for it."""
    module, program = CHECKS[framework]
    framework = framework.split()[0]
    python = tools.interpreter_with(module)
    asked, told = [], []
    for number, est in enumerate(draws.offered(framework, count, seed)):
        launched = sm.launch(est, framework)
        assert not any("refuses" in note for note in launched.notes)
        asked.append(tools.job_of(launched.script(), folder / str(number), est.cluster))
        told.append(f"{est.model.name}, {est.cluster!r}, {est.task!r}, {est.strategy!r}")
    said = tools.answers(python, program, asked)
    return [f"{what}\n  {answer}" for what, answer in zip(told, said, strict=True) if answer]


@pytest.mark.parametrize("framework", CHECKS)
def test_a_framework_takes_a_few_strategies(framework: str, tmp_path: Path) -> None:
    assert refused(framework, 8, 3, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("framework", CHECKS)
def test_a_framework_takes_every_strategy_that_is_offered(framework: str, tmp_path: Path) -> None:
    assert refused(framework, tools.drawn(DRAWN[framework]), tools.seed(7), tmp_path) == []


@pytest.mark.parametrize("program", ["torchtitan_check.py", "deepspeed_check.py"])
def test_a_program_answers_every_job(program: str) -> None:
    """With the framework or without it: a job that says nothing is refused in words."""
    said = tools.answers(sys.executable, program, [{}, {}])
    assert len(said) == 2
    assert all("Error: " in words for words in said)


@pytest.mark.repeats
@pytest.mark.parametrize("framework", CHECKS)
def test_draws_are_of_every_kind_and_the_same_each_time(framework: str) -> None:
    """Without any framework: what a seed gives, gives again."""
    name = framework.split()[0]
    first, again = (list(draws.offered(name, 12, 5, each=3)) for _ in range(2))
    assert [est.strategy for est in first] == [est.strategy for est in again]
    assert len({est.model.name for est in first}) >= 3
    assert len({est.strategy for est in first}) >= 6
