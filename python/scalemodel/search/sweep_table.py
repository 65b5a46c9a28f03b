"""Rows of a sweep as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel.base.answer import verdict_text
from scalemodel.resolve import Cluster
from scalemodel.search.objective import SWEEP_COLUMNS

if TYPE_CHECKING:
    import pandas as pd


def sweep_table(
    strategies: Mapping[str, Any], estimates: Mapping[str, Any], cluster: Cluster, first: int
) -> pd.DataFrame:
    """Columns of the engine as a table, without copying them.

    Parameters
    ----------
    strategies, estimates : mapping of name to array, or to codes and the names they stand for
    cluster : Cluster
        Without a price of its accelerator no row has a cost.
    first : int
        Row of the space that the table begins with.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    # The resolved data-parallel degree is the strategy's own here.
    for name, column in {**estimates, **strategies}.items():
        if isinstance(column, tuple):
            codes, names = column
            texts = [verdict_text(text) for text in names] if name == "verdict" else names
            labels = pd.Index(texts, dtype=object)
            columns[name] = pd.Categorical.from_codes(codes, categories=labels, validate=False)
        else:
            columns[name] = column
    if "cost_usd" in columns and not cluster.core.price_usd_per_s > 0:
        columns["cost_usd"] = pd.array([None] * len(columns["cost_usd"]), dtype="Float64")
    ordered = {name: columns[name] for name in SWEEP_COLUMNS if name in columns}
    rows = len(next(iter(ordered.values())))
    index = pd.RangeIndex(first, first + rows, name="row")
    return pd.DataFrame(ordered, index=index, copy=False)
