"""Two pools under limits of latency: held in simulation, of a rank, and in the commands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.serving import SplitServing
from scalemodel.serving.measured import loaded_stream, measure

TASK = sm.Inference(input_tokens=4000, output_tokens=200, precision="fp8", kv_precision="fp8")
POOLS = {"prefill": sm.ServingLayout(tp=2), "decode": sm.ServingLayout(tp=2)}
RATE = 4.0


def split(**given: Any) -> SplitServing:
    asked = {"requests_per_s": RATE, **POOLS, **given}
    return sm.serve_split("llama3_70b", sm.cluster("dgx_h100", nodes=2), TASK, **asked)


def wide(engine: str, **given: Any) -> SplitServing:
    """Pools whose ranks are data parallel."""
    return sm.serve_split(
        "deepseek-ai/DeepSeek-R1-0528",
        sm.cluster("dgx_h200", nodes=4),
        TASK.replace(precision="fp8_block", kv_precision="bf16"),
        prefill=sm.ServingLayout(dp=8, ep=8),
        decode=sm.ServingLayout(dp=16, ep=16),
        requests_per_s=2,
        engine=engine,
        **given,
    )


def option(plan: SplitServing, pool: str, name: str) -> int:
    words = shlex.split(sm.launch_serving(plan).commands[pool].splitlines()[0])
    return int(words[words.index(name) + 1])


@pytest.mark.parametrize(
    "limits",
    [
        {"ttft_p99_s": 1.5, "tpot_p90_s": 0.03},
        {"e2e_p95_s": 8.0},
        {"ttft_s": 0.8, "tpot_p99_s": 0.025},
    ],
)
def test_limits_hold_with_other_draws(limits: dict[str, float]) -> None:
    plan = split(**limits)
    assert plan.holds
    assert plan.limits == limits
    assert all(plan.simulated[name] <= limit for name, limit in limits.items())
    for seed in (21, 22):
        stream = loaded_stream(TASK, RATE, 8.0, seed=seed)
        found = measure([plan.simulate(stream, seed=seed)], 8.0)
        assert not found.grows
        assert all(found.values[name] <= limit for name, limit in limits.items())


def test_a_shorter_wait_takes_more_of_the_pool_it_is_about() -> None:
    few = split()
    prompts, answers = split(ttft_p99_s=1.5), split(tpot_p99_s=0.022)
    assert (few.prefill.replicas, few.decode.replicas) == (1, 1)
    assert prompts.prefill.replicas > answers.prefill.replicas
    assert answers.decode.replicas > prompts.decode.replicas
    one_less = split(
        ttft_p99_s=1.5, prefill_replicas=prompts.prefill.replicas - 1, decode_replicas=1
    )
    assert one_less.missed
    assert not one_less.holds


@pytest.mark.parametrize(
    ("limits", "missed"),
    [
        ({"ttft_s": 0.01}, "ttft_s"),
        ({"tpot_p90_s": 0.001, "ttft_s": 5}, "tpot_p90_s"),
        ({"ttft_p99_s": 0.6, "prefill_replicas": 1}, "requests_per_s"),
        ({"ttft_p99_s": 0.6, "prefill_replicas": 3, "decode_replicas": 1}, "ttft_p99_s"),
    ],
)
def test_what_does_not_hold_is_named(limits: dict[str, Any], missed: str) -> None:
    plan = split(**limits)
    assert plan.missed == missed
    assert not plan.holds
    assert plan.accelerators <= plan.prefill.cluster.accelerators
    assert f"# {missed} does not hold" in plan.launch()


def test_wrong_limits_name_what_is_meant() -> None:
    with pytest.raises(sm.ScaleModelError, match="did you mean 'ttft_p99_s'"):
        split(ttft_p98_s=1)
    with pytest.raises(sm.ScaleModelError, match="did you mean 'max_running_sequences'"):
        split(decode_limits={"max_num_sequences": 8})
    with pytest.raises(sm.ScaleModelError, match="max_batched_tokens=0: must be a whole number"):
        split(prefill_limits={"max_batched_tokens": 0})
    with pytest.raises(sm.ScaleModelError, match="requests_per_s missing"):
        sm.serve_split("llama3_70b", "dgx_h100", TASK, rate=3)
    with pytest.warns(UserWarning, match="give ttft_s=0.5"):
        split(ttft_s=500)


@pytest.mark.parametrize(
    ("engine", "tokens", "running", "parts"),
    [
        ("vllm", "--max-num-batched-tokens", "--max-num-seqs", 1),
        ("sglang", "--chunked-prefill-size", "--max-running-requests", 16),
    ],
)
def test_limits_of_an_engine_are_of_a_rank(
    engine: str, tokens: str, running: str, parts: int
) -> None:
    own = wide(engine)
    assert own.prefill.max_batched_tokens == 8 * 8192
    given = {"max_batched_tokens": 512, "max_running_sequences": 64}
    plan = wide(engine, decode_limits=given)
    assert plan.decode.max_batched_tokens == 16 * 512
    assert plan.decode.max_running_sequences == 16 * 64
    # vLLM takes the limits of a rank, SGLang those of the server.
    assert option(plan, "decode", tokens) == parts * 512
    assert option(plan, "decode", running) == parts * 64
    read = sm.read_serving(engine, sm.launch_serving(plan))
    again = read.serve(
        plan.decode.cluster,
        input_tokens=4000,
        output_tokens=200,
        requests_per_s=2,
        precision="fp8_block",
    )
    assert again.to_dict() == plan.to_dict()


def test_commands_say_what_was_promised() -> None:
    plan = split(ttft_p99_s=3)
    first = plan.launch().splitlines()[1]
    assert first == f"# limits at 4 requests/s: ttft_p99_s {plan.simulated['ttft_p99_s']:.3g} of 3"
    assert "limits at" not in split().launch()
    plans = sm.plan_serving(
        "llama3_70b",
        "dgx_h100",
        TASK,
        requests_per_s=1,
        ttft_p90_s=3,
        top=1,
        layouts=[sm.ServingLayout(tp=4)],
    )
    (note,) = [each for each in sm.launch_serving(plans[0]).notes if each.startswith("limits at")]
    assert note.endswith(f"ttft_p90_s {plans[0].simulated['ttft_p90_s']:.3g} of 3")
