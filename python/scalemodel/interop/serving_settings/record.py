"""What the settings of a serving engine say, ready to be asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster, Model
from scalemodel.serving import Inference, Serving, SplitServing, serve, serve_split
from scalemodel.serving.plan import ranks_of

ModelSource: TypeAlias = str | Path | Mapping[str, Any] | Model
ClusterSource: TypeAlias = str | Path | Mapping[str, Any] | Cluster


@dataclass(frozen=True)
class ServingSettings:
    """A deployment as a command, an object or a recipe describes it. Made by `read_serving`.

    Attributes
    ----------
    framework, engine : str
        ``vllm``, ``sglang`` or ``tensorrt_llm``; catalogue name of the engine.
    hub : str
        The model as the settings name it.
    model : Model or None
        None where the catalogue does not know it; `serve` takes one then.
    layout : ServingLayout
        Degrees of an instance.
    replicas : int or None
        Instances; None where the settings do not tell (a command starts one).
    precision, kv_precision : str
        Formats of weights and cache, as `Inference` names them.
    speculative_tokens, draft_width, draft_nodes, draft_tp : int
    draft_model : str
        Id of a model that drafts, as the settings name it; empty where a layer drafts, or nothing.
    adapters, adapter_rank, adapter_slots : int
    adapter_targets : str
        Low-rank adapters (LoRA) that the engine is started for, as `Inference` names them.
    grammar_backend : str
        What fills the masks of guided requests, as `Inference` names it; empty: the default.
    prefix_caching : bool
    max_running_sequences, max_batched_tokens : int or None
        Of an instance, all its data-parallel ranks together; None: the engine's own.
    context_tokens : int or None
        Of a request at most.
    input_tokens, output_tokens, concurrency : float or None
        The load, where a recipe names one; `concurrency` is over all replicas.
    cluster : str
        Accelerator of the catalogue that the settings name; empty where they name none.
    node_accelerators : int
        Accelerators of an instance on each node; 0 where the settings do not tell.
    role : str
        ``prefill`` or ``decode`` of a deployment with two pools, else empty.
    prefill : ServingSettings or None
        The pool of prompts, where these are the settings of the pool of answers.
    points : tuple of ServingSettings
        All points of a recipe with several; these are the settings of the first.
    notes, unread : tuple of str
        What is not predicted as the settings say; options that were given and not understood.
    limit_parts : int
        Ranks, or parts of a batch, that have limits of their own.

    Examples
    --------
    >>> import scalemodel as sm
    >>> read = sm.read_serving("vllm", "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 64")
    >>> read.model.name, read.layout.tp, read.max_running_sequences
    ('qwen3_32b', 2, 64)
    >>> read.serve("dgx_h100", input_tokens=1000, output_tokens=100, replicas=1).verdict
    'ok'
    """

    framework: str
    engine: str
    hub: str
    model: Model | None
    layout: _core.ServingLayout
    replicas: int | None = None
    precision: str = "bf16"
    kv_precision: str = "bf16"
    speculative_tokens: int = 0
    draft_width: int = 1
    draft_nodes: int = 0
    draft_model: str = ""
    draft_tp: int = 0
    adapters: int = 0
    adapter_rank: int = 16
    adapter_targets: str = "all"
    adapter_slots: int = 0
    grammar_backend: str = ""
    prefix_caching: bool = True
    max_running_sequences: int | None = None
    max_batched_tokens: int | None = None
    context_tokens: int | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    cluster: str = ""
    node_accelerators: int = 0
    role: str = ""
    prefill: ServingSettings | None = None
    points: tuple[ServingSettings, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    limit_parts: int = field(default=1, repr=False)

    @property
    def accelerators(self) -> int:
        """Of all replicas and both pools; of one instance where replicas are not told."""
        own = ranks_of(self.layout) * (self.replicas or 1)
        return own + (self.prefill.accelerators if self.prefill is not None else 0)

    def task(self, **given: Any) -> Inference:
        """The task of the settings.

        Parameters
        ----------
        given
            Fields of `Inference` that settings do not hold: `input_tokens` and `output_tokens`
            unless a recipe names them, `prefix_hit_fraction`, `acceptance_fraction`, `imbalance`;
            also those that should be others.

        Raises
        ------
        ScaleModelError : a length is missing; a request is longer than the engine admits; part of
            prompts is in a cache that is switched off.

        Examples
        --------
        >>> import scalemodel as sm
        >>> read = sm.read_serving("sglang", "python -m sglang.launch_server "
        ...                        "--model-path Qwen/Qwen3-8B --kv-cache-dtype fp8_e4m3")
        >>> read.task(input_tokens=1000, output_tokens=100).kv_precision
        'fp8'
        """
        known: dict[str, Any] = {
            "precision": self.precision,
            "kv_precision": self.kv_precision,
            "speculative_tokens": self.speculative_tokens,
            "draft_width": self.draft_width,
            "draft_nodes": self.draft_nodes,
            "draft_model": self.draft_model or None,
            "draft_tp": self.draft_tp,
            "adapters": self.adapters,
            "adapter_rank": self.adapter_rank,
            "adapter_targets": self.adapter_targets,
            "adapter_slots": self.adapter_slots,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }
        legal = {each.name for each in fields(Inference) if each.init}
        for name in given:
            if name not in legal:
                raise ScaleModelError(
                    f"{name}: no field of a task; known: {', '.join(sorted(legal))}"
                )
        asked = known | given
        if asked.get("guided_fraction") and self.grammar_backend:
            asked.setdefault("grammar_backend", self.grammar_backend)
        for name in ("input_tokens", "output_tokens"):
            if asked[name] is None:
                raise ScaleModelError(f"{name}: the settings name no lengths of requests; give it")
        task = Inference(**asked)
        length = task.input_tokens + task.output_tokens
        if self.context_tokens is not None and length > self.context_tokens:
            raise ScaleModelError(
                f"input_tokens={task.input_tokens:g}, output_tokens={task.output_tokens:g}: the "
                f"engine is set to refuse requests of more than {self.context_tokens} tokens"
            )
        if task.prefix_hit_fraction and not self.prefix_caching:
            raise ScaleModelError(
                f"prefix_hit_fraction={task.prefix_hit_fraction:g}: prefix caching is switched off"
            )
        return task

    def serve(
        self,
        cluster: ClusterSource | None = None,
        task: Inference | None = None,
        *,
        model: ModelSource | None = None,
        requests_per_s: float | None = None,
        concurrency: float | None = None,
        replicas: int | None = None,
        **given: Any,
    ) -> Serving | SplitServing:
        """What the deployment of the settings delivers, by `serve` or `serve_split`.

        Without `requests_per_s` and `concurrency` the instances are kept as full as the settings
        let them be.

        Parameters
        ----------
        cluster : str, Path, mapping or Cluster, optional
            As for `serve`; the accelerator that the settings name, where they do.
        task : Inference, optional
            Made by `task` of what is `given` when left out.
        model : str, Path, mapping or Model, optional
            In place of the settings' own.
        requests_per_s, concurrency : float, optional
            Load over all replicas, as for `serve`. Two pools need the first.
        replicas : int, optional
            In place of the settings' own; as many as the cluster holds where neither tells.

        Raises
        ------
        ScaleModelError : as `serve`; the model or the cluster is neither known nor given.

        Examples
        --------
        >>> import scalemodel as sm
        >>> read = sm.read_serving("vllm", "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 64")
        >>> plan = read.serve("dgx_h100", input_tokens=1000, output_tokens=100, requests_per_s=4)
        >>> plan.replicas, plan.max_running_sequences
        (4, 64)
        """
        chosen = self._model(model)
        asked = self.task(**given) if task is None else task
        where = self._cluster(cluster)
        if self.prefill is not None:
            return self._serve_split(chosen, where, asked, requests_per_s, concurrency)
        copies = self.replicas if replicas is None else replicas
        question = (chosen, where, asked, self.layout)
        options: dict[str, Any] = {"engine": self.engine, "replicas": copies}
        own = serve(*question, **options)
        options["replicas"] = own.replicas
        if self._differs(self.max_batched_tokens, own.max_batched_tokens):
            options["max_batched_tokens"] = self.max_batched_tokens
        load = self.concurrency if concurrency is None else concurrency
        if requests_per_s is not None:
            options["requests_per_s"], load = requests_per_s, None
        if self._differs(self.max_running_sequences, own.max_running_sequences):
            running = self.max_running_sequences
            # A limit as large as the load is the load's own, as `launch_serving` writes it: room
            # for the logits of more sequences stays that of the engine.
            if load is None or running != -(-load // own.replicas):
                options["max_running_sequences"] = running
        if load is not None:
            options["concurrency"] = load
        return serve(*question, **options)

    def _differs(self, given: int | None, own: float | None) -> bool:
        """Whether a limit is another one than the engine has by itself."""
        if given is None:
            return False
        return own is None or -(-int(own) // self.limit_parts) * self.limit_parts != given

    def _model(self, model: ModelSource | None) -> Model:
        if model is not None:
            return resolve.model(model)
        if self.model is None:
            raise ScaleModelError(
                f"model: the catalogue does not know {self.hub!r}; give a name of the catalogue or "
                "the path of its config.json"
            )
        return self.model

    def _cluster(self, cluster: ClusterSource | None) -> Cluster:
        if isinstance(cluster, Cluster):
            return cluster
        if cluster is not None:
            return resolve.cluster(cluster)
        if not self.cluster:
            raise ScaleModelError("cluster: the settings name no accelerator; give a cluster")
        return resolve.cluster({"accelerator": self.cluster}, accelerators=self.accelerators)

    def _serve_split(
        self,
        model: Model,
        cluster: Cluster,
        task: Inference,
        requests_per_s: float | None,
        concurrency: float | None,
    ) -> SplitServing:
        if self.prefill is None or requests_per_s is None or concurrency is not None:
            raise ScaleModelError("requests_per_s: two pools are asked about at a rate; give it")
        options: dict[str, Any] = {
            "requests_per_s": requests_per_s,
            "prefill": self.prefill.layout,
            "decode": self.layout,
            "prefill_replicas": self.prefill.replicas or 1,
            "decode_replicas": self.replicas or 1,
            "engine": self.engine,
        }
        own = serve_split(model, cluster, task, **options)
        return serve_split(
            model,
            cluster,
            task,
            prefill_limits=self.prefill._limits_of_a_rank(own.prefill),
            decode_limits=self._limits_of_a_rank(own.decode),
            **options,
        )

    def _limits_of_a_rank(self, own: Serving) -> dict[str, int]:
        """Limits of a data-parallel rank that are not those which the engine has by itself."""
        given = {
            "max_batched_tokens": self.max_batched_tokens,
            "max_running_sequences": self.max_running_sequences,
        }
        return {
            name: -(-value // self.layout.dp)
            for name, value in given.items()
            if value is not None and self._differs(value, getattr(own, name))
        }
