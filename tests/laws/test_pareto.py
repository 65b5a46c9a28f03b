"""A Pareto front holds exactly what nothing beats, however its rows are ordered, cut or scaled."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import scalemodel as sm
import scalemodel._core as _core

Table = NDArray[np.float64]

# Few different values make many ties and duplicates; floats bring infinities, both zeros and the
# smallest and largest magnitudes.
few_values = st.integers(-3, 3).map(float)
any_float = st.floats(allow_nan=False)


@st.composite
def tables(draw: st.DrawFn, most_rows: int = 60) -> Table:
    """Rows of two to four objectives."""
    shape = (draw(st.integers(0, most_rows)), draw(st.integers(2, 4)))
    return draw(arrays(np.float64, shape, elements=draw(st.sampled_from([few_values, any_float]))))


def front_of(table: Table) -> list[int]:
    """The front in the order of the rows; as answered it is in that of their values."""
    front = _core.pareto_front(list(table.T))
    rows = [(*table[i].tolist(), i) for i in front.tolist()]
    assert rows == sorted(rows)
    return sorted(front.tolist())


def is_dominated(row: Table, table: Table) -> bool:
    """Definition: some row of the table is nowhere larger and somewhere smaller."""
    return bool(((table <= row).all(axis=1) & (table < row).any(axis=1)).any())


def brute_force(table: Table) -> list[int]:
    return [i for i, row in enumerate(table) if not is_dominated(row, table)]


@given(tables())
def test_a_front_is_what_no_row_dominates(table: Table) -> None:
    assert front_of(table) == brute_force(table)


@pytest.mark.parametrize("objectives", [2, 3, 4])
@pytest.mark.parametrize("kind", ["uniform", "tied", "narrow", "all stay", "correlated"])
def test_long_tables_agree_with_the_definition(objectives: int, kind: str) -> None:
    """Long enough for the filter, and for halves of halves."""
    random = np.random.default_rng(objectives)
    rows = 6_000
    table = random.random((rows, objectives))
    if kind == "tied":
        table = np.floor(8 * table)
    elif kind == "narrow":  # a thin shell: many rows stay, and many fall to a single other one
        table[:, -1] = objectives - table[:, :-1].sum(axis=1) + 0.02 * random.random(rows)
    elif kind == "all stay":
        table[:, -1] = -table[:, :-1].sum(axis=1)
    elif kind == "correlated":
        mixing = random.normal(size=(objectives, objectives))
        table = np.exp(random.normal(size=(rows, objectives)) @ mixing)
    on_front = np.zeros(rows, dtype=bool)
    on_front[front_of(table)] = True
    for row in random.choice(rows, 1_500, replace=False):
        assert on_front[row] != is_dominated(table[row], table)


@given(tables())
def test_the_front_of_a_front_is_itself(table: Table) -> None:
    kept = table[front_of(table)]
    assert front_of(kept) == list(range(len(kept)))


@given(tables(), st.data())
def test_fronts_of_parts_merge_to_the_front_of_the_whole(table: Table, data: st.DataObject) -> None:
    part = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(table), max_size=len(table))), dtype=int
    )
    rows = np.arange(len(table))
    fronts = [rows[part == p][front_of(table[part == p])] for p in range(3)]
    whole = rows[front_of(table)].tolist()

    def merged(*parts: NDArray[np.int64]) -> NDArray[np.int64]:
        together = np.sort(np.concatenate(parts))
        return together[front_of(table[together])]

    assert merged(*fronts).tolist() == whole
    assert merged(merged(fronts[0], fronts[1]), fronts[2]).tolist() == whole
    assert merged(fronts[0], merged(fronts[1], fronts[2])).tolist() == whole


@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_of_objectives_does_not_matter(table: Table, random: object) -> None:
    rows, columns = list(range(len(table))), list(range(table.shape[1]))
    random.shuffle(rows)  # type: ignore[attr-defined]
    random.shuffle(columns)  # type: ignore[attr-defined]
    moved = front_of(table[rows][:, columns])
    assert sorted(rows[i] for i in moved) == front_of(table)


@given(
    arrays(np.float64, st.tuples(st.integers(0, 60), st.integers(2, 4)), elements=few_values),
    st.data(),
)
def test_a_monotone_change_of_unit_does_not_matter(table: Table, data: st.DataObject) -> None:
    scale = data.draw(st.floats(1e-200, 1e200))
    column = data.draw(st.integers(0, table.shape[1] - 1))
    for change in (lambda values: scale * values, np.exp, np.cbrt):
        changed = table.copy()
        changed[:, column] = change(table[:, column])
        assert front_of(changed) == front_of(table)


@given(tables(), st.integers(0, 3))
def test_a_row_that_beats_all_stands_alone(table: Table, copies: int) -> None:
    best = np.full((1 + copies, table.shape[1]), -np.inf)
    beaten = table[(table > -np.inf).any(axis=1)]
    assert front_of(np.vstack([beaten, best])) == list(range(len(beaten), len(beaten) + 1 + copies))


@given(tables(), st.data())
def test_to_maximise_is_to_minimise_the_opposite(table: Table, data: st.DataObject) -> None:
    names = list("abcd"[: table.shape[1]])
    larger = data.draw(st.lists(st.sampled_from(names), unique=True))
    smaller = [name for name in names if name not in larger]
    frame = pd.DataFrame(table, columns=names)
    opposite = frame.copy()
    opposite[larger] *= -1
    front = sm.pareto(opposite, minimize=smaller, maximize=larger)
    assert sorted(front.index) == front_of(table)
    pd.testing.assert_frame_equal(front, opposite.loc[front.index])
