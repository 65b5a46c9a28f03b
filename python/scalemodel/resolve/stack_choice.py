"""Choice of a named software stack from what a measurement says about its framework and year."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.resolve.stacks import StackLike
from scalemodel.resolve.stacks import stack as stack_of

FALLBACK = "plain"
#: What is fitted of a stack; all else in it is fact.
FITTED_CONSTANTS = (
    "gemm_efficiency",
    "memory_efficiency",
    "host_launch_s",
    "overlap_efficiency",
)
#: Runs from which on fitted constants hold on an architecture without any. Fits of few runs stay
#: near the plain constants; left out, an architecture is met as well by those of 10 or more runs
#: elsewhere as by the plain ones (8.9 % in the mean of groups), fine-tuning a little better.
TRAVELLING_RUNS = 10


@dataclass(frozen=True)
class _Claim:
    """What a stack says about the runs it describes."""

    name: str
    frameworks: tuple[str, ...]
    tasks: tuple[str, ...]
    year_min: int | None
    year_max: int | None
    priority: int

    def years_away(self, year: int | None) -> int:
        if year is None:
            return 0
        if self.year_min is not None and year < self.year_min:
            return self.year_min - year
        if self.year_max is not None and year > self.year_max:
            return year - self.year_max
        return 0


def _plain_text(text: str) -> str:
    """A label as labels are compared: lower case, words joined by single hyphens."""
    return re.sub(r"[\s_\-]+", "-", text.lower())


def _longest_match(patterns: Iterable[str], text: str) -> int:
    """Length of the longest pattern found in ``text``; 0 when none is."""
    return max((len(pattern) for pattern in patterns if pattern in text), default=0)


def _patterns(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    listed = table.get(key, ())
    if isinstance(listed, str):
        listed = (listed,)
    return tuple(_plain_text(str(item)) for item in listed) if isinstance(listed, Iterable) else ()


def _whole(table: Mapping[str, object], key: str) -> int | None:
    value = table.get(key)
    return value if isinstance(value, int) else None


def _claim(name: str, table: Mapping[str, object]) -> _Claim:
    return _Claim(
        name=name,
        frameworks=_patterns(table, "frameworks"),
        tasks=_patterns(table, "tasks"),
        year_min=_whole(table, "year_min"),
        year_max=_whole(table, "year_max"),
        priority=_whole(table, "priority") or 0,
    )


@catalog.kept(1)
def _claims() -> tuple[_Claim, ...]:
    return tuple(
        _claim(name, catalog.load("stacks", name)) for name in sorted(catalog.names("stacks"))
    )


@catalog.kept(4096)
def stack_for(framework: str = "", year: int | None = None, task: str = "") -> str:
    """Catalogue name of the stack that a run used.

    A stack that claims the task (``tasks``) wins over one that claims the framework
    (``frameworks``); both are parts of the text, whose case, spaces, hyphens and underscores do
    not count. Among the stacks left, the one whose years (``year_min`` to ``year_max``) is nearest
    to ``year`` wins, then the higher ``priority``, then the longer matching text, then the name.

    Parameters
    ----------
    framework : str
        As printed, with or without a release ("Megatron-Bridge 26.04.01").
    year : int, optional
        Year of publication; None when unknown.
    task : str
        As printed ("pretrain (MLPerf)").

    Returns
    -------
    str
        Name of a stack of the catalogue; ``"plain"`` when nothing claims the run.
    """
    framework, task = _plain_text(framework), _plain_text(task)
    # By itself the name of the library, which others carry in theirs.
    framework = "megatron-lm" if framework == "megatron" else framework
    best: tuple[tuple[int, int, int, int], str] | None = None
    for claim in _claims():
        by_task = _longest_match(claim.tasks, task)
        by_framework = _longest_match(claim.frameworks, framework)
        if not by_task and not by_framework:
            continue
        rank = (
            1 if by_task else 0,
            -claim.years_away(year),
            claim.priority,
            by_task or by_framework,
        )
        if best is None or rank > best[0]:
            best = (rank, claim.name)
    return best[1] if best else FALLBACK


@catalog.kept(64)
def unstated(name: str) -> Mapping[str, object]:
    """What the scripts of a stack do where a run does not say.

    Parameters
    ----------
    name : str
        Catalogue name of the stack.

    Returns
    -------
    Mapping of str to object
        The ``[unstated]`` table of its entry without the sources; empty when it has none.

    Examples
    --------
    >>> unstated("plain")
    {}
    """
    table = catalog.load("stacks", name).get("unstated", {})
    return {key: value_of(cell) for key, cell in table.items()}


@catalog.kept(64)
def logged_gigabyte(name: str) -> float:
    """Bytes of what the log of a stack calls a gigabyte.

    Parameters
    ----------
    name : str
        Catalogue name of the stack.

    Returns
    -------
    float
        ``gigabyte`` in the ``[log]`` table of its entry; 2^30, a GiB, when it has none.

    Examples
    --------
    >>> logged_gigabyte("megatron_bridge_2026_06"), logged_gigabyte("plain")
    (1000000000.0, 1073741824.0)
    """
    cell = catalog.load("stacks", name).get("log", {}).get("gigabyte", "1 GiB")
    return parse_quantity(value_of(cell), "bytes", f"stacks/{name}: log.gigabyte")


@dataclass(frozen=True)
class Fitted:
    """What the constants of a stack were fitted to.

    Attributes
    ----------
    runs : Mapping of str to int
        Architecture of accelerators -> published runs.
    bounded : tuple of str
        Constants at an end of their physical range: what they stand for is no property of theirs.
    cut : bool
        Whether all of these runs are of models cut to as many layers as one node holds, as
        simulators check themselves: they tell of that node, and constants of them do not travel.
    """

    runs: Mapping[str, int]
    bounded: tuple[str, ...] = ()
    cut: bool = False

    def holds_on(self, architecture: str, vendor: str) -> bool:
        """Whether the constants hold on an architecture; those fitted to nothing hold anywhere."""
        if not self.runs or architecture in self.runs:
            return True
        if vendor not in {_vendors()[known] for known in self.runs}:
            return False
        believed = not self.bounded and not self.cut
        return believed and sum(self.runs.values()) >= TRAVELLING_RUNS


@catalog.kept(1)
def _vendors() -> Mapping[str, str]:
    """Vendor of every architecture of the catalogue."""
    entries = (catalog.load("accelerators", name) for name in catalog.names("accelerators"))
    return {entry["architecture"]: entry["vendor"] for entry in entries}


@catalog.kept(64)
def fitted(name: str) -> Fitted:
    """What the constants of a catalogued stack were fitted to.

    Examples
    --------
    >>> sorted(fitted("llm_foundry_2023").runs), fitted("plain").runs
    (['ampere', 'hopper'], {})
    """
    table = catalog.load("stacks", name).get("fitted", {})
    return Fitted(
        runs=dict(table.get("runs", {})),
        bounded=tuple(table.get("bounded", {})),
        cut=bool(table.get("cut", False)),
    )


def with_constants(facts: _core.Stack, constants: _core.Stack) -> _core.Stack:
    """The facts of one stack with the fitted constants of another."""
    return facts.replace(**{key: getattr(constants, key) for key in FITTED_CONSTANTS})


def with_plain_constants(constants: _core.Stack) -> _core.Stack:
    """The facts of a stack with the fitted constants of the plain one."""
    return with_constants(constants, stack_of(FALLBACK))


@catalog.kept(256)
def facts_on(name: str, architecture: str) -> _core.Stack:
    """A catalogued stack with those of its facts that exist on an architecture.

    Kernels that were written for some architectures only are listed in the ``[only]`` table of an
    entry; elsewhere the engine's default takes their place.

    Examples
    --------
    >>> facts_on("megatron_bridge_2026_06", "hopper").fused_experts
    False
    """
    only = catalog.load("stacks", name).get("only", {})
    absent = [key for key, cell in only.items() if architecture not in list(cell["value"])]
    default = _core.Stack()
    return stack_of(name).replace(**{key: getattr(default, key) for key in absent})


def _constants_of(stack: _core.Stack) -> tuple[float, ...]:
    return tuple(getattr(stack, key) for key in FITTED_CONSTANTS)


@catalog.kept(1)
def _names_by_constants() -> Mapping[tuple[float, ...], tuple[str, ...]]:
    """Catalogued stacks that have each set of fitted constants."""
    found: dict[tuple[float, ...], tuple[str, ...]] = {}
    for name in catalog.names("stacks"):
        key = _constants_of(stack_of(name))
        found[key] = (*found.get(key, ()), name)
    return found


def stack_on(stack: StackLike, architecture: str, vendor: str) -> _core.Stack:
    """The stack as it is on accelerators of an architecture.

    Facts are those that exist there (`facts_on`); fitted constants give way to plain ones where
    they do not hold (`Fitted.holds_on`). A `Stack` has the facts that it states; its constants are
    a catalogued stack's where they are equal, and give way like those. Constants of one's own are
    returned as they are.

    Parameters
    ----------
    stack : str or Stack
    architecture, vendor : str
        As the catalogue writes them.

    Examples
    --------
    >>> stack_on("llm_foundry_2023", "cdna3", "AMD").gemm_efficiency
    0.85
    >>> stack_on(stack_of("llm_foundry_2023"), "cdna3", "AMD").gemm_efficiency
    0.85
    """
    if not isinstance(stack, str):
        own = stack_of(stack)
        named = _names_by_constants().get(_constants_of(own), ())
        held = not named or any(fitted(name).holds_on(architecture, vendor) for name in named)
        return own if held else with_plain_constants(own)
    name = catalog.find("stacks", stack)
    facts = facts_on(name, architecture)
    return facts if fitted(name).holds_on(architecture, vendor) else with_plain_constants(facts)


def holds_on(name: str, accelerator: str) -> bool:
    """Whether the fitted constants of a stack hold on an accelerator.

    They do on architectures they were fitted on. On others of the same vendor they do when at
    least `TRAVELLING_RUNS` runs back them, not all of cut models, and none is at an end of its
    range; never on another vendor's. Where they do not, `with_plain_constants` keeps what the
    stack states as fact.

    Parameters
    ----------
    name, accelerator : str
        Catalogue names.

    Examples
    --------
    >>> holds_on("llm_foundry_2023", "h100_sxm_80"), holds_on("llm_foundry_2023", "mi300x")
    (True, False)
    """
    entry = catalog.load("accelerators", accelerator)
    return fitted(name).holds_on(entry["architecture"], entry["vendor"])
