"""What launching costs where kernels take no time: passes of decoders of a few numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.calibration.small_models import architecture
from scalemodel.calibration.transformers import modules
from scalemodel.estimator.estimate import estimate
from scalemodel.estimator.knobs import Strategy
from scalemodel.resolve.tasks import Training

#: Layers of the two decoders whose difference is that of layers alone.
LAYERS = (2, 6)
_SIZES = {"hidden": 16, "heads": 2, "ffn": 32, "vocab": 16, "positions": 8}
_TOKENS = 8
_WARM_UP = 20


def _sizes(layers: int) -> dict[str, int]:
    return {**_SIZES, "layers": layers}


def host_rows(torch: Any, repeats: int) -> list[dict[str, Any]]:
    """Fastest forward and backward pass of each decoder, in processor time of one core.

    Gradients add up, as those of micro-batches do: no optimizer is in the times.
    """
    rows = []
    for layers in LAYERS:
        stage = modules(torch)(_sizes(layers), 1, 0, 1)
        tokens = torch.randint(_SIZES["vocab"], (1, _TOKENS))
        times_s = []
        for index in range(_WARM_UP + 10 * repeats):
            begin = time.process_time()
            stage.loss(stage(tokens), tokens).backward()
            if index >= _WARM_UP:
                times_s.append(time.process_time() - begin)
        rows.append({"layers": layers, "tokens": _TOKENS, "time_us": 1e6 * min(times_s)})
    return rows


def _layer_s(layers_s: Mapping[int, float]) -> float:
    few, many = LAYERS
    return (layers_s[many] - layers_s[few]) / (many - few)


def host_launch_s(
    accelerator: Mapping[str, Any], facts: Mapping[str, Any], rows: Sequence[Mapping[str, str]]
) -> float:
    """Seconds of a launch with which the layers of `host_rows` take as long as they did.

    Parameters
    ----------
    accelerator : mapping
        Entry of the core, its kernels calibrated.
    facts : mapping
        Constants of a stack whose host computes.
    rows : sequence of mappings
        ``layers`` and ``time_us`` of `host_rows`.
    """
    cluster = resolve.cluster({"accelerator": accelerator, "node": {"accelerators": 1}})

    def predicted_s(launch_s: float) -> float:
        stack = _core.Stack(**{**facts, "host_launch_s": launch_s})

        def step_s(layers: int, micro_batches: int) -> float:
            task = Training(
                global_batch=micro_batches, sequence=_TOKENS, precision="fp32", master_bytes=0
            )
            plan = Strategy(micro_batch=1, sharding="ddp")
            model = architecture("tiny", _sizes(layers))
            return float(estimate(model, cluster, task, plan, stack=stack).step_time_s)

        # One pass more, without the optimizer.
        return _layer_s({layers: step_s(layers, 3) - step_s(layers, 2) for layers in LAYERS})

    measured_s = _layer_s({int(row["layers"]): 1e-6 * float(row["time_us"]) for row in rows})
    probe_s = 1e-6
    free_s = predicted_s(0.0)
    launches = (predicted_s(probe_s) - free_s) / probe_s
    return max(0.0, (measured_s - free_s) / launches)
