"""MAD-Max's headline speed-ups over FSDP, from its own formulas and from formulas set right.

The paper reports up to 2.24 times in pre-training and up to 5.2 times in inference. `speed_ups`
computes both from the public code's formulas, mends those formulas one after another, and ends with
this package's engine on the same model: what remains of a gain, and what takes it away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.studies import madmax
from scalemodel.studies.madmax_original import ask, step

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HEADLINE", "MENDED", "original_strategies", "speed_ups"]

#: The configuration that gives the published numbers: the model, the system, its size, the batch.
HEADLINE = ("dlrm_moe/dlrm_a_moe", "zionex/zionex", 128, 65536)

#: Corrections in the order they are made, each beside those in front of it.
MENDED = (
    "shared_adapters",
    "expert_exchange",
    "pooled_exchange",
    "embedding_update",
)

_WEIGHTS_WITH_STATES = 3  # the original's sheets leave out what exceeds memory with three copies


def _meshes(gpus: int, node: int) -> list[str]:
    nodes = gpus // node
    inner = [f"{a}@{node}+{b}@{nodes}" for a in ("tp", "fsdp") for b in ("ddp",)]
    outer = [f"{a}@{node}+tp@{nodes}" for a in ("ddp", "fsdp")]
    return [f"{name}@{gpus}" for name in ("ddp", "fsdp", "tp")] + inner + outer


def original_strategies(
    model: str = HEADLINE[0],
    system: str = HEADLINE[1],
    gpus: int = HEADLINE[2],
    batch: float = HEADLINE[3],
    *,
    task: str = "pretrain",
    corrected: Iterable[str] = (),
) -> pd.DataFrame:
    """Strategies of a model by the original's formulas, tables spread over all GPUs.

    Parameters
    ----------
    model, system, gpus, batch, task
        As in `madmax_original.ask`.
    corrected : iterable of str
        Of `madmax_original.CORRECTIONS`.

    Returns
    -------
    DataFrame, one row per mesh of the layers
        Columns layers, ``step_time_s``, ``speed_up`` over ``fsdp``, ``memory_bytes`` (weights,
        three times in training) and fits.

    Raises
    ------
    ScaleModelError : an unknown model, system or correction.

    Examples
    --------
    >>> table = original_strategies().set_index("layers")
    >>> round(float(table.speed_up["ddp@8+tp@16"]), 3)
    2.261
    """
    import pandas as pd

    corrected = tuple(corrected)
    copies = 1 if task == "inference" else _WEIGHTS_WITH_STATES
    rows: list[dict[str, Any]] = []
    for layers in _meshes(gpus, 8):
        asked = ask(model, system, gpus, layers, batch, task=task)
        found = step(asked, corrected)
        weights = copies * sum(found.weights_bytes.values())
        row = {"layers": layers, "step_time_s": found.step_s, "memory_bytes": weights}
        rows.append(row | {"fits": weights <= asked.system.memory_bytes})
    frame = pd.DataFrame(rows)
    base = float(frame.loc[frame["layers"] == f"fsdp@{gpus}", "step_time_s"].iloc[0])
    frame.insert(2, "speed_up", base / frame["step_time_s"])
    return frame


def _best_of_engine(inference: bool, own_experts: bool) -> tuple[str, float]:
    table = madmax.strategies(["DLRM-A-MoE"], inference=inference)
    fits = table[(table.verdict == "ok") & ((table.experts == "") | own_experts)]
    best = fits.sort_values("step_time_s", kind="stable").iloc[0]
    experts = f", experts {best.experts}" if best.experts else ""
    return f"{best.layers}{experts}", float(best.speed_up)


def speed_ups(tasks: Sequence[str] = ("pretrain", "inference")) -> pd.DataFrame:
    """The headline speed-ups, formula by formula.

    Parameters
    ----------
    tasks : sequence of str
        ``"pretrain"``, ``"inference"``.

    Returns
    -------
    DataFrame, one row per task and set of formulas
        Columns task, formulas (``"original"``, ``"+ <correction>"`` for each one mended beside
        those above it, ``"engine, experts as layers"``, ``"engine"``), layers (of the fastest
        strategy that fits), ``speed_up`` over FSDP.

    Raises
    ------
    ScaleModelError : an unknown task.

    Examples
    --------
    >>> table = speed_ups(["pretrain"])
    >>> table.formulas.iloc[0], round(float(table.speed_up.iloc[0]), 2)
    ('original', 2.26)
    """
    import pandas as pd

    rows = []
    for task in tasks:
        if task not in ("pretrain", "inference"):
            raise ScaleModelError(f"tasks: {task!r}: must be 'pretrain' or 'inference'")
        for count in range(len(MENDED) + 1):
            table = original_strategies(task=task, corrected=MENDED[:count])
            best = table[table.fits].sort_values("step_time_s").iloc[0]
            name = f"+ {MENDED[count - 1]}" if count else "original"
            rows.append((task, name, best.layers, float(best.speed_up)))
        for name, own in (("engine, experts as layers", False), ("engine", True)):
            rows.append((task, name, *_best_of_engine(task == "inference", own)))
    return pd.DataFrame(rows, columns=["task", "formulas", "layers", "speed_up"])
