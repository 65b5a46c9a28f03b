"""Which accelerators generate and which train: `search_rl`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import percent_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.post_training.answer import RlEstimate
from scalemodel.post_training.step import (
    FRAMEWORKS,
    Framework,
    Generation,
    Learning,
    Question,
    generated,
    joined,
    learned,
)
from scalemodel.post_training.task import Rl
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.search import search
from scalemodel.serving.plan import ranks_of

if TYPE_CHECKING:
    import pandas as pd

#: Shares of memory for the engine, as recipes of NVIDIA-NeMo/RL give them: beside training, alone.
_SHARED_MEMORY, _OWN_MEMORY = 0.6, 0.8
#: Pools of the default splits: eighths of the nodes.
_PARTS = 8
_STRATEGIES = 3  # of a training pool: the best of a search by its step


class RlRanking(Sequence[RlEstimate]):
    """Steps that run, those with the most samples an hour first.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> found = sm.search_rl("llama3_8b", sm.cluster("dgx_h100", nodes=2), task)
    >>> found[0].step_time_s == min(step.step_time_s for step in found)
    True
    """

    def __init__(self, steps: Sequence[RlEstimate], tried: int) -> None:
        self._steps = tuple(steps)
        self.tried = tried

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._steps[index]

    def table(self) -> pd.DataFrame:
        """A row a step: pools, degrees, staleness, step_time_s, samples_per_hour, waits, cost.

        ``usd_per_thousand_samples`` is of all accelerators of the cluster, None without a price.
        """
        import pandas as pd

        return pd.DataFrame([_row(step) for step in self._steps])

    def why(self) -> str:
        """What decides the best: the pool that the other waits for, or the passes in turn."""
        if not self._steps:
            return f"none of {self.tried} layouts runs: every pool lacks memory for its part"
        best = self._steps[0]
        if best.colocated or not best.staleness:
            share = best.phases.rollout_s / best.step_time_s
            return f"phases in turn: rollout takes {percent_text(share)} of the step"
        rollout, learning = best.rollout_period_s, best.phases.learning_s
        pool = "rollout" if rollout >= learning else "training"
        idle = abs(rollout - learning)
        return f"{pool} decides: the other pool waits {time_text(idle)} of each step"

    def __repr__(self) -> str:
        return f"RlRanking({len(self)} of {self.tried} layouts; {self.why()})"


def _row(step: RlEstimate) -> dict[str, Any]:
    plan, layout = step.training.strategy, step.serving.layout
    price = step.training.cluster.price
    hour = step.samples_per_s * 3600
    return {
        "train_accelerators": int(step.training.cluster.accelerators),
        "rollout_accelerators": int(step.serving.cluster.accelerators),
        "colocated": step.colocated,
        "staleness": step.staleness,
        **{f"train_{name}": int(getattr(plan, name)) for name in ("tp", "cp", "pp", "ep")},
        "recompute": str(plan.recompute),
        "rollout_tp": int(layout.tp),
        "step_time_s": step.step_time_s,
        "samples_per_hour": hour,
        "rollout_s": step.phases.rollout_s,
        "learning_s": step.phases.learning_s,
        "usd_per_thousand_samples": (
            1000 * price * step.accelerators / hour if isinstance(price, (int, float)) else None
        ),
    }


@named_arguments
def search_rl(
    model: ModelLike,
    cluster: ClusterLike,
    task: Rl,
    *,
    strategies: Sequence[_core.Strategy] | None = None,
    layouts: Sequence[_core.ServingLayout] | None = None,
    splits: Sequence[int] | None = None,
    staleness: Sequence[int] = (0, 1),
    engine: str = "vllm_v1",
    stack: str = DEFAULT_STACK,
    framework: Framework = "nemo_rl",
    top: int = 10,
) -> RlRanking:
    """The split of accelerators, both layouts and the staleness with the most samples an hour.

    Everything listed is tried: one pool for both, and each split with each staleness, strategy and
    layout. On one cluster the most samples an hour are the most a dollar too.

    Parameters
    ----------
    model, cluster, task, engine, stack, framework
        As in `estimate_rl`; all accelerators of the cluster are used.
    strategies : sequence of Strategy, optional
        Of training. When left out, the best of a `search` for each pool by its optimizer step.
    layouts : sequence of ServingLayout, optional
        Of a replica; tensor parallelism by powers of two inside a node when left out.
    splits : sequence of int, optional
        Accelerators that train, the others generate; eighths of the nodes when left out. One pool
        for both is always tried.
    staleness : sequence of int
        To try where the pools are apart.
    top : int
        Steps to keep.

    Returns
    -------
    RlRanking
        Empty where nothing runs.

    Raises
    ------
    ScaleModelError
        A split that leaves a pool empty, or a value out of range.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> found = sm.search_rl("llama3_8b", sm.cluster("dgx_h100", nodes=2), task, top=3)
    >>> len(found), found[0].verdict
    (3, 'ok')
    """
    if not isinstance(task, Rl):
        raise ScaleModelError(f"task={task!r}: must be an Rl")
    if framework not in FRAMEWORKS:
        legal = ", ".join(FRAMEWORKS)
        raise ScaleModelError(f"framework={framework!r}: must be one of {legal}")
    whole = resolve.cluster(cluster)
    for split in splits or ():
        if isinstance(split, bool) or not isinstance(split, int) or not 0 < split < len_of(whole):
            raise ScaleModelError(
                f"splits={split!r}: leaves a pool empty; must be from 1 to {len_of(whole) - 1}"
            )
    base = Question(
        model=resolve.model(model),
        task=task,
        train=whole,
        rollout=whole,
        strategy=_core.Strategy(),
        layout=_core.ServingLayout(),
        engine=engine,
        stack=stack,
        memory_share=_SHARED_MEMORY,
        logprob_batch=1,
        partial=False,
        staleness=0,
        framework=framework,
    )
    tried = _Tried(base, strategies, layouts)
    steps = list(tried.steps(_splits(whole) if splits is None else splits, staleness))
    running = [step for step in steps if step.verdict == "ok"]
    running.sort(key=lambda step: step.step_time_s)
    return RlRanking(running[:top], len(steps))


def len_of(cluster: resolve.Cluster) -> int:
    """Accelerators of a cluster."""
    return int(cluster.accelerators)


def _splits(cluster: resolve.Cluster) -> list[int]:
    node = min(int(cluster.core.node_accelerators), len_of(cluster))
    nodes = len_of(cluster) // node
    parts = {round(nodes * part / _PARTS) for part in range(1, _PARTS)}
    if nodes == 1:
        return [part for part in (node // 4, node // 2, 3 * node // 4) if 0 < part < node]
    return [part * node for part in sorted(parts) if 0 < part < nodes]


class _Tried:
    """Pools that were asked already: most splits share their layouts with others."""

    def __init__(
        self,
        base: Question,
        strategies: Sequence[_core.Strategy] | None,
        layouts: Sequence[_core.ServingLayout] | None,
    ) -> None:
        self._base, self._strategies, self._layouts = base, strategies, layouts
        self._whole = base.train
        self._learned: dict[tuple[int, _core.Strategy], Learning] = {}
        self._generated: dict[tuple[int, _core.ServingLayout, float, int], Generation] = {}
        self._found: dict[int, list[_core.Strategy]] = {}

    def steps(self, splits: Sequence[int], staleness: Sequence[int]) -> Iterator[RlEstimate]:
        """All steps: one pool for both, then every split."""
        yield from self._pools(self._whole, self._whole, (0,), _SHARED_MEMORY, colocated=True)
        for split in splits:
            train = resolve.cluster(self._whole, accelerators=split)
            rollout = resolve.cluster(self._whole, accelerators=len_of(self._whole) - split)
            yield from self._pools(train, rollout, staleness, _OWN_MEMORY, colocated=False)

    def _pools(
        self,
        train: resolve.Cluster,
        rollout: resolve.Cluster,
        staleness: Sequence[int],
        share: float,
        *,
        colocated: bool,
    ) -> Iterator[RlEstimate]:
        pools = replace(self._base, train=train, rollout=rollout, memory_share=share)
        for layout in self._layouts_in(rollout):
            for strategy in self._strategies_of(pools):
                for lag in staleness:
                    q = replace(pools, strategy=strategy, layout=layout, staleness=lag)
                    halves = self._learning(q), self._generation(q)
                    yield joined(q, *halves, colocated=colocated, staleness=lag)

    def _learning(self, q: Question) -> Learning:
        key = (len_of(q.train), q.strategy)
        if key not in self._learned:
            self._learned[key] = learned(q)
        return self._learned[key]

    def _generation(self, q: Question) -> Generation:
        key = (len_of(q.rollout), q.layout, q.memory_share, q.staleness)
        if key not in self._generated:
            self._generated[key] = generated(q)
        return self._generated[key]

    def _layouts_in(self, rollout: resolve.Cluster) -> list[_core.ServingLayout]:
        if self._layouts is not None:
            return [one for one in self._layouts if ranks_of(one) <= len_of(rollout)]
        widest = min(int(rollout.core.node_accelerators), len_of(rollout))
        return [_core.ServingLayout(tp=1 << k) for k in range(widest.bit_length())]

    def _strategies_of(self, q: Question) -> Sequence[_core.Strategy]:
        if self._strategies is not None:
            return self._strategies
        key = len_of(q.train)
        if key not in self._found:
            plain = q.step(q.task.batch)
            task = Training(
                global_batch=plain.task.global_batch,
                sequence=plain.task.sequence,
                precision=q.task.precision,
                batch_is_limit=True,
            )
            space = {"micro_batch": [int(plain.strategy.micro_batch)]}
            ranking = search(q.model, q.train, task, space, top=_STRATEGIES, stack=str(q.stack))
            self._found[key] = [one.strategy.replace(dp=0) for one in ranking]
        return self._found[key]
