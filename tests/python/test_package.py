"""What importing the package costs, loads and promises."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import scalemodel
from scalemodel.catalog import tomllib

IMPORT_BUDGET_S = 0.060

# Processor time of this thread, not wall time: the budget is about the package, not about a busy
# machine or the threads that numpy starts.
IMPORT_PROBE = """
import json, sys, time
import numpy
start = time.thread_time()
import scalemodel
print(json.dumps([time.thread_time() - start, sorted(sys.modules)]))
"""


def probe_import() -> tuple[float, list[str]]:
    """Seconds spent importing scalemodel after numpy, and the modules loaded then."""
    # With byte code, as any installation has it, even where this process must not write any.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    output = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout
    seconds, modules = json.loads(output)
    return seconds, modules


def test_import_is_quick() -> None:
    probe_import()  # writes the byte code
    assert statistics.median(probe_import()[0] for _ in range(7)) < IMPORT_BUDGET_S


@pytest.mark.parametrize("module", ["pandas", "matplotlib.pyplot", "scipy", "torch"])
def test_import_leaves_heavy_modules_out(module: str) -> None:
    assert module not in probe_import()[1]


def test_public_names_exist() -> None:
    assert len(set(scalemodel.__all__)) == len(scalemodel.__all__)
    for name in scalemodel.__all__:
        assert getattr(scalemodel, name) is not None


def test_public_names_are_listed_by_dir() -> None:
    assert set(scalemodel.__all__) <= set(dir(scalemodel))


def test_public_callables_are_documented() -> None:
    for name in scalemodel.__all__:
        public = getattr(scalemodel, name)
        if callable(public):
            assert public.__doc__, f"{name} has no docstring"


def test_versions_agree(repository: Path) -> None:
    project = (repository / "pyproject.toml").read_text(encoding="utf-8")
    written = re.search(r'^version = "([^"]+)"$', project, re.MULTILINE)
    assert written is not None
    assert scalemodel.__version__ == written[1] == metadata.version("scalemodel")
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {written[1]}" in changelog
    cited = (repository / "README.md").read_text(encoding="utf-8")
    assert f"  version = {{{written[1]}}}," in cited


def test_versions_of_python_agree(repository: Path) -> None:
    tables = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    named = [
        version[1]
        for text in tables["project"]["classifiers"]
        if (version := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text))
    ]
    minors = [int(version.removeprefix("3.")) for version in named]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert tables["project"]["requires-python"] == f">={named[0]}"
    assert tables["tool"]["ruff"]["target-version"] == f"py3{minors[0]}"
    wheels = tables["tool"]["cibuildwheel"]["build"].split()
    assert wheels == [f"cp3{minor}-*" for minor in minors]
    workflow = (repository / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert f'python: ["{named[0]}", "{named[-1]}"]' in workflow  # the oldest and the newest


@pytest.mark.parametrize("name", ["py.typed", "_core.pyi"])
def test_type_information_is_installed(name: str) -> None:
    assert resources.files("scalemodel").joinpath(name).is_file()


def test_command_line_is_installed() -> None:
    entry_points = metadata.distribution("scalemodel").entry_points
    assert any(point.name == "scalemodel" for point in entry_points)
