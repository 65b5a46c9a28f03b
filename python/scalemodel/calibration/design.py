"""Which shapes to measure, so that few noisy timings show every constant of an accelerator.

Of many candidate shapes those are taken whose timings leave the least variance of the constants
(an A-optimal design, found by greedy exchange: Atkinson, Donev and Tobias, Optimum Experimental
Designs, 2007, chapters 10 and 12). The variance is that of a fit by least squares of logarithms
with equal noise; it is summed over the constants the accelerator begins from and over a few drawn
around them, because the true ones are not known before the measurement.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core

Numbers = NDArray[np.float64]
Shapes = NDArray[np.int64]

_FIELDS = ("launch_s", "tau_cycles", "burst_fraction", "sustained_fraction", "memory_fraction")
_STEP = 0.02  # of a constant, relative: wide enough to pass the corners of smooth maxima
_SPREAD = 0.3  # how far the true constants may lie from those the accelerator begins from
_DRAWS = 40
_POWER = 3  # of a constant's variance in the sum: above 1 so that the worst one counts
_FAINT = 1e-2  # information every constant begins with, so that the first choices are defined


def sensitivities(core: _core.Accelerator, shapes: Shapes, factors: Numbers) -> Numbers:
    """Change of the logarithm of time by that of each constant: (shapes, constants)."""
    tile = core.gemm.dense16
    here = {
        name: min(getattr(tile, name) * float(factor), 1.0 if "fraction" in name else np.inf)
        for name, factor in zip(_FIELDS, factors, strict=True)
    }
    m, n, k = shapes.T.astype(float)

    def log_time(**changes: float) -> Numbers:
        moved = core.replace(gemm=core.gemm.replace(dense16=tile.replace(**{**here, **changes})))
        return np.asarray(np.log(_core.gemm_time_s(moved, "bf16", m, n, k)))

    columns = [
        (log_time(**{name: value * (1 + _STEP)}) - log_time(**{name: value * (1 - _STEP)}))
        / (2 * _STEP)
        for name, value in here.items()
    ]
    return np.stack(columns, axis=1)


def _variance(information: Numbers, rows: Numbers, sign: float) -> Numbers:
    """Sum of powers of the variances once each row is added (+1) or taken away (-1)."""
    inverse = np.linalg.inv(information)
    moved = rows @ inverse
    scale = 1 + sign * np.einsum("ij,ij->i", moved, rows)
    left = np.diag(inverse) - sign * moved**2 / np.maximum(scale, 1e-9)[:, None]
    return np.asarray((left**_POWER).sum(axis=1))


def most_informative(
    core: _core.Accelerator, candidates: Shapes, count: int, rng: np.random.Generator
) -> Shapes:
    """Take the `count` candidates that show the constants of the accelerator's tile form best.

    Parameters
    ----------
    core : Accelerator
        With a tile form, whose constants are the prior.
    candidates : array of shape (many, 3)
        Sizes m, n, k of 16-bit multiplications, each row once; more than `count`.
    count : int
        How many to take.
    rng : numpy.random.Generator
        Draws the constants around the prior.

    Returns
    -------
    array of shape (count, 3)
    """
    spread = np.exp(rng.uniform(-_SPREAD, _SPREAD, (_DRAWS, len(_FIELDS))))
    spread[0] = 1
    views = [sensitivities(core, candidates, factors) for factors in spread]
    information = [_FAINT * np.eye(len(_FIELDS)) for _ in views]
    taken: list[int] = []

    def move(index: int, sign: float) -> None:
        for known, rows in zip(information, views, strict=True):
            known += sign * np.outer(rows[index], rows[index])

    def take() -> None:
        pairs: list[Any] = list(zip(information, views, strict=True))
        score = np.sum([_variance(known, rows, 1.0) for known, rows in pairs], axis=0)
        score[taken] = np.inf
        taken.append(int(score.argmin()))
        move(taken[-1], 1.0)

    for _ in range(count):
        take()
    for _ in range(min(count, 40)):  # exchange: the least useful one for what is best now
        pairs = list(zip(information, views, strict=True))
        score = np.sum([_variance(known, rows[taken], -1.0) for known, rows in pairs], axis=0)
        move(taken.pop(int(score.argmin())), -1.0)
        take()
    return np.asarray(candidates[np.sort(taken)])
