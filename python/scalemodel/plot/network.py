"""Plots of routed traffic: where links fill up, and what that costs the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel import plot
from scalemodel.errors import ScaleModelError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LINK_COLUMNS = (
    *("source_kind", "source_number", "destination_kind", "destination_number"),
    *("load_bytes", "utilisation_fraction"),
)
_DIRECTIONS = ("up", "down")


def _table(report: Any, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The table `name` of a report, or the frame itself."""
    found = getattr(report, name, None)
    frame: pd.DataFrame = found() if callable(found) else report
    for column in columns:
        if column not in getattr(frame, "columns", ()):
            raise ScaleModelError(
                f"{name}: column {column} is missing; pass what sm.route returns, or its {name}()",
                code="missing_column",
            )
    if not len(frame):
        raise ScaleModelError(f"{name}: no row to plot")
    return frame


def _named(reports: Any, name: str, columns: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    """Tables by label; a single report goes by its policy."""
    if isinstance(reports, Mapping):
        if not reports:
            raise ScaleModelError("reports: at least one is needed")
        return {str(label): _table(each, name, columns) for label, each in reports.items()}
    return {str(getattr(reports, "policy", "")): _table(reports, name, columns)}


def _between_switches(links: pd.DataFrame) -> pd.DataFrame:
    wanted = (links["source_kind"] != "nic") & (links["destination_kind"] != "nic")
    if not wanted.any():
        raise ScaleModelError("links: none between switches to plot")
    return links[wanted]


def link_loads(report: Any, *, direction: str = "up", ax: Axes | None = None) -> Axes:
    """Draw how full each link between leaves and spines is.

    Parameters
    ----------
    report : RoutingReport or DataFrame
        On a fabric of two tiers; or the rows of its `links`.
    direction : str
        ``"up"`` from leaves to spines, ``"down"`` from spines to leaves.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A heat map: leaves down, spines across, colour the bytes that one step of all jobs puts on
        a link, all cables of a pair together.

    Raises
    ------
    ScaleModelError : a missing column, an unknown direction, or no link between leaves and spines.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    >>> sm.plot.link_loads(sm.route(fabric, jobs, policy="balanced")).get_ylabel()
    'leaf'
    """
    if direction not in _DIRECTIONS:
        raise ScaleModelError(f"direction={direction!r}: must be 'up' or 'down'")
    links = _between_switches(_table(report, "links", _LINK_COLUMNS))
    near, far = ("source", "destination") if direction == "up" else ("destination", "source")
    chosen = links[(links[f"{near}_kind"] == "leaf") & (links[f"{far}_kind"] == "spine")]
    if not len(chosen):
        raise ScaleModelError("links: none between leaves and spines; this fabric has other tiers")
    loads = chosen.pivot_table(
        index=f"{near}_number", columns=f"{far}_number", values="load_bytes", aggfunc="sum"
    )
    ax = plot._axis(ax, 5.2, 3.6)
    with plot.style():
        image = ax.imshow(
            1e-9 * loads.to_numpy(), aspect="auto", cmap="cividis", vmin=0, interpolation="nearest"
        )
        figure: Any = ax.figure
        figure.colorbar(image, ax=ax, label="load of one step (GB)")
    ax.set_xlabel("spine")
    ax.set_ylabel("leaf")
    ax.set_title(f"links {direction}")
    return ax


def link_load_cdf(reports: Any, *, ax: Axes | None = None) -> Axes:
    """Draw which share of the loaded links between switches carries how much.

    Parameters
    ----------
    reports : RoutingReport, DataFrame, or mapping of labels to them
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One step curve per report: load of one step against the share of loaded links at or below
        it. The less a curve spreads, the better the load is balanced.

    Raises
    ------
    ScaleModelError : a missing column, or no loaded link between switches.
    """
    tables = _named(reports, "links", _LINK_COLUMNS)
    ax = plot._axis(ax, 5.2, 2.8)
    with plot.style():
        for index, (label, links) in enumerate(tables.items()):
            loads = np.sort(1e-9 * _between_switches(links)["load_bytes"].to_numpy())
            loads = loads[loads > 0]
            if not loads.size:
                raise ScaleModelError("links: none between switches carries anything")
            share = np.arange(1, loads.size + 1) / loads.size
            ax.step(
                np.concatenate([loads[:1], loads]),
                np.concatenate([[0.0], share]),
                where="post",
                color=plot._COLOURS[index % len(plot._COLOURS)],
                linestyle=("-", "--", "-.", ":")[index % 4],
                label=label,
            )
    ax.set_xlim(left=0)
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("load of one step (GB)")
    ax.set_ylabel("share of loaded links")
    if any(tables):
        ax.legend(frameon=False, loc="lower right")
    return ax


def job_slowdowns(reports: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how much longer each job communicates than alone on the network.

    Parameters
    ----------
    reports : RoutingReport, DataFrame, or mapping of labels to them
        Reports, or their `jobs` tables, of the same jobs.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A group of bars per job, one bar per report; the line at 1 is the job alone.

    Raises
    ------
    ScaleModelError : a missing column, or reports of different jobs.
    """
    tables = _named(reports, "jobs", ("job", "slowdown"))
    names = [list(map(str, table["job"])) for table in tables.values()]
    if any(each != names[0] for each in names):
        raise ScaleModelError("reports: must be of the same jobs")
    ax = plot._axis(ax, 5.2, 2.8)
    width = 0.8 / len(tables)
    places = np.arange(len(names[0]))
    with plot.style():
        for index, (label, table) in enumerate(tables.items()):
            ax.bar(
                places + (index - (len(tables) - 1) / 2) * width,
                table["slowdown"].to_numpy(),
                width,
                color=plot._COLOURS[index % len(plot._COLOURS)],
                hatch=plot._HATCHES[index % len(plot._HATCHES)],
                edgecolor="white",
                label=label,
            )
        ax.axhline(1, color="black", linewidth=0.8)
    ax.set_xticks(places, names[0])
    ax.set_ylim(0, 1.2 * ax.get_ylim()[1])
    ax.set_xlabel("job")
    ax.set_ylabel("slowdown (1 = alone)")
    if any(tables):
        ax.legend(frameon=False, loc="upper center", ncols=len(tables))
    return ax
