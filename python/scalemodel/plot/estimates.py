"""Plots of estimates: time by cause, memory by kind."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from scalemodel.base.answer import EngineAnswer, by_cause
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS
from scalemodel.layer_groups import estimate as of_groups
from scalemodel.layer_groups.estimate import GroupEstimate
from scalemodel.plot.canvas import COLOURS, HATCHES, legend_beside, new_axis, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Characters in a line of a label beside the bars, and in the title.
_WIDEST, _TITLE = 24, 70
#: An estimate, of a decoder or of layer groups.
_Drawn: TypeAlias = Estimate | GroupEstimate


def _as_list(estimates: _Drawn | Sequence[_Drawn]) -> list[_Drawn]:
    single = isinstance(estimates, EngineAnswer)
    if not single and not isinstance(estimates, Iterable):
        raise ScaleModelError(f"estimates={estimates!r}: must be an Estimate or a list of them")
    listed = list(cast("Sequence[_Drawn]", [estimates] if single else estimates))
    if not listed:
        raise ScaleModelError("estimates=[]: at least one is needed")
    for est in listed:
        if not isinstance(est, EngineAnswer):
            raise ScaleModelError(f"estimates={est!r}: must be an Estimate or a list of them")
        if est.illegal:
            raise ScaleModelError(
                f"estimates: {est!r} has no numbers to plot; leave it out", code=est.reason
            )
    return listed


def label_of(est: _Drawn) -> str:
    r"""Short label of an estimate: model and the degrees above one, or the meshes of its groups.

    Examples
    --------
    >>> import scalemodel as sm
    >>> label_of(sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                      sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2)))
    'llama3_8b\ntp2 dp4 zero1'
    """
    if not isinstance(est, Estimate):
        return f"{est.model.name}\n{' '.join(dict.fromkeys(est.meshes.values()))}"
    s = est.strategy
    degrees = {"tp": s.tp, "cp": s.cp, "pp": s.pp, "vpp": s.vpp, "ep": s.ep, "dp": est.core.dp}
    parts = [f"{name}{value}" for name, value in degrees.items() if value > 1]
    further = [s.sharding]
    if s.micro_batch > 1:
        further.append(f"micro-batch {s.micro_batch}")
    if s.recompute != "none":
        further.append(f"recompute {s.recompute}")
    if s.schedule != "1f1b":
        further.append(s.schedule)
    return f"{est.model.name}\n{' '.join(parts + further)}"


def _columns(estimates: list[_Drawn], decoders: tuple[str, ...], groups: str) -> tuple[str, ...]:
    """Columns of decoders, of models of layer groups, or of both where both are drawn."""
    if all(isinstance(est, Estimate) for est in estimates):
        return decoders
    own: tuple[str, ...] = getattr(of_groups, groups)
    mixed = any(isinstance(est, Estimate) for est in estimates)
    return tuple(dict.fromkeys([*decoders, *own])) if mixed else own


def _look(name: str, index: int) -> tuple[str, str]:
    """Colour and hatch of a part; launches are hatched in the colour of compute, before them."""
    if name == "launches":
        return COLOURS[0], HATCHES[4]
    hatch = HATCHES[(index + index // len(COLOURS)) % len(HATCHES)]
    return COLOURS[index % len(COLOURS)], hatch


def _stack(ax: Axes, estimates: list[_Drawn], parts: dict[str, list[float]]) -> None:
    """Stacked horizontal bars, one per estimate; a part that is zero everywhere has no legend.

    A single bar is named in the title, several are beside themselves, in lines that leave the bars
    most of the figure.
    """
    labels = [_wrapped(label_text(label_of(est)), _WIDEST) for est in estimates]
    positions = np.arange(len(estimates))
    left = np.zeros(len(estimates))
    index = 0
    for name, values in parts.items():
        colour, hatch = _look(name, index)
        sizes = np.array(values)
        index += name != "launches"
        if not sizes.any():
            continue
        ax.barh(
            positions,
            sizes,
            left=left,
            height=0.6,
            label=name,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.4,
        )
        left += sizes
    if len(estimates) > 1:
        ax.set_yticks(positions, labels)
    else:
        ax.set_yticks([])
    ax.set_ylim(len(estimates) - 0.4, -0.6)


def _wrapped(text: str, width: int) -> str:
    """A label in lines of at most this width, broken between words."""
    lines = [textwrap.wrap(line, width, break_on_hyphens=False) for line in text.splitlines()]
    return "\n".join(line for wrapped in lines for line in wrapped)


def _title(text: str, estimates: list[_Drawn]) -> str:
    """What is drawn, and of a single estimate also which."""
    if len(estimates) > 1:
        return text
    name = " ".join(label_text(label_of(estimates[0])).splitlines())
    return f"{text}\n{_wrapped(name, _TITLE)}"


def _height(estimates: list[_Drawn]) -> float:
    """Inches of a figure that has room for the bars and the lines of their labels."""
    if len(estimates) == 1:
        return 2.4
    lines = max(_wrapped(label_of(est), _WIDEST).count("\n") + 1 for est in estimates)
    return max(2.4, 1.4 + max(0.7, 0.18 * lines) * len(estimates))


def breakdown(estimates: _Drawn | Sequence[_Drawn], ax: Axes | None = None) -> Axes:
    """Draw the time of a step by cause, one stacked horizontal bar per estimate.

    The causes are those of `Estimate.breakdown`, launches of the host apart from compute.

    Parameters
    ----------
    estimates : Estimate, GroupEstimate or list of them
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        The parts of a bar sum to the step time.

    Raises
    ------
    ScaleModelError : nothing to plot, or an illegal strategy.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> plans = [sm.Strategy(tp=2), sm.Strategy(tp=4)]
    >>> ax = breakdown([sm.estimate("llama3_8b", "dgx_h100", task, plan) for plan in plans])
    >>> len(ax.get_yticklabels())
    2
    """
    listed = _as_list(estimates)
    ax = new_axis(ax, 8.0, _height(listed))
    columns = _columns(listed, TIME_COLUMNS, "TIME_COLUMNS")
    spent = [est.time_by_cause() for est in listed]
    parts = {
        cause.replace("exposed_", "exposed "): [times.get(cause, 0.0) for times in spent]
        for cause in by_cause(dict.fromkeys(columns, 0.0), 0.0)
    }
    with style():
        _stack(ax, listed, parts)
        ax.set(xlabel="Step time (s)", title=_title("Time of a step by cause", listed))
        ax.set_xlim(left=0)
        legend_beside(ax)
    return ax


def memory(estimates: _Drawn | Sequence[_Drawn], ax: Axes | None = None) -> Axes:
    """Draw the memory of the fullest accelerator by kind against its capacity.

    Parameters
    ----------
    estimates : Estimate, GroupEstimate or list of them
        Strategies that do not fit are drawn too: their bars cross the capacity line.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        The parts of a bar sum to ``memory_bytes``; one dashed line per capacity.

    Raises
    ------
    ScaleModelError : nothing to plot, or an illegal strategy.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> memory(sm.estimate("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2))).get_xlabel()
    'Memory per accelerator (GiB)'
    """
    listed = _as_list(estimates)
    ax = new_axis(ax, 8.0, _height(listed))
    columns = _columns(listed, MEMORY_COLUMNS, "MEMORY_COLUMNS")
    parts = {
        column.removeprefix("memory_").removesuffix("_bytes"): [
            float(getattr(est.core, column, 0.0)) / 2.0**30 for est in listed
        ]
        for column in columns
    }
    with style():
        _stack(ax, listed, parts)
        for capacity in sorted({float(est.core.memory_capacity_bytes) for est in listed}):
            gib = capacity / 2**30
            ax.axvline(
                gib, color="0.2", linestyle="--", linewidth=1.2, label=f"capacity {gib:.0f} GiB"
            )
        title = _title("Memory by kind, fullest accelerator", listed)
        ax.set(xlabel="Memory per accelerator (GiB)", title=title)
        ax.set_xlim(left=0)
        legend_beside(ax)
    return ax
