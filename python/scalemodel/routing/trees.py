"""``pack_trees``: spanning trees that share the links of a direct-connect network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.routing.fabric import Fabric

if TYPE_CHECKING:
    import pandas as pd

COLLECTIVES = ("broadcast", "all_reduce")


@named_arguments
def pack_trees(
    fabric: Fabric, *, root: int = 0, collective: str = "broadcast", accuracy: float = 0.05
) -> pd.DataFrame:
    """Pack spanning trees that use the links between accelerators where rings cannot.

    A broadcast goes down trees out of the root, an all-reduce up and down again at the same time; a
    link carries the rates of all trees that use it. Broadcast trees carry all that reaches every
    accelerator (the least maximum flow); those of an all-reduce come within `accuracy` of the best.
    Source: Blink (MLSys 2020, arXiv 1910.04940).

    Parameters
    ----------
    fabric : Fabric
        Without switches: `Fabric.from_edges`, `Fabric.direct_connect`.
    root : int
        NIC.
    collective : {"broadcast", "all_reduce"}
        A reduction is a broadcast backwards.
    accuracy : float
        Of all-reduce, 0.02 to 0.5; smaller ones give more trees.

    Returns
    -------
    DataFrame, one row per link of a tree, parents before their children
        Columns tree, parent, child (NICs), rate_bytes_per_s (of the tree). ``attrs``:
        total_bytes_per_s of all trees, and bound_bytes_per_s, which nothing exceeds.

    Raises
    ------
    ScaleModelError : unknown collective; a fabric with switches; NICs that the root does not reach;
        bandwidths without a common measure.

    Examples
    --------
    A square with one link doubled:

    >>> import scalemodel as sm
    >>> rows = [(0, 1, "50 GB/s"), (1, 2, "25 GB/s"), (2, 3, "25 GB/s"), (3, 0, "25 GB/s")]
    >>> trees = sm.pack_trees(sm.Fabric.from_edges(4, rows))
    >>> trees.attrs["total_bytes_per_s"] / 1e9, trees.tree.nunique()
    (50.0, 2)
    """
    import pandas as pd

    if collective not in COLLECTIVES:
        raise ScaleModelError(f"collective={collective!r}: must be one of {', '.join(COLLECTIVES)}")
    if not 0.02 <= accuracy <= 0.5:
        raise ScaleModelError(f"accuracy={accuracy!r}: must be 0.02 to 0.5")
    answer = _core.pack_trees(fabric.core, root, collective == "all_reduce", accuracy)
    columns = ("tree", "parent", "child", "rate_bytes_per_s")
    frame = pd.DataFrame({name: answer.pop(name) for name in columns})
    frame.attrs = answer
    return frame
