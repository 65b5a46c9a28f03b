"""The page of a study: `report`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.base.progress import Progress, watched
from scalemodel.base.words import named_arguments
from scalemodel.layer_groups.model import is_composed
from scalemodel.reports import markup, sections
from scalemodel.resolve import Network
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import HEADROOM, Objective
from scalemodel.search.ranking import Question, Ranking
from scalemodel.search.search import search
from scalemodel.search.space import Space


@dataclass(frozen=True)
class Report:
    """A study on one page. Made by `report`.

    Attributes
    ----------
    title : str
    ranking : Ranking
        What was found; empty where nothing fits, and then the page says why.
    html : str
        The page: text, tables and drawings in one file that loads nothing and runs nothing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> study = sm.report("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Space(cp=1, pp=1))
    >>> study.html.startswith("<!DOCTYPE html>"), study.ranking[0].verdict
    (True, 'ok')
    """

    title: str
    ranking: Ranking
    html: str = field(repr=False)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page.

        Raises
        ------
        ScaleModelError : the file cannot be written.
        """
        with replacing(path) as draft:
            draft.write_text(self.html, encoding="utf-8")
        return Path(path)


def _code(question: Question, top: int) -> str:
    """Python that asks the question again."""
    shares = {
        axis: share
        for axis, share in question.cluster.core.fabric.shares.to_dict().items()
        if share != 1
    }
    terms = dict(question.objective)
    given: dict[str, object] = {
        "objective": terms if len(terms) > 1 else next(iter(terms)),
        "constraints": list(question.constraints),
        "headroom": question.headroom,
        "top": top,
        "stack": question.stack,
        "network": shares or None,
    }
    usual: dict[str, object] = {
        "objective": "step_time_s",
        "constraints": [],
        "headroom": HEADROOM,
        "stack": DEFAULT_STACK,
        "network": None,
    }
    options = "".join(
        f", {name}={value!r}"
        for name, value in given.items()
        if name not in usual or value != usual[name]
    )
    cluster = f"{question.cluster.name!r}, accelerators={question.cluster.accelerators}"
    return "\n".join(
        [
            "import scalemodel as sm",
            "",
            f"cluster = sm.cluster({cluster})",
            f"task = sm.{question.task!r}",
            f"space = sm.{question.space!r}",
            f"page = sm.report({question.model.name!r}, cluster, task, space{options})",
            'page.write("study.html")',
        ]
    )


@named_arguments
def report(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    objective: Objective = "step_time_s",
    constraints: Sequence[str] | str = (),
    headroom: float = HEADROOM,
    top: int = 5,
    title: str | None = None,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: Progress = None,
) -> Report:
    """The best strategies of a space on one HTML page, with all that speaks for and against them.

    The page holds the question, the best strategies with their intervals, where time and memory
    go, why the winner wins and what each knob is worth, what less memory costs, what each quantity
    of the machine is worth, what limits the step and what would help, how sure all that is, every
    assumption with its source, and the code that writes the page again.

    Parameters
    ----------
    model, cluster, task, space, objective, constraints, headroom, stack, network, threads
        As in `search`.
        A space of single values makes a page about one strategy.
    top : int
        Strategies in the table.
    title : str, optional
        Default: model and machine.
    progress : bool or function of (done, total), optional
        Of the page's sections; a page takes some forty searches of the space. Default: a line once
        a second has passed, on a terminal or in a notebook. True shows a bar of tqdm, False none.

    Returns
    -------
    Report

    Raises
    ------
    ScaleModelError : malformed question, or a model of layer groups.

    Examples
    --------
    >>> import scalemodel as sm
    >>> space = sm.Space(tp=[1, 2], pp=1, cp=1, micro_batch=1, sharding="zero1")
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> page = sm.report("llama3_8b", sm.cluster("dgx_h100"), task, space)
    >>> page.title, page.ranking[0].verdict, page.html.count("<svg ")
    ('llama3_8b on 8 × h100_sxm_80', 'ok', 4)
    """
    if is_composed(model):
        raise ScaleModelError(
            f"model={model!r}: pages are written of decoders; sm.search ranks models of layer "
            "groups"
        )
    if title is not None and not (isinstance(title, str) and title.strip()):
        raise ScaleModelError(f"title={title!r}: must be a text")
    ranking: Ranking = search(
        model,
        cluster,
        task,
        space,
        objective=objective,
        top=top,
        constraints=constraints,
        headroom=headroom,
        stack=stack,
        network=network,
        threads=threads,
    )
    question = ranking.question
    where = f"{question.cluster.accelerators:,} × {question.cluster.accelerator}"
    title = f"{question.model.label} on {where}" if title is None else title

    made: list[markup.Section] = []
    parts = sections.sections_of(ranking, _code(question, top), threads)
    with watched(progress, len(parts), " sections") as tell:
        for part in parts:
            made.append(part())
            if tell is not None:
                tell(len(made), len(parts))
    origin = f"Predicted by scalemodel {_core.__version__}; nothing on this page was measured."
    return Report(title, ranking, markup.page(title, origin, made))
