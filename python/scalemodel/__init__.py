"""scalemodel: predict, explain and optimise how large models train and run on GPU clusters.

The verbs by question, each with an example in its own help:

How long does a step take, does it fit, and where does the time go?
    `estimate`, `diagnose`, `compare`, `explore`, `estimate_mixed`, `outer_steps`
Which strategy is best, and why?
    `search`, `sweep`, `sweep_chunks`, `pareto`, `explain_choice`, `plan_recompute`, `report`,
    `search_mixed`
How long does a step of reinforcement learning take, and what does it wait for?
    `estimate_rl`, `search_rl`
Which cluster should be bought, and where do more accelerators stop paying?
    `codesign`, `scaling`, `compare_clusters`, `training_run`, `plan_training`, `reliability`,
    `power_caps`, `compute_optimal`
What does the network do, and how should its flows be routed?
    `traffic`, `route`, `simulate_network`, `plan_paths`, `time_shifts`, `pack_trees`,
    `design_topology`
What does a serving instance deliver, and how many accelerators does a load need?
    `serve`, `plan_serving`, `serve_split`, `plan_split`, `plan_expert_pools`, `serve_encoders`,
    `compare_serving`, `request_stream`, `replay_schedule`, `prefix_hits`, `simulate_fleet`,
    `simulate_pools`, `plan_fleet`, `read_trace`, `fit_traffic`, `cache_tiers`, `tier_table`,
    `startup_s`, `what_if_fleet`, `what_if_plan`, `study_fleets`
How wrong is all this?
    `validate`, `Estimate.interval`, `coverage`
Does a job run as fast as it should?
    `compare_log`, `project`, `compare_bench`, `read_bench`, `StepTimeMonitor`, `read_kineto`,
    `calibrate`, `calibrate_spread`
How does a strategy reach another tool, and how does a model come from one?
    `launch`, `read_settings`, `launch_serving`, `read_serving`, `launch_rl`, `read_rl`,
    `write_kineto`, `write_chakra`, `read_chakra`, `from_torch`

A question has four parts: a `model` (or `compose`), a `cluster` (or `mixed_cluster`), a task
(`Training`, `FineTuning`, `Inference`, `Generation`), and a `Strategy`, `GroupStrategy` or
`ServingLayout`.
`list_catalog` lists the names that the catalogue knows, and `plot` draws the answers.

>>> import scalemodel as sm
>>> cluster = sm.cluster("dgx_h100", nodes=64)
>>> task = sm.Training(global_batch=1024, sequence=8192, precision="bf16")
>>> est = sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=4, cp=2, pp=4, vpp=5))
>>> est.verdict
'ok'
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import scalemodel.base.interrupts  # noqa: F401 - first: the others take a while

#: Module of every name, as `__init__.pyi` lists them: loaded at first use, because they
#: bring pandas, matplotlib or much data along.
_MODULES = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULES)


def _is_package(name: str) -> bool:
    """Whether a name stands for a package; one of a verb can be called and holds its companions."""
    return _MODULES[name] in (__name__, f"{__name__}.{name}")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'scalemodel' has no attribute {name!r}")
    if _is_package(name):
        return importlib.import_module(f"{__name__}.{name}")
    globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__


class _Face(ModuleType):
    """Python puts a package that is imported where it finds its name: not in place of a verb."""

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, ModuleType) or name not in _MODULES or _is_package(name):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
