"""Which strategies a search looks at: `Space`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.numbers import divisors, powers_of_two
from scalemodel.base.words import spelled
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.tasks import Training

if TYPE_CHECKING:
    import ast

_FIELDS = {str(row["name"]): row for row in _core.Strategy.fields()}
_VARIABLES = tuple(_core.variables().split(", "))
_COMPARISONS = {"Lt": "<", "LtE": "<=", "Eq": "==", "NotEq": "!=", "GtE": ">=", "Gt": ">"}

_LARGEST_FACTOR = 1e12
#: Signs of a rule; Python's parser takes time and memory for what nests deeper.
_LONGEST_RULE = 500

#: (factor, variables) of each side around a comparison.
Relation = tuple[float, list[str], str, float, list[str]]


# ------------------------------------------------------------------------------------- relations
def _product(node: ast.expr, text: str) -> tuple[float, list[str]]:
    """Factor and variables of a product such as ``2 * tp * cp``."""
    import ast

    number = node.value if isinstance(node, ast.Constant) else None
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    if isinstance(number, (int, float)) and is_number and 0 < number < _LARGEST_FACTOR:
        return float(number), []
    if isinstance(node, ast.Name):
        if node.id not in _VARIABLES:
            raise ScaleModelError(
                f"where={text!r}: no variable {node.id!r}; {nearest(node.id, _VARIABLES)}"
            )
        return 1.0, [node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _product(node.left, text), _product(node.right, text)
        return left[0] * right[0], left[1] + right[1]
    raise ScaleModelError(
        f"where={text!r}: each side must be a product of positive numbers and of "
        + ", ".join(_VARIABLES)
    )


def relation(text: str) -> Relation:
    """A rule between degrees, read from text.

    Examples
    --------
    >>> relation("tp * cp <= domain")
    (1.0, ['tp', 'cp'], '<=', 1.0, ['domain'])
    >>> relation("layers % (pp * vpp) == 0")
    (1.0, ['layers'], 'multiple_of', 1.0, ['pp', 'vpp'])
    """
    import ast  # rules are rare, and their parser would slow down every import

    if len(text) > _LONGEST_RULE:
        raise ScaleModelError(
            f"where={text[:40]!r}...: has {len(text):,} signs; at most {_LONGEST_RULE}"
        )
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        node = None
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ScaleModelError(
            f"where={text!r}: must be one comparison, such as 'tp * cp <= domain' or "
            "'layers % pp == 0'"
        )
    left, right = node.left, node.comparators[0]
    symbol = _COMPARISONS.get(type(node.ops[0]).__name__)
    if symbol is None:
        raise ScaleModelError(f"where={text!r}: the comparison must be one of < <= == != >= >")
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        if symbol != "==" or not (isinstance(right, ast.Constant) and right.value == 0):
            raise ScaleModelError(f"where={text!r}: a remainder can only be compared with == 0")
        return (*_product(left.left, text), "multiple_of", *_product(left.right, text))
    return (*_product(left, text), symbol, *_product(right, text))


# ----------------------------------------------------------------------------- automatic values
class _Question:
    """What the automatic values of a knob depend on."""

    def __init__(self, model: Model, cluster: Cluster, task: Training) -> None:
        self.shape = model.shape
        self.core = cluster.core
        self.task = task
        self.routed = int(self.shape.experts) > 0


#: Degrees beyond these are legal but seldom sensible; name them to have them looked at.
_SHORTEST_CONTEXT = 2048
_LARGEST = {"pp": 64, "vpp": 8, "micro_batch": 16}
_AUTOMATIC: dict[str, Callable[[_Question], Sequence[object]]] = {
    "tp": lambda q: divisors(int(q.shape.heads), max(8, int(q.core.scale_up.domain))),
    "cp": lambda q: powers_of_two(min(q.task.sequence / _SHORTEST_CONTEXT, 1024)),
    "pp": lambda q: divisors(int(q.core.accelerators), min(int(q.shape.layers), _LARGEST["pp"])),
    "vpp": lambda q: range(1, _LARGEST["vpp"] + 1),
    "micro_batch": lambda q: powers_of_two(_LARGEST["micro_batch"]),
    "ep": lambda q: divisors(int(q.shape.experts)) if q.routed else [1],
    "etp": lambda q: [0, 1, 2, 4, 8] if q.routed else [0],
    "sharding": lambda q: ["ddp", "zero1", "zero2", "zero3", "hsdp"],
    "recompute": lambda q: ["none", "selective", "full"],
    "context": lambda q: ["ring", "all_to_all", "all_gather"],
    "placement": lambda q: [
        name for name in _FIELDS["placement"]["choices"] if name.startswith("tp-")
    ],
    "sequence_parallel": lambda q: [True, False],
    "regather": lambda q: [True, False],
    "offload_optimizer": lambda q: [False, True],
}


def _spelled(name: str, value: object) -> object:
    """A value of a knob as the engine spells it."""
    return spelled({name: value}, _FIELDS)[name]


def _listed(name: str, given: object) -> tuple[object, ...]:
    """Values of a knob; a single one stands for itself."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return (_spelled(name, given),)
    listed = tuple(_spelled(name, value) for value in given)
    if not listed:
        raise ScaleModelError(f"{name}=[]: at least one value is needed")
    doubled = [value for i, value in enumerate(listed) if value in listed[:i]]
    if doubled:
        raise ScaleModelError(f"{name}={listed!r}: {doubled[0]!r} is listed twice")
    return listed


class Space:
    """Strategies to choose from: values of every knob and the rules between them.

    Only legal strategies belong to a space, each once: a knob that changes nothing (sequence
    parallelism without tensor parallelism, say) keeps its default. Hashable and picklable.

    Parameters
    ----------
    **knobs : value or sequence of values
        Any field of `Strategy`. Left out or ``"auto"``: the automatic values, which are those a
        practitioner would try: tp up to the scale-up domain, cp down to 2,048 tokens a rank, pp up
        to 64, vpp up to 8, micro-batches of 1 to 16, every sharding, recomputation and kind of
        context parallelism, sequence parallelism off, on, and on with inputs kept whole, tensor
        parallelism innermost and any order of the other axes, optimizer states offloaded or not.
        Other knobs keep their default.
    where : sequence of str
        Rules between products of numbers and degrees: ``"tp * cp <= domain"``,
        ``"layers % (pp * vpp) == 0"``, ``"micro_batches >= 4 * pp"``.
    exclude : sequence of mappings
        Combinations to leave out: ``{"sharding": "zero3", "recompute": "none"}``.
    redundant : sequence of str
        Knobs that take every value even where they change nothing.
    tiers : bool
        Instead of `placement`: every axis chooses the inner or the outer network tier. Choices that
        mean the same order of the axes are one, unless `redundant` names `placement`.

    Raises
    ------
    ScaleModelError : unknown knob, value out of range, malformed rule.

    Examples
    --------
    >>> import scalemodel as sm
    >>> space = Space(tp=[1, 2, 4, 8], pp=1, cp=1, sharding=["zero1", "zero3"], recompute="full",
    ...               micro_batch=[1, 2], sequence_parallel=True, regather=True,
    ...               offload_optimizer=False, placement="tp-cp-dp-pp")
    >>> space.size("llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=8192))
    14
    """

    __slots__ = ("_hash", "exclude", "knobs", "redundant", "tiers", "where")

    knobs: tuple[tuple[str, tuple[object, ...]], ...]
    where: tuple[str, ...]
    exclude: tuple[tuple[tuple[str, object], ...], ...]
    redundant: tuple[str, ...]
    tiers: bool

    def __init__(
        self,
        *,
        where: Sequence[str] | str = (),
        exclude: Sequence[Mapping[str, object]] = (),
        redundant: Sequence[str] = (),
        tiers: bool = False,
        **knobs: Any,
    ) -> None:
        self.knobs = tuple(
            (name, _listed(name, knobs[name]))
            for name in sorted(knobs)
            if knobs[name] is not None and not _is_auto(knobs[name])
        )
        self.where = as_texts(where, "where")
        self.exclude = _exclusions(exclude)
        self.redundant = tuple(sorted(as_texts(redundant, "redundant")))
        if not isinstance(tiers, bool):
            raise ScaleModelError(f"tiers={tiers!r}: must be True or False")
        self.tiers = tiers
        # Each shard of a search asks for it several times.
        self._hash = hash(self._identity())
        named = {*knobs, *self.redundant, *(name for row in self.exclude for name, _ in row)}
        for name in sorted(named):
            if name not in _FIELDS:
                raise ScaleModelError(f"{name}: no such knob; {nearest(name, _FIELDS)}")
        # The engine checks values and rules; the automatic ones follow with the question.
        self._engine(dict(self.knobs))

    def _engine(self, values: Mapping[str, Sequence[object]]) -> _core.Space:
        try:
            return _core.Space(
                {name: list(listed) for name, listed in values.items()},
                [relation(text) for text in self.where],
                [dict(row) for row in self.exclude],
                list(self.redundant),
                self.tiers,
            )
        except ScaleModelError:
            raise
        except ValueError as error:
            raise ScaleModelError(str(error)) from None

    def _identity(self) -> tuple[object, ...]:
        return self.knobs, self.where, self.exclude, self.redundant, self.tiers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> tuple[object, ...]:
        return self._identity()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.knobs, self.where, self.exclude, self.redundant, self.tiers = state
        self._hash = hash(state)  # of texts: another one in every process

    def __repr__(self) -> str:
        parts = [f"{name}={_shown(listed)!r}" for name, listed in self.knobs]
        parts += [f"where={list(self.where)!r}"] if self.where else []
        parts += [f"exclude={[dict(row) for row in self.exclude]!r}"] if self.exclude else []
        parts += [f"redundant={list(self.redundant)!r}"] if self.redundant else []
        parts += ["tiers=True"] if self.tiers else []
        return f"Space({', '.join(parts)})"

    def replace(self, **changes: Any) -> Space:
        """A copy with the given knobs or rules changed; ``None`` makes a knob automatic again.

        Examples
        --------
        >>> Space(tp=[1, 2]).replace(tp=8, where="pp <= 4")
        Space(tp=8, where=['pp <= 4'])
        """
        own: dict[str, Any] = {**dict(self.knobs), "where": self.where, "tiers": self.tiers}
        own["exclude"] = [dict(row) for row in self.exclude]
        own["redundant"] = self.redundant
        return Space(**{**own, **changes})

    def values(
        self,
        model: str | Path | Model | dict[str, Any],
        cluster: str | Path | Cluster | dict[str, Any],
        task: Training,
    ) -> dict[str, list[object]]:
        """The values of every knob for a question, the automatic ones filled in."""
        question = _Question(resolve.model(model), resolve.cluster(cluster), task)
        automatic = {name: list(rule(question)) for name, rule in _AUTOMATIC.items()}
        return {**automatic, **{name: list(listed) for name, listed in self.knobs}}

    def size(
        self,
        model: str | Path | Model | dict[str, Any],
        cluster: str | Path | Cluster | dict[str, Any],
        task: Training,
    ) -> int:
        """Strategies in the space, counted without evaluating any.

        Examples
        --------
        >>> import scalemodel as sm
        >>> Space().size("llama3_70b", sm.cluster("dgx_h100", nodes=64),
        ...              sm.Training(global_batch=1024, sequence=8192)) > 1_000_000
        True
        """
        return enumeration(self, resolve.model(model), resolve.cluster(cluster), task).size

    def strategies(
        self,
        model: str | Path | Model | dict[str, Any],
        cluster: str | Path | Cluster | dict[str, Any],
        task: Training,
    ) -> Iterator[_core.Strategy]:
        """The strategies in the order of their row numbers."""
        rows = enumeration(self, resolve.model(model), resolve.cluster(cluster), task)
        return (rows.strategy(row) for row in range(rows.size))

    @classmethod
    def calculon(
        cls,
        model: str | Path | Model | dict[str, Any],
        cluster: str | Path | Cluster | dict[str, Any],
        task: Training,
    ) -> Space:
        """The space that Calculon's search walks through, execution by execution.

        Tensor, pipeline and data parallelism over every divisor; interleaving and micro-batch over
        every divisor; recomputation, three ways of tensor-parallel communication, repeated
        all-gathers, offload of weights, optimizer and activations; optimizer sharding and
        data-parallel overlap; three kinds of tensor-parallel overlap; a network tier per axis. It
        varies the batch with the data-parallel degree: give a task with ``batch_is_limit=True``.
        Executions that mean the same are counted one by one, as Calculon runs them. Source: Isaev
        et al., SC 2023, doi 10.1145/3581784.3607102.

        Examples
        --------
        >>> import scalemodel as sm
        >>> cluster = sm.cluster("dgx_a100", nodes=128)
        >>> task = sm.Training(global_batch=1536, sequence=2048, batch_is_limit=True)
        >>> Space.calculon("gpt3_175b", cluster, task).size("gpt3_175b", cluster, task)
        11698528
        """
        shape, ranks = resolve.model(model).shape, resolve.cluster(cluster).accelerators
        layers = divisors(int(shape.layers))
        batches = {task.global_batch // dp for dp in divisors(ranks, task.global_batch)}
        return cls(
            tp=divisors(ranks, int(shape.heads)),
            pp=layers,
            cp=1,
            ep=1,
            etp=0,
            vpp=[n for n in layers if n <= 255],
            micro_batch=sorted({b for batch in batches for b in divisors(batch, 65535)}),
            recompute=["full", "selective", "none"],
            sequence_parallel=[False, True],
            regather=[True, False],
            split_p2p=[False, True],
            overlap_tp=["off", "ring", "pipelined"],
            sharding=["ddp", "zero1"],
            overlap_grad_reduce=["off", "on"],
            offload_weights=[False, True],
            offload_activations=[False, True],
            offload_optimizer=[False, True],
            where=(
                "layers % (pp * vpp) == 0",
                "hidden % tp == 0",
                "micro_batch * sequence % tp == 0",
            ),
            exclude=(
                {"sequence_parallel": True, "split_p2p": False},
                {"sequence_parallel": False, "regather": False},
                {"recompute": "full", "regather": False},
                {"recompute": "full", "offload_activations": True},
            ),
            redundant=("placement", "sequence_parallel", "regather", "split_p2p"),
            tiers=True,
        )


def as_texts(given: object, argument: str) -> tuple[str, ...]:
    """One text, or several.

    Examples
    --------
    >>> as_texts("pp <= 8", "where")
    ('pp <= 8',)
    """
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, Iterable) or isinstance(listed, Mapping):
        raise ScaleModelError(f"{argument}={given!r}: must be a text or a sequence of texts")
    texts = tuple(listed)
    for text in texts:
        if not isinstance(text, str):
            raise ScaleModelError(f"{argument}={text!r}: must be a text")
    return texts


def _exclusions(given: object) -> tuple[tuple[tuple[str, object], ...], ...]:
    listed = (given,) if isinstance(given, Mapping) else given
    if not isinstance(listed, Iterable) or isinstance(listed, str):
        raise ScaleModelError(f"exclude={given!r}: must be a mapping or a sequence of mappings")
    rows = []
    for row in listed:
        if not isinstance(row, Mapping) or not row:
            raise ScaleModelError(
                f"exclude={row!r}: must be like {{'sharding': 'zero3', 'recompute': 'none'}}"
            )
        rows.append(tuple(sorted(row.items())))
    return tuple(rows)


def _is_auto(given: object) -> bool:
    return isinstance(given, str) and given == "auto"


def _shown(listed: tuple[object, ...]) -> object:
    return listed[0] if len(listed) == 1 else list(listed)


@lru_cache(maxsize=32)
def enumeration(space: Space, model: Model, cluster: Cluster, task: Training) -> _core.Enumeration:
    """The numbered strategies of a space for a question."""
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    core = space._engine(space.values(model, cluster, task))
    return _core.Enumeration(core, model.core, cluster.core, task.core)


def why_empty(space: Space, model: Model, cluster: Cluster, task: Training) -> str:
    """Which rules leave no strategy in a space, each with the first of the values it excludes.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> space = Space(tp=8, pp=1, cp=1, vpp=1, micro_batch=1, where="tp <= 4")
    >>> why_empty(space, sm.model("llama3_8b"), sm.cluster("dgx_h100"), task).split(" (")[0]
    "The space is empty: of 1 combinations of degrees, 1 break where='tp <= 4'"
    """
    from scalemodel.base.answer import verdict_text
    from scalemodel.estimator.estimate import estimate
    from scalemodel.estimator.verdicts import TEMPLATES, facts

    refusals = enumeration(space, model, cluster, task).refusals
    parts = []
    for rule, reason, number, first, combinations in sorted(refusals, key=lambda row: -row[4]):
        if rule == "relation":
            why = f"break where={space.where[number]!r}"
        elif rule == "exclusion":
            why = "are left out by exclude"
        else:
            est = estimate(model, cluster, task, first)
            what = TEMPLATES[reason].what.format_map(facts(est)).rstrip(".")
            why = f"are {verdict_text(reason)}: {what}"
        parts.append(f"{combinations:,} {why} (first: {first!r})")
    total = sum(row[4] for row in refusals)
    return f"The space is empty: of {total:,} combinations of degrees, " + "; ".join(parts) + "."
