"""The best serving plans under limits of latency, and what trades against what."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.numbers import divisors
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for, kernels_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd

Goal = Literal["throughput", "tpot", "ttft", "accelerators"]
GOALS = ("throughput", "tpot", "ttft", "accelerators")
#: Degrees of a layout, as columns.
DEGREES = ("tp", "pp", "ep", "dp", "cp")
_COLUMNS = (
    *DEGREES,
    "most_tokens",
    "concurrency",
    "replicas",
    "requests_per_s",
    "step_time_s",
    "tpot_s",
    "ttft_s",
    "utilisation_fraction",
    "prompt_fraction",
)


@dataclass(frozen=True)
class ServingPlans:
    """Plans that a search found. Made by `plan_serving`.

    Attributes
    ----------
    best : DataFrame
        Best first; numbers of one instance, `replicas` of which carry the rate asked for.
    front : DataFrame
        Plans that no other beats in both output tokens per second and accelerator and TPOT.
    plans, feasible : int
        Tried, and within the limits.
    """

    best: pd.DataFrame
    front: pd.DataFrame
    plans: int
    feasible: int

    def layout(self, row: int = 0) -> _core.ServingLayout:
        """Degrees of a row of `best`."""
        found = self.best.iloc[row]
        return _core.ServingLayout(**{name: int(found[name]) for name in DEGREES})


def serving_layouts(
    model: Model, cluster: Cluster, most_accelerators: int | None = None
) -> list[_core.ServingLayout]:
    """Legal layouts of an instance, from one accelerator to the whole cluster or the given number.

    Degrees are powers of two beside the divisors of the heads; pipelines stay within eight stages,
    and prompts are shared out over at most eight ranks.

    Examples
    --------
    >>> import scalemodel as sm
    >>> found = serving_layouts(sm.model("llama3_70b"), sm.cluster("dgx_h100"))
    >>> {layout.tp for layout in found} == {1, 2, 4, 8}
    True
    """
    most = min(most_accelerators or cluster.accelerators, cluster.accelerators)
    routed = model.shape.experts > 0
    powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
    found = []
    for tp in sorted({n for n in divisors(model.shape.heads) if n <= most} & set(powers)):
        for dp in powers if routed else [1]:
            for cp in [n for n in powers if n <= 8]:
                for pp in [n for n in powers if n <= 8]:
                    stage = tp * dp * cp
                    if stage * pp > most:
                        continue
                    for ep in [n for n in divisors(stage) if n == 1 or routed]:
                        layout = _core.ServingLayout(tp=tp, pp=pp, ep=ep, dp=dp, cp=cp)
                        legal = _core.check_serving_layout(model.core, layout, cluster.core)
                        if legal == "ok":
                            found.append(layout)
    return found


def _frame(rows: npt.NDArray[np.float64], task: Inference) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    whole = [*DEGREES, "most_tokens", "replicas"]
    frame[whole] = frame[whole].astype(np.int64)
    ranks = frame["tp"] * frame["pp"] * frame["dp"] * frame["cp"]
    tokens = frame["requests_per_s"] * task.output_tokens
    frame["output_tokens_per_s"] = tokens
    frame["output_tokens_per_s_per_accelerator"] = tokens / ranks
    frame["accelerators"] = ranks * frame["replicas"]
    return frame


def _limit(name: str, value: float | None) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not 0 < value < 1e9:
        raise ScaleModelError(f"{name}={value!r}: must be a number above 0")
    return float(value)


def plan_serving(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    goal: Goal = "throughput",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    requests_per_s: float | None = None,
    engine: str = DEFAULT_ENGINE,
    layouts: Sequence[_core.ServingLayout] | None = None,
    most_tokens: Sequence[int] = (1024, 2048, 4096, 8192, 16384),
    per_octave: int = 32,
    top: int = 10,
    threads: int | None = None,
) -> ServingPlans:
    """The best layout, size of a step and concurrency for a task.

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve`.
    goal : str
        ``"throughput"`` (output tokens per second and accelerator), ``"tpot"``, ``"ttft"`` or
        ``"accelerators"`` (the fewest that carry `requests_per_s`).
    ttft_s, tpot_s : float, optional
        At most; the time to the first token without a queue.
    requests_per_s : float, optional
        That all instances together must carry; `replicas` says how many it takes.
    layouts : sequence of ServingLayout, optional
        What to try; `serving_layouts` when left out.
    most_tokens : sequence of int
        Limits of tokens per step to try. Engines that tune them do so themselves.
    per_octave : int
        Concurrencies tried per doubling.
    top : int
        Rows of the result.
    threads : int, optional
        All processors when left out; the result does not depend on it.

    Raises
    ------
    ScaleModelError : an unknown name, or a number out of range.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=2000, output_tokens=300, precision="fp8",
    ...                     kv_precision="fp8")
    >>> plans = sm.plan_serving("llama3_70b", "dgx_h100", task, tpot_s=0.03, top=3)
    >>> len(plans.best), bool((plans.best.tpot_s <= 0.03).all())
    (3, True)
    """
    if goal not in GOALS:
        raise ScaleModelError(f"goal={goal!r}: must be one of {', '.join(GOALS)}")
    if goal == "accelerators" and requests_per_s is None:
        raise ScaleModelError("goal='accelerators': needs requests_per_s")
    chosen = resolve.model(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    name = engine_for(engine)
    constants = engine_constants(name)
    kernels, _ = kernels_for(where, name, chosen.shape, task.precision, task.kv_precision)
    tried = list(serving_layouts(chosen, where) if layouts is None else layouts)
    steps = (
        [float(constants.most_tokens)] if constants.tunes_limits else list(map(float, most_tokens))
    )
    best, front, plans, feasible = _core.search_serving(
        chosen.core,
        where.core,
        constants,
        kernels,
        task.mix,
        float(task.imbalance),
        tried,
        steps,
        per_octave,
        goal,
        _limit("ttft_s", ttft_s),
        _limit("tpot_s", tpot_s),
        _limit("requests_per_s", requests_per_s),
        top,
        threads or os.cpu_count() or 1,
    )
    return ServingPlans(_frame(best, task), _frame(front, task), int(plans), int(feasible))


def plan_split(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    requests_per_s: float,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    engine: str = DEFAULT_ENGINE,
    top: int = 10,
) -> pd.DataFrame:
    """Splits into a prefill and a decode pool that carry a rate, fewest accelerators first.

    Each pool is searched on its own: the prefill pool for the fewest accelerators within the limit
    of the first token, the decode pool within that of the others.

    Returns
    -------
    DataFrame
        Columns of both pools (``prefill_*``, ``decode_*``) and ``accelerators``.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=300, precision="fp8",
    ...                     kv_precision="fp8")
    >>> table = sm.serving.plan_split("llama3_8b", "dgx_h100", task, requests_per_s=20, top=2)
    >>> list(table.columns)[0]
    'accelerators'
    """
    import pandas as pd

    ask: dict[str, Any] = {
        "goal": "accelerators",
        "requests_per_s": requests_per_s,
        "engine": engine,
        "top": top,
    }
    prompts = task.replace(output_tokens=1, speculative_tokens=0)
    cached = min(0.999, 1 - 1 / max(task.input_tokens, 2.0))
    answers = task.replace(prefix_hit_fraction=cached)
    first = plan_serving(model, cluster, prompts, ttft_s=ttft_s, **ask).best
    second = plan_serving(model, cluster, answers, tpot_s=tpot_s, **ask).best
    rows = []
    for _, a in first.iterrows():
        for _, b in second.iterrows():
            rows.append(
                {
                    "accelerators": a["accelerators"] + b["accelerators"],
                    **{f"prefill_{key}": value for key, value in a.items()},
                    **{f"decode_{key}": value for key, value in b.items()},
                }
            )
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    return frame.sort_values("accelerators", kind="stable").head(top).reset_index(drop=True)
