"""Published throughput of click models on ZionEX, predicted: Mudigere et al., arXiv 2104.05158.

The paper gives model A, of which MAD-Max's DLRM-A is a copy, "about 1000s" of embedding tables.
ScaleExplorer reads that as 4,096. The number decides the step: a table's pooled rows cross the
network twice a step, its indices once. `throughput` therefore asks for several readings of it, and
takes ScaleExplorer's 512 for model I.

What was measured on 8 accelerators is not public; there the original's own prediction stands in its
place, and a column says so. `operations` compares sums of operations with the original's, and
`readings` gives the throughput by what is not published: the tables, the rate of an all-to-all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import (
    ComposedModel,
    EmbeddingTables,
    GroupEstimate,
    GroupStrategy,
    compose,
)
from scalemodel.resolve import Cluster
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.tasks import Training
from scalemodel.studies.madmax_original import Question, ask, step

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EXCHANGES",
    "OPERATIONS",
    "RUNS",
    "STACK",
    "STRATEGY",
    "TABLES_OF_A",
    "Run",
    "operations",
    "readings",
    "throughput",
    "with_tables",
]

Exchange = Literal["catalogue", "original"]

#: Overlap of lookups, exchanges and dense layers as in the MLPerf submissions of HugeCTR; the
#: paper's own software pipelines the same way. None of its constants comes from the paper.
STACK = "hugectr"

#: Tables whole, layers replicated; gradients in buckets larger than a layer, as PyTorch sends them.
STRATEGY = GroupStrategy({"embedding": "table_wise", "*": "ddp"}, buckets="group")

#: Powers of two that "about 1000s" may mean; the last is ScaleExplorer's.
TABLES_OF_A = (1024, 2048, 4096)

#: Rates of an all-to-all between nodes: of A100 nodes with the same adapters, as the catalogue has
#: it for ZionEX, and what ScaleExplorer's configuration of ZionEX comes to.
EXCHANGES: tuple[Exchange, ...] = ("catalogue", "original")

#: Operations whose sums the original has too.
OPERATIONS = ("gemm", "lookup", "all_to_all", "all_reduce")

#: Numbers of tables that `readings` tries beside the catalogue's.
_READINGS = {"A, 128 accelerators": (512, *TABLES_OF_A), "I, 128 accelerators": (256, 512)}


@dataclass(frozen=True)
class Run:
    """A published run.

    Attributes
    ----------
    model : str
        Of the catalogue. On one node tables are shortened to fit, as in the paper.
    original : str
        ScaleExplorer's copy of it.
    accelerators : int
    published : str
        Its throughput in ``reference/cited_runs.toml``; empty: not public.
    tables : tuple of int
        Readings of the number of tables; empty: the catalogue's.
    """

    model: str
    original: str
    accelerators: int
    published: str = ""
    tables: tuple[int, ...] = ()

    def batch(self) -> int:
        """Samples of a step."""
        return int(_reference().number("local_batch")) * self.accelerators

    def question(self) -> Question:
        """The run as the original is asked for it: tables whole, layers replicated."""
        return ask(
            self.original,
            "zionex/zionex",
            self.accelerators,
            f"ddp@{self.accelerators}",
            self.batch(),
        )

    def samples_per_s(self) -> float:
        """What was measured, or where that is not public, what the original says."""
        if self.published:
            return _reference().number(self.published)
        return self.batch() / step(self.question()).step_s


RUNS: dict[str, Run] = {
    "A, 128 accelerators": Run(
        "dlrm_a", "dlrm/dlrm_a", 128, "model_a_samples_per_s", tables=TABLES_OF_A
    ),
    "A, 8 accelerators": Run("dlrm_a_small", "dlrm/dlrm_a_small", 8, tables=TABLES_OF_A),
    "I, 128 accelerators": Run("dlrm_i", "dlrm/dlrm_i", 128, "model_i_samples_per_s"),
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


def _run(name: str) -> Run:
    if name not in RUNS:
        raise ScaleModelError(f"names: {name!r}: must be of {', '.join(map(repr, RUNS))}")
    return RUNS[name]


def _tables(run: Run) -> int:
    """Tables of a run's model as the original reads them."""
    return next(g.tables for g in compose(run.model).groups if isinstance(g, EmbeddingTables))


def _cluster(run: Run, exchange: Exchange) -> Cluster:
    """ZionEX at the size of a run, with one of two rates of an all-to-all."""
    if exchange not in EXCHANGES:
        raise ScaleModelError(
            f"exchange={exchange!r}: must be one of {', '.join(map(repr, EXCHANGES))}"
        )
    cluster = resolve.cluster("zionex", accelerators=run.accelerators)
    if exchange == "catalogue":
        return cluster
    fabric = cluster.core.fabric
    all_to_all, _ = run.question().system.rates(run.accelerators)
    if len(all_to_all) == 1:  # One node: nothing crosses the fabric.
        return cluster
    share = all_to_all[-1] / fabric.bandwidth_bytes_per_s
    return replace(
        cluster, core=cluster.core.replace(fabric=fabric.replace(all_to_all_fraction=share))
    )


def _estimate(run: Run, tables: int, exchange: Exchange) -> GroupEstimate:
    model = with_tables(compose(run.model), tables)
    # Dense layers learn with one state a weight (AdaGrad), which TF32 keeps in FP32.
    task = Training(
        global_batch=run.batch(), sequence=1, precision="tf32", optimizer="sgd_momentum"
    )
    found = estimate(model, _cluster(run, exchange), task, STRATEGY, stack=STACK)
    if found.verdict != "ok":
        raise ScaleModelError(f"{run.model} on {run.accelerators}: {found.verdict}")
    return found


def throughput(
    names: Sequence[str] | None = None, *, exchange: Exchange = "catalogue"
) -> pd.DataFrame:
    """Predicted throughput of the published runs.

    Parameters
    ----------
    names : sequence of str, optional
        Of `RUNS`; default: all.
    exchange : str
        Of `EXCHANGES`: whose rate of an all-to-all between nodes.

    Returns
    -------
    DataFrame, one row per run and reading of its number of tables
        Columns name, tables, ``published_samples_per_s``, computed (whether that is no measurement
        but the original's prediction), ``samples_per_s``, ``error_fraction`` (predicted over
        published, less one), ``step_time_s``, sums of operations ``gemm_s``, ``lookup_s``,
        ``all_to_all_s``, ``all_reduce_s``, and ``exposed_fraction``.

    Raises
    ------
    ScaleModelError : a name is not in `RUNS`, or an unknown `exchange`.

    Examples
    --------
    >>> table = throughput(["I, 128 accelerators"])
    >>> bool(abs(table.error_fraction.iloc[0]) < 0.2)
    True
    """
    import pandas as pd

    rows = []
    for name in RUNS if names is None else names:
        run = _run(name)
        for tables in run.tables or (_tables(run),):
            found, asked = _estimate(run, tables, exchange), run.samples_per_s()
            rows.append(
                {
                    "name": name,
                    "tables": tables,
                    "published_samples_per_s": asked,
                    "computed": not run.published,
                    "samples_per_s": found.samples_per_s,
                    "error_fraction": found.samples_per_s / asked - 1,
                    "step_time_s": found.core.step_time_s,
                }
                | {f"{kind}_s": getattr(found.core, f"{kind}_s") for kind in OPERATIONS}
                | {"exposed_fraction": found.core.exposed_fraction}
            )
    return pd.DataFrame(rows)


def operations(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Sums of operations of a step beside the original's, of as many tables as the original reads.

    Parameters
    ----------
    names : sequence of str, optional
        Of `RUNS`; default: all.

    Returns
    -------
    DataFrame, one row per run and operation
        Columns name, tables, operation (of `OPERATIONS`), ``original_s``, ``predicted_s``, ratio
        (predicted over original).

    Raises
    ------
    ScaleModelError : a name is not in `RUNS`.

    Examples
    --------
    >>> table = operations(["A, 128 accelerators"]).set_index("operation")
    >>> round(float(table.ratio["all_to_all"]))
    2
    """
    import pandas as pd

    rows = []
    for name in RUNS if names is None else names:
        run = _run(name)
        tables, original = _tables(run), step(run.question()).sums_s
        found = _estimate(run, tables, "catalogue").core
        for kind in OPERATIONS:
            predicted = getattr(found, f"{kind}_s")
            row = {"name": name, "tables": tables, "operation": kind}
            row |= {"original_s": original[kind], "predicted_s": predicted}
            rows.append(row | {"ratio": predicted / original[kind]})
    return pd.DataFrame(rows)


def readings() -> pd.DataFrame:
    """Throughput on 128 accelerators by what is not published.

    Returns
    -------
    DataFrame, one row per run, number of tables and rate of an all-to-all
        Columns name, tables, exchange (of `EXCHANGES`), ``published_samples_per_s``,
        ``samples_per_s``, ``error_fraction``.

    Examples
    --------
    >>> table = readings().set_index(["name", "tables", "exchange"]).error_fraction
    >>> bool(table["A, 128 accelerators", 4096].max() < -0.3)
    True
    """
    import pandas as pd

    rows = []
    for name, counts in _READINGS.items():
        run = RUNS[name]
        asked = run.samples_per_s()
        for tables in counts:
            for exchange in EXCHANGES:
                rate = _estimate(run, tables, exchange).samples_per_s
                row = {"name": name, "tables": tables, "exchange": exchange}
                row |= {"published_samples_per_s": asked, "samples_per_s": rate}
                rows.append(row | {"error_fraction": rate / asked - 1})
    return pd.DataFrame(rows)
