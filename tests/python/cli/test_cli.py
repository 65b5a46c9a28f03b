"""The command line: exit codes, one-line errors, and the same numbers as Python."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from questions import ILLEGAL
from scalemodel import catalog, cli

BASE = ["estimate", "llama3_70b", "--cluster", "dgx_h100", "--nodes", "64"]
TASK = ["--global-batch", "1024", "--sequence", "8192"]
FITS = [*BASE, *TASK, "--tp", "8", "--pp", "4"]


def python_estimate() -> sm.Estimate:
    return sm.estimate(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=64),
        sm.Training(global_batch=1024, sequence=8192),
        sm.Strategy(tp=8, pp=4),
    )


# ----------------------------------------------------------------------------------------- estimate
def test_a_strategy_that_fits_is_one_screen(run: Any) -> None:
    ran = run(*FITS)
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("llama3_70b · 512 × h100_sxm_80")
    for start in ("step ", "power ", "time ", "memory ", "verdict ok", "limited by", "next best"):
        assert any(line.startswith(start) for line in lines), start


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ([*BASE, *TASK], "out_of_memory "),
        ([*BASE, *TASK, "--tp", "7"], "illegal:mesh "),
        ([*BASE, *TASK, "--dp", "3"], "illegal:mesh "),
    ],
)
def test_what_cannot_run_is_answered_with_code_3(
    run: Any, arguments: list[str], start: str
) -> None:
    ran = run(*arguments)
    assert ran.code == 3
    assert ran.err == ""
    assert any(line.startswith(start) for line in ran.out.splitlines())
    assert "Fixes, fastest first:" in ran.out


@pytest.mark.parametrize("reason", [reason for reason in ILLEGAL if reason != "tp_ffn"])
def test_every_reason_is_answered_with_code_3(run: Any, reason: str) -> None:
    model, nodes, task, knobs = ILLEGAL[reason]
    options = [f"{cli.option_name(name)}={value}" for name, value in knobs.items()]
    options = [option.removesuffix("=True") for option in options]
    ran = run(
        *("estimate", model, "--cluster", "dgx_h100", "--nodes", str(nodes)),
        *("--global-batch", str(task.global_batch), "--sequence", str(task.sequence)),
        *("--precision", task.precision),
        *options,
    )
    assert ran.code == 3
    assert f"illegal:{reason} " in ran.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["estimate", "llama9", "--cluster", "dgx_h100", *TASK], "llama9"),
        (["estimate", "llama3_8b", "--cluster", "dgx", *TASK], "dgx"),
        (["estimate", "missing.json", "--cluster", "dgx_h100", *TASK], "missing.json"),
        (["estimate", "llama3_8b", "--cluster", "missing.toml", *TASK], "missing.toml"),
        ([*FITS, "--stack", "nope"], "nope"),
        ([*FITS, "--tp", "x"], "--tp"),
        ([*FITS, "--tp", "0"], "tp=0"),
        ([*FITS, "--sharding", "zero9"], "--sharding"),
        ([*FITS, "--imbalance", "nan"], "imbalance"),
        ([*FITS, "--accelerators", "8"], "--accelerators"),
        ([*FITS, "--json", "--csv"], "--csv"),
        ([*FITS, "--no-such-option"], "--no-such-option"),
        ([*FITS, "--sequ", "1"], "--sequ"),
        (BASE, "--global-batch"),
        (["estimate"], "MODEL"),
        (["nope"], "nope"),
        (["plan-serving"], "did you mean 'serve'?"),
        (["train"], "did you mean 'estimate'?"),
        (["list", "nope"], "nope"),
        (["list", "models", "nope"], "nope"),
        (["validate", "missing.csv"], "--kind"),
        (["validate", "--kind", "training", "missing.csv"], "missing.csv"),
        (["validate", "--kind", "nope"], "nope"),
        (["validate", "--kind", "inference", "--left-out"], "left_out"),
        (["serve", "llama3_8b", "--cluster", "dgx_h100"], "--input-tokens"),
        (
            [
                "serve",
                "llama3_8b",
                "--cluster",
                "dgx_h100",
                "--input-tokens",
                "0",
                "--output-tokens",
                "1",
            ],
            "input_tokens",
        ),
        (["validate", "--kind", "gemm", "--left-out"], "left_out"),
        (["validate", "--kind", "training", "--left-out", "--stack", "plain"], "left_out"),
    ],
)
def test_malformed_questions_are_one_line_and_code_2(
    run: Any, arguments: list[str], named: str
) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("scalemodel")
    assert named in ran.err


def test_json_holds_the_numbers_of_python(run: Any) -> None:
    ran = run(*FITS, "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    est = python_estimate()
    for name, value in est.to_dict().items():
        assert document[name] == value, name
    for name, value in est.task.core.to_dict().items():
        assert document[name] == value, name
    assert document["model"] == "llama3_70b"
    assert document["accelerators"] == 512


def test_csv_holds_the_numbers_of_python(run: Any) -> None:
    ran = run(*FITS, "--csv")
    assert ran.code == 0
    (row,) = csv.DictReader(io.StringIO(ran.out))
    for name, value in python_estimate().to_dict().items():
        if isinstance(value, bool):
            assert row[name] == ("true" if value else "false")
        elif isinstance(value, (int, float)):
            assert float(row[name]) == value, name
        else:
            assert row[name] == value, name


@pytest.mark.repeats
def test_published_runs_are_validated_without_a_file(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    ran = run("validate", "--kind", "training", "--out", str(out), "--json")
    assert ran.code == 0
    document = json.loads(ran.out)
    left_out = json.loads(run("validate", "--kind", "training", "--left-out", "--json").out)
    # Leaving sources out is for language models.
    assert 1500 < left_out["rows_predicted"] < document["rows_predicted"] <= document["rows"]
    assert left_out["core_predicted"] == document["core_predicted"]
    assert document["worst"]
    assert document["unseen"]
    assert document["pooled"]["mape_fraction"] < left_out["pooled"]["mape_fraction"]
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    bounded = [row for row in rows if row["predicted_low"]]
    assert len(bounded) > 1500
    for row in bounded:
        low, high = float(row["predicted_low"]), float(row["predicted_high"])
        assert low < float(row["predicted_step_time_s"]) < high


def test_tables_of_an_entry_are_listed_line_by_line(run: Any) -> None:
    ran = run("list", "reference", "uncertainty", "--json")
    keys = [row["key"] for row in json.loads(ran.out)]
    assert "seen[0]" in keys
    assert "widening.architecture" in keys


def test_the_interval_and_what_extrapolates_are_printed(run: Any) -> None:
    inside = run(*FITS).out
    assert " (80 %: " in inside
    assert "extrapolates" not in inside
    arguments = ["estimate", "llama3_8b", "--cluster", "mi300x_node", "--global-batch", "64"]
    beyond = run(*arguments, "--sequence", "4096")
    assert "extrapolates: no measured run on accelerators of AMD" in beyond.out


def test_formats_carry_verdicts_too(run: Any) -> None:
    ran = run(*BASE, *TASK, "--tp", "7", "--json")
    document = json.loads(ran.out)
    assert ran.code == 3
    assert document["verdict"] == "illegal:mesh"
    assert document["step_time_s"] is None
    assert document["message"].startswith("illegal:mesh")
    assert document["fixes"]
    ran = run(*BASE, *TASK, "--tp", "7", "--csv")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert ran.code == 3
    assert row["verdict"] == "illegal:mesh"
    assert row["step_time_s"] == ""


def test_the_explanation_is_printed_whole(run: Any) -> None:
    ran = run(*FITS, "--explain")
    tree = python_estimate().explain()
    assert str(tree) in ran.out
    document = json.loads(run(*FITS, "--explain", "--json").out)
    assert document["explanation"] == tree.to_dict()


def parsed(*further: str) -> Any:
    return cli.make_parser().parse_args([*FITS, *further])


@pytest.mark.parametrize("record", [_core.Strategy, _core.Task])
def test_every_field_is_an_option(record: Any) -> None:
    for row in record.fields():
        option = cli.option_name(row["name"])
        if row["kind"] == "bool":
            assert getattr(parsed(option), row["name"]) is True
            assert getattr(parsed(option.replace("--", "--no-", 1)), row["name"]) is False
        elif row["kind"] == "choice":
            for choice in row["choices"]:
                assert getattr(parsed(f"{option}={choice}"), row["name"]) == choice
        else:
            assert getattr(parsed(option, "3"), row["name"]) == 3


@pytest.mark.parametrize("record", [_core.Strategy, _core.Task])
def test_every_option_reaches_its_field(run: Any, record: Any) -> None:
    for row in record.fields():
        option = cli.option_name(row["name"])
        given: list[str]
        value: object
        if row["kind"] == "bool":
            value = not row["default"]
            given = [option if value else option.replace("--", "--no-", 1)]
        elif row["kind"] == "choice":
            value = next(choice for choice in row["choices"] if choice != row["default"])
            given = [option, str(value)]
        else:
            value = 5
            given = [option, "5"]
        if row["name"] in ("images", "source_tokens"):  # of other models: below
            continue
        document = json.loads(run(*BASE, *TASK, *given, "--json").out)
        if row["name"] != "dp":  # resolved, not echoed
            assert document[row["name"]] == value, row["name"]


def test_images_are_options_of_a_model_with_a_tower(run: Any) -> None:
    asked = ["estimate", "ministral_3_8b", "--cluster", "dgx_h100", *TASK, "--tp", "2"]
    size = ["--image-height", "1024", "--image-width", "1024"]
    text = json.loads(run(*asked, "--json").out)
    seen = json.loads(run(*asked, "--images", "2", *size, "--json").out)
    assert seen["images"] == 2
    assert seen["step_time_s"] > text["step_time_s"]


def test_a_source_is_an_option_of_a_model_with_an_encoder(run: Any) -> None:
    asked = ["estimate", "flan_t5_xxl", "--cluster", "dgx_h100", *TASK, "--tp", "8"]
    short, long = (
        json.loads(run(*asked, "--source-tokens", tokens, "--json").out)
        for tokens in ("512", "2048")
    )
    assert (short["source_tokens"], long["source_tokens"]) == (512, 2048)
    assert short["step_time_s"] < long["step_time_s"]


def test_images_are_made_on_the_command_line(run: Any) -> None:
    asked = ["generate", "flux_1_dev", "--cluster", "dgx_h100", "--height", "1024"]
    asked += ["--width", "1024", "--concurrency", "1", "--replicas", "1"]
    found = json.loads(run(*asked, "--cp", "8", "--json").out)
    assert found["cp"] == 8
    plan = sm.serve(
        "flux_1_dev",
        "dgx_h100",
        sm.Generation(height=1024, width=1024),
        sm.ServingLayout(cp=8),
        concurrency=1,
        replicas=1,
    )
    assert found["latency_s"] == pytest.approx(plan.latency_s)
    shown = run(*asked, "--steps", "4", "--guidance").out
    assert "4 steps of" in shown
    assert "samples/s on 1 accelerators" in shown
    assert run(*asked, "--cp", "64").code == cli.INFEASIBLE


def test_fine_tuning_follows_from_its_options(run: Any) -> None:
    training = json.loads(run(*FITS, "--json").out)
    ranked = json.loads(run(*FITS, "--lora-rank", "8", "--json").out)
    full = json.loads(run(*FITS, "--method", "full", "--json").out)
    assert training["method"] == full["method"] == "full"
    assert ranked["method"] == "lora"
    assert ranked["memory_optimizer_bytes"] < training["memory_optimizer_bytes"]
    assert full["step_time_s"] == training["step_time_s"]


def test_size_comes_from_nodes_or_accelerators(run: Any) -> None:
    by_count = ["estimate", "llama3_70b", "--cluster", "dgx_h100", "--accelerators", "512"]
    assert json.loads(run(*by_count, *TASK, "--tp", "8", "--json").out) == json.loads(
        run(*BASE, *TASK, "--tp", "8", "--json").out
    )


def test_unknown_keys_of_a_config_are_one_warning(run: Any, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "surprising_key": 3,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    ran = run("estimate", str(path), "--cluster", "dgx_h100", *TASK)
    assert ran.code == 0
    (line,) = ran.err.splitlines()
    assert line.startswith("scalemodel: warning: ")
    assert "surprising_key" in line


def test_a_private_cluster_file_is_read(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\naccelerator = "h100_sxm_80"\nnodes = 2\n', encoding="utf-8")
    ran = run("estimate", "llama3_8b", "--cluster", str(path), *TASK, "--tp", "2")
    assert ran.code == 0
    assert "16 × h100_sxm_80" in ran.out


def test_broken_files_are_one_line(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text('name = "mine\n', encoding="utf-8")
    ran = run("estimate", "llama3_8b", "--cluster", str(path), *TASK)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "broken.toml" in ran.err


# --------------------------------------------------------------------------------------------- list
def test_the_catalogue_is_listed(run: Any) -> None:
    lines = run("list").out.splitlines()
    assert len(lines) == 1 + len(catalog.list_catalog())
    assert lines[0].split() == ["kind", "name", "title", "aliases"]
    rows = json.loads(run("list", "accelerators", "--json").out)
    assert {row["name"] for row in rows} == set(catalog.names("accelerators"))


def test_an_entry_is_listed_with_its_sources(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(run("list", "clusters", "dgx_h100", "--csv").out)))
    by_key = {row["key"]: row for row in rows}
    assert by_key["fabric.bandwidth"]["value"] == "400 Gbit/s"
    assert by_key["fabric.bandwidth"]["source"]
    assert "fabric.bandwidth" in run("list", "clusters", "dgx_h100").out


# ----------------------------------------------------------------------------------------- validate
ROW = {
    "row_id": "1",
    "source": "paper",
    "source_path": "table.csv",
    "year": "2024",
    "framework": "Megatron-LM",
    "model": "llama3_8b",
    "model_family": "Llama",
    "architecture": "",
    "task": "pretrain",
    "gpu": "H100",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "tp": "2",
    "pp": "1",
    "micro_batch": "1",
    "global_batch": "128",
    "seq_len": "8192",
    "precision": "bf16",
    "norm_step_time_s": "5.0",
    "status": "ok",
    "quality": "A",
    "complete": "yes",
}


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows([ROW, {**ROW, "row_id": "2", "gpu": "no such thing"}])
    return path


def test_validate_prints_and_writes(run: Any, measurements: Path, tmp_path: Path) -> None:
    out = tmp_path / "predicted.csv"
    ran = run("validate", "--kind", "training", str(measurements), "--out", str(out))
    assert ran.code == 0
    assert "MAPE" in ran.out
    rows = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    frame = sm.validate("training", measurements)
    assert [row["row_id"] for row in rows] == ["1", "2"]
    assert float(rows[0]["predicted_step_time_s"]) == frame.predicted_step_time_s[0]
    assert rows[1]["predicted_step_time_s"] == ""
    assert rows[1]["skip_reason"]


def test_validate_reports_in_json_and_csv(run: Any, measurements: Path) -> None:
    document = json.loads(run("validate", "--kind", "training", str(measurements), "--json").out)
    assert document["rows"] == 2
    assert document["rows_predicted"] == 1
    table = run("validate", "--kind", "training", str(measurements), "--csv").out
    rows = list(csv.DictReader(io.StringIO(table)))
    (pooled,) = [row for row in rows if row["table"] == "pooled"]
    assert float(pooled["mape_fraction"]) == document["pooled"]["mape_fraction"]


def test_an_unwritable_file_is_one_line(run: Any, measurements: Path, tmp_path: Path) -> None:
    out = tmp_path / "no" / "such" / "folder.csv"
    ran = run("validate", "--kind", "training", str(measurements), "--out", str(out))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


# ------------------------------------------------------------------------------------------ process
def test_version_and_help(run: Any) -> None:
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"scalemodel {sm.__version__}\n")
    ran = run("--help")
    assert ran.code == 0
    for command in ("estimate", "list", "validate"):
        assert command in ran.out
        assert run(command, "--help").code == 0


PROBE = """
import json, sys
from scalemodel import cli
code = cli.main(["--help"])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def test_help_loads_little() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], check=True, capture_output=True, text=True)
    code, modules = json.loads(done.stderr)
    assert code == 0
    assert not {"pandas", "matplotlib", "scalemodel.validation"} & set(modules)


def test_it_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "scalemodel", *BASE, *TASK, "--tp", "7"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 3
    assert "illegal:mesh" in done.stdout
    assert done.stderr == ""


def test_a_terminal_without_unicode_gets_an_answer() -> None:
    command = [sys.executable, "-m", "scalemodel", *FITS]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0
    assert b"step " in done.stdout
    assert done.stderr == b""


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "scalemodel", "list", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert error == b""


def test_a_fault_of_its_own_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr(catalog, "list_catalog", fail)
    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err == ("scalemodel: internal error: ZeroDivisionError: two lines\n")


def test_pools_of_unlike_accelerators_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    question = ["serve", "llama3_8b", "--cluster", "aws_p5", "--decode-cluster", "aws_p5en"]
    question += ["--input-tokens", "2000", "--output-tokens", "200"]
    load = ["--requests-per-s", "8", "--ttft-s", "1"]
    assert cli.main([*question, *load, "--split", "cost", "--top", "2", "--json"]) == cli.OK
    best = json.loads(capsys.readouterr().out)["best"]
    task = sm.Inference(input_tokens=2000, output_tokens=200)
    table = sm.serving.plan_split(
        "llama3_8b",
        "aws_p5",
        task,
        decode_cluster="aws_p5en",
        goal="cost",
        requests_per_s=8,
        ttft_s=1,
        top=2,
    )
    assert [row["usd_per_s"] for row in best] == list(table.usd_per_s)
    for wrong, why in (
        ([*load], "--decode-cluster"),
        (["--split", "cost"], "--requests-per-s"),
        ([*load, "--split", "cost", "--e2e-s", "3"], "--e2e-s"),
    ):
        assert cli.main([*question, *wrong]) == cli.MALFORMED
        assert why in capsys.readouterr().err
