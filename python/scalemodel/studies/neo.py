"""Published throughput of click models on ZionEX, predicted: Mudigere et al., arXiv 2104.05158.

The paper gives model A, of which MAD-Max's DLRM-A is a copy, "about 1000s" of embedding tables.
ScaleExplorer reads that as 4,096. The number decides the step: a table's pooled rows cross the
network twice a step, its indices once. `throughput` therefore asks for several readings of it;
model I has 512 in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import ComposedModel, EmbeddingTables, GroupStrategy, compose
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.tasks import Training

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RUNS", "STACK", "STRATEGY", "TABLES_OF_A", "Run", "throughput", "with_tables"]

#: Overlap of lookups, exchanges and dense layers as in the MLPerf submissions of HugeCTR; the
#: paper's own software pipelines the same way. None of its constants comes from the paper.
STACK = "hugectr"

#: Tables whole, layers replicated; gradients in buckets larger than a layer, as PyTorch sends them.
STRATEGY = GroupStrategy({"embedding": "table_wise", "*": "ddp"}, buckets="group")

#: Powers of two that "about 1000s" may mean; the last is ScaleExplorer's.
TABLES_OF_A = (1024, 2048, 4096)


@dataclass(frozen=True)
class Run:
    """A published run.

    Attributes
    ----------
    model : str
        Of the catalogue. On one node tables are shortened to fit, as in the paper.
    accelerators : int
    published : str
        Its throughput in ``reference/cited_runs.toml``.
    tables : tuple of int
        Readings of the number of tables; empty: the catalogue's.
    """

    model: str
    accelerators: int
    published: str
    tables: tuple[int, ...] = ()


RUNS: dict[str, Run] = {
    "A, 128 accelerators": Run("dlrm_a", 128, "model_a_samples_per_s", TABLES_OF_A),
    "A, 8 accelerators": Run("dlrm_a_small", 8, "original_model_a_8_samples_per_s", TABLES_OF_A),
    "I, 128 accelerators": Run("dlrm_i", 128, "model_i_samples_per_s"),
}


def with_tables(model: ComposedModel, tables: int) -> ComposedModel:
    """The model with another number of embedding tables of as many parameters together.

    Parameters
    ----------
    model : ComposedModel
    tables : int
        At least 1.

    Raises
    ------
    ScaleModelError : `tables` is no positive whole number, or rows are given table by table.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fewer = with_tables(sm.compose("dlrm_a"), 2048)
    >>> fewer.groups[0].tables, fewer.groups[0].rows
    (2048, 4160000.0)
    """
    if isinstance(tables, bool) or not isinstance(tables, int) or tables < 1:
        raise ScaleModelError(f"tables={tables!r}: must be a whole number, at least 1")
    groups = []
    for group in model.groups:
        if isinstance(group, EmbeddingTables):
            if not isinstance(group.rows, (int, float)):
                raise ScaleModelError(f"model={model.name!r}: {group.name}: rows differ by table")
            group = replace(group, tables=tables, rows=group.rows * group.tables / tables)
        groups.append(group)
    return replace(model, groups=tuple(groups))


def _reference() -> Reader:
    return Reader(catalog.load("reference", "cited_runs")["neo"], "reference/cited_runs.neo")


def _answer(run: Run, tables: int) -> dict[str, float]:
    model = compose(run.model)
    model = with_tables(model, tables) if tables else model
    cluster = resolve.cluster("zionex", accelerators=run.accelerators)
    batch = int(_reference().number("local_batch")) * run.accelerators
    # Dense layers learn with one state a weight (AdaGrad), which TF32 keeps in FP32.
    task = Training(global_batch=batch, sequence=1, precision="tf32", optimizer="sgd_momentum")
    est = estimate(model, cluster, task, STRATEGY, stack=STACK)
    if est.verdict != "ok":
        raise ScaleModelError(f"{run.model} on {run.accelerators}: {est.verdict}")
    return {
        "samples_per_s": est.samples_per_s,
        "step_time_s": est.core.step_time_s,
        "gemm_s": est.core.gemm_s,
        "lookup_s": est.core.lookup_s,
        "all_to_all_s": est.core.all_to_all_s,
        "all_reduce_s": est.core.all_reduce_s,
        "exposed_fraction": est.core.exposed_fraction,
    }


def throughput(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Predicted throughput of the published runs.

    Parameters
    ----------
    names : sequence of str, optional
        Of `RUNS`; default: all.

    Returns
    -------
    DataFrame, one row per run and reading of its number of tables
        Columns name, tables, ``published_samples_per_s``, ``samples_per_s``, ``error_fraction``
        (predicted over published, less one), ``step_time_s``, sums of operations ``gemm_s``,
        ``lookup_s``, ``all_to_all_s``, ``all_reduce_s``, and ``exposed_fraction``.

    Raises
    ------
    ScaleModelError : a name is not in `RUNS`.

    Examples
    --------
    >>> table = throughput(["I, 128 accelerators"])
    >>> bool(abs(table.error_fraction.iloc[0]) < 0.2)
    True
    """
    import pandas as pd

    published, rows = _reference(), []
    for name in RUNS if names is None else names:
        if name not in RUNS:
            raise ScaleModelError(f"names: {name!r}: must be of {', '.join(map(repr, RUNS))}")
        run = RUNS[name]
        own = next(g.tables for g in compose(run.model).groups if isinstance(g, EmbeddingTables))
        for tables in run.tables or (own,):
            found, asked = _answer(run, tables), published.number(run.published)
            row: dict[str, Any] = {"name": name, "tables": tables, "published_samples_per_s": asked}
            row["samples_per_s"] = found.pop("samples_per_s")
            row["error_fraction"] = row["samples_per_s"] / asked - 1
            rows.append(row | found)
    return pd.DataFrame(rows)
