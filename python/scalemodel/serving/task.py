"""What is to be served: `Inference`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import choice, named_fields
from scalemodel.resolve.engines import CACHE_FORMATS, WEIGHT_FORMATS

WeightPrecision = Literal["bf16", "fp16", "fp8", "fp8_block", "fp4", "int8", "int4", "mxfp4"]
CachePrecision = Literal["bf16", "fp16", "fp8", "fp4"]
AdapterTargets = Literal["attention", "all"]
_MOST_SPREAD = 3.0  # of the logarithm: one length in six is twenty times the median


def _one_of(name: str, value: object, legal: Any) -> None:
    if value not in tuple(legal):
        raise ScaleModelError(f"{name}={value!r}: must be one of {', '.join(legal)}")


def number_from_to(name: str, value: Any, low: float, high: float) -> None:
    """Raises where a value is no number of a range."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ScaleModelError(f"{name}={value!r}: must be a number from {low:g} to {high:g}")


@named_fields
@dataclass(frozen=True, kw_only=True)
class Inference:
    """Requests to a language model.

    Parameters
    ----------
    input_tokens, output_tokens : float
        Of a prompt and of its answer; means where lengths vary.
    precision : str
        Format of the weights of linear and expert layers. ``int8`` and ``int4`` are weight-only:
        products stay in 16 bits; ``mxfp4`` narrows the experts alone.
    kv_precision : str
        Format of cached keys and values.
    prefix_hit_fraction : float
        Of a prompt, already in the cache.
    speculative_tokens : int
        Proposed per sequence and step by a draft layer (multi-token prediction, EAGLE), and
        verified in one pass; 0: none.
    acceptance_fraction : float
        Probability that a draft token is accepted when those before it were.
    imbalance : float, optional
        Load of the busiest expert rank over the mean, beyond that of random routing; 1 where
        experts are balanced. When left out, what the spread of experts' loads in service gives
        for the number of ranks.
    prefilled : bool
        The KV caches of prompts come from a prefill pool: a decode pool computes none of them.
    adapters : int
        Low-rank adapters (LoRA) of the model of which every request names one, all as often as each
        other; 0: none.
    adapter_rank : int
        Rank that the engine is started for, which kernels and memory follow.
    adapter_targets : str
        Matrices with adapters: those of ``attention``, or ``all`` of every layer, experts included.
    adapter_slots : int
        Adapters that the accelerator holds, and a step at most; the others are brought in from the
        host as requests name them. 0: all of them.
    input_spread, output_spread : float
        Standard deviation of the logarithm of the lengths, log-normal about their means; 0: all
        requests are of one length. Streams of requests draw them; steady states take the means.
    images : float
        Images of a prompt, of a model that reads them; a mean where it varies. Their tokens are
        among ``input_tokens``, as engines count them (`Model.image_tokens`). The vision tower
        encodes them in the step that computes their part of the prompt. Of a video, two frames
        that share their patches count as one image.
    image_height, image_width : int
        Pixels, for towers that read images in their own size.
    encoder_hit_fraction : float
        Of the images, those whose encodings the encoder cache holds already; 1 where instances of
        encoders alone send them.

    Raises
    ------
    ScaleModelError : a value out of range; the message names the argument.

    Examples
    --------
    >>> Inference(input_tokens=1000, output_tokens=500, precision="fp8").kv_precision
    'bf16'
    >>> import scalemodel as sm
    >>> text = sm.Inference(input_tokens=2000, output_tokens=100)
    >>> seen = text.replace(images=1, image_height=1024, image_width=1024)
    >>> plans = [sm.serve("gemma3_12b", "dgx_h100", task, concurrency=8) for task in (text, seen)]
    >>> plans[0].ttft_s < plans[1].ttft_s
    True
    """

    input_tokens: float
    output_tokens: float
    precision: WeightPrecision = "bf16"
    kv_precision: CachePrecision = "bf16"
    prefix_hit_fraction: float = 0.0
    speculative_tokens: int = 0
    acceptance_fraction: float = 0.7
    imbalance: float | None = None
    prefilled: bool = False
    input_spread: float = 0.0
    output_spread: float = 0.0
    adapters: int = 0
    adapter_rank: int = 16
    adapter_targets: AdapterTargets = "all"
    adapter_slots: int = 0
    images: float = 0.0
    image_height: int = 0
    image_width: int = 0
    encoder_hit_fraction: float = 0.0
    mix: _core.RequestMix = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, legal in (("precision", WEIGHT_FORMATS), ("kv_precision", CACHE_FORMATS)):
            object.__setattr__(self, name, choice(getattr(self, name), tuple(legal)))
        _one_of("precision", self.precision, WEIGHT_FORMATS)
        _one_of("kv_precision", self.kv_precision, CACHE_FORMATS)
        if self.imbalance is not None:
            number_from_to("imbalance", self.imbalance, 1, 1e4)
        if not isinstance(self.prefilled, bool):
            raise ScaleModelError(f"prefilled={self.prefilled!r}: must be True or False")
        for name in ("input_spread", "output_spread"):
            number_from_to(name, getattr(self, name), 0, _MOST_SPREAD)
        for name in ("adapters", "adapter_rank", "adapter_slots"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ScaleModelError(f"{name}={value!r}: must be a whole number")
        _ = self.adapter_set  # refuses what is out of range
        names = [str(row["name"]) for row in _core.RequestMix.fields()]
        given = {name: getattr(self, name) for name in names}
        object.__setattr__(self, "mix", _core.RequestMix(**given))

    @property
    def adapter_set(self) -> _core.Adapters:
        """The adapters as the engine is started with them."""
        names = [str(row["name"]) for row in _core.Adapters.fields()]
        return _core.Adapters(**{name: getattr(self, name) for name in names})

    @property
    def rank_imbalance(self) -> float:
        """`imbalance` as the engine takes it: 0 where it follows from the spread of the experts."""
        return 0.0 if self.imbalance is None else float(self.imbalance)

    def replace(self, **changes: Any) -> Inference:
        """A copy with the given fields changed."""
        return replace(self, **changes)
