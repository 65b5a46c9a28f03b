"""What a job gains from more accelerators, from newer ones, and from other ways to share it out.

`scaling` follows one job over many sizes; `hardware_trends` and `workload_trends` do so over
generations of hardware, models and context lengths; `growth_needed` asks what a generation lacks;
`crossovers` says which parallelism wins where. Every number comes from `sm.estimate` or
`sm.search`; the ratios between sizes are formulas of the engine.

Examples
--------
>>> import scalemodel as sm
>>> task = sm.Training(global_batch=16, sequence=4096)
>>> sm.scaling("llama2_7b", "dgx_h100", task, [8, 16], rule="fsdp").accelerators.tolist()
[8, 16]
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from scalemodel.scaling.crossovers import FAMILIES, crossovers
from scalemodel.scaling.curve import DiminishingReturns, diminishing_returns, scaling
from scalemodel.scaling.trends import (
    GENERATIONS,
    growth_needed,
    hardware_trends,
    workload_trends,
)

__all__ = [
    "FAMILIES",
    "GENERATIONS",
    "DiminishingReturns",
    "crossovers",
    "diminishing_returns",
    "growth_needed",
    "hardware_trends",
    "scaling",
    "workload_trends",
]


class _CallableModule(ModuleType):
    """Importing this package puts the module where users call the function: let both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return scaling(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """What help and completion show: the arguments of the function."""
        return inspect.signature(scaling)

    def __dir__(self) -> list[str]:
        return __all__


sys.modules[__name__].__class__ = _CallableModule
