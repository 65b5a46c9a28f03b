"""What a routing is worth: tables of links, jobs and flows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.completion import CompletionTimes
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.schedules import schedules_of
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

OK, DISCONNECTED = "ok", "illegal:disconnected"


def _equal(a: object, b: object) -> bool:
    """Whether two columns of the engine hold the same; NaN, which stands for no value, too."""
    numbers, others = np.asarray(a), np.asarray(b)
    return np.array_equal(numbers, others, equal_nan=numbers.dtype.kind == "f")


@dataclass(frozen=True, repr=False, eq=False)
class RoutingReport:
    """Paths of all flows on a fabric and what they give. Made by `route`.

    Attributes
    ----------
    fabric : Fabric
    traffic : Traffic
    policy, model : str
        How paths were chosen; rate model of the objective (fair_share or allocated).
    columns : mapping
        What the engine answered, arrays and numbers in base units.
    options : RouteOptions, optional
        Of the router, with which `completion` chooses the same paths again.
    limits : tuple of int
        ``max_paths`` and ``detours`` of `route`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> report = sm.route(fabric, sm.Traffic.paper_mix(fabric, jobs=2, ring=2), policy="colouring")
    >>> report.max_flows, round(report.gap_fraction, 6), report.jobs().slowdown.round(6).tolist()
    (1, 0.0, [1.0, 1.0])
    """

    fabric: Fabric
    traffic: Traffic
    policy: str
    model: str
    columns: Mapping[str, Any] = field(repr=False)
    options: _core.RouteOptions | None = field(default=None, repr=False)
    limits: tuple[int, int] = field(default=(256, 0), repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoutingReport) and (
            self._asked() == other._asked()
            and self.columns.keys() == other.columns.keys()
            and all(_equal(self.columns[name], other.columns[name]) for name in self._answered())
        )

    def __hash__(self) -> int:
        return hash(self._asked())

    def _answered(self) -> Iterator[str]:
        """Columns of the answer; the router's own time is none of it."""
        return (name for name in self.columns if name != "assignment_s")

    def _asked(self) -> tuple[object, ...]:
        return self.fabric, self.traffic, self.policy, self.model

    def __repr__(self) -> str:
        return (
            f"RoutingReport({self.policy}: {self.verdict}, {self.max_flows} flows on the fullest "
            f"link, slowest step {self.step_time_s:.3g} s)"
        )

    @property
    def verdict(self) -> str:
        """``ok``, or ``illegal:disconnected`` where some flow has no path."""
        return DISCONNECTED if self.columns["disconnected"] else OK

    @property
    def max_flows(self) -> int:
        """Flows, or parts of flows, on the fullest link between switches."""
        return int(self.columns["max_flows"])

    @property
    def drain_s(self) -> float:
        """Time to drain the fullest link: layer 1 of the objective, by bytes."""
        return float(self.columns["drain_s"])

    @property
    def bound_s(self) -> float:
        """What no single-path routing's `drain_s` can fall below."""
        return float(self.columns["bound_s"])

    @property
    def gap_fraction(self) -> float:
        """Part of `drain_s` above the bound; negative where flows are split over paths."""
        return self.drain_s / self.bound_s - 1 if self.bound_s > 0 else 0.0

    @property
    def assignment_s(self) -> float:
        """Time the router took, measured."""
        return float(self.columns["assignment_s"])

    @property
    def values_steps_per_s(self) -> list[float]:
        """The objective: steps per second of every job in the rate model, slowest first."""
        return sorted(float(value) for value in self.job_values())

    @property
    def step_time_s(self) -> float:
        """Time of the slowest job's step in the rate model."""
        finite = [value for value in self.values_steps_per_s if np.isfinite(value)]
        if not finite:
            return 0.0
        return 1 / finite[0] if finite[0] > 0 else float("inf")

    def job_values(self) -> np.ndarray:
        """Steps per second of every job in the rate model, in the order of the jobs."""
        name = "fair_steps_per_s" if self.model == "fair_share" else "allocated_steps_per_s"
        return np.asarray(self.columns[name])

    def jobs(self) -> pd.DataFrame:
        """One row per job.

        Returns
        -------
        DataFrame
            Columns job, flows, size_bytes (of all its flows, one step), fair_steps_per_s,
            allocated_steps_per_s, isolated_steps_per_s (alone, bounded by its NICs), slowdown
            (isolated over the report's rate model), slowest_bytes_per_s and mean_bytes_per_s (fair
            rates of its flows: the slowest one is the effective bandwidth of its collectives).
        """
        import pandas as pd

        flows = self.traffic.core.columns()
        rates = pd.Series(self.columns["rate_bytes_per_s"]).groupby(flows["job"])
        sizes = pd.Series(flows["size_bytes"]).groupby(flows["job"]).sum()
        every = range(self.traffic.jobs)
        frame = pd.DataFrame({"job": self.traffic.names})
        frame["flows"] = rates.size().reindex(every, fill_value=0).to_numpy()
        frame["size_bytes"] = sizes.reindex(every, fill_value=0.0).to_numpy()
        for name in ("fair_steps_per_s", "allocated_steps_per_s", "isolated_steps_per_s"):
            frame[name] = self.columns[name]
        isolated, values = np.asarray(self.columns["isolated_steps_per_s"]), self.job_values()
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["slowdown"] = np.where(frame["flows"] > 0, isolated / values, 1.0)
        frame["slowest_bytes_per_s"] = rates.min().reindex(every).to_numpy()
        frame["mean_bytes_per_s"] = rates.mean().reindex(every).to_numpy()
        return frame

    def flows(self) -> pd.DataFrame:
        """One row per flow.

        Returns
        -------
        DataFrame
            The traffic's columns, then path (position among the flow's paths), plane (spine, or
            cable, of a two-tier fabric; position elsewhere), parts and rate_bytes_per_s. Path and
            plane are -1 within a leaf and those of the first part where flows are split.
        """
        frame = self.traffic.flows()
        first = np.asarray(self.columns["first"])
        frame["path"] = np.asarray(self.columns["path"])[first[:-1]]
        frame["plane"] = np.asarray(self.columns["plane"])[first[:-1]]
        frame["parts"] = np.diff(first)
        frame["rate_bytes_per_s"] = self.columns["rate_bytes_per_s"]
        return frame

    def completion(
        self, *, epochs: int = 1, start_s: ArrayLike = 0.0, step_latency_s: float = 1e-9
    ) -> CompletionTimes:
        """When flows, steps, rings and collectives end on these paths, run step by step.

        What the report says of rates is a snapshot of all flows at once; here flows that end early
        free their share, and a ring takes its next step when all of its flows have arrived.

        Parameters
        ----------
        epochs : int
            Collectives of every job.
        start_s, step_latency_s
            As in `simulate_network`.

        Returns
        -------
        CompletionTimes
            ``summary("flow")``, ``summary("ring")`` and the like have percentiles.

        Raises
        ------
        ScaleModelError : paths of the solver (``milp``), which the simulation does not choose.

        Examples
        --------
        >>> import scalemodel as sm
        >>> fabric = sm.Fabric.leaf_spine()
        >>> report = sm.route(fabric, sm.Traffic.paper_mix(fabric, jobs=2, ring=2))
        >>> times = report.completion().summary("flow").set_index("job")
        >>> bool(times.p50_s["all"] <= times.p99_s["all"] == times.max_s["all"])
        True
        """
        if self.options is None or self.policy == "milp":
            raise ScaleModelError(
                f"policy={self.policy!r}: is not simulated; balanced is as good or better"
            )
        answer = _core.run_network(
            self.fabric.core,
            self.traffic.core,
            self.options,
            schedules_of(self.traffic, epochs, start_s),
            step_latency_s,
            *self.limits,
            _core.Controller(),
            [],
        )
        return CompletionTimes(self.traffic, answer)

    def links(self) -> pd.DataFrame:
        """One row per directed link.

        Returns
        -------
        DataFrame indexed by link
            The fabric's columns, then load_bytes (of one step of all jobs), rate_bytes_per_s and
            utilisation_fraction (fair rates).
        """
        frame = self.fabric.links()
        frame["load_bytes"] = self.columns["link_bytes"]
        frame["rate_bytes_per_s"] = self.columns["link_rate_bytes_per_s"]
        capacity = frame["bandwidth_bytes_per_s"]
        used = frame["rate_bytes_per_s"].where(capacity > 0, 0.0)
        frame["utilisation_fraction"] = used / capacity.where(capacity > 0, 1.0)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """The report as one flat row.

        Returns
        -------
        dict
            policy, model, verdict, flows, max_flows, bound_flows, drain_s, bound_s, gap_fraction,
            step_time_s, slowdown_mean, slowdown_max, rate_min_bytes_per_s, rate_mean_bytes_per_s,
            jain_fraction (Jain's index of the flows' rates), assignment_s.
        """
        rates = np.asarray(self.columns["rate_bytes_per_s"])
        jobs = self.jobs()
        slowdown = jobs.loc[jobs["flows"] > 0, "slowdown"]
        squares = float((rates**2).sum())
        return {
            "policy": self.policy,
            "model": self.model,
            "verdict": self.verdict,
            "flows": int(rates.size),
            "max_flows": self.max_flows,
            "bound_flows": int(self.columns["bound_flows"]),
            "drain_s": self.drain_s,
            "bound_s": self.bound_s,
            "gap_fraction": self.gap_fraction,
            "step_time_s": self.step_time_s,
            "slowdown_mean": float(slowdown.mean()) if len(slowdown) else 1.0,
            "slowdown_max": float(slowdown.max()) if len(slowdown) else 1.0,
            "rate_min_bytes_per_s": float(rates.min()) if rates.size else 0.0,
            "rate_mean_bytes_per_s": float(rates.mean()) if rates.size else 0.0,
            "jain_fraction": float(rates.sum() ** 2 / (rates.size * squares)) if squares else 1.0,
            "assignment_s": self.assignment_s,
        }
