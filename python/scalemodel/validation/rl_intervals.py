"""How far published steps of reinforcement learning are from their predictions."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import scalemodel._core as _core
from scalemodel.validation.errors import cells_of, positive
from scalemodel.validation.residuals import COVERAGE

if TYPE_CHECKING:
    import pandas as pd


class RlSpread(NamedTuple):
    """The factor between a predicted step and either end of its interval, and what it is of."""

    factor: float
    rows: int
    groups: int


def rl_spread(frame: pd.DataFrame) -> RlSpread:
    """The factor that the next kind of run keeps to in four of five cases.

    Runs of one framework and model err alike: each such group weighs the same, and the next run is
    of a group of its own. Constants of the frameworks have seen these runs, which the factor does
    not make up for.

    Parameters
    ----------
    frame : DataFrame
        Made by ``validate("rl")``.

    Examples
    --------
    >>> from scalemodel.validation import validate
    >>> spread = rl_spread(validate("rl"))
    >>> spread.rows, spread.groups, 1.5 < spread.factor < 2.5
    (46, 6, True)
    """
    columns = [cells_of(frame, name) for name in ("framework", "model", "quality")]
    times = [cells_of(frame, name) for name in ("step_time_s", "predicted_step_time_s")]
    found = []
    for framework, model, quality, *pair in zip(*columns, *times, strict=True):
        measured, predicted = (positive(value) for value in pair)
        if measured is not None and predicted is not None and str(quality) != "C":
            found.append(((framework, model), abs(math.log(measured / predicted))))
    counts = Counter(group for group, _ in found)
    sizes, weights = [size for _, size in found], [1 / counts[group] for group, _ in found]
    bound = float(_core.conformal_bound(sizes, weights, COVERAGE, next_weight=1))
    return RlSpread(math.exp(bound), len(found), len(counts))
