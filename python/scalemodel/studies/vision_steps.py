"""Published steps of vision transformers, predicted, beside MAD-Max's predictions.

The runs name no cluster, and how fast its network is decides: `vision_steps` takes the rate that
all other steps ask for, so that no step has a part in its own prediction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.reader import Reader
from scalemodel.validation.prediction import predict_groups
from scalemodel.validation.rows import Row

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RATES_GBIT", "RUNS", "vision_steps"]

#: Model, accelerators, global batch.
RUNS = (
    ("ViT-L", 32, 4096),
    ("ViT-H", 32, 4096),
    ("ViT-10B", 32, 4096),
    ("ViT-10B", 128, 4096),
    ("ViT-25B", 32, 2048),
    ("ViT-25B", 128, 2048),
    ("ViT-25B", 128, 4096),
    ("ViT-60B", 128, 2048),
    ("ViT-120B", 128, 2048),
)

#: Rates of an accelerator's adapter to choose from.
RATES_GBIT = (2.5, 3.5, 5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0)


@cache
def _step_s(model: str, accelerators: int, batch: int, rate_gbit: float) -> float:
    row = Row(
        {
            "year": "2023",
            "framework": "FAIR ViT (FSDP)",
            "model": model,
            "model_family": "ViT",
            "task": "ViT train",
            "micro_batch": str(batch // accelerators),
            "global_batch": str(batch),
            "precision": "bf16",
            "gpu": "A100-80GB",
            "gpu_mem_GB": "80",
            "n_gpus": str(accelerators),
            "gpus_per_node": "8",
            "network": "InfiniBand",
            "nic_gbps_per_gpu": str(rate_gbit),
            "sharding": "FSDP",
        }
    )
    found = predict_groups(row).step_time_s
    assert found is not None
    return found


def vision_steps(rates_gbit: Sequence[float] = RATES_GBIT) -> pd.DataFrame:
    """Predicted flop/s of the published runs, each left out of the choice of the network's rate.

    Parameters
    ----------
    rates_gbit : sequence of float
        Rates of an adapter, Gbit/s, of which the one is taken that the other runs fit best.

    Returns
    -------
    DataFrame, one row per run
        Columns model, accelerators, ``global_batch``, ``published_flop_per_s`` (of an accelerator,
        three forward passes an image), ``rate_gbit`` (chosen without the run), ``flop_per_s``,
        ``error_fraction``, ``original_error_fraction`` (of MAD-Max's published prediction).

    Raises
    ------
    ScaleModelError : no rate is given.

    Examples
    --------
    >>> table = vision_steps([5.0])
    >>> len(table), bool(table.error_fraction.abs().median() < 0.3)
    (9, True)
    """
    import pandas as pd

    if not rates_gbit:
        raise ScaleModelError("rates_gbit: at least one is needed")
    given = Reader(catalog.load("reference", "cited_runs")["vit"], "reference/cited_runs.vit")
    rows, logs = [], []
    for model, accelerators, batch in RUNS:
        name = model.lower().replace("-", "_")
        key = f"{name}_{accelerators}_{batch}"
        published, original = given.number(key), given.number(f"{key}_original")
        work = 3 * given.number(f"{name}_forward") * batch / accelerators
        found = [work / _step_s(model, accelerators, batch, rate) for rate in rates_gbit]
        logs.append([abs(math.log(rate / published)) for rate in found])
        rows.append((model, accelerators, batch, published, original, found))
    total = [sum(column) for column in zip(*logs, strict=True)]
    table = []
    for (model, accelerators, batch, published, original, found), own in zip(
        rows, logs, strict=True
    ):
        others = [whole - part for whole, part in zip(total, own, strict=True)]
        chosen = others.index(min(others))
        row = (model, accelerators, batch, published, rates_gbit[chosen], found[chosen])
        table.append((*row, found[chosen] / published - 1, original / published - 1))
    columns = ["model", "accelerators", "global_batch", "published_flop_per_s", "rate_gbit"]
    columns += ["flop_per_s", "error_fraction", "original_error_fraction"]
    return pd.DataFrame(table, columns=columns)
