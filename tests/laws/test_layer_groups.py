"""Laws of models of layer groups: conservation, limits, splitting, agreement with decoders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.estimator.evaluation import tables_for
from scalemodel.layer_groups.estimate import MEMORY_COLUMNS, TIME_COLUMNS

NODES = 4
CLUSTER = sm.cluster("zionex", nodes=NODES)
TABLE_MESHES = (
    "table_wise",
    "row_wise",
    "column_wise",
    "hybrid",
    "ddp",
    "table_wise@8+ddp",
    "row_wise@8+table_wise",
    "ddp@8+column_wise",
)
LAYER_MESHES = ("ddp", "fsdp", "zero1", "tp@8+ddp", "fsdp@8+ddp", "ddp@8+tp", "tp@8+fsdp")

schedules = st.fixed_dictionaries(
    {
        "queues": st.sampled_from(("one", "per_level")),
        "prefetch": st.sampled_from(("none", "one", "unlimited")),
        "backward_gather": st.sampled_from(("before", "behind")),
        "buckets": st.sampled_from(("unit", "group")),
        "recompute": st.booleans(),
        "micro_batches": st.sampled_from((1, 2, 4)),
    }
)


def dlrm(tables: int = 64, layers: int = 8, width: int = 1024) -> sm.ComposedModel:
    """A recommendation model with equal MLP layers."""
    return sm.compose(
        "dlrm",
        groups=[
            sm.EmbeddingTables(name="embedding", tables=tables, rows=1e6, dim=128, pooling=20),
            sm.Mlp(name="bottom_mlp", widths=(width,) * (layers + 1), after=()),
            sm.Interaction(
                name="interaction",
                how="concat",
                features=2,
                dim=128,
                after=("embedding", "bottom_mlp"),
            ),
            sm.Mlp(name="top_mlp", widths=(width,) * (layers + 1)),
        ],
    )


def blocks(*layers: int, hidden: int = 1024) -> sm.ComposedModel:
    """Transformer layers in one group or several that share a mesh."""
    groups = [
        sm.Transformer(
            name=f"part_{i}",
            mesh="blocks",
            layers=n,
            hidden=hidden,
            heads=16,
            ffn=4 * hidden,
            tokens=256,
            causal=False,
        )
        for i, n in enumerate(layers)
    ]
    return sm.compose("blocks", groups=groups)


def task(batch: int = 65536) -> sm.Training:
    return sm.Training(global_batch=batch, sequence=1, precision="tf32", gradient_precision="fp32")


@settings(max_examples=60, deadline=None)
@given(
    tables=st.sampled_from(TABLE_MESHES), layers=st.sampled_from(LAYER_MESHES), schedule=schedules
)
def test_time_and_memory_add_up(tables: str, layers: str, schedule: dict[str, object]) -> None:
    plan = sm.GroupStrategy({"embedding": tables, "mlp": layers}, **schedule)
    est = sm.estimate(dlrm(), CLUSTER, task(), plan)
    assert not est.illegal
    parts = sum(getattr(est, column) for column in TIME_COLUMNS)
    assert parts == pytest.approx(est.step_time_s, rel=1e-12)
    assert all(getattr(est, column) >= 0 for column in TIME_COLUMNS)
    memory = sum(getattr(est, column) for column in MEMORY_COLUMNS)
    assert memory == pytest.approx(est.memory_bytes, rel=1e-12)
    kinds = est.all_reduce_s + est.all_gather_s + est.reduce_scatter_s + est.all_to_all_s
    assert kinds == pytest.approx(est.communication_s, rel=1e-12)
    assert est.step_time_s >= est.gemm_s + est.lookup_s


@settings(max_examples=40, deadline=None)
@given(
    first=st.integers(1, 60),
    second=st.integers(1, 60),
    mesh=st.sampled_from(LAYER_MESHES),
    schedule=schedules,
    batch=st.sampled_from((128, 1024, 8192)),
)
def test_a_group_is_the_sum_of_its_parts(
    first: int, second: int, mesh: str, schedule: dict[str, object], batch: int
) -> None:
    # Also that periods which were skipped are those that would have run: the parts break them off
    # at another place.
    plan = sm.GroupStrategy({"blocks": mesh}, **{**schedule, "buckets": "unit"})
    question = sm.Training(global_batch=batch, sequence=256, precision="bf16")
    whole = sm.estimate(blocks(first + second), CLUSTER, question, plan)
    parts = sm.estimate(blocks(first, second), CLUSTER, question, plan)
    assert parts.verdict == whole.verdict
    if whole.illegal:
        return
    assert parts.step_time_s == pytest.approx(whole.step_time_s, rel=1e-8)
    assert parts.memory_bytes == pytest.approx(whole.memory_bytes, rel=1e-12)


def test_one_accelerator_communicates_nothing() -> None:
    alone = sm.cluster("zionex", accelerators=1)
    est = sm.estimate(dlrm(tables=2), alone, task(512), sm.GroupStrategy())
    assert est.communication_s == 0
    assert est.step_time_s == pytest.approx(est.compute_s + est.optimizer_s + est.overhead_s)


@pytest.mark.parametrize("mesh", ["table_wise", "column_wise", "row_wise@8+table_wise"])
def test_exchanged_bytes_follow_the_local_batch(mesh: str) -> None:
    # Without latency twice the samples take twice the exchange.
    left_out = sm.Ablation(latency=False)
    plan = sm.GroupStrategy({"embedding": mesh})
    times = [
        sm.estimate(dlrm(), CLUSTER, task(batch), plan, ablation=left_out).all_to_all_s
        for batch in (65536, 131072)
    ]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(mesh=st.sampled_from(LAYER_MESHES), schedule=schedules)
def test_more_queues_and_earlier_gathers_never_hurt_a_single_level(
    mesh: str, schedule: dict[str, object]
) -> None:
    # Inside one domain there is one level, so one queue per level is one queue.
    node = sm.cluster("zionex", nodes=1)
    plan = sm.GroupStrategy({"blocks": mesh.split("+")[0].split("@")[0]}, **schedule)
    question = sm.Training(global_batch=512, sequence=256)
    one, several = (
        sm.estimate(blocks(12), node, question, replace(plan, queues=queues))
        for queues in ("one", "per_level")
    )
    assert one.verdict == several.verdict
    if not one.illegal:
        assert one.step_time_s == several.step_time_s


@pytest.mark.parametrize(
    "name", ["llama3_8b", "gpt3_6_7b", "mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v2_lite"]
)
def test_a_composed_decoder_has_the_parameters_of_the_model(name: str) -> None:
    composed, usual = sm.compose(name), sm.model(name)
    assert composed.parameters == pytest.approx(usual.parameters, rel=2e-6)
    assert composed.active_parameters == pytest.approx(usual.active_parameters, rel=2e-6)


@pytest.mark.parametrize(
    "strategy",
    [
        sm.Strategy(sharding="ddp", sequence_parallel=False),
        sm.Strategy(sharding="zero3", sequence_parallel=False),
        sm.Strategy(tp=8, sharding="ddp", sequence_parallel=False),
        sm.Strategy(tp=4, sharding="zero3", sequence_parallel=False),
    ],
)
@pytest.mark.parametrize("name", ["llama3_8b", "gpt3_6_7b"])
def test_groups_of_a_decoder_cost_what_the_decoder_costs(name: str, strategy: sm.Strategy) -> None:
    # Same products, weights and collectives. What differs: launches of the host bound each block
    # here and each layer there, and collectives of a layer there are several here.
    cluster = sm.cluster("dgx_h100", nodes=8)
    question = sm.Training(global_batch=64, sequence=2048)
    usual = sm.estimate(name, cluster, question, strategy)
    composed = sm.estimate(sm.compose(name), cluster, question, strategy)
    contention = 0.1  # of the default stack; what hides differs with the order of collectives
    assert composed.compute_s - contention * composed.hidden_s == pytest.approx(
        usual.compute_s - contention * usual.hidden_s, rel=0.02
    )
    assert composed.memory_weights_bytes == pytest.approx(usual.memory_weights_bytes, rel=1e-3)
    assert composed.memory_gradients_bytes == pytest.approx(usual.memory_gradients_bytes, rel=1e-3)
    assert composed.memory_optimizer_bytes == pytest.approx(usual.memory_optimizer_bytes, rel=1e-3)
    assert composed.mfu_fraction * composed.step_time_s == pytest.approx(
        usual.mfu_fraction * usual.step_time_s, rel=1e-3
    )


DENSE = tuple(
    sm.Strategy(**given)
    for given in (
        {"sharding": "ddp"},
        {"sharding": "zero1"},
        {"sharding": "zero3"},
        {"tp": 8, "sharding": "ddp", "sequence_parallel": False},
        {"tp": 8, "sharding": "ddp"},
        {"tp": 4, "sharding": "zero3"},
        {"tp": 4, "sharding": "hsdp", "shard_degree": 8},
        {"tp": 4, "sharding": "hsdp"},
        {"sharding": "hsdp"},
        {"tp": 2, "sharding": "zero1", "recompute": "full"},
        {"cp": 2, "context": "all_gather", "sharding": "ddp"},
        {"tp": 4, "cp": 2, "context": "all_gather"},
        {"tp": 2, "cp": 8, "context": "all_gather", "sharding": "zero3"},
    )
)
ROUTED = (
    sm.Strategy(ep=8),
    sm.Strategy(tp=2, ep=8),
    sm.Strategy(tp=8, ep=8),
    sm.Strategy(tp=2, cp=2, ep=8, context="all_gather"),
)


@pytest.mark.parametrize("mesh", ["sp@8+ddp", "sp@4+cp@2+fsdp", "tp@8+zero1"])
def test_experts_are_laid_out_as_the_layers_around_them(mesh: str) -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)
    question = sm.Training(global_batch=16, sequence=2048)
    plan = sm.GroupStrategy({"transformer": mesh})
    est = sm.estimate(sm.compose("mixtral_8x7b"), cluster, question, plan)
    assert not est.illegal
    axes = {part.split("@")[0] for part in est.meshes["transformer.experts"].split("+")}
    assert axes == {mesh.rpartition("+")[2], "tp"}
    assert est.all_to_all_bytes == 0


@pytest.mark.parametrize(
    ("name", "strategy"),
    [(name, plan) for name in ("llama3_8b", "gpt3_6_7b") for plan in DENSE]
    + [(name, plan) for name in ("mixtral_8x7b", "deepseek_v2_lite") for plan in ROUTED],
)
def test_groups_of_a_decoder_send_and_keep_what_the_decoder_does(
    name: str, strategy: sm.Strategy
) -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    question = sm.Training(global_batch=64, sequence=2048)
    usual = sm.estimate(name, cluster, question, strategy)
    composed = sm.estimate(sm.compose(name), cluster, question, strategy)
    sent: Counter[str] = Counter()
    tables = tables_for(usual.model, usual.cluster, usual.task, usual.stack)
    for message in _core.step_messages(tables, strategy):
        times = message["calls"] * message["times_per_step"]
        sent[message["operation"]] += message["size_bytes"] * times
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        bytes_sent = getattr(composed, f"{operation}_bytes")
        assert bytes_sent == pytest.approx(sent.pop(operation, 0), rel=0.01), operation
    assert not sent
    states = ("weights", "gradients", "optimizer")
    for kind in states:
        column = f"memory_{kind}_bytes"
        assert getattr(composed, column) == pytest.approx(getattr(usual, column), rel=2e-3)
    # Beside what is kept for the step: sharded parameters are gathered by block here, by layer
    # there.
    kept = [
        sum(getattr(est, f"memory_{kind}_bytes") for kind in (*states, "activations", "logits"))
        for est in (composed, usual)
    ]
    assert kept[0] == pytest.approx(kept[1], rel=0.01)
    contention = 0.1  # of the default stack; what hides differs with the order of collectives
    assert composed.compute_s - contention * composed.hidden_s == pytest.approx(
        usual.compute_s - contention * usual.hidden_s, rel=0.01
    )
    assert composed.mfu_fraction * composed.step_time_s == pytest.approx(
        usual.mfu_fraction * usual.step_time_s, rel=2e-3
    )


def test_a_frozen_model_costs_less_than_a_trained_one() -> None:
    plan = sm.GroupStrategy("fsdp")
    cluster = sm.cluster("dgx_h100", nodes=2)
    question = sm.Training(global_batch=32, sequence=2048)
    model = sm.compose("llama3_8b")
    steps = [
        sm.estimate(each, cluster, question, plan).step_time_s
        for each in (
            model,
            model.freeze("token_embedding"),
            model.freeze("token_embedding", transformer=16),
            model.freeze("token_embedding", "transformer"),
        )
    ]
    assert steps == sorted(steps, reverse=True)
    forward = sm.BatchInference(global_batch=32, sequence=2048)
    assert sm.estimate(model, cluster, forward, plan).step_time_s < steps[-1]


def test_adapters_leave_the_weights_without_states() -> None:
    cluster = sm.cluster("dgx_h100", nodes=1)
    tuning = sm.FineTuning(global_batch=8, sequence=2048, method="lora")
    model = sm.compose("llama3_8b")
    whole = sm.estimate(model, cluster, tuning, sm.GroupStrategy("ddp"))
    narrow = sm.estimate(model.freeze(weight_bytes=0.5), cluster, tuning, sm.GroupStrategy("ddp"))
    assert whole.memory_optimizer_bytes < 0.05 * whole.memory_weights_bytes
    assert narrow.memory_weights_bytes == whole.memory_weights_bytes
    full = sm.estimate(
        model, cluster, sm.Training(global_batch=8, sequence=2048), sm.GroupStrategy("ddp")
    )
    assert whole.compute_s < full.compute_s


def test_a_search_finds_the_best_row_of_the_sweep() -> None:
    space = sm.GroupSpace(queues=("one", "per_level"), recompute=(False, True))
    frame = sm.sweep(dlrm(), CLUSTER, task(), space, threads=1)
    fits = frame[frame.verdict == "ok"]
    for threads in (1, 3):
        best = sm.search(dlrm(), CLUSTER, task(), space, top=5, threads=threads)
        expected = fits.sort_values("step_time_s", kind="stable").head(5)
        assert [est.step_time_s for est in best] == expected.step_time_s.tolist()
        assert best.table.row.tolist() == expected.index.tolist()
        row = best[0].to_dict()
        again = sm.estimate(dlrm(), CLUSTER, task(), best[0].strategy)
        assert again.step_time_s == best[0].step_time_s
        assert row["mesh_embedding"] == str(expected.mesh_embedding.iloc[0])


@pytest.mark.parametrize("mesh", ["fsdp@8+zero1", "zero1@8+fsdp", "fsdp@8+ddp", "ddp@8+zero1"])
def test_every_replica_hears_of_every_gradient(mesh: str) -> None:
    # A slower fabric is felt by every layout that spans it: none synchronises for nothing.
    slow = sm.cluster({"base": "zionex", "fabric": {"bandwidth": "2 Gbit/s"}}, nodes=NODES)
    plan = sm.GroupStrategy({"blocks": mesh}, queues="one")
    question = sm.Training(global_batch=1024, sequence=256)
    usual, slowed = (
        sm.estimate(blocks(8), cluster, question, plan).communication_s
        for cluster in (CLUSTER, slow)
    )
    assert slowed > 3 * usual
