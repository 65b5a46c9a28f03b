"""Fail when a module includes one above it, or when a Python module loads matplotlib too early."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# From the bottom of the house to the top: a module includes itself and those before it.
MODULES = (
    "base",
    "hardware",
    "power",
    "fabric",
    "collectives",
    "ops",
    "calibration",
    "model",
    "strategy",
    "schedule",
    "traffic",
    "routing",
    "costs",
    "economics",
    "timeline",
    "estimator",
    "serving",
    "search",
)
LEVEL = {name: level for level, name in enumerate(MODULES)}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
PYTHON_BORDER = ("pybind11/", "Python.h", "bindings/")
MAY_IMPORT_MATPLOTLIB = ("plot", "cli")


def upward_includes(root: Path) -> Iterator[str]:
    """One line per include of the engine that breaks the order of modules."""
    engine = root / "cpp" / "scalemodel"
    for path in sorted((*engine.rglob("*.hpp"), *engine.rglob("*.cpp"))):
        module = path.relative_to(engine).parts[0]
        where = path.relative_to(root)
        if module not in LEVEL:
            yield f"{where}: lies in no known module"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            included = match[1]
            if included.startswith(PYTHON_BORDER):
                yield f"{where}:{number}: {module} includes {included}: the engine knows no Python"
            elif included.startswith("."):
                yield f"{where}:{number}: {module} includes {included}: write scalemodel/<module>/"
            elif included.startswith("scalemodel/"):
                target = included.split("/")[1]
                if target not in LEVEL:
                    yield f"{where}:{number}: {module} includes {included}: unknown module"
                elif LEVEL[target] > LEVEL[module]:
                    yield f"{where}:{number}: {module} includes {included}: {target} lies above it"


def imports_at_load(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Line and name of each absolute import that runs when the module loads."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from imports_at_load(node.body)
            yield from imports_at_load(node.orelse)
        elif isinstance(node, ast.Try):
            yield from imports_at_load([*node.body, *node.orelse, *node.finalbody])
            for handler in node.handlers:
                yield from imports_at_load(handler.body)
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from imports_at_load(node.body)


def early_matplotlib(root: Path) -> Iterator[str]:
    """One line per module-level import of matplotlib outside plot and cli."""
    package = root / "python" / "scalemodel"
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if relative.parts[0].removesuffix(".py") in MAY_IMPORT_MATPLOTLIB:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for number, name in imports_at_load(tree.body):
            if name.split(".")[0] == "matplotlib":
                yield f"{path.relative_to(root)}:{number}: imports {name} when it loads"


def main(root: Path) -> int:
    problems = [*upward_includes(root), *early_matplotlib(root)]
    print("\n".join(problems) if problems else "layers: in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])))
