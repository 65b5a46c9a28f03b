"""What the original knows of systems and workloads, and a question about both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class System:
    """A family of the original's systems, in base units; links of a GPU, ports of a node."""

    flop_per_s: dict[int, float]  # by bytes of a parameter
    memory_bytes_per_s: float
    memory_bytes: float
    gpus_per_node: int
    links: int
    link_bytes_per_s: float  # both directions
    link_fraction: float
    ports: int
    port_bytes_per_s: float
    port_fraction: float
    intra_share: float  # "a" of the mixed all-reduce rate

    def rates(self, gpus: int) -> tuple[list[float], list[float]]:
        """Rates of an all-to-all and of an all-reduce, per level."""
        intra = self.links * self.link_bytes_per_s / 2 * self.link_fraction
        ports = self.ports * self.port_bytes_per_s / 2 * self.port_fraction / self.gpus_per_node
        if gpus <= self.gpus_per_node:
            return [intra], [intra]
        mixed = (1 - self.intra_share) * ports + self.intra_share * intra
        return [intra, ports], [intra, mixed]


@dataclass(frozen=True)
class Workload:
    """Sizes of a model; a family without MLPs or without blocks has none of them."""

    family: str
    parameter_bytes: int = 2
    embedding_bytes: int = 2
    tables: int = 0
    entries: int = 0
    dim: int = 0
    pooled: int = 0
    width: int = 0
    bottom: int = 0
    top: int = 0
    experts: int = 1
    active_experts: int = 1
    layers: int = 0
    hidden: int = 0
    ffn: int = 0
    sequence: int = 1
    vocabulary: int = 0

    @property
    def embedding_parameters(self) -> int:
        """Of all tables, or of words and positions."""
        if self.tables:
            return self.tables * self.entries * self.dim
        return (self.vocabulary + self.sequence) * self.hidden

    @property
    def lookup_bytes(self) -> int:
        """Bytes of the rows one sample looks up."""
        if self.tables:
            return self.tables * self.pooled * self.dim * self.embedding_bytes
        return 2 * self.sequence * self.hidden * self.embedding_bytes

    def units(self, part: str, mesh: Mesh, batch: float) -> list[Unit]:
        """Layers of a part: ``bottom``, ``top``, ``attention`` or ``ffn``."""
        expert_part = {"DLRM_MoE": "top", "LLM_MoE": "ffn"}.get(self.family)
        held, used = (self.experts, self.active_experts) if part == expert_part else (1, 1)
        if part in ("bottom", "top"):
            count, elements = getattr(self, part), self.width
            weights, multiplied = self.width**2, self.width**2
        else:
            count, elements = self.layers, self.sequence * self.hidden
            weights = self.hidden * (4 * self.hidden if part == "attention" else 2 * self.ffn)
            multiplied = weights * self.sequence
        size = self.parameter_bytes
        layer = Unit(
            part=part,
            index=0,
            weight_bytes=weights * held * size,
            flop=2 * multiplied * used,
            activation_bytes=elements * size,
            experts=held if part == expert_part else 0,
            active_experts=used,
            mesh=mesh,
            batch=batch,
        )
        return [replace(layer, index=index) for index in range(count)]


Mesh = tuple[tuple[str, int], ...]  # (parallelism, degree), innermost level first


def mesh_of(text: str) -> Mesh:
    """A mesh from its spelling, such as ``tp@8+ddp@16``."""
    levels = (level.split("@") for level in text.split("+") if level)
    return tuple((name, int(degree)) for name, degree in levels)


@lru_cache
def product(mesh: Mesh, names: tuple[str, ...]) -> int:
    """Product of the degrees of some parallelisms of a mesh."""
    return math.prod(degree for name, degree in mesh if name in names)


@dataclass(frozen=True)
class Unit:
    """What one gather brings: an MLP layer, an attention block or a feed-forward block."""

    part: str
    index: int
    weight_bytes: int
    flop: int  # forward, per sample
    activation_bytes: int  # of its output, per sample
    experts: int  # 0: none
    active_experts: int
    mesh: Mesh
    batch: float  # samples of a rank of the group

    @cached_property
    def sharded(self) -> int:
        """Ways its weights are cut."""
        return product(self.mesh, ("tp", "fsdp", "mp"))

    @cached_property
    def gathers(self) -> bool:
        """Whether its weights are gathered before use."""
        return any(name == "fsdp" for name, _ in self.mesh)

    @cached_property
    def tensor_parallel(self) -> int:
        """Ways its products are cut."""
        return product(self.mesh, ("tp",))


@dataclass(frozen=True)
class Question:
    """One step of a workload on a system."""

    workload: Workload
    system: System
    gpus: int
    embedding: Mesh
    mlp: Mesh = ()
    transformer: Mesh = ()
    embedding_batch: float = 0.0
    mlp_batch: float = 0.0
    transformer_batch: float = 0.0
    task: str = "pretrain"
    prefetch_all: bool = False  # the "post-optimised" backward pass
    freeze: dict[str, bool | int] = field(default_factory=dict)

    @property
    def global_batch(self) -> float:
        """Samples of a step of all GPUs."""
        mesh, batch = (self.mlp, self.mlp_batch) if self.mlp else (self.transformer, 0.0)
        batch = batch or self.transformer_batch
        return batch * product(mesh, ("ddp", "fsdp"))
