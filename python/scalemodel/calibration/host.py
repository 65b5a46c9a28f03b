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
#: Twice the second-level cache that cores of servers have at most.
_EVICTED_BYTES = 4 * 2**20


def _sizes(layers: int) -> dict[str, int]:
    return {**_SIZES, "layers": layers}


def _evicting(torch: Any, size_bytes: int) -> tuple[Any, list[float]]:
    """A function that writes a buffer of this size in either pass, and the seconds it took."""
    memory = torch.empty(size_bytes, dtype=torch.int8)
    spent_s = [0.0]

    def evict() -> None:
        begin = time.process_time()
        memory.zero_()
        spent_s[0] += time.process_time() - begin

    class Evicted(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            evict()
            return x.view_as(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            evict()
            return gradient

    return Evicted, spent_s


def _pass_s(torch: Any, layers: int, repeats: int, evicted_bytes: int | None = None) -> float:
    """Fastest forward and backward pass, with a buffer of this size written before every module.

    Writing it is not timed, only the calls that do so.
    """
    stage = modules(torch)(_sizes(layers), 1, 0, 1)
    tokens = torch.randint(_SIZES["vocab"], (1, _TOKENS))
    evicted, spent_s = _evicting(torch, evicted_bytes or 0)
    if evicted_bytes is not None:
        for module in stage.modules():
            if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm):
                module.register_forward_pre_hook(lambda _, given: (evicted.apply(*given),))
    times_s = []
    for index in range(_WARM_UP + repeats):
        spent_s[0] = 0.0
        begin = time.process_time()
        stage.loss(stage(tokens), tokens).backward()
        if index >= _WARM_UP:
            times_s.append(time.process_time() - begin - spent_s[0])
    return min(times_s)


def host_rows(torch: Any, repeats: int) -> list[dict[str, Any]]:
    """Fastest forward and backward pass of each decoder, in processor time of one core.

    Gradients add up, as those of micro-batches do: no optimizer is in the times. The kernels of
    real layers move more than the core's own caches hold, so that what launches the next one has
    left them: they are emptied before every module, and the calls that do so are taken off.
    """
    rows = []
    for layers in LAYERS:
        plain_s, called_s, emptied_s = (
            _pass_s(torch, layers, 3 * repeats, evicted_bytes)
            for evicted_bytes in (None, 0, _EVICTED_BYTES)
        )
        time_s = emptied_s - (called_s - plain_s)
        rows.append({"layers": layers, "tokens": _TOKENS, "time_us": 1e6 * time_s})
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
