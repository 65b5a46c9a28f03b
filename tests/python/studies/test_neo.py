"""Published throughput of click models on ZionEX against predictions."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.studies.neo import TABLES_OF_A, throughput, with_tables


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return throughput()


def test_model_i_runs_as_published(runs: pd.DataFrame, summary_line: Callable[[str], None]) -> None:
    for row in runs.itertuples():
        summary_line(
            f"Neo, {row.name}, {row.tables} tables: {row.samples_per_s / 1e6:.3f} MQPS, published "
            f"{row.published_samples_per_s / 1e6:.3f} ({row.error_fraction:+.0%})"
        )
    (error,) = runs[runs.name == "I, 128 accelerators"].error_fraction
    assert abs(error) < 0.20


def test_model_a_runs_as_published_with_the_tables_its_paper_may_mean(runs: pd.DataFrame) -> None:
    """Nothing is free but the number of tables, and one number must serve both sizes."""
    large, small = (
        runs[runs.name == f"A, {size} accelerators"].set_index("tables").error_fraction.abs()
        for size in (128, 8)
    )
    assert large.index.tolist() == small.index.tolist() == list(TABLES_OF_A)
    assert (pd.concat([large, small], axis=1).max(axis=1) < 0.20).tolist() == [True, True, False]


def test_tables_as_many_as_scaleexplorer_reads_cannot_run_as_fast_as_published() -> None:
    """All they exchange crosses the adapters twice a step, its indices once, gradients beside."""
    model = sm.compose("dlrm_a")
    tables = model.groups[0]
    samples, ranks, node = 512, 128, 8
    pooled = 2 * samples * tables.tables * tables.dim * tables.output_bytes
    indices = samples * tables.tables * tables.pooling * 8
    gradients = 2 * 4 * 319.04e6 / node  # of a ring through all adapters of a node
    least_bytes = (pooled + indices) * (ranks - node) / ranks + gradients
    cluster = sm.cluster("zionex", nodes=16).core.fabric
    rate = cluster.all_to_all_fraction * cluster.bandwidth_bytes_per_s
    published_step_s = samples * ranks / 1.2e6
    assert least_bytes / rate > published_step_s
    # A quarter of the tables leave time for everything else.
    fewer = (pooled + indices) / 4 * (ranks - node) / ranks + gradients
    assert fewer / rate < 0.6 * published_step_s


def test_other_numbers_of_tables_keep_the_parameters() -> None:
    model = sm.compose("dlrm_i")
    assert with_tables(model, 64).parameters == pytest.approx(model.parameters)
    with pytest.raises(ScaleModelError, match="tables=0: must be a whole number"):
        with_tables(model, 0)


def test_a_model_of_tables_of_many_sizes_is_refused() -> None:
    with pytest.raises(ScaleModelError, match="rows differ by table"):
        with_tables(sm.compose("dlrm_dcnv2"), 8)


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(ScaleModelError, match="names: 'B': must be of"):
        throughput(["B"])
