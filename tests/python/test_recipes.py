"""The papers: their recipes, programs and lines followed to the letter, their links and lists."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.cli import make_parser

GUIDE, LAYOUT = "notebooks/README.md", "cpp/README.md"
PAPERS = (
    "README.md",
    GUIDE,
    LAYOUT,
    "CHANGELOG.md",
    "python/scalemodel/validation/README.md",
    "tests/features/README.md",
)
RECIPE = re.compile(
    r"`((?:accelerators|clusters|models)/\w+\.toml)`.*?```toml\n(.*?)```", re.DOTALL
)


def paper(repository: Path, name: str) -> str:
    """Text of a paper."""
    return (repository / name).read_text(encoding="utf-8")


@pytest.fixture
def private_catalogue(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """Entry name -> file, for every TOML file that the recipes tell to write."""
    files = {}
    for name, text in RECIPE.findall(paper(repository, LAYOUT)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        files[path.stem] = path
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    return files


def test_one_file_each_is_all_it_takes(private_catalogue: dict[str, Path]) -> None:
    assert sorted(private_catalogue) == ["example_80", "example_8b", "example_node"]
    cluster = sm.cluster("example_node", nodes=16)
    task = sm.Training(global_batch=1024, sequence=8192, precision="bf16")
    plan = sm.Strategy(tp=4, sharding="zero1", recompute="selective")
    estimate = sm.estimate("example_8b", cluster, task, plan)
    assert estimate.verdict == "ok"
    assert 0.2 < estimate.mfu_fraction < 0.8


def test_entries_are_found_by_their_aliases(private_catalogue: dict[str, Path]) -> None:
    assert sm.model("Example-8B").parameters == sm.model("example_8b").parameters == 8_030_261_248


# A private accelerator and the cluster that uses it, as text with one place to break.
ACCELERATOR = """
name = "my_80"
title = "My accelerator"
vendor = "Example"
architecture = "hopper"
year = 2026
aliases = ["Mine 80GB"]
kernels = "h100_sxm_80"
[compute]
fp32 = { value = "60 TFLOP/s", source = "sheet" }
bf16 = { value = "900 TFLOP/s", source = "sheet" }
multiprocessors = { value = 128, source = "sheet" }
clock = { value = "1.7 GHz", source = "sheet" }
[memory]
capacity = { value = "80 GiB", source = "sheet" }
bandwidth = { value = "3 TB/s", source = "sheet" }
[scale_up]
class = "nvlink4"
bandwidth = { value = "450 GB/s", source = "sheet" }
domain = { value = 8, source = "sheet" }
[host]
bandwidth = { value = "63 GB/s", source = "sheet" }
[power]
tdp = { value = "700 W", source = "sheet" }
idle = { value = "75 W", source = "sheet" }
"""
CLUSTER = """
name = "my_node"
title = "My node"
accelerator = "my_80"
nodes = 1
[node]
accelerators = { value = 8, source = "sheet" }
host_power = { value = "1.75 kW", source = "sheet" }
host_memory = { value = "2 TB", source = "sheet" }
[scale_up]
class = "nvlink4"
bandwidth = { value = "450 GB/s", source = "sheet" }
domain = { value = 8, source = "sheet" }
[fabric]
class = "infiniband"
bandwidth = { value = "400 Gbit/s", source = "sheet" }
[power]
pue = { value = 1.15, source = "sheet" }
"""
TASK = sm.Training(global_batch=64, sequence=4096)


@pytest.fixture
def my_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes the two entries, with changes, into the private catalogue."""
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))

    def write(accelerator: str = ACCELERATOR, cluster: str = CLUSTER) -> None:
        for kind, name, text in (
            ("accelerators", "my_80", accelerator),
            ("clusters", "my_node", cluster.replace("My node", f"Node of {tmp_path.name}")),
        ):
            (tmp_path / kind).mkdir(exist_ok=True)
            (tmp_path / kind / f"{name}.toml").write_text(text, encoding="utf-8")

    return write


def error_of(question: Callable[[], object]) -> sm.ScaleModelError:
    """The error a malformed question raises."""
    with pytest.raises(sm.ScaleModelError) as caught:
        question()
    return caught.value


def estimate() -> sm.Estimate:
    """A step of an 8B model on two private nodes."""
    return sm.estimate("llama3_8b", sm.cluster("my_node", nodes=2), TASK, sm.Strategy(tp=2))


def test_numbers_of_a_private_cluster_decide(my_catalogue: Callable[..., None]) -> None:
    my_catalogue()
    usual = estimate()
    assert usual.verdict == "ok"
    assert usual.cluster.accelerators == 16
    my_catalogue(cluster=CLUSTER.replace("400 Gbit/s", "40 Gbit/s"))
    assert estimate().step_time_s > usual.step_time_s


def test_numbers_of_a_private_accelerator_decide(my_catalogue: Callable[..., None]) -> None:
    my_catalogue()
    usual = estimate()
    assert usual.memory_capacity_bytes == 80 * 2**30
    my_catalogue(ACCELERATOR.replace("900 TFLOP/s", "1.8 PFLOP/s").replace("80 GiB", "16 GB"))
    changed = estimate()  # a file edited while Python runs is read again
    assert changed.verdict == "out_of_memory"
    assert changed.memory_capacity_bytes == 16e9
    assert changed.compute_s < usual.compute_s


def test_a_private_entry_wins_over_an_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = sm.cluster("dgx_h100").core
    (tmp_path / "clusters").mkdir()
    text = CLUSTER.replace("my_node", "dgx_h100").replace("my_80", "h100_sxm_80")
    (tmp_path / "clusters" / "dgx_h100.toml").write_text(
        text.replace("400 Gbit/s", "800 Gbit/s"), encoding="utf-8"
    )
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    private = sm.cluster("dgx_h100").core
    assert private.fabric.bandwidth_bytes_per_s == 2 * embedded.fabric.bandwidth_bytes_per_s
    monkeypatch.delenv("SCALEMODEL_CATALOG_PATH")
    assert sm.cluster("dgx_h100").core == embedded


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("80 GiB", "80 Gb", "memory.capacity"),
        ("80 GiB", "80 GB/s", "memory.capacity"),
        ("80 GiB", "80", "memory.capacity"),
        ("80 GiB", "eighty GiB", "memory.capacity"),
        ("3 TB/s", "3 TB", "memory.bandwidth"),
        ("900 TFLOP/s", "900 TFLOPS", "compute.bf16"),
        ("900 TFLOP/s", "900 TFLOP", "compute.bf16"),
        ("700 W", "700 J", "power.tdp"),
        ("1.7 GHz", "1.7 GB", "compute.clock"),
    ],
)
def test_a_wrong_unit_names_the_number_and_what_would_be_legal(
    my_catalogue: Callable[..., None], right: str, wrong: str, named: str
) -> None:
    my_catalogue(ACCELERATOR.replace(f'"{right}"', f'"{wrong}"'))
    error = error_of(estimate)
    assert error.code == "units"
    assert named in str(error)
    assert repr(wrong) in str(error)
    assert right.split()[1] in str(error)


def test_bits_written_for_bytes_are_pointed_out(my_catalogue: Callable[..., None]) -> None:
    my_catalogue(ACCELERATOR.replace("80 GiB", "80 Gb"))
    assert "bits" in str(error_of(estimate))


@pytest.mark.parametrize(
    ("line", "key", "meant"),
    [
        ("bandwith = { value = '3 TB/s', source = 'sheet' }", "bandwith", "bandwidth"),
        ("capasity = '80 GiB'", "capasity", "capacity"),
    ],
)
def test_an_unknown_key_comes_with_a_suggestion(
    my_catalogue: Callable[..., None], line: str, key: str, meant: str
) -> None:
    my_catalogue(ACCELERATOR.replace("[memory]", f"[memory]\n{line}"))
    error = error_of(estimate)
    assert error.code == "unknown_key"
    assert key in str(error)
    assert f"did you mean '{meant}'" in str(error)


def test_an_unknown_key_of_a_cluster_comes_with_a_suggestion(
    my_catalogue: Callable[..., None],
) -> None:
    my_catalogue(cluster=CLUSTER.replace("[fabric]", "[fabric]\noversubscripton = 2"))
    error = error_of(estimate)
    assert error.code == "unknown_key"
    assert "did you mean 'oversubscription'" in str(error)


@pytest.mark.parametrize("key", ["capacity", "bandwidth"])
def test_a_missing_number_is_named(my_catalogue: Callable[..., None], key: str) -> None:
    lines = ACCELERATOR.splitlines()
    first = next(i for i, line in enumerate(lines) if line == "[memory]")
    at = next(i for i in range(first, len(lines)) if lines[i].startswith(key))
    my_catalogue("\n".join(lines[:at] + lines[at + 1 :]))
    assert f"memory.{key}: missing" in str(error_of(estimate))


@pytest.mark.parametrize(
    "broken",
    [
        ACCELERATOR.replace("[memory]", "[memory"),
        ACCELERATOR.replace("year = 2026", "year = "),
        ACCELERATOR + "\n[memory]\n",
    ],
)
def test_malformed_toml_names_the_file(my_catalogue: Callable[..., None], broken: str) -> None:
    my_catalogue(broken)
    error = error_of(estimate)
    assert "my_80.toml" in str(error)
    assert "not valid TOML" in str(error)


def test_a_file_that_is_no_text_is_refused(
    my_catalogue: Callable[..., None], tmp_path: Path
) -> None:
    my_catalogue()
    (tmp_path / "clusters" / "my_node.toml").write_bytes(b"\xff\xfe\x00")
    assert "my_node.toml" in str(error_of(estimate))


def test_an_accelerator_that_is_nowhere_is_named(my_catalogue: Callable[..., None]) -> None:
    my_catalogue(cluster=CLUSTER.replace("my_80", "my_08"))
    error = error_of(estimate)
    assert error.code == "unknown_accelerator"
    assert "my_80" in str(error)


# --------------------------------------------------------------------------------- past one machine
SCRIPT = re.compile(r"<!-- script: (\w+) -->\n```(?:python|sh)\n(.*?)```", re.DOTALL)
BIG = ("llama3_70b", "--cluster", "dgx_h100", "--nodes", "64")
BIG_TASK = ("--global-batch", "1024", "--sequence", "8192")
# What the guide's adapter asks of Ray, done in this process.
RAY_STAND_IN = """
def remote(function):
    class Remote:
        remote = staticmethod(function)
    return Remote

def get(answers):
    return list(answers)
"""


@pytest.fixture
def scripts(repository: Path) -> dict[str, str]:
    """The guide's programs by name."""
    return dict(SCRIPT.findall(paper(repository, GUIDE)))


@functools.cache
def best() -> sm.Ranking:
    """What every program of that chapter looks for."""
    task = sm.Training(global_batch=1024, sequence=8192)
    return sm.search("llama3_70b", sm.cluster("dgx_h100", nodes=64), task)


def run_script(folder: Path, *command: str, **variables: str) -> str:
    """Standard output of a program that must succeed."""
    (folder / "bin").mkdir(exist_ok=True)
    tool = folder / "bin" / "scalemodel"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scalemodel "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "needed"),
    [("processes", None), ("dask", "distributed"), ("ray", None), ("mpi", "mpi4py")],
)
def test_a_search_past_one_machine_finds_what_one_machine_finds(
    scripts: dict[str, str], tmp_path: Path, name: str, needed: str | None
) -> None:
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    if name == "ray" and importlib.util.find_spec("ray") is None:
        (tmp_path / "ray.py").write_text(RAY_STAND_IN, encoding="utf-8")
    path = tmp_path / "search.py"
    path.write_text(scripts[name], encoding="utf-8")
    further = ("-m", "mpi4py.futures") if name == "mpi" else ()
    printed = run_script(tmp_path, sys.executable, *further, str(path))
    assert printed == f"{best()[0]!r}\n"


@pytest.mark.slow
def test_an_array_of_jobs_finds_what_one_machine_finds(
    scripts: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "search.sh").write_text(scripts["array"], encoding="utf-8")
    for number in range(1, 5):
        run_script(tmp_path, "sh", "search.sh", SLURM_ARRAY_TASK_ID=str(number))
    command = scripts["merge"].strip()
    run_script(tmp_path, "sh", "-c", command)
    merged = json.loads(run_script(tmp_path, "sh", "-c", f"{command} --json"))
    assert merged["ranking"] == best().table.to_dict("records")
    whole = json.loads(run_script(tmp_path, "scalemodel", "search", *BIG, *BIG_TASK, "--json"))
    assert merged["ranking"] == whole["ranking"]


# --------------------------------------------------------------------------------------- the papers
def test_the_search_of_the_guide_runs(repository: Path, tmp_path: Path) -> None:
    (command,) = re.findall(r"```sh\n(scalemodel search [^`]*?)```", paper(repository, GUIDE))
    printed = run_script(tmp_path, "sh", "-c", command)
    assert len(re.findall(r"^\d+  [\d.]+ s \(", printed, re.MULTILINE)) == 5


def test_the_readme_shows_what_its_first_command_prints(repository: Path, tmp_path: Path) -> None:
    text = paper(repository, "README.md")
    installed = re.search(r"<!-- command: main -->\n```sh\n(.*?)```", text, re.DOTALL)
    shown = re.search(r"<!-- output: main -->\n```text\n(.*?)```", text, re.DOTALL)
    assert installed
    assert shown
    command = installed[1][installed[1].index("scalemodel estimate") :]
    command = command.replace("notebooks/", f"{repository}/notebooks/")
    assert run_script(tmp_path, "sh", "-c", command) == shown[1]


def test_the_readme_tells_what_a_stack_is_worth_to_experts(
    repository: Path, tmp_path: Path
) -> None:
    text = paper(repository, "README.md")
    (command,) = re.findall(r"```sh\n(scalemodel estimate [^`]*?)```", text)
    command = command.replace("notebooks/", f"{repository}/notebooks/")
    named = json.loads(run_script(tmp_path, "sh", "-c", f"{command.strip()} --json"))
    plain = re.sub(r"--stack \w+", "--json", command)
    other = json.loads(run_script(tmp_path, "sh", "-c", plain))
    assert (named["verdict"], other["verdict"]) == ("ok", "ok")
    assert 1.4 < other["step_time_s"] / named["step_time_s"] < 1.6  # "half again as long"


def python_of(text: str) -> list[str]:
    """The blocks of Python in a paper, programs of their own apart."""
    return [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "__main__" not in b]


@pytest.mark.usefixtures("agg")
def test_the_readme_lines_of_python_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = paper(repository, "README.md")
    (own,) = re.findall(r"`(\w+\.toml)`:\n\n```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / own[0]).write_text(own[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = python_of(text)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["est"].verdict == "ok"
    assert len(names["best"]) == 10
    assert names["mine"].core.fabric.bandwidth_bytes_per_s == 25e9
    assert names["front"].step_time_s.is_monotonic_increasing
    assert (tmp_path / "pareto.png").read_bytes().startswith(b"\x89PNG")
    # The frame is of a part of the space.
    fits = names["frame"][names["frame"].verdict == "ok"]
    assert names["best"][0].step_time_s <= fits.step_time_s.min()
    fits = names["rows"][names["rows"].verdict == "ok"]
    assert fits.step_time_s.min() == names["front"].step_time_s.min()


@pytest.mark.usefixtures("agg")
def test_the_lines_of_python_of_the_guide_run(repository: Path) -> None:
    blocks = python_of(paper(repository, GUIDE))
    assert len(blocks) == 12
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert names["est"].verdict == "ok"
    assert names["run"].days > 0
    assert names["served"].ttft_s > 0


def test_all_python_of_the_papers_is_run(repository: Path) -> None:
    programs = dict(SCRIPT.findall(paper(repository, GUIDE)))
    assert set(programs) == {"processes", "dask", "ray", "mpi", "array", "merge"}
    blocks = [b for name in PAPERS for b in re.findall(r"```python\n", paper(repository, name))]
    assert len(blocks) == 3 + 12 + 4


def test_the_readme_is_short(repository: Path) -> None:
    assert len(paper(repository, "README.md").splitlines()) <= 350


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("name", PAPERS)
def test_links_of_the_papers_lead_somewhere(repository: Path, name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", paper(repository, name)):
        if target.startswith("https://"):
            continue
        file, _, section = target.partition("#")
        path = (repository / name).parent / file if file else repository / name
        assert path.exists(), target
        if section:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert section in map(anchor, headings), target


def test_files_named_by_the_papers_exist(repository: Path) -> None:
    """Paths from the root of the repository; none with a place to fill."""
    named = r"`((?:cpp|notebooks|python|tests|\.ci)/[\w./]*)`"
    for name in PAPERS:
        for path in re.findall(named, paper(repository, name)):
            assert (repository / path).exists() or path.startswith(".ci"), f"{name}: {path}"


def test_only_the_files_of_its_recipe_know_a_schedule_by_name(repository: Path) -> None:
    """Everything else asks for its traits and its order; 1F1B is the default of records."""
    names = re.compile(r"Schedule::(?!one_f_one_b\b)\w+")
    engine = repository / "cpp" / "scalemodel"
    files = {
        str(path.relative_to(engine))
        for path in engine.rglob("*.[ch]pp")
        if names.search(path.read_text(encoding="utf-8"))
    }
    assert files == {"strategy/schedule.hpp", "schedule/orders.cpp", "schedule/pipeline.hpp"}
    recipe = paper(repository, LAYOUT).split("**A pipeline schedule** (3 files)")[1]
    assert all(file in recipe for file in files)


def first_column(text: str, heading: str) -> list[str]:
    """Names in the first column of the table below a heading."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)


def test_the_layout_lists_modules_and_packages_in_their_order(repository: Path) -> None:
    script = repository / ".ci" / "check_layers.py"
    if not script.exists():
        pytest.skip("this source tree has no .ci")
    spec = importlib.util.spec_from_file_location("check_layers", script)
    assert spec is not None
    assert spec.loader is not None
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    text = paper(repository, LAYOUT)
    assert first_column(text, "Modules of the engine") == list(layers.MODULES)
    assert first_column(text, "Packages of Python") == list(layers.PACKAGES)
    grouped = paper(repository, "README.md").split("\n| packages |")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", grouped) == list(layers.PACKAGES)


def test_the_guide_lists_every_command_and_notebook(repository: Path) -> None:
    text = paper(repository, GUIDE)
    listed = [line.split()[1] for line in first_column(text, "The commands")]
    (commands,) = (
        action
        for action in make_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert listed == list(commands.choices)
    notebooks = re.findall(r"^\| \[.*?\]\((\w+\.ipynb)\)", text, re.MULTILINE)
    assert notebooks == sorted(path.name for path in (repository / "notebooks").glob("*.ipynb"))


def test_the_readme_names_every_stack(repository: Path) -> None:
    section = paper(repository, "README.md").split("| `stack=` |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", section)
    assert sorted(named) == sorted(catalog.names("stacks"))


def test_the_changelog_is_bullets_of_one_line(repository: Path) -> None:
    text = paper(repository, "CHANGELOG.md")
    assert all(len(line) <= 120 for line in text.splitlines())
    release = text.split("\n## ")[1]
    headings = re.findall(r"^### (.*)$", release, re.MULTILINE)
    assert headings == ["Added", "Changed", "Fixed", "Predictions moved"]
    for section in release.split("\n### ")[1:]:
        lines = [line for line in section.splitlines()[1:] if line]
        assert all(line.startswith("* ") for line in lines)
