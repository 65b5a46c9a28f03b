"""The model and the data that a budget of work, energy or money trains best."""

from __future__ import annotations

from typing import NamedTuple

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked, fitting_estimate, one_of
from scalemodel.economics.run import price_of
from scalemodel.estimator.estimate import Estimate
from scalemodel.resolve.prices import no_price
from scalemodel.resolve.reader import Reader


class ComputeOptimal(NamedTuple):
    """A split of a budget.

    Attributes
    ----------
    parameters, tokens : float
    flop : float
        Work of the run, 6 parameters tokens.
    loss : float
        Predicted by the fitted law, whichever rule split the budget.
    """

    parameters: float
    tokens: float
    flop: float
    loss: float


def loss_law() -> _core.LossLaw:
    """The fitted law of the catalogue."""
    reader = Reader(
        catalog.load("reference", "scaling_laws")["chinchilla"], "reference/scaling_laws.chinchilla"
    )
    names = ("irreducible", "model_scale", "model_exponent", "data_scale", "data_exponent")
    return _core.LossLaw(**{name: reader.number(name) for name in names})


def _flop(
    est: Estimate | None,
    energy_j: float | None,
    budget_usd: float | None,
    price: str | float | None,
) -> float:
    if est is None:
        raise ScaleModelError("est=None: energy and money need an estimate")
    est = fitting_estimate(est)
    cluster = est.cluster
    peaks = dict(zip(_core.precisions(), cluster.core.accelerator.peak_flop_per_s, strict=True))
    rate = est.mfu_fraction * cluster.accelerators * peaks[est.task.precision]
    if energy_j is not None:
        power_w = est.energy_j / est.step_time_s
        return float(_core.flop_for_energy(checked("energy_j", energy_j, 1), rate, power_w))
    price_per_s = price_of(cluster, price)
    if not price_per_s:
        raise ScaleModelError(f"price={price!r}: {no_price(cluster.accelerator)}")
    whole = cluster.accelerators * price_per_s
    return float(_core.flop_for_money(checked("budget_usd", budget_usd, 1e-6), rate, whole))


@named_arguments
def compute_optimal(
    *,
    flop: float | None = None,
    energy_j: float | None = None,
    budget_usd: float | None = None,
    est: Estimate | None = None,
    price: str | float | None = None,
    tokens_per_parameter: float | None = None,
) -> ComputeOptimal:
    """The model size and the tokens of least loss for a budget.

    Parameters
    ----------
    flop, energy_j, budget_usd : float
        Exactly one: work, energy at the facility's meter, or money.
    est : Estimate, optional
        Whose rate, power and price turn energy and money into work.
    price : str or float, optional
        As of `training_run`.
    tokens_per_parameter : float, optional
        Split at this ratio (20 is usual) instead of by the fitted law. The two disagree: for
        5.76e23 flop the law prefers 32e9 parameters, the ratio 69e9.

    Raises
    ------
    ScaleModelError : not exactly one budget, or no estimate for it.

    Examples
    --------
    >>> best = compute_optimal(flop=5.76e23)
    >>> f"{best.parameters:.2g} {best.tokens:.2g}"
    '3.2e+10 3e+12'
    >>> f"{compute_optimal(flop=5.76e23, tokens_per_parameter=20).parameters:.2g}"
    '6.9e+10'
    """
    if one_of(flop=flop, energy_j=energy_j, budget_usd=budget_usd) == "flop":
        work = checked("flop", flop, 1)
    else:
        work = _flop(est, energy_j, budget_usd, price)
    law = loss_law()
    if tokens_per_parameter is None:
        parameters, tokens = _core.least_loss_split(law, work)
    else:
        ratio = checked("tokens_per_parameter", tokens_per_parameter, 1e-6)
        parameters, tokens = _core.fixed_ratio_split(ratio, work)
    return ComputeOptimal(parameters, tokens, work, _core.loss(law, parameters, tokens))
