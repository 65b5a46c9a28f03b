"""Trains decoders on packs of unequal sequences, and on equal ones of the same sum of squares.

    python tests/benchmarks/packed_steps.py

Attention of N tokens costs as the sum of the squares of their lengths: equal sequences of
E[l^2] / E[l] tokens should take as long (`scalemodel.Rl.equal_length`). On one H200 with torch
2.11.0 (2026-11-27), packs of 32,768 tokens took this much longer than equal ones: Llama 3.2 1B
0.8 % (spread 0.8) and 0.5 % (1.5), Qwen3 0.6B 4.1 % and 2.6 %.
"""

from __future__ import annotations

import math
import random
import statistics
import time

import torch
import training_steps
from torch.nn.attention.varlen import varlen_attn

TOKENS = 32768
MEAN = 2000
STEPS = 5


class Packed(training_steps.Block):
    """A block whose sequences attend to themselves alone, wherever they lie in the pack."""

    ends: torch.Tensor
    longest = 0

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        copies = self.run.heads // self.run.kv_heads
        k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
        out = varlen_attn(
            *flat, Packed.ends, Packed.ends, Packed.longest, Packed.longest, window_size=(-1, 0)
        )
        return out.unflatten(0, (q.shape[0], q.shape[2])).transpose(1, 2)


def unequal(spread: float) -> list[int]:
    """Log-normal lengths that fill a pack."""
    draw, normal = random.Random(1), statistics.NormalDist()
    lengths: list[int] = []
    while sum(lengths) < TOKENS:
        factor = math.exp(spread * normal.inv_cdf(draw.random()) - spread**2 / 2)
        lengths.append(min(TOKENS - sum(lengths), max(16, int(MEAN * factor))))
    return lengths


def equal(length: int) -> list[int]:
    """Equal lengths that fill a pack, the last one what is left."""
    rest = TOKENS % length
    return [length] * (TOKENS // length) + ([rest] if rest else [])


def step_s(run: training_steps.Run, lengths: list[int]) -> float:
    """Seconds of a step over one pack."""
    ends = torch.tensor([0, *lengths]).cumsum(0)
    Packed.ends, Packed.longest = ends.to(device="cuda", dtype=torch.int32), max(lengths)
    _, _, step = training_steps.prepared(run)
    for repeat in range(3 + STEPS):
        if repeat == 3:
            torch.cuda.synchronize()
            start = time.perf_counter()
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def main() -> None:
    torch.set_float32_matmul_precision("high")
    training_steps.Block = Packed
    for model in (training_steps._LLAMA_1B, training_steps._QWEN):
        run = model(TOKENS, 1, compiled=False, recompute="full")
        for spread in (0.8, 1.5):
            lengths = unequal(spread)
            alike = round(sum(length**2 for length in lengths) / TOKENS)
            packed, same = step_s(run, lengths), step_s(run, equal(alike))
            print(f"{run.model}, spread {spread}: {packed:.4f} s, equal of {alike}: {same:.4f} s")


if __name__ == "__main__":
    main()
