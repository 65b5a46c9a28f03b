"""Better hardware never hurts the best strategy of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import resolve

TASK = sm.Training(global_batch=256, sequence=4096)
MODELS = ("llama3_8b", "llama2_70b", "mixtral_8x7b")

#: Path of a field of the cluster that makes it faster when it grows.
RATES = (
    ("fabric", "bandwidth_bytes_per_s"),
    ("scale_up", "bandwidth_bytes_per_s"),
    ("accelerator", "memory_bandwidth_bytes_per_s"),
    ("accelerator", "host_bandwidth_bytes_per_s"),
    ("accelerator", "peak"),
)


def grid(experts: bool) -> Iterator[sm.Strategy]:
    for tp, pp, sharding, recompute in itertools.product(
        (1, 2, 4, 8), (1, 2, 4), ("zero1", "zero3"), ("none", "selective", "full")
    ):
        for ep in (1, 8) if experts else (1,):
            yield sm.Strategy(tp=tp, pp=pp, ep=ep, sharding=sharding, recompute=recompute)


@lru_cache(maxsize=4)
def base() -> _core.Cluster:
    return sm.cluster("dgx_h100", nodes=8).core


def faster(cluster: _core.Cluster, rate: tuple[str, str], factor: float) -> _core.Cluster:
    owner, name = rate
    part: Any = getattr(cluster, owner)
    if name == "peak":
        changed = part.replace(
            peak_flop_per_s=[factor * peak for peak in part.peak_flop_per_s],
            gemm=part.gemm.replace(
                reference_peak_flop_per_s=factor * part.gemm.reference_peak_flop_per_s
            ),
        )
    else:
        changed = part.replace(**{name: factor * getattr(part, name)})
    return cluster.replace(**{owner: changed})


def estimates(model: str, cluster: _core.Cluster) -> list[_core.Estimate]:
    tables = _core.Tables(sm.model(model).core, cluster, TASK.core, resolve.stack("plain"))
    return [tables.estimate(strategy) for strategy in grid(model.startswith("mixtral"))]


def best_s(model: str, cluster: _core.Cluster) -> float:
    return min(
        (e.step_time_s for e in estimates(model, cluster) if e.verdict == "ok"),
        default=float("inf"),
    )


@lru_cache(maxsize=8)
def usual_best_s(model: str) -> float:
    return best_s(model, base())


@settings(max_examples=25)
@given(
    model=st.sampled_from(MODELS),
    rate=st.sampled_from(RATES),
    factor=st.floats(1, 20),
)
def test_a_faster_part_never_hurts_the_best(
    model: str, rate: tuple[str, str], factor: float
) -> None:
    assert best_s(model, faster(base(), rate, factor)) <= usual_best_s(model) * (1 + 1e-12)


@settings(max_examples=15)
@given(model=st.sampled_from(MODELS), factor=st.floats(1, 8))
def test_more_capacity_never_hurts_the_best(model: str, factor: float) -> None:
    accelerator = base().accelerator
    roomy = base().replace(
        accelerator=accelerator.replace(
            memory_capacity_bytes=factor * accelerator.memory_capacity_bytes
        )
    )
    assert best_s(model, roomy) <= usual_best_s(model)


@pytest.mark.parametrize("model", MODELS)
def test_a_larger_grid_never_has_a_worse_best(model: str) -> None:
    found = [e.step_time_s for e in estimates(model, base()) if e.verdict == "ok"]
    assert min(found) <= min(found[::2])


@pytest.mark.parametrize("model", MODELS)
def test_more_accelerators_never_slow_the_best_at_a_fixed_batch(model: str) -> None:
    before_s = float("inf")
    for nodes in (4, 8, 16):
        now_s = best_s(model, base().replace(accelerators=8 * nodes))
        assert now_s <= before_s
        before_s = now_s


@settings(max_examples=50)
@given(
    model=st.sampled_from(MODELS),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    sharding=st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_shares_add_up(model: str, tp: int, pp: int, sharding: str, recompute: str) -> None:
    plan = sm.Strategy(tp=tp, pp=pp, sharding=sharding, recompute=recompute)
    est = sm.estimate(model, sm.cluster("dgx_h100", nodes=8), TASK, plan)
    assert est.breakdown().time_s.sum() == pytest.approx(est.step_time_s, rel=1e-12)
    assert est.memory().bytes.sum() == pytest.approx(est.memory_bytes, rel=1e-12)
    assert est.tokens_per_s * est.step_time_s == pytest.approx(256 * 4096)
    assert 0 < est.mfu_fraction <= est.hfu_fraction < 1
