"""``time_shifts``: when jobs that share links should communicate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.route import as_fabric, as_traffic, options_of
from scalemodel.routing.schedules import schedules_of
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster


@named_arguments
def time_shifts(
    fabric: Fabric | Cluster,
    jobs: Traffic | pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    policy: str = "balanced",
    finest: int = 40,
    seed: int = 0,
    effort: float = 1.0,
) -> pd.DataFrame:
    """Shift periodic jobs against each other, so that they do not communicate at the same time.

    Routing decides who shares a link, the shift when. A job alone occupies its links during its
    collective and leaves them idle while it computes; the shifts minimise what the jobs of a link
    demand above its capacity, over a circle that all periods divide. Source: CASSINI (NSDI 2024,
    arXiv 2308.00852). Shifts last where periods fit each other; other jobs drift apart.

    Parameters
    ----------
    fabric, jobs, policy, effort
        As in `route`. Collectives and computation are those of the traffic.
    finest : int
        Slots at most in the shortest period, 8 to 128; periods are rounded to slots.
    seed : int
        Of the search.

    Returns
    -------
    DataFrame, one row per job
        Columns job, period_s, communication_s (alone), shift_s: pass it to `simulate_network` as
        ``start_s``. ``attrs``: score (one less the mean excess over the capacity of shared links)
        and score_before, slot_s, slots of the circle, period_error_fraction by rounding.

    Raises
    ------
    ScaleModelError : as `route`; the policy ``milp`` has no place here.

    Examples
    --------
    Two jobs that send half of the time over the only spine:

    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=4, bandwidth="10 GB/s")
    >>> jobs = [{"pattern": "chain", "nics": [nic, 4 + nic], "size_bytes": 1e9, "compute_s": 0.1}
    ...         for nic in (0, 1)]
    >>> table = sm.time_shifts(fabric, jobs)
    >>> table.shift_s.round(3).tolist(), round(table.attrs["score"], 6)
    ([0.0, 0.1], 1.0)
    >>> float(sm.simulate_network(fabric, jobs, start_s=table.shift_s).slowdown.max().round(3))
    1.0
    """
    import pandas as pd

    if policy == "milp":
        raise ScaleModelError("policy='milp': is not shifted; balanced is as good or better")
    if not 8 <= finest <= 128:
        raise ScaleModelError(f"finest={finest!r}: must be 8 to 128")
    fabric, traffic = as_fabric(fabric), as_traffic(jobs)
    options = options_of(policy, "fair_share", seed=seed, effort=effort)
    answer = _core.time_shifts(
        fabric.core, traffic.core, options, schedules_of(traffic, 1, 0.0), finest
    )
    frame = pd.DataFrame({"job": traffic.names})
    for name in ("period_s", "communication_s", "shift_s"):
        frame[name] = answer.pop(name)
    frame.attrs = answer
    return frame
