"""Rules of training frameworks: what a search offers for one of them can be started there."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import resolve
from scalemodel.interop.settings.layouts import chunk_layers, layout_text
from scalemodel.search.framework_cases import Case
from scalemodel.search.framework_rules import COMPILED, FRAMEWORKS, MEGATRON_CORE, RULES
from scalemodel.search.frameworks import (
    _SAID,
    KNOBS,
    _values_said,
    accepts,
    expressible,
    refusals,
    unsaid,
)
from scalemodel.search.space import Space

CLUSTER = sm.cluster("dgx_h100", nodes=4)
TASK = sm.Training(global_batch=256, sequence=4096)


def tiny(**architecture: Any) -> sm.Model:
    table = {
        **{"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 8, "vocab": 1000},
        **{"ffn": 1536, "gated": True},
    }
    return resolve.model({"name": "tiny", "architecture": {**table, **architecture}})


def case(model: sm.Model, stack: str = "plain", layout: bool = True, **plan: Any) -> Case:
    task = plan.pop("task", TASK)
    return Case(model, CLUSTER, task, sm.Strategy(**plan), resolve.stack(stack), layout)


def names(framework: str, asked: Case) -> list[str]:
    return [rule.name for rule in refusals(framework, asked)]


# ----------------------------------------------------------------------------------- the rules
def test_every_rule_says_where_it_comes_from() -> None:
    for framework in FRAMEWORKS:
        found = [rule.name for rule in RULES[framework]]
        assert len(found) == len(set(found))
        for rule in RULES[framework]:
            assert "/" in rule.source
            assert rule.says


@pytest.mark.parametrize("model", ["qwen3_30b_a3b", "deepseek_v2_lite", "gpt_oss_20b", "gemma2_9b"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_degrees_that_are_refused_alone_are_refused_beside_others(
    framework: str, model: str
) -> None:
    asked, cluster, task, named = question(model, framework)
    stack = resolve.stack(named)
    draw = random.Random(f"{framework} {model}")
    for rule in RULES[framework]:
        for value in (1, 2, 3, 4, 8, 12, 16) if rule.degree else ():
            alone = Case(asked, cluster, task, sm.Strategy(**{rule.degree: value}), stack)
            for _ in range(20):
                plan = {name: draw.choice([1, 2, 4]) for name in ("tp", "pp", "cp", "ep", "vpp")}
                plan |= {"recompute": draw.choice(["none", "full"]), rule.degree: value}
                whole = Case(asked, cluster, task, sm.Strategy(**plan), stack)
                assert rule.breaks(whole) == rule.breaks(alone), (rule.name, plan)


def test_a_search_leaves_out_degrees_that_a_framework_refuses() -> None:
    asked, cluster, task, stack = question("qwen3_30b_a3b", "torchtitan")
    found, named = (
        sm.search(asked, cluster, task, space, stack=stack, framework="torchtitan")
        for space in (Space(), Space(pp=1))
    )
    assert found.size == named.size
    assert [est.strategy for est in found] == [est.strategy for est in named]
    # Where no other is listed, the rule is the answer.
    space = Space(pp=[2, 4])
    none = sm.search(asked, cluster, task, space, stack=stack, framework="torchtitan")
    assert "are not split: pp = 1" in none.why_infeasible()


BAD: list[tuple[str, sm.Model, dict[str, Any]]] = [
    ("layers", tiny(), {"pp": 3, "layout": False}),
    ("layers", tiny(), {"pp": 2, "vpp": 3, "layout": False}),
    ("query_groups", tiny(heads=12, kv_heads=4), {"tp": 6}),
    ("experts", tiny(experts=8, experts_per_token=2), {"ep": 3}),
    ("heads", tiny(), {"tp": 3}),
    ("virtual_stages", tiny(), {"vpp": 2}),
    ("interleaving", tiny(), {"pp": 4, "vpp": 1, "micro_batch": 32}),
    ("sequence", tiny(), {"cp": 3}),
    ("context_heads", tiny(kv_heads=2), {"cp": 4, "context": "all_to_all"}),
    (
        "expert_sequences",
        tiny(experts=8, experts_per_token=2),
        {"tp": 2, "sequence_parallel": False},
    ),
    ("expert_bias", tiny(experts=8, experts_per_token=2, mlp_bias=True), {"tp": 2}),
    ("expert_bias", tiny(experts=8, experts_per_token=2, out_bias=True), {"ep": 4, "etp": 2}),
    ("offload_optimizer", tiny(), {"offload_optimizer": True, "sharding": "ddp"}),
    ("offload_activations", tiny(), {"offload_activations": True, "pp": 2}),
]


@pytest.mark.parametrize("name, model, plan", BAD)
def test_bad_layouts_of_megatron_are_refused(name: str, model: sm.Model, plan: Any) -> None:
    if name == "interleaving":
        assert names("megatron", case(model, **plan)) == []
        assert names("megatron", case(model, **{**plan, "vpp": 2, "pp": 2, "dp": 16})) == [name]
        return
    assert name in names("megatron", case(model, **plan))


def test_three_query_groups_of_eight_heads_are_no_model() -> None:
    values = {"num_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 100}
    with pytest.raises(sm.ScaleModelError, match="kv_heads=3: must divide heads=8"):
        sm.read_settings(
            "megatron", {**values, "num_query_groups": 3, "position_embedding_type": "rope"}
        )


def test_a_layout_makes_uneven_stages_startable_and_is_written() -> None:
    assert names("megatron", case(tiny(), pp=3)) == []
    cluster = sm.cluster("dgx_h100", nodes=3)
    task = sm.Training(global_batch=48, sequence=4096)
    est = sm.estimate(tiny(), cluster, task, sm.Strategy(pp=3))
    script = sm.launch(est, "megatron").script()
    assert "--pipeline-model-parallel-layout 'Et|tt|tL'" in script
    assert "--num-virtual-stages" not in script
    read = sm.read_settings("megatron", script, accelerators=24)
    assert (read.strategy.pp, read.strategy.vpp) == (3, 1)


def test_the_layouts_are_those_that_the_engine_predicts() -> None:
    """The slowest stage holds most layers: without head and embedding its time counts them."""
    model = tiny(layers=10, vocab=16)
    for pp, vpp in ((2, 1), (4, 1), (4, 2), (8, 1)):
        for ends in (False, True):
            held = chunk_layers(10, pp * vpp, ends)
            assert sum(held) == 10
            stages = [sum(held[stage::pp]) for stage in range(pp)]
            stack: Any = resolve.stack("plain").replace(ends_as_layers=ends)
            cluster = sm.cluster("dgx_h100", nodes=1)
            task = sm.Training(global_batch=64, sequence=4096)
            memory = sm.estimate(
                model, cluster, task, sm.Strategy(pp=pp, vpp=vpp, sharding="ddp"), stack=stack
            )
            one = sm.estimate(model, cluster, task, sm.Strategy(sharding="ddp"), stack=stack)
            share = memory.core.memory_weights_bytes / one.core.memory_weights_bytes
            assert share == pytest.approx(max(stages) / 10, abs=0.02)


@pytest.mark.parametrize(
    ("plan", "overlaps"),
    [
        # Without virtual stages the engine predicts no overlap: there is nothing to refuse.
        ({"tp": 2, "pp": 4, "ep": 16, "recompute": "selective"}, False),
        # Multi-token prediction on one stage.
        ({"pp": 1, "ep": 16, "recompute": "selective"}, True),
    ],
)
def test_megatron_overlaps_experts_where_its_checks_allow_it(
    plan: dict[str, Any], overlaps: bool
) -> None:
    deepseek = sm.model("deepseek_v3")
    cluster = sm.cluster("dgx_h100", nodes=16)
    for stack, refused in (("megatron_bridge_2025_11", overlaps), ("plain", False)):
        asked = Case(deepseek, cluster, TASK, sm.Strategy(**plan), resolve.stack(stack))
        assert ("expert_overlap" in names("megatron", asked)) == refused
    near = Case(
        *(deepseek, cluster, TASK, sm.Strategy(**{**plan, "ep": 8 // plan.get("tp", 1)})),
        resolve.stack("megatron_bridge_2025_11"),
    )
    # Inside a domain that stack overlaps nothing, and nothing is refused.
    assert names("megatron", near) == []


@pytest.mark.parametrize("framework", MEGATRON_CORE)
def test_full_recomputation_is_never_started_with_the_overlap_of_experts(framework: str) -> None:
    """Megatron-Core asserts it: the prediction must do without the overlap, and so the script."""
    plan = sm.Strategy(tp=2, pp=4, vpp=2, ep=16)
    cluster = sm.cluster("dgx_h100", nodes=16)
    for recompute in ("none", "selective", "full"):
        est = sm.estimate(
            *("deepseek_v3", cluster, TASK, plan.replace(recompute=recompute)),
            stack="megatron_bridge_2025_11",
        )
        launched = sm.launch(est, framework)
        overlaps = re.search("overlap.moe.expert.parallel.comm", launched.script()) is not None
        refused = any("refuses" in note for note in launched.notes)
        assert overlaps == (recompute != "full" or refused)
        full = sm.estimate("deepseek_v3", cluster, TASK, est.strategy, stack="megatron_lm_2025")
        if recompute == "full" and not refused:
            assert est.core.exposed_ep_s > 0
            assert full.core.exposed_ep_s > 0


@pytest.mark.parametrize(
    "framework, plan, name",
    [
        ("torchtitan", {"sharding": "ddp", "tp": 2}, "replication"),
        ("torchtitan", {"pp": 4, "sharding": "zero3", "micro_batch": 32}, "micro_batches"),
        ("torchtitan", {"pp": 4, "vpp": 2, "dp": 8, "sharding": "zero3"}, "pipeline_stages"),
        (
            "torchtitan",
            {"pp": 4, "schedule": "zero_bubble_v", "sharding": "zero3"},
            "pipeline_stages",
        ),
        (
            "torchtitan",
            {"pp": 2, "schedule": "dualpipe_v", "sharding": "zero3"},
            "split_backward",
        ),
        ("deepspeed", {"offload_optimizer": True, "sharding": "ddp"}, "offload_optimizer"),
        ("deepspeed", {"offload_weights": True, "sharding": "zero2"}, "offload_weights"),
        ("deepspeed", {"cp": 16}, "heads"),
        ("accelerate", {"sharding": "ddp", "tp": 2}, "mesh"),
        ("accelerate", {"sharding": "zero3", "cp": 3}, "sequence"),
        ("accelerate", {"sharding": "hsdp", "shard_degree": 2, "cp": 2}, "mesh"),
        ("nemo", {"sharding": "zero3"}, "fsdp"),
        ("megatron_bridge", {"sharding": "zero3", "placement": "tp-cp-pp-dp"}, "placement"),
        ("torchtitan", {"sharding": "zero3", "tp": 2, "ep": 2, "etp": 2}, "expert_mesh"),
    ],
)
def test_other_frameworks_refuse_what_theirs_do(framework: str, plan: Any, name: str) -> None:
    assert name in names(framework, case(tiny(), **plan))
    assert names(framework, case(tiny(), dp=32, sharding="zero1")) == []


def test_torchtitan_shards_over_whole_contexts_and_rotates_so_far_only() -> None:
    parts = {"cp": 4, "sharding": "hsdp", "shard_degree": 2, "context": "all_gather"}
    assert names("torchtitan", case(tiny(), **parts)) == ["shards"]
    long = TASK.replace(sequence=65536)
    alone = {"dp": 32, "sharding": "zero3", "task": long}
    assert names("torchtitan", case(tiny(), **alone)) == []
    assert names("torchtitan", case(tiny(qk_norm=True), **alone)) == ["length"]


def test_nemo_does_not_copy_query_groups_over_tensor_ranks() -> None:
    """Megatron-Core does since; NeMo 2.5 builds on one that refuses it."""
    asked = case(tiny(kv_heads=2), tp=4)
    assert names("megatron", asked) == []
    assert names("nemo", asked) == ["tensor_groups"]


def test_torchtitan_splits_the_backward_pass_of_models_that_are_not_compiled() -> None:
    compiled: Any = resolve.stack("plain")
    eager = compiled.replace(**dict.fromkeys(COMPILED, False))
    asked = sm.Strategy(pp=2, schedule="zero_bubble_v", sharding="zero3")
    for stack, broken in ((compiled, ["split_backward"]), (eager, [])):
        assert names("torchtitan", Case(tiny(), CLUSTER, TASK, asked, stack)) == broken
    # Few micro-batches leave slots of it empty; 1F1B refuses them.
    few = asked.replace(micro_batch=16)
    assert names("torchtitan", Case(tiny(), CLUSTER, TASK, few, eager)) == []
    assert unsaid("torchtitan", asked) == unsaid("torchtitan", sm.Strategy(pp=2, sharding="zero3"))
    assert "schedule" in unsaid("megatron", asked)
    assert "schedule" in unsaid("torchtitan", asked.replace(schedule="zero_bubble_2p"))


def test_torchtitan_splits_some_models_only_and_overlaps_compiled_ones() -> None:
    split = {"pp": 2, "dp": 16, "sharding": "zero3"}
    assert names("torchtitan", case(tiny(), **split)) == []
    for kind in ({"qk_norm": True}, {"attention_sinks": True}):
        assert names("torchtitan", case(tiny(**kind), **split)) == ["pipeline"]
        assert names("torchtitan", case(tiny(**kind), dp=32, sharding="zero3")) == []
    rings = {"tp": 2, "sharding": "zero3", "overlap_tp": "ring"}
    compiled = resolve.stack("torchtitan_2025")
    assert compiled.fused_norm
    assert compiled.fused_activation
    for fused in (True, False):
        stack: Any = compiled.replace(fused_norm=fused, fused_rope=True)
        asked = Case(tiny(), CLUSTER, TASK, sm.Strategy(**rings), stack)
        assert names("torchtitan", asked) == ([] if fused else ["async_tensor_parallel"])
        assert names("torchtitan", case(tiny(), **{**rings, "overlap_tp": "off"})) == []


def test_megatron_scores_before_it_chooses_a_single_expert() -> None:
    for chosen, first in ((1, True), (2, False)):
        model = tiny(experts=8, experts_per_token=chosen)
        est = sm.estimate(model, CLUSTER, TASK, sm.Strategy(ep=8))
        assert ("--moe-router-pre-softmax" in sm.launch(est, "megatron").command) == first


def test_knobs_without_a_setting_are_named() -> None:
    assert unsaid("megatron", sm.Strategy(tp=2, regather=False)) == ["regather"]
    assert unsaid("megatron", sm.Strategy(tp=1, regather=False)) == []
    assert unsaid("megatron", sm.Strategy(pp=4, schedule="zero_bubble")) == ["schedule"]
    assert unsaid("deepspeed", sm.Strategy(pp=4)) == ["pp"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_knob_without_any_setting_keeps_its_default(framework: str) -> None:
    fields = sm.Strategy.fields()
    assert {row["name"] for row in fields} >= set(_SAID)
    new = {"name": "a_new_knob", "default": False}
    assert _values_said([*fields, new], KNOBS[framework]) == {
        **KNOBS[framework],
        "a_new_knob": (False,),
    }


# ------------------------------------------------------------------------------------- searches
def question(model: str, framework: str) -> tuple[Any, ...]:
    stack = {"torchtitan": "torchtitan_2025"}.get(framework, "plain")
    if framework in MEGATRON_CORE:
        stack = "megatron_bridge_2025_11"
    return sm.model(model), sm.cluster("dgx_h100", nodes=16), TASK, stack


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", ["llama3_8b", "deepseek_v3"])
def test_a_search_offers_only_what_a_framework_starts(framework: str, model: str) -> None:
    asked, cluster, task, stack = question(model, framework)
    best = sm.search(asked, cluster, task, stack=stack, framework=framework, top=40)
    assert len(best) or model == "deepseek_v3"
    for est in best:
        assert accepts(framework, Case(asked, cluster, task, est.strategy, resolve.stack(stack)))
        assert not any("refuses" in note for note in sm.launch(est, framework).notes)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_best_startable_strategy_is_that_of_the_whole_space(framework: str) -> None:
    """No faster row of a sweep is accepted: the search leaves out only what it must."""
    space = Space(
        tp=[1, 2, 4], pp=[1, 2, 4], vpp=[1, 2], micro_batch=[1, 2], cp=[1, 2], ep=[1, 4, 8]
    )
    cluster, stack = sm.cluster("dgx_h100", nodes=2), "megatron_bridge_2025_11"
    model, task = sm.model("mixtral_8x7b"), sm.Training(global_batch=64, sequence=4096)
    best = sm.search(
        *(model, cluster, task, space), stack=stack, framework=framework, top=3, headroom=0
    )
    table = sm.sweep(model, cluster, task, space, stack=stack).sort_values("step_time_s")
    fields = [row["name"] for row in sm.Strategy.fields()]
    found = []
    for row in table[table.verdict == "ok"].itertuples():
        strategy = sm.Strategy(**{name: getattr(row, name) for name in fields})
        if accepts(framework, Case(model, cluster, task, strategy, resolve.stack(stack))):
            found.append(row.step_time_s)
            break
    if not found:
        assert len(best) == 0
        return
    fastest = min(est.step_time_s for est in best)
    assert fastest == pytest.approx(found[0], rel=1e-9)


def test_shards_processes_and_prefixes_give_the_same_ranking() -> None:
    from concurrent.futures import ThreadPoolExecutor

    asked, cluster, task, stack = question("llama3_8b", "megatron")
    whole = sm.search(asked, cluster, task, stack=stack, framework="megatron", top=10)
    with ThreadPoolExecutor(2) as executor:
        parts = sm.search(
            *(asked, cluster, task),
            stack=stack,
            framework="megatron",
            executor=executor,
            shards=3,
        )
    assert [est.strategy for est in parts] == [est.strategy for est in whole]
    longer = sm.search(asked, cluster, task, stack=stack, framework="megatron", top=40)
    assert [est.step_time_s for est in whole] == [est.step_time_s for est in longer[:10]]


def test_spaces_that_a_framework_cannot_say_are_refused_by_name() -> None:
    asked, cluster, task, stack = question("llama3_8b", "deepspeed")
    with pytest.raises(sm.ScaleModelError, match=r"pp=\[2, 4\]: deepspeed can only say 1"):
        sm.search(asked, cluster, task, Space(pp=[2, 4]), stack=stack, framework="deepspeed")
    with pytest.raises(sm.ScaleModelError, match="framework='megatrn': unknown; "):
        sm.search(asked, cluster, task, stack=stack, framework="megatrn")
    with pytest.raises(sm.ScaleModelError, match="starts decoders only"):
        sm.search(
            *(sm.compose("vit_b"), cluster, sm.Training(global_batch=4096, sequence=197)),
            framework="megatron",  # type: ignore[call-overload]
        )
    kept = expressible(*(Space(tp=[1, 2], recompute="full"), "torchtitan", asked, cluster, task))
    assert dict(kept.knobs)["tp"] == (1, 2)
    assert dict(kept.knobs)["placement"] == KNOBS["torchtitan"]["placement"]


# ------------------------------------------- the frameworks' own checks, where they are installed
def test_megatron_core_takes_what_the_rules_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration lets four bad layouts through, which fail later."""
    pytest.importorskip("megatron.core", reason="megatron-core is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from megatron.core.transformer import TransformerConfig

    for wrong in (
        {"pipeline_model_parallel_size": 3},
        {"num_query_groups": 3},
        {"num_moe_experts": 8, "expert_model_parallel_size": 3},
        {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 3},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TransformerConfig(
                num_layers=4,
                hidden_size=512,
                num_attention_heads=8,
                pipeline_dtype=torch.bfloat16,
                **wrong,  # type: ignore[arg-type]
            )


@pytest.mark.slow
def test_layouts_are_those_that_megatron_core_parses() -> None:
    module = pytest.importorskip(
        "megatron.core.transformer.pipeline_parallel_layer_layout",
        reason="megatron-core is not installed",
    )
    for layers in (4, 17, 61, 126):
        for pp, vpp in ((2, 1), (3, 1), (4, 2), (4, 4)):
            if pp * vpp > layers:
                continue
            text = layout_text(chunk_layers(layers, pp * vpp, False), 1)
            parsed = module.PipelineParallelLayerLayout(text, pp)
            parsed.validate_layer_layout(num_layers=layers, mtp_num_layers=1)
            assert parsed.virtual_pipeline_model_parallel_size == vpp


def test_a_framework_that_starts_nothing_says_why() -> None:
    task = sm.FineTuning(global_batch=16, sequence=4096, method="lora")
    space = sm.Space(tp=[1, 2], pp=1)
    cluster = sm.cluster("dgx_h100", nodes=1)
    ranking = sm.search("llama3_8b", cluster, task, space=space, framework="megatron_bridge")
    assert len(ranking) == 0
    for said in (repr(ranking), ranking.why_infeasible()):
        assert "megatron_bridge starts none of those that do: adapters are no arguments" in said
    assert "starts none" not in repr(sm.search("llama3_8b", cluster, task, space=space))
