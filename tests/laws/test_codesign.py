"""Laws of co-design: better hardware never hurts, and every row can be had again."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.codesign import (
    best_design,
    codesign,
    design_cluster,
    design_strategy,
    exchange_rate,
    invert,
    iso_performance,
    sensitivity,
)

TASK = sm.Training(global_batch=64, sequence=4096)
MODELS = ("llama3_8b", "llama2_13b", "mixtral_8x7b")
#: More of any of these is better.
BETTER = (
    "accelerator.peak",
    "accelerator.compute.bf16",
    "accelerator.memory.bandwidth",
    "accelerator.memory.capacity",
    "accelerator.host.bandwidth",
    "scale_up.bandwidth",
    "fabric.bandwidth",
)
ANSWERS = ("verdict", "tp", "pp", "sharding", "step_time_s", "memory_bytes", "energy_j")


@lru_cache(maxsize=1)
def base() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=2)


@lru_cache(maxsize=1)
def space() -> Any:
    return sm.Space(
        tp=[1, 2, 4, 8],
        pp=[1, 2, 4],
        cp=1,
        ep=1,
        etp=0,
        vpp=1,
        micro_batch=[1, 2],
        sharding=["zero1", "zero3"],
        recompute=["none", "full"],
        context="ring",
        sequence_parallel=True,
        offload_optimizer=[False, True],
        placement="tp-cp-dp-pp",
    )


def study(model: str, **given: Any) -> pd.DataFrame:
    return codesign(model, base(), TASK, space(), threads=1, **given)


def same_cells(left: pd.Series, right: pd.Series) -> bool:
    """Equality of rows, bit for bit, where <NA> equals <NA>."""
    pairs = zip(left, right, strict=True)
    return list(left.index) == list(right.index) and all(
        (pd.isna(a) and pd.isna(b)) or a == b for a, b in pairs
    )


@settings(max_examples=25)
@given(
    model=st.sampled_from(MODELS),
    path=st.sampled_from(BETTER),
    low=st.floats(0.3, 3),
    factor=st.floats(1, 20),
)
def test_more_never_hurts_the_best(model: str, path: str, low: float, factor: float) -> None:
    before, after = study(model, vary={path: [low, low * factor]}).itertuples()
    if before.verdict == "ok":
        assert after.verdict == "ok"
        assert after.step_time_s <= before.step_time_s * (1 + 1e-12)


@settings(max_examples=6)
@given(model=st.sampled_from(MODELS), path=st.sampled_from(BETTER))
def test_scale_one_is_the_search_on_the_base(model: str, path: str) -> None:
    (row,) = study(model, vary={path: 1}).to_dict("records")
    ranking = sm.search(model, base(), TASK, space(), top=1)
    assert {name: row[name] for name in ranking[0].row()} == ranking[0].row()
    assert row[path] * row[f"{path}_scale"] == row[path]


@settings(max_examples=8)
@given(
    scales=st.lists(st.floats(0.1, 8), min_size=1, max_size=3, unique=True),
    others=st.lists(st.floats(0.1, 8), min_size=1, max_size=3, unique=True),
    random=st.randoms(use_true_random=False),
)
def test_order_and_threads_change_nothing(
    scales: list[float], others: list[float], random: Any
) -> None:
    paths = ["accelerator.memory.bandwidth", "fabric.bandwidth"]
    forth = study("llama3_8b", vary=dict(zip(paths, (scales, others), strict=True)))
    random.shuffle(scales)
    random.shuffle(others)
    back = codesign(
        "llama3_8b",
        base(),
        TASK,
        space(),
        vary={paths[1]: others, paths[0]: scales},
        threads=2,
    )
    back = back[forth.columns].sort_values(paths)
    for (_, a), (_, b) in zip(forth.sort_values(paths).iterrows(), back.iterrows(), strict=True):
        assert same_cells(a, b)


@settings(max_examples=15)
@given(
    model=st.sampled_from(MODELS),
    scales=st.dictionaries(
        st.sampled_from([*BETTER[1:], "accelerator.power.tdp", "node.accelerators"]),
        st.floats(0.2, 5),
        min_size=1,
        max_size=4,
    ),
)
def test_a_row_can_be_had_again(model: str, scales: dict[str, float]) -> None:
    row = study(model, vary=scales).iloc[0]
    cluster = design_cluster(base(), row)
    assert cluster == design_cluster(base(), scales)
    if row["verdict"] == "ok":
        est = sm.estimate(model, cluster, TASK, design_strategy(row))
        again = est.row()
        assert {name: row[name] for name in again} == again
        assert est.step_time_s == row["objective"]
    else:
        assert len(sm.search(model, cluster, TASK, space(), top=1)) == 0


@settings(max_examples=10)
@given(
    path=st.sampled_from(["accelerator.peak", "accelerator.memory.bandwidth", "fabric.bandwidth"]),
    part=st.floats(0.05, 0.95),
)
def test_inversion_finds_the_least_that_does(path: str, part: float) -> None:
    worst, best = study("llama3_8b", vary={path: [0.25, 4]})["step_time_s"]
    target = worst**part * best ** (1 - part)
    row = invert(
        "llama3_8b", base(), TASK, space(), path=path, target=target, low=0.25, high=4, threads=1
    )
    if best == worst:
        assert row is not None
        assert row[f"{path}_scale"] == 0.25
        return
    assert row is not None
    assert row["step_time_s"] <= target
    less = study("llama3_8b", vary={path: row[f"{path}_scale"] * (1 - 2e-4)})
    assert less["step_time_s"][0] > target


@settings(max_examples=6)
@given(
    path=st.sampled_from(BETTER),
    step=st.floats(0.05, 1),
    objective=st.sampled_from(["step_time_s", "energy_j", "tokens_per_s"]),
)
def test_searching_again_is_never_worse_than_keeping_the_plan(
    path: str, step: float, objective: str
) -> None:
    table = sensitivity(
        "llama2_13b",
        base(),
        TASK,
        space(),
        paths=[path],
        step=step,
        objective=objective,
        threads=1,
    )
    sign = -1 if objective == "tokens_per_s" else 1
    for end in ("low", "high"):
        kept, searched = table[f"fixed_{end}_value"][0], table[f"{end}_value"][0]
        if not pd.isna(kept):
            assert sign * searched <= sign * kept


@given(
    a=st.floats(0.1, 2),
    b=st.floats(0.1, 2),
    level=st.floats(0.2, 5),
)
def test_exchange_rates_of_a_power_law_are_exact(a: float, b: float, level: float) -> None:
    scales = [0.25, 0.5, 1.0, 3.0, 8.0]
    table = pd.DataFrame(
        [(x, y, x**-a * y**-b) for x in scales for y in scales], columns=["x", "y", "step_time_s"]
    )
    grid = iso_performance(table, x="x", y="y")
    assert grid["substitution"].to_numpy(dtype=float) == pytest.approx(a / b)
    for row in exchange_rate(grid, x="x", y="y", levels=[level]).itertuples():
        needed = (level * row.x**a) ** (-1 / b)
        if pd.isna(row.y):
            assert needed > 8 * (1 - 1e-9)
        elif row.at_edge:
            assert row.y == 0.25
            assert needed <= 0.25 * (1 + 1e-9)
        else:
            assert row.y == pytest.approx(needed)


@given(
    costs=st.lists(st.integers(0, 20), min_size=1, max_size=30),
    limit=st.integers(0, 20),
    data=st.data(),
)
def test_the_best_within_a_budget_is_the_best_of_those_that_keep_it(
    costs: list[int], limit: int, data: Any
) -> None:
    times = data.draw(st.lists(st.integers(1, 9), min_size=len(costs), max_size=len(costs)))
    fits = data.draw(st.lists(st.booleans(), min_size=len(costs), max_size=len(costs)))
    table = pd.DataFrame(
        {
            "verdict": ["ok" if ok else "infeasible" for ok in fits],
            "design_cost": costs,
            "objective": pd.array(
                [t if ok else None for t, ok in zip(times, fits, strict=True)], "Float64"
            ),
        }
    )
    chosen = best_design(table, budget=f"design_cost <= {limit}")
    kept = [t for t, c, ok in zip(times, costs, fits, strict=True) if ok and c <= limit]
    if not kept:
        assert chosen is None
    else:
        assert chosen is not None
        assert chosen["objective"] == min(kept)
        assert chosen["design_cost"] <= limit
        assert math.isfinite(chosen["objective"])
