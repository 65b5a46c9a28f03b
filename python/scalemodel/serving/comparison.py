"""The same requests on several clusters: tokens per second, per dollar and per joule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.threads import progress_bar
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.limits import LIMITS, limits_of, warn_of_milliseconds
from scalemodel.serving.plans import DEGREES, cells_html, cells_text, plan_row, table_cells
from scalemodel.serving.promises import Promise, checked_load
from scalemodel.serving.search import plans_for, shows_progress
from scalemodel.serving.serve import Serving
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack

    from scalemodel.serving.limits import LatencyLimits

#: Columns of `compare_serving` beside the degrees of the layout.
_COLUMNS = (
    "concurrency",
    "output_tokens_per_s",
    "output_tokens_per_s_per_accelerator",
    "output_tokens_per_usd",
    "output_tokens_per_j",
    "usd_per_million_output_tokens",
    "ttft_s",
    "tpot_s",
    "accelerators",
    "power_w",
)
_OPTIONS = ("clusters", "by", "engine", "requests_per_s", "headroom", "checked", "progress")
#: What clusters can be ranked by; larger is better.
MEASURES = (
    "output_tokens_per_s_per_accelerator",
    "output_tokens_per_s",
    "output_tokens_per_usd",
    "output_tokens_per_j",
)


@dataclass(frozen=True, eq=False, repr=False)
class ServingComparison:
    """The best plan of each cluster, side by side. Made by `compare_serving`.

    Columns of `table` are attributes and items of it.

    Attributes
    ----------
    table : DataFrame
        One row per cluster, best first.
    found : tuple of Serving or None
        The plan of each row.
    limits : dict
        Of latency, by name.

    Examples
    --------
    >>> import scalemodel as sm
    >>> chat = sm.Inference(input_tokens=1000, output_tokens=300)
    >>> found = sm.compare_serving("llama3_8b", ["dgx_h100"], chat, tpot_p99_s=0.02)
    >>> found.found[0].layout, bool(found.table.tpot_p99_s[0] <= 0.02)
    (ServingLayout(), True)
    """

    table: pd.DataFrame
    found: tuple[Serving | None, ...]
    limits: Mapping[str, float]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("table", "found", "limits"):
            raise AttributeError(name)
        return getattr(self.table, name)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *map(str, self.table.columns)})

    def _cells(self) -> list[list[str]]:
        rows = []
        for plan, (_, row) in zip(self.found, self.table.iterrows(), strict=True):
            nothing = {"engine": row["engine"], "replicas": "-", "layout": row["verdict"]}
            nothing |= {"requests_per_s": None, "accelerators": None, "binds": row["binds"]}
            rows.append({"cluster": row["cluster"]} | (nothing if plan is None else plan_row(plan)))
        return table_cells(rows, self.limits, ("cluster",))

    def __repr__(self) -> str:
        return cells_text(self._cells())

    def _repr_html_(self) -> str:
        return cells_html(self._cells(), f"{len(self.table)} clusters")


def _compared(promise: Promise) -> tuple[dict[str, Any], Serving | None]:
    """The row of a cluster and its plan, None where there is none."""
    row: dict[str, Any] = {
        "cluster": promise.cluster.name,
        "accelerator": promise.cluster.accelerator,
        "engine": promise.engine,
        "binds": "",
    }
    steps = [engine_constants(promise.engine).max_batched_tokens]  # as `serve` runs it
    try:
        plans = plans_for(promise, most_tokens=steps, top=1, progress=False)
    except ScaleModelError as error:
        if error.code != "precision":
            raise
        return row | {"verdict": "illegal:precision"}, None
    if not len(plans):
        return row | {"verdict": "infeasible", "binds": plans.binds}, None
    plan: Serving = plans[0]
    cost = plan.usd_per_million_output_tokens
    answer = plan.to_dict() | {"output_tokens_per_usd": 1e6 / cost if cost else None}
    row |= {"verdict": plan.verdict, "binds": plan.binds, "replicas": plan.replicas}
    row |= plan.layout.to_dict() | {key: answer[key] for key in _COLUMNS}
    return row | {key: value for key, value in plan.simulated.items() if LIMITS[key][1]}, plan


@named_arguments
def compare_serving(
    model: str | Path | Mapping[str, Any] | Model,
    clusters: Sequence[str | Path | Mapping[str, Any] | Cluster],
    task: Inference,
    *,
    by: str = "output_tokens_per_s_per_accelerator",
    engine: str = DEFAULT_ENGINE,
    requests_per_s: float | None = None,
    headroom: float = 0.1,
    checked: bool = True,
    progress: bool | Callable[[int, int], object] | None = None,
    **limits: Unpack[LatencyLimits],
) -> ServingComparison:
    """The best plan of each cluster under the same limits of latency, side by side.

    Each cluster runs the layout and concurrency of most output tokens per second and accelerator,
    or the fewest accelerators that carry `requests_per_s`; it is simulated as `plan_serving` does.
    Dollars are those of its price, joules those of its accelerators alone.

    Parameters
    ----------
    model, task, engine
        As for `serve`.
    clusters : sequence
        Each as for `serve`.
    by : str
        What the rows are ordered by, best first: ``"output_tokens_per_s_per_accelerator"``,
        ``"output_tokens_per_s"``, ``"output_tokens_per_usd"`` or ``"output_tokens_per_j"``.
    requests_per_s, headroom, checked, progress, **limits
        As for `plan_serving`; without a rate one instance with sequences kept running.

    Returns
    -------
    ServingComparison
        Shows a short table; `table` is all of it. One row per cluster; numbers are missing where
        nothing meets the limits (verdict ``infeasible``) and where an accelerator lacks products of
        the format (``illegal:precision``), dollars where the cluster has no price.

    Raises
    ------
    ScaleModelError : an unknown name, a number out of range, no cluster.

    Examples
    --------
    >>> import scalemodel as sm
    >>> chat = sm.Inference(input_tokens=1000, output_tokens=300)
    >>> table = sm.compare_serving("llama3_8b", ["dgx_a100", "dgx_h100"], chat, tpot_s=0.03)
    >>> table.cluster.tolist()
    ['dgx_h100', 'dgx_a100']
    """
    import pandas as pd

    if by not in MEASURES:
        raise ScaleModelError(f"by={by!r}: must be one of {', '.join(MEASURES)}")
    if isinstance(clusters, (str, Path, Mapping, Cluster)) or not clusters:
        raise ScaleModelError(f"clusters={clusters!r}: must be a sequence of at least one cluster")
    checked_load(requests_per_s, headroom)
    asked = limits_of(limits, _OPTIONS)
    warn_of_milliseconds(asked)
    chosen, name = resolve.model(model), engine_for(engine)
    if isinstance(task, Inference):
        task = task.read_by(chosen)
    where = [each if isinstance(each, Cluster) else resolve.cluster(each) for each in clusters]
    answers = []
    with progress_bar(shows_progress(progress), len(where), unit=" clusters") as tell:
        for cluster in where:
            promise = Promise(chosen, cluster, task, name, asked, requests_per_s, headroom, checked)
            answers.append(_compared(promise))
            if tell is not None:
                tell(len(answers), len(where))
    percentiles = [
        key for key in LIMITS if LIMITS[key][1] and any(key in row for row, _ in answers)
    ]
    columns = ["cluster", "accelerator", "engine", "verdict", "binds", *DEGREES, "replicas"]
    frame = pd.DataFrame([row for row, _ in answers], columns=[*columns, *_COLUMNS, *percentiles])
    numbers = [*_COLUMNS, *percentiles]
    frame[numbers] = frame[numbers].astype(float)
    frame = frame.sort_values(by, ascending=False, kind="stable")
    plans = tuple(answers[place][1] for place in frame.index)
    return ServingComparison(frame.reset_index(drop=True), plans, asked)
