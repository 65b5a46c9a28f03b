"""Plots of routed traffic: where links fill up, and what that costs the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import COLOURS, HATCHES, new_axis, style
from scalemodel.plot.columns import COLOUR_MAP, line_colours

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LINK_COLUMNS = (
    *("source_kind", "source_number", "destination_kind", "destination_number"),
    *("load_bytes", "utilisation_fraction"),
)
_DIRECTIONS = ("up", "down")
_LINES = ("-", "--", "-.", ":")
#: Tiers of nodes from the bottom up.
_TIERS = ("nic", "domain", "leaf", "spine", "core")
_MOST_NICS = 128


def _table(report: Any, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The table `name` of a report, or the frame itself."""
    # A report of training jobs lists the jobs themselves under the name of the other's table.
    training = name == "jobs" and hasattr(report, "slowdowns")
    found = getattr(report, "slowdowns" if training else name, None)
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
    report : RoutingReport, NetworkReport or DataFrame
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
    'Leaf'
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
    ax = new_axis(ax, 5.2, 3.6)
    with style():
        image = ax.imshow(
            1e-9 * loads.to_numpy(), aspect="auto", cmap=COLOUR_MAP, vmin=0, interpolation="nearest"
        )
        figure: Any = ax.figure
        figure.colorbar(image, ax=ax, label="Load of one step (GB)")
        ax.locator_params(integer=True)  # switches are numbered
        ax.set(xlabel="Spine", ylabel="Leaf", title=f"Links {direction}")
    return ax


def link_load_cdf(reports: Any, *, ax: Axes | None = None) -> Axes:
    """Draw which share of the loaded links between switches carries how much.

    Parameters
    ----------
    reports : RoutingReport, NetworkReport, DataFrame, or mapping of labels to them
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

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    >>> routed = {name: sm.route(fabric, jobs, policy=name) for name in ("ecmp", "balanced")}
    >>> len(link_load_cdf(routed).lines)
    2
    """
    tables = _named(reports, "links", _LINK_COLUMNS)
    curves = {}
    for label, links in tables.items():
        loads = np.sort(1e-9 * _between_switches(links)["load_bytes"].to_numpy())
        loads = loads[loads > 0]
        if not loads.size:
            raise ScaleModelError("links: none between switches carries anything")
        curves[label] = (loads, 100 * np.arange(1, loads.size + 1) / loads.size)
    ax = _draw_shares(curves, ax)
    ax.set(xlabel="Load of one step (GB)", ylabel="Share of loaded links (%)")
    return ax


def _draw_shares(curves: Mapping[str, tuple[Any, Any]], ax: Axes | None) -> Axes:
    """One step curve per label: percentages of cases at or below ascending values."""
    ax = new_axis(ax, 5.2, 2.8)
    with style():
        for index, (label, (values, share)) in enumerate(curves.items()):
            ax.step(
                np.concatenate([values[:1], values]),
                np.concatenate([[0.0], share]),
                where="post",
                color=COLOURS[index % len(COLOURS)],
                linestyle=_LINES[index % len(_LINES)],
                label=label_text(label),
            )
        ax.set_xlim(left=0)
        ax.set_ylim(0, 102)
        if any(curves):
            ax.legend(loc="lower right")
    return ax


def job_slowdowns(reports: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how much longer each job communicates than alone on the network.

    Parameters
    ----------
    reports : RoutingReport, NetworkReport, DataFrame, or mapping of labels to them
        Reports of the same jobs, or their tables: `jobs` of a RoutingReport, `slowdowns` of a
        NetworkReport.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        A group of bars per job, one bar per report; the line at 1 is the job alone.

    Raises
    ------
    ScaleModelError : a missing column, reports of different jobs, or a job without a path.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    >>> len(job_slowdowns(sm.route(fabric, jobs, policy="balanced")).patches)
    2
    """
    tables = _named(reports, "jobs", ("job", "slowdown"))
    names = [list(map(str, table["job"])) for table in tables.values()]
    if any(each != names[0] for each in names):
        raise ScaleModelError("reports: must be of the same jobs")
    for table in tables.values():
        for name, slowdown in zip(table["job"], table["slowdown"], strict=True):
            if not np.isfinite(slowdown):
                raise ScaleModelError(f"jobs: {name} has a flow without a path; it never ends")
    ax = new_axis(ax, 5.2, 2.8)
    width = 0.8 / len(tables)
    places = np.arange(len(names[0]))
    with style():
        for index, (label, table) in enumerate(tables.items()):
            ax.bar(
                places + (index - (len(tables) - 1) / 2) * width,
                table["slowdown"].to_numpy(),
                width,
                color=COLOURS[index % len(COLOURS)],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                label=label_text(label),
            )
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_xticks(places, [label_text(name) for name in names[0]])
        ax.set_ylim(0, 1.2 * ax.get_ylim()[1])
        room = max(0.5, 1.5 - len(places) / 2)  # one job alone is no wall
        ax.set_xlim(-room, len(places) - 1 + room)
        ax.set(xlabel="Job", ylabel="Slowdown (1 = alone)")
        if any(tables):
            ax.legend(loc="upper center", ncols=len(tables))
    return ax


def network_map(report: Any, *, ax: Axes | None = None) -> Axes:
    """Draw switches, accelerators and the links between them.

    Parameters
    ----------
    report : RoutingReport, NetworkReport, Fabric or DataFrame
        Or the rows of its `links`. A report colours links by what they carry.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Tiers from accelerators up, or circles where links join nodes of one tier. Accelerators are
        left out where they are more than 128 below switches. The darker a link, the fuller its
        fuller direction; links that are down are dashed.

    Raises
    ------
    ScaleModelError : a missing column, or no link.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=4, spines=2, nics_per_leaf=4).failed(spines=[1])
    >>> [text.get_text() for text in sm.plot.network_map(fabric).get_yticklabels()]
    ['nic', 'leaf', 'spine']
    """
    from matplotlib.collections import LineCollection

    needed = ("source", "destination", "bandwidth_bytes_per_s", *_LINK_COLUMNS[:4])
    links = _table(report, "links", needed)
    kinds = {
        int(node): str(kind)
        for end in ("source", "destination")
        for node, kind in zip(links[end], links[f"{end}_kind"], strict=True)
    }
    direct = set(kinds.values()) == {"nic"}
    if list(kinds.values()).count("nic") > _MOST_NICS and not direct:
        links = links[(links["source_kind"] != "nic") & (links["destination_kind"] != "nic")]
        kinds = {node: kind for node, kind in kinds.items() if kind != "nic"}
    round_map = bool((links["source_kind"] == links["destination_kind"]).any())
    places = _places(kinds, round_map)
    # Both directions of a cable are one line; the fuller one decides.
    ends = np.sort(links[["source", "destination"]].to_numpy(), axis=1)
    table = links.assign(low=ends[:, 0], high=ends[:, 1])
    if "utilisation_fraction" not in table:
        table["utilisation_fraction"] = np.nan
    cables = table.groupby(["low", "high"]).agg(
        used=("utilisation_fraction", "max"), width=("bandwidth_bytes_per_s", "max")
    )
    lines = np.array([[places[int(low)], places[int(high)]] for low, high in cables.index])
    down = (cables["width"] == 0).to_numpy()
    known = cables["used"].notna().to_numpy() & ~down
    ax = new_axis(ax, 5.2, 3.4)
    with style():
        for mask, given in (
            (~known & ~down, {"colors": "0.6", "linewidths": 0.6}),
            (down, {"colors": COLOURS[2], "linewidths": 0.8, "linestyles": "dashed"}),
        ):
            if mask.any():
                ax.add_collection(LineCollection(list(lines[mask]), zorder=1, **given))
        if known.any():
            # Full links on top of idle ones.
            order = np.flatnonzero(known)[np.argsort(cables["used"].to_numpy()[known])]
            colours = line_colours(best_is_large=True)
            full = LineCollection(list(lines[order]), cmap=colours, linewidths=1.0, zorder=2)
            full.set_array(cables["used"].to_numpy()[order])
            full.set_clim(0, 1)
            ax.add_collection(full)
            figure: Any = ax.figure
            figure.colorbar(full, ax=ax, label="Utilisation (1 = full)")
        for kind, marker, size in (("nic", "o", 8), ("domain", "D", 16), ("leaf", "s", 16)):
            _scatter(ax, kinds, places, (kind,), marker, size)
        _scatter(ax, kinds, places, ("spine", "core"), "^", 16)
        ax.autoscale_view()
        ax.set_xticks([])
        tiers = [] if round_map else [tier for tier in _TIERS if tier in kinds.values()]
        ax.set_yticks(range(len(tiers)), tiers)
        for side in ("left", "right", "top", "bottom"):
            ax.spines[side].set_visible(False)
        if round_map:
            ax.set_aspect("equal")
    return ax


def _places(kinds: Mapping[int, str], round_map: bool) -> dict[int, tuple[float, float]]:
    """Where every node stands: in its tier from left to right, or each tier on a circle."""
    tiers = [tier for tier in _TIERS if tier in kinds.values()]
    places: dict[int, tuple[float, float]] = {}
    for height, tier in enumerate(tiers):
        nodes = sorted(node for node, kind in kinds.items() if kind == tier)
        for index, node in enumerate(nodes):
            share = (index + 0.5) / len(nodes)
            if round_map:
                angle, radius = 2 * np.pi * share, 1 - height / (2 * len(tiers))
                places[node] = (float(radius * np.sin(angle)), float(radius * np.cos(angle)))
            else:
                places[node] = (share, float(height))
    return places


def _scatter(
    ax: Axes,
    kinds: Mapping[int, str],
    places: Mapping[int, tuple[float, float]],
    wanted: tuple[str, ...],
    marker: str,
    size: float,
) -> None:
    spots = [places[node] for node, kind in kinds.items() if kind in wanted]
    if spots:
        x, y = zip(*spots, strict=True)
        ax.scatter(x, y, s=size, marker=marker, color="0.2", zorder=3)


def network_efficiency(runs: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how close the network comes, over time, to giving every job what it would have alone.

    Parameters
    ----------
    runs : DataFrame, or mapping of labels to them
        What `simulate_network` returns where a controller runs or links change.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One step curve per run: bytes moved between two instants at which paths or links changed,
        over those that the flows on their way would have moved were their jobs alone.

    Raises
    ------
    ScaleModelError : a run without controller and changes.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    >>> runs = sm.simulate_network(fabric, jobs, epochs=2, reoptimise_every_s=1.0)
    >>> sm.plot.network_efficiency(runs).get_ylabel()
    'Efficiency (1 = alone)'
    """
    listed = runs if isinstance(runs, Mapping) else {"": runs}
    if not listed:
        raise ScaleModelError("runs: at least one is needed")
    curves = {}
    for label, run in listed.items():
        log = getattr(run, "attrs", {}).get("controller")
        if log is None or not len(run):
            raise ScaleModelError(
                "runs: no controller ran; pass what sm.simulate_network returns with "
                "reoptimise_every_s or changes",
                code="missing_column",
            )
        times, heights = list(log["time_s"]), list(log["efficiency_fraction"])
        end = max(float(run["end_s"].max()), times[-1])
        curves[str(label)] = ([*times, end], [*heights, heights[-1]])
    ax = new_axis(ax, 5.2, 2.8)
    with style():
        for index, (label, (times, heights)) in enumerate(curves.items()):
            ax.step(
                times,
                heights,
                where="post",
                color=COLOURS[index % len(COLOURS)],
                linestyle=_LINES[index % len(_LINES)],
                label=label_text(label),
            )
        ax.set_ylim(0, 1.05)
        ax.set(xlabel="Time (s)", ylabel="Efficiency (1 = alone)")
        if any(curves):
            ax.legend(loc="lower right")
    return ax


def completion_times(runs: Any, *, of: str = "flow", ax: Axes | None = None) -> Axes:
    """Draw which share of flows, steps, rings or collectives completes within how long.

    Parameters
    ----------
    runs : DataFrame or RoutingReport, or mapping of labels to them
        What `simulate_network` returns, or `route`, whose paths then run one collective.
    of : {"flow", "step", "ring", "collective", "phase"}
        What completes, as in `CompletionTimes.times`.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One step curve per run: the share of cases that complete within a time.

    Raises
    ------
    ScaleModelError : not a run, an unknown kind, or nothing that completes.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    >>> sm.plot.completion_times(sm.simulate_network(fabric, jobs, epochs=2)).get_xlabel()
    'Completion time of a flow (s)'
    """
    listed = runs if isinstance(runs, Mapping) else {"": runs}
    if not listed:
        raise ScaleModelError("runs: at least one is needed")
    curves = {}
    for label, run in listed.items():
        routed = getattr(run, "completion", None)
        attached = getattr(run, "attrs", {}).get("completion")
        completion = routed() if callable(routed) else attached
        if completion is None:
            raise ScaleModelError(
                "runs: no completion times; pass what sm.simulate_network or sm.route returns",
                code="missing_column",
            )
        times = completion.times(of).sort_values("time_s")
        if not len(times):
            raise ScaleModelError(f"runs: no {of} completes")
        share = 100 * times["count"].cumsum() / times["count"].sum()
        curves[str(label)] = (times["time_s"].to_numpy(), share.to_numpy())
    ax = _draw_shares(curves, ax)
    ax.set(xlabel=f"Completion time of a {of} (s)", ylabel="Share completed (%)")
    return ax
