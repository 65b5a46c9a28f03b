"""What a network leaves reaches curves over sizes and models of layer groups."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.cli import MALFORMED, OK, main

TASK = sm.Training(global_batch=256, sequence=4096)
SIZES = [64, 512]


def curve(network: object, **options: object) -> pd.DataFrame:
    return sm.scaling(
        "llama2_7b",
        "dgx_h100",
        TASK,
        SIZES,
        **{"rule": "fsdp", "network": network, **options},  # type: ignore[arg-type]
    )


# ------------------------------------------------------------------------------------- over sizes
def test_shares_hold_at_every_size_and_are_said() -> None:
    ideal, half = curve(None), curve({"dp": 0.5})
    assert (half.step_time_s > ideal.step_time_s).all()
    assert ideal.attrs["network"].startswith("ideal fabric assumed")
    assert "dp 0.5" in half.attrs["network"]
    pd.testing.assert_frame_equal(curve({"dp": 1.0}), ideal)


def test_a_policy_routes_every_size_by_itself() -> None:
    plan = sm.Strategy(tp=2, micro_batch=2)
    routed = curve("ecmp", rule=None, strategy=plan)
    assert routed.attrs["network"] == "routed at every size: ecmp"
    for row, size in zip(routed.itertuples(), SIZES, strict=True):
        cluster = sm.cluster("dgx_h100", accelerators=size)
        task = TASK.replace(global_batch=TASK.global_batch * size // SIZES[0])
        report = sm.route(cluster, [("llama2_7b", plan, task)], policy="ecmp")
        alone = sm.estimate("llama2_7b", cluster, task, plan, network=report)
        assert row.step_time_s == alone.step_time_s


def test_balanced_paths_are_never_worse_than_hashed_ones() -> None:
    plan = sm.Strategy(tp=2, micro_batch=2)
    ideal, hashed, balanced = (
        curve(network, rule=None, strategy=plan).step_time_s
        for network in (None, "ecmp", "balanced")
    )
    assert (ideal <= balanced).all()
    assert (balanced <= hashed * (1 + 1e-12)).all()


def test_a_searched_strategy_is_routed_too() -> None:
    found = curve("balanced", rule=None, search=sm.Space(tp=[1, 2], pp=1, cp=1))
    ideal = curve(None, rule=None, search=sm.Space(tp=[1, 2], pp=1, cp=1))
    assert found.tp.tolist() == ideal.tp.tolist()
    assert (found.step_time_s >= ideal.step_time_s).all()


def test_sizes_without_an_answer_stay_without_one() -> None:
    frame = curve("ecmp", rule=None, strategy=sm.Strategy(tp=3))
    assert frame.step_time_s.isna().all()
    assert (frame.verdict != "ok").all()


@pytest.mark.parametrize(
    ("network", "match"), [("fastest", "policy='fastest'"), ({"dq": 1.0}, "unknown axis"), (3, "3")]
)
def test_a_malformed_network_is_named(network: object, match: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        curve(network)


def test_the_command_takes_a_policy_or_shares(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["scaling", "llama2_7b", "--cluster", "dgx_h100", "--gpus", "64", "--rule", "fsdp"]
    command += ["--sequence", "4096", "--global-batch", "256", "--json", "--network"]
    said = []
    for network in ("ecmp", "dp=0.5"):
        assert main([*command, network]) == OK
        said.append(json.loads(capsys.readouterr().out))
    assert [one["network"].partition(":")[0] for one in said] == [
        "routed at every size",
        "routed fabric",
    ]
    assert said[1]["sizes"][0]["step_time_s"] > said[0]["sizes"][0]["step_time_s"]
    assert main([*command, "fastest"]) == MALFORMED


# ------------------------------------------------------------------------- models of layer groups
#: Mesh, and the axes of the network that it uses.
MESHES = {
    "fsdp": {"dp"},
    "zero1": {"dp"},
    "ddp": {"dp"},
    "tp@16+ddp": {"tp", "dp"},
    "fsdp@8+ddp": {"dp"},
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("axis", ["tp", "cp", "ep", "pp", "dp"])
def test_layer_groups_pay_for_the_axes_that_they_use(mesh: str, axis: str) -> None:
    model, cluster = sm.compose("llama3_8b"), sm.cluster("dgx_h100", nodes=8)
    task, plan = sm.Training(global_batch=64, sequence=4096), sm.GroupStrategy(mesh)
    ideal = sm.estimate(model, cluster, task, plan)
    shared = sm.estimate(model, cluster, task, plan, network={axis: 0.25})
    if axis in MESHES[mesh]:
        assert shared.step_time_s > ideal.step_time_s
        assert f"{axis} 0.25" in shared.network
    else:
        assert shared.core == ideal.core
    assert ideal.network.startswith("ideal fabric assumed")


@pytest.mark.parametrize("sharding", ["table_wise", "row_wise", "column_wise"])
def test_exchanges_of_tables_take_the_share_of_experts(sharding: str) -> None:
    tables = sm.EmbeddingTables(name="embedding", tables=64, rows=1e6, dim=64, pooling=20)
    top = sm.Mlp(name="top_mlp", widths=(64, 64), after=("embedding",))
    model, cluster = sm.compose("dlrm", groups=[tables, top]), sm.cluster("dgx_a100", nodes=4)
    task, plan = (
        sm.Training(global_batch=65_536, sequence=1),
        sm.GroupStrategy({"embedding": sharding}),
    )
    ideal = sm.estimate(model, cluster, task, plan)
    shared = sm.estimate(model, cluster, task, plan, network={"ep": 0.25})
    assert shared.exposed_exchange_s > 2 * ideal.exposed_exchange_s


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.01, 1), less=st.floats(0.1, 1))
def test_a_smaller_share_never_helps(share: float, less: float) -> None:
    model, cluster = sm.compose("llama3_8b"), sm.cluster("dgx_h100", nodes=4)
    task, plan = sm.Training(global_batch=64, sequence=4096), sm.GroupStrategy("fsdp")
    more = sm.estimate(model, cluster, task, plan, network={"dp": share})
    fewer = sm.estimate(model, cluster, task, plan, network={"dp": share * less})
    assert fewer.step_time_s >= more.step_time_s * (1 - 1e-12)


def test_sweeps_and_searches_of_layer_groups_agree_with_estimates() -> None:
    model, cluster = sm.compose("llama3_8b"), sm.cluster("dgx_h100", nodes=4)
    task, network = sm.Training(global_batch=64, sequence=4096), {"dp": 0.5}
    best = sm.search(model, cluster, task, top=1, network=network)[0]
    again = sm.estimate(model, cluster, task, best.strategy, network=network)
    assert again.step_time_s == best.step_time_s
    frame = sm.sweep(model, cluster, task, network=network)
    assert frame[frame.verdict == "ok"].step_time_s.min() == best.step_time_s
