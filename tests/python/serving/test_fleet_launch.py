"""Planned fleets as commands and objects: every replica, the longest request, the router."""

from __future__ import annotations

import dataclasses
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


def below_the_caches(trace: Any, setup: str, engine: str, **options: Any) -> Any:
    """The launch of a fleet with tiers, of a trace whose prompts have names."""
    count = 200
    named = sm.Trace(
        np.arange(count) / 20,
        np.full(count, 1024),
        np.full(count, 50),
        block_tokens=512,
        block_offsets=2 * np.arange(count + 1),
        block_ids=np.ravel(np.column_stack([np.arange(count) % 5, 1000 + np.arange(count)])),
    )
    plan = planned(named, engine=engine, tiers=[setup], **options)
    assert plan.tiers == setup
    return plan, plan.launch()


@pytest.mark.parametrize(
    ("setup", "engine", "expected"),
    [
        ("vllm_offloading", "vllm_v1", {"--kv-offloading-backend": "native"}),
        ("lmcache", "vllm_v1", {"--kv-offloading-backend": "lmcache"}),
        ("hicache", "sglang", {"--hicache-write-policy": "write_through"}),
        ("hicache_3fs", "sglang", {"--hicache-storage-backend": "hf3fs"}),
        ("hicache_mooncake", "sglang", {"--hicache-storage-backend": "mooncake"}),
    ],
)
def test_engines_get_their_options_of_tiers(
    trace: Any, setup: str, engine: str, expected: dict[str, str]
) -> None:
    plan, told = below_the_caches(trace, setup, engine)
    command = told.commands["dgx_h100 tp1"]
    assert {name: option(command, name) for name in expected} == expected
    host = plan.served.tiers[0].capacity_bytes
    if engine == "vllm_v1":
        assert float(option(command, "--kv-offloading-size")) == pytest.approx(
            host / 2**30, rel=1e-5
        )
    else:
        assert int(option(command, "--hicache-size")) == int(host / 1e9) > 1
        assert "--enable-hierarchical-cache" in command
        assert "--disable-radix-cache" not in command
    assert not any("tiers" in note for note in told.notes)


@pytest.mark.parametrize(
    ("setup", "engine"),
    [("hicache", "vllm_v1"), ("vllm_offloading", "sglang"), ("hicache", "tensorrt_llm")],
)
def test_tiers_of_another_engine_are_a_note(trace: Any, setup: str, engine: str) -> None:
    _, told = below_the_caches(trace, setup, engine)
    assert sum(f"tiers {setup}" in note for note in told.notes) == 1
    assert "cache-size" not in told.commands["dgx_h100 tp1"]


def test_pools_say_what_their_commands_do_not(trace: Any) -> None:
    _, told = below_the_caches(trace, "vllm_offloading", "vllm_v1", pools=True)
    assert any("by a connector of their own" in note for note in told.notes)
    assert "--kv-offloading-size" not in " ".join(told.commands.values())


def scaled(plan: FleetPlan, scaler: Any, decode: Any = None) -> FleetPlan:
    return dataclasses.replace(plan, autoscaler=scaler, decode_autoscaler=decode)


@pytest.mark.parametrize(
    ("engine", "signal", "query"),
    [
        ("vllm_v1", "queue", 'sum(vllm:num_requests_waiting{pod=~"chat-[a-z0-9]+-[a-z0-9]+"})'),
        ("sglang", "kv_cache", 'sum(sglang:token_usage{pod=~"chat-[a-z0-9]+-[a-z0-9]+"})'),
    ],
)
def test_an_autoscaler_is_an_object_beside_the_deployment(
    trace: Any, engine: str, signal: str, query: str
) -> None:
    plan = planned(trace, engine=engine)
    (part,) = plan.parts
    scaler = sm.Autoscaler(
        signal=signal, target=0.5, min_replicas=2, interval_s=20, down_window_s=120, tolerance=0.2
    )
    told = scaled(plan, scaler).launch("kubernetes", name="chat")
    objects = {each["kind"]: each for each in yaml.safe_load_all(*told.files.values())}
    spec = objects["ScaledObject"]["spec"]
    assert objects["ScaledObject"]["apiVersion"] == "keda.sh/v1alpha1"
    assert spec["scaleTargetRef"] == {"name": objects["Deployment"]["metadata"]["name"]}
    assert "replicas" not in objects["Deployment"]["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, part.count)
    assert spec["pollingInterval"] == 20
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == {"scaleDown": {"stabilizationWindowSeconds": 120}}
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    assert trigger["metadata"]["query"] == query
    assert trigger["metadata"]["threshold"] == "0.5"
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert ("--enable-metrics" in container["args"]) == (engine == "sglang")
    assert any("tolerance=0.2" in note for note in told.notes)


def test_pools_are_scaled_apart(trace: Any) -> None:
    plan = planned(trace, pools=True)
    queue = sm.Autoscaler(signal="queue", target=2, min_replicas=1, down_window_s=7200)
    running = sm.Autoscaler(signal="requests", target=24, min_replicas=1)
    told = scaled(plan, queue, running).launch("kubernetes", name="chat")
    objects = list(yaml.safe_load_all(*told.files.values()))
    scalers = {o["metadata"]["name"]: o["spec"] for o in objects if o["kind"] == "ScaledObject"}
    assert set(scalers) == {"chat-prefill", "chat-decode"}
    query = scalers["chat-decode"]["triggers"][0]["metadata"]["query"]
    assert query.count(" + ") == 1
    assert "num_requests_running" in query
    assert any("looks back 3600 s at most" in note for note in told.notes)
    alone = scaled(plan, None, running).launch("kubernetes", name="chat")
    kinds = [each["kind"] for each in yaml.safe_load_all(*alone.files.values())]
    assert kinds.count("ScaledObject") == 1


def test_notes_say_what_no_command_does(trace: Any) -> None:
    scaler = sm.Autoscaler(target=20, startup_s=1, interval_s=1)
    plan = scaled(planned(trace), scaler)
    assert f"replicas are the most there are: {scaler}" in plan.launch().notes
    silent = scaled(planned(trace, engine="tensorrt_llm"), scaler).launch("kubernetes", name="chat")
    assert "ScaledObject" not in " ".join(silent.files.values())
    assert f"chat: replicas are the most there are: {scaler}" in silent.notes
    # One rule over several kinds is none of Kubernetes.
    mixed = dataclasses.replace(plan, parts=plan.parts * 2).launch("kubernetes", name="chat")
    assert "ScaledObject" not in " ".join(mixed.files.values())
    assert f"replicas are the most there are: {scaler}" in mixed.notes


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
