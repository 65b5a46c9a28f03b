"""Published training recipes: what they say of runs that are silent, and of which runs."""

from __future__ import annotations

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
from scalemodel.validation.rows import Row
from scalemodel.validation.training import question

BRIDGE = Run("Megatron-Bridge 26.04", "dense", "gb200", "fp8")
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
    assert (found == "dense") == (not table.get("experts"))


def test_recipes_tell_accelerators_formats_and_releases_apart() -> None:
    windowed = replace(BRIDGE, model_class="windowed_experts")
    assert recipe_for(windowed).recompute == ("selective",)
    assert recipe_for(replace(windowed, accelerator="gb300")).recompute == ("none",)
    later = replace(windowed, framework="Megatron-Bridge 26.08")
    assert recipe_for(later).recompute == ("none",)
    assert recipe_for(replace(later, number_format="bf16")).recompute == ("selective",)


def test_a_framework_without_a_recipe_is_left_alone() -> None:
    assert recipe_for(replace(BRIDGE, framework="llm-foundry")) == Recipe()
    assert recipe_for(replace(BRIDGE, method="lora")) == Recipe()


def test_tensor_parallel_exchange_of_experts_is_exposed() -> None:
    assert recipe_for(replace(BRIDGE, model_class="experts")).overlap_tp is False
    assert recipe_for(BRIDGE).overlap_tp is None


def test_every_entry_can_be_reached_and_cites() -> None:
    for number, table in enumerate(recipes(), start=1):
        check_recipe(table, f"recipe {number}")
        asked = Run(
            framework=f"{table['frameworks'][0]} {table.get('from', 26.02):.2f}",
            model_class=table.get("models", ["dense"])[0],
            accelerator={"tpu": "tpu_v5p"}.get(
                (found := table.get("accelerators", ["h100_sxm_80"])[0]), found
            ),
            number_format=table.get("formats", ["bf16"])[0],
        )
        assert recipe_for(asked).source == table["source"]


@pytest.mark.parametrize(
    "change, named",
    [
        ({"recompute": ["half"]}, "half"),
        ({"models": ["huge"]}, "huge"),
        ({"source": ""}, "source"),
        ({"rows": [1]}, "rows"),
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


def test_the_name_of_a_model_is_no_part_of_its_recipe() -> None:
    named, other = (question(Row(LLAMA | LATENT | {"model": text})) for text in ("one", "another"))
    assert named == other
