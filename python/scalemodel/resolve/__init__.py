"""From names, files and dictionaries to validated engine values, once per question."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel.base.words import understand
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.clusters import Cluster, Network, cluster, with_network
from scalemodel.resolve.models import Model, model
from scalemodel.resolve.networks import AXES
from scalemodel.resolve.stacks import stack

__all__ = [
    "AXES",
    "Cluster",
    "Model",
    "Network",
    "accelerator_table",
    "cluster",
    "model",
    "stack",
    "with_network",
]

understand(_core.Strategy)
