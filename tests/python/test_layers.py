"""The checks of the house's order find what they should, and the house is in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def check_layers(repository: Path) -> Path:
    """The checking script, which a source distribution may lack."""
    script = repository / ".ci" / "check_layers.py"
    if not script.exists():
        pytest.skip("this source tree has no .ci")
    return script


def offences(script: Path, root: Path) -> list[str]:
    """Lines the script prints about a tree; none when it exits with 0."""
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines() if done.returncode else []


def write(root: Path, name: str, text: str) -> Path:
    """Write a file below root and return root."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


def test_the_repository_is_in_order(check_layers: Path, repository: Path) -> None:
    assert offences(check_layers, repository) == []


@pytest.mark.parametrize("target", ["base/quantity.hpp", "ops/gemm.hpp", "costs/tables.hpp"])
def test_a_module_may_include_itself_and_those_below(
    check_layers: Path, tmp_path: Path, target: str
) -> None:
    root = write(tmp_path, "cpp/scalemodel/costs/x.hpp", f'#include "scalemodel/{target}"\n')
    assert offences(check_layers, root) == []


@pytest.mark.parametrize(
    ("include", "complaint"),
    [
        ('"scalemodel/search/space.hpp"', "search lies above it"),
        ("<scalemodel/estimator/evaluate.hpp>", "estimator lies above it"),
        ('"scalemodel/nowhere/x.hpp"', "unknown module"),
        ('"scalemodel/quantity.hpp"', "unknown module"),
        ('"../base/quantity.hpp"', "write scalemodel/<module>/"),
        ("<pybind11/pybind11.h>", "the engine knows no border"),
    ],
)
def test_other_includes_are_reported_with_file_and_line(
    check_layers: Path, tmp_path: Path, include: str, complaint: str
) -> None:
    root = write(tmp_path, "cpp/scalemodel/costs/x.cpp", f"\n#  include {include}\n")
    (line,) = offences(check_layers, root)
    assert line.startswith("cpp/scalemodel/costs/x.cpp:2:")
    assert complaint in line


@pytest.mark.parametrize(
    ("file", "include", "complaint"),
    [
        ("rates/x.cpp", "exact/cdcl_solver.hpp", "rates includes"),
        ("exact/x.hpp", "policies/greedy.hpp", "exact includes"),
        ("policies/x.cpp", "route.hpp", "policies includes"),
        ("route.cpp", "simulation/simulate.hpp", "route includes"),
        ("instance.hpp", "rates/objective.hpp", "instance includes"),
    ],
)
def test_the_folders_of_a_module_have_an_order(
    check_layers: Path, tmp_path: Path, file: str, include: str, complaint: str
) -> None:
    name = f"cpp/scalemodel/routing/{file}"
    (line,) = offences(
        check_layers, write(tmp_path, name, f'#include "scalemodel/routing/{include}"\n')
    )
    assert line.startswith(f"{name}:1: {complaint}")
    assert line.endswith("lies above it")


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("exact/x.cpp", "rates/objective.hpp"),
        ("exact/x.cpp", "exact/subset_sums.hpp"),
        ("route.cpp", "policies/greedy.hpp"),
        ("simulation/x.cpp", "route.hpp"),
        ("trees/x.cpp", "instance.hpp"),
    ],
)
def test_a_folder_may_include_itself_and_those_below(
    check_layers: Path, tmp_path: Path, file: str, include: str
) -> None:
    name = f"cpp/scalemodel/routing/{file}"
    root = write(tmp_path, name, f'#include "scalemodel/routing/{include}"\n')
    assert offences(check_layers, root) == []


def test_a_file_or_include_outside_the_known_folders_is_reported(
    check_layers: Path, tmp_path: Path
) -> None:
    root = write(tmp_path, "cpp/scalemodel/routing/utilities/x.cpp", "")
    write(root, "cpp/scalemodel/routing/rates/x.cpp", '#include "scalemodel/routing/loose.hpp"\n')
    included, file = offences(check_layers, root)
    assert included.startswith("cpp/scalemodel/routing/rates/x.cpp:1: rates includes")
    assert included.endswith("unknown part")
    assert file.endswith("utilities/x.cpp: lies in no known part of routing")


@pytest.mark.parametrize("name", ["cpp/scalemodel/x.cpp", "cpp/scalemodel/utilities/x.hpp"])
def test_a_file_outside_the_known_modules_is_reported(
    check_layers: Path, tmp_path: Path, name: str
) -> None:
    (line,) = offences(check_layers, write(tmp_path, name, ""))
    assert "no known module" in line


@pytest.mark.parametrize("name", ["cpp/bindings/bind_ops.cpp", "tests/cpp/ops/gemm_test.cpp"])
def test_bindings_and_tests_may_include_anything(
    check_layers: Path, tmp_path: Path, name: str
) -> None:
    root = write(tmp_path, name, '#include "scalemodel/search/space.hpp"\n')
    assert offences(check_layers, root) == []


@pytest.mark.parametrize(
    "text",
    [
        "import matplotlib.pyplot as plt\n",
        "from matplotlib import colors\n",
        "try:\n    import matplotlib\nexcept ImportError:\n    pass\n",
        "class Figure:\n    import matplotlib\n",
    ],
)
def test_matplotlib_at_module_level_is_reported(
    check_layers: Path, tmp_path: Path, text: str
) -> None:
    (line,) = offences(check_layers, write(tmp_path, "python/scalemodel/estimator/x.py", text))
    assert line.startswith("python/scalemodel/estimator/x.py:")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plot/bars.py", "import matplotlib.pyplot as plt\n"),
        ("cli/x.py", "import matplotlib\n"),
        ("estimator/x.py", "def draw():\n    import matplotlib.pyplot\n"),
        (
            "estimator/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import matplotlib\n",
        ),
    ],
)
def test_matplotlib_elsewhere_is_fine(
    check_layers: Path, tmp_path: Path, name: str, text: str
) -> None:
    assert offences(check_layers, write(tmp_path, f"python/scalemodel/{name}", text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from scalemodel.search.space import Space\n", 1),
        ("import scalemodel.search.space\n", 1),
        ("from scalemodel.search import space\n", 1),
        ("def f():\n    from scalemodel.search.space import Space\n", 2),
        ("if TYPE_CHECKING:\n    from scalemodel.search.space import Space\n", 2),
    ],
    ids=["name", "module", "of a package", "in a function", "for types"],
)
def test_an_import_that_runs_up_is_reported_wherever_it_stands(
    check_layers: Path, tmp_path: Path, text: str, line: int
) -> None:
    root = write(tmp_path, "python/scalemodel/search/space.py", "Space = int\n")
    write(root, "python/scalemodel/resolve/x.py", text)
    (found,) = offences(check_layers, root)
    assert found.startswith(f"python/scalemodel/resolve/x.py:{line}: resolve imports search")
    assert found.endswith("which lies above it")


@pytest.mark.parametrize(
    "text", ["import scalemodel as sm\n", "from scalemodel import Space\n", "import scalemodel\n"]
)
def test_nobody_imports_the_face(check_layers: Path, tmp_path: Path, text: str) -> None:
    root = write(tmp_path, "python/scalemodel/cli/x.py", text)
    (line,) = offences(check_layers, root)
    assert line == "python/scalemodel/cli/x.py:1: imports the package's face; name the module"


@pytest.mark.parametrize("text", ["from ..search import space\n", "from . import x\n"])
def test_a_relative_import_is_reported(check_layers: Path, tmp_path: Path, text: str) -> None:
    root = write(tmp_path, "python/scalemodel/resolve/x.py", text)
    (line,) = offences(check_layers, root)
    assert line.startswith("python/scalemodel/resolve/x.py:1: imports .")


def test_the_engine_and_what_lies_below_may_be_imported(check_layers: Path, tmp_path: Path) -> None:
    root = write(tmp_path, "python/scalemodel/base/errors.py", "")
    text = (
        "import scalemodel._core as _core\nfrom scalemodel._core import Strategy\n"
        "from scalemodel.base import errors\nfrom scalemodel.base.errors import ScaleModelError\n"
    )
    assert offences(check_layers, write(root, "python/scalemodel/cli/x.py", text)) == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("loose.py", "lies in no package"), ("utilities/x.py", "lies in no known package")],
)
def test_a_module_outside_the_packages_is_reported(
    check_layers: Path, tmp_path: Path, name: str, complaint: str
) -> None:
    root = write(tmp_path, f"python/scalemodel/{name}", "")
    assert offences(check_layers, root) == [f"python/scalemodel/{name}: {complaint}"]


def test_modules_that_import_each_other_are_reported(check_layers: Path, tmp_path: Path) -> None:
    root = write(tmp_path, "python/scalemodel/plot/a.py", "from scalemodel.plot.b import x\n")
    write(root, "python/scalemodel/plot/b.py", "def f():\n    from scalemodel.plot import c\n")
    write(root, "python/scalemodel/plot/c.py", "import scalemodel.plot.a\n")
    (line,) = offences(check_layers, root)
    assert line.endswith("import each other: plot.a, plot.b, plot.c")
