"""Figures of the sixteen studies of Hardware Scaling Trends."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from scalemodel import resolve
from scalemodel._core import Strategy
from scalemodel.economics import training_run
from scalemodel.estimator.estimate import estimate
from scalemodel.plot.operators import collective_table
from scalemodel.resolve.tasks import Training
from scalemodel.scaling import diminishing_returns, scaling
from scalemodel.studies import scaling_paper
from scalemodel.studies.papers.figure import Figure, above, below, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIGURES", "all_reduces"]

SIZES = (128, 256, 512, 1024, 2048)
_of_paper = partial(published, "scaling")

_grid = cache(scaling_paper.model_parallel_grid)
_onset = cache(scaling_paper.tensor_parallel_onset)
_contexts = cache(scaling_paper.contexts)
_sizes = cache(scaling_paper.model_sizes)
_strong = cache(scaling_paper.strong_scaling)
_generations = cache(scaling_paper.generations)
_steps = cache(scaling_paper.collective_steps)


@cache
def _curve(cluster: str = "dgx_h100", each: int = 2, shard_degree: int = 0) -> pd.DataFrame:
    """Llama 2 7B, as assumed: sharded over all ranks, or in groups."""
    plan = Strategy(micro_batch=each, shard_degree=shard_degree)
    task = Training(global_batch=each * SIZES[0], sequence=4096)
    rule: Literal["hsdp", "fsdp"] = "hsdp" if shard_degree else "fsdp"
    table = scaling(
        "llama2_7b",
        cluster,
        task,
        list(SIZES),
        rule=rule,
        strategy=plan,
        stack=scaling_paper.STACK,
    )
    return table.set_index("accelerators")


def _change(column: str, **asked: int) -> float:
    values = _curve(**asked)[column].astype(float)
    return float(values[SIZES[-1]] / values[SIZES[0]] - 1)


def _mfu_ratio() -> float:
    new, old = (
        float(_curve(cluster).full_attention_mfu_fraction[SIZES[0]])
        for cluster in ("dgx_h100", "dgx_a100")
    )
    return new / old


def _exposed_above(each: int) -> float:
    found = diminishing_returns(_curve(each=each).reset_index()).exposed_above
    return float(found) if found is not None else float("inf")


def _gain(tp: int, pp: int, size: int) -> float:
    rows = _grid()
    own = rows[(rows.tp == tp) & (rows.pp == pp) & (rows.accelerators == size)]
    return float(own[own.sharding == "zero3"].gain_fraction.iloc[0])


def _best_pair() -> float:
    """Ways of the fastest pair of the grid on 2,048, all sharded."""
    rows = _grid()
    own = rows[(rows.accelerators == 2048) & (rows.sharding == "zero3") & (rows.verdict == "ok")]
    best = own.sort_values("tokens_per_s_per_accelerator").iloc[-1]
    return float(best.tp * best.pp)


def _onset_with(tokens_each: int) -> float:
    rows = _onset()
    return float(rows[rows.tokens_each == tokens_each].ahead_from.min())


def _strong_fall(model: str, column: str) -> float:
    rows = _strong()
    own = rows[rows.model == model]
    return float(own[column].iloc[-1] / own[column].iloc[0] - 1)


def _over(column: str) -> float:
    """70B over 7B on as many accelerators."""
    rows = _sizes().set_index("model")[column].astype(float)
    return float(rows["llama2_70b"] / rows["llama2_7b"])


def _least_context() -> float:
    rows = _contexts()
    return float(rows[(rows.sequence == 32768) & (rows.verdict == "ok")].cp.min())


def _mean_return() -> float:
    """What an accelerator added to the first size brought on average, as published."""
    times = SIZES[-1] / SIZES[0]
    return (times * (1 - _of_paper("throughput_fall")) - 1) / (times - 1)


def _generation(column: str) -> float:
    """H100 over A100."""
    rows = _generations().set_index("cluster")[column].astype(float)
    return float(rows["dgx_h100"] / rows["dgx_a100"])


@cache
def all_reduces() -> pd.DataFrame:
    """Published all-reduces over nodes of 8 H100 beside predictions.

    Returns
    -------
    DataFrame, one row per size and number of nodes
        Columns mebibytes, nodes, ``published_bytes_per_s``, ``predicted_bytes_per_s`` (bus
        bandwidths), ``error_fraction``.

    Examples
    --------
    >>> bool(all_reduces().error_fraction.abs().mean() < 0.06)
    True
    """
    import pandas as pd

    sizes, nodes = (64, 1024, 16384), (4, 32, 512)
    table = collective_table(
        "dgx_h100",
        "all_reduce",
        ranks=[8 * count for count in nodes],
        sizes_bytes=[size * 2**20 for size in sizes],
    ).set_index(["size_bytes", "ranks"])
    rows = []
    for size in sizes:
        for count in nodes:
            asked = published("scaling", f"all_reduce_{size}mib_{count}", "bytes_per_s")
            found = float(table.bus_bandwidth_bytes_per_s[size * 2**20, 8 * count])
            rows.append((size, count, asked, found, found / asked - 1))
    columns = ["mebibytes", "nodes", "published_bytes_per_s", "predicted_bytes_per_s"]
    return pd.DataFrame(rows, columns=[*columns, "error_fraction"])


def _factor(nodes: int) -> float:
    rows = _steps().set_index(["op", "nodes"]).factor
    return float(rows["all_gather", nodes])


@cache
def _campaign(size: int, column: str) -> float:
    """Two trillion tokens of Llama 2 70B, failures included."""
    cluster = resolve.cluster("dgx_h100", accelerators=size)
    plan = Strategy(tp=4, pp=4, vpp=5)
    task = Training(global_batch=size, sequence=4096)
    run = training_run(estimate("llama2_70b", cluster, task, plan), tokens=2e12)
    return float(getattr(run, column))


_BATCH = (
    "the batch is not published: with two sequences each 5 % are exposed one doubling later, with "
    "one at the published size"
)
_COMPUTE = (
    "what decides is the compute between two gathers, and with it the batch, which is not "
    "published: with a quarter of the tokens it leads from there on"
)

FIGURES = (
    Figure(
        1,
        "weak scaling",
        "throughput, 128 to 2,048",
        partial(_change, "tokens_per_s_per_accelerator"),
        lambda: -_of_paper("throughput_fall"),
        0.15,
    ),
    Figure(
        2,
        "power",
        "of an accelerator, 128 to 2,048",
        partial(_change, "power_w"),
        lambda: -_of_paper("power_fall"),
        0.15,
    ),
    Figure(
        3,
        "tokens of a joule",
        "128 to 2,048",
        partial(_change, "accelerator_tokens_per_j"),
        lambda: -_of_paper("energy_fall"),
        0.15,
    ),
    Figure(
        4,
        "generations, utilisation",
        "MFU of H100 over A100",
        _mfu_ratio,
        lambda: _of_paper("mfu_h100") / _of_paper("mfu_a100"),
        0.12,
    ),
    Figure(
        5,
        "onset of exposed communication",
        "accelerators, two sequences each",
        partial(_exposed_above, 2),
        lambda: _of_paper("onset"),
        0.0,
        reason=_BATCH,
    ),
    Figure(
        5,
        "onset of exposed communication",
        "accelerators, one sequence each",
        partial(_exposed_above, 1),
        lambda: _of_paper("onset"),
        0.0,
    ),
    *(
        Figure(
            6,
            "model parallelism at scale",
            f"gain of TP {tp} on {where}",
            partial(_gain, tp, 1, accelerators),
            **above(0),
            reason=reason,
        )
        for tp, accelerators, where, reason in (
            (2, 2048, "2,048, all sharded", ""),
            (4, 2048, "2,048, all sharded", ""),
            (2, 256, "256, 8,192 tokens each", _COMPUTE),
        )
    ),
    Figure(
        6,
        "model parallelism at scale",
        "TP 2 ahead from, 2,048 tokens each",
        partial(_onset_with, 2048),
        holds=lambda size: size <= 256,
        words="at most 256",
    ),
    Figure(
        7,
        "grid of TP x PP",
        "ways of the best pair on 2,048, up to 16",
        _best_pair,
        holds=lambda ways: 2 <= ways <= 4,
        words="2 to 4",
    ),
    *(
        Figure(
            8,
            "strong scaling, strategy fixed",
            f"{what}, {model}, 2 to 32 nodes",
            partial(_strong_fall, model, column),
            holds=lambda fall: fall < 0,
            words="falls",
        )
        for model in ("llama2_7b", "llama2_70b")
        for what, column in (("MFU", "mfu_fraction"), ("tokens of a joule", "tokens_per_j"))
    ),
    Figure(
        9,
        "model sizes",
        "tokens of a joule, 70B over 7B",
        partial(_over, "tokens_per_j"),
        **below(1),
    ),
    Figure(
        9,
        "model sizes",
        "power of an accelerator, 70B over 7B",
        partial(_over, "power_w"),
        **above(1),
    ),
    Figure(
        10,
        "contexts of 32k",
        "least context parallelism that fits 256",
        _least_context,
        **above(1),
    ),
    Figure(
        11,
        "V100, A100, H100",
        "MFU of H100 over A100, no recomputation",
        partial(_generation, "mfu_fraction"),
        **below(1),
    ),
    Figure(
        11,
        "V100, A100, H100",
        "exposed share of H100 over A100",
        partial(_generation, "exposed_fraction"),
        **above(1),
    ),
    Figure(
        12,
        "collectives over nodes",
        "mean error of nine all-reduces",
        lambda: all_reduces().error_fraction.abs().mean(),
        holds=lambda error: error <= 0.06,
        words="at most 0.06, as far as the figure is read",
    ),
    Figure(
        13,
        "collectives, 128 to 256 nodes",
        "time of a gather over that before",
        partial(_factor, 256),
        holds=lambda factor: factor > max(_factor(128), _factor(512)),
        words="a jump above its neighbours",
        reason="the paper does not explain it: here every doubling of a ring is dearer than the "
        "one before, and none stands out",
    ),
    Figure(
        14,
        "sharding in groups",
        "throughput, 128 to 2,048, groups of 128",
        partial(_change, "tokens_per_s_per_accelerator", shard_degree=128),
        holds=lambda change: -0.04 <= change <= 0,
        words="next to nothing, as 70B elsewhere",
    ),
    Figure(
        15,
        "return of an added accelerator",
        "of a baseline one's tokens, 1,024 to 2,048",
        lambda: _curve().marginal_return_fraction[2048],
        holds=lambda share: 0 < share < _mean_return(),
        words="below the published mean over the range",
    ),
    Figure(
        16,
        "days, money, energy with failures",
        "days, 16,384 over 1,024",
        lambda: _campaign(16384, "days") / _campaign(1024, "days"),
        holds=lambda ratio: 1 / 16 < ratio < 1,
        words="falls by less than 16",
    ),
    Figure(
        16,
        "days, money, energy with failures",
        "cost, 16,384 over 1,024",
        lambda: _campaign(16384, "cost_usd") / _campaign(1024, "cost_usd"),
        **above(1),
    ),
)
