"""Scaling studies: the same numbers as single estimates, ratios between sizes, trends, commands."""

from __future__ import annotations

import csv
import io
import itertools
import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import cli, resolve
from scalemodel.scaling import (
    FAMILIES,
    GENERATIONS,
    crossovers,
    diminishing_returns,
    growth_needed,
    hardware_trends,
    workload_trends,
)
from scalemodel.scaling.curve import POINT_COLUMNS, RATIO_COLUMNS
from scalemodel.scaling.trends import balance

PLAN = sm.Strategy(micro_batch=2, sharding="zero3")
SIZES = [8, 64, 512]


def weak(task_batch: int = 16, **options: Any) -> pd.DataFrame:
    task = sm.Training(global_batch=task_batch, sequence=4096)
    return sm.scaling("llama2_7b", "dgx_h100", task, SIZES, **{"strategy": PLAN, **options})


# --------------------------------------------------------------------------------- single sizes
def test_every_size_is_its_own_estimate() -> None:
    curve = weak()
    for row, size in zip(curve.to_dict("records"), SIZES, strict=True):
        est = sm.estimate(
            "llama2_7b",
            sm.cluster("dgx_h100", accelerators=size),
            sm.Training(global_batch=2 * size, sequence=4096),
            PLAN,
        )
        assert row["global_batch"] == est.task.global_batch
        for name, value in est.row().items():
            assert row[name] == value, name
        assert row["tokens_per_s_per_accelerator"] == pytest.approx(est.tokens_per_s / size)
        tokens = est.tokens_per_s * est.step_time_s
        assert row["tokens_per_j"] == pytest.approx(tokens / est.energy_j)
        assert row["usd_per_token"] == pytest.approx(est.cost_usd / tokens)
        assert row["accelerator_tokens_per_j"] == pytest.approx(
            est.tokens_per_s / (size * est.power_w)
        )
        assert row["accelerator_tokens_per_j"] > row["tokens_per_j"]
        exposed = [getattr(est, f"exposed_{axis}_s") for axis in ("tp", "cp", "ep", "pp", "dp")]
        assert row["exposed_s"] == pytest.approx(sum(exposed))
        assert row["exposed_fraction"] == pytest.approx(sum(exposed) / est.step_time_s)


def test_full_attention_counts_the_masked_half_too() -> None:
    # 6 N + 6 L h s against 6 N + 12 L h s flop per token, N without embeddings.
    row = weak().iloc[0]
    shape = resolve.model("llama2_7b").shape
    attention = 6 * shape.layers * shape.hidden * 4096
    products = 6 * (6.738e9 - 32000 * 4096)
    ratio = row.full_attention_mfu_fraction / row.mfu_fraction
    assert ratio == pytest.approx((products + 2 * attention) / (products + attention), rel=1e-3)


def test_frozen_weights_count_two_passes() -> None:
    task = sm.FineTuning(global_batch=8, sequence=4096, method="lora")
    plan = sm.Strategy(micro_batch=1)
    row = sm.scaling("llama2_7b", "dgx_h100", task, [8], strategy=plan).iloc[0]
    tables = _core.Tables(
        resolve.model("llama2_7b").core,
        sm.cluster("dgx_h100").core,
        task.core,
        resolve.stack("plain"),
    )
    forward, attention = tables.model_flop()
    causal = 2 * (forward - attention) + 3 * attention
    ratio = row.full_attention_mfu_fraction / row.mfu_fraction
    assert ratio == pytest.approx((causal + 3 * attention) / causal)


def test_an_illegal_estimate_has_no_point() -> None:
    tables = _core.Tables(
        resolve.model("llama2_7b").core,
        sm.cluster("dgx_h100").core,
        sm.Training(global_batch=8, sequence=4096).core,
        resolve.stack("plain"),
    )
    plan = sm.Strategy(tp=7)
    with pytest.raises(sm.ScaleModelError, match="illegal"):
        _core.scaling_point(tables, plan, tables.estimate(plan))


# --------------------------------------------------------------------------------- between sizes
@settings(max_examples=25)
@given(
    sizes=st.lists(st.sampled_from([8, 16, 24, 32, 64, 128, 1024]), min_size=2, unique=True),
    mode=st.sampled_from(["weak", "strong"]),
)
def test_ratios_follow_from_throughput(sizes: list[int], mode: str) -> None:
    batch = 2 * min(sizes) if mode == "weak" else 3072
    task = sm.Training(global_batch=batch, sequence=2048)
    plan = sm.Strategy(sharding="zero3")
    curve = sm.scaling("llama2_7b", "dgx_h100", task, sizes, mode=mode, strategy=plan)
    assert curve.accelerators.tolist() == sorted(sizes)
    first = curve.iloc[0]
    before = None
    for _, row in curve.iterrows():
        efficiency = row.scaling_efficiency_fraction
        if mode == "strong":
            expected = first.accelerators * first.step_time_s / (row.accelerators * row.step_time_s)
        else:
            expected = first.step_time_s / row.step_time_s
        assert efficiency == pytest.approx(expected)
        if before is None:
            assert pd.isna(row.marginal_return_fraction)
        else:
            added = row.accelerators - before.accelerators
            gained = row.tokens_per_s - before.tokens_per_s
            each = before.tokens_per_s / before.accelerators
            assert row.marginal_return_fraction == pytest.approx(gained / added / each)
            assert row.marginal_return_fraction <= 1.05
        before = row


def test_a_batch_is_that_of_the_smallest_size_or_of_all() -> None:
    assert weak().global_batch.tolist() == [16, 128, 1024]
    strong = weak(1024, mode="strong")
    assert strong.global_batch.tolist() == [1024] * 3
    assert strong.scaling_efficiency_fraction.iloc[-1] < 1


def test_sizes_that_do_not_fit_have_no_ratios() -> None:
    task = sm.Training(global_batch=8, sequence=4096)
    plan = sm.Strategy(recompute="full")
    curve = sm.scaling("llama2_70b", "dgx_h100", task, SIZES, rule="fsdp", strategy=plan)
    assert curve.verdict.tolist() == ["out_of_memory", "ok", "ok"]
    assert curve[list(RATIO_COLUMNS)].iloc[0].isna().all()
    assert curve.scaling_efficiency_fraction.iloc[1] == 1
    assert pd.isna(curve.marginal_return_fraction.iloc[1])


def test_a_strategy_that_cannot_run_leaves_no_numbers() -> None:
    task = sm.Training(global_batch=16, sequence=4096)
    curve = sm.scaling("llama2_7b", "dgx_h100", task, [8], strategy=sm.Strategy(tp=16))
    assert curve.verdict.tolist() == ["illegal:mesh"]
    assert curve[list(POINT_COLUMNS)].isna().all(axis=None)
    assert curve.attrs["diminishing"] == {"exposed_above": None, "marginal_below": None}


def test_where_a_search_finds_nothing_the_verdict_says_so() -> None:
    task = sm.Training(global_batch=8, sequence=4096)
    space = {"tp": 1, "pp": 1, "cp": 1, "sharding": "ddp", "offload_optimizer": False}
    curve = sm.scaling("llama2_70b", "dgx_h100", task, [8, 16], search=space)
    assert curve.verdict.tolist() == ["infeasible"] * 2
    assert curve.step_time_s.isna().all()


def test_no_price_is_no_cost() -> None:
    task = sm.Training(global_batch=16, sequence=4096)
    curve = sm.scaling("llama2_7b", "gb300_nvl72", task, [8], strategy=PLAN)
    assert curve.usd_per_token.isna().all()
    assert curve.cost_usd.isna().all()


# -------------------------------------------------------------------------------------- choices
def test_rules_set_the_sharding() -> None:
    shards = {"ddp": "ddp", "fsdp": "zero3", "hsdp": "hsdp"}
    for rule, sharding in shards.items():
        curve = weak(rule=rule)
        assert curve.sharding.tolist() == [sharding] * 3
        assert curve.micro_batch.tolist() == [2] * 3
    assert weak(rule="hsdp").shard_degree.tolist() == [8, 8, 8]
    grouped = weak(rule="hsdp", strategy=PLAN.replace(shard_degree=128))
    assert grouped.shard_degree.tolist() == [8, 64, 128]
    assert weak(rule="fsdp").equals(weak(strategy=PLAN))


def test_a_group_of_all_ranks_is_full_sharding() -> None:
    whole = weak(rule="hsdp", strategy=PLAN.replace(shard_degree=512))
    for column in ("step_time_s", "memory_bytes"):
        assert whole[column].tolist() == pytest.approx(weak()[column].tolist())


def test_the_searched_strategy_is_at_least_as_fast_as_any_rule() -> None:
    space = {"tp": [1, 2], "pp": 1, "cp": 1, "sharding": ["ddp", "zero3"], "micro_batch": [1, 2]}
    best = weak(strategy=None, search=space)
    for rule in ("ddp", "fsdp"):
        other = weak(rule=rule)
        running = other.verdict == "ok"
        assert (best.tokens_per_s >= other.tokens_per_s * (1 - 1e-12))[running].all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": []}, r"gpus=\[\]: at least one"),
        ({"gpus": [8, 0]}, "gpus=0: must be a positive whole number"),
        ({"gpus": [8.5]}, "gpus=8.5: must be a positive whole number"),
        ({"gpus": [8, 8]}, "8 is listed twice"),
        ({"gpus": [16, 24], "batch": 3}, "24 would take 4.5 sequences"),
        ({"mode": "sideways"}, "mode='sideways': must be 'weak' or 'strong'"),
        ({"rule": "zero"}, "rule='zero': no such rule"),
        ({"strategy": "tp2"}, "strategy='tp2': must be a Strategy"),
        ({"strategy": sm.Strategy(dp=8)}, "dp=8 fits one size only"),
        ({"strategy": PLAN, "search": {}}, "search: cannot go with strategy or rule"),
        ({"search": 3}, "search=3: must be a Space"),
        ({"stack": "nosuch"}, "nosuch"),
        ({"task": 3}, "task=3: must be a Training"),
    ],
)
def test_a_malformed_question_is_one_error(options: dict[str, Any], message: str) -> None:
    batch = options.pop("batch", 16)
    asked = {"task": sm.Training(global_batch=batch, sequence=4096), "gpus": [8], **options}
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.scaling("llama2_7b", "dgx_h100", **asked)


# ---------------------------------------------------------------------------- diminishing returns
def test_returns_diminish_at_the_first_size_beyond_a_limit() -> None:
    table = pd.DataFrame(
        {
            "accelerators": [8, 16, 32, 64],
            "exposed_fraction": [0.05, 0.2, 0.06, 0.3],
            "marginal_return_fraction": [None, 0.9, 0.5, 0.4],
            "verdict": ["ok", "out_of_memory", "ok", "ok"],
        }
    )
    assert diminishing_returns(table) == (32, 64)
    assert diminishing_returns(table, exposed=0.5, marginal=0.1) == (None, None)
    with pytest.raises(sm.ScaleModelError, match="column exposed_fraction is missing"):
        diminishing_returns(table.drop(columns="exposed_fraction"))


# ----------------------------------------------------------------------------------------- trends
def test_newer_accelerators_ask_more_of_their_network() -> None:
    rows = [balance(name, "fp16") for name in GENERATIONS[:4]]
    assert [row["year"] for row in rows] == sorted(row["year"] for row in rows)
    assert all(
        late["peak_flop_per_s"] > early["peak_flop_per_s"]
        for early, late in itertools.pairwise(rows)
    )
    for row in rows:
        for tier in ("memory", "scale_up", "fabric"):
            rate = row[f"{tier}_bandwidth_bytes_per_s"]
            assert row[f"flop_per_{tier}_byte"] * rate == pytest.approx(row["peak_flop_per_s"])
    with pytest.raises(sm.ScaleModelError, match="precision='int3'"):
        balance("dgx_h100", "int3")


def test_hardware_trends_are_the_curves_of_every_generation() -> None:
    task = sm.Training(global_batch=8, sequence=4096, precision="fp16")
    plan = sm.Strategy(recompute="full")
    table = hardware_trends("llama2_7b", task, [8, 64], rule="fsdp", strategy=plan)
    assert list(dict.fromkeys(table.cluster)) == list(GENERATIONS)
    assert len(table) == 2 * len(GENERATIONS)
    own = sm.scaling("llama2_7b", "dgx_a100", task, [8, 64], rule="fsdp", strategy=plan)
    shown = table[table.cluster == "dgx_a100"].reset_index(drop=True)[own.columns]
    pd.testing.assert_frame_equal(shown, own, check_dtype=False)
    late = table[table.accelerators == 64].set_index("cluster")
    assert late.mfu_fraction["dgx_a100"] > late.mfu_fraction["dgx_h100"]
    assert late.mfu_fraction["dgx_h100"] > late.mfu_fraction["dgx_b200"]
    with pytest.raises(sm.ScaleModelError, match="clusters"):
        hardware_trends("llama2_7b", task, [8], clusters=[])


def test_workload_trends_keep_the_tokens_of_a_step() -> None:
    cluster = sm.cluster("dgx_h100", nodes=16)
    task = sm.Training(global_batch=256, sequence=4096)
    models = ["llama2_7b", "llama2_13b"]
    table = workload_trends(models, cluster, task, sequences=[4096, 32768], rule="fsdp")
    assert (table.sequence * table.global_batch == 256 * 4096).all()
    assert table.model.tolist() == ["llama2_7b"] * 2 + ["llama2_13b"] * 2
    same = sm.estimate("llama2_13b", cluster, task, sm.Strategy(sharding="zero3"))
    assert table.step_time_s[2] == same.step_time_s
    with pytest.raises(sm.ScaleModelError, match="must divide the 1,048,576 tokens"):
        workload_trends(models, cluster, task, sequences=[5000], rule="fsdp")
    with pytest.raises(sm.ScaleModelError, match="at least one of each"):
        workload_trends([], cluster, task, rule="fsdp")


def test_growth_is_what_reaches_the_target() -> None:
    task = sm.Training(global_batch=2048, sequence=4096)
    table = growth_needed(
        "llama2_7b",
        task,
        1024,
        0.40,
        clusters=["dgx_h100"],
        paths=["fabric.bandwidth", "accelerator.memory.bandwidth"],
        strategy=PLAN.replace(shard_degree=0),
    ).set_index("path")
    scale = table.scale["accelerator.memory.bandwidth"]
    assert pd.isna(table.scale["fabric.bandwidth"]) or table.scale["fabric.bandwidth"] > 1
    if not pd.isna(scale):
        faster = sm.codesign(
            "llama2_7b",
            sm.cluster("dgx_h100", accelerators=1024),
            task,
            {key: value for key, value in PLAN.to_dict().items() if key != "dp"},
            vary={"accelerator.memory.bandwidth": [float(scale), float(scale) / 1.05]},
        )
        assert faster.mfu_fraction[0] >= 0.40 > faster.mfu_fraction[1]


# ------------------------------------------------------------------------------------- crossovers
def test_one_family_wins_each_field_and_is_the_best_there() -> None:
    task = sm.Training(global_batch=128, sequence=4096)
    found = crossovers("llama2_7b", "dgx_h100", task, [64, 1024], batches=[64, 128])
    assert set(found.family) == set(FAMILIES)
    assert len(found) == 2 * 2 * len(FAMILIES)
    for _, group in found.groupby(["accelerators", "global_batch"]):
        running = group[group.verdict == "ok"]
        assert group.wins.sum() == 1
        assert running[running.wins].tokens_per_s.iloc[0] == running.tokens_per_s.max()
    assert (found.sequences_per_accelerator * found.accelerators == found.global_batch).all()


def test_where_nothing_fits_no_family_wins() -> None:
    task = sm.Training(global_batch=8, sequence=4096)
    families = {"ddp": FAMILIES["ddp"]}
    found = crossovers("llama2_70b", "dgx_h100", task, [8], families=families)
    assert not found.wins.any()
    with pytest.raises(sm.ScaleModelError, match="families"):
        crossovers("llama2_70b", "dgx_h100", task, [8], families={})
    with pytest.raises(sm.ScaleModelError, match="objective='speed': no such column"):
        crossovers("llama2_70b", "dgx_h100", task, [8], objective="speed")


# ------------------------------------------------------------------- exposure of sharded layers
def _with_overlap(efficiency: float, nodes: int) -> _core.Estimate:
    stack = resolve.stack("plain").replace(overlap_efficiency=efficiency)
    task = sm.Training(global_batch=16 * nodes, sequence=4096)
    tables = _core.Tables(
        resolve.model("llama2_7b").core,
        sm.cluster("dgx_h100", nodes=nodes).core,
        task.core,
        stack,
    )
    return tables.estimate(PLAN)


@settings(max_examples=20)
@given(
    efficiency=st.floats(0, 1),
    more=st.floats(0, 1),
    nodes=st.sampled_from([1, 2, 16, 64, 256, 1024]),
)
def test_better_overlap_never_exposes_more(efficiency: float, more: float, nodes: int) -> None:
    low, high = (_with_overlap(value, nodes) for value in sorted((efficiency, more)))
    assert high.exposed_dp_s <= low.exposed_dp_s * (1 + 1e-9)
    # What is not exposed is hidden: the traffic itself stays.
    traffic = [est.exposed_dp_s + est.hidden_s for est in (low, high)]
    assert traffic[0] == pytest.approx(traffic[1])


def test_without_overlap_all_is_exposed_and_with_perfect_overlap_only_the_excess() -> None:
    for nodes in (2, 64, 256):
        none, perfect = _with_overlap(0, nodes), _with_overlap(1, nodes)
        assert none.hidden_s == 0
        assert perfect.exposed_dp_s < none.exposed_dp_s
    assert _with_overlap(1, 16).exposed_dp_s < 0.02 * _with_overlap(1, 16).step_time_s


def test_exposure_grows_with_every_doubling_unless_overlap_is_perfect() -> None:
    shares = []
    for nodes in (8, 16, 32, 64, 128, 256):
        est = _with_overlap(0.45, nodes)
        shares.append(est.exposed_dp_s / est.step_time_s)
    assert all(late > 1.1 * early for early, late in itertools.pairwise(shares))


def test_the_explanation_tells_layers_that_are_gathered_from_buckets() -> None:
    cluster, task = sm.cluster("dgx_h100", nodes=2), sm.Training(global_batch=32, sequence=4096)
    texts = {}
    for sharding in ("zero1", "zero3", "hsdp"):
        est = sm.estimate("llama2_7b", cluster, task, PLAN.replace(sharding=sharding))
        texts[sharding] = str(est.explain("exposed_dp").formula)
    assert "traffic^p" in texts["zero3"] == texts["hsdp"]
    assert "bucket" in texts["zero1"]


# ---------------------------------------------------------------------------------------- command
COMMAND = ["scaling", "llama2_7b", "--cluster", "dgx_h100", "--gpus", "8", "64", "--sequence"]
COMMAND += ["4096", "--global-batch", "16"]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main([*COMMAND, *arguments])
    return code, capsys.readouterr().out


def test_the_command_prints_the_curve(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = ran(capsys, "--rule", "fsdp", "--micro-batch", "2")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "llama2_7b · dgx_h100 · weak scaling · stack plain"
    assert lines[1].split()[:2] == ["accelerators", "strategy"]
    assert lines[2].split()[0] == "8"
    assert "zero3" in lines[3]


def test_json_and_csv_hold_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    task = sm.Training(global_batch=16, sequence=4096)
    curve = sm.scaling("llama2_7b", "dgx_h100", task, [8, 64], rule="fsdp", strategy=PLAN)
    options = ["--rule", "fsdp", "--micro-batch", "2"]
    document = json.loads(ran(capsys, *options, "--json")[1])
    rows = list(csv.DictReader(io.StringIO(ran(capsys, *options, "--csv")[1])))
    assert document["diminishing"] == curve.attrs["diminishing"]
    for column in ("accelerators", "step_time_s", "exposed_fraction", "usd_per_token"):
        expected = curve[column].tolist()
        assert [row[column] for row in document["sizes"]] == expected
        assert [float(row[column]) for row in rows] == expected


def test_without_a_strategy_the_command_searches(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = ran(capsys, "--constraint", "power_w <= 2000", "--json")
    task = sm.Training(global_batch=16, sequence=4096)
    best = sm.search("llama2_7b", "dgx_h100", task, top=1)[0]
    assert code == 0
    assert json.loads(out)["sizes"][0]["step_time_s"] == best.step_time_s


def test_questions_and_strategies_of_the_command_have_their_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ran(capsys, "--tp", "16", "--gpus", "8")[0] == 4
    assert ran(capsys, "--mode", "sideways")[0] == 2
    assert ran(capsys, "--gpus", "0")[0] == 2
    code, out = ran(capsys, "--tp", "16")
    assert code == 0
    assert "illegal:mesh" in out
