"""Shapes to measure: each shows one constant of a kernel apart from the others."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration.design import most_informative
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator

# Ranges of (m, n, k) and the share of samples drawn from each. Each range shows one constant of
# the tile form: launch (little work), the shortest tile step (few tiles of middling depth, as
# Ampere and Ada have it, and deep ones, as Hopper and Blackwell have it; one tile of great depth),
# memory bandwidth (skinny n), peak at sustained clocks (milliseconds long) and at burst clocks.
# For an accelerator of the catalogue the samples are those of many candidates that show its
# constants best: 40 with 3 % noise leave the tile step 1.7-2.2 % wrong (root mean square of 100
# draws) and the others 1.1-1.7 % (A100, H100, H200, B200, GB200, L40S).
# Sizes are multiples of 16, as those of layers are: where rows are not whole 16 bytes a library
# takes kernels of a fifth to a third of the rate, which tell nothing of the constants.
_GEMM_STEP = 16
_GEMM_RANGES: tuple[tuple[float, tuple[tuple[int, int], ...]], ...] = (
    (0.100, ((16, 512), (16, 1024), (16, 64))),
    (0.275, ((240, 640), (140, 500), (600, 1600))),
    (0.200, ((280, 600), (300, 800), (3000, 7500))),
    (0.050, ((16, 32), (16, 32), (32768, 61440))),
    (0.100, ((8192, 16384), (16, 64), (16384, 45000))),
    (0.150, ((8192, 16384), (8192, 16384), (16384, 36864))),
    (0.125, ((2048, 5000), (1536, 4096), (1536, 3072))),
)
_CANDIDATES = 2000  # at least; and ten of each sample
# Of each phase: ranges of batch and of 16-token blocks, and choices of query heads and of heads per
# key/value head. As above, each shows one constant: tried on the kernels of A100, H100, B200, L40S.
_ATTENTION_RANGES: dict[str, tuple[tuple[Any, Any, Any, Any], ...]] = {
    "prefill": (
        ((1, 2), (1, 2), (1, 2), (1,)),
        ((1, 1), (250, 650), (1,), (1,)),
        ((1, 8), (1024, 2048), (16, 32), (4, 8)),
    ),
    "encoder": (
        ((1, 2), (1, 2), (1, 2), (1,)),
        ((1, 1), (110, 250), (1,), (1,)),
        ((1, 8), (1024, 2048), (16, 32), (4, 8)),
    ),
    "decode": (
        ((1, 3), (1, 2), (1, 2, 4), (1, 2)),
        ((90, 160), (1, 3), (64, 128), (1, 2)),
        ((16, 128), (512, 2048), (32, 64), (4, 8)),
    ),
}
ELEMENTWISE_OPS = ("add", "mul", "gelu", "ln", "softmax")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


def log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, at random in its logarithm.

    Examples
    --------
    >>> log_uniform(np.random.default_rng(0), 8, 8)
    8
    """
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def multiple_of_step(rng: np.random.Generator, low: int, high: int) -> int:
    """A multiple of 16 from low to high, at random in its logarithm.

    Examples
    --------
    >>> multiple_of_step(np.random.default_rng(0), 64, 64)
    64
    """
    return _GEMM_STEP * log_uniform(rng, -(-low // _GEMM_STEP), high // _GEMM_STEP)


def _drawn(count: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    edges = np.cumsum([share for share, _ in _GEMM_RANGES])
    shapes = []
    for index in range(count):
        part = int(np.searchsorted(edges, (index + 0.5) / count * edges[-1]))
        ranges = _GEMM_RANGES[part][1]
        m, n, k = (multiple_of_step(rng, low, high) for low, high in ranges)
        shapes.append((m, n, k))
    return shapes


def gemm_shapes(
    count: int, accelerator: str | None = None, *, seed: int = 0
) -> list[tuple[int, int, int]]:
    """Shapes (m, n, k) that show launch, tile step, peak and memory bandwidth apart.

    All three are multiples of 16: rows that are not whole 16 bytes run on slower kernels, which
    are no measure of what layers run.

    Parameters
    ----------
    count : int
        How many.
    accelerator : str, optional
        Name or label of a catalogue entry: the shapes that show its constants best. Without it, or
        where the catalogue has no tile form for it, a mixture of what shows them anywhere.
    seed : int
        Of the draws.

    Examples
    --------
    >>> len(gemm_shapes(40)), gemm_shapes(40) == gemm_shapes(40, seed=0)
    (40, True)
    >>> gemm_shapes(8, "H100") == gemm_shapes(8, "A100")
    False
    """
    rng = np.random.default_rng(seed)
    core = None
    if accelerator is not None:
        with contextlib.suppress(ScaleModelError):
            core = build_accelerator(accelerator_table(accelerator))
    if core is None or not core.gemm.tiled:
        return _drawn(count, rng)
    candidates = np.unique(_drawn(max(_CANDIDATES, 10 * count), rng), axis=0)
    chosen = most_informative(core, candidates, count, rng)
    return [(int(m), int(n), int(k)) for m, n, k in chosen]


def elementwise_shapes(count: int, *, seed: int = 0) -> list[tuple[str, int, int]]:
    """Operations and matrices (op, rows, cols): additions, activations, norms, softmax in turn."""
    rng = np.random.default_rng(seed)
    return [
        (
            ELEMENTWISE_OPS[index % len(ELEMENTWISE_OPS)],
            log_uniform(rng, 64, 32768),
            8 * log_uniform(rng, 64, 2048),
        )
        for index in range(count)
    ]


def attention_shapes(count: int, *, seed: int = 0) -> list[dict[str, int | str]]:
    """Calls of attention: prefill (causal), decode (one query) and encoder (not causal) in turn.

    In each phase in turn: little work (launch), one long chain of tiles (tile step) and much work
    (rate of the tensor cores; bandwidth where there is one query).
    """
    rng = np.random.default_rng(seed)
    shapes: list[dict[str, int | str]] = []
    for index in range(count):
        phase = ("prefill", "decode", "encoder")[index % 3]
        batches, blocks, heads, groups = _ATTENTION_RANGES[phase][index // 3 % 3]
        sequence = 16 * log_uniform(rng, *blocks)
        query_heads = int(rng.choice(heads))
        shapes.append(
            {
                "phase": phase,
                "batch": log_uniform(rng, *batches),
                "seq_q": 1 if phase == "decode" else sequence,
                "seq_kv": sequence,
                "heads": query_heads,
                "kv_heads": max(1, query_heads // int(rng.choice(groups))),
                "head_dim": int(rng.choice([64, 128])),
                "causal": int(phase == "prefill"),
            }
        )
    return shapes


def collective_sizes(count: int) -> list[int]:
    """Buffer sizes from 1 KiB to 1 GiB, evenly spaced in their logarithm, multiples of 1 KiB.

    Examples
    --------
    >>> collective_sizes(3)
    [1024, 1048576, 1073741824]
    """
    return [1024 * max(1, round(2 ** (20 * index / max(1, count - 1)))) for index in range(count)]


def rank_counts(world: int, per_node: int) -> list[int]:
    """Sizes of the groups to measure: powers of two inside a node, whole nodes beyond, all ranks.

    Examples
    --------
    >>> rank_counts(16, 8), rank_counts(6, 6)
    ([2, 4, 8, 16], [2, 4, 6])
    """
    powers = [2**i for i in range(1, 31) if 2**i <= world]
    kept = [n for n in powers if n <= per_node or n % per_node == 0]
    return sorted({*kept, *([world] if world > 1 else [])})
