"""Mixed-integer programs, solved by HiGHS: of highspy, which can be stopped, else of SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalemodel.base.background import in_background
from scalemodel.base.errors import ScaleModelError

#: Of ``scipy.optimize.milp``.
_INFEASIBLE = 2


@dataclass(frozen=True)
class Program:
    """Minimise ``cost x`` where ``low <= A x <= high`` and ``lower <= x <= upper``.

    Attributes
    ----------
    cost, lower, upper : (variables,) array
    whole : (variables,) bool array
        Variables that are whole numbers.
    rows, columns, factors : (entries,) array
        Of A; entries of one place add up.
    low, high : (constraints,) array
    """

    cost: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    whole: NDArray[np.bool_]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    factors: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """What was found in time.

    Attributes
    ----------
    values : (variables,) array, optional
    objective : float
        Of these values.
    bound : float, optional
        No values have a smaller objective.
    infeasible : bool
        No values fulfil the constraints.
    message : str
        What the solver says.
    """

    values: NDArray[np.float64] | None
    objective: float
    bound: float | None
    infeasible: bool
    message: str


def check_solver() -> None:
    """ScaleModelError where neither solver is installed."""
    if _highspy() is None and _scipy() is None:
        raise ScaleModelError(
            "policy='milp': needs HiGHS (pip install 'scalemodel[milp]')", code="missing_extra"
        )


def _highspy() -> Any:
    try:
        import highspy
    except ImportError:
        return None
    return highspy


def _scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.sparse
    except ImportError:
        return None
    return scipy


def solve(program: Program, time_limit_s: float) -> Solution:
    """The best values that are found within a time.

    An interrupt leaves at once. The HiGHS of highspy hears of it and stops; that of SciPy goes on
    behind until its time is over.

    Parameters
    ----------
    program : Program
    time_limit_s : float

    Raises
    ------
    ScaleModelError : no solver is installed.

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("scipy")
    >>> one, none = np.ones(2), np.zeros(2)
    >>> at_least = Program(np.array([2.0, 1.0]), none, one, one > 0, np.array([0, 0]),
    ...                    np.array([0, 1]), one, np.array([0.5]), np.array([np.inf]))
    >>> solve(at_least, 10).objective
    1.0
    """
    check_solver()
    time_limit_s = max(time_limit_s, 0.0)
    highspy = _highspy()
    return (
        _by_scipy(program, time_limit_s)
        if highspy is None
        else _by_highspy(highspy, program, time_limit_s)
    )


def _by_scipy(p: Program, time_limit_s: float) -> Solution:
    scipy = _scipy()
    shape = (len(p.low), len(p.cost))
    matrix = scipy.sparse.csr_matrix((p.factors, (p.rows, p.columns)), shape=shape)
    answer = in_background(
        lambda: scipy.optimize.milp(
            p.cost,
            constraints=scipy.optimize.LinearConstraint(matrix, p.low, p.high),
            integrality=p.whole.astype(int),
            bounds=scipy.optimize.Bounds(p.lower, p.upper),
            options={"time_limit": time_limit_s},
        )
    )
    bound = getattr(answer, "mip_dual_bound", None)
    return Solution(
        answer.x,
        float("inf") if answer.fun is None else float(answer.fun),
        None if bound is None else float(bound),
        answer.status == _INFEASIBLE,
        str(answer.message),
    )


def _by_row(p: Program) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Where each row begins, columns and factors, each place once."""
    places, at = np.unique(p.rows * len(p.cost) + p.columns, return_inverse=True)
    factors = np.bincount(at, weights=p.factors, minlength=len(places))
    rows, columns = np.divmod(places, len(p.cost))
    begins = np.searchsorted(rows, np.arange(len(p.low)))
    return begins.astype(np.int32), columns.astype(np.int32), factors


def _by_highspy(highspy: Any, p: Program, time_limit_s: float) -> Solution:
    class Silent(highspy.Highs):  # type: ignore[misc]
        """A solver that says nothing: not even its name, which it prints with its callbacks."""

        def enableCallbacks(self) -> None:
            self.silent()
            super().enableCallbacks()

    begins, columns, factors = _by_row(p)
    solver = Silent()
    solver.setOptionValue("time_limit", time_limit_s)
    solver.passModel(
        *(len(p.cost), len(p.low), len(factors)),
        *(int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize), 0.0),
        *(p.cost, p.lower, p.upper, p.low, p.high, begins, columns, factors),
        p.whole.astype(np.int32),
    )
    solver.HandleUserInterrupt = True
    in_background(solver.run, solver.cancelSolve)
    info, status = solver.getInfo(), solver.getModelStatus()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Solution(
        np.array(solver.getSolution().col_value) if found else None,
        float(info.objective_function_value) if found else float("inf"),
        float(info.mip_dual_bound) if p.whole.any() else None,
        status == highspy.HighsModelStatus.kInfeasible,
        str(solver.modelStatusToString(status)),
    )
