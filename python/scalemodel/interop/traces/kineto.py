"""Traces of PyTorch's profiler (Kineto): where a measured step went, and rows to calibrate with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import parse_json, read_unpacked
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments
from scalemodel.interop.traces.host import kind_of_operator, operators

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]

# First match wins. Names of kernels of NCCL, RCCL, oneCCL; of copies; of cuBLAS, CUTLASS, rocBLAS,
# Triton and cuDNN.
_CLASSES: Final = (
    ("communication", r"^nccl|^rccl|^hccl|ncclKernel|ncclDevKernel|oneccl|all_?reduce_kernel"),
    ("memory", r"^memcpy|^memset|^dma"),
    ("attention", r"flash|fmha|attention|\bsdpa"),
    ("gemm", r"gemm|cutlass|cublas|nvjet|xmma|sm\d+_|cijk_|wgrad|matmul|splitk"),
)
_COLLECTIVES: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherbase": "all_gather",
    "allgatherintotensorcoalesced": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterbase": "reduce_scatter",
    "reducescattertensorcoalesced": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallbase": "alltoall",
    "alltoallv": "alltoall",
}
_BYTES: Final = {
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "float64", "int64"), 8),
    **dict.fromkeys(("half", "bfloat16", "float16", "c10::half", "c10::bfloat16"), 2),
    **dict.fromkeys(("byte", "char", "float8_e4m3fn", "float8_e5m2", "uint8", "int8"), 1),
}
_DTYPES: Final = {
    **dict.fromkeys(("c10::bfloat16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("c10::half", "half"), "float16"),
    **dict.fromkeys(("float",), "float32"),
}
#: Microseconds of a trace: 30,000 years, and a number whose double is exact enough.
_LONGEST_US: Final = 1e18
_PRODUCTS: Final = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


class Kernel(NamedTuple):
    """What ran, in seconds from the first event: a kernel, or an operator of a processor."""

    name: str
    kind: str
    stream: int
    start_s: float
    duration_s: float
    correlation: int
    arguments: Mapping[str, Any]


def union(begin: Numbers, end: Numbers) -> Numbers:
    """Disjoint intervals that cover the same time, as rows (begin, end).

    Examples
    --------
    >>> union(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    if not len(begin):
        return np.zeros((0, 2))
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], begin[1:] > end[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((begin[first], end[last]), axis=1)


def covered_s(intervals: Numbers) -> float:
    """Length of disjoint intervals."""
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def _common_s(one: Numbers, other: Numbers) -> float:
    """Time that two sets of disjoint intervals share."""
    both = np.concatenate((one, other))
    return covered_s(one) + covered_s(other) - covered_s(union(both[:, 0], both[:, 1]))


@dataclass(frozen=True)
class KinetoTrace:
    """A rank's trace. Made by `read_kineto`.

    Attributes
    ----------
    rank, world_size : int or None
        Where the trace names them.
    accelerator : str
        Name of the device, empty where the trace does not tell.
    kernels : tuple of Kernel
    windows : tuple of (name, begin, end)
        Steps, in seconds from the first event; the whole trace where it marks none.
    products : tuple of dict
        Matrix multiplications with their shapes (profiles with record_shapes).
    """

    rank: int | None
    world_size: int | None
    accelerator: str
    kernels: tuple[Kernel, ...]
    windows: tuple[tuple[str, float, float], ...]
    products: tuple[dict[str, object], ...]

    def steps(self) -> pd.DataFrame:
        """Where each step's time went.

        Returns
        -------
        DataFrame
            Columns step, step_time_s, compute_s, communication_s, exposed_communication_s (no
            kernel of another kind runs), idle_s, overlap_fraction (of communication). Streams of
            the same kind that run at once count once: compute + exposed + idle = step.
        """
        import pandas as pd

        start = np.array([kernel.start_s for kernel in self.kernels])
        end = start + np.array([kernel.duration_s for kernel in self.kernels])
        talks = np.array([kernel.kind == "communication" for kernel in self.kernels], dtype=bool)
        rows = []
        for name, begin_s, end_s in self.windows:
            low, high = np.clip(start, begin_s, end_s), np.clip(end, begin_s, end_s)
            inside = high > low
            compute = union(low[inside & ~talks], high[inside & ~talks])
            talk = union(low[inside & talks], high[inside & talks])
            talk_s, compute_s = covered_s(talk), covered_s(compute)
            exposed_s = talk_s - _common_s(talk, compute)
            rows.append(
                {
                    "step": name,
                    "step_time_s": end_s - begin_s,
                    "compute_s": compute_s,
                    "communication_s": talk_s,
                    "exposed_communication_s": exposed_s,
                    "idle_s": end_s - begin_s - compute_s - exposed_s,
                    "overlap_fraction": 1 - exposed_s / talk_s if talk_s else 0.0,
                }
            )
        return pd.DataFrame(rows)

    def summary(self) -> pd.DataFrame:
        """Kernels by kind and name: count, total and mean time, longest first."""
        import pandas as pd

        table = pd.DataFrame(
            [(kernel.kind, kernel.name, kernel.duration_s) for kernel in self.kernels],
            columns=["kind", "name", "duration_s"],
        )
        grouped = table.groupby(["kind", "name"], sort=False).duration_s
        found = grouped.agg(count="size", total_s="sum", mean_s="mean").reset_index()
        return found.sort_values("total_s", ascending=False, ignore_index=True)

    def collectives(self) -> pd.DataFrame:
        """Collectives as rows of ``calibrate("collectives", ...)``.

        Waiting for the slowest rank is part of a kernel's time: the shortest of equal calls is what
        the operation costs, so equal calls become one row with their minimum.
        """
        import pandas as pd

        best: dict[tuple[str, int, float], float] = {}
        for kernel in self.kernels:
            call = _collective(kernel.arguments)
            if call is not None and kernel.kind == "communication":
                best[call] = min(best.get(call, np.inf), kernel.duration_s)
        rows = [
            {"gpu": self.accelerator, "gpus": ranks, "op": op, "bytes": size, "time_us": 1e6 * time}
            for (op, ranks, size), time in best.items()
        ]
        return pd.DataFrame(rows, columns=["gpu", "gpus", "op", "bytes", "time_us"])

    def gemms(self) -> pd.DataFrame:
        """Matrix multiplications as rows of ``calibrate("gemm", ...)``, medians of equal calls."""
        import pandas as pd

        columns = ["gpu", "dtype", "m", "n", "k", "batch", "time_us"]
        table = pd.DataFrame(list(self.products), columns=columns[1:])
        table.insert(0, "gpu", self.accelerator)
        medians = table.groupby(columns[:-1], sort=False).time_us.median()
        return medians.reset_index()


def _collective(arguments: Mapping[str, Any]) -> tuple[str, int, float] | None:
    """Operation, ranks and bytes of the whole buffer, as nccl-tests counts them."""
    name = re.sub(r"[^a-z]", "", str(arguments.get("Collective name", "")).lower())
    op = _COLLECTIVES.get(name)
    ranks = _whole(arguments.get("Group size"))
    width = _BYTES.get(str(arguments.get("dtype", "")).lower())
    sent = _whole(arguments.get("In msg nelems"))
    received = _whole(arguments.get("Out msg nelems"))
    if op is None or width is None or ranks is None or ranks < 2:
        return None
    elements = max(sent or 0, received or 0)
    return (op, ranks, float(width * elements)) if elements else None


def _whole(cell: object) -> int | None:
    try:
        number = float(str(cell))
    except ValueError:
        return None
    return int(number) if number.is_integer() and 0 <= number < 1e15 else None


def kind_of(name: str) -> str:
    """What a kernel does, by its name.

    Examples
    --------
    >>> kind_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), kind_of("sm90_xmma_gemm_bf16")
    ('communication', 'gemm')
    """
    return next(
        (kind for kind, form in _CLASSES if re.search(form, name, re.IGNORECASE)), "elementwise"
    )


def _read(path: Path) -> dict[str, Any]:
    raw = read_unpacked(path)
    # Profilers write keys twice where two annotations of one event have the same name.
    data = parse_json(raw, path, unique=False)
    if isinstance(data, list):
        data = {"traceEvents": data}
    if not isinstance(data, dict) or not isinstance(data.get("traceEvents"), list):
        raise ScaleModelError(
            f"{path}: traceEvents: missing; a trace of torch.profiler is needed",
            code="unreadable_file",
        )
    return data


def _durations(events: Iterable[Any]) -> list[dict[str, Any]]:
    """Complete events with numbers where numbers belong."""
    found = []
    for event in events:
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            continue
        start, duration = event.get("ts"), event.get("dur", 0)
        if not (isinstance(start, (int, float)) and isinstance(duration, (int, float))):
            continue
        if abs(start) <= _LONGEST_US and 0 <= duration <= _LONGEST_US:  # no NaN is
            arguments = event.get("args")
            arguments = arguments if isinstance(arguments, Mapping) else {}
            found.append({**event, "dur": duration, "args": arguments})
    return found


def _items(cell: object) -> list[Any]:
    return cell if isinstance(cell, list) else []


def _is_shape(cell: object) -> bool:
    return (
        isinstance(cell, list)
        and len(cell) in (2, 3)
        and all(type(size) is int and 0 < size < 1e15 for size in cell)
    )


def _products(
    events: list[dict[str, Any]], kernels: list[Kernel], launched: dict[int, int], *, host: bool
) -> list[dict[str, object]]:
    """Multiplications of the host whose one kernel is a GEMM; on a processor, those themselves."""
    ran: dict[int, list[Kernel]] = {}
    for kernel in kernels:
        external = launched.get(kernel.correlation)
        if external is not None and kernel.kind == "gemm":
            ran.setdefault(external, []).append(kernel)
    rows: list[dict[str, object]] = []
    for event in events:
        if event.get("name") not in _PRODUCTS:
            continue
        arguments = event["args"]
        shapes = _items(arguments.get("Input Dims") or arguments.get("Input dims"))
        types = _items(arguments.get("Input type"))
        own = ran.get(_whole(arguments.get("External id")) or -1, [])
        sizes = [shape for shape in shapes if _is_shape(shape)][-2:]
        if len(sizes) != 2 or len(sizes[0]) != len(sizes[1]) or not (host or len(own) == 1):
            continue
        dtype = _DTYPES.get(str(types[0] if types else "").lower())
        if dtype is None:
            continue
        *batches, m, k = sizes[0]
        batch, n = (batches[0] if batches else 1), sizes[1][-1]
        row: dict[str, object] = {"dtype": dtype, "m": m, "n": n, "k": k, "batch": batch}
        time_us = float(event["dur"]) if host else 1e6 * own[0].duration_s
        rows.append({**row, "time_us": time_us})
    return rows


@named_arguments
def read_kineto(path: str | os.PathLike[str]) -> KinetoTrace:
    """Read a trace that PyTorch's profiler wrote for one rank.

    A trace without an accelerator is one of a processor: its operators count as kernels, the
    outermost of those that call each other, and its threads as streams. Idle is then what neither
    an operator nor a collective takes: Python, autograd, loading of data. Backends that run on
    processors do not record the ranks of a collective: such a trace has no rows of collectives.

    Parameters
    ----------
    path : path
        JSON, or the same compressed with gzip.

    Returns
    -------
    KinetoTrace

    Raises
    ------
    ScaleModelError : the file cannot be read, is no such trace, or no kernel ran in it.

    Examples
    --------
    >>> import json
    >>> import tempfile
    >>> kernel = {"ph": "X", "cat": "kernel", "name": "sm90_gemm", "ts": 10, "dur": 5,
    ...           "args": {"stream": 7, "correlation": 1}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "trace.json")
    ...     _ = file.write_text(json.dumps({"traceEvents": [kernel]}))
    ...     read_kineto(file).summary().name.tolist()
    ['sm90_gemm']
    """
    data = _read(Path(path))
    events = _durations(data["traceEvents"])
    ran = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    host = not ran
    if host:
        ran = [dict(event) for event in operators(events)]
    if not ran:
        raise ScaleModelError(
            f"{os.fspath(path)}: no kernel ran in it, nor an operator; profile with "
            "ProfilerActivity.CUDA, or CPU where the processor computes",
            code="empty_trace",
        )
    origin = min(float(event["ts"]) for event in events)

    def seconds(event: Mapping[str, Any]) -> float:
        return 1e-6 * (float(event["ts"]) - origin)

    kernels = [
        Kernel(
            name=plain(event.get("name", "")),
            kind=(kind_of_operator if host else kind_of)(str(event.get("name", ""))),
            stream=_whole(event["args"].get("stream", event.get("tid"))) or 0,
            start_s=seconds(event),
            duration_s=1e-6 * float(event["dur"]),
            correlation=_whole(event["args"].get("correlation")) or -1,
            arguments=event["args"],
        )
        for event in ran
    ]
    launched = {}
    for event in events:
        correlation = _whole(event["args"].get("correlation"))
        external = _whole(event["args"].get("External id"))
        if correlation is not None and external is not None:
            launched[correlation] = external
    steps = {}
    for event in events:
        name = plain(event.get("name", ""))
        # The accelerator's own marks are where the kernels are; the host runs ahead of them.
        if name.startswith("ProfilerStep#"):
            on_accelerator = event.get("cat") == "gpu_user_annotation"
            if name not in steps or on_accelerator:
                begin = seconds(event)
                steps[name] = (name, begin, begin + 1e-6 * float(event["dur"]))
    whole = (
        "trace",
        min(kernel.start_s for kernel in kernels),
        max(kernel.start_s + kernel.duration_s for kernel in kernels),
    )
    windows = tuple(sorted(steps.values(), key=lambda step: step[1])) or (whole,)
    info = data.get("distributedInfo")
    info = info if isinstance(info, Mapping) else {}
    devices = data.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else {}
    return KinetoTrace(
        rank=_whole(info.get("rank")),
        world_size=_whole(info.get("world_size")),
        accelerator=plain(first.get("name", "")) if isinstance(first, Mapping) else "",
        kernels=tuple(kernels),
        windows=windows,
        products=tuple(_products(events, kernels, launched, host=host)),
    )
