"""Laws of the studies that ask MAD-Max's questions again."""

from __future__ import annotations

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.studies import madmax
from scalemodel.studies.madmax_original.inputs import SYSTEMS


@pytest.fixture(scope="module")
def training() -> pd.DataFrame:
    return madmax.strategies()


@pytest.fixture(scope="module")
def inference() -> pd.DataFrame:
    return madmax.strategies(inference=True)


def test_every_model_of_the_suite_has_a_strategy_that_fits(
    training: pd.DataFrame, inference: pd.DataFrame
) -> None:
    fits = [set(madmax.best_over_fsdp(frame)["name"]) for frame in (training, inference)]
    assert fits == [set(madmax.SUITE), set(madmax.SUITE)]


def test_speed_ups_are_over_fsdp_and_the_best_is_at_least_one(
    training: pd.DataFrame, inference: pd.DataFrame
) -> None:
    for frame in (training, inference):
        plain = frame[(frame["layers"] == "fsdp") & (frame["experts"] == "")]
        fits = plain[plain["verdict"] == "ok"]
        assert fits.groupby("name")["speed_up"].max().eq(1).all()
        best = madmax.best_over_fsdp(frame).set_index("name")["speed_up"]
        # Plain FSDP of the mixture of experts fits nowhere: what it would reach is the base.
        assert set(frame["name"]) - set(fits["name"]) <= {"LLM-MoE"}
        assert best[sorted(set(fits["name"]))].ge(1).all()
        assert frame["exposed_fraction"].dropna().between(0, 1).all()


def test_experts_spread_by_themselves_beat_experts_that_follow_the_layers(
    training: pd.DataFrame,
) -> None:
    best = madmax.best_over_fsdp(training).set_index("name")
    for name in ("DLRM-A-MoE", "DLRM-I-MoE"):
        assert best.loc[name, "experts"].startswith("ep@")


def test_tensor_parallelism_across_nodes_does_not_pay(training: pd.DataFrame) -> None:
    """The paper's best strategy of DLRM-A-MoE, ddp@8+tp, shares a node's adapters eight ways."""
    rows = training[(training["name"] == "DLRM-A-MoE") & (training["experts"] == "")]
    assert rows.loc[rows["layers"] == "ddp@8+tp", "speed_up"].max() < 0.8


def test_exposed_communication_is_a_column_of_the_strategies(training: pd.DataFrame) -> None:
    table = madmax.exposed_communication(training).set_index("name")
    assert set(table.index) == set(madmax.SUITE)
    best = madmax.best_over_fsdp(training).set_index("name")
    for name in best.index:
        assert table.loc[name, "best_fraction"] == best.loc[name, "exposed_fraction"]


def test_more_of_a_resource_never_hurts_and_all_of_it_helps_most() -> None:
    table = madmax.resource_scaling(["DLRM-A", "ViT-10B"], factors=[2, 10])
    assert table["speed_up"].ge(1 - 1e-9).all()
    for _, rows in table.groupby(["name", "factor"]):
        by_resource = rows.set_index("resource")["speed_up"]
        assert by_resource["all"] >= by_resource.max() - 1e-9
        # Start-up times stay what they are.
        assert by_resource["all"] <= rows["factor"].iloc[0] * (1 + 1e-9)


def test_a_fixed_strategy_is_kept() -> None:
    table = madmax.resource_scaling(["DLRM-A"], factors=[2], layers="fsdp")
    assert set(table["layers"]) == {"fsdp"}


def test_attention_makes_long_sequences_slower() -> None:
    table = madmax.context_lengths(layers=["fsdp"])
    loss = 1 - table["tokens_per_s"] / table["without_scores_tokens_per_s"]
    assert loss.is_monotonic_increasing
    assert 0 < loss.iloc[0] < 0.1
    assert loss.iloc[-1] > 0.2


def test_sequences_that_ranks_share_out_fit_where_whole_ones_do_not() -> None:
    table = madmax.context_lengths([65536]).set_index("layers")
    assert table.loc["fsdp", "verdict"] == "out_of_memory"
    shared = table.loc["cp@8+fsdp"]
    assert shared["verdict"] == "ok"
    # Keys and values of grouped heads are few: sharing costs less than a tenth.
    assert shared["tokens_per_s"] > 0.9 * table.loc["fsdp", "tokens_per_s"]


def test_money_is_hours_times_price_and_hours_are_samples_over_rate() -> None:
    table = madmax.cloud_costs([64, 128], samples=1e9)
    for row in table.to_dict("records"):
        price = catalog.load("prices", madmax.CLOUDS[row["instance"]].price)
        usd = float(price["usd_per_accelerator_hour"]["value"].split()[0])
        hours = 1e9 / row["samples_per_s"] * row["accelerators"] / 3600
        assert row["accelerator_hours"] == pytest.approx(hours)
        assert row["cost_usd"] == pytest.approx(hours * usd)
        assert row["energy_j"] > 0


def test_all_clouds_of_the_paper_cost_what_its_sheets_say() -> None:
    """Fourteen instances, by its own formulas: the cheapest and the fastest of its front."""
    table = madmax.cloud_costs([128, 512])
    assert set(table.instance) == set(madmax.CLOUDS)
    families = {name for name in SYSTEMS if name.startswith("cloud_")}
    assert {instance.original for instance in madmax.CLOUDS.values()} == families
    cheapest = table.loc[table.original_cost_usd.idxmin()]
    assert cheapest.instance == "Azure ND A100 v4 (40 GB)"
    assert cheapest.original_cost_usd == pytest.approx(828, rel=0.01)
    assert cheapest.original_samples_per_s == pytest.approx(0.73e6, rel=0.01)
    fastest = table.loc[table.original_samples_per_s.idxmax()]
    assert fastest.instance == "AWS p5 (H100)"
    assert fastest.original_cost_usd == pytest.approx(4202, rel=0.01)
    # Nodes without NVLink between their GPUs, and NICs of a few Gbit/s, come last in both.
    slow = table[table.accelerators == 512].set_index("instance")
    least = slow.samples_per_s.sort_values().index[:2]
    assert "Azure NCv3 (V100 16 GB, no NVLink)" in least
    assert slow.original_samples_per_s.idxmin() == "Azure NCv3 (V100 16 GB, no NVLink)"


def test_a_name_outside_the_suite_is_refused() -> None:
    with pytest.raises(ScaleModelError, match=r"names: 'DLRM-B': not in the suite; .*DLRM-A"):
        madmax.strategies(["DLRM-B"])


def test_the_space_is_the_papers() -> None:
    one_node = madmax.plans(sm.compose("dlrm_a"), sm.cluster("zionex", nodes=1))
    assert len(one_node) == 3 * 3
    moe = madmax.plans(sm.compose("dlrm_a_moe"), sm.cluster("zionex", nodes=2))
    assert len(moe) == 5 * 7 * 4
    vision = madmax.plans(sm.compose("vit_l"), sm.cluster("zionex", nodes=2))
    assert len(vision) == 7 * 2


def test_a_task_is_faster_the_less_of_a_step_it_has() -> None:
    names = ["DLRM-A", "DLRM-F", "Llama2-70B", "ViT-10B"]
    table = madmax.tasks(names)
    rates = table.pivot(index="name", columns="task", values="samples_per_s")
    assert set(rates.index) == set(names)
    assert (rates["pre-training"] < rates["fine-tuning"]).all()
    assert (rates["fine-tuning"] < rates["inference"]).all()
    # A forward pass is a third of a step or less: backward and optimizer are the rest.
    assert rates.loc["Llama2-70B", "inference"] > 3 * rates.loc["Llama2-70B", "pre-training"]


def test_fine_tuning_is_faster_the_more_is_frozen() -> None:
    table = madmax.fine_tuning()
    for _, rows in table.groupby("name"):
        assert rows["frozen"].iloc[0] == "nothing"
        assert rows["speed_up"].ge(1).all()
    gains = table.set_index(["name", "frozen"])["speed_up"]
    assert gains["DLRM-A", "embedding, bottom MLP"] > gains["DLRM-A", "embedding"]
    # Nothing runs backward below the lowest layer that learns: a third of the flop is left, and no
    # gradient travels. The original keeps all flop, and freezes the upper layers.
    assert gains["Llama2-70B", "lower half"] > 1.2
    assert gains["Llama2-70B", "all but one layer"] > gains["Llama2-70B", "lower half"]


def test_overlap_shortens_a_step_and_hides_no_more_than_there_is() -> None:
    table = madmax.bars(["DLRM-A", "GPT-3", "ViT-10B"])
    assert (table["step_time_s"] <= table["serialised_s"] * (1 + 1e-9)).all()
    kinds = ["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s"]
    assert (table["exposed_s"] <= table[kinds].sum(axis=1) * (1 + 1e-9)).all()
    by_name = table.set_index("name")
    assert by_name.loc["DLRM-A", kinds].astype(float).idxmax() == "all_to_all_s"
    assert by_name.loc["GPT-3", "all_to_all_s"] == 0


def test_faster_memory_costs_more_of_it() -> None:
    for _, front in madmax.throughput_memory(["DLRM-I", "ViT-10B"]).groupby("name"):
        assert front["memory_bytes"].is_monotonic_increasing
        assert front["samples_per_s"].is_monotonic_increasing
        assert len(front) >= 2


def test_accelerators_are_compared_on_one_model() -> None:
    table = madmax.accelerators(["DLRM-A"]).set_index("accelerator")
    assert set(table.index) == set(madmax.ACCELERATORS)
    # NVLink between nodes relieves the exchange, which binds this model.
    joined, apart = "H100 SuperPOD, NVLink between nodes", "H100"
    assert table["speed_up"][joined] > 1.5 * table["speed_up"][apart]
    assert table["exposed_fraction"][joined] < table["exposed_fraction"][apart]


def test_a_fleet_waits_by_its_hours(exposed_best: pd.Series[float]) -> None:
    """The published 14 to 32 % is a measurement; here is which mixes of the suite give it."""

    def share(clicks: float) -> float:
        hours = {"DLRM-A": clicks / 2, "DLRM-I": clicks / 2, "Llama2-70B": 1 - clicks}
        return madmax.fleet_exposed(exposed_best, hours)

    assert share(0.0) == pytest.approx(exposed_best["Llama2-70B"])
    mixes = [step / 20 for step in range(21)]
    inside = [clicks for clicks in mixes if 0.14 <= share(clicks) <= 0.32]
    assert inside
    assert share(mixes[-1]) > 0.32
    with pytest.raises(ScaleModelError, match="'DLRM-Z': exposed says nothing"):
        madmax.fleet_exposed(exposed_best, {"DLRM-Z": 1.0})
    with pytest.raises(ScaleModelError, match="must not be negative"):
        madmax.fleet_exposed(exposed_best, {"DLRM-A": -1.0})


@pytest.fixture(scope="module")
def exposed_best(training: pd.DataFrame) -> pd.Series[float]:
    return madmax.exposed_communication(training).set_index("name")["best_fraction"]
