"""Post-training: a step of reinforcement learning, of preference tuning, of distillation."""

from __future__ import annotations

from scalemodel.post_training.answer import RlEstimate
from scalemodel.post_training.search import RlRanking, search_rl
from scalemodel.post_training.step import estimate_rl
from scalemodel.post_training.task import Rl
from scalemodel.post_training.tuning import estimate_tuning
from scalemodel.post_training.tuning_answer import TuningEstimate
from scalemodel.post_training.tuning_tasks import Distillation, Preference

__all__ = [
    "Distillation",
    "Preference",
    "Rl",
    "RlEstimate",
    "RlRanking",
    "TuningEstimate",
    "estimate_rl",
    "estimate_tuning",
    "search_rl",
]
