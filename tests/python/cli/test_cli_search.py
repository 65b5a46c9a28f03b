"""The command line's search and sweep: the same answers as Python, in every format."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
import scalemodel._core as _core
from command_line import (
    EXACT,
    QUESTION,
    SMALL,
    SPACE,
    TOO_LARGE,
    asked,
    assert_same_rows,
    best,
    read_rows,
    shard_rows,
    swept,
)
from scalemodel import cli
from scalemodel.cli import searches
from scalemodel.search import ranking_file, table_draft


def same_value(text: str, value: object) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, (int, float)):
        return float(text) == value
    return text == str(value)


# ------------------------------------------------------------------------------------------- search
def test_search_is_a_short_report(run: Any) -> None:
    ran = run("search", *QUESTION, *SMALL, "--top", 4)
    ranking = best(top=4)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("llama3_8b · 8 × h100_sxm_80")
    assert lines[0].endswith("least step_time_s, 5 % of memory free · stack plain")
    assert lines[1].startswith(f"{ranking.size:,} strategies · {ranking.evaluated:,} evaluated")
    for verdict, number in ranking.counts.items():
        assert f"{verdict} {number:,}" in lines[1]
    header = ["#", "step", "(80", "%)", "MFU", "memory", "cost", "strategy"]
    assert [word for word in lines[2].split() if word != "equal"] == header
    assert [line.split()[0] for line in lines[3:7]] == ["1", "2", "3", "4"]
    assert lines[7].startswith("#1 is limited by: ")
    assert lines[8].startswith("#1 against #")
    assert ran.out == f"{ranking}\n"


def test_search_tells_what_the_first_has_over_the_next(run: Any) -> None:
    *_, last = run("search", *QUESTION, *SMALL, "--objective", "cost_usd").out.splitlines()
    ranking = best(objective="cost_usd")
    number = int(last.removeprefix("#1 against #").split(":")[0])
    cost = ranking[0].cost_usd / ranking[number - 1].cost_usd - 1
    assert f"cost_usd {'−' if cost < 0 else '+'}{abs(100 * cost):.1f} %" in last


@pytest.mark.parametrize("options", [[], ["--no-prune"], ["--threads", "1"], ["--top", "3"]])
def test_search_gives_the_numbers_of_python(run: Any, options: list[str]) -> None:
    ran = run("search", *QUESTION, *SMALL, *options, "--json")
    ranking = best(prune="--no-prune" not in options, top=3 if "--top" in options else 10)
    document = ran.document
    assert ran.code == 0
    assert document["model"] == "llama3_8b"
    assert document["sequence"] == 8192
    assert document["space"] == repr(SPACE)
    assert document["size"] == document["space_rows"] == ranking.size
    assert document["rows"] == [[0, ranking.size]]
    assert document["evaluated"] == ranking.evaluated
    assert document["pruned"] == ranking.pruned
    assert document["counts"] == ranking.counts
    assert document["ranking"] == ranking.table.to_dict("records")
    table = run("search", *QUESTION, *SMALL, *options, "--csv").rows
    assert len(table) == len(ranking)
    for row, expected in zip(table, ranking.table.to_dict("records"), strict=True):
        assert all(same_value(row[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("energy_j", "energy_j"),
        ("tokens_per_s", "tokens_per_s"),
        ("step_time_s=1,cost_usd=0.5", {"step_time_s": 1, "cost_usd": 0.5}),
        ("step_time_s=2", {"step_time_s": 2}),
    ],
)
def test_objectives_are_read(run: Any, text: str, objective: Any) -> None:
    ran = run("search", *QUESTION, *SMALL, "--objective", text, "--json")
    assert ran.document["ranking"] == best(objective=objective).table.to_dict("records")
    shown = run("search", *QUESTION, *SMALL, "--objective", text).out
    assert text.split("=")[0] in shown.splitlines()[0]


def test_constraints_are_read(run: Any) -> None:
    limits = ["memory_bytes <= 60e9", "power_w <= 0.95 * power_w"]
    options = [item for limit in limits[:1] for item in ("--constraint", limit)]
    ran = run("search", *QUESTION, *SMALL, *options, "--json")
    expected = best(constraints=limits[:1])
    assert ran.document["ranking"] == expected.table.to_dict("records")
    assert ran.document["constraints"] == limits[:1]
    assert all(row["memory_bytes"] <= 60e9 for row in ran.document["ranking"])
    shown = run("search", *QUESTION, *SMALL, *options, "--no-prune").out
    assert "memory_bytes <= 60e9" in shown
    assert "constrained" in shown
    both = [item for limit in limits for item in ("--constraint", limit)]
    assert run("search", *QUESTION, *SMALL, *both).code == 4  # the second never holds


def test_columns_are_chosen(run: Any) -> None:
    names = ["tp", "step_time_s", "row"]
    ran = run("search", *QUESTION, *SMALL, "--columns", *names, "--csv")
    assert list(ran.rows[0]) == names
    text = run("search", *QUESTION, *SMALL, "--columns", *names).out
    assert names == text.splitlines()[2].split()
    document = run("search", *QUESTION, *SMALL, "--columns", *names, "--json").document
    assert list(document["ranking"][0]) == names


def some_values(row: dict[str, Any]) -> list[object]:
    if row["kind"] == "bool":
        return [True, False]
    if row["kind"] == "choice":
        return list(row["choices"][:2])
    return [max(1, int(row["low"])), 2]


@pytest.mark.parametrize("row", _core.Strategy.fields(), ids=lambda row: row["name"])
def test_every_field_of_a_strategy_is_a_knob(run: Any, row: dict[str, Any]) -> None:
    values = some_values(row)
    texts = [("on" if v else "off") if isinstance(v, bool) else str(v) for v in values]
    fixed = {"tp": [1, 2], "pp": [1], "cp": [1], "micro_batch": [1], "sharding": ["zero1"]}
    fixed.pop(row["name"], None)
    options = [item for name, v in fixed.items() for item in (cli.option_name(name), *map(str, v))]
    named = [cli.option_name(row["name"]), *texts]
    ran = run("search", *QUESTION, *options, *named, "--top", 1, "--json")
    assert ran.code in (0, 4)
    assert ran.document["space"] == repr(sm.Space(**fixed, **{row["name"]: values}))


def test_rules_reach_the_space(run: Any) -> None:
    options = ["--where", "tp * pp <= 4", "--where", "tp <= 2", "--exclude"]
    options += ["sharding=zero3,sequence-parallel=off", "--exclude", "sharding=hsdp"]
    options += ["--redundant", "regather", "--tiers"]
    ran = run("search", *QUESTION, "--cp", 1, *options, "--top", 1, "--json")
    space = sm.Space(
        cp=1,
        where=["tp * pp <= 4", "tp <= 2"],
        exclude=[{"sharding": "zero3", "sequence_parallel": False}, {"sharding": "hsdp"}],
        redundant=["regather"],
        tiers=True,
    )
    assert ran.document["space"] == repr(space)
    assert ran.document["size"] == space.size(*asked())


def test_auto_is_the_same_as_nothing(run: Any) -> None:
    ran = run("search", *QUESTION, *SMALL, "--tp", "auto", "--json")
    assert ran.document["space"] == repr(SPACE)


@pytest.mark.parametrize("command", ["search", "sweep"])
def test_counting_evaluates_nothing(
    run: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("evaluated")

    monkeypatch.setattr(_core, "Searcher", fail)
    monkeypatch.setattr(_core, "sweep", fail)
    size = SPACE.size(*asked())
    assert run(command, *QUESTION, *SMALL, "--count").out == f"{size}\n"
    assert run(command, *QUESTION, *SMALL, "--count", "--json").document == {"space_rows": size}
    assert run(command, *QUESTION, *SMALL, "--count", "--csv").rows == [{"space_rows": str(size)}]


def test_the_calculon_preset_can_be_narrowed(run: Any) -> None:
    question = ["gpt3_175b", "--cluster", "dgx_a100", "--nodes", 16, "--global-batch", 128]
    question += ["--sequence", 2048, "--batch-is-limit", "--calculon", "--count"]
    task = sm.Training(global_batch=128, sequence=2048, batch_is_limit=True)
    parts = "gpt3_175b", sm.cluster("dgx_a100", nodes=16), task
    space = sm.Space.calculon(*parts)
    assert int(run("search", *question).out) == space.size(*parts)
    narrowed = space.replace(tp=8, where=[*space.where, "pp <= 4"])
    ran = run("search", *question, "--tp", 8, "--where", "pp <= 4")
    assert int(ran.out) == narrowed.size(*parts) < space.size(*parts)


def test_nothing_feasible_is_code_4(run: Any) -> None:
    ran = run("search", *TOO_LARGE, "--no-prune")
    assert (ran.code, ran.err) == (4, "")
    assert "0 of " in ran.out
    assert "out_of_memory" in ran.out
    ran = run("search", *TOO_LARGE, "--json")
    assert ran.code == 4
    assert ran.document["ranking"] == []
    assert ran.document["why_infeasible"]
    ran = run("search", *TOO_LARGE, "--csv")
    assert ran.code == 4
    assert ran.rows == []
    assert run("sweep", *TOO_LARGE).code == 4
    assert "none of them fits" in run("sweep", *TOO_LARGE).out
    assert run("search", *QUESTION, *SMALL, "--where", "tp >= 1000").code == 4  # an empty space


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["search", *QUESTION, "--tp"], "--tp"),
        (["search", *QUESTION, "--tp", "x"], "'x': must be a whole number"),
        (["search", *QUESTION, "--tp", "0"], "tp=0"),
        (["search", *QUESTION, "--tp", "2", "2"], "listed twice"),
        (["search", *QUESTION, "--tp", "auto", "2"], "auto"),
        (["search", *QUESTION, "--sharding", "zero9"], "'zero9': must be one of ddp"),
        (["search", *QUESTION, "--regather", "yes"], "'yes': must be on or off"),
        (["search", *QUESTION, "--where", "tp"], "where='tp'"),
        (["search", *QUESTION, "--exclude", "tp"], "'tp': must be like"),
        (["search", *QUESTION, "--exclude", "tq=1"], "tq: no such knob"),
        (["search", *QUESTION, "--exclude", "tp=x"], "'x': must be a whole number"),
        (["search", *QUESTION, "--redundant", "nope"], "nope: no such knob"),
        (["search", *QUESTION, "--objective", "nope"], "objective='nope'"),
        (["search", *QUESTION, "--objective", "step_time_s=x"], "step_time_s=x"),
        (["search", *QUESTION, "--objective", "step_time_s=-1"], "must be a positive weight"),
        (["search", *QUESTION, "--constraint", "power"], "constraints='power'"),
        (["search", *QUESTION, "--top", "0"], "top=0"),
        (["search", *QUESTION, "--threads", "0"], "threads=0"),
        (["search", *QUESTION, "--shard", "3/2"], "'3/2': must be I/N"),
        (["search", *QUESTION, "--shard", "0/2"], "'0/2': must be I/N"),
        (["search", *QUESTION, "--shard", "x"], "'x': must be I/N"),
        (["search", *QUESTION, *SMALL, "--columns", "nope"], "columns='nope'"),
        (["search", *QUESTION, "--out", "x.pkl"], "x.pkl"),
        (["search", *QUESTION, "--shard", "1/2", "--out", "x.csv"], "must end in .json"),
        (["search", *QUESTION, "--json", "--csv"], "--csv"),
        (["search", "llama9", *QUESTION[1:]], "llama9"),
        (["search", *QUESTION, "--stack", "nope"], "nope"),
        (["search", "llama3_8b", "--cluster", "dgx_h100"], "--global-batch"),
        (["sweep", *QUESTION, "--out", "x.json"], "x.json"),
        (["sweep", *QUESTION, "--columns", "nope"], "columns='nope'"),
        (["sweep", *QUESTION, "--objective", "energy_j"], "--objective"),
        (["sweep", *QUESTION, "--out", "no/such/folder/x.csv", *SMALL], "x.csv"),
        (["merge"], "FILE"),
        (["merge", "x.txt"], "x.txt"),
        (["merge", "x.json", "y.csv"], "must be all of one kind"),
        (["merge", "missing.json"], "missing.json: cannot be read"),
        (["merge", "missing.csv", "--out", "y.csv"], "missing.csv: cannot be read"),
        (["merge", "missing.csv", "--out", "y.parquet"], "must end in .parquet"),
        (["merge", "missing.csv"], "--out"),
        (["merge", "x.csv", "--out", "y.csv", "--columns", "tp"], "columns"),
    ],
)
def test_malformed_questions_are_one_line_and_code_2(
    run: Any, arguments: list[str], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert named in ran.err
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_says_what_to_install(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for command in ("search", "sweep"):
        ran = run(command, *QUESTION, *SMALL, "--out", tmp_path / "x.parquet")
        assert ran.code == 2
        assert 'pip install "scalemodel[io]" (needed for Parquet)' in ran.err


def test_help_is_there(run: Any) -> None:
    ran = run("--help")
    for command in ("search", "sweep", "merge"):
        assert command in ran.out
        shown = run(command, "--help")
        assert shown.code == 0
        assert "--out" in shown.out


# ------------------------------------------------------------------------------------------ outputs
def test_a_ranking_is_written_and_read_again(run: Any, tmp_path: Path) -> None:
    ran = run("search", *QUESTION, *SMALL, "--out", tmp_path / "best.json")
    assert ran.out.endswith(f"written to {tmp_path / 'best.json'}\n")
    assert ranking_file.read(tmp_path / "best.json").ranking == best()
    run("search", *QUESTION, *SMALL, "--out", tmp_path / "best.csv")
    read = pd.read_csv(tmp_path / "best.csv", index_col="rank", keep_default_na=False, **EXACT)
    assert_same_rows(read, ranked())
    ran = run("merge", tmp_path / "best.csv", "--out", tmp_path / "out.csv")
    assert "its first column must be row" in ran.err  # a ranking's table is no sweep


def ranked() -> pd.DataFrame:
    table = best().table
    return table.set_index(pd.RangeIndex(1, len(table) + 1, name="rank"))


def test_a_ranking_is_written_as_parquet(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "best.parquet"
    run("search", *QUESTION, *SMALL, "--out", path)
    assert_same_rows(pd.read_parquet(path).set_index("rank"), ranked())
    ran = run("merge", path, "--out", tmp_path / "out.parquet")
    assert ran.code == 2
    assert "holds no rows of a sweep" in ran.err


def test_a_sweep_is_summarised(run: Any, chunks: int) -> None:
    ran = run("sweep", *QUESTION, *SMALL)
    frame = swept()
    fits = frame[frame.verdict == "ok"]
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[1].startswith(f"{len(frame):,} strategies")
    for verdict, number in frame.verdict.value_counts().items():
        assert number == 0 or f"{verdict} {number:,}" in lines[1]
    fastest = fits.tokens_per_s.to_numpy().argmax()
    assert lines[2].startswith(f"fastest: row {fits.index[fastest]:,}: ")
    unwritable = run("sweep", *QUESTION, *SMALL, "--out", "/dev/null/x.csv", "--json")
    assert (unwritable.code, unwritable.out) == (2, "")


def test_a_sweep_goes_to_standard_output(run: Any, chunks: int) -> None:
    text = run("sweep", *QUESTION, *SMALL, "--csv").out
    frame = swept()
    read = pd.read_csv(io.StringIO(text), **EXACT, index_col="row", keep_default_na=False)
    assert_same_rows(read, frame)
    rows = run("sweep", *QUESTION, *SMALL, "--json").document
    assert [row["row"] for row in rows] == frame.index.tolist()
    for name in frame.columns:
        assert [row[name] for row in rows] == frame[name].tolist(), name


def test_a_sweep_goes_to_a_file(run: Any, tmp_path: Path, chunks: int) -> None:
    pytest.importorskip("pyarrow")
    for kind in ("csv", "parquet"):
        path = tmp_path / f"rows.{kind}"
        ran = run("sweep", *QUESTION, *SMALL, "--out", path)
        assert ran.code == 0
        assert ran.out.endswith(f"written to {path}\n")
        assert_same_rows(read_rows(path), swept())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.csv", "rows.parquet"]


def test_what_was_written_is_summed_up(run: Any, tmp_path: Path, chunks: int) -> None:
    frame, path = swept(), tmp_path / "rows.csv"
    counts = {str(k): int(n) for k, n in frame.verdict.value_counts().items() if n}
    document = run("sweep", *QUESTION, *SMALL, "--out", path, "--json").document
    assert document["counts"] == counts
    assert document["rows"] == [0, len(frame)]
    assert document["space_rows"] == len(frame)
    assert document["out"] == str(path)
    assert document["best"]["tokens_per_s"] == frame[frame.verdict == "ok"].tokens_per_s.max()
    table = run("sweep", *QUESTION, *SMALL, "--out", path, "--csv").rows
    assert {row["verdict"]: int(row["rows"]) for row in table} == counts
    _, third = shard_rows(3)[0]
    shown = run("sweep", *QUESTION, *SMALL, "--out", path, "--shard", "1/3").out
    assert f"part: rows 0 to {third - 1:,} of {len(frame):,}" in shown


def test_parquet_says_what_it_holds(run: Any, tmp_path: Path, chunks: int) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    run("sweep", *QUESTION, *SMALL, "--shard", "2/3", "--out", path)
    with parquet.ParquetFile(path) as file:
        metadata = json.loads(file.schema_arrow.metadata[b"scalemodel"])
        groups, rows = file.num_row_groups, file.metadata.num_rows
    size = SPACE.size(*asked())
    assert metadata["version"] == sm.__version__
    assert metadata["question_text"].startswith("llama3_8b · 8 × h100_sxm_80")
    assert metadata["space_rows"] == size
    assert metadata["rows"] == [list(shard_rows(3)[1])]
    assert groups == -(-rows // chunks)
    question = ranking_file.question_from(metadata["question"])
    assert (question.space, question.task) == (SPACE, asked()[2])


def test_chunks_of_a_sweep_come_together_in_row_groups(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(searches, "CHUNK_ROWS", 37)
    monkeypatch.setattr(table_draft, "_RECORD_ROWS", 0)
    tables = []
    for least, chunks in ((1, 1), (38, 2), (100, 3), (10**6, 10**6)):
        monkeypatch.setattr(table_draft, "_GROUP_ROWS", least)
        path = tmp_path / f"{least}.parquet"
        run("sweep", *QUESTION, *SMALL, "--out", path)
        with parquet.ParquetFile(path) as file:
            assert file.num_row_groups == -(-file.metadata.num_rows // (37 * chunks))
            tables.append(file.read())
    assert all(table == tables[0] for table in tables)


def test_row_groups_grow_as_the_root_of_the_rows(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group and the records of all groups, in rows of a group, take least memory together."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(searches, "CHUNK_ROWS", 1)
    monkeypatch.setattr(table_draft, "_GROUP_ROWS", 1)
    path, record_rows = tmp_path / "rows.parquet", 4
    monkeypatch.setattr(table_draft, "_RECORD_ROWS", record_rows)
    run("sweep", *QUESTION, *SMALL, "--out", path, "--columns", "verdict")
    with parquet.ParquetFile(path) as file:
        rows, groups = file.metadata.num_rows, file.num_row_groups
        group = file.metadata.row_group(0).num_rows
    assert groups == -(-rows // group)

    def held(group: float) -> float:
        return group + record_rows * rows / group

    assert held(group) <= min(held(group / 1.5), held(1.5 * group))


def test_a_sweep_holds_one_chunk_at_a_time(
    run: Any, tmp_path: Path, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    whole = _core.sweep

    def counted(tables: Any, rows: Any, first: int, last: int, *further: Any) -> Any:
        sizes.append(last - first)
        return whole(tables, rows, first, last, *further)

    monkeypatch.setattr(_core, "sweep", counted)
    run("sweep", *QUESTION, *SMALL, "--out", tmp_path / "rows.csv")
    assert sum(sizes) == SPACE.size(*asked())
    assert max(sizes) <= chunks


def test_a_sweep_keeps_the_columns_asked_for(run: Any, tmp_path: Path) -> None:
    names = ["step_time_s", "tp"]
    path = tmp_path / "rows.csv"
    ran = run("sweep", *QUESTION, *SMALL, "--columns", *names, "--out", path)
    assert ran.code == 0
    assert "fastest: row" in ran.out  # although the file holds no verdict
    assert_same_rows(read_rows(path), sm.sweep(*asked(), SPACE, columns=names))


def test_an_unpriced_cluster_has_no_cost(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    cluster = tmp_path / "mine.toml"
    cluster.write_text(
        'name = "mine"\naccelerator = "h100_sxm_80"\nnodes = 1\n'
        "[price]\nusd_per_accelerator_hour = { value = 0.0, source = 'none' }\n",
        encoding="utf-8",
    )
    question = [QUESTION[0], "--cluster", cluster, *QUESTION[3:], *SMALL, "--tp", 2]
    rows = run("sweep", *question, "--json").document
    assert {row["cost_usd"] for row in rows} == {None}
    for kind in ("csv", "parquet"):
        run("sweep", *question, "--out", tmp_path / f"rows.{kind}")
    assert pd.read_csv(tmp_path / "rows.csv").cost_usd.isna().all()
    assert pd.read_parquet(tmp_path / "rows.parquet").cost_usd.isna().all()
    document = run("search", *question, "--json").document
    assert {row["cost_usd"] for row in document["ranking"]} == {None}


# -------------------------------------------------------------------------- progress and interrupts
def test_progress_is_told_on_the_error_stream(run: Any) -> None:
    for command in ("search", "sweep"):
        ran = run(command, *QUESTION, *SMALL, "--progress", "--json")
        json.loads(ran.out) if command == "search" else None
        lines = ran.err.splitlines()
        size = SPACE.size(*asked())
        assert lines[-1] == f"100 %  {size:,} of {size:,} strategies"
        assert len(lines) <= 12


def test_an_interrupted_sweep_leaves_no_file(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "CHUNK_ROWS", 50)
    whole = _core.sweep

    def interrupted(tables: Any, rows: Any, first: int, *further: Any) -> Any:
        if first >= 100:
            assert list(tmp_path.iterdir()) != []  # the draft
            raise KeyboardInterrupt
        return whole(tables, rows, first, *further)

    monkeypatch.setattr(_core, "sweep", interrupted)
    ran = run("sweep", *QUESTION, *SMALL, "--out", tmp_path / "rows.csv")
    assert (ran.code, ran.out, ran.err) == (130, "", "")
    assert list(tmp_path.iterdir()) == []


# A search of a minute: every strategy of Calculon's space for a large model, one thread.
LONG = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
from scalemodel import cli
sys.exit(cli.main())
"""
LONG_SEARCH = ["gpt3_175b", "--cluster", "dgx_a100", "--nodes", "1536", "--global-batch", "9216"]
LONG_SEARCH += ["--sequence", "2048", "--batch-is-limit", "--calculon", "--progress"]


@pytest.mark.parametrize("command", [["search", "--no-prune"], ["sweep"]], ids=lambda c: c[0])
def test_ctrl_c_ends_it_at_once(command: list[str]) -> None:
    spent = []
    for _ in range(3):
        arguments = [sys.executable, "-c", LONG, *command, *LONG_SEARCH]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert process.stderr.readline().endswith("strategies\n")  # in the midst of it
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        spent.append(time.monotonic() - start)
        assert process.returncode == 130
        assert out == ""
        assert all(line.endswith("strategies") for line in err.splitlines())
    assert min(spent) < 0.3
