"""From names, files and dictionaries to validated engine values, once per question."""

from __future__ import annotations

from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.clusters import Cluster, cluster
from scalemodel.resolve.models import Model, model
from scalemodel.resolve.stacks import stack

__all__ = ["Cluster", "Model", "accelerator_table", "cluster", "model", "stack"]
