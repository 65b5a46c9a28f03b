"""What is to be served: `Inference`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import choice, named_fields
from scalemodel.resolve import Model, model
from scalemodel.resolve.engines import CACHE_FORMATS, WEIGHT_FORMATS
from scalemodel.resolve.positions import warn_of_positions

WeightPrecision = Literal["bf16", "fp16", "fp8", "fp8_block", "fp4", "int8", "int4", "mxfp4"]
CachePrecision = Literal["bf16", "fp16", "fp8", "fp4"]
AdapterTargets = Literal["attention", "all"]
GrammarBackend = Literal["xgrammar", "llguidance", "outlines"]
_MOST_SPREAD = 3.0  # of the logarithm: one length in six is twenty times the median


def _one_of(name: str, value: object, legal: Any) -> None:
    if value not in tuple(legal):
        raise ScaleModelError(f"{name}={value!r}: must be one of {', '.join(legal)}")


def number_from_to(name: str, value: Any, low: float, high: float) -> None:
    """Raises where a value is no number of a range."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ScaleModelError(f"{name}={value!r}: must be a number from {low:g} to {high:g}")


#: Fields that say how tokens are drafted, as they are where none are.
_PLAIN: dict[str, Any] = {
    "draft_width": 1,
    "draft_nodes": 0,
    "adaptive_drafts": False,
    "draft_model": None,
    "draft_tp": 0,
    "draft_precision": None,
}


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
        Proposed per sequence and step by a draft layer (multi-token prediction, EAGLE) or a draft
        model, one behind the other, and verified in one pass; 0: none. The depth of a tree.
    acceptance_fraction : float
        Probability that a draft token is accepted when those before it were; of the best candidate
        of the first depth of a tree.
    acceptance_decay : float
        Factor on it with every draft token before; 1: it stays.
    draft_width : int
        Candidates that go on at every depth of a tree (EAGLE's top k); 1: a chain.
    draft_nodes : int
        Candidates of a tree that are verified, the best of all; 0: `draft_width` of every depth.
    acceptance_power : float
        None of the k best candidates of a depth is accepted with a probability that falls as k to
        minus this power (Sequoia, arXiv 2402.12374); Medusa's heads, 60 % of whose best and 80 %
        of whose five best candidates are right, have 0.43.
    adaptive_drafts : bool
        Drafts are as deep as pays at the load, up to `speculative_tokens`, and left out where
        verifying them costs more than they bring (SmartSpec, arXiv 2406.14066).
    draft_model : str, path, mapping or Model, optional
        A model of its own that proposes the tokens, with weights and a KV cache beside those of the
        served one and the same vocabulary. It also computes every prompt.
    draft_tp : int
        Ranks that split each of its layers, a divisor of the layout's ``tp``; 0: as many as that.
    draft_precision : str, optional
        Format of its weights; that of the served model when left out.
    imbalance : float, optional
        Load of the busiest expert rank over the mean, beyond that of random routing; 1 where
        experts are balanced. When left out, what the spread of experts' loads in service gives
        for the number of ranks.
    prefilled : bool
        The KV caches of prompts come from a prefill pool: a decode pool computes none of them.
    adapters : int
        Low-rank adapters (LoRA) of the model of which every request names one, all as often as each
        other; 0: none. Adapters that are asked for unlike often meet in a step about as 1 / sum of
        the squares of their shares of the requests do.
    adapter_rank : int
        Rank that the engine is started for, which kernels and memory follow.
    adapter_targets : str
        Matrices with adapters: those of ``attention``, or ``all`` of every layer, experts included.
    adapter_slots : int
        Adapters that the accelerator has room for, and a step at most; the others are brought in
        from the host as requests name them. 0: as many as there are.
    input_spread, output_spread : float
        Standard deviation of the logarithm of the lengths, log-normal about their means; 0: all
        requests are of one length. Streams of requests draw them; steady states take the means.
    images : float
        Images of a prompt, of a model that reads them; a mean where it varies. Their tokens are
        among ``input_tokens``, as engines count them (`Model.image_tokens`). The vision tower
        encodes them in the step that computes their part of the prompt. Of a video, two frames
        that share their patches count as one image. Where layers attend to an image apart (Llama
        3.2 Vision) every request has one, which `serve` fills in, and none of its tokens. Of sound
        (Voxtral) a window of 30 seconds is an image.
    image_height, image_width : int
        Pixels, for towers that read images in their own size.
    source_tokens : float
        Of an encoder-decoder model, tokens of what its encoder reads of every request: once, in the
        step that computes the prompt of the decoder, which is what `input_tokens` counts. A model
        that reads sound in windows of one length (Whisper) has as many positions for each, which
        `serve` fills in.
    encoder_hit_fraction : float
        Of the images, those whose encodings the encoder cache holds already; 1 where instances of
        encoders alone send them.
    guided_fraction : float
        Of the requests, those whose answers follow a grammar (guided or structured decoding): for
        each of their tokens the CPU fills a mask of the allowed ones, beside the step or before it
        as the engine does.
    new_grammar_fraction : float
        Of these, those whose grammar no request had before: it is compiled first. The others find
        it in the engine's cache.
    grammar_backend : str, optional
        What fills the masks: ``xgrammar``, ``llguidance`` or ``outlines``; the engine's default
        when left out.

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
    source_tokens: float = 0.0
    acceptance_decay: float = 1.0
    acceptance_power: float = 0.5
    draft_width: int = 1
    draft_nodes: int = 0
    adaptive_drafts: bool = False
    draft_model: str | Path | Mapping[str, Any] | Model | None = None
    draft_tp: int = 0
    draft_precision: WeightPrecision | None = None
    guided_fraction: float = 0.0
    new_grammar_fraction: float = 0.0
    grammar_backend: GrammarBackend | None = None
    mix: _core.RequestMix = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.draft_model, Mapping):
            object.__setattr__(self, "draft_model", model(self.draft_model))  # hashable
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
        self._check_drafts()
        self._check_grammars()

    def _check_grammars(self) -> None:
        """Raises where no part of the requests can be guided so."""
        for name in ("guided_fraction", "new_grammar_fraction"):
            number_from_to(name, getattr(self, name), 0, 1)
        if self.grammar_backend is not None:
            object.__setattr__(
                self, "grammar_backend", choice(self.grammar_backend, get_args(GrammarBackend))
            )
            _one_of("grammar_backend", self.grammar_backend, get_args(GrammarBackend))
        for name in ("new_grammar_fraction", "grammar_backend"):
            if getattr(self, name) and not self.guided_fraction:
                raise ScaleModelError(
                    f"{name}={getattr(self, name)!r}: no request is guided; give guided_fraction "
                    "above 0"
                )

    def _check_drafts(self) -> None:
        """Raises where a tree has no depth, or a draft model nothing to propose."""
        for name, plain in _PLAIN.items():
            value = getattr(self, name)
            if value != plain and self.speculative_tokens == 0:
                raise ScaleModelError(
                    f"{name}={value!r}: nothing is drafted; give speculative_tokens from 1"
                )
        if self.draft_nodes and self.draft_width == 1:
            raise ScaleModelError(
                f"draft_nodes={self.draft_nodes}: a chain verifies all of it; give draft_width "
                "from 2"
            )
        if self.draft_nodes > _core.draft_candidates(self.mix):
            raise ScaleModelError(
                f"draft_nodes={self.draft_nodes}: a tree of depth {self.speculative_tokens} and "
                f"width {self.draft_width} has {_core.draft_candidates(self.mix):g} candidates"
            )
        whole = isinstance(self.draft_tp, int) and not isinstance(self.draft_tp, bool)
        if not whole or self.draft_tp < 0:
            raise ScaleModelError(f"draft_tp={self.draft_tp!r}: must be a whole number from 0")
        for name in ("draft_tp", "draft_precision"):
            if self.draft_model is None and getattr(self, name):
                raise ScaleModelError(
                    f"{name}={getattr(self, name)!r}: of a draft model; give draft_model"
                )
        if self.draft_precision is not None:
            _one_of("draft_precision", self.draft_precision, WEIGHT_FORMATS)

    def plain(self) -> Inference:
        """The same without speculative decoding.

        Examples
        --------
        >>> Inference(input_tokens=8, output_tokens=8, speculative_tokens=3).plain()
        Inference(input_tokens=8, output_tokens=8, ...speculative_tokens=0, ...)
        """
        return replace(self, speculative_tokens=0, **_PLAIN)

    def read_by(self, served: Model) -> Inference:
        """The same, with the source that every request to a model of fixed windows has.

        Raises
        ------
        ScaleModelError : a model that generates nothing.

        Warns
        -----
        UserWarning : requests longer than the positions that the model has learned.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = Inference(input_tokens=4, output_tokens=200)
        >>> task.read_by(sm.model("whisper_large_v3")).source_tokens
        1500
        """
        served.check_generates()
        positions = served.source_positions
        warn_of_positions(
            served,
            self.input_tokens + self.output_tokens,
            f"input_tokens={self.input_tokens:g}, output_tokens={self.output_tokens:g}",
        )
        if not positions or self.source_tokens:
            return self
        # An image that layers attend to is the source of a request, which has one.
        apart = served.vision is not None and self.images <= 1
        return replace(self, source_tokens=positions, images=0 if apart else self.images)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains by a step with all of its drafts.

        Examples
        --------
        >>> chain = Inference(input_tokens=8, output_tokens=8, speculative_tokens=2,
        ...                   acceptance_fraction=0.5)
        >>> chain.tokens_per_step, round(chain.replace(draft_width=4).tokens_per_step, 2)
        (1.75, 2.18)
        """
        return float(_core.tokens_per_step(self.mix))

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
