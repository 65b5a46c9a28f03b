"""Sessions of requests: given, or read off the prefixes that prompts share."""

from __future__ import annotations

import numpy as np

from scalemodel.serving.traces.columns import Ids, Whole


def sessions_of_blocks(
    block_offsets: Whole, block_ids: Ids, input_tokens: Whole, block_tokens: int
) -> Whole:
    """The session of every request, as shared prefixes tell it.

    A request is the next turn of a session if its prompt begins with all full blocks of the
    session's last prompt, and the last of those was first seen in that session: a prefix that many
    begin with (a system prompt, a document) makes no session. Where a prompt of the same beginning
    comes again after the session has gone on, a new session begins. A prompt of less than a block
    can only begin one.

    Parameters
    ----------
    block_offsets, block_ids : array
        Blocks of the prompts in compressed rows; equal id, equal prefix.
    input_tokens : array
    block_tokens : int

    Returns
    -------
    array of int64
        Sessions in order of their first request, from 0.

    Examples
    --------
    >>> offsets, tokens = np.array([0, 2, 5, 7]), np.array([4, 9, 4])
    >>> ids = np.array([1, 2, 1, 2, 3, 1, 9], dtype=np.uint64)
    >>> sessions_of_blocks(offsets, ids, tokens, 2).tolist()
    [0, 0, 1]
    """
    owner: dict[int, int] = {}
    last_block: list[int] = []  # of the last prompt of each session, -1 where it has no full one
    sessions = np.empty(block_offsets.size - 1, dtype=np.int64)
    full = np.minimum(np.diff(block_offsets), input_tokens // block_tokens)
    starts, counts = block_offsets[:-1].tolist(), full.tolist()
    for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
        blocks = block_ids[start : start + count].tolist()
        session = -1
        for block in reversed(blocks):
            known = owner.get(block)
            if known is not None:
                session = known if last_block[known] == block else -1
                break
        if session < 0:
            session = len(last_block)
            last_block.append(-1)
        for block in reversed(blocks):
            if block in owner:
                break
            owner[block] = session
        if blocks and owner[blocks[-1]] == session:
            last_block[session] = blocks[-1]
        sessions[row] = session
    return sessions


def turns_of(sessions: Whole) -> Whole:
    """The turn of every request within its session, from 0.

    Examples
    --------
    >>> turns_of(np.array([5, 5, 8, 5])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(sessions, kind="stable")
    grouped = sessions[order]
    begins = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    starts = np.maximum.accumulate(np.where(begins, np.arange(grouped.size), 0))
    turns = np.empty(sessions.size, dtype=np.int64)
    turns[order] = np.arange(grouped.size) - starts
    return turns
