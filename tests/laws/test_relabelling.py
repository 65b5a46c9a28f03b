"""What has several names has one answer."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel import catalog

TASK = sm.Training(global_batch=128, sequence=4096)
PLAN = sm.Strategy(tp=4, pp=2)


def aliases(kind: str) -> list[tuple[str, str]]:
    """Every (alias, entry) of a kind of the catalogue."""
    pairs = []
    for name in catalog.names(kind):
        entry = catalog.load(kind, name)
        pairs += [(str(alias), name) for alias in [*entry.get("aliases", []), name.upper()]]
    return pairs


@pytest.mark.parametrize("kind", ["accelerators", "clusters", "models", "stacks", "interconnects"])
def test_an_alias_is_its_entry(kind: str) -> None:
    for alias, name in aliases(kind):
        assert catalog.find(kind, alias) == name, alias


@pytest.mark.parametrize("kind", ["accelerators", "clusters", "models"])
def test_no_alias_belongs_to_two_entries(kind: str) -> None:
    owner: dict[str, str] = {}
    for alias, name in aliases(kind):
        assert owner.setdefault(catalog.normalised(alias), name) == name, alias


@given(alias=st.sampled_from(aliases("models")), spelling=st.sampled_from(["", "upper", "spaces"]))
def test_a_model_under_another_name_is_the_same_model(
    alias: tuple[str, str], spelling: str
) -> None:
    label, name = alias
    if spelling == "upper":
        label = label.upper()
    elif spelling == "spaces":
        label = label.replace("-", " ").replace("_", " ")
    assert sm.model(label) == sm.model(name)


@given(alias=st.sampled_from(aliases("clusters")))
def test_a_cluster_under_another_name_is_the_same_cluster(alias: tuple[str, str]) -> None:
    label, name = alias
    assert sm.cluster(label, nodes=2) == sm.cluster(name, nodes=2)


def test_the_same_question_in_other_words_has_the_same_answer() -> None:
    plain = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2), TASK, PLAN)
    models: list[str | sm.Model] = ["Llama-3-8B", "LLAMA 3 8B", sm.model("llama3_8b")]
    clusters = [
        sm.cluster("NVIDIA DGX H100", accelerators=16),
        sm.cluster({"base": "dgx_h100"}, nodes=2),
        sm.cluster(sm.cluster("dgx_h100"), nodes=2),
    ]
    for model, cluster in itertools.product(models, clusters):
        again = sm.estimate(model, cluster, TASK, PLAN)
        assert again.core == plain.core


def test_a_strategy_left_out_is_the_default_strategy() -> None:
    cluster = sm.cluster("dgx_h100")
    assert sm.estimate("llama3_8b", cluster, TASK) == sm.estimate(
        "llama3_8b", cluster, TASK, sm.Strategy()
    )


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    placement=st.sampled_from(["tp-cp-dp-pp", "cp-tp-dp-pp", "tp-dp-cp-pp", "tp-dp-pp-cp"]),
)
def test_where_an_axis_of_one_rank_stands_changes_nothing(tp: int, pp: int, placement: str) -> None:
    cluster = sm.cluster("dgx_h100", nodes=4)
    plain = sm.estimate("llama3_8b", cluster, TASK, sm.Strategy(tp=tp, pp=pp))
    moved = sm.estimate("llama3_8b", cluster, TASK, sm.Strategy(tp=tp, pp=pp, placement=placement))
    assert moved.core == plain.core


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    sharding=st.sampled_from(["ddp", "zero1", "zero3", "hsdp"]),
)
def test_an_answer_survives_pickling(tp: int, sharding: str) -> None:
    est = sm.estimate(
        "llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=tp, sharding=sharding)
    )
    again = pickle.loads(pickle.dumps(est))
    assert again == est
    assert hash(again) == hash(est)
    assert again.to_dict() == est.to_dict()
