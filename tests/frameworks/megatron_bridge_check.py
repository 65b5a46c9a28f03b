"""Passes jobs of Megatron-Bridge through its own configuration and its checks.

Run by an interpreter that has ``megatron-bridge`` and ``megatron-core`` with all that they need but
what needs accelerators. Reads a list of jobs as JSON, and writes one line for each: an empty one,
or what is refused.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from typing import Any

from answering import answer
from pretending import have_transformer_engine

warnings.simplefilter("ignore")
#: Packages of kernels, data and recovery that a configuration is checked without.
TAKEN_FOR_THERE = (
    *("transformer_engine", "datasets", "megatron.energon", "modelopt"),
    "nvidia_resiliency_ext",
)


class _Kind(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (), {})


class _Anything(types.ModuleType):
    """A module that has every class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Kind(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what no other finder does."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == one or name.startswith(f"{one}.") for one in TAKEN_FOR_THERE):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """It is empty."""


def _pretend(job: dict[str, Any]) -> None:
    """The accelerators of the job, and as many processes."""
    import torch
    from megatron.bridge.training import config
    from megatron.bridge.utils import common_utils

    major, minor = job["capability"]
    device = types.SimpleNamespace(major=major, minor=minor, name=job["device"], total_memory=2**37)
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: device
    for module in (config, common_utils):
        module.get_world_size_safe = lambda: job["world"]


def _prepare() -> None:
    """Modules that ask for Transformer Engine by themselves are read without it."""
    import megatron.core.transformer
    import megatron.training.arguments  # noqa: F401

    sys.meta_path.append(_Finder())
    from megatron.bridge.training import gpt_step, pretrain  # noqa: F401

    have_transformer_engine()


def check(job: dict[str, Any]) -> None:
    """Run the script as far as ``pretrain``, which checks the configuration before it starts."""
    import os

    from megatron.bridge.training import config, pretrain

    _pretend(job)
    os.environ.update(job["environment"])
    os.environ.update(RANK="0", WORLD_SIZE=str(job["world"]), LOCAL_RANK="0")
    checked = []

    def stop(config: Any, **_: Any) -> None:
        module.runtime_config_update(config)
        checked.append(config)

    module = config
    pretrain.pretrain = stop
    words = job["words"]
    sys.argv = words[words.index("pretrain.py") :]
    exec(compile(job["files"]["pretrain.py"], "pretrain.py", "exec"), {"__name__": "__main__"})
    (read,) = checked
    assert (
        read.train.global_batch_size % (read.train.micro_batch_size * read.data_parallel_size) == 0
    )


answer(check, _prepare)
