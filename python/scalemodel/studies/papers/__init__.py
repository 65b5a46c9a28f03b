"""Every study of three papers, computed again beside what was published.

MAD-Max (arXiv 2310.02784), Routing for Large ML Models (arXiv 2503.05324) and Hardware Scaling
Trends (arXiv 2411.13055) have fifty studies between them. `figures` computes the figures of each;
`studies` says which are met as published. Nothing in them is a stored result: published numbers
come from ``reference/studied_papers.toml`` or from the original's own formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.studies.papers import madmax_figures, routing_figures, scaling_figures
from scalemodel.studies.papers.figure import Figure, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PAPERS", "Figure", "figures", "published", "studies"]

PAPERS: dict[str, tuple[Figure, ...]] = {
    "madmax": madmax_figures.FIGURES,
    "routing": routing_figures.FIGURES,
    "scaling": scaling_figures.FIGURES,
}


def figures(paper: str) -> pd.DataFrame:
    """Figures of a paper's studies beside predictions.

    Parameters
    ----------
    paper : {"madmax", "routing", "scaling"}

    Returns
    -------
    DataFrame, one row per figure
        Columns study (number), name, figure, published (a number in the figure's own unit, or what
        must hold where the paper prints none), computed (whether that number is the original's own
        formulas', simulator's or theorem's, not printed: all slowdowns of the routing paper, whose
        tables are not known), predicted, ``error_fraction`` (blank without a number), met, reason
        (of a figure that is not met).

    Raises
    ------
    ScaleModelError : an unknown paper, or ``"routing"`` without scipy (extra ``milp``).

    Examples
    --------
    >>> table = figures("scaling")
    >>> table.study.nunique()
    16
    """
    import pandas as pd

    if paper not in PAPERS:
        raise ScaleModelError(f"paper={paper!r}: {nearest(paper, PAPERS)}")
    return pd.DataFrame([figure.answer() for figure in PAPERS[paper]])


def studies(table: pd.DataFrame) -> pd.DataFrame:
    """How many figures of each study are met.

    Parameters
    ----------
    table : DataFrame
        Of `figures`.

    Returns
    -------
    DataFrame, one row per study
        Columns study, name, figures, met, status: ``"met"`` (all of them), ``"explained"`` (some
        are not, each with its reason), ``"missed"`` (one without a reason).

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"study": [1, 1], "name": ["a", "a"], "met": [True, False],
    ...                       "reason": ["", "because"]})
    >>> studies(table).status.tolist()
    ['explained']
    """
    import pandas as pd

    rows = []
    for (number, name), own in table.groupby(["study", "name"], sort=False):
        bare = (~own["met"] & (own["reason"] == "")).any()
        status = "missed" if bare else "met" if own["met"].all() else "explained"
        rows.append((number, name, len(own), int(own["met"].sum()), status))
    return pd.DataFrame(rows, columns=["study", "name", "figures", "met", "status"])
