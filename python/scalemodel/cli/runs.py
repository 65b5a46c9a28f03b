"""The whole training run behind an estimate: what ``--tokens`` adds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import number
from scalemodel.cli.output import report

if TYPE_CHECKING:
    from scalemodel.economics import TrainingRun
    from scalemodel.estimator.estimate import Estimate


def add_run(parser: argparse.ArgumentParser) -> None:
    """Options of a whole run."""
    run = parser.add_argument_group("whole run (with --tokens)")
    run.add_argument("--tokens", type=number, metavar="N", help="tokens to train on")
    run.add_argument("--failures", metavar="NAME|N", help="per node-day (default: llama_3)")
    run.add_argument(
        "--price",
        metavar="BASIS|NAME|N",
        help="basis such as neocloud_on_demand, spot or a seller, list price, or USD per "
        "accelerator-hour",
    )
    run.add_argument(
        "--grid", metavar="NAME|N", help="country in three letters, or g of CO2e per kWh"
    )
    run.add_argument("--pue", metavar="NAME|N", help="operator, or facility over equipment power")
    run.add_argument("--cap-w", type=number, metavar="W", help="power limit of an accelerator")


def number_or_name(text: str) -> str | float:
    """A number where the text is one, else the text.

    Examples
    --------
    >>> number_or_name("2.5"), number_or_name("spot")
    (2.5, 'spot')
    """
    try:
        return float(text)
    except ValueError:
        return text


def options_given(options: argparse.Namespace) -> list[str]:
    """Options of a whole run that are there."""
    names = ("failures", "price", "grid", "pue", "cap_w")
    return [name for name in names if getattr(options, name) is not None]


def run_of(options: argparse.Namespace, est: Estimate) -> TrainingRun | None:
    """The run asked for; None without ``--tokens`` or where the strategy does not fit."""
    named = {"reliability": "failures", "price": "price", "grid": "grid", "pue": "pue"}
    given = {
        argument: number_or_name(value)
        for argument, option in named.items()
        if (value := getattr(options, option)) is not None
    }
    if options.cap_w is not None:
        given["cap_w"] = options.cap_w
    if options.tokens is None:
        if given:
            stray = ", ".join(f"--{name.replace('_', '-')}" for name in options_given(options))
            raise ScaleModelError(
                f"{stray}: need --tokens, for they are of a whole run; add --tokens N, such as 1e12"
            )
        return None
    if not est.fits:
        if not est.illegal:  # what it lacks is printed with the estimate
            report("warning", f"--tokens {options.tokens:g}: no run, for the strategy does not fit")
        return None
    from scalemodel.economics import training_run

    arguments: dict[str, Any] = {"tokens": options.tokens, **given}
    return training_run(est, **arguments)


def run_text(run: TrainingRun) -> str:
    """One line for a terminal."""
    from scalemodel.base.text import count_text, money_text, percent_text

    between = ""
    if run.time_low_s is not None and run.time_high_s is not None:
        between = f" ({run.time_low_s / 86400:.3g} to {run.time_high_s / 86400:.3g})"
    parts = [
        f"run     {count_text(run.tokens)} tokens in {run.days:.3g}{between} days",
        f"productive {percent_text(run.ettr_fraction)}, {run.failures:.3g} failures",
        f"{count_text(run.energy_j / 3600)}Wh",
    ]
    cost = "no cost: " if run.cost_usd is None else f"{money_text(run.cost_usd)} at "
    parts.append(f"{cost}{run.price_source}")
    parts.append(f"{(run.operational_kg + run.embodied_kg) / 1e3:,.3g} t CO2e")
    return "   ".join(parts)
