"""Closed form and timeline: two fidelities, one meaning; and what every timeline obeys."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel import catalog

TASK = sm.Training(global_batch=512, sequence=4096)
LAYERS = 48


@lru_cache(maxsize=4)
def cluster() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=8)


@lru_cache(maxsize=8)
def equal_layers(name: str) -> sm.Model:
    """A model of the catalogue with 48 layers and next to no vocabulary: equal stages."""
    shape = {**catalog.load("models", name)["architecture"], "layers": LAYERS, "vocab": 64}
    return sm.model({"name": f"{name}_regular", "architecture": shape})


def estimate_of(knobs: dict[str, Any]) -> sm.Estimate:
    model = equal_layers(knobs.pop("model"))
    return sm.estimate(model, cluster(), TASK, sm.Strategy(**knobs))


@st.composite
def regular(draw: st.DrawFn) -> sm.Estimate:
    """An estimate of equal stages: whole groups of micro-batches that fill the pipeline."""
    pp = draw(st.sampled_from([1, 2, 4, 8]))
    vpp = draw(st.sampled_from([1, 2, 3])) if pp > 1 else 1
    schedules = ["1f1b"] if vpp > 1 else ["1f1b", "gpipe", "zero_bubble"]
    knobs = {
        "model": draw(st.sampled_from(["llama3_8b", "llama2_70b", "mixtral_8x7b", "gpt3_175b"])),
        "tp": draw(st.sampled_from([1, 2, 4, 8])),
        "pp": pp,
        "vpp": vpp,
        "schedule": draw(st.sampled_from(schedules)),
        "micro_batch": draw(st.sampled_from([1, 2])),
        "sharding": draw(st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"])),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "offload_optimizer": draw(st.booleans()),
        "overlap_grad_reduce": draw(st.booleans()),
        "overlap_param_gather": draw(st.booleans()),
    }
    est = estimate_of(knobs)
    assume(not est.illegal)
    batches = round(est.micro_batches)
    assume(batches >= pp and (vpp == 1 or batches % pp == 0))
    return est


@settings(max_examples=150)
@given(est=regular())
def test_timeline_and_closed_form_agree(est: sm.Estimate) -> None:
    assert est.timeline().step_time_s == pytest.approx(est.step_time_s, rel=0.005)


@settings(max_examples=40)
@given(est=regular())
def test_memory_peaks_as_estimated(est: sm.Estimate) -> None:
    peak = est.timeline().memory.groupby("rank").max()
    assert peak.memory_bytes.max() >= est.memory_bytes * (1 - 1e-9)
    if est.strategy.vpp == 1 or est.memory_logits_bytes == 0:
        # Chunks without the head have the temporary space of the stage to themselves.
        here = peak.loc[est.fullest_stage]
        for column in (c for c in peak.columns if c.startswith("memory_")):
            assert here[column] == pytest.approx(getattr(est, column), rel=1e-9), column


@settings(max_examples=25)
@given(est=regular())
def test_events_of_a_stream_never_overlap(est: sm.Estimate) -> None:
    assume(est.micro_batches * est.strategy.pp <= 512)
    timeline = est.timeline()
    slack_s = 1e-9 * timeline.step_time_s
    for _, rows in timeline.events.groupby(["rank", "stream"], observed=True):
        end_s = (rows.start_s + rows.duration_s).to_numpy()
        assert (rows.start_s.to_numpy()[1:] >= end_s[:-1] - slack_s).all()
        assert end_s[-1] <= timeline.step_time_s + slack_s
        assert rows.start_s.iloc[0] >= 0


@settings(max_examples=25)
@given(est=regular())
def test_critical_path_is_the_step(est: sm.Estimate) -> None:
    timeline = est.timeline()
    path = timeline.critical_path()
    ends_s = np.cumsum(path.duration_s)
    assert path.start_s.iloc[0] == 0
    assert np.allclose(path.start_s[1:], ends_s[:-1], rtol=1e-9, atol=1e-12)
    assert ends_s.iloc[-1] == pytest.approx(timeline.step_time_s)


@settings(max_examples=20)
@given(est=regular(), factor=st.floats(1, 3), data=st.data())
def test_the_slowest_stage_paces_the_step(
    est: sm.Estimate, factor: float, data: st.DataObject
) -> None:
    stages = est.strategy.pp
    stage = data.draw(st.integers(0, stages - 1))
    plain_s = est.timeline().step_time_s
    one_s = est.timeline(
        slowdown=[factor if s == stage else 1.0 for s in range(stages)]
    ).step_time_s
    all_s = est.timeline(slowdown=[factor] * stages).step_time_s
    assert plain_s * (1 - 1e-12) <= one_s <= all_s * (1 + 1e-12)
    assert all_s <= factor * plain_s * (1 + 1e-12)


@settings(max_examples=20)
@given(est=regular())
def test_sending_by_need_never_slows_a_regular_step(est: sm.Estimate) -> None:
    assert est.timeline(priority="by_need").step_time_s <= est.timeline().step_time_s


@settings(max_examples=20)
@given(est=regular())
def test_no_contention_is_never_slower(est: sm.Estimate) -> None:
    plain_s = est.timeline().step_time_s
    assert est.timeline(contention=False).step_time_s <= plain_s * (1 + 1e-12)


@settings(max_examples=15)
@given(est=regular())
def test_what_is_sent_is_received(est: sm.Estimate) -> None:
    events = est.timeline().events
    kinds = events.kind.astype(str)
    for what in ("activations", "gradients"):
        sent = events[(kinds == f"send_{what}").to_numpy()]
        received = events[(kinds == f"receive_{what}").to_numpy()]
        assert len(sent) == len(received)
        assert sent.bytes.sum() == received.bytes.sum()
        assert sorted(sent.start_s) == sorted(received.start_s)
