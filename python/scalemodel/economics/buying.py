"""Clusters compared for one job, at prices of one basis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments, refuse_unknown
from scalemodel.economics.arguments import checked
from scalemodel.economics.plan import plan_training
from scalemodel.economics.run import TrainingRun, price_on, training_run
from scalemodel.resolve import Cluster
from scalemodel.resolve import cluster as resolve_cluster
from scalemodel.resolve import model as resolve_model
from scalemodel.resolve.prices import USUAL, Price
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.search.search import search

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Model
    from scalemodel.resolve.tasks import Training
    from scalemodel.search.space import Space

#: Prices per accelerator-hour: one for all, or by name of cluster.
Prices: TypeAlias = str | float | Mapping[str, str | float] | None
Clusters: TypeAlias = Iterable[str | Path | Cluster] | Mapping[str, str | Path | Cluster]

_COLUMNS: Final = (
    "cluster",
    "accelerator",
    "accelerators",
    "verdict",
    "step_time_s",
    "time_s",
    "time_low_s",
    "time_high_s",
    "energy_j",
    "price_usd_per_hour",
    "seller",
    "terms",
    "date",
    "price",
    "cost_usd",
    "usd_per_million_tokens",
    "break_even_usd_per_hour",
)


def break_even_usd_per_hour(run: TrainingRun, other: TrainingRun) -> float | None:
    """The price per accelerator-hour at which a run costs what another one costs.

    Parameters
    ----------
    run, other : TrainingRun
        Of as many tokens. The first needs no price.

    Returns
    -------
    float or None
        None where the other one has no cost.

    Raises
    ------
    ScaleModelError : the runs train on different numbers of tokens.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> h100, b200 = (sm.training_run(sm.estimate("llama3_8b", name, task, sm.Strategy(tp=2)),
    ...                               tokens=1e12) for name in ("dgx_h100", "dgx_b200"))
    >>> price = break_even_usd_per_hour(b200, h100)
    >>> again = sm.training_run(b200.estimate, tokens=1e12, price=price)
    >>> bool(abs(again.cost_usd / h100.cost_usd - 1) < 1e-9)
    True
    """
    if abs(run.tokens / other.tokens - 1) > 1e-6:
        raise ScaleModelError(
            f"run.tokens={run.tokens:.6g}, other.tokens={other.tokens:.6g}: must be the same job; "
            "give both runs the same tokens"
        )
    return None if other.cost_usd is None else other.cost_usd / run.accelerator_hours


@dataclass(frozen=True)
class ClusterComparison:
    """What one job takes on each of several clusters. Made by `compare_clusters`.

    Attributes
    ----------
    basis : str
        What the prices have in common.
    runs : mapping of str to TrainingRun
        By name of the cluster, the cheapest first, those without a price last.
    left_out : mapping of str to str
        Why the other clusters have no run.
    prices : mapping of str to Price or None
    """

    basis: str
    runs: Mapping[str, TrainingRun]
    left_out: Mapping[str, str]
    prices: Mapping[str, Price | None]

    @property
    def cheapest(self) -> TrainingRun | None:
        """The run of least cost; None where no cluster has a price."""
        return next((run for run in self.runs.values() if run.cost_usd is not None), None)

    @property
    def table(self) -> pd.DataFrame:
        """One row per cluster, the cheapest first.

        Returns
        -------
        DataFrame
            Columns cluster, accelerator, accelerators, verdict (why there is no run),
            step_time_s, time_s, time_low_s, time_high_s, energy_j, price_usd_per_hour, seller,
            terms, date, price (its entry, or what to pass), cost_usd, usd_per_million_tokens,
            break_even_usd_per_hour (the price at which the row costs what the cheapest does).
        """
        import pandas as pd

        rows = [self._row(name, run) for name, run in self.runs.items()]
        rows += [{"cluster": name, "verdict": why} for name, why in self.left_out.items()]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def _row(self, name: str, run: TrainingRun) -> dict[str, Any]:
        price, best = self.prices[name], self.cheapest
        numbers = run.to_dict()
        found = {column: numbers[column] for column in _COLUMNS if column in numbers}
        terms = price.terms if price else ""
        return found | {
            "cluster": name,
            "accelerator": run.estimate.cluster.accelerator,
            "verdict": run.estimate.verdict,
            "step_time_s": run.estimate.step_time_s,
            "seller": price.seller if price else "",
            "terms": terms or (price.source if price else ""),
            "date": price.date if price else "",
            "price": price.source if price else run.price_source,
            "break_even_usd_per_hour": break_even_usd_per_hour(run, best) if best else None,
        }

    def break_even(self, name: str, other: str) -> float | None:
        """The price per accelerator-hour at which a cluster costs what another one does."""
        for argument, given in (("name", name), ("other", other)):
            if given not in self.runs:
                known = ", ".join(self.runs)
                raise ScaleModelError(f"{argument}={given!r}: has no run here; known: {known}")
        return break_even_usd_per_hour(self.runs[name], self.runs[other])

    def __str__(self) -> str:
        from scalemodel.base.text import money_text

        lines = [f"prices: {self.basis}"]
        best = self.cheapest
        for name, run in self.runs.items():
            size = f"{run.accelerators:,} × {run.estimate.cluster.accelerator}"
            cost = f"no cost: {run.price_source}"
            if run.cost_usd is not None:
                cost = f"{money_text(run.cost_usd)} at {run.price_source}"
            even = break_even_usd_per_hour(run, best) if best not in (None, run) else None
            cheap = f"; as cheap as the first at {even:.2f} USD/h" if even else ""
            lines.append(f"{name}: {size}, {run.days:.3g} days, {cost}{cheap}")
        lines += [f"{name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.table.to_html(index=False, na_rep="")


def _named(clusters: Clusters) -> dict[str, Cluster]:
    """Clusters by name; two of one name are told apart by their size."""
    if isinstance(clusters, (str, Path, Cluster)):
        clusters = [clusters]
    if isinstance(clusters, Mapping):
        return {plain(name): resolve_cluster(each) for name, each in clusters.items()}
    if not isinstance(clusters, Iterable):
        raise ScaleModelError(
            f"clusters={clusters!r}: must be a list of clusters, such as ['dgx_h100', 'dgx_b200']"
        )
    listed = [resolve_cluster(each) for each in clusters]
    names = [each.name for each in listed]
    found: dict[str, Cluster] = {}
    for each in listed:
        size = f" x {each.accelerators}" if names.count(each.name) > 1 else ""
        found[f"{each.name}{size}"] = each
    return found


def price_for(prices: Prices, name: str, cluster: Cluster) -> str | float | None:
    """What was given as the price of one cluster.

    Examples
    --------
    >>> import scalemodel as sm
    >>> price_for({"dgx_h100": 2.5, "dgx_b200": "spot"}, "here", sm.cluster("dgx_b200"))
    'spot'
    """
    if not isinstance(prices, Mapping):
        return prices
    for key in (name, cluster.name, cluster.accelerator):
        if key in prices:
            return prices[key]
    raise ScaleModelError(
        f"price={dict(prices)!r}: must name every cluster; {name} is missing, so add "
        f"{name!r}: USD per accelerator-hour"
    )


def _basis(prices: Prices, found: Iterable[Price | None]) -> str:
    if isinstance(prices, str):
        return prices.replace("_", " ")
    if isinstance(prices, Mapping):
        return "as given for each cluster"
    if prices is not None:
        return f"{prices:g} USD per accelerator-hour for all"
    bases = sorted({each.basis or each.source for each in found if each is not None})
    told = " and ".join(bases).replace("_", " ")
    return f"{told}: not one basis" if len(bases) > 1 else told


@named_arguments
def compare_clusters(
    model: str | Model,
    clusters: Clusters,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    tokens: float,
    price: Prices = USUAL[0],
    days: float | None = None,
    most_nodes: int = 16384,
    stack: str = DEFAULT_STACK,
    **terms: Any,
) -> ClusterComparison:
    """What one training run costs on each of several clusters, at prices of one basis.

    Parameters
    ----------
    model, task, space, stack
        As of `sm.search`: every cluster gets its best strategy.
    clusters : iterable or mapping of name to cluster
        Anything `sm.cluster` takes, in the sizes to compare.
    tokens : float
        To train on.
    price : str, float or mapping
        One basis for all: a kind of seller and terms (``"neocloud_on_demand"``,
        ``"hyperscaler_on_demand"``, ``"hyperscaler_reserved"``, ``"spot"``), or a seller
        (``"CoreWeave"``, ``"AWS reserved"``); or USD per accelerator-hour; or a price for each name
        of a cluster, such as ``economics.owned_price_usd_per_hour`` makes for machines of one's
        own. None: each cluster's own price.
    days : float, optional
        Size each cluster to finish in time, as `sm.plan_training` does.
    most_nodes : int
        The largest size with `days`.
    **terms
        Further arguments of `sm.training_run`: reliability, grid, pue, cap_w...

    Raises
    ------
    ScaleModelError : malformed argument, an unknown basis, a cluster without its price in the
        mapping.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=512, sequence=8192)
    >>> sizes = [sm.cluster("dgx_h100", nodes=8), sm.cluster("dgx_b200", nodes=4)]
    >>> found = sm.compare_clusters("llama3_8b", sizes, task, tokens=1e12, price="CoreWeave")
    >>> found.table.price.tolist()
    ['coreweave_b200_2026_05', 'coreweave_h100_2026_03']
    >>> even = found.break_even("dgx_b200", "dgx_h100")
    >>> bool(8.6 < even < 20)
    True
    """
    refuse_unknown("compare_clusters", terms, training_run, compare_clusters)
    trained = checked("tokens", tokens, 1)
    decoder, named = resolve_model(model), _named(clusters)
    if not named:
        raise ScaleModelError("clusters=[]: at least one is needed, such as ['dgx_h100']")
    given = {name: price_for(price, name, each) for name, each in named.items()}
    prices = {name: price_on(each, given[name]) for name, each in named.items()}
    runs: dict[str, TrainingRun] = {}
    left_out: dict[str, str] = {}
    for name, each in named.items():
        asked: dict[str, Any] = {"tokens": trained, **terms, "price": given[name]}
        try:
            if days is not None:
                sized: dict[str, Any] = {"days": days, "most_nodes": most_nodes, "stack": stack}
                runs[name] = plan_training(decoder, each, task, space, **sized, **asked)
                continue
            found = search(decoder, each, task, space, top=1, stack=stack)
            if len(found):
                runs[name] = training_run(found[0], **asked)
            else:
                left_out[name] = f"no strategy fits on {each.accelerators} accelerators"
        except ScaleModelError as error:
            if error.code != "nothing_feasible":
                raise
            left_out[name] = str(error)
    order = sorted(runs, key=lambda name: (runs[name].cost_usd is None, runs[name].cost_usd or 0))
    return ClusterComparison(
        _basis(price, prices.values()), {name: runs[name] for name in order}, left_out, prices
    )
