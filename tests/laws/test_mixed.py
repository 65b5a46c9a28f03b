"""Clusters of several kinds: equal kinds are one kind, and nothing beats all of the fastest."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

TASK = sm.Training(global_batch=128, sequence=4096)


def by(placement: str, nodes: dict[str, int]) -> sm.MixedCluster:
    return sm.mixed_cluster(nodes, placement=placement)


@st.composite
def plans(draw: st.DrawFn) -> sm.Strategy:
    return sm.Strategy(
        tp=draw(st.sampled_from([1, 2, 4, 8])),
        pp=draw(st.sampled_from([2, 4])),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])),
        micro_batch=draw(st.sampled_from([1, 2])),
        sharding=draw(st.sampled_from(["ddp", "zero1", "zero3"])),
        recompute=draw(st.sampled_from(["none", "full"])),
    )


def time_s(cluster: sm.MixedCluster, plan: sm.Strategy, **options: Any) -> float:
    est = sm.estimate_mixed("llama3_8b", cluster, TASK, plan, **options)
    assert est.step_time_s is not None
    return est.step_time_s


@settings(max_examples=25)
@given(plan=plans(), placement=st.sampled_from(["stages", "replicas"]))
def test_equal_kinds_are_one_kind(plan: sm.Strategy, placement: str) -> None:
    plain = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=8), TASK, plan)
    # The same hardware under two names.
    halves = sm.MixedCluster((sm.cluster("dgx_h100", nodes=4),) * 2, placement)
    expected_s = plain.timeline().step_time_s if placement == "stages" else plain.step_time_s
    assert time_s(halves, plan, split="even") == pytest.approx(expected_s, rel=1e-9)
    assert time_s(halves, plan) <= expected_s * (1 + 1e-9)


@settings(max_examples=25)
@given(
    plan=plans(),
    placement=st.sampled_from(["stages", "replicas"]),
    split=st.sampled_from(["even", "balanced"]),
    slow_first=st.booleans(),
)
def test_a_mix_lies_between_its_kinds(
    plan: sm.Strategy, placement: str, split: str, slow_first: bool
) -> None:
    kinds = ["dgx_a100", "dgx_h100"] if slow_first else ["dgx_h100", "dgx_a100"]
    mixed_s = time_s(by(placement, dict.fromkeys(kinds, 4)), plan, split=split)
    fast_s, slow_s = (
        time_s(sm.MixedCluster((sm.cluster(kind, nodes=4),) * 2, placement), plan, split=split)
        for kind in ("dgx_h100", "dgx_a100")
    )
    assert fast_s * (1 - 1e-9) <= mixed_s <= slow_s * (1 + 1e-9)


@settings(max_examples=15)
@given(plan=plans(), placement=st.sampled_from(["stages", "replicas"]))
def test_balancing_never_hurts(plan: sm.Strategy, placement: str) -> None:
    cluster = by(placement, {"dgx_h100": 4, "dgx_a100": 4})
    assert time_s(cluster, plan) <= time_s(cluster, plan, split="even") * (1 + 1e-9)


def test_balancing_gives_the_faster_kind_more() -> None:
    plan = sm.Strategy(tp=8, pp=4)
    staged = sm.estimate_mixed(
        "llama3_8b", by("stages", {"dgx_a100": 4, "dgx_h100": 4}), TASK, plan
    )
    assert sum(staged.layers) == 32
    assert sum(staged.layers[2:]) > sum(staged.layers[:2])
    shared = sm.estimate_mixed(
        "llama3_8b", by("replicas", {"dgx_a100": 4, "dgx_h100": 4}), TASK, plan
    )
    assert shared.micro_batches[1] > shared.micro_batches[0]
    # 128 sequences on one replica of each kind.
    assert sum(shared.micro_batches) == 128


def test_memory_is_judged_kind_by_kind() -> None:
    est = sm.estimate_mixed(
        "llama3_70b", by("stages", {"dgx_h100": 4, "dgx_a100": 4}), TASK, sm.Strategy(tp=1, pp=2)
    )
    assert est.verdict == "out_of_memory"
    assert est.step_time_s is not None
    assert len(est.memory_bytes) == 2


def test_an_illegal_strategy_is_an_answer() -> None:
    est = sm.estimate_mixed(
        "llama3_8b", by("stages", {"dgx_h100": 4, "dgx_a100": 4}), TASK, sm.Strategy(tp=64, pp=2)
    )
    assert est.verdict.startswith("illegal:")
    assert est.step_time_s is None


# ------------------------------------------------------------------------------- energy and price
@settings(max_examples=25)
@given(plan=plans(), placement=st.sampled_from(["stages", "replicas"]))
def test_equal_kinds_draw_and_cost_what_one_kind_does(plan: sm.Strategy, placement: str) -> None:
    plain = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=8), TASK, plan)
    halves = sm.MixedCluster((sm.cluster("dgx_h100", nodes=4),) * 2, placement)
    est = sm.estimate_mixed("llama3_8b", halves, TASK, plan, split="even")
    assert plain.step_time_s is not None
    assert est.step_time_s is not None
    longer = est.step_time_s / plain.step_time_s
    assert est.cost_usd == pytest.approx(plain.cost_usd * longer)
    if placement == "replicas":
        assert est.energy_j == pytest.approx(plain.energy_j)
        assert est.power_w == pytest.approx((plain.power_w,) * 2)
    else:
        # One kind counts every stage as busy as its slowest.
        assert est.energy_j <= plain.energy_j * longer * 1.01
        assert est.energy_j >= 0.5 * plain.energy_j


@settings(max_examples=25)
@given(
    plan=plans(),
    placement=st.sampled_from(["stages", "replicas"]),
    split=st.sampled_from(["even", "balanced", "searched"]),
)
def test_energy_and_price_add_up_over_the_parts(
    plan: sm.Strategy, placement: str, split: str
) -> None:
    cluster = by(placement, {"dgx_h100": 4, "dgx_a100": 4})
    est = sm.estimate_mixed("llama3_8b", cluster, TASK, plan, split=split)
    assert est.step_time_s is not None
    energy_j = cost_usd = 0.0
    for part, power_w in zip(cluster.parts, est.power_w, strict=True):
        core = part.core
        power = core.accelerator.power
        assert power.idle_w <= power_w <= power.limit_w
        facility_w = part.accelerators * power_w + part.nodes * core.host_power_w
        energy_j += core.pue * facility_w * est.step_time_s
        cost_usd += part.accelerators * core.price_usd_per_s * est.step_time_s
    assert est.energy_j == pytest.approx(energy_j)
    assert est.cost_usd == pytest.approx(cost_usd)


# ------------------------------------------------------------------------------- what runs where
@settings(max_examples=40)
@given(
    plan=plans(),
    kinds=st.sampled_from([("dgx_a100", "dgx_h100"), ("dgx_b200", "dgx_a100")]),
    model=st.sampled_from(["llama3_8b", "llama2_13b", "llama3_70b"]),
)
def test_a_searched_split_fits_where_another_does_and_is_no_slower(
    plan: sm.Strategy, kinds: tuple[str, str], model: str
) -> None:
    cluster = by("stages", dict.fromkeys(kinds, 4))
    searched = sm.estimate_mixed(model, cluster, TASK, plan, split="searched")
    assert searched.step_time_s is not None
    for split in ("even", "balanced"):
        other = sm.estimate_mixed(model, cluster, TASK, plan, split=split)
        if other.verdict == "ok":
            assert searched.verdict == "ok"
            assert other.step_time_s is not None
            assert searched.step_time_s <= other.step_time_s


def test_a_searched_split_frees_memory_of_the_smaller_kind() -> None:
    cluster = by("stages", {"dgx_h100": 4, "dgx_b200": 4})
    plan = sm.Strategy(tp=1, pp=4, recompute="full")
    question = ("llama3_70b", cluster, TASK, plan)
    assert sm.estimate_mixed(*question, split="balanced").verdict == "out_of_memory"
    assert sm.estimate_mixed(*question, split="searched").verdict == "ok"


@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize(
    "nodes", [{"dgx_a100": 2, "dgx_h100": 6}, {"dgx_b200": 6, "dgx_a100": 2}], ids=str
)
def test_a_searched_split_is_nearly_the_best_of_all(nodes: dict[str, int], tp: int) -> None:
    cluster, plan = by("stages", nodes), sm.Strategy(tp=tp, pp=4, recompute="full")
    layers = int(sm.model("llama3_2_1b").shape.layers)
    best_s = min(
        est.step_time_s
        for cuts in combinations(range(1, layers), 3)
        for est in [
            sm.estimate_mixed(
                "llama3_2_1b",
                cluster,
                TASK,
                plan,
                split=[b - a for a, b in pairwise((0, *cuts, layers))],
            )
        ]
        if est.verdict == "ok" and est.step_time_s is not None
    )
    found = sm.estimate_mixed("llama3_2_1b", cluster, TASK, plan, split="searched")
    assert found.verdict == "ok"
    assert found.step_time_s is not None
    assert best_s <= found.step_time_s <= 1.01 * best_s


def test_micro_batches_are_shared_out_as_well_as_they_can_be() -> None:
    """One replica of each kind: every split of the batch, by the closed form of one kind."""
    cluster, plan = by("replicas", {"dgx_h100": 1, "dgx_a100": 1}), sm.Strategy(tp=8)
    balanced = sm.estimate_mixed("llama3_8b", cluster, TASK, plan)
    fast, slow = balanced.micro_batches
    assert fast + slow == TASK.core.global_batch
    # The slower part with one micro-batch more, or the faster one, is later than both are now.
    per_batch_s = [
        time / count for time, count in zip(balanced.part_times_s, (fast, slow), strict=True)
    ]
    assert balanced.step_time_s is not None
    for time_s, each_s in zip(balanced.part_times_s, per_batch_s, strict=True):
        assert time_s + each_s >= balanced.step_time_s


SMALL = sm.Space(
    tp=[2, 4, 8],
    pp=[1, 2, 4],
    cp=1,
    vpp=1,
    micro_batch=[1, 2],
    sharding="zero1",
    recompute=["none", "full"],
    placement="tp-cp-dp-pp",
    sequence_parallel=True,
    regather=True,
    offload_optimizer=False,
)


@pytest.mark.parametrize("objective", ["step_time_s", "energy_j", "cost_usd"])
def test_the_search_finds_what_asking_one_by_one_does(objective: str) -> None:
    cluster = by("stages", {"dgx_a100": 2, "dgx_h100": 2})
    best = sm.search_mixed("llama3_8b", cluster, TASK, SMALL, objective=objective, top=1000)
    values = [getattr(est, objective) for est in best]
    assert values == sorted(values)
    assert {est.verdict for est in best} == {"ok"}
    # A short answer passes over what cannot be in it.
    short = sm.search_mixed("llama3_8b", cluster, TASK, SMALL, objective=objective, top=5)
    assert [getattr(est, objective) for est in short] == values[:5]
    arrangements = {
        (est.cluster.placement, *(part.name for part in est.cluster.parts)) for est in best
    }
    both = ("dgx_a100", "dgx_h100")
    assert arrangements >= {("stages", *both), ("stages", *both[::-1]), ("replicas", *both)}
    assert all(("replicas", name) in arrangements for name in both)
    # Asked again one by one they answer the same, and nothing that was not listed is better.
    for est in best[:5]:
        again = sm.estimate_mixed("llama3_8b", est.cluster, TASK, est.strategy, split="searched")
        assert again == est
    for placement in ("stages", "replicas"):
        for kinds in (both, both[::-1]):
            for plan in (sm.Strategy(tp=4, pp=2), sm.Strategy(tp=8, pp=2, recompute="full")):
                mixed = by(placement, dict.fromkeys(kinds, 2))
                plan = plan.replace(sequence_parallel=True, sharding="zero1")
                est = sm.estimate_mixed("llama3_8b", mixed, TASK, plan, split="searched")
                if est.verdict == "ok":
                    assert getattr(est, objective) >= values[0] * (1 - 1e-9)


def test_more_freedom_never_hurts_the_search() -> None:
    cluster = by("stages", {"dgx_a100": 2, "dgx_h100": 2})

    def best_s(**options: Any) -> float:
        found = sm.search_mixed("llama3_8b", cluster, TASK, SMALL, top=1, **options)
        assert found[0].step_time_s is not None
        return found[0].step_time_s

    free_s = best_s()
    assert free_s <= min(best_s(leave_out=False), best_s(split="even"), best_s(split="balanced"))
    assert free_s <= min(best_s(placements=["stages"]), best_s(placements="replicas"))
    # What the faster half does alone, the whole can leave it to do.
    alone = sm.MixedCluster((sm.cluster("dgx_h100", nodes=2),), "replicas")
    assert free_s <= (sm.search_mixed("llama3_8b", alone, TASK, SMALL)[0].step_time_s or 0)


def test_an_answer_is_a_row() -> None:
    cluster = by("stages", {"dgx_a100": 2, "dgx_h100": 2})
    rows = [est.to_dict() for est in sm.search_mixed("llama3_8b", cluster, TASK, SMALL, top=3)]
    assert len({tuple(row) for row in rows}) == 1
    assert {"parts", "placement", "tp", "mesh", "layers", "step_time_s", "energy_j"} <= set(rows[0])


# ---------------------------------------------------------------------------------- cluster files
PARTS = """
name = "old_and_new"
placement = "replicas"

[[part]]
cluster = "dgx_h100"
nodes = 4

[[part]]
nodes = 2
cluster = { base = "dgx_a100", fabric = { bandwidth = "100 Gbit/s" } }
"""


@pytest.fixture
def parts_file(tmp_path: Path) -> Path:
    path = tmp_path / "old_and_new.toml"
    path.write_text(PARTS, encoding="utf-8")
    return path


def test_a_file_says_what_a_mapping_does(parts_file: Path) -> None:
    cluster = sm.mixed_cluster(parts_file)
    assert cluster.placement == "replicas"
    assert [part.nodes for part in cluster.parts] == [4, 2]
    assert cluster.parts[0] == sm.cluster("dgx_h100", nodes=4)
    assert cluster.parts[1].core.fabric.bandwidth_bytes_per_s == 12.5e9
    assert sm.mixed_cluster(str(parts_file), placement="stages").placement == "stages"
    plan = sm.Strategy(tp=8)
    task = sm.Training(global_batch=96, sequence=4096)
    assert sm.estimate_mixed("llama3_8b", cluster, task, plan).verdict == "ok"


def test_a_private_catalogue_may_hold_one(
    parts_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters").mkdir()
    parts_file.rename(tmp_path / "clusters" / parts_file.name)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert sm.mixed_cluster("old_and_new").accelerators == 48
    with pytest.raises(sm.ScaleModelError, match="mixed_cluster"):
        sm.cluster("old_and_new")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"replicas"', '"rings"', "placement"),
        ("nodes = 4", "", "nodes"),
        ("nodes = 4", "nodes = 0", "nodes"),
        ('cluster = "dgx_h100"', "", "cluster"),
        ('"dgx_h100"', '"dgx_h10"', "dgx_h100"),
        ("nodes = 4", "nodes = 4\nrack = 3", "rack"),
        ("name =", "colour =", "colour"),
        ("[[part]]", "[[piece]]", "part"),
    ],
)
def test_malformed_files_are_refused(parts_file: Path, old: str, new: str, message: str) -> None:
    parts_file.write_text(PARTS.replace(old, new), encoding="utf-8")
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.mixed_cluster(parts_file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "mfu_fraction"}, "objective="),
        ({"placements": []}, "placements="),
        ({"placements": ["rings"]}, "placements="),
        ({"top": 0}, "top="),
        ({"split": [16, 16]}, "split="),
        ({"space": {"tp": 8}}, "space="),
        ({"split": "fair"}, "split="),
    ],
)
def test_malformed_searches_are_refused(arguments: dict[str, Any], message: str) -> None:
    cluster = by("stages", {"dgx_h100": 2, "dgx_a100": 2})
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.search_mixed("llama3_8b", cluster, TASK, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cluster": "dgx_h100"}, "cluster="),
        ({"task": 3}, "task="),
        ({"strategy": None}, "strategy="),
        ({"split": "fair"}, "split="),
        ({"split": [8, 8, 8]}, "split"),
        ({"split": [8, 8, 8, 9]}, "split"),
        ({"split": [0, 8, 8, 16]}, "split="),
        ({"split": [8.0, 8, 8, 8]}, "split="),
        ({"strategy": sm.Strategy(tp=8, pp=3)}, "whole number"),
        ({"strategy": sm.Strategy(tp=4, pp=4, vpp=2)}, "vpp"),
    ],
)
def test_malformed_questions_are_refused(arguments: dict[str, Any], message: str) -> None:
    question: dict[str, Any] = {
        "model": "llama3_8b",
        "cluster": by("stages", {"dgx_h100": 4, "dgx_a100": 4}),
        "task": TASK,
        "strategy": sm.Strategy(tp=8, pp=4),
    }
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.estimate_mixed(**(question | arguments))


@pytest.mark.parametrize(
    ("nodes", "placement"), [({}, "stages"), ({"dgx_h100": 1}, "rings"), ({"nowhere": 1}, "stages")]
)
def test_malformed_clusters_are_refused(nodes: dict[str, int], placement: str) -> None:
    with pytest.raises(sm.ScaleModelError):
        sm.mixed_cluster(nodes, placement=placement)
