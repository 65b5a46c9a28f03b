"""Rankings as JSON: written by one machine, read and merged by another, not a bit lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import LARGEST_RECORD, parse_json, read_bytes
from scalemodel.base.safe_text import plain_cells
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve import tasks as task_types
from scalemodel.resolve.tasks import Training
from scalemodel.search.merging import merge as merge_rankings
from scalemodel.search.ranking import Question, Ranking, _Hit
from scalemodel.search.space import Space

FORMAT = "scalemodel ranking 1"
Rows = tuple[tuple[int, int], ...]


# ------------------------------------------------------------------------------------------ rows
def joined_rows(ranges: Iterable[tuple[int, int]]) -> Rows:
    """Ranges [first, last) in order, those that touch as one.

    Examples
    --------
    >>> joined_rows([(5, 9), (0, 5), (12, 12), (12, 20)])
    ((0, 9), (12, 20))
    """
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if first == last:
            continue
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return tuple(joined)


def missing_rows(rows: Rows, size: int) -> Rows:
    """What is left of [0, size) without some ranges.

    Examples
    --------
    >>> missing_rows(((0, 9), (12, 20)), 30)
    ((9, 12), (20, 30))
    """
    edges = [0, *(edge for found in rows for edge in found), size]
    return joined_rows(zip(edges[::2], edges[1::2], strict=True))


def rows_text(rows: Rows) -> str:
    """Ranges as a person writes them.

    Examples
    --------
    >>> rows_text(((0, 9), (12, 2000)))
    'rows 0 to 8, 12 to 1,999'
    """
    return "rows " + ", ".join(f"{first:,} to {last - 1:,}" for first, last in rows)


def check_rows(parts: Sequence[tuple[str, Rows]]) -> Rows:
    """The rows of named parts together; ScaleModelError where two parts hold the same row."""
    every = sorted((first, last, name) for name, rows in parts for first, last in rows)
    for (_, last, name), (first, other_last, other) in pairwise(every):
        if first < last:
            both = rows_text(((first, min(last, other_last)),))
            raise ScaleModelError(f"{name}, {other}: both hold {both}; give each shard once")
    return joined_rows((first, last) for first, last, _ in every)


def check_complete(rows: Rows, size: int) -> None:
    """ScaleModelError where rows of the space are missing; the message names them."""
    missing = missing_rows(rows, size)
    if missing:
        count = sum(last - first for first, last in missing)
        raise ScaleModelError(
            f"{rows_text(missing)} are missing ({count:,} of {size:,}); give the files of all "
            "shards, or partial=True (--partial)"
        )


# --------------------------------------------------------------------------------------- records
def _plain(value: object) -> object:
    """What JSON lacks: records as objects, numbers of numpy as numbers."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} has no place in a file")


def dumps(document: object) -> str:
    """JSON that reads back to the same numbers, bit for bit."""
    return json.dumps(document, allow_nan=False, default=_plain, ensure_ascii=False)


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    """An engine record from its field names and values, those of records within included."""
    return kind(
        **{row["name"]: _member(row["default"], values[row["name"]]) for row in kind.fields()}
    )


def _member(default: Any, value: Any) -> Any:
    """A value of a field whose default is given: a record, a sequence of them, or as it is."""
    if hasattr(default, "to_dict"):
        return _record(type(default), value)
    if isinstance(default, tuple) and default and hasattr(default[0], "to_dict"):
        return tuple(_record(type(default[0]), item) for item in value)
    return value


# ------------------------------------------------------------------------------------- questions
_MODEL_TEXTS = ("name", "title", "family", "hub", "checkpoint", "revision", "read_as")
_CLUSTER_TEXTS = ("name", "title", "accelerator", "price_source")


def question_document(question: Question) -> dict[str, Any]:
    """Everything that decides an answer, as JSON holds it: numbers, not catalogue names.

    Examples
    --------
    >>> import scalemodel as sm
    >>> question = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"),
    ...                     sm.Training(global_batch=64, sequence=8192), Space(tp=[1, 2]))
    >>> question_from(question_document(question)) == question
    True
    """
    model, cluster, task, space = question.model, question.cluster, question.task, question.space
    own = {item.name: getattr(task, item.name) for item in fields(task) if item.init}
    document = {
        "model": {key: getattr(model, key) for key in _MODEL_TEXTS}
        | {"shape": model.shape, "vision": model.vision, "scalar_head": model.scalar_head},
        "cluster": {key: getattr(cluster, key) for key in _CLUSTER_TEXTS} | {"core": cluster.core},
        "task": {"kind": type(task).__name__, **own},
        "space": {
            "knobs": dict(space.knobs),
            "where": space.where,
            "exclude": [dict(row) for row in space.exclude],
            "redundant": space.redundant,
            "tiers": space.tiers,
        },
        "stack": {"name": question.stack, "constants": resolve.stack(question.stack)},
        "objective": question.objective,
        "constraints": question.constraints,
        "top": question.top,
        "prune": question.prune,
        "columns": question.columns,
        "too_big": question.too_big,
        "headroom": question.headroom,
        "framework": question.framework,
    }
    found: dict[str, Any] = json.loads(dumps(document))
    return found


def question_from(document: Mapping[str, Any]) -> Question:
    """The question a document describes.

    Raises
    ------
    ScaleModelError : the stack has other constants here than where the document was written.
    """
    model, cluster, task = document["model"], document["cluster"], dict(document["task"])
    kind = {"Training": Training, "FineTuning": task_types.FineTuning}[task.pop("kind")]
    space, stack = document["space"], document["stack"]
    if _record(_core.Stack, stack["constants"]) != resolve.stack(stack["name"]):
        raise ScaleModelError(
            f"stack={stack['name']!r}: has other constants in this catalogue than in the file"
        )
    columns = document["columns"]
    return Question(
        model=Model(
            shape=_record(_core.DecoderShape, model["shape"]),
            vision=_record(_core.VisionShape, model["vision"]) if model.get("vision") else None,
            scalar_head=model.get("scalar_head", False),
            **{key: model.get(key, "") for key in _MODEL_TEXTS},
        ),
        cluster=Cluster(
            core=_record(_core.Cluster, cluster["core"]),
            **{key: cluster[key] for key in _CLUSTER_TEXTS},
        ),
        task=kind(**task),
        space=Space(
            **space["knobs"],
            where=space["where"],
            exclude=space["exclude"],
            redundant=space["redundant"],
            tiers=space["tiers"],
        ),
        stack=stack["name"],
        objective=tuple((column, weight) for column, weight in document["objective"]),
        constraints=tuple(document["constraints"]),
        top=document["top"],
        prune=document["prune"],
        columns=None if columns is None else tuple(columns),
        too_big=document["too_big"],
        headroom=document.get("headroom", 0.0),
        framework=document.get("framework"),
    )


def question_sha256(document: Mapping[str, Any]) -> str:
    """Digest of a question and of the version that answers it; equal for equal questions."""
    text = json.dumps([_core.__version__, document], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def check_same_question(named: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """ScaleModelError unless all question documents are equal; the message says what differs."""
    (name, document), *others = named
    for other, asked in others:
        differing = [key for key in document if document[key] != asked.get(key)]
        if differing:
            raise ScaleModelError(
                f"{name}, {other}: answer different questions: {', '.join(differing)} differ"
            )


# ----------------------------------------------------------------------------------------- parts
@dataclass(frozen=True)
class Part:
    """A ranking and the rows of the space that it speaks of.

    Attributes
    ----------
    ranking : Ranking
    rows : tuple of (first, last)
        Ranges of row numbers, ascending, `last` excluded.
    size : int
        Rows of the whole space.
    name : str
        Where it comes from, for messages.
    """

    ranking: Ranking
    rows: Rows
    size: int
    name: str = "ranking"

    @property
    def complete(self) -> bool:
        """Whether no row of the space is missing."""
        return not missing_rows(self.rows, self.size)


def part_of(ranking: Ranking, first: int = 0, last: int | None = None) -> Part:
    """A ranking as a part; without rows: one of the whole space."""
    size = ranking.question.size
    rows = joined_rows([(first, size if last is None else last)])
    if sum(b - a for a, b in rows) != ranking.size:
        raise ScaleModelError(
            f"first={first}, last={last}: the ranking is one of {ranking.size:,} rows"
        )
    return Part(ranking, rows, size)


def to_json(part: Part | Ranking) -> str:
    """A ranking, or a part of one, as text.

    Examples
    --------
    >>> import scalemodel as sm
    >>> best = sm.search("llama3_8b", sm.cluster("dgx_h100"),
    ...                  sm.Training(global_batch=64, sequence=8192), sm.Space(pp=1), top=3)
    >>> from_json(to_json(best)).ranking == best
    True
    """
    part = part_of(part) if isinstance(part, Ranking) else part
    ranking = part.ranking
    question = question_document(ranking.question)
    return dumps(
        {
            "format": FORMAT,
            "version": _core.__version__,
            "question_sha256": question_sha256(question),
            "question": question,
            # Where the cluster's numbers come from: no part of the question, they are in it.
            "cluster_table": ranking.question.cluster.table,
            "space_rows": part.size,
            "rows": part.rows,
            "verdicts": dict(sorted(ranking._verdicts.items())),
            "pruned": ranking.pruned,
            "constrained": ranking.constrained,
            "hits": [hit._asdict() for hit in ranking._hits],
        }
    )


def from_json(text: str | bytes, name: str = "ranking") -> Part:
    """The part that a text holds.

    Raises
    ------
    ScaleModelError : no such text, another version's, or one that was changed.
    """
    try:
        document = parse_json(text, f"{name}: holds no ranking of scalemodel")
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ScaleModelError(f"{name}: holds no ranking of scalemodel")
        check_version(name, document)
        asked = document["question"]
        question = question_from(asked)
        cluster = replace(question.cluster, table=plain_cells(document["cluster_table"]))
        question = replace(question, cluster=cluster)
        if question_sha256(asked) != document["question_sha256"]:
            raise ScaleModelError(f"{name}: its question was changed after it was written")
        rows: Rows = tuple((int(first), int(last)) for first, last in document["rows"])
        size = int(document["space_rows"])
        hits = tuple(
            _Hit(
                float(hit["score"]),
                int(hit["row"]),
                _record(_core.Strategy, hit["strategy"]),
                _record(_core.Estimate, hit["core"]),
            )
            for hit in document["hits"]
        )
        ranking = Ranking(
            question,
            hits,
            size=sum(last - first for first, last in rows),
            verdicts={str(reason): int(n) for reason, n in document["verdicts"].items()},
            pruned=int(document["pruned"]),
            constrained=int(document["constrained"]),
        )
    except ScaleModelError as error:
        known = str(error).startswith(f"{name}: ")
        raise error if known else ScaleModelError(f"{name}: {error}", error.code) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ScaleModelError(f"{name}: holds no ranking of scalemodel ({reason})") from None
    if joined_rows(rows) != rows or (rows and not 0 <= rows[0][0] < rows[-1][1] <= size):
        raise ScaleModelError(f"{name}: its rows do not lie within the space")
    if ranking.evaluated + ranking.pruned != ranking.size:
        raise ScaleModelError(f"{name}: its counts do not add up to its rows")
    return Part(ranking, rows, size, name)


def check_version(name: str, document: Mapping[str, Any]) -> None:
    """ScaleModelError for the file of another version, whose numbers may differ."""
    if document.get("version") != _core.__version__:
        raise ScaleModelError(
            f"{name}: written by scalemodel {document.get('version')}, this is "
            f"{_core.__version__}; numbers may differ, ask again with one version"
        )


def read(path: str | Path) -> Part:
    """The part that a file holds."""
    return from_json(read_bytes(path, LARGEST_RECORD), str(path))


def merge(parts: Sequence[Part], *, partial: bool = False) -> Part:
    """Parts of one ranking put together; associative, in any order.

    Parameters
    ----------
    parts : sequence of Part
    partial : bool
        Accept that rows are missing: the result is a part itself.

    Raises
    ------
    ScaleModelError : parts of different questions, rows that are missing or there twice.
    """
    if not parts:
        raise ScaleModelError("parts=[]: at least one is needed")
    check_same_question([(part.name, question_document(part.ranking.question)) for part in parts])
    rows = check_rows([(part.name, part.rows) for part in parts])
    if not partial:
        check_complete(rows, parts[0].size)
    ranking = merge_rankings([part.ranking for part in parts])
    return Part(ranking, rows, parts[0].size, "merged")
