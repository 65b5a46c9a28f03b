"""The solver of mixed-integer programs: right, silent, and stopped by an interrupt."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.routing import mixed_integer
from scalemodel.routing.mixed_integer import Program, solve


@pytest.fixture(params=["highspy", "scipy"])
def solver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip(request.param)
    if request.param == "scipy":
        monkeypatch.setattr(mixed_integer, "_highspy", lambda: None)
    return str(request.param)


def drawn(seed: int, *, whole: bool = True) -> Program:
    """A cover of some rows by six variables of 0 or 1, of random costs."""
    random = np.random.default_rng(seed)
    rows, columns = np.nonzero(random.random((4, 6)) < 0.5)
    one = np.ones(6)
    return Program(
        cost=random.integers(1, 9, 6).astype(float),
        lower=0 * one,
        upper=one,
        whole=np.full(6, whole),
        rows=np.r_[rows, rows],
        columns=np.r_[columns, columns],  # twice, so that the factors add up to what is drawn
        factors=np.tile(random.integers(1, 5, len(rows)) / 2, 2),
        low=random.integers(0, 5, 4).astype(float),
        high=np.full(4, np.inf),
    )


def least(program: Program) -> float:
    """By trying all values."""
    matrix = np.zeros((len(program.low), len(program.cost)))
    np.add.at(matrix, (program.rows, program.columns), program.factors)
    tried = np.array(list(itertools.product((0.0, 1.0), repeat=len(program.cost))))
    good = (matrix @ tried.T >= program.low[:, None]).all(axis=0)
    return float((tried[good] @ program.cost).min()) if good.any() else np.inf


def test_it_finds_the_least_of_all_values(solver: str) -> None:
    programs = [drawn(seed) for seed in range(40)]
    found = [solve(program, 60.0) for program in programs]
    wanted = [least(program) for program in programs]
    assert 0 < sum(np.isinf(wanted)) < 40, solver
    assert [one.objective for one in found] == pytest.approx(wanted)
    assert [one.infeasible for one in found] == [bool(np.isinf(one)) for one in wanted]
    for one, program, objective in zip(found, programs, wanted, strict=True):
        assert (one.values is None) == one.infeasible
        if one.values is not None:
            assert one.bound == pytest.approx(objective)
            assert float(one.values @ program.cost) == pytest.approx(objective)


def test_fractions_cost_no_more(solver: str) -> None:
    gaps = []
    for seed in range(40):
        whole = least(drawn(seed))
        if np.isfinite(whole):
            gaps.append(whole - solve(drawn(seed, whole=False), 60.0).objective)
    assert min(gaps) > -1e-9, solver
    assert max(gaps) > 0.1


def test_it_says_nothing(solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert solve(drawn(0), 60.0).message, solver
    assert capfd.readouterr() == ("", "")


def hard() -> Program:
    """400 items of random weights into 20 equal bins: minutes of work."""
    random = np.random.default_rng(0)
    items, bins = 400, 20
    weights = 1 + random.random(items)
    item, place = np.divmod(np.arange(items * bins), bins)
    count = items * bins
    last = np.r_[np.zeros(count), 1.0]
    return Program(
        cost=last,
        lower=0 * last,
        upper=np.where(last > 0, np.inf, 1.0),
        whole=last == 0,
        rows=np.r_[item, items + place, items + np.arange(bins)],
        columns=np.r_[np.arange(count), np.arange(count), np.full(bins, count)],
        factors=np.r_[np.ones(count), weights[item], -np.ones(bins)],
        low=np.r_[np.ones(items), np.full(bins, -np.inf)],
        high=np.r_[np.ones(items), np.zeros(bins)],
    )


@pytest.mark.parametrize("after_s", [0.3, 1.5])
def test_an_interrupt_stops_the_solver_too(after_s: float) -> None:
    pytest.importorskip("highspy")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    alive = set(threading.enumerate())
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            solve(hard(), 600.0)
    finally:
        signal.signal(signal.SIGINT, before)
    timer.join()
    ended_s = time.monotonic() + 60  # of a busy machine; without being told it takes ten minutes
    while set(threading.enumerate()) - alive:
        assert time.monotonic() < ended_s
        time.sleep(0.01)


def test_without_a_solver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_integer, "_highspy", lambda: None)
    monkeypatch.setattr(mixed_integer, "_scipy", lambda: None)
    with pytest.raises(sm.ScaleModelError, match=r"HiGHS \(pip install 'scalemodel\[milp\]'\)"):
        solve(drawn(0), 60.0)
