"""A serving plan with the engine's answer: its record, columns and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.answer import ColumnAnswer
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.resolve.engines import guided_decoding
from scalemodel.resolve.serving_kernels import kernels_for
from scalemodel.serving.energy import instance_power_w, price_usd_per_s
from scalemodel.serving.pools import attention_ranks
from scalemodel.serving.task import Inference

#: Draft tokens of a sequence that a step verifies, and what proposes them: a draft model with its
#: format, and that of its cache, and its tensor ranks; or a draft layer.
Drafts = tuple[float, tuple[Model, str, str, int] | Literal["layer"]]

#: Columns of a step by cause; they sum to ``step_time_s``.
STEP_COLUMNS = tuple(
    str(row["name"]) for row in _core.StepTime.fields() if row["name"] != "step_time_s"
)

#: Columns that say what fills the fullest accelerator.
MEMORY_COLUMNS = (
    "memory_weights_bytes",
    "memory_activations_bytes",
    "memory_reserve_bytes",
    "memory_kv_cache_bytes",
)


#: The same of an expert pool, zero where experts lie with attention.
EXPERT_MEMORY = ("memory_expert_weights_bytes", "memory_expert_activations_bytes")


@catalog.kept(256)
def instance_for(
    model: Model,
    cluster: Cluster,
    precision: str,
    kv_precision: str,
    imbalance: float,
    layout: _core.ServingLayout,
    engine: str,
    constants: _core.Engine | None = None,
    images: _core.RequestMix | None = None,
    drafts: Drafts | None = None,
    expert_cluster: Cluster | None = None,
) -> tuple[_core.Instance, str]:
    """One instance, tabulated, and a note on the kernels that stand in for others.

    `constants` take the place of the engine's own; `images` are those of the requests; `drafts`
    say what proposes tokens; `expert_cluster` holds the experts where `cluster` does not.
    """
    kernels, note = kernels_for(
        cluster, engine, model.shape, precision, kv_precision, images=images is not None
    )
    pool = None
    if expert_cluster is not None:
        own, more = kernels_for(
            expert_cluster, engine, model.shape, precision, kv_precision, images=False
        )
        pool = _core.ExpertPool(expert_cluster.core, own)
        note = "; ".join(dict.fromkeys(text for text in (note, more) if text))
    built = _core.Instance(
        model.core,
        cluster.core,
        engine_constants(engine) if constants is None else constants,
        kernels,
        layout,
        imbalance,
        _core.RequestMix() if images is None else images,
        draft_for(model, cluster, engine, drafts),
        pool,
    )
    return built, note


def drafts_of(task: Inference) -> Drafts | None:
    """What proposes the tokens of a task.

    Examples
    --------
    >>> drafts_of(Inference(input_tokens=8, output_tokens=8, speculative_tokens=1))
    (1.0, 'layer')
    """
    if task.speculative_tokens == 0:
        return None
    verified = _core.verified_drafts(task.mix)
    if task.draft_model is None:
        return verified, "layer"
    given = task.draft_model
    model = given if isinstance(given, Model) else resolve.model(given)
    precision = task.draft_precision or task.precision
    return verified, (model, precision, task.kv_precision, task.draft_tp)


def draft_for(model: Model, cluster: Cluster, engine: str, drafts: Drafts | None) -> _core.Draft:
    """What proposes tokens beside a model, as the engine's instances take it.

    Raises
    ------
    ScaleModelError : the vocabulary of a draft model is not that of the served one.

    Examples
    --------
    >>> import scalemodel as sm
    >>> draft_for(sm.model("llama3_8b"), sm.cluster("dgx_h100"), "vllm_v1", None)
    <scalemodel._core.Draft ...>
    """
    if drafts is None:
        return _core.Draft()
    verified, proposes = drafts
    if proposes == "layer":
        return _core.Draft(layer=True, verified=verified)
    own, precision, kv_precision, tp = proposes
    vocabularies = own.shape.vocab, model.shape.vocab
    if vocabularies[0] != vocabularies[1]:
        raise ScaleModelError(
            f"draft_model={own.name!r}: has a vocabulary of {vocabularies[0]} tokens and "
            f"{model.name} one of {vocabularies[1]}; a draft proposes tokens of the same"
        )
    kernels, _ = kernels_for(cluster, engine, own.shape, precision, kv_precision, images=False)
    return _core.Draft(own.core, kernels, tp, verified)


def started_engine(engine: str, task: Inference) -> _core.Engine:
    """Constants of an engine that is started for the adapters and the grammars of a task.

    Raises
    ------
    ScaleModelError : the engine has no such guided decoding.

    Examples
    --------
    >>> started_engine("vllm_v1", Inference(input_tokens=8, output_tokens=8, adapters=4)).adapters
    Adapters(adapters=4)
    """
    constants = engine_constants(engine)
    if task.adapters:
        constants = constants.replace(adapters=task.adapter_set)
    if task.guided_fraction:
        guided = guided_decoding(
            engine, task.guided_fraction, task.new_grammar_fraction, task.grammar_backend
        )
        constants = constants.replace(guided=guided)
    return constants


#: Limits that an engine is started with, fields of its record.
ENGINE_LIMITS = ("max_batched_tokens", "max_running_sequences")
_MOST_OF_A_STEP = 10_000_000  # tokens or sequences


def engine_limits(
    max_batched_tokens: object = None, max_running_sequences: object = None
) -> dict[str, int]:
    """The limits of an engine that were given, checked.

    Raises
    ------
    ScaleModelError : one is no whole number from 1.

    Examples
    --------
    >>> engine_limits(max_running_sequences=64)
    {'max_running_sequences': 64}
    """
    found = {}
    for name, value in zip(ENGINE_LIMITS, (max_batched_tokens, max_running_sequences), strict=True):
        if value is None:
            continue
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, int) or not whole or not 1 <= value <= _MOST_OF_A_STEP:
            raise ScaleModelError(
                f"{name}={value!r}: must be a whole number from 1 to {_MOST_OF_A_STEP}"
            )
        found[name] = value
    return found


def instance_of(
    model: Model,
    cluster: Cluster,
    task: Inference,
    layout: _core.ServingLayout,
    engine: str,
    limits: Mapping[str, int] | None = None,
    expert_cluster: Cluster | None = None,
) -> tuple[_core.Instance, str]:
    """The instance that serves a task, and the note on its kernels.

    `limits` are those of `ENGINE_LIMITS` that take the place of the engine's own;
    `expert_cluster` holds the experts where `cluster` does not.
    """
    question = (
        model,
        cluster,
        task.precision,
        task.kv_precision,
        task.rank_imbalance,
        layout,
        engine,
    )
    # Instances are alike for all requests without images or sources.
    images = task.mix if task.images or model.reads_source or task.source_tokens else None
    drafts = drafts_of(task)
    constants = started_engine(engine, task)
    unlimited = constants if task.adapters or task.guided_fraction else None
    if not limits:
        return instance_for(*question, unlimited, images, drafts, expert_cluster)
    given: dict[str, Any] = dict(limits)
    if "max_running_sequences" in given:
        constants = constants.replace(max_drafting_sequences=0)  # of no limit that was asked for
    if constants.limits_per_rank:
        # Limits that are given are those of the instance; so is then the one that is not.
        own = {name: layout.dp * getattr(constants, name) for name in ENGINE_LIMITS}
        constants = constants.replace(**own, limits_per_rank=False)
    if constants.tunes_limits:
        # The limit that is not given stays as the engine would have tuned it.
        built = instance_for(*question, unlimited, images, drafts, expert_cluster)
        tuned = built[0].capacity(task.input_tokens, task.output_tokens)
        own = {
            "max_batched_tokens": tuned.max_batched_tokens,
            "max_running_sequences": tuned.step_sequences,
        }
        if all(own[name] == value for name, value in given.items()):
            return built  # What it tunes by itself, given, is the same engine.
        given = {name: max(1, int(value)) for name, value in own.items()} | given
        given["tunes_limits"] = False
    return instance_for(*question, constants.replace(**given), images, drafts, expert_cluster)


class ServingPlan(ColumnAnswer):
    """The record of a `Serving`, whose documentation names its attributes."""

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        task: Inference,
        layout: _core.ServingLayout,
        engine: str,
        replicas: int,
        verdict: str,
        *,
        note: str = "",
        instance: _core.Instance | None = None,
        state: _core.SteadyState | None = None,
        asked_rate: float | None = None,
        asked_concurrency: float | None = None,
        engine_limits: Mapping[str, int] | None = None,
        expert_cluster: Cluster | None = None,
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.task = task
        self.layout = layout
        self.engine = engine
        self.replicas = replicas
        self.verdict = verdict
        shape = f"architecture read as {model.read_as}" if model.read_as else ""
        self.note = "; ".join(text for text in (shape, note) if text)
        self.instance = instance
        self.state = state
        self.asked_rate = asked_rate
        self.asked_concurrency = asked_concurrency
        self.engine_limits = dict(engine_limits or {})
        self.expert_cluster = expert_cluster
        self.limits: dict[str, float] = {}
        self.simulated: dict[str, float] = {}
        self.binds = ""
        self._columns = self._answer()

    def __getstate__(self) -> dict[str, Any]:
        # The tables of an instance follow from the question.
        return {**self.__dict__, "instance": self.instance is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if state["instance"]:
            self.instance = self.instance_under(self.engine_limits)
        else:
            self.instance = None

    def instance_under(self, limits: Mapping[str, int]) -> _core.Instance:
        """One instance of the plan under other limits of its engine."""
        question = (self.model, self.cluster, self.task, self.layout, self.engine)
        return instance_of(*question, limits, self.expert_cluster)[0]

    @property
    def options(self) -> dict[str, Any]:
        """The options of `serve` that give this plan again, to the last digit.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, concurrency=32)
        >>> again = sm.serve(plan.model, plan.cluster, task, plan.layout, **plan.options)
        >>> again.to_dict() == plan.to_dict()
        True
        """
        asked = {"requests_per_s": self.asked_rate, "concurrency": self.asked_concurrency}
        given: dict[str, Any] = {name: each for name, each in asked.items() if each is not None}
        if self.expert_cluster is not None:
            given["expert_cluster"] = self.expert_cluster
        return {"engine": self.engine, "replicas": self.replicas, **given, **self.engine_limits}

    def _answer(self) -> dict[str, Any]:
        names = (*_ANSWER, *MEMORY_COLUMNS, *EXPERT_MEMORY, *STEP_COLUMNS)
        if self.state is None or self.instance is None:
            return dict.fromkeys(names)
        state, task = self.state, self.task
        capacity = self.instance.capacity(task.input_tokens, task.output_tokens)
        requests = self.replicas * state.requests_per_s
        accelerators = self.replicas * ranks_of(self.layout)
        price = self.replicas * price_usd_per_s(self.layout, self.cluster, self.expert_cluster)
        output = requests * task.output_tokens
        answer = {
            "concurrency": self.replicas * state.concurrency,
            "max_concurrency": self.replicas * capacity.max_running_sequences,
            "requests_per_s": requests,
            "output_tokens_per_s": output,
            "tokens_per_s": requests * (task.input_tokens + task.output_tokens),
            "output_tokens_per_s_per_accelerator": output / accelerators,
            "ttft_s": None if state.saturated else state.ttft_s,
            "tpot_s": state.tpot_s,
            "latency_s": None
            if state.saturated
            else state.ttft_s + (task.output_tokens - 1) * state.tpot_s,
            "utilisation_fraction": state.utilisation,
            "saturated": state.saturated,
            "accelerators": accelerators,
            "max_batched_tokens": int(capacity.max_batched_tokens),
            "max_running_sequences": int(capacity.step_sequences),
            "usd_per_million_output_tokens": 1e6 * price / output if price and output else None,
            "step_time_s": state.step_time_s,
            "memory_bytes": sum(getattr(capacity, name) for name in MEMORY_COLUMNS),
        }
        answer |= {name: getattr(capacity, name) for name in (*MEMORY_COLUMNS, *EXPERT_MEMORY)}
        power_w = self.replicas * instance_power_w(
            self.model,
            self.cluster,
            task,
            self.instance,
            state.concurrency,
            self.expert_cluster,
        )
        answer |= {"power_w": power_w, "output_tokens_per_j": output / power_w}
        step = self.step()
        return answer | {name: getattr(step, name) for name in STEP_COLUMNS}

    def step(self) -> _core.StepTime:
        """A step without prompts at the mean context and the concurrency of one instance."""
        if self.instance is None or self.state is None:
            raise ScaleModelError(f"step: the plan does not run ({self.verdict})")
        return self.instance.decode_step(self.step_mix, self.state.concurrency)

    def at_rates(self, requests_per_s: Sequence[float]) -> pd.DataFrame:
        """States of one replica at rates of requests that arrive at all of them together.

        One call answers a whole sweep, several rates side by side: within 1e-12 of what
        `serve(requests_per_s=)` says of each.

        Parameters
        ----------
        requests_per_s : sequence of float, each >= 0

        Returns
        -------
        DataFrame, one row per rate
            Column arriving_per_s, then those of `SteadyState`.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
        >>> table = sm.serve("llama3_8b", "dgx_h100", task, replicas=8).at_rates([8, 80, 8000])
        >>> table.saturated.tolist()
        [False, False, True]
        """
        if self.instance is None:
            raise ScaleModelError(f"at_rates: the plan does not run ({self.verdict})")
        try:
            rates = np.array(requests_per_s, dtype=float)
        except (TypeError, ValueError):
            raise ScaleModelError(f"requests_per_s={requests_per_s!r}: must be numbers") from None
        columns = self.instance.steady_states_at(self.task.mix, rates / self.replicas)
        return pd.DataFrame({"arriving_per_s": rates, **columns}, copy=False)

    @property
    def step_mix(self) -> _core.RequestMix:
        """The requests with the depth of drafts in force, as steps of the engine take them."""
        return self.task.mix.replace(speculative_tokens=self.draft_tokens, adaptive_drafts=False)

    @property
    def draft_tokens(self) -> int:
        """Depth of the drafts in force: what adaptive ones choose at the load of the plan.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=500, output_tokens=500, precision="fp8",
        ...                     speculative_tokens=4, acceptance_fraction=0.7,
        ...                     adaptive_drafts=True)
        >>> [sm.serve("llama3_8b", "dgx_h100", task, concurrency=8 * count).draft_tokens
        ...  for count in (1, 512)]
        [4, 3]
        """
        return 0 if self.state is None else int(self.state.draft_tokens)

    def to_dict(self) -> dict[str, Any]:
        """The layout's fields, the verdict and every column of the answer.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> row = sm.serve("llama3_8b", "dgx_h100", task, concurrency=32).to_dict()
        >>> row["tp"], row["verdict"], row["tpot_s"] < 0.05
        (1, 'ok', True)
        """
        return {
            **self.layout.to_dict(),
            "replicas": self.replicas,
            "verdict": self.verdict,
            **self._columns,
        }


_ANSWER = (
    "concurrency",
    "max_concurrency",
    "requests_per_s",
    "output_tokens_per_s",
    "tokens_per_s",
    "output_tokens_per_s_per_accelerator",
    "ttft_s",
    "tpot_s",
    "latency_s",
    "utilisation_fraction",
    "saturated",
    "accelerators",
    "max_batched_tokens",
    "max_running_sequences",
    "usd_per_million_output_tokens",
    "step_time_s",
    "memory_bytes",
    "power_w",
    "output_tokens_per_j",
)


def ranks_of(layout: _core.ServingLayout) -> int:
    """Accelerators of one instance, those of an expert pool among them."""
    return attention_ranks(layout) + int(layout.expert_ranks)
