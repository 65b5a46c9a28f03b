"""Times optimizers' steps, clamped activations and narrow GEMMs by themselves, as a CSV.

    python tests/benchmarks/single_operators.py --out operators.csv

Only torch is needed; what its version or the accelerator lacks is printed and left out. On a CPU
(--device cpu) sizes shrink, and times mean nothing: it shows that every case runs.

One H200 (2026-11-27, torch 2.11.0, CUDA 13.0), TFLOP/s of products of 4,096 and 8,192: BF16 690 and
788; FP8 by tensor 1,098 and 1,464, by row 1,110 and 1,508 (exact sums 1,016 and 1,388): here rows
cost nothing. Weights in 4 bits by tinygemm's kernel, one row: 25 and 41 us, BF16 35 and 60. SwiGLU:
648 us, 598 compiled; clamped with biases 2,374, compiled 611: four times the bytes. AdamW of Llama
3.2 1B: 8.5 ms fused (3.2 TB/s), 20.8 by lists; torch.optim.Muon 100 ms, of 8 layers of 8B 296 ms.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

REPEATS = 10
#: Matrices of a layer (rows, columns), and layers.
MODELS = {
    "llama3_2_1b": (
        (
            *((2048, 2048), (512, 2048), (512, 2048), (2048, 2048)),
            *((8192, 2048), (8192, 2048), (2048, 8192)),
        ),
        16,
    ),
    "llama3_8b, 8 layers": (
        (
            *((4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096)),
            *((14336, 4096), (14336, 4096), (4096, 14336)),
        ),
        8,
    ),
}
SQUARES = (4096, 8192)
#: GPT-OSS: width of an expert; rows are tokens times the experts of each.
EXPERT_WIDTH, EXPERT_ROWS = 2880, 4 * 8192


@dataclass(frozen=True)
class Place:
    """Where to run, and by how much to divide every size."""

    device: str
    shrink: int

    def size(self, full: int) -> int:
        return max(16, full // self.shrink)

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device=self.device).to(dtype)


def seconds(call: Callable[[], object], device: str) -> float:
    """Median time of a call."""
    times = []
    for _ in range(3 + REPEATS):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[3:])


Case = tuple[str, Callable[[], Callable[[], object]], float, float]  # name, maker, flop, bytes


def optimizer_cases(place: Place) -> Iterator[Case]:
    """A step of AdamW, fused and not, and of Muon, over the matrices of blocks."""

    def made(kind: str, shapes: tuple[tuple[int, int], ...], layers: int) -> Callable[[], object]:
        weights = [
            torch.nn.Parameter(place.random(*map(place.size, shape), dtype=torch.float32))
            for _ in range(layers if place.shrink == 1 else 1)
            for shape in shapes
        ]
        for weight in weights:
            weight.grad = 1e-3 * torch.randn_like(weight)
        if kind == "muon":
            return torch.optim.Muon(weights, lr=1e-3).step
        return torch.optim.AdamW(weights, lr=1e-4, fused=kind == "adamw fused").step

    for model, (shapes, layers) in MODELS.items():
        count = layers * sum(rows * columns for rows, columns in shapes)
        newton_schulz = layers * sum(
            5 * (4 * min(shape) ** 2 * max(shape) + 2 * min(shape) ** 3) for shape in shapes
        )
        yield f"{model}: adamw fused", partial(made, "adamw fused", shapes, layers), 0, 28 * count
        yield f"{model}: adamw foreach", partial(made, "adamw", shapes, layers), 0, 28 * count
        yield f"{model}: muon", partial(made, "muon", shapes, layers), newton_schulz, 0


def clamped(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The activation of GPT-OSS, operation by operation."""
    gate = gate.clamp(max=7.0)
    up = up.clamp(min=-7.0, max=7.0)
    return (up + 1) * (gate * torch.sigmoid(1.702 * gate))


def plain(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def activation_cases(place: Place) -> Iterator[Case]:
    """Gated activations of routed rows forward and back, eager and compiled."""
    rows, width = place.size(EXPERT_ROWS), place.size(EXPERT_WIDTH)

    def made(function: Callable[..., torch.Tensor], compiled: bool) -> Callable[[], object]:
        inputs = [place.random(rows, width).requires_grad_() for _ in range(2)]
        gradient = place.random(rows, width)
        run = torch.compile(function) if compiled else function
        return lambda: torch.autograd.grad(run(*inputs), inputs, gradient)

    for function in (plain, clamped):
        for compiled in (False, True):
            if compiled and place.device == "cpu":
                continue
            name = f"{function.__name__} swiglu {'compiled' if compiled else 'eager'}"
            # Least: two in and one out; back, two and the gradient in, two out.
            yield name, partial(made, function, compiled), 0, 8 * 2 * rows * width


def gemm_cases(place: Place) -> Iterator[Case]:
    """FP8 GEMMs by how their operands are scaled, BF16 beside them; INT4 weights at one row."""
    scaled: Any = torch._scaled_mm

    def bf16(n: int) -> Callable[[], object]:
        a, b = place.random(n, n), place.random(n, n).t()
        return lambda: a @ b

    def fp8(n: int, by_row: bool, quick: bool) -> Callable[[], object]:
        a = place.random(n, n, dtype=torch.float32).to(torch.float8_e4m3fn)
        b = place.random(n, n, dtype=torch.float32).to(torch.float8_e4m3fn).t()
        one = partial(torch.ones, device=place.device)
        scales = (one(n, 1), one(1, n)) if by_row else (one(()), one(()))
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": quick}
        return lambda: scaled(a, b, *scales, **options)

    def int4(n: int) -> Callable[[], object]:
        a = place.random(1, n)
        values = torch.randint(0, 255, (n, n // 2), dtype=torch.uint8, device=place.device)
        packed = torch.ops.aten._convert_weight_to_int4pack(values, 8)
        scales = place.random(n // 128, n, 2)
        return lambda: torch.ops.aten._weight_int4pack_mm(a, packed, 128, scales)

    def row(n: int) -> Callable[[], object]:
        a, b = place.random(1, n), place.random(n, n).t()
        return lambda: a @ b

    for full in SQUARES:
        n = place.size(full)
        flop = 2.0 * n**3
        yield f"bf16 {n}", partial(bf16, n), flop, 6 * n**2
        for by_row in (False, True):
            for quick in (True, False):
                name = f"fp8 {n} by {'row' if by_row else 'tensor'}, fast sum {quick}"
                yield name, partial(fp8, n, by_row, quick), flop, 4 * n**2
        yield f"bf16 1 x {n}", partial(row, n), 2 * n**2, 2 * n**2
        yield f"int4 1 x {n}", partial(int4, n), 2 * n**2, n**2 / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    place = Place(arguments.device, 1 if arguments.device == "cuda" else 32)
    torch.manual_seed(0)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("torch", "case", "time_us", "tflop_s", "least_gb_s"))
        for cases in (gemm_cases, activation_cases, optimizer_cases):
            for name, made, flop, least in cases(place):
                try:
                    time_s = seconds(made(), place.device)
                except Exception as error:  # what is not there must not cost the others
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                    continue
                row = (f"{time_s * 1e6:.2f}", f"{flop / time_s / 1e12:.2f}")
                writer.writerow((torch.__version__, name, *row, f"{least / time_s / 1e9:.1f}"))
                file.flush()
                print(f"{name}: {time_s * 1e6:.1f} us", flush=True)


if __name__ == "__main__":
    main()
