"""Trains decoders for a few steps on one accelerator, as a table for `scalemodel validate`.

    python tests/benchmarks/training_steps.py --out steps.csv [--seconds 300] [NAME ...]
    scalemodel validate --kind training steps.csv --out predicted.csv

Only torch is needed to measure. Weights are FP32 and cast by autocast to BF16, the optimizer is
fused AdamW, gradients are clipped; blocks are compiled one by one where a row says so. A row is
written as soon as it is measured; with --kernels DIRECTORY, the kernels of one step beside it.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WARM_UP = 4
STEPS = 8
COLUMNS = (
    *("row_id", "source", "year", "framework", "model", "model_family", "n_layers", "hidden"),
    *("n_heads", "n_kv_heads", "head_dim", "ffn", "gated_ffn", "vocab", "params_B", "moe_experts"),
    *("moe_topk", "moe_shared", "moe_ffn", "task", "seq_len", "micro_batch", "global_batch"),
    *("precision", "precision_class", "gpu", "gpu_mem_GB", "n_gpus", "gpus_per_node", "tp", "pp"),
    *("dp", "cp", "ep", "sharding", "recompute", "flash_attn", "seq_parallel", "other_flags"),
    *("status", "norm_step_time_s", "norm_basis", "memory_GB", "memory_basis"),
    "optimizer_s",
)


@dataclass(frozen=True)
class Run:
    """One row: a decoder, its batch, and how it runs."""

    model: str
    family: str  # "llama" (RMS norm, rotary, gated) or "gpt" (layer norm, learned positions, GELU)
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    ffn: int
    vocab: int
    sequence: int
    micro_batch: int
    micro_batches: int = 1
    compiled: bool = True
    recompute: str = ""  # "full" blocks, "mlp" (feed-forward and its norm), "core_attn", or nothing
    optimizer: str = "adamw"  # or "muon": matrices of blocks by Newton-Schulz, the rest by AdamW
    tied: bool = False
    qk_norm: bool = False
    experts: int = 0
    top_k: int = 0

    @property
    def name(self) -> str:
        return (
            f"{self.model}-{self.layers}l-s{self.sequence}-b{self.micro_batch}x{self.micro_batches}"
            f"-{'compiled' if self.compiled else 'eager'}"
            f"{'-recompute' if self.recompute else ''}"
            f"{f'_{self.recompute}' if self.recompute not in ('', 'full') else ''}"
            f"{'-muon' if self.optimizer == 'muon' else ''}"
        )


_LLAMA_1B = partial(Run, "llama3_2_1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, tied=True)
_LLAMA_3B = partial(Run, "llama3_2_3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, tied=True)
_LLAMA_8B = partial(Run, "llama3_8b", "llama", 8, 4096, 32, 8, 128, 14336, 128256)
_QWEN = partial(
    Run, "qwen3_0_6b", "llama", 28, 1024, 16, 8, 128, 3072, 151936, tied=True, qk_norm=True
)
_GPT_SMALL = partial(Run, "gpt2_small", "gpt", 12, 768, 12, 12, 64, 3072, 50257, tied=True)
_GPT_MEDIUM = partial(Run, "gpt2_medium", "gpt", 24, 1024, 16, 16, 64, 4096, 50257, tied=True)
_GPT_PADDED = partial(
    Run, "gpt2_medium, vocabulary padded", "gpt", 24, 1024, 16, 16, 64, 4096, 50304, tied=True
)
_GPT_XL = partial(Run, "gpt2_xl", "gpt", 48, 1600, 25, 25, 64, 6400, 50257, tied=True)
_PHI = partial(Run, "phi_3_mini", "llama", 8, 3072, 32, 32, 96, 8192, 32064)
_GEMMA = partial(Run, "gemma_2b", "llama", 18, 2048, 8, 1, 256, 16384, 256000, tied=True)
_EXPERTS = partial(
    Run, "olmoe_1b_7b", "llama", 4, 2048, 16, 16, 128, 1024, 50304, experts=64, top_k=8
)

RUNS = (
    _LLAMA_1B(4096, 2),
    _GPT_XL(1024, 8, compiled=False),
    _LLAMA_8B(8192, 1, recompute="full"),
    _QWEN(4096, 4),
    _LLAMA_1B(2048, 4, compiled=False),
    _LLAMA_3B(4096, 1, recompute="full"),
    _GPT_MEDIUM(1024, 16),
    _LLAMA_1B(16384, 1, recompute="full"),
    _EXPERTS(4096, 2, compiled=False),
    _LLAMA_1B(2048, 1, 8),
    _GPT_XL(1024, 4),
    _GPT_MEDIUM(1024, 4, compiled=False),
    _QWEN(1024, 8, compiled=False),
    _LLAMA_8B(2048, 4),
    _LLAMA_3B(8192, 1, recompute="full"),
    _EXPERTS(2048, 8, compiled=False),
    _GPT_PADDED(1024, 16),
    _LLAMA_8B(4096, 2, recompute="full"),
    _LLAMA_3B(2048, 2),
    _QWEN(8192, 2),
    _LLAMA_1B(8192, 2),
    _GPT_SMALL(1024, 32),
    _GEMMA(2048, 4, recompute="full"),
    _EXPERTS(1024, 4, compiled=False),
    _LLAMA_1B(8192, 1, compiled=False),
    _GPT_SMALL(1024, 32, compiled=False),
    _GPT_PADDED(1024, 16, compiled=False),
    _LLAMA_8B(2048, 1, 4),
    _LLAMA_1B(4096, 2, optimizer="muon"),
    _QWEN(4096, 4, optimizer="muon"),
    _LLAMA_8B(4096, 1, optimizer="muon"),
    _GPT_XL(1024, 4, optimizer="muon"),
    *(
        model(sequence, batch, recompute=recompute)
        for model, sequence, batch in (
            (_LLAMA_1B, 4096, 4),
            (_LLAMA_3B, 4096, 2),
            (_GPT_MEDIUM, 1024, 32),
        )
        for recompute in ("", "core_attn", "mlp", "full")
    ),
    _PHI(4096, 2),
    _LLAMA_1B(32768, 1, recompute="full"),
)


class Norm(nn.Module):
    """RMS norm of llamas, layer norm of GPTs."""

    def __init__(self, run: Run, width: int | None = None) -> None:
        super().__init__()
        width = width or run.hidden
        self.shape = (width,)
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if run.family == "gpt" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return functional.rms_norm(x, self.shape, self.weight.to(x.dtype), 1e-5)
        return functional.layer_norm(
            x, self.shape, self.weight.to(x.dtype), self.bias.to(x.dtype), 1e-5
        )


#: Keeps the inputs of a call alone and repeats it before its backward pass.
again = partial(checkpoint, use_reentrant=False)


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions of queries or keys (batch, heads, sequence, width)."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(x.dtype)


class Experts(nn.Module):
    """Routed gated experts as grouped multiplications."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.top_k = run.top_k
        self.router = nn.Linear(run.hidden, run.experts, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(run.experts, run.hidden, 2 * run.ffn))
        self.down = nn.Parameter(0.02 * torch.randn(run.experts, run.ffn, run.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        shares, chosen = self.router(tokens).float().softmax(-1).topk(self.top_k, dim=-1)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=self.up.shape[0])
        ends = counts.cumsum(0).to(torch.int32)
        rows = tokens[order // self.top_k]
        gate, up = torch._grouped_mm(rows, self.up.bfloat16(), offs=ends).chunk(2, dim=-1)
        out = torch._grouped_mm(functional.silu(gate) * up, self.down.bfloat16(), offs=ends)
        out = out * shares.flatten()[order, None].to(out.dtype)
        return torch.zeros_like(tokens).index_add(0, order // self.top_k, out).view_as(x)


class FeedForward(nn.Module):
    """Gated SiLU of llamas, GELU of GPTs."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.gated = run.family == "llama"
        bias = not self.gated
        self.up = nn.Linear(run.hidden, run.ffn, bias=bias)
        self.gate = nn.Linear(run.hidden, run.ffn, bias=bias) if self.gated else None
        self.down = nn.Linear(run.ffn, run.hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.gate is None:
            return self.down(functional.gelu(self.up(x), approximate="tanh"))
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and feed-forward, each after a norm and beside the residual stream."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        bias = run.family == "gpt"
        width, kv_width = run.heads * run.head, run.kv_heads * run.head
        self.attention_norm, self.feed_norm = Norm(run), Norm(run)
        if bias:
            self.qkv = nn.Linear(run.hidden, 3 * width)
        else:
            self.query = nn.Linear(run.hidden, width, bias=False)
            self.key = nn.Linear(run.hidden, kv_width, bias=False)
            self.value = nn.Linear(run.hidden, kv_width, bias=False)
        self.out = nn.Linear(width, run.hidden, bias=bias)
        self.feed = Experts(run) if run.experts else FeedForward(run)
        self.norms = nn.ModuleList([Norm(run, run.head) for _ in range(2)] if run.qk_norm else [])

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        run = self.run
        y = self.attention_norm(x)
        if run.family == "gpt":
            q, k, v = self.qkv(y).chunk(3, dim=-1)
        else:
            q, k, v = self.query(y), self.key(y), self.value(y)
        q = q.unflatten(-1, (run.heads, run.head))
        k = k.unflatten(-1, (run.kv_heads, run.head))
        v = v.unflatten(-1, (run.kv_heads, run.head)).transpose(1, 2)
        if run.qk_norm:
            q, k = self.norms[0](q), self.norms[1](k)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
        if run.family == "llama":
            q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        y = (
            again(self.attended, q, k, v)
            if run.recompute == "core_attn"
            else self.attended(q, k, v)
        )
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + (again(self.fed, x) if run.recompute == "mlp" else self.fed(x))

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        grouped = self.run.kv_heads != self.run.heads
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

    def fed(self, x: torch.Tensor) -> torch.Tensor:
        return self.feed(self.feed_norm(x))


class Decoder(nn.Module):
    """A decoder with its loss."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.embedding = nn.Embedding(run.vocab, run.hidden)
        gpt = run.family == "gpt"
        self.positions = nn.Embedding(run.sequence, run.hidden) if gpt else None
        self.blocks = nn.ModuleList(Block(run) for _ in range(run.layers))
        self.norm = Norm(run)
        self.head = nn.Linear(run.hidden, run.vocab, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)
        if run.tied:
            self.head.weight = self.embedding.weight
        place = torch.arange(run.sequence)[:, None]
        turn = place / 1e4 ** (torch.arange(0, run.head, 2) / run.head)
        self.register_buffer("cosine", turn.cos(), persistent=False)
        self.register_buffer("sine", turn.sin(), persistent=False)
        self.loss: Callable[..., torch.Tensor] = cross_entropy

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        x = x.bfloat16()
        for block in self.blocks:
            if self.run.recompute == "full":
                x = again(block, x, self.cosine, self.sine)
            else:
                x = block(x, self.cosine, self.sine)
        return self.loss(self.head(self.norm(x)), labels)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Loss in FP32 of BF16 logits."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def optimizers(run: Run, model: Decoder) -> list[torch.optim.Optimizer]:
    """What updates the parameters: matrices of blocks by Muon where the run asks for it."""
    matrices = [weight for weight in model.blocks.parameters() if weight.dim() == 2]
    if run.optimizer == "adamw":
        return [torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=1e-3),
        torch.optim.AdamW(others, lr=1e-4, fused=True),
    ]


def update_s(updates: list[torch.optim.Optimizer], model: Decoder) -> float:
    """Seconds of the optimizer alone, of gradients that are there."""
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight) + 1e-4
    for repeat in range(2 + STEPS):
        if repeat == 2:
            torch.cuda.synchronize()
            start = time.perf_counter()
        for optimizer in updates:
            optimizer.step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def prepared(run: Run) -> tuple[Decoder, list[torch.optim.Optimizer], Callable[[], float]]:
    """The model, its optimizers, and a call that makes one step and returns its loss.

    The call does not wait for the loss.
    """
    with torch.device("cuda"):
        model = Decoder(run)
    if run.compiled:
        for block in model.blocks:
            block.compile(fullgraph=True)
        model.loss = torch.compile(cross_entropy, fullgraph=True)
    updates = optimizers(run, model)
    shape = (run.micro_batch, run.sequence)

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        for _ in range(run.micro_batches):
            tokens = torch.randint(run.vocab, shape, device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(tokens, tokens)
            (loss / run.micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in updates:
            optimizer.step()
        return loss

    return model, updates, step


def kernels(step: Callable[[], object]) -> list[dict[str, object]]:
    """Kernels of one step by name: how many, and their time in microseconds together."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            sums[event.name][0] += 1
            sums[event.name][1] += event.time_range.elapsed_us()
    order = sorted(sums, key=lambda name: -sums[name][1])
    return [{"kernel": name, "count": sums[name][0], "time_us": sums[name][1]} for name in order]


def measured(run: Run, directory: Path | None) -> dict[str, object]:
    """The row of a run."""
    torch.manual_seed(0)
    gc.collect()  # models are in cycles: the one before would count as this one's memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model, updates, step = prepared(run)
    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        loss = step()
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - start) / STEPS
    if not bool(torch.isfinite(torch.as_tensor(loss))):
        raise RuntimeError(f"{run.name}: the loss is not finite")
    reserved = torch.cuda.max_memory_reserved()
    allocated = torch.cuda.max_memory_allocated()
    if directory is not None:
        text = json.dumps(kernels(step), indent=0)
        (directory / f"{run.name}.json").write_text(text, encoding="utf-8")
    device = torch.cuda.get_device_properties(0)
    return {
        "row_id": run.name,
        "source": f"training_steps.py, torch {torch.__version__}, CUDA {torch.version.cuda}",
        "year": time.strftime("%Y"),
        "framework": f"PyTorch {torch.__version__.split('+')[0]}",
        "model": run.model if run.model != "llama3_8b" else f"{run.model} of {run.layers} layers",
        "model_family": run.family,
        "n_layers": run.layers,
        "hidden": run.hidden,
        "n_heads": run.heads,
        "n_kv_heads": run.kv_heads,
        "head_dim": run.head,
        "ffn": run.ffn,
        "gated_ffn": int(run.family == "llama"),
        "vocab": run.vocab,
        "params_B": sum(weight.numel() for weight in model.parameters()) / 1e9,
        "moe_experts": run.experts,
        "moe_topk": run.top_k,
        "moe_shared": 0,
        "moe_ffn": run.ffn if run.experts else "",
        "task": "pretrain",
        "seq_len": run.sequence,
        "micro_batch": run.micro_batch,
        "global_batch": run.micro_batch * run.micro_batches,
        "precision": "bf16",
        "precision_class": "16bit",
        "gpu": torch.cuda.get_device_name(),
        "gpu_mem_GB": round(device.total_memory / 1e9),
        **dict.fromkeys(("n_gpus", "gpus_per_node", "tp", "pp", "dp", "cp", "ep"), 1),
        "sharding": "none",
        "recompute": run.recompute or "none",
        "flash_attn": "yes",
        "seq_parallel": "no",
        "other_flags": ";".join(
            (
                "autocast",
                "compile=blocks" if run.compiled else "eager;norm kernel",
                *(["grouped_mm"] if run.experts else []),
                *(["optimizer=muon"] if run.optimizer == "muon" else []),
            )
        ),
        "status": "ok",
        "norm_step_time_s": step_s,
        "norm_basis": "step_time",
        "memory_GB": reserved / 1e9,
        "memory_basis": f"reserved; allocated {allocated / 1e9:.2f} GB",
        "optimizer_s": update_s(updates, model),
    }


def rows(names: list[str], seconds: float, directory: Path | None) -> Iterator[dict[str, object]]:
    """Rows of the named runs, of all without names, until the time is spent."""
    start = time.monotonic()
    for run in RUNS:
        if names and run.name not in names and run.model not in names:
            continue
        if time.monotonic() - start > seconds:
            print(f"{run.name}: no time left", flush=True)
            continue
        begin = time.monotonic()
        try:
            row = measured(run, directory)
        except Exception as error:  # one run that does not fit must not cost the others
            print(f"{run.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        else:
            print(
                f"{run.name}: {row['norm_step_time_s']:.4f} s, {row['memory_GB']:.1f} GB "
                f"(took {time.monotonic() - begin:.0f} s)",
                flush=True,
            )
            yield row
        torch.compiler.reset()
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a run or a model; default: all")
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after these")
    parser.add_argument("--kernels", type=Path, help="folder for the kernels of one step of each")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if arguments.kernels is not None:
        arguments.kernels.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows(arguments.names, arguments.seconds, arguments.kernels):
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
