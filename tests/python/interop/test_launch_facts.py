"""Facts of software stacks: every one is a setting of a script, or a note that names it."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.interop.settings.facts import FACTS, MEANINGS
from scalemodel.search.framework_rules import FRAMEWORKS

#: A job that every switch of a stack matters to: experts over nodes, virtual stages, tensor ranks.
CLUSTER = sm.cluster("dgx_h100", nodes=16)
TASK = sm.Training(global_batch=512, sequence=4096)
STRATEGY = sm.Strategy(tp=2, pp=2, vpp=2, ep=16, recompute="selective")
BASE = resolve.stack("megatron_bridge_2025_11")
MEGATRON = ("megatron", "megatron_bridge", "nemo")


def estimate(stack: Any, model: str = "deepseek_v3", **changes: Any) -> sm.Estimate:
    task = changes.pop("task", TASK)
    return sm.estimate(model, CLUSTER, task, STRATEGY.replace(**changes), stack=stack)


def again(framework: str, est: sm.Estimate, launched: sm.Launch | None = None) -> sm.Estimate:
    """The estimate of what a script starts."""
    script = (launched or sm.launch(est, framework)).script()
    read = sm.read_settings(
        framework,
        script,
        accelerators=est.cluster.accelerators,
        stack=est.stack,
    )
    stack: Any = read.stack
    return sm.estimate(
        read.model or est.model, est.cluster, read.task or est.task, read.strategy, stack=stack
    )


# --------------------------------------------------------------------------------- the table
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_switch_and_choice_of_a_stack_is_in_the_table(framework: str) -> None:
    rows = [row["name"] for row in _core.Stack.fields() if row["kind"] in ("bool", "choice")]
    assert set(FACTS[framework]) == set(rows) == set(MEANINGS)
    for name, fact in FACTS[framework].items():
        assert fact.kind == "stated" or fact.why, name


def flipped(name: str) -> tuple[_core.Stack, _core.Stack]:
    """Stacks that differ in one fact only."""
    values = {
        "attention": ("flash3", "unfused"),
        "selective": ("modules", "core_attention"),
        "selective_modules": ("mla_up_proj+mlp", "moe_act"),
    }
    one, other = values.get(name, (True, False))
    # Nothing hides inside a domain where experts overlap between domains already.
    apart = {"overlap_ep_between": False} if name == "overlap_ep" else {}
    base = BASE.replace(dropout=False, **apart)
    return base.replace(**{name: one}), base.replace(**{name: other})


@pytest.mark.parametrize("framework", MEGATRON)
@pytest.mark.parametrize("name", [name for name in MEANINGS if FACTS["nemo"][name].settings])
def test_what_settings_state_of_a_stack_changes_them_and_comes_back(
    framework: str, name: str
) -> None:
    scripts = []
    for stack in flipped(name):
        est = estimate(stack)
        launched = sm.launch(est, framework)
        other = again(framework, est, launched)
        if not any(name in note for note in launched.notes):
            assert other.step_time_s == pytest.approx(est.step_time_s, rel=1e-9)
            assert other.memory_bytes == pytest.approx(est.memory_bytes, rel=1e-3)
        scripts.append(launched.script().replace(launched.predicted, ""))
    pair = ("deduplicated_dispatch", "deduplicated_between")
    if name in pair:  # one setting states both: the one that is alone is a note, or has no effect
        return
    assert scripts[0] != scripts[1]


FIXED = [
    (framework, name)
    for framework in FRAMEWORKS
    for name in sorted(MEANINGS)
    if FACTS[framework][name].kind == "fixed"
]


@pytest.mark.parametrize("framework, name", FIXED)
def test_a_fact_that_no_setting_says_is_a_note_with_seconds(framework: str, name: str) -> None:
    fact = FACTS[framework][name]
    value = next(
        value
        for value in ("mlp" if name == "selective_modules" else "core_attention", True, False)
        if value != fact.value and isinstance(value, type(fact.value))
    )
    changes: dict[str, Any] = {"ep": 1, "pp": 1, "vpp": 1, "sharding": "zero3"}
    if framework in MEGATRON:
        changes = {}
    est = estimate(BASE.replace(**{name: value}), "llama3_8b", **{**changes, "ep": 1})
    without = estimate(BASE.replace(**{name: fact.value}), "llama3_8b", **{**changes, "ep": 1})
    changed = (
        abs(without.step_time_s / est.step_time_s - 1) > 1e-3
        or abs(without.memory_bytes / est.memory_bytes - 1) > 1e-3
    )
    named = [note for note in sm.launch(est, framework).notes if f" {name}=" in note]
    assert bool(named) == changed
    if changed and abs(without.step_time_s / est.step_time_s - 1) > 1e-3:
        assert f"a step takes {without.step_time_s:.4g} s" in named[0]


# ------------------------------------------------------------- the mistake that started all this
@pytest.mark.parametrize("framework", MEGATRON)
def test_deepseek_v3_on_b200_runs_what_was_predicted(framework: str) -> None:
    """Dispatch, overlap, gradients and FP8: 11.8 s were predicted and 32.7 s started."""
    cluster = sm.cluster("dgx_b200", nodes=32)
    task = sm.Training(global_batch=2048, sequence=4096, precision="fp8")
    stack = "megatron_bridge_2025_11"
    best = sm.search("deepseek_v3", cluster, task, stack=stack, framework=framework, top=1)[0]
    launched = sm.launch(best, framework)
    script = launched.script()
    words = script.replace("-", "_").replace("=", " ").replace('"', " ").replace(",", " ")
    for asked in (
        "moe_token_dispatcher_type flex",
        "moe_flex_dispatcher_backend deepep",
        "fp8_recipe mxfp8",
        "overlap_moe_expert_parallel_comm",
        "moe_router_dtype fp32",
        "cross_entropy_loss_fusion",
    ):
        assert asked in words.replace("  ", " "), asked
    assert ("grad_reduce_in_bf16" in words) == (framework == "megatron")
    assert launched.notes == ()
    other = again(framework, best, launched)
    assert other.step_time_s == pytest.approx(best.step_time_s, rel=1e-9)
    assert other.memory_bytes == pytest.approx(best.memory_bytes, rel=1e-3)


def test_the_estimate_of_a_script_follows_its_flags() -> None:
    """A hand-written script without the flags of the stack is the slower job that it is."""
    est = estimate("megatron_bridge_2025_11")
    script = sm.launch(est, "megatron").script()
    for flag, fact in (
        ("--overlap-moe-expert-parallel-comm", "overlap_ep_between"),
        ("--cross-entropy-loss-fusion", "fused_loss"),
        ("--overlap-grad-reduce", "overlap_grad_reduce"),
        ("--moe-router-dtype fp32", "fp32_router"),
    ):
        assert flag in script
        lines = [line for line in script.splitlines() if flag not in line]
        read = sm.read_settings(
            "megatron", "\n".join(lines), accelerators=128, stack="megatron_bridge_2025_11"
        )
        assert getattr(read.stack, fact) is False
        assert read.stack == BASE.replace(**{fact: False})
    plain = sm.read_settings("megatron", script.replace("type flex", "type alltoall"))
    assert not plain.stack.deduplicated_dispatch
    assert not plain.stack.deduplicated_between
    reduced = script.replace("--grad-reduce-in-bf16", "--bf16")
    read = sm.read_settings("megatron", reduced, accelerators=128)
    assert read.stack.gradients_fp32 is True
    assert read.task is not None
    assert read.task.gradient_precision == "fp32"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_stack_that_is_read_keeps_the_numbers_that_were_asked_for(framework: str) -> None:
    for name in ("plain", "maxtext", "megatron_lm_2025"):
        base = resolve.stack(name)
        read = sm.read_settings(framework, {}, stack=name)
        for row in _core.Stack.fields():
            if row["kind"] in ("float", "int"):
                assert getattr(read.stack, row["name"]) == getattr(base, row["name"])
            elif FACTS[framework][row["name"]].kind == "fixed":
                assert getattr(read.stack, row["name"]) == FACTS[framework][row["name"]].value
            elif FACTS[framework][row["name"]].kind == "release":
                assert getattr(read.stack, row["name"]) == getattr(base, row["name"])


@pytest.mark.parametrize("scheduler", [None, "slurm", "jobset"])
def test_a_script_says_which_release_was_meant(scheduler: str | None) -> None:
    """Releases differ in numbers that no setting states: reading needs no more than the script."""
    cluster, task = sm.cluster("dgx_h200", nodes=4), sm.Training(global_batch=384, sequence=8192)
    asked = {"framework": "megatron_bridge", "stack": "megatron_bridge_2025_11", "top": 1}
    (est,) = sm.search("qwen3_30b_a3b", cluster, task, **asked)
    launched = sm.launch(est, "megatron_bridge", scheduler=scheduler)
    read = sm.read_settings("megatron_bridge", launched.script())
    other = sm.estimate(read.model, cluster, read.task, read.strategy, stack=read.stack)
    assert other.step_time_s == pytest.approx(est.step_time_s, rel=0.01)
    renamed = launched.script().replace("megatron_bridge_2025_11", "a_stack_of_nowhere")
    assert sm.read_settings("megatron_bridge", renamed).stack != read.stack


@pytest.mark.parametrize("stack", catalog.names("stacks"))
def test_any_stack_can_be_launched_and_says_where_it_differs(stack: str) -> None:
    """Within 1 %, or notes that name the difference."""
    est = estimate(stack, recompute="none")
    launched = sm.launch(est, "megatron")
    other = again("megatron", est, launched)
    close = other.step_time_s == pytest.approx(est.step_time_s, rel=0.01)
    assert close or any("all in all" in note for note in launched.notes)


@pytest.mark.parametrize("stack", ["megatron_lm_2025", "plain"])
def test_the_vocabulary_is_padded_as_predicted(stack: str) -> None:
    cluster = sm.cluster("dgx_h100")
    est = sm.estimate("gpt2_xl", cluster, sm.Training(global_batch=64, sequence=1024), stack=stack)
    script = sm.launch(est, "megatron").script()
    multiple = resolve.stack(stack).vocab_multiple
    assert f"--make-vocab-size-divisible-by {multiple}" in " ".join(script.split())
    assert sm.read_settings("megatron", script).stack.vocab_multiple == multiple
    other = script.replace(f"divisible-by {multiple}", "divisible-by 64")
    assert sm.read_settings("megatron", other).stack.vocab_multiple == 64


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (
            {
                "model_type": "rwkv7",
                **{f"{name}_low_rank_dim": 64 for name in ("decay", "a", "v", "gate")},
            },
            "not expressed: recurrent mixers (rwkv7)",
        ),
        (
            {
                "model_type": "zamba2",
                "layers_block_type": ["mamba", "hybrid"] * 4,
                "mamba_d_state": 64,
                "n_mamba_heads": 32,
                "mamba_headdim": 64,
            },
            "not expressed: blocks that layers use in turn",
        ),
        ({"model_type": "eurobert"}, "not expressed: attention to the tokens behind"),
    ],
    ids=["rwkv7", "zamba2", "eurobert"],
)
def test_what_megatron_has_no_layer_for_is_named(config: dict[str, Any], says: str) -> None:
    size = {"num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16}
    size |= {"intermediate_size": 4096, "vocab_size": 32000}
    est = sm.estimate(sm.model({**size, **config}), CLUSTER, TASK, sm.Strategy())
    assert any(note.startswith(says) for note in sm.launch(est, "megatron").notes)


def test_a_function_holds_no_settings() -> None:
    est = sm.estimate(
        "llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=2048)
    )
    with pytest.raises(
        sm.ScaleModelError, match="must be a mapping, a namespace, a path or a text"
    ):
        sm.read_settings("megatron", sm.launch(est, "megatron").script)
