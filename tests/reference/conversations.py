"""Traffic of conversations whose prompts grow, and of groups of prompts with one beginning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalemodel.serving import RequestStream


@dataclass(frozen=True, eq=False, repr=False)
class Named(RequestStream):
    """A trace with every column that a fleet knows."""

    session: Any = None
    tenant: Any = None
    block_offsets: Any = None
    block_ids: Any = None
    block_tokens: int = 0


def conversations(count: int, rate: float, seed: int, block_tokens: int = 64) -> Named:
    """Sessions whose prompts grow by three blocks a turn, each behind one of ten starts."""
    random = np.random.default_rng(seed)
    sessions = random.integers(0, max(1, count // 5), count)
    turns: dict[int, int] = {}
    offsets, ids = [0], []
    for session in sessions.tolist():
        blocks = 4 + 3 * turns.get(session, 0)
        turns[session] = turns.get(session, 0) + 1
        owners = [session % 10 if block < 3 else 100 + session for block in range(blocks)]
        ids += [1000 * owner + block for block, owner in enumerate(owners)]
        offsets.append(len(ids))
    blocks_of = np.diff(offsets)
    return Named(
        np.cumsum(random.exponential(1 / rate, count)),
        blocks_of * block_tokens + random.integers(0, block_tokens, count),
        random.integers(1, 150, count),
        session=sessions,
        tenant=sessions % 4,
        block_offsets=np.array(offsets),
        block_ids=np.array(ids, dtype=np.uint64),
        block_tokens=block_tokens,
    )


def shared_prefixes(
    prompts: Any, group: int, lengths: tuple[int, int, int], arrivals: Any, block_tokens: int = 16
) -> Named:
    """Prompts by number, `group` of them with one beginning.

    `lengths`: tokens of the beginning, of the question and of the answer. A prompt that comes
    again is the same to its last token.
    """
    numbers = np.asarray(prompts)
    prefix, question, answer = lengths
    full, common = (prefix + question) // block_tokens, prefix // block_tokens
    ids = np.empty((len(numbers), full), np.uint64)
    ids[:, :common] = (numbers // group)[:, None] * 10**6 + np.arange(common)
    ids[:, common:] = 10**12 + numbers[:, None] * 10**6 + np.arange(full - common)
    return Named(
        arrivals,
        np.full(len(numbers), prefix + question),
        np.full(len(numbers), answer),
        block_offsets=np.arange(len(numbers) + 1) * full,
        block_ids=ids.ravel(),
        block_tokens=block_tokens,
    )


def agents(
    first: Any,
    turns: Any,
    growth: Any,
    waits: Any,
    common: int,
    over: float = 60.0,
    block_tokens: int = 128,
) -> Named:
    """Sessions of agents that call tools, each call of everything before it and something more.

    `first`, `turns`: tokens of the first call and number of calls of each session; `growth`,
    `waits`: tokens and seconds between one call and the next, of all calls one after another.
    `common`: tokens at the beginning of every call; `over`: seconds in which the sessions begin.
    Answers have one token: what a prefill pool is asked for.
    """
    sessions = np.repeat(np.arange(len(turns)), turns)
    begins = np.concatenate([[0], np.cumsum(turns)[:-1]])

    def since_begin(values: Any) -> Any:
        before = np.concatenate([[0], np.cumsum(values)[:-1]])
        return before - np.repeat(before[begins], turns)

    lengths = np.repeat(first, turns) + since_begin(growth)
    arrivals = since_begin(waits) + np.repeat(np.linspace(0.0, over, len(turns)), turns)
    order = np.argsort(arrivals, kind="stable")
    lengths, sessions = lengths[order], sessions[order]
    blocks = lengths // block_tokens
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], blocks)
    owners = np.repeat(sessions + 1, blocks) * (places >= common // block_tokens)
    return Named(
        arrivals[order],
        lengths,
        np.ones(len(lengths)),
        session=sessions,
        block_offsets=offsets,
        block_ids=(owners * 10**6 + places).astype(np.uint64),
        block_tokens=block_tokens,
    )
