"""Mistakes found in other estimators, each as a law that this one keeps.

The tools' names say where a mistake was seen. Laws come first; every group of tests is one tool's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS

DENSE, ROUTED, MULTI_HEAD = "llama3_70b", "mixtral_8x7b", "gpt3_175b"
TASK = sm.Training(global_batch=256, sequence=4096)
STACKS = ("plain", "megatron_lm_2021_22", "nemo_mcore_2024_25", "torchtitan")
RECOMPUTE = ("none", "selective", "full")
SHARDING = ("ddp", "zero1", "zero2", "zero3", "hsdp")

models = st.sampled_from([DENSE, ROUTED, MULTI_HEAD, "deepseek_v2_lite", "gemma2_9b"])
stacks = st.sampled_from(STACKS)
small_degrees = st.sampled_from([1, 2, 4, 8])


@lru_cache(maxsize=16)
def nodes(count: int) -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=count)


def ask(
    model: str | dict[str, Any] = DENSE,
    *,
    cluster: sm.Cluster | None = None,
    task: sm.Training = TASK,
    stack: str = "plain",
    **knobs: Any,
) -> sm.Estimate:
    cluster = nodes(8) if cluster is None else cluster
    return sm.estimate(model, cluster, task, sm.Strategy(**knobs), stack=stack)


def in_the_open(est: sm.Estimate, **changes: object) -> _core.Estimate:
    """The estimate with nothing hidden underneath compute and no slow-down by what is hidden."""
    stack = resolve.stack(est.stack).replace(contention=0.0, overlap_p2p=False)
    strategy = est.strategy.replace(
        overlap_grad_reduce=False, overlap_param_gather=False, overlap_tp=False, **changes
    )
    tables = _core.Tables(est.model.core, est.cluster.core, est.task.core, stack)
    return tables.estimate(strategy)


def changed_shape(name: str, **changes: object) -> dict[str, Any]:
    """A catalogue model with a different shape."""
    return {
        "name": "changed",
        "architecture": {**catalog.load("models", name)["architecture"], **changes},
    }


@lru_cache(maxsize=32)
def wires(accelerators: int, domain: int = 8) -> sm.Cluster:
    """A cluster whose links have no latency and reach their full bandwidth: the ring limit."""
    built = sm.cluster("dgx_h100", accelerators=accelerators)
    ring = _core.CollectiveFit(bandwidth_fraction1=1.0, bandwidth_fraction2=1.0)
    core = built.core.replace(
        scale_up=built.core.scale_up.replace(
            domain=domain,
            all_reduce=ring,
            all_gather=ring,
            reduce_scatter=ring,
            all_to_all=ring,
            in_switch=_core.InSwitchFit(),
            p2p_latency_s=0.0,
            p2p_fraction=1.0,
        ),
        fabric=built.core.fabric.replace(
            latency_factor=0.0, bandwidth_fraction=1.0, p2p_latency_s=0.0, p2p_fraction=1.0
        ),
    )
    return sm.Cluster("wires", core)


def close(a: float, b: float, tolerance: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=tolerance)


# --------------------------------------------------- llm-analysis: gathers where nothing is sharded
@given(sharding=st.sampled_from(["ddp", "zero1"]), tp=small_degrees, more=st.integers(2, 64))
def test_data_parallelism_is_paid_once_per_step(sharding: str, tp: int, more: int) -> None:
    """Whole parameters and gradients on every rank: traffic does not grow with micro-batches."""
    once = in_the_open(ask(sharding=sharding, tp=tp))
    task = TASK.replace(global_batch=more * TASK.global_batch)
    often = in_the_open(ask(sharding=sharding, tp=tp, task=task))
    assert once.exposed_dp_s > 0
    assert close(often.exposed_dp_s, once.exposed_dp_s)


@given(tp=small_degrees, more=st.integers(2, 64))
def test_sharded_parameters_are_gathered_for_each_micro_batch(tp: int, more: int) -> None:
    once = in_the_open(ask(sharding="zero3", tp=tp))
    task = TASK.replace(global_batch=more * TASK.global_batch)
    often = in_the_open(ask(sharding="zero3", tp=tp, task=task))
    assert close(often.exposed_dp_s, more * once.exposed_dp_s)


@given(sharding=st.sampled_from(SHARDING))
def test_tensor_ranks_share_out_what_data_ranks_exchange(sharding: str) -> None:
    """Bytes per rank fall with tp; wires without latency and with one rank per domain show it."""
    seconds = {}
    for tp in (1, 2, 4, 8):
        # As many data-parallel ranks for every tp, so that the ring factor is the same.
        est = ask(
            MULTI_HEAD,
            cluster=wires(8 * tp, domain=1),
            tp=tp,
            sharding=sharding,
            shard_degree=8 if sharding == "hsdp" else 0,
        )
        seconds[tp] = in_the_open(est).exposed_dp_s
    for tp, time_s in seconds.items():
        assert close(time_s * tp, seconds[1], 1e-3), seconds


# ------------------------------------------------- llm-analysis: selective repeated per layer twice
@given(
    model=models,
    stack=stacks,
    tp=small_degrees,
    pp=st.sampled_from([1, 2, 4]),
    micro_batch=st.sampled_from([1, 2]),
    sharding=st.sampled_from(SHARDING),
)
def test_recomputation_orders_time_and_memory(
    model: str, stack: str, tp: int, pp: int, micro_batch: int, sharding: str
) -> None:
    plans = [
        ask(
            model,
            stack=stack,
            tp=tp,
            pp=pp,
            micro_batch=micro_batch,
            sharding=sharding,
            recompute=mode,
        )
        for mode in RECOMPUTE
    ]
    assume(not plans[0].illegal)
    none, selective, full = plans
    assert none.step_time_s <= selective.step_time_s <= full.step_time_s
    saved = [est.memory_activations_bytes for est in plans]
    assert saved[0] >= saved[1] >= saved[2]
    assert none.step_time_s < full.step_time_s
    assert saved[0] > saved[2]
    if pp == 1:  # of a pipeline another stage may become the slowest
        assert none.compute_s <= selective.compute_s <= full.compute_s


@given(factor=st.integers(2, 8), stack=stacks)
def test_selective_recomputation_grows_with_layers_not_their_square(
    factor: int, stack: str
) -> None:
    """Layers repeat one attention core each: n times the layers, n times the extra time."""
    surplus = []
    for layers in (8, 8 * factor):
        model = changed_shape(MULTI_HEAD, layers=layers)
        est = ask(model, stack=stack, tp=8)
        times = [in_the_open(est, recompute=mode).compute_s for mode in ("none", "selective")]
        surplus.append(times[1] - times[0])
    assert surplus[0] > 0
    assert close(surplus[1], factor * surplus[0], 1e-6)


def test_a_repeated_core_costs_one_forward_core() -> None:
    """Megatron's selective recomputation: the attention core, once per layer and micro-batch."""
    est = ask(MULTI_HEAD, stack="megatron_lm_2021_22", tp=8)
    none, selective = (in_the_open(est, recompute=mode) for mode in ("none", "selective"))
    rows = est.operators()
    core_s = float(rows.forward_s[rows.operator == "attention"].iloc[0])
    each_s = (selective.compute_s - none.compute_s) / (none.micro_batches * est.model.shape.layers)
    assert close(each_s, core_s, 1e-6)


# ----------------------------------------------------------- llm-analysis: peak below what is alive
@given(
    model=models,
    tp=small_degrees,
    pp=st.sampled_from([1, 2, 4]),
    sharding=st.sampled_from(SHARDING),
    recompute=st.sampled_from(RECOMPUTE),
    schedule=st.sampled_from(["gpipe", "1f1b", "zero_bubble"]),
)
def test_the_peak_holds_everything_alive_at_once(
    model: str, tp: int, pp: int, sharding: str, recompute: str, schedule: str
) -> None:
    """When the last backward pass begins, states, gradients and activations are alive together."""
    est = ask(model, tp=tp, pp=pp, sharding=sharding, recompute=recompute, schedule=schedule)
    assume(not est.illegal)
    kinds = {column: getattr(est, column) for column in MEMORY_COLUMNS}
    assert min(kinds.values()) >= 0
    alive = ("weights", "gradients", "optimizer", "activations")
    assert est.memory_bytes > sum(kinds[f"memory_{kind}_bytes"] for kind in alive)
    assert close(est.memory_bytes, sum(kinds.values()))


def first_stage_bytes(est: sm.Estimate) -> float:
    """Most bytes of activations that the first stage holds at once."""
    memory = est.timeline().memory
    return float(memory[memory["rank"] == 0].memory_activations_bytes.max())


@given(pp=st.sampled_from([2, 4, 8]), micro_batch=st.sampled_from([1, 2]))
def test_a_pipeline_keeps_a_micro_batch_per_stage_ahead(pp: int, micro_batch: int) -> None:
    """The first stage of 1F1B holds p micro-batches, GPipe all of them; the last stage of GPipe
    the inputs of as many heads, a few percent, too."""
    est = ask(MULTI_HEAD, tp=8, pp=pp, micro_batch=micro_batch)
    all_of_them = ask(MULTI_HEAD, tp=8, pp=pp, micro_batch=micro_batch, schedule="gpipe")
    assert est.fullest_stage == 0
    assert all_of_them.fullest_stage == pp - 1
    ahead = est.micro_batches / min(pp, est.micro_batches)
    assert close(first_stage_bytes(all_of_them) / first_stage_bytes(est), ahead, 1e-3)
    assert 1 < all_of_them.memory_activations_bytes / est.memory_activations_bytes / ahead < 1.1


# ------------------------------------------ llm-analysis: a node's ports given to each of its ranks
@given(
    op=st.sampled_from(["all_gather", "reduce_scatter", "all_reduce"]),
    ranks=st.integers(2, 512),
    size_bytes=st.floats(1e3, 1e12),
)
def test_a_rank_alone_in_its_node_has_one_port(op: str, ranks: int, size_bytes: float) -> None:
    """Neighbours of a group 8 apart: each ring is bound by one network port."""
    cluster = nodes(512).core
    passes = 2 if op == "all_reduce" else 1
    time_s = _core.collective_time_s(op, size_bytes, ranks, 8, cluster)
    wire_s = passes * (ranks - 1) / ranks * size_bytes / cluster.fabric.bandwidth_bytes_per_s
    assert time_s >= wire_s


@given(op=st.sampled_from(["all_gather", "reduce_scatter"]), stride=st.sampled_from([1, 2, 4, 8]))
def test_ranks_of_a_node_bring_a_port_each(op: str, stride: int) -> None:
    """Without latency a ring through a node is as fast as the ports of its own ranks there."""
    cluster = wires(512).core
    ranks, size_bytes = 512 // stride, 1e9
    time_s = _core.collective_time_s(op, size_bytes, ranks, stride, cluster)
    ports = 8 // stride
    bandwidth = min(
        ports * cluster.fabric.bandwidth_bytes_per_s,
        cluster.scale_up.bandwidth_bytes_per_s if ports > 1 else math.inf,
    )
    assert close(time_s, (ranks - 1) / ranks * size_bytes / bandwidth)


def test_the_model_entered_is_the_model_published() -> None:
    """Llama-2-7B with a feed-forward width of 11008, not 16384: 6,738,415,616 parameters."""
    model = sm.model("llama2_7b")
    assert (model.shape.ffn, model.shape.gated) == (11008, True)
    assert model.parameters == pytest.approx(6_738_415_616, rel=5e-3)
    wrong = sm.model(changed_shape("llama2_7b", ffn=16384))
    assert wrong.parameters / model.parameters > 1.2


# ------------------------------------------------- Calculon: tensor ranks beyond a node are refused
@pytest.mark.parametrize("model", [DENSE, MULTI_HEAD])
def test_tensor_ranks_may_leave_the_node(model: str) -> None:
    inside, beyond = ask(model, tp=8), ask(model, tp=16)
    assert beyond.verdict in ("ok", "out_of_memory")
    per_layer = {est.strategy.tp: est.exposed_tp_s / est.micro_batches for est in (inside, beyond)}
    assert per_layer[16] > per_layer[8]  # through network ports, not only NVLink
    wide = ask(model, tp=16, cluster=sm.cluster("gb200_nvl72", accelerators=64))
    assert wide.exposed_tp_s < beyond.exposed_tp_s


# ---------------------------------------------------- Calculon: token table and logits cost nothing
@given(
    model=models,
    tp=small_degrees,
    pp=st.sampled_from([1, 2, 4]),
    sharding=st.sampled_from(SHARDING),
)
def test_a_larger_vocabulary_costs_time_and_memory(
    model: str, tp: int, pp: int, sharding: str
) -> None:
    vocab = int(catalog.load("models", model)["architecture"]["vocab"])
    knobs: dict[str, Any] = {"tp": tp, "pp": pp, "sharding": sharding}
    small = ask(changed_shape(model, vocab=vocab), **knobs)
    assume(not small.illegal)
    large = ask(changed_shape(model, vocab=4 * vocab), **knobs)
    assert large.step_time_s > small.step_time_s
    assert large.compute_s + large.bubble_s > small.compute_s + small.bubble_s
    assert large.memory_bytes >= small.memory_bytes
    assert large.model.parameters > small.model.parameters
    if pp == 1:
        assert large.memory_weights_bytes > small.memory_weights_bytes
        assert large.memory_logits_bytes > 3.9 * small.memory_logits_bytes


# ---------------------------------------------------------- Calculon: no SwiGLU, no experts, no GQA
@given(tp=small_degrees)
def test_a_gate_is_a_third_matrix(tp: int) -> None:
    gated, plain = (
        ask(changed_shape(DENSE, gated=gated), tp=tp, sharding="ddp") for gated in (True, False)
    )
    shape = gated.model.shape
    matrix = shape.hidden * shape.ffn * shape.layers
    assert gated.model.parameters - plain.model.parameters == matrix
    assert close(gated.memory_weights_bytes - plain.memory_weights_bytes, 2 * matrix / tp)
    assert gated.compute_s > plain.compute_s


@given(kv_heads=st.sampled_from([1, 2, 4, 8, 16, 32, 64]), tp=small_degrees)
def test_key_value_heads_may_be_any_divisor(kv_heads: int, tp: int) -> None:
    """Between multi-head and multi-query; beyond the heads a tensor rank keeps a copy of one."""
    grouped = ask(changed_shape(DENSE, kv_heads=kv_heads), tp=tp, sharding="ddp")
    full = ask(changed_shape(DENSE, kv_heads=64), tp=tp, sharding="ddp")
    shape = grouped.model.shape
    local = max(1.0, kv_heads / tp)
    saved = 2 * shape.hidden * shape.head_dim * shape.layers * (64 / tp - local)
    assert close(full.memory_weights_bytes - grouped.memory_weights_bytes, 2 * saved, 1e-6)
    assert grouped.compute_s <= full.compute_s


@given(experts=st.sampled_from([8, 16, 32]), active=st.sampled_from([1, 2, 4]))
def test_experts_cost_memory_by_their_number_and_time_by_use(experts: int, active: int) -> None:
    shape = changed_shape(ROUTED, experts=experts, experts_per_token=active)
    more = changed_shape(ROUTED, experts=2 * experts, experts_per_token=active)
    often = changed_shape(ROUTED, experts=experts, experts_per_token=2 * active)
    est, twice, used = (ask(model, ep=8) for model in (shape, more, often))
    assert twice.memory_weights_bytes > est.memory_weights_bytes
    assert used.memory_weights_bytes == est.memory_weights_bytes
    assert used.compute_s > est.compute_s
    assert used.exposed_ep_s > est.exposed_ep_s


# --------------------------------- Calculon: an all-reduce is not its two halves, latency free of n
@given(
    ranks=st.integers(2, 512), size_bytes=st.floats(1, 1e12), stride=st.sampled_from([1, 2, 4, 8])
)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(
    ranks: int, size_bytes: float, stride: int
) -> None:
    """On a ring; trees over few domains and switches that reduce move less."""
    whole_domains = stride * ranks <= 8 or (stride * ranks) % 8 == 0
    assume(whole_domains)
    cluster = wires(4096).core
    times = {
        op: _core.collective_time_s(op, size_bytes, ranks, stride, cluster, "ring")
        for op in ("all_reduce", "reduce_scatter", "all_gather")
    }
    assert close(times["all_reduce"], times["reduce_scatter"] + times["all_gather"])


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_latency_of_a_ring_grows_with_its_ranks(op: str) -> None:
    """One byte: between domains every step more costs the same."""
    cluster = nodes(4096).core
    times = {
        n: _core.collective_time_s(op, 1.0, n, 8, cluster, "ring") for n in (64, 128, 256, 512)
    }
    steps = [times[2 * n] - times[n] for n in (64, 128, 256)]
    assert steps[0] > 64e-6  # a network step takes over a microsecond
    assert close(steps[1], 2 * steps[0], 1e-6)
    assert close(steps[2], 4 * steps[0], 1e-6)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_latency_inside_a_domain_grows_with_its_ranks(op: str) -> None:
    cluster = nodes(1).core
    times = [_core.collective_time_s(op, 1.0, n, 1, cluster) for n in range(2, 9)]
    assert times == sorted(times)
    assert times[-1] > times[0]


# ------------------------------------------------------------------- Calculon: 8e10 "GiB" of memory
@pytest.mark.parametrize("name", catalog.names("accelerators"))
def test_memory_of_an_accelerator_is_of_this_world(name: str) -> None:
    core = sm.cluster({"accelerator": name}).core.accelerator
    assert 4e9 < core.memory_capacity_bytes < 1e12
    assert 1e11 < core.memory_bandwidth_bytes_per_s < 1e14
    # Seconds to read the memory once: far beyond either bound a unit is wrong.
    assert 1e-3 < core.memory_capacity_bytes / core.memory_bandwidth_bytes_per_s < 1


def test_what_does_not_fit_is_found_out() -> None:
    est = ask(MULTI_HEAD, cluster=nodes(1))
    assert est.verdict == "out_of_memory"
    assert est.memory_bytes > est.memory_capacity_bytes


# -------------------------------------------------------- Calculon: bare assertions on divisibility
@given(
    tp=st.integers(1, 80),
    pp=st.integers(1, 130),
    vpp=st.integers(1, 8),
    micro_batch=st.integers(1, 7),
    model=models,
)
def test_what_cannot_run_has_a_reason(
    tp: int, pp: int, vpp: int, micro_batch: int, model: str
) -> None:
    est = ask(model, tp=tp, pp=pp, vpp=vpp, micro_batch=micro_batch)
    if est.illegal:
        assert est.verdict.partition(":")[2] in _core.reasons()
        assert est.step_time_s is None
    else:
        assert 64 % (tp * pp) == 0
        assert est.model.shape.heads % tp == 0
        assert est.step_time_s > 0


# ------------------------------------------------ SimuMax: ZeRO-2 and ZeRO-3 accepted, then ignored
@given(model=st.sampled_from([DENSE, MULTI_HEAD, ROUTED]), tp=small_degrees)
def test_each_further_sharding_frees_its_own_kind(model: str, tp: int) -> None:
    ddp, zero1, zero2, zero3 = (ask(model, tp=tp, sharding=name) for name in SHARDING[:4])
    assert ddp.memory_optimizer_bytes > zero1.memory_optimizer_bytes
    assert ddp.memory_gradients_bytes == zero1.memory_gradients_bytes
    assert zero1.memory_gradients_bytes > zero2.memory_gradients_bytes
    assert zero1.memory_weights_bytes == zero2.memory_weights_bytes
    assert zero2.memory_weights_bytes > zero3.memory_weights_bytes
    assert close(zero1.memory_optimizer_bytes, zero3.memory_optimizer_bytes)


#: A legal change of every knob: (model, knobs before, value after).
KNOBS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "tp": (DENSE, {}, 8),
    "cp": (DENSE, {}, 2),
    "pp": (DENSE, {}, 4),
    "ep": (ROUTED, {}, 8),
    "etp": (ROUTED, {"tp": 2, "ep": 4, "etp": 1}, 2),
    "vpp": (DENSE, {"pp": 4}, 2),
    "micro_batch": (DENSE, {}, 2),
    "schedule": (DENSE, {"pp": 4}, "zero_bubble"),
    "sharding": (DENSE, {"sharding": "zero1"}, "zero2"),
    "shard_degree": (DENSE, {"sharding": "hsdp", "shard_degree": 8}, 32),
    "secondary_degree": (DENSE, {"sharding": "zero3"}, 8),
    "quantized_gather": (DENSE, {"sharding": "zero3"}, True),
    "quantized_reduce": (DENSE, {"sharding": "zero3"}, True),
    "recompute": (DENSE, {}, "selective"),
    "recompute_layers": (DENSE, {"recompute": "full"}, 3),
    "context": (DENSE, {"cp": 2, "context": "ring"}, "all_to_all"),
    "sequence_parallel": (DENSE, {"tp": 8}, False),
    "placement": (DENSE, {"tp": 4, "pp": 4}, "pp-tp-cp-dp"),
    "offload_weights": (DENSE, {"tp": 8}, True),
    "offload_activations": (DENSE, {"tp": 8}, True),
    "offload_optimizer": (DENSE, {"tp": 8}, True),
    "overlap_grad_reduce": (DENSE, {"tp": 8, "overlap_grad_reduce": True}, False),
    "overlap_param_gather": (DENSE, {"tp": 8, "overlap_param_gather": True}, False),
    "overlap_tp": (DENSE, {"tp": 8, "overlap_tp": True}, False),
    "regather": (DENSE, {"tp": 8}, False),
    "split_p2p": (DENSE, {"tp": 8, "pp": 4, "sequence_parallel": False}, False),
    "linear_precision": (DENSE, {"tp": 8}, "fp8"),
}


@pytest.mark.parametrize("knob", sorted(KNOBS))
def test_an_accepted_knob_changes_something(knob: str) -> None:
    model, before, after = KNOBS[knob]
    plain, turned = ask(model, **before), ask(model, **{**before, knob: after})
    assert not plain.illegal, plain.verdict
    assert not turned.illegal, turned.verdict
    assert turned.core.to_dict() != plain.core.to_dict()


def test_no_knob_is_left_out() -> None:
    # The data-parallel degree follows from the others; any value but that one is refused.
    assert {row["name"] for row in _core.Strategy.fields()} == {*KNOBS, "dp"}
    assert ask(tp=8, dp=8).core == ask(tp=8).core
    assert ask(tp=8, dp=4).verdict == "illegal:mesh"


# ------------------------------------------------------- MAD-Max: shipped entries end in assertions
def runs(est: sm.Estimate) -> None:
    """Time, memory, energy of an answer are positive and finite."""
    assert est.verdict in ("ok", "out_of_memory")
    for column in (*TIME_COLUMNS, *MEMORY_COLUMNS):
        assert 0 <= getattr(est, column) < math.inf, column
    for column in ("step_time_s", "memory_bytes", "energy_j", "tokens_per_s", "power_w"):
        assert 0 < getattr(est, column) < math.inf, column


@pytest.mark.parametrize("name", catalog.names("models"))
def test_every_shipped_model_runs(name: str) -> None:
    shape = sm.model(name).shape
    ep = 8 if shape.experts % 8 == 0 and shape.experts > 0 else 1
    runs(ask(name, ep=ep))
    runs(ask(name, ep=ep, sharding="zero3", recompute="full"))


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_every_shipped_cluster_runs(name: str) -> None:
    core = sm.cluster(name).core
    bf16 = core.accelerator.peak_flop_per_s[_core.precisions().index("bf16")]
    task = TASK.replace(precision="bf16" if bf16 > 0 else "fp16")
    # Whole nodes of 16 accelerators or more.
    nodes_of = -(-16 // core.node_accelerators)
    cluster = sm.cluster(name, nodes=nodes_of)
    batch = 16 * nodes_of * core.node_accelerators
    runs(ask("llama3_8b", cluster=cluster, task=task.replace(global_batch=batch), tp=2))


# -------------------------------------------------- SimAI: corner cases of degrees hang or overflow
@pytest.mark.parametrize("ep", [2, 4, 8])
@pytest.mark.parametrize("etp", [1, 2])
@pytest.mark.parametrize("sharding", SHARDING)
def test_expert_parallelism_needs_no_tensor_parallelism(ep: int, etp: int, sharding: str) -> None:
    est = ask(ROUTED, tp=1, ep=ep, etp=etp, sharding=sharding)
    runs(est)
    assert est.exposed_ep_s > 0
    assert est.exposed_tp_s == 0


@pytest.mark.parametrize("tp", [3, 6, 12, 24, 48])
def test_tensor_degrees_need_not_be_powers_of_two(tp: int) -> None:
    """GPT-3 has 96 heads: 24 tensor ranks, three nodes' worth, are legal."""
    cluster = nodes(6)
    task = TASK.replace(global_batch=48 * 16)
    est = ask(MULTI_HEAD, cluster=cluster, task=task, tp=tp, sequence_parallel=False)
    runs(est)
    assert est.exposed_tp_s > 0


@pytest.mark.filterwarnings("ignore:global_batch")  # batches far beyond any real one
def test_times_pass_the_range_of_32_bit_nanoseconds() -> None:
    """2^31 ns are 2.1 s; a very large step takes years, linear in its batch."""
    points = []
    for batch in (2**10, 2**20, 2**29):
        est = ask("megatron_1t", task=sm.Training(global_batch=batch, sequence=4096), tp=8)
        runs(est)
        points.append((est.micro_batches, est.step_time_s))
    assert points[0][1] > 2**31 / 1e9
    assert points[-1][1] > 1e8
    (few, small_s), (more, middle_s), (many, large_s) = points
    assert close((large_s - middle_s) / (middle_s - small_s), (many - more) / (more - few), 1e-6)


@pytest.mark.filterwarnings("ignore:global_batch")  # batches far beyond any real one
@given(
    model=models,
    stack=stacks,
    cluster=st.sampled_from(["dgx_a100", "dgx_h100", "gb200_nvl72", "meta_24k_roce"]),
    accelerators=st.sampled_from([1, 8, 24, 72, 512, 16_384]),
    tp=st.integers(1, 32),
    cp=st.sampled_from([1, 2, 4]),
    pp=st.integers(1, 12),
    ep=st.sampled_from([1, 1, 2, 4, 8]),
    vpp=st.sampled_from([1, 1, 2]),
    sharding=st.sampled_from(SHARDING),
    recompute=st.sampled_from(RECOMPUTE),
)
def test_ok_means_a_time_above_nothing_and_below_forever(
    model: str,
    stack: str,
    cluster: str,
    accelerators: int,
    tp: int,
    cp: int,
    pp: int,
    ep: int,
    vpp: int,
    sharding: str,
    recompute: str,
) -> None:
    """Random strategies: no hang, no crash, no "0 cycles"."""
    est = ask(
        model,
        cluster=sm.cluster(cluster, accelerators=accelerators),
        task=sm.Training(global_batch=16_384 * 9, sequence=8192),
        stack=stack,
        tp=tp,
        cp=cp,
        pp=pp,
        ep=ep,
        vpp=vpp,
        sharding=sharding,
        recompute=recompute,
    )
    if not est.illegal:
        runs(est)
        assert close(sum(getattr(est, column) for column in TIME_COLUMNS), est.step_time_s)
