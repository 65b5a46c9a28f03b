"""Guided (structured) decoding: masks, grammars, engines' facts, commands."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.resolve.engines import engine, grammar_backends, guided_decoding
from scalemodel.serving.plan import instance_for

TASK = sm.Inference(input_tokens=500, output_tokens=200)
GUIDED = TASK.replace(guided_fraction=1.0)
#: Engines that make masks before a step, and beside it.
BEFORE, BESIDE = "vllm_v1", "vllm_2026"


def plan(task: sm.Inference, name: str = BEFORE, running: float = 64, **more: Any) -> sm.Serving:
    more = {"replicas": 1, **more}
    found = sm.serve("llama3_8b", "dgx_h100", task, engine=name, concurrency=running, **more)
    assert found.verdict == "ok"
    return found


@pytest.mark.parametrize("name", ["vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2025"])
def test_no_guided_requests_are_the_same_question(name: str) -> None:
    named = TASK.replace(guided_fraction=0.0)
    assert plan(named, name, 8).to_dict() == plan(TASK, name, 8).to_dict()


def test_masks_before_a_step_are_one_for_every_guided_sequence() -> None:
    mask = float(catalog.load("reference", "guided_decoding")["xgrammar"]["mask"]["value"])
    hosts = [plan(TASK.replace(guided_fraction=part)).step().host_s for part in (0.0, 0.25, 1.0)]
    # By hand: 64 of 40 us, and 16 KB each over the link of the host.
    copies = 64 * 128256 / 8 / 63e9
    assert hosts[2] - hosts[0] == pytest.approx(64 * mask + copies, rel=0.01)
    assert hosts[1] - hosts[0] == pytest.approx((hosts[2] - hosts[0]) / 4, rel=1e-9)


def test_masks_beside_a_step_are_hidden_until_they_take_longer() -> None:
    short = sm.Inference(input_tokens=32, output_tokens=64)

    def slower(name: str, running: int) -> float:
        steps = [
            plan(task, name, running).step().step_time_s
            for task in (short.replace(guided_fraction=1), short)
        ]
        return float(steps[0] / steps[1])

    assert slower(BESIDE, 8) < 1.005 < 1.03 < slower(BEFORE, 8)
    assert 1.1 < slower(BESIDE, 1024) < slower(BEFORE, 1024)


@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize(
    "name", [each for each in catalog.names("engines") if grammar_backends(each)]
)
def test_more_guided_requests_are_never_faster(name: str, drafts: int) -> None:
    task = TASK.replace(speculative_tokens=drafts)
    steps = [
        plan(task.replace(guided_fraction=part), name, 32).step().step_time_s
        for part in (0.0, 0.01, 0.5, 1.0)
    ]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


def test_backends_are_as_fast_as_published() -> None:
    rates = [
        plan(GUIDED.replace(grammar_backend=name)).output_tokens_per_s
        for name in ("xgrammar", "llguidance", "outlines")
    ]
    assert rates == sorted(rates, reverse=True)
    assert plan(GUIDED).output_tokens_per_s == rates[0]


def test_a_new_grammar_is_waited_for() -> None:
    new = GUIDED.replace(new_grammar_fraction=0.5)
    seconds = float(catalog.load("reference", "guided_decoding")["xgrammar"]["compile"]["value"])
    more = plan(new, running=1).ttft_s - plan(GUIDED, running=1).ttft_s
    assert more == pytest.approx(0.5 * seconds, rel=1e-6)
    assert plan(new, running=1).tpot_s == plan(GUIDED, running=1).tpot_s
    # TensorRT-LLM compiles within a step, and all of its sequences wait.
    steps = [plan(task, "tensorrt_llm_pytorch_2025", 64).tpot_s for task in (GUIDED, new)]
    assert steps[1] > 1.5 * steps[0]


def test_streams_and_searches_know_of_grammars() -> None:
    slow, fast = plan(GUIDED), plan(TASK)
    served = [each.simulate(requests=64).summary()["tpot_mean_s"] for each in (slow, fast)]
    assert served[0] > 1.1 * served[1]
    found = [
        sm.plan_serving("llama3_8b", "dgx_h100", task, tpot_s=0.02, checked=False)[0]
        for task in (GUIDED, TASK)
    ]
    assert found[0].output_tokens_per_s < found[1].output_tokens_per_s


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guided_fraction": 1.5}, "guided_fraction=1.5: must be a number from 0 to 1"),
        ({"guided_fraction": -0.1}, "guided_fraction=-0.1: must be a number from 0 to 1"),
        ({"guided_fraction": True}, "guided_fraction=True: must be a number"),
        ({"new_grammar_fraction": 0.5}, "no request is guided; give guided_fraction above 0"),
        ({"grammar_backend": "xgrammar"}, "no request is guided; give guided_fraction above 0"),
        (
            {"guided_fraction": 1.0, "new_grammar_fraction": 2},
            "new_grammar_fraction=2: must be a number from 0 to 1",
        ),
        (
            {"guided_fraction": 1.0, "grammar_backend": "regex"},
            "grammar_backend='regex': must be one of xgrammar, llguidance, outlines",
        ),
    ],
)
def test_a_task_refuses_what_cannot_be_guided(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        TASK.replace(**changes)


def test_an_engine_refuses_a_backend_that_it_lacks() -> None:
    with pytest.raises(sm.ScaleModelError, match="has no guided decoding"):
        plan(GUIDED, "tensorrt_llm_triton_2024")
    outlines = GUIDED.replace(grammar_backend="outlines")
    with pytest.raises(sm.ScaleModelError, match="must be one of xgrammar, llguidance"):
        plan(outlines, "tensorrt_llm_pytorch_2025")


def test_every_backend_of_an_engine_has_its_figures() -> None:
    for name in catalog.names("engines"):
        for backend in grammar_backends(name):
            found = guided_decoding(name, 1.0, 1.0, backend)
            assert 0 < found.mask_s < 1e-3 < 10 * found.compile_s
        if grammar_backends(name):
            assert isinstance(engine(name).overlaps_masks, bool)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sglang_2025", "--grammar-backend llguidance"),
        ("vllm_2026", '--structured-outputs-config \'{"backend": "guidance"}\''),
    ],
)
def test_a_command_names_the_backend_and_is_read_back(name: str, words: str) -> None:
    task = GUIDED.replace(grammar_backend="llguidance")
    command = plan(task, name).launch()
    assert words in command
    framework = name.split("_", maxsplit=1)[0]
    read = sm.read_serving(framework, command)
    assert (read.grammar_backend, read.unread) == ("llguidance", ())
    again = read.task(input_tokens=500, output_tokens=200, guided_fraction=1.0)
    assert again.grammar_backend == "llguidance"
    assert read.task(input_tokens=500, output_tokens=200).grammar_backend is None
    assert "grammar-backend" not in plan(TASK, name).launch()


def test_backends_of_other_releases_are_read() -> None:
    words = "vllm serve Qwen/Qwen3-8B --guided-decoding-backend outlines"
    assert sm.read_serving("vllm", words).grammar_backend == "outlines"
    other = sm.read_serving("vllm", words.replace("outlines", "lm-format-enforcer"))
    assert other.grammar_backend == ""
    assert "lm-format-enforcer: predicted with the default of vllm_v1" in other.notes[-1]


def test_the_options_file_of_tensorrt_llm_names_the_backend_and_is_read_back() -> None:
    texts = [
        sm.launch_serving(plan(task, "tensorrt_llm_pytorch_2025")).files["options.yaml"]
        for task in (GUIDED, TASK)
    ]
    assert "guided_decoding_backend: xgrammar" in texts[0]
    assert "guided_decoding_backend" not in texts[1]
    command = plan(GUIDED, "tensorrt_llm_pytorch_2025").launch()
    read = sm.read_serving("tensorrt_llm", command, files={"options.yaml": texts[0]})
    assert (read.grammar_backend, read.unread) == ("xgrammar", ())


#: Microseconds of `apply_token_bitmask_inplace` on an H100 by batch, a vocabulary of 128,000 of
#: which 127,000 are masked (mlc-ai/xgrammar, examples/benchmark/README.md): Triton and CUDA.
APPLIED = {64: (32.84, 26.29), 512: (249.66, 157.51), 4096: (1935.24, 1207.38)}


@pytest.mark.parametrize("batch", APPLIED)
def test_masks_are_applied_in_the_time_of_published_kernels(batch: int) -> None:
    guided, free = plan(GUIDED, BESIDE, running=1), plan(TASK, BESIDE, running=1)
    assert guided.instance is not None
    assert free.instance is not None
    work = {"sequences": batch, "context": 600.0}
    more = guided.instance.step(**work).head_s - free.instance.step(**work).head_s
    assert 0.8 * APPLIED[batch][1] < 1e6 * more < APPLIED[batch][0]


#: Requests a second of Qwen3-1.7B with 800 running and answers of 128 tokens, by the share of them
#: that follow one JSON schema (vllm-project/vllm#26866, 2025-10, one process): masks before the
#: forward pass, beside it, and beside it with asynchronous scheduling.
RATES = {
    "before": {0.0: 103.16, 0.2: 92.57, 0.8: 70.68, 1.0: 69.36},
    "beside": {0.0: 103.19, 0.2: 99.67, 0.8: 87.90, 1.0: 85.28},
    "ahead": {0.0: 132.72, 0.2: 106.08, 0.8: 93.59, 1.0: 90.34},
}


def longer(kind: str, share: float) -> tuple[float, float]:
    """Milliseconds that a step takes longer with guided requests: published, and predicted."""
    measured = [800 / (128 * RATES[kind][part]) for part in (0.0, share)]
    constants = engine("vllm_v1").replace(
        overlaps_masks=kind != "before", overlaps_host=kind == "ahead"
    )
    task = sm.Inference(input_tokens=300, output_tokens=128)
    built = plan_of(constants, task), plan_of(constants, task.replace(guided_fraction=share))
    steps = [each.step(sequences=800, context=364.0).step_time_s for each in built]
    return 1e3 * (measured[1] - measured[0]), 1e3 * (steps[1] - steps[0])


def plan_of(constants: Any, task: sm.Inference) -> Any:
    if task.guided_fraction:
        guided = guided_decoding("vllm_v1", task.guided_fraction, 0.0, None)
        constants = constants.replace(guided=guided)
    question = (sm.model("qwen3_1_7b"), sm.cluster("dgx_h100"), "bf16", "bf16", 0.0)
    return instance_for(*question, sm.ServingLayout(), "vllm_v1", constants)[0]


@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
def test_masks_before_a_step_take_as_long_as_published(share: float) -> None:
    measured, predicted = longer("before", share)
    assert predicted == pytest.approx(measured, rel=0.12)  # -6, -6 and +10 %


@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
def test_masks_beside_a_step_show_as_much_as_published(share: float) -> None:
    measured, predicted = longer("beside", share)
    assert predicted == pytest.approx(measured, rel=0.15)  # +10, -12 and +1 %


@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
def test_masks_of_steps_that_are_scheduled_ahead_wait_for_all_tokens(share: float) -> None:
    # What all 800 sequences wait for was read off the first of them.
    measured, predicted = longer("ahead", share)
    assert predicted == pytest.approx(measured, rel=0.07)


@pytest.mark.parametrize(("sequences", "shows"), [(64, 0.0), (800, 1.0)])
def test_masks_wait_for_other_tokens_where_the_cpu_is_behind(sequences: int, shows: float) -> None:
    constants = engine("vllm_v1").replace(overlaps_masks=True, overlaps_host=True)
    guided = guided_decoding("vllm_v1", 0.01, 0.0, None)
    question = (sm.model("qwen3_1_7b"), sm.cluster("dgx_h100"), "bf16", "bf16", 0.0)
    steps = []
    for each in (guided.replace(update_s=0.0), guided):
        asked = constants.replace(guided=each)
        instance = instance_for(*question, sm.ServingLayout(), "vllm_v1", asked)[0]
        steps.append(instance.step(sequences=sequences, context=364.0).step_time_s)
    waits = sequences * (guided.update_s + 0.01 * guided.advance_s)
    assert steps[1] - steps[0] == pytest.approx(shows * waits, rel=0.02, abs=1e-9)


def test_masks_of_other_engines_wait_for_guided_tokens_alone() -> None:
    assert guided_decoding("sglang_2025", 0.5, 0.0, None).update_s == 0
