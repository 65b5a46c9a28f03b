"""A step of post-training, drawn: which pool does what, and when it waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scalemodel.base.errors import ScaleModelError
from scalemodel.plot.canvas import COLOURS, legend_beside, new_axis, style
from scalemodel.post_training.answer import PhasedStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rl_step(step: PhasedStep, ax: Axes | None = None) -> Axes:
    """Draw the phases of a step of post-training, one lane per pool.

    Parameters
    ----------
    step : RlEstimate or TuningEstimate
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Empty parts of a lane are a pool that waits.

    Raises
    ------
    ScaleModelError : a step that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> one = sm.cluster("dgx_h100")
    >>> plan = sm.Strategy(tp=2, recompute="full")
    >>> apart = sm.estimate_rl("llama3_8b", one, task, plan, rollout=one, staleness=1)
    >>> [label.get_text() for label in rl_step(apart).get_yticklabels()]
    ['rollout', 'training']
    """
    if not isinstance(step, PhasedStep) or not math.isfinite(step.step_time_s):
        raise ScaleModelError(
            f"step={step!r}: must be an RlEstimate or a TuningEstimate of a step that runs"
        )
    lanes = step.lanes()
    ax = new_axis(ax, 8.0, 1.0 + 0.6 * len(lanes))
    with style():
        for number, row in enumerate(step.timeline().to_dict(orient="records")):
            both = [place for place, lane in enumerate(lanes) if lane != "teacher"]
            ax.barh(
                both if row["pool"] == "both" else [lanes.index(row["pool"])],
                row["duration_s"],
                left=row["start_s"],
                height=0.7,
                color=COLOURS[number % len(COLOURS)],
                label=row["phase"],
            )
        ax.set_yticks(range(len(lanes)), lanes)
        ax.invert_yaxis()
        ax.set(xlabel="Time of a step (s)", title="Phases of a step")
        ax.set_xlim(0, step.step_time_s)
        legend_beside(ax)
    return ax
