"""Whole runs: days, energy, carbon, money, failures, and the split of budgets."""

from __future__ import annotations

import json
import math
import pickle
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog, economics
from scalemodel.cli import main
from scalemodel.resolve import prices

TASK = sm.Training(global_batch=1024, sequence=8192)
CLUSTER = sm.cluster("dgx_h100", nodes=64)
EST = sm.estimate("llama3_70b", CLUSTER, TASK, sm.Strategy(tp=4, cp=2, pp=4, vpp=5))


# ------------------------------------------------------------------------------------------ run
@given(tokens=st.floats(1e9, 1e14), price=st.floats(0.1, 20))
def test_tokens_days_money_and_energy_ask_the_same_question(tokens: float, price: float) -> None:
    run = sm.training_run(EST, tokens=tokens, price=price)
    for other in (
        sm.training_run(EST, days=run.days, price=price),
        sm.training_run(EST, budget_usd=run.cost_usd, price=price),
        sm.training_run(EST, energy_j=run.energy_j, price=price),
    ):
        assert other.tokens == pytest.approx(tokens)
        assert other.time_s == pytest.approx(run.time_s)
        assert other.operational_kg == pytest.approx(run.operational_kg)


@given(tokens=st.floats(1e10, 1e14), failures=st.floats(0, 0.02))
def test_a_run_adds_up(tokens: float, failures: float) -> None:
    run = sm.training_run(EST, tokens=tokens, reliability=failures, price=3.0, grid=400.0)
    assert run.time_s * run.goodput_tokens_per_s == pytest.approx(tokens)
    assert run.goodput_tokens_per_s == pytest.approx(run.ettr_fraction * EST.tokens_per_s)
    assert run.energy_j == pytest.approx(run.power_w * run.time_s)
    assert run.power_w == pytest.approx(EST.energy_j / EST.step_time_s)
    assert run.cost_usd == pytest.approx(3.0 * run.accelerator_hours)
    assert run.accelerator_hours == pytest.approx(512 * run.time_s / 3600)
    assert run.usd_per_million_tokens * tokens / 1e6 == pytest.approx(run.cost_usd)
    assert run.operational_kg == pytest.approx(run.energy_j / 3.6e6 * 0.4)
    assert run.time_low_s <= run.time_s <= run.time_high_s


def test_more_failures_and_lower_limits_take_longer() -> None:
    times = [sm.training_run(EST, tokens=1e12, reliability=rate).time_s for rate in (0, 1e-3, 1e-2)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(1e12 / EST.tokens_per_s)
    limits = (None, 600, 450, 300)
    runs = [sm.training_run(EST, tokens=1e12, cap_w=limit) for limit in limits]
    for hot, cool in pairwise(runs):
        assert cool.time_s > hot.time_s
        assert cool.power_w < hot.power_w


def test_a_published_rate_and_price_make_the_published_cost() -> None:
    """10,119 tokens/s per H100 at 6.88 USD per hour: 0.189 USD per million tokens."""
    price = economics.run.price_of(CLUSTER, "aws_p5_2025_06")
    assert price is not None
    assert 1e6 * price / 10_119 == pytest.approx(0.189, rel=0.005)


def test_operators_grids_and_prices_have_names() -> None:
    cool = sm.training_run(EST, tokens=1e12, grid="swe", pue="meta", price="tier2_h100_2026")
    warm = sm.training_run(EST, tokens=1e12, grid="ind", pue="industry", price=3.24)
    assert warm.energy_j / cool.energy_j == pytest.approx(1.56 / 1.08)
    assert warm.operational_kg / cool.operational_kg == pytest.approx(713.4 / 40.7 * 1.56 / 1.08)
    assert warm.cost_usd == pytest.approx(cool.cost_usd)
    wired = sm.training_run(EST, tokens=1e12, network_w=100)
    extra_w = 512 * 100 * CLUSTER.core.pue
    assert wired.power_w - sm.training_run(EST, tokens=1e12).power_w == pytest.approx(extra_w)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give exactly one of tokens, days"),
        ({"tokens": 1e12, "days": 3}, "give exactly one of tokens, days"),
        ({"tokens": -1}, "tokens=-1: must be from"),
        ({"tokens": math.nan}, "tokens=nan: must be from"),
        ({"days": "30"}, "days='30': must be a number"),
        ({"tokens": 1e12, "grid": "usb"}, "grid='usb': unknown; did you mean 'usa'"),
        ({"tokens": 1e12, "pue": 0.5}, "pue=0.5: must be from 1"),
        ({"tokens": 1e12, "price": "aws_p4d_2024"}, "is of a100_sxm_40"),
        ({"tokens": 1e12, "price": "neoclod"}, "did you mean 'neocloud_.*CoreWeave"),
        ({"tokens": 15}, "tokens=15: is less than one step .* did you mean tokens=15e12"),
        ({"days": 1e-7}, "days=1e-07: is less than one step"),
        ({"token": 5}, "token=5: training_run has no such argument; did you mean 'tokens'"),
        ({"tokens": 1e12, "reliability": "rsc_3"}, "failures='rsc_3': unknown"),
        ({"tokens": 1e12, "cap_w": 0}, "cap_w=0: must be from"),
    ],
)
def test_malformed_questions_name_the_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.training_run(EST, **arguments)  # type: ignore[arg-type]


def test_a_strategy_that_cannot_run_has_no_run() -> None:
    bad = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=3))
    with pytest.raises(sm.ScaleModelError, match="cannot run"):
        sm.training_run(bad, tokens=1e12)
    with pytest.raises(sm.ScaleModelError, match="cannot run"):
        sm.power_caps(bad, [500])


def test_what_does_not_fit_has_no_run() -> None:
    large = sm.estimate("llama3_70b", CLUSTER, TASK, sm.Strategy())
    assert large.verdict == "out_of_memory"
    for ask in (
        lambda: sm.training_run(large, tokens=1e12),
        lambda: sm.compute_optimal(budget_usd=1e6, est=large),
    ):
        with pytest.raises(sm.ScaleModelError, match=r"needs 5\d\d GiB of 80.0 GiB") as caught:
            ask()
        assert caught.value.code == "out_of_memory"
        assert "try " in str(caught.value)


def test_a_run_of_exactly_one_step_is_a_run() -> None:
    step = TASK.global_batch * TASK.sequence
    run = sm.training_run(EST, tokens=step, reliability=0)
    assert run.time_s == pytest.approx(EST.step_time_s)


# --------------------------------------------------------------------------------------- prices
def test_every_list_price_says_who_asks_it_on_which_terms() -> None:
    for name in catalog.names("prices"):
        price = prices.entry_price(name)
        assert price.kind in prices.SELLERS, name
        assert price.terms in prices.TERMS, name
        assert price.seller
        assert price.date >= "2023"
        assert name in {listed.source for listed in prices.prices_of(accelerator_of(name))}


def accelerator_of(price: str) -> str:
    return str(catalog.load("prices", price)["accelerator"])


@pytest.mark.parametrize(
    ("basis", "seller", "terms"),
    [
        ("neocloud_on_demand", None, "on_demand"),
        ("Hyperscaler on-demand", None, "on_demand"),
        ("hyperscaler_reserved", None, "reserved"),
        ("spot", None, "spot"),
        ("CoreWeave", "CoreWeave", "on_demand"),
        ("aws", "AWS", "on_demand"),
        ("AWS reserved", "AWS", "reserved"),
    ],
)
def test_a_basis_is_one_kind_of_seller_and_terms(
    basis: str, seller: str | None, terms: str
) -> None:
    found = [prices.list_price(name, basis) for name in ("h100_sxm_80", "h200", "b200")]
    assert None not in found
    assert prices.one_basis(found)
    assert {price.terms for price in found if price} == {terms}
    if seller:
        assert {price.seller for price in found if price} == {seller}


def test_the_newest_price_of_a_basis_is_taken_and_the_cheapest_of_a_date() -> None:
    listed = prices.prices_of("h100_sxm_80")
    assert [price.date for price in listed] == sorted((p.date for p in listed), reverse=True)
    mi300x = prices.list_price("mi300x", "neocloud on demand")
    assert mi300x is not None
    assert mi300x.usd_per_hour == pytest.approx(1.5)


def test_clusters_without_a_word_of_price_are_priced_on_one_basis_where_it_is_known() -> None:
    found = [sm.cluster(name).price for name in ("dgx_h100", "dgx_h200", "dgx_b200", "dgx_b300")]
    assert {price.basis for price in found if price} == {"neocloud_on_demand"}
    assert len(found) == 4
    assert not prices.one_basis([sm.cluster("dgx_h100").price, sm.cluster("aws_trn1").price])


@pytest.mark.parametrize("accelerator", ["gb300", "mi355x", "tpu_v7"])
def test_no_price_is_said_with_what_to_pass(accelerator: str) -> None:
    assert prices.prices_of(accelerator) == ()
    cluster = sm.cluster({"accelerator": accelerator})
    est = sm.estimate("llama3_8b", cluster, sm.Training(global_batch=64, sequence=4096))
    run = sm.training_run(est, tokens=1e12)
    assert run.cost_usd is None
    assert "pass price=USD per accelerator-hour" in repr(run)
    with pytest.raises(sm.ScaleModelError, match=f"{accelerator} has no list price"):
        sm.training_run(est, budget_usd=1e6)
    assert sm.training_run(est, tokens=1e12, price=3.0).cost_usd is not None


def test_a_cost_stands_beside_seller_terms_and_date() -> None:
    run = sm.training_run(EST, tokens=1e12, price="AWS reserved")
    assert run.price_source == "5.19 USD/h (AWS, reserved, 2026-08)"
    assert f"USD at {run.price_source}" in repr(run)
    assert run.to_dict()["price_source"] == run.price_source
    assert "(as given)" in repr(sm.training_run(EST, tokens=1e12, price=2.0))
    own = sm.cluster({"base": "dgx_h100", "price": {"usd_per_accelerator_hour": "2 USD/h"}})
    assert str(own.price) == "2.00 USD/h (dgx_h100.price)"


def test_a_price_on_a_basis_that_does_not_know_the_accelerator_is_none() -> None:
    run = sm.training_run(EST, tokens=1e12, price="Verda")
    assert run.cost_usd is None
    assert "no list price on the basis 'Verda'" in run.price_source


# --------------------------------------------------------------------------------------- buying
BOUGHT = {
    "Hopper": sm.cluster("dgx_h100", nodes=8),
    "Blackwell": sm.cluster("dgx_b200", nodes=4),
}
SMALL = sm.Training(global_batch=256, sequence=4096)


def compared(**terms: Any) -> economics.ClusterComparison:
    return sm.compare_clusters("llama3_8b", BOUGHT, SMALL, {"cp": 1}, tokens=1e12, **terms)


def test_clusters_are_compared_on_one_basis() -> None:
    for basis in ("neocloud_on_demand", "hyperscaler_on_demand", "CoreWeave", "spot"):
        found = compared(price=basis)
        assert prices.one_basis(found.prices.values())
        assert found.basis == basis.replace("_", " ")
        costs = found.table.cost_usd.tolist()
        assert costs == sorted(costs)
        for run in found.runs.values():
            assert f"at {run.price_source}" in str(found)


def test_one_price_for_all_ranks_by_accelerator_hours() -> None:
    found = compared(price=2.0)
    assert found.table.cost_usd.tolist() == pytest.approx(
        [2 * run.accelerator_hours for run in found.runs.values()]
    )
    assert found.cheapest is next(iter(found.runs.values()))


@given(price=st.floats(0.5, 20))
@settings(max_examples=5)
def test_at_the_break_even_price_both_cost_the_same(price: float) -> None:
    found = compared(price={"Hopper": price, "Blackwell": 5.0})
    even = found.break_even("Blackwell", "Hopper")
    again = compared(price={"Hopper": price, "Blackwell": even})
    assert again.runs["Blackwell"].cost_usd == pytest.approx(again.runs["Hopper"].cost_usd)
    # What it costs at its own price does not matter.
    assert compared(price={"Hopper": price, "Blackwell": 1.0}).break_even(
        "Blackwell", "Hopper"
    ) == pytest.approx(even)


def test_owned_machines_stand_beside_rented_ones() -> None:
    owned = economics.owned_price_usd_per_hour(BOUGHT["Blackwell"], capital_usd=60_000, years=5)
    found = compared(price={"Hopper": "CoreWeave", "Blackwell": owned})
    assert "owned: 60,000 USD over 5 years, 80% used" in str(found)
    assert found.runs["Blackwell"].price_usd_per_hour == pytest.approx(owned)
    assert pickle.loads(pickle.dumps(owned)).terms == owned.terms


def test_clusters_of_one_name_differ_by_size_and_what_fails_says_why() -> None:
    sizes = [sm.cluster("dgx_h100", nodes=2), sm.cluster("dgx_h100", nodes=4), "l40s_server"]
    found = sm.compare_clusters("llama3_70b", sizes, SMALL, {"cp": 1}, tokens=1e12)
    assert list(found.left_out) == ["l40s_server"]
    assert set(found.runs) <= {"dgx_h100 x 16", "dgx_h100 x 32"}
    assert "no strategy fits on" in str(found)
    assert found.table.verdict.tolist()[-1] == found.left_out["l40s_server"]


def test_deadlines_size_the_clusters() -> None:
    found = compared(days=60, most_nodes=16, price=3.0)
    assert all(run.days <= 60 for run in found.runs.values())
    late = compared(days=1, most_nodes=2, price=3.0)
    assert set(late.left_out) == set(BOUGHT)
    assert late.cheapest is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"price": "cheap"}, "price='cheap': unknown"),
        ({"price": {"Hopper": 3}}, "must name every cluster; Blackwell is missing"),
        ({"tokens": -1}, "tokens=-1: must be from"),
        ({"clusters": []}, r"clusters=\[\]: at least one"),
        ({"clusters": 7}, "clusters=7: must be a list"),
    ],
)
def test_malformed_comparisons_are_named(given: dict[str, Any], message: str) -> None:
    asked: dict[str, Any] = {"clusters": BOUGHT, "tokens": 1e12, **given}
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.compare_clusters("llama3_8b", asked.pop("clusters"), SMALL, {"cp": 1}, **asked)


# ------------------------------------------------------------------------------------ ownership
def test_an_owned_accelerator_costs_less_used_more() -> None:
    hourly = [
        economics.owned_price_usd_per_hour(
            CLUSTER, capital_usd=40_000, years=4, utilisation_fraction=share
        )
        for share in (0.3, 0.6, 1.0)
    ]
    assert hourly == sorted(hourly, reverse=True)
    free = economics.owned_price_usd_per_hour(CLUSTER, capital_usd=0, usd_per_kwh=0.1)
    power = CLUSTER.core.accelerator.power
    node_w = 8 * power.compute_fraction * power.limit_w + CLUSTER.core.host_power_w
    assert free == pytest.approx(node_w / 8 / 1e3 * CLUSTER.core.pue * 0.1)


# --------------------------------------------------------------------------------------- carbon
def test_published_footprints_imply_their_grids() -> None:
    hours = {"llama3_1": (39.3e6, 700, 414), "llama2": (3_311_616, 400, 407)}
    training = catalog.load("reference", "pue_and_carbon")["training"]
    for name, (gpu_hours, watts, expected) in hours.items():
        kg = 1e3 * training[name]["value"]
        found = _core.implied_grid_g_per_kwh(kg, gpu_hours * 3600 * watts)
        assert found == pytest.approx(expected, rel=0.002)


def test_embodied_carbon_by_parts_is_below_what_was_published() -> None:
    published = catalog.load("reference", "pue_and_carbon")["embodied"]["a100"]["value"]
    a100 = economics.embodied_kg(sm.cluster("dgx_a100"))
    assert published / 5 < a100 < published
    assert economics.embodied_kg(sm.cluster("dgx_b200")) > a100
    # No die area is known: the usual accelerator, and a server.
    assert economics.embodied_kg(sm.cluster("mi300x_node")) > 150
    own = sm.cluster({"base": "dgx_h100", "accelerator": {"base": "h100_sxm_80"}})
    assert economics.embodied_kg(own) == economics.embodied_kg(sm.cluster("dgx_h100"))


def test_most_carbon_of_a_run_is_its_electricity() -> None:
    run = sm.training_run(EST, tokens=1e12, grid="world")
    assert run.operational_kg > 0.9 * (run.operational_kg + run.embodied_kg)
    clean = sm.training_run(EST, tokens=1e12, grid="gcp_northamerica_northeast1")
    assert clean.embodied_kg == pytest.approx(run.embodied_kg)
    assert clean.embodied_kg > clean.operational_kg


# ---------------------------------------------------------------------------------- reliability
@pytest.mark.parametrize(
    ("failures", "shares"),
    [
        ("rsc_1", (0.937, 0.880, 0.829)),
        ("llama_3", (0.960, 0.916, 0.876)),
        ("rsc_2", (0.973, 0.938, 0.906)),
    ],
)
def test_published_productive_shares(failures: str, shares: tuple[float, ...]) -> None:
    for write_s, share in zip((1, 20, 60), shares, strict=True):
        job = sm.reliability(2048, failures=failures, write_s=write_s, restart_s=300)
        assert job.first_order_ettr_fraction == pytest.approx(share, rel=0.002)
        assert job.ettr_fraction == pytest.approx(share, rel=0.01)
        month = job.simulate(30 * 86400, runs=100, seed=1)
        assert month.ettr_fraction.mean() == pytest.approx(job.ettr_fraction, rel=0.01)


def test_published_mean_times_to_failure() -> None:
    hours = {128: 28.8, 2048: 1.80, 16384: 0.225}
    for nodes, expected in hours.items():
        found = sm.reliability(nodes, failures="rsc_1").mttf_s / 3600
        assert found == pytest.approx(expected, rel=0.01)
    # Measured at 1,024 accelerators: 7.9 h, because most interruptions there blame no node.
    other = catalog.load("reference", "reliability")["other"]["rsc_1"]["value"]
    job = sm.reliability(128, failures="rsc_1", other_per_hour=other)
    assert job.mttf_s / 3600 == pytest.approx(7.9, rel=0.01)
    assert sm.reliability(2048).mttf_s / 3600 == pytest.approx(3.09, rel=0.01)


def test_llama_3_was_productive_for_more_than_nine_tenths() -> None:
    observed = catalog.load("reference", "reliability")["observed"]["llama_3"]["value"]
    assert sm.reliability(2048, failures="llama_3", write_s=1).ettr_fraction > observed


@given(
    nodes=st.floats(1, 3e4),
    rate=st.floats(0, 0.05),
    write_s=st.floats(0, 300),
    background_s=st.floats(0, 600),
    rule=st.sampled_from(["young", "daly", "availability"]),
)
def test_a_productive_share_is_a_share(
    nodes: float, rate: float, write_s: float, background_s: float, rule: str
) -> None:
    job = sm.reliability(
        nodes, failures=rate, write_s=write_s, background_s=background_s, interval=rule
    )
    assert 0 <= job.ettr_fraction <= 1
    assert 0 <= job.first_order_ettr_fraction <= 1
    assert job.interval_s >= background_s


def test_jobs_come_as_numbers_clusters_and_estimates() -> None:
    assert sm.reliability(64) == sm.reliability(CLUSTER) == sm.reliability(EST)
    assert sm.reliability(64, failures=0).simulate(1e5, runs=2).time_s.tolist() == [1e5, 1e5]
    asynchronous = sm.reliability(2048, write_s=1, background_s=60)
    assert asynchronous.ettr_fraction > sm.reliability(2048, write_s=60).ettr_fraction
    for bad in ({"interval": "weekly"}, {"failures": -1}, {"write_s": -1}, {"nodes": 0}):
        with pytest.raises(sm.ScaleModelError, match=f"{next(iter(bad))}.*="):
            sm.reliability(**{"nodes": 64, **bad})


def test_a_queue_without_spares_costs_time() -> None:
    job = sm.reliability(2048, failures="rsc_1")
    waits = [
        job.simulate(10 * 86400, runs=50, spares=spares, repair_s=86400).queueing_s.mean()
        for spares in (0, 8, 64)
    ]
    assert waits[0] > waits[1] > waits[2]
    frame = job.simulate(10 * 86400, runs=5, spares=8, repair_s=86400)
    lost = frame[["repeated_s", "writing_s", "restarting_s", "queueing_s"]].sum(axis=1)
    assert (frame.time_s - lost).tolist() == pytest.approx([864000.0] * 5)


# ----------------------------------------------------------------------------- plans and budgets
def test_a_plan_is_the_smallest_cluster_in_time() -> None:
    terms = {"tokens": 1e12, "most_nodes": 64}
    plan = sm.plan_training("llama3_8b", "dgx_h100", TASK, days=20, **terms)
    assert plan.days <= 20
    slower = sm.plan_training("llama3_8b", "dgx_h100", TASK, days=100, **terms)
    assert slower.accelerators < plan.accelerators
    with pytest.raises(sm.ScaleModelError, match="the fastest is TrainingRun") as caught:
        sm.plan_training("llama3_8b", "dgx_h100", TASK, days=0.1, **terms)
    assert caught.value.code == "nothing_feasible"
    with pytest.raises(sm.ScaleModelError, match="give at least one"):
        sm.plan_training("llama3_8b", "dgx_h100", TASK, **terms)
    cheap = sm.plan_training("llama3_8b", "dgx_h100", TASK, budget_usd=1e6, price=2.0, **terms)
    assert cheap.cost_usd <= 1e6


def test_both_splits_of_a_published_budget() -> None:
    law = sm.compute_optimal(flop=5.76e23)
    assert law.parameters == pytest.approx(32e9, rel=0.02)
    assert law.tokens == pytest.approx(3.0e12, rel=0.02)
    ratio = sm.compute_optimal(flop=5.76e23, tokens_per_parameter=20)
    assert ratio.parameters == pytest.approx(69e9, rel=0.01)
    assert ratio.tokens == pytest.approx(1.39e12, rel=0.01)
    assert law.loss < ratio.loss


def test_energy_and_money_buy_work_at_the_rate_of_an_estimate() -> None:
    run = sm.training_run(EST, tokens=1e12, reliability=0, price=2.5)
    by_energy = sm.compute_optimal(energy_j=run.energy_j, est=EST)
    by_money = sm.compute_optimal(budget_usd=run.cost_usd, est=EST, price=2.5)
    assert by_energy.flop == pytest.approx(by_money.flop)
    rate = EST.mfu_fraction * 512 * CLUSTER.core.accelerator.peak_flop_per_s[3]
    assert by_energy.flop == pytest.approx(rate * run.time_s)
    with pytest.raises(sm.ScaleModelError, match="need an estimate"):
        sm.compute_optimal(energy_j=1e12)
    with pytest.raises(sm.ScaleModelError, match="exactly one of flop"):
        sm.compute_optimal()


# --------------------------------------------------------------------------------- command line
def test_the_command_line_prints_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimate", "llama3_70b", "--cluster", "dgx_h100", "--nodes", "64"]
    command += ["--global-batch", "1024", "--sequence", "8192"]
    command += ["--tp", "4", "--cp", "2", "--pp", "4", "--vpp", "5"]
    terms = ["--tokens", "1e12", "--grid", "usa", "--price", "2.5", "--failures", "rsc_1"]
    assert main([*command, *terms]) == 0
    assert "tokens in 2" in capsys.readouterr().out
    assert main([*command, *terms, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    expected = sm.training_run(EST, tokens=1e12, grid="usa", price=2.5, reliability="rsc_1")
    assert run == pytest.approx(expected.to_dict())
    assert main([*command, *terms, "--csv"]) == 0
    assert "run_operational_kg" in capsys.readouterr().out
    assert main([*command, "--grid", "usa"]) == 2
    assert "need --tokens" in capsys.readouterr().err


def test_the_command_line_compares_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare-clusters", "llama3_8b", "--clusters", "dgx_h100:4", "dgx_b200:2"]
    command += ["--global-batch", "256", "--sequence", "4096", "--tokens", "1e12"]
    assert main([*command, "--price", "CoreWeave", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["basis"] == "CoreWeave"
    assert {row["seller"] for row in found["clusters"]} == {"CoreWeave"}
    assert main([*command, "--price", "3"]) == 0
    assert "3 USD per accelerator-hour for all" in capsys.readouterr().out
    between = [*command[:2], "--clusters", "dgx_h100:4,dgx_b200:2,", *command[5:]]
    assert main([*between, "--price", "CoreWeave", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main([*command, "--clusters", ","]) == 2
    assert "must name at least one cluster" in capsys.readouterr().err
    assert main([*command, "--clusters", "dgx_h100:x"]) == 2
    assert "must be like dgx_h100:64" in capsys.readouterr().err


def test_tokens_of_what_does_not_fit_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimate", "llama3_70b", "--cluster", "dgx_h100", "--tokens", "1e12"]
    assert main([*command, "--global-batch", "64", "--sequence", "4096"]) == 3
    said = capsys.readouterr()
    assert "no run, for the strategy does not fit" in said.err
    assert "days" not in said.out
