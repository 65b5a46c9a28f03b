"""The same requests on several clusters: tokens per second, per dollar and per joule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.search import DEGREES, plan_serving
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd

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
#: What clusters can be ranked by; larger is better.
MEASURES = (
    "output_tokens_per_s_per_accelerator",
    "output_tokens_per_s",
    "output_tokens_per_usd",
    "output_tokens_per_j",
)


def _best(
    model: Model, cluster: Cluster, task: Inference, engine: str, limits: Mapping[str, Any]
) -> Serving | None:
    """One instance at its best throughput within the limits; None where there is none."""
    steps = [engine_constants(engine_for(engine)).most_tokens]  # as `serve` runs it
    found = plan_serving(model, cluster, task, engine=engine, top=1, most_tokens=steps, **limits)
    if found.best.empty:
        return None
    concurrency = float(found.best["concurrency"].iloc[0])
    return serve(
        model, cluster, task, found.layout(), engine=engine, concurrency=concurrency, replicas=1
    )


def compare_serving(
    model: str | Path | Mapping[str, Any] | Model,
    clusters: Sequence[str | Path | Mapping[str, Any] | Cluster],
    task: Inference,
    *,
    by: str = "output_tokens_per_s_per_accelerator",
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    engine: str = DEFAULT_ENGINE,
) -> pd.DataFrame:
    """The best plan of each cluster under the same limits, side by side.

    Each cluster runs the layout and concurrency of most output tokens per second and accelerator.
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
    ttft_s, tpot_s : float, optional
        At most, as for `plan_serving`.

    Returns
    -------
    DataFrame
        One row per cluster; numbers are missing where nothing meets the limits (verdict
        ``infeasible``) and where an accelerator lacks products of the format
        (``illegal:precision``), dollars where the cluster has no price.

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
    chosen = resolve.model(model)
    rows = []
    for given in clusters:
        cluster = given if isinstance(given, Cluster) else resolve.cluster(given)
        row: dict[str, Any] = {"cluster": cluster.name, "accelerator": cluster.accelerator}
        try:
            plan = _best(chosen, cluster, task, engine, {"ttft_s": ttft_s, "tpot_s": tpot_s})
            row["verdict"] = "infeasible" if plan is None else plan.verdict
        except ScaleModelError as error:
            if error.code != "precision":
                raise
            plan, row["verdict"] = None, "illegal:precision"
        if plan is not None:
            cost = plan.usd_per_million_output_tokens
            answer = plan.to_dict() | {"output_tokens_per_usd": 1e6 / cost if cost else None}
            row |= plan.layout.to_dict() | {name: answer[name] for name in _COLUMNS}
        rows.append(row)
    frame = pd.DataFrame(rows, columns=["cluster", "accelerator", "verdict", *DEGREES, *_COLUMNS])
    frame[list(_COLUMNS)] = frame[list(_COLUMNS)].astype(float)
    return frame.sort_values(by, ascending=False, kind="stable").reset_index(drop=True)
