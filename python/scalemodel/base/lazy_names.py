"""Names of a package that are loaded at first use, because they bring much along."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def _listed(names: Path) -> dict[str, str]:
    """Module of every name that the ``.pyi`` file of a package imports."""
    return {
        alias.name: node.module
        for node in ast.parse(names.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


class _Face(ModuleType):
    """A package whose names come from elsewhere.

    Python puts a module that is imported where it finds its name: not in place of a name of the
    package, which may be a verb in a module of the same name.
    """

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__["_MODULES"]
        if name not in modules:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self._is_package(name):
            return importlib.import_module(f"{self.__name__}.{name}")
        self.__dict__[name] = getattr(importlib.import_module(modules[name]), name)
        return self.__dict__[name]

    def __setattr__(self, name: str, value: object) -> None:
        kept = name in self.__dict__["_MODULES"] and not self._is_package(name)
        if not kept or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.__dict__["_MODULES"])

    def _is_package(self, name: str) -> bool:
        """Whether a name stands for a package, which holds companions of its verb."""
        own = self.__dict__["_MODULES"][name] in (self.__name__, f"{self.__name__}.{name}")
        return own and Path(str(self.__file__)).with_name(name).is_dir()


def load_at_first_use(package: str) -> list[str]:
    """Have a package load the names that its ``__init__.pyi`` lists when they are first asked for.

    Returns
    -------
    list of str
        These names, sorted: the package's `__all__`.

    Examples
    --------
    >>> import scalemodel.serving
    >>> scalemodel.serving.serve.__module__
    'scalemodel.serving.serve'
    """
    module = sys.modules[package]
    module.__dict__["_MODULES"] = _listed(Path(str(module.__file__)).with_suffix(".pyi"))
    module.__class__ = _Face
    return sorted(module.__dict__["_MODULES"])
