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

from scalemodel import interrupts as _interrupts  # noqa: F401 - first: the others take a while
from scalemodel._core import Ablation, ServingLayout, Strategy, __version__
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
    from scalemodel.calibration.spread import calibrate_spread
    from scalemodel.choice import explain_choice
    from scalemodel.codesign import codesign
    from scalemodel.comparison import compare
    from scalemodel.diagnosis import diagnose
    from scalemodel.economics import (
        Reliability,
        TrainingRun,
        compute_optimal,
        plan_training,
        power_caps,
        reliability,
        training_run,
    )
    from scalemodel.explorer import Explorer, explore
    from scalemodel.groups import (
        BatchInference,
        ComposedModel,
        EmbeddingTables,
        GroupEstimate,
        GroupRanking,
        GroupSpace,
        GroupStrategy,
        Head,
        Interaction,
        Mlp,
        PatchEmbedding,
        TokenEmbedding,
        Transformer,
        compose,
    )
    from scalemodel.jobs import LogComparison, StepTimeMonitor, compare_log
    from scalemodel.mixed import MixedCluster, MixedEstimate, estimate_mixed, mixed_cluster
    from scalemodel.mixed_search import search_mixed
    from scalemodel.reports import Report, report
    from scalemodel.routing import (
        Fabric,
        NetworkReport,
        RoutingReport,
        design_topology,
        pack_trees,
        plan_paths,
        simulate_network,
        time_shifts,
    )
    from scalemodel.routing.route import route
    from scalemodel.routing.traffic import Traffic, traffic
    from scalemodel.scaling import scaling
    from scalemodel.serving import (
        Inference,
        Serving,
        compare_serving,
        plan_serving,
        request_stream,
        serve_split,
    )
    from scalemodel.serving.serve import serve
    from scalemodel.settings import Launch, Settings, launch, read_settings
    from scalemodel.torch_modules import RecordedLayers, from_torch
    from scalemodel.traces import read_chakra, read_kineto, write_chakra, write_kineto
    from scalemodel.validation import validate

__all__ = [
    "Ablation",
    "BatchInference",
    "Cluster",
    "ComposedModel",
    "EmbeddingTables",
    "Estimate",
    "Explorer",
    "Fabric",
    "FineTuning",
    "GroupEstimate",
    "GroupRanking",
    "GroupSpace",
    "GroupStrategy",
    "Head",
    "Inference",
    "Interaction",
    "Launch",
    "LogComparison",
    "MixedCluster",
    "MixedEstimate",
    "Mlp",
    "Model",
    "NetworkReport",
    "PatchEmbedding",
    "Ranking",
    "RecordedLayers",
    "Reliability",
    "Report",
    "RoutingReport",
    "ScaleModelError",
    "Serving",
    "ServingLayout",
    "Settings",
    "Space",
    "StepTimeMonitor",
    "Strategy",
    "Timeline",
    "TokenEmbedding",
    "Traffic",
    "Training",
    "TrainingRun",
    "Transformer",
    "__version__",
    "calibrate",
    "calibrate_spread",
    "cluster",
    "codesign",
    "compare",
    "compare_log",
    "compare_serving",
    "compose",
    "compute_optimal",
    "design_topology",
    "diagnose",
    "estimate",
    "estimate_mixed",
    "explain_choice",
    "explore",
    "from_torch",
    "launch",
    "list_catalog",
    "mixed_cluster",
    "model",
    "pack_trees",
    "pareto",
    "plan_paths",
    "plan_serving",
    "plan_training",
    "plot",
    "power_caps",
    "read_chakra",
    "read_kineto",
    "read_settings",
    "reliability",
    "report",
    "request_stream",
    "route",
    "scaling",
    "search",
    "search_mixed",
    "serve",
    "serve_split",
    "simulate_network",
    "sweep",
    "sweep_chunks",
    "time_shifts",
    "traffic",
    "training_run",
    "validate",
    "write_chakra",
    "write_kineto",
]


# Loaded at first use: they bring pandas, matplotlib or much data along. Name -> its module; a name
# that is its own module is given as such.
_LAZY = {
    "BatchInference": "groups",
    "calibrate": "calibration",
    "calibrate_spread": "calibration.spread",
    "codesign": "",
    "compare": "comparison",
    "compare_log": "jobs",
    "compare_serving": "serving",
    "compose": "groups",
    "ComposedModel": "groups",
    "compute_optimal": "economics",
    "design_topology": "routing",
    "estimate_mixed": "mixed",
    "diagnose": "diagnosis",
    "EmbeddingTables": "groups",
    "explain_choice": "choice",
    "Explorer": "explorer",
    "explore": "explorer",
    "Fabric": "routing",
    "from_torch": "torch_modules",
    "GroupEstimate": "groups",
    "GroupRanking": "groups",
    "GroupSpace": "groups",
    "GroupStrategy": "groups",
    "Head": "groups",
    "Inference": "serving",
    "Interaction": "groups",
    "Launch": "settings",
    "launch": "settings",
    "LogComparison": "jobs",
    "mixed_cluster": "mixed",
    "MixedCluster": "mixed",
    "MixedEstimate": "mixed",
    "Mlp": "groups",
    "NetworkReport": "routing",
    "pack_trees": "routing",
    "PatchEmbedding": "groups",
    "plan_paths": "routing",
    "plan_serving": "serving",
    "plan_training": "economics",
    "plot": "",
    "power_caps": "economics",
    "read_chakra": "traces",
    "read_kineto": "traces",
    "read_settings": "settings",
    "RecordedLayers": "torch_modules",
    "Reliability": "economics",
    "reliability": "economics",
    "Report": "reports",
    "report": "reports",
    "request_stream": "serving",
    "route": "routing",
    "RoutingReport": "routing",
    "scaling": "",
    "search_mixed": "mixed_search",
    "serve": "serving",
    "serve_split": "serving",
    "Serving": "serving",
    "Settings": "settings",
    "simulate_network": "routing",
    "StepTimeMonitor": "jobs",
    "time_shifts": "routing",
    "TokenEmbedding": "groups",
    "Traffic": "routing",
    "traffic": "routing",
    "training_run": "economics",
    "TrainingRun": "economics",
    "Transformer": "groups",
    "validate": "validation",
    "write_chakra": "traces",
    "write_kineto": "traces",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'scalemodel' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"scalemodel.{_LAZY[name] or name}")
    # A verb may share its name with a module: what the package answers is always the verb.
    globals()[name] = getattr(module, name) if _LAZY[name] else module
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
