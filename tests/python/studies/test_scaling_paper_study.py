"""Tables of the scaling paper's questions: laws, and published figures where there are any."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from scalemodel.studies import scaling_paper


@pytest.fixture(scope="module")
def grid() -> pd.DataFrame:
    return scaling_paper.model_parallel_grid()


def test_tensor_parallelism_wins_on_more_accelerators_only(
    grid: pd.DataFrame, summary_line: Callable[[str], None]
) -> None:
    sharded = grid[(grid.sharding == "zero3") & (grid.tp == 2) & (grid.pp == 1)]
    gains = sharded.set_index("accelerators").gain_fraction
    summary_line(
        "tp 2 over pure sharding, both ZeRO-3: "
        + ", ".join(f"{gain:+.1%} on {size}" for size, gain in gains.items())
    )
    assert gains.is_monotonic_increasing
    assert gains[256] < 0 < gains[1024] < gains[2048]
    # Where states alone are sharded no ring of gathers is there to be shortened.
    whole = grid[(grid.sharding == "zero1") & (grid.tp == 2) & (grid.pp == 1)]
    assert (whole.gain_fraction < 0).all()


def test_the_grid_has_every_pair_up_to_its_product(grid: pd.DataFrame) -> None:
    one = grid[(grid.accelerators == 2048) & (grid.sharding == "zero3")]
    assert (one.tp * one.pp).max() == 16
    assert len(one) == 5 + 4 + 3 + 2
    assert (one[(one.tp == 1) & (one.pp == 1)].gain_fraction == 0).all()


def test_tensor_parallelism_pays_the_earlier_the_less_is_computed_between_gathers(
    summary_line: Callable[[str], None],
) -> None:
    table = scaling_paper.tensor_parallel_onset()
    by_tokens = table.groupby("tokens_each").ahead_from.agg(["min", "max"])
    summary_line(
        "tp 2 ahead of pure sharding from: "
        + ", ".join(f"{row['min']} with {tokens:,} tokens" for tokens, row in by_tokens.iterrows())
    )
    assert by_tokens["min"].is_monotonic_increasing
    assert by_tokens["min"][2048] <= 256 < by_tokens["min"][8192]
    gains = table.filter(like="gain_")
    assert (gains.diff(axis=1).iloc[:, 1:] > 0).all(axis=None)


def test_long_contexts_need_ranks_that_share_them() -> None:
    table = scaling_paper.contexts().set_index(["sequence", "cp"])
    assert table.verdict[32768, 1] == "out_of_memory"
    assert table.verdict[32768, 4] == "ok"
    # Keys and values of a longer sequence take longer to compute with than to gather.
    exposed = [table.exposed_fraction[sequence, 4] for sequence in (4096, 8192, 16384, 32768)]
    assert exposed == sorted(exposed, reverse=True)


def test_one_large_model_uses_a_joule_better_only_by_its_parameters() -> None:
    """Tokens per joule fall with size, tokens times parameters rise: utilisation does."""
    table = scaling_paper.model_sizes()
    assert table.tokens_per_j.is_monotonic_decreasing
    assert table.parameter_tokens_per_j.is_monotonic_increasing
    assert table.mfu_fraction.is_monotonic_increasing
    assert table.power_w.is_monotonic_increasing


def test_newer_generations_use_less_of_themselves() -> None:
    table = scaling_paper.generations().set_index("cluster")
    assert (table.verdict == "ok").all()
    assert table.tokens_per_s_per_accelerator.is_monotonic_increasing
    assert table.mfu_fraction["dgx_h100"] < table.mfu_fraction["dgx_a100"]
    assert table.exposed_fraction["dgx_h100"] > table.exposed_fraction["dgx_a100"]


def test_a_fixed_strategy_loses_with_every_doubling_at_a_fixed_batch() -> None:
    for _, rows in scaling_paper.strong_scaling().groupby("model"):
        assert rows.mfu_fraction.is_monotonic_decreasing
        assert rows.tokens_per_j.is_monotonic_decreasing


def test_gathers_jump_where_rings_double_and_reductions_do_not() -> None:
    """From 128 to 256 nodes a ring waits for twice the ranks, a tree for one level more."""
    factor = scaling_paper.collective_steps().set_index(["op", "nodes"]).factor
    assert 1.5 < factor["all_gather", 256] < 2
    assert 1 < factor["all_reduce", 256] < 1.1
    # The step is one of many, each larger than the one before: no jump of its own.
    assert factor["all_gather", 128] < factor["all_gather", 256] < factor["all_gather", 512]


def test_published_figures_lie_between_one_and_two_sequences(
    summary_line: Callable[[str], None],
) -> None:
    table = scaling_paper.batch_sensitivity().set_index("sequences_each")
    for each, row in table.iterrows():
        summary_line(
            f"{each} sequences each: {row.throughput_change_fraction:.1%} throughput, "
            f"{row.power_change_fraction:.1%} power, MFU ratio {row.mfu_ratio:.3f}, 5 % exposed "
            f"above {row.exposed_above}"
        )
    change = table.throughput_change_fraction
    assert change[1] < -0.3722 < change[2] < change[4]
    assert table.power_change_fraction[1] < -0.0587 < table.power_change_fraction[2]
    assert table.exposed_above[1] == 128 < table.exposed_above[2]
    # The generations' ratio is above what is published whatever the batch: memory-bound kernels
    # of the A100 are not as far below its cores as the paper's A100 runs say.
    assert (table.mfu_ratio > 0.683).all()
    assert table.mfu_ratio[1] == table.mfu_ratio.min()
