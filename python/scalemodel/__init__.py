"""scalemodel: predict, explain and optimise how large models train and run on GPU clusters.

The verbs by question, each with an example in its own help:

How long does a step take, does it fit, and where does the time go?
    `estimate`, `diagnose`, `compare`, `explore`, `estimate_mixed`, `outer_steps`
Which strategy is best, and why?
    `search`, `sweep`, `sweep_chunks`, `pareto`, `explain_choice`, `compare_schedules`,
    `plan_recompute`, `report`, `search_mixed`
How long does a step of post-training take, and what does it wait for?
    `estimate_rl`, `search_rl`; of preference tuning or distillation: `estimate_tuning`
Which cluster should be bought, and where do more accelerators stop paying?
    `codesign`, `scaling`, `compare_clusters`, `training_run`, `plan_training`, `plan_stages`,
    `power_caps`, `compute_optimal`
What do failures cost, where should checkpoints go, how many spares pay, and how does a job go on
after a loss? Does data come as fast as steps take it?
    `reliability`, `plan_checkpoints`, `plan_spares`, `replan`; `data_loading`
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
    `launch_tuning`, `read_tuning`, `write_kineto`, `write_chakra`, `read_chakra`, `from_torch`

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

import scalemodel.base.interrupts  # noqa: F401 - first: the others take a while
from scalemodel.base.lazy_names import load_at_first_use

#: Names that `__init__.pyi` lists: they bring pandas, matplotlib or much data along.
__all__ = load_at_first_use(__name__)
