"""``scalemodel tune``: one step of preference tuning, of a reward model, or of distillation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import add_formats, add_strategy, given, whole
from scalemodel.cli.post_trainings import (
    LENGTHS,
    PRECISION,
    ROLLOUT_PRECISION,
    TRAIN_BATCH,
    Row,
    add_fields,
    add_job,
    add_pools,
    pools_of,
    show,
)

if TYPE_CHECKING:
    from scalemodel.post_training import Distillation, Preference, TuningEstimate

_BOTH: tuple[Row, ...] = (
    *LENGTHS,
    PRECISION,
    ("lora_rank", whole, False, "of adapters (default: all weights learn)"),
    ("lora_targets", ("qkv", "attention", "all"), False, "matrices with adapters"),
)
_PREFERENCE: tuple[Row, ...] = (
    ("pairs", whole, False, "chosen and rejected answers of a step"),
    ("method", ("dpo", "ipo", "kto", "simpo", "orpo", "reward"), False, "(default dpo)"),
    ("pad_to", ("micro_batch", "batch"), False, "longest of which (default micro_batch)"),
)
_PREFERENCE_SWITCHES = (
    ("precomputed_reference", "log-probabilities of the reference were computed before"),
    ("packing", "sequences are packed (default: padded)"),
)
_DISTILLATION: tuple[Row, ...] = (
    ("teacher", str, False, "model whose logits a student learns from: a step of distillation"),
    ("prompts", whole, False, "prompts of a step of distillation"),
    ("generations", whole, False, "answers to each prompt (default 1)"),
    TRAIN_BATCH,
    ("top_k", whole, False, "logits of a token that the teacher hands on (default 64)"),
    ROLLOUT_PRECISION,
)
_DISTILLATION_SWITCHES = (
    ("full_logits", "the teacher hands on those of its whole vocabulary"),
    ("on_policy", "the student generates the answers"),
)
_TEACHER = ("tp", "cp", "pp", "ep")


def add_tune(commands: Any) -> None:
    """The command that predicts a step of preference tuning or of distillation."""
    parser = commands.add_parser(
        "tune",
        help="predict a step of preference tuning or of distillation",
        description="Predict a step of preference tuning (--pairs: DPO and its like, reward "
        "models) or of distillation (--teacher), phase by phase. A step of supervised fine-tuning "
        "is one of `scalemodel estimate`.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_tune)
    add_job(parser)
    add_fields(parser.add_argument_group("sequences"), _BOTH)
    for title, rows, switches in (
        ("preference tuning", _PREFERENCE, _PREFERENCE_SWITCHES),
        ("distillation", _DISTILLATION, _DISTILLATION_SWITCHES),
    ):
        group = parser.add_argument_group(title)
        add_fields(group, rows)
        for name, text in switches:
            option = "--" + name.replace("_", "-")
            group.add_argument(option, action="store_true", default=None, help=text)
    pools = add_pools(parser)
    pools.add_argument(
        "--frozen",
        choices=("host", "resident"),
        default="host",
        help="weights of a reference or a teacher between their passes (default host)",
    )
    pools.add_argument(
        "--teacher-accelerators",
        type=whole,
        metavar="N",
        help="of the job, where the teacher alone works (default: those that train)",
    )
    for name in _TEACHER:
        pools.add_argument(
            f"--teacher-{name}", type=whole, metavar="N", help=f"{name} of the teacher"
        )
    pools.add_argument("--logprob-batch", type=whole, default=1, metavar="N", help="of scoring")
    pools.add_argument(
        "--framework", choices=("plain", "nemo_rl", "verl", "areal"), default="plain"
    )
    add_strategy(parser)
    add_formats(parser)


def _set(options: argparse.Namespace, *rows: Any) -> dict[str, Any]:
    """What is set of some options."""
    found = {row[0]: getattr(options, row[0]) for row in rows}
    return {name: value for name, value in found.items() if value is not None}


def _task_of(options: argparse.Namespace) -> Preference | Distillation:
    from scalemodel.post_training import Distillation, Preference

    both = _set(options, *_BOTH)
    pairs = _set(options, *_PREFERENCE, *_PREFERENCE_SWITCHES)
    taught = _set(options, *_DISTILLATION, *_DISTILLATION_SWITCHES)
    if options.teacher is None:
        _refuse(taught, "needs --teacher")
        if options.pairs is None:
            raise ScaleModelError("tune: needs --pairs (preferences) or --teacher (distillation)")
        return Preference(**both, **pairs)
    _refuse(pairs, "is of preference tuning, which has no --teacher")
    if options.prompts is None:
        raise ScaleModelError("--teacher: needs --prompts, those of a step")
    if taught.pop("full_logits", False):
        if options.top_k is not None:
            raise ScaleModelError(
                f"--top-k {options.top_k}: not beside --full-logits, which hands on all"
            )
        taught["top_k"] = None
    return Distillation(**both, **taught)


def _refuse(found: dict[str, Any], why: str) -> None:
    for name, value in found.items():
        option = "--" + name.replace("_", "-")
        said = "" if value is True else f" {value}"
        raise ScaleModelError(f"{option}{said}: {why}")


def _step_of(options: argparse.Namespace) -> TuningEstimate:
    from scalemodel.post_training import estimate_tuning

    task = _task_of(options)
    train, rollout, teacher = pools_of(options, "rollout_accelerators", "teacher_accelerators")
    assert train is not None
    degrees = {name: getattr(options, f"teacher_{name}") for name in _TEACHER}
    degrees = {name: value for name, value in degrees.items() if value is not None}
    strategy = _core.Strategy(**given(options, _core.Strategy.fields()))
    share, tp = options.memory_share, options.rollout_tp
    return estimate_tuning(
        options.model,
        train,
        task,
        strategy,
        None if tp is None else _core.ServingLayout(tp=tp),
        frozen=options.frozen,
        teacher_strategy=strategy.replace(**degrees) if degrees else None,
        teacher_cluster=teacher,
        rollout=rollout,
        engine=options.engine,
        stack=options.stack,
        memory_share=(0.6 if rollout is None else 0.8) if share is None else share,
        logprob_batch=options.logprob_batch,
        framework=options.framework,
        refit=options.refit,
    )


def _tune(options: argparse.Namespace) -> int:
    return show(options, _step_of(options))
