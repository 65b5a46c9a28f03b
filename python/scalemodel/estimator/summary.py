"""An estimate on one screen, and the lines that name a question and a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import scalemodel._core as _core
from scalemodel.base.text import count_text, money_text, percent_text, size_text, time_text
from scalemodel.estimator.diagnosis import fix_text, message, next_knobs
from scalemodel.estimator.evaluation import Evaluation, kinds_text
from scalemodel.estimator.losses import what_limits
from scalemodel.estimator.uncertainty import extrapolations, step_text
from scalemodel.resolve.clusters import network_text
from scalemodel.resolve.stacks import StackLike, stack_text

if TYPE_CHECKING:
    from scalemodel.layer_groups.model import ComposedModel
    from scalemodel.resolve import Cluster, Model
    from scalemodel.resolve.tasks import Training

_BAR_WIDTH = 10
#: Parts of a step below this share are not worth a word.
_LEAST_SHARE = 0.0005


class Asked(Protocol):
    """What an estimate and a search have in common: the question."""

    @property
    def model(self) -> Model | ComposedModel:
        """The architecture."""

    @property
    def cluster(self) -> Cluster:
        """What it runs on."""

    @property
    def task(self) -> Training:
        """What is to be done."""

    @property
    def stack(self) -> StackLike:
        """The software stack."""


def question_text(asked: Asked, *further: str) -> str:
    """The question in one line.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192))
    >>> question_text(est).split(" · ")[::3]
    ['llama3_8b', 'stack plain']
    """
    cluster, core = asked.cluster, asked.cluster.core
    nodes = f"{cluster.nodes:g} × {core.node_accelerators}"
    gbit = count_text(8 * core.fabric.bandwidth_bytes_per_s)
    where = f"{cluster.accelerators} × {cluster.accelerator} ({nodes}, {cluster.name}, {gbit}bit/s)"
    task = f"{asked.task.precision}, {asked.task.global_batch} × {asked.task.sequence} tokens"
    return " · ".join(
        [asked.model.label, where, task, *further, f"stack {stack_text(asked.stack)}"]
    )


def strategy_text(strategy: _core.Strategy, dp: int) -> str:
    """A strategy in short: degrees above one, then what is not a degree; `dp` as resolved.

    Examples
    --------
    >>> import scalemodel as sm
    >>> strategy_text(sm.Strategy(tp=4, sharding="zero3"), 16)
    'tp4 dp16 · micro_batch 1 · sharding zero3 · recompute none'
    """
    s = strategy
    degrees = {"tp": s.tp, "cp": s.cp, "pp": s.pp, "vpp": s.vpp, "ep": s.ep, "dp": dp}
    parts = [f"{name}{value}" for name, value in degrees.items() if value > 1 or name == "dp"]
    kept = ("micro_batch", "sharding", "recompute")
    usual = _core.Strategy()
    further = [
        f"{name} {value}" if not isinstance(value, bool) else f"{name} {'on' if value else 'off'}"
        for name, value in s.to_dict().items()
        if name not in degrees and (name in kept or value != getattr(usual, name))
    ]
    return " ".join(parts) + " · " + " · ".join(further)


def rates_text(est: Evaluation) -> str:
    """Speed on one line, power and cost of a step on the next."""
    core, cluster = est.core, est.cluster
    tokens = est.task.global_batch * est.task.sequence
    facility_w = core.energy_j / core.step_time_s
    parts = [
        f"step {step_text(est)}",
        f"{count_text(core.tokens_per_s)} tokens/s",
        f"{core.tokens_per_s / cluster.accelerators:,.0f} tokens/s per accelerator",
        f"MFU {percent_text(core.mfu_fraction)}",
    ]
    if core.hfu_fraction > core.mfu_fraction:
        parts.append(f"HFU {percent_text(core.hfu_fraction)}")
    energy = [
        f"power {core.power_w:,.0f} W per accelerator, {count_text(facility_w)}W facility",
        f"energy {count_text(core.energy_j)}J a step",
    ]
    if est.cost_usd is not None:
        hourly = 3600 * cluster.core.price_usd_per_s
        per_million = money_text(est.cost_usd / tokens * 1e6)
        energy.append(
            f"cost {money_text(est.cost_usd)} a step, {per_million} / M tokens "
            f"at {hourly:.2f} USD/h ({cluster.price_source})"
        )
    return "   ".join(parts) + "\n" + "   ".join(energy)


def _bar(fraction: float) -> str:
    return "█" * max(0, round(_BAR_WIDTH * fraction))


def _time_line(est: Evaluation) -> str:
    core, seconds = est.core, est.time_by_cause()
    parts = []
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        share = seconds[name] / core.step_time_s
        if share < _LEAST_SHARE:
            continue
        cause = name.removeprefix("exposed_")
        exposed = " exposed" if name.startswith("exposed_") else ""
        bar = _bar(share)
        parts.append(f"{cause}{exposed} {percent_text(share)}{' ' + bar if bar else ''}")
    hidden = f" (hidden underneath: {time_text(core.hidden_s)})" if core.hidden_s > 0 else ""
    return "time    " + "  ".join(parts) + hidden


def summary_text(est: Evaluation) -> str:
    """One screen: the question, time, memory, verdict, what limits it, what to try next.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> summary_text(est).splitlines()[-3]
    'verdict ok: fits, 19.3 GiB spare'
    """
    header = question_text(est, strategy_text(est.strategy, est.core.dp))
    if est.illegal:
        return header + "\n" + message(est)
    core = est.core
    spare = core.memory_capacity_bytes - core.memory_bytes
    lines = [header, rates_text(est), _time_line(est)]
    extrapolated = extrapolations(est)
    if extrapolated:
        lines.append(f"extrapolates: {'; '.join(extrapolated)}")
    if any(share < 1 for share in est.cluster.core.fabric.shares.to_dict().values()):
        lines.append(f"network {network_text(est.cluster)}")
    if not est.fits:
        return "\n".join([*lines, message(est)])
    lines.append(
        f"memory  {size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}  "
        f"{kinds_text(est)}"
    )
    lines.append(f"verdict {est.verdict}: fits, {size_text(spare)} spare")
    lines.append(f"limited by: {what_limits(est)}")
    better = [fix_text(fix, relative=True) for fix in next_knobs(est)]
    lines.append("next best knobs: " + (" · ".join(better) if better else "no single one helps"))
    return "\n".join(lines)
