"""Plans that cannot run say why, and what would."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.verdicts import least_layout

SHORT = sm.Inference(input_tokens=500, output_tokens=100)
TASK = sm.Inference(input_tokens=1000, output_tokens=200)


@pytest.mark.parametrize(
    ("model", "layout", "replicas", "verdict", "said"),
    [
        ("llama3_70b", {}, 8, "out_of_memory", "131 GiB of weights"),
        ("llama3_70b", {"tp": 4}, 3, "illegal:mesh", "3 x 4 accelerators are more than the 8"),
        ("llama3_70b", {"tp": 16}, 1, "illegal:mesh", "1 x 16 accelerators are more than the 8"),
        ("llama3_8b", {"tp": 3}, 1, "illegal:tp_heads", "tp=3 cannot split 32 heads"),
        ("smollm2_360m", {"tp": 5, "pp": 2}, 1, "illegal:mesh", "1 x 10 accelerators"),
        ("llama3_8b", {"tp": 8, "ep": 2}, 1, "illegal:ep_experts", "a model without experts"),
        ("mixtral_8x7b", {"tp": 8, "ep": 3}, 1, "illegal:ep_mesh", "the 8 ranks that experts lie"),
        (
            *("mixtral_8x7b", {"tp": 3, "dp": 2, "ep": 3, "redundant_experts": 1}, 1),
            *("illegal:tp_heads", "tp=3 cannot split 32 heads"),
        ),
        (
            *("mixtral_8x7b", {"dp": 6, "ep": 6}, 1),
            *("illegal:ep_experts", "ep=6 cannot split 8 experts"),
        ),
        (
            *("mixtral_8x7b", {"dp": 6, "ep": 2}, 1),
            *("illegal:etp_ffn", "experts of width 14336 cannot be split over the 3 ranks"),
        ),
    ],
)
def test_a_plan_that_cannot_run_says_why(
    model: str, layout: dict[str, int], replicas: int, verdict: str, said: str
) -> None:
    plan = sm.serve(model, "dgx_h100", TASK, sm.ServingLayout(**layout), replicas=replicas)
    assert plan.verdict == verdict
    assert said in plan.why_not().splitlines()[0]
    assert str(plan) == f"{plan!r}\n{plan.why_not()}"


def test_stages_beyond_the_layers_are_told() -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)
    plan = sm.serve("gpt2_small", cluster, SHORT, sm.ServingLayout(pp=13), replicas=1)
    assert plan.verdict == "illegal:pp_layers"
    assert plan.why_not().startswith("pp=13 but the model has 12 layers.")


@pytest.mark.parametrize("model", ["llama3_8b", "llama3_70b", "mixtral_8x22b", "deepseek_v2_lite"])
def test_the_least_instance_holds_the_model_and_no_smaller_one_does(model: str) -> None:
    plan = sm.serve(model, "dgx_h100", TASK, sm.ServingLayout(tp=3))
    assert not plan.fits
    least = least_layout(plan)
    assert least is not None
    assert sm.serve(model, "dgx_h100", TASK, least).fits
    assert repr(least) in plan.why_not()
    for smaller in range(1, ranks_of(least)):
        for layout in (sm.ServingLayout(tp=smaller), sm.ServingLayout(pp=smaller)):
            assert not sm.serve(model, "dgx_h100", TASK, layout).fits


def test_where_no_instance_holds_the_model_that_is_said() -> None:
    plan = sm.serve("llama3_1_405b", "dgx_h100", TASK, sm.ServingLayout(tp=8))
    assert plan.why_not().endswith("\nNo instance of 8 accelerators holds it.")


def test_a_plan_that_runs_has_nothing_to_say() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK)
    assert plan.why_not() == ""
    assert str(plan) == repr(plan)


def test_forward_passes_say_what_fills_the_memory() -> None:
    image = sm.Inference(input_tokens=197, output_tokens=1)
    held = sm.serve(sm.compose("vit_120b"), "dgx_a100", image)
    assert held.why_not().startswith("out_of_memory   needs")
    runs = sm.serve(sm.compose("vit_b"), "dgx_h100", image)
    assert (runs.fits, runs.why_not()) == (True, "")


@pytest.mark.parametrize(
    ("layout", "replicas", "said"),
    [
        ({}, 9, "9 x 1 accelerators are more than the 8"),
        ({"tp": 3}, 1, "tp=3 cannot split 16 heads"),
        ({}, 1, ""),
    ],
)
def test_encoders_say_why_they_cannot_run(layout: dict[str, int], replicas: int, said: str) -> None:
    seen = sm.Inference(input_tokens=2000, output_tokens=100, images=2)
    pool = sm.serve_encoders(
        *("gemma3_12b", "dgx_h100", seen, sm.ServingLayout(**layout)),
        requests_per_s=1,
        replicas=replicas,
    )
    assert pool.fits == (not said)
    assert pool.why_not().startswith(said)
    assert bool(pool.why_not()) == bool(said)


@pytest.mark.parametrize(
    ("layout", "concurrency", "said"),
    [
        ({"tp": 16}, None, "1 x 16 accelerators are more than the 8"),
        ({"ep": 2}, None, "ep and redundant_experts"),
        ({}, 32768, "out_of_memory   needs"),
        ({}, None, ""),
    ],
)
def test_generators_say_why_they_cannot_run(
    layout: dict[str, int], concurrency: int | None, said: str
) -> None:
    task, how = sm.Generation(height=1024, width=1024), sm.ServingLayout(**layout)
    found = sm.serve("flux1_dev", "dgx_h100", task, how, concurrency=concurrency)
    assert found.fits == (not said)
    assert found.why_not().startswith(said)
    assert bool(found.why_not()) == bool(said)


def test_split_pools_say_which_of_them_cannot_run() -> None:
    plan = sm.serve_split(
        *("llama3_70b", "dgx_h100", TASK),
        prefill=sm.ServingLayout(tp=1),
        decode=sm.ServingLayout(tp=4),
        requests_per_s=1,
    )
    assert plan.verdict == "out_of_memory"
    assert plan.why_not().startswith("prefill: 131 GiB of weights")
    assert "decode" not in plan.why_not()
