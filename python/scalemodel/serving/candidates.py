"""Layouts and sizes of a step, best first, as far as the limits of a promise hold."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.text import size_text, time_text
from scalemodel.resolve import Cluster
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.resolve.serving_kernels import kernels_for
from scalemodel.serving.limits import slack_of
from scalemodel.serving.measured import CACHE
from scalemodel.serving.plan import (
    MEMORY_COLUMNS,
    draft_for,
    drafts_of,
    instance_of,
    ranks_of,
    started_engine,
)
from scalemodel.serving.plans import DEGREES
from scalemodel.serving.promises import (
    SEQUENCES,
    Candidate,
    Promise,
    carry_rate,
    check_rate,
    check_running,
    state_values,
)
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.verdicts import layout_text

#: Columns of a row of the engine's search.
ROW_COLUMNS = (
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
    "place",  # of the layout among those asked for
)
_COARSE = 4  # concurrencies per doubling, where layouts are only put in an order
_ALL = 1_000_000


@dataclass(frozen=True)
class Question:
    """What is searched for."""

    promise: Promise
    goal: str
    layouts: tuple[_core.ServingLayout, ...]
    steps: tuple[float, ...]
    per_octave: int
    threads: int

    @property
    def tunes(self) -> bool:
        """Whether the engine chooses its limits itself."""
        return bool(engine_constants(self.promise.engine).tunes_limits)

    def search(
        self,
        *,
        per_octave: int,
        top: int,
        limited: bool,
        only: tuple[_core.ServingLayout, float] | None = None,
    ) -> tuple[Any, ...]:
        """What the engine finds with sequences kept running; `only` one layout and size of a step.

        Within the means where `limited`.
        """
        asked = self.promise
        kernels, _ = kernels_for(
            asked.cluster,
            asked.engine,
            asked.model.shape,
            asked.task.precision,
            asked.task.kv_precision,
            images=asked.task.images > 0 or asked.task.source_tokens > 0,
        )
        means = asked.means if limited else {}
        found: tuple[Any, ...] = _core.search_serving(
            asked.model.core,
            asked.cluster.core,
            started_engine(asked.engine, asked.task),
            kernels,
            asked.task.mix,
            asked.task.rank_imbalance,
            draft_for(asked.model, asked.cluster, asked.engine, drafts_of(asked.task)),
            list(self.layouts) if only is None else [only[0]],
            list(self.steps) if only is None else [only[1]],
            per_octave,
            "throughput" if self.goal == "accelerators" and not limited else self.goal,
            means.get("ttft_s", 0.0),
            means.get("tpot_s", 0.0),
            asked.requests_per_s or 0.0,
            top,
            self.threads if only is None else 1,
        )
        return found

    def bound(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """What a row is ordered by, smaller first; the best of near concurrencies is no better."""
        column = dict(zip(ROW_COLUMNS, rows.T, strict=True))
        ranks = column["tp"] * column["pp"] * column["dp"] * column["cp"]
        if self.goal in ("tpot", "ttft"):
            return np.asarray(column[f"{self.goal}_s"])
        step = 2 ** (1 / _COARSE)
        if self.promise.requests_per_s is None:
            return np.asarray(-step * column["requests_per_s"] / ranks)
        most = step * np.maximum(column["requests_per_s"], 1e-12)
        load = self.promise.requests_per_s * (1 + self.promise.headroom)
        return np.asarray(ranks * np.ceil(load / most))

    def key(self, candidate: Candidate) -> tuple[float, float, float]:
        """What a candidate is ordered by once its replicas or its concurrency are known.

        Of the fastest, those come last that need more than the cluster.
        """
        state = candidate.state
        assert state is not None
        tpot, accelerators = float(state.tpot_s), candidate.ranks * candidate.replicas
        if self.goal in ("tpot", "ttft"):
            if accelerators > self.promise.cluster.accelerators:
                return 1.0, float(accelerators), tpot
            return 0.0, float(getattr(state, f"{self.goal}_s")), tpot
        if self.promise.requests_per_s is None:
            return 0.0, -float(state.requests_per_s) / candidate.ranks, tpot
        return 0.0, float(accelerators), tpot


@dataclass(frozen=True)
class Miss:
    """The nearest that a layout comes to a limit that it cannot hold."""

    ratio: float
    name: str
    value: float
    layout: str


def _candidates(question: Question) -> tuple[list[tuple[float, Candidate]], list[Miss]]:
    """Layouts and sizes of a step with a bound of what they can do, and misses of the others."""
    promise = question.promise
    rows = question.search(per_octave=_COARSE, top=_ALL, limited=False)[0]
    if not len(rows):
        return [], []
    column = dict(zip(ROW_COLUMNS, rows.T, strict=True))
    means = {name: promise.means[name] for name in ("ttft_s", "tpot_s") if name in promise.means}
    ratio = np.zeros(len(rows))
    for name, limit in means.items():
        ratio = np.maximum(ratio, column[name] / limit)
    kinds = [*DEGREES, "place", "most_tokens"]  # in an order that does not hang on the places
    sizes, size = np.unique(column["most_tokens"], return_inverse=True)
    pair = column["place"].astype(np.int64) * len(sizes) + size.reshape(-1)
    _, first, place = np.unique(pair, return_index=True, return_inverse=True)
    place = place.reshape(-1)
    groups = np.column_stack([column[name][first] for name in kinds])
    bound = np.full(len(groups), np.inf)
    within = ratio <= 1
    np.minimum.at(bound, place[within], question.bound(rows[within]))
    found = []
    for group in np.lexsort(groups.T[::-1]):
        if not np.isfinite(bound[group]):
            continue
        layout_place, most = (int(value) for value in groups[group][-2:])
        layout = question.layouts[layout_place]
        tokens = None if question.tunes else most
        found.append((float(bound[group]), Candidate(promise, layout, tokens)))
    misses = []
    if not found:
        near = int(np.argmin(ratio))
        name = max(means, key=lambda name: column[name][near] / means[name])
        layout = question.layouts[int(column["place"][near])]
        value = float(column[name][near])
        misses.append(Miss(float(ratio[near]), promise.given(name), value, layout_text(layout)))
    return found, misses


def _in_steady_state(question: Question, candidate: Candidate) -> bool:
    """Replicas or concurrency of a candidate by the closed form; False where nothing holds."""
    promise = question.promise
    if promise.requests_per_s is not None:
        fast = question.goal in ("tpot", "ttft")
        low = max(1, promise.cluster.accelerators // candidate.ranks) if fast else 1
        return carry_rate(candidate, low)
    tokens = question.steps[0]
    if candidate.tokens is not None:  # of an instance; engines limit the step of each of its ranks
        ranks = candidate.layout.dp if engine_constants(promise.engine).limits_per_rank else 1
        tokens = candidate.tokens / ranks
    best = question.search(
        per_octave=question.per_octave, top=1, limited=True, only=(candidate.layout, tokens)
    )[0]
    if not len(best):
        return False
    column = dict(zip(ROW_COLUMNS, best[0], strict=True))
    candidate.concurrency = max(1.0, float(np.floor(column["concurrency"])))
    candidate.state = _plan(candidate, promise.cluster).state
    return True


def _simulated(question: Question, candidate: Candidate, worst: float) -> bool:
    """Whether the limits hold request by request, with more replicas or fewer running.

    What needs more accelerators than `worst` is dropped.
    """
    promise = question.promise
    if promise.requests_per_s is not None:
        if question.goal in ("tpot", "ttft") or not np.isfinite(worst):
            return not promise.checked or check_rate(candidate)
        return not promise.checked or check_rate(candidate, int(worst // candidate.ranks))

    def plan_of(concurrency: float) -> Serving:
        candidate.concurrency = concurrency
        return _plan(candidate, promise.cluster)

    most = candidate.concurrency
    if not check_running(candidate, plan_of, _least_running(question, candidate, worst)):
        return False
    plan = _plan(candidate, promise.cluster)
    candidate.state = plan.state
    if candidate.concurrency == most and not candidate.binds:
        candidate.binds = _nearest_limit(plan, candidate)
    return True


def _least_running(question: Question, candidate: Candidate, worst: float) -> float:
    """As few as do better than `worst` in steady state, were they to hold."""
    if question.goal != "throughput" or not np.isfinite(worst) or candidate.concurrency is None:
        return 1.0
    built, mix = candidate.instance(), question.promise.task.mix

    def better(running: float) -> bool:
        rate = float(built.steady_state(mix, running).requests_per_s)
        return -rate / candidate.ranks < worst

    low, high = 0.0, candidate.concurrency
    if not better(high):
        return high + 1
    while high - low > 1:
        middle = float(np.floor((low + high) / 2))
        low, high = (low, middle) if better(middle) else (middle, high)
    return high


def _nearest_limit(plan: Serving, candidate: Candidate) -> str:
    """What keeps a plan from more running: room, or the limit that it comes nearest to."""
    assert plan.instance is not None
    assert plan.state is not None
    task, limits = plan.task, candidate.promise.limits
    capacity = plan.instance.capacity(task.input_tokens, task.output_tokens)
    values = {**state_values(plan.state, task), **candidate.values}
    nearest = slack_of(values, limits)[1]
    if nearest and plan.state.concurrency + 1 <= capacity.max_running_sequences:
        return nearest
    return CACHE if capacity.cached_sequences <= capacity.step_sequences else SEQUENCES


def _plan(candidate: Candidate, cluster: Cluster) -> Serving:
    """The plan of a candidate, on as many nodes as its replicas need."""
    promise = candidate.promise
    needed = candidate.replicas * candidate.ranks
    if needed > cluster.accelerators:
        nodes = -(-needed // int(cluster.core.node_accelerators))
        cluster = resolve.cluster(cluster, nodes=nodes)
    return serve(
        promise.model,
        cluster,
        promise.task,
        candidate.layout,
        engine=promise.engine,
        concurrency=candidate.concurrency,
        requests_per_s=promise.requests_per_s,
        replicas=candidate.replicas,
        max_batched_tokens=candidate.tokens,
    )


def promised_plan(candidate: Candidate) -> Serving:
    """The plan of a candidate with its limits and what it does at its load."""
    promise = candidate.promise
    plan = _plan(candidate, promise.cluster)
    plan.limits, plan.binds = dict(promise.limits), candidate.binds
    plan.simulated = dict(candidate.values)
    return plan


def best_first(
    question: Question, top: int, tell: Callable[[int, int], object] | None
) -> tuple[list[Candidate], list[Miss]]:
    """The best candidates, no two of one layout, and misses of those that hold nowhere.

    What is not known yet is bounded from below, so that only what may be among the best is looked
    at more closely: first in steady state, then request by request.
    """
    promise = question.promise
    candidates, misses = _candidates(question)
    order = count()
    heap = [((0.0, bound, 0.0), next(order), 0, each) for bound, each in candidates]
    heapq.heapify(heap)
    best: list[Candidate] = []
    taken: set[_core.ServingLayout] = set()
    known: dict[_core.ServingLayout, float] = {}
    total, done = len(heap), 0
    while heap and len(best) < top:
        _, _, stage, candidate = heapq.heappop(heap)
        if tell is not None:
            # As far as the plans that are found, or the candidates that are left, tell.
            done = max(done, 100 * len(best) // top, 100 * (total - len(heap)) // total)
            tell(done, 100)
        if candidate.layout in taken:
            continue
        if stage == 2:
            best.append(candidate)
            taken.add(candidate.layout)
            continue
        if stage == 0:
            holds = _in_steady_state(question, candidate)
        else:
            # Other sizes of a step count where they do better, other layouts where as well.
            worst = heapq.nsmallest(top, known.values())[-1] if len(known) >= top else np.inf
            own = known.get(candidate.layout, np.inf) - (promise.requests_per_s is not None)
            holds = _simulated(question, candidate, min(worst, own))
        if holds:
            key = question.key(candidate)
            heapq.heappush(heap, (key, next(order), stage + 1, candidate))
            if stage == 1:
                known[candidate.layout] = key[1]
        elif candidate.binds:
            name = layout_text(candidate.layout)
            misses.append(Miss(candidate.missed, candidate.binds, candidate.missed_value, name))
    return best, misses


def why_none(question: Question, misses: Sequence[Miss]) -> tuple[str, str]:
    """Why nothing holds, with the nearest miss, and the limit that binds."""
    promise = question.promise
    if misses:
        near = min(misses, key=lambda miss: miss.ratio)
        limit = promise.limits.get(near.name)
        if limit is None:
            return f"no plan holds: {near.name} binds; nearest {near.layout}", near.name
        times = near.value / limit
        told = f"{times:.3g} times the limit" if times > 1 else "too near the limit to be sure"
        text = (
            f"no plan holds: {near.name}={limit:g} binds; nearest {near.layout} with "
            f"{time_text(near.value)} at the least load, {told}"
        )
        return text, near.name
    least = None
    draft = draft_for(promise.model, promise.cluster, promise.engine, drafts_of(promise.task))
    for layout in question.layouts:
        legal = _core.check_serving_layout(promise.model.core, layout, promise.cluster.core)
        if legal == "ok":
            legal = _core.check_draft(draft, layout, promise.cluster.core)
        if legal != "ok":
            continue
        built, _ = instance_of(promise.model, promise.cluster, promise.task, layout, promise.engine)
        held = built.capacity(promise.task.input_tokens, promise.task.output_tokens)
        needed = sum(getattr(held, name) for name in MEMORY_COLUMNS if "kv_cache" not in name)
        if least is None or needed < least[0]:
            least = (needed, layout)
    if least is None:
        return "no plan holds: no layout is legal on this cluster", "layout"
    size = float(promise.cluster.core.accelerator.memory_capacity_bytes)
    text = (
        f"no plan holds: memory binds; nearest {layout_text(least[1])} with "
        f"{size_text(least[0])} beside the cache on each of {ranks_of(least[1])} accelerators of "
        f"{size_text(size)}"
    )
    return text, "memory"
