"""Fronts and knees of tables: right rows, in a useful order, and errors that say what to do."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.search.pareto import knees


@pytest.fixture
def frame() -> pd.DataFrame:
    """Six strategies; the fastest does not fit, one is illegal and has no numbers."""
    return pd.DataFrame(
        {
            "tp": [1, 2, 4, 8, 8, 16],
            "verdict": ["ok", "ok", "ok", "ok", "out_of_memory", "illegal:mesh"],
            "step_time_s": [8.0, 4.0, 3.0, 3.5, 1.0, np.nan],
            "energy_j": [10.0, 11.0, 40.0, 50.0, 5.0, np.nan],
            "tokens_per_s": [1.0, 2.0, 3.0, 2.5, 9.0, np.nan],
        },
        index=["a", "b", "c", "d", "e", "f"],
    )


TIME_AND_ENERGY = ["step_time_s", "energy_j"]


# ------------------------------------------------------------------------------------------ fronts
def test_rows_come_best_first_with_index_and_columns(frame: pd.DataFrame) -> None:
    front = sm.pareto(frame, minimize=TIME_AND_ENERGY)
    assert front.index.tolist() == ["c", "b", "a"]
    pd.testing.assert_frame_equal(front, frame.loc[["c", "b", "a"]])
    by_energy = sm.pareto(frame, minimize=["energy_j", "step_time_s"])
    assert by_energy.index.tolist() == ["a", "b", "c"]


def test_the_first_maximised_column_orders_from_the_largest(frame: pd.DataFrame) -> None:
    front = sm.pareto(frame, maximize=["tp", "tokens_per_s"])
    assert front.tp.tolist() == [8, 4]
    mixed = sm.pareto(frame, minimize="energy_j", maximize="tokens_per_s")
    assert mixed.index.tolist() == ["a", "b", "c"]


def test_only_feasible_rows_count_unless_asked(frame: pd.DataFrame) -> None:
    known = frame.dropna()
    assert sm.pareto(known, TIME_AND_ENERGY, feasible_only=False).index.tolist() == ["e"]
    without = known.drop(columns="verdict")
    assert sm.pareto(without, TIME_AND_ENERGY).index.tolist() == ["e"]


def test_nothing_feasible_leaves_an_empty_front(frame: pd.DataFrame) -> None:
    front = sm.pareto(frame.iloc[4:], TIME_AND_ENERGY)
    assert front.empty
    assert list(front.columns) == list(frame.columns)


def test_equal_rows_stay_together_in_the_order_of_the_table() -> None:
    frame = pd.DataFrame({"a": [2, 1, 2, 1, 3], "b": [1, 2, 1, 2, 1]})
    assert sm.pareto(frame, ["a", "b"]).index.tolist() == [1, 3, 0, 2]


def test_labels_may_repeat() -> None:
    frame = pd.DataFrame({"a": [2.0, 1.0, 3.0], "b": [1.0, 2.0, 3.0]}, index=[7, 7, 7])
    assert sm.pareto(frame, ["a", "b"]).a.tolist() == [1.0, 2.0]


def test_infinite_values_are_values() -> None:
    frame = pd.DataFrame({"a": [np.inf, 1.0, -np.inf], "b": [0.0, np.inf, np.inf]})
    assert sm.pareto(frame, ["a", "b"]).index.tolist() == [2, 0]


def test_a_ranking_is_taken_by_its_table(frame: pd.DataFrame) -> None:
    ranking = SimpleNamespace(table=frame)
    pd.testing.assert_frame_equal(
        sm.pareto(ranking, TIME_AND_ENERGY), sm.pareto(frame, TIME_AND_ENERGY)
    )


def test_the_front_remembers_its_objectives_and_the_table_stays_as_it_was(
    frame: pd.DataFrame,
) -> None:
    frame.attrs["stack"] = "plain"
    before = frame.copy()
    front = sm.pareto(frame, minimize="energy_j", maximize=("tokens_per_s",))
    assert front.attrs == {
        "stack": "plain",
        "minimize": ["energy_j"],
        "maximize": ["tokens_per_s"],
    }
    pd.testing.assert_frame_equal(frame, before)
    assert frame.attrs == {"stack": "plain"}


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32", "Int64", "Float64", object])
def test_any_column_of_numbers_will_do(dtype: Any) -> None:
    frame = pd.DataFrame({"a": [3, 1, 2], "b": [1, 3, 3]}).astype(dtype)
    assert sm.pareto(frame, ["a", "b"]).index.tolist() == [1, 0]


def test_unsigned_columns_can_be_maximised() -> None:
    frame = pd.DataFrame({"a": [0, 1, 255], "b": [9, 9, 1]}, dtype="uint8")
    assert sm.pareto(frame, maximize=["a", "b"]).index.tolist() == [2, 1]


def test_a_sweep_of_estimates_has_a_front() -> None:
    task = sm.Training(global_batch=256, sequence=8192)
    cluster = sm.cluster("dgx_h100", nodes=8)
    rows = [
        sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=tp, pp=pp, micro_batch=m)).to_dict()
        for tp in (1, 2, 4, 8, 16)
        for pp in (1, 2, 4, 5)
        for m in (1, 2)
    ]
    frame = pd.DataFrame(rows)
    assert frame.verdict.str.startswith("illegal").any()
    objectives = ["step_time_s", "memory_bytes"]
    front = sm.pareto(frame, objectives)
    assert len(front) > 1
    feasible = frame[frame.verdict == "ok"]
    for row in front.itertuples():
        better = (feasible.step_time_s <= row.step_time_s) & (
            feasible.memory_bytes < row.memory_bytes
        )
        assert not better.any()
    assert front.step_time_s.iloc[0] == feasible.step_time_s.min()
    assert front.memory_bytes.iloc[-1] == feasible.memory_bytes.min()


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_a_million_rows_against_the_definition(objectives: int) -> None:
    random = np.random.default_rng(7)
    names = list("abcd"[:objectives])
    frame = pd.DataFrame(random.random((1_000_000, objectives)), columns=names)
    front = sm.pareto(frame, names)
    values, kept = frame.to_numpy(), front.to_numpy()
    on_front = frame.index.isin(front.index)
    for row in random.choice(len(frame), 2_000, replace=False):
        beaten = ((kept <= values[row]).all(axis=1) & (kept < values[row]).any(axis=1)).any()
        assert beaten != on_front[row]
    for row in kept[:: max(1, len(kept) // 20)]:
        assert not ((values <= row).all(axis=1) & (values < row).any(axis=1)).any()


# ------------------------------------------------------------------------------------------ errors
@pytest.mark.parametrize(
    ("minimize", "maximize", "complaint"),
    [
        (["step_time_s", "enery_j"], (), r"minimize='enery_j'.*did you mean 'energy_j'"),
        ("step_time_s", "tokens_per_", r"maximize='tokens_per_'.*'tokens_per_s'"),
        (["step_time_s", "verdict"], (), r"minimize='verdict': holds .*real numbers"),
        ("step_time_s", (), "1 objectives; a front has 2 to 4"),
        ((), (), "0 objectives"),
        (["tp", "step_time_s", "energy_j"], ["tokens_per_s", "verdict"], "5 objectives"),
        ("step_time_s", "step_time_s", "'step_time_s' is named twice"),
        (["step_time_s", "step_time_s"], (), "'step_time_s' is named twice"),
        ([1, 2], (), r"minimize=\[1, 2\]: must be names of columns"),
    ],
)
def test_a_question_without_sense_is_refused(
    frame: pd.DataFrame, minimize: Any, maximize: Any, complaint: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=complaint):
        sm.pareto(frame, minimize, maximize)
    with pytest.raises(sm.ScaleModelError, match=complaint):
        knees(frame, minimize, maximize)


def test_a_missing_value_names_column_row_and_remedy(frame: pd.DataFrame) -> None:
    frame.loc[["b", "d"], "energy_j"] = np.nan
    with pytest.raises(sm.ScaleModelError, match="column 'energy_j': 2 of 4 rows") as caught:
        sm.pareto(frame, TIME_AND_ENERGY)
    assert "labelled 'b'" in str(caught.value)
    assert "dropna(subset=['energy_j'])" in str(caught.value)
    assert caught.value.code == "missing_value"
    assert len(sm.pareto(frame.dropna(subset=["energy_j"]), TIME_AND_ENERGY)) == 2


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="frame=list: must be a DataFrame"):
        sm.pareto([1, 2], ["a", "b"])
    with pytest.raises(sm.ScaleModelError, match="front=dict"):
        knees({}, ["a", "b"])


def test_columns_of_one_name_and_of_other_kinds_are_refused() -> None:
    double = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "a", "b"])
    with pytest.raises(sm.ScaleModelError, match="more than one such column"):
        sm.pareto(double, ["a", "b"])
    for odd in ([1j, 2j], ["1", "2"], pd.to_datetime(["2024-01-01", "2024-01-02"]), [1, "x"]):
        with pytest.raises(sm.ScaleModelError, match="must be a column of real numbers"):
            sm.pareto(pd.DataFrame({"a": odd, "b": [1.0, 2.0]}), ["a", "b"])


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ([[1.0]], "1 objectives"),
        ([[1.0]] * 5, "5 objectives"),
        ([[1.0], [1.0, 2.0]], "column 1 has 2 rows; column 0 has 1"),
        ([[1.0, 2.0], [0.0, np.nan]], "column 1, row 1 is NaN"),
        ([[[1.0]], [[1.0]]], "one dimension"),
    ],
)
def test_the_engine_checks_for_itself(columns: Any, complaint: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=complaint):
        _core.pareto_front([np.array(column) for column in columns])


def test_other_threads_run_during_a_long_front() -> None:
    random = np.random.default_rng(3)
    columns = list(random.random((3, 200_000)))
    columns.append(-np.sum(columns, axis=0))
    done = threading.Event()

    def work() -> None:
        _core.pareto_front(columns)
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    turns = 0
    while not done.is_set():
        time.sleep(0.001)
        turns += 1
    worker.join()
    assert turns > 5  # with the lock held there would be one or two


# ------------------------------------------------------------------------------------------- knees
def curve(points: int = 101) -> pd.DataFrame:
    """y = 1/x over half a decade: the knee is where the slope is that of the chord."""
    x = np.linspace(1, 5, points)
    return pd.DataFrame({"x": x, "y": 1 / x})


def test_the_knee_is_where_the_slope_equals_the_chord() -> None:
    (x,) = knees(curve(4001), ["x", "y"]).x
    assert x == pytest.approx(np.sqrt(5), rel=1e-3)  # chord from (1, 1) to (5, 1/5): slope -1/5


def test_units_move_no_knee() -> None:
    front = curve()
    (label,) = knees(front, ["x", "y"]).index
    for factor in (1e-9, 7.0, 1e12):
        scaled = front.assign(y=front.y * factor)
        assert knees(scaled, ["x", "y"]).index.tolist() == [label]


def test_over_decades_the_axes_are_logarithmic() -> None:
    """y = x^-2 below 10 and x^-0.5 above is two straight lines on log axes: the knee is at 10."""
    x = np.logspace(0, 2, 201)
    front = pd.DataFrame({"x": x, "y": np.where(x < 10, x**-2.0, 10**-1.5 * x**-0.5)})
    (knee,) = knees(front, ["x", "y"]).x
    assert knee == pytest.approx(10)


def test_maximised_objectives_bend_the_other_way() -> None:
    front = curve()
    mirrored = front.assign(y=-front.y)
    expected = knees(front, ["x", "y"]).index.tolist()
    assert knees(mirrored, minimize="x", maximize="y").index.tolist() == expected
    # On log axes a maximised value and its minimised reciprocal are the same objective.
    x = np.logspace(0, 2, 201)
    wide = pd.DataFrame({"x": x, "y": 1 / (x + x**2)})
    wide["rate"] = 1 / wide.y
    assert (
        knees(wide, minimize="x", maximize="rate").index.tolist()
        == knees(wide, minimize=["x", "y"]).index.tolist()
    )


def test_each_further_knee_is_a_bend_of_its_own() -> None:
    front = pd.DataFrame(
        {"x": [0.0, 1, 2, 3, 4, 5, 6, 7, 8], "y": [8.0, 4, 3.8, 3.7, 3.6, 1, 0.8, 0.7, 0]}
    )
    assert knees(front, ["x", "y"], count=5).x.tolist() == [1, 5]
    assert knees(front, ["x", "y"], count=1).x.tolist() == [1]


@pytest.mark.parametrize(
    "y",
    [[3.0, 2.0, 1.0], [3.0, 2.9, 0.0], [1.0, 1.0, 1.0 - 1e-15]],
    ids=["straight", "hollow", "flat"],
)
def test_a_front_without_a_bulge_has_no_knee(y: list[float]) -> None:
    front = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": y})
    assert knees(front, ["x", "y"], count=3).empty


def test_small_fronts_have_at_most_one_knee() -> None:
    front = curve(2)
    assert knees(front, ["x", "y"]).empty
    assert len(knees(front.iloc[:1], ["x", "y"])) == 1
    assert knees(front.iloc[:0], ["x", "y"]).empty


def test_three_objectives_have_a_knee_too() -> None:
    front = pd.DataFrame(
        [[0.0, 1, 1], [1, 0, 1], [1, 1, 0], [0.2, 0.2, 0.2], [0.1, 0.5, 0.5]], columns=list("abc")
    )
    assert knees(front, list("abc")).index.tolist() == [3]
    assert knees(front, list("abc"), count=9).index.tolist() == [3]


def test_knees_need_finite_values_and_a_whole_count() -> None:
    with pytest.raises(sm.ScaleModelError, match="column 'x': infinite"):
        knees(pd.DataFrame({"x": [1.0, np.inf], "y": [2.0, 1.0]}), ["x", "y"])
    for count in (0, -1, 1.5, True, "2"):
        with pytest.raises(sm.ScaleModelError, match="count="):
            knees(curve(), ["x", "y"], count=count)  # type: ignore[arg-type]


def test_the_largest_floats_have_knees() -> None:
    front = pd.DataFrame({"x": [-1.7e308, -1.6e308, 1.7e308], "y": [1.0, 0.0, -0.1]})
    assert knees(front, ["x", "y"]).index.tolist() == [1]
