"""What became of a trace in a fleet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel._core import CacheTier, RouterPolicy
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.serving.energy import instance_power_w
from scalemodel.serving.fleet_parts import FleetPart, optional_column
from scalemodel.serving.limits import METRICS
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.stream import Column, ServedStream
from scalemodel.serving.traces.writing import load_pyarrow
from scalemodel.serving.verdicts import layout_text

if TYPE_CHECKING:
    import pandas as pd

#: Why a request was not served: longer than a whole cache, turned away, lost with its replica.
REFUSALS = ("", "too_long", "shed", "lost")
_SUFFIXES = (".parquet", ".arrow", ".csv")


@dataclass(frozen=True, eq=False, repr=False)
class ServedFleet(ServedStream):
    """What became of a trace in a fleet. Made by `simulate_fleet`.

    Everything that a `ServedStream` has, and

    Attributes
    ----------
    replica : array of int
        Of each request, as numbered in `replicas`.
    cached_tokens : array of float
        Of each prompt, found in the prefix cache of its replica.
    parts : tuple of FleetPart
        Plans and counts of their replicas.
    policy : RouterPolicy
    """

    replica: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    cached_tokens: Column = field(default_factory=lambda: np.empty(0))
    parts: tuple[FleetPart, ...] = ()
    policy: RouterPolicy = field(default_factory=RouterPolicy)
    part_totals: tuple[_core.ReplicaTotals, ...] = ()
    limits: Mapping[int | None, Mapping[str, float]] = field(default_factory=dict)
    scale_events: Column = field(default_factory=lambda: np.empty((0, 3)))
    #: Of each request: code of `REFUSALS`, deepest tier, retries; empty where none can be.
    fates: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 3), np.uint8))
    priority: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    tiers: tuple[CacheTier, ...] = ()
    tier_totals: tuple[_core.TierTotals, ...] = ()
    failures: float = 0.0

    def __repr__(self) -> str:
        found = self.summary()
        counts = " + ".join(
            f"{part.count} x {layout_text(part.plan.layout)} on {part.plan.cluster.name}"
            for part in self.parts
        )
        return super().__repr__().replace("ServedStream(", "ServedFleet(", 1)[:-1] + (
            f"\n  {self.policy.router} over {counts}: hits {found['hit_fraction']:.1%}, "
            f"busy {found['busy_fraction']:.1%}, goodput {found['goodput_fraction']:.1%})"
        )

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request: as of a stream, with replica, cached_tokens, within_limits."""
        table = super().requests.copy()
        table["replica"] = self.replica
        table["cached_tokens"] = self.cached_tokens
        within = ~self.refused
        tenant = optional_column(self.stream, "tenant", np.int64)
        for name, limits in self.limits.items():
            chosen = np.full(len(table), True) if name is None else tenant == name
            for limit, value in limits.items():
                column = METRICS[limit.removesuffix("_s")]
                within &= ~chosen | (table[column].to_numpy() <= value)
        table["within_limits"] = within
        if tenant.size:
            table["tenant"] = tenant
        if self.priority.size:
            table["priority"] = self.priority
        if self.fates.size:
            table["why_refused"] = np.array(REFUSALS)[self.fates[:, 0]]
            table["tier"] = self.fates[:, 1]
            table["retries"] = self.fates[:, 2]
        return table

    def arrow(self) -> Any:
        """The table `requests` as a ``pyarrow.Table`` (extra ``io``)."""
        return load_pyarrow().Table.from_pandas(self.requests, preserve_index=False)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the table `requests` to a file, whole or not at all.

        Parameters
        ----------
        path : path
            ``.parquet`` or ``.arrow`` (extra ``io``), or ``.csv``.

        Raises
        ------
        ScaleModelError : another suffix, or pyarrow is missing.

        Examples
        --------
        >>> import tempfile
        >>> import pandas as pd
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=500, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=2)
        >>> trace = sm.request_stream(task, requests=50, requests_per_s=20)
        >>> served = sm.simulate_fleet(trace, plan)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     served.write(f"{folder}/requests.csv")
        ...     len(pd.read_csv(f"{folder}/requests.csv"))
        50
        """
        suffix = Path(path).suffix.lower()
        if suffix not in _SUFFIXES:
            raise ScaleModelError(f"path={os.fspath(path)!r}: must end in {' or '.join(_SUFFIXES)}")
        table = self.requests if suffix == ".csv" else self.arrow()
        with replacing(path) as draft:
            if suffix == ".csv":
                table.to_csv(draft, index=False)
            elif suffix == ".parquet":
                load_pyarrow().parquet.write_table(table, draft)
            else:
                arrow = load_pyarrow()
                with (
                    arrow.OSFile(str(draft), "wb") as file,
                    arrow.ipc.new_file(file, table.schema) as writer,
                ):
                    writer.write_table(table)

    @cached_property
    def slowdowns(self) -> Column:
        """Latency of each request over that on a replica of its kind that serves it alone.

        Refused requests have NaN. Prompts are computed whole there, so that a hit may bring a
        slowdown below 1.
        """
        kinds = np.array([int(part.kind) for part in self.part_totals])[self.replica]
        alone = np.empty(len(self.stream))
        for kind, part in enumerate(self.parts):
            own = kinds == kind
            if own.any():
                alone[own] = _core.latencies_alone_s(
                    part.instance,
                    part.plan.task.mix,
                    self.stream.input_tokens[own],
                    self.stream.output_tokens[own],
                )
        found = (self.finished_s - self.stream.arrival_s) / alone
        return np.where(self.refused, np.nan, found)

    @cached_property
    def tenant_slowdowns(self) -> pd.DataFrame:
        """One row per tenant: tenant, requests (served), slowdown_mean, slowdown_p99."""
        import pandas as pd

        tenant = optional_column(self.stream, "tenant", np.int64)
        table = pd.DataFrame({"tenant": tenant if tenant.size else 0, "slowdown": self.slowdowns})
        groups = table[~self.refused].groupby("tenant")["slowdown"]
        found = groups.agg(requests="count", slowdown_mean="mean")
        found["slowdown_p99"] = groups.quantile(0.99)
        return found.reset_index()

    @property
    def slowdown_fairness(self) -> float:
        """Jain's index of the tenants' mean slowdown: 1 where all wait alike."""
        means = self.tenant_slowdowns["slowdown_mean"].to_numpy(dtype=np.float64)
        return float(_core.jain_index(means))

    @cached_property
    def cache_levels(self) -> pd.DataFrame:
        """One row per level that prompts were served from: the KV cache, then each tier.

        Columns: level (0: the KV cache), requests (whose deepest it was), tokens (found there),
        hit_fraction (of prompt tokens), read_bytes, written_bytes, read_busy_fraction,
        write_busy_fraction (of the span; means over replicas of tiers that each has for itself),
        read_wait_s (mean of a hit behind other reads), ttft_mean_s (of the requests whose deepest
        it was). The last row, level -1, has the requests without a hit.
        """
        import pandas as pd

        served = ~self.refused
        prompts = max(1.0, float(self.stream.input_tokens[served].sum()))
        deepest = self.fates[:, 1] if self.fates.size else np.zeros(len(self.stream), np.uint8)
        level = np.where(self.cached_tokens > 0, deepest.astype(np.int64), -1)
        ttft = self.first_token_s - self.stream.arrival_s
        below = sum(total.hit_tokens for total in self.tier_totals)
        copies = len(self.part_totals)
        rows = []
        for place in [*range(len(self.tiers) + 1), -1]:
            own = served & (level == place)
            row = {"level": place, "requests": int(own.sum()), "tokens": 0.0, "hit_fraction": 0.0}
            if place == 0:
                row["tokens"] = max(0.0, float(self.cached_tokens[served].sum()) - below)
            if place > 0:
                total, tier = self.tier_totals[place - 1], self.tiers[place - 1]
                span = self.totals.makespan_s * (1 if tier.shared else copies)
                row |= {
                    "tokens": total.hit_tokens,
                    "read_bytes": total.read_bytes,
                    "written_bytes": total.written_bytes,
                    "read_busy_fraction": total.read_busy_s / span,
                    "write_busy_fraction": total.write_busy_s / span,
                    "read_wait_s": total.read_wait_s / max(1.0, total.hits),
                }
            row["hit_fraction"] = row["tokens"] / prompts
            row["ttft_mean_s"] = float(ttft[own].mean()) if own.any() else float("nan")
            rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def replicas(self) -> pd.DataFrame:
        """One row per replica.

        Columns: kind (its place in `parts`), cluster, layout, requests (finished), refused,
        input_tokens, output_tokens, cached_tokens, hit_fraction (cached of input), busy_fraction
        (of the span), running and queue (mean over the span: in decode, and before their first
        token), max_in_system, preemptions, online_s (from start-up to its last token, paid for),
        power_w (mean of all its accelerators over the span).
        """
        import pandas as pd

        span = self.totals.makespan_s
        rows = []
        powers = [self._busy_power_w(kind) for kind in range(len(self.parts))]
        for part in self.part_totals:
            kind, stream = int(part.kind), part.stream
            plan = self.parts[kind].plan
            idle_w = ranks_of(plan.layout) * float(plan.cluster.core.accelerator.power.idle_w)
            busy = stream.busy_s / span
            rows.append(
                {
                    "kind": kind,
                    "cluster": plan.cluster.name,
                    "layout": layout_text(plan.layout),
                    "requests": part.requests,
                    "refused": part.refused,
                    "input_tokens": part.input_tokens,
                    "output_tokens": part.output_tokens,
                    "cached_tokens": part.cached_tokens,
                    "hit_fraction": part.cached_tokens / max(1.0, part.input_tokens),
                    "busy_fraction": busy,
                    "running": stream.running_s / span,
                    "queue": (stream.in_system_s - stream.running_s) / span,
                    "max_in_system": part.max_in_system,
                    "preemptions": stream.preemptions,
                    "online_s": part.online_s,
                    "power_w": _core.mean_power_w(part, span, powers[kind], idle_w),
                }
            )
        return pd.DataFrame(rows)

    def _busy_power_w(self, kind: int) -> float:
        """Watts of a replica while it works, at the mean concurrency of its kind."""
        kept = self.parts[kind]
        plan = kept.plan
        own = [part.stream for part in self.part_totals if int(part.kind) == kind]
        busy = sum(stream.busy_s for stream in own)
        running = sum(stream.running_s for stream in own) / busy if busy else 0.0
        return instance_power_w(
            plan.model,
            plan.cluster,
            plan.task,
            kept.instance,
            max(1.0, running),
            plan.expert_cluster,
        )

    @property
    def scaling(self) -> pd.DataFrame:
        """One row per change of the number of replicas: time_s, online, starting.

        Times are in the clock of the arrivals; the first row is the beginning.
        """
        import pandas as pd

        return pd.DataFrame(self.scale_events, columns=["time_s", "online", "starting"])

    @cached_property
    def tenants(self) -> pd.DataFrame:
        """One row per tenant of the trace, or one for all.

        Columns: tenant, requests (served), refused, output_tokens, ttft_mean_s, ttft_p99_s,
        tpot_mean_s, token_rate (output tokens per second of latency, mean over its requests),
        goodput_fraction.
        """
        import pandas as pd

        table = self.requests
        tenants = table["tenant"] if "tenant" in table else pd.Series(0, table.index, name="tenant")
        rows = []
        for tenant, own in table.groupby(tenants):
            served = own[~own["refused"]]
            rates = served["output_tokens"] / served["latency_s"]
            rows.append(
                {
                    "tenant": tenant,
                    "requests": len(served),
                    "refused": int(own["refused"].sum()),
                    "output_tokens": served["output_tokens"].sum(),
                    "ttft_mean_s": served["ttft_s"].mean(),
                    "ttft_p99_s": served["ttft_s"].quantile(0.99),
                    "tpot_mean_s": served["tpot_s"].mean(),
                    "token_rate": rates.mean(),
                    "goodput_fraction": own["within_limits"].mean(),
                }
            )
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, float]:
        """Rates, means and percentiles, as of a stream, and what the fleet adds.

        hit_fraction (prompt tokens found in prefix caches), busy_fraction, goodput_fraction and
        goodput_requests_per_s (of requests within their limits, refused ones count as not),
        fairness (Jain's index of the tenants' token_rate), accelerators, online_replicas (mean
        over the span), energy_j, cost_usd and usd_per_million_output_tokens (of the time that
        replicas are online; without them where a price is not known). Where replicas fail or
        requests are turned away also failures (of replicas), retried, lost and shed (requests).

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=500, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=2)
        >>> trace = sm.request_stream(task, requests=500, requests_per_s=20)
        >>> found = sm.simulate_fleet(trace, plan, limits={"ttft_s": 0.2}).summary()
        >>> 0 < found["goodput_fraction"] <= 1, found["accelerators"]
        (True, 2.0)
        """
        found = super().summary()
        span, table = self.totals.makespan_s, self.requests
        served = ~self.refused
        good = float(table["within_limits"].sum())
        prompts = float(self.stream.input_tokens[served].sum())
        replicas = self.replicas
        found |= {
            "hit_fraction": float(self.cached_tokens[served].sum()) / max(1.0, prompts),
            "busy_fraction": float(replicas["busy_fraction"].mean()),
            "goodput_fraction": good / len(table),
            "goodput_requests_per_s": good / span,
            "fairness": float(_core.jain_index(self.tenants["token_rate"].fillna(0.0).to_numpy())),
            "accelerators": float(sum(part.accelerators for part in self.parts)),
            "energy_j": float(replicas["power_w"].sum()) * span,
        }
        if self.fates.size:
            found["failures"] = self.failures
            found["retried"] = float((self.fates[:, 2] > 0).sum())
            for name in ("lost", "shed"):
                found[name] = float((self.fates[:, 0] == REFUSALS.index(name)).sum())
        parts, online = self.parts, replicas.groupby("kind")["online_s"].sum()
        prices = {k: FleetPart(p.plan, 1).price_usd_per_s for k, p in enumerate(parts) if p.count}
        found["online_replicas"] = float(replicas["online_s"].sum()) / span
        tokens = float(self.stream.output_tokens[served].sum())
        if all(prices.values()):
            found["cost_usd"] = float(sum(price * online[k] for k, price in prices.items()))
            if tokens:
                found["usd_per_million_output_tokens"] = 1e6 * found["cost_usd"] / tokens
        return found
