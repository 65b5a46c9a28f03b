"""The page in a real browser, with the engine of a build: its answers are those of Python.

``SCALEMODEL_PAGE_ENGINE`` names the engine.wasm; otherwise that of ``build/page``, where there is
one.
"""

from __future__ import annotations

import functools
import http.server
import os
import random
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from browsers import headless
from scalemodel import catalog
from scalemodel.page import export_page
from scalemodel.page.serving import BATCHED_TOKENS, CACHES, PER_OCTAVE, WEIGHTS
from scalemodel.page.settings import FIRST, SERVING, SPACE, TOP
from scalemodel.search.objective import HEADROOM
from scalemodel.serving import serving_layouts

FIRST_MS, TURN_MS, SITE_BYTES = 3000, 50, 8_000_000
RANKING_MS = 50
TOLERANCE = 1e-9
TASK = ("global_batch", "sequence", "precision")

ASK = """async (asked_values) => {
  const {values: before, what} = {values, what: asked_values.what};
  values = {...SETTINGS.first, ...SETTINGS.strategy, ...asked_values.values};
  const questions = {
    estimate: () => asked({ask: "estimate", strategy: ownStrategy()}),
    search: askedRanking,
    front: askedFront,
  };
  try {
    const question = questions[what]();
    values = before;
    return await ask(question);
  } catch (error) {
    values = before;
    return {refused: error.message};
  }
}"""
# Milliseconds from another value of a menu to its answer on the page.
TURN = """async ([name, value]) => {
  const before = document.body.dataset.answered;
  inputs[name].value = value;
  inputs[name].dispatchEvent(new Event(inputs[name].tagName === "SELECT" ? "change" : "input"));
  while (document.body.dataset.answered === before) {
    await new Promise((next) => setTimeout(next, 1));
  }
  return Number(document.body.dataset.took);
}"""
# Milliseconds that the worker takes for the ranking, or the front, of another question.
RANKING = """async ([what, asked_values]) => {
  const before = values;
  values = {...SETTINGS.first, ...SETTINGS.strategy, ...asked_values};
  const question = what === "front" ? askedFront() : askedRanking();
  values = before;
  const start = performance.now();
  await rank(question);
  return performance.now() - start;
}"""
WARM = "() => document.body.dataset.warm !== undefined"
ANSWERED = "() => document.body.dataset.answered !== undefined"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = Path(__file__).parents[3]
    engine = Path(os.environ.get("SCALEMODEL_PAGE_ENGINE", root / "build" / "page" / "engine.wasm"))
    if not engine.exists():
        assert "SCALEMODEL_PAGE_ENGINE" not in os.environ, engine
        pytest.skip("no engine for pages: build with -DSCALEMODEL_PAGE=ON")
    folder = tmp_path_factory.mktemp("page") / "site"
    written = export_page(folder, engine=engine)
    assert sum(path.stat().st_size for path in written) <= SITE_BYTES
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with headless() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(browser: Any, site: Path) -> Any:
    view = browser.new_page(viewport={"width": 1300, "height": 1200})
    view.goto((site / "index.html").as_uri())
    view.wait_for_function(ANSWERED)
    return view


def asked(question: dict[str, Any]) -> sm.Estimate:
    """The same question, asked in Python."""
    knobs = {name: value for name, value in question.items() if name not in (*TASK, *OTHERS)}
    cluster = sm.cluster(question["cluster"], nodes=question["nodes"])
    task = sm.Training(**{name: question[name] for name in TASK})
    strategy = sm.Strategy(**knobs)
    return sm.estimate(question["model"], cluster, task, strategy, stack=question["stack"])


OTHERS = ("model", "cluster", "nodes", "stack", *SERVING)


def drawn(draw: random.Random) -> dict[str, Any]:
    """Some question: legal in most cases."""
    return {
        "model": draw.choice(catalog.names("models")),
        "cluster": draw.choice(catalog.names("clusters")),
        "nodes": draw.choice([1, 2, 8, 16, 64]),
        "stack": draw.choice(catalog.names("stacks")),
        "global_batch": 512,
        "sequence": draw.choice([2048, 8192]),
        "precision": draw.choice(["bf16", "fp8"]),
        "tp": draw.choice([1, 1, 2, 4, 8]),
        "cp": draw.choice([1, 1, 2]),
        "pp": draw.choice([1, 1, 2, 4]),
        "micro_batch": draw.choice([1, 2]),
        "schedule": draw.choice(["1f1b", "gpipe", "zero_bubble"]),
        "sharding": draw.choice(["ddp", "zero1", "zero3"]),
        "recompute": draw.choice(["none", "selective", "full"]),
        "sequence_parallel": draw.choice([True, False]),
    }


def close(here: float | None, there: float) -> bool:
    return here is not None and abs(here - there) <= TOLERANCE * abs(there)


@pytest.mark.slow
def test_answers_are_those_of_python(page: Any, summary_line: Any) -> None:
    draw = random.Random(27)
    worst, ran = 0.0, 0
    for question in [FIRST, *(drawn(draw) for _ in range(150))]:
        here = page.evaluate(ASK, {"what": "estimate", "values": question})["estimate"]
        there = asked(question).core.to_dict()
        assert here.keys() == there.keys()
        for column, value in there.items():
            if isinstance(value, str):
                assert here[column] == value, (column, question)
                continue
            assert close(here[column], value), (column, value, here[column], question)
            worst = max(worst, abs(here[column] - value) / abs(value) if value else 0.0)
        ran += there["verdict"] in ("ok", "out_of_memory")
    assert ran > 60
    summary_line(f"page: {ran} answers equal Python's to {worst:.1e}")


@pytest.mark.slow
def test_the_roofline_holds_every_gemm_of_python(page: Any) -> None:
    question = {**FIRST, "model": "deepseek_v3", "nodes": 256, "ep": 8}
    drawn = page.evaluate(ASK, {"what": "estimate", "values": question})["roofline"]
    est = asked(question)
    rows = est.operators()
    rows = rows[rows.m > 0]
    assert [dot["operator"] for dot in drawn["gemms"]] == rows.operator.tolist()
    peak = est.cluster.core.accelerator.peak_flop_per_s[_core.precisions().index("bf16")]
    assert close(drawn["peak_flop_per_s"], peak)
    bandwidth = est.cluster.core.accelerator.memory_bandwidth_bytes_per_s
    assert close(drawn["ridge_flop_per_byte"], peak / bandwidth)
    for dot, row in zip(drawn["gemms"], rows.itertuples(), strict=True):
        assert dot["kind"] == row.layer_kind
        assert close(dot["forward_s"], row.forward_s)
        flop = 2 * row.m * row.n * row.k * row.batch
        moved = 2 * row.batch * (row.m * row.k + row.k * row.n + row.m * row.n)
        assert close(dot["flop_per_s"], flop / row.forward_s)
        assert close(dot["flop_per_byte"], flop / moved)
        assert dot["flop_per_s"] < peak


@pytest.mark.slow
@pytest.mark.parametrize(("model", "nodes"), [("llama3_8b", 2), ("mixtral_8x7b", 4)])
def test_the_best_strategies_are_those_of_a_sweep(page: Any, model: str, nodes: int) -> None:
    question = {**FIRST, "model": model, "nodes": nodes, "global_batch": 256}
    found = page.evaluate(ASK, {"what": "search", "values": question})
    task = sm.Training(**{name: question[name] for name in TASK})
    frame = sm.sweep(model, sm.cluster("dgx_h100", nodes=nodes), task, SPACE, stack="plain")
    assert found["strategies"] == len(frame)
    frame = frame[
        (frame.verdict == "ok")
        & (frame.memory_bytes <= (1 - HEADROOM) * frame.memory_capacity_bytes)
    ]
    best = frame.nsmallest(3 * TOP, "step_time_s").step_time_s.tolist()
    steps = [row["estimate"]["step_time_s"] for row in found["best"]]
    assert close(steps[0], best[0])
    # Equal answers stand once on the page, as often as there are strategies in the sweep.
    assert all(any(close(step, other) for other in best) for step in steps)
    assert steps == sorted(steps)


def reads_text(model: sm.Model) -> bool:
    """Whether its encoder reads a text, not windows of speech."""
    return bool(model.shape.encoder_layers) and not model.shape.encoder_positions


def served(question: dict[str, Any]) -> Any:
    """The same front, asked in Python, or its refusal."""
    cluster = sm.cluster(question["cluster"], nodes=question["nodes"])
    model = sm.model(question["model"])
    task = sm.Inference(
        input_tokens=question["input_tokens"],
        output_tokens=question["output_tokens"],
        source_tokens=question["source_tokens"] if reads_text(model) else 0,
        precision=question["weights"],
        kv_precision=question["kv_cache"],
    )
    try:
        return sm.plan_serving(
            model,
            cluster,
            task,
            engine=question["engine"],
            layouts=serving_layouts(model, cluster, question["instance_accelerators"]),
            most_tokens=BATCHED_TOKENS,
            per_octave=PER_OCTAVE,
            top=1,
            checked=False,
        ).front
    except sm.ScaleModelError as error:
        return str(error)


#: Columns of a front in Python, and where the page has them.
FRONT = {
    "output_tokens_per_s_per_accelerator": lambda plan: plan["output_tokens_per_s_per_accelerator"],
    "tpot_s": lambda plan: plan["state"]["tpot_s"],
    "ttft_s": lambda plan: plan["state"]["ttft_s"],
    "concurrency": lambda plan: plan["state"]["concurrency"],
    "requests_per_s": lambda plan: plan["state"]["requests_per_s"],
    "most_tokens": lambda plan: plan["max_batched_tokens"],
    "tp": lambda plan: plan["layout"]["tp"],
    "ep": lambda plan: plan["layout"]["ep"],
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* learned positions")
def test_the_serving_front_is_that_of_python(page: Any, summary_line: Any) -> None:
    draw = random.Random(31)
    plans = refused = 0
    for number in range(60):
        question = {**FIRST, **SERVING}
        if number:
            question |= {
                "model": draw.choice(catalog.names("models")),
                "cluster": draw.choice(catalog.names("clusters")),
                "nodes": draw.choice([1, 2, 8]),
                "engine": draw.choice(catalog.names("engines")),
                "weights": draw.choice(WEIGHTS),
                "kv_cache": draw.choice(CACHES),
                "input_tokens": draw.choice([100, 2000, 30000]),
                "output_tokens": draw.choice([1, 300, 2000]),
                "instance_accelerators": draw.choice([1, 4, 8, 16, 64]),
            }
        here = page.evaluate(ASK, {"what": "front", "values": question})
        there = served(question)
        if isinstance(there, str):
            named = f"model={question['model']!r}: "  # of the page there is one model
            assert here["refused"] == there.replace(named, "model: "), question
            refused += 1
            continue
        assert "front" in here, (question, here)
        assert len(here["front"]) == len(there), question
        for column, of_plan in FRONT.items():
            for plan, value in zip(here["front"], there[column], strict=True):
                assert close(of_plan(plan), value), (column, question)
        for plan, gap in zip(here["front"], there["tpot_s"], strict=True):
            assert close(plan["tokens_per_s_per_user"], 1 / gap)
        plans += len(there)
    assert plans > 300
    assert refused < 30
    summary_line(f"page: {plans} plans of serving fronts equal Python's")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* learned positions")
def test_sources_of_encoders_have_a_length(page: Any, summary_line: Any) -> None:
    encoders = [name for name in catalog.names("models") if sm.model(name).shape.encoder_layers]
    assert {"t5_base", "flan_t5_xxl", "bart_large", "whisper_base"} <= set(encoders)
    for name in encoders:
        question = {**FIRST, **SERVING, "model": name, "nodes": 1, "source_tokens": 700}
        question |= {"input_tokens": 4, "output_tokens": 200, "weights": "bf16"}
        here, there = page.evaluate(ASK, {"what": "front", "values": question}), served(question)
        if isinstance(there, str):  # the text of speech is at most as long as its decoder reads
            assert here["refused"] == there, question
            continue
        assert len(here["front"]) == len(there), question
        too_large = sm.model(name).parameters * 2 > 8 * 80e9  # of BF16, for the node's memory
        assert bool(len(there)) is not too_large, question
        for column, of_plan in FRONT.items():
            for plan, value in zip(here["front"], there[column], strict=True):
                assert close(of_plan(plan), value), (column, question)
    # It is a number of the question only where an encoder reads a text.
    start = page.url.split("#")[0]
    for name, shown in (("t5_base", True), ("whisper_base", False), ("llama3_8b", False)):
        page.goto(f"{start}#model={name}&nodes=1")
        page.wait_for_function("name => values.model === name", arg=name)
        assert page.is_enabled("#control-source_tokens") == shown
    summary_line(f"page: {len(encoders)} models with encoders served as Python serves them")


@pytest.mark.slow
def test_the_front_is_shown_and_asked_in_the_address(browser: Any, site: Path) -> None:
    view = browser.new_page()
    view.goto((site / "index.html").as_uri() + "#model=llama3_8b&weights=bf16&engine=sglang_2025")
    view.wait_for_selector("#front svg circle")
    assert "bf16 weights" in view.text_content("#front .note")
    assert view.input_value("#control-weights") == "bf16"
    assert view.locator("#front tbody tr").count() >= 2
    # Where nothing fits the page says so.
    view.goto(
        (site / "index.html").as_uri() + "#cluster=dgx_a100&weights=fp4&instance_accelerators=1"
    )
    view.wait_for_function("() => document.body.dataset.served !== undefined")
    view.wait_for_function("() => document.querySelector('#front .note').textContent !== ''")
    assert view.locator("#front").is_visible()
    view.close()


@pytest.mark.slow
def test_the_best_strategies_come_while_a_reader_looks(page: Any, summary_line: Any) -> None:
    page.evaluate(RANKING, ["search", {}])
    spent = []
    for number in range(1, 13):
        # Another batch, sequence or number of nodes: other tables, other pipelines.
        change = {
            "global_batch": 1024 + 64 * number,
            "sequence": 4096 + 256 * (number % 3),
            "nodes": (64, 32, 128)[number % 3],
        }
        spent.append(page.evaluate(RANKING, ["search", change]))
    quartile_ms, median_ms, _ = statistics.quantiles(spent, n=4)
    summary_line(f"page: {median_ms:.0f} ms for the best strategies, {max(spent):.0f} at most")
    # As of turns: on a busy machine most wait for others.
    assert quartile_ms < RANKING_MS, spent


@pytest.mark.slow
def test_experts_are_ranked_and_served_on_many_accelerators_too(
    browser: Any, site: Path, summary_line: Any
) -> None:
    view = browser.new_page()
    view.goto((site / "index.html").as_uri())
    view.wait_for_function(WARM)
    # What was asked beside has left no trace on the page.
    assert view.input_value("#control-model") == FIRST["model"]
    assert view.evaluate("values.model") == FIRST["model"]
    routed = {"model": "deepseek_v3", "nodes": 256}
    told = []
    for name, what, change in (
        ("first ranking of experts", "search", routed),
        ("another", "search", {**routed, "global_batch": 1088, "nodes": 128}),
        ("front of 16", "front", {**routed, "instance_accelerators": 16}),
        ("32", "front", {**routed, "instance_accelerators": 32}),
        ("64 accelerators", "front", {**routed, "instance_accelerators": 64}),
    ):
        took_ms = view.evaluate(RANKING, [what, change])
        told.append(f"{name} {took_ms:.0f} ms")
    view.close()
    summary_line(f"page: {', '.join(told)}")


@pytest.mark.slow
def test_a_turn_is_answered_at_once(page: Any, summary_line: Any) -> None:
    spent = []
    for i in range(12):
        spent.append(page.evaluate(TURN, ["tp", ("1", "2", "4", "8")[i % 4]]))
        spent.append(page.evaluate(TURN, ["global_batch", str(1024 + 32 * i)]))
    quartile_ms, median_ms, _ = statistics.quantiles(spent, n=4)
    summary_line(f"page: {median_ms:.0f} ms from a turn to the answer on the page")
    # As of the explorer: on a busy machine most turns wait for others.
    assert quartile_ms < TURN_MS, spent


@pytest.mark.slow
def test_the_address_is_the_question(browser: Any, site: Path, page: Any) -> None:
    page.evaluate(TURN, ["sharding", "zero3"])
    page.evaluate(TURN, ["sequence", "4096"])
    address = page.url
    assert "sharding=zero3" in address
    assert "sequence=4096" in address
    other = browser.new_page()
    other.goto(address)
    other.wait_for_function(ANSWERED)
    assert other.text_content("#step") == page.text_content("#step")
    assert other.input_value("#control-sharding") == "zero3"
    # What is not asked for is a default of the knobs, not of the first question.
    other.goto((site / "index.html").as_uri() + "#tp=8")
    other.wait_for_function("() => values.tp === 8")
    assert other.evaluate("values.vpp") == 1
    other.close()


@pytest.mark.slow
def test_a_malformed_question_gets_one_sentence_and_the_next_an_answer(page: Any) -> None:
    refused = page.evaluate(ASK, {"what": "estimate", "values": {**FIRST, "sequence": 0.5}})
    assert refused["refused"].startswith("sequence=0.5: must be a whole number from 1 to")
    refused = page.evaluate(ASK, {"what": "estimate", "values": {**FIRST, "sharding": "zero9"}})
    assert refused["refused"].startswith("sharding='zero9': must be one of ddp, zero1")
    again = page.evaluate(ASK, {"what": "estimate", "values": FIRST})
    assert close(again["estimate"]["step_time_s"], asked(FIRST).core.step_time_s)
    start = page.url.split("#")[0]
    page.goto(f"{start}#sequence=0")
    page.wait_for_function("() => !document.querySelector('#refusal').hidden")
    assert "sequence=0: must be" in page.text_content("#refusal")
    page.goto(f"{start}#model=none")
    page.wait_for_function("() => document.querySelector('#refusal').textContent.includes('none')")
    page.goto(f"{start}#tp=3")
    page.wait_for_selector("#headline >> text=does not divide the accelerators")
    assert page.is_hidden("#refusal")


@pytest.mark.slow
def test_a_strategy_that_is_taken_is_shown(page: Any) -> None:
    page.goto(page.url.split("#")[0] + "#model=llama3_8b&nodes=2&global_batch=256")
    page.wait_for_function("() => ranked !== null && ranked.key.includes('\"layers\":32')")
    page.wait_for_selector("#best tbody button")
    step = page.text_content("#best tbody tr:first-child td:nth-child(2)")
    page.click("#best tbody tr:first-child button")
    page.wait_for_selector("#best tbody tr.present")
    assert page.text_content("#step") == f"{step} a step"


@pytest.mark.slow
def test_a_static_host_is_enough(browser: Any, site: Path, summary_line: Any) -> None:
    serve = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}/"
        requested: list[str] = []
        said: list[str] = []
        for width in (400, 1200):
            view = browser.new_page(viewport={"width": width, "height": 900})
            view.on("request", lambda request: requested.append(request.url))
            view.on("console", lambda message: said.append(message.text))
            view.on("pageerror", lambda error: said.append(str(error)))
            view.goto(origin)
            view.wait_for_function(ANSWERED)
            first_ms = view.evaluate("() => performance.now()")
            assert first_ms < FIRST_MS
            view.wait_for_selector("#best tbody button")
            assert view.evaluate("() => document.documentElement.scrollWidth") <= width
            boxes = [view.locator(part).bounding_box() for part in ("#time .bar", "#roofline svg")]
            assert all(box["width"] > 0.5 * min(width, 800) for box in boxes), boxes
            view.close()
        server.shutdown()
    summary_line(f"page: first answer after {first_ms:.0f} ms")
    assert all(url.startswith((origin, f"blob:{origin.rstrip('/')}", "data:")) for url in requested)
    assert not said


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """A host of files, as plain as they come."""

    def log_message(self, *_: object) -> None:
        """Nothing is told."""
