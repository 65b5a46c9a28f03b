"""Published training recipes: what they say of runs that are silent, and of which runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from reference.runs import LLAMA
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.recipes import (
    MODEL_CLASSES,
    Recipe,
    Run,
    check_recipe,
    model_class,
    recipe_for,
    recipes,
)
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Row, SkippedRowError
from scalemodel.validation.training import INPUT_COLUMNS, question

BRIDGE = Run("Megatron-Bridge 26.04", "dense", "gb200", "fp8")
#: A part of each architecture that recipes name.
PARTS = {"tpu": "tpu_v5p", "blackwell": "b200", "hopper": "h100_sxm_80"}
LATENT = {
    "framework": "Megatron-Bridge 26.04",
    "head_dim": "MLA qk128+64 v128",
    "n_heads": "128",
    "moe_experts": "256",
    "moe_topk": "8",
    "moe_ffn": "2048",
    "arch_note": "MLA q_lora 1536 kv_lora 512",
    "recompute": "unknown",
}


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_model_has_one_class(name: str) -> None:
    table = catalog.load("models", name)["architecture"]
    found = model_class(table)
    assert found in MODEL_CLASSES
    assert (found in ("dense", "delta_rules")) == (not table.get("experts"))


def test_recipes_tell_accelerators_formats_and_releases_apart() -> None:
    windowed = replace(BRIDGE, model_class="windowed_experts")
    assert recipe_for(windowed).recompute == ("selective",)
    assert recipe_for(replace(windowed, accelerator="gb300")).recompute == ("none",)
    later = replace(windowed, framework="Megatron-Bridge 26.08")
    assert recipe_for(later).recompute == ("none",)
    assert recipe_for(replace(later, number_format="bf16")).recompute == ("selective",)


def test_the_first_recipe_that_speaks_of_something_decides_it() -> None:
    fused = Run("Megatron-Bridge 26.06", "windowed_experts", "gb200", "fp8")
    assert dict(recipe_for(fused).stack)["fused_expert_bias"] is True
    point = recipe_for(replace(fused, framework="Megatron-Bridge 26.06.01"))
    assert dict(point.stack)["biased_gradient_slowdown"] > 1
    assert "biased_gradient_slowdown" not in dict(recipe_for(fused).stack)
    assert dict(point.stack)["fp8_attention"] is True
    assert point.recompute == recipe_for(fused).recompute == ("none",)


def test_recipes_tell_layouts_apart() -> None:
    run = Run("Megatron-Bridge 26.02", "experts", "gb200", "fp8")
    assert "cuda_graphs" not in dict(recipe_for(run).stack)
    assert dict(recipe_for(replace(run, pp=8)).stack)["cuda_graphs"] is True


def test_a_framework_without_a_recipe_is_left_alone() -> None:
    assert recipe_for(replace(BRIDGE, framework="llm-foundry")) == Recipe()
    assert recipe_for(replace(BRIDGE, method="full")) == Recipe()


def test_adapters_of_a_release_and_of_its_branch_sit_elsewhere() -> None:
    tuned = replace(BRIDGE, method="lora")
    assert recipe_for(tuned).lora_targets == "qkv"
    branch = replace(tuned, framework="Megatron-Bridge 26.08 Megatron-Bridge main")
    assert recipe_for(branch).lora_targets == "all"


def test_compressed_keys_follow_recipes_of_their_own() -> None:
    table = catalog.load("models", "deepseek_v4_flash")["architecture"]
    assert model_class(table) == "compressed_experts"
    run = replace(BRIDGE, framework="Megatron-Bridge 26.08", model_class="compressed_experts")
    assert dict(recipe_for(run).stack) == {
        "cuda_graphs": True,
        "selective_modules": "mla_up_proj",
    }
    wide = dict(recipe_for(replace(run, number_format="bf16")).stack)
    assert wide == {"fused_experts": False, "grouped_launch": False}  # kernels of MXFP8 alone


def test_fine_tuning_of_a_benchmark_has_rules_of_its_own() -> None:
    tuned = Run("NeMo 24.07", "dense", "h100_sxm_80", "fp8", method="lora")
    assert (recipe_for(tuned).packed, recipe_for(tuned).lora_targets) == (256, "qkv")
    assert recipe_for(replace(tuned, method="full")).packed == 256
    assert recipe_for(replace(tuned, method="pretrain")).packed == 0
    round_ = recipe_for(replace(tuned, framework="NeMo 24.07 LoRA (MLPerf)"))
    assert (round_.packed, round_.lora_targets) == (0, "attention")


def test_tensor_parallel_exchange_of_experts_is_exposed() -> None:
    assert recipe_for(replace(BRIDGE, model_class="experts")).overlap_tp is False
    assert recipe_for(BRIDGE).overlap_tp is None


def test_a_recipe_may_be_of_one_model() -> None:
    kimi = replace(BRIDGE, model_class="latent_experts", model="Kimi-K2")
    assert recipe_for(kimi).optimizer == "muon"
    assert recipe_for(replace(kimi, model="DeepSeek-V3")).optimizer == ""
    assert recipe_for(replace(kimi, method="lora")).optimizer == ""


def test_a_recipe_may_repeat_some_layers() -> None:
    amd = Run("NeMo LoRA (MLPerf)", "dense", "mi300x", "fp8", method="lora", year=2025)
    found = recipe_for(amd)
    assert (found.recompute, found.recompute_layers) == (("full",), 21)
    larger = recipe_for(replace(amd, accelerator="mi325x"))
    assert (larger.recompute, larger.recompute_layers) == (("none",), 0)


def test_deepseek_and_kimi_repeat_their_up_projections() -> None:
    for model in ("DeepSeek-V3", "Kimi-K2"):
        found = recipe_for(replace(BRIDGE, model_class="latent_experts", model=model))
        assert found.recompute == ("selective",)
        assert dict(found.stack)["selective_modules"] == "mla_up_proj"
    hopper = replace(BRIDGE, model_class="latent_experts", model="DeepSeek-V3")
    hopper = replace(hopper, accelerator="h100_sxm_80")
    assert dict(recipe_for(hopper).stack)["selective_modules"] == "mla_up_proj+mlp"


def test_the_first_bridge_leaves_the_exchange_of_qwen_alone() -> None:
    qwen = Run("Megatron-Bridge 25.09", "experts", "h100_sxm_80", "fp8", model="Qwen3-235B-A22B")
    assert dict(recipe_for(qwen).stack)["overlap_ep_between"] is False
    assert recipe_for(qwen).overlap_tp is True
    later = recipe_for(replace(qwen, framework="Megatron-Bridge 25.11"))
    assert "overlap_ep_between" not in dict(later.stack)


def test_every_entry_can_be_reached_and_cites() -> None:
    for number, table in enumerate(recipes(), start=1):
        check_recipe(table, f"recipe {number}")
        first = table.get("from", table.get("to", 26.02))
        named = any(letter.isdigit() for letter in table["frameworks"][0])
        accelerator = table.get("accelerators", ["h100_sxm_80"])[0]
        asked = Run(
            framework=table["frameworks"][0] + ("" if named or first > 2000 else f" {first:.2f}"),
            model_class=table.get("models", ["dense"])[0],
            accelerator=PARTS.get(accelerator, accelerator),
            number_format=table.get("formats", ["bf16"])[0],
            method=table.get("tasks", ["pretrain"])[0],
            year=round(first) if first > 2000 else None,
            **{key: 2 if table.get(key) == "several" else 1 for key in ("tp", "pp", "cp")},
            routing=table.get("routing", "natural"),
            model=table.get("names", [""])[0],
        )
        found = recipe_for(asked)
        assert table["source"] in found.sources
        if found.sources[0] == table["source"]:
            assert dict(found.stack).items() >= table.get("stack", {}).items()


@pytest.mark.parametrize(
    "change, named",
    [
        ({"recompute": ["half"]}, "half"),
        ({"models": ["huge"]}, "huge"),
        ({"source": ""}, "source"),
        ({"rows": [1]}, "rows"),
        ({"pp": "four"}, "four"),
        ({"routing": "even"}, "even"),
        ({"context": "tree"}, "tree"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"names": ["Kimi"]}, "Kimi"),
        ({"names": []}, "names"),
        ({"names": "kimi"}, "names"),
        ({"stack": {"gemm_efficiency": 1}}, "gemm_efficiency"),
        ({"recompute_layers": 21}, "recompute_layers=21"),
        ({"recompute": ["full"], "recompute_layers": 0}, "recompute_layers=0"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(change: dict[str, object], named: str) -> None:
    right = {"frameworks": ["x"], "recompute": ["none"], "source": "somewhere"}
    check_recipe(right, "recipe 1")
    with pytest.raises(ScaleModelError, match=named):
        check_recipe(right | change, "recipe 1")


def test_a_silent_run_follows_its_recipe_and_says_so() -> None:
    silent = question(Row(LLAMA | LATENT))
    assert silent.recomputations == ("none",)
    assert silent.spare_recomputations == ("selective", "full")
    assert dict(silent.strategy)["overlap_tp"] is False
    assert any("recipe" in note for note in silent.notes)


def test_what_a_run_states_wins_over_its_recipe() -> None:
    stated = question(Row(LLAMA | LATENT | {"recompute": "full", "overlap": "TP_COMM_OVERLAP"}))
    assert (stated.recomputations, stated.spare_recomputations) == (("full",), ())
    assert dict(stated.strategy)["overlap_tp"] is True


def test_routing_that_is_not_forced_loads_ranks_unevenly() -> None:
    branch = replace(BRIDGE, framework="Megatron-Bridge main", model_class="experts", year=2026)
    natural, forced = recipe_for(branch), recipe_for(replace(branch, routing="forced"))
    assert natural.imbalance > 1 == forced.imbalance
    assert recipe_for(replace(branch, model_class="latent_experts")).imbalance == 1
    assert recipe_for(replace(BRIDGE, model_class="experts")).imbalance == 1
    cells = LLAMA | {"framework": "Megatron-Bridge main", "year": "2026"}
    cells |= {"moe_experts": "128", "moe_topk": "8", "moe_ffn": "1536"}
    even = {"other_flags": "force_load_balancing=yes"}
    assert dict(question(Row(cells)).task)["imbalance"] == natural.imbalance
    assert "imbalance" not in dict(question(Row(cells | even)).task)


def test_graphs_of_modules_hold_no_experts() -> None:
    cells = LLAMA | {"framework": "Megatron-Bridge 26.08", "gpu": "GB200", "precision": "MXFP8"}
    cells |= {"moe_experts": "128", "moe_topk": "8", "moe_ffn": "1536"}
    flags = ("cuda_graph_impl=transformer_engine", "cuda_graph_impl=full_iteration")
    scoped, whole = (dict(question(Row(cells | {"other_flags": f})).facts) for f in flags)
    assert scoped["cuda_graphs"] is whole["cuda_graphs"] is True
    assert (scoped["grouped_launch"], whole["grouped_launch"]) == (False, True)


def test_the_name_of_a_model_is_no_part_of_its_recipe() -> None:
    named, other = (question(Row(LLAMA | LATENT | {"model": text})) for text in ("one", "another"))
    assert named == other


def test_facts_of_a_run_come_from_its_recipe_and_from_what_it_says() -> None:
    silent = question(Row(LLAMA | LATENT | {"framework": "Megatron-Bridge 26.06"}))
    assert dict(silent.facts)["fused_experts"] is False
    said = {"other_flags": "DeepEP; grouped GEMM; CUDA graphs", "framework": "torchtitan"}
    spoken = dict(question(Row(LLAMA | LATENT | said)).facts)
    assert spoken == dict.fromkeys(
        ("deduplicated_dispatch", "deduplicated_between", "grouped_launch", "cuda_graphs"), True
    )
    drop = {"other_flags": "tokendrop; force-balanced dropless"}
    assert dict(question(Row(LLAMA | LATENT | drop)).facts)["drops_tokens"] is True


@pytest.mark.parametrize(
    "flags, said",
    [
        ("no CUDA graphs", {"cuda_graphs": False}),
        ("CUDA graphs: off; grouped GEMM", {"cuda_graphs": False, "grouped_launch": True}),
        ("without DeepEP", {"deduplicated_dispatch": False, "deduplicated_between": False}),
        ("no DeepEP, HybridEP", {"deduplicated_dispatch": True, "deduplicated_between": True}),
        ("no token drop", {"drops_tokens": False}),
        ("not dropless", {"drops_tokens": True}),
        ("no full-iteration graphs", {}),
        ("CUDA graphs, not full-iteration", {"cuda_graphs": True}),
        ("full-iteration graphs", {"cuda_graphs": True, "grouped_launch": True}),
    ],
)
def test_a_denied_fact_is_not_one(flags: str, said: dict[str, bool]) -> None:
    row = LLAMA | LATENT | {"framework": "torchtitan", "other_flags": flags}
    assert dict(question(Row(row)).facts) == said


def test_a_denied_overlap_is_not_one() -> None:
    row = LLAMA | {"overlap": "grad-reduce; no param-gather, TP-comm off"}
    asked = dict(question(Row(row)).strategy)
    assert asked["overlap_grad_reduce"] is True
    assert asked["overlap_param_gather"] is asked["overlap_tp"] is False


def test_facts_change_the_prediction_of_a_run() -> None:
    row = LLAMA | LATENT | {"other_flags": "grouped GEMM", "framework": "torchtitan"}
    with_facts, without = question(Row(row)), question(Row(row | {"other_flags": ""}))
    predictor = Predictor()
    stacks = [predictor.constants(asked) for asked in (with_facts, without)]
    assert [stack.grouped_launch for stack in stacks] == [True, False]
    assert predictor.predict(with_facts) != predictor.predict(without)


def test_releases_are_compared_with_releases_and_years_with_years() -> None:
    tuned = Run("NVIDIA NeMo Framework Release 24.09 lora (mlperf)", "dense", "h200", "fp8", "lora")
    attention = [
        dict(recipe_for(replace(tuned, year=year)).stack).get("fp8_attention")
        for year in (2023, 2024, 2025, None)
    ]
    assert attention == [None, True, True, True]  # without a year, that of the release
    unnamed = Run("Megatron-Bridge", "latent_experts", "b200", "fp8", year=2026)
    assert "fused_experts" not in dict(recipe_for(unnamed).stack)
    assert "fused_experts" in dict(
        recipe_for(replace(unnamed, framework="Megatron-Bridge 26.08")).stack
    )


def test_experts_beside_recurrent_mixers_are_a_class_of_their_own() -> None:
    assert model_class({"experts": 128, "mixers": "R-RF"}) == "hybrid_experts"
    assert model_class({"mixers": "R-RF"}) == "dense"
    late = recipe_for(Run("Megatron-Bridge 26.06", "hybrid_experts", "gb200", "fp8"))
    assert dict(late.stack) == {"fused_experts": False, "grouped_launch": False}
    assert late.recompute == ("none",)
    early = recipe_for(Run("Megatron-Bridge 26.04", "hybrid_experts", "h100_sxm_80", "fp8"))
    assert dict(early.stack) == {}
    assert early.recompute == ("selective",)


def errors_of(*models: str) -> list[float]:
    """Predicted over measured steps less 1 of all tuned runs whose model begins so."""
    predictor = Predictor()
    off = []
    columns = (*INPUT_COLUMNS, "norm_step_time_s", "fitted")
    for row in published_table("training").select(columns):
        measured = row.number("norm_step_time_s")
        tuned = row.text("fitted") != "interval"  # checks of a library are apart
        if measured and tuned and row.text("model").startswith(models):
            predicted = predictor.predict(question(row)).step_time_s
            assert predicted is not None
            off.append(predicted / measured - 1)
    return off


def test_published_runs_of_hybrids_are_met() -> None:
    off = errors_of("Nemotron-3", "Nemotron-H")
    assert len(off) > 24
    assert sum(map(abs, off)) / len(off) < 0.095
    assert max(map(abs, off)) < 0.22


def test_published_runs_of_compressed_keys_are_met() -> None:
    off = errors_of("DeepSeek-V4")  # no constant was fitted to them
    assert len(off) == 4
    assert max(map(abs, off)) < 0.145


def test_a_run_says_itself_what_its_attention_multiplies() -> None:
    late = LLAMA | {"framework": "Megatron-Bridge 26.08", "gpu": "GB300", "precision": "MXFP8"}
    experts = late | {"moe_experts": "128", "moe_topk": "8", "moe_ffn": "1536"}
    assert dict(question(Row(experts)).facts)["fp8_attention"] is True
    for said in (False, True):
        flag = f"fp8_dot_product_attention={'yes' if said else 'no'}"
        facts = dict(question(Row(experts | {"other_flags": flag})).facts)
        assert facts["fp8_attention"] is said


def test_every_recipe_speaks_of_a_measured_run(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken: set[str] = set()

    def remembered(run: Run) -> Recipe:
        found = recipe_for(run)
        spoken.update(found.sources)
        return found

    monkeypatch.setattr("scalemodel.validation.training.recipes.recipe_for", remembered)
    branch = LLAMA | {"framework": "Megatron-Bridge main", "year": "2026", "task": "LoRA"}
    named = {"framework": "Megatron-Bridge main", "year": "2026", "precision": "BF16"}
    named |= {"seq_len": "4096", "micro_batch": "1", "global_batch": "256", "n_gpus": "64"}
    delta = named | {"model": "Qwen3.8-27B", "gpu": "GB200"}
    split = named | {"task": "SFT", "cp": "2", "gpu": "GB200"}
    runs = (
        branch,
        delta | {"task": "SFT"},
        delta | {"task": "pretrain", "tp": "4", "pp": "4"},
        split | {"model": "GPT-OSS-120B"},
        split | {"model": "Nemotron-3.5-Lightning"},
        split | {"model": "Qwen3-30B-A3B", "task": "pretrain"},
        branch | {"task": "SFT", "gpu": "H100", "precision": "FP8"},
    )
    for row in (*published_table("training").select(INPUT_COLUMNS), *map(Row, runs)):
        with suppress(SkippedRowError):
            question(row)
    assert [table["source"] for table in recipes() if table["source"] not in spoken] == []
