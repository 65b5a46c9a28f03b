"""The scheduler of vLLM V1 over the blocks of a prefix cache: one row per step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel._core import SchedulerLimits
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments, named_fields
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.encoders import images_of
from scalemodel.serving.plan import ServingPlan

if TYPE_CHECKING:
    import pandas as pd

_STEP_COLUMNS = (
    "start",
    "time",
    "running",
    "waiting",
    "batched_tokens",
    "sequences",
    "decode_sequences",
    "started",
    "cached_tokens",
    "restored_tokens",
    "recomputed_tokens",
    "preemptions",
    "used_blocks",
)
_REQUEST_COLUMNS = (
    "started",
    "first_token",
    "finished",
    "cached_tokens",
    "preemptions",
    "refused",
)
_SPARE_BLOCKS = 1  # of vLLM's pool: the block that padding points to
_MOST_BLOCKS = 10**8
_MOST_TOKENS = 10**9
_MOST_IMAGES = 10**6


@named_fields
@dataclass(frozen=True)
class PromptRequest:
    """A request whose content is known, so that what it shares with others is.

    Attributes
    ----------
    prompt, output : int or sequence of int
        Numbers of tokens, or the ids of all of them.
    block_names : sequence of int or str
        What the blocks of the prompt hold, from the start, such as the ``hash_ids`` of a trace: two
        requests share the blocks up to the first name that differs. Names beyond the prompt are of
        the output. Only without ids.
    arrival : float
        Seconds, or the number of the step before which it comes, where steps have no times.
    images : float, optional
        Images of the prompt, whose tokens are among its own; as many as in the task of the plan
        when left out. Two requests share those that lie in blocks of the same names, or ids, so
        that different images must have different ones (engines hash their pixels).

    Examples
    --------
    >>> PromptRequest([1, 2, 3, 4], 10).input_tokens, PromptRequest(4, 10).output_tokens
    (4, 10)
    """

    prompt: int | Sequence[int]
    output: int | Sequence[int]
    block_names: Sequence[int | str] = ()
    arrival: float = 0.0
    images: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool):
                count = value
            elif isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
                raise ScaleModelError(
                    f"{name}={value!r}: must be a number of tokens or their ids", code="malformed"
                )
            else:
                count = len(value)
            if not 1 <= count <= _MOST_TOKENS:
                raise ScaleModelError(
                    f"{name}: {count} tokens: must be from 1 to 1e9", code="malformed"
                )
        arrival = self.arrival
        if isinstance(arrival, bool) or not isinstance(arrival, (int, float)):
            raise ScaleModelError(f"arrival={arrival!r}: must be a number", code="malformed")
        if not 0 <= arrival < math.inf:
            raise ScaleModelError(f"arrival={arrival!r}: must be from 0", code="malformed")
        images = self.images
        number = isinstance(images, (int, float)) and not isinstance(images, bool)
        if images is not None and (not number or not 0 <= images <= _MOST_IMAGES):
            raise ScaleModelError(
                f"images={images!r}: must be a number from 0 to 1e6", code="malformed"
            )
        if len(self.block_names) and not isinstance(self.prompt, int):
            raise ScaleModelError(
                "block_names: must be left out where the prompt is given as ids", code="malformed"
            )

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.prompt if isinstance(self.prompt, int) else len(self.prompt)

    @property
    def output_tokens(self) -> int:
        """Tokens of the answer."""
        return self.output if isinstance(self.output, int) else len(self.output)

    @property
    def ids(self) -> Sequence[int]:
        """Token ids from the start, as far as they are known."""
        if isinstance(self.prompt, int):
            return ()
        known = () if isinstance(self.output, int) else self.output
        return [*self.prompt, *known]


@dataclass(frozen=True, eq=False, repr=False)
class StepSchedule:
    """What a scheduler did. Made by `replay_schedule`.

    Attributes
    ----------
    limits : SchedulerLimits
    timed : bool
        Times are seconds of a plan; else a step takes 1.
    step_table : array of float
        One row per step: the columns of `steps`.
    request_table : array of float
        One row per request: the columns of `requests`, without the first three.
    arrival, input_tokens, output_tokens : array
        Of the requests, in the order they were given.
    """

    limits: SchedulerLimits
    timed: bool
    step_table: npt.NDArray[np.float64]
    request_table: npt.NDArray[np.float64]
    arrival: npt.NDArray[np.float64]
    input_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StepSchedule)
            and self.limits == other.limits
            and np.array_equal(self.step_table, other.step_table)
            and np.array_equal(self.request_table, other.request_table)
        )

    def __hash__(self) -> int:
        return hash((self.timed, self.step_table.tobytes()))

    def __repr__(self) -> str:
        found = self.summary()
        return (
            f"StepSchedule({found['steps']:,.0f} steps, {found['batched_tokens']:,.0f} tokens, "
            f"{found['cached_fraction']:.1%} of the prompts cached, "
            f"{found['preemptions']:,.0f} preemptions, {found['refused']:,.0f} refused)"
        )

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per step, as it stood when it had been scheduled.

        Columns: start, time (seconds, or steps), running, waiting (requests), batched_tokens,
        sequences (with tokens in the step), decode_sequences (those with one), started (requests
        that run for the first time), cached_tokens (of their prompts), restored_tokens (of
        preempted requests that run again, found in the cache), recomputed_tokens (of
        batched_tokens, those computed before), preemptions, used_blocks.
        """
        import pandas as pd

        table = pd.DataFrame(self.step_table, columns=list(_STEP_COLUMNS))
        return table.astype(dict.fromkeys(_STEP_COLUMNS[2:], "int64"))

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, in the order they were given.

        Columns: arrival, input_tokens, output_tokens, started, first_token, finished (seconds, or
        steps), cached_tokens (of the prompt), preemptions, refused (longer than the whole cache).
        """
        import pandas as pd

        table = pd.DataFrame(self.request_table, columns=list(_REQUEST_COLUMNS))
        table = table.astype({"cached_tokens": "int64", "preemptions": "int64", "refused": "bool"})
        for place, name in enumerate(("arrival", "input_tokens", "output_tokens")):
            table.insert(place, name, getattr(self, name))
        return table

    def summary(self) -> dict[str, float]:
        """Counts over the whole schedule, of the requests that were served.

        Examples
        --------
        >>> import scalemodel as sm
        >>> limits = sm.SchedulerLimits(blocks=100, block_tokens=16)
        >>> same = [sm.PromptRequest(list(range(64)), 4, arrival=at) for at in (0, 1)]
        >>> sm.replay_schedule(same, limits=limits).summary()["cached_tokens"]
        48.0
        """
        sums = dict(zip(_STEP_COLUMNS, self.step_table.sum(axis=0).tolist(), strict=True))
        refused = self.request_table[:, _REQUEST_COLUMNS.index("refused")] > 0
        prompts = float(self.input_tokens[~refused].sum())
        return {
            "steps": float(len(self.step_table)),
            "requests": float((~refused).sum()),
            "refused": float(refused.sum()),
            "prompt_tokens": prompts,
            "output_tokens": float(self.output_tokens[~refused].sum()),
            "batched_tokens": sums["batched_tokens"],
            "cached_tokens": sums["cached_tokens"],
            "cached_fraction": sums["cached_tokens"] / prompts if prompts else 0.0,
            "restored_tokens": sums["restored_tokens"],
            "recomputed_tokens": sums["recomputed_tokens"],
            "preemptions": sums["preemptions"],
        }


def limits_of(plan: ServingPlan) -> SchedulerLimits:
    """Limits of one instance of a plan whose engine schedules as vLLM does.

    Raises
    ------
    ScaleModelError : the plan does not run, its engine schedules otherwise, or a sequence of it
        does not take one block per `block_tokens` tokens.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, engine="vllm", requests_per_s=4)
    >>> limits_of(plan).block_tokens
    16
    """
    if plan.instance is None:
        raise ScaleModelError(f"plan: does not run ({plan.verdict})", code="malformed")
    engine = engine_constants(plan.engine).replace(**plan.engine_limits)
    if not (
        engine.mixed_batches
        and engine.chunked_prefill
        and engine.admission == "prompt"
        and plan.task.mix.speculative_tokens == 0
    ):
        raise ScaleModelError(
            f"plan: engine={plan.engine!r} or its drafts: steps are scheduled as vLLM does, in "
            "mixed batches of chunked prompts and single tokens",
            code="malformed",
        )
    many = 1024
    taken = plan.instance.cache_blocks(many * engine.block_tokens)
    if plan.layout.dp != 1 or abs(taken - many) > 1e-6 * many:
        raise ScaleModelError(
            "plan: its data- or context-parallel ranks, windows or states: a sequence must take "
            "one block of one cache per block_tokens tokens",
            code="malformed",
        )
    capacity = plan.instance.capacity(plan.task.input_tokens, plan.task.output_tokens)
    return SchedulerLimits(
        blocks=max(1, min(_MOST_BLOCKS, int(capacity.blocks) - _SPARE_BLOCKS)),
        block_tokens=engine.block_tokens,
        max_batched_tokens=int(capacity.max_batched_tokens),
        max_running_sequences=int(capacity.step_sequences),
    )


def _names(
    requests: Sequence[PromptRequest], numbers: dict[Any, int]
) -> Iterable[npt.NDArray[np.uint64]]:
    """Names of each request as numbers: its ids, or numbers given to its names."""
    for request in requests:
        ids = request.ids
        try:
            if len(ids):
                yield np.asarray(ids, dtype=np.int64).astype(np.uint64)
                continue
            given = [numbers.setdefault(name, len(numbers)) for name in request.block_names]
        except (TypeError, ValueError, OverflowError) as error:
            raise ScaleModelError(
                f"prompt or block_names: must be whole numbers or hashable names ({error})",
                code="malformed",
            ) from None
        yield np.asarray(given, dtype=np.uint64)


def _name_tokens(requests: Sequence[PromptRequest], asked: int | None, block_tokens: int) -> int:
    """Tokens that one name stands for."""
    ids = any(not isinstance(request.prompt, int) for request in requests)
    named = any(len(request.block_names) for request in requests)
    if ids and named:
        raise ScaleModelError(
            "requests: must all have token ids, or all block names", code="malformed"
        )
    if ids:
        return 1
    size = block_tokens if asked is None else asked
    whole = isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= 10**6
    if not whole or (size % block_tokens and block_tokens % size):
        raise ScaleModelError(
            f"name_tokens={asked!r}: must be a multiple or a divisor of "
            f"block_tokens={block_tokens}",
            code="malformed",
        )
    return size


def _columns(
    requests: Iterable[PromptRequest], name_tokens: int | None, block_tokens: int
) -> tuple[Any, ...]:
    """Arrivals, lengths, names and where those of each request end, tokens of a name."""
    asked = list(requests) if isinstance(requests, Iterable) else []
    if not asked or not all(isinstance(each, PromptRequest) for each in asked):
        kind = type(requests).__name__
        hint = f"; a {kind} has its own: {kind}.prefix_hits" * hasattr(requests, "prefix_hits")
        raise ScaleModelError(
            f"requests: must be PromptRequests, one at least{hint}", code="malformed"
        )
    size = _name_tokens(asked, name_tokens, block_tokens)
    names = list(_names(asked, {}))
    return (
        np.array([each.arrival for each in asked], dtype=np.float64),
        np.array([each.input_tokens for each in asked], dtype=np.int64),
        np.array([each.output_tokens for each in asked], dtype=np.int64),
        np.concatenate(names),
        np.cumsum([len(each) for each in names], dtype=np.int64),
        size,
    )


class PrefixHits(NamedTuple):
    """What a cache held of prompts. Made by `prefix_hits`.

    Attributes
    ----------
    tokens, hit_tokens : int
        Of all prompts, and of them those that were in the cache.
    blocks, hit_blocks : int
        The same in blocks.
    """

    tokens: int
    hit_tokens: int
    blocks: int
    hit_blocks: int

    @property
    def fraction(self) -> float:
        """Share of the prompt tokens, as `Inference(prefix_hit_fraction=)` takes it."""
        return self.hit_tokens / self.tokens


@named_arguments
def prefix_hits(
    requests: Iterable[PromptRequest],
    *,
    blocks: int | None = None,
    block_tokens: int = 16,
    name_tokens: int | None = None,
) -> PrefixHits:
    """How much of the prompts a cache of some size would hold, one request after the other.

    Blocks of a prompt hit until the first that is missing; then all of them are in the cache, the
    least recently used of others leave it. No time passes and no output is kept: an upper limit of
    what one engine finds, or what a store behind several does. `replay_schedule` counts the rest.

    Parameters
    ----------
    requests : iterable of PromptRequest
        In order of arrival.
    blocks : int, optional
        Of the cache; without it, no limit.
    block_tokens : int
    name_tokens : int, optional
        As for `replay_schedule`.

    Returns
    -------
    PrefixHits

    Raises
    ------
    ScaleModelError : no request, a number out of range.

    Examples
    --------
    >>> import scalemodel as sm
    >>> asked = [sm.PromptRequest(64, 8, ["system", f"user {i}"], i) for i in range(4)]
    >>> sm.prefix_hits(asked, block_tokens=32).fraction
    0.375
    """
    for name, value in (("blocks", blocks), ("block_tokens", block_tokens)):
        if value is None and name == "blocks":
            continue
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, int) or not whole or not 1 <= value <= _MOST_BLOCKS:
            raise ScaleModelError(f"{name}={value!r}: must be a whole number from 1 to 1e8")
    columns = _columns(requests, name_tokens, block_tokens)
    everything = int((-(-columns[1] // block_tokens)).sum())
    room = everything if blocks is None else min(blocks, everything)
    return PrefixHits(*_core.prefix_hits(room, block_tokens, *columns))


@named_arguments
def replay_schedule(
    requests: Iterable[PromptRequest],
    *,
    limits: SchedulerLimits | None = None,
    plan: ServingPlan | None = None,
    name_tokens: int | None = None,
) -> StepSchedule:
    """Schedules requests step by step as vLLM V1 does, with its prefix cache.

    A step has a budget of tokens. Running requests take theirs first, in order of admission, then
    waiting ones in order of arrival, prompts cut to what is left. Full blocks are kept by what they
    hold and what is before them; free ones are taken least recently used first, those that nothing
    can reuse before all others. A request that finds no block preempts the last admitted one,
    which is computed again. Two recorded schedules of vLLM 0.32 are met in every step.

    Parameters
    ----------
    requests : iterable of PromptRequest
        Of one instance, in order of arrival.
    limits : SchedulerLimits, optional
        Default: those of `plan`. vLLM logs one block more than requests may use.
    plan : Serving, optional
        Gives each step its time; without it a step takes 1.
    name_tokens : int, optional
        Tokens that each of `block_names` stands for (512 in Mooncake's traces); default: those of
        a block.

    Returns
    -------
    StepSchedule
        Tables of steps and of requests.

    Raises
    ------
    ScaleModelError : no request, neither limits nor a plan, arrivals that go back, or a plan whose
        engine schedules otherwise.

    References
    ----------
    vLLM 0.32, vllm/v1/core/sched/scheduler.py and vllm/v1/core/block_pool.py; pull requests 37307
    (`reserves_prompt`) and 42656 (`uncached_last`).

    Examples
    --------
    >>> import scalemodel as sm
    >>> system = list(range(64))
    >>> asked = [sm.PromptRequest([*system, 1000 + i], 8, arrival=i) for i in range(3)]
    >>> limits = sm.SchedulerLimits(blocks=40, block_tokens=16, max_batched_tokens=256)
    >>> found = sm.replay_schedule(asked, limits=limits)
    >>> found.steps[["running", "batched_tokens", "cached_tokens"]].head(3).values.tolist()
    [[1, 65, 0], [2, 2, 64], [3, 3, 64]]
    """
    if limits is None:
        if plan is None:
            raise ScaleModelError("limits=None: must be given without a plan", code="malformed")
        limits = limits_of(plan)
    elif plan is not None:
        limits_of(plan)  # Raises where its steps are not of this kind.
    asked = list(requests)
    columns = _columns(asked, name_tokens, limits.block_tokens)
    if plan is None or plan.instance is None:
        steps, served = _core.schedule_requests(limits, *columns)
    else:
        images = images_of(asked, plan)
        steps, served = plan.instance.schedule(limits, *(*columns, images))
    return StepSchedule(limits, plan is not None, steps, served, *columns[:3])
