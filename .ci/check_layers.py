"""Fail when a module uses one above it or in a circle, or loads matplotlib too early."""

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
    "post_training",
    "search",
    "fleet",
)
LEVEL = {name: level for level, name in enumerate(MODULES)}

# The same inside a module that has folders; a file beside them counts by its name.
PARTS = {
    "routing": ("instance", "trees", "rates", "exact", "policies", "route", "simulation"),
}

# The same of the Python packages; every module lies in one of them.
PACKAGES = (
    "base",
    "catalog",
    "resolve",
    "layer_groups",
    "serving",
    "estimator",
    "search",
    "post_training",
    "routing",
    "validation",
    "codesign",
    "economics",
    "plot",
    "scaling",
    "reports",
    "studies",
    "interop",
    "calibration",
    "explorer",
    "page",
    "cli",
)
PACKAGE_LEVEL = {name: level for level, name in enumerate(PACKAGES)}
# What lies beside the packages: the face and the program. Nobody imports them.
BESIDE = ("__init__.py", "__main__.py")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
BORDERS = ("pybind11/", "Python.h", "bindings/", "page/")
MAY_IMPORT_MATPLOTLIB = ("plot", "cli")


def part_of(module: str, inside: str) -> str:
    """Folder of a file of a module whose folders have an order, or the name of a file beside
    them; empty for other modules.
    """
    return inside.split("/")[0].split(".")[0] if module in PARTS else ""


def upward_includes(root: Path) -> Iterator[str]:
    """One line per include of the engine that breaks the order of modules or of their parts."""
    engine = root / "cpp" / "scalemodel"
    for path in sorted((*engine.rglob("*.hpp"), *engine.rglob("*.cpp"))):
        module, *inside = path.relative_to(engine).parts
        where = path.relative_to(root)
        if module not in LEVEL:
            yield f"{where}: lies in no known module"
            continue
        part = part_of(module, "/".join(inside))
        if part and part not in PARTS[module]:
            yield f"{where}: lies in no known part of {module}"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            included = match[1]
            if included.startswith(BORDERS):
                yield f"{where}:{number}: {module} includes {included}: the engine knows no border"
            elif included.startswith("."):
                yield f"{where}:{number}: {module} includes {included}: write scalemodel/<module>/"
            elif included.startswith("scalemodel/"):
                _, target, *rest = included.split("/")
                if target not in LEVEL:
                    yield f"{where}:{number}: {module} includes {included}: unknown module"
                elif LEVEL[target] > LEVEL[module]:
                    yield f"{where}:{number}: {module} includes {included}: {target} lies above it"
                elif part and target == module:
                    own = PARTS[module]
                    other = part_of(target, "/".join(rest))
                    if other not in own:
                        yield f"{where}:{number}: {part} includes {included}: unknown part"
                    elif own.index(other) > own.index(part):
                        yield f"{where}:{number}: {part} includes {included}: {other} lies above it"


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
        if relative.parts[0] in MAY_IMPORT_MATPLOTLIB:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for number, name in imports_at_load(tree.body):
            if name.split(".")[0] == "matplotlib":
                yield f"{path.relative_to(root)}:{number}: imports {name} when it loads"


def python_modules(package: Path) -> dict[str, Path]:
    """File of every module by its name below the package."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def imported(path: Path, modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Line and name of every module of the package that a file imports: when it loads, inside a
    function or for types alone. The engine is none of them; the face is the empty name, a relative
    import its points.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            # From where this file lies, which a reader would have to look up.
            yield node.lineno, "." * node.level
            continue
        elif isinstance(node, ast.ImportFrom) and node.module:
            # What is imported may be a module itself.
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [
                name if name.removeprefix("scalemodel.") in modules else node.module
                for name in whole
            ]
            if node.module == "scalemodel" and any(a.name == "_core" for a in node.names):
                yield node.lineno, ""
        else:
            continue
        for name in names:
            if name.split(".")[0] != "scalemodel" or name.startswith("scalemodel._core"):
                continue
            yield node.lineno, name.removeprefix("scalemodel").removeprefix(".")


def upward_imports(root: Path) -> Iterator[str]:
    """One line per import of the Python package that breaks the order of its packages."""
    package = root / "python" / "scalemodel"
    modules = python_modules(package)
    for module, path in modules.items():
        where = path.relative_to(root)
        own = module.split(".")[0]
        if path.parent == package:
            if path.name not in BESIDE:
                yield f"{where}: lies in no package"
            continue
        if own not in PACKAGE_LEVEL:
            yield f"{where}: lies in no known package"
            continue
        for number, target in imported(path, modules):
            if target.startswith("."):
                yield f"{where}:{number}: imports {target}; write scalemodel.<package>"
            elif target in ("", "__main__"):
                yield f"{where}:{number}: imports the package's face; name the module"
            elif PACKAGE_LEVEL.get(target.split(".")[0], len(PACKAGES)) > PACKAGE_LEVEL[own]:
                yield f"{where}:{number}: {own} imports {target}, which lies above it"


def import_circles(root: Path) -> Iterator[str]:
    """One line per circle of modules that import each other, by Tarjan's algorithm."""
    modules = python_modules(root / "python" / "scalemodel")
    targets = {
        module: sorted({name for _, name in imported(path, modules) if name in modules} - {module})
        for module, path in modules.items()
        if module
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in targets.get(module, ()):
            if target not in index:
                yield from visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            first = stack.index(module)
            circle, stack[first:] = stack[first:], []
            if len(circle) > 1:
                yield circle

    for module in targets:
        if module not in index:
            for circle in visit(module):
                yield f"python/scalemodel: import each other: {', '.join(sorted(circle))}"


def main(root: Path) -> int:
    problems = [
        *upward_includes(root),
        *upward_imports(root),
        *import_circles(root),
        *early_matplotlib(root),
    ]
    print("\n".join(problems) if problems else "layers: in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])))
