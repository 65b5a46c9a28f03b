"""The cheapest recomputation under a memory budget."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

import scalemodel as sm
from scalemodel.resolve.stacks import stack
from scalemodel.search.recompute import MODULES

CLUSTER = sm.cluster("dgx_h100", nodes=1)
TASK = sm.Training(global_batch=64, sequence=4096)
STACK = stack("megatron_bridge_2026_06")


def small_model(draw: random.Random) -> dict[str, object]:
    """A decoder of few layers: dense or of experts, with heads or latents."""
    heads = draw.choice((8, 16))
    table: dict[str, object] = {
        "layers": draw.randint(2, 6),
        "hidden": 128 * heads,
        "heads": heads,
        "kv_heads": draw.choice((heads, heads // 4)),
        "head_dim": 128,
        "ffn": draw.choice((4096, 8192)),
        "gated": True,
        "vocab": 32000,
        "position": "rope",
        "norm": "rmsnorm",
        "tied_embeddings": False,
    }
    if draw.random() < 0.5:
        table |= {"experts": 8, "experts_per_token": 2, "expert_ffn": 1024}
        table |= {"shared_experts": draw.choice((0, 1)), "first_dense_layers": draw.choice((0, 1))}
    if draw.random() < 0.3:
        table |= {"kv_heads": heads, "q_lora_rank": 256, "kv_lora_rank": 256}
        table |= {"qk_rope_head_dim": 64, "head_dim": 192, "v_head_dim": 128}
    return {"name": "small", "architecture": table}


def every_way(model: object, strategy: sm.Strategy) -> list[sm.Estimate]:
    """All sets of modules and all numbers of layers, by the public verb."""
    found = []
    for size in range(len(MODULES) + 1):
        for chosen in combinations(MODULES, size):
            stack = STACK.replace(selective_modules="+".join(chosen) or "stack")
            plan = strategy.replace(recompute="selective" if chosen else "none")
            found.append(sm.estimate(model, CLUSTER, TASK, plan, stack=stack))
    for layers in range(sm.model(model).shape.layers // strategy.pp):
        whole = strategy.replace(recompute="full", recompute_layers=layers)
        found.append(sm.estimate(model, CLUSTER, TASK, whole, stack=STACK))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_that_fits_is_that_of_trying_everything(seed: int) -> None:
    """Ten models a seed, each under a budget between the least and the most memory."""
    draw = random.Random(seed)
    for _ in range(10):
        model = small_model(draw)
        strategy = sm.Strategy(tp=draw.choice((1, 2)), micro_batch=draw.choice((1, 2)))
        ways = every_way(model, strategy)
        sizes = [way.memory_bytes for way in ways]
        budget = min(sizes) + draw.random() * (max(sizes) - min(sizes))
        plan = sm.plan_recompute(model, CLUSTER, TASK, strategy, stack=STACK, memory_bytes=budget)
        assert plan.best is not None
        assert plan.best.memory_bytes <= budget
        within = [way.step_time_s for way in ways if way.memory_bytes <= budget]
        assert plan.best.step_time_s == min(within)


def test_the_curve_pays_time_for_memory() -> None:
    plan = sm.plan_recompute("llama3_8b", CLUSTER, TASK, sm.Strategy(micro_batch=2), stack=STACK)
    table = plan.table()
    assert len(plan) == len(table) > 3
    assert table.step_time_s.is_monotonic_increasing
    assert table.memory_bytes.is_monotonic_decreasing
    assert table.modules[0] == "none"
    assert plan[-1].modules == "full"
    assert list(table.fits) == sorted(table.fits)
    assert plan.message() in repr(plan)


def test_an_option_is_an_estimate_that_can_be_started() -> None:
    plan = sm.plan_recompute("llama3_8b", CLUSTER, TASK, sm.Strategy(micro_batch=2), stack=STACK)
    chosen = next(option for option in plan if option.modules == "layernorm+mlp")
    script = sm.launch(chosen.estimate, "megatron").script()
    assert "--recompute-modules layernorm mlp" in script.replace("\\\n", " ").replace("  ", " ")
    again = sm.estimate(
        "llama3_8b", CLUSTER, TASK, chosen.estimate.strategy, stack=chosen.estimate.stack
    )
    assert again.step_time_s == chosen.step_time_s


def test_no_budget_leaves_what_a_search_leaves() -> None:
    plan = sm.plan_recompute("llama3_8b", CLUSTER, TASK)
    assert plan.budget_bytes == pytest.approx(0.95 * plan[0].estimate.memory_capacity_bytes)


def test_a_budget_that_nothing_keeps_to_is_an_answer() -> None:
    plan = sm.plan_recompute("llama3_70b", CLUSTER, TASK, sm.Strategy(tp=8))
    assert plan.best is None
    assert "nothing keeps to 76.0 GiB: full needs" in plan.message()


@pytest.mark.parametrize("budget", [0, -1.0, float("nan"), float("inf"), True, "60 GB"])
def test_a_budget_is_a_positive_number(budget: object) -> None:
    with pytest.raises(sm.ScaleModelError, match=r"memory_bytes=.*: must be a positive number"):
        sm.plan_recompute("llama3_8b", CLUSTER, TASK, memory_bytes=budget)  # type: ignore[arg-type]


def test_a_mesh_that_cannot_run_says_so() -> None:
    with pytest.raises(sm.ScaleModelError, match="illegal:mesh") as caught:
        sm.plan_recompute("llama3_8b", CLUSTER, TASK, sm.Strategy(tp=3))
    assert caught.value.code == "illegal:mesh"
