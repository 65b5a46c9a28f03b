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

_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "p2p")
_BURST = 4
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


def exchanges(job: Mapping[str, Any], torch: Any, device: Any) -> list[dict[str, Any]]:
    """Seconds of every operation and size on the slowest rank: the fastest of the bursts."""
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
            for _ in range(_WARM_UP):
                call()
            times_s = []
            for _ in range(job["repeats"]):
                distributed.barrier()
                begin = time.perf_counter()
                for _ in range(_BURST):
                    call()
                _wait(torch, device)
                times_s.append((time.perf_counter() - begin) / _BURST)
            slowest = torch.tensor(times_s, dtype=torch.float64, device=device)
            distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
            fastest_s = float(slowest.min()) / (2 if operation == "p2p" else 1)
            rows.append({"op": operation, "bytes": size_bytes, "time_us": 1e6 * fastest_s})
    return rows


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# ----------------------------------------------------------------------------------------- steps
def _modules(torch: Any) -> Any:
    """Classes of a decoder whose matrices may be split over the ranks of a tensor group."""
    nn, functional = torch.nn, torch.nn.functional

    class Copied(torch.autograd.Function):  # type: ignore[misc]
        """Identity forward; backward sums what every tensor rank found."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            gradient = gradient.contiguous()
            torch.distributed.all_reduce(gradient)
            return gradient

    class Summed(torch.autograd.Function):  # type: ignore[misc]
        """Sums over tensor ranks forward; identity backward."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            x = x.contiguous()
            torch.distributed.all_reduce(x)
            return x

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return gradient

    class Attention(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, heads: int, tp: int) -> None:
            super().__init__()
            self.heads, self.tp = heads // tp, tp
            self.qkv = nn.Linear(hidden, 3 * hidden // tp)
            self.out = nn.Linear(hidden // tp, hidden)

        def forward(self, x: Any) -> Any:
            x = Copied.apply(x) if self.tp > 1 else x
            parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
            q, k, v = (part.transpose(1, 2) for part in parts)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = self.out(y.transpose(1, 2).flatten(2))
            return Summed.apply(y) if self.tp > 1 else y

    class Mlp(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, ffn: int, tp: int) -> None:
            super().__init__()
            self.tp = tp
            self.up, self.down = nn.Linear(hidden, ffn // tp), nn.Linear(ffn // tp, hidden)

        def forward(self, x: Any) -> Any:
            x = Copied.apply(x) if self.tp > 1 else x
            y = self.down(functional.gelu(self.up(x)))
            return Summed.apply(y) if self.tp > 1 else y

    class Experts(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, hidden: int, ffn: int, experts: int, top_k: int) -> None:
            super().__init__()
            self.top_k = top_k
            self.router = nn.Linear(hidden, experts, bias=False)
            self.experts = nn.ModuleList(Mlp(hidden, ffn, 1) for _ in range(experts))

        def forward(self, x: Any) -> Any:
            tokens = x.flatten(0, 1)
            shares, chosen = self.router(tokens).softmax(-1).topk(self.top_k, dim=-1)
            order = chosen.flatten().argsort(stable=True)
            counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
            rows = tokens[order // self.top_k].split(counts)
            found = [one(part) for one, part in zip(self.experts, rows, strict=True)]
            out = torch.cat(found) * shares.flatten()[order, None]
            return torch.zeros_like(tokens).index_add(0, order // self.top_k, out).view_as(x)

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, model: Mapping[str, int], tp: int) -> None:
            super().__init__()
            hidden = model["hidden"]
            self.attention_norm, self.feed_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.attention = Attention(hidden, model["heads"], tp)
            experts = model.get("experts", 0)
            self.feed = (
                Experts(hidden, model["ffn"], experts, model["experts_per_token"])
                if experts
                else Mlp(hidden, model["ffn"], tp)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.attention_norm(x))
            return x + self.feed(self.feed_norm(x))

    class Stage(nn.Module):  # type: ignore[name-defined,misc]
        """Consecutive blocks of a decoder; the first has the embeddings, the last the LM head."""

        def __init__(self, model: Mapping[str, int], tp: int, stage: int, stages: int) -> None:
            super().__init__()
            hidden, vocab = model["hidden"], model["vocab"]
            first, last = stage == 0, stage == stages - 1
            self.tokens = nn.Embedding(vocab, hidden) if first else None
            self.places: Any = nn.Embedding(model["positions"], hidden) if first else None
            self.blocks = nn.ModuleList(Block(model, tp) for _ in range(model["layers"] // stages))
            self.norm: Any = nn.LayerNorm(hidden) if last else None
            self.head = nn.Linear(hidden, vocab, bias=False) if last else None

        def forward(self, x: Any) -> Any:
            if self.tokens is not None:
                x = self.tokens(x) + self.places.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return x if self.head is None else self.head(self.norm(x))

    return Stage


def _loss(torch: Any, logits: Any, labels: Any) -> Any:
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _stepper(job: Mapping[str, Any], torch: Any, device: Any) -> Callable[[], object]:
    """A call that makes one step of the configuration."""
    model, way, ranks = job["model"], job["way"], job["ranks"]
    rank = torch.distributed.get_rank() if ranks > 1 else 0
    stages, tp = (ranks if way == "pp" else 1), (ranks if way == "tp" else 1)
    torch.manual_seed(0)
    with device:
        stage = _modules(torch)(model, tp, rank if stages > 1 else 0, stages)
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
        schedule = pipelining.Schedule1F1B(part, job["micro_batches"], partial(_loss, torch))

        def pass_through() -> None:
            last = rank == ranks - 1
            schedule.step(*([tokens] if rank == 0 else []), **({"target": tokens} if last else {}))
    else:

        def pass_through() -> None:
            _loss(torch, trained(tokens), tokens).backward()

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
