"""Names and files of strangers: nothing they hold runs, hangs, or takes another's place."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import scalemodel as sm
from fuzz.importers import configurations
from scalemodel import catalog, cli
from scalemodel.base.reading import parse_json, read_unpacked
from scalemodel.base.safe_text import csv_cell, plain
from scalemodel.interop.jobs.logs import read_log
from scalemodel.interop.jobs.step_tables import Step
from scalemodel.interop.settings import Launch
from scalemodel.plot import save

TASK = sm.Training(global_batch=16, sequence=2048)
HOSTILE = (
    "x\ntouch ran #",
    "x\r\ntouch ran\n",
    "$(touch ran)",
    "`touch ran`",
    "'; touch ran; '",
    '"; touch ran; "',
    "END\ntouch ran\n",
    "x\x1b]0;title\x07\x1b[31m",
    "=HYPERLINK(A1)",
    "@SUM(A1)",
    "$\\frac{",
    "<script>alert(1)</script>",
    "x\u2028touch ran\u202e",
    "",
)


def hostile_model(tmp_path: Path, name: str) -> sm.Model:
    folder = tmp_path / "hostile"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**configurations()[0], "_name_or_path": name}))
    return sm.model(folder / "config.json")


def shows(text: str) -> bool:
    """Whether every line is made of what is seen only."""
    return all(line.isprintable() for line in text.replace("\t", " ").split("\n"))


def run_script(text: str, folder: Path) -> list[str]:
    """Runs a script where every program only notes its name; what it leaves behind."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("torchrun", "accelerate", "vllm", "python", "trtllm-serve", "touch", "cat"):
        program = programs / name
        body = "/bin/cat" if name == "cat" else f'echo {name} >> "$NOTES"'
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    notes = folder / "notes"
    subprocess.run(
        ["/bin/bash", "-c", text],
        cwd=folder,
        env={"PATH": str(programs), "NOTES": str(notes), "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        check=True,
        timeout=20,
    )
    return notes.read_text().split()


# ------------------------------------------------------------------------------------- names, out
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed", "accelerate"])
def test_scripts_of_training_start_their_framework_only(
    tmp_path: Path, framework: str, name: str
) -> None:
    est = sm.estimate(hostile_model(tmp_path, name), "dgx_h100", TASK, sm.Strategy(tp=2))
    job = sm.launch(est, framework)
    started = "accelerate" if framework == "accelerate" else "torchrun"
    assert run_script(job.script(), tmp_path) == [started]
    assert shows(job.script())


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "TensorRT-LLM"])
def test_commands_of_serving_start_their_engine_only(
    tmp_path: Path, engine: str, name: str
) -> None:
    task = sm.Inference(input_tokens=100, output_tokens=10)
    plan = sm.serve(hostile_model(tmp_path, name), "dgx_h100", task, engine=engine)
    started = {"vllm": "vllm", "sglang": "python", "TensorRT-LLM": "trtllm-serve"}[engine]
    assert run_script(plan.launch(), tmp_path) == [started]
    assert shows(plan.launch())


def test_a_name_that_reads_as_an_option_is_no_argument_of_a_command(tmp_path: Path) -> None:
    task = sm.Inference(input_tokens=100, output_tokens=10)
    plan = sm.serve(hostile_model(tmp_path, "--config=evil"), "dgx_h100", task)
    with pytest.raises(sm.ScaleModelError, match="starts with '-'"):
        plan.launch()


def test_notes_words_and_variables_of_a_script_are_quoted(tmp_path: Path) -> None:
    bad = "x\ntouch ran; $(touch ran)"
    job = Launch("megatron", ("torchrun", bad), {"A": bad}, {"a b.json": f"{bad}\n"}, (bad,))
    assert run_script(job.script(), tmp_path) == ["torchrun"]
    with pytest.raises(sm.ScaleModelError, match="'END'"):
        Launch("megatron", ("torchrun",), {}, {"a": "x\nEND\ntouch ran"}, ()).script()


@pytest.mark.parametrize("name", HOSTILE)
def test_tables_screens_and_pages_show_names_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    hostile_model(tmp_path, name)
    path = str(tmp_path / "hostile/config.json")
    asked = ["--cluster", "dgx_h100", "--global-batch", "16", "--sequence", "2048"]
    serve = ["serve", path, "--cluster", "dgx_h100", "--input-tokens", "100"]
    for command in (["estimate", path, *asked], [*serve, "--output-tokens", "10"]):
        for form in ([], ["--csv"], ["--json"]):
            assert cli.main([*command, *form]) == 0
            text = capsys.readouterr().out
            assert shows(text)
            if form == ["--csv"]:
                cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
                assert not any(cell[:1] in ("=", "@") for cell in cells)
    page = tmp_path / "page.html"
    assert cli.main(["report", path, *asked, "--out", str(page)]) == 0
    assert "<script>alert" not in page.read_text()


@pytest.mark.parametrize("name", ["$\\frac{", "a $x$ b", "$", "\\$5", "cost_$%"])
def test_plots_draw_dollar_signs(tmp_path: Path, name: str) -> None:
    est = sm.estimate(hostile_model(tmp_path, name), "dgx_h100", TASK, sm.Strategy(tp=2))
    with mpl.rc_context({"backend": "Agg"}):
        for number, ax in enumerate((sm.plot.breakdown(est), sm.plot.memory(est))):
            out = tmp_path / f"{number}.svg"
            save(ax, out)
            assert name.split("$")[0].replace("<", "&lt;") in out.read_text()
            mpl.pyplot.close("all")
    html = est._repr_html_()
    assert "<script" not in html


@pytest.mark.parametrize("name", HOSTILE)
def test_traces_and_estimates_hold_plain_names(tmp_path: Path, name: str) -> None:
    est = sm.estimate(hostile_model(tmp_path, name), "dgx_h100", TASK, sm.Strategy(tp=2))
    assert plain(est.model.name) == est.model.name
    kineto = sm.write_kineto(est.timeline(), tmp_path / "kineto")
    assert all(shows(str(kernel.name)) for kernel in sm.read_kineto(kineto[0]).kernels)
    chakra = sm.write_chakra(est.timeline(), tmp_path / "chakra")
    assert all(shows(node.name) for node in sm.read_chakra(chakra[0]))


def test_numbers_of_a_table_stay_numbers() -> None:
    assert [csv_cell(text) for text in ("-1.5", "+2e3", "-x", " =1+1")] == [
        *("-1.5", "+2e3"),
        *("'-x", "' =1+1"),
    ]


# --------------------------------------------------------------------------------------- names, in
def test_a_name_of_the_catalogue_wins_over_a_folder_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llama3_8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(configurations()[0]))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(configurations()[0]))
    monkeypatch.chdir(tmp_path)
    assert sm.model("llama3_8b").shape.layers == 32
    for written in ("./llama3_8b", str(folder), folder, "other"):
        assert sm.model(written).shape.layers == 4


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "\ud800", "a/" * 3000, "~nosuchuser/x"])
def test_names_that_are_none_are_refused(name: str) -> None:
    for ask in (sm.model, sm.cluster, sm.compose):
        with pytest.raises(sm.ScaleModelError):
            ask(name)


def test_a_key_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": 64, "hidden_size": 4096}')
    with pytest.raises(sm.ScaleModelError, match="hidden_size: stands there twice"):
        sm.model(path)
    assert parse_json('{"a": {"b": 1}, "b": {"b": 2}}', "x") == {"a": {"b": 1}, "b": {"b": 2}}


# --------------------------------------------------------------------------------------- catalogue
@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    return folder


@pytest.mark.parametrize(
    "text, reason",
    [
        ("aliases = 5\n", "aliases=5: must be a list of names"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a." * 50_000 + "b = 1", "a key has more than 64 parts"),
        ("a = \xff", "not valid TOML"),
    ],
)
def test_a_broken_entry_is_named_and_the_others_listed(
    private: Path, text: str, reason: str
) -> None:
    before = len(catalog.names("models"))
    (private / "broken.toml").write_text(text)
    with pytest.warns(UserWarning, match=rf"left out: .*broken\.toml.*{reason}"):
        assert len(sm.list_catalog("models")) == before
    assert sm.model("Llama-3-8B").shape.layers == 32  # an alias, for which all entries are read
    with pytest.raises(sm.ScaleModelError):
        sm.model("broken")


def test_a_loop_of_links_and_an_unknown_user_are_no_faults(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (private / "loop.toml").symlink_to(private / "loop.toml")
    with pytest.warns(UserWarning, match=r"loop\.toml: cannot be read"):
        assert "loop" not in set(sm.list_catalog("models")["name"])
    with pytest.raises(sm.ScaleModelError, match=r"loop\.toml: cannot be read"):
        sm.model("loop")
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", "~nosuchuser/catalogue")
    assert sm.model("llama3_8b").shape.layers == 32


def test_titles_of_entries_are_plain(private: Path) -> None:
    text = catalog.path_of("models", "llama3_8b").read_text()
    changed = text.replace('title = "', 'title = "\\u001b[31m\\n', 1)
    assert changed != text
    (private / "tinted.toml").write_text(changed)
    assert sm.model("tinted").title.startswith("[31m")


# ------------------------------------------------------------------------------------- time, memory
def steps_of(source: str | Path) -> tuple[Step, ...]:
    """Steps of a log; none where no line is known."""
    try:
        return read_log(source).steps
    except sm.ScaleModelError as error:
        if "no line is known" not in str(error):
            raise
        return ()


@pytest.mark.parametrize(
    "line",
    [
        "1/1 [" + "1" * 1_000,
        "1/1 [" + "1" * 100_000,
        "1" * 100_000,
        "1/1 [" * 20_000,
        "  a ... x" + " " * 100_000 + "y",
        "step: 1 " * 12_500,
        "global_step: 1 " * 12_500,
        "\x1b[" * 50_000,
        "iteration " + "9" * 5_000 + "/ 9 | elapsed time per iteration (ms): 1.0 |",
        "completed step: 1, seconds: " + "1," * 50_000,
        "iteration 1/ 9 | elapsed time per iteration (ms): 1e999 |",
    ],
    ids=lambda line: f"{line[:20]}-{len(line)}",
)
def test_lines_of_logs_take_linear_time(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.txt"
    path.write_text(f"{line}\n")
    for source in (path, f"{line}\n{line}"):
        begin = time.process_time()
        steps = steps_of(source)
        assert time.process_time() - begin < 0.5
        assert all(0 <= step.step < 10**18 for step in steps)


def test_thousands_in_a_progress_bar_are_read() -> None:
    log = read_log("x\n1/9 [00:30<20:20, 1,000.5s/it]\n")
    assert log.steps[0].time_s == 1000.5


def test_a_bomb_is_refused_before_it_unpacks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(64):
            file.write(bytes(2**20))
    with pytest.raises(sm.ScaleModelError, match="more than 200 times its size"):
        sm.read_kineto(path)
    with pytest.raises(sm.ScaleModelError, match="holds more than 1 MiB"):
        read_unpacked(path, 2**20)


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", [2**70, 10**400, -(2**70), "1", True])
def test_events_at_no_time_are_left_out(tmp_path: Path, key: str, value: object) -> None:
    kernel: dict[str, Any] = {
        **{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 5},
        "args": {"stream": 7, "Input Dims": 5},
    }
    path = tmp_path / "trace.json"
    with warnings.catch_warnings():
        path.write_text(json.dumps({"traceEvents": [kernel, {**kernel, key: value}]}))
    if value is not True:
        assert len(sm.read_kineto(path).kernels) == 1


@pytest.mark.parametrize("rule", ["tp" + " * tp" * 5_000 + " <= 8", "-" * 100_000, "(" * 400])
def test_long_rules_are_refused(rule: str) -> None:
    with pytest.raises(sm.ScaleModelError, match="where="):
        sm.Space(where=rule)


def test_quantities_of_many_blanks_are_read_at_once() -> None:
    begin = time.process_time()
    with pytest.raises(sm.ScaleModelError, match="reads as bits"):
        sm.cluster({"base": "dgx_h100", "fabric": {"bandwidth": "1 a" + " " * 100_000 + "b"}})
    assert time.process_time() - begin < 1


def test_messages_show_no_escapes_and_have_an_end() -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        sm.cluster({"base": "dgx_h100", "\x1b[31m" + "x" * 100_000: 1})
    assert shows(str(caught.value))
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize(
    "ask",
    [
        lambda text: sm.Strategy(schedule=f"1f1b{text}"),
        lambda text: sm.Training(global_batch=8, sequence=128, precision=f"bf16{text}"),
        lambda text: sm.Space(schedule=[f"1f1b{text}"]),
        lambda text: sm.GroupStrategy(f"ddp{text}"),
    ],
    ids=["Strategy", "Training", "Space", "GroupStrategy"],
)
def test_half_of_a_surrogate_pair_is_part_of_no_name(ask: Callable[[str], object]) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        ask("\ud800")
    assert str(caught.value).isprintable()
