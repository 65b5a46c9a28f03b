"""Settings of training frameworks: what is written says what was predicted when it is read back."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel import catalog, resolve
from scalemodel.interop.settings.given import from_script

CLUSTER = sm.cluster("dgx_h100", nodes=8)
TASK = sm.Training(global_batch=256, sequence=4096)
#: What torchtitan always does and the plain stack does not.
FIXED = ("master_shards", "selective")


def estimate(model: str = "llama3_8b", task: sm.Training = TASK, **plan: Any) -> sm.Estimate:
    return sm.estimate(model, CLUSTER, task, sm.Strategy(**plan))


def again(settings: sm.Settings, model: Any = None, task: Any = None) -> sm.Estimate:
    stack: Any = settings.stack
    return sm.estimate(
        settings.model or model, CLUSTER, settings.task or task, settings.strategy, stack=stack
    )


# ----------------------------------------------------------------------------------------- laws
DEGREES = st.sampled_from([1, 2, 4, 8])
MEGATRON = st.fixed_dictionaries(
    {
        **{"tp": DEGREES, "cp": st.sampled_from([1, 2]), "pp": st.sampled_from([1, 2, 4])},
        **{"vpp": st.sampled_from([1, 2, 4]), "micro_batch": st.sampled_from([1, 2])},
        "sharding": st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "recompute_layers": st.sampled_from([0, 4]),
        "context": st.sampled_from(["ring", "all_to_all", "all_gather"]),
        "sequence_parallel": st.booleans(),
        "overlap_grad_reduce": st.sampled_from(["on", "off", "stack"]),
        "overlap_param_gather": st.sampled_from(["on", "off", "stack"]),
        "placement": st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"]),
        "offload_optimizer": st.booleans(),
    }
)


@given(plan=MEGATRON, model=st.sampled_from(["llama3_8b", "mixtral_8x7b"]), ep=DEGREES)
def test_megatron_flags_say_what_was_predicted(plan: dict[str, Any], model: str, ep: int) -> None:
    est = estimate(model, ep=ep if model == "mixtral_8x7b" else 1, **plan)
    if est.illegal:
        return
    launched = sm.launch(est, "megatron")
    if launched.notes:
        return
    read = sm.read_settings(
        "megatron", launched.script(), accelerators=CLUSTER.accelerators, stack="plain"
    )
    assert read.unread == ()
    other = again(read)
    same = {name: other.row()[name] for name in ("step_time_s", "memory_bytes", "exposed_dp_s")}
    assert same == {name: pytest.approx(est.row()[name], rel=1e-9) for name in same}


DECODERS = [n for n in catalog.names("models") if "architecture" in catalog.load("models", n)]


def of_decoder(name: str) -> int:
    """Parameters without a vision tower, which a step over text does not load."""
    model = sm.model(name)
    return model.parameters - int(model.core.vision_parameters)


@pytest.mark.parametrize("name", DECODERS)
def test_megatron_flags_keep_every_parameter(name: str) -> None:
    """Of the catalogue's decoders that Megatron can build."""
    est = sm.estimate(name, sm.cluster("dgx_h100"), sm.Training(global_batch=8, sequence=256))
    launched = sm.launch(est, "megatron")
    read = sm.read_settings("megatron", list(launched.command), accelerators=8)
    assert read.model is not None
    if not any("not expressed" in note for note in launched.notes):
        # Biases and norms that one flag switches together may differ; matrices may not.
        assert read.model.parameters == pytest.approx(of_decoder(name), rel=2e-3)


HYBRIDS = ["nemotron_h_8b", "nemotron_3_super", "qwen3_next_80b_a3b", "qwen3_5_35b_a3b"]


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (4, 1), (2, 2)])
def test_megatron_flags_say_the_layers_of_a_hybrid(name: str, pp: int, vpp: int) -> None:
    """Recurrent and routed layers, stages and multi-token prediction, in one pattern."""
    plan: dict[str, Any] = {"tp": 2, "pp": pp, "vpp": vpp, "recompute": "full"}
    if sm.model(name).shape.experts:
        plan |= {"ep": 4, "etp": 1}
    est = estimate(name, **plan)
    launched = sm.launch(est, "megatron")
    assert "pretrain_hybrid.py" in launched.command
    left_out = [note for note in launched.notes if "not expressed" in note]
    assert all("vision tower" in note for note in left_out)
    read = sm.read_settings("megatron", launched.script(), accelerators=64, stack="plain")
    assert read.unread == ()
    assert read.model is not None
    assert read.model.parameters == of_decoder(name)
    assert again(read).step_time_s == pytest.approx(est.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("pattern", "layers", "mixers", "feed_forwards"),
    [
        ("M-*E", None, "RF", "DE"),  # every mixer with its block: layers as elsewhere
        ("MM*-", 4, "RRF-", "---D"),
        ("M-M|*-M/*-", None, "R-RF-R", "-D--D-"),
    ],
)
def test_a_hybrid_s_pattern_is_read(
    pattern: str, layers: int | None, mixers: str, feed_forwards: str
) -> None:
    flags = {**HYBRID_FLAGS, "hybrid_layer_pattern": pattern, "num_layers": layers}
    read = sm.read_settings("megatron", {k: v for k, v in flags.items() if v is not None})
    assert read.model is not None
    shape = read.model.shape
    assert (shape.mixers, shape.feed_forwards) == (mixers, feed_forwards)
    assert shape.layers == len(mixers)
    assert (shape.recurrence, shape.scan_heads, shape.scan_key_dim) == ("mamba2", 16, 128)
    assert shape.mtp_layers == pattern.count("/")


HYBRID_FLAGS: dict[str, Any] = {
    **{"hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1000, "ffn_hidden_size": 2048},
    **{"num_experts": 8, "position_embedding_type": "none", "mamba_num_heads": 16},
}


@pytest.mark.parametrize(
    ("pattern", "layers", "says"),
    [
        ("MX*-", None, "must be made of M, G, \\*, -, E"),
        ("MG*-", None, "with one of M and G"),
        ("M-*-", 5, "num_layers=5: hybrid_layer_pattern has 4"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str, layers: int | None, says: str) -> None:
    flags = {**HYBRID_FLAGS, "hybrid_layer_pattern": pattern, "num_layers": layers}
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.read_settings("megatron", {k: v for k, v in flags.items() if v is not None})


@given(plan=MEGATRON)
def test_torchtitan_options_say_what_was_predicted(plan: dict[str, Any]) -> None:
    plan |= {"vpp": 1, "recompute_layers": 0, "sharding": "zero3", "offload_optimizer": False}
    plan |= {"sequence_parallel": True, "placement": "tp-cp-dp-pp"}
    plan |= {"overlap_grad_reduce": "stack", "overlap_param_gather": "stack"}
    est = estimate(**plan)
    if est.illegal:
        return
    launched = sm.launch(est, "torchtitan")
    noted = {note.split("=")[0] for note in launched.notes if note.startswith("not expressed")}
    if noted - {f"not expressed: {fact}" for fact in FIXED}:
        return
    read = sm.read_settings(
        "torchtitan", launched.script(), accelerators=CLUSTER.accelerators, stack="plain"
    )
    assert read.task is not None
    assert read.task.global_batch == TASK.global_batch
    plain: Any = resolve.stack("plain")
    facts = {fact: getattr(plain, fact) for fact in FIXED}
    other = again(dataclasses.replace(read, stack=read.stack.replace(**facts)), est.model)
    assert other.step_time_s == pytest.approx(est.step_time_s, rel=1e-9)
    assert other.memory_bytes == pytest.approx(est.memory_bytes, rel=1e-9)


@given(
    sharding=st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"]),
    tp=DEGREES,
    cp=st.sampled_from([1, 2]),
    micro_batch=st.sampled_from([1, 2, 4]),
    optimizer=st.booleans(),
    weights=st.booleans(),
)
def test_deepspeed_and_accelerate_keep_the_sharding(
    sharding: str, tp: int, cp: int, micro_batch: int, optimizer: bool, weights: bool
) -> None:
    est = estimate(
        **{"sharding": sharding, "tp": tp, "cp": cp, "micro_batch": micro_batch},
        **{"offload_optimizer": optimizer, "offload_weights": weights},
        context="all_to_all",
        shard_degree=8 if sharding == "hsdp" else 0,
    )
    if est.illegal:
        return
    written = sm.launch(est, "deepspeed").files["ds_config.json"]
    read = sm.read_settings("deepspeed", json.loads(written)).strategy
    assert (read.sharding, read.tp, read.cp) == (sharding, tp, cp)
    assert (read.micro_batch, read.shard_degree) == (micro_batch, 8 * (sharding == "hsdp"))
    assert (read.offload_optimizer, read.offload_weights) == (optimizer, weights)
    batch = json.loads(written)
    replicas = CLUSTER.accelerators // (tp * cp)
    assert (
        batch["train_batch_size"] == micro_batch * batch["gradient_accumulation_steps"] * replicas
    )

    launched = sm.launch(est, "accelerate")
    table = from_yaml(launched.files["accelerate.yaml"])
    found = sm.read_settings("accelerate", table)
    assert found.accelerators == CLUSTER.accelerators
    if sharding != "ddp":
        asked = {"zero1": "zero2"}.get(sharding, sharding)
        if sharding == "hsdp" and CLUSTER.accelerators // tp == 8:
            asked = "zero3"  # one group of all replicas
        assert (found.strategy.sharding, found.strategy.tp) == (asked, tp)
        assert found.strategy.cp == cp


def from_yaml(text: str) -> dict[str, Any]:
    """Two levels of words: what the writer writes."""
    table: dict[str, Any] = {}
    inner = table
    for line in text.splitlines():
        key, _, value = line.strip().partition(": ")
        if line.endswith(":"):
            inner = table.setdefault(key.rstrip(":"), {})
        else:
            (inner if line.startswith(" ") else table)[key] = value
    return table


# ------------------------------------------------------------------------------------- examples
SCRIPT = """#!/bin/bash
# a job of 1,024 accelerators
TP=8; PP=16
export SEQ="2048"
GPT_ARGS=(
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96
    --seq-length ${SEQ} --max-position-embeddings $SEQ
    --vocab-size 51200
)
PARALLEL="--sequence-parallel \\
  --bf16"
torchrun pretrain_gpt.py "${GPT_ARGS[@]}" --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size ${PP:-1} $PARALLEL --micro-batch-size 1 \\
    --global-batch-size 1536 --num-layers-per-virtual-pipeline-stage 2 \\
    --use-distributed-optimizer --recompute-activations --lr 6e-5 --split 949,50,1 --surprising 3
"""


def test_a_shell_script_is_read_with_its_variables() -> None:
    read = sm.read_settings("megatron", SCRIPT, accelerators=1024)
    plan = read.strategy
    assert (plan.tp, plan.pp, plan.vpp, plan.micro_batch) == (8, 16, 3, 1)
    assert (plan.sharding, plan.recompute, plan.sequence_parallel) == ("zero1", "selective", True)
    assert read.model is not None
    assert read.model.parameters == pytest.approx(174.6e9, rel=1e-2)
    assert read.task is not None
    assert (read.task.global_batch, read.task.sequence) == (1536, 2048)
    assert read.unread == ("surprising",)


@pytest.mark.parametrize("use", ["$ARGS", "${ARGS}", "${LIST[@]}", "$ARGS ${LIST[@]}"])
def test_lists_of_options_count_once_wherever_they_are_used(use: str) -> None:
    script = f"""
ARGS="--num-layers 80 --hidden-size 8192
  --bf16"
LIST=(
  --micro-batch-size 2
)
torchrun pretrain_gpt.py --sequence-parallel {use} --tensor-model-parallel-size 8
"""
    assert from_script(script) == {
        "num_layers": "80",
        "hidden_size": "8192",
        "bf16": True,
        "micro_batch_size": "2",
        "sequence_parallel": True,
        "tensor_model_parallel_size": "8",
    }


def test_a_script_on_disk_and_a_namespace_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT, encoding="utf-8")
    read = sm.read_settings("megatron", path, accelerators=1024)
    namespace = argparse.Namespace(**from_script(SCRIPT))
    assert sm.read_settings("megatron", namespace, accelerators=1024) == read


def test_nested_tables_of_megatron_core_names() -> None:
    recipe = {
        "model": {
            **{"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "bf16": True},
            **{"num_query_groups": 8, "ffn_hidden_size": 14336, "gated_linear_unit": True},
            **{"normalization": "RMSNorm", "position_embedding_type": "rope"},
            **{"add_bias_linear": False, "share_embeddings_and_output_weights": False},
            **{"seq_length": 8192, "vocab_size": 128256, "tensor_model_parallel_size": 2},
            **{"num_moe_experts": None, "virtual_pipeline_model_parallel_size": None},
            **{"hidden_dropout": 0.0, "attention_dropout": 0.0},
        },
        "train": {"global_batch_size": 128, "micro_batch_size": 1},
        "ddp": {"use_distributed_optimizer": True, "overlap_grad_reduce": True},
    }
    for framework in ("nemo", "megatron_bridge"):
        read = sm.read_settings(framework, recipe)
        assert read.model is not None
        assert read.model.parameters == sm.model("llama3_8b").parameters
        assert read.strategy.overlap_grad_reduce == "on"


@pytest.mark.parametrize(
    "pattern, dense, every",
    [("([0]*3+[1]*58)", 3, 1), ("[" + "0,1," * 30 + "0]", 0, 2), ("2", 0, 2), (1, 0, 1)],
)
def test_layers_with_experts(pattern: object, dense: int, every: int) -> None:
    values = {
        **{"num_layers": 61, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100},
        **{"num_experts": 8, "moe_layer_freq": pattern, "seq_length": 64},
        "max_position_embeddings": 64,
    }
    model = sm.read_settings("megatron", values).model
    assert model is not None
    assert (model.shape.first_dense_layers, model.shape.moe_every) == (dense, every)


def test_torchtitan_tables_and_options_agree(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        "[training]\nlocal_batch_size = 2\nseq_len = 8192\n"
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 16\n"
        "tensor_parallel_degree = 2\n[activation_checkpoint]\nmode = 'full'\n",
        encoding="utf-8",
    )
    read = sm.read_settings("torchtitan", path, accelerators=64)
    words = (
        "--training.local_batch_size=2 --training.seq_len 8192 "
        "--parallelism.data_parallel_replicate_degree 2 "
        "--parallelism.data_parallel_shard_degree=16 --parallelism.tensor_parallel_degree 2 "
        "--activation_checkpoint.mode full"
    )
    assert sm.read_settings("torchtitan", words, accelerators=64) == read
    assert (read.strategy.sharding, read.strategy.shard_degree) == ("hsdp", 16)
    assert read.task is not None
    assert read.task.global_batch == 64


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    "framework, source, says",
    [
        ("megatrn", {}, "megatron"),
        ("megatron", {"tensor_model_parallel_size": "eight"}, "tensor_model_parallel_size='eight'"),
        ("megatron", {"recompute_granularity": "some"}, "none, selective, full"),
        ("megatron", {"num_layers": 2, "hidden_size": 8}, "num_attention_heads: missing"),
        ("megatron", {"num_distributed_optimizer_instances": 2, "use_megatron_fsdp": 1}, "acceler"),
        ("deepspeed", {"zero_optimization": {"stage": 4}}, "from 0 to 3"),
        ("deepspeed", {"zero_optimization": 3}, "must be a table"),
        ("deepspeed", "/nowhere/ds.json", r"cannot be read \(No such file or directory\)$"),
        ("deepspeed", '{"train_batch_size": 64', "not JSON"),
        ("torchtitan", "[training]\nseq_len = \n", "not valid TOML"),
        ("nemo", "import nemo\nx = (\n", "not Python"),
        ("torchtitan", {"parallelism": {"pipeline_parallel_schedule": "x"}}, "gpipe"),
        ("accelerate", 7, "must be a mapping"),
    ],
)
def test_mistakes_are_named(framework: str, source: object, says: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.read_settings(framework, source)


def test_only_a_strategy_that_can_run_is_launched() -> None:
    with pytest.raises(sm.ScaleModelError, match="illegal:tp_heads"):
        sm.launch(estimate(tp=64), "megatron")
    with pytest.raises(sm.ScaleModelError, match="framework='slurm'"):
        sm.launch(estimate(), "slurm")
    with pytest.raises(sm.ScaleModelError, match="accelerators=-1"):
        sm.read_settings("megatron", {}, accelerators=-1)


def test_what_a_framework_cannot_say_is_noted() -> None:
    kept = estimate(tp=2, regather=False)
    assert any("regather=off" in note for note in sm.launch(kept, "megatron").notes)
    est = estimate(pp=4, schedule="zero_bubble")
    (note,) = (note for note in sm.launch(est, "megatron").notes if "schedule" in note)
    other = estimate(pp=4, schedule="1f1b")
    assert note.startswith("not expressed: schedule=zero_bubble (pipeline schedule")
    assert f"a step takes {other.step_time_s:.4g} s instead of {est.step_time_s:.4g} s" in note
    assert any("schedule=zero_bubble" in note for note in sm.launch(est, "torchtitan").notes)
    assert any("PipelineModule" in note for note in sm.launch(est, "deepspeed").notes)


@pytest.mark.parametrize(
    ("schedule", "its"), [("zero_bubble_v", "ZBVZeroBubble"), ("dualpipe_v", "DualPipeV")]
)
def test_torchtitan_holds_layers_there_and_back(schedule: str, its: str) -> None:
    est = estimate(pp=4, schedule=schedule, sharding="zero3")
    launched = sm.launch(est, "torchtitan")
    assert not any("schedule" in note for note in launched.notes if "not expressed" in note)
    assert any("torch.compile" in note for note in launched.notes)
    table = dict(
        line.split(" = ", 1)
        for line in launched.files["torchtitan.toml"].splitlines()
        if " = " in line
    )
    assert json.loads(table["pipeline_parallel_schedule"]) == its
    parts = json.loads(table["module_fqns_per_model_part"])
    assert len(parts) == 8
    assert (parts[0][0], parts[-1][-1]) == ("tok_embeddings", "output")
    read = sm.read_settings("torchtitan", launched.script(), accelerators=CLUSTER.accelerators)
    assert (read.strategy.schedule, read.strategy.vpp) == (schedule, 1)
