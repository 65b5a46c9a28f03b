"""How large a cluster a training run needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments, refuse_unknown
from scalemodel.economics.arguments import checked
from scalemodel.economics.run import TrainingRun, training_run
from scalemodel.resolve import cluster as resolve_cluster
from scalemodel.resolve import model as resolve_model
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.search.search import search

if TYPE_CHECKING:
    from scalemodel.resolve import Cluster, Model
    from scalemodel.resolve.tasks import Training
    from scalemodel.search.space import Space

#: Sizes between two powers of two, as fractions of the larger.
_BETWEEN = (0.625, 0.75, 0.875)


def _sizes(most: int) -> Iterator[int]:
    size = 1
    while size <= most:
        yield size
        size *= 2


@named_arguments
def plan_training(
    model: str | Model,
    cluster: str | Cluster,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    tokens: float,
    days: float | None = None,
    budget_usd: float | None = None,
    most_nodes: int = 16384,
    stack: str = DEFAULT_STACK,
    **terms: Any,
) -> TrainingRun:
    """The smallest cluster that trains on a number of tokens in time, with its best strategy.

    Sizes tried are powers of two of nodes and three between the last two. At each the best strategy
    is searched, failures included: beyond some size they cost more than it brings.

    Parameters
    ----------
    model, cluster, task, space, stack
        As of `sm.search`; the number of nodes of `cluster` does not matter. With
        ``task.batch_is_limit`` sizes that do not divide the batch count too.
    tokens : float
    days, budget_usd : float, optional
        What the run may take; at least one.
    most_nodes : int
        The largest cluster to think of.
    **terms
        Further arguments of `sm.training_run`: reliability, price, pue, cap_w, grid...

    Raises
    ------
    ScaleModelError : malformed argument; or no size meets the limits (code
        ``"nothing_feasible"``), and the message names the fastest.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=1024, sequence=8192)
    >>> run = sm.plan_training("llama3_8b", "dgx_h100", task, tokens=1e12, days=60, most_nodes=64)
    >>> run.days <= 60, run.accelerators <= 64
    (True, True)
    """
    refuse_unknown("plan_training", terms, training_run, plan_training)
    limits = {"days": days, "budget_usd": budget_usd}
    if days is None and budget_usd is None:
        raise ScaleModelError(
            "days=None, budget_usd=None: give at least one, a number above 0, such as days=30"
        )
    for name, limit in limits.items():
        if limit is not None:
            checked(name, limit, 1e-9)
    if isinstance(most_nodes, bool) or not isinstance(most_nodes, int) or most_nodes < 1:
        raise ScaleModelError(f"most_nodes={most_nodes!r}: must be a whole number, at least 1")
    trained = checked("tokens", tokens, 1)
    decoder = resolve_model(model)

    def run_on(nodes: int) -> TrainingRun | None:
        found = search(
            decoder, resolve_cluster(cluster, nodes=nodes), task, space, top=1, stack=stack
        )
        return training_run(found[0], tokens=trained, **terms) if len(found) else None

    def meets(run: TrainingRun | None) -> bool:
        if run is None or (days is not None and run.days > days):
            return False
        return budget_usd is None or (run.cost_usd is not None and run.cost_usd <= budget_usd)

    fastest: TrainingRun | None = None
    for nodes in _sizes(most_nodes):
        run = run_on(nodes)
        if run is not None and (fastest is None or run.time_s < fastest.time_s):
            fastest = run
        if not meets(run):
            continue
        for fraction in _BETWEEN:
            smaller = run_on(int(fraction * nodes)) if nodes >= 8 else None
            if smaller is not None and meets(smaller):
                return smaller
        assert run is not None
        return run
    asked = ", ".join(f"{name}={limit!r}" for name, limit in limits.items() if limit is not None)
    best = "no strategy fits" if fastest is None else f"the fastest is {fastest!r}"
    raise ScaleModelError(
        f"{asked}: no cluster of up to {most_nodes} nodes meets this; {best}",
        code="nothing_feasible",
    )
