"""Strategies that a training framework starts, and what of a space its settings can say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import Case, Rule
from scalemodel.search.framework_optimizers import check_optimizer
from scalemodel.search.framework_rules import FRAMEWORKS, RULES
from scalemodel.search.ranking import Question, Ranking
from scalemodel.search.space import Space

# ------------------------------------------------------------------- what settings can say at all
#: What DeepSpeed alone has settings for.
_ZERO_PLUS_PLUS: Final[dict[str, tuple[object, ...]]] = {
    "secondary_degree": (0,),
    "quantized_gather": (False,),
    "quantized_reduce": (False,),
}
_MEGATRON_KNOBS: Final[dict[str, tuple[object, ...]]] = {
    **_ZERO_PLUS_PLUS,
    "schedule": ("1f1b", "interleaved"),
    "regather": (True,),
    "split_p2p": (True,),
    "placement": ("tp-cp-dp-pp", "tp-cp-pp-dp"),
    "overlap_tp": ("stack", "off", "ring"),
    "offload_weights": (False,),
}
_TORCH_KNOBS: Final[dict[str, tuple[object, ...]]] = {
    "regather": (True,),
    "split_p2p": (True,),
    "placement": ("tp-cp-dp-pp",),
    "recompute_layers": (0,),
    "offload_activations": (False,),
    "overlap_param_gather": ("stack", "on"),
    "linear_precision": ("task",),
}
#: Knobs that some setting says; `_NARROWED` tells where only some of their values can be said.
_SAID: Final = (
    *("tp", "cp", "pp", "dp", "ep", "etp", "vpp", "micro_batch", "schedule", "placement"),
    *("sharding", "shard_degree", *_ZERO_PLUS_PLUS, "recompute", "recompute_layers", "context"),
    *("sequence_parallel", "regather", "split_p2p", "linear_precision"),
    *("offload_weights", "offload_activations", "offload_optimizer"),
    *("overlap_grad_reduce", "overlap_param_gather", "overlap_tp"),
)
_NARROWED: Final[dict[str, dict[str, tuple[object, ...]]]] = {
    "megatron": _MEGATRON_KNOBS,
    "megatron_bridge": _MEGATRON_KNOBS,
    "nemo": {**_MEGATRON_KNOBS, "sharding": ("ddp", "zero1"), "placement": ("tp-cp-dp-pp",)},
    "torchtitan": {
        **_TORCH_KNOBS,
        **_ZERO_PLUS_PLUS,
        "schedule": ("1f1b", "interleaved", "gpipe", "zero_bubble_v", "dualpipe_v"),
        "sharding": ("ddp", "zero2", "zero3", "hsdp"),
        "context": ("all_gather",),
        "sequence_parallel": (True,),
        "overlap_tp": ("stack", "off", "ring"),
        "overlap_grad_reduce": ("stack", "on"),
        "offload_weights": (False,),
        "offload_optimizer": (False,),
    },
    "deepspeed": {
        **_TORCH_KNOBS,
        "pp": (1,),
        "ep": (1,),
        "etp": (0, 1),
        "sharding": ("ddp", "zero1", "zero2", "zero3"),
        "context": ("all_to_all",),
        "sequence_parallel": (False,),
        "recompute": ("none", "full"),
        "overlap_tp": ("stack", "off"),
    },
    "accelerate": {
        **_TORCH_KNOBS,
        **_ZERO_PLUS_PLUS,
        "pp": (1,),
        "ep": (1,),
        "etp": (0, 1),
        "sharding": ("ddp", "zero2", "zero3", "hsdp"),
        "context": ("ring", "all_gather"),
        "sequence_parallel": (False,),
        "recompute": ("none", "full"),
        "overlap_tp": ("stack", "off"),
        "overlap_grad_reduce": ("stack", "on"),
        "offload_weights": (False,),
        "offload_optimizer": (False,),
    },
}


def _values_said(
    fields: Iterable[Mapping[str, Any]], narrowed: Mapping[str, tuple[object, ...]]
) -> dict[str, tuple[object, ...]]:
    """Values of the knobs that settings restrict; a knob without any setting keeps its default.

    Examples
    --------
    >>> fields = [{"name": "pp", "default": 1}, {"name": "a_new_knob", "default": False}]
    >>> _values_said(fields, {"pp": (1,)})
    {'a_new_knob': (False,), 'pp': (1,)}
    """
    unsaid = {str(row["name"]): (row["default"],) for row in fields if row["name"] not in _SAID}
    return {**unsaid, **narrowed}


#: Framework -> values of a knob that its settings can say; knobs left out take any value.
KNOBS: Final[dict[str, dict[str, tuple[object, ...]]]] = {
    framework: _values_said(_core.Strategy.fields(), narrowed)
    for framework, narrowed in _NARROWED.items()
}
#: Knobs that have no effect where another one is 1.
_IDLE: Final = {
    "sequence_parallel": "tp",
    "regather": "tp",
    "overlap_tp": "tp",
    "context": "cp",
    "split_p2p": "pp",
    "schedule": "pp",
}


def known_framework(framework: object) -> str:
    """The name of a framework that has rules.

    Examples
    --------
    >>> known_framework("nemo")
    'nemo'
    """
    if not isinstance(framework, str) or framework not in FRAMEWORKS:
        raise ScaleModelError(
            f"framework={framework!r}: unknown; {nearest(str(framework), FRAMEWORKS)}",
            code="unknown_framework",
        )
    return framework


def unsaid(framework: str, strategy: _core.Strategy) -> list[str]:
    """Knobs of a strategy that have an effect and that no setting of the framework says.

    Examples
    --------
    >>> unsaid("deepspeed", _core.Strategy(pp=2, recompute="selective"))
    ['pp', 'recompute']
    """
    found = []
    for name, values in KNOBS[framework].items():
        needed = _IDLE.get(name)
        idle = needed is not None and getattr(strategy, needed) == 1
        if not idle and getattr(strategy, name) not in values:
            found.append(name)
    return found


def refusals(framework: str, case: Case) -> list[Rule]:
    """The rules of a framework that a strategy breaks.

    Examples
    --------
    >>> import scalemodel as sm
    >>> from scalemodel import resolve
    >>> case = Case(sm.model("mixtral_8x7b"), sm.cluster("dgx_h100"),
    ...             sm.Training(global_batch=8, sequence=4096), sm.Strategy(tp=2, ep=3),
    ...             resolve.stack("plain"))
    >>> [rule.name for rule in refusals("megatron", case)]
    ['experts']
    """
    return [rule for rule in RULES[known_framework(framework)] if rule.breaks(case)]


def accepts(framework: str, case: Case) -> bool:
    """Whether a framework starts a strategy, and its settings say all of it."""
    said = not unsaid(framework, case.strategy)
    return said and not any(rule.breaks(case) for rule in RULES[framework])


# --------------------------------------------------------------------------------------- spaces
def _kept(name: str, listed: Sequence[object], said: Sequence[object], framework: str) -> Any:
    kept = [value for value in listed if value in said]
    if not kept and name in _IDLE:
        # The knob has no effect where the one it needs is 1; the rules refuse the others.
        return list(said)
    if not kept:
        raise ScaleModelError(
            f"{name}={list(listed)!r}: {framework} can only say "
            + ", ".join(map(repr, said))
            + f"; name one of them, or leave framework={framework!r} out",
            code="framework_knob",
        )
    return kept


def expressible(
    space: Space, framework: str, model: Model, cluster: Cluster, task: Training
) -> Space:
    """The part of a space that the settings of a framework can say.

    Examples
    --------
    >>> import scalemodel as sm
    >>> question = (sm.model("llama3_8b"), sm.cluster("dgx_h100"),
    ...             sm.Training(global_batch=64, sequence=8192))
    >>> dict(expressible(Space(), "deepspeed", *question).knobs)["pp"]
    (1,)
    """
    values = space.values(model, cluster, task)
    named = dict(space.knobs)
    changes: dict[str, Any] = {}
    for name, said in KNOBS[known_framework(framework)].items():
        if space.tiers and name == "placement":
            continue
        if name in values:
            changes[name] = _kept(name, values[name], said, framework)
        elif name in named:
            changes[name] = _kept(name, named[name], said, framework)
    return space.replace(**changes)


# -------------------------------------------------------------------------------------- rankings
#: Strategies looked at where a framework may refuse some: at first, how many times more each time,
#: and at most.
_ASKED, _MORE, _MOST_ASKED = 256, 8, 100_000


def startable(question: Question, framework: str, run: Callable[[Question], Ranking]) -> Ranking:
    """The best strategies that a framework starts: more are looked at until enough are left.

    A prefix of a longer ranking is the shorter one, so that what is left is exact.
    """
    q, stack = question, resolve.stack(question.stack)
    check_optimizer(known_framework(framework), q.task)
    space = expressible(q.space, framework, q.model, q.cluster, q.task)
    space = _without_refused_degrees(space, framework, q, stack)
    question = replace(question, space=space, framework=framework)
    asked = max(_ASKED, question.kept)
    while True:
        ranking = run(replace(question, top=asked))
        hits = tuple(
            hit
            for hit in ranking._hits
            if accepts(framework, Case(q.model, q.cluster, q.task, hit.strategy, stack))
        )
        if len(hits) >= question.kept or len(ranking._hits) < asked or asked >= _MOST_ASKED:
            break
        asked = min(_MOST_ASKED, asked * _MORE)
    return Ranking(
        question,
        hits[: question.kept],
        size=ranking.size,
        verdicts=ranking._verdicts,
        pruned=ranking.pruned,
        constrained=ranking.constrained,
        refused="" if hits else _why_refused(framework, q, ranking, stack),
    )


def _without_refused_degrees(
    space: Space, framework: str, q: Question, stack: _core.Stack
) -> Space:
    """The space without degrees that a rule refuses whatever stands beside them.

    Where nothing would be left, all of it: the rule is what the ranking says then.
    """
    values = space.values(q.model, q.cluster, q.task)
    for rule in RULES[framework]:
        if rule.degree:
            listed = values[rule.degree]
            alone = (_core.Strategy().replace(**{rule.degree: value}) for value in listed)
            broken = [rule.breaks(Case(q.model, q.cluster, q.task, plan, stack)) for plan in alone]
            values[rule.degree] = [
                value for value, breaks in zip(listed, broken, strict=True) if not breaks
            ] or listed
    degrees = {rule.degree for rule in RULES[framework] if rule.degree}
    return space.replace(**{degree: values[degree] for degree in sorted(degrees)})


def _why_refused(framework: str, q: Question, ranking: Ranking, stack: _core.Stack) -> str:
    """What a framework says to the best strategies that run, where it starts none of them."""
    broken = Counter(
        why
        for hit in ranking._hits[:_ASKED]
        for case in [Case(q.model, q.cluster, q.task, hit.strategy, stack)]
        for why in (
            *(f"{rule.says} ({rule.source})" for rule in refusals(framework, case)),
            *(f"it cannot say {knob}" for knob in unsaid(framework, hit.strategy)),
        )
    )
    told = "; ".join(why for why, _ in broken.most_common(3))
    return f" {framework} starts none of those that do: {told}." if told else ""
