"""The closed form of serving against the stream, request by request, over random deployments."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.resolve.engines import engine as known_engine
from scalemodel.serving import request_stream

MODELS = (
    "gemma2_9b",
    "mistral_7b",
    "llama3_8b",
    "llama3_70b",
    "qwen3_30b_a3b",
    "mixtral_8x7b",
    "gpt_oss_120b",
    "deepseek_v3",
    "llama3_1_405b",
)
CLUSTERS = ("dgx_a100", "dgx_h100", "dgx_h200", "dgx_b200")
ENGINES = (
    "vllm_v1",
    "sglang_2025",
    "tensorrt_llm_pytorch_2025",
    "tensorrt_llm_2025",
    "tensorrt_llm_triton_2024",
)
SEEDS = range(120)
REQUESTS = 20_000


class Deployment(NamedTuple):
    model: str
    cluster: str
    task: sm.Inference
    layout: sm.ServingLayout
    engine: str

    def serve(self, **ask: Any) -> Any:
        return sm.serve(
            self.model, self.cluster, self.task, self.layout, engine=self.engine, replicas=1, **ask
        )


def draw(random: np.random.Generator) -> Deployment:
    """A deployment that runs: any model, accelerator, engine, layout, format and lengths."""
    while True:
        model, cluster = str(random.choice(MODELS)), str(random.choice(CLUSTERS))
        newer = cluster != "dgx_a100"
        tp = int(random.choice([1, 2, 4, 8]))
        pp = int(random.choice([1, 1, 1, 2])) if tp < 8 else 1
        routed = sm.model(model).shape.experts > 0
        dp = int(random.choice([1, 1, 2])) if routed and tp * pp < 8 else 1
        task = sm.Inference(
            input_tokens=float(np.rint(np.exp(random.uniform(np.log(64), np.log(16_000))))),
            output_tokens=float(np.rint(np.exp(random.uniform(np.log(32), np.log(2000))))),
            precision=random.choice(["bf16", "fp8"]).item() if newer else "bf16",
            kv_precision=random.choice(["bf16", "fp8"]).item() if newer else "bf16",
            prefix_hit_fraction=float(random.choice([0, 0, 0, 0.5])),
            speculative_tokens=int(random.choice([0, 0, 0, 0, 1, 3])),
        )
        layout = sm.ServingLayout(tp=tp, pp=pp, dp=dp, ep=tp * dp if routed else 1)
        found = Deployment(model, cluster, task, layout, str(random.choice(ENGINES)))
        if found.serve().fits:
            return found


def highest_rate(deployment: Deployment) -> float:
    """Requests per second below which the closed form calls nothing saturated."""
    low, high = 0.0, float(deployment.serve().requests_per_s)
    for _ in range(12):
        middle = (low + high) / 2
        if deployment.serve(requests_per_s=middle).saturated:
            high = middle
        else:
            low = middle
    return low


def stream_of(deployment: Deployment, rate: float, seed: int) -> Any:
    """Long against the time that a request takes, the longer the rarer it waits for a slot."""
    plan = deployment.serve(requests_per_s=rate)
    few = 10 if plan.max_concurrency < 30 else 1
    requests = max(few * REQUESTS, int(60 * plan.concurrency))
    return request_stream(deployment.task, requests=requests, requests_per_s=rate, seed=seed)


@pytest.fixture(scope="module")
def errors() -> np.ndarray[Any, Any]:
    """Of the first token, time between tokens, concurrency and rate: closed form over stream."""
    rows = []
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        deployment = draw(random)
        rate = random.uniform(0.1, 0.6) * highest_rate(deployment)
        stream = stream_of(deployment, rate, seed)
        plan = deployment.serve(requests_per_s=stream.requests_per_s)
        found = plan.simulate(stream).summary()
        assert not plan.saturated
        names = ("ttft_mean_s", "tpot_mean_s", "concurrency", "requests_per_s")
        told = (plan.ttft_s, plan.tpot_s, plan.concurrency, plan.requests_per_s)
        rows.append([told[i] / found[name] - 1 for i, name in enumerate(names)])
        # Little's law holds in both: for answers under way, and for everyone in the system.
        steps = max(1.0, deployment.task.output_tokens - 1)
        assert plan.concurrency == pytest.approx(
            plan.requests_per_s * steps * plan.tpot_s, rel=1e-9
        )
        assert found["in_system"] == pytest.approx(
            found["requests_per_s"] * found["latency_mean_s"], rel=1e-9
        )
    return np.array(rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_closed_form_and_stream_agree_within_five_percent(
    seed: int, errors: np.ndarray[Any, Any]
) -> None:
    assert np.abs(errors[seed]) == pytest.approx(0, abs=0.05)


def test_closed_form_and_stream_agree_within_one_percent_as_a_rule(
    errors: np.ndarray[Any, Any],
) -> None:
    worst = np.abs(errors).max(axis=1)
    assert np.mean(worst < 0.03) >= 0.95
    assert np.mean(worst < 0.02) >= 0.9
    assert np.median(worst) < 0.01
    assert np.abs(errors.mean(axis=0)).max() < 0.005  # and lean to neither side


def test_a_single_slot_is_a_queue_of_one_server() -> None:
    # M/D/1: the wait for a slot is load/(1 - load)/2 of the time that a request holds it.
    task = sm.Inference(input_tokens=1331, output_tokens=36)
    ask = {"engine": "sglang_2025", "replicas": 1}
    layout = sm.ServingLayout(tp=2)
    idle = sm.serve("llama3_70b", "dgx_a100", task, layout, requests_per_s=1e-6, **ask)
    assert idle.max_concurrency == 1
    holding = idle.latency_s - 0.005  # less what the host adds to the first token
    for load in (0.2, 0.5):
        plan = sm.serve(
            "llama3_70b", "dgx_a100", task, layout, requests_per_s=load / holding, **ask
        )
        wait = load / (1 - load) / 2 * holding
        assert plan.ttft_s - idle.ttft_s == pytest.approx(wait, rel=0.05)
        assert plan.tpot_s == pytest.approx(idle.tpot_s, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("output", [2, 8, 64, 500])
def test_a_client_on_its_own_never_waits_behind_its_own_prompts(engine: str, output: int) -> None:
    task = sm.Inference(input_tokens=2000, output_tokens=output)
    ask = {"engine": engine, "replicas": 1}
    alone = sm.serve("llama3_8b", "dgx_h100", task, concurrency=1, **ask)
    prompt = alone.instance.step(prompts=1.0, prompt_tokens=2000, prompt_keys=2000).step_time_s
    host = known_engine(engine).request_host_s
    assert alone.ttft_s == pytest.approx(prompt + host, rel=0.02)
    # Nor are its answers held up by them, whatever part of the time they take.
    answer = sm.Inference(input_tokens=2000, output_tokens=1000)
    longer = sm.serve("llama3_8b", "dgx_h100", answer, concurrency=1, **ask)
    assert alone.tpot_s == pytest.approx(longer.tpot_s, rel=0.02)
    # The others of a loop are all that one may wait for, and its answers take their turns between.
    for clients in (2, 4, 16):
        plan = sm.serve("llama3_8b", "dgx_h100", task, concurrency=clients, **ask)
        assert alone.ttft_s <= plan.ttft_s <= 1.05 * clients * prompt + plan.tpot_s + host
        assert plan.tpot_s > alone.tpot_s
        if output >= 64:  # Little's law
            taken = plan.ttft_s + (output - 1) * plan.tpot_s
            assert plan.requests_per_s * taken == pytest.approx(clients, rel=0.06)


@pytest.mark.parametrize("seed", range(20))
def test_every_rate_has_a_finite_answer_that_grows_with_it(seed: int) -> None:
    deployment = draw(np.random.default_rng(1000 + seed))
    most = deployment.serve().requests_per_s
    plans = [
        deployment.serve(requests_per_s=share * most)
        for share in (1e-6, 0.01, 0.1, 0.3, 0.5, 0.7, 0.85, 0.999, 1.01)
    ]
    assert plans[-1].saturated
    for plan in plans:
        numbers = [plan.tpot_s, plan.concurrency, plan.requests_per_s, plan.state.prefill_s]
        assert all(np.isfinite(numbers))
        assert min(numbers) > 0
        assert plan.saturated or plan.ttft_s >= 0.97 * plan.state.prefill_s
    settled = [plan for plan in plans[:-2] if not plan.saturated]
    for fewer, more in pairwise(settled):
        assert more.concurrency >= fewer.concurrency
        assert more.ttft_s >= 0.99 * fewer.ttft_s
