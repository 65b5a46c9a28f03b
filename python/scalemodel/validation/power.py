"""Measured power: nodes that train, accelerators that serve; a prediction for every row."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel._core import Strategy
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import GroupEstimate, GroupStrategy, compose
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.power import clock_power, serving_power
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.tasks import FineTuning, Training
from scalemodel.validation.place import accelerator_name
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

if TYPE_CHECKING:
    from scalemodel.estimator.estimate import Estimate
    from scalemodel.resolve import Cluster

OUTPUT_COLUMNS = (
    "predicted_power_w_per_gpu",
    "predicted_node_power_w",
    "predicted_note",
    "skip_reason",
)

_TRAINING = ("accelerator", "workload")
_SERVING = ("gpu", "avg_batch", "total_params_b", "num_gpus")
# What was measured never reaches a prediction.
_TRAINING_INPUTS = (*_TRAINING, "accel_per_node", "nodes")
_SERVING_INPUTS = (
    *_SERVING,
    "active_params_b",
    "weight_precision",
    "parallelization",
    "avg_output_len",
)

#: What a label says of the size of a job.
_SIZE = re.compile(r"\s+(?:at|on)\s+\d+\s+\w+\s*$")

#: Tokens of a prompt where a row does not say: a few hundred in chats.
PROMPT_TOKENS = 400.0

_WEIGHT_BYTES = {"fp8": 1.0, "int8": 1.0, "mxfp4": 0.53, "nvfp4": 0.56, "fp4": 0.53, "int4": 0.5}


class PowerPrediction(NamedTuple):
    """Watts of one row, or why there are none.

    Attributes
    ----------
    accelerator_w : float or None
        Mean of one accelerator.
    node_w : float or None
        Of a node at its plugs, for rows that measure nodes.
    note, skip_reason : str
        Assumptions made; empty exactly when `accelerator_w` is given.
    """

    accelerator_w: float | None
    node_w: float | None = None
    note: str = ""
    skip_reason: str = ""


# ------------------------------------------------------------------------------------- serving
@catalog.kept(64)
def _serving_accelerator(label: str) -> tuple[_core.Accelerator, _core.ServingPower]:
    from scalemodel.resolve.accelerators import build_accelerator

    table = accelerator_table(accelerator_name(label, None))
    return build_accelerator(table), serving_power(table)


def _positive(row: Row, column: str) -> float:
    value = row.number(column)
    if value is None:
        raise SkippedRowError(f"missing:{column}")
    if not 0 < value <= 1e12:
        raise SkippedRowError(f"illegal:{column}")
    return value


def _replicas(row: Row, accelerators: float) -> float:
    try:
        found = json.loads(row.text("parallelization") or "{}").get("data_parallel", 1)
        replicas = float(found)
    except (AttributeError, TypeError, ValueError):
        return 1.0
    return replicas if 1 <= replicas <= accelerators else 1.0


def decode_load(row: Row) -> tuple[_core.DecodeLoad, _core.Accelerator, _core.ServingPower]:
    """The decoding step of a row of the serving schema, and what it runs on."""
    if not row.text("gpu"):
        raise SkippedRowError("missing:gpu")
    accelerator, constants = _serving_accelerator(row.text("gpu"))
    parameters = 1e9 * _positive(row, "total_params_b")
    stated = row.number("active_params_b")
    active = min(parameters, 1e9 * stated) if stated and stated > 0 else parameters
    precision = row.text("weight_precision").lower()
    weight_bytes = next((b for name, b in _WEIGHT_BYTES.items() if name in precision), 2.0)
    peaks = dict(zip(_core.precisions(), accelerator.peak_flop_per_s, strict=True))
    peak = (peaks["fp8"] if weight_bytes < 2 else 0.0) or peaks["bf16"] or peaks["fp16"]
    accelerators = _positive(row, "num_gpus")
    context = PROMPT_TOKENS + (row.number("avg_output_len") or 0.0) / 2
    load = _core.DecodeLoad(
        parameters=parameters,
        active_parameters=active,
        weight_bytes=weight_bytes,
        cache_bytes=context * _core.trend_cache_bytes(active),
        sequences=_positive(row, "avg_batch"),
        accelerators=accelerators,
        replicas=_replicas(row, accelerators),
        peak_flop_per_s=peak,
        bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
    )
    return load, accelerator, constants


def _serving(row: Row) -> PowerPrediction:
    load, accelerator, constants = decode_load(row)
    busy, _ = _core.decode_activity(constants, load)
    watts = _core.serving_power_w(constants, accelerator.power.limit_w, load)
    note = f"prompt of {PROMPT_TOKENS:.0f} tokens assumed"
    if busy < 0.8:
        note += f"; the host paces the steps ({100 * busy:.0f} % busy)"
    return PowerPrediction(watts, note=note)


# ------------------------------------------------------------------------------------ training
def _workload(label: str) -> Reader | None:
    """The workload of that name, at any size; None where the catalogue has none."""
    try:
        name = catalog.find("workloads", _SIZE.sub("", label))
    except ScaleModelError:
        return None
    return Reader(catalog.load("workloads", name), f"workloads/{name}")


def _composed(workload: Reader, cluster: Cluster) -> GroupEstimate:
    """A step of a model of layer groups: samples of the least batch, more where ranks need them."""
    least = workload.count("least_batch")
    each = math.ceil(least / cluster.accelerators)
    task = Training(
        global_batch=each * cluster.accelerators,
        sequence=workload.count("sequence"),
        precision=cast(Any, workload.text("precision", "bf16")),
        optimizer=cast(Any, workload.text("optimizer", "adam")),
    )
    meshes = {"*": workload.text("layers", "ddp")}
    if "tables" in workload.table:
        meshes["embedding"] = workload.text("tables", "table_wise")
    plan = GroupStrategy(meshes, buckets=cast(Any, workload.text("buckets", "unit")))
    model = compose(workload.text("model", ""))
    return estimate(model, cluster, task, plan, stack=workload.text("stack", "plain"))


def _estimate(
    workload: Reader, accelerator: str, nodes: int, per_node: int
) -> Estimate | GroupEstimate:
    cluster = resolve.cluster(
        {"accelerator": accelerator, "node": {"accelerators": per_node}}, nodes=nodes
    )
    if "layers" in workload.table:
        return _composed(workload, cluster)
    tp = min(workload.count("tp", 1), cluster.accelerators)
    pp = workload.count("pp", 1)
    cp = min(workload.count("cp", 1), max(1, cluster.accelerators // (tp * pp)))
    micro_batch = workload.count("micro_batch", 1)
    per_pass = max(1, cluster.accelerators // (tp * pp * cp)) * micro_batch
    precision = workload.text("precision", "bf16")
    peaks = dict(zip(_core.precisions(), cluster.core.accelerator.peak_flop_per_s, strict=True))
    question: dict[str, Any] = {
        "global_batch": math.ceil(workload.count("least_batch", 1) / per_pass) * per_pass,
        "sequence": workload.count("sequence"),
        "precision": precision if peaks[precision] > 0 else "bf16",
    }
    method = workload.text("method", "pretrain")
    task = (
        Training(**question)
        if method == "pretrain"
        else FineTuning(**question, method=cast(Any, method))
    )
    plan = Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        micro_batch=micro_batch,
        sharding=workload.text("sharding", "zero1"),
    )
    model, stack = workload.text("model", ""), workload.text("stack", "plain")
    return estimate(model, cluster, task, plan, stack=stack)


def _unknown_workload(power: _core.PowerPhases, nodes: int) -> tuple[float, str]:
    """Watts of a workload of which only the name is known, and the assumption made."""
    waiting, note = 0.0, "computes throughout: workload unknown"
    if nodes > 1:
        phases = Reader(catalog.load("reference", "power_phases")["phases"], "power_phases.phases")
        waiting = phases.number("waiting_fraction")
        note = f"waits for {100 * waiting:.0f} % of the step: workload unknown"
    shares = _core.StepPhases(compute_s=1 - waiting, exposed_s=waiting)
    step = _core.step_under_cap(power, clock_power(), shares, power.limit_w)
    return step.power_w, note


@catalog.kept(256)
def _training_watts(label: str, accelerator: str, nodes: int, per_node: int) -> tuple[float, str]:
    """Watts of one accelerator over the run, and the assumptions made."""
    from scalemodel.resolve.accelerators import build_accelerator

    power = build_accelerator(accelerator_table(accelerator)).power
    if re.fullmatch(r"\s*idle\b.*", label.lower()):
        return power.idle_w, "idle"
    workload = _workload(label)
    if workload is None:
        return _unknown_workload(power, nodes)
    est = _estimate(workload, accelerator, nodes, per_node)
    if est.illegal:
        watts, note = _unknown_workload(power, nodes)
        return watts, f"{est.verdict} as published; {note}"
    if "run" not in workload.table:
        return est.core.power_w, "laid out as published runs of this workload"
    run = workload.sub("run")
    doublings = math.log2(est.task.global_batch / workload.count("least_batch"))
    samples = run.number("samples") + doublings * run.number("samples_per_doubling")
    steps_s = samples / est.task.global_batch * est.step_time_s
    outside_s = run.quantity("outside", "s")
    # Between steps contexts are open and clocks are up, as where serving waits for its CPU.
    open_w = serving_power(accelerator_table(accelerator)).floor_fraction * power.limit_w
    watts = _core.mean_over_run_w(est.core.power_w, steps_s, open_w, outside_s)
    note = f"{steps_s:.0f} s of steps, {outside_s:.0f} s of start and evaluation with clocks up"
    return watts, note


@catalog.kept(256)
def _host_w(accelerator: str, per_node: int) -> float:
    """Watts beside the accelerators of a node, as in the catalogue's clusters of that kind."""
    shares = []
    for name in catalog.names("clusters"):
        entry = catalog.load("clusters", name)
        node = Reader(entry.get("node", {}), f"clusters/{name}.node")
        if entry.get("accelerator") == accelerator and "host_power" in node.table:
            shares.append(node.quantity("host_power", "w") / node.count("accelerators", 8))
    if shares:
        return per_node * statistics.median(shares)
    usual = Reader(catalog.load("reference", "cluster_defaults"), "reference/cluster_defaults")
    return per_node * usual.sub("node").quantity("host_power", "w")


def _training(row: Row) -> PowerPrediction:
    for column in _TRAINING:
        if not row.text(column):
            raise SkippedRowError(f"missing:{column}")
    accelerator = accelerator_name(row.text("accelerator"), None)
    per_node = row.count("accel_per_node") or 8
    nodes = row.count("nodes") or 1
    watts, note = _training_watts(row.text("workload"), accelerator, nodes, per_node)
    node_w = _core.node_power_w(watts, per_node, _host_w(accelerator, per_node))
    return PowerPrediction(watts, node_w, note)


# ---------------------------------------------------------------------------------------- table
def _checked(predict: Callable[[Row], PowerPrediction], row: Row) -> PowerPrediction:
    try:
        found = predict(row)
    except SkippedRowError as reason:
        return PowerPrediction(None, skip_reason=str(reason))
    except ScaleModelError as error:
        return PowerPrediction(None, skip_reason=f"illegal:{error.code}")
    if found.accelerator_w is None or not math.isfinite(found.accelerator_w):
        return PowerPrediction(None, skip_reason="illegal:power")
    return found


def is_serving(header: Sequence[str]) -> bool:
    """Whether a table is of runs that serve rather than of nodes that train."""
    return "avg_batch" in header


def predict(table: Table) -> list[PowerPrediction]:
    """One prediction per row of a table of measured power, in order.

    Raises
    ------
    ScaleModelError : the table lacks a required column; the message names it.

    Examples
    --------
    >>> cells = [["H100", "Llama2-70B LoRA", "8", "1"]]
    >>> table = Table(("accelerator", "workload", "accel_per_node", "nodes"), cells)
    >>> 6000 < predict(table)[0].node_w < 7500
    True
    """
    serving = is_serving(table.header)
    needed = _SERVING if serving else _TRAINING
    why = f"kind 'power' needs {', '.join(_TRAINING)} or {', '.join(_SERVING)}"
    require_columns(table, needed, why)
    rows = table.select(_SERVING_INPUTS if serving else _TRAINING_INPUTS)
    return [_checked(_serving if serving else _training, row) for row in rows]
