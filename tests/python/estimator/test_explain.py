"""Laws of explanations: parts sum to the whole, and every term says where it comes from."""

from __future__ import annotations

import json
import math

import pytest

import scalemodel as sm
from questions import checked_markup
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS
from scalemodel.estimator.explain import Explanation

QUESTIONS = {
    "dense": (
        "llama3_70b",
        64,
        sm.Training(global_batch=1024, sequence=8192),
        sm.Strategy(tp=8, pp=4, vpp=2),
    ),
    "recomputed": (
        "llama3_70b",
        64,
        sm.Training(global_batch=1024, sequence=8192),
        sm.Strategy(sharding="zero3", recompute="full"),
    ),
    "routed": (
        "deepseek_v3",
        256,
        sm.Training(global_batch=15360, sequence=4096, precision="fp8"),
        sm.Strategy(pp=16, ep=64, recompute="full"),
    ),
    "context": (
        "llama3_8b",
        4,
        sm.Training(global_batch=16, sequence=131072),
        sm.Strategy(tp=4, cp=4),
    ),
    "adapters": (
        "llama3_8b",
        1,
        sm.FineTuning(global_batch=64, sequence=4096, method="lora"),
        sm.Strategy(tp=2),
    ),
    "host": (
        "llama3_70b",
        2,
        sm.Training(global_batch=64, sequence=4096),
        sm.Strategy(tp=8, recompute="full", offload_optimizer=True, offload_activations=True),
    ),
}


@pytest.fixture(params=QUESTIONS, scope="module")
def est(request: pytest.FixtureRequest) -> sm.Estimate:
    model, nodes, task, strategy = QUESTIONS[request.param]
    found = sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), task, strategy)
    assert not found.illegal
    return found


def test_children_sum_to_their_parent(est: sm.Estimate) -> None:
    checked = 0
    for term in est.explain().walk():
        same = [child for child in term.children if child.unit == term.unit]
        if term.value is None or not same:
            continue
        assert len(same) == len(term.children)
        total = math.fsum(child.value or 0.0 for child in same)
        assert math.isclose(total, term.value, rel_tol=1e-9, abs_tol=1e-12), term.name
        checked += 1
    assert checked > 5


def test_every_term_has_formula_and_source(est: sm.Estimate) -> None:
    for term in est.explain().walk():
        assert term.name
        assert term.formula, term.name
        assert term.source, term.name
        if term.value is not None:
            assert math.isfinite(term.value)
            assert term.unit in ("s", "B", "J", "USD", "fraction")


def test_terms_are_the_columns(est: sm.Estimate) -> None:
    step, memory = est.explain("step_time"), est.explain("memory")
    assert step.value == est.step_time_s
    assert {f"{term.name}_s": term.value for term in step.children} == {
        column: getattr(est, column) for column in TIME_COLUMNS
    }
    assert memory.value == est.memory_bytes
    assert {f"memory_{term.name}_bytes": term.value for term in memory.children} == {
        column: getattr(est, column) for column in MEMORY_COLUMNS
    }
    assert est.explain("energy").value == est.energy_j
    assert est.explain("cost").value == est.cost_usd
    assert est.explain("mfu").value == est.mfu_fraction
    assert est.explain("hfu").value == est.hfu_fraction


def test_leaves_are_the_operators(est: sm.Estimate) -> None:
    frame = est.operators()
    products = set(frame.operator[frame.m > 0])
    found = {term.name for term in est.explain("compute").walk()}
    assert products <= found
    assert "attention" in found


def test_energy_parts_are_positive(est: sm.Estimate) -> None:
    for term in est.explain("energy").children:
        assert term.value is not None
        assert term.value > 0


def test_what_ran_twice_is_named(est: sm.Estimate) -> None:
    names = {term.name for term in est.explain("compute").children}
    assert ("recomputation" in names) == (est.strategy.recompute != "none")


@pytest.mark.parametrize(
    ("term", "name"),
    [
        ("exposed_tp_s", "exposed_tp"),
        ("tp", "exposed_tp"),
        ("memory_weights_bytes", "weights"),
        ("memory.weights", "weights"),
        ("compute.layer 0.attention", "attention"),
        ("step_time.compute", "compute"),
        ("Energy.Hosts", "hosts"),
        ("energy_j", "energy"),
        ("cost_usd", "cost"),
    ],
)
def test_terms_are_found_by_name_column_and_path(term: str, name: str) -> None:
    model, nodes, task, strategy = QUESTIONS["dense"]
    est = sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), task, strategy)
    assert est.explain(term).name == name


def test_an_unknown_term_is_an_error() -> None:
    model, nodes, task, strategy = QUESTIONS["dense"]
    est = sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), task, strategy)
    with pytest.raises(sm.ScaleModelError, match="bubble") as caught:
        est.explain("bubles")
    assert caught.value.code == "unknown_term"


def test_an_explanation_prints_and_folds(est: sm.Estimate) -> None:
    tree = est.explain()
    text = str(tree)
    assert text.count("source: ") == sum(1 for _ in tree.walk())
    for column in ("compute", "bubble", "activations", "energy", "mfu"):
        assert column in text
    markup = checked_markup(tree._repr_html_())
    assert markup.seen.count("details") == sum(1 for _ in tree.walk())


def test_a_term_tells_how_sure_it_is(est: sm.Estimate) -> None:
    """As sure as the least certain thing that enters it."""
    tree = est.explain()
    grades = {term.name: term.confidence for term in tree.walk()}
    assert set(grades.values()) == {"counted", "published", "fitted", "assumed"}
    assert grades["weights"] == grades["activations"] == "counted"
    assert grades["compute"] == grades["step_time"] == "fitted"
    assert grades["norm"] == "assumed"  # H100 borrows the constants of the A100
    assumed = [term for term in tree.walk() if term.confidence == "assumed"]
    assert str(tree).count("assumed; source") == len(assumed)


def test_an_explanation_becomes_json(est: sm.Estimate) -> None:
    document = json.loads(json.dumps(est.explain().to_dict(), allow_nan=False))

    def count(node: dict[str, object]) -> int:
        below = node["children"]
        assert isinstance(below, list)
        return 1 + sum(count(child) for child in below)

    assert count(document) == sum(1 for _ in est.explain().walk())


def test_an_illegal_strategy_explains_why() -> None:
    est = sm.estimate(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=64),
        sm.Training(global_batch=1024, sequence=8192),
        sm.Strategy(tp=7),
    )
    tree = est.explain()
    assert isinstance(tree, Explanation)
    assert tree.value is None
    # Why, and nothing about changes: those take a search, and some would help.
    assert "\n".join([tree.formula, "  Fixes, fastest first:"]) in est.message()
    assert tree.formula.startswith("illegal:mesh")
    assert not tree.children


def test_private_hardware_has_sources_too() -> None:
    cluster = sm.cluster(
        {"base": "dgx_h100", "name": "mine", "accelerator": {"base": "h100_sxm_80", "name": "x1"}}
    )
    task = sm.Training(global_batch=64, sequence=4096)
    est = sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=8))
    assert all(term.source for term in est.explain().walk())
