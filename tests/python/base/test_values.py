"""Values travel: through pickle, copies and processes they stay equal, and their hash is usable."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import scalemodel as sm

TASK = sm.Training(global_batch=64, sequence=8192)


@cache
def estimate() -> sm.Estimate:
    return sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=2, pp=2))


def fabric() -> sm.Fabric:
    """Failed cables and uneven capacities included."""
    whole = sm.Fabric.leaf_spine(leaves=4, spines=3, nics_per_leaf=4, bandwidth="100 Gbit/s")
    return whole.failed(spines=[2], capacity={(0, 4): 0.3})


def traffic() -> sm.Traffic:
    jobs = [{"pattern": "ring", "nics": [0, 4, 8, 12], "size_bytes": 1e9, "name": "a"}]
    return sm.Traffic.of_jobs(jobs)


def routing() -> sm.RoutingReport:
    return sm.route(fabric(), traffic(), policy="ecmp")


def network() -> sm.NetworkReport:
    return sm.route(sm.cluster("dgx_h100", nodes=4), [("llama3_8b", sm.Strategy(tp=2), TASK)])


MADE: dict[str, Callable[[], Any]] = {
    "Ablation": sm.Ablation,
    "Cluster": lambda: sm.cluster("dgx_h100", nodes=2),
    "Estimate": estimate,
    "Explanation": lambda: estimate().explain(),
    "Fabric": fabric,
    "FineTuning": lambda: sm.FineTuning(global_batch=8, sequence=2048, method="lora"),
    "Inference": lambda: sm.Inference(input_tokens=1000, output_tokens=100),
    "Launch": lambda: sm.launch(estimate(), "deepspeed"),
    "Model": lambda: sm.model("llama3_8b"),
    "NetworkReport": network,
    "Ranking": lambda: sm.search("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Space(cp=1), top=2),
    "RoutingReport": routing,
    "ServingLayout": sm.ServingLayout,
    "Settings": lambda: sm.read_settings("deepspeed", {"zero_optimization": {"stage": 2}}),
    "Space": lambda: sm.Space(tp=[1, 2]),
    "Strategy": lambda: sm.Strategy(tp=2, placement="tp-cp-dp-pp"),
    "Traffic": traffic,
    "Training": lambda: TASK,
    "disconnected RoutingReport": lambda: sm.route(
        fabric().failed(spines=[0, 1]), traffic(), policy="ecmp"
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_values_survive_pickle_and_copies(name: str) -> None:
    value, again = MADE[name](), MADE[name]()
    for other in (again, copy.deepcopy(value), copy.copy(value)):
        assert other == value
        assert hash(other) == hash(value)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        other = pickle.loads(pickle.dumps(value, protocol))
        assert other == value
        assert hash(other) == hash(value)
        assert repr(other) == repr(value)
    assert value != object()
    assert len({value, again}) == 1


def test_different_values_differ() -> None:
    whole = sm.Fabric.leaf_spine(leaves=4, spines=3, nics_per_leaf=4, bandwidth="100 Gbit/s")
    assert whole != fabric()
    assert whole.core != fabric().core
    assert routing() != sm.route(whole, traffic(), policy="ecmp")
    assert sm.route(whole, traffic(), policy="greedy") != sm.route(whole, traffic(), policy="ecmp")
    assert traffic() != sm.Traffic.of_jobs(
        [{"pattern": "ring", "nics": [0, 4, 8], "size_bytes": 1e9, "name": "a"}]
    )


def test_a_restored_fabric_is_repaired_and_routed_as_before() -> None:
    restored = pickle.loads(pickle.dumps(fabric()))
    repaired = [value.failed(capacity={(0, 4): 1.0}) for value in (restored, fabric())]
    assert repaired[0] == repaired[1]
    assert repaired[0] != fabric()
    tree = sm.Fabric.fat_tree(ports=4)
    again = pickle.loads(pickle.dumps(tree))
    jobs = [{"pattern": "all_to_all", "nics": list(range(16)), "size_bytes": 1e6}]
    both = [sm.route(value, sm.Traffic.of_jobs(jobs), policy="ecmp") for value in (tree, again)]
    assert both[0] == both[1]


def answers(_: int = 0) -> tuple[sm.Fabric, sm.RoutingReport]:
    return fabric(), routing()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_routings_travel_between_processes(method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(answers, range(2)) == [answers(), answers()]
