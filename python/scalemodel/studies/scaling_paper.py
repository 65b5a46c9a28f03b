"""Questions of "Hardware Scaling Trends and Diminishing Returns" (arXiv 2411.13055), as tables.

Llama 2 on H100, two sequences of 4,096 tokens an accelerator, parameters sharded over all ranks,
Llama's published modules (stack ``llama_fsdp_2024``): what the paper does not say is assumed, and
`batch_sensitivity` says how much hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel._core import Strategy
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.plot.operators import collective_table
from scalemodel.resolve.tasks import Training
from scalemodel.scaling import diminishing_returns, scaling

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "STACK",
    "batch_sensitivity",
    "collective_steps",
    "contexts",
    "generations",
    "model_parallel_grid",
    "model_sizes",
    "strong_scaling",
    "tensor_parallel_onset",
]

STACK = "llama_fsdp_2024"
_SEQUENCE, _SEQUENCES_EACH, _NODE = 4096, 2, 8

#: What is asked of an estimate, and the columns it gets.
_ASKED: dict[str, Callable[[Estimate], Any]] = {
    "verdict": lambda est: est.verdict,
    "tokens_per_s_per_accelerator": lambda est: est.core.tokens_per_s / est.cluster.accelerators,
    "mfu_fraction": lambda est: est.mfu_fraction,
    "exposed_fraction": lambda est: (
        sum(getattr(est.core, f"exposed_{axis}_s") for axis in ("tp", "cp", "ep", "pp", "dp"))
        / est.core.step_time_s
    ),
    "power_w": lambda est: est.core.power_w,
    "tokens_per_j": lambda est: est.core.tokens_per_s / est.cluster.accelerators / est.core.power_w,
}


def _row(est: Estimate) -> dict[str, Any]:
    return {name: ask(est) for name, ask in _ASKED.items()}


def _step(model: str, cluster: str, size: int, strategy: Strategy, **task: Any) -> Estimate:
    asked: dict[str, Any] = {"global_batch": _SEQUENCES_EACH * size, "sequence": _SEQUENCE, **task}
    machine = resolve.cluster(cluster, accelerators=size)
    return estimate(model, machine, Training(**asked), strategy, stack=STACK)


def _fastest_pair(size: int, pair: Strategy) -> dict[str, Any]:
    """A pair with micro-batches of one or two sequences a rank, whichever is faster."""
    found = [
        _row(_step("llama2_7b", "dgx_h100", size, pair.replace(micro_batch=each * pair.tp)))
        for each in (1, _SEQUENCES_EACH)
    ]
    fits = [row for row in found if row["verdict"] == "ok"] or found
    return max(fits, key=lambda row: row["tokens_per_s_per_accelerator"])


def model_parallel_grid(
    sizes: Sequence[int] = (256, 512, 1024, 2048),
    *,
    shardings: Sequence[str] = ("zero3", "zero1"),
    most: int = 16,
) -> pd.DataFrame:
    """Tensor times pipeline parallelism up to a product, every pair at one sharding.

    All pairs have the same global batch, in micro-batches of one or two sequences for every rank of
    a tensor group, whichever is faster.

    Parameters
    ----------
    sizes : sequence of int
        H100s.
    shardings : sequence of str
        Of a strategy; a pair is compared with no model parallelism at the same sharding.
    most : int
        Largest product.

    Returns
    -------
    DataFrame, one row per size, sharding and pair
        Columns accelerators, sharding, tp, pp, verdict, ``tokens_per_s_per_accelerator``,
        ``mfu_fraction``, ``exposed_fraction``, ``power_w``, ``tokens_per_j``, ``gain_fraction``
        (tokens per second over tp 1, pp 1, less one).

    Raises
    ------
    ScaleModelError : a size that does not fill nodes, or an unknown sharding.

    Examples
    --------
    >>> table = model_parallel_grid([2048], shardings=["zero3"], most=2)
    >>> gains = table.set_index(["tp", "pp"]).gain_fraction
    >>> bool(gains[2, 1] > 0.05), bool(gains[1, 1] == 0)
    (True, True)
    """
    import pandas as pd

    degrees = [2**power for power in range(most.bit_length())]
    rows: list[dict[str, Any]] = []
    for size in sizes:
        for sharding in shardings:
            for tp, pp in ((a, b) for a in degrees for b in degrees if a * b <= most):
                if tp > _NODE:
                    continue  # tensor parallelism stays inside a node
                row = {"accelerators": size, "sharding": sharding, "tp": tp, "pp": pp}
                rows.append(row | _fastest_pair(size, Strategy(tp=tp, pp=pp, sharding=sharding)))
    frame = pd.DataFrame(rows)
    alone = frame[(frame.tp == 1) & (frame.pp == 1)]
    base = alone.set_index(["accelerators", "sharding"])["tokens_per_s_per_accelerator"]
    own = [base[key] for key in zip(frame["accelerators"], frame["sharding"], strict=True)]
    return frame.assign(gain_fraction=frame["tokens_per_s_per_accelerator"] / own - 1)


def tensor_parallel_onset(
    sequences: Sequence[int] = (1024, 2048, 4096),
    *,
    each: Sequence[int] = (1, 2),
    sizes: Sequence[int] = (128, 256, 512, 1024, 2048),
) -> pd.DataFrame:
    """From how many accelerators on tensor parallelism by two beats pure sharding.

    Both shard parameters over all ranks and take the batch at once. What decides is the compute
    that an accelerator has between two gathers: the less it is, the earlier a shorter ring pays.

    Parameters
    ----------
    sequences : sequence of int
        Tokens of a sequence.
    each : sequence of int
        Sequences of an accelerator.
    sizes : sequence of int
        H100s, in rising order.

    Returns
    -------
    DataFrame, one row per length and number of sequences
        Columns sequence, ``sequences_each``, ``tokens_each``, one ``gain_<size>`` per size (tokens
        per second over pure sharding, less one) and ``ahead_from`` (None: nowhere).

    Raises
    ------
    ScaleModelError : a size that does not fill nodes.

    Examples
    --------
    >>> table = tensor_parallel_onset([2048], each=[1], sizes=[128, 256])
    >>> int(table.ahead_from.iloc[0])
    256
    """
    import pandas as pd

    rows = []
    for sequence in sequences:
        for count in each:
            row: dict[str, Any] = {"sequence": sequence, "sequences_each": count}
            row["tokens_each"] = sequence * count
            ahead = None
            for size in sizes:
                rates = []
                for tp in (1, 2):
                    plan = Strategy(tp=tp, sharding="zero3", micro_batch=tp * count)
                    task = {"global_batch": count * size, "sequence": sequence}
                    rates.append(_step("llama2_7b", "dgx_h100", size, plan, **task).tokens_per_s)
                row[f"gain_{size}"] = rates[1] / rates[0] - 1
                ahead = size if ahead is None and rates[1] > rates[0] else ahead
            rows.append(row | {"ahead_from": ahead})
    return pd.DataFrame(rows).astype({"ahead_from": "Int64"})


def contexts(
    sequences: Sequence[int] = (4096, 8192, 16384, 32768),
    *,
    degrees: Sequence[int] = (1, 2, 4, 8),
    size: int = 256,
) -> pd.DataFrame:
    """Longer contexts, with and without context parallelism.

    Parameters
    ----------
    sequences : sequence of int
        Tokens; the tokens of a step stay.
    degrees : sequence of int
        Of context parallelism.
    size : int
        H100s.

    Returns
    -------
    DataFrame, one row per length and degree
        Columns sequence, cp, and those of `model_parallel_grid` from verdict to ``tokens_per_j``.

    Raises
    ------
    ScaleModelError : a size that does not fill nodes.

    Examples
    --------
    >>> table = contexts([32768], degrees=[1, 4]).set_index("cp")
    >>> table.verdict.tolist()
    ['out_of_memory', 'ok']
    """
    import pandas as pd

    rows = []
    tokens = _SEQUENCES_EACH * _SEQUENCE * size
    for sequence in sequences:
        for cp in degrees:
            batch = max(tokens // sequence, size // cp)
            plan = Strategy(cp=cp, sharding="zero3", micro_batch=1)
            est = _step("llama2_7b", "dgx_h100", size, plan, global_batch=batch, sequence=sequence)
            rows.append({"sequence": sequence, "cp": cp} | _row(est))
    return pd.DataFrame(rows)


#: Sizes of the paper's models; the smallest is Llama 3.2's, whose shape Llama 2 has not.
MODELS = ("llama3_2_1b", "llama2_7b", "llama2_13b", "llama2_70b")


def model_sizes(models: Sequence[str] = MODELS, *, size: int = 256) -> pd.DataFrame:
    """Models of 1B to 70B on as many accelerators: rate, utilisation, power, energy.

    Parameters
    ----------
    models : sequence of str
    size : int
        H100s.

    Returns
    -------
    DataFrame, one row per model
        Columns model, parameters, those of `model_parallel_grid` from verdict to
        ``tokens_per_j``, and ``parameter_tokens_per_j``: tokens of a joule times parameters, what
        a joule learns, so that one large model and many small ones compare.

    Raises
    ------
    ScaleModelError : an unknown model, or a size that does not fill nodes.

    Examples
    --------
    >>> table = model_sizes(["llama2_7b", "llama2_70b"])
    >>> bool(table.tokens_per_j.is_monotonic_decreasing)
    True
    """
    import pandas as pd

    rows = []
    for name in models:
        plan = Strategy(sharding="zero3", micro_batch=1, recompute="full")
        row = _row(_step(name, "dgx_h100", size, plan))
        parameters = resolve.model(name).parameters
        rows.append({"model": name, "parameters": parameters} | row)
    frame = pd.DataFrame(rows)
    return frame.assign(parameter_tokens_per_j=frame["tokens_per_j"] * frame["parameters"])


def generations(size: int = 128, *, sequence: int = 2048) -> pd.DataFrame:
    """V100, A100 and H100 on one job that fits all three without recomputation.

    Parameters
    ----------
    size : int
        Accelerators.
    sequence : int
        Tokens of the one sequence that an accelerator has.

    Returns
    -------
    DataFrame, one row per cluster
        Columns cluster and those of `model_parallel_grid` from verdict to ``tokens_per_j``.

    Examples
    --------
    >>> generations().verdict.tolist()
    ['ok', 'ok', 'ok']
    """
    import pandas as pd

    plan = Strategy(sharding="zero3", micro_batch=1)
    rows = []
    for cluster in ("dgx_1v_32", "dgx_a100", "dgx_h100"):
        est = _step(
            "llama2_7b",
            cluster,
            size,
            plan,
            global_batch=size,
            sequence=sequence,
            precision="fp16",
        )
        rows.append({"cluster": cluster} | _row(est))
    return pd.DataFrame(rows)


def strong_scaling(
    sizes: Sequence[int] = (16, 32, 64, 128, 256), *, global_batch: int = 512
) -> pd.DataFrame:
    """A fixed batch on 2 to 32 nodes, sharded over all ranks at every size.

    Parameters
    ----------
    sizes : sequence of int
        H100s.
    global_batch : int
        Sequences.

    Returns
    -------
    DataFrame, one row per model and size
        Columns model, accelerators and those of `model_parallel_grid` from verdict to
        ``tokens_per_j``.

    Examples
    --------
    >>> table = strong_scaling([16, 256])
    >>> bool((table.groupby("model").mfu_fraction.last() < table.mfu_fraction[0]).all())
    True
    """
    import pandas as pd

    rows = []
    for model, recompute in (("llama2_7b", "none"), ("llama2_70b", "full")):
        plan = Strategy(sharding="zero3", micro_batch=1, recompute=recompute)
        for size in sizes:
            est = _step(model, "dgx_h100", size, plan, global_batch=global_batch)
            rows.append({"model": model, "accelerators": size} | _row(est))
    return pd.DataFrame(rows)


def collective_steps(
    nodes: Sequence[int] = (4, 8, 16, 32, 64, 128, 256, 512), *, size_bytes: float = 405e6
) -> pd.DataFrame:
    """Collectives over nodes of 8 H100, and by how much each doubling lengthens them.

    Parameters
    ----------
    nodes : sequence of int
    size_bytes : float
        Of all ranks together; a layer of the 7B model in BF16.

    Returns
    -------
    DataFrame, one row per operation and number of nodes
        Columns op, nodes, ``time_s``, ``factor`` over the row before (the first: none).

    Examples
    --------
    >>> table = collective_steps([64, 128, 256])
    >>> bool((table.factor.dropna() > 1).all())
    True
    """
    import pandas as pd

    frames = []
    for op in ("all_gather", "reduce_scatter", "all_reduce"):
        ranks = [8 * count for count in nodes]
        table = collective_table("dgx_h100", op, ranks=ranks, sizes_bytes=[size_bytes])
        times = table["time_s"].to_numpy()
        frame = pd.DataFrame({"op": op, "nodes": list(nodes), "time_s": times})
        frames.append(frame.assign(factor=frame["time_s"] / frame["time_s"].shift()))
    return pd.concat(frames, ignore_index=True)


def batch_sensitivity(
    sequences: Sequence[int] = (1, 2, 3, 4), *, sizes: Sequence[int] = (128, 256, 512, 1024, 2048)
) -> pd.DataFrame:
    """The headline figures against the batch that the paper does not state.

    Parameters
    ----------
    sequences : sequence of int
        Of 4,096 tokens, of an accelerator, in one micro-batch.
    sizes : sequence of int
        H100s; the fall is from the first to the last.

    Returns
    -------
    DataFrame, one row per batch
        Columns ``sequences_each``, verdict, ``throughput_change_fraction``,
        ``power_change_fraction``, ``mfu_h100_fraction``, ``mfu_a100_fraction`` (both with masked
        attention counted, at the first size), ``mfu_ratio``, ``exposed_above`` (first size at
        which 5 % of a step are exposed).

    Examples
    --------
    >>> table = batch_sensitivity([1, 2]).set_index("sequences_each")
    >>> bool(table.throughput_change_fraction[1] < table.throughput_change_fraction[2] < -0.2)
    True
    """
    import pandas as pd

    rows = []
    for each in sequences:
        # Four sequences without recomputation do not fit an A100: norms and activations run again.
        plan = Strategy(micro_batch=each, recompute="none" if each < 3 else "selective")
        task = Training(global_batch=each * sizes[0], sequence=_SEQUENCE)
        h100, a100 = (
            scaling("llama2_7b", name, task, list(sizes), rule="fsdp", strategy=plan, stack=STACK)
            for name in ("dgx_h100", "dgx_a100")
        )
        first, last = h100.iloc[0], h100.iloc[-1]
        mfu = "full_attention_mfu_fraction"
        column = "tokens_per_s_per_accelerator"
        rows.append(
            {
                "sequences_each": each,
                "verdict": last.verdict,
                "throughput_change_fraction": last[column] / first[column] - 1,
                "power_change_fraction": last.power_w / first.power_w - 1,
                "mfu_h100_fraction": first[mfu],
                "mfu_a100_fraction": a100.iloc[0][mfu],
                "mfu_ratio": first[mfu] / a100.iloc[0][mfu],
                "exposed_above": diminishing_returns(h100).exposed_above,
            }
        )
    return pd.DataFrame(rows)
