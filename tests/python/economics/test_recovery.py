"""Hot spares over a long run, and ways to go on after a loss of nodes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.economics.recovery import RecoveryOption

TASK = sm.Training(global_batch=224, sequence=8192)  # divides 8 and 7 nodes of 8
SPACE = {"tp": [1, 2], "pp": 1, "cp": 1}
DAY_S = 86400.0


@pytest.fixture(scope="module")
def replicated() -> sm.Estimate:
    """Eight replicas of the state, one a node, and a batch that seven of them divide too."""
    cluster = sm.cluster("dgx_h100", nodes=8)
    strategy = sm.Strategy(tp=2, sharding="hsdp", shard_degree=4)
    return sm.estimate("llama3_8b", cluster, TASK, strategy)


@pytest.fixture(scope="module")
def sharded() -> sm.Estimate:
    """One copy of the state, sharded over all ranks."""
    cluster = sm.cluster("dgx_h100", nodes=8)
    return sm.estimate("llama3_8b", cluster, TASK, sm.Strategy(tp=2, sharding="zero1"))


def options_of(found: sm.Replan) -> dict[str, RecoveryOption]:
    return {one.name: one for one in found.options}


def way_of(found: sm.Replan, name: str) -> _core.Recovery:
    way = options_of(found)[name].way
    assert way is not None, options_of(found)[name].reason
    return way


# -------------------------------------------------------------------------------------- spares
@pytest.mark.parametrize("spares", [0, 1, 4])
def test_simulated_spares_agree_with_the_closed_form(spares: int) -> None:
    job = sm.reliability(1024, failures=6e-3)
    month = job.simulate(60 * DAY_S, runs=200, spares=spares, repair_s=DAY_S / 2)
    error = month.ettr_fraction.std() / math.sqrt(len(month))
    expected = job.ettr_with(spares=spares, repair_s=DAY_S / 2)
    assert abs(month.ettr_fraction.mean() - expected) < 4 * error + 2e-3


@pytest.mark.parametrize("replicas", [4, 32])
def test_simulated_replicas_agree_with_the_closed_form(replicas: int) -> None:
    job = sm.reliability(1024, failures=6e-3, restart_s=900)
    pool = {"spares": 2, "repair_s": DAY_S / 2, "replicas": replicas, "stall_s": 120.0}
    month = job.simulate(60 * DAY_S, runs=200, seed=3, **pool)
    error = month.ettr_fraction.std() / math.sqrt(len(month))
    assert abs(month.ettr_fraction.mean() - job.ettr_with(**pool)) < 4 * error + 2e-3


def test_llama_3_trains_more_than_nine_tenths_of_the_time_with_spares() -> None:
    # 419 interruptions of 2,048 nodes in 54 days with over 90 % effective time (arXiv 2407.21783).
    table = sm.plan_spares(2048, repair_s=DAY_S, failures="llama_3")
    assert table.productive_fraction.max() > 0.9
    assert table.productive_fraction.iloc[0] < 0.2  # without spares nodes in repair stop it


def test_a_shorter_stall_gives_what_is_published_of_fault_tolerant_hsdp() -> None:
    # arXiv 2602.00277: 44 % of the time at stalls of 10 minutes, 80 % at 3 minutes.
    nodes = 12_500
    rate = -math.log(0.44) / 600 * DAY_S / nodes
    job = sm.reliability(nodes, failures=rate, write_s=0, restart_s=180)
    share = job.ettr_with(replicas=1000, stall_s=180, spares=1000, repair_s=DAY_S)
    assert share == pytest.approx(0.80, rel=0.03)


def test_the_best_number_of_spares_is_where_one_more_no_longer_pays(
    replicated: sm.Estimate,
) -> None:
    table = sm.plan_spares(replicated, repair_s=DAY_S, failures=0.02)
    for policy, rows in table.groupby("policy"):
        assert rows.best.sum() == 1, policy
        assert rows.productive_fraction.is_monotonic_increasing
        best = rows[rows.best].iloc[0]
        assert best.work_per_node_fraction == rows.work_per_node_fraction.max()
        assert best.usd_per_million_tokens == rows.usd_per_million_tokens.min()
        assert best.goodput_tokens_per_s == pytest.approx(
            replicated.tokens_per_s * best.productive_fraction
        )
    free = sm.plan_spares(replicated, repair_s=DAY_S, failures=0.02, spare_price_fraction=0.0)
    cheap = free[free.best].set_index("policy").spares
    assert (cheap >= table[table.best].set_index("policy").spares).all()


def test_a_job_whose_ranks_share_one_state_can_only_restart(sharded: sm.Estimate) -> None:
    assert set(sm.plan_spares(sharded, repair_s=DAY_S).policy) == {"restart"}


def test_a_quorum_lengthens_every_step(replicated: sm.Estimate) -> None:
    plain, agreed = (
        sm.plan_spares(replicated, repair_s=DAY_S, most_spares=2, quorum_s=quorum)
        for quorum in (0.0, float(replicated.step_time_s))
    )
    dropped = plain.policy == "drop_replica"
    ratio = agreed.productive_fraction[dropped] / plain.productive_fraction[dropped]
    assert ratio.tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert agreed[~dropped].equals(plain[~dropped])


def test_a_node_that_is_replaced_at_once_needs_no_spare() -> None:
    table = sm.plan_spares(512, repair_s=0, replicas=8)
    assert table.spares.tolist() == [0, 0]
    assert table.queueing_fraction.tolist() == [0, 0]
    job = sm.reliability(512)
    assert table.productive_fraction[0] == job.ettr_fraction


@pytest.mark.parametrize(
    "terms, named",
    [
        ({"repair_s": -1}, "repair_s=-1"),
        ({"repair_s": 60, "replicas": 65}, "replicas=65: must be at most the 64 nodes"),
        ({"repair_s": 60, "replicas": 2.5}, "replicas=2.5: must be a whole number"),
        ({"repair_s": 60, "most_spares": 20_000}, "most_spares=20000"),
        ({"repair_s": 60, "quorum_s": 1}, "quorum_s=1: is of a step"),
        ({"repair_s": 60, "price": 2.0}, "price=2.0: is of accelerators"),
        ({"repair_s": 60, "stall": 3}, "stall"),
    ],
)
def test_a_malformed_question_about_spares_names_its_argument(
    terms: dict[str, float], named: str
) -> None:
    with pytest.raises(ScaleModelError, match=named):
        sm.plan_spares(64, **terms)
    with pytest.raises(ScaleModelError, match="failures: is part of the job"):
        sm.plan_spares(sm.reliability(64), repair_s=60, failures=1.0)


# -------------------------------------------------------------------------------------- replan
def test_replicas_that_are_not_hit_go_on_at_the_rate_of_a_smaller_job(
    replicated: sm.Estimate,
) -> None:
    found = sm.replan(replicated, 1, repair_s=8 * 3600, space=SPACE)
    assert (found.replicas, found.lost_replicas) == (8, 1)
    fewer = options_of(found)["fewer_replicas"].estimate
    assert fewer is not None
    seven = sm.cluster("dgx_h100", nodes=7)
    plan = replicated.strategy.replace(dp=28)
    expected = sm.estimate("llama3_8b", seven, TASK, plan)
    assert fewer.step_time_s == expected.step_time_s
    assert fewer.task.global_batch == TASK.global_batch
    smaller = options_of(found)["smaller_batch"].estimate
    assert smaller is not None
    assert smaller.task.global_batch == 196
    for name in ("fewer_replicas", "smaller_batch"):
        way = way_of(found, name)
        assert way.repeated_s == replicated.step_time_s  # the state is kept
        assert 0.8 < way.rate_fraction < 0.9
    assert found.work_s("fewer_replicas", 8 * 3600) > found.work_s("wait", 8 * 3600)


def test_a_state_that_all_ranks_share_is_read_again(sharded: sm.Estimate) -> None:
    found = sm.replan(sharded, 1, repair_s=8 * 3600, since_checkpoint_s=900, space=SPACE)
    assert (found.replicas, found.lost_replicas) == (1, 1)
    way, one = way_of(found, "fewer_replicas"), options_of(found)["fewer_replicas"]
    assert way.repeated_s == 900
    assert way.begins_s == pytest.approx(one.standstill_s + one.reload_s)
    # Weights, master weights and moments of every parameter once, at the rate of seven nodes.
    state = 14 * float(sharded.model.parameters)
    assert one.reload_s == pytest.approx(state / (7 * 3.3e9), rel=0.01)


def test_experts_keep_their_ranks_when_fewer_start_again() -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    strategy = sm.Strategy(tp=2, ep=8, pp=2, sharding="zero1")
    task = sm.Training(global_batch=192, sequence=4096)
    est = sm.estimate("mixtral_8x7b", cluster, task, strategy)
    found = sm.replan(est, [3], repair_s=DAY_S, space={"tp": 2, "pp": 2})
    # Seven nodes hold 14 data-parallel ranks; eight experts' ranks span four.
    assert found.table.set_index("option").dp["fewer_replicas"] == 12


def test_copies_in_memory_spare_the_work_since_the_last_checkpoint(sharded: sm.Estimate) -> None:
    asked = {"repair_s": 8 * 3600, "spares": 2, "space": SPACE, "since_checkpoint_s": 900}
    found = sm.replan(sharded, 2, memory_copies=2, **asked)
    assert way_of(found, "spares").repeated_s == sharded.step_time_s
    too_many = sm.replan(sharded, 2, memory_copies=1, **asked)
    assert way_of(too_many, "spares").repeated_s == 900
    assert way_of(found, "spares").begins_s < way_of(too_many, "spares").begins_s


def test_spares_are_as_fast_as_before_and_too_few_are_a_verdict(replicated: sm.Estimate) -> None:
    found = sm.replan(replicated, 2, repair_s=DAY_S, spares=2, space=SPACE)
    assert way_of(found, "spares").rate_fraction == 1
    assert found.best == found.best_until_repair == "replica_spares"
    few = options_of(sm.replan(replicated, 2, repair_s=DAY_S, spares=1, space=SPACE))
    assert few["spares"].verdict == "no_spares"
    assert few["spares"].reason == "1 spares for 2 lost nodes"
    assert few["new_strategy"].estimate is not None
    assert few["new_strategy"].estimate.cluster.nodes <= 7


def test_a_loss_of_every_replica_says_so(replicated: sm.Estimate) -> None:
    found = sm.replan(replicated, 8, repair_s=DAY_S, spares=8, space=SPACE)
    options = options_of(found)
    assert found.lost_replicas == 8
    assert options["replica_spares"].verdict == "state_lost"
    assert "all 8 replicas" in options["replica_spares"].reason
    assert options["fewer_replicas"].verdict == "no_nodes"
    alone = options_of(sm.replan(replicated, 8, repair_s=DAY_S, space=SPACE))
    assert alone["new_strategy"].verdict == "no_nodes"
    assert sm.replan(replicated, 8, repair_s=DAY_S, space=SPACE).best == "wait"


def test_nodes_by_number_hit_the_replicas_that_lie_on_them() -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    strategy = sm.Strategy(tp=8, pp=2, sharding="ddp", placement="tp-pp-cp-dp")
    est = sm.estimate("llama3_8b", cluster, sm.Training(global_batch=192, sequence=8192), strategy)
    same = sm.replan(est, [0, 1], repair_s=DAY_S, space=SPACE)
    apart = sm.replan(est, 2, repair_s=DAY_S, space=SPACE)
    assert (same.replicas, same.lost_replicas, apart.lost_replicas) == (4, 1, 2)
    assert apart.lost_nodes == (0, 2)
    assert (
        way_of(same, "fewer_replicas").rate_fraction > way_of(apart, "fewer_replicas").rate_fraction
    )


def test_the_picks_are_the_largest_of_the_table(replicated: sm.Estimate) -> None:
    found = sm.replan(replicated, 1, repair_s=4 * 3600, horizon_s=DAY_S, space=SPACE)
    table = found.table.set_index("option")
    assert found.best_until_repair == table.work_until_repair_s.astype(float).idxmax()
    assert found.best == table.work_until_horizon_s.astype(float).idxmax()
    assert set(table.index) == {
        "wait",
        "spares",
        "replica_spares",
        "fewer_replicas",
        "smaller_batch",
        "new_strategy",
    }
    crossings = found.overtakes().set_index(["option", "other"]).at_s
    assert crossings["fewer_replicas", "wait"] == 0
    assert math.isinf(crossings["wait", "fewer_replicas"])
    at_s = crossings["new_strategy", "wait"]
    assert found.work_s("new_strategy", at_s) == pytest.approx(found.work_s("wait", at_s))
    assert "most work until the repair" in str(found)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.05, 1),
    begins=st.floats(0, 5e3),
    repeated=st.floats(0, 5e3),
    returns=st.floats(0, 5e3),
    factor=st.floats(1.01, 5),
)
def test_beyond_its_break_even_repair_an_option_beats_waiting(
    rate: float, begins: float, repeated: float, returns: float, factor: float
) -> None:
    way = _core.Recovery(
        rate_fraction=rate, begins_s=begins, repeated_s=repeated, returns_s=returns
    )
    wait = _core.Recovery(repeated_s=1800, returns_s=300)
    repair = max(begins + 1, factor * _core.break_even_repair_s(way, wait))
    late = 100 * (repair + 1e4)
    ahead = _core.work_done_s(way, repair, late) - _core.work_done_s(wait, repair, late)
    assert ahead >= -1e-6


@pytest.mark.parametrize(
    "lost, terms, named",
    [
        (0, {}, "lost_nodes=0: must be from 1 to the 8 nodes"),
        (-1, {}, "lost_nodes=-1"),
        (9, {}, "lost_nodes=9: must be from 1 to the 8 nodes"),
        (True, {}, "lost_nodes=True"),
        ([8], {}, "lost_nodes=8: must be from 0 to 7"),
        ([1, 1], {}, r"lost_nodes=\[1, 1\]: must be at least one"),
        ([], {}, r"lost_nodes=\[\]"),
        (1, {"spares": -1}, "spares=-1"),
        (1, {"repair_s": -5}, "repair_s=-5"),
        (1, {"read": "floppy"}, "read='floppy': must be bytes per second of a node, or one of"),
        (1, {"reliability": 0}, "since_checkpoint_s=None: a job that never fails"),
        (1, {"memory_copies": 0.5}, "memory_copies=0.5"),
        (1, {"spare": 1}, "did you mean 'spares'"),
    ],
)
def test_a_malformed_loss_names_its_argument(
    replicated: sm.Estimate, lost: object, terms: dict[str, object], named: str
) -> None:
    with pytest.raises(ScaleModelError, match=named):
        sm.replan(replicated, lost, **{"repair_s": 3600, "space": SPACE, **terms})


def test_a_repair_at_once_leaves_waiting_a_restart(replicated: sm.Estimate) -> None:
    found = sm.replan(replicated, 1, repair_s=0, space=SPACE)
    assert found.horizon_s == DAY_S
    wait = way_of(found, "wait")
    assert found.work_s("wait", DAY_S) == DAY_S - wait.returns_s - wait.repeated_s


def test_constants_of_a_stack_stand_for_its_name(replicated: sm.Estimate) -> None:
    from scalemodel.resolve import stack

    est = sm.estimate(
        replicated.model, replicated.cluster, TASK, replicated.strategy, stack=stack("plain")
    )
    by_name, by_value = (sm.replan(one, repair_s=DAY_S, space=SPACE) for one in (replicated, est))
    assert by_name.table.equals(by_value.table)


def test_what_does_not_fit_is_no_job_to_replan() -> None:
    est = sm.estimate(
        "llama3_70b", sm.cluster("dgx_h100"), sm.Training(global_batch=8, sequence=8192)
    )
    with pytest.raises(ScaleModelError, match="est: needs"):
        sm.replan(est, 1, repair_s=3600)
    with pytest.raises(ScaleModelError, match="job: needs"):
        sm.plan_spares(est, repair_s=3600)
