"""Spaces: what they hold, counted by other means, and what they refuse."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from bisect import bisect_left
from collections import Counter
from typing import Any

import pytest

import scalemodel as sm
from reference import calculon_space
from reference.calculon_space import CASES, Case, Cell, on_device_per_cell
from scalemodel.base.numbers import divisors
from scalemodel.search.ranking import Question
from scalemodel.search.space import relation

TASK = sm.Training(global_batch=64, sequence=8192)


def question_of(case: Case) -> tuple[sm.Model, sm.Cluster, sm.Training]:
    model = sm.model(case.model)
    shape = model.shape
    assert (shape.layers, shape.hidden, shape.heads) == (case.layers, case.hidden, case.heads)
    task = sm.Training(global_batch=case.batch_limit, sequence=case.sequence, batch_is_limit=True)
    return model, sm.cluster("dgx_a100", accelerators=case.ranks), task


def without_offload_and_tiers(space: sm.Space) -> sm.Space:
    off = dict.fromkeys(("offload_weights", "offload_activations", "offload_optimizer"), False)
    return space.replace(**off, placement="tp-cp-dp-pp", tiers=False)


def rows_per_cell(question: Question) -> Counter[Cell]:
    """Rows of every cell. Rows of a cell are neighbours, so that its end can be bisected."""
    rows = question._rows

    def cell(row: int) -> Cell:
        s = rows.strategy(row)
        return Cell(s.tp, s.pp, s.dp, s.vpp, s.micro_batch)

    found: Counter[Cell] = Counter()
    row = 0
    while row < rows.size:
        here = cell(row)
        end = bisect_left(range(rows.size), True, lo=row, key=lambda at, h=here: cell(at) != h)
        found[here] += end - row
        row = end
    return found


# ------------------------------------------------------------------- the space of another search
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_recount_in_plain_python_gives_the_published_counts(case: Case) -> None:
    found = calculon_space.executions_per_cell(case)
    assert len(list(calculon_space.triples(case))) == case.triples
    assert len(found) == case.cells
    assert found.total() == case.executions
    assert on_device_per_cell(case).total() == case.executions_on_device


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_calculons_space_has_calculons_size(case: Case) -> None:
    question = question_of(case)
    space = sm.Space.calculon(*question)
    assert space.size(*question) == case.executions
    assert without_offload_and_tiers(space).size(*question) == case.executions_on_device


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_cell_has_as_many_executions_as_the_recount(case: Case) -> None:
    model, cluster, task = question_of(case)
    space = sm.Space.calculon(model, cluster, task)
    whole = rows_per_cell(Question(model, cluster, task, space))
    assert whole == calculon_space.executions_per_cell(case)
    on_device = Question(model, cluster, task, without_offload_and_tiers(space))
    assert rows_per_cell(on_device) == on_device_per_cell(case)


def test_the_smallest_of_them_execution_by_execution() -> None:
    """Not only as many: the same ones, each once, network tiers by the order of the axes."""
    case = CASES["530b_5128"]
    question = question_of(case)
    ours: Counter[tuple[object, ...]] = Counter()
    for s in sm.Space.calculon(*question).strategies(*question):
        communication = "sequence_parallel" if s.sequence_parallel else "split_p2p"
        if not s.sequence_parallel and not s.split_p2p:
            communication = "all_reduce"
        ours[
            Cell(s.tp, s.pp, s.dp, s.vpp, s.micro_batch),
            {"selective": "attention"}.get(s.recompute, s.recompute),
            communication,
            # Full recomputation gathers again anyway, so that it has no such choice.
            s.sequence_parallel and s.regather and s.recompute != "full",
            s.offload_weights,
            s.offload_activations,
            s.offload_optimizer,
            s.sharding == "zero1" if s.dp > 1 else False,
            s.overlap_grad_reduce == "on" if s.dp > 1 else False,
            {"off": "none", "pipelined": "pipe"}.get(s.overlap_tp, s.overlap_tp),
        ] += 1
    theirs: Counter[tuple[object, ...]] = Counter()
    for cell in calculon_space.cells(case):
        for e in calculon_space.executions(cell):
            theirs[(cell, *e[:-1])] += 1
    assert ours == theirs


@pytest.mark.parametrize("nodes", [1, 4])
def test_tiers_list_an_order_of_the_axes_once_unless_placements_are_redundant(nodes: int) -> None:
    question = "llama3_8b", sm.cluster("dgx_h100", nodes=nodes), TASK
    space = sm.Space(tp=[1, 2, 4], pp=[1, 2], micro_batch=1, tiers=True)
    listed = list(space.strategies(*question))
    assert len(set(listed)) == len(listed) == space.size(*question)
    every = space.replace(redundant="placement")
    assert set(every.strategies(*question)) == set(listed)
    assert every.size(*question) > len(listed)


# --------------------------------------------------------------------------- automatic and listed
def test_automatic_values_are_divisors_and_choices() -> None:
    space = sm.Space()
    values = space.values("mixtral_8x7b", sm.cluster("dgx_h100", nodes=4), TASK)
    assert values["tp"] == [1, 2, 4, 8]
    assert values["pp"] == [1, 2, 4, 8, 16, 32]
    assert values["ep"] == [1, 2, 4, 8]
    assert values["cp"] == [1, 2, 4]
    assert values["vpp"] == list(range(1, 9))
    dense = space.values("llama3_8b", sm.cluster("dgx_h100"), TASK)
    assert dense["ep"] == [1]
    assert dense["etp"] == [0]
    wide = space.values("llama3_8b", sm.cluster("gb200_nvl72"), TASK)
    assert wide["tp"] == [1, 2, 4, 8, 16, 32]  # the scale-up domain has room for them


def test_listed_values_replace_automatic_ones() -> None:
    cluster = sm.cluster("dgx_h100", nodes=4)
    space = sm.Space(tp=[8, 2], pp="auto", cp=None)
    values = space.values("llama3_8b", cluster, TASK)
    assert values["tp"] == [8, 2]
    assert values["pp"] == sm.Space().values("llama3_8b", cluster, TASK)["pp"]
    assert values["cp"] == [1, 2, 4]
    assert space == sm.Space(tp=[8, 2])


def test_values_may_be_any_iterable_or_one_value() -> None:
    assert sm.Space(tp=(n for n in (1, 2))) == sm.Space(tp=(1, 2)) == sm.Space(tp=range(1, 3))
    assert sm.Space(tp=4) == sm.Space(tp=[4])
    assert sm.Space(sharding="zero3") == sm.Space(sharding=["zero3"])
    assert sm.Space(where="tp <= 4") == sm.Space(where=["tp <= 4"])
    assert sm.Space(exclude={"tp": 2}) == sm.Space(exclude=[{"tp": 2}])


def test_rows_keep_the_order_of_the_listed_values() -> None:
    space = sm.Space(tp=[8, 2, 4], pp=1, cp=1, micro_batch=[2, 1])
    rows = list(space.strategies("llama3_8b", sm.cluster("dgx_h100"), TASK))
    assert list(dict.fromkeys((s.tp, s.micro_batch) for s in rows)) == [
        (8, 2),
        (8, 1),
        (2, 2),
        (2, 1),
        (4, 2),
        (4, 1),
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("tp * cp <= domain", (1.0, ["tp", "cp"], "<=", 1.0, ["domain"])),
        ("2 * tp != 3 * pp * 0.5", (2.0, ["tp"], "!=", 1.5, ["pp"])),
        ("layers % (pp * vpp) == 0", (1.0, ["layers"], "multiple_of", 1.0, ["pp", "vpp"])),
        ("(micro_batches) >= 4 * pp", (1.0, ["micro_batches"], ">=", 4.0, ["pp"])),
        ("dp == 8", (1.0, ["dp"], "==", 8.0, [])),
    ],
)
def test_rules_are_read(text: str, read: tuple[Any, ...]) -> None:
    assert relation(text) == read


@pytest.mark.parametrize(
    ("number", "limit"), [(1, None), (12, 6), (36, None), (97, None), (96, 8), (14336, None)]
)
def test_divisors_are_all_and_sorted_up_to_a_limit(number: int, limit: int | None) -> None:
    listed = [n for n in range(1, number + 1) if number % n == 0 and n <= (limit or number)]
    assert divisors(number, limit) == listed


# ------------------------------------------------------------------------------------ what errs
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"tpp": [1, 2]}, "tpp: no such knob; did you mean 'tp'"),
        ({"shardng": "zero1"}, "shardng: no such knob; did you mean 'sharding'"),
        ({"tp": []}, "tp=[]: at least one value"),
        ({"tp": [1, 2, 1]}, "tp=(1, 2, 1): 1 is listed twice"),
        ({"sharding": ["ddp", "ddp"]}, "'ddp' is listed twice"),
        ({"tp": 0}, "tp=0: must be a whole number from 1 to 65535"),
        ({"tp": 1.5}, "tp=1.5: must be a whole number"),
        ({"tp": float("nan")}, "tp=nan: must be a whole number"),
        ({"tp": "two"}, "tp='two': must be a whole number"),
        ({"tp": True}, "tp=True: must be a whole number"),
        ({"vpp": 256}, "vpp=256: must be a whole number from 1 to 255"),
        ({"sharding": "zero9"}, "sharding='zero9': must be one of ddp, zero1"),
        ({"sequence_parallel": 1}, "sequence_parallel=1: must be True or False"),
        ({"placement": "tp-dp"}, "placement='tp-dp': must be one of tp-cp-dp-pp"),
        ({"where": "tp"}, "where='tp': must be one comparison"),
        ({"where": ""}, "must be one comparison"),
        ({"where": [3]}, "where=3: must be a text"),
        ({"where": "tp < 3 < 4"}, "must be one comparison"),
        ({"where": "tpp <= 4"}, "no variable 'tpp'; did you mean 'tp'"),
        ({"where": "tp + 1 <= 2"}, "each side must be a product of positive numbers and of tp, cp"),
        ({"where": "tp / 2 <= 2"}, "each side must be a product"),
        ({"where": "tp % 2 == 1"}, "a remainder can only be compared with == 0"),
        ({"where": "layers % pp != 0"}, "a remainder can only be compared with == 0"),
        ({"where": "tp in 3"}, "the comparison must be one of < <= == != >= >"),
        ({"where": "__import__('os').getpid() <= 4"}, "each side must be a product"),
        ({"exclude": {"tpp": 1}}, "tpp: no such knob; did you mean 'tp'"),
        ({"exclude": {"tp": 0}}, "tp=0: must be a whole number"),
        ({"exclude": {"sharding": "zero9"}}, "sharding='zero9': must be one of"),
        ({"where": 5}, "where=5: must be a text"),
        ({"where": "tp % 0 == 0"}, "each side must be a product of positive numbers"),
        ({"where": "tp <= 1e400"}, "each side must be a product of positive numbers"),
        ({"where": "tp <= True"}, "each side must be a product of positive numbers"),
        ({"exclude": ["tp"]}, "exclude='tp': must be like"),
        ({"exclude": [{}]}, "exclude={}: must be like"),
        ({"exclude": 3}, "exclude=3: must be a mapping"),
        ({"tiers": "x"}, "tiers='x': must be True or False"),
        ({"redundant": 3}, "redundant=3: must be a text"),
        ({"redundant": ["sharing"]}, "sharing: no such knob; did you mean 'sharding'"),
    ],
)
def test_a_malformed_space_is_refused_at_once(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        sm.Space(**arguments)
    assert complaint in str(caught.value)
    with pytest.raises(sm.ScaleModelError):
        sm.Space(recompute="full").replace(**arguments)
    with pytest.raises(sm.ScaleModelError):
        sm.search("llama3_8b", sm.cluster("dgx_h100"), TASK, arguments)


@pytest.mark.parametrize("task", [None, "training", 5])
def test_a_space_needs_a_task(task: Any) -> None:
    with pytest.raises(sm.ScaleModelError, match="must be a Training or FineTuning"):
        sm.Space().size("llama3_8b", sm.cluster("dgx_h100"), task)


def test_too_many_exclusions_are_refused() -> None:
    many = [{"tp": 1 + n} for n in range(65)]
    with pytest.raises(sm.ScaleModelError, match="at most 64 exclusions"):
        sm.Space(exclude=many).size("llama3_8b", sm.cluster("dgx_h100"), TASK)


def test_a_space_without_a_legal_strategy_is_empty() -> None:
    cluster = sm.cluster("dgx_h100")
    space = sm.Space(tp=3)
    assert space.size("llama3_8b", cluster, TASK) == 0
    assert list(space.strategies("llama3_8b", cluster, TASK)) == []
    frame = sm.sweep("llama3_8b", cluster, TASK, space)
    assert frame.shape == (0, len(sm.sweep("llama3_8b", cluster, TASK, sm.Space(tp=8)).columns))
    ranking = sm.search("llama3_8b", cluster, TASK, space)
    assert (len(ranking), ranking.size, ranking.counts) == (0, 0, {})


def test_a_space_of_very_many_options_is_counted_and_searched() -> None:
    """Half of its knobs change nothing where they are listed: the answers are those without."""
    question = "llama3_8b", sm.cluster("dgx_h100", nodes=2), TASK
    either, stated = [False, True], ["stack", "off", "on"]
    space = sm.Space(
        tp=[2, 4, 8],
        pp=[1, 2, 4],
        cp=[1, 2],
        vpp=1,
        micro_batch=[1, 2],
        shard_degree=[0, *range(1, 9), 16],
        placement=["-".join(axes) for axes in itertools.permutations(("tp", "cp", "dp", "pp"))],
        overlap_grad_reduce=stated,
        overlap_param_gather=stated,
        overlap_tp=["off", "ring", "pipelined"],
        offload_weights=either,
        offload_activations=either,
        recompute_layers=range(8),
        split_p2p=either,
        linear_precision=["bf16", "fp8"],
    )
    redundant = ("placement", "shard_degree", "recompute_layers", "split_p2p", "context")
    every = space.replace(redundant=(*redundant, "overlap_grad_reduce", "overlap_param_gather"))
    assert every.size(*question) > 2**32
    assert space.size(*question) < 2**26
    least, found = (sm.search(*question, each, top=1, threads=1) for each in (space, every))
    assert found.evaluated + found.pruned == found.size == every.size(*question)
    assert found[0].core == least[0].core


# ------------------------------------------------------------------------------------- as values
SPACES = [
    sm.Space(),
    sm.Space(tp=[1, 2], sharding="zero3"),
    sm.Space(where=["tp * cp <= domain", "layers % pp == 0"]),
    sm.Space(exclude=[{"tp": 2, "sharding": "ddp"}, {"vpp": 2}]),
    sm.Space(redundant=["regather", "sequence_parallel"], tiers=True),
    sm.Space(
        tp=[8, 4],
        offload_optimizer=[False, True],
        where="pp <= 4",
        exclude={"tp": 8},
        redundant=["split_p2p"],
        tiers=True,
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_space_is_a_value(space: sm.Space) -> None:
    for again in (
        pickle.loads(pickle.dumps(space)),
        eval(repr(space), {"Space": sm.Space}),
        space.replace(),
    ):
        assert again == space
        assert hash(again) == hash(space)
        assert repr(again) == repr(space)
    assert len({*SPACES, space}) == len(SPACES)
    assert space != repr(space)


def test_replace_changes_what_it_names_and_nothing_else() -> None:
    space = SPACES[-1]
    assert dict(space.replace(tp=2).knobs) == {"tp": (2,), "offload_optimizer": (False, True)}
    assert dict(space.replace(tp=None).knobs) == {"offload_optimizer": (False, True)}
    assert space.replace(tp=2).replace(tp=[8, 4]) == space
    assert space.replace(where=()).where == ()
    assert space.replace(exclude=()).exclude == ()
    assert not space.replace(tiers=False).tiers
    assert space == SPACES[-1]


def test_questions_and_shards_are_values() -> None:
    question = Question(
        sm.model("llama3_8b"), sm.cluster("dgx_h100"), TASK, sm.Space(tp=[1, 2], pp=1)
    )
    shards = question.shards(3)
    for thing in (question, *shards):
        again = pickle.loads(pickle.dumps(thing))
        assert again == thing
        assert hash(again) == hash(thing)
    assert [shard.first for shard in shards[1:]] == [shard.last for shard in shards[:-1]]
    assert len({question, *shards}) == 4
    assert dataclasses.replace(question, top=3) != question


@pytest.mark.parametrize("count", [2, 7, 64])
def test_shards_are_of_nearly_equal_size_and_cut_between_sets_of_degrees(count: int) -> None:
    question = Question(
        sm.model("llama3_8b"), sm.cluster("dgx_h100"), TASK, sm.Space(tp=[1, 2], pp=[1, 2])
    )
    shards = question.shards(count)
    assert (shards[0].first, shards[-1].last, len(shards)) == (0, question.size, count)
    mean = question.size / count
    assert all(0.5 * mean - 1 <= shard.last - shard.first <= 1.5 * mean + 1 for shard in shards)
    plans = list(question.space.strategies(question.model, question.cluster, question.task))

    def degrees(row: int) -> tuple[object, ...]:
        knobs = ("tp", "cp", "pp", "vpp", "micro_batch", "schedule")
        return tuple(getattr(plans[row], knob) for knob in knobs)

    def between(row: int) -> bool:
        return degrees(row - 1) != degrees(row)

    for number, shard in enumerate(shards[1:], 1):
        even, most = question.size * number // count, question.size // (4 * count)
        near = any(between(row) for row in range(max(1, even - most), even + most + 1))
        assert between(shard.first) if near else shard.first == even


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "two"])
def test_shards_are_counted_in_whole_numbers(count: Any) -> None:
    question = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"), TASK, sm.Space())
    with pytest.raises(sm.ScaleModelError, match="must be a positive whole number"):
        question.shards(count)


def test_an_exclusion_means_what_it_says_however_it_is_spelled() -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)
    task = sm.Training(global_batch=64, sequence=8192)

    def size(**knobs: Any) -> int:
        usual = {"tp": 8, "pp": 1, "cp": 1, "recompute": "full", "offload_optimizer": False}
        return sm.Space(**{**usual, **knobs}).size("llama3_8b", cluster, task)

    placements = ["tp-cp-dp-pp", "dp-tp-cp-pp"]
    assert size(placement=placements) == 2 * size(placement=placements[:1])
    without = size(placement=placements, exclude={"placement": "dp-tp-cp-pp"})
    assert without == size(placement=placements[:1])
    assert size(exclude={"linear_precision": "bf16"}) == 0
    shards = {"sharding": "hsdp", "shard_degree": [0, 2], "tp": 2}
    assert size(**shards, exclude={"shard_degree": 4}) == size(
        sharding="hsdp", shard_degree=2, tp=2
    )


def test_knobs_of_data_parallelism_matter_where_only_experts_have_replicas() -> None:
    cluster, task = sm.cluster("dgx_h100"), sm.Training(global_batch=8, sequence=4096)
    space = sm.Space(
        tp=8, pp=1, cp=1, ep=4, etp=1, recompute="full", sharding=["zero1", "zero2", "zero3"]
    )
    frame = sm.sweep("mixtral_8x7b", cluster, task, space)
    assert set(frame.sharding) == {"zero1", "zero2", "zero3"}
    least = frame.groupby("sharding", observed=True).memory_bytes.min()
    assert least["zero3"] < least["zero2"] < least["zero1"]


@pytest.mark.parametrize(
    ("knobs", "reasons"),
    [
        ({"tp": 3}, ["illegal:mesh: tp*cp*pp*dp = 3*1*1*2", "but the cluster has 8 accelerators"]),
        ({"tp": 2, "dp": 2, "pp": 1}, ["illegal:mesh", "tp*cp*pp*dp = 2*1*1*2 = 4"]),
        ({"ep": 2}, ["illegal:ep_experts"]),
        ({"tp": 2, "pp": 2, "where": ["tp * pp <= 2"]}, ["break where='tp * pp <= 2'"]),
        (
            {"tp": 1, "pp": 1, "sharding": "ddp", "exclude": {"sharding": "ddp"}},
            ["are left out by exclude"],
        ),
        ({"linear_precision": "fp4"}, ["illegal:precision"]),
        ({"tp": 1, "pp": 1, "sharding": "hsdp", "shard_degree": 3}, ["illegal:shard_degree"]),
        ({"pp": 1, "vpp": 2}, ["illegal:vpp_without_pp"]),
        (
            {"tp": [3, 8], "pp": [1, 3], "where": "tp <= 4"},
            ["illegal:mesh", "break where='tp <= 4'", "of 4 combinations"],
        ),
    ],
)
def test_an_empty_space_says_which_values_exclude_each_other(
    knobs: dict[str, Any], reasons: list[str]
) -> None:
    usual = {"cp": 1, "vpp": 1, "micro_batch": 1, "recompute": "full"}
    space = sm.Space(**{**usual, **knobs})
    ranking = sm.search("llama3_8b", sm.cluster("dgx_h100"), TASK, space)
    assert ranking.size == 0
    said = ranking.why_infeasible()
    assert said.startswith("The space is empty: of ")
    for reason in reasons:
        assert reason in said, said


def test_numbers_of_recomputed_layers_that_mean_all_of_them() -> None:
    cluster = sm.cluster("dgx_h100")
    usual: dict[str, Any] = {"tp": 2, "pp": 2, "cp": 1, "vpp": 1, "micro_batch": 1}
    usual |= {"recompute": "full", "sharding": "zero1", "sequence_parallel": True}
    usual |= {"regather": True, "offload_optimizer": False, "placement": "tp-cp-dp-pp"}

    def listed(*layers: int) -> list[int]:
        space = sm.Space(**usual, recompute_layers=layers)
        return [s.recompute_layers for s in space.strategies("llama3_8b", cluster, TASK)]

    assert listed(20) == [20]  # of 16 a stage, and a few more for its ends
    assert listed(20, 32) == [20]
    assert listed(0, 20, 4) == [0, 4]
    assert listed(33) == []


@pytest.mark.slow
def test_a_space_of_ten_to_the_tenth_is_counted_part_by_part() -> None:
    both = (False, True)
    whole = sm.Space(
        redundant=("shard_degree", "recompute_layers"),
        shard_degree=range(1, 65),
        recompute_layers=range(1, 65),
        sequence_parallel=both,
        regather=both,
        split_p2p=both,
        offload_weights=both,
        offload_activations=both,
        offload_optimizer=both,
        overlap_tp=("off", "ring", "pipelined"),
        sharding=("ddp", "zero1", "zero2", "fsdp", "hsdp"),
        recompute=("none", "selective", "full"),
    )
    task = sm.Training(global_batch=2**14, sequence=8192)
    question = "llama3_405b", sm.cluster("dgx_h100", nodes=2048), task
    parts = [whole.replace(shard_degree=some) for some in (range(1, 23), range(23, 65))]
    assert sum(part.size(*question) for part in parts) == whole.size(*question) > 4e10


@pytest.mark.parametrize("model", ["whisper_large_v3", "t5_11b"])
def test_models_that_read_sources_are_searched_as_they_are_estimated(model: str) -> None:
    question = (sm.model(model), sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=448))
    space = sm.Space(tp=[1, 2], pp=[1], micro_batch=[1], sharding=["zero1"], recompute=["none"])
    best = sm.search(*question, space, top=1)[0]
    assert best.core == sm.estimate(*question, best.strategy).core
    rows = sm.sweep(*question, space)
    assert best.step_time_s in set(rows.step_time_s)
