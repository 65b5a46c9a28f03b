"""What an update of embedding tables and of weights in FP32 moves and holds."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm

CLUSTER = sm.cluster("zionex", nodes=2)
TABLES = {"tables": 64, "rows": 10_000_000, "pooling": 20, "value_bytes": 2, "output_bytes": 2}


def step(batch: int, dim: int, **changes: Any) -> sm.GroupEstimate:
    model = sm.compose("bags", groups=[sm.EmbeddingTables(**{**TABLES, "dim": dim}), MLP])
    task = sm.Training(global_batch=batch, sequence=1, precision="tf32")
    plan = sm.GroupStrategy({"embedding": "table_wise", "*": "ddp"})
    return sm.estimate(model, CLUSTER, task, plan, **changes)


MLP = sm.Mlp(name="top", widths=(512, 512, 1))


def per_sample_s(batch: int) -> float:
    return step(batch, 128).lookup_s / batch


def test_gradients_of_bags_are_read_once_while_they_fit_into_the_cache() -> None:
    """A table's gradients are 256 bytes a sample; half of an A100's cache is 20 MB."""
    small, large = per_sample_s(65536), per_sample_s(131072)
    assert large > 1.1 * small
    # Read for every row instead: what a cache saves is not there to be lost.
    bare = sm.Ablation(cached_tables=False)
    kept = [step(batch, 128, ablation=bare).lookup_s / batch for batch in (65536, 131072)]
    assert kept[0] == pytest.approx(kept[1], rel=0.05)
    assert kept[0] > small


def test_a_weight_in_fp32_is_its_own_master() -> None:
    def states(precision: str) -> float:
        model = sm.compose("layers", groups=[sm.Mlp(widths=(1024, 1024, 1024))])
        task = sm.Training(global_batch=128, sequence=1, precision=precision)
        est = sm.estimate(model, CLUSTER, task, sm.GroupStrategy("ddp"))
        return float(est.memory_optimizer_bytes / model.parameters)

    assert states("tf32") == pytest.approx(2 * 4)  # two moments of Adam
    assert states("bf16") == pytest.approx(4 + 2 * 4)


def test_decoders_in_fp32_hold_no_second_copy_of_their_weights() -> None:
    def states(**options: Any) -> float:
        task = sm.Training(global_batch=16, sequence=1024, **options)
        est = sm.estimate("gpt3_125m", CLUSTER, task, sm.Strategy(sharding="ddp"))
        return float(est.memory_optimizer_bytes / sm.model("gpt3_125m").parameters)

    assert states(precision="tf32") == pytest.approx(8, rel=0.01)
    assert states(precision="tf32", master_bytes=0) == pytest.approx(8, rel=0.01)
    assert states(precision="bf16") == pytest.approx(12, rel=0.01)


def test_indices_of_the_next_batch_give_way_to_gradients_of_this_one() -> None:
    """They share the network; only the gradients are waited for before the update."""
    without = sm.Ablation(index_exchange=False)
    model, task = (
        sm.compose("dlrm_i"),
        sm.Training(global_batch=65536, sequence=1, precision="tf32"),
    )
    cluster = sm.cluster("zionex", nodes=16)
    plan = sm.GroupStrategy({"embedding": "table_wise", "*": "ddp"}, buckets="group")
    full = sm.estimate(model, cluster, task, plan, stack="hugectr")
    bare = sm.estimate(model, cluster, task, plan, stack="hugectr", ablation=without)
    sent_s = full.all_to_all_s - bare.all_to_all_s
    assert sent_s > 0
    # Half of it hides under the update of the tables.
    assert full.step_time_s - bare.step_time_s < 0.5 * sent_s
