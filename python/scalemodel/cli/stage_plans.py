"""``scalemodel plan-stages``: stages of training of a file as one plan."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import refuse_unknown
from scalemodel.cli.clusters import sized
from scalemodel.cli.options import add_formats
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json

if TYPE_CHECKING:
    from scalemodel.economics import Stage

_KINDS: Final = ("training", "fine_tuning", "rl", "preference", "distillation")
#: Of a stage itself; what else stands in its table is an argument of the verb that answers it.
_OF_STAGE: Final = (
    *("name", "tokens", "samples", "steps", "after", "reliability", "price", "grid", "pue"),
)
_STRATEGIES: Final = ("strategy", "teacher_strategy")
_CLUSTERS: Final = ("cluster", "rollout", "teacher_cluster")
#: Of a stage that says nothing else.
_SHARED: Final = ("model", "cluster", "stack")


def add_plan_stages(commands: Any) -> None:
    """The command that plans stages of training."""
    parser = commands.add_parser(
        "plan-stages",
        help="plan stages of training, from pre-training to reinforcement learning",
        description="Time, cost, energy and carbon of stages of training one after another, with "
        "what failures and hand-overs take. The file has a table [[stages]] for each: name, kind "
        f"({', '.join(_KINDS)}), model, cluster (dgx_h100:64), task, strategy or search = true, "
        "and tokens, samples or steps; and terms of all stages: price, grid, pue, reliability, "
        "switch_s, read.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_plan)
    parser.add_argument("file", metavar="FILE", help="stages, TOML")
    add_formats(parser)


def _answer(kind: str, asked: dict[str, Any], where: str) -> Any:
    """What the verb of a kind of stage says of one step."""
    from scalemodel.estimator.estimate import estimate
    from scalemodel.post_training import (
        Distillation,
        Preference,
        Rl,
        estimate_rl,
        estimate_tuning,
    )
    from scalemodel.resolve.tasks import FineTuning, Training
    from scalemodel.search.search import search

    kinds: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "training": (Training, estimate),
        "fine_tuning": (FineTuning, estimate),
        "rl": (Rl, estimate_rl),
        "preference": (Preference, estimate_tuning),
        "distillation": (Distillation, estimate_tuning),
    }
    made, verb = kinds[kind]
    question = asked.pop("model"), asked.pop("cluster"), made(**asked.pop("task"))
    if not asked.pop("search", False):
        refuse_unknown(f"{where} ({kind})", asked, verb)
        return verb(*question, **asked)
    if verb is not estimate:
        raise ScaleModelError(f"{where}.search=true: {kind} takes a strategy; give strategy")
    refuse_unknown(f"{where} ({kind}, search)", asked, search)
    found = search(*question, top=1, **asked)
    if not len(found):
        raise ScaleModelError(
            f"{where}.search=true: no strategy fits; give more nodes", code="nothing_feasible"
        )
    return found[0]


def _stage(given: object, shared: Mapping[str, Any], where: str) -> Stage:
    """One stage of the file."""
    from scalemodel.economics import Stage

    if not isinstance(given, Mapping):
        raise ScaleModelError(f"{where}={given!r}: must be a table, [[stages]]")
    asked = {**shared, **given}
    own = {name: asked.pop(name) for name in _OF_STAGE if name in asked}
    kind = asked.pop("kind", "training")
    if kind not in _KINDS:
        raise ScaleModelError(f"{where}.kind={kind!r}: unknown; {nearest(str(kind), _KINDS)}")
    for name in ("model", "cluster", "task"):
        if name not in asked:
            raise ScaleModelError(f"{where}.{name}: missing; {_LIKE[name]}")
    if not isinstance(asked["task"], Mapping):
        raise ScaleModelError(f"{where}.task={asked['task']!r}: must be a table; {_LIKE['task']}")
    for name in _CLUSTERS:
        if isinstance(asked.get(name), str):
            asked[name] = sized(asked[name], f"{where}.{name}=")
    for name in _STRATEGIES:
        if name in asked:
            asked[name] = _core.Strategy(**_table(asked[name], f"{where}.{name}"))
    if "layout" in asked:
        asked["layout"] = _core.ServingLayout(**_table(asked["layout"], f"{where}.layout"))
    return Stage(**{"name": "", **own}, answer=_answer(kind, asked, where))


_LIKE: Final = {
    "model": "such as model = 'llama3_8b', of the stage or of all",
    "cluster": "such as cluster = 'dgx_h100:64', of the stage or of all",
    "task": "such as task = { global_batch = 1024, sequence = 8192 }",
}


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ScaleModelError(f"{where}={value!r}: must be a table, such as {{ tp = 2 }}")
    return dict(value)


def _plan(options: argparse.Namespace) -> int:
    from scalemodel.catalog import read_toml
    from scalemodel.economics import plan_stages

    read = dict(read_toml(Path(options.file)))
    shared: dict[str, Any] = {name: read.pop(name) for name in _SHARED if name in read}
    stages = read.pop("stages", None)
    if not isinstance(stages, list):
        raise ScaleModelError(f"{options.file}: stages: missing; give a table [[stages]] for each")
    refuse_unknown(options.file, read, plan_stages)
    plan = plan_stages(
        [_stage(each, shared, f"stages[{number}]") for number, each in enumerate(stages)], **read
    )
    table = plan.table
    if options.json:
        print_json(plan.to_dict())
    elif options.csv:
        rows = table.astype(object).where(table.notna(), None)
        print_csv(list(table.columns), rows.to_numpy().tolist())
    else:
        print(plan)
    return OK if plan.verdict == "ok" else INFEASIBLE
