"""What a checkpoint holds, and how fast a node reads one."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.economics.arguments import checked
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve.reader import Reader


def checkpoint_bytes(est: Estimate) -> float:
    """What a checkpoint of a job holds: weights and states of the optimizer.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> 10 < checkpoint_bytes(est) / est.model.parameters < 16
    True
    """
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    return float(_core.checkpoint_flows(tables, est.strategy, 1)["size_bytes"].sum())


def read_bytes_per_s(read: str | float) -> float:
    """Bytes per second of a node that reads a checkpoint.

    Examples
    --------
    >>> read_bytes_per_s("disk") > read_bytes_per_s("block_volume") > 1e8
    True
    """
    if not isinstance(read, str):
        return checked("read", read, 1, 1e15)
    sources = catalog.load("storage", "cache_tiers")["weights"]
    if read not in sources:
        raise ScaleModelError(
            f"read={read!r}: must be bytes per second of a node, or one of {', '.join(sources)}"
        )
    return (
        Reader(sources, "storage/cache_tiers.weights")
        .sub(read)
        .quantity("node_read", "bytes_per_s")
    )
