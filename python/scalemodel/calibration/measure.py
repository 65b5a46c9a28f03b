"""Measuring kernels and collectives on this machine, as tables for `calibrate`.

Shapes are drawn with a fixed seed, so that two machines of one kind measure the same ones. Only
the functions that run a kernel need torch and an accelerator; the shapes can be had anywhere.
"""

from __future__ import annotations

import csv
import importlib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import csv_cell, plain
from scalemodel.calibration.shapes import (
    COLLECTIVES,
    attention_shapes,
    collective_sizes,
    elementwise_shapes,
    gemm_shapes,
    rank_counts,
)

KINDS = ("gemm", "attention", "elementwise", "collectives")
DTYPES = ("bfloat16", "float16", "float32")
COLUMNS = {
    "gemm": ("gpu", "dtype", "m", "n", "k", "batch", "time_us", "source"),
    "attention": (
        *("gpu", "dtype", "kv_dtype", "phase", "batch", "seq_q", "seq_kv", "heads", "kv_heads"),
        *("head_dim", "v_head_dim", "causal", "window", "time_us", "kernel", "source"),
    ),
    "elementwise": ("gpu", "dtype", "op", "rows", "cols", "time_us", "source"),
    "training_attention": (
        *("gpu", "dtype", "pass", "batch", "tokens", "heads", "head_dim", "causal"),
        *("time_us", "source"),
    ),
    "collectives": (
        *("system", "gpu", "nodes", "gpus", "gpus_per_node", "interconnect", "op", "bytes"),
        *("time_us", "dtype", "nccl", "algo", "source"),
    ),
}
_FLUSH_BYTES = 512 * 2**20  # several times the largest last-level cache on sale
_WARM_UP = 5
_BURST = 20  # collectives back to back in one timing, as nccl-tests does


# --------------------------------------------------------------------------------------- running
def _torch() -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise ScaleModelError(
            "torch is not installed, and measuring runs kernels with it: "
            "pip install 'scalemodel[torch]'",
            code="missing_extra",
        ) from None
    if not torch.cuda.is_available():
        raise ScaleModelError(
            "torch sees no accelerator (torch.cuda.is_available() is False), and a measurement "
            "needs one",
            code="missing_accelerator",
        )
    return torch


class Bench:
    """Times calls on one device.

    Parameters
    ----------
    torch : module
    device : str
    dtype : str
        Name of a torch number format.
    repeats : int
        Timings of a call; their median counts.
    """

    def __init__(self, torch: Any, device: str, dtype: str, repeats: int) -> None:
        self.torch = torch
        self.device = device
        self.dtype = dtype
        self.repeats = repeats
        self.gpu: str = torch.cuda.get_device_name()
        self.no_memory: type[Exception] = torch.cuda.OutOfMemoryError
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=device)

    def tensor(self, *shape: int) -> Any:
        """Random numbers; zeros would make multiplications draw less power and run faster."""
        dtype = getattr(self.torch, self.dtype)
        return self.torch.randn(*shape, dtype=dtype, device=self.device)

    def time_s(self, call: Callable[[], object]) -> float:
        """Median seconds of one call with cold caches.

        Overwriting the cache before each call also keeps the device busy while the host queues
        the events and the call, so that no CPU overhead is measured.
        """
        for _ in range(_WARM_UP):
            call()
        pairs = []
        for _ in range(self.repeats):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            begin.record()
            call()
            end.record()
            pairs.append((begin, end))
        self.torch.cuda.synchronize()
        return statistics.median(1e-3 * float(a.elapsed_time(b)) for a, b in pairs)


def gemm_row(bench: Bench, shape: tuple[int, int, int]) -> dict[str, object]:
    """Row of a multiplication with a transposed second operand, as a linear layer has it."""
    m, n, k = shape
    call = partial(bench.torch.nn.functional.linear, bench.tensor(m, k), bench.tensor(n, k))
    return {"m": m, "n": n, "k": k, "batch": 1, "time_us": 1e6 * bench.time_s(call)}


def elementwise_row(bench: Bench, shape: tuple[str, int, int]) -> dict[str, object]:
    """Row of a kernel that only moves bytes."""
    op, rows, cols = shape
    functional = bench.torch.nn.functional
    x, y = bench.tensor(rows, cols), bench.tensor(rows, cols)
    calls: dict[str, Callable[[], object]] = {
        "add": partial(bench.torch.add, x, y),
        "mul": partial(bench.torch.mul, x, y),
        "gelu": partial(functional.gelu, x),
        "ln": partial(functional.layer_norm, x, (cols,)),
        "softmax": partial(functional.softmax, x, dim=-1),
    }
    return {"op": op, "rows": rows, "cols": cols, "time_us": 1e6 * bench.time_s(calls[op])}


def attention_row(bench: Bench, shape: Mapping[str, int | str]) -> dict[str, object]:
    """Row of torch's fused attention."""
    batch, heads, kv_heads = (int(shape[name]) for name in ("batch", "heads", "kv_heads"))
    width = int(shape["head_dim"])
    q = bench.tensor(batch, heads, int(shape["seq_q"]), width)
    k, v = (bench.tensor(batch, kv_heads, int(shape["seq_kv"]), width) for _ in range(2))
    options: dict[str, object] = {"is_causal": bool(shape["causal"])}
    if kv_heads != heads:
        options["enable_gqa"] = True  # torch 2.5 and later
    attention = bench.torch.nn.functional.scaled_dot_product_attention
    time_s = bench.time_s(partial(attention, q, k, v, **options))
    return {
        **shape,
        "kv_dtype": bench.dtype,
        "v_head_dim": width,
        "window": 0,
        "kernel": "torch_sdpa",
        "time_us": 1e6 * time_s,
    }


def kernel_rows(kind: str, bench: Bench, count: int, seed: int) -> Iterator[dict[str, object]]:
    """Rows of a kind, one per shape that the memory of the device holds."""
    ways: dict[str, tuple[Callable[..., list[Any]], Callable[..., dict[str, object]]]] = {
        "gemm": (partial(gemm_shapes, accelerator=bench.gpu), gemm_row),
        "attention": (attention_shapes, attention_row),
        "elementwise": (elementwise_shapes, elementwise_row),
    }
    draw, row_of = ways[kind]
    for shape in draw(count, seed=seed):
        try:
            row = row_of(bench, shape)
        except bench.no_memory:
            continue
        yield row


def collective_call(
    distributed: Any, op: str, bench: Bench, size_bytes: int, ranks: int, group: Any
) -> Callable[[], object]:
    """One operation; sizes follow nccl-tests: gathers and scatters name the whole buffer."""
    width = bench.tensor(1).element_size()
    each = max(1, size_bytes // width // ranks)
    whole, part = bench.tensor(each * ranks), bench.tensor(each)
    if op == "all_reduce":
        return partial(distributed.all_reduce, whole, group=group)
    if op == "all_gather":
        return partial(distributed.all_gather_into_tensor, whole, part, group=group)
    if op == "reduce_scatter":
        return partial(distributed.reduce_scatter_tensor, part, whole, group=group)
    received = bench.torch.empty_like(whole)
    return partial(distributed.all_to_all_single, received, whole, group=group)


def collective_rows(bench: Bench, count: int, distributed: Any) -> Iterator[dict[str, object]]:
    """Rows of collectives over growing groups of ranks; every rank runs it, all see all rows."""
    torch = bench.torch
    rank, world = distributed.get_rank(), distributed.get_world_size()
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
    for ranks in rank_counts(world, per_node):
        group = distributed.new_group(list(range(ranks)))
        for op in COLLECTIVES:
            for size_bytes in collective_sizes(count):
                distributed.barrier()
                if rank >= ranks:
                    continue
                call = collective_call(distributed, op, bench, size_bytes, ranks, group)
                time_s = _slowest(bench, call, distributed, group)
                yield {
                    "nodes": max(1, ranks // per_node),
                    "gpus": ranks,
                    "gpus_per_node": min(ranks, per_node),
                    "op": op,
                    "bytes": size_bytes,
                    "nccl": version,
                    "time_us": 1e6 * time_s,
                }


def _slowest(bench: Bench, call: Callable[[], object], distributed: Any, group: Any) -> float:
    """Seconds of one operation on the slowest rank: the median over bursts of several."""
    torch = bench.torch
    for _ in range(_WARM_UP):
        call()
    times_s = []
    for _ in range(max(1, bench.repeats // _BURST)):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_BURST):
            call()
        end.record()
        torch.cuda.synchronize()
        times_s.append(1e-3 * begin.elapsed_time(end) / _BURST)
    slowest = torch.tensor([statistics.median(times_s)], dtype=torch.float64, device=bench.device)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX, group=group)
    return float(slowest.item())


def _joined(torch: Any) -> Any:
    """torch.distributed with this process as one rank of a job that torchrun started."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise ScaleModelError(
            "collectives need one process per accelerator: torchrun --nproc-per-node 8 "
            "-m scalemodel measure --kind collectives --out t.csv",
            code="missing_ranks",
        )
    if int(os.environ["WORLD_SIZE"]) < 2:
        raise ScaleModelError("WORLD_SIZE=1: a collective needs at least two ranks")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    return torch.distributed


def measure(
    kind: str,
    *,
    samples: int = 40,
    seed: int = 0,
    repeats: int = 60,
    dtype: str = "bfloat16",
) -> list[dict[str, object]]:
    """Measure kernels or collectives on this machine.

    Parameters
    ----------
    kind : str
        ``"gemm"``, ``"attention"``, ``"elementwise"``; or ``"collectives"``, started by torchrun.
    samples : int
        Shapes, less those that do not fit in memory; for collectives sizes of each operation and
        group (at most 21).
    seed : int
        Of the shapes.
    repeats : int
        Timings of a shape, each after the caches were overwritten; their median counts.
    dtype : str
        Number format of the operands.

    Returns
    -------
    list of dict
        Rows with the columns of `calibrate` and `validate`; empty on all ranks but the first.

    Raises
    ------
    ScaleModelError : a wrong argument, no torch, no accelerator, or no ranks.
    """
    if kind not in KINDS:
        raise ScaleModelError(
            f"kind={kind!r}: must be one of {', '.join(KINDS)}", code="unknown_kind"
        )
    if dtype not in DTYPES:
        raise ScaleModelError(f"dtype={dtype!r}: must be one of {', '.join(DTYPES)}")
    for name, value, low, high in (
        ("samples", samples, 1, 100_000),
        ("seed", seed, 0, 2**31),
        ("repeats", repeats, 1, 100_000),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ScaleModelError(f"{name}={value!r}: must be a whole number from {low} to {high}")
    torch = _torch()
    distributed = _joined(torch) if kind == "collectives" else None
    bench = Bench(torch, "cuda", dtype, repeats)
    common = {
        "gpu": bench.gpu,
        "dtype": dtype,
        "source": f"scalemodel measure: torch {torch.__version__}, "
        f"CUDA {torch.version.cuda or torch.version.hip}, seed {seed}, {repeats} repeats",
    }
    if distributed is not None:
        rows = list(collective_rows(bench, min(samples, 21), distributed))
        first = distributed.get_rank() == 0
        distributed.destroy_process_group()
        return [{**common, **row} for row in rows] if first else []
    with torch.inference_mode():
        return [{**common, **row} for row in kernel_rows(kind, bench, samples, seed)]


def write_table(kind: str, rows: Sequence[dict[str, object]], path: str | os.PathLike[str]) -> None:
    """Write measured rows as CSV; columns a row lacks stay blank.

    Raises
    ------
    ScaleModelError : the file cannot be written.
    """
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS[kind], restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(
                {
                    key: csv_cell(plain(cell)) if isinstance(cell, str) else cell
                    for key, cell in row.items()
                }
                for row in rows
            )
    except OSError as error:
        raise ScaleModelError(
            f"path={os.fspath(path)!r} cannot be written: {error.strerror or error}",
            code="unwritable_file",
        ) from None
