"""Nodes of a running job are lost: the ways to go on, and which does the most work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked, fitting_estimate
from scalemodel.economics.failures import Reliability
from scalemodel.economics.failures import reliability as reliability_of
from scalemodel.economics.recovery import RecoveryOption, Replan
from scalemodel.economics.spares import count_of, replica_layout, usual_stall_s
from scalemodel.economics.storage import checkpoint_sizes, network_bytes_per_s, read_bytes_per_s
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import degrees_of
from scalemodel.estimator.verdicts import what_is_wrong
from scalemodel.resolve import cluster as resolve_cluster
from scalemodel.search.search import search

if TYPE_CHECKING:
    from scalemodel.search.space import Space

_DAY_S: Final = 86400.0


def _lost(est: Estimate, layout: _core.ReplicaLayout, lost: int | Sequence[int]) -> tuple[int, ...]:
    """Numbers of the lost nodes; of a count, those that hit as many replicas as they can."""
    have = int(layout.nodes)
    if isinstance(lost, (list, tuple, range)):
        nodes = [count_of("lost_nodes", node, 0, have - 1) for node in lost]
        if not nodes or len(set(nodes)) < len(nodes):
            raise ScaleModelError(
                f"lost_nodes={list(lost)!r}: must be at least one number of a node, each once"
            )
        return tuple(sorted(nodes))
    if isinstance(lost, bool) or not isinstance(lost, int) or not 1 <= lost <= have:
        raise ScaleModelError(
            f"lost_nodes={lost!r}: must be from 1 to the {have} nodes of the job, or the numbers "
            f"of the nodes, from 0 to {have - 1}"
        )
    return tuple(layout.apart(lost))


@dataclass(frozen=True)
class _Loss:
    """What every option needs to know of a loss."""

    est: Estimate
    layout: _core.ReplicaLayout
    nodes: tuple[int, ...]
    run: Reliability
    spares: int
    stall_s: float
    memory_copies: int
    since_checkpoint_s: float
    node_bytes_per_s: float
    shared_bytes_per_s: float

    @cached_property
    def hit(self) -> int:
        """Replicas with a rank on a lost node."""
        return len(self.layout.on(self.nodes))

    @property
    def in_memory(self) -> bool:
        """Whether other nodes have copies of all that was lost."""
        return len(self.nodes) <= self.memory_copies

    @property
    def repeated_s(self) -> float:
        """Work lost where the state is."""
        return float(self.est.step_time_s) if self.in_memory else self.since_checkpoint_s

    @cached_property
    def state_bytes(self) -> float:
        """What a checkpoint holds."""
        return checkpoint_sizes(self.est)[0]

    @property
    def peer_bytes_per_s(self) -> float:
        """What a node reads from the memory of others over its network ports."""
        return network_bytes_per_s(self.est.cluster)

    def reload_s(self, nodes: float) -> float:
        """To read the whole state by a number of nodes: from peers where they have copies."""
        if self.in_memory:
            return float(_core.reload_time_s(self.state_bytes, nodes, self.peer_bytes_per_s))
        storage = self.node_bytes_per_s, self.shared_bytes_per_s
        return float(_core.reload_time_s(self.state_bytes, nodes, *storage))

    def rate_fraction(self, est: Estimate) -> float:
        """Tokens per second over those before the loss."""
        return float(est.tokens_per_s) / float(self.est.tokens_per_s)

    def restarted(self, name: str, est: Estimate) -> RecoveryOption:
        """The whole job starts again from its last checkpoint, on fewer nodes or others."""
        reload_s = self.reload_s(est.cluster.nodes)
        whole_s = self.reload_s(self.est.cluster.nodes)
        rate = self.rate_fraction(est)
        way = _core.restarting(self.run.job, rate, self.repeated_s, reload_s, whole_s)
        return RecoveryOption(name, "ok", "", est, way, self.run.job.restart_s, reload_s)


def _wait(loss: _Loss) -> RecoveryOption:
    job, reload_s = loss.run.job, loss.reload_s(loss.est.cluster.nodes)
    way = _core.waiting(job, loss.repeated_s, reload_s)
    return RecoveryOption("wait", "ok", "", None, way, job.restart_s, reload_s)


def _spares(loss: _Loss) -> Iterator[RecoveryOption]:
    """Spares take the places of the lost nodes: of all ranks at once, or of the lost replicas."""
    lost, have = len(loss.nodes), int(loss.layout.replicas)
    if loss.spares < lost:
        why = f"{loss.spares} spares for {lost} lost nodes"
        yield RecoveryOption("spares", "no_spares", why)
        yield RecoveryOption("replica_spares", "no_spares", why)
        return
    # No way back: the repaired nodes are the spares from then on.
    found = loss.restarted("spares", loss.est)
    yield replace(found, way=found.way.replace(returns_s=0.0) if found.way else None)
    if loss.hit == have:
        yield RecoveryOption("replica_spares", "state_lost", _state_lost(loss))
        return
    reload_s = float(
        _core.reload_time_s(loss.state_bytes, loss.est.cluster.nodes / have, loss.peer_bytes_per_s)
    )
    way = _core.replicas_on_spares(
        loss.run.job, loss.hit / have, loss.stall_s, loss.est.step_time_s, reload_s
    )
    yield RecoveryOption("replica_spares", "ok", "", loss.est, way, loss.stall_s, reload_s)


def _state_lost(loss: _Loss) -> str:
    strategy = loss.est.strategy
    if loss.layout.replicas == 1:
        return (
            "all data-parallel ranks share one copy of the state "
            f"(sharding={strategy.sharding}, ep={strategy.ep})"
        )
    return f"all {loss.layout.replicas} replicas of the state have ranks on the lost nodes"


def _kept_data_ranks(loss: _Loss) -> int:
    """Data-parallel ranks that go on, on whole nodes where there are several.

    Those of replicas that are not hit; where all are, as many as start again on what is left.
    """
    est, replicas = loss.est, int(loss.layout.replicas)
    ranks = est.strategy.tp * est.strategy.cp * est.strategy.pp
    per_node = int(est.cluster.core.node_accelerators)
    each = int(degrees_of(est).dp) // replicas
    kept = each * (replicas - loss.hit)
    if not kept:
        # The state is read again, but experts still span as many ranks as before.
        spans = replica_layout(est, sharding="ddp").replicas
        each = int(degrees_of(est).dp) // int(spans)
        kept = (int(loss.layout.nodes) - len(loss.nodes)) * per_node // ranks // each * each
    while kept and kept * ranks > per_node and kept * ranks % per_node:
        kept -= each
    return kept


def _fewer_replicas(loss: _Loss) -> Iterator[RecoveryOption]:
    """The other data-parallel ranks go on: with the batch as it was, and with their own part."""
    est, names = loss.est, ("fewer_replicas", "smaller_batch")
    kept = _kept_data_ranks(loss)
    ranks = est.strategy.tp * est.strategy.cp * est.strategy.pp
    if not kept:
        why = (
            f"the {int(loss.layout.nodes) - len(loss.nodes)} nodes that are left have no room for "
            f"the tp*cp*pp = {ranks} accelerators of one data-parallel rank"
        )
        for name in names:
            yield RecoveryOption(name, "no_nodes", why)
        return
    place = resolve_cluster(est.cluster, accelerators=kept * ranks)
    each = est.task.global_batch // int(degrees_of(est).dp)
    for name, batch in zip(names, (est.task.global_batch, each * kept), strict=True):
        task = est.task.replace(global_batch=batch)
        fewer = estimate(est.model, place, task, est.strategy.replace(dp=kept), stack=est.stack)
        if not fewer.fits:
            yield RecoveryOption(name, fewer.verdict, what_is_wrong(fewer))
        elif loss.hit < loss.layout.replicas:
            rate = loss.rate_fraction(fewer)
            way = _core.without_replicas(rate, loss.stall_s, est.step_time_s)
            yield RecoveryOption(name, "ok", "", fewer, way, loss.stall_s)
        else:
            yield loss.restarted(name, fewer)


def _sizes(nodes: int) -> list[int]:
    """Numbers of nodes to search on: all, and the multiples of powers of two just below.

    Examples
    --------
    >>> _sizes(63)
    [63, 62, 60, 56, 48, 32]
    """
    found, step = [], 1
    while step <= nodes:
        size = nodes // step * step
        if size not in found:
            found.append(size)
        step *= 2
    return found


def _new_strategy(loss: _Loss, space: Space | Mapping[str, Any] | None) -> RecoveryOption:
    est = loss.est
    left = int(loss.layout.nodes) - len(loss.nodes) + min(loss.spares, len(loss.nodes))
    if left == 0:
        return RecoveryOption("new_strategy", "no_nodes", "no node is left")
    if left == loss.layout.nodes:
        return RecoveryOption("new_strategy", "not_needed", "spares replace every lost node")
    stack: Any = est.stack  # constants themselves are searched with as well as a name
    best, fastest = None, float(est.tokens_per_s) / est.cluster.accelerators
    for nodes in _sizes(left):
        place = resolve_cluster(est.cluster, nodes=nodes)
        # Accelerators would have to be faster than any seen.
        if best is not None and place.accelerators * fastest <= float(best.tokens_per_s):
            continue
        found = search(est.model, place, est.task, space, top=1, stack=stack)
        if not len(found):
            continue
        fastest = max(fastest, float(found[0].tokens_per_s) / place.accelerators)
        if best is None or found[0].tokens_per_s > best.tokens_per_s:
            best = found[0]
    if best is None:
        why = f"no strategy of the space fits on {left} nodes or on the sizes just below"
        return RecoveryOption("new_strategy", "nothing_feasible", why)
    return loss.restarted("new_strategy", best)


@named_arguments
def replan(
    est: Estimate,
    lost_nodes: int | Sequence[int] = 1,
    *,
    repair_s: float,
    horizon_s: float | None = None,
    spares: int = 0,
    reliability: Reliability | str | float = "llama_3",
    since_checkpoint_s: float | None = None,
    memory_copies: int = 0,
    stall_s: float | None = None,
    read: str | float = "object_store",
    shared_bytes_per_s: float = 0.0,
    space: Space | Mapping[str, Any] | None = None,
) -> Replan:
    """The ways to go on after a running job lost nodes, and which does the most work.

    ``"wait"``: for the repair, then from the last checkpoint. ``"spares"``: the job starts again on
    spare nodes. ``"replica_spares"``: replicas without a lost node go on while spares take the
    place of the others. ``"fewer_replicas"``: they go on alone and share the same batch;
    ``"smaller_batch"``: each keeps its part, and the batch shrinks. Where the state is sharded over
    all data-parallel ranks, these two are a restart with fewer ranks. ``"new_strategy"``: the best
    strategy of a search on the nodes that are left. What another batch does to the loss is outside
    the model.

    Parameters
    ----------
    est : Estimate
        Of a step before the loss.
    lost_nodes : int or sequence of int
        How many, taken to lie in as many replicas as they can; or which, in the order of the mesh.
    repair_s : float
        From the loss until as many nodes stand ready again.
    horizon_s : float, optional
        From the loss, until when work is counted. Default: a day after the repair.
    spares : int
        Nodes that stand ready.
    reliability : Reliability, str or float
        Made by `sm.reliability`, or failures per node-day or the name of a preset: gives the
        interval between checkpoints, the time of a restart and that of a write.
    since_checkpoint_s : float, optional
        Work since the last checkpoint of use. Default: the mean, half an interval and the time of
        writing in the background.
    memory_copies : int
        Copies of every node's state in the memory of other nodes, renewed every step: the loss of
        that many nodes costs one step, and the state comes from peers (Gemini, SOSP 2023).
    stall_s : float, optional
        Of replicas that go on when another is lost. Default: the timeout of torchft.
    read : str or float
        Where checkpoints are: ``"object_store"``, ``"disk"``, ``"block_volume"``, or bytes per
        second of a node that reads.
    shared_bytes_per_s : float
        What the storage delivers to all nodes together; 0: it does not limit them.
    space : Space or mapping of its arguments, optional
        Of the new strategy, as of `sm.search`.

    Raises
    ------
    ScaleModelError : the strategy cannot run or does not fit; a number out of range, such as more
        lost nodes than the job has.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=8), task,
    ...                   sm.Strategy(sharding="hsdp"))
    >>> found = sm.replan(est, 1, repair_s=8 * 3600, spares=1, space={"tp": 1, "pp": 1})
    >>> found.best_until_repair
    'replica_spares'
    >>> table = found.table.set_index("option")
    >>> table.verdict["fewer_replicas"], table.reason["fewer_replicas"]
    ('illegal:batch', 'global_batch=256 is not a multiple of dp*micro_batch = 56*1 = 56.')
    """
    est = fitting_estimate(est)
    repair = checked("repair_s", repair_s, 0, 1e9)
    horizon = repair + _DAY_S if horizon_s is None else checked("horizon_s", horizon_s, 0, 1e12)
    run = reliability
    if not isinstance(run, Reliability):
        run = reliability_of(est, failures=run)
    layout = replica_layout(est)
    loss = _Loss(
        est,
        layout,
        _lost(est, layout, lost_nodes),
        run,
        count_of("spares", spares, 0, 1_000_000),
        usual_stall_s() if stall_s is None else checked("stall_s", stall_s, 0, 1e8),
        count_of("memory_copies", memory_copies, 0, 1_000_000),
        _since_checkpoint_s(run, since_checkpoint_s),
        read_bytes_per_s(read),
        checked("shared_bytes_per_s", shared_bytes_per_s, 0, 1e18),
    )
    options = (_wait(loss), *_spares(loss), *_fewer_replicas(loss), _new_strategy(loss, space))
    replicas = int(layout.replicas)
    return Replan(est, loss.nodes, loss.hit, replicas, repair, horizon, options)


def _since_checkpoint_s(run: Reliability, given: float | None) -> float:
    if given is not None:
        return checked("since_checkpoint_s", given, 0, 1e12)
    if math.isinf(run.interval_s):
        raise ScaleModelError(
            "since_checkpoint_s=None: a job that never fails writes no checkpoints; give the "
            "seconds of work since the last one"
        )
    return float(_core.mean_repeated_s(run.job, run.interval_s))
