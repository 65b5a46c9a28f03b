"""Models of layer groups: published formulas, errors, files."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core

NODE = sm.cluster("zionex", nodes=1)
LLAMA, ROUTED = sm.compose("llama3_8b"), sm.compose("mixtral_8x7b")
TABLES, DIM, BYTES, POOLING, BATCH = 64, 128, 2, 20, 8192
#: Every rate a constant share of the data sheet, no latency, nothing beside the tables.
BARE = sm.Ablation(
    gemm_fraction=0.7,
    memory_fraction=0.8,
    network_fraction=1.0,
    latency=False,
    elementwise=False,
    optimizer=False,
    host=False,
    contention=False,
    index_exchange=False,
    cached_tables=False,
)


def dlrm(**changes: object) -> sm.ComposedModel:
    """Tables beside a small MLP."""
    given: dict[str, object] = {
        "tables": TABLES,
        "rows": 1e6,
        "dim": DIM,
        "pooling": POOLING,
        "value_bytes": BYTES,
        "output_bytes": BYTES,
    }
    return sm.compose(
        "dlrm",
        groups=[
            sm.EmbeddingTables(name="embedding", **{**given, **changes}),
            sm.Mlp(name="bottom_mlp", widths=(64, 64), after=()),
            sm.Mlp(name="top_mlp", widths=(64, 64), after=("embedding", "bottom_mlp")),
        ],
    )


def forward(model: sm.ComposedModel, mesh: str) -> sm.GroupEstimate:
    """A bare forward pass on one node."""
    task = sm.BatchInference(global_batch=BATCH, sequence=1, precision="fp16")
    return sm.estimate(model, NODE, task, sm.GroupStrategy({"embedding": mesh}), ablation=BARE)


def test_exchange_of_pooled_rows() -> None:
    # T d B of a sample, for the samples of a rank, less the share that stays.
    ranks = 8
    sent = TABLES * DIM * BYTES * (BATCH / ranks) * (ranks - 1) / ranks
    expected = sent / NODE.core.scale_up.bandwidth_bytes_per_s
    assert forward(dlrm(), "table_wise").all_to_all_s == pytest.approx(expected, rel=1e-9)


def test_rows_looked_up() -> None:
    looked_up = TABLES * POOLING * DIM * BYTES * BATCH / 8
    est = forward(dlrm(), "ddp")
    assert est.looked_up_bytes == looked_up
    rate = 0.8 * NODE.core.accelerator.memory_bandwidth_bytes_per_s
    assert est.lookup_s == pytest.approx(looked_up / rate, rel=1e-9)
    assert est.all_to_all_s == 0


def test_tables_fill_the_rank_that_has_most() -> None:
    # Nine tables on eight ranks: one rank holds two.
    est = forward(dlrm(tables=9), "table_wise")
    assert est.table_imbalance == pytest.approx(2 * 8 / 9)
    assert est.memory_tables_bytes == pytest.approx(2 * 1e6 * DIM * BYTES)
    even = forward(dlrm(tables=9), "row_wise")
    assert even.memory_tables_bytes == pytest.approx(9 / 8 * 1e6 * DIM * BYTES)


def test_unequal_tables_are_balanced_by_their_look_ups() -> None:
    pooling = [80.0] + [10.0] * 8
    est = forward(dlrm(tables=9, pooling=pooling), "table_wise")
    assert est.table_imbalance == pytest.approx(80 / (sum(pooling) / 8))


def test_small_tables_are_replicated_in_a_hybrid() -> None:
    rows = [100.0] * 32 + [1e6] * 32
    hybrid = forward(dlrm(rows=rows), "hybrid")
    whole = forward(dlrm(rows=rows), "table_wise")
    assert hybrid.all_to_all_s == pytest.approx(whole.all_to_all_s / 2, rel=1e-9)


@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ({"mlp": "tp@8+dp"}, "'dp' is none of"),
        ({"mlp": "ddp@x"}, "'x' must be a whole number"),
        ({"mlp": "ddp+ddp"}, "stands there twice"),
        ({"mlp": "table_wise"}, "no mesh for mlp"),
        ({"embedding": "fsdp"}, "no mesh for embedding_tables"),
        ({"mlp": "sp@8"}, "no mesh for mlp"),
        ({"middle_mlp": "ddp"}, "no such group"),
        (5, "must be a mesh"),
    ],
)
def test_malformed_strategies_are_named(groups: object, named: str) -> None:
    task = sm.Training(global_batch=BATCH, sequence=1)
    with pytest.raises(sm.ScaleModelError, match=re.escape(named)):
        sm.estimate(dlrm(), NODE, task, sm.GroupStrategy(groups))  # type: ignore[arg-type]


def test_a_mesh_of_another_size_is_a_verdict() -> None:
    task = sm.Training(global_batch=BATCH, sequence=1)
    est = sm.estimate(dlrm(), NODE, task, sm.GroupStrategy({"mlp": "ddp@3"}))
    assert est.verdict == "illegal:mesh"
    assert est.step_time_s is None
    assert est.breakdown().empty


@pytest.mark.parametrize("mesh", ["sp@2+tp@4", "cp@8", "cp@2+sp@4", "ddp@4+cp@2"])
def test_sequences_are_shared_out_among_ranks_of_the_same_parameters(mesh: str) -> None:
    est = sm.estimate(
        sm.compose("llama3_8b"),
        sm.cluster("dgx_h100"),
        sm.Training(global_batch=8, sequence=2048),
        sm.GroupStrategy({"transformer": mesh}),
    )
    assert est.verdict == "illegal:mesh"


def test_what_groups_lack_of_a_strategy_is_named() -> None:
    model, cluster = sm.compose("llama3_8b"), sm.cluster("dgx_h100")
    task = sm.Training(global_batch=8, sequence=2048)
    with pytest.raises(sm.ScaleModelError, match="pp=2: layer groups have no pipeline"):
        sm.estimate(model, cluster, task, sm.Strategy(pp=2))
    with pytest.raises(sm.ScaleModelError, match="context='ring'"):
        sm.estimate(model, cluster, task, sm.Strategy(cp=2))


def test_parameters_of_latent_attention() -> None:
    hidden, heads, head, rope, value, rank, q_rank, ffn = 512, 8, 96, 32, 64, 128, 192, 1024
    group = sm.Transformer(
        layers=1,
        hidden=hidden,
        heads=heads,
        head_dim=head,
        v_head_dim=value,
        kv_lora_rank=rank,
        q_lora_rank=q_rank,
        rope_head_dim=rope,
        ffn=ffn,
        gated=True,
        rotary=True,
    )
    queries = hidden * q_rank + q_rank + q_rank * heads * head
    keys = hidden * (rank + rope) + rank + rank * heads * (head - rope + value)
    out = heads * value * hidden
    assert group.core.parameters == queries + keys + out + 3 * hidden * ffn + 2 * hidden
    with pytest.raises(sm.ScaleModelError, match="rope_head_dim=96: must be below head_dim"):
        sm.Transformer(hidden=512, heads=8, head_dim=96, kv_lora_rank=128, rope_head_dim=96, ffn=8)


def test_malformed_models_are_named() -> None:
    with pytest.raises(sm.ScaleModelError, match="after='tables'"):
        sm.compose("m", groups=[sm.Mlp(widths=(8, 8), after=("tables",))])
    with pytest.raises(sm.ScaleModelError, match="two groups are called 'mlp'"):
        sm.compose("m", groups=[sm.Mlp(widths=(8, 8)), sm.Mlp(widths=(8, 8))])
    with pytest.raises(sm.ScaleModelError, match="pooling"):
        sm.EmbeddingTables(tables=2, rows=10, dim=4, pooling=[1])
    with pytest.raises(sm.ScaleModelError, match="heads"):
        sm.Transformer(layers=1, hidden=8, heads=3, kv_heads=2, ffn=8)


def test_entries_of_files(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(
        """
name = "tiny"
[[group]]
kind = "embedding_tables"
name = "embedding"
tables = { value = 4, source = "made up" }
rows = [10, 20, 30, 40]
dim = 8
[[group]]
kind = "mlp"
widths = [32, 16, 1]
"""
    )
    model = sm.compose(path)
    assert model.parameters == 100 * 8 + 32 * 16 + 16
    assert pickle.loads(pickle.dumps(model)) == model
    path.write_text('name = "tiny"\n[[group]]\nkind = "mlp"\nwidth = [8]\n')
    with pytest.raises(sm.ScaleModelError, match=r"width.*unknown key.*widths"):
        sm.compose(path)


@pytest.mark.parametrize(
    ("model", "mesh", "task", "verdict", "said"),
    [
        (LLAMA, "ddp@3", {}, "illegal:mesh", "transformer ddp@3"),
        (LLAMA, "ddp", {"global_batch": 12}, "illegal:batch", "12 samples in 1 micro-batches"),
        (LLAMA, "tp@64", {}, "illegal:tp_heads", "heads: token_embedding tp@64, transformer tp@64"),
        (ROUTED, "tp@64", {}, "illegal:tp_heads", "attention heads"),
        (LLAMA, "ddp", {"precision": "fp4"}, "illegal:precision", "h100_sxm_80 has no fp4 rate"),
        (LLAMA, "ddp", {}, "out_of_memory", "GiB too much"),
        (LLAMA, "fsdp", {}, "ok", "GiB spare"),
    ],
)
def test_a_verdict_on_groups_is_said_in_words(
    model: sm.ComposedModel, mesh: str, task: dict[str, Any], verdict: str, said: str
) -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    question = sm.Training(**{"global_batch": 64, "sequence": 2048, **task})
    est = sm.estimate(model, cluster, question, sm.GroupStrategy({"transformer": mesh}))
    assert est.verdict == verdict
    assert est.fits == (verdict == "ok")
    assert est.message().startswith(f"{verdict}   ")
    assert said in est.message()


def test_a_routed_group_names_what_its_experts_lack() -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)
    task = sm.Training(global_batch=16, sequence=2048)
    meshes = {"transformer": "fsdp", "experts": "ep@16"}
    est = sm.estimate(ROUTED, cluster, task, sm.GroupStrategy(meshes))
    assert est.verdict == "illegal:ep_experts"
    assert "ep@16" in est.message()


def test_the_best_of_nothing_says_what_became_of_the_strategies() -> None:
    task = sm.Training(global_batch=8, sequence=8192)
    best = sm.search(
        sm.compose("llama3_70b"), sm.cluster("dgx_h100"), task, {"groups": {"*": "ddp"}}
    )
    assert (list(best), best.size) == ([], 1)
    with pytest.raises(IndexError, match="no strategy is left of 1: 1 out_of_memory"):
        best[0]


def test_estimates_travel_between_processes() -> None:
    est = forward(dlrm(), "table_wise")
    again = pickle.loads(pickle.dumps(est))
    assert again == est
    assert again.step_time_s == est.step_time_s


VIT = sm.compose("vit_b")
VIT_TASK = sm.Training(global_batch=4096, sequence=197)


@pytest.mark.parametrize(
    "ask",
    [
        sm.diagnose,
        lambda est: sm.launch(est, "megatron"),
        lambda est: sm.compare(est, est),
        lambda est: sm.training_run(est, tokens=1e9),
        lambda est: sm.power_caps(est, [500]),
        lambda est: sm.compute_optimal(energy_j=1e9, est=est),
        lambda est: sm.StepTimeMonitor(est),
        lambda est: sm.plot.roofline(est),
    ],
)
def test_what_only_decoders_have_is_refused_by_name(ask: Any) -> None:
    est = sm.estimate(VIT, NODE, VIT_TASK, sm.GroupStrategy("fsdp"))
    with pytest.raises(sm.ScaleModelError, match=r"est=|first=") as error:
        ask(est)
    assert "must be an Estimate of a decoder; models of layer groups have no" in str(error.value)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sm.codesign(VIT, NODE, VIT_TASK, vary={"fabric.bandwidth": [1, 2]}),
        lambda: sm.scaling(VIT, "dgx_h100", VIT_TASK, [8, 16]),
        lambda: sm.traffic(VIT, NODE, VIT_TASK, sm.Strategy()),
        lambda: sm.plan_training(VIT, "dgx_h100", VIT_TASK, tokens=1e9, days=3),
    ],
)
def test_questions_of_decoders_name_a_model_of_groups(ask: Any) -> None:
    with pytest.raises(sm.ScaleModelError, match="only decoders have an answer here"):
        ask()


def test_a_column_that_groups_lack_is_named() -> None:
    est = sm.estimate(VIT, NODE, VIT_TASK, sm.GroupStrategy("fsdp"))
    with pytest.raises(AttributeError, match="GroupEstimate has no column 'interval'"):
        est.interval()
    assert not hasattr(est, "explain")


@pytest.mark.parametrize("optimizer", ["muon", "shampoo", "soap"])
def test_optimizers_of_matrices_are_refused_with_what_is_legal(optimizer: Any) -> None:
    task = sm.Training(global_batch=64, sequence=1, optimizer=optimizer)
    with pytest.raises(sm.ScaleModelError, match=f"optimizer='{optimizer}': composed models"):
        sm.estimate(sm.compose("dinov2_s"), sm.cluster("dgx_h100"), task)


def test_only_products_of_a_recording_are_products() -> None:
    # 9 rows of 32 values: kind, rows, columns, depth, copies, heads, width, causal, weights.
    def flop(kind: str, heads: int = 0, causal: bool = False) -> float:
        operator = (kind, 9.0, 32.0, 2.0, 1.0, heads, 8, causal, False)
        return float(_core.recorded_group("x", [(0.0, 0.0, [operator])], 1, 9.0).forward_flop(1))

    assert flop("gemm") == 9 * 2 * 9 * 32 * 2
    assert flop("elementwise") == 0
    assert flop("attention", heads=4) == 2 * 2 * 4 * 8 * 9 * 9
    assert flop("attention", heads=4, causal=True) == flop("attention", heads=4) / 2
