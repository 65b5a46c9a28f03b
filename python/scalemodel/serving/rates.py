"""A serving plan over the rate of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.serve import Serving, serve

if TYPE_CHECKING:
    import pandas as pd

_POINTS = 24


def rate_table(plan: Serving, requests_per_s: Sequence[float] | None = None) -> pd.DataFrame:
    """First token, time between tokens and concurrency of a plan over the rate of its requests.

    Parameters
    ----------
    plan : Serving
        What `serve` returns; its replicas share the requests.
    requests_per_s : sequence of float, optional
        Rates; 24 up to the most that the plan can finish when left out.

    Returns
    -------
    DataFrame
        Columns requests_per_s, ttft_s, tpot_s, latency_s, concurrency, utilisation_fraction,
        saturated; times to the first token are missing where the plan is saturated.

    Raises
    ------
    ScaleModelError : the plan does not run, or a rate is not above 0.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> table = rate_table(sm.serve("llama3_8b", "dgx_h100", task, replicas=1), [2, 8, 16])
    >>> bool(table.ttft_s.is_monotonic_increasing)
    True
    """
    import pandas as pd

    if not plan.fits:
        raise ScaleModelError(f"plan: it does not run ({plan.verdict})")
    load = ("requests_per_s", "concurrency")
    question: dict[str, Any] = {
        name: value for name, value in plan.options.items() if name not in load
    }
    asked = (plan.model, plan.cluster, plan.task, plan.layout)
    if requests_per_s is None:
        most = serve(*asked, **question).requests_per_s
        rates = list(np.linspace(0, most, _POINTS + 1)[1:])
    else:
        rates = [float(rate) for rate in requests_per_s]
    if not rates or not all(rate > 0 for rate in rates):
        raise ScaleModelError(f"requests_per_s={requests_per_s!r}: must be numbers above 0")
    names = ("ttft_s", "tpot_s", "latency_s", "concurrency", "utilisation_fraction", "saturated")
    rows = []
    for rate in rates:
        found = serve(*asked, requests_per_s=float(rate), **question).to_dict()
        rows.append({"requests_per_s": float(rate), **{name: found[name] for name in names}})
    frame = pd.DataFrame(rows)
    times = ["ttft_s", "latency_s"]
    frame[times] = frame[times].astype(float)
    return frame
