"""Hardware varied, the best strategy searched again at every point.

A design compared with another design's strategy is no comparison: `codesign`, `sensitivity`,
`iso_performance`, `invert` and `optimise` all search anew wherever the hardware changes.

Examples
--------
>>> import scalemodel as sm
>>> task = sm.Training(global_batch=64, sequence=4096)
>>> vary = {"accelerator.memory.bandwidth": [1, 2]}
>>> study = sm.codesign("llama3_8b", "dgx_h100", task, vary=vary)
>>> bool(study.step_time_s[1] < study.step_time_s[0])
True
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

from scalemodel.codesign.optuna_adapter import Optimisation, optimise
from scalemodel.codesign.sensitivity import exchange_rate, invert, iso_performance, sensitivity
from scalemodel.codesign.study import best_design, codesign, design_cluster, design_strategy
from scalemodel.codesign.vary import Hardware

__all__ = [
    "Hardware",
    "Optimisation",
    "best_design",
    "codesign",
    "design_cluster",
    "design_strategy",
    "exchange_rate",
    "invert",
    "iso_performance",
    "optimise",
    "sensitivity",
]


class _CallableModule(ModuleType):
    """Importing this package puts the module where users call the function: let both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return codesign(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """What help and completion show: the arguments of the function."""
        return inspect.signature(codesign)

    def __dir__(self) -> list[str]:
        return __all__


sys.modules[__name__].__class__ = _CallableModule
