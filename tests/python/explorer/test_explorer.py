"""The explorer answers what `sm.estimate` answers, at once, and its widgets turn it both ways."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from questions import checked_markup
from scalemodel import catalog
from scalemodel.base.text import percent_text
from scalemodel.codesign import design_cluster
from scalemodel.estimator.uncertainty import step_text

TASK = sm.Training(global_batch=256, sequence=8192)
PLAN = sm.Strategy(tp=8, pp=4)
MENUS = ("model", "accelerator", "stack")
MACHINE = ("accelerator.memory.bandwidth", "scale_up.bandwidth", "fabric.bandwidth")


def explored(model: str = "llama3_70b", plan: sm.Strategy = PLAN) -> sm.Explorer:
    return sm.explore(model, sm.cluster("dgx_h100", nodes=16), TASK, plan)


@settings(max_examples=50)
@given(data=st.data())
def test_an_explorer_answers_as_estimate_does(data: st.DataObject) -> None:
    explorer = explored()
    sliders = sorted(set(explorer.settings) - set(MENUS))
    names = data.draw(st.lists(st.sampled_from(sliders), unique=True))
    turned = {n: data.draw(st.sampled_from(explorer.settings[n].values), label=n) for n in names}
    for name, value in turned.items():  # one after the other
        explorer.set(**{name: value})
    now = {**explorer.values}
    assert explored().set(**turned) == explorer.estimate  # or all at once

    scales = {path: by for path, by in now.items() if explorer.settings[path].scales and by != 1}
    cluster = design_cluster(sm.cluster("dgx_h100", nodes=now["nodes"]), scales)
    task = TASK.replace(**{n: now[n] for n in ("global_batch", "sequence", "precision")})
    knobs = {n: value for n, value in now.items() if n in PLAN.to_dict()}
    asked = sm.estimate("llama3_70b", cluster, task, PLAN.replace(**knobs))
    assert explorer.estimate.core == asked.core


def test_every_setting_takes_every_value_and_comes_back() -> None:
    explorer = explored("mixtral_8x7b")
    first, values = explorer.estimate, {**explorer.values}
    assert {"ep", "tp", "nodes", "precision", *MACHINE} <= set(explorer.settings)
    for name, setting in explorer.settings.items():
        assert values[name] in setting.values
        for value in setting.values:
            explorer.set(**{name: value})
            assert explorer.values[name] == value
        assert explorer.set(**{name: values[name]}) == first


def test_dense_models_have_no_expert_slider() -> None:
    assert "ep" not in explored().settings


# ------------------------------------------------------------------------------------------ menus
def test_menus_list_the_catalogue() -> None:
    settings = explored().settings
    for name in MENUS:
        assert set(settings[name].values) == set(catalog.names(f"{name}s"))
        assert settings[name].group == "question"


def test_another_stack_and_model_answer_as_estimate_does() -> None:
    explorer = explored()
    cluster = sm.cluster("dgx_h100", nodes=16)
    for stack in ("torchtitan", "nemo_mcore_2024_25"):
        found = explorer.set(stack=stack)
        assert found == sm.estimate("llama3_70b", cluster, TASK, PLAN, stack=stack)
    for model in ("mixtral_8x7b", "llama3_1_405b"):
        found = explorer.set(model=model)
        assert found == sm.estimate(model, cluster, TASK, PLAN, stack="nemo_mcore_2024_25")
        assert explorer.model == sm.model(model)
    assert repr(explorer).startswith("Explorer(llama3_1_405b, ")


def test_another_accelerator_comes_in_usual_nodes() -> None:
    explorer = explored()
    found = explorer.set(accelerator="b200", precision="fp4")
    usual = sm.cluster({"name": "b200", "accelerator": "b200"}, nodes=16)
    task = TASK.replace(precision="fp4")
    assert found.core == sm.estimate("llama3_70b", usual, task, PLAN).core
    assert "fp4" in explorer.settings["precision"].values
    assert explorer.set(nodes=32).cluster.accelerators == 256
    back = explorer.set(accelerator="h100_sxm_80", precision="bf16", nodes=16)
    assert back == explored().estimate


def test_experts_come_and_go_with_their_model() -> None:
    explorer = explored()
    found = explorer.set(model="mixtral_8x7b", ep=4)
    assert found.strategy.ep == 4
    assert explorer.values["ep"] == 4
    dense = explorer.set(model="llama3_70b")
    assert "ep" not in explorer.settings
    assert dense == explored().estimate
    with pytest.raises(sm.ScaleModelError, match="ep: no such setting"):
        explorer.set(ep=2)


def test_a_model_without_a_name_in_the_catalogue_comes_first() -> None:
    own = dataclasses.replace(sm.model("llama3_8b"), name="mine")
    explorer = sm.explore(own, sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=2))
    assert explorer.settings["model"].values[0] == "mine"
    assert explorer.model == own
    explorer.set(model="llama3_70b")
    assert explorer.set(model="mine").model == own


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model": "llama9"}, "model='llama9'"),
        ({"accelerator": "h900"}, "accelerator='h900'"),
        ({"stack": "nemo"}, "stack='nemo'"),
    ],
)
def test_a_name_that_is_unknown_changes_nothing(values: dict[str, Any], named: str) -> None:
    explorer = explored()
    before = explorer.estimate, explorer.values, explorer.settings
    with pytest.raises(sm.ScaleModelError, match=named):
        explorer.set(**values)
    assert (explorer.estimate, explorer.values, explorer.settings) == before


# -------------------------------------------------------------------------------------- warnings
def test_memory_that_is_tight_or_too_little_has_a_colour_and_a_word() -> None:
    explorer = explored()
    tight, too_much = "background:#ffd9a8", "background:#f8c4c4"
    plain = explorer.html()
    assert tight not in plain
    assert too_much not in plain
    est = explorer.estimate
    exact = est.memory_bytes / est.memory_capacity_bytes
    explorer.set(**{"accelerator.memory.capacity": 1.02 * exact})
    checked_markup(explorer.html())
    assert tight in explorer.html()
    assert "tight: " in explorer.html()
    explorer.set(**{"accelerator.memory.capacity": 0.9 * exact})
    checked_markup(explorer.html())
    assert too_much in explorer.html()
    assert "too much</b>" in explorer.html()


@pytest.mark.parametrize("path", MACHINE)
def test_faster_parts_never_slow_the_step(path: str) -> None:
    explorer = explored()
    steps = [explorer.set(**{path: s}).step_time_s for s in explorer.settings[path].values]
    assert all(a >= b for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tq": 4}, "tq: no such setting; did you mean 'tp'"),
        ({"tp": "four"}, "tp='four'"),
        ({"precision": "fp3"}, "precision='fp3'"),
        ({"fabric.bandwidth": -1}, r"fabric\.bandwidth=-1"),
        ({"tp": 2, "nodes": 0}, "nodes=0"),
    ],
)
def test_what_makes_no_sense_changes_nothing(values: dict[str, Any], named: str) -> None:
    explorer = explored()
    before = explorer.estimate, {**explorer.values}
    with pytest.raises(sm.ScaleModelError, match=named):
        explorer.set(**values)
    assert (explorer.estimate, explorer.values) == before


@pytest.mark.parametrize(
    "asked",
    [
        (sm.compose("mlp", groups=[sm.Mlp(name="mlp", widths=(8, 8))]), TASK, None),
        ("llama3_8b", "a task", None),
        ("llama3_8b", TASK, "a strategy"),
    ],
)
def test_malformed_questions_are_refused(asked: tuple[Any, Any, Any]) -> None:
    model, task, plan = asked
    with pytest.raises(sm.ScaleModelError):
        sm.explore(model, "dgx_h100", task, plan)


def test_the_answer_is_written_beside_the_pinned_one() -> None:
    explorer = explored()
    assert explorer.pinned is None
    plain = explorer.html()
    checked_markup(plain)
    assert step_text(explorer.estimate) in plain
    assert "+0.0 %" not in plain
    explorer.pin()
    slower = explorer.set(**{"accelerator.peak": 0.5})
    change = percent_text(slower.step_time_s / explorer.pinned.step_time_s - 1, signed=True)
    shown = explorer.html()
    checked_markup(shown)
    assert change in shown


def test_what_cannot_run_says_why_and_is_not_pinned() -> None:
    explorer = explored()
    illegal = explorer.set(tp=1, pp=1, vpp=4)
    assert illegal.verdict == "illegal:vpp_without_pp"
    checked_markup(explorer.html())
    assert "vpp=4 needs a pipeline" in explorer.html()
    explorer.pin()
    assert explorer.pinned is None
    assert explorer.set(vpp=1).verdict == "out_of_memory"
    shown = explorer.html()
    checked_markup(shown)
    assert "too much on pipeline stage" in shown
    assert "No change" not in shown


def test_the_search_turns_to_the_best_strategy() -> None:
    explorer = explored()
    explorer.set(nodes=8, **{"fabric.bandwidth": 0.5})
    found = explorer.search(threads=1)
    cluster = design_cluster(sm.cluster("dgx_h100", nodes=8), {"fabric.bandwidth": 0.5})
    best = sm.search("llama3_70b", cluster, TASK, top=1, threads=1)[0]
    assert found.core == best.core
    assert explorer.values["tp"] == best.strategy.tp
    too_large = explored("llama3_1_405b")
    too_large.set(nodes=4)
    with pytest.raises(sm.ScaleModelError, match="nothing fits"):
        too_large.search(threads=1)


def test_the_present_answer_becomes_a_page() -> None:
    explorer = explored()
    page = explorer.report(title="Explored", threads=1)
    assert page.title == "Explored"
    assert page.ranking[0].core == explorer.estimate.core
    assert page.ranking.size == 1


def test_without_ipywidgets_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(sm.ScaleModelError, match=r'pip install "scalemodel\[explore\]"'):
        _ = explored().widget


# ---------------------------------------------------------------------------------------- widgets
@pytest.fixture
def controls() -> Any:
    """The widgets of an explorer, which answer to their values without a browser."""
    pytest.importorskip("ipywidgets")
    explorer = explored()
    assert explorer.widget is explorer.widget
    return explorer._controls


def test_widgets_turn_the_explorer(controls: Any) -> None:
    explorer = controls.explorer
    assert set(controls.inputs) == set(explorer.settings)
    turns = {"tp": 4, "recompute": "full", "sequence_parallel": False, "fabric.bandwidth": 2.0}
    for name, value in turns.items():
        controls.inputs[name].value = value
        assert explorer.values[name] == value
        assert controls.answer.value == explorer.html()
    assert explorer.estimate.strategy.tp == 4


def test_the_explorer_turns_its_widgets(controls: Any) -> None:
    controls.explorer.set(tp=4, precision="fp8", **{"fabric.bandwidth": 1.25})
    assert controls.inputs["tp"].value == 4
    assert controls.inputs["precision"].value == "fp8"
    assert controls.inputs["fabric.bandwidth"].value == 1.25  # which no slider offered
    labels = [label for label, _ in controls.inputs["fabric.bandwidth"].options]
    assert labels[labels.index("× 1") + 1] == "× 1.25"
    assert controls.answer.value == controls.explorer.html()


def test_menus_turn_the_explorer_and_its_sliders(controls: Any) -> None:
    explorer = controls.explorer
    assert type(controls.inputs["model"]).__name__ == "Dropdown"
    assert "ep" not in controls.inputs
    controls.inputs["model"].value = "mixtral_8x7b"
    assert explorer.values["model"] == "mixtral_8x7b"
    assert set(controls.inputs) == set(explorer.settings)
    controls.inputs["ep"].value = 4
    assert explorer.estimate.strategy.ep == 4
    strategy = controls._groups["strategy"].children
    assert controls.inputs["ep"] in strategy
    controls.inputs["model"].value = "llama3_70b"
    assert "ep" not in controls.inputs
    assert len(controls._groups["strategy"].children) == len(strategy) - 1
    controls.inputs["accelerator"].value = "b200"
    assert "fp4" in controls.inputs["precision"].options
    assert controls.answer.value == explorer.html()
    assert controls.note.value == ""


def test_buttons_do_what_they_say(
    controls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = controls.explorer
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCALEMODEL_NUM_THREADS", "1")
    controls.buttons["pin"].click()
    assert explorer.pinned == explorer.estimate
    controls.buttons["search"].click()
    assert controls.answer.value == explorer.html()
    assert {n: made.value for n, made in controls.inputs.items()} == explorer.values
    controls.buttons["help"].click()
    assert "speed of light" in controls.note.value
    controls.buttons["page"].click()
    assert "explored.html" in controls.note.value
    assert (tmp_path / "explored.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    explorer.set(nodes=4, **{"accelerator.memory.capacity": 0.02})
    controls.buttons["search"].click()
    assert "nothing fits" in controls.note.value


def test_a_question_without_sense_is_told_beside_the_answer(controls: Any) -> None:
    controls.inputs["tp"].options = [1, 2, 4, 8, 0]
    before = controls.answer.value
    controls.inputs["tp"].value = 0
    assert "tp=0" in controls.note.value
    assert controls.answer.value == before
    controls.inputs["tp"].value = 8
    assert controls.note.value == ""
