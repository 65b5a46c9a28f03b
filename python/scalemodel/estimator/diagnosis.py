"""Which neighbouring strategies run, or run faster, and what a diagnosis says in all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.numbers import divisors
from scalemodel.base.text import percent_text, size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.evaluation import Evaluation, decoder_estimate, evaluate
from scalemodel.estimator.losses import Loss, losses, what_limits
from scalemodel.estimator.verdicts import verdict_message
from scalemodel.resolve.tasks import Training

MAX_TRIALS = 3000
_PRECISIONS = ("bf16", "fp16", "tf32", "fp32", "fp8", "fp4")


@dataclass(frozen=True, repr=False)
class Fix:
    """A changed strategy (or task) and what it predicts.

    Attributes
    ----------
    change : str
        The knobs, as ``"pp 4→8"``.
    strategy : Strategy
    task : Training
    verdict : str
        ``"ok"``, or ``"out_of_memory"`` where a legal layout does not fit either.
    step_time_s, memory_bytes : float
    time_change_fraction, memory_change_bytes : float or None
        Against the strategy that was changed; None when that one has no numbers.
    """

    change: str
    strategy: _core.Strategy
    task: Training
    verdict: str
    step_time_s: float
    memory_bytes: float
    time_change_fraction: float | None
    memory_change_bytes: float | None

    def __repr__(self) -> str:
        step, size = time_text(self.step_time_s), size_text(self.memory_bytes)
        return f"Fix({self.change}: {self.verdict}, step {step}, {size})"


# -------------------------------------------------------------------------------------- changes
class _Change(NamedTuple):
    """Knobs and their new values; ``task`` marks a change of the question itself."""

    values: dict[str, object]
    task: bool = False

    def text(self, est: Evaluation, dp: int) -> str:
        """Old and new values; a derived data-parallel degree is shown as what it became."""
        owner = est.task if self.task else est.strategy
        shown = {**self.values, "dp": dp} if "dp" in self.values else self.values
        parts = [
            f"{name} {_shown(getattr(owner, name))}→{_shown(value)}"
            for name, value in shown.items()
            if getattr(owner, name) != value
        ]
        return ", ".join(parts)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _with_companions(values: dict[str, object], s: _core.Strategy) -> dict[str, object]:
    """A changed mesh needs a data-parallel degree that follows, no pipeline no interleaving."""
    full = dict(values)
    if s.dp and any(name in values for name in ("tp", "cp", "pp")):
        full.setdefault("dp", 0)
    if values.get("pp") == 1 and s.vpp > 1:
        full.setdefault("vpp", 1)
    if full.get("pp", s.pp) == 1 and s.schedule == "interleaved":
        full.setdefault("schedule", "1f1b")
    return full


class _Trials:
    """Tries changes with `evaluate`, each strategy once and at most `MAX_TRIALS` of them."""

    def __init__(self, est: Evaluation) -> None:
        self.est = est
        self.seen = {(est.strategy, est.task)}

    def run(self, change: _Change) -> Fix | None:
        """The changed question's numbers; None when it is illegal, known or one too many."""
        est = self.est
        if len(self.seen) >= MAX_TRIALS:
            return None
        strategy, task = est.strategy, est.task
        try:
            if change.task:
                task = task.replace(**change.values)
            else:
                change = _Change(_with_companions(change.values, strategy))
                strategy = strategy.replace(**change.values)
        except ScaleModelError:  # out of the range of a field
            return None
        if (strategy, task) in self.seen:
            return None
        self.seen.add((strategy, task))
        tried = evaluate(est.model, est.cluster, task, strategy, est.stack)
        if tried.illegal:
            return None
        known = not est.illegal
        step, memory = float(tried.core.step_time_s), float(tried.core.memory_bytes)
        return Fix(
            change=change.text(est, int(tried.core.dp)),
            strategy=strategy,
            task=task,
            verdict=tried.verdict,
            step_time_s=step,
            memory_bytes=memory,
            time_change_fraction=step / est.core.step_time_s - 1 if known else None,
            memory_change_bytes=memory - est.core.memory_bytes if known else None,
        )


def _around(value: int) -> list[int]:
    return [2 * value, value // 2] if value > 1 else [2]


def _powers(limit: int) -> list[int]:
    return [1 << i for i in range(max(1, limit).bit_length())]


def _knob_values(est: Evaluation, name: str) -> Iterable[object]:
    """Every sensible value of a knob; what is illegal is found out by trying."""
    s, shape, task = est.strategy, est.model.shape, est.task
    accelerators = est.cluster.accelerators
    choices: dict[str, Iterable[object]] = {
        "dp": [0],
        "tp": divisors(shape.heads, accelerators),
        "cp": _powers(min(accelerators, 64)),
        "pp": [pp for pp in divisors(accelerators, 128) if pp <= shape.layers],
        "ep": divisors(shape.experts) if shape.experts else [1],
        "etp": [0, *_powers(min(accelerators, 8))],
        "vpp": range(1, min(16, max(1, shape.layers // s.pp)) + 1),
        "micro_batch": divisors(task.global_batch, 64),
        "shard_degree": [0, *_powers(min(accelerators, 4096))],
        "secondary_degree": [0, *_powers(min(accelerators, 4096))],
        "recompute_layers": [0, shape.layers],
        "sequence_parallel": [True, False],
        **{key: [False] for key in ("quantized_gather", "quantized_reduce", *_OFFLOADS)},
    }
    if name in choices:
        return choices[name]
    for row in _core.Strategy.fields():
        if row["name"] == name:
            return tuple(row["choices"])
    raise KeyError(name)


def _task_changes(est: Evaluation) -> Iterator[_Change]:
    task, s = est.task, est.strategy
    if est.reason == "batch":
        per_pass = est.core.dp * s.micro_batch
        below = task.global_batch // per_pass * per_pass
        for batch in (below, below + per_pass):
            if batch > 0:
                yield _Change({"global_batch": batch}, task=True)
    elif est.reason in ("cp_sequence", "sp_sequence"):
        part = s.cp * s.tp
        below = task.sequence // part * part
        for sequence in (below, below + part):
            if sequence > 0:
                yield _Change({"sequence": sequence}, task=True)
    elif est.reason == "precision":
        for precision in _PRECISIONS:
            yield _Change({"precision": precision}, task=True)


#: Knobs that a reason speaks of, tried first.
_KNOBS_OF_REASON: dict[str, tuple[str, ...]] = {
    "mesh": ("dp", "tp", "cp", "pp"),
    "tp_heads": ("tp",),
    "tp_ffn": ("tp",),
    "pp_layers": ("pp", "vpp"),
    "vpp_without_pp": ("vpp", "pp"),
    "vpp_schedule": ("schedule", "vpp"),
    "dualpipe_stages": ("schedule", "pp", "micro_batch"),
    "dualpipe_v_batches": ("schedule", "pp", "micro_batch"),
    "cp_sequence": ("cp",),
    "cp_heads": ("cp", "tp", "context"),
    "sp_sequence": ("tp", "cp", "sequence_parallel"),
    "ep_experts": ("ep",),
    "ep_mesh": ("ep", "etp", "tp", "cp"),
    "etp_ffn": ("etp", "ep", "tp"),
    "batch": ("micro_batch", "dp", "tp", "pp", "cp"),
    "shard_degree": ("shard_degree", "sharding"),
    "quantized_sharding": ("sharding", "quantized_gather", "quantized_reduce"),
    "secondary_degree": ("secondary_degree", "sharding"),
    "recompute_layers": ("recompute_layers",),
    "precision": (),
    "offload": ("offload_weights", "offload_activations", "offload_optimizer", "sharding"),
}
_ALL_KNOBS = ("dp", "tp", "cp", "pp", "ep", "etp", "vpp", "micro_batch", "schedule", "sharding")
_MEMORY_KNOBS = (
    "recompute",
    "sharding",
    "micro_batch",
    "tp",
    "pp",
    "cp",
    "ep",
    "vpp",
    "sequence_parallel",
    "schedule",
)
_OFFLOADS = ("offload_optimizer", "offload_activations", "offload_weights")


def _by_rank(fixes: Iterable[Fix]) -> list[Fix]:
    return sorted(fixes, key=lambda fix: (fix.verdict != "ok", fix.step_time_s, fix.change))


def _nearest_values(est: Evaluation, name: str) -> list[object]:
    """Values of a knob, those nearest to its present one first, alternating up and down."""
    now = getattr(est.strategy, name)
    values = [value for value in _knob_values(est, name) if value != now]
    if isinstance(now, bool) or not isinstance(now, int):
        return values
    numbers = [value for value in values if isinstance(value, int)]
    below = sorted((value for value in numbers if value < now), reverse=True)
    above = sorted(value for value in numbers if value > now)
    return [*below, *above]


def _legal_neighbours(trials: _Trials, names: Iterable[str]) -> list[Fix]:
    """Per knob, the nearest legal value on either side (every legal choice of a named knob)."""
    est, found = trials.est, []
    for name in names:
        now = getattr(est.strategy, name)
        numeric = isinstance(now, int) and not isinstance(now, bool)
        sides: set[bool] = set()
        for value in _nearest_values(est, name):
            side = numeric and isinstance(value, int) and value > now
            if numeric and side in sides:
                continue
            fix = trials.run(_Change({name: value}))
            if fix is not None:
                sides.add(side)
                found.append(fix)
    return found


def _pairs(est: Evaluation, first: Iterable[str], second: Iterable[str]) -> Iterator[_Change]:
    seen: set[frozenset[str]] = set()
    others = list(second)
    for a in first:
        for b in others:
            if a == b or frozenset((a, b)) in seen:
                continue
            seen.add(frozenset((a, b)))
            for x in _nearest_values(est, a):
                for y in _nearest_values(est, b):
                    yield _Change({a: x, b: y})


def _best_per_knobs(fixes: Iterable[Fix]) -> list[Fix]:
    """The best of the fixes that change the same knobs."""
    best: dict[tuple[str, ...], Fix] = {}
    for fix in _by_rank(fixes):
        knobs = tuple(part.split(" ")[0] for part in fix.change.split(", "))
        best.setdefault(knobs, fix)
    return list(best.values())


def _fixes_of_illegal(est: Evaluation, count: int) -> list[Fix]:
    trials = _Trials(est)
    found = [fix for change in _task_changes(est) if (fix := trials.run(change)) is not None]
    knobs = _KNOBS_OF_REASON[est.reason]
    if est.reason == "mesh" and est.strategy.dp and trials.run(_Change({"dp": 0})) is not None:
        trials, knobs = _Trials(est), ("dp",)  # the given degree is all that is wrong
    found += _legal_neighbours(trials, knobs)
    if not found:
        others = [name for name in _ALL_KNOBS if name not in knobs]
        found = _legal_neighbours(trials, others)
    if not found:
        pairs = _pairs(est, knobs or _ALL_KNOBS, _ALL_KNOBS)
        found = _best_per_knobs(fix for pair in pairs if (fix := trials.run(pair)) is not None)
    return _by_rank(found)[:count]


def _other_values(est: Evaluation, names: Iterable[str]) -> Iterator[_Change]:
    for name in names:
        for value in _nearest_values(est, name):
            yield _Change({name: value})


def _fixes_of_memory(est: Evaluation, count: int) -> list[Fix]:
    trials = _Trials(est)

    def fitting(changes: Iterable[_Change]) -> list[Fix]:
        tried = (trials.run(change) for change in changes)
        return [fix for fix in tried if fix is not None and fix.verdict == "ok"]

    single = fitting(_other_values(est, _MEMORY_KNOBS))
    single += fitting(_Change({name: True}) for name in _OFFLOADS)
    found = _best_per_knobs(single)
    if len(found) < min(3, count):
        # What helps alone helps in every company: such pairs say nothing new.
        alone = [set(fix.change.split(", ")) for fix in single]
        pairs = fitting(_pairs(est, _MEMORY_KNOBS[:5], _MEMORY_KNOBS))
        found += _best_per_knobs(
            fix for fix in pairs if not any(one <= set(fix.change.split(", ")) for one in alone)
        )
    if not found:
        found = fitting(_Change({"recompute": "full", name: True}) for name in _OFFLOADS)
    return _by_rank(found)[:count]


def fixes(est: Evaluation, count: int = 5) -> list[Fix]:
    """Changes that make a strategy run, fastest first; empty when it runs already.

    Changes of one knob are tried first, of two where fewer than three of those help. For an illegal
    strategy they are the nearest legal values of the knobs that its reason speaks of; what does not
    fit then says so in its verdict and comes last.

    Parameters
    ----------
    est : Estimate
    count : int
        Length of the answer, at most.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=6),
    ...                   sm.Training(global_batch=48, sequence=8192), sm.Strategy(tp=12))
    >>> sorted(fix.strategy.tp for fix in fixes(est))
    [8, 16]
    """
    if est.fits:
        return []
    return _fixes_of_illegal(est, count) if est.illegal else _fixes_of_memory(est, count)


def _neighbours(est: Evaluation) -> Iterator[_Change]:
    s = est.strategy
    for name in ("tp", "pp", "cp", "ep", "vpp", "micro_batch"):
        for value in _around(getattr(s, name)):
            yield _Change({name: value})
    yield from _other_values(est, ("recompute", "sharding"))
    yield _Change({"sequence_parallel": not s.sequence_parallel})


def next_knobs(est: Evaluation, count: int = 3) -> list[Fix]:
    """Single-knob neighbours of a strategy that runs which are faster and run too, best first.

    Neighbours double or halve a degree (tp, pp, cp, ep, vpp, micro_batch) or take another
    recomputation, sharding or sequence parallelism.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=8))
    >>> all(fix.step_time_s < est.step_time_s for fix in next_knobs(est))
    True
    """
    if not est.fits:
        return []
    trials = _Trials(est)
    tried = (trials.run(change) for change in _neighbours(est))
    # A change below a thousandth is noise beside the error of any estimate.
    limit = 0.999 * est.core.step_time_s
    better = [
        fix for fix in tried if fix is not None and fix.verdict == "ok" and fix.step_time_s < limit
    ]
    return _by_rank(better)[:count]


# ------------------------------------------------------------------------------------ the verdict
def fix_text(fix: Fix, *, relative: bool) -> str:
    """A change and what it does; ``relative`` compares with the strategy it changes."""
    if relative and fix.time_change_fraction is not None and fix.memory_change_bytes is not None:
        sign = "−" if fix.memory_change_bytes < 0 else "+"
        return (
            f"{fix.change} ({percent_text(fix.time_change_fraction, signed=True)} time, "
            f"{sign}{size_text(abs(fix.memory_change_bytes))})"
        )
    fits = "" if fix.verdict == "ok" else ", does not fit"
    return f"{fix.change} (step {time_text(fix.step_time_s)}, {size_text(fix.memory_bytes)}{fits})"


def message(est: Evaluation, helps: list[Fix] | None = None) -> str:
    """What the verdict says, why, the numbers, and the changes that help.

    Parameters
    ----------
    est : Estimate
    helps : list of Fix, optional
        What `fixes` found, where the caller has it already; empty: nothing helps.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=6),
    ...                   sm.Training(global_batch=48, sequence=8192), sm.Strategy(tp=12))
    >>> print(message(est).splitlines()[0])
    illegal:tp_heads   tp=12 cannot split 64 attention heads (64 / 12 is not whole).
    """
    said = verdict_message(est)
    if est.fits:
        return said
    if helps is None:
        helps = fixes(est)
    relative, lines = est.reason == "out_of_memory", [said]
    if helps:
        lines.append("  Fixes, fastest first:")
        lines += [f"    {fix_text(fix, relative=relative)}" for fix in helps]
    else:
        lines.append("  No change of one or two knobs helps; more accelerators or a smaller task.")
    return "\n".join(lines)


@dataclass(frozen=True)
class Diagnosis:
    """What holds a step back and what would help. Made by `diagnose`.

    Attributes
    ----------
    limit : str
        The largest avoidable term, or the verdict of a strategy that cannot run.
    speed_of_light_s : float or None
        The step if every accelerator did nothing but the model's operations at its dense peak.
    losses : tuple of Loss
        What an ideal machine would not spend, largest first.
    changes : tuple of Fix
        Single changes of the strategy that help most, best first; for one that cannot run, what
        makes it run.
    """

    limit: str
    speed_of_light_s: float | None
    losses: tuple[Loss, ...]
    changes: tuple[Fix, ...]
    step_time_s: float | None

    def __str__(self) -> str:
        lines = [f"limited by: {self.limit}"]
        if self.speed_of_light_s is not None and self.step_time_s is not None:
            share = percent_text(self.speed_of_light_s / self.step_time_s)
            lines.append(
                f"speed of light: {time_text(self.speed_of_light_s)} a step; "
                f"this strategy reaches {share} of it in {time_text(self.step_time_s)}"
            )
        lines += [f"would help: {fix_text(fix, relative=True)}" for fix in self.changes]
        return "\n".join(lines)


@named_arguments
def diagnose(est: Evaluation, count: int = 3) -> Diagnosis:
    """Name what limits a step, the speed of light, and the changes that would help most.

    Parameters
    ----------
    est : Estimate
    count : int
        Changes at most.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=8))
    >>> found = sm.diagnose(est)
    >>> found.speed_of_light_s < est.step_time_s, 0 < len(found.changes) <= 3
    (True, True)
    """
    if decoder_estimate(est).illegal:
        return Diagnosis(what_limits(est), None, (), tuple(fixes(est, count)), None)
    step_s = float(est.core.step_time_s)
    changes = next_knobs(est, count) if est.fits else fixes(est, count)
    return Diagnosis(
        limit=what_limits(est),
        speed_of_light_s=float(est.core.mfu_fraction) * step_s,
        losses=tuple(losses(est)),
        changes=tuple(changes),
        step_time_s=step_s,
    )
