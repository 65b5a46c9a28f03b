"""A predicted step as a recording of PyTorch's profiler, for tools that read those."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import write_whole
from scalemodel.base.words import named_arguments

if TYPE_CHECKING:
    from scalemodel.estimator.timeline import Timeline

#: Streams of the engine as a profiler numbers them: kernels run on 7, each communicator on its own.
_STREAMS: Final = {
    name: 7 if name == "compute" else 20 + index for index, name in enumerate(_core.STREAMS)
}
_HOST_WORK: Final = ("overhead", "wait")
_COLLECTIVES: Final = {
    "tensor_parallel": "AllGather_ReduceScatter",
    "context_parallel": "ContextParallel",
    "expert_parallel": "AllToAll",
    "gather_parameters": "AllGather",
    "reduce_gradients": "ReduceScatter",
    "send_activations": "SendRecv",
    "receive_activations": "SendRecv",
    "send_gradients": "SendRecv",
    "receive_gradients": "SendRecv",
}
_COPIES: Final = {"offload": "Memcpy DtoH", "optimizer_transfer": "Memcpy HtoD"}
#: Host process and thread, and how long before a kernel its launch ends.
_HOST, _THREAD, _LAUNCH_US = 1000, 1000, 1.0


def _kernel_name(kind: str, name: str) -> str:
    """What tools tell kernels by: NCCL's prefix, the driver's word for copies, anything else."""
    if kind in _COLLECTIVES:
        return f"ncclDevKernel_{_COLLECTIVES[kind]} (predicted)"
    return f"{_COPIES.get(kind, name)} (predicted)"


def _complete(
    cat: str, name: str, start_us: float, duration_us: float, where: tuple[int, int], **args: Any
) -> dict[str, Any]:
    pid, tid = where
    event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    return {**event, "ts": round(start_us, 3), "dur": round(duration_us, 3), "args": args}


def _rank_events(timeline: Timeline, rank: int, steps: int) -> list[dict[str, Any]]:
    own = timeline.events[timeline.events["rank"] == rank]
    step_us = 1e6 * timeline.step_time_s
    rows = list(
        zip(own.stream, own.kind, own.name, own.start_s, own.duration_s, own.bytes, strict=True)
    )
    found: list[dict[str, Any]] = []
    host = (_HOST + rank, _THREAD)
    for step in range(steps):
        begin = step * step_us
        mark = f"ProfilerStep#{step}"
        found.append(_complete("user_annotation", mark, begin, step_us, host))
        for stream, kind, name, start_s, duration_s, size in rows:
            start, duration = begin + 1e6 * start_s, 1e6 * duration_s
            if kind in _HOST_WORK:
                found.append(_complete("cpu_op", str(name), start, duration, host))
                continue
            correlation = len(found)
            number = _STREAMS[stream]
            about = {"stream": number, "device": rank, "correlation": correlation}
            cat = "gpu_memcpy" if kind in _COPIES else "kernel"
            title = _kernel_name(kind, str(name))
            size_args = {"bytes": int(size)} if size else {}
            launch = max(begin, start - 2 * _LAUNCH_US)
            found += [
                _complete(
                    "cuda_runtime",
                    "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync",
                    launch,
                    _LAUNCH_US,
                    host,
                    correlation=correlation,
                ),
                _complete(cat, title, start, duration, (rank, number), **about, **size_args),
            ]
    return found


@named_arguments
def write_kineto(
    timeline: Timeline, folder: str | os.PathLike[str], *, steps: int = 3
) -> list[Path]:
    """Write a predicted step as traces of PyTorch's profiler, one file per pipeline stage.

    Perfetto opens them, `read_kineto` reads them back, and HolisticTraceAnalysis analyses the
    folder as if the job had run: idle time, communication against computation, overlap.

    Parameters
    ----------
    timeline : Timeline
        Of an estimate: ``est.timeline()``.
    folder : path
        Made if it is not there.
    steps : int
        How often the step is repeated; HolisticTraceAnalysis leaves the last one out.

    Returns
    -------
    list of Path
        ``rank<stage>.json.gz``, a rank of each stage in order.

    Raises
    ------
    ScaleModelError : `steps` is no whole number from 1 to 1000.

    Examples
    --------
    >>> import tempfile
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2, pp=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = sm.write_kineto(est.timeline(), folder)
    ...     read = sm.read_kineto(files[0]).steps()
    >>> len(files), len(read), f"{read.step_time_s[0] / est.timeline().step_time_s:.6f}"
    (2, 3, '1.000000')
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= 1000:
        raise ScaleModelError(f"steps={steps!r}: must be a whole number from 1 to 1000")
    estimate = timeline.estimate
    stages = int(timeline.events["rank"].max()) + 1
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for rank in range(stages):
        document = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": rank, "name": estimate.cluster.accelerator}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": stages},
            "traceEvents": _rank_events(timeline, rank, steps),
        }
        path = target / f"rank{rank}.json.gz"
        # Without a time stamp: the same estimate gives the same bytes. Blanks after colons: tools
        # look for the rank with a pattern that has one.
        write_whole(path, gzip.compress(json.dumps(document).encode(), mtime=0))
        written.append(path)
    return written
