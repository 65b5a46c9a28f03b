"""scalemodel: predict, explain and optimise how large models train and run on GPU clusters.

>>> import scalemodel as sm
>>> cluster = sm.cluster("dgx_h100", nodes=64)
>>> task = sm.Training(global_batch=1024, sequence=8192, precision="bf16")
>>> est = sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=4, cp=2, pp=4, vpp=5))
>>> est.verdict
'ok'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalemodel._core import Strategy, __version__
from scalemodel.catalog import list_catalog
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import Estimate, estimate
from scalemodel.pareto import pareto
from scalemodel.resolve import Cluster, Model, cluster, model
from scalemodel.search import Ranking, search, sweep, sweep_chunks
from scalemodel.space import Space
from scalemodel.tasks import FineTuning, Training
from scalemodel.timeline import Timeline

if TYPE_CHECKING:
    from scalemodel import plot
    from scalemodel.calibration import calibrate
    from scalemodel.choice import explain_choice
    from scalemodel.codesign import codesign
    from scalemodel.routing import Fabric, RoutingReport, Traffic, route, simulate_network
    from scalemodel.validation import validate

__all__ = [
    "Cluster",
    "Estimate",
    "Fabric",
    "FineTuning",
    "Model",
    "Ranking",
    "RoutingReport",
    "ScaleModelError",
    "Space",
    "Strategy",
    "Timeline",
    "Traffic",
    "Training",
    "__version__",
    "calibrate",
    "cluster",
    "codesign",
    "estimate",
    "explain_choice",
    "list_catalog",
    "model",
    "pareto",
    "plot",
    "route",
    "search",
    "simulate_network",
    "sweep",
    "sweep_chunks",
    "validate",
]


_ROUTING = ("Fabric", "RoutingReport", "Traffic", "route", "simulate_network")


def __getattr__(name: str) -> Any:
    # Validation and plots bring pandas and matplotlib along: loaded at first use.
    if name in ("codesign", "plot"):
        import importlib

        return importlib.import_module(f"scalemodel.{name}")
    if name == "explain_choice":
        from scalemodel.choice import explain_choice

        globals()["explain_choice"] = explain_choice
        return explain_choice
    if name == "calibrate":
        from scalemodel.calibration import calibrate

        globals()["calibrate"] = calibrate
        return calibrate
    if name == "validate":
        from scalemodel.validation import validate

        globals()["validate"] = validate
        return validate
    if name in _ROUTING:
        from scalemodel import routing

        for public in _ROUTING:
            globals()[public] = getattr(routing, public)
        return globals()[name]
    raise AttributeError(f"module 'scalemodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
