"""The program of one rank: exchanges between ranks, or steps of a small transformer, timed.

`run` starts one process for each rank; they find each other through a file, so that no port is
taken. Only these processes import torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration.measure import collective_call
from scalemodel.calibration.transformers import modules

_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "p2p")
_BURST = 4
_PRODUCT = 512  # rows and columns: milliseconds of one core
_WARM_UP = 3
_PATIENCE_S = 900


def run(job: Mapping[str, Any], ranks: int) -> Any:
    """What the first of `ranks` processes found; all of them run `job`.

    Parameters
    ----------
    job : mapping
        ``do`` (``"exchanges"`` or ``"steps"``), ``device``, ``repeats``, and what that takes.
    ranks : int

    Raises
    ------
    ScaleModelError : a rank failed; the message holds its last line.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "found.json", Path(folder) / "errors"
        whole = {**job, "ranks": ranks, "meet": f"{folder}/meet", "out": str(out)}
        with errors.open("w", encoding="utf-8") as sink:
            started = [
                subprocess.Popen(
                    [sys.executable, "-m", __name__, json.dumps(whole)],
                    env={**os.environ, "RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.DEVNULL,
                    stderr=sink,
                )
                for rank in range(ranks)
            ]
            try:
                codes = [process.wait(_PATIENCE_S) for process in started]
            except subprocess.TimeoutExpired:
                codes = [1]
            finally:
                for process in started:
                    process.kill()
                    process.wait()
        if any(codes) or not out.exists():
            said = [line for line in errors.read_text(encoding="utf-8").splitlines() if line]
            last = next((line for line in reversed(said) if "Error" in line), "no message")
            raise ScaleModelError(f"a rank of {job['do']} failed: {last}", code="failed_ranks")
        return json.loads(out.read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------- exchanges
def _sent(distributed: Any, tensor: Any, rank: int) -> None:
    """A tensor to the other rank and back."""
    if rank == 0:
        distributed.send(tensor, 1)
        distributed.recv(tensor, 1)
    elif rank == 1:
        distributed.recv(tensor, 0)
        distributed.send(tensor, 0)


def _burst(repeats: int, call: Callable[[], object], torch: Any, device: Any) -> list[float]:
    """Seconds of a call, of several back to back, as GPUs queue them."""
    times_s = []
    for _ in range(repeats):
        torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(_BURST):
            call()
        _wait(torch, device)
        times_s.append((time.perf_counter() - begin) / _BURST)
    return times_s


def _after_a_product(
    repeats: int, call: Callable[[], object], torch: Any, device: Any
) -> list[float]:
    """Seconds of a call that follows a multiplication, as in a step.

    The threads that exchange share their cores with what computes: they have to be woken, what
    they read has left the caches, and ranks do not arrive together.
    """
    factor = torch.randn(_PRODUCT, _PRODUCT, device=device)
    times_s = []
    for _ in range(repeats):
        torch.distributed.barrier()
        torch.mm(factor, factor)
        begin = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - begin)
    return times_s


def _with_copies(
    call: Callable[[], object], operation: str, size_bytes: int, ranks: int, torch: Any
) -> Callable[[], object]:
    """An exchange of parameters or gradients on a CPU, which copies what it sends and receives.

    Fully sharded training packs tensors into buffers and unpacks them (PyTorch,
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py). GPUs do so beside their products, at
    the rate of their memory; a core computes nothing meanwhile.
    """
    if operation not in ("all_gather", "reduce_scatter"):
        return call
    one, other = (torch.randn(size_bytes // 4) for _ in range(2))
    whole, part = slice(None), slice(0, size_bytes // 4 // ranks)
    sent, received = (part, whole) if operation == "all_gather" else (whole, part)

    def copied() -> None:
        one[sent].copy_(other[sent])
        call()
        other[received].copy_(one[received])

    return copied


def exchanges(job: Mapping[str, Any], torch: Any, device: Any) -> list[dict[str, Any]]:
    """Seconds of every operation and size on the slowest rank: the median of the repeats."""
    distributed = torch.distributed
    rank, ranks = distributed.get_rank(), job["ranks"]
    rows = []

    class Tensors:
        """What `collective_call` asks of a bench."""

        def __init__(self) -> None:
            self.torch = torch

        def tensor(self, *shape: int) -> Any:
            return torch.randn(*shape, device=device)

    for operation in _OPERATIONS:
        for size_bytes in job["sizes"]:
            if operation == "p2p":
                call: Callable[[], object] = partial(
                    _sent, distributed, torch.randn(size_bytes // 4, device=device), rank
                )
            else:
                bench: Any = Tensors()
                call = collective_call(distributed, operation, bench, size_bytes, ranks, None)
                if device.type == "cpu":
                    call = _with_copies(call, operation, size_bytes, ranks, torch)
            for _ in range(_WARM_UP):
                call()
            burst = _after_a_product if device.type == "cpu" else _burst
            times_s = burst(job["repeats"], call, torch, device)
            slowest = torch.tensor(times_s, dtype=torch.float64, device=device)
            distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
            typical_s = float(slowest.median()) / (2 if operation == "p2p" else 1)
            rows.append({"op": operation, "bytes": size_bytes, "time_us": 1e6 * typical_s})
    return rows


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# ----------------------------------------------------------------------------------------- steps
def _stepper(job: Mapping[str, Any], torch: Any, device: Any) -> Callable[[], object]:
    """A call that makes one step of the configuration."""
    model, way, ranks = job["model"], job["way"], job["ranks"]
    rank = torch.distributed.get_rank() if ranks > 1 else 0
    stages, tp = (ranks if way == "pp" else 1), (ranks if way == "tp" else 1)
    torch.manual_seed(0)
    with device:
        stage = modules(torch)(model, tp, rank if stages > 1 else 0, stages)
        batch, sequence = job["batch"], job["sequence"]
        tokens = torch.randint(model["vocab"], (batch, sequence))
    trained = stage
    if way == "ddp":
        trained = torch.nn.parallel.DistributedDataParallel(stage)
    elif way == "fsdp":
        fully_shard = torch.distributed.fsdp.fully_shard
        mesh = torch.distributed.device_mesh.init_device_mesh(device.type, (ranks,))
        for block in stage.blocks:
            fully_shard(block, mesh=mesh)
        trained = fully_shard(stage, mesh=mesh)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4, fused=True)
    if way == "pp":
        pipelining = torch.distributed.pipelining
        part = pipelining.PipelineStage(stage, rank, ranks, device)
        schedule = pipelining.Schedule1F1B(part, job["micro_batches"], stage.loss)

        def pass_through() -> None:
            last = rank == ranks - 1
            schedule.step(*([tokens] if rank == 0 else []), **({"target": tokens} if last else {}))
    else:

        def pass_through() -> None:
            stage.loss(trained(tokens), tokens).backward()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        pass_through()
        optimizer.step()

    return step


def steps(job: Mapping[str, Any], torch: Any, device: Any) -> dict[str, float]:
    """Fastest and median seconds of a step, and the least processor time, on the slowest rank.

    One rank on a CPU is timed by its processor time, which is its time on a core of its own:
    other programs of a busy machine do not count. Ranks that wait for each other need the clock.
    """
    alone = device.type == "cpu" and job["ranks"] == 1
    clock = time.process_time if alone else time.perf_counter
    step = _stepper(job, torch, device)
    for _ in range(_WARM_UP):
        step()
    times_s, busy_s = [], []
    for _ in range(job["repeats"]):
        if job["ranks"] > 1:
            torch.distributed.barrier()
        _wait(torch, device)
        begin, worked = clock(), time.process_time()
        step()
        _wait(torch, device)
        times_s.append(clock() - begin)
        busy_s.append(time.process_time() - worked)
    if job["ranks"] > 1:
        slowest = torch.tensor([times_s, busy_s], dtype=torch.float64, device=device)
        torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX)
        times_s, busy_s = slowest.tolist()
    return {
        "fastest_s": min(times_s),
        "median_s": statistics.median(times_s),
        "processor_s": min(busy_s),
    }


def main(text: str) -> None:
    """Runs a job, as JSON, as the rank that the environment names."""
    import importlib

    torch = importlib.import_module("torch")
    for name in ("fsdp", "pipelining", "device_mesh"):
        with contextlib.suppress(ImportError):
            importlib.import_module(f"torch.distributed.{name}")
    job = json.loads(text)
    rank, ranks = int(os.environ["RANK"]), job["ranks"]
    cuda = job["device"] == "cuda"
    device = torch.device(f"cuda:{rank}" if cuda else "cpu")
    torch.set_num_threads(1)
    if cuda:
        torch.cuda.set_device(device)
    if ranks > 1:
        torch.distributed.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=f"file://{job['meet']}",
            rank=rank,
            world_size=ranks,
        )
    found = {"exchanges": exchanges, "steps": steps}[job["do"]](job, torch, device)
    if ranks > 1:
        torch.distributed.destroy_process_group()
    if rank == 0:
        Path(job["out"]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
