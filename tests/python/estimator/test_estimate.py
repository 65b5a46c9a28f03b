"""Laws of an estimate: sums, identity, verdicts, and robustness against any input."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from questions import ILLEGAL, checked_markup, illegal_estimate
from scalemodel import catalog, cli, resolve
from scalemodel.base.text import size_text, time_text
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS, operator_rows

TASK = sm.Training(global_batch=1024, sequence=8192)


@pytest.fixture(scope="module")
def cluster() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=64)


@pytest.fixture(scope="module")
def est(cluster: sm.Cluster) -> sm.Estimate:
    return sm.estimate("llama3_70b", cluster, TASK, sm.Strategy(tp=8, pp=4))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)


# ------------------------------------------------------------------------------------- sums, rates
def test_causes_sum_to_the_step_time(est: sm.Estimate) -> None:
    frame = est.breakdown()
    columns = [column.removesuffix("_s") for column in TIME_COLUMNS]
    assert list(frame.cause) == [columns[0], "launches", *columns[1:]]
    assert close(frame.time_s.sum(), est.step_time_s)
    assert close(frame.share_fraction.sum(), 1)


def test_kinds_sum_to_the_memory(est: sm.Estimate) -> None:
    frame = est.memory()
    assert close(frame.bytes.sum(), est.memory_bytes)
    assert close(frame.share_fraction.sum(), est.memory_bytes / est.memory_capacity_bytes)


def test_rates_follow_from_the_step_time(est: sm.Estimate, cluster: sm.Cluster) -> None:
    assert close(est.tokens_per_s * est.step_time_s, TASK.global_batch * TASK.sequence)
    assert est.energy_j >= est.power_w * cluster.accelerators * est.step_time_s
    assert est.cost_usd == pytest.approx(
        cluster.core.price_usd_per_s * cluster.accelerators * est.step_time_s
    )
    assert 0 < est.mfu_fraction <= est.hfu_fraction < 1


def test_memory_decides_the_verdict(cluster: sm.Cluster) -> None:
    tight = sm.estimate("llama3_70b", cluster, TASK, sm.Strategy(sharding="ddp"))
    assert tight.verdict == "out_of_memory"
    assert not tight.fits
    assert not tight.illegal
    assert tight.memory_bytes > tight.memory_capacity_bytes
    assert tight.step_time_s > 0


def test_no_price_means_no_cost() -> None:
    unknown = sm.cluster({"base": "dgx_h100", "price": {"usd_per_accelerator_hour": "0 USD/h"}})
    task = sm.Training(global_batch=8, sequence=2048)
    est = sm.estimate("llama3_8b", unknown, task, sm.Strategy(tp=8))
    assert est.cost_usd is None
    assert est.to_dict()["cost_usd"] is None


def test_operators_stay_below_the_compute_they_make_up(est: sm.Estimate) -> None:
    frame = est.operators()
    assert set(frame.layer_kind) == {"layer 0", "head"}
    assert (frame.forward_s >= 0).all()
    assert (frame.backward_s >= 0).all()
    on_mean_stage = sum(
        row["step_s"] for row in operator_rows(est) if not row["operator"].endswith("_parallel")
    )
    assert 0.5 * est.compute_s < on_mean_stage < 1.05 * est.compute_s


# ------------------------------------------------------------------------------------- identity
def test_equal_questions_have_equal_estimates(est: sm.Estimate, cluster: sm.Cluster) -> None:
    again = sm.estimate("Llama-3-70B", cluster, TASK, sm.Strategy(tp=8, pp=4))
    assert again == est
    assert hash(again) == hash(est)
    other = sm.estimate("llama3_70b", cluster, TASK, sm.Strategy(tp=8, pp=8))
    assert other != est
    assert est != "an estimate"
    assert len({est, again, other}) == 2


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_an_estimate_copies(
    est: sm.Estimate, duplicate: Callable[[sm.Estimate], sm.Estimate]
) -> None:
    assert duplicate(est) == est


@pytest.mark.parametrize(
    "strategy", [sm.Strategy(tp=8, pp=4), sm.Strategy(), sm.Strategy(tp=7)], ids=str
)
def test_an_estimate_pickles(cluster: sm.Cluster, strategy: sm.Strategy) -> None:
    est = sm.estimate("llama3_70b", cluster, TASK, strategy)
    loaded = pickle.loads(pickle.dumps(est))
    assert loaded == est
    assert loaded.to_dict() == est.to_dict()
    assert hash(loaded) == hash(est)


def test_repr_says_what_matters(est: sm.Estimate, cluster: sm.Cluster) -> None:
    assert repr(est).startswith("Estimate(ok, step ")
    illegal = sm.estimate("llama3_70b", cluster, TASK, sm.Strategy(tp=7))
    assert repr(illegal) == (
        "Estimate(illegal:mesh: tp*cp*pp*dp = 7*1*1*73 = 511 but the cluster has 512 accelerators.)"
    )


def test_numbers_of_a_repr_are_written_as_everywhere_else(est: sm.Estimate) -> None:
    interval = est.interval()
    assert interval is not None
    between = f"{time_text(interval.low_s)} to {time_text(interval.high_s)}"
    assert f"step {time_text(est.step_time_s)} ({between})" in repr(est)
    assert f"{size_text(est.memory_bytes)} of 80.0 GiB" in repr(est)


def test_a_printed_estimate_that_cannot_run_says_why(est: sm.Estimate, cluster: sm.Cluster) -> None:
    assert str(est) == repr(est)
    for strategy in (sm.Strategy(tp=7), sm.Strategy(pp=3), sm.Strategy()):
        cannot = sm.estimate("llama3_70b", cluster, TASK, strategy)
        assert not cannot.fits
        assert str(cannot) == "\n".join(cannot.message().splitlines()[:2])


@pytest.mark.parametrize(
    "strategy", [sm.Strategy(tp=8, pp=4), sm.Strategy(), sm.Strategy(tp=7)], ids=str
)
def test_the_summary_is_the_screen_of_the_command_line(
    cluster: sm.Cluster, strategy: sm.Strategy, capsys: pytest.CaptureFixture[str]
) -> None:
    est = sm.estimate("llama3_70b", cluster, TASK, strategy)
    question = "estimate llama3_70b --cluster dgx_h100 --nodes 64 --global-batch 1024"
    knobs = f"--sequence 8192 --tp {strategy.tp} --pp {strategy.pp}"
    cli.main(f"{question} {knobs}".split())
    assert capsys.readouterr().out == est.summary() + "\n"
    if est.fits:
        assert len(est.summary().splitlines()) == 8


def test_every_column_is_an_attribute(est: sm.Estimate) -> None:
    row = est.to_dict()
    for name in [*TIME_COLUMNS, *MEMORY_COLUMNS, "step_time_s", "hidden_s", "dp"]:
        assert getattr(est, name) == row[name]
    assert set(row) - set(est.strategy.to_dict()) <= set(dir(est))
    with pytest.raises(AttributeError):
        _ = est.no_such_column
    json.dumps(row, allow_nan=False)


@pytest.mark.parametrize(
    "strategy", [sm.Strategy(tp=8, pp=4), sm.Strategy(), sm.Strategy(tp=7)], ids=str
)
def test_html_is_self_contained(cluster: sm.Cluster, strategy: sm.Strategy) -> None:
    est = sm.estimate("llama3_70b", cluster, TASK, strategy)
    markup = checked_markup(est._repr_html_())
    if not est.illegal:
        assert {"details", "summary", "caption", "th"} <= set(markup.seen)
        assert ("scope", "row") in markup.attributes


def test_html_is_escaped(cluster: sm.Cluster) -> None:
    shape = catalog.load("models", "llama3_8b")["architecture"]
    model = sm.model({"name": "<script>alert('&')</script>", "architecture": shape})
    text = sm.estimate(model, cluster, TASK, sm.Strategy(tp=8))._repr_html_()
    checked_markup(text)
    assert "&lt;script&gt;" in text


# ------------------------------------------------------------------------------------- verdicts
def test_every_reason_has_a_case() -> None:
    assert {"ok", "out_of_memory", *ILLEGAL} == set(_core.reasons())


@pytest.mark.parametrize("reason", ILLEGAL)
def test_illegal_strategies_are_answers(reason: str) -> None:
    est = illegal_estimate(reason)
    assert est.verdict == f"illegal:{reason}"
    assert est.reason == reason
    assert est.illegal
    assert not est.fits
    assert est.step_time_s is None
    assert est.cost_usd is None
    assert est.breakdown().empty
    assert est.memory().empty
    assert est.operators().empty
    row = est.to_dict()
    assert row["verdict"] == est.verdict
    assert all(row[name] is None for name in (*TIME_COLUMNS, *MEMORY_COLUMNS, "energy_j"))
    assert pickle.loads(pickle.dumps(est)) == est


# ------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: sm.estimate("llama9", "dgx_h100", TASK), "llama9"),
        (lambda: sm.estimate("llama3_8b", "dgx_h", TASK), "dgx_h"),
        (lambda: sm.estimate("llama3_8b", "dgx_h100", "task"), "task="),  # type: ignore[arg-type]
        (
            lambda: sm.estimate("llama3_8b", "dgx_h100", TASK, {"tp": 2}),  # type: ignore[arg-type]
            "strategy=",
        ),
        (lambda: sm.estimate("llama3_8b", "dgx_h100", TASK, stack="nope"), "nope"),
        (lambda: sm.Strategy(tp=0), "tp=0"),
        (lambda: sm.Strategy(tp=1.5), "tp=1.5"),  # type: ignore[arg-type]
        (lambda: sm.Strategy(sharding="zero9"), "zero9"),
        (lambda: sm.Training(global_batch=-1, sequence=8), "global_batch=-1"),
        (lambda: sm.Training(global_batch=1, sequence=8, imbalance=math.nan), "imbalance"),
        (lambda: sm.cluster("dgx_h100", nodes=2, accelerators=16), "nodes"),
    ],
)
def test_malformed_questions_raise_and_name_the_argument(
    call: Callable[[], object], named: str
) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        call()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------- fuzz
def random_strategies(rng: random.Random, count: int) -> Iterator[sm.Strategy]:
    """Strategies of every field, more often plausible than not."""
    small = [1, 1, 1, 2, 2, 4, 8, 3, 16, 64]
    rows = _core.Strategy.fields()
    for _ in range(count):
        given: dict[str, Any] = {}
        for row in rows:
            if rng.random() < 0.55:
                continue
            if row["kind"] == "bool":
                given[row["name"]] = rng.random() < 0.5
            elif row["kind"] == "choice":
                given[row["name"]] = rng.choice(row["choices"])
            elif rng.random() < 0.03:
                given[row["name"]] = rng.randint(int(row["low"]), int(row["high"]))
            else:
                given[row["name"]] = max(int(row["low"]), rng.choice(small))
        if rng.random() < 0.9:
            given.pop("dp", None)
        yield sm.Strategy(**given)


FUZZ_QUESTIONS = [
    ("llama3_70b", 64, sm.Training(global_batch=1024, sequence=8192)),
    ("mixtral_8x7b", 2, sm.FineTuning(global_batch=64, sequence=4096, method="lora")),
    ("deepseek_v3", 256, sm.Training(global_batch=4096, sequence=4096, precision="fp8")),
    ("gpt3_175b", 1, sm.Training(global_batch=7, sequence=2048, attention="unfused", dropout=True)),
]


def test_random_strategies_never_crash_nor_give_nonsense() -> None:
    rng = random.Random(20240607)
    verdicts: dict[str, int] = {}
    for name, nodes, task in FUZZ_QUESTIONS:
        model, cluster = sm.model(name), sm.cluster("dgx_h100", nodes=nodes)
        tables = _core.Tables(model.core, cluster.core, task.core, resolve.stack("plain"))
        for strategy in random_strategies(rng, 2500):
            core = tables.estimate(strategy)
            row = core.to_dict()
            verdict = row.pop("verdict")
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            for column, value in row.items():
                assert math.isfinite(value), (column, value, strategy)
                assert value >= 0, (column, value, strategy)
            if verdict in ("ok", "out_of_memory"):
                parts = math.fsum(row[column] for column in TIME_COLUMNS)
                assert math.isclose(parts, row["step_time_s"], rel_tol=1e-9), strategy
                kinds = math.fsum(row[column] for column in MEMORY_COLUMNS)
                assert math.isclose(kinds, row["memory_bytes"], rel_tol=1e-9), strategy
                assert (verdict == "ok") == (row["memory_bytes"] <= row["memory_capacity_bytes"])
                assert row["mfu_fraction"] <= row["hfu_fraction"] < 1, strategy
    assert verdicts["ok"] > 100
    assert verdicts["out_of_memory"] > 100
    assert len(verdicts) > 10


JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    7,
    1e300,
    math.nan,
    math.inf,
    10**40,
    "",
    "x",
    "80 Gb",
    "-3 GB/s",
    "1e999 GB",
    "3.35 TB/s",
    "NVIDIA H100 80GB HBM3",
    [],
    [1, 2],
    {},
    {"value": None},
    {"value": "1 GB"},
    {"value": {"value": 1}},
    {"base": "dgx_h100"},
    {"base": 3},
    b"bytes",
    object(),
]


def paths_of(table: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, cell in table.items():
        found.append((*prefix, key))
        if isinstance(cell, dict):
            found += paths_of(cell, (*prefix, key))
    return found


def mutated(table: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A deep copy with one to three cells replaced, removed, renamed or added."""
    result = copy.deepcopy(table)
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(paths_of(result) or [("x",)])
        parent: Any = result
        for key in path[:-1]:
            parent = parent[key]
        action = rng.random()
        if action < 0.6:
            parent[path[-1]] = copy.deepcopy(rng.choice(JUNK))
        elif action < 0.75:
            parent.pop(path[-1], None)
        elif action < 0.9:
            parent[path[-1] + "_x"] = parent.get(path[-1])
        else:
            parent[rng.choice(["source", "value", "base", "name", "x"])] = copy.deepcopy(
                rng.choice(JUNK)
            )
    return result


def hugging_face_config() -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "tie_word_embeddings": False,
        "rope_scaling": {"factor": 8.0},
    }


def training_fields() -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(sm.Training) if item.init}
    return {key: value for key, value in TASK.core.to_dict().items() if key in names}


def make_cluster(table: dict[str, Any]) -> None:
    sm.cluster(table, nodes=2)


def make_training(table: dict[str, Any]) -> None:
    sm.Training(**table)


def make_tuning(table: dict[str, Any]) -> None:
    sm.FineTuning(**table)


def make_strategy(table: dict[str, Any]) -> None:
    sm.Strategy(**table)


SEEDS: list[tuple[str, Callable[[Any], object], Callable[[], dict[str, Any]], int]] = [
    ("cluster", make_cluster, lambda: dict(catalog.load("clusters", "dgx_h100")), 1500),
    (
        "accelerator",
        make_cluster,
        lambda: {
            **catalog.load("clusters", "dgx_h100"),
            "accelerator": dict(catalog.load("accelerators", "h100_sxm_80")),
        },
        1500,
    ),
    ("model", sm.model, lambda: dict(catalog.load("models", "deepseek_v3")), 2500),
    ("config", sm.model, hugging_face_config, 2000),
    ("training", make_training, training_fields, 800),
    (
        "tuning",
        make_tuning,
        lambda: sm.FineTuning(global_batch=8, sequence=128).core.to_dict(),
        800,
    ),
    ("strategy", make_strategy, lambda: sm.Strategy(tp=2).to_dict(), 900),
]


@pytest.mark.filterwarnings("ignore:.*keys not understood:UserWarning")
@pytest.mark.parametrize(("name", "make", "seed", "count"), SEEDS, ids=[row[0] for row in SEEDS])
def test_mutated_input_raises_nothing_but_scale_model_errors(
    name: str, make: Callable[[Any], object], seed: Callable[[], dict[str, Any]], count: int
) -> None:
    rng = random.Random(name)
    good = seed()
    refused = []
    for _ in range(count):
        table = mutated(good, rng)
        if make in (make_training, make_tuning, make_strategy):
            # Unknown keywords are a matter of Python's own TypeError.
            table = {key: cell for key, cell in table.items() if key in good}
            if make is not make_strategy:  # a missing argument likewise
                table = {"global_batch": 8, "sequence": 128, **table}
        try:
            make(table)
        except sm.ScaleModelError as error:
            refused.append(str(error))
    assert len(refused) >= count // 4
    assert all(text.strip() for text in refused)


def test_constants_of_ones_own_take_the_place_of_a_named_stack(cluster: sm.Cluster) -> None:
    own = resolve.stack("plain").replace(host_launch_s=4e-6)
    asked = ("llama3_70b", cluster, TASK, sm.Strategy(tp=8, pp=4))
    est = sm.estimate(*asked, stack=own)
    assert est.stack == own
    assert est.step_time_s >= sm.estimate(*asked, stack="plain").step_time_s
    assert sm.estimate(*asked, stack=resolve.stack("plain")).core == sm.estimate(*asked).core
    assert est.summary().splitlines()[0].endswith("stack of its own")
    assert "Stack(" not in str(est.explain())
    chat = sm.Inference(input_tokens=100, output_tokens=10)
    with pytest.raises(sm.ScaleModelError, match=r"stack=.*must name an engine"):
        sm.estimate("llama3_8b", cluster, chat, stack=own)
