"""Plots of kernels and collectives: how much of a rate they reach, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import operator_rows, running_estimate
from scalemodel.plot.canvas import (
    COLOURS,
    MARKERS,
    SMALL,
    from_zero,
    legend_beside,
    log_ticks,
    new_axis,
    style,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from scalemodel.resolve import Cluster

_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_AXES = {"m": "Rows of the result m", "n": "Columns of the result n", "k": "Inner dimension k"}


def _require(table: pd.DataFrame, columns: Sequence[str], maker: str) -> None:
    for column in columns:
        if column not in table.columns:
            raise ScaleModelError(
                f"table: column {column} is missing; pass what {maker} returns",
                code="missing_column",
            )
    if table.empty:
        raise ScaleModelError("table: holds no row to draw")


def _sizes(name: str, values: Sequence[float]) -> list[float]:
    listed = [float(value) for value in values]
    if not listed or not all(np.isfinite(value) and value >= 1 for value in listed):
        raise ScaleModelError(f"{name}={values!r}: must be numbers of at least 1")
    return listed


# ------------------------------------------------------------------------------ multiplications
def gemm_table(
    accelerator: str | Mapping[str, Any],
    *,
    m: Sequence[float],
    n: Sequence[float],
    k: Sequence[float],
    precision: str = "bf16",
) -> pd.DataFrame:
    """Predicted time of every multiplication C[m,n] = A[m,k] B[k,n] of a grid.

    Parameters
    ----------
    accelerator : str or mapping
        Catalogue name, path of a TOML, or a table with a ``base``.
    m, n, k : sequence of float
        Every combination is a row, k varying fastest.
    precision : str
        One of the accelerator's number formats.

    Returns
    -------
    DataFrame
        Columns m, n, k, time_s, flop_per_s, efficiency_fraction (of the dense peak).

    Raises
    ------
    ScaleModelError : an unknown accelerator, a format it lacks, or a size below 1.

    Examples
    --------
    >>> table = gemm_table("h100_sxm_80", m=[128, 8192], n=[8192], k=[8192])
    >>> table.efficiency_fraction.round(1).tolist()
    [0.3, 0.8]
    """
    import pandas as pd

    from scalemodel.resolve.accelerators import accelerator_table, build_accelerator

    core = build_accelerator(accelerator_table(accelerator))
    if precision not in _core.precisions():
        raise ScaleModelError(
            f"precision={precision!r}: must be one of {', '.join(_core.precisions())}"
        )
    peak = core.peak_flop_per_s[_core.precisions().index(precision)]
    if peak <= 0:
        raise ScaleModelError(f"precision={precision!r}: not supported by {accelerator!r}")
    axes = np.meshgrid(_sizes("m", m), _sizes("n", n), _sizes("k", k), indexing="ij")
    rows, columns, depth = (axis.ravel() for axis in axes)
    time_s = _core.gemm_time_s(core, precision, rows, columns, depth)
    flop = np.array(
        [_core.gemm_work(precision, *shape)[0] for shape in zip(rows, columns, depth, strict=True)]
    )
    return pd.DataFrame(
        {
            "m": rows,
            "n": columns,
            "k": depth,
            "time_s": time_s,
            "flop_per_s": flop / time_s,
            "efficiency_fraction": flop / time_s / peak,
        }
    )


def _size_text(value: float) -> str:
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g}k"
    return f"{value:g}"


def gemm_efficiency(
    table: pd.DataFrame, x: str = "n", y: str = "m", *, ax: Axes | None = None
) -> Axes:
    """Draw the fraction of peak of multiplications as a surface over two of their dimensions.

    Parameters
    ----------
    table : DataFrame
        What `gemm_table` returns, or measurements with the columns m, n, k and
        efficiency_fraction; where several rows share a field, their mean is drawn.
    x, y : str
        Two of ``"m"``, ``"n"``, ``"k"``.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One field per pair of sizes, its number in percent inside.

    Raises
    ------
    ScaleModelError : a column is missing, or x and y are not two dimensions.

    Examples
    --------
    >>> sizes = [256, 1024, 4096]
    >>> ax = gemm_efficiency(gemm_table("h100_sxm_80", m=sizes, n=sizes, k=[8192]))
    >>> ax.get_xlabel()
    'Columns of the result n'
    """
    if x == y or x not in _AXES or y not in _AXES:
        raise ScaleModelError(f"x={x!r}, y={y!r}: must be two of m, n, k")
    _require(table, ("m", "n", "k", "efficiency_fraction"), "plot.gemm_table")
    grid = table.pivot_table(index=y, columns=x, values="efficiency_fraction", aggfunc="mean")
    values = grid.to_numpy(dtype=float)
    ax = new_axis(ax, 2.2 + 0.6 * values.shape[1], 1.8 + 0.4 * values.shape[0])
    other = next(name for name in _AXES if name not in (x, y))
    kept = sorted({float(value) for value in table[other]})
    shown = _size_text(kept[0]) if len(kept) == 1 else f"{len(kept)} values"
    with style():
        image = ax.pcolormesh(values, vmin=0, vmax=1, cmap="cividis", edgecolor="white")
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                dark = value < 0.55
                ax.text(
                    column + 0.5,
                    row + 0.5,
                    f"{100 * value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=SMALL,
                    color="white" if dark else "black",
                )
        ax.set_xticks(
            np.arange(values.shape[1]) + 0.5,
            [_size_text(float(v)) for v in grid.columns.to_numpy()],
        )
        ax.set_yticks(
            np.arange(values.shape[0]) + 0.5, [_size_text(float(v)) for v in grid.index.to_numpy()]
        )
        ax.set(xlabel=_AXES[x], ylabel=_AXES[y], title=f"Percent of peak, {other} = {shown}")
        figure: Any = ax.figure
        bar = figure.colorbar(image, ax=ax, label="Dense peak reached (%)")
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    return ax


# -------------------------------------------------------------------------------------- roofline
def roofline(est: Estimate, *, ax: Axes | None = None) -> Axes:
    """Draw the forward multiplications of an estimate under the ceilings of its accelerator.

    Parameters
    ----------
    est : Estimate
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Arithmetic intensity (flop per byte, every operand moved once) against the rate reached.
        Operators without multiplications have no place here and are left out.

    Raises
    ------
    ScaleModelError : an illegal strategy, or an estimate without multiplications.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> roofline(est).get_ylabel()
    'Rate (TFLOP/s)'
    """
    est = running_estimate(est)
    precision = est.task.precision
    points = []
    for row in operator_rows(est):
        shape = [float(row[name]) for name in ("m", "n", "k", "batch")]
        if min(shape) > 0 and row["forward_s"] > 0:
            flop, size_bytes = _core.gemm_work(precision, *shape)
            points.append((row["operator"], flop / size_bytes, flop / row["forward_s"] / 1e12))
    if not points:
        raise ScaleModelError(f"est: {est!r} has no multiplications to draw")
    accelerator = est.cluster.core.accelerator
    peak = accelerator.peak_flop_per_s[_core.precisions().index(precision)] / 1e12
    slope = accelerator.memory_bandwidth_bytes_per_s / 1e12
    ridge = peak / slope
    low = min(ridge / 30, *(0.5 * point[1] for point in points))
    high = max(ridge * 30, *(2 * point[1] for point in points))
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        ax.plot([low, ridge], [low * slope, peak], color="0.3", label=f"memory {slope:.3g} TB/s")
        ax.plot(
            [ridge, high],
            [peak, peak],
            color="0.3",
            linestyle="--",
            label=f"{precision} peak {peak:,.0f} TFLOP/s",
        )
        for index, (operator, intensity, rate) in enumerate(points):
            ax.plot(
                intensity,
                rate,
                linestyle="none",
                marker=MARKERS[index % len(MARKERS)],
                color=COLOURS[index % len(COLOURS)],
                markeredgecolor="white",
                markeredgewidth=0.3,
                label=label_text(operator),
            )
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="Arithmetic intensity (flop/byte)",
            ylabel="Rate (TFLOP/s)",
            title=label_text(f"Multiplications on {est.cluster.accelerator}"),
        )
        log_ticks(ax.xaxis)
        log_ticks(ax.yaxis)
        legend_beside(ax)
    return ax


# ----------------------------------------------------------------------------------- collectives
def collective_table(
    cluster: Cluster | str | Mapping[str, Any],
    op: str,
    *,
    ranks: Sequence[int],
    sizes_bytes: Sequence[float],
) -> pd.DataFrame:
    """Predicted time of a collective for every pair of rank count and buffer size.

    Parameters
    ----------
    cluster : Cluster, str or mapping
        Ranks are neighbours: they fill one scale-up domain before they use the next.
    op : str
        ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"`` or ``"all_to_all"``.
    ranks : sequence of int
        At least 2 each.
    sizes_bytes : sequence of float
        As nccl-tests counts: a rank's buffer; for gathers and scatters the whole one.

    Returns
    -------
    DataFrame
        Columns op, ranks, size_bytes, time_s, bus_bandwidth_bytes_per_s (what a ring would move
        over each link, so that rank counts compare).

    Raises
    ------
    ScaleModelError : an unknown cluster or operation, or a count below 2.

    Examples
    --------
    >>> table = collective_table("dgx_h100", "all_reduce", ranks=[8], sizes_bytes=[1e9])
    >>> bool(300e9 < table.bus_bandwidth_bytes_per_s[0] < 500e9)
    True
    """
    import pandas as pd

    from scalemodel import resolve

    if op not in _COLLECTIVES:
        raise ScaleModelError(f"op={op!r}: must be one of {', '.join(_COLLECTIVES)}")
    counts = [int(count) for count in _sizes("ranks", ranks)]
    if min(counts) < 2:
        raise ScaleModelError(f"ranks={ranks!r}: must be at least 2 each")
    core = resolve.cluster(cluster, accelerators=max(counts)).core
    passes = 2 if op == "all_reduce" else 1
    rows = []
    for count in counts:
        for size_bytes in _sizes("sizes_bytes", sizes_bytes):
            time_s = _core.collective_time_s(op, size_bytes, count, 1, core)
            moved_bytes = passes * (count - 1) / count * size_bytes
            rows.append((op, count, size_bytes, time_s, moved_bytes / time_s))
    columns = ["op", "ranks", "size_bytes", "time_s", "bus_bandwidth_bytes_per_s"]
    return pd.DataFrame(rows, columns=columns)


def bus_bandwidth(
    table: pd.DataFrame, *, peak_bytes_per_s: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw bus bandwidth against buffer size, one line per rank count, the link's peak dashed.

    Parameters
    ----------
    table : DataFrame
        What `collective_table` returns, or measurements with the columns ranks, size_bytes and
        bus_bandwidth_bytes_per_s.
    peak_bytes_per_s : float, optional
        Of a link, one direction.
    ax : Axes, optional
        Default: a new figure.

    Raises
    ------
    ScaleModelError : a column is missing, or nothing is to be drawn.

    Examples
    --------
    >>> sizes = [2.0**i for i in range(10, 31, 4)]
    >>> table = collective_table("dgx_h100", "all_reduce", ranks=[2, 8, 32], sizes_bytes=sizes)
    >>> len(bus_bandwidth(table, peak_bytes_per_s=450e9).lines)
    4
    """
    _require(table, ("ranks", "size_bytes", "bus_bandwidth_bytes_per_s"), "plot.collective_table")
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        for index, (ranks, rows) in enumerate(table.groupby("ranks", sort=True)):
            line = rows.sort_values("size_bytes")
            ax.plot(
                line["size_bytes"],
                line["bus_bandwidth_bytes_per_s"] / 1e9,
                marker=MARKERS[index % len(MARKERS)],
                color=COLOURS[index % len(COLOURS)],
                markersize=4,
                label=f"{ranks} ranks",
            )
        if peak_bytes_per_s is not None:
            peak = peak_bytes_per_s / 1e9
            ax.axhline(
                peak, color="0.4", linestyle="--", linewidth=1, label=f"link {peak:.0f} GB/s"
            )
        names = sorted({str(op) for op in table["op"]}) if "op" in table.columns else []
        title = names[0].replace("_", "-") if len(names) == 1 else "Collectives"
        ax.set(
            xscale="log",
            xlabel="Buffer (bytes)",
            ylabel="Bus bandwidth (GB/s)",
            title=label_text(title.capitalize()),
        )
        from_zero(ax)
        legend_beside(ax)
    return ax
