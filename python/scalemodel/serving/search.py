"""The best serving plans under limits of latency, and what trades against what."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.threads import progress_bar, worker_threads
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.candidates import (
    ROW_COLUMNS,
    Question,
    best_first,
    promised_plan,
    why_none,
)
from scalemodel.serving.limits import limits_of, warn_of_milliseconds
from scalemodel.serving.plans import DEGREES, ServingPlans, plans_frame
from scalemodel.serving.promises import Promise, checked_load
from scalemodel.serving.task import Inference
from scalemodel.serving.verdicts import layout_text

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

    from scalemodel.serving.limits import LatencyLimits

Goal = Literal["throughput", "tpot", "ttft", "accelerators"]
GOALS = ("throughput", "tpot", "ttft", "accelerators")
_OPTIONS = (
    "goal",
    "requests_per_s",
    "headroom",
    "engine",
    "layouts",
    "most_tokens",
    "per_octave",
    "top",
    "checked",
    "threads",
    "progress",
)
_PERCENT = 100  # steps of a bar of progress


def serving_layouts(
    model: Model, cluster: Cluster, most_accelerators: int | None = None
) -> list[_core.ServingLayout]:
    """Legal layouts of an instance, from one accelerator to the whole cluster or the given number.

    Degrees are powers of two beside the divisors of the heads; pipelines stay within eight stages,
    and prompts are sharded over at most eight ranks.

    Examples
    --------
    >>> import scalemodel as sm
    >>> found = serving_layouts(sm.model("llama3_70b"), sm.cluster("dgx_h100"))
    >>> {layout.tp for layout in found} == {1, 2, 4, 8}
    True
    """
    found: list[_core.ServingLayout] = _core.serving_layouts(
        model.core, cluster.core, most_accelerators or cluster.accelerators
    )
    return found


def shows_progress(progress: bool | Callable[[int, int], object] | None) -> Any:
    """What was asked for; when left out, a bar where somebody looks and tqdm is there."""
    if progress is not None:
        return progress
    looked_at = sys.stderr is not None and sys.stderr.isatty()
    return (looked_at or "ipykernel" in sys.modules) and bool(importlib.util.find_spec("tqdm"))


def _front_frame(
    rows: npt.NDArray[np.float64], layouts: Sequence[_core.ServingLayout], task: Inference
) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(ROW_COLUMNS))
    whole = [*DEGREES, "most_tokens", "replicas", "place"]
    frame[whole] = frame[whole].astype(np.int64)
    names = [layout_text(layouts[place]) for place in frame.pop("place")]
    frame.insert(len(DEGREES), "layout", names)
    ranks = frame["tp"] * frame["pp"] * frame["dp"] * frame["cp"]
    tokens = frame["requests_per_s"] * task.output_tokens
    frame["output_tokens_per_s"] = tokens
    frame["output_tokens_per_s_per_accelerator"] = tokens / ranks
    frame["accelerators"] = ranks * frame["replicas"]
    return frame


@named_arguments
def plan_serving(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    goal: Goal = "throughput",
    requests_per_s: float | None = None,
    headroom: float = 0.1,
    engine: str = DEFAULT_ENGINE,
    layouts: Sequence[_core.ServingLayout] | None = None,
    most_tokens: Sequence[int] = (1024, 2048, 4096, 8192, 16384),
    per_octave: int = 32,
    top: int = 10,
    checked: bool = True,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
    **limits: Unpack[LatencyLimits],
) -> ServingPlans:
    """The best layouts, sizes of a step and numbers of replicas for a task, limits of latency held.

    Every plan is simulated request by request at its load before it is returned: requests that
    arrive at random (Poisson) at `requests_per_s`, or as many kept running as the limits allow
    where no rate is asked for; lengths log-normal where the task names their spread, else equal.
    A plan that misses a limit gets more replicas (or keeps fewer running) until it holds, by twice
    the standard error of what was simulated, or is dropped. What it simulates is a random draw: of
    200 random plans, at least 97 % hold every limit with other draws of as many requests.

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve`. Where replicas need more than the cluster, plans are on as many nodes more.
    goal : str
        ``"throughput"`` (output tokens per second and accelerator), ``"accelerators"`` (the fewest
        that carry `requests_per_s`), ``"tpot"`` or ``"ttft"`` (the shortest; with
        `requests_per_s` on all that the cluster holds, what needs more than it comes last).
    requests_per_s : float, optional
        That all instances together must carry; `replicas` says how many it takes.
    headroom : float
        Part of `requests_per_s` that may come beside it: limits hold at (1 + headroom) times the
        rate. 0: none.
    layouts : sequence of ServingLayout, optional
        What to try; `serving_layouts` when left out.
    most_tokens : sequence of int
        Limits of tokens per step to try. Engines that tune them do so themselves.
    per_octave : int
        Concurrencies tried per doubling.
    top : int
        Rows of the result.
    checked : bool
        False: steady states alone decide, percentiles are no more than limits of the mean, and
        `simulated` of a plan is empty.
    threads : int, optional
        All processors when left out; the result does not depend on it.
    progress : bool or function of (done, total), optional
        A bar; when left out, in a terminal and in a notebook.
    **limits : float, optional
        At most, in seconds: `ttft_s`, `tpot_s`, `e2e_s` (from arrival to the last token) are
        means; `ttft_p50_s`, `ttft_p90_s`, `ttft_p95_s`, `ttft_p99_s`, and so with `tpot` and
        `e2e`, what such a percentage of the requests does not exceed.

    Returns
    -------
    ServingPlans
        No two plans of one layout. Each names the limit that keeps it from being smaller (`binds`):
        a limit of latency, ``requests_per_s``, ``kv_cache`` or ``max_running_sequences``. Where
        nothing holds it is empty, and `message` says which limit binds and the nearest miss.

    Raises
    ------
    ScaleModelError : an unknown name, or a number out of range.

    Warns
    -----
    UserWarning : a limit so long that it is meant in milliseconds.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=2000, output_tokens=300, precision="fp8",
    ...                     kv_precision="fp8", input_spread=0.5, output_spread=0.5)
    >>> plans = sm.plan_serving("llama3_70b", "dgx_h100", task, tpot_p90_s=0.03, ttft_p99_s=2,
    ...                         requests_per_s=4, top=3)
    >>> len(plans), plans[0].simulated["tpot_p90_s"] <= 0.03
    (3, True)
    """
    asked = limits_of(limits, _OPTIONS)
    warn_of_milliseconds(asked)
    if goal not in GOALS:
        raise ScaleModelError(f"goal={goal!r}: must be one of {', '.join(GOALS)}")
    if goal == "accelerators" and requests_per_s is None:
        raise ScaleModelError("goal='accelerators': needs requests_per_s")
    checked_load(requests_per_s, headroom)
    chosen = resolve.model(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    name = engine_for(engine)
    if isinstance(task, Inference):
        task = task.read_by(chosen)
    return plans_for(
        Promise(chosen, where, task, name, asked, requests_per_s, headroom, checked),
        goal=goal,
        layouts=layouts,
        most_tokens=most_tokens,
        per_octave=per_octave,
        top=top,
        threads=threads,
        progress=progress,
    )


def plans_for(
    promise: Promise,
    *,
    goal: str = "throughput",
    layouts: Sequence[_core.ServingLayout] | None = None,
    most_tokens: Sequence[int],
    per_octave: int = 32,
    top: int = 10,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] | None = None,
) -> ServingPlans:
    """The plans of `plan_serving` for a promise."""
    if any(layout.expert_ranks for layout in layouts or ()):
        raise ScaleModelError(
            "layouts: expert_ranks is no part of this search; ask plan_expert_pools"
        )
    constants = engine_constants(promise.engine)
    steps = [constants.max_batched_tokens] if constants.tunes_limits else most_tokens
    question = Question(
        promise,
        goal,
        tuple(serving_layouts(promise.model, promise.cluster) if layouts is None else layouts),
        tuple(map(float, steps)),
        per_octave,
        worker_threads(threads),
    )
    _, front, plans, feasible = question.search(per_octave=per_octave, top=top, limited=True)
    with progress_bar(shows_progress(progress), _PERCENT, unit=" %") as tell:
        best, misses = best_first(question, top, tell)
        found = [promised_plan(candidate) for candidate in best]
    message, binds = ("", "") if found else why_none(question, misses)
    return ServingPlans(
        tuple(found),
        plans_frame(found, promise.limits),
        _front_frame(front, question.layouts, promise.task),
        int(plans),
        int(feasible),
        dict(promise.limits),
        message,
        binds,
    )


@named_arguments
def plan_split(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    requests_per_s: float,
    decode_cluster: str | Path | Mapping[str, Any] | Cluster | None = None,
    goal: str = "accelerators",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    headroom: float = 0.1,
    engine: str = DEFAULT_ENGINE,
    per_octave: int = 32,
    top: int = 10,
) -> pd.DataFrame:
    """Splits into a prefill and a decode pool that carry a rate, the smallest or cheapest first.

    Each pool is searched on its own and in steady state: the prefill pool for the fewest
    accelerators within the limit of the first token, the decode pool within that of the others,
    both at (1 + headroom) times the rate.

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve_split`; `cluster` holds both pools, or the prefill pool alone.
    requests_per_s : float
        That the pools must carry.
    decode_cluster
        Of the decode pool, where its accelerators are of another kind.
    goal : str
        ``accelerators``, or ``cost`` by the prices of the clusters.
    ttft_s, tpot_s : float, optional
        Limits of the means.
    headroom, per_octave, top
        As for `plan_serving`.

    Returns
    -------
    DataFrame
        Columns ``accelerators``, ``usd_per_s`` (missing without prices), and of both pools
        (``prefill_*``, ``decode_*``).

    Raises
    ------
    ScaleModelError
        An unknown name or goal, or a cluster without a price where cost is the goal.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=300, precision="fp8",
    ...                     kv_precision="fp8")
    >>> table = sm.plan_split("llama3_8b", "dgx_h100", task, requests_per_s=20, top=2)
    >>> list(table.columns)[:2]
    ['accelerators', 'usd_per_s']
    """
    import pandas as pd

    if goal not in ("accelerators", "cost"):
        raise ScaleModelError(f"goal={goal!r}: must be accelerators or cost")
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    other = where
    if isinstance(decode_cluster, Cluster):
        other = decode_cluster
    elif decode_cluster is not None:
        other = resolve.cluster(decode_cluster)
    prices = [float(place.core.price_usd_per_s) for place in (where, other)]
    if goal == "cost" and not all(prices):
        lacking = (where, other)[prices.index(0.0)].name
        raise ScaleModelError(f"goal='cost': the catalogue has no price of {lacking}")
    ask: dict[str, Any] = {
        "goal": "accelerators",
        "requests_per_s": requests_per_s,
        "engine": engine,
        "top": top,
        "checked": False,
        "headroom": headroom,
        "per_octave": per_octave,
    }
    prompts = task.plain().replace(output_tokens=1)
    first = plan_serving(model, where, prompts, **_given(ttft_s=ttft_s), **ask).best
    answers = task.replace(prefilled=True)
    second = plan_serving(model, other, answers, **_given(tpot_s=tpot_s), **ask).best
    rows = []
    for a in first.to_dict("records"):
        for b in second.to_dict("records"):
            counts = (a["accelerators"], b["accelerators"])
            if where is other and sum(counts) > where.accelerators:
                continue
            costs = [n * price for n, price in zip(counts, prices, strict=True)]
            rows.append(
                {
                    "accelerators": sum(counts),
                    "usd_per_s": sum(costs) if all(prices) else None,
                    **{f"prefill_{key}": value for key, value in a.items()},
                    **{f"decode_{key}": value for key, value in b.items()},
                }
            )
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    by = "accelerators" if goal == "accelerators" else "usd_per_s"
    return frame.sort_values(by, kind="stable").head(top).reset_index(drop=True)


def _given(**limits: float | None) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if value is not None}
