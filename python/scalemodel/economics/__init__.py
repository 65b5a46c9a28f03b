"""Energy, carbon, price, reliability and goodput of whole runs."""

from __future__ import annotations

from scalemodel.economics.buying import (
    ClusterComparison,
    break_even_usd_per_hour,
    compare_clusters,
)
from scalemodel.economics.caps import power_caps
from scalemodel.economics.carbon import embodied_kg
from scalemodel.economics.checkpoints import plan_checkpoints
from scalemodel.economics.data_loading import DataLoading, data_loading
from scalemodel.economics.failures import Reliability, reliability
from scalemodel.economics.plan import plan_training
from scalemodel.economics.recovery import RecoveryOption, Replan
from scalemodel.economics.replan import replan
from scalemodel.economics.run import OwnedPrice, TrainingRun, owned_price_usd_per_hour, training_run
from scalemodel.economics.spares import plan_spares
from scalemodel.economics.splits import ComputeOptimal, compute_optimal
from scalemodel.economics.stage_plan import StagePlan, StageRun
from scalemodel.economics.stages import Stage, plan_stages

__all__ = [
    "ClusterComparison",
    "ComputeOptimal",
    "DataLoading",
    "OwnedPrice",
    "RecoveryOption",
    "Reliability",
    "Replan",
    "Stage",
    "StagePlan",
    "StageRun",
    "TrainingRun",
    "break_even_usd_per_hour",
    "compare_clusters",
    "compute_optimal",
    "data_loading",
    "embodied_kg",
    "owned_price_usd_per_hour",
    "plan_checkpoints",
    "plan_spares",
    "plan_stages",
    "plan_training",
    "power_caps",
    "reliability",
    "replan",
    "training_run",
]
