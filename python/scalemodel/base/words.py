"""Words that people use: other spellings of choices, and other names of arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from scalemodel.base.errors import ScaleModelError, nearest

#: What else a choice is called, without case and separators; the first that is legal is meant.
SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    # number formats
    "bfloat16": ("bf16",),
    "half": ("fp16",),
    "float16": ("fp16",),
    "f16": ("fp16",),
    "float32": ("fp32",),
    "float": ("fp32",),
    "f32": ("fp32",),
    "single": ("fp32",),
    "tensorfloat32": ("tf32",),
    "float8": ("fp8",),
    "f8": ("fp8",),
    "fp8e4m3": ("fp8",),
    "fp8hybrid": ("fp8",),
    "float8e4m3fn": ("fp8",),
    "mxfp8": ("fp8",),
    "float4": ("fp4",),
    "nvfp4": ("fp4",),
    "mxfp4": ("mxfp4", "fp4"),
    "w8a16": ("int8",),
    "w4a16": ("int4",),
    # what data-parallel ranks share out; DeepSpeed counts stages, PyTorch names strategies
    "fsdp": ("zero3",),
    "fsdp2": ("zero3",),
    "fullyshardeddataparallel": ("zero3",),
    "fullshard": ("zero3",),
    "shardgradop": ("zero2",),
    "noshard": ("ddp",),
    "zero0": ("ddp",),
    "dataparallel": ("ddp",),
    "distributeddataparallel": ("ddp",),
    "distributedoptimizer": ("zero1",),
    "zerostage1": ("zero1",),
    "zerostage2": ("zero2",),
    "zerostage3": ("zero3",),
    "hybridshard": ("hsdp",),
    # recomputation
    "off": ("none",),
    "no": ("none",),
    "block": ("full",),
    "uniform": ("full",),
    "activationcheckpointing": ("full",),
    "gradientcheckpointing": ("full",),
    # context parallelism
    "ulysses": ("all_to_all",),
    "deepspeedulysses": ("all_to_all",),
    "ringattention": ("ring",),
    # schedules
    "onefoneb": ("1f1b",),
    "interleaved1f1b": ("interleaved",),
    "zb": ("zero_bubble",),
    "zbh1": ("zero_bubble",),
    # optimizers
    "adamw": ("adam",),
    "fusedadam": ("adam",),
    "momentum": ("sgd_momentum",),
    # attention kernels
    "flashattention": ("flash2",),
    "flashattention1": ("flash1",),
    "flashattention2": ("flash2",),
    "flashattention3": ("flash3",),
    "fa2": ("flash2",),
    "fa3": ("flash3",),
    "eager": ("unfused",),
    # fine-tuning
    "alllinear": ("all",),
    "sft": ("full",),
}

#: What else an argument or an option is called, without case and separators.
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("accelerators", "gpus"),
    "numgpus": ("accelerators", "gpus"),
    "ngpus": ("accelerators", "gpus"),
    "worldsize": ("accelerators", "gpus"),
    "devices": ("accelerators", "gpus"),
    "accelerators": ("gpus",),
    "numnodes": ("nodes",),
    "nnodes": ("nodes",),
    "hosts": ("nodes",),
    "seqlen": ("sequence", "input_tokens"),
    "seqlength": ("sequence", "input_tokens"),
    "sequencelength": ("sequence", "input_tokens"),
    "maxseqlen": ("sequence", "input_tokens"),
    "contextlength": ("sequence", "input_tokens"),
    "context": ("sequence", "input_tokens"),
    "globalbatchsize": ("global_batch",),
    "gbs": ("global_batch",),
    "batch": ("global_batch",),
    "batchsize": ("global_batch", "most_sequences"),
    "trainbatchsize": ("global_batch",),
    "microbatchsize": ("micro_batch",),
    "mbs": ("micro_batch",),
    "dtype": ("precision",),
    "format": ("precision",),
    "kvcachedtype": ("kv_precision",),
    "tensorparallel": ("tp",),
    "tensorparallelsize": ("tp",),
    "tensormodelparallelsize": ("tp",),
    "pipelineparallel": ("pp",),
    "pipelinemodelparallelsize": ("pp",),
    "contextparallelsize": ("cp",),
    "expertmodelparallelsize": ("ep",),
    "dataparallel": ("dp",),
    "zerostage": ("sharding",),
    "activationcheckpointing": ("recompute",),
    "recomputegranularity": ("recompute",),
    "ttft": ("ttft_s",),
    "tpot": ("tpot_s",),
    "itl": ("tpot_s",),
    "qps": ("requests_per_s",),
    "rps": ("requests_per_s",),
    "requestrate": ("requests_per_s",),
    "inputlen": ("input_tokens",),
    "isl": ("input_tokens",),
    "outputlen": ("output_tokens",),
    "osl": ("output_tokens",),
    "hardware": ("cluster",),
    "gpu": ("cluster", "accelerators"),
    "system": ("cluster",),
    "framework": ("stack", "engine"),
    "software": ("stack", "engine"),
    "budget": ("budget_usd",),
    "cost": ("budget_usd", "price"),
    "power": ("cap_w",),
    "mttf": ("reliability",),
    "failures": ("reliability", "failures"),
    "region": ("grid",),
}

_SEPARATORS: Final = re.compile(r"[\s_\-./]+")
_UNITS: Final = re.compile(r"_(s|bytes|w|j|usd|fraction)$")


def folded(word: object) -> str:
    """A word without case and separators, as words are compared.

    Examples
    --------
    >>> folded("ZeRO-3"), folded("--seq-len")
    ('zero3', 'seqlen')
    """
    return _SEPARATORS.sub("", str(word).lower())


_SPELLINGS = {folded(word): meant for word, meant in SPELLINGS.items()}


def choice(value: Any, legal: Collection[str]) -> Any:
    """The legal choice that a value spells otherwise; the value itself where none is.

    Examples
    --------
    >>> formats = ("fp32", "bf16", "fp8")
    >>> choice("BF16", formats), choice("mxfp8", formats), choice("int3", formats)
    ('bf16', 'fp8', 'int3')
    >>> choice("fsdp", ("ddp", "zero1", "zero2", "zero3", "hsdp"))
    'zero3'
    """
    if not isinstance(value, str) or value in legal:
        return value
    word = folded(value)
    for name in legal:
        if folded(name) == word:
            return name
    return next((name for name in _SPELLINGS.get(word, ()) if name in legal), value)


def spelled(given: Mapping[str, Any], fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Values of a record with every choice spelled as the engine spells it.

    Parameters
    ----------
    given : mapping of str to object
    fields : iterable of mapping
        Field table of a record of the core.

    Raises
    ------
    ScaleModelError : a text that spells no choice; the nearest one is named.

    Examples
    --------
    >>> from scalemodel import _core
    >>> spelled({"sharding": "FSDP", "tp": 2}, _core.Strategy.fields())
    {'sharding': 'zero3', 'tp': 2}
    """
    rows = {str(row["name"]): row for row in fields if row["choices"]}
    found = dict(given)
    for name in given.keys() & rows.keys():
        legal = rows[name]["choices"]
        found[name] = value = choice(given[name], legal)
        if isinstance(value, str) and value not in legal:
            near = difflib.get_close_matches(value.lower(), legal, n=1, cutoff=0.7)
            likely = f"; did you mean {near[0]!r}?" if near else ""
            raise ScaleModelError(
                f"{name}={value!r}: must be one of {', '.join(legal)} "
                f"({rows[name]['meaning']}){likely}"
            )
    return found


def understand(record: Any) -> None:
    """Have a record of the core read choices as people spell them, now and in `replace`."""
    if hasattr(record.__init__, "__wrapped__"):
        return
    fields = record.fields()
    for name in ("__init__", "replace"):
        setattr(record, name, _spelling(getattr(record, name), fields))


def _spelling(method: Any, fields: list[Mapping[str, Any]]) -> Any:
    @functools.wraps(method)
    def call(self: Any, *positional: Any, **given: Any) -> Any:
        return method(self, *positional, **spelled(given, fields))

    return call


# --------------------------------------------------------------------------------------- arguments
def hint(name: str, known: Collection[str]) -> str:
    """The name that another one stands for, or the nearest ones.

    Examples
    --------
    >>> hint("gpus", ("nodes", "accelerators"))
    "did you mean 'accelerators'?"
    >>> hint("ttft", ("ttft_s", "tpot_s"))
    "did you mean 'ttft_s'?"
    """
    word = folded(name)
    for meant in SYNONYMS.get(word, ()):
        if meant in known:
            return f"did you mean {meant!r}?"
    for other in known:
        if folded(_UNITS.sub("", other)) == word:
            return f"did you mean {other!r}?"
    return nearest(name, known)


_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)


def _meaning(name: str, doc: str) -> str:
    """What the docstring says of a parameter: its type and its first line."""
    found = re.search(rf"^ *(?:\w+, )*{name}(?:, \w+)* : (.+)\n +(.+)", doc, re.MULTILINE)
    return f" ({found[1]}: {found[2].strip().rstrip('.')})" if found else ""


def _refusal(function: Any, positional: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """Why a function cannot be called with these; empty where it can."""
    signature = inspect.signature(function)
    called, _, method = function.__qualname__.rpartition(".")
    called = called if method == "__init__" else method
    taken = {name: item for name, item in signature.parameters.items() if name != "self"}
    open_ended = any(item.kind is item.VAR_KEYWORD for item in taken.values())
    for name in () if open_ended else given:
        if name not in taken:
            said = f"{name}={given[name]!r}: {called} has no such argument"
            return f"{said}; {hint(name, taken)}"
    allowed = [item for item in taken.values() if item.kind is not item.KEYWORD_ONLY]
    own = positional[1:] if "self" in signature.parameters else positional
    if not allowed and own:
        shown = ", ".join(map(repr, own))
        first = next(iter(taken))
        return f"{called}({shown}): arguments are given by name, for example {first}={own[0]!r}"
    try:
        signature.bind(*positional, **given)
    except TypeError as error:
        missing = [
            name
            for name, item in taken.items()
            if item.default is item.empty and item.kind is item.KEYWORD_ONLY and name not in given
        ]
        if not missing:
            return f"{called}: {error}; its arguments are {', '.join(taken)}"
        doc = inspect.getdoc(function) or ""
        told = " and ".join(f"{name}=...{_meaning(name, doc)}" for name in missing)
        got = ", ".join(f"{name}={value!r}" for name, value in given.items()) or "none of them"
        return f"{called}: {', '.join(missing)} missing; give {told}; given was {got}"
    return ""


def named_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Say which argument is meant where one does not exist, and what one that is missing takes.

    Examples
    --------
    >>> @named_arguments
    ... def size(*, nodes=1):
    ...     return nodes
    >>> size(num_nodes=2)
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: num_nodes=2: size has no such argument; did you mean \
'nodes'?
    """

    @functools.wraps(function)
    def call(*positional: _P.args, **given: _P.kwargs) -> _T:
        try:
            return function(*positional, **given)
        except TypeError:
            why = _refusal(function, positional, given)
            if not why:
                raise
        raise ScaleModelError(why, code="unknown_argument")

    return call


def named_fields(record: _C) -> _C:
    """As `named_arguments`, of the constructor of a class whose docstring tells its fields."""
    constructor: Any = record.__init__  # type: ignore[misc]
    constructor.__doc__ = record.__doc__
    record.__init__ = named_arguments(constructor)  # type: ignore[misc]
    return record
