"""Who sends how much to whom: the flows of training jobs on a fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.type_hints import shown
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.training_jobs import checked_hosts, commodities, jobs_of

if TYPE_CHECKING:
    import pandas as pd

PATTERNS = ("ring", "all_to_all", "chain", "double_binary_tree", "in_network")
PLACEMENTS = ("random_leaves", "packed", "random_servers")
#: Concurrent jobs of arXiv 2503.05324 (public simulation code) by number and ring size; the jobs
#: themselves are in the catalogue, reference/ring_jobs.
PAPER_MIXES: Mapping[tuple[int, int], tuple[str, ...]] = {
    (2, 2): ("bloom", "llama2_70b"),
    (2, 4): ("bloom", "llama2_70b"),
    (2, 8): ("bloom", "gpt3"),
    (3, 2): ("bloom", "llama2_70b", "llama2_70b"),
    (3, 4): ("bloom", "llama2_70b", "gpt3"),
    (3, 8): ("bloom", "gpt3", "llama2_70b"),
    (4, 2): ("bloom", "llama2_70b", "llama2_70b", "bloom"),
    (4, 4): ("bloom", "llama2_70b", "gpt3", "llama2_70b"),
    (5, 2): ("bloom", "llama2_70b", "llama2_70b", "bloom", "gpt3"),
    (5, 4): ("bloom", "llama2_70b", "gpt3", "llama2_70b", "gpt3"),
}
_COLUMNS = ("job", "source", "destination", "size_bytes")


class Traffic:
    """Flows of jobs, one step of their collectives, and what the jobs do over time.

    Made by its class methods.

    Parameters
    ----------
    core : _core.Flows
        The flows.
    names : sequence of str
        Of the jobs.
    steps : sequence of int
        Steps of one collective of every job.
    compute_s : sequence of float
        Silence of every job between two collectives.
    phases : sequence of str, optional
        Names of the phases of a collective, where it has several.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=4, spines=2, nics_per_leaf=4)
    >>> jobs = [{"pattern": "ring", "nics": [0, 4, 8, 12], "size_bytes": 1e9}]
    >>> sm.Traffic.of_jobs(jobs).flows().destination.tolist()
    [4, 8, 12, 0]
    """

    def __init__(
        self,
        core: _core.Flows,
        names: Sequence[str],
        steps: Sequence[int],
        compute_s: Sequence[float],
        phases: Sequence[str] = (),
    ) -> None:
        self.core = core
        self.names = list(names)
        self.steps = list(steps)
        self.compute_s = list(compute_s)
        self.phases = list(phases)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traffic) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((*self.names, self.core.size))

    def __repr__(self) -> str:
        return f"Traffic({len(self.names)} jobs, {self.core.size} flows)"

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.names)

    @classmethod
    def of_jobs(cls, jobs: Iterable[Mapping[str, Any]]) -> Traffic:
        """Jobs by communication pattern.

        Parameters
        ----------
        jobs : iterable of mapping
            ``pattern`` (ring, all_to_all, chain, double_binary_tree, in_network: switches add up
            what passes, as SHARP does; NICs of a leaf follow each other), ``nics`` (one list, or a
            list of lists: several groups of one job) and ``size_bytes`` (ring, tree, in_network: a
            rank's whole buffer of an all-reduce; all_to_all: to every other rank; chain: to the
            next one). Optional: ``name``, ``compute_s``, and ``shape`` of a ring: the all-reduce is
            decomposed into rings over these dimensions, innermost first, as BlueConnect does.

        Raises
        ------
        ScaleModelError : unknown pattern or missing key; names the job.

        Examples
        --------
        >>> job = {"pattern": "all_to_all", "nics": range(4), "size_bytes": 1e6}
        >>> Traffic.of_jobs([job]).core.size
        12
        """
        rows = []
        names, steps, compute = [], [], []
        for number, job in enumerate(jobs):
            if not isinstance(job, Mapping):
                raise ScaleModelError(
                    f"jobs[{number}]={shown(job)}: must be a mapping of pattern, nics, size_bytes"
                )
            unknown = set(job) - {"pattern", "nics", "size_bytes", "name", "compute_s", "shape"}
            missing = {"pattern", "nics", "size_bytes"} - set(job)
            if unknown or missing:
                what = f"has no key {sorted(missing)[0]!r}" if missing else ""
                what = what or f"{sorted(unknown)[0]!r} is no key of a job"
                raise ScaleModelError(f"jobs[{number}]: {what}")
            pattern = job["pattern"]
            if pattern not in PATTERNS:
                raise ScaleModelError(
                    f"jobs[{number}]: pattern={pattern!r}: must be one of {', '.join(PATTERNS)}"
                )
            shape = [int(extent) for extent in job.get("shape", ())]
            if shape and pattern != "ring":
                raise ScaleModelError(f"jobs[{number}]: shape={shape!r}: is for rings only")
            lists = list(job["nics"])
            groups = [list(g) for g in lists] if lists and np.ndim(lists[0]) else [lists]
            size = parse_quantity(job["size_bytes"], "bytes", f"jobs[{number}].size_bytes")
            rows.append((pattern, groups, size, shape))
            names.append(str(job.get("name", f"job {number}")))
            members = max((len(g) for g in groups), default=1)
            steps.append(1 if shape else _core.pattern_steps(pattern, members))
            compute.append(parse_quantity(job.get("compute_s", 0.0), "s", "compute_s"))
        return cls(_core.pattern_flows(rows), names, steps, compute)

    @classmethod
    def of_ring_jobs(
        cls,
        fabric: Fabric,
        jobs: Iterable[_core.RingJob],
        *,
        placement: str = "random_leaves",
        server: int = 8,
        seed: int = 0,
        peak_flop_per_s: float | str | None = None,
        names: Sequence[str] | None = None,
    ) -> Traffic:
        """Data-parallel jobs placed on a fabric: ring i joins the i-th NIC of every copy.

        Parameters
        ----------
        fabric : Fabric
        jobs : iterable of _core.RingJob
            Parameters, NICs of a copy, copies.
        placement : {"random_leaves", "packed", "random_servers"}
            Copies over random leaves (arXiv 2503.05324), in order, or over random servers.
        server : int
            NICs of a server.
        seed : int
            Of random placements.
        peak_flop_per_s : float or str, optional
            Of an accelerator; gives jobs their computation between all-reduces.

        Raises
        ------
        ScaleModelError : unknown placement, or the jobs do not fit.

        Examples
        --------
        >>> from scalemodel import _core
        >>> job = _core.RingJob(parameters=7e9, copy=8, copies=4)
        >>> Traffic.of_ring_jobs(Fabric.leaf_spine(), [job]).core.size
        32
        """
        listed = list(jobs)
        if placement not in PLACEMENTS:
            raise ScaleModelError(
                f"placement={placement!r}: must be one of {', '.join(PLACEMENTS)}"
            )
        if server < 1:
            raise ScaleModelError(f"server={server!r}: must be at least 1")
        core, _ = _core.ring_traffic(fabric.core, listed, placement, server, seed, True)
        compute = [0.0] * len(listed)
        if peak_flop_per_s is not None:
            peak = parse_quantity(peak_flop_per_s, "flop_per_s", "peak_flop_per_s")
            compute = [job.compute_s(peak) for job in listed]
        names = names or [f"job {number}" for number in range(len(listed))]
        return cls(core, names, [max(job.steps, 1) for job in listed], compute)

    @classmethod
    def paper_mix(
        cls,
        fabric: Fabric,
        *,
        jobs: int = 5,
        ring: int = 4,
        placement: str = "random_leaves",
        seed: int = 0,
        accelerator: str = "a100",
    ) -> Traffic:
        """Concurrent jobs of the experiments of arXiv 2503.05324 (catalogue: reference/ring_jobs).

        Parameters
        ----------
        jobs : int
            2 to 5 concurrent jobs.
        ring : int
            2, 4 or 8 copies of every model; 8 only for 2 and 3 jobs.
        accelerator : str
            Whose peak scales the computation between all-reduces.

        Examples
        --------
        >>> Traffic.paper_mix(Fabric.leaf_spine(), jobs=2, ring=2).names
        ['bloom', 'llama2_70b']
        """
        if (jobs, ring) not in PAPER_MIXES:
            known = ", ".join(f"{count} x {size}" for count, size in PAPER_MIXES)
            raise ScaleModelError(f"jobs={jobs!r}, ring={ring!r}: must be one of {known}")
        return cls.paper_jobs(
            fabric,
            [(name, ring) for name in PAPER_MIXES[jobs, ring]],
            placement=placement,
            seed=seed,
            accelerator=accelerator,
        )

    @classmethod
    def paper_jobs(
        cls,
        fabric: Fabric,
        jobs: Sequence[tuple[str, int]],
        *,
        placement: str = "random_leaves",
        seed: int = 0,
        accelerator: str = "a100",
    ) -> Traffic:
        """Jobs of arXiv 2503.05324 by model and ring size: one alone, or sizes mixed.

        Parameters
        ----------
        jobs : sequence of (model, copies)
            Models of the catalogue's reference/ring_jobs; copies, the ring size, at least 1.
        accelerator : str
            Whose peak scales the computation between all-reduces.

        Raises
        ------
        ScaleModelError : unknown model or accelerator, no copy, or no room.

        Examples
        --------
        >>> alone = Traffic.paper_jobs(Fabric.leaf_spine(), [("gpt3", 8)])
        >>> alone.names, alone.steps
        (['gpt3'], [14])
        >>> Traffic.paper_jobs(Fabric.leaf_spine(), [("bloom", 2), ("bloom", 4)]).steps
        [2, 6]
        """
        entry = catalog.load("reference", "ring_jobs")
        peaks: Mapping[str, Any] = entry["peak"]
        if accelerator not in peaks:
            raise ScaleModelError(f"accelerator={accelerator!r}: {nearest(accelerator, peaks)}")
        models = [name for name, item in entry.items() if hasattr(item, "keys") and "copy" in item]
        listed = []
        for name, copies in jobs:
            if name not in models:
                raise ScaleModelError(f"jobs: model={name!r}: {nearest(name, models)}")
            numbers: dict[str, Any] = {field: value_of(item) for field, item in entry[name].items()}
            listed.append(_core.RingJob(copies=copies, **numbers))
        return cls.of_ring_jobs(
            fabric,
            listed,
            placement=placement,
            seed=seed,
            peak_flop_per_s=str(value_of(peaks[accelerator])),
            names=[name for name, _ in jobs],
        )

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        steps: int = 1,
        compute_s: float = 0.0,
        overlap: Iterable[Iterable[str]] | None = None,
    ) -> Traffic:
        """Flows from a table with columns job, source, destination (NICs) and size_bytes.

        Jobs may be numbers or names. An optional column group says which flows of a job step
        together; without it every flow steps alone.

        Parameters
        ----------
        overlap : iterable of iterables of str, optional
            Phases (column phase) that run at the same time; others follow each other in the order
            of the table. Sizes are then those of a whole step: size_bytes times times_per_step,
            where the table has that column. Default: everything at the same time, sizes as given.

        Raises
        ------
        ScaleModelError : a column is missing, a size is not positive, or a phase is unknown.

        Examples
        --------
        >>> import pandas as pd
        >>> rows = [("a", 0, 4, 1e9), ("b", 1, 5, 2e9)]
        >>> frame = pd.DataFrame(rows, columns=["job", "source", "destination", "size_bytes"])
        >>> Traffic.from_frame(frame).names
        ['a', 'b']
        """
        for column in _COLUMNS:
            if column not in frame:
                raise ScaleModelError(f"frame: has no column {column!r}")
        import pandas as pd

        codes, names = pd.factorize(frame["job"])
        if (codes < 0).any():
            raise ScaleModelError("frame: column 'job' has missing values")
        group = np.arange(len(frame))
        if "group" in frame:
            group, _ = pd.factorize(pd.MultiIndex.from_arrays([codes, frame["group"]]))
            if (np.diff(group) < 0).any():
                raise ScaleModelError("frame: the rows of a group must follow each other")
        numbers: dict[str, Any] = {}
        for column in _COLUMNS[1:]:
            try:
                numbers[column] = frame[column].to_numpy(dtype=float)
            except (TypeError, ValueError) as error:
                raise ScaleModelError(f"frame: column {column!r} must hold numbers") from error
            if not np.isfinite(numbers[column]).all():
                raise ScaleModelError(f"frame: column {column!r} must be finite")
        phase: list[int] = []
        labels: list[str] = []
        if overlap is not None:
            labels, of_row = _phases(frame, overlap)
            first = np.unique(group, return_index=True)[1]
            if (of_row != of_row[first][group]).any():
                raise ScaleModelError("frame: a group has flows of two phases")
            phase = of_row[first].tolist()
            if "times_per_step" in frame:
                times = frame["times_per_step"].to_numpy(dtype=float)
                numbers["size_bytes"] = numbers["size_bytes"] * times
        core = _core.Flows(
            codes,
            group,
            numbers["source"],
            numbers["destination"],
            numbers["size_bytes"],
            len(names),
            phase,
        )
        titles = [str(name) for name in names]
        return cls(core, titles, [steps] * len(titles), [compute_s] * len(titles), labels)

    def flows(self) -> pd.DataFrame:
        """The flows of one step.

        Returns
        -------
        DataFrame
            Columns job (name), group, source, destination (NICs), size_bytes.
        """
        import pandas as pd

        frame = pd.DataFrame(self.core.columns())
        frame["job"] = np.array(self.names, dtype=object)[frame["job"]]
        return frame


def checked_overlap(
    overlap: Iterable[Iterable[str]], known: Sequence[str]
) -> list[tuple[str, ...]]:
    """Sets of phases, each in one set at most.

    Raises
    ------
    ScaleModelError : an unknown phase, or one that is listed twice.
    """
    listed = [tuple(str(name) for name in names) for names in overlap]
    flat = [name for names in listed for name in names]
    for name in flat:
        if name not in known:
            raise ScaleModelError(f"overlap: {name!r} is no phase; known: {', '.join(known)}")
        if flat.count(name) > 1:
            raise ScaleModelError(f"overlap: {name!r} is listed twice")
    return listed


def _phases(frame: pd.DataFrame, overlap: Iterable[Iterable[str]]) -> tuple[list[str], np.ndarray]:
    """Names of the phases that follow each other, and of every row the number of its own."""
    if "phase" not in frame:
        raise ScaleModelError("frame: has no column 'phase', which overlap needs")
    known = [str(name) for name in frame["phase"].unique()]
    together = {name: name for name in known}
    for names in checked_overlap(overlap, known):
        together.update(dict.fromkeys(names, "+".join(names)))
    labels = list(dict.fromkeys(together.values()))
    return labels, np.array([labels.index(together[str(name)]) for name in frame["phase"]])


@named_arguments
def traffic(
    model: str | Path | Model | dict[str, Any],
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training,
    strategy: _core.Strategy | None = None,
    *,
    stack: str = DEFAULT_STACK,
    placement: str | Sequence[int] = "packed",
    rails: bool = True,
    checkpoint_to: Sequence[int] = (),
    checkpoint_every_s: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """What a training job sends over the network, NIC to NIC.

    Sizes, counts and algorithms are those an estimate pays for; what stays inside a scale-up domain
    is left out. Rings and trees run rail by rail: the k-th members of all domains of a group, a
    share of the bytes each. Data loading is not included.

    Parameters
    ----------
    model, cluster, task, strategy, stack : as in `estimate`
    placement : {"packed", "random_servers", "random_nics"} or sequence of int
        Ranks in the order of the NICs; on random servers, each rank on the NIC of its place in the
        server (rail-aligned); the same with the NICs of every server in random order (not
        aligned); or the NIC of every rank.
    rails : bool
        Whether all-to-alls change the rail inside a server (PXN), so that messages between servers
        stay on it; otherwise every rank sends to every other one directly.
    checkpoint_to : sequence of int
        NICs of storage hosts on the same fabric, none of a rank. Every rank writes its part of a
        checkpoint to one of them, in turn: weights as they are kept, master weights and moments,
        each parameter once, in equal parts by all ranks that hold it or a copy. Default: storage
        has a network of its own.
    checkpoint_every_s : float
        From one checkpoint to the next.
    seed : int
        Of random placements.

    Returns
    -------
    DataFrame, one row per pair of NICs and period
        Columns job, phase (axis whose exposed time it causes: tp, cp, ep, pp, dp; or checkpoint),
        communicator (tp, cp, ep, etp, pp, checkpoint, and of replicas dense_shard, dense_replica,
        expert_shard, expert_replica; of a second copy dense_secondary, expert_secondary; of a
        quantized reduction dense_rail, expert_rail), pattern (of a checkpoint: write), period
        (step, micro_batch or checkpoint), stage of the pipeline, group (flows that step together),
        source, destination, size_bytes of a period and times_per_step. Usable as jobs of `route`
        and `simulate_network`.

    Raises
    ------
    ScaleModelError : unknown name, malformed argument, a strategy that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> frame = sm.traffic("llama3_8b", sm.cluster("dgx_h100", nodes=4),
    ...                    sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=4, pp=2))
    >>> frame.groupby(["phase", "pattern", "period"]).size().to_dict()
    {('dp', 'ring', 'step'): 32, ('pp', 'chain', 'micro_batch'): 32}
    >>> sm.route(sm.cluster("dgx_h100", nodes=4), frame).verdict
    'ok'
    """
    resolved = resolve.cluster(cluster)
    job = {"model": model, "task": task, "strategy": strategy or _core.Strategy(), "stack": stack}
    jobs = jobs_of(
        resolved, [job], nics=resolved.accelerators, placement=placement, stack=stack, seed=seed
    )
    hosts = checked_hosts(checkpoint_to, checkpoint_every_s, jobs)
    return commodities(
        jobs, rails=rails, checkpoint_to=hosts, checkpoint_every_s=checkpoint_every_s
    )
