"""What starts and stops the replicas of a Deployment: a ScaledObject of KEDA.

KEDA hands the signal to the autoscaler of Kubernetes, whose rule, ceil(sum of the signal/target),
is that of `Autoscaler`: ``keda.sh/docs``, scaler prometheus, and ``config/crd/bases`` of
kedacore/keda. Metrics: vLLM, ``docs/usage/metrics.md``; SGLang,
``docs/references/production_metrics.md``.
"""

from __future__ import annotations

import math
from typing import Any, Final

from scalemodel._core import Autoscaler

#: What engines report of each signal; several add up.
METRICS: Final = {
    "vllm": {
        "requests": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        "queue": ("vllm:num_requests_waiting",),
        "kv_cache": ("vllm:kv_cache_usage_perc",),
    },
    "sglang": {
        "requests": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        "queue": ("sglang:num_queue_reqs",),
        "kv_cache": ("sglang:token_usage",),
    },
}
#: Words that make an engine report them.
REPORTS: Final = {"vllm": (), "sglang": ("--enable-metrics",)}
SERVER: Final = "http://prometheus:9090"
#: That Kubernetes takes, in seconds.
_MOST_WINDOW_S: Final = 3600
_TOLERANCE: Final = 0.1


def scaled_object(
    name: str, family: str, scaler: Autoscaler, replicas: int, notes: list[str]
) -> dict[str, Any] | None:
    """The object that scales a Deployment of this name; None where the engine reports no signal."""
    metrics = METRICS.get(family)
    if metrics is None:
        notes.append(f"{name}: replicas are the most there are: {scaler}")
        return None
    pods = f'{{pod=~"{name}-[a-z0-9]+-[a-z0-9]+"}}'
    query = " + ".join(f"sum({metric}{pods})" for metric in metrics[scaler.signal])
    window = min(_MOST_WINDOW_S, math.ceil(scaler.down_window_s))
    if window < scaler.down_window_s:
        notes.append(f"{name}: Kubernetes looks back {window} s at most before it stops replicas")
    if scaler.tolerance != _TOLERANCE:
        notes.append(
            f"{name}: tolerance={scaler.tolerance:g} is one of the whole cluster "
            "(--horizontal-pod-autoscaler-tolerance)"
        )
    notes.append(f"{SERVER} stands for the Prometheus that scrapes the replicas, for KEDA")
    behavior = {"scaleDown": {"stabilizationWindowSeconds": window}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "pollingInterval": max(1, math.ceil(scaler.interval_s)),
            "minReplicaCount": min(scaler.min_replicas, replicas),
            "maxReplicaCount": replicas,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": SERVER,
                        "query": query,
                        "threshold": f"{scaler.target:g}",
                    },
                }
            ],
        },
    }
