"""A whole training run: days, energy, carbon and money, failures included."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.economics import carbon
from scalemodel.economics.arguments import checked, fitting_estimate, one_of
from scalemodel.economics.caps import capped_step
from scalemodel.economics.failures import Reliability, nodes_of
from scalemodel.economics.failures import reliability as reliability_of
from scalemodel.estimator.estimate import Estimate
from scalemodel.resolve.prices import (
    Price,
    entry_price,
    is_basis,
    list_price,
    no_price,
    unknown_basis,
)

if TYPE_CHECKING:
    from scalemodel.post_training.answer import PhasedStep
    from scalemodel.resolve import Cluster

_DAY_S, _HOUR_S = 86400.0, 3600.0
#: Share of simulated runs between the ends of their interval, as of step times.
_COVERED_FRACTION = 0.8
_SIMULATED_RUNS = 200
_MANY_FAILURES = 20_000
#: Rounding of a run that is exactly one step long.
_LEAST_STEPS = 1 - 1e-9


@dataclass(frozen=True)
class TrainingRun:
    """What it takes to train on a number of tokens. Made by `training_run` and `plan_training`.

    Attributes
    ----------
    estimate : Estimate
        Of one step.
    reliability : Reliability
    tokens, time_s, accelerators, accelerator_hours : float
        Calendar time, failures and checkpoints included.
    time_low_s, time_high_s : float or None
        Between which the time lies four times in five: the interval of the step time and the
        chance of failures together.
    ettr_fraction, goodput_tokens_per_s, failures : float
        Productive share of the time, tokens per second that last, expected interruptions.
    power_w, energy_j : float
        Of the facility. Time lost to failures is taken to draw what training draws.
    price_usd_per_hour, cost_usd, usd_per_million_tokens : float or None
        Per accelerator; None without a price.
    price_source : str
        The price with its seller, terms and date, or what to pass where there is none.
    operational_kg, embodied_kg : float
        CO2e of the energy, and of making the machines in proportion to their use.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> run = sm.training_run(est, tokens=1e12)
    >>> run.time_low_s < run.time_s < run.time_high_s
    True
    """

    estimate: Estimate
    reliability: Reliability
    tokens: float
    time_s: float
    time_low_s: float | None
    time_high_s: float | None
    accelerators: int
    accelerator_hours: float
    ettr_fraction: float
    goodput_tokens_per_s: float
    failures: float
    power_w: float
    energy_j: float
    price_usd_per_hour: float | None
    price_source: str
    cost_usd: float | None
    usd_per_million_tokens: float | None
    operational_kg: float
    embodied_kg: float

    @property
    def days(self) -> float:
        """Calendar days."""
        return self.time_s / _DAY_S

    def to_dict(self) -> dict[str, Any]:
        """Every number by name, and the days.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> sorted(training_run(est, tokens=1e9).to_dict())[:3]
        ['accelerator_hours', 'accelerators', 'cost_usd']
        """
        numbers = [
            item.name for item in fields(self) if item.name not in ("estimate", "reliability")
        ]
        return {"days": self.days, **{name: getattr(self, name) for name in numbers}}

    def __repr__(self) -> str:
        between = ""
        if self.time_low_s is not None and self.time_high_s is not None:
            between = f" ({self.time_low_s / _DAY_S:.4g} to {self.time_high_s / _DAY_S:.4g})"
        money = f", no cost: {self.price_source}"
        if self.cost_usd is not None:
            money = f", {self.cost_usd:.4g} USD at {self.price_source}"
        return (
            f"TrainingRun({self.tokens:.4g} tokens on {self.accelerators} accelerators in "
            f"{self.days:.4g}{between} days, {self.energy_j / 3.6e9:.4g} MWh{money}, "
            f"{(self.operational_kg + self.embodied_kg) / 1e3:.4g} t CO2e)"
        )


class OwnedPrice(float):
    """USD per accelerator-hour of a machine of one's own, and what it is made of."""

    terms: str

    def __new__(cls, usd_per_hour: float, terms: str) -> OwnedPrice:
        """A price that tells its terms."""
        made = super().__new__(cls, usd_per_hour)
        made.terms = terms
        return made

    def __getnewargs__(self) -> tuple[float, str]:  # type: ignore[override]
        return float(self), self.terms


def price_on(cluster: Cluster, price: str | float | None) -> Price | None:
    """The price of an accelerator of a cluster; None where none is known.

    Parameters
    ----------
    cluster : Cluster
    price : str or float, optional
        USD per accelerator-hour, a list price of the catalogue, or a basis: a kind of seller and
        terms (``"neocloud_on_demand"``, ``"hyperscaler_reserved"``, ``"spot"``), or a seller
        (``"CoreWeave"``, ``"AWS reserved"``). Default: the cluster's own.

    Examples
    --------
    >>> import scalemodel as sm
    >>> str(price_on(sm.cluster("dgx_b200"), "AWS"))
    '14.24 USD/h (AWS, on demand, 2026-07)'
    """
    if price is None:
        return cluster.price
    if isinstance(price, str):
        if is_basis(price):
            return list_price(cluster.accelerator, price)
        try:
            listed = entry_price(catalog.find("prices", price))
        except ScaleModelError:
            raise unknown_basis(price) from None
        accelerator = catalog.load("prices", listed.source)["accelerator"]
        if accelerator != cluster.accelerator:
            raise ScaleModelError(
                f"price={price!r}: is of {accelerator}, not of {cluster.accelerator}; pass a price "
                f"of {cluster.accelerator}, a basis such as 'spot', or USD per accelerator-hour"
            )
        return listed
    terms = price.terms if isinstance(price, OwnedPrice) else "as given"
    return Price(checked("price", price, 0, 1e6) / _HOUR_S, terms)


def price_of(cluster: Cluster, price: str | float | None) -> float | None:
    """USD per accelerator and second: as `price_on`, without its source.

    Examples
    --------
    >>> import scalemodel as sm
    >>> round(3600 * price_of(sm.cluster("dgx_h100"), "aws_p5_2025_06"), 2)
    6.88
    """
    found = price_on(cluster, price)
    return found.usd_per_s if found else None


def owned_price_usd_per_hour(
    cluster: Cluster,
    *,
    capital_usd: float,
    years: float | None = None,
    utilisation_fraction: float | None = None,
    usd_per_kwh: float = 0.1,
    power_w: float | None = None,
) -> OwnedPrice:
    """What an owned accelerator costs per hour of use: its capital and its electricity.

    The capital is written off evenly over the hours that it is used in its life; power counts with
    the PUE of the facility. Both as `sm.training_run` and `sm.compare_clusters` take a price.

    Parameters
    ----------
    cluster : Cluster
        Its PUE, its hosts.
    capital_usd : float
        Of one accelerator with its share of node, network and building.
    years, utilisation_fraction : float, optional
        Life, and the share of it that is used. Default: 4 years, 0.8.
    usd_per_kwh : float
    power_w : float, optional
        Of one accelerator while used. Default: its power while computing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> 1 < owned_price_usd_per_hour(sm.cluster("dgx_h100"), capital_usd=40_000) < 3
    True
    """
    core = cluster.core
    usual_s, used = carbon.life_s()
    life_s = usual_s if years is None else checked("years", years, 0.01, 100) * 365.25 * _DAY_S
    if utilisation_fraction is not None:
        used = checked("utilisation_fraction", utilisation_fraction, 1e-3, 1)
    phases = core.accelerator.power
    own_w = phases.compute_fraction * phases.limit_w
    if power_w is not None:
        own_w = checked("power_w", power_w, 0, 1e6)
    node_w = _core.node_power_w(own_w, core.node_accelerators, core.host_power_w)
    usd_per_s = _core.owned_price_usd_per_s(
        checked("capital_usd", capital_usd, 0),
        life_s,
        used,
        node_w / core.node_accelerators,
        core.pue,
        checked("usd_per_kwh", usd_per_kwh, 0),
    )
    terms = (
        f"owned: {capital_usd:,.0f} USD over {life_s / _DAY_S / 365.25:.3g} years, {used:.0%} "
        f"used, {usd_per_kwh:.3g} USD/kWh, PUE {core.pue:.3g}"
    )
    return OwnedPrice(_HOUR_S * float(usd_per_s), terms)


@lru_cache(maxsize=256)
def _spread(job: Reliability, work_s: float) -> tuple[float, float]:
    """Ends of the interval of the time of a run over its mean, by simulated failures."""
    if work_s > _MANY_FAILURES * job.ettr_fraction * job.mttf_s:
        return 1.0, 1.0  # their number spreads by less than a percent
    times = job.simulate(work_s, runs=_SIMULATED_RUNS)["time_s"]
    tail = (1 - _COVERED_FRACTION) / 2
    return tuple(times.quantile([tail, 1 - tail]) / times.mean())  # type: ignore[return-value]


def bounds(
    est: Estimate | PhasedStep, job: Reliability, time_s: float
) -> tuple[float, float] | tuple[None, None]:
    """Ends of the time of a run, by those of its step and by how failures fall."""
    interval = est.interval()
    if interval is None:
        return None, None
    low, high = _spread(job, time_s * job.ettr_fraction)
    step_s = est.step_time_s
    return (
        time_s / _core.joint_factor(step_s / interval.low_s, 1 / low),
        time_s * _core.joint_factor(interval.high_s / step_s, high),
    )


class _Rate(NamedTuple):
    """Tokens and joules of a step as it runs, under a power limit too."""

    step_time_s: float
    step_j: float
    tokens_per_s: float


def _rate(est: Estimate, cap_w: float | None, pue: float, network_w: float) -> _Rate:
    core = est.cluster.core
    step = capped_step(est, cap_w)
    wires_w = core.node_accelerators * checked("network_w", network_w, 0)
    step_j = _core.facility_energy_j(
        step.time_s,
        step.power_w,
        core.accelerators,
        core.host_power_w + wires_w,
        nodes_of(est.cluster),
        pue,
    )
    return _Rate(step.time_s, step_j, est.tokens_per_s * (est.step_time_s / step.time_s))


def _time_s(
    wanted: str,
    amount: float,
    rate: _Rate,
    ettr_fraction: float,
    cluster: Cluster,
    price_usd_per_s: float | None,
) -> float:
    """Time of a run with a goal in tokens, or with a budget."""
    if wanted == "tokens":
        return float(_core.training_time_s(amount, rate.tokens_per_s, ettr_fraction))
    if wanted == "days":
        return amount * _DAY_S
    if wanted == "energy_j":
        return amount / rate.step_j * rate.step_time_s
    if not price_usd_per_s:
        raise ScaleModelError(f"budget_usd={amount!r}: {no_price(cluster.accelerator)}")
    return amount / float(_core.rental_cost_usd(1.0, cluster.accelerators, price_usd_per_s))


def without_price(cluster: Cluster, price: str | float | None) -> str:
    """What to pass where an accelerator has no price."""
    return no_price(cluster.accelerator, price if isinstance(price, str) else None)


def _too_short(wanted: str, amount: float, est: Estimate, rate: _Rate) -> ScaleModelError:
    """The error of a run that ends before its first step: a prefix was forgotten."""
    step = f"{rate.step_time_s:.3g} s, {est.task.global_batch * est.task.sequence:,} tokens"
    return ScaleModelError(
        f"{wanted}={amount:g}: is less than one step ({step}); must be at least that"
        + (f"; did you mean tokens={amount:g}e12?" if wanted == "tokens" and amount < 1e4 else "")
    )


@named_arguments
def training_run(
    est: Estimate,
    *,
    tokens: float | None = None,
    days: float | None = None,
    budget_usd: float | None = None,
    energy_j: float | None = None,
    reliability: Reliability | str | float = "llama_3",
    price: str | float | None = None,
    grid: str | float = "world",
    pue: str | float | None = None,
    cap_w: float | None = None,
    network_w: float = 0.0,
    embodied_kg: float | None = None,
) -> TrainingRun:
    """What a training run takes: days, energy, money and carbon, failures included.

    Parameters
    ----------
    est : Estimate
        Of one step.
    tokens, days, budget_usd, energy_j : float
        Exactly one: the tokens to train on, or what they may take at most.
    reliability : Reliability, str or float
        Made by `sm.reliability`, or failures per node-day or the name of a preset. 0: none.
    price : str or float, optional
        USD per accelerator-hour, a list price of the catalogue, or a basis: a kind of seller and
        terms (``"neocloud_on_demand"``, ``"hyperscaler_reserved"``, ``"spot"``) or a seller
        (``"CoreWeave"``). Default: the cluster's.
    grid : str or float
        Country in three letters (ISO 3166: ``"fra"``), ``"world"`` or a cloud region of the
        catalogue, or g of CO2e per kWh.
    pue : str or float, optional
        Operator of the catalogue, or a number. Default: the cluster's.
    cap_w : float, optional
        Power limit of each accelerator, below its own: slower and more frugal.
    network_w : float
        Of switches and optics per accelerator, which no host accounts for. Little is published: at
        most 116 W on 512 H100 (MLPerf Training v4.0 logs, unit unstated).
    embodied_kg : float, optional
        CO2e of making one accelerator with its share of the node. Default: from its parts, a lower
        bound.

    Raises
    ------
    ScaleModelError : the strategy cannot run or does not fit, the run is shorter than a step, or an
        argument is malformed.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=1024, sequence=8192)
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=64), task,
    ...                   sm.Strategy(tp=4, cp=2, pp=4, vpp=5))
    >>> run = sm.training_run(est, tokens=1e12, grid="usa", price=2.5)
    >>> 10 < run.days < 40, run.time_low_s < run.time_s < run.time_high_s
    (True, True)
    >>> month = sm.training_run(est, days=30)
    >>> round(month.days, 6)
    30.0
    """
    est = fitting_estimate(est)
    wants = {"tokens": tokens, "days": days, "budget_usd": budget_usd, "energy_j": energy_j}
    wanted = one_of(**wants)
    amount = checked(wanted, wants[wanted], 1e-9)
    cluster = est.cluster
    job = reliability
    if not isinstance(job, Reliability):
        job = reliability_of(est, failures=job)
    ettr = job.ettr_fraction
    if ettr <= 0:
        raise ScaleModelError(f"reliability={job!r}: no run of this kind makes progress")
    rate = _rate(est, cap_w, cluster.core.pue if pue is None else carbon.pue_of(pue), network_w)
    found = price_on(cluster, price)
    price_per_s = found.usd_per_s if found else None
    time_s = _time_s(wanted, amount, rate, ettr, cluster, price_per_s)
    if time_s * ettr < rate.step_time_s * _LEAST_STEPS:
        raise _too_short(wanted, amount, est, rate)
    trained = _core.tokens_in(time_s, rate.tokens_per_s, ettr)
    low_s, high_s = bounds(est, job, time_s)
    cost = None
    if price_per_s is not None:
        cost = _core.rental_cost_usd(time_s, cluster.accelerators, price_per_s)
    energy = _core.energy_over_run_j(rate.step_j, rate.step_time_s, time_s)
    made_kg = carbon.embodied_kg(cluster) if embodied_kg is None else embodied_kg
    life_s, used = carbon.life_s()
    return TrainingRun(
        estimate=est,
        reliability=job,
        tokens=trained,
        time_s=time_s,
        time_low_s=low_s,
        time_high_s=high_s,
        accelerators=cluster.accelerators,
        accelerator_hours=cluster.accelerators * time_s / _HOUR_S,
        ettr_fraction=ettr,
        goodput_tokens_per_s=_core.goodput(rate.tokens_per_s, ettr),
        failures=time_s / job.mttf_s,
        power_w=rate.step_j / rate.step_time_s,
        energy_j=energy,
        price_usd_per_hour=None if price_per_s is None else _HOUR_S * price_per_s,
        price_source=str(found) if found else without_price(cluster, price),
        cost_usd=cost,
        usd_per_million_tokens=None if cost is None else 1e6 * cost / trained,
        operational_kg=_core.operational_kg(energy, carbon.grid_g_per_kwh(grid)),
        embodied_kg=cluster.accelerators
        * _core.amortised(checked("embodied_kg", made_kg, 0), time_s, life_s, used),
    )
