"""Questions that two other estimators answered, asked of this one.

``data/peers.csv.gz`` holds predictions of Calculon and llm-analysis, nothing measured. A `Peer`
is one of its rows; `question` builds our model, cluster, task and strategy of the same case.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from reference.corpora import given, unzipped
from scalemodel import resolve

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

CALCULON, LLM_ANALYSIS = "calculon", "llm-analysis"

#: llm-analysis numbers its recomputation modes.
RECOMPUTED = {
    "full": "full",
    "attn_only": "selective",
    "none": "none",
    "4": "full",
    "1": "selective",
    "0": "none",
}

#: Sheets the two tools assume: dense 16-bit peak, memory, scale-up and fabric bandwidth of a GPU.
SHEETS = {
    "a100_80e": ("dgx_a100", "312 TFLOP/s", "2048 GB/s", "300 GB/s", "25 GB/s"),
    "a100_80g": ("dgx_a100", "312 TFLOP/s", "2048 GB/s", "300 GB/s", "25 GB/s"),
    "h100_80g_nvl8": ("dgx_h100", "1000 TFLOP/s", "3072 GB/s", "450 GB/s", "50 GB/s"),
    "a100-sxm-80gb": ("dgx_a100", "312 TFLOP/s", "2039 GB/s", "300 GB/s", "25 GB/s"),
    "h100-sxm-80gb": ("dgx_h100", "989 TFLOP/s", "3350 GB/s", "450 GB/s", "50 GB/s"),
}

#: Shapes llm-analysis was given, (layers, hidden, heads, key/value heads, ffn, vocabulary). Its
#: feed-forward layers have two matrices, of Llama-2 half as wide again; the token table is shared.
LLM_ANALYSIS_SHAPES = {
    "megatron-22B": (48, 6144, 64, 64, 24576, 51200),
    "gpt3-175B": (96, 12288, 96, 96, 49152, 51200),
    "turing-530B": (105, 20480, 128, 128, 81920, 51200),
    "megatron-1T": (128, 25600, 160, 160, 102400, 51200),
    "llama2-7B": (32, 4096, 32, 32, 16512, 32000),
    "llama2-70B": (80, 8192, 64, 8, 43008, 32000),
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """One prediction of another tool."""

    tool: str
    number: int
    row: dict[str, str] = dataclasses.field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.tool}-{self.number}-{self.row['model']}"

    def of(self, column: str) -> float:
        """A number of the row, in the tool's own column of that name."""
        prefix = "calc_" if self.tool == CALCULON else "la_"
        return float(self.row[prefix + column])

    def out(self, column: str) -> float:
        return self.of("out_" + column)

    def text(self, column: str) -> str:
        prefix = "calc_" if self.tool == CALCULON else "la_"
        return self.row[prefix + column]

    def flag(self, column: str) -> bool:
        return self.text(column) == "True"

    @cached_property
    def tp(self) -> int:
        return int(self.row["tp_in"])

    @cached_property
    def pp(self) -> int:
        return int(self.row["pp_in"])

    @cached_property
    def dp(self) -> int:
        return int(self.row["dp_in"])

    @cached_property
    def micro_batch(self) -> int:
        return int(self.row["micro_batch_in"])

    @cached_property
    def micro_batches(self) -> int:
        return int(self.row["global_batch_in"]) // (self.dp * self.micro_batch)

    @cached_property
    def chunks(self) -> int:
        return int(self.of("pipeline_interleaving")) if self.tool == CALCULON else 1

    @cached_property
    def step_time_s(self) -> float:
        return float(self.row["step_time_s"])

    @cached_property
    def sequence(self) -> int:
        return int(self.of("seq_size") if self.tool == CALCULON else self.out("seq_len"))

    @cached_property
    def shape(self) -> dict[str, Any]:
        """Shape of the model the tool was given, as a model card of ours."""
        if self.tool == CALCULON:
            # Blocks only: no token table, no head. LayerNorm with a bias, linear layers without.
            heads = int(self.of("attn_heads"))
            layers, hidden, ffn = (
                int(self.of(key)) for key in ("num_blocks", "hidden", "feedforward")
            )
            extra = {"vocab": 51200, "norm": "layernorm", "head_dim": int(self.of("attn_size"))}
            kv_heads = heads
        else:
            layers, hidden, heads, kv_heads, ffn, vocab = LLM_ANALYSIS_SHAPES[self.row["model"]]
            extra = {"vocab": vocab, "norm": "layernorm_nobias"}
        return {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "ffn": ffn,
            "gated": False,
            "position": "none",
            "tied_embeddings": True,
            **extra,
        }

    @cached_property
    def layers(self) -> int:
        return int(self.shape["layers"])

    @cached_property
    def stage_layers(self) -> int:
        return self.layers // self.pp

    @cached_property
    def hidden(self) -> int:
        return int(self.shape["hidden"])

    @cached_property
    def stream_bytes(self) -> int:
        """Residual stream of one micro-batch, 16 bits, not split over tensor ranks."""
        return 2 * self.micro_batch * self.sequence * self.hidden

    @cached_property
    def sequence_parallel(self) -> bool:
        if self.tool == CALCULON:
            return self.text("tensor_par_comm_type") == "rs_ag"
        return self.of("sp") > 1

    @cached_property
    def recompute(self) -> str:
        if self.tool == CALCULON:
            return RECOMPUTED[self.text("activation_recompute")]
        return RECOMPUTED[str(int(self.of("activation_recomputation")))]

    @cached_property
    def sharding(self) -> str:
        if self.tool == CALCULON:
            return "zero1" if self.flag("optimizer_sharding") else "ddp"
        return ("ddp", "zero1", "zero2", "zero3")[int(self.of("ds_zero"))]


@lru_cache(maxsize=1)
def peers() -> tuple[Peer, ...]:
    """Every row."""
    folder = given()
    text = (
        unzipped("peers.csv.gz")
        if folder is None
        else (folder / "peers_reference.csv").read_text(encoding="utf-8")
    )
    return tuple(
        Peer(row["tool"].partition("@")[0], int(row["id"]), row)
        for row in csv.DictReader(text.splitlines())
    )


def of_tool(tool: str) -> list[Peer]:
    return [peer for peer in peers() if peer.tool == tool]


def cases(*tools: str, where: Callable[[Peer], bool] = lambda _: True) -> list[ParameterSet]:
    """Rows to parametrise a test with."""
    chosen = [peer for tool in tools for peer in of_tool(tool) if where(peer)]
    return [pytest.param(peer, id=str(peer)) for peer in chosen]


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to the engine, every part open to change."""

    shape: _core.DecoderShape
    cluster: _core.Cluster
    task: _core.Task
    strategy: _core.Strategy
    stack: _core.Stack

    def but(self, **changes: Any) -> Question:
        return dataclasses.replace(self, **changes)

    @cached_property
    def tables(self) -> _core.Tables:
        return _core.Tables(_core.LayeredModel(self.shape), self.cluster, self.task, self.stack)

    @cached_property
    def estimate(self) -> _core.Estimate:
        estimate = self.tables.estimate(self.strategy)
        assert estimate.verdict in ("ok", "out_of_memory"), estimate.verdict
        return estimate

    @cached_property
    def operators(self) -> dict[str, dict[str, float]]:
        """Operators of a layer by name."""
        return {row["operator"]: row for row in self.tables.operators(self.strategy, 0)}


@lru_cache(maxsize=8)
def sheet_cluster(system: str) -> sm.Cluster:
    """Our cluster with the data sheet that the tool assumes."""
    base, peak, memory, scale_up, fabric = SHEETS[system]
    accelerator = {"dgx_a100": "a100_sxm_80", "dgx_h100": "h100_sxm_80"}[base]
    return sm.cluster(
        {
            "base": base,
            "accelerator": {
                "base": accelerator,
                "compute": {"bf16": peak, "fp16": peak},
                "memory": {"bandwidth": memory},
            },
            "scale_up": {"bandwidth": scale_up},
            "fabric": {"bandwidth": fabric},
        }
    )


@lru_cache(maxsize=64)
def question(peer: Peer) -> Question:
    """The row's case as a user of ours would ask it, with the stack that is the default."""
    cluster = sm.cluster(
        sheet_cluster(peer.row["system"]), accelerators=peer.tp * peer.pp * peer.dp
    )
    return Question(
        shape=_core.DecoderShape(**peer.shape),
        cluster=cluster.core,
        task=sm.Training(
            global_batch=int(peer.row["global_batch_in"]), sequence=peer.sequence
        ).core,
        strategy=sm.Strategy(
            tp=peer.tp,
            pp=peer.pp,
            vpp=peer.chunks,
            micro_batch=peer.micro_batch,
            sharding=peer.sharding,
            recompute=peer.recompute,
            sequence_parallel=peer.sequence_parallel,
        ),
        # Selective recomputation means the attention core to both tools.
        stack=resolve.stack("plain").replace(selective="core_attention"),
    )


def without_ends(asked: Question) -> Question:
    """The same without token table, logits and loss, as far as a model can be."""
    return asked.but(shape=asked.shape.replace(vocab=1))


def wire_only(asked: Question, *, domain: int | None = None) -> Question:
    """The same on links without latency that reach their full bandwidth: the ring limit."""
    ring = _core.CollectiveFit(bandwidth_fraction1=1.0, bandwidth_fraction2=1.0)
    scale_up = asked.cluster.scale_up.replace(
        all_reduce=ring,
        all_gather=ring,
        reduce_scatter=ring,
        all_to_all=ring,
        in_switch=_core.InSwitchFit(),
        p2p_latency_s=0.0,
        p2p_fraction=1.0,
    )
    if domain is not None:
        scale_up = scale_up.replace(domain=domain)
    fabric = asked.cluster.fabric.replace(
        latency_factor=0.0,
        bandwidth_fraction=1.0,
        all_to_all_fraction=1.0,
        p2p_latency_s=0.0,
        p2p_fraction=1.0,
    )
    return asked.but(cluster=asked.cluster.replace(scale_up=scale_up, fabric=fabric))


def in_the_open(asked: Question) -> Question:
    """The same with nothing hidden underneath compute."""
    return asked.but(
        stack=asked.stack.replace(contention=0.0, overlap_p2p=False),
        strategy=asked.strategy.replace(
            overlap_grad_reduce=False, overlap_param_gather=False, overlap_tp=False
        ),
    )
