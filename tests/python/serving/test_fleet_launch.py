"""Planned fleets as commands and objects: every replica, the longest request, the router."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import FleetPlan

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")


@pytest.fixture(scope="module")
def trace() -> sm.RequestStream:  # type: ignore[name-defined]
    task = sm.Inference(input_tokens=1000, output_tokens=200)
    return sm.request_stream(task, requests=600, requests_per_s=60, lengths="exponential", seed=1)


def planned(trace: Any, clusters: Any = "dgx_h100", **options: Any) -> FleetPlan:
    limits = {"ttft_p95_s": 0.5, "tpot_s": 0.02}
    plan = sm.plan_fleet(trace, "llama3_8b", clusters, limits, **options)
    assert isinstance(plan, FleetPlan)
    assert plan.fits
    return plan


def option(command: str, name: str) -> str:
    words = shlex.split(command)
    return words[words.index(name) + 1]


@pytest.mark.parametrize(
    ("engine", "router", "policy"),
    [
        ("vllm_v1", "round_robin", "round_robin"),
        ("vllm_v1", "least_loaded", "power_of_two"),
        ("sglang", "least_loaded", "power_of_two"),
        ("vllm_v1", "kv_cost", "cache_aware"),
        ("vllm_v1", "weighted_scorers", "cache_aware"),
    ],
)
def test_commands_start_every_replica_and_their_router(
    trace: Any, engine: str, router: str, policy: str
) -> None:
    plan = planned(trace, engine=engine, routers=[router])
    told = plan.launch()
    (count,) = plan.counts.values()
    assert count > 1
    words = shlex.split(told.commands["router"])
    assert sum(word.startswith("http://dgx-h100-tp1-") for word in words) == count
    assert option(told.commands["router"], "--policy") == policy
    assert f"dgx_h100 tp1: {count} replicas, each started so" in told.notes
    assert (policy == router) != any(router in note for note in told.notes)
    # No request of the trace is longer than what the engine takes.
    longest = int((trace.input_tokens + trace.output_tokens).max())
    name = {"vllm_v1": "--max-model-len", "sglang": "--context-length"}[engine]
    assert int(option(told.commands["dgx_h100 tp1"], name)) == longest


def test_an_engine_without_a_router_says_so(trace: Any) -> None:
    told = planned(trace, engine="tensorrt_llm").launch()
    assert list(told.commands) == ["dgx_h100 tp1"]
    assert any("brings no router" in note for note in told.notes)


def test_a_single_replica_needs_no_router(trace: Any) -> None:
    plan = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"tpot_s": 1.0})
    assert isinstance(plan, FleetPlan)
    assert plan.counts == {"dgx_h100 tp1": 1}
    assert list(plan.launch().commands) == ["dgx_h100 tp1"]


def test_objects_have_the_replicas_of_every_kind(trace: Any) -> None:
    plan = planned(trace)
    (count,) = plan.counts.values()
    (text,) = plan.launch("kubernetes", name="chat").files.values()
    first = next(iter(yaml.safe_load_all(text)))
    assert (first["kind"], first["metadata"]["name"]) == ("Deployment", "chat")
    assert first["spec"]["replicas"] == count
    mixed = FleetPlan(
        plan.parts * 2, plan.router, plan.served, plan.values, 1.0, 1, plan.limits
    ).launch("kubernetes", name="chat")
    assert sorted(mixed.files) == ["chat-0.yaml", "chat-1.yaml"]


def test_pools_have_a_router_of_both(trace: Any) -> None:
    told = planned(trace, pools=True).launch()
    assert {"prefill", "decode", "router"} <= set(told.commands)
    assert "--vllm-pd-disaggregation" in told.commands["router"]


def test_notes_say_what_no_command_does(trace: Any) -> None:
    scaler = sm.Autoscaler(target=20, startup_s=1, interval_s=1)
    plan = planned(trace, tiers=["hicache"], autoscalers=[scaler])
    notes = " ".join(plan.launch().notes)
    assert "tiers hicache" in notes
    assert (plan.autoscaler is not None) == ("Autoscaler(" in notes)


def test_what_cannot_be_started_is_told(trace: Any) -> None:
    plan = planned(trace)
    with pytest.raises(sm.ScaleModelError, match="target='slurm': must be command or kubernetes"):
        plan.launch("slurm")
    none = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"tpot_s": 1e-4})
    with pytest.raises(sm.ScaleModelError, match="no fleet keeps the limits"):
        none.launch()  # type: ignore[union-attr]
    assert "all that dgx_h100 hold; more nodes hold more" in none.message  # type: ignore[union-attr]


def test_a_fleet_that_is_lost_for_good_loses_its_requests(trace: Any) -> None:
    plan = planned(trace)
    (part,) = plan.parts
    middle = float(trace.arrival_s[-1]) / 2
    gone = sm.Outage(begin_s=middle, end_s=1e12, first=0, count=part.count)
    served = sm.simulate_fleet(trace, [(part.plan, part.count)], outages=[gone])
    table = served.requests
    assert (table.why_refused[table.arrival_s > middle] == "lost").all()
    calm = sm.simulate_fleet(trace, [(part.plan, part.count)])
    assert (served.refused == (calm.finished_s > middle)).all()
    assert served.totals.makespan_s < 2 * float(trace.arrival_s[-1])
    assert np.isfinite(served.finished_s).all()
