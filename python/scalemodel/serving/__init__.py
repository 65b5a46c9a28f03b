"""Serving: what an inference engine delivers on a cluster, in closed form and by request."""

from __future__ import annotations

from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import Inference

__all__ = ["Inference", "Serving", "serve"]
