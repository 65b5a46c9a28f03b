"""Files of load generators, read into runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import LARGEST_RECORD, parse_json, read_text
from scalemodel.base.words import named_arguments
from scalemodel.interop.benchmarks.record import (
    BenchRun,
    Record,
    Spread,
    length_spread,
    spread_of,
    wrong,
)

_UNITS: Final = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_OPEN_LOOPS: Final = ("constant", "poisson", "async")  # strategies of GuideLLM
_TOOLS: Final = (
    "vllm bench serve (JSON), SGLang bench_serving (JSONL), AIPerf or GenAI-Perf (profile export), "
    "GuideLLM (benchmarks.json), InferenceX (records)"
)


def _milliseconds(record: Record, name: str) -> Spread:
    """Statistics of a time in the keys of vLLM and SGLang."""
    return record.spread(lambda stat: f"{stat}_{name}_ms", 1e-3)


def _flat(record: Record, tool: str) -> BenchRun:
    """A result of `vllm bench serve` or of SGLang's bench_serving."""
    completed = record.count("completed")
    failed = record.find("failed")
    if failed is None:
        failed = max(0.0, (record.find("num_prompts") or completed) - completed)
    name = "e2el" if tool == "vllm" else "e2e_latency"
    return BenchRun(
        tool=tool,
        where=record.where,
        model=str(record.table.get("model_id") or record.table.get("model") or ""),
        completed=completed,
        failed=int(failed),
        duration_s=record.number("duration", least=1e-9),
        requests_per_s=record.number("request_throughput", least=1e-12),
        output_tokens_per_s=record.number("output_throughput", least=1e-12),
        input_tokens=record.number("total_input_tokens") / completed,
        output_tokens=record.number("total_output_tokens", least=1) / completed,
        asked_rate=record.rate("request_rate"),
        asked_concurrency=record.find("max_concurrency", least=1),
        ttft=_milliseconds(record, "ttft"),
        tpot=_milliseconds(record, "tpot"),
        itl=_milliseconds(record, "itl"),
        latency=_milliseconds(record, name),
        chunk_tokens=record.find("accept_length"),
        input_spread=_listed(record, "input_lens"),
        output_spread=_listed(record, "output_lens"),
    )


def _listed(record: Record, key: str) -> float:
    """Spread of the lengths that a detailed result lists; requests that failed have none."""
    values = record.table.get(key)
    if not isinstance(values, list):
        return 0.0
    where = f"{record.where}: {key}"
    numbers = [Record({f"[{i}]": one}, where).number(f"[{i}]") for i, one in enumerate(values)]
    return _of_lengths([number for number in numbers if number])


def _of_lengths(lengths: list[float]) -> float:
    found = spread_of(lengths)
    return length_spread(found.mean or 0.0, found.std)


# ---------------------------------------------------------------------------- AIPerf, GenAI-Perf
def _unit(record: Record) -> float:
    unit = record.table.get("unit")
    if unit not in _UNITS:
        raise wrong(record.where, f"unit={unit!r}: must be one of {', '.join(_UNITS)}")
    return _UNITS[unit]


def _metric(record: Record, name: str, default: float | None = None) -> float:
    """The average of a metric of an export."""
    if not record.has(name) and default is not None:
        return default
    return record.within(name).number("avg")


def _times(record: Record, name: str) -> Spread:
    if not record.has(name):
        return Spread()
    metric = record.within(name)
    unit = _unit(metric)
    found = (metric.find(*keys) for keys in (("avg",), ("p50",), ("p99",), ("std",)))
    return Spread(*(None if each is None else unit * each for each in found))


def _found(table: Any, names: tuple[str, ...], depth: int = 0) -> float | None:
    """A number somewhere in the settings of a run."""
    if not isinstance(table, Mapping) or depth > 8:
        return None
    for name in names:
        value = table.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value) if math.isfinite(value) else None
    for inner in table.values():
        value = _found(inner, names, depth + 1)
        if value is not None:
            return value
    return None


def _export(record: Record) -> BenchRun:
    """Aggregates of AIPerf or GenAI-Perf."""
    settings = record.table.get("input_config") or record.table.get("config")
    genai = isinstance(settings, Mapping) and "perf_analyzer" in settings
    rate = _metric(record, "request_throughput")
    count = record.within("request_count").count("avg") if record.has("request_count") else 1
    errors = record.within("error_request_count") if record.has("error_request_count") else None
    duration = _times(record, "benchmark_duration").mean
    asked = _found(settings, ("request_rate",))
    held, latency = _found(settings, ("concurrency",)), _times(record, "request_latency")
    told = asked is not None or held is not None
    return BenchRun(
        tool="genai_perf" if genai else "aiperf",
        where=record.where,
        model="",
        completed=count,
        failed=int(errors.number("avg")) if errors else 0,
        duration_s=duration,
        requests_per_s=rate,
        output_tokens_per_s=_metric(record, "output_token_throughput"),
        input_tokens=_metric(record, "input_sequence_length"),
        output_tokens=_metric(record, "output_sequence_length"),
        input_spread=_exported(record, "input_sequence_length"),
        output_spread=_exported(record, "output_sequence_length"),
        asked_rate=asked,
        asked_concurrency=held if told else _under_way(rate, latency),
        told=told,
        ttft=_times(record, "time_to_first_token"),
        tpot=_times(record, "inter_token_latency"),
        itl=_times(record, "inter_chunk_latency"),
        latency=latency,
    )


def _exported(record: Record, name: str) -> float:
    """Spread of lengths in an export."""
    metric = record.within(name)
    return length_spread(metric.number("avg"), metric.find("std"))


def _under_way(rate: float, latency: Spread) -> float:
    """Requests under way, mean."""
    return max(1.0, rate * (latency.mean or 0.0))


def _counted(record: Record) -> bool:
    """Whether a request of AIPerf counts: no warm-up, not cancelled."""
    facts = record.within("metadata").table
    return facts.get("benchmark_phase") != "warmup" and not facts.get("was_cancelled")


def _seconds(records: list[Record], name: str) -> list[float]:
    """A time of each request, or the gaps of all of them."""
    found: list[float] = []
    for record in records:
        if not record.has(name):
            continue
        metric = record.within(name)
        unit, value = _unit(metric), metric.table.get("value")
        if isinstance(value, list):
            each = (Record({"value": one}, metric.where).number("value") for one in value)
            found += [unit * one for one in each]
        else:
            found.append(unit * metric.number("value"))
    return found


def _requests(records: list[Record], where: str) -> BenchRun:
    """A run of which AIPerf wrote every request."""
    facts = [record.within("metadata") for record in records]
    metrics = [record.within("metrics") for record in records]
    start = min(each.number("request_start_ns") for each in facts)
    duration = 1e-9 * (max(each.number("request_end_ns") for each in facts) - start)
    if duration <= 0:
        raise wrong(where, "request_end_ns: must be after request_start_ns")
    rate = len(records) / duration
    latency = spread_of(_seconds(metrics, "request_latency"))
    tokens = {
        name: [each.within(f"{name}_sequence_length").number("value") for each in metrics]
        for name in ("input", "output")
    }
    return BenchRun(
        tool="aiperf",
        where=where,
        model="",
        completed=len(records),
        failed=0,
        duration_s=duration,
        requests_per_s=rate,
        output_tokens_per_s=sum(tokens["output"]) / duration,
        input_tokens=sum(tokens["input"]) / len(records),
        output_tokens=sum(tokens["output"]) / len(records),
        asked_concurrency=_under_way(rate, latency),
        told=False,
        input_spread=_of_lengths(tokens["input"]),
        output_spread=_of_lengths(tokens["output"]),
        ttft=spread_of(_seconds(metrics, "time_to_first_token")),
        tpot=spread_of(_seconds(metrics, "inter_token_latency")),
        itl=spread_of(_seconds(metrics, "inter_chunk_latency")),
        latency=latency,
    )


# -------------------------------------------------------------------------------------- GuideLLM
def _statistics(metrics: Record, name: str, unit: float) -> Spread:
    if not metrics.has(name):
        return Spread()
    found = metrics.within(name).within("successful")
    shares = found.within("percentiles") if found.has("percentiles") else None
    p99 = shares.find("p99") if shares else None
    values = (found.find("mean"), found.find("median"), p99, found.find("std_dev"))
    return Spread(*(None if each is None else unit * each for each in values))


def _mean(metrics: Record, name: str) -> float:
    return metrics.within(name).within("successful").number("mean")


def _reported(metrics: Record, name: str) -> float:
    """Spread of lengths in a report."""
    found = metrics.within(name).within("successful")
    return length_spread(found.number("mean"), found.find("std_dev"))


def _guidellm(record: Record) -> BenchRun:
    """One load of a GuideLLM report."""
    metrics = record.within("metrics")
    settings: Any = record.table.get("config") or record.table.get("args")
    strategy: Any = settings.get("strategy") if isinstance(settings, Mapping) else None
    kind = str(strategy.get("type_", strategy.get("kind"))) if isinstance(strategy, Mapping) else ""
    totals = metrics.within("request_totals") if metrics.has("request_totals") else None
    asked = _found(strategy, ("rate",)) if kind in _OPEN_LOOPS else None
    streams = 1.0 if kind == "synchronous" else _found(strategy, ("streams", "max_concurrency"))
    told = asked is not None or streams is not None
    if streams is None:
        streams = 1.0 if told else _mean(metrics, "request_concurrency")
    return BenchRun(
        tool="guidellm",
        where=record.where,
        model="",
        completed=totals.count("successful") if totals else 1,
        failed=int((totals.find("errored") if totals else None) or 0),
        duration_s=record.find("duration"),
        requests_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        input_tokens=_mean(metrics, "prompt_token_count"),
        output_tokens=_mean(metrics, "output_token_count"),
        asked_rate=asked,
        asked_concurrency=None if asked is not None else max(1.0, streams),
        told=told,
        input_spread=_reported(metrics, "prompt_token_count"),
        output_spread=_reported(metrics, "output_token_count"),
        ttft=_statistics(metrics, "time_to_first_token_ms", 1e-3),
        # What it calls the time per output token contains the first one.
        tpot=_statistics(metrics, "inter_token_latency_ms", 1e-3),
        latency=_statistics(metrics, "request_latency", 1.0),
    )


# ------------------------------------------------------------------------------------ InferenceX
def _accelerators(record: Record) -> float:
    """Those over which the rate of output is given."""
    if record.table.get("disagg") in (True, "true", "True", 1):
        raise wrong(record.where, "disagg=true: two pools; must be a record of one")
    if counted := record.find("num_prefill_gpu"):
        return counted
    degrees = (record.find(name, least=1) for name in ("pp", "pcp_size"))
    return record.number("tp", "prefill_tp", least=1) * math.prod(each or 1.0 for each in degrees)


def _inferencex(record: Record) -> BenchRun:
    """A record of InferenceX: rates per accelerator, times in seconds, lengths that were asked."""
    output = record.number("osl", least=1)
    rate = _accelerators(record) * record.number("output_tput_per_gpu", least=1e-12)

    def times(name: str) -> Spread:
        return record.spread(lambda stat: f"{stat}_{name}", 1.0)

    return BenchRun(
        tool="inferencex",
        where=record.where,
        model=str(record.table.get("model", "")),
        completed=int(10 * record.number("conc", least=1)),  # as its scripts ask for
        failed=0,
        duration_s=None,
        requests_per_s=rate / output,
        output_tokens_per_s=rate,
        input_tokens=record.number("isl", least=1),
        output_tokens=output,
        asked_concurrency=record.number("conc", least=1),
        table=record.table,
        ttft=times("ttft"),
        tpot=times("tpot"),
        itl=times("itl"),
        latency=times("e2el"),
    )


# ----------------------------------------------------------------------------------------- files
def _reader_of(table: Mapping[str, Any]) -> Callable[[Record], BenchRun] | None:
    """The format of a record, by keys that no other has."""
    if "conc" in table and "isl" in table:
        return _inferencex
    if isinstance(table.get("request_throughput"), Mapping):
        return _export
    if "request_throughput" in table and "output_throughput" in table:
        ours = "num_prompts" in table and "mean_e2e_latency_ms" not in table
        return lambda record: _flat(record, "vllm" if ours else "sglang")
    return None


def _runs(read: list[tuple[Any, str]], where: str) -> Iterator[BenchRun]:
    records = [Record(table, place) for table, place in read]
    if all({"metadata", "metrics"} <= set(each.table) for each in records):
        counted = [each for each in records if _counted(each)]
        if not counted:
            raise wrong(where, "no request that is neither warm-up nor cancelled")
        yield _requests(counted, where)
        return
    for record in records:
        reader = _reader_of(record.table)
        if reader is None:
            keys = ", ".join(sorted(map(str, record.table))[:8])
            raise wrong(record.where, f"no known benchmark (keys {keys}); must be of {_TOOLS}")
        yield reader(record)


def _parsed(text: str, where: str) -> list[tuple[Any, str]]:
    """Objects of a JSON or JSONL text, each with its place."""
    try:
        table = parse_json(text, where)
    except ScaleModelError:
        lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not lines[0][1].rstrip().endswith("}"):
            raise
        places = [(f"{where}: line {at}", line) for at, line in lines]
        return [(parse_json(line, place), place) for place, line in places]
    if isinstance(table, Mapping) and isinstance(table.get("benchmarks"), list):
        found = [(each, f"{where}: benchmarks[{i}]") for i, each in enumerate(table["benchmarks"])]
    elif isinstance(table, list):
        found = [(each, f"{where}: [{i}]") for i, each in enumerate(table)]
    else:
        found = [(table, where)]
    if not found:
        raise wrong(where, "holds no run")
    return found


@named_arguments
def read_bench(file: str | os.PathLike[str]) -> tuple[BenchRun, ...]:
    """The runs in a file of a load generator.

    Parameters
    ----------
    file : str or path
        Of ``vllm bench serve --save-result``, SGLang's ``bench_serving --output-file``, AIPerf
        (``profile_export.jsonl`` or ``profile_export_aiperf.json``), GenAI-Perf, GuideLLM
        (``benchmarks.json``) or InferenceX; or the text of one, which begins with a brace.

    Raises
    ------
    ScaleModelError : the file is not known, or a key of it is missing or no number; the message
        names line and key.

    Examples
    --------
    >>> text = '''{"backend": "vllm", "num_prompts": 4, "completed": 4, "duration": 2.0,
    ...   "request_rate": "inf", "max_concurrency": 2, "total_input_tokens": 400,
    ...   "total_output_tokens": 80, "request_throughput": 2.0, "output_throughput": 40.0,
    ...   "mean_ttft_ms": 30.0, "mean_tpot_ms": 10.0}'''
    >>> run, = read_bench(text)
    >>> run.tool, run.load, run.ttft.mean
    ('vllm', '2 running', 0.03)
    """
    text = str(file)
    if isinstance(file, str) and text.lstrip()[:1] in ("{", "["):
        where = "text"
    else:
        where = Path(file).name
        text = read_text(file, LARGEST_RECORD, "file: ")
    read = _parsed(text, where)
    if '"benchmarks"' in text and ": benchmarks[" in read[0][1]:
        return tuple(_guidellm(Record(table, place)) for table, place in read)
    return tuple(_runs(read, where))
