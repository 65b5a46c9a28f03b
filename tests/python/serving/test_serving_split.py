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


def unlike(**given: Any) -> SplitServing:
    """Prompts on H100s, answers on H200s."""
    asked = {"requests_per_s": RATE, **POOLS, "decode_cluster": "aws_p5en", **given}
    return sm.serve_split("llama3_70b", "aws_p5", TASK, **asked)


def test_a_pool_on_another_cluster_is_what_serve_says_there() -> None:
    plan, alike = unlike(), unlike(decode_cluster="aws_p5")
    assert plan.prefill.to_dict() == alike.prefill.to_dict()
    own = sm.serve(
        "llama3_70b",
        "aws_p5en",
        TASK.replace(prefilled=True),
        POOLS["decode"],
        replicas=1,
        requests_per_s=RATE,
    )
    assert plan.decode.to_dict() == own.to_dict()
    assert plan.power_w == pytest.approx(plan.prefill.power_w + plan.decode.power_w)
    price = sum(
        pool.accelerators * pool.cluster.core.price_usd_per_s
        for pool in (plan.prefill, plan.decode)
    )
    assert plan.usd_per_million_output_tokens == pytest.approx(1e6 * price / (RATE * 200))


def test_clusters_of_the_same_kind_differ_from_one_in_their_room_alone() -> None:
    one, two = split(), split(decode_cluster=sm.cluster("dgx_h100", nodes=2))
    assert one.to_dict() == two.to_dict()
    # Eight accelerators hold four instances of two: of one pool, not of both.
    four = {"prefill_replicas": 4, "decode_replicas": 4}
    assert unlike(**four).fits
    with pytest.raises(sm.ScaleModelError, match="the pools need 16 accelerators"):
        sm.serve_split("llama3_70b", "aws_p5", TASK, requests_per_s=RATE, **POOLS, **four)
    with pytest.raises(sm.ScaleModelError, match="the decode pool needs 10 accelerators"):
        unlike(decode_replicas=5)


def test_the_slower_side_of_a_transfer_decides() -> None:
    def transfer_s(prefill: int, decode: int) -> float:
        layouts = {"prefill": sm.ServingLayout(tp=prefill), "decode": sm.ServingLayout(tp=decode)}
        return split(**layouts).transfer_s

    assert transfer_s(4, 2) == transfer_s(2, 4) == transfer_s(2, 2) > transfer_s(4, 4)


def test_splits_over_unlike_clusters_are_searched_by_price() -> None:
    asked: dict[str, Any] = {"requests_per_s": 3, "ttft_s": 1.0, "tpot_s": 0.03, "top": 4}
    found = sm.serving.plan_split(
        "llama3_70b", "aws_p5", TASK, decode_cluster="aws_p5en", goal="cost", **asked
    )
    assert found.usd_per_s.is_monotonic_increasing
    assert (found.prefill_ttft_s <= 1).all()
    assert (found.decode_tpot_s <= 0.03).all()
    best = found.iloc[0]
    rates = [float(sm.cluster(name).core.price_usd_per_s) for name in ("aws_p5", "aws_p5en")]
    counts = (best.prefill_accelerators, best.decode_accelerators)
    assert best.usd_per_s == pytest.approx(counts[0] * rates[0] + counts[1] * rates[1])
    with pytest.raises(sm.ScaleModelError, match="no price of h20_node"):
        sm.serving.plan_split(
            "llama3_70b", "aws_p5", TASK, decode_cluster="h20_node", goal="cost", **asked
        )
