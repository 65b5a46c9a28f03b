"""Published accelerator hours of LLaMA and Llama 2, predicted, beside MAD-Max's prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.tasks import Training
from scalemodel.search.search import search
from scalemodel.studies.madmax_original import ask, step

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RUNS", "STACKS", "Run", "pretraining_hours"]


@dataclass(frozen=True)
class Run:
    """A published run: its model, its sequences, and MAD-Max's copy of the model."""

    model: str
    sequence: int
    original: str


RUNS: dict[str, Run] = {
    "llama_65b": Run("llama_65b", 2048, "llm/llama_65b"),
    "llama2_70b": Run("llama2_70b", 4096, "llm/llama2_70b"),
}

#: Software to assume, which the papers do not name: of the time first, then newer.
STACKS = ("megatron_lm_2021_22", "llama_fsdp_2024", "plain")


def _of_original(run: Run, accelerators: int) -> float:
    """Tokens per second by MAD-Max's formulas, fully sharded, a sequence each."""
    found = step(ask(run.original, "dc_A/dc_A", accelerators, f"fsdp@{accelerators}", accelerators))
    return accelerators * run.sequence / found.step_s


def _searched(run: Run, stack: str, accelerators: int, batch_tokens: float) -> tuple[float, str]:
    """Tokens per second of the fastest strategy, and the strategy."""
    cluster = resolve.cluster("meta_rsc_1", accelerators=accelerators)
    task = Training(global_batch=round(batch_tokens / run.sequence), sequence=run.sequence)
    best = search(run.model, cluster, task, stack=stack, top=1, progress=False)[0]
    return float(best.core.tokens_per_s), str(best.strategy)


def pretraining_hours(
    names: Sequence[str] | None = None, *, stacks: Sequence[str] = STACKS
) -> pd.DataFrame:
    """Accelerator hours of whole pre-trainings on 2,048 A100 of 80 GB.

    Parameters
    ----------
    names : sequence of str, optional
        Of `RUNS`; default: all.
    stacks : sequence of str
        Of the catalogue.

    Returns
    -------
    DataFrame, one row per run and predictor
        Columns name, predictor (a stack, or ``"MAD-Max"``), strategy,
        ``tokens_per_s_per_accelerator``, ``accelerator_hours``, ``published_hours``,
        ``error_fraction`` (predicted over published, less one).

    Raises
    ------
    ScaleModelError : a name is not in `RUNS`, or a stack not in the catalogue.

    Examples
    --------
    >>> table = pretraining_hours(["llama_65b"], stacks=["megatron_lm_2021_22"])
    >>> bool(abs(table.error_fraction.iloc[0]) < 0.1)
    True
    """
    import pandas as pd

    numbers = Reader(catalog.load("reference", "cited_runs")["llama"], "reference/cited_runs.llama")
    accelerators = int(numbers.number("accelerators"))
    rows = []
    for name in RUNS if names is None else names:
        if name not in RUNS:
            raise ScaleModelError(f"names: {name!r}: must be of {', '.join(map(repr, RUNS))}")
        tokens, published = numbers.number(f"{name}_tokens"), numbers.number(f"{name}_hours")
        found = [
            (stack, *_searched(RUNS[name], stack, accelerators, numbers.number("batch_tokens")))
            for stack in stacks
        ]
        found.append(("MAD-Max", _of_original(RUNS[name], accelerators), "fsdp"))
        for predictor, rate, strategy in found:
            hours = tokens / rate * accelerators / 3600
            row = (name, predictor, strategy, rate / accelerators, hours, published)
            rows.append((*row, hours / published - 1))
    columns = ["name", "predictor", "strategy", "tokens_per_s_per_accelerator"]
    columns += ["accelerator_hours", "published_hours", "error_fraction"]
    return pd.DataFrame(rows, columns=columns)
