"""Reinforcement-learning post-training: a step of rollout, scoring, training and new weights."""

from __future__ import annotations

from scalemodel.post_training.answer import RlEstimate
from scalemodel.post_training.search import RlRanking, search_rl
from scalemodel.post_training.step import estimate_rl
from scalemodel.post_training.task import Rl

__all__ = ["Rl", "RlEstimate", "RlRanking", "estimate_rl", "search_rl"]
