"""Benchmarks of serving beside their predictions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import percent_text
from scalemodel.base.words import named_arguments
from scalemodel.interop.benchmarks.formats import read_bench
from scalemodel.interop.benchmarks.prediction import (
    Prediction,
    measured_values,
    percentiles,
    predict,
    task_of,
)
from scalemodel.interop.benchmarks.record import BenchRun
from scalemodel.interop.benchmarks.suspects import BenchSuspect, shown, supposed
from scalemodel.resolve.engines import engine_for
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd

_NORMAL: Final = 1.96  # standard errors, for 95 of 100 means
_ENGINES: Final = {"sglang": "sglang", "vllm": "vllm"}
_COLUMNS: Final = (
    "run",
    "load",
    "quantity",
    "measured",
    "measured_low",
    "measured_high",
    "predicted",
    "low",
    "high",
    "error_fraction",
    "within",
)


@dataclass(frozen=True)
class ComparedRun:
    """One run beside its prediction.

    Attributes
    ----------
    run : BenchRun
    prediction : Prediction
    suspects : tuple of BenchSuspect
        What the file shows first, then what would explain the difference.
    """

    run: BenchRun
    prediction: Prediction
    suspects: tuple[BenchSuspect, ...]

    @property
    def outside(self) -> bool:
        """Whether the rate or a mean lies outside the interval of its prediction."""
        measured = measured_values(self.run)
        return any(
            not interval.low <= measured[name] <= interval.high
            for name, interval in self.prediction.intervals.items()
            if name in measured
        )

    def rows(self, place: int) -> list[dict[str, Any]]:
        """One row per quantity that is both measured and predicted."""
        measured, predicted = measured_values(self.run), self.prediction.values
        rows = []
        for quantity, value in measured.items():
            if quantity not in predicted:
                continue
            interval = self.prediction.intervals.get(quantity)
            low, high = self._sampled(quantity, value)
            rows.append(
                {
                    "run": place,
                    "load": self.run.load,
                    "quantity": quantity,
                    "measured": value,
                    "measured_low": low,
                    "measured_high": high,
                    "predicted": predicted[quantity],
                    "low": None if interval is None else interval.low,
                    "high": None if interval is None else interval.high,
                    "error_fraction": predicted[quantity] / value - 1,
                    "within": None
                    if interval is None
                    else bool(interval.low <= value <= interval.high),
                }
            )
        return rows

    def _sampled(self, quantity: str, value: float) -> tuple[float | None, float | None]:
        """Where the mean of many such runs lies, by the spread over requests."""
        name, _, statistic = quantity.removesuffix("_s").partition("_")
        spread = getattr(self.run, name, None)
        if statistic != "mean" or spread is None or spread.std is None:
            return None, None
        error = _NORMAL * spread.std / self.run.completed**0.5
        return max(0.0, value - error), value + error


@dataclass(frozen=True, repr=False)
class BenchComparison:
    """Measured against predicted serving. Made by `compare_bench`.

    Attributes
    ----------
    runs : tuple of ComparedRun
        One per load in the file, in its order.

    Examples
    --------
    >>> import scalemodel as sm
    >>> text = '''{"backend": "vllm", "num_prompts": 400, "completed": 400, "duration": 50.0,
    ...   "request_rate": 8.0, "max_concurrency": null, "total_input_tokens": 400000,
    ...   "total_output_tokens": 80000, "request_throughput": 8.0, "output_throughput": 1600.0,
    ...   "mean_ttft_ms": 40.0, "mean_tpot_ms": 9.0, "mean_itl_ms": 18.0}'''
    >>> found = sm.compare_bench(text, model="llama3_8b", cluster="dgx_h100", replicas=1)
    >>> found.runs[0].suspects[0].cause
    '2 tokens a chunk (ITL over TPOT): speculative decoding, or answers that are sent ...'
    """

    runs: tuple[ComparedRun, ...]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per run and quantity.

        Columns: run (from 0), load, quantity, measured, measured_low, measured_high (95 % interval
        of a mean, by the spread over requests), predicted, low, high (80 % interval of the
        prediction), error_fraction (predicted over measured, less one), within. Rates are per
        second, times in seconds; what is not known is missing.
        """
        import pandas as pd

        rows = [row for place, each in enumerate(self.runs) for row in each.rows(place)]
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """The rows of the table and the suspects of every run.

        Examples
        --------
        >>> import scalemodel as sm
        >>> text = '''{"backend": "vllm", "num_prompts": 40, "completed": 40, "duration": 5.0,
        ...   "request_rate": "inf", "max_concurrency": 8, "total_input_tokens": 40000,
        ...   "total_output_tokens": 8000, "request_throughput": 8.0,
        ...   "output_throughput": 1600.0}'''
        >>> found = sm.compare_bench(text, model="llama3_8b", cluster="dgx_h100", replicas=1)
        >>> found.to_dict()["rows"][1]["measured"]
        1600.0
        """
        return {
            "rows": [row for place, each in enumerate(self.runs) for row in each.rows(place)],
            "suspects": [[suspect._asdict() for suspect in each.suspects] for each in self.runs],
        }

    def __repr__(self) -> str:
        lines = []
        for place, each in enumerate(self.runs):
            run = each.run
            lines.append(
                f"{run.tool}, {run.load}: {run.completed} requests of {run.input_tokens:.4g} + "
                f"{run.output_tokens:.4g} tokens"
            )
            lines += [_line(row) for row in each.rows(place)]
            for suspect in each.suspects:
                share = suspect.explained_fraction
                head = "" if share is None else f"would explain {percent_text(share)} of it: "
                lines.append(f"  {head}{suspect.cause} (check: {suspect.check})")
            if each.outside and all(one.explained_fraction is None for one in each.suspects):
                lines.append("  no one change of the plan would explain a quarter of it")
        return "\n".join(lines)


def _line(row: dict[str, Any]) -> str:
    around = "" if row["low"] is None else f" ({row['low']:.4g} to {row['high']:.4g})"
    outside = "  outside" if row["within"] is False else ""
    return (
        f"  {row['quantity']:<20} measured {row['measured']:<9.4g} predicted "
        f"{row['predicted']:.4g}{around} "
        f"{percent_text(row['error_fraction'], signed=True)}{outside}"
    )


def _named_plan(run: BenchRun, cluster: Any) -> Serving:
    """The plan that a record of InferenceX names."""
    from scalemodel.interop.serving_settings import read_serving

    if run.table is None:
        raise ScaleModelError(
            "plan=None: the file does not name the deployment; give a plan, or model and cluster",
            code="missing_settings",
        )
    plan = read_serving("inferencex", run.table).serve(cluster)
    if not isinstance(plan, Serving):
        raise ScaleModelError(f"{run.where}: disagg: two pools; must be a record of one")
    return plan


def _plan_for(run: BenchRun, question: dict[str, Any], task: dict[str, Any]) -> Serving:
    """The plan of the arguments, or of the record."""
    if question["model"] is None:
        return _named_plan(run, question["cluster"])
    if question["cluster"] is None:
        raise ScaleModelError("cluster=None: must be given with a model", code="missing_settings")
    if wrong := sorted({"input_tokens", "output_tokens"} & set(task)):
        raise ScaleModelError(f"{wrong[0]}: the file has the lengths; must be left out")
    try:
        asked = Inference(
            input_tokens=max(1.0, run.input_tokens),
            output_tokens=max(1.0, run.output_tokens),
            **task,
        )
    except TypeError as error:
        raise ScaleModelError(f"compare_bench: {error}") from None
    return serve(
        question["model"],
        question["cluster"],
        asked,
        question["layout"],
        engine=engine_for(question["engine"] or _ENGINES.get(run.tool, "vllm")),
        replicas=question["replicas"],
    )


def _compared(run: BenchRun, plan: Serving, count: int) -> ComparedRun:
    if not plan.fits:
        raise ScaleModelError(f"plan: does not run ({plan.verdict})", code="malformed")
    prediction = predict(plan, task_of(run, plan.task), run)
    found = ComparedRun(run, prediction, tuple(shown(run, prediction)))
    if found.outside:
        found = replace(found, suspects=(*found.suspects, *supposed(run, prediction, count)))
    values = {**prediction.values, **percentiles(prediction, run)}
    return replace(found, prediction=prediction._replace(values=values))


@named_arguments
def compare_bench(
    file: str | os.PathLike[str],
    plan: Serving | None = None,
    *,
    model: Any = None,
    cluster: Any = None,
    layout: Any = None,
    engine: str = "",
    replicas: int | None = None,
    suspects: int = 3,
    **task: Any,
) -> BenchComparison:
    """Measured against predicted serving, for every load in the file of a load generator.

    Each run is predicted at the load and the mean lengths of the file: at the rate that was asked,
    at the number kept running, or with all requests at once, those and overload request by request.
    Where rate, time to first token or time per token lies outside the interval, causes are named.

    Parameters
    ----------
    file : str or path
        Of ``vllm bench serve``, SGLang's ``bench_serving``, AIPerf, GenAI-Perf, GuideLLM or
        InferenceX, or the text of one; see `read_bench`.
    plan : Serving, optional
        What was measured, made by `serve`; its lengths and load are those of the file instead.
    model, cluster, layout, engine, replicas : optional
        In place of a plan, as for `serve`; the engine is by default that of the tool. Records of
        InferenceX name all of them.
    suspects : int
        Causes that would explain a difference, at most; those the file shows come before.
    **task
        Fields of `Inference` other than the lengths, with a model: precision,
        prefix_hit_fraction, speculative_tokens, ...

    Returns
    -------
    BenchComparison

    Raises
    ------
    ScaleModelError : the file is not known, or a key is missing or no number (the message names
        line and key); the plan does not run; neither plan nor model for a file that names none.

    Examples
    --------
    >>> import scalemodel as sm
    >>> text = '''{"backend": "vllm", "num_prompts": 400, "completed": 400, "duration": 50.0,
    ...   "request_rate": 8.0, "max_concurrency": null, "total_input_tokens": 400000,
    ...   "total_output_tokens": 80000, "request_throughput": 8.0, "output_throughput": 1600.0,
    ...   "mean_ttft_ms": 40.0, "mean_tpot_ms": 9.0}'''
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> found = sm.compare_bench(text, plan)
    >>> found.table.quantity.tolist()
    ['requests_per_s', 'output_tokens_per_s', 'ttft_mean_s', 'tpot_mean_s']
    """
    if plan is not None and not isinstance(plan, Serving):
        raise ScaleModelError(f"plan={plan!r}: must be a Serving, made by `serve`")
    if plan is not None and (model is not None or task):
        raise ScaleModelError("plan, model: give one of the two, a task only with a model")
    if isinstance(suspects, bool) or not isinstance(suspects, int) or not 0 <= suspects <= 100:
        raise ScaleModelError(f"suspects={suspects!r}: must be a whole number from 0 to 100")
    question = {
        "model": model,
        "cluster": cluster,
        "layout": layout,
        "engine": engine,
        "replicas": replicas,
    }
    runs: Sequence[BenchRun] = read_bench(file)
    return BenchComparison(
        tuple(_compared(run, plan or _plan_for(run, question, task), suspects) for run in runs)
    )
