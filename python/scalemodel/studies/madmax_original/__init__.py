"""MAD-Max's own formulas, models and systems, to compare with; nothing of them enters the engine.

`ask` makes a question, `step` answers it as the public code does, or with single formulas mended
(`CORRECTIONS`), which is what each of its simplifications costs.
"""

from __future__ import annotations

from scalemodel.studies.madmax_original.formulas import CORRECTIONS, Result, step
from scalemodel.studies.madmax_original.inputs import SYSTEMS, WORKLOADS, ask
from scalemodel.studies.madmax_original.sizes import Question, System, Workload, mesh_of, product

__all__ = [
    "CORRECTIONS",
    "SYSTEMS",
    "WORKLOADS",
    "Question",
    "Result",
    "System",
    "Workload",
    "ask",
    "mesh_of",
    "product",
    "step",
]
