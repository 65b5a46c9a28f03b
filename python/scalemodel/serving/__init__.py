"""Serving: what an inference engine delivers on a cluster, in closed form and by request."""

from __future__ import annotations

from scalemodel._core import (
    Autoscaler,
    CacheTier,
    Failures,
    Outage,
    RouterPolicy,
    SchedulerLimits,
    Shedding,
)
from scalemodel.serving.basis import coverage
from scalemodel.serving.batches import BatchServing, serve_batches
from scalemodel.serving.comparison import ServingComparison, compare_serving
from scalemodel.serving.encoders import EncoderPool, serve_encoders
from scalemodel.serving.expert_pools import plan_expert_pools, pool_layouts
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_plan import FleetPlan, plan_fleet
from scalemodel.serving.fleet_pools import ServedPools, simulate_pools
from scalemodel.serving.fleet_study import study_fleets
from scalemodel.serving.generation import Generation, GenerationServing, serve_generation
from scalemodel.serving.launch import launch_command, launch_options
from scalemodel.serving.plans import ServingPlans
from scalemodel.serving.rates import rate_table
from scalemodel.serving.schedule import (
    PrefixHits,
    PromptRequest,
    StepSchedule,
    prefix_hits,
    replay_schedule,
)
from scalemodel.serving.search import plan_serving, plan_split, serving_layouts
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.served_fleet import ServedFleet
from scalemodel.serving.split import SplitServing, serve_split
from scalemodel.serving.stream import RequestStream, ServedStream, request_stream
from scalemodel.serving.task import Inference
from scalemodel.serving.tiers import cache_tiers, startup_s, tier_table
from scalemodel.serving.what_if import what_if_fleet, what_if_plan

__all__ = [
    "Autoscaler",
    "BatchServing",
    "CacheTier",
    "EncoderPool",
    "Failures",
    "FleetPlan",
    "Generation",
    "GenerationServing",
    "Inference",
    "Outage",
    "PrefixHits",
    "PromptRequest",
    "RequestStream",
    "RouterPolicy",
    "SchedulerLimits",
    "ServedFleet",
    "ServedPools",
    "ServedStream",
    "Serving",
    "ServingComparison",
    "ServingPlans",
    "Shedding",
    "SplitServing",
    "StepSchedule",
    "cache_tiers",
    "compare_serving",
    "coverage",
    "launch_command",
    "launch_options",
    "plan_expert_pools",
    "plan_fleet",
    "plan_serving",
    "plan_split",
    "pool_layouts",
    "prefix_hits",
    "rate_table",
    "replay_schedule",
    "request_stream",
    "serve",
    "serve_batches",
    "serve_encoders",
    "serve_generation",
    "serve_split",
    "serving_layouts",
    "simulate_fleet",
    "simulate_pools",
    "startup_s",
    "study_fleets",
    "tier_table",
    "what_if_fleet",
    "what_if_plan",
]
