"""Many rates of arrival in one call."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel as sm
from scalemodel import _core

TASK = sm.Inference(input_tokens=1000, output_tokens=200, precision="fp8")
#: Deployments whose steps are computed several at a time, and one whose steps are not.
PLANS = {
    "one rank": ("llama3_8b", "dgx_h100", sm.ServingLayout(), "vllm"),
    "tensor ranks": ("llama3_70b", "dgx_h100", sm.ServingLayout(tp=4), "sglang"),
    "experts": ("mixtral_8x7b", "dgx_h100", sm.ServingLayout(tp=2, ep=2), "vllm"),
    "stages": ("llama3_70b", "dgx_h100", sm.ServingLayout(tp=2, pp=2), "vllm"),
}
FIELDS = [str(row["name"]) for row in _core.SteadyState.fields()]


@pytest.mark.parametrize("name", PLANS)
def test_a_sweep_of_rates_is_each_of_them(name: str) -> None:
    model, cluster, layout, engine = PLANS[name]
    plan = sm.serve(model, cluster, TASK, layout, engine=engine, replicas=1)
    assert plan.state is not None
    assert plan.instance is not None
    most = plan.state.requests_per_s
    rates = most * np.array([0, 1e-9, *np.linspace(0.03, 1.1, 42)])
    table = plan.at_rates(rates)
    assert list(table.columns) == ["arriving_per_s", *FIELDS]
    assert table.arriving_per_s.tolist() == rates.tolist()
    assert 2 <= table.saturated.sum() < 20
    for rate, row in zip(rates, table.itertuples(index=False), strict=True):
        state = plan.instance.steady_state_at(TASK.mix, rate)
        for field in FIELDS:
            assert getattr(row, field) == pytest.approx(getattr(state, field), rel=1e-12, abs=1e-14)


def test_replicas_share_what_arrives() -> None:
    one = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1).at_rates([2.0, 4.0])
    eight = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=8).at_rates([16.0, 32.0])
    assert eight[FIELDS].equals(one[FIELDS])


def test_rates_that_are_none_are_refused() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    assert plan.at_rates([]).empty
    with pytest.raises(ValueError, match="requests_per_s=-1"):
        plan.at_rates([1, -1])
    with pytest.raises(ValueError, match="requests_per_s=nan"):
        plan.at_rates([float("nan")])
    with pytest.raises(ValueError, match="requests_per_s: must have one dimension"):
        plan.at_rates(np.ones((2, 2)))
    with pytest.raises(sm.ScaleModelError, match="requests_per_s='many': must be numbers"):
        plan.at_rates("many")
    full = sm.serve("llama3_70b", "dgx_h100", TASK.replace(precision="bf16"), replicas=1)
    assert full.verdict == "out_of_memory"
    with pytest.raises(sm.ScaleModelError, match=r"at_rates: the plan does not run"):
        full.at_rates([1])
