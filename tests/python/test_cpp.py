"""Build the C++ tests without Python and run them, so that one command runs everything."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """Program of this environment, else of the system."""
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which(name, path=os.pathsep.join([beside_python, os.environ.get("PATH", "")]))
    assert found, f"{name} not found: pip install 'scalemodel[test]'"
    return found


def run(*command: str | Path) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}", pytrace=False)
    return done.stdout


def installed_core(repository: Path) -> Path | None:
    """The core that the last installation left in the build folder, if no source is newer."""
    recipes = [repository / "CMakeLists.txt", repository / "cpp" / "CMakeLists.txt"]
    sources = [*recipes, *(repository / "cpp" / "scalemodel").rglob("*.?pp")]
    newest = max(path.stat().st_mtime for path in sources)
    for library in (repository / "build").glob("*/cpp/libscalemodel_core.a"):
        if library.stat().st_mtime > newest:
            return library
    return None


def test_every_cpp_test_passes(
    repository: Path, tmp_path: Path, summary_line: Callable[[str], None]
) -> None:
    # From outside: where to build and how, so that coverage needs no build of its own.
    build = Path(os.environ.get("SCALEMODEL_CPP_BUILD", tmp_path))
    configure = [
        tool("cmake"),
        *("-S", repository, "-B", build, "-G", "Ninja"),
        f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
        f"-DCMAKE_PREFIX_PATH={sysconfig.get_path('purelib')}",
        *("-DSCALEMODEL_BINDINGS=OFF", "-DSCALEMODEL_TESTS=ON", "-DSCALEMODEL_BATCHED=ON"),
    ]
    options = shlex.split(os.environ.get("SCALEMODEL_CPP_OPTIONS", ""))
    if not options and (library := installed_core(repository)):
        options = [f"-DSCALEMODEL_CORE_LIBRARY={library}"]
    configure += options
    run(*configure)
    run(tool("cmake"), "--build", build)
    output = run(build / "scalemodel_tests", "--no-colors=true")
    (line,) = [line for line in output.splitlines() if line.startswith("[doctest] test cases")]
    summary_line(f"C++ {line}")
    assert " 0 passed" not in line, "the runner holds no test"
