"""Measured kernels and collectives: one module per kind, each with a function `predict`."""

from __future__ import annotations

from typing import NamedTuple


class OperatorPrediction(NamedTuple):
    """Predicted time of one row, or why there is none.

    Attributes
    ----------
    time_us : float or None
        One call, as the benchmark of the table saw it; finite and positive.
    skip_reason : str
        Empty exactly when `time_us` is given.
    note : str
        Assumptions made for missing cells.
    """

    time_us: float | None
    skip_reason: str = ""
    note: str = ""
