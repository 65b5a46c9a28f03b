"""Searching is exact: what pruning, threads, shards and rules may change, and what they may not."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.numbers import divisors
from scalemodel.search.merging import merge
from scalemodel.search.objective import SWEEP_COLUMNS, objective_terms
from scalemodel.search.ranking import Question

LAYOUT = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "schedule")

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {str(row["name"]): row for row in _core.columns()}
BOUNDED = [name for name, row in COLUMNS.items() if row["bounded"]]
POSITIVE = [name for name, row in COLUMNS.items() if row["positive"]]

#: Values that a random space may list of each knob, the default first.
POOL: dict[str, list[Any]] = {
    "tp": [1, 2, 3, 4, 6, 8, 16],
    "cp": [1, 2, 3, 4],
    "pp": [1, 2, 3, 4, 8],
    "dp": [0, 1, 2, 4, 6, 8],
    "ep": [1, 2, 4, 8],
    "etp": [0, 1, 2, 4],
    "vpp": [1, 2, 3, 4],
    "micro_batch": [1, 2, 3, 4],
    "schedule": [
        *("1f1b", "gpipe", "interleaved", "zero_bubble", "dualpipe"),
        *("zero_bubble_2p", "zero_bubble_v", "dualpipe_v"),
    ],
    "sharding": ["zero1", "ddp", "zero2", "zero3", "hsdp"],
    "shard_degree": [0, 2, 4, 5, 8],
    "secondary_degree": [0, 2, 3, 8],
    "quantized_gather": [False, True],
    "quantized_reduce": [False, True],
    "recompute": ["none", "selective", "full"],
    "recompute_layers": [0, 1, 2, 7],
    "context": ["ring", "all_to_all", "all_gather"],
    "sequence_parallel": [True, False],
    "regather": [True, False],
    "split_p2p": [True, False],
    "placement": ["tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp", "pp-dp-cp-tp", "cp-tp-pp-dp"],
    "offload_weights": [False, True],
    "offload_activations": [False, True],
    "offload_optimizer": [False, True],
    "overlap_grad_reduce": ["stack", "off", "on"],
    "overlap_param_gather": ["stack", "off", "on"],
    "overlap_tp": ["stack", "off", "ring", "pipelined"],
    "linear_precision": ["task", "bf16", "fp8", "fp4", "fp16"],
}
DEGREES = ["tp", "cp", "pp", "ep", "vpp", "micro_batch"]

TASKS = st.builds(
    sm.Training,
    global_batch=st.sampled_from([48, 64, 72]),
    sequence=st.sampled_from([2048, 3072, 8192]),
    batch_is_limit=st.booleans(),
)
ADAPTERS = st.builds(
    sm.FineTuning,
    global_batch=st.just(64),
    sequence=st.just(4096),
    method=st.just("lora"),
    lora_targets=st.sampled_from(["qkv", "attention", "all"]),
)
NARROW = st.builds(
    sm.Training, global_batch=st.just(64), sequence=st.just(4096), precision=st.just("fp8")
)
#: Dense, grouped queries; experts; latent attention with experts; adapters; narrow products.
WORK = st.one_of(
    st.tuples(st.sampled_from(["llama3_8b", "gpt3_13b", "llama3_70b"]), TASKS),
    st.tuples(st.sampled_from(["mixtral_8x7b", "qwen3_30b_a3b"]), TASKS),
    st.tuples(st.just("deepseek_v2_lite"), TASKS),
    st.tuples(st.sampled_from(["llama3_8b", "mixtral_8x7b"]), ADAPTERS),
    st.tuples(st.sampled_from(["llama3_8b", "deepseek_v2_lite"]), NARROW),
)
CLUSTERS = st.sampled_from(
    [
        ("dgx_h100", 8),
        ("dgx_h100", 16),
        ("dgx_h100", 24),
        ("dgx_h100", 64),
        ("dgx_b200", 16),
        ("gb200_nvl72", 72),
        ("dgx_h100", 1),
    ]
)


@st.composite
def spaces(draw: st.DrawFn, knobs: int = 5) -> sm.Space:
    """A space of several degrees in which up to `knobs` further knobs have several values."""

    def some(name: str, least: int, most: int) -> list[Any]:
        return draw(
            st.lists(st.sampled_from(POOL[name]), min_size=least, max_size=most, unique=True),
            label=name,
        )

    listed = {name: default[:1] for name, default in POOL.items()}
    for name in DEGREES:
        listed[name] = some(name, 2 if name in ("tp", "pp", "micro_batch") else 1, 4)
    others = st.sampled_from([name for name in POOL if name not in DEGREES])
    for name in draw(st.lists(others, min_size=knobs // 2, max_size=knobs, unique=True)):
        listed[name] = some(name, 1 if name == "dp" else 2, 3)
    return sm.Space(**listed)


@st.composite
def questions(draw: st.DrawFn, knobs: int = 5) -> Question:
    """Any model, cluster, task and space; the space holds at least one strategy."""
    model, task = draw(WORK)
    name, accelerators = draw(CLUSTERS)
    question = Question(
        sm.model(model),
        sm.cluster(name, accelerators=accelerators),
        task,
        draw(spaces(knobs)),
    )
    assume(question.size > 0)
    return question


def weights_of(names: list[str]) -> st.SearchStrategy[dict[str, float]]:
    weight = st.sampled_from([0.5, 1.0, 2.0, 1 / 3])
    return st.dictionaries(st.sampled_from(names), weight, min_size=2, max_size=3)


#: Single columns and weighted ones, those that a lower bound knows first.
OBJECTIVES = st.one_of(
    st.sampled_from(BOUNDED),
    weights_of(BOUNDED),
    st.sampled_from(["power_w", "hfu_fraction", "bubble_s", "host_memory_bytes"]),
    weights_of(POSITIVE),
)

CONSTRAINTS = st.lists(
    st.one_of(
        st.sampled_from([0.05, 0.3, 0.9]).map(
            lambda share: f"memory_bytes <= {share} * memory_capacity_bytes"
        ),
        st.sampled_from(
            ["power_w <= 600", "mfu_fraction > 0.3", "exposed_tp_s <= 0.2 * step_time_s"]
        ),
        st.sampled_from(["step_time_s <= 3", "energy_j < 2e5", "tokens_per_s >= 1e5"]),
        st.sampled_from(["bubble_s == 0", "dp != 1", "memory_bytes <= 1"]),
    ),
    max_size=2,
    unique=True,
)


def ask(question: Question, **how: Any) -> sm.Ranking:
    q, full = question, {"headroom": 0, **how}  # up to the last byte, as a sweep
    return sm.search(q.model, q.cluster, q.task, q.space, **full)


def table(question: Question, space: sm.Space | None = None, **how: Any) -> pd.DataFrame:
    return sm.sweep(question.model, question.cluster, question.task, space or question.space, **how)


def strategies(question: Question) -> list[sm.Strategy]:
    q = question
    return list(q.space.strategies(q.model, q.cluster, q.task))


def meaning(question: Question, strategy: sm.Strategy) -> sm.Strategy:
    q = question
    return _core.canonical(strategy, q.model.core, q.cluster.core, q.task.core)


def answer(ranking: sm.Ranking) -> list[tuple[int, float, sm.Estimate]]:
    found = ranking.table
    return list(zip(found["row"], found["objective"], ranking, strict=True))


def priced(question: Question, objective: str | dict[str, float]) -> bool:
    """Whether the cluster has the price that an objective asks for."""
    return question.cluster.core.price_usd_per_s > 0 or "usd" not in str(objective)


# ------------------------------------------------------------------------------- pruning, threads
@settings(max_examples=100)
@given(
    question=questions(knobs=8),
    objective=OBJECTIVES,
    constraints=CONSTRAINTS,
    top=st.sampled_from([1, 2, 10, 100]),
)
@pytest.mark.slow
def test_pruning_changes_no_answer(
    question: Question,
    objective: str | dict[str, float],
    constraints: list[str],
    top: int,
) -> None:
    assume(priced(question, objective))
    how: dict[str, Any] = {"objective": objective, "constraints": constraints, "top": top}
    every = ask(question, prune=False, **how)
    pruned = ask(question, prune=True, **how)
    assert answer(pruned) == answer(every)
    assert every.evaluated == every.size == question.size
    assert pruned.evaluated + pruned.pruned == question.size
    for verdict, number in pruned.counts.items():
        assert number <= every.counts[verdict]


@settings(max_examples=25)
@given(
    work=WORK,
    accelerators=st.sampled_from([8, 16]),
    objective=st.one_of(st.sampled_from(BOUNDED), weights_of(BOUNDED)),
    threads=st.sampled_from([1, 3]),
)
@pytest.mark.slow
def test_pruning_changes_no_answer_in_the_usual_space(
    work: tuple[str, sm.Training],
    accelerators: int,
    objective: str | dict[str, float],
    threads: int,
) -> None:
    """Pruning waits for dozens of groups, so that only large spaces put the bounds to the test."""
    cluster = sm.cluster("dgx_h100", accelerators=accelerators)
    question = Question(sm.model(work[0]), cluster, work[1], sm.Space())
    assume(0 < question.size < 500_000)
    every = answer(ask(question, objective=objective, top=100, prune=False))
    for top in (1, 10, 100):
        pruned = ask(question, objective=objective, top=top, threads=threads)
        assert pruned.pruned > 0 or top > 1
        assert answer(pruned) == every[:top]


@settings(max_examples=60)
@given(
    question=questions(knobs=7),
    objective=OBJECTIVES,
    constraints=CONSTRAINTS,
    prune=st.booleans(),
)
def test_the_number_of_threads_changes_nothing(
    question: Question,
    objective: str | dict[str, float],
    constraints: list[str],
    prune: bool,
) -> None:
    assume(priced(question, objective))
    how: dict[str, Any] = {"objective": objective, "constraints": constraints, "prune": prune}
    one = ask(question, threads=1, **how)
    for threads in (2, 5):
        again = ask(question, threads=threads, **how)
        assert again == one  # hits, verdicts, rows pruned and rows a constraint left out
        assert again.counts == one.counts


@settings(max_examples=25)
@given(question=questions())
def test_a_sweep_does_not_depend_on_threads_or_parts(question: Question) -> None:
    import pandas as pd

    q = question
    one = table(question, threads=1)
    for threads in (2, 5):
        pd.testing.assert_frame_equal(table(question, threads=threads), one, check_exact=True)
    rows = max(1, q.size // 3)
    parts = list(sm.sweep_chunks(q.model, q.cluster, q.task, q.space, rows=rows, threads=1))
    assert max(len(part) for part in parts) == rows
    pd.testing.assert_frame_equal(pd.concat(parts), one, check_exact=True, check_index_type=False)


@settings(max_examples=40)
@given(
    question=questions(knobs=8),
    objective=OBJECTIVES,
    constraints=CONSTRAINTS,
    data=st.data(),
    prune=st.booleans(),
)
def test_merged_shards_are_the_whole(
    question: Question,
    objective: str | dict[str, float],
    constraints: list[str],
    data: st.DataObject,
    prune: bool,
) -> None:
    assume(priced(question, objective))
    asked = dataclasses.replace(
        question,
        objective=tuple(objective_terms(objective)),
        constraints=tuple(constraints),
        top=data.draw(st.sampled_from([1, 5, 50])),
        prune=prune,
    )
    count = data.draw(st.integers(1, 12))
    beyond = asked.quick_look() if data.draw(st.booleans()) else math.inf
    parts = [shard.search(threads=1) for shard in asked.shards(count, beyond=beyond)]
    whole = asked.run_search(0, asked.size, 1)
    order = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(1, count))
    merged = merge(order)
    assert answer(merged) == answer(whole)
    assert merged.size == whole.size == asked.size
    assert merged.evaluated + merged.pruned == asked.size
    if not prune:
        assert merged == whole  # verdicts and rows left out too
    in_two_steps = merge([merge(order[:cut]), *order[cut:]])
    assert in_two_steps == merged


# ----------------------------------------------------------------------- search, sweep, estimate
@settings(max_examples=60)
@given(question=questions(knobs=8), data=st.data())
def test_a_row_of_a_sweep_is_the_estimate_of_its_strategy(
    question: Question, data: st.DataObject
) -> None:
    q = question
    frame = table(question)
    assert tuple(frame.columns) == SWEEP_COLUMNS
    assert len(frame) == q.size == q.space.size(q.model, q.cluster, q.task)
    plans = strategies(question)
    rows = data.draw(
        st.lists(st.integers(0, q.size - 1), min_size=1, max_size=25, unique=True), label="rows"
    )
    for row in rows:
        est = sm.estimate(q.model, q.cluster, q.task, plans[row])
        expected = {**est.core.to_dict(), **plans[row].to_dict(), "verdict": est.verdict}
        assert expected["dp"] == est.core.dp
        got = frame.loc[row].to_dict()
        if not q.cluster.core.price_usd_per_s > 0:
            assert frame.cost_usd.isna().all()
            assert est.cost_usd is None
            del got["cost_usd"], expected["cost_usd"]
        assert got == expected
        if not est.illegal:
            assert est.row() == {"cost_usd": None, **got}


def wide_axes(placement: str, row: Any) -> list[str]:
    """Axes of more than one rank, innermost first."""
    return [axis for axis in placement.split("-") if getattr(row, axis) > 1]


@settings(max_examples=60)
@given(question=questions(knobs=6))
def test_a_space_holds_legal_strategies_each_once(question: Question) -> None:
    frame = table(question)
    legal = frame.verdict.isin(["ok", "out_of_memory", "illegal:offload"])
    assert legal.all(), sorted(set(frame.verdict[~legal]))
    assert (frame.step_time_s > 0).all()
    assert not frame.drop(columns="cost_usd").isna().any(axis=None)
    assert (frame.tp * frame.cp * frame.pp * frame.dp == question.cluster.accelerators).all()
    meanings = [meaning(question, strategy) for strategy in strategies(question)]
    assert len(set(meanings)) == len(meanings)
    for name, listed in question.space.knobs:
        if name == "placement":
            # Any name of a listed order: axes of one rank may stand anywhere.
            for row in frame.itertuples():
                orders = [wide_axes(axes, row) for axes in listed]
                assert wide_axes(row.placement, row) in orders
        elif name == "dp":
            assert 0 in listed or set(frame.dp) <= set(listed)
        else:
            assert set(frame[name]) <= {*listed, getattr(sm.Strategy(), name)}, name


@settings(max_examples=40)
@given(question=questions(knobs=2), tiers=st.booleans(), data=st.data())
def test_strategies_of_one_meaning_cost_the_same(
    question: Question, tiers: bool, data: st.DataObject
) -> None:
    named = st.lists(st.sampled_from(sorted(set(POOL) - set(DEGREES))), max_size=3, unique=True)
    redundant = data.draw(named, label="redundant")
    listed = {name: POOL[name][:2] for name in redundant}
    space = question.space.replace(**listed, tiers=tiers, redundant=redundant)
    question = dataclasses.replace(question, space=space)
    assume(0 < question.size < 20_000)
    frame = table(question)
    numbers = [name for name in SWEEP_COLUMNS if name not in _strategy_fields()]
    meanings = [meaning(question, strategy) for strategy in strategies(question)]
    first: dict[sm.Strategy, int] = {}
    rows = [first.setdefault(strategy, row) for row, strategy in enumerate(meanings)]
    for name in numbers:
        values = frame[name].astype(object).to_numpy()
        assert list(values) == list(values[rows]), name
    # What a canonical strategy means is itself.
    assert all(meaning(question, strategy) == strategy for strategy in first)


def _strategy_fields() -> set[str]:
    return {str(row["name"]) for row in sm.Strategy.fields()}


def value_of(name: str, row: Any) -> float:
    tokens = row.tokens_per_s * row.step_time_s
    if name == "tokens_per_j":
        return float(tokens / row.energy_j)
    if name == "usd_per_token":
        return float(row.cost_usd / tokens)
    return float(getattr(row, name))


def score_of(objective: str | dict[str, float], row: Any) -> float:
    """Smaller is better: a column, or the weighted sum of logarithms."""

    def signed(name: str, value: float) -> float:
        return -value if COLUMNS[name]["maximised"] else value

    if isinstance(objective, str):
        return signed(objective, value_of(objective, row))
    total = 0.0
    for name, weight in objective.items():
        total += weight * signed(name, math.log(value_of(name, row)))
    return total


COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


def keeps(constraints: Iterable[str], row: Any) -> bool:
    """Constraints of `CONSTRAINTS`, read with Python's own arithmetic."""
    return all(eval(text, {}, row._asdict()) for text in constraints)


def reordered(
    question: Question,
    objective: str | dict[str, float],
    scored: list[tuple[float, int]],
    plans: list[sm.Strategy],
) -> list[tuple[float, int]]:
    """The first 32 by their timelines, where one of these tells of another step than the row."""
    tables = question._tables
    simulated = []
    agree = True
    for _score, row in scored[:32]:
        estimate = sm.estimate(question.model, question.cluster, question.task, plans[row])
        step = estimate.timeline().step_time_s
        agree = agree and abs(step / estimate.step_time_s - 1) <= 0.01
        moved = tables.at_step_time(plans[row], estimate.core, step)
        simulated.append((_core.score(moved, objective_terms(objective)), row))
    return scored if agree else sorted(simulated) + scored[32:]


def distinct(
    question: Question, scored: list[tuple[float, int]], plans: list[sm.Strategy]
) -> list[tuple[float, int]]:
    """The first of those of one layout whose answers are equal to the last digit."""
    found: dict[tuple[object, ...], tuple[float, int]] = {}
    for score, row in scored:
        layout = (getattr(plans[row], name) for name in LAYOUT)
        found.setdefault((question._tables.estimate(plans[row]), *layout), (score, row))
    return list(found.values())


@settings(max_examples=80)
@given(
    question=questions(knobs=4),
    objective=OBJECTIVES,
    constraints=CONSTRAINTS,
    top=st.sampled_from([1, 3, 10, 100]),
    redundant=st.booleans(),
)
@pytest.mark.slow
def test_a_search_is_the_head_of_the_sorted_sweep(
    question: Question,
    objective: str | dict[str, float],
    constraints: list[str],
    top: int,
    redundant: bool,
) -> None:
    assume(priced(question, objective))
    if redundant:
        knobs = ["placement", "sequence_parallel", "regather", "sharding", "recompute_layers"]
        space = question.space.replace(redundant=knobs, tiers=True)
        question = dataclasses.replace(question, space=space)
    assume(0 < question.size < 10_000)
    frame, plans = table(question), strategies(question)
    running = [row for row in frame.itertuples() if row.verdict == "ok"]
    scored = sorted(
        (score_of(objective, row), row.Index) for row in running if keeps(constraints, row)
    )
    kept: dict[sm.Strategy, tuple[float, int]] = {}
    for score, row in scored:
        kept.setdefault(meaning(question, plans[row]), (score, row))
    shown = distinct(question, list(kept.values())[: 4 * max(32, top)], plans)
    expected = reordered(question, objective, shown, plans)[:top]
    found = ask(question, objective=objective, constraints=constraints, top=top)
    assert list(found.table["row"]) == [row for _, row in expected]
    assert [est.strategy for est in found] == [plans[row] for _, row in expected]
    scores = [
        -score if isinstance(objective, str) and COLUMNS[objective]["maximised"] else score
        for score, _ in expected
    ]
    assert list(found.table["objective"]) == pytest.approx(scores, rel=1e-12)
    every = ask(question, objective=objective, constraints=constraints, top=top, prune=False)
    counted = {str(k): int(n) for k, n in frame.verdict.value_counts().items() if n}
    assert every.counts == counted
    assert every.constrained == len(running) - len(scored)


# ------------------------------------------------------------------------------- rules of a space
def best(question: Question, objective: str = "step_time_s") -> float:
    """Score of the best strategy; infinite where none runs."""
    found = ask(question, objective=objective, top=1)
    if not len(found):
        return math.inf
    value = float(found.table["objective"][0])
    return -value if COLUMNS[objective]["maximised"] else value


@settings(max_examples=60)
@given(
    question=questions(knobs=8),
    objective=st.sampled_from([name for name in BOUNDED if "usd" not in name]),
    data=st.data(),
)
def test_restricting_a_space_never_improves_the_best(
    question: Question, objective: str, data: st.DataObject
) -> None:
    several = [(name, listed) for name, listed in question.space.knobs if len(listed) > 1]
    assume(several)
    name, listed = data.draw(st.sampled_from(several))
    part = data.draw(st.lists(st.sampled_from(listed), min_size=1, unique=True))
    # Of two values that mean the same the default's name is kept, so it stays listed.
    smaller = dataclasses.replace(question, space=question.space.replace(**{name: part}))
    assert best(question, objective) <= best(smaller, objective)


def quantities(question: Question, frame: pd.DataFrame) -> dict[str, Any]:
    """Every variable that a rule may speak of, per row or as one number."""
    q, shape = question, question.model.shape
    derived = frame.tp.where(frame.ep == 1, 1)
    return {
        **{name: frame[name] for name in ("tp", "cp", "pp", "dp", "ep", "vpp", "micro_batch")},
        "etp": frame.etp.where(frame.etp > 0, derived),
        "micro_batches": frame.micro_batches,
        "accelerators": q.cluster.accelerators,
        "node_accelerators": q.cluster.core.node_accelerators,
        "domain": q.cluster.core.scale_up.domain,
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads or shape.heads,
        "experts": shape.experts,
        "sequence": q.task.sequence,
        "global_batch": q.task.global_batch,
    }


VARIABLES = _core.variables().split(", ")
PRODUCTS = st.builds(
    lambda factor, names: " * ".join([*([str(factor)] if factor != 1 else []), *names]),
    st.sampled_from([1, 2, 0.5, 3]),
    st.lists(st.sampled_from(VARIABLES), min_size=1, max_size=2),
)
RULES = st.one_of(
    st.builds(
        lambda left, symbol, right: f"{left} {symbol} {right}",
        PRODUCTS,
        st.sampled_from(sorted(COMPARISONS)),
        st.one_of(PRODUCTS, st.integers(1, 64).map(str)),
    ),
    st.builds("{} % ({}) == 0".format, PRODUCTS, PRODUCTS),
)


def same_rows(kept: pd.DataFrame, found: pd.DataFrame) -> None:
    import pandas as pd

    pd.testing.assert_frame_equal(
        kept.reset_index(drop=True), found.reset_index(drop=True), check_exact=True
    )


def test_rules_know_every_variable() -> None:
    question = Question(
        sm.model("mixtral_8x7b"),
        sm.cluster("dgx_h100"),
        sm.Training(global_batch=64, sequence=4096),
        sm.Space(tp=1),
    )
    assert set(quantities(question, table(question))) == set(VARIABLES)


@settings(max_examples=60)
@given(question=questions(knobs=4), rules=st.lists(RULES, min_size=1, max_size=2))
def test_a_rule_filters_the_sweep(question: Question, rules: list[str]) -> None:
    import numpy as np

    frame = table(question)
    keep = np.ones(len(frame), dtype=bool)
    for rule in rules:
        side = {name: np.asarray(v, float) for name, v in quantities(question, frame).items()}
        if "%" in rule:
            left, right = (eval(part, {}, side) for part in rule.removesuffix(" == 0").split(" % "))
            divisor = np.where(right == 0, 1, right)
            keep &= (right != 0) & (np.fmod(left, divisor) == 0)
        else:
            keep &= eval(rule, {}, side)
    ruled = question.space.replace(where=rules)
    if keep.any():
        same_rows(frame[keep], table(question, ruled))
    else:
        assert dataclasses.replace(question, space=ruled).size == 0


@settings(max_examples=60)
@given(question=questions(knobs=4), data=st.data())
def test_an_exclusion_filters_the_sweep(question: Question, data: st.DataObject) -> None:
    import numpy as np

    frame = table(question)
    several = [name for name, listed in question.space.knobs if len(listed) > 1 or name == "dp"]
    rows = data.draw(
        st.lists(
            st.lists(st.sampled_from(several), min_size=1, max_size=3, unique=True).flatmap(
                lambda names: st.fixed_dictionaries(
                    {name: st.sampled_from(sorted(set(frame[name]))) for name in names}
                )
            ),
            min_size=1,
            max_size=3,
        ),
        label="exclude",
    )
    keep = np.ones(len(frame), dtype=bool)
    for row in rows:
        keep &= ~np.all([frame[name] == value for name, value in row.items()], axis=0)
    smaller = question.space.replace(exclude=rows)
    if keep.any():
        same_rows(frame[keep], table(question, smaller))
    else:
        assert dataclasses.replace(question, space=smaller).size == 0


# ----------------------------------------------------------------------------- better hardware
def with_accelerator(cluster: sm.Cluster, **factors: float) -> sm.Cluster:
    accelerator = cluster.core.accelerator
    changed = {name: factor * getattr(accelerator, name) for name, factor in factors.items()}
    core = cluster.core.replace(accelerator=accelerator.replace(**changed))
    return dataclasses.replace(cluster, core=core)


@settings(max_examples=12)
@given(
    work=st.sampled_from(
        [
            ("llama3_70b", "dgx_h100", 16),
            ("mixtral_8x7b", "dgx_h100", 8),
            ("llama3_8b", "dgx_a100", 8),
            ("deepseek_v2_lite", "gb200_nvl72", 72),
        ]
    ),
    part=st.sampled_from(["memory_capacity_bytes", "memory_bandwidth_bytes_per_s"]),
    factor=st.floats(1, 8),
)
def test_more_memory_never_hurts_the_best_of_the_usual_space(
    work: tuple[str, str, int], part: str, factor: float
) -> None:
    name, cluster_name, accelerators = work
    cluster = sm.cluster(cluster_name, accelerators=accelerators)
    task = sm.Training(global_batch=144, sequence=4096)
    before = Question(sm.model(name), cluster, task, sm.Space())
    after = dataclasses.replace(before, cluster=with_accelerator(cluster, **{part: factor}))
    usual = best(before)
    assert math.isfinite(usual)
    # A capacity decides only what fits; a bandwidth enters sums whose rounding may differ.
    allowed = usual if part == "memory_capacity_bytes" else usual * (1 + 1e-12)
    assert best(after) <= allowed


@pytest.mark.parametrize("objective", ["step_time_s", "memory_bytes", "tokens_per_j"])
def test_nothing_feasible_is_an_empty_ranking(objective: str) -> None:
    task = sm.Training(global_batch=64, sequence=8192)
    space = sm.Space(tp=[1, 2, 4, 8], offload_optimizer=False)
    for prune in (True, False):
        found = sm.search(
            "llama3_1_405b",
            sm.cluster("dgx_h100"),
            task,
            space,
            objective=objective,
            prune=prune,
        )
        assert len(found) == 0
        assert list(found) == []
        assert found.table.empty
        assert "ok" not in found.counts
        assert found.evaluated + found.pruned == found.size > 0


# ------------------------------------------------------------------------- legal strategies, alone
MODELS = [name for name in catalog.names("models") if isinstance(sm.model(name), sm.Model)]
MACHINES = catalog.names("clusters")
#: As many strategies in every run; the law was tried on thousands.
LEGAL_STRATEGIES = 60


def some_strategy(random: Random, shape: Any, accelerators: int) -> sm.Strategy:
    """Any strategy, its degrees divisors of what they divide."""
    pick = random.choice
    values = {name: pick(values) for name, values in POOL.items()}
    few = [n for n in divisors(accelerators) if n <= 64]
    tp = pick([n for n in few if shape.heads % n == 0])
    rest = accelerators // tp
    pp = pick([n for n in few if rest % n == 0 and n <= shape.layers])
    cp = pick([n for n in (1, 1, 2, 4) if rest // pp % n == 0])
    values.update(tp=tp, pp=pp, cp=cp, dp=pick([0, rest // pp // cp]))
    values["vpp"] = pick([1, 1, 2, 3]) if pp > 1 else 1
    values["ep"] = pick(divisors(shape.experts, 16)) if shape.experts else 1
    values["shard_degree"] = pick([0, 0, *divisors(rest // pp)])
    values["secondary_degree"] = pick([0, 0, *divisors(rest // pp)])
    if values["sharding"] not in ("zero3", "hsdp"):
        values.update(secondary_degree=0, quantized_gather=False, quantized_reduce=False)
    values["recompute_layers"] = pick([0, 0, *range(1, shape.layers + 1)])
    return sm.Strategy(**values)


def legal_questions(seed: int, count: int) -> Iterable[tuple[Any, sm.Estimate]]:
    random = Random(seed)
    found = 0
    while found < count:
        model = sm.model(random.choice(MODELS))
        name = random.choice(MACHINES)
        cluster = sm.cluster(name, nodes=random.choice([1, 2, 4]))
        sequence = random.choice([2048, 4096, 12288])
        task = sm.Training(global_batch=random.choice([64, 96, 256]), sequence=sequence)
        strategy = some_strategy(random, model.shape, cluster.accelerators)
        est = sm.estimate(model, cluster, task, strategy)
        if est.verdict in ("ok", "out_of_memory", "illegal:offload"):
            found += 1
            yield (model, cluster, task), est


@pytest.mark.parametrize("part", range(6))
def test_every_legal_strategy_is_the_only_one_of_its_space(part: int) -> None:
    for question, est in legal_questions(part, LEGAL_STRATEGIES // 6):
        listed = est.strategy.to_dict()
        for redundant in ([], ["shard_degree"], ["sharding", "shard_degree"]):
            space = sm.Space(**listed, redundant=redundant)
            rows = list(space.strategies(*question))
            assert len(rows) == 1, (question, est.strategy, redundant)
            found = sm.estimate(*question, rows[0])
            assert found.core.to_dict() == est.core.to_dict(), (question, est.strategy, rows[0])
        (row,) = sm.sweep(*question, sm.Space(**listed)).to_dict("records")
        expected = {**est.core.to_dict(), "verdict": est.verdict}
        if not question[1].core.price_usd_per_s > 0:
            del expected["cost_usd"]
        assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("llama3_8b", sm.Strategy(tp=2)),
        ("kimi_k2", sm.Strategy(tp=4, etp=2)),
        ("mixtral_8x7b", sm.Strategy(tp=4, cp=2, etp=1)),
        ("mixtral_8x7b", sm.Strategy(tp=2, pp=2, ep=2, schedule="gpipe")),
    ],
)
@pytest.mark.parametrize("stack", ["plain", "megatron_deepspeed_bf16"])
def test_shard_groups_of_one_rank_or_of_all_are_other_names(
    model: str, strategy: sm.Strategy, stack: str
) -> None:
    question = (
        sm.model(model),
        sm.cluster("dgx_h100", nodes=4),
        sm.Training(global_batch=64, sequence=4096),
    )

    def numbers(**changes: Any) -> dict[str, Any]:
        return sm.estimate(*question, strategy.replace(**changes), stack=stack).core.to_dict()

    replicas = 32 // (strategy.tp * strategy.pp)
    assert numbers(sharding="hsdp", shard_degree=1) == numbers(sharding="ddp")
    assert numbers(sharding="hsdp", shard_degree=replicas) == numbers(sharding="zero3")
    assert numbers(sharding="hsdp", shard_degree=2) != numbers(sharding="zero3")


def test_redundant_shard_degrees_leave_other_shardings_alone() -> None:
    question = (
        "llama3_8b",
        sm.cluster("aws_trn2", nodes=1),
        sm.Training(global_batch=64, sequence=4096),
    )
    space = sm.Space(tp=1, pp=1, cp=2, sharding="zero1", vpp=1, micro_batch=1, recompute="full")
    assert space.size(*question) == space.replace(redundant="shard_degree").size(*question) > 0


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_compute_doubles_with_the_micro_batches(schedule: str) -> None:
    """Of the busiest stage, however few micro-batches it has."""
    strategy = sm.Strategy(pp=4, schedule=schedule)
    cluster = sm.cluster("dgx_h100", nodes=32)
    times = []
    for batch in (64, 128, 256, 512, 1024):
        task = sm.Training(global_batch=batch, sequence=1024)
        times.append(sm.estimate("gpt2_small", cluster, task, strategy).core.compute_s)
    for less, more in itertools.pairwise(times):
        assert more == pytest.approx(2 * less, rel=0.02)
