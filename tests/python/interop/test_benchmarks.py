"""Benchmarks of serving beside predictions: the same run in every format, and planted causes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.cli import main
from scalemodel.codesign.vary import Hardware

TASK = sm.Inference(input_tokens=1000, output_tokens=200)
QUESTION: dict[str, Any] = {"model": "llama3_8b", "cluster": "dgx_h100", "replicas": 1}


def plan_of(task: sm.Inference = TASK, **load: float) -> sm.Serving:
    return sm.serve("llama3_8b", "dgx_h100", task, replicas=1, **load)


def times_of(plan: sm.Serving, count: int = 400) -> dict[str, np.ndarray[Any, Any]]:
    """What each request of a plan takes, seconds."""
    found = plan.simulate(requests=count).requests
    return {name: found[f"{name}_s"].to_numpy() for name in ("ttft", "tpot", "latency")}


def measured(plan: sm.Serving, **changes: Any) -> dict[str, Any]:
    """What a benchmark of a plan would measure, in the words of none of the tools."""
    times = times_of(plan)
    task = plan.task
    return {
        "count": len(times["ttft"]),
        "rate": plan.requests_per_s,
        "asked_rate": plan.asked_rate,
        "concurrency": plan.asked_concurrency,
        "input": task.input_tokens,
        "output": task.output_tokens,
        "times": times,
        "failed": 0,
        "itl": times["tpot"],
        **changes,
    }


def statistics(values: Any, names: dict[str, str], unit: float) -> dict[str, float]:
    found = {
        "mean": np.mean(values),
        "median": np.median(values),
        "p99": np.quantile(values, 0.99),
        "std": np.std(values),
    }
    return {names[name]: unit * float(value) for name, value in found.items() if name in names}


def spell(name: str, pattern: str) -> dict[str, str]:
    return {each: pattern.format(each, name) for each in ("mean", "median", "p99", "std")}


def flat(run: dict[str, Any], latency: str, **more: Any) -> dict[str, Any]:
    duration = run["count"] / run["rate"]
    table = {
        "backend": "vllm",
        "completed": run["count"],
        "duration": duration,
        "request_rate": run["asked_rate"] or "inf",
        "max_concurrency": run["concurrency"],
        "total_input_tokens": run["count"] * run["input"],
        "total_output_tokens": run["count"] * run["output"],
        "request_throughput": run["rate"],
        "output_throughput": run["rate"] * run["output"],
        **more,
    }
    for name, values in {**run["times"], "itl": run["itl"]}.items():
        own = latency if name == "latency" else name
        table |= statistics(values, spell(own, "{}_{}_ms"), 1e3)
    return table


def vllm(run: dict[str, Any]) -> str:
    sent = run["count"] + run["failed"]
    return json.dumps(flat(run, "e2el", num_prompts=sent, failed=run["failed"]), indent=1)


def sglang(run: dict[str, Any]) -> str:
    return json.dumps(flat(run, "e2e_latency", dataset_name="random", accept_length=None)) + "\n"


def metric(values: Any, unit: str = "ms", scale: float = 1e3) -> dict[str, Any]:
    names = {"mean": "avg", "median": "p50", "p99": "p99", "std": "std"}
    return {"unit": unit, **statistics(np.atleast_1d(values), names, scale)}


def export(run: dict[str, Any], settings: dict[str, Any]) -> str:
    times = run["times"]
    return json.dumps(
        {
            "request_throughput": metric(run["rate"], "requests/sec", 1.0),
            "output_token_throughput": metric(run["rate"] * run["output"], "tokens/sec", 1.0),
            "request_count": metric(run["count"], "requests", 1.0),
            "input_sequence_length": metric(run["input"], "tokens", 1.0),
            "output_sequence_length": metric(run["output"], "tokens", 1.0),
            "time_to_first_token": metric(times["ttft"]),
            "inter_token_latency": metric(times["tpot"], "ns", 1e9),
            "request_latency": metric(times["latency"]),
            "input_config": settings,
        }
    )


def loadgen(run: dict[str, Any]) -> dict[str, Any]:
    held = {"concurrency": run["concurrency"]} if run["concurrency"] else {}
    return held | ({"request_rate": run["asked_rate"]} if run["asked_rate"] else {})


def aiperf(run: dict[str, Any]) -> str:
    return export(run, {"loadgen": loadgen(run)})


def genai_perf(run: dict[str, Any]) -> str:
    return export(run, {"perf_analyzer": {"stimulus": loadgen(run)}})


def guidellm(run: dict[str, Any]) -> str:
    def several(values: Any, unit: float) -> dict[str, Any]:
        found = statistics(
            np.atleast_1d(values), {"mean": "mean", "median": "median", "std": "std_dev"}, unit
        )
        p99 = unit * float(np.quantile(values, 0.99))
        return {"successful": {**found, "percentiles": {"p99": p99}}}

    times, rate = run["times"], run["asked_rate"]
    strategy = {"type_": "poisson", "rate": rate} if rate else {"type_": "concurrent"}
    if run["concurrency"]:
        strategy["streams"] = run["concurrency"]
    metrics = {
        "request_totals": {"successful": run["count"], "errored": run["failed"]},
        "requests_per_second": several(run["rate"], 1.0),
        "request_concurrency": several(run["concurrency"] or 1.0, 1.0),
        "output_tokens_per_second": several(run["rate"] * run["output"], 1.0),
        "prompt_token_count": several(run["input"], 1.0),
        "output_token_count": several(run["output"], 1.0),
        "time_to_first_token_ms": several(times["ttft"], 1e3),
        "inter_token_latency_ms": several(times["tpot"], 1e3),
        "time_per_output_token_ms": several(times["latency"] / run["output"], 1e3),
        "request_latency": several(times["latency"], 1.0),
    }
    report = {"benchmarks": [{"config": {"strategy": strategy}, "metrics": metrics}]}
    return json.dumps({"metadata": {"version": 1}, **report})


def inferencex(run: dict[str, Any]) -> str:
    table: dict[str, Any] = {
        "hw": "h100",
        "conc": run["concurrency"],
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "framework": "vllm",
        "precision": "bf16",
        "isl": run["input"],
        "osl": run["output"],
        "tp": 1,
        "ep": 1,
        "tput_per_gpu": run["rate"] * (run["input"] + run["output"]),
        "output_tput_per_gpu": run["rate"] * run["output"],
    }
    for name, values in run["times"].items():
        own = "e2el" if name == "latency" else name
        table |= statistics(values, spell(own, "{}_{}"), 1.0)
    return json.dumps(table)


FORMATS = {
    "vllm": vllm,
    "sglang": sglang,
    "aiperf": aiperf,
    "genai_perf": genai_perf,
    "guidellm": guidellm,
    "inferencex": inferencex,
}


@pytest.mark.parametrize("tool", FORMATS)
def test_every_format_says_the_same_of_the_same_run(tool: str) -> None:
    plan = plan_of(concurrency=32)
    run = measured(plan)
    (read,) = sm.read_bench(FORMATS[tool](run))
    assert (read.tool, read.load) == (tool, "32 running")
    assert read.requests_per_s == pytest.approx(plan.requests_per_s)
    assert read.output_tokens_per_s == pytest.approx(plan.output_tokens_per_s)
    assert (read.input_tokens, read.output_tokens) == (1000, 200)
    for name in ("ttft", "tpot", "latency"):
        values = run["times"][name]
        expected = (values.mean(), np.median(values), np.quantile(values, 0.99), values.std())
        assert getattr(read, name) == pytest.approx(expected), name


@pytest.mark.parametrize("tool", [name for name in FORMATS if name != "inferencex"])
@pytest.mark.parametrize("load", [{"concurrency": 32.0}, {"requests_per_s": 6.0}])
def test_what_a_plan_itself_would_measure_is_met_and_needs_no_cause(
    tool: str, load: dict[str, float]
) -> None:
    plan = plan_of(**load)
    found = sm.compare_bench(FORMATS[tool](measured(plan)), plan)
    assert found.runs[0].suspects == ()
    table = found.table.set_index("quantity")
    means = table.loc[["output_tokens_per_s", "ttft_mean_s", "tpot_mean_s"]]
    assert means.within.all()
    assert (table.error_fraction.abs() < 0.12).all()
    # The mean of the requests lies in its own interval, the prediction's is around the prediction.
    assert (table.loc["ttft_mean_s"].measured_low <= table.loc["ttft_mean_s"].measured).all()


def test_requests_of_aiperf_one_by_one_give_its_aggregates() -> None:
    plan = plan_of(concurrency=32)
    times = times_of(plan, 60)
    lines = []
    for i, (ttft, tpot, latency) in enumerate(
        zip(times["ttft"], times["tpot"], times["latency"], strict=True)
    ):
        metrics = {
            "time_to_first_token": {"value": 1e3 * ttft, "unit": "ms"},
            "inter_token_latency": {"value": 1e3 * tpot, "unit": "ms"},
            "inter_chunk_latency": {"value": [1e3 * tpot] * 3, "unit": "ms"},
            "request_latency": {"value": 1e3 * latency, "unit": "ms"},
            "input_sequence_length": {"value": 1000, "unit": "tokens"},
            "output_sequence_length": {"value": 200, "unit": "tokens"},
        }
        facts = {"request_start_ns": 10**9 * i, "request_end_ns": int(1e9 * (i + latency))}
        lines.append(json.dumps({"metadata": facts, "metrics": metrics}))
    dropped = json.loads(lines[0])
    dropped["metadata"] |= {"benchmark_phase": "warmup"}
    dropped["metrics"]["time_to_first_token"]["value"] = 1e9
    cancelled = json.loads(lines[1])
    cancelled["metadata"] |= {"was_cancelled": True}
    text = "\n".join([json.dumps(dropped), *lines, json.dumps(cancelled)])
    (read,) = sm.read_bench(text)
    assert read.completed == 60
    held = read.requests_per_s * times["latency"].mean()
    assert read.asked_concurrency == pytest.approx(max(1.0, held))
    assert read.load.endswith("running, as measured")
    assert read.ttft.mean == pytest.approx(times["ttft"].mean())
    assert read.tpot.p99 == pytest.approx(np.quantile(times["tpot"], 0.99))
    assert read.itl.mean == pytest.approx(times["tpot"].mean())
    assert read.requests_per_s == pytest.approx(60 / (59 + times["latency"][-1]))


@pytest.mark.parametrize("tool", ["vllm", "aiperf", "guidellm"])
def test_lengths_that_vary_are_drawn_as_widely(tool: str) -> None:
    rng = np.random.default_rng(5)
    lengths = {"input": rng.lognormal(6.5, 0.5, 400), "output": rng.lognormal(4.0, 0.8, 400)}
    table = json.loads(FORMATS[tool](measured(plan_of(concurrency=32))))
    for side, name in (("input", "prompt"), ("output", "output")):
        values = np.round(lengths[side])
        if tool == "vllm":
            table[f"{side}_lens"] = [*values.tolist(), 0.0]  # the last request failed
        elif tool == "aiperf":
            table[f"{side}_sequence_length"] = metric(values, "tokens", 1.0)
        else:
            own = table["benchmarks"][0]["metrics"][f"{name}_token_count"]["successful"]
            own |= {"mean": values.mean(), "std_dev": values.std()}
    (read,) = sm.read_bench(json.dumps(table))
    assert read.input_spread == pytest.approx(0.5, rel=0.15)
    assert read.output_spread == pytest.approx(0.8, rel=0.15)
    (compared,) = sm.compare_bench(json.dumps(table), **QUESTION).runs
    assert compared.prediction.plan.task.output_spread == read.output_spread
    values = compared.prediction.values
    assert values["ttft_p99_s"] > 1.3 * values["ttft_median_s"]


def first_cause(run: dict[str, Any], plan: sm.Serving) -> tuple[str, float]:
    found = sm.compare_bench(vllm(run), plan).runs[0].suspects
    best = next(each for each in found if each.explained_fraction is not None)
    assert best.explained_fraction is not None
    return best.cause, best.explained_fraction


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"prefix_hit_fraction": 0.9}, "90% of every prompt is found in the cache"),
        ({"speculative_tokens": 3}, "3 draft tokens a step"),
    ],
)
def test_a_planted_cause_is_named_first(changes: dict[str, Any], cause: str) -> None:
    plan = plan_of(concurrency=64)
    named, explained = first_cause(measured(plan_of(TASK.replace(**changes), concurrency=64)), plan)
    assert named == cause
    assert explained > 0.8


def test_a_slow_memory_is_named_first() -> None:
    hardware = Hardware("dgx_h100")
    slow = hardware.build(hardware.design({"accelerator.memory.bandwidth": 0.5}))
    run = measured(sm.serve("llama3_8b", slow, TASK, replicas=1, concurrency=8))
    named, explained = first_cause(run, plan_of(concurrency=8))
    assert named == "memory bandwidth at 50% of the catalogue's"
    assert explained > 0.8


@pytest.mark.parametrize(
    ("load", "changes", "part"),
    [
        ({"requests_per_s": 6.0}, {"rate": 4.0}, "load not reached: 4 of 6"),
        ({"requests_per_s": 6.0}, {"failed": 100}, "100 requests failed (20.0 %)"),
        ({"concurrency": 32.0}, {"count": 64}, "short run: 64 requests at 32"),
        ({"concurrency": 32.0}, {"itl": np.array([0.03])}, "tokens a chunk (ITL over TPOT)"),
        ({"concurrency": 32.0}, {"itl": np.array([1e-6, 1e-6, 0.03])}, "chunks arrive together"),
        ({"requests_per_s": 300.0}, {}, "more is asked than the plan is predicted to serve"),
    ],
)
def test_what_the_file_itself_shows_is_said(
    load: dict[str, float], changes: dict[str, Any], part: str
) -> None:
    plan = plan_of(**load)
    found = sm.compare_bench(vllm(measured(plan, **changes)), plan)
    assert any(part in each.cause for each in found.runs[0].suspects), found
    assert part in repr(found)


def test_an_overload_is_predicted_request_by_request() -> None:
    plan = plan_of(requests_per_s=300.0)
    served = plan.simulate(requests=400).summary()
    times = times_of(plan)
    run = measured(plan, rate=served["requests_per_s"], times=times)
    table = sm.compare_bench(vllm(run), plan).table.set_index("quantity")
    assert (table.error_fraction.abs() < 0.05).all()
    assert table.loc["ttft_mean_s"].predicted > 10 * table.loc["tpot_mean_s"].predicted


def test_a_record_of_inferencex_names_its_own_deployment() -> None:
    text = inferencex(measured(plan_of(concurrency=32)))
    both = f"[{text}, {text}]"
    found = sm.compare_bench(both)
    assert [each.run.where for each in found.runs] == ["text: [0]", "text: [1]"]
    assert found.runs[0].prediction.plan.cluster.accelerators == 1
    assert found.table.error_fraction.abs().max() < 0.15


def test_a_record_of_several_nodes_without_pools_counts_its_accelerators() -> None:
    table = json.loads(inferencex(measured(plan_of(concurrency=32))))
    del table["tp"]
    table |= {"is_multinode": True, "disagg": False, "prefill_tp": 16, "num_prefill_gpu": 16}
    (read,) = sm.read_bench(json.dumps(table))
    assert read.output_tokens_per_s == pytest.approx(16 * table["output_tput_per_gpu"])


# `vllm bench serve` 0.32.0, --max-concurrency 8, 23 November 2026: a small model on a processor,
# whose client got most chunks together.
RECORDED = {
    **{"backend": "openai", "label": None, "model_id": "tiny", "tokenizer_id": "tiny"},
    **{"num_prompts": 100, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8},
    **{"duration": 3.9350036420000833, "completed": 100, "failed": 0},
    **{"total_input_tokens": 20154, "total_output_tokens": 4969, "request_goodput": None},
    **{"request_throughput": 25.412937089220076, "output_throughput": 1262.7688439633457},
    **{"mean_ttft_ms": 81.43675363005059, "median_ttft_ms": 59.027420000347774},
    **{"mean_tpot_ms": 4.900303677192091, "median_tpot_ms": 4.59292552060223},
    **{"mean_itl_ms": 4.646312825836923, "median_itl_ms": 0.0024239998310804367},
    **{"mean_e2el_ms": 307.6657251200504, "std_e2el_ms": 91.13278189809928},
}


def test_a_recorded_result_of_vllm_is_read_as_it_stands() -> None:
    found = sm.compare_bench(json.dumps(RECORDED), **QUESTION)
    run = found.runs[0].run
    assert (run.tool, run.load, run.completed) == ("vllm", "8 running", 100)
    assert run.input_tokens == pytest.approx(201.54)
    # Little's law: what the file says of rate and latency is what it kept running.
    assert run.latency.mean is not None
    assert run.requests_per_s * run.latency.mean == pytest.approx(8, rel=0.03)
    assert "most chunks arrive together" in repr(found)


def test_several_lines_of_sglang_are_several_runs(tmp_path: Path) -> None:
    plans = [plan_of(concurrency=held) for held in (1.0, 16.0, 64.0)]
    path = tmp_path / "bench.jsonl"
    path.write_text("".join(sglang(measured(plan)) for plan in plans), encoding="utf-8")
    found = sm.compare_bench(path, **QUESTION, engine="vllm_v1")
    assert [each.run.load for each in found.runs] == ["1 running", "16 running", "64 running"]
    assert found.table.groupby("run").size().tolist() == [8, 8, 8]


GOOD = measured(plan_of(concurrency=32))


def damaged(tool: str, old: str, new: str) -> str:
    text = FORMATS[tool](GOOD)
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (damaged("vllm", '"duration": ', '"duration": "x", "old": '), "text: duration='x': must"),
        (damaged("vllm", '"completed": 400', '"completed": 0'), "completed=0: must be a whole"),
        (damaged("vllm", '"mean_ttft_ms": ', '"mean_ttft_ms": -'), "mean_ttft_ms=-.*from 0"),
        (damaged("vllm", '"total_input_tokens"', '"tokens"'), "total_input_tokens: is missing"),
        (sglang(GOOD) + "\n" + sglang(GOOD).replace('"duration"', '"t"'), "line 3: duration: is m"),
        (sglang(GOOD) + sglang(GOOD)[:80], "line 2: not JSON"),
        (damaged("aiperf", '"unit": "ms"', '"unit": "h"'), "token: unit='h': must be one of s, "),
        (damaged("aiperf", '"avg"', '"mean"'), "request_throughput: avg: is missing"),
        (damaged("guidellm", '"output_token_count"', '"x"'), r"benchmarks\[0\]: metrics: output_t"),
        (damaged("inferencex", '"osl": 200', '"osl": null'), "osl: is missing"),
        (damaged("inferencex", '"tp": 1', '"disagg": true'), "disagg=true: two pools"),
        (damaged("vllm", '"backend"', '"input_lens": [5, "x"], "a"'), r"lens: \[1\]='x': must"),
        ('{"benchmarks": [1]}', r"benchmarks\[0\]: must be an object, not int"),
        ('{"benchmarks": []}', "holds no run"),
        ('{"a": 1}', "no known benchmark .keys a.; must be of vllm bench serve"),
        ("[]", "holds no run"),
        ("{", "text: not JSON"),
    ],
)
def test_one_clear_error_names_line_and_key(text: str, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.compare_bench(text, **QUESTION)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "plan=None: the file does not name the deployment"),
        ({"model": "llama3_8b"}, "cluster=None"),
        ({"plan": "llama3_8b"}, "plan='llama3_8b': must be a Serving"),
        ({"plan": plan_of(), "model": "llama3_8b"}, "plan, model: give one"),
        ({**QUESTION, "input_tokens": 10}, "input_tokens: the file has the lengths"),
        ({**QUESTION, "suspects": -1}, "suspects=-1"),
        ({**QUESTION, "model": "llama3_405b"}, "plan: does not run .out_of_memory"),
        ({**QUESTION, "prefix": 1}, "prefix"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.compare_bench(vllm(GOOD), **options)


def test_the_command_says_what_python_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.json"
    path.write_text(vllm(GOOD), encoding="utf-8")
    asked = ["compare-bench", str(path), "llama3_8b", "--cluster", "dgx_h100", "--replicas", "1"]
    found = sm.compare_bench(path, **QUESTION)
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found.to_dict()))
    assert main(asked) == 0
    assert capsys.readouterr().out == f"{found}\n"
    assert main([*asked, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["quantity"] for row in rows] == found.table.quantity.tolist()
    assert main(["compare-bench", str(path)]) == 2
    assert "does not name the deployment" in capsys.readouterr().err
    assert main(["compare-bench", str(path), "llama3_8b"]) == 2
    assert "needs --cluster" in capsys.readouterr().err
