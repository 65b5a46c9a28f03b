"""The executions that Calculon's search walks through, counted in plain Python.

Written from a description of that search, not from `Space.calculon`, which it is compared with.
Source: Isaev et al., SC 2023, doi 10.1145/3581784.3607102, and the public search's loops.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple


class Case(NamedTuple):
    """A question, and what Calculon's own loops count for it."""

    model: str
    layers: int
    hidden: int
    heads: int
    ranks: int
    batch_limit: int
    triples: int
    cells: int
    executions: int
    executions_on_device: int  #: those without offload, network tiers left out

    sequence: int = 2048


CASES = {
    "gpt3_1024": Case("gpt3_175b", 96, 12288, 96, 1024, 1536, 36, 1771, 11_698_528, 217_404),
    "gpt3_4096": Case("gpt3_175b", 96, 12288, 96, 4096, 4096, 36, 1071, 7_126_368, 132_484),
    "gpt3_64": Case("gpt3_175b", 96, 12288, 96, 64, 64, 26, 721, 3_232_128, 65_494),
    "22b_64": Case("megatron_22b", 48, 6144, 64, 64, 64, 25, 518, 2_393_240, 48_455),
    "530b_5128": Case("megatron_530b", 105, 20480, 128, 5128, 2520, 2, 3, 10_944, 396),
}


class Cell(NamedTuple):
    """Degrees, interleaving and micro-batch."""

    tp: int
    pp: int
    dp: int
    vpp: int
    micro_batch: int


class Execution(NamedTuple):
    """Everything beside the cell that one execution of the search decides."""

    recompute: str
    tp_communication: str
    gather_again: bool
    offload_weights: bool
    offload_activations: bool
    offload_optimizer: bool
    shard_optimizer: bool
    overlap_dp: bool
    overlap_tp: str
    tiers: tuple[int, ...]  #: of the axes of more than one rank, in the order tp, pp, dp


def triples(case: Case) -> Iterator[tuple[int, int, int]]:
    """Degrees (tp, pp, dp) whose product is the number of ranks."""
    for tp in range(1, case.ranks + 1):
        if case.ranks % tp or case.hidden % tp or case.heads % tp:
            continue
        for pp in range(1, min(case.ranks // tp, case.layers) + 1):
            if case.layers % pp or case.ranks % (tp * pp):
                continue
            dp = case.ranks // (tp * pp)
            if dp <= case.batch_limit:
                yield tp, pp, dp


def cells(case: Case) -> Iterator[Cell]:
    """Every cell; a replica takes as many sequences as the limit leaves it."""
    for tp, pp, dp in triples(case):
        sequences = case.batch_limit // dp
        for vpp in range(1, case.layers // pp + 1):
            if (case.layers // pp) % vpp or (pp == 1 and vpp > 1):
                continue
            for micro_batch in range(1, sequences + 1):
                if sequences % micro_batch == 0 and micro_batch * case.sequence % tp == 0:
                    yield Cell(tp, pp, dp, vpp, micro_batch)


def executions(cell: Cell) -> Iterator[Execution]:
    """Every execution of a cell, one by one."""
    wide = sum(degree > 1 for degree in (cell.tp, cell.pp, cell.dp))
    switch = (False, True)
    for recompute, communication in itertools.product(
        ("full", "attention", "none"), ("all_reduce", "split_p2p", "sequence_parallel")
    ):
        may_repeat = communication == "sequence_parallel" and recompute != "full"
        for options in itertools.product(
            switch if may_repeat else (False,),
            switch,
            switch if recompute != "full" else (False,),
            switch,
            switch if cell.dp > 1 else (False,),
            switch if cell.dp > 1 else (False,),
            ("none", "ring", "pipe") if cell.tp > 1 else ("none",),
            itertools.product((0, 1), repeat=wide),
        ):
            yield Execution(recompute, communication, *options)


def executions_per_cell(case: Case) -> Counter[Cell]:
    """How many executions each cell stands for; equal kinds of cells are counted out once."""
    counted: dict[tuple[bool, bool, bool], int] = {}
    found: Counter[Cell] = Counter()
    for cell in cells(case):
        kind = (cell.tp > 1, cell.pp > 1, cell.dp > 1)
        if kind not in counted:
            counted[kind] = sum(1 for _ in executions(cell))
        found[cell] = counted[kind]
    return found


def on_device_per_cell(case: Case) -> Counter[Cell]:
    """The same without offload, and with network tiers left out."""
    counted: dict[tuple[bool, bool, bool], int] = {}
    found: Counter[Cell] = Counter()
    for cell in cells(case):
        kind = (cell.tp > 1, cell.pp > 1, cell.dp > 1)
        if kind not in counted:
            counted[kind] = sum(
                not (e.offload_weights or e.offload_activations or e.offload_optimizer)
                and not any(e.tiers)
                for e in executions(cell)
            )
        found[cell] = counted[kind]
    return found
