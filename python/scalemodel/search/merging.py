"""The ranking of a whole space from those of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.search.ranking import Question, Ranking, _Hit


def _first_of_each_meaning(question: Question, hits: Sequence[_Hit]) -> Iterator[_Hit]:
    """Of sorted hits that mean the same, the first: they have equal scores."""
    on = question.model.core, question.cluster.core, question.task.core
    for _, equal in groupby(hits, key=lambda hit: hit.score):
        of_score = list(equal)
        if len(of_score) == 1:
            yield from of_score
            continue
        seen: set[_core.Strategy] = set()
        for hit in of_score:
            meaning = _core.canonical(hit.strategy, *on)
            if meaning not in seen:
                seen.add(meaning)
                yield hit


def merge(rankings: Sequence[Ranking]) -> Ranking:
    """The ranking of all rows from those of parts of them; associative, in any order.

    Raises
    ------
    ScaleModelError : no ranking, or rankings of different questions.

    Examples
    --------
    >>> import scalemodel as sm
    >>> from scalemodel.search.ranking import Question
    >>> question = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"),
    ...                     sm.Training(global_batch=64, sequence=8192), sm.Space(tp=[1, 2]))
    >>> parts = [shard.search() for shard in question.shards(4)]
    >>> whole = question.run_search(0, question.size)
    >>> merge(parts)[0] == whole[0]
    True
    """
    if not rankings:
        raise ScaleModelError("rankings=[]: at least one is needed")
    question = rankings[0].question
    if any(
        ranking.question is not question and ranking.question != question for ranking in rankings
    ):
        raise ScaleModelError("rankings: must answer the same question")
    every = (hit for ranking in rankings for hit in ranking._hits)
    hits = _first_of_each_meaning(question, sorted(every, key=lambda hit: (hit.score, hit.row)))
    verdicts: dict[str, int] = {}
    for ranking in rankings:
        for reason, number in ranking._verdicts.items():
            verdicts[reason] = verdicts.get(reason, 0) + number
    return Ranking(
        question,
        tuple(islice(hits, question.kept)),
        size=sum(ranking.size for ranking in rankings),
        verdicts=verdicts,
        pruned=sum(ranking.pruned for ranking in rankings),
        constrained=sum(ranking.constrained for ranking in rankings),
    )
