"""``CompletionTimes``: when flows, rings, steps and collectives of a simulated network end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd

#: What completes: a flow in one step; a step of a ring (or another group of flows); a ring with all
#: its steps; the collective of a job with all its rings; a phase of it.
KINDS = ("flow", "step", "ring", "collective", "phase")


def _weighted_percentile(times: np.ndarray, counts: np.ndarray, percentile: float) -> float:
    """The least time within which that percentage of the cases completes."""
    order = np.argsort(times, kind="stable")
    below = np.cumsum(counts[order])
    place = int(np.searchsorted(below, percentile / 100 * below[-1] * (1 - 1e-12)))
    return float(times[order][min(place, len(order) - 1)])


@dataclass(frozen=True, repr=False, eq=False)
class CompletionTimes:
    """Completion times of one run of `simulate_network`: its ``attrs["completion"]``.

    Attributes
    ----------
    traffic : Traffic
    columns : mapping
        What the engine answered, arrays in seconds.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=2, bandwidth=1e9)
    >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 2e9, "name": "a"},
    ...         {"pattern": "ring", "nics": [1, 3], "size_bytes": 2e9, "name": "b"}]
    >>> times = sm.simulate_network(fabric, jobs, epochs=1, step_latency_s=0.0).attrs["completion"]
    >>> times.summary("flow").set_index("job").loc["all", ["cases", "p50_s", "max_s"]].tolist()
    [8.0, 2.0, 2.0]
    >>> times.summary("ring").max_s.tolist()
    [4.0, 4.0, 4.0]
    """

    traffic: Traffic
    columns: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"CompletionTimes({int(np.sum(self.columns['flow_count'])):,} flows)"

    def __deepcopy__(self, memo: dict[int, Any]) -> CompletionTimes:
        """Itself, since nothing in it changes: tables copy their attributes with every step."""
        return self

    def times(self, of: str = "flow") -> pd.DataFrame:
        """Every time that occurs.

        Parameters
        ----------
        of : {"flow", "step", "ring", "collective", "phase"}
            Flows and steps count from the start of their step, others from their own start.

        Returns
        -------
        DataFrame
            Columns job (name), time_s and count (cases that took as long).

        Raises
        ------
        ScaleModelError : unknown kind.

        Examples
        --------
        >>> import scalemodel as sm
        >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2, bandwidth=1e9)
        >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 2e9}]
        >>> runs = sm.simulate_network(fabric, jobs, epochs=3, step_latency_s=0.0)
        >>> runs.attrs["completion"].times("step").values.tolist()
        [['job 0', 1.0, 6]]
        """
        import pandas as pd

        if of not in KINDS:
            raise ScaleModelError(f"of={of!r}: must be one of {', '.join(KINDS)}")
        of_run = self.columns
        if of in ("flow", "step"):
            job, time_s = of_run[f"{of}_job"], of_run[f"{of}_time_s"]
            count = of_run[f"{of}_count"]
        else:
            start, end, job = {
                "ring": (of_run["ring_start_s"], of_run["ring_end_s"], self._job_of_rings()),
                "collective": (of_run["start_s"], of_run["end_s"], of_run["job"]),
                "phase": (of_run["phase_start_s"], of_run["phase_end_s"], of_run["phase_job"]),
            }[of]
            time_s, count = end - start, np.ones(len(end), dtype=np.int64)
        names = np.asarray(self.traffic.names, dtype=object)[job]
        return pd.DataFrame({"job": names, "time_s": time_s, "count": count})

    def summary(
        self, of: str = "flow", *, percentiles: Sequence[float] = (50, 90, 99)
    ) -> pd.DataFrame:
        """Mean, percentiles and maximum of completion times, by job and of all jobs.

        Parameters
        ----------
        of : {"flow", "step", "ring", "collective", "phase"}
            As in `times`.
        percentiles : sequence of float, 0 to 100

        Returns
        -------
        DataFrame, one row per job with cases, then one named "all"
            Columns job, cases, mean_s, min_s, one ``p<percentile>_s`` each (the least time within
            which that percentage of the cases completes) and max_s.

        Raises
        ------
        ScaleModelError : unknown kind, or a percentile outside 0 to 100.
        """
        import pandas as pd

        if any(not 0 <= percentile <= 100 for percentile in percentiles):
            raise ScaleModelError(f"percentiles={percentiles!r}: must be from 0 to 100")
        every = self.times(of)
        rows = []
        for name, own in [*every.groupby("job", sort=False), ("all", every)]:
            if own.empty:
                continue
            time_s, count = own["time_s"].to_numpy(), own["count"].to_numpy()
            row = {"job": name, "cases": int(count.sum())}
            row |= {"mean_s": float((time_s * count).sum() / count.sum()), "min_s": time_s.min()}
            for percentile in percentiles:
                row[f"p{percentile:g}_s"] = _weighted_percentile(time_s, count, percentile)
            rows.append(row | {"max_s": time_s.max()})
        return pd.DataFrame(rows)

    def flows(self) -> pd.DataFrame:
        """One row per flow.

        Returns
        -------
        DataFrame
            The traffic's columns, then completions (steps that ended; parts count where flows are
            split), mean_s, min_s and max_s from the start of a step to the end of the flow; nan
            without completions.

        Examples
        --------
        >>> import scalemodel as sm
        >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2, bandwidth=1e9)
        >>> jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 2e9}]
        >>> runs = sm.simulate_network(fabric, jobs, epochs=3, step_latency_s=0.0)
        >>> runs.attrs["completion"].flows()[["completions", "mean_s"]].values.tolist()
        [[6.0, 1.0], [6.0, 1.0]]
        """
        frame = self.traffic.flows()
        count = np.zeros(len(frame), dtype=np.int64)
        times_s = {name: np.full(len(frame), np.nan) for name in ("sum", "min", "max")}
        if len(self.columns["completions"]):  # a run without paths has none
            count[:] = self.columns["completions"]
            for name, column in times_s.items():
                column[:] = np.where(count > 0, self.columns[f"completion_{name}_s"], np.nan)
        frame["completions"] = count
        frame["mean_s"] = times_s["sum"] / np.maximum(count, 1)
        frame["min_s"], frame["max_s"] = times_s["min"], times_s["max"]
        return frame

    def rings(self) -> pd.DataFrame:
        """One row per ring, or other group of flows, and collective, in the order of their ends.

        Returns
        -------
        DataFrame
            Columns job (name), ring (number among all groups), epoch, start_s, end_s, time_s.
        """
        import pandas as pd

        start, end = self.columns["ring_start_s"], self.columns["ring_end_s"]
        return pd.DataFrame(
            {
                "job": np.asarray(self.traffic.names, dtype=object)[self._job_of_rings()],
                "ring": self.columns["ring"],
                "epoch": self.columns["ring_epoch"],
                "start_s": start,
                "end_s": end,
                "time_s": end - start,
            }
        )

    def _job_of_rings(self) -> np.ndarray:
        """Numbers of the jobs of the entries of ``ring``."""
        flows = self.traffic.core.columns()
        job = np.zeros(int(flows["group"].max()) + 1 if len(flows["group"]) else 1, dtype=np.int32)
        job[flows["group"]] = flows["job"]
        of_rings: np.ndarray = job[self.columns["ring"]]
        return of_rings
