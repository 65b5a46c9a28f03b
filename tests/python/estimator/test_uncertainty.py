"""Laws of intervals: what they hold, when they widen, what they are made of."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import time_text
from scalemodel.estimator import uncertainty
from scalemodel.estimator.uncertainty import (
    Cell,
    CellKey,
    Seen,
    Situation,
    Uncertainty,
    embedded,
    keys_of,
)
from scalemodel.validation import residuals
from scalemodel.validation.prediction import Prediction
from scalemodel.validation.residuals import Measured, Residual, residuals_of, uncertainty_of

TASK = sm.Training(global_batch=64, sequence=8192)
HOPPER = Situation("named", "h100_sxm_80", "hopper", "16bit", 64, 4096, 8e9)

SITUATIONS = st.builds(
    Situation,
    constants=st.sampled_from(["named", "plain"]),
    accelerator=st.sampled_from(["h100_sxm_80", "a100_sxm_80", "mi300x", "none"]),
    architecture=st.sampled_from(["hopper", "ampere", "blackwell", "cdna3", ""]),
    precision=st.sampled_from(["16bit", "fp8", "fp4", "32bit"]),
    accelerators=st.integers(1, 1_000_000),
    sequence=st.integers(1, 10_000_000),
    parameters=st.floats(1e6, 1e14),
    kind=st.sampled_from(["dense", "experts", "tuning", ""]),
    vendor=st.sampled_from(["NVIDIA", "AMD", ""]),
    strange=st.booleans(),
)


# ------------------------------------------------------------------------------------- estimates
@given(situation=SITUATIONS, step_time_s=st.floats(1e-6, 1e6))
def test_an_interval_holds_its_prediction_in_its_middle(
    situation: Situation, step_time_s: float
) -> None:
    interval = embedded().interval(situation, step_time_s)
    assert interval is not None
    assert 0 < interval.low_s < step_time_s < interval.high_s < math.inf
    assert math.sqrt(interval.low_s * interval.high_s) == pytest.approx(step_time_s)
    assert interval.coverage_fraction == 0.8


@given(situation=SITUATIONS)
def test_extrapolation_never_narrows(situation: Situation) -> None:
    inside = Uncertainty(0.8, embedded().cells, embedded().seen, {}, embedded().scales)
    narrow, wide = inside.factor(situation), embedded().factor(situation)
    assert narrow is not None
    assert wide is not None
    assert wide >= narrow > 1
    if not embedded().reasons(situation):
        assert wide == narrow


@given(situation=SITUATIONS)
def test_a_larger_question_never_has_fewer_reasons(situation: Situation) -> None:
    larger = situation._replace(
        accelerators=situation.accelerators * 2, sequence=situation.sequence * 2
    )
    assert set(embedded().reasons(situation)) <= set(embedded().reasons(larger))


def estimate(cluster: object = "dgx_h100", stack: str = "plain", **task: object) -> sm.Estimate:
    resolved = cluster if isinstance(cluster, sm.Cluster) else sm.cluster(cluster)  # type: ignore[arg-type]
    return sm.estimate("llama3_8b", resolved, TASK.replace(**task), sm.Strategy(tp=2), stack=stack)


def test_an_estimate_tells_its_interval_everywhere() -> None:
    est = estimate()
    interval = est.interval()
    assert interval is not None
    assert (est.step_time_low_s, est.step_time_high_s) == interval[:2]
    row = est.to_dict()
    assert [row[name] for name in ("step_time_low_s", "step_time_high_s")] == list(interval[:2])
    assert row["extrapolates"] == ""
    assert f"({time_text(interval.low_s)} to {time_text(interval.high_s)})" in repr(est)
    assert est.explain("step_time").inputs["low_s"] == interval.low_s
    assert "80 %" in est._repr_html_()
    assert set(est.row()) == set(row) - {"step_time_low_s", "step_time_high_s", "extrapolates"}


def test_an_illegal_strategy_has_no_interval() -> None:
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=7))
    assert est.interval() is None
    assert est.step_time_low_s is None
    assert est.step_time_high_s is None
    assert est.to_dict()["step_time_high_s"] is None


@pytest.mark.parametrize(
    ("cluster", "task", "named"),
    [
        ({"accelerator": "MI300X"}, {}, "architecture cdna3"),
        ({"accelerator": "MI300X"}, {}, "run on mi300x"),
        ({"accelerator": "H100"}, {"precision": "fp32"}, "no measured 32bit run on hopper"),
        ({"accelerator": "H100"}, {"sequence": 1 << 20}, "1,048,576 tokens per sequence"),
    ],
)
def test_extrapolation_is_named(cluster: object, task: dict[str, object], named: str) -> None:
    est = estimate(cluster, **task)
    assert any(named in reason for reason in est.extrapolates)
    assert named in est.to_dict()["extrapolates"]
    assert named in str(est.explain("step_time").inputs["extrapolates"])
    assert "extrapolates:" in est._repr_html_()


def test_more_accelerators_than_were_ever_measured() -> None:
    most = max(item.accelerators for item in embedded().seen)

    def at(count: int) -> sm.Estimate:
        task = TASK.replace(global_batch=count)
        return sm.estimate("llama3_8b", sm.cluster("dgx_h100", accelerators=count), task)

    (reason,) = at(16384).extrapolates
    assert reason == f"16,384 accelerators: measured up to {most:,}"
    assert at(64).extrapolates == ()
    assert at(int(most)).extrapolates == ()  # as many as were measured are not more


def test_a_named_stack_is_judged_by_named_stacks() -> None:
    plain, named = estimate(), estimate(stack="nemo_mcore_2024_25")
    cells = embedded().cells
    for est, constants in ((plain, "plain"), (named, "named")):
        situation = uncertainty.situation_of(est)
        assert situation.constants == constants
        assert embedded().cell(situation) in [cells.get(key) for key in keys_of(situation)]


def test_a_private_table_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = catalog.path_of("reference", "uncertainty").read_text(encoding="utf-8")
    (tmp_path / "reference").mkdir()
    path = tmp_path / "reference" / "uncertainty.toml"
    path.write_text(text.replace("h100_sxm_80", "other"), encoding="utf-8")
    assert estimate().extrapolates == ()
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert estimate().extrapolates == ("no measured run on h100_sxm_80",)


# ----------------------------------------------------------------------------------------- cells
def test_the_finest_cell_that_holds_enough_runs_counts() -> None:
    cells = {key: Cell(1.1 + 0.1 * i, 20, 4) for i, key in enumerate(keys_of(HOPPER))}
    seen = (Seen("h100_sxm_80", "hopper", "16bit", 80, 512, 8192, 7e10),)
    for key in keys_of(HOPPER):
        known = Uncertainty(0.8, dict(cells), seen, {})
        assert known.factor(HOPPER) == cells[key].factor
        del cells[key]
    assert Uncertainty(0.8, {}, seen, {}).factor(HOPPER) is None
    assert Uncertainty(0.8, {}, seen, {}).interval(HOPPER, 1.0) is None


def test_the_committed_cells_are_sound() -> None:
    known = embedded()
    assert {key.constants for key in known.cells} == {"named", "plain"}
    usual = residuals.LEAST_ROWS, residuals.LEAST_SOURCES
    for key, cell in known.cells.items():
        least_rows, least_sources = residuals.LEAST_CLASS if key.evidence else usual
        assert 1 < cell.factor < 3
        assert cell.rows >= least_rows
        assert cell.sources >= least_sources
    assert {key.evidence for key in known.cells} == {"", "submission", "cut", "functional"}
    for constants in ("named", "plain"):
        assert CellKey(constants) in known.cells
    assert all(factor >= 1 for factor in known.widening.values())
    kinds = {"architecture", "accelerator", "precision", "accelerators", "sequence", "parameters"}
    assert set(known.widening) == kinds | {"vendor", "kind", "constants"}
    stacks = set(known.scales) - {uncertainty.OTHER_STACKS}
    assert {catalog.find("stacks", stack) for stack in stacks} == stacks
    assert known.scales[uncertainty.OTHER_STACKS] >= 1
    assert all(0.5 < scale < 2 for scale in known.scales.values())
    accelerators = {catalog.find("accelerators", item.accelerator) for item in known.seen}
    assert {"a100_sxm_80", "h100_sxm_80", "b200"} <= accelerators


# ------------------------------------------------------------------------------------- residuals
def drawn(seed: int, sources: int = 12, rows: int = 40, between: float = 0.1) -> list[Residual]:
    """Residuals of sources that each err in their own direction, and scatter around it."""
    chance = random.Random(seed)
    found = []
    for source in range(sources):
        shift = chance.gauss(0, between)
        found += [
            Residual(f"s{source}", HOPPER, chance.gauss(shift, 0.05), rows**-0.5)
            for _ in range(rows)
        ]
    return found


def test_intervals_hold_a_new_source_as_often_as_they_promise() -> None:
    held = total = 0
    for seed in range(60):
        *known, new = (drawn(seed)[i : i + 40] for i in range(0, 480, 40))
        found = uncertainty_of([item for part in known for item in part])
        factor = found.factor(HOPPER)
        assert factor is not None
        held += sum(abs(item.log_ratio) <= math.log(factor) for item in new)
        total += len(new)
    assert 0.74 < held / total < 0.88


def test_sources_that_disagree_widen_intervals() -> None:
    factors = [
        uncertainty_of(drawn(3, between=spread)).factor(HOPPER) for spread in (0.0, 0.1, 0.4)
    ]
    assert factors == sorted(factors)
    assert factors[0] == pytest.approx(math.exp(1.28 * 0.05), rel=0.02)


@given(seed=st.integers(0, 1000))
def test_the_order_of_residuals_does_not_matter(seed: int) -> None:
    rows = drawn(seed, sources=5, rows=8)
    shuffled = random.Random(seed).sample(rows, len(rows))
    one, other = uncertainty_of(rows), uncertainty_of(shuffled)
    assert one.cells == other.cells
    assert one.seen == other.seen


def test_few_sources_promise_nothing() -> None:
    assert uncertainty_of(drawn(1, sources=4)).cells == {}  # with one left out, three
    few, many = (uncertainty_of(drawn(1, sources=count)).factor(HOPPER) for count in (5, 12))
    assert few is not None
    assert many is not None
    assert few > many > 1  # five sources say less of a sixth than twelve of a thirteenth
    assert uncertainty_of([]).factor(HOPPER) is None


def test_what_an_interval_cannot_know_is_named() -> None:
    known = uncertainty_of([*drawn(1), *(tuned(item) for item in drawn(2, sources=2, rows=4))])
    assert not known.reasons(HOPPER)
    new = HOPPER._replace(vendor="AMD", kind="tuning", strange=True)
    assert {"vendor", "kind", "constants"} <= set(known.reasons(new))


def test_rows_that_a_source_repeats_move_no_interval() -> None:
    rows = drawn(4, sources=9, rows=20)
    repeated = rows + 7 * [item for item in rows if item.source == "s2"]
    one, other = uncertainty_of(rows), uncertainty_of(repeated)
    assert {key: cell.factor for key, cell in other.cells.items()} == {
        key: cell.factor for key, cell in one.cells.items()
    }
    wild = [item._replace(stack="else", log_ratio=0.5) for item in rows if item.source == "s2"]
    apart = uncertainty_of(rows + wild)
    assert apart.cells[CellKey("named")].factor > one.cells[CellKey("named")].factor


def test_a_part_of_the_runs_stands_apart_where_many_sources_ran_it() -> None:
    few, many = (uncertainty_of(drawn(3, sources=count)) for count in (7, 8))
    assert set(few.cells) == {CellKey("named")}
    assert CellKey("named", "hopper", "16bit") in many.cells


def tuned(item: Residual) -> Residual:
    return item._replace(situation=HOPPER._replace(kind="tuning", vendor="NVIDIA"))


def test_a_source_is_no_part_of_its_own_interval() -> None:
    rows = drawn(5)
    without = residuals.uncertainties_without(rows)
    wild = [item._replace(log_ratio=9.0) if item.source == "s3" else item for item in rows]
    assert residuals.uncertainties_without(wild)("s3") == without("s3")
    assert residuals.uncertainties_without(wild)("s4") != without("s4")
    assert without("s3") == without("s3")


def of_stacks(
    sizes: dict[str, float], groups: int = 3, rows: int = 12, constants: str = "named"
) -> list[Residual]:
    """Residuals of stacks of a source each that stray by their own size from model to model."""
    found = []
    for stack, size in sizes.items():
        chance = random.Random(stack)
        situation = HOPPER._replace(constants=constants, stack=stack)
        found += [
            Residual(f"of {stack}", situation, chance.gauss(0, size), 1.0, f"{stack}: {i}", stack)
            for i in range(groups)
            for _ in range(rows)
        ]
    return found


SIZES = {f"usual {index}": 0.05 for index in range(8)} | {"calm": 0.02, "wild": 0.2}


def test_a_stack_that_strays_more_has_a_wider_interval() -> None:
    rows = of_stacks(SIZES)
    known = uncertainty_of(rows)
    calm, usual, wild = (
        known.factor(HOPPER._replace(stack=stack)) for stack in ("calm", "usual 3", "wild")
    )
    unheard = known.factor(HOPPER._replace(stack="none of them"))
    assert calm is not None
    assert usual is not None
    assert unheard is not None
    assert wild is not None
    assert 1 < calm < usual < unheard < wild
    plain = HOPPER._replace(constants="plain", stack="wild")
    assert known.scale(plain) == known.scale(HOPPER._replace(evidence="cut", stack="wild")) == 1


def test_a_scale_is_drawn_to_the_usual_one_and_blind_to_its_own_group() -> None:
    scales = residuals.StackScales({"a": {"x": 0.1, "y": 0.3}, "b": {"x": 0.2}})
    assert scales.scale("a") == pytest.approx((1 + 0.4 / 0.2) / (1 + 2))
    assert scales.scale("a", "y") == pytest.approx((1 + 0.1 / 0.2) / (1 + 1))
    assert scales.scale("b", "x") == 1  # of no other group is anything known
    assert scales.scale("c") == 1


def test_a_group_of_a_stack_is_judged_by_the_others() -> None:
    rows = of_stacks(SIZES)
    without = residuals.uncertainties_without(rows)
    wild = HOPPER._replace(stack="wild")
    moved = [item._replace(log_ratio=3.0) if item.group == "wild: 1" else item for item in rows]
    assert residuals.uncertainties_without(moved)("wild: 1").factor(wild) == without(
        "wild: 1"
    ).factor(wild)
    alone, beside = without("of wild").factor(wild), without("wild: 1").factor(wild)
    assert alone is not None
    assert beside is not None
    assert alone < beside  # other models of its source tell how far the stack strays
    assert "wild" not in without("of wild").scales


def test_plain_estimates_have_one_scale() -> None:
    rows = of_stacks(SIZES, constants="plain")
    known = uncertainty_of(rows)
    assert known.scales == {}


def of_class(seed: int, shift: float) -> list[Residual]:
    """Residuals of five groups of one source that err to one side, timed for another purpose."""
    chance = random.Random(seed)
    apart = HOPPER._replace(evidence="cut")
    return [
        Residual("s0", apart, chance.gauss(shift, 0.03), 8**-0.5, f"s0: model {group}")
        for group in range(5)
        for _ in range(8)
    ]


def test_runs_timed_for_another_purpose_have_an_interval_of_their_own() -> None:
    usual, apart = drawn(5, between=0.02), of_class(6, 0.3)
    found = uncertainty_of(usual + apart)
    situation = HOPPER._replace(evidence="cut")
    wide, narrow = found.factor(situation), found.factor(HOPPER)
    assert narrow == uncertainty_of(usual).factor(HOPPER)
    assert wide is not None
    held = sum(abs(item.log_ratio) <= math.log(wide) for item in apart) / len(apart)
    assert 0.75 <= held <= 0.9
    assert uncertainty_of(usual).factor(situation) == narrow  # nothing is known of their kind


def test_a_group_is_no_part_of_its_own_interval() -> None:
    rows = drawn(5) + of_class(6, 0.3)
    group = "s0: model 3"
    without = residuals.uncertainties_without(rows)(group)
    key = CellKey("named", evidence="cut")
    assert without.cells[key].sources == 4
    assert without.cells[key].rows == 32
    assert without.cells[CellKey("named")] == uncertainty_of(rows).cells[CellKey("named")]


def test_worse_predictions_of_an_architecture_left_out_widen_what_extrapolates() -> None:
    rows = drawn(2, between=0.0)
    turned = [
        item._replace(
            situation=HOPPER._replace(architecture="cdna3", accelerator="mi300x"),
            log_ratio=4 * item.log_ratio,
        )
        for item in drawn(7, sources=6, between=0.0)
    ]
    found = uncertainty_of(rows + turned)
    assert found.widening["architecture"] > 1.5
    assert uncertainty_of(rows).widening["architecture"] == 1


def test_skipped_rows_have_no_residual() -> None:
    good = Prediction(step_time_s=2.0, situation=HOPPER)
    skipped = Prediction(skip_reason="missing:gpu")
    rows = residuals_of([Measured("a", good, 4.0), Measured("a", skipped, 1.0)])
    assert [(item.source, item.weight) for item in rows] == [("a", 1.0)]
    assert rows[0].log_ratio == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("values", "weights", "coverage"),
    [([1.0], [], 0.5), ([1.0], [0.0], 0.5), ([math.nan], [1.0], 0.5), ([1.0], [1.0], 1.0)],
)
def test_malformed_samples_are_refused(
    values: list[float], weights: list[float], coverage: float
) -> None:
    with pytest.raises(sm.ScaleModelError):
        _core.conformal_bound(values, weights, coverage)
    with pytest.raises(sm.ScaleModelError, match="next_weight"):
        _core.conformal_bound([1.0], [1.0], 0.5, next_weight=-1)


# ----------------------------------------------------------------------------------- other files
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sequence = 8192", 'sequence = "x"', "sequence='x'"),
        ("rows = 1,", "rows = true,", "rows=True"),
        ("factor = ", "factors = ", "factor=None"),
        ("seen = [", "seeing = [", "uncertainty.seen"),
    ],
)
def test_values_of_another_type_are_named(old: str, new: str, named: str, tmp_path: Path) -> None:
    text = catalog.path_of("reference", "uncertainty").read_text(encoding="utf-8")
    path = tmp_path / "uncertainty.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ScaleModelError, match=re.escape(named)):
        uncertainty.read(path)
