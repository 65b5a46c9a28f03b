"""One instance of a serving plan in the terms of engines: limits, ranks, nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.engines import engine, grammar_backends
from scalemodel.serving.plan import ServingPlan, drafts_of, ranks_of
from scalemodel.serving.task import Inference

Role = Literal["", "prefill", "decode"]

#: Lengths up to this many spreads above the mean logarithm are served: 999 of 1000.
_SPREADS: Final = 3.0


class Variable(str):
    """A word that the shell fills in."""

    __slots__ = ()


#: Options of vLLM and SGLang for weights that the checkpoint must hold as they are, by format.
STORED: Final = {"fp4": "modelopt_fp4", "int4": "awq_marlin", "mxfp4": "mxfp4"}
#: Address of the first node of an instance.
HEAD: Final = "$HEAD_IP"


@dataclass(frozen=True)
class Start:
    """How an instance is started with an engine.

    Attributes
    ----------
    nodes : tuple of tuple of str
        Words of the command, for each node.
    environment, files : dict
        Variables by name; texts by the name of their file.
    notes : tuple of str
        What the command cannot say, or needs beside it.
    """

    nodes: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Instance:
    """An instance of a plan that runs, in a deployment that may have pools for its two phases.

    `prefix_caching` says whether prompts are looked up in the cache, `longest` the tokens of the
    longest request, where more is known of them than the task says; `tiers` are those of a set-up
    of `cache_tiers` below the KV cache.
    """

    plan: ServingPlan
    role: Role = ""
    prefix_caching: bool = False
    longest: int = 0
    tier_setup: str = ""
    tiers: tuple[_core.CacheTier, ...] = ()

    def __post_init__(self) -> None:
        plan = self.plan
        if plan.instance is None or plan.state is None:
            raise ScaleModelError(f"launch: the plan does not run ({plan.verdict})")
        if self.model.startswith("-"):
            raise ScaleModelError(
                f"model={self.model!r}: starts with '-': its command would take it for an option"
            )

    @property
    def model(self) -> str:
        """Id on the Hub, else the name of the model."""
        return self.plan.model.hub or self.plan.model.name

    @property
    def routed(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.plan.model.shape.experts > 0

    @property
    def latent(self) -> bool:
        """Whether attention caches a latent; kernels for it choose the size of a block."""
        return self.plan.model.shape.kv_lora_rank > 0

    @property
    def drafts_itself(self) -> bool:
        """Whether the checkpoint brings the layer that proposes tokens."""
        return self.plan.model.shape.mtp_layers > 0

    @property
    def drafting_model(self) -> str:
        """Id on the Hub of the draft model, else its name; empty where a layer drafts, or none."""
        drafts = drafts_of(self.plan.task)
        proposes = drafts[1] if drafts else None
        if not isinstance(proposes, tuple):
            return ""
        name = proposes[0].hub or proposes[0].name
        if name.startswith("-"):
            raise ScaleModelError(
                f"draft_model={name!r}: starts with '-': its command would take it for an option"
            )
        return str(name)

    @property
    def verified_drafts(self) -> int:
        """Draft tokens of a sequence that a step verifies at most."""
        return int(_core.verified_drafts(self.plan.task.mix))

    @property
    def grammar_backend(self) -> str:
        """The engine's name of what fills masks; empty where no request is guided."""
        task = self.plan.task
        if not task.guided_fraction:
            return ""
        known = grammar_backends(self.plan.engine)
        return known[task.grammar_backend] if task.grammar_backend else next(iter(known.values()))

    @property
    def constants(self) -> Any:
        """Constants of the engine."""
        return engine(self.plan.engine)

    @property
    def length(self) -> int:
        """Tokens of a request at most, prompt and answer."""
        if self.longest:
            return self.longest
        task = self.plan.task
        total = 0.0
        for mean, spread in (
            (task.input_tokens, task.input_spread),
            (task.output_tokens, task.output_spread),
        ):
            total += mean * math.exp(_SPREADS * spread - spread**2 / 2)
        return math.ceil(total - 1e-9)

    @property
    def images(self) -> int:
        """Images of a prompt at most; a mean that is no whole number counts as the next one."""
        return math.ceil(self.plan.task.images - 1e-9)

    @property
    def encodes(self) -> bool:
        """Whether an encoder reads a source that every layer attends to."""
        return self.plan.model.shape.encoder_layers > 0

    @property
    def medium(self) -> str:
        """What engines call that which a tower reads: a patch of one position is one of sound."""
        vision = self.plan.model.vision
        return "audio" if vision is not None and vision.patch == 1 else "image"

    @property
    def hears(self) -> bool:
        """Whether an encoder reads sound for the decoder."""
        return self.plan.model.shape.encoder_channels > 0

    @property
    def running(self) -> int:
        """Sequences that the instance may run at once.

        The limit that was asked for, else the load that was, else the engine's own: an engine that
        is to keep a fixed number of sequences running needs no room for more.
        """
        plan = self.plan
        limit, load = plan.engine_limits.get("max_running_sequences"), plan.asked_concurrency
        if limit is None and load is not None:
            return max(1, math.ceil(load / plan.replicas - 1e-9))
        return max(1, int(self._capacity.step_sequences))

    @property
    def tokens(self) -> int:
        """Tokens of a step of the instance at most."""
        return max(1, int(self._capacity.max_batched_tokens))

    @property
    def _capacity(self) -> Any:
        task = self.plan.task
        if self.plan.instance is None:
            raise ScaleModelError(f"launch: the plan does not run ({self.plan.verdict})")
        return self.plan.instance.capacity(task.input_tokens, task.output_tokens)

    @property
    def ranks(self) -> int:
        """Accelerators of the instance."""
        return ranks_of(self.plan.layout)

    @property
    def per_node(self) -> int:
        """Accelerators of the instance on each of its nodes."""
        return min(self.ranks, int(self.plan.cluster.core.node_accelerators))

    @property
    def nodes(self) -> int:
        """Nodes that the instance spans."""
        return -(-self.ranks // self.per_node)

    def notes(self) -> list[str]:
        """What a command of any engine cannot say about the plan."""
        plan, found = self.plan, []
        if not plan.model.hub:
            found.append(
                f"the catalogue knows no checkpoint of {plan.model.name}: put its path, or its id "
                "on the Hub, in place of the name"
            )
        if plan.task.input_spread or plan.task.output_spread:
            found.append(f"lengths vary: 999 of 1000 requests are within {self.length} tokens")
        if plan.task.encoder_hit_fraction:
            found.append(
                "encoder_hit_fraction: requests that repeat images, or instances of encoders alone,"
                " which no command here starts"
            )
        if self.nodes > 1 and self.ranks % self.per_node:
            found.append(f"{self.ranks} accelerators fill no whole number of nodes")
        return found


def share(total: int, ranks: int, name: str, notes: list[str]) -> int:
    """The part of a limit of the whole instance that each of its ranks gets, rounded up."""
    part = -(-total // ranks)
    if part * ranks != total:
        notes.append(f"{name} {total} over {ranks} ranks is rounded up to {part} each")
    return part


def adapter_slots(task: Inference) -> int:
    """Adapters that the accelerator has room for."""
    return task.adapter_slots or task.adapters


def stored_as(words: Sequence[str], precision: str, hub: str) -> str:
    """Note on a format that the checkpoint itself must have."""
    flag = " ".join(words) or "the command has no option for it"
    return f"weights in {precision} ({flag}): a checkpoint stored so must take the place of {hub}"


def runs_as_stored(instance: Instance, notes: list[str]) -> None:
    """Note on a checkpoint that is narrower than the weights of the plan."""
    task, model = instance.plan.task, instance.plan.model
    if model.checkpoint:
        notes.append(
            f"weights in {task.precision}: {instance.model} is stored in {model.checkpoint} "
            "and runs so"
        )


def weight_options(instance: Instance, online: Mapping[str, str], notes: list[str]) -> list[str]:
    """Options of vLLM and SGLang for weights; `online`: formats that the engine narrows itself."""
    task = instance.plan.task
    words = ["--dtype", "float16" if task.precision == "fp16" else "bfloat16"]
    if task.precision in ("bf16", "fp16"):
        runs_as_stored(instance, notes)
    elif task.precision != instance.plan.model.checkpoint:
        option = online.get(task.precision) or STORED[task.precision]
        words += ["--quantization", option]
        if task.precision in STORED:
            notes.append(stored_as(words[-2:], task.precision, instance.model))
    return words
