"""What a machine without accelerators lacks, taken for there by the frameworks' checks."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


class _Kind(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _kind(name)


def _kind(name: str) -> _Kind:
    """A class whose objects take every argument and have every attribute."""
    if name.startswith("__"):
        raise AttributeError(name)
    body = {
        "__init__": lambda self, *_, **__: None,
        "__call__": lambda self, *_, **__: self,
        "__getattr__": lambda self, name: _kind(name),
    }
    return _Kind(name, (), body)


class _Anything(types.ModuleType):
    """A module that has every class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        made = _kind(name)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds packages that no other finder does."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == one or name.startswith(f"{one}.") for one in self.packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """It is empty."""


def take_for_there(packages: tuple[str, ...]) -> None:
    """Packages that are not installed are imported as modules that have everything."""
    sys.meta_path.append(_Finder(packages))


def accelerators(major: int, minor: int, name: str) -> None:
    """PyTorch finds accelerators of this name and capability."""
    import torch

    device = types.SimpleNamespace(major=major, minor=minor, name=name, total_memory=2**37)
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: device


def have_transformer_engine() -> None:
    """Every module of Megatron has its own name of the same question."""
    from megatron.core.models.common.embeddings import rope_utils

    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = object()
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron") and hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True
