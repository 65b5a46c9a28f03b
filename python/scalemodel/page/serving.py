"""What a page knows of serving: engines, and the kernels they run, once each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.page.catalogue import plain, plain_record
from scalemodel.resolve.clusters import Cluster
from scalemodel.resolve.engines import engine
from scalemodel.resolve.serving_kernels import (
    attention_fields,
    attention_kind,
    cache_fields,
    encoder_fields,
    kernels_lender,
    weight_fields,
)

#: Formats of weights and of the KV cache in the menus of a page.
WEIGHTS = ("bf16", "fp8", "fp8_block", "fp4", "int8", "int4", "mxfp4")
CACHES = ("bf16", "fp8")
#: Sizes of a step that are tried where an engine does not tune its own.
BATCHED_TOKENS = (2048, 8192)
#: Concurrencies tried per doubling.
PER_OCTAVE = 2


class _Pool:
    """Values of fields, each once."""

    def __init__(self) -> None:
        self.found: dict[tuple[type, Any], int] = {}  # 1 and true are not the same

    def number(self, value: Any) -> int:
        return self.found.setdefault((type(value), value), len(self.found))

    def values(self) -> list[Any]:
        return [plain(value) for _, value in self.found]


class _Sets:
    """Sets of fields, each once, their values as numbers in a pool."""

    def __init__(self) -> None:
        self.pool = _Pool()
        self.found = _Pool()

    def number(self, fields: Mapping[str, Any]) -> int:
        numbered = sorted((name, self.pool.number(value)) for name, value in fields.items())
        return self.found.number(tuple(numbered))

    def values(self) -> list[dict[str, int]]:
        return [dict(numbered) for _, numbered in self.found.found]


def attention_name(shape: _core.DecoderShape) -> str:
    """What the page calls the attention kernels of a model.

    Examples
    --------
    >>> import scalemodel as sm
    >>> attention_name(sm.model("deepseek_v3").shape)
    '1 latent'
    """
    group, latent = attention_kind(shape)
    return f"{group} latent" if latent else str(group)


def engines() -> dict[str, Any]:
    """Every engine of the catalogue: its title, constants and the sizes of a step to try.

    Examples
    --------
    >>> engines()["vllm_v1"]["max_batched_tokens"]
    [2048, 8192]
    """
    found = {}
    for name in catalog.names("engines"):
        constants = engine(name)
        own = (constants.max_batched_tokens,)
        found[name] = {
            "title": str(catalog.load("engines", name).get("title", name)),
            "core": plain_record(constants),
            "max_batched_tokens": list(own if constants.tunes_limits else BATCHED_TOKENS),
        }
    return found


def _of_weights(cluster: Cluster, engine_name: str, sets: _Sets) -> dict[str, Any]:
    """Kernels by format of weights; a sentence where the accelerator cannot multiply it."""
    found: dict[str, Any] = {}
    for weights in WEIGHTS:
        try:
            part = weight_fields(cluster, engine_name, weights)
        except ScaleModelError as error:
            found[weights] = str(error)
            continue
        lender, math = kernels_lender(cluster), part.fields["math"]
        found[weights] = {
            "fields": sets.number(part.fields),
            "caches": {
                cache: sets.number(cache_fields(lender, cache, math).fields) for cache in CACHES
            },
        }
    return found


class Kernels(NamedTuple):
    """What engines run, every record once.

    Attributes
    ----------
    entries : list
        By engine the sets of fields for formats of ``weights`` and of caches beside them, for kinds
        of ``attention`` and for an ``encoder``, where a model has one; a sentence in place of a
        format that cannot be multiplied.
    of_cluster : dict of int
        Which of the entries is a cluster's.
    sets : list of dict of int
        Fields of `_core.ServingKernels` as numbers of their values.
    values : list
        Those values.
    """

    entries: list[Any]
    of_cluster: dict[str, int]
    sets: list[dict[str, int]]
    values: list[Any]


def kernels(clusters: Iterable[str], shapes: Iterable[_core.DecoderShape]) -> Kernels:
    """Kernels of every engine on clusters, as far as models ask for them.

    Examples
    --------
    >>> found = kernels(["dgx_h100"], [resolve.model("llama3_8b").shape])
    >>> sorted(found.entries[found.of_cluster["dgx_h100"]]["vllm_v1"]["attention"])
    ['4']
    """
    kinds = {attention_name(shape): attention_kind(shape) for shape in shapes}
    sets, entries = _Sets(), list[Any]()
    alike: dict[Any, int] = {}
    number: dict[str, int] = {}
    for name in clusters:
        cluster = resolve.cluster(name, nodes=1)
        lender = kernels_lender(cluster)
        key = (lender, cluster.accelerator, tuple(cluster.core.accelerator.peak_flop_per_s))
        if key not in alike:
            alike[key] = len(entries)
            entries.append(
                {
                    engine_name: {
                        "weights": _of_weights(cluster, engine_name, sets),
                        "encoder": sets.number(encoder_fields(lender, engine_name)),
                        "attention": {
                            kind: sets.number(attention_fields(lender, engine_name, *wanted).fields)
                            for kind, wanted in sorted(kinds.items())
                        },
                    }
                    for engine_name in catalog.names("engines")
                }
            )
        number[name] = alike[key]
    return Kernels(entries, number, sets.values(), sets.pool.values())
