"""What a row of measured runs asks: the cells, read as the scripts of their frameworks."""

from __future__ import annotations

import pytest

from reference.runs import GPT, LLAMA
from scalemodel.resolve import stack_choice as stacks
from scalemodel.validation.rows import Row, SkippedRowError
from scalemodel.validation.training import question


def asked(**cells: str):
    return question(Row(LLAMA | cells))


def strategy(**cells: str) -> dict[str, object]:
    return dict(asked(**cells).strategy)


def test_families_decide_what_columns_do_not_tell() -> None:
    llama, gpt = dict(asked().model), dict(question(Row(GPT)).model)
    assert (llama["position"], llama["norm"], llama["gated"]) == ("rope", "rmsnorm", True)
    assert (gpt["position"], gpt["norm"], gpt["gated"]) == ("learned", "layernorm", False)
    assert gpt["positions"] == 2048
    assert (gpt["qkv_bias"], llama["qkv_bias"]) == (True, False)
    nemotron = dict(asked(model_family="Nemotron", gated_ffn="0").model)
    assert (nemotron["position"], nemotron["norm"]) == ("rope", "layernorm")


def test_architecture_notes() -> None:
    deepseek = dict(
        asked(
            n_heads="128",
            head_dim="MLA qk128+64 v128",
            moe_experts="256",
            moe_topk="8",
            moe_shared="1",
            moe_ffn="2048",
            arch_note="3 dense layers; MLA q_lora 1536 kv_lora 512; 37B active",
            other_flags="w/ MTP",
        ).model
    )
    assert (deepseek["head_dim"], deepseek["qk_rope_head_dim"], deepseek["v_head_dim"]) == (
        192,
        64,
        128,
    )
    assert (deepseek["q_lora_rank"], deepseek["kv_lora_rank"]) == (1536, 512)
    assert (deepseek["first_dense_layers"], deepseek["mtp_layers"]) == (3, 1)
    sliding = dict(asked(arch_note="alternating sliding-window 128 attention").model)
    assert (sliding["window"], sliding["full_attention_every"]) == (128, 2)
    sparse = dict(asked(moe_experts="8", moe_topk="1", arch_note="MoE every 2nd layer").model)
    assert (sparse["moe_every"], sparse["expert_ffn"]) == (2, 14336)
    assert dict(asked(head_dim="149.33333333333334").model)["head_dim"] == 152


def test_a_note_may_tell_latent_attention_whose_heads_have_one_size() -> None:
    told = {"n_heads": "16", "head_dim": "192", "moe_experts": "64", "moe_topk": "6"}
    note = "MLA (no q LoRA, kv rank 512, rope 64, nope 128, v 128); first layer dense"
    moonlight = dict(asked(**told, arch_note=note).model)
    named = ("head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank")
    assert [moonlight[key] for key in named] == [192, 64, 128, 512, 0]
    assert moonlight["first_dense_layers"] == 1
    short = dict(asked(**told, arch_note="MLA with kv rank 512").model)
    assert "kv_lora_rank" not in short
    assert short["first_dense_layers"] == 0


def test_an_incomplete_architecture_comes_from_the_catalogue() -> None:
    blank = dict.fromkeys(("hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "vocab"), "")
    known = asked(**blank, model="Llama-3-8B", n_layers="4")
    assert dict(known.model)["hidden"] == 4096
    assert dict(known.model)["layers"] == 4
    assert any("named model" in note for note in known.notes)


@pytest.mark.parametrize(
    ("cells", "kernel"),
    [
        ({"flash_attn": "yes"}, "stack"),
        ({"flash_attn": "yes (SDPA)"}, "stack"),
        ({"flash_attn": "yes (TE/cuDNN fused)"}, "flash3"),
        ({"flash_attn": "yes (TE)"}, "flash3"),
        ({"flash_attn": "no"}, "fused_softmax"),
        ({"flash_attn": "no", "framework": "plain PyTorch"}, "unfused"),
        ({"flash_attn": "no (Megatron fused softmax kernel)"}, "fused_softmax"),
        ({"flash_attn": "flash_attention2 + RMS kernel"}, "flash2"),
        ({"flash_attn": "no", "other_flags": "kernel=torch"}, "unfused"),
        ({"flash_attn": "no", "other_flags": "kernel=fused"}, "fused_softmax"),
        ({"other_flags": "kernel=flash_attentionv1.0.8"}, "flash1"),
        ({"other_flags": "kernel=flash_attention"}, "flash1"),
        ({"other_flags": "kernel=flash_attention2 + RMS kernel"}, "flash2"),
        ({"flash_attn": "FA3"}, "flash3"),
        ({"flash_attn": "", "year": "2024"}, "stack"),
        ({"flash_attn": "", "year": "2021"}, "fused_softmax"),
    ],
)
def test_attention_kernels(cells: dict[str, str], kernel: str) -> None:
    assert dict(asked(**cells).task)["attention"] == kernel


@pytest.mark.parametrize(
    ("text", "sharding", "degree"),
    [
        ("ZeRO-1", "zero1", 0),
        ("distributed optimizer (Megatron default)", "zero1", 0),
        ("FSDP SHARD_GRAD_OP (ZeRO-2)", "zero2", 0),
        ("FSDP FULL_SHARD (ZeRO-3)", "zero3", 0),
        ("FSDP2 (ZeRO-3)", "zero3", 0),
        ("FSDP (ZeRO-3) FSDP=", "zero3", 0),
        ("FSDP (64)", "zero3", 0),
        ("FSDP (ZeRO-3) FSDP=2", "hsdp", 2),
        ("FSDP (ZeRO-3) dcn_FSDP=1 dcn_DP=2 ici_FSDP=2", "hsdp", 2),
        ("HSDP (2)", "hsdp", 2),
        ("FSDP (3)", "zero3", 0),
        ("DDP", "ddp", 0),
        ("none (DP=1)", "ddp", 0),
        ("", "zero1", 0),
    ],
)
def test_a_sharding_is_read_with_the_ranks_that_share(
    text: str, sharding: str, degree: int
) -> None:
    plan = strategy(sharding=text)
    assert (plan["sharding"], plan["shard_degree"]) == (sharding, degree)


@pytest.mark.parametrize(
    ("text", "tried"),
    [
        ("none", ("none",)),
        ("none (from a recipe)", ("none",)),
        ("none; activation offload 95 layers", ("none",)),
        ("full (every_layer)", ("full",)),
        ("full (inferred from the achieved flop/s)", ("full",)),
        ("selective (op-level SAC)", ("selective",)),
        ("modules: mla_up_proj/mlp/moe (from a recipe)", ("selective",)),
        ("selective (fraction of blocks)", ("none", "full")),
        ("modules: core_attn", ("selective",)),
        ("unknown", ("none", "selective", "full")),
        ("", ("none", "selective", "full")),
    ],
)
def test_recomputation_that_is_not_stated_is_tried_from_the_lightest(
    text: str, tried: tuple[str, ...]
) -> None:
    result = asked(recompute=text)
    assert result.recomputations == tried
    assert dict(result.strategy).get("offload_activations", False) == ("offload" in text)


def test_modules_that_a_run_names_are_those_of_its_software() -> None:
    facts = dict(asked(recompute="selective:moe_act+layernorm").facts)
    assert facts["selective_modules"] == "layernorm+moe_act"
    assert "selective_modules" not in dict(asked(recompute="selective (op-level SAC)").facts)


def test_partial_recomputation() -> None:
    assert strategy(recompute="full (block, 10 layers)")["recompute_layers"] == 10


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("", {}),
        ("recipe default (TP comm overlap, DP grad/param overlap)", {}),
        ("async TP", {"overlap_tp": True}),
        ("TP_COMM_OVERLAP", {"overlap_tp": True}),
        (
            "none for DP; scatter/gather p2p",
            {"overlap_grad_reduce": False, "overlap_param_gather": False},
        ),
        (
            "none",
            {"overlap_grad_reduce": False, "overlap_param_gather": False, "overlap_tp": False},
        ),
        (
            "--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap, PP overlap",
            {"overlap_grad_reduce": True, "overlap_param_gather": True, "overlap_tp": True},
        ),
    ],
)
def test_overlap_is_what_a_row_states_and_else_the_stack(
    text: str, stated: dict[str, bool]
) -> None:
    plan = strategy(overlap=text)
    assert {name: plan[name] for name in plan if name.startswith("overlap")} == stated


@pytest.mark.parametrize("text", ["FSDP (ZeRO-3)", "Fully Sharded Data Parallel", "FSDP=128"])
def test_fsdp_overlaps_whichever_library_splits_its_layers(text: str) -> None:
    plan = strategy(
        overlap="", framework="metaseq (FSDP + Megatron-LM)", year="2022", sharding=text
    )
    assert (plan["overlap_grad_reduce"], plan["overlap_param_gather"]) == (True, True)
    assert "overlap_grad_reduce" not in strategy(overlap="", sharding="ZeRO-3")
    assert strategy(overlap="none", sharding=text)["overlap_param_gather"] is False


@pytest.mark.parametrize(
    ("framework", "year", "splits"),
    [
        ("GPT-NeoX (Megatron + DeepSpeed)", "2022", False),
        ("Megatron-LM", "2024", True),
        ("nanotron", "2025", True),
        ("PyTorch FSDP", "2025", False),
    ],
)
def test_residuals_are_split_by_sequence_where_the_branch_can(
    framework: str, year: str, splits: bool
) -> None:
    cells = {"framework": framework, "year": year, "tp": "2", "dp": "", "seq_parallel": ""}
    assert strategy(**cells)["sequence_parallel"] is splits
    assert strategy(**cells | {"seq_parallel": "yes"})["sequence_parallel"] is True
    assert strategy(**cells | {"seq_parallel": "no"})["sequence_parallel"] is False


@pytest.mark.parametrize(
    ("cells", "tried"),
    [
        ({"precision": "bf16"}, ("bf16",)),
        ({"precision": "bf16/fp16"}, ("bf16", "fp16")),
        ({"precision": "fp16"}, ("fp16",)),
        ({"precision": "FP8-CS"}, ("fp8",)),
        ({"precision": "MXFP8"}, ("fp8",)),
        ({"precision": "NVFP4"}, ("fp4",)),
        ({"precision": "", "precision_class": "fp8_or_fp4"}, ("fp8",)),
        ({"precision": "", "precision_class": "16bit"}, ("bf16", "fp16")),
        ({"precision": ""}, ("bf16", "fp16")),
        ({"precision": "fp8 (linear, bf16 rest; fp8 all-gather)"}, ("fp8",)),
    ],
)
def test_a_class_of_formats_tries_each_of_them(
    cells: dict[str, str], tried: tuple[str, ...]
) -> None:
    assert asked(**cells).precisions == tried


def test_a_network_is_read_from_words_and_else_from_the_generation() -> None:
    def fabric(**cells: str) -> dict[str, object]:
        return dict(asked(**cells).fabric)

    assert fabric() == {"bandwidth": "400 Gbit/s", "class": "infiniband"}
    assert fabric(network="Jean Zay: 4x Omni-Path 100 Gb/s")["class"] == "omnipath"
    assert fabric(network="RoCE 1600 Gb/s per node")["class"] == "roce"
    both = "Management: 1x Ethernet 100Gb/Sec, Compute: 8x ConnectX-7 IB NDR 400Gb/Sec"
    assert fabric(network=both)["class"] == "infiniband"
    for gpu, rate in (("H100", 400), ("A100-80GB", 200), ("GB300", 800), ("B300", 800)):
        missing = asked(gpu=gpu, gpu_mem_GB="", nic_gbps_per_gpu="unknown")
        assert dict(missing.fabric)["bandwidth"] == f"{rate} Gbit/s"
        assert any("nic" in note for note in missing.notes)
    pcie = dict(asked(nvlink="PCIe Gen4").scale_up)
    assert (pcie["class"], pcie["domain"]) == ("pcie4", 8)
    assert asked(nvlink="NVLink4 900GB/s").scale_up == ()


def test_nodes_divide_the_job() -> None:
    assert asked(n_gpus="4", dp="1").node_accelerators == 4
    assert asked(n_gpus="12", dp="3").node_accelerators == 6
    assert asked(gpus_per_node="").node_accelerators == 8


def test_chunks_and_batches() -> None:
    assert strategy(vpp="interleaved (v not in table)")["vpp"] == 8
    deep = {"n_layers": "126", "pp": "16", "tp": "1", "n_gpus": "16", "dp": "1"}
    assert strategy(**deep, vpp="interleaved")["vpp"] == 8  # one layer per chunk
    assert strategy(**deep | {"n_layers": "64"}, vpp="interleaved")["vpp"] == 4
    assert strategy(vpp="interleaved", pp="1", dp="8")["vpp"] == 1
    assert strategy(vpp="unknown")["vpp"] == 1
    assert strategy(vpp="40")["vpp"] == 17  # embedding and head in chunks of their own
    odd = asked(global_batch="126")
    assert dict(odd.task)["global_batch"] == 128
    assert any("126" in note for note in odd.notes)


def test_a_framework_that_does_not_interleave_says_none() -> None:
    deep = {"framework": "Megatron-Bridge 26.08", "pp": "4", "dp": "", "n_gpus": "16", "vpp": "1"}
    assert strategy(**deep)["vpp"] > 1
    assert strategy(**deep | {"vpp": "none"})["vpp"] == 1
    assert strategy(**deep | {"framework": "Megatron-Bridge main", "vpp": ""})["vpp"] == 1


def test_scripts_decide_what_a_row_leaves_open() -> None:
    dense = {"task": "pretrain (MLPerf)", "n_layers": "96", "pp": "4", "dp": "2"}
    assert strategy(**dense, vpp="1")["vpp"] == 12
    assert strategy(**dense, vpp="6")["vpp"] == 6
    assert strategy(**dense | {"n_layers": "16"}, vpp="unknown")["vpp"] == 4
    routed = {"moe_experts": "8", "moe_topk": "2", "moe_ffn": "14336"}
    assert strategy(**dense, **routed, vpp="1")["vpp"] == 1
    assert any("vpp 12" in note for note in asked(**dense, vpp="1").notes)

    nemo = {"framework": "NeMo", **routed, "ep": "2"}
    assert strategy(**nemo)["etp"] == int(LLAMA["tp"])
    assert strategy(**nemo, etp="1")["etp"] == 1
    assert strategy(**nemo | {"ep": "8"})["etp"] == 0  # groups would not divide the stage
    assert strategy(**nemo | {"framework": "Megatron-LM"})["etp"] == 0


def test_capacity_chooses_among_parts_of_one_name() -> None:
    small = asked(gpu="A100", gpu_mem_GB="40", precision="bf16").accelerator
    large = asked(gpu="A100", gpu_mem_GB="80", precision="bf16").accelerator
    assert small != large


def test_the_task_says_what_learns() -> None:
    assert asked(task="SFT").method == "full"
    lora = asked(task="LoRA (MLPerf)")
    assert lora.method == "lora"
    assert dict(lora.task)["lora_rank"] == 16
    assert {"LoRA rank 16 assumed", "LoRA on attention by the recipe"} <= set(lora.notes)
    nobody = asked(task="LoRA", framework="llm-foundry")
    assert dict(nobody.task)["lora_targets"] == "attention"
    assert "LoRA on attention assumed" in nobody.notes
    assert dict(asked(task="LoRA", framework="NeMo").task)["lora_targets"] == "qkv"


def test_flags_say_where_adapters_sit() -> None:
    said = asked(task="LoRA", other_flags="eager;lora_rank=8;lora_targets=all")
    assert dict(said.task)["lora_rank"] == 8
    assert dict(said.task)["lora_targets"] == "all"
    assert not any("LoRA" in note for note in said.notes)
    other = asked(task="LoRA", other_flags="lora_targets=embeddings")
    assert dict(other.task)["lora_targets"] == "attention"
    with pytest.raises(SkippedRowError, match="illegal:lora_rank"):
        asked(task="LoRA", other_flags="lora_rank=0")


def test_packs_cost_as_much_attention_as_equal_sequences() -> None:
    cells = {"task": "SFT", "cp": "1", "seq_len": "4096"}
    plain = asked(framework="llm-foundry", **cells)
    packed = asked(framework="NeMo", **cells)
    tokens = {
        name: (
            dict(found.task)["sequence"] * dict(found.task)["global_batch"],
            dict(found.task)["sequence"] * dict(found.strategy)["micro_batch"],
        )
        for name, found in (("plain", plain), ("packed", packed))
    }
    assert tokens["packed"] == tokens["plain"]
    assert dict(packed.task)["sequence"] < dict(plain.task)["sequence"]
    assert any("packs of" in note for note in packed.notes)
    for unlike in ({"task": "pretrain"}, {"task": "LoRA (MLPerf)"}, {"seq_len": "4095"}):
        other = asked(framework="NeMo", **cells | unlike)
        assert not any("packs of" in note for note in other.notes)


def test_a_format_may_say_what_its_scales_are_of() -> None:
    assert ("row_scales", True) in asked(precision="fp8 rowwise").facts
    assert "row_scales" not in dict(asked(precision="fp8 tensorwise").facts)
    assert "row_scales" not in dict(asked(precision="fp8", other_flags="rowwise_adagrad").facts)


def test_a_plain_exchange_of_experts_may_be_stated() -> None:
    for text in ("dispatcher=alltoall", "moe_dispatcher=all-to-all; moe_flex_backend=deepep"):
        facts = dict(asked(other_flags=text).facts)
        assert facts["deduplicated_dispatch"] is facts["deduplicated_between"] is False, text
    assert dict(asked(other_flags="dispatcher=hybridep").facts)["deduplicated_dispatch"] is True
    assert "deduplicated_dispatch" not in dict(asked(other_flags="EP all-to-all").facts)


def test_heads_are_exchanged_where_the_recipe_says_so() -> None:
    run = {"year": "2025", "framework": "NGC PyTorch 25.04, NeMo 25.04", "task": "LoRA (MLPerf)"}
    run |= {"cp": "8", "dp": "1", "n_gpus": "8", "tp": "1", "pp": "1", "global_batch": "8"}
    assert dict(asked(**run, gpu="B200").strategy)["context"] == "all_to_all"
    assert "context" not in dict(asked(**run, gpu="H200-141GB").strategy)


def test_dropout_may_be_stated() -> None:
    assert dict(asked(other_flags="dropout=0.1").facts)["dropout"] is True
    assert "dropout" not in dict(asked(other_flags="dropout=0.0").facts)


def test_flags_reach_the_task() -> None:
    assert dict(asked(other_flags="mixed_precision=PURE").task)["gradient_precision"] == "bf16"
    assert dict(asked(other_flags="mixed_precision=DEFAULT").task)["gradient_precision"] == "fp32"
    assert dict(asked(other_flags="kernel=flash_attention2 + RMS kernel").task)["fused_norm"]
    assert dict(asked(other_flags="eager").task)["fused_norm"] is False
    kernels = asked(other_flags="autocast;eager;norm kernel")
    assert dict(kernels.task)["fused_norm"] is True
    assert dict(kernels.task)["gradient_precision"] == "fp32"
    assert dict(kernels.facts) == {
        **dict.fromkeys(("fused_activation", "fused_clamp", "fused_rope", "fused_loss"), False),
        **dict.fromkeys(("softmax_loss", "autocast"), True),
        "host_launch_s": pytest.approx(30e-6),
    }
    assert dict(asked(other_flags="autocast;compile=blocks").facts) == {"autocast": True}


def test_stacks_that_nothing_compiles_say_themselves_what_they_cost() -> None:
    own = asked(framework="Transformers, PEFT", other_flags="eager", year="2026")
    assert own.stack == "transformers"
    assert own.facts == ()


@pytest.mark.parametrize("framework", ["TRL", "Hugging Face Transformers 5.24", "Axolotl"])
def test_short_steps_of_transformers_wait_for_the_cpu(framework: str, predicted) -> None:
    # 16 layers of 1.5 ms and more, timed with tensors that cost nothing.
    short = LLAMA | LLAMA_1B | {"task": "LoRA", "framework": framework, "year": "2026"}
    short |= dict.fromkeys(("n_gpus", "tp", "pp", "dp", "vpp", "global_batch", "micro_batch"), "1")
    one, four = (
        float(predicted(short | {"seq_len": length})["predicted_step_time_s"].iloc[0])
        for length in ("128", "512")
    )
    assert one > 16 * 1.5e-3
    assert four == pytest.approx(one, rel=0.1)


LLAMA_1B = {
    **{"n_layers": "16", "hidden": "2048", "n_heads": "32", "n_kv_heads": "8", "head_dim": "64"},
    **{"ffn": "8192", "vocab": "128256"},
}


def test_stated_parameters_tell_whether_the_head_has_weights_of_its_own() -> None:
    def tied(**cells: str) -> bool:
        return dict(asked(**LLAMA_1B, **cells).model)["tied_embeddings"]

    assert tied(params_B="1.236") is True
    assert tied(params_B="1.498") is False
    for unlike in ("1", "1.36", "proxy", ""):
        assert tied(params_B=unlike) is False  # as llamas have it
    assert tied(params_B="1.236", model_family="gpt", gated_ffn="1") is True


def test_unknown_recomputation_is_the_lightest_that_fits(predicted) -> None:
    unknown = predicted(LLAMA | {"recompute": "unknown"})
    stated = [predicted(LLAMA | {"recompute": name}) for name in ("none", "selective", "full")]
    fitting = [frame for frame in stated if frame["predicted_fits"].item()]
    lightest = (fitting or stated[-1:])[0]
    assert unknown["predicted_step_time_s"].item() == lightest["predicted_step_time_s"].item()
    assert "recompute" in unknown["predicted_note"].item()


@pytest.mark.parametrize("layers, stages", [("30", "16"), ("32", "16"), ("24", "4")])
def test_the_layout_of_a_run_says_nothing_of_its_stack(layers: str, stages: str) -> None:
    mesh = {"n_layers": layers, "pp": stages, "tp": "1", "n_gpus": stages, "dp": "1"}
    for year, stack in (("2022", "megatron_deepspeed_2022"), ("2024", "megatron_deepspeed_bf16")):
        assert asked(framework="Megatron-DeepSpeed", year=year, **mesh).stack == stack


def test_a_row_needs_whole_positive_counts() -> None:
    for text in ("0", "-2", "1.5", "1e17"):
        with pytest.raises(SkippedRowError, match="illegal:tp"):
            asked(tp=text)


# ---------------------------------------------------------------------------------------- stacks
def test_plain_fsdp_is_not_torchtitan() -> None:
    assert stacks.stack_for("fms-fsdp (PyTorch FSDP)", 2024) == "pytorch_fsdp"
    assert stacks.stack_for("torchtitan (FSDP2)", 2024) == "torchtitan"
    assert stacks.stack_for("llm-foundry/Composer (PyTorch FSDP)", 2023) == "llm_foundry_2023"


@pytest.mark.parametrize(
    ("framework", "year", "stack"),
    [
        ("Megatron Bridge 26.06", 2026, "megatron_bridge_2026_06"),
        ("LLM Foundry", 2023, "llm_foundry_2023"),
        ("MCore r0.12", 2025, "nemo_mcore_2024_25"),
        ("Pai-Megatron-Patch", 2025, "megatron_lm_2025"),
        ("Megatron-LM", 2024, "megatron_lm_2025"),
        ("Megatron-LM", 2023, "megatron_lm_2021_22"),
        ("Megatron", 2021, "megatron_lm_2021_22"),
        ("Megatron-SWIFT", 2025, "megatron_lm_2025"),
        ("HF Trainer", 2025, "transformers"),
        ("optimum-habana", 2024, "transformers"),
        ("huggingface/nanotron", 2025, "nanotron"),
        ("Primus (Megatron-LM)", 2025, "megatron_lm_2025"),
        ("Primus torchtitan", 2025, "torchtitan_2025"),
        ("GPT-NeoX", 2022, "megatron_deepspeed_2022"),
        ("NeMo AutoModel", 2025, "pytorch_fsdp"),
        ("torchtune", 2025, "pytorch_fsdp"),
        ("HF Accelerate + FSDP", 2024, "transformers"),
        ("Hugging Face Trainer + DeepSpeed", 2024, "transformers"),
        ("PyTorch/XLA", 2024, "maxtext"),
        ("Colossal-AI", 2023, "plain"),
        ("EasyLM (JAX/Flax)", 2023, "maxtext"),
        ("PyTorch Lightning", 2024, "pytorch_fsdp"),
        ("metaseq (FairScale FSDP)", 2022, "pytorch_fsdp"),
        ("NeuronX Distributed", 2024, "neuronx"),
        ("Neuron NeMo Megatron", 2023, "neuronx"),
        ("NxDT 2.21", 2025, "neuronx"),
    ],
)
def test_frameworks_stand_on_the_stack_they_are_built_of(
    framework: str, year: int, stack: str
) -> None:
    assert stacks.stack_for(framework, year) == stack


def test_releases_that_take_cudnn_first_are_a_stack_of_their_own() -> None:
    for release in ("PyTorch 2.11.0", "pytorch 2.12", "PyTorch 2.13.1+cu130"):
        assert stacks.stack_for(release, 2026) == "pytorch_2026"
    for release in ("PyTorch", "PyTorch 2.1.1", "PyTorch 2.6.0, ROCm 6.4", "PyTorch 2.10.0"):
        assert stacks.stack_for(release, 2026) == "pytorch_fsdp"
    assert stacks.facts_on("pytorch_2026", "hopper").attention == "flash3"
    assert stacks.facts_on("pytorch_2026", "ampere").attention == "flash2"


def test_stacks_are_chosen_by_task_then_era_then_framework(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = {
        "old": {"frameworks": ["Megatron"], "year_max": 2022},
        "new": {"frameworks": ["Megatron"], "year_min": 2023},
        "branch": {"frameworks": ["Megatron-Fork"], "priority": 1},
        "contest": {"tasks": ["(Contest)"]},
        "plain": {},
    }
    claims = tuple(stacks._claim(name, table) for name, table in tables.items())
    monkeypatch.setattr(stacks, "_claims", lambda: claims)
    stacks.stack_for.cache_clear()
    assert stacks.stack_for("megatron-lm", 2021, "pretrain") == "old"
    assert stacks.stack_for("Megatron-LM", 2026, "pretrain") == "new"
    assert stacks.stack_for("Megatron-Fork 3", 2026, "pretrain") == "branch"
    assert stacks.stack_for("anything", 2026, "pretrain (contest)") == "contest"
    assert stacks.stack_for("something else") == "plain"
    stacks.stack_for.cache_clear()
