"""Labels of accelerators and models as benchmarks write them: words in any order, and more."""

from __future__ import annotations

import re
from itertools import pairwise

from scalemodel import catalog

# Words that say who publishes, stores, packs or tunes something, not what it is.
_HARMLESS = {
    "accelerators": frozenset(
        """nvidia amd intel gpu gpus tensor core cores accelerator card cards graphics server
        edition workstation passive active hbm hbm2 hbm2e hbm3 hbm3e gddr6 gddr7 oam module node
        nodes instinct data center datacenter series""".split()  # noqa: SIM905
    ),
    "models": frozenset(
        """meta nvidia amd hf fp8 bf16 fp16 fp4 nvfp4 mxfp4 int4 int8 awq gptq gguf kv static
        dynamic quantized quantised block channel tensor modelopt marlin autofp8 w4a16 w8a16 w8a8
        w4a4 g128 instruct chat it base thinking preview original turbo sft dpo rlhf
        model""".split()  # noqa: SIM905
    ),
}
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
# A point between digits belongs to a number.
_BETWEEN = re.compile(r"[^a-z0-9.]+|\.(?!\d)|(?<!\d)\.")
_GLUED = re.compile(r"([a-z]+)(\d+)")
_COUNT = re.compile(r"^\s*\d+\s*[x×*]\s*|\s*[x×*]\s*\d+\s*$")
_ASIDE = re.compile(r"\([^()]*\)")
_DATE = re.compile(r"\d{4}")
_RELEASE = re.compile(r"v\d+(?:\.\d+)*")


def _in_order(kind: str, text: str, *, released: bool = True) -> list[str]:
    """Words and numbers of a label, ``8x7b`` in parts, without the harmless ones."""
    parts = _BETWEEN.split(text.lower())
    kept = [
        part.removeprefix("v") if kind == "models" and _RELEASE.fullmatch(part) else part
        for part in parts
        if part not in _HARMLESS[kind]
        and not (kind == "models" and _DATE.fullmatch(part))
        and (released or not _RELEASE.fullmatch(part))
    ]
    return [word for part in kept for word in _WORD.findall(part)]


def _words(kind: str, text: str, *, released: bool = True) -> frozenset[str]:
    return frozenset(_in_order(kind, text, released=released))


@catalog.kept(4)
def _named(kind: str) -> tuple[tuple[frozenset[str], str, str], ...]:
    """Words of every name, alias and title, that text, and the entry they stand for."""
    found: dict[frozenset[str], tuple[str, str]] = {}
    for name in catalog.names(kind):
        table = catalog.load(kind, name)
        for text in (name, *table.get("aliases", ()), str(table.get("title", ""))):
            words = _words(kind, text)
            if words:
                found.setdefault(words, (text.lower(), name))
    return tuple((words, *entry) for words, entry in found.items())


def _by_words(kind: str, label: str) -> str | None:
    """The entry whose words are those of the label; of an accelerator, most of them."""
    plain = _ASIDE.sub("", label)
    if kind == "models":
        for released in (True, False):
            words = _words(kind, plain.split("/")[-1], released=released)
            exact = {name for known, _, name in _named(kind) if known == words}
            if exact:
                return exact.pop() if len(exact) == 1 else None
        return None
    in_order = _in_order(kind, _COUNT.sub("", plain))
    words, beside = frozenset(in_order), set(pairwise(in_order))
    inside = [
        (len(known), name)
        for known, text, name in _named(kind)
        # An SN40L has the words of an L40, but no 40 after its L.
        if known <= words and beside.issuperset(_GLUED.findall(text))
    ]
    most = max((count for count, _ in inside), default=0)
    best = {name for count, name in inside if count == most}
    return best.pop() if len(best) == 1 else None


@catalog.kept(1024)
def understood(kind: str, label: str) -> tuple[str, str]:
    """Entry that a label means, and a note where words had to be left out or put in order.

    Parameters
    ----------
    kind : str
        ``accelerators`` or ``models``.
    label : str

    Raises
    ------
    ScaleModelError : nothing in the catalogue goes by these words.

    Examples
    --------
    >>> understood("accelerators", "8x NVIDIA H100 SXM5 80GB HBM3 GPU")[0]
    'h100_sxm_80'
    >>> understood("models", "neuralmagic/70B-Llama-3.1-Instruct-FP8-KV")
    ('llama3_1_70b', '70B-Llama-3.1-Instruct-FP8-KV read as llama3_1_70b')
    >>> understood("models", "Llama-3")
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: model='Llama-3': unknown; ...
    """
    found = None if catalog.is_entry(kind, label) else _by_words(kind, label)
    if found is None:
        return catalog.find(kind, label), ""
    return found, f"{label.split('/')[-1]} read as {found}"
