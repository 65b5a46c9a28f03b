"""Laws of `validate`: what a prediction may depend on, what a table keeps, how errors count."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalemodel import stacks
from scalemodel.errors import ScaleModelError
from scalemodel.validation import score, validate, write_csv
from scalemodel.validation.operators.table import OPERATOR_KINDS
from scalemodel.validation.prediction import OUTPUT_COLUMNS
from scalemodel.validation.rows import Row, SkippedRowError, is_missing, number_in, read_table
from scalemodel.validation.score import cases, kendall_tau_b
from scalemodel.validation.training import INPUT_COLUMNS, question

LABELS = ("row_id", "source", "source_path", "source_table", "system")
MEASURED = (
    "step_time_s",
    "tflops_per_gpu",
    "tflops_kind",
    "mfu_pct",
    "hfu_pct",
    "tokens_per_s_gpu",
    "tokens_per_s_total",
    "samples_per_s",
    "memory_GB",
    "time_to_train_min",
    "aggregate_pflops",
    "norm_step_time_s",
    "norm_tokens_s_gpu",
    "norm_basis",
    "flops_per_token_model",
    "implied_model_tflops_gpu",
    "implied_mfu_vs_bf16_peak_pct",
    "notes",
)

LLAMA = {
    "row_id": "1",
    "source": "paper",
    "source_path": "table.csv",
    "source_table": "1",
    "year": "2024",
    "framework": "Megatron-LM",
    "model": "some 8B",
    "model_family": "Llama",
    "n_layers": "32",
    "hidden": "4096",
    "n_heads": "32",
    "n_kv_heads": "8",
    "head_dim": "128",
    "ffn": "14336",
    "gated_ffn": "1",
    "vocab": "128256",
    "task": "pretrain",
    "seq_len": "4096",
    "micro_batch": "1",
    "global_batch": "128",
    "grad_accum": "17",
    "precision": "bf16",
    "gpu": "H100-80GB",
    "gpu_mem_GB": "80",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "nic_gbps_per_gpu": "400",
    "network": "InfiniBand",
    "tp": "2",
    "pp": "2",
    "dp": "4",
    "cp": "1",
    "ep": "1",
    "vpp": "1",
    "sharding": "ZeRO-1",
    "recompute": "none",
    "flash_attn": "yes",
    "seq_parallel": "yes",
    "status": "ok",
    "quality": "A",
    "complete": "yes",
    "norm_step_time_s": "8.5",
    "memory_GB": "40",
    "notes": "a note",
}
GPT = LLAMA | {
    "row_id": "2",
    "source": "other paper",
    "model": "GPT-3.6B",
    "model_family": "GPT",
    "n_layers": "30",
    "hidden": "3072",
    "n_heads": "32",
    "n_kv_heads": "32",
    "head_dim": "96.0",
    "ffn": "12288",
    "gated_ffn": "0",
    "vocab": "51200",
    "seq_len": "2048",
    "precision": "fp16",
    "gpu": "A100-80GB",
    "n_gpus": "8",
    "tp": "8",
    "pp": "1",
    "dp": "1",
    "nic_gbps_per_gpu": "unknown",
    "recompute": "full",
    "flash_attn": "no",
    "year": "2022",
}
MIXTURE = LLAMA | {
    "row_id": "3",
    "model": "Qwen3-30B-A3B",
    "model_family": "MoE",
    "n_layers": "48",
    "hidden": "2048",
    "n_kv_heads": "4",
    "ffn": "6144",
    "vocab": "151936",
    "moe_experts": "128.0",
    "moe_topk": "8.0",
    "moe_shared": "0.0",
    "moe_ffn": "768.0",
    "n_gpus": "8",
    "tp": "1",
    "pp": "1",
    "dp": "8",
    "ep": "8.0",
    "recompute": "unknown",
    "framework": "Megatron-Bridge 26.04",
    "year": "2026",
}
RUNS = (LLAMA, GPT, MIXTURE)


def csv_text(rows: list[dict[str, str]]) -> str:
    file = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


@pytest.fixture
def predicted(tmp_path: Path):
    def run(*rows: dict[str, str], stack: str | None = None) -> pd.DataFrame:
        path = tmp_path / "runs.csv"
        path.write_text(csv_text(list(rows)), encoding="utf-8")
        return validate("training", path, stack=stack)

    return run


def values(frame: pd.DataFrame) -> list[list[object]]:
    columns = [frame[name].astype(object) for name in OUTPUT_COLUMNS]
    return [[None if pd.isna(item) else item for item in row] for row in zip(*columns, strict=True)]


def asked(**cells: str):
    return question(Row(LLAMA | cells))


def strategy(**cells: str) -> dict[str, object]:
    return dict(asked(**cells).strategy)


# ------------------------------------------------------------------------------------------ laws


def test_measurements_labels_and_accumulation_change_no_prediction(predicted) -> None:
    blanked = [row | dict.fromkeys((*MEASURED, "grad_accum"), "") for row in RUNS]
    renamed = [
        row | dict.fromkeys((*LABELS, "notes"), f"x{i}") | {"status": "OOM", "quality": "C"}
        for i, row in enumerate(RUNS)
    ]
    expected = values(predicted(*RUNS))
    assert not any(row[-1] for row in expected)
    assert values(predicted(*blanked)) == expected
    assert values(predicted(*renamed)) == expected


def test_no_forbidden_column_is_an_input() -> None:
    forbidden = {*LABELS, *MEASURED, "grad_accum", "status", "quality", "complete"}
    assert not forbidden & set(INPUT_COLUMNS)


def test_the_order_of_rows_and_columns_changes_no_prediction(predicted) -> None:
    expected = values(predicted(*RUNS))
    assert values(predicted(*reversed(RUNS))) == expected[::-1]
    turned = [dict(reversed(row.items())) for row in RUNS]
    assert values(predicted(*turned)) == expected


def test_the_name_of_a_model_changes_nothing_while_its_columns_are_complete(predicted) -> None:
    renamed = [row | {"model": "GPT-2"} for row in RUNS]
    assert values(predicted(*renamed)) == values(predicted(*RUNS))


def test_twice_the_same_answer(predicted) -> None:
    assert values(predicted(*RUNS, *RUNS)) == values(predicted(*RUNS)) * 2


def test_predictions_are_finite_positive_and_complete(predicted) -> None:
    frame = predicted(*RUNS, LLAMA | {"gpu": "no such part"})
    filled = frame["skip_reason"] == ""
    assert filled.tolist() == [True, True, True, False]
    for name in ("predicted_step_time_s", "predicted_memory_gb"):
        numbers = frame[name].to_numpy(dtype=float)
        assert (np.isfinite(numbers) == filled).all()
        assert (numbers[filled] > 0).all()
    assert (frame["predicted_fits"].notna() == filled).all()


# ---------------------------------------------------------------------------------------- tables


def test_input_columns_survive_as_text(tmp_path: Path) -> None:
    odd = LLAMA | {"row_id": "007", "notes": 'a "quoted", two\nline note', "split": " 1e3 "}
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(csv_text([odd, *RUNS]), encoding="utf-8")
    frame = validate("training", source)
    write_csv(frame, target)
    before, after = read_table(source), read_table(target)
    assert after.header == (*before.header, *OUTPUT_COLUMNS)
    assert [row[: len(before.header)] for row in after.rows] == before.rows
    assert set(after.column("predicted_fits")) <= {"true", "false", ""}
    assert not {"nan", "inf", "None"} & {cell for row in after.rows for cell in row}
    seconds = [float(text) for text in after.column("predicted_step_time_s")]
    assert seconds == frame["predicted_step_time_s"].tolist()
    again = validate("training", target)
    assert tuple(again.columns) == after.header
    assert values(again) == values(frame)


def test_short_long_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    text = csv_text([LLAMA])
    path.write_text("\ufeff" + text + "short\n\n" + text.splitlines()[1] + ",beyond\n")
    reasons = validate("training", path)["skip_reason"].tolist()
    assert [bool(reason) for reason in reasons] == [False, True, False]


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(csv_text([LLAMA]).splitlines()[0] + "\n")
    frame = validate("training", path)
    assert len(frame) == 0
    assert score(frame).core_rows == 0
    assert "coverage" in score(frame).text()


@pytest.mark.parametrize("column", ["gpu", "n_gpus", "global_batch", "seq_len", "micro_batch"])
def test_a_missing_required_column_is_named(tmp_path: Path, column: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(csv_text([{name: LLAMA[name] for name in LLAMA if name != column}]))
    with pytest.raises(ScaleModelError, match=repr(column)):
        validate("training", path)


def test_architecture_columns_are_needed_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        csv_text([{name: LLAMA[name] for name in LLAMA if name not in ("model", "hidden")}])
    )
    with pytest.raises(ScaleModelError, match="'hidden'"):
        validate("training", path)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    binary, empty = tmp_path / "binary.csv", tmp_path / "empty.csv"
    binary.write_bytes(b"gpu,n_gpus\n\xff\xfe\x00,1\n")
    empty.write_text("")
    for path in (binary, empty, tmp_path / "absent.csv", tmp_path):
        with pytest.raises(ScaleModelError, match="path="):
            validate("training", path)
    with pytest.raises(ScaleModelError, match="cannot be written"):
        write_csv(pd.DataFrame({"a": ["b"]}), tmp_path / "no" / "such" / "folder.csv")


@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_kinds_to_come_say_so(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalemodel.validation.available_kinds", tuple)
    with pytest.raises(ScaleModelError, match="not available yet; available: training"):
        validate(kind, "absent.csv")


def test_an_unknown_kind_or_stack_is_refused(predicted) -> None:
    with pytest.raises(ScaleModelError, match="kind='trainning'"):
        validate("trainning")
    with pytest.raises(ScaleModelError, match="no_such_stack"):
        predicted(LLAMA, stack="no_such_stack")


def test_a_stack_can_be_chosen(predicted) -> None:
    assert predicted(*RUNS, stack="plain")["predicted_stack"].tolist() == ["plain"] * len(RUNS)


# ----------------------------------------------------------------------------------------- cells


def test_missing_and_numeric_cells() -> None:
    assert all(is_missing(text) for text in ("", "  ", "unknown", "Unknown v", "n/a (one node)"))
    assert not any(is_missing(text) for text in ("none", "no", "0"))
    assert number_in("46068 MiB") == 46068
    assert number_in("interleaved (v not in table)") is None
    assert number_in("1e999") is None


def test_writing_numbers_differently_changes_nothing(predicted) -> None:
    shape = ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "vocab", "seq_len")
    mesh = ("n_gpus", "gpus_per_node", "tp", "pp", "dp", "cp", "ep", "vpp")
    others = ("micro_batch", "global_batch", "year", "gpu_mem_GB", "nic_gbps_per_gpu")
    counts = (*shape, *mesh, *others)
    lenient = LLAMA | {name: f" {float(LLAMA[name])} " for name in counts}
    lenient |= {"gated_ffn": "1.0", "precision": "BF16", "seq_parallel": "True"}
    lenient |= {"recompute": "none (from a recipe; not stated)", "gpu": "NVIDIA H100 80GB"}
    plain = values(predicted(LLAMA))
    assert values(predicted(lenient)) == plain
    assert values(predicted(LLAMA | {"dp": "", "cp": "", "ep": "unknown", "vpp": ""})) == plain


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": ""}, "missing:gpu"),
        ({"gpu": "Abacus 9000"}, "unknown_accelerator:Abacus 9000"),
        ({"n_gpus": "unknown"}, "missing:n_gpus"),
        ({"seq_len": ""}, "missing:seq_len"),
        ({"micro_batch": "unknown"}, "missing:micro_batch"),
        ({"global_batch": "n/a"}, "missing:global_batch"),
        ({"hidden": "unknown", "model": "Mystery-9B"}, "unknown_architecture:Mystery-9B"),
        ({"hidden": "unknown", "model": ""}, "missing:hidden"),
        ({"moe_experts": "8"}, "missing:moe_topk"),
        ({"head_dim": "MLA"}, "missing:head_dim"),
        ({"arch_note": "Mamba2 hybrid"}, "unsupported:architecture"),
        ({"task": "DLRM train (MLPerf)", "seq_len": ""}, "unknown_architecture:some 8B"),
        ({"model_family": "ViT", "task": "ViT inference"}, "unsupported:task"),
        ({"task": "distillation"}, "unsupported:task"),
        ({"precision": "posit8"}, "unsupported:dtype"),
        ({"precision": "fp8", "gpu": "A100-80GB"}, "unsupported:dtype"),
        ({"tp": "3"}, "illegal:mesh"),
        ({"dp": "5"}, "illegal:mesh"),
        ({"global_batch": "3"}, "illegal:batch"),
        ({"micro_batch": "1.5"}, "illegal:micro_batch"),
        ({"n_gpus": "-16"}, "illegal:n_gpus"),
        ({"ep": "2"}, "illegal:ep_experts"),
    ],
)
def test_skip_reasons(predicted, cells: dict[str, str], reason: str) -> None:
    frame = predicted(LLAMA, LLAMA | cells)
    assert frame["skip_reason"].tolist() == ["", reason]
    assert frame["predicted_step_time_s"].isna().tolist() == [False, True]


def test_no_row_can_fail_the_run(predicted) -> None:
    chance = random.Random(20)
    junk = ["", "unknown", "0", "-1", "1e18", "1e400", "nan", "inf", "2.5", "3", "7", "x" * 300]
    junk += ["MLA qk128+64 v128", "FSDP=0", "interleaved", "full 400 layers", "\u00b2", "1,2,3"]
    junk += ["9" * 400, "modules: moe", "HSDP", "kernel=flash_attention2", "LoRA", "GB200", "fp4"]
    rows = []
    for _ in range(400):
        row = dict(chance.choice(RUNS))
        for name in chance.sample(INPUT_COLUMNS, chance.randint(1, 4)):
            row[name] = chance.choice(junk)
        rows.append(row)
    frame = predicted(*rows)
    assert ((frame["skip_reason"] == "") == frame["predicted_step_time_s"].notna()).all()
    kinds = {reason.split(":")[0] for reason in frame["skip_reason"]} - {""}
    allowed = {"missing", "unknown_accelerator", "unknown_architecture", "unsupported", "illegal"}
    assert kinds <= allowed
    assert all(":" in reason for reason in frame["skip_reason"] if reason)


# ------------------------------------------------------------------------------------- questions


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
def test_sharding(text: str, sharding: str, degree: int) -> None:
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
        ("modules: mla_up_proj/mlp/moe (from a recipe)", ("full",)),
        ("modules: core_attn", ("selective",)),
        ("unknown", ("none", "selective", "full")),
        ("", ("none", "selective", "full")),
    ],
)
def test_recomputation(text: str, tried: tuple[str, ...]) -> None:
    result = asked(recompute=text)
    assert result.recomputations == tried
    assert dict(result.strategy).get("offload_activations", False) == ("offload" in text)


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
def test_overlap(text: str, stated: dict[str, bool]) -> None:
    plan = strategy(overlap=text)
    assert {name: plan[name] for name in plan if name.startswith("overlap")} == stated


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
def test_precisions(cells: dict[str, str], tried: tuple[str, ...]) -> None:
    assert asked(**cells).precisions == tried


def test_networks() -> None:
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


def test_nodes() -> None:
    assert asked(n_gpus="4", dp="1").node_accelerators == 4
    assert asked(n_gpus="12", dp="3").node_accelerators == 6
    assert asked(gpus_per_node="").node_accelerators == 8


def test_chunks_and_batches() -> None:
    assert strategy(vpp="interleaved (v not in table)")["vpp"] == 2
    assert strategy(vpp="interleaved", pp="1", dp="8")["vpp"] == 1
    assert strategy(vpp="unknown")["vpp"] == 1
    assert strategy(vpp="40")["vpp"] == 17  # embedding and head in chunks of their own
    odd = asked(global_batch="126")
    assert dict(odd.task)["global_batch"] == 128
    assert any("126" in note for note in odd.notes)


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


def test_fine_tuning() -> None:
    assert asked(task="SFT").method == "full"
    lora = asked(task="LoRA (MLPerf)")
    assert lora.method == "lora"
    assert dict(lora.task)["lora_rank"] == 16


def test_flags_reach_the_task() -> None:
    assert dict(asked(other_flags="mixed_precision=PURE").task)["gradient_precision"] == "bf16"
    assert dict(asked(other_flags="mixed_precision=DEFAULT").task)["gradient_precision"] == "fp32"
    assert dict(asked(other_flags="kernel=flash_attention2 + RMS kernel").task)["fused_norm"]
    assert dict(asked(other_flags="eager").task)["fused_norm"] is False


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


# ---------------------------------------------------------------------------------------- scores


def scored(rows: list[dict[str, object]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame["predicted_fits"] = frame["predicted_fits"].astype("boolean")
    return frame


def run(source: str, measured: float, error: float | None, **cells: object) -> dict[str, object]:
    return {
        "source": source,
        "gpu": "H100",
        "task": "pretrain",
        "model_family": "Llama",
        "status": "ok",
        "quality": "A",
        "complete": "yes",
        "norm_step_time_s": str(measured),
        "memory_GB": "",
        "source_path": "sheet",
        "predicted_step_time_s": np.nan if error is None else measured * (1 + error),
        "predicted_memory_gb": np.nan if error is None else 10.0,
        "predicted_fits": None if error is None else True,
        "skip_reason": "missing:micro_batch" if error is None else "",
    } | cells


def test_kendall_matches_its_definition() -> None:
    chance = np.random.default_rng(3)
    for _ in range(20):
        x, y = chance.integers(0, 6, 15), chance.integers(0, 6, 15)
        pairs = [(i, j) for i in range(15) for j in range(i)]
        concordant = sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in pairs)
        untied = [sum(z[i] != z[j] for i, j in pairs) for z in (x, y)]
        expected = concordant / np.sqrt(untied[0] * untied[1])
        assert kendall_tau_b(x.tolist(), y.tolist()) == pytest.approx(expected)
    assert np.isnan(kendall_tau_b([1, 1], [1, 2]))
    assert np.isnan(kendall_tau_b([], []))


def test_errors_per_group_and_macro() -> None:
    rows = [run("a", 1 + i, 0.1) for i in range(10)]
    rows += [run("b", 1 + i, -0.3) for i in range(5)]
    rows += [run("small", 1.0, 9.0)]
    rows += [run("b", 3.0, None)]
    result = score(scored(rows))
    errors = {row.label: row for row in result.groups}
    assert errors["a"].mape_fraction == pytest.approx(0.1)
    assert errors["b"].bias_fraction == pytest.approx(-0.3)
    assert (errors["b"].rows, errors["b"].predicted, errors["b"].skipped) == (6, 5, 1)
    assert errors["a"].kendall_tau == pytest.approx(1)
    assert result.macro_mape_fraction == pytest.approx(0.2)
    assert result.macro_groups == 2
    assert result.pooled.mape_fraction == pytest.approx((10 * 0.1 + 5 * 0.3 + 9) / 16)
    assert (result.core_rows, result.core_predicted) == (17, 16)
    assert result.skip_reasons == {"missing:micro_batch": 1}


def test_rounds_of_mlperf_are_one_source_in_the_merged_macro_only() -> None:
    rows = [run("MLPerf Training v3.0", 1 + i, 0.4, task="LoRA (MLPerf)") for i in range(3)]
    rows += [run("MLPerf Training v4.1", 1 + i, 0.2) for i in range(3)]
    rows += [run("a", 1 + i, 0.1) for i in range(5)]
    result = score(scored(rows))
    assert result.macro_mape_fraction == pytest.approx(0.1)
    assert result.merged_macro_mape_fraction == pytest.approx((0.1 + 0.3) / 2)
    assert [row.label for row in result.merged] == ["MLPerf Training (all rounds)"]
    assert {row.label for row in result.kinds} == {"pretrain", "LoRA (MLPerf)"}


def test_rows_outside_the_core_stand_apart() -> None:
    rows = [run("a", 1.0, 0.1), run("a", 1.0, 0.5, quality="C"), run("a", 1.0, 0.5, complete="no")]
    rows += [run("d", 1.0, None, task="DLRM train (MLPerf)", quality="C")]
    result = score(scored(rows))
    assert result.core_rows == 1
    assert [(row.label, row.rows) for row in result.others] == [
        ("DLRM (MLPerf)", 1),
        ("pretrain", 2),
    ]
    bare = score(scored(rows).drop(columns=["quality", "complete"]))
    assert bare.core_rows == 4


def test_memory_out_of_memory_and_regret() -> None:
    def layout(measured: float, error: float, *, fits: bool, failed: bool = False):
        cells = {"status": "OOM", "norm_step_time_s": ""} if failed else {}
        return run("a", measured, error, predicted_fits=fits, memory_GB="8", **cells)

    rows = [
        layout(1.0, 0.0, fits=True, failed=True),  # picked first, ran out of memory
        layout(2.0, 0.5, fits=True),
        layout(2.5, 0.0, fits=True),  # picked next
        layout(9.0, 0.0, fits=False, failed=True),
        layout(1.5, 0.0, fits=False),
        run("no failures", 1.0, 0.0),
    ]
    result = score(scored(rows))
    (fit,) = result.fits
    assert fit.out_of_memory_recall == pytest.approx(1 / 2)
    assert fit.ran_recall == pytest.approx(2 / 3)
    assert fit.balanced_accuracy == pytest.approx(7 / 12)
    (memory,) = result.memory
    assert (memory.rows, memory.bias_fraction) == (3, pytest.approx(0.25))
    (sheet,) = result.sheets
    assert (sheet.rows, sheet.misses) == (3, 1)
    assert sheet.regret_fraction == pytest.approx(2.5 / 1.5 - 1)
    text = result.text()
    for words in ("balanced accuracy", "macro over sources", "regret", "macro MAPE", "coverage"):
        assert words in text
    assert result.to_dict()["groups"][0]["kendall_tau"] is not None


def test_the_worst_groups_stand_first_and_alone() -> None:
    rows = []
    for index in range(14):
        rows += [run("a", 1.0 + i, 0.05 * index, model=f"m{index}", gpu="H100") for i in range(3)]
    rows += [run("odd", 1.0, 9.0, model="one")]
    result = score(scored(rows))
    assert [row.part for row in result.worst] == [f"H100 m{index}" for index in range(13, 3, -1)]
    assert "worst groups" in result.text()
    assert len(result.tables()["worst"]) == 10


def test_what_lies_inside_its_interval_is_counted() -> None:
    rows = [
        run("a", 1.0, 0.1, predicted_low=0.9, predicted_high=1.3),
        run("a", 1.0, 0.1, predicted_low=1.05, predicted_high=1.3),
        run("a", 1.0, 0.1, predicted_low=0.5, predicted_high=0.9),
        run("a", 1.0, 0.1, predicted_low=0.5, predicted_high=1.0),
        run("a", 1.0, None, predicted_low=None, predicted_high=None),
    ]
    result = score(scored(rows))
    assert result.covered_fraction == pytest.approx(0.5)
    assert "inside the predicted interval: 50.0 %" in result.text()


def test_scores_read_a_written_table(tmp_path: Path, predicted) -> None:
    frame = predicted(*RUNS)
    write_csv(frame, tmp_path / "out.csv")
    again = pd.read_csv(tmp_path / "out.csv", dtype={"norm_step_time_s": str, "memory_GB": str})
    assert [case.predicted_s for case in cases(again)] == [
        case.predicted_s for case in cases(frame)
    ]
    assert score(again).core_predicted == score(frame).core_predicted == len(RUNS)


def test_the_measured_corpus_is_covered(corpora: Path) -> None:
    frame = validate("training", corpora / "train_measured.csv")
    result = score(frame)
    assert result.core_predicted >= 0.98 * result.core_rows
    assert ((frame["skip_reason"] == "") == frame["predicted_step_time_s"].notna()).all()
    measured = [name for name in MEASURED if name in frame.columns]
    assert "norm_step_time_s" in measured


def test_the_corpus_may_be_blanked_renamed_and_shuffled(corpora: Path, tmp_path: Path) -> None:
    source = corpora / "train_measured.csv"
    table = read_table(source)
    order = list(range(len(table.rows)))
    random.Random(1).shuffle(order)
    changed = dict.fromkeys(MEASURED, "") | dict.fromkeys(LABELS, "x")
    path = tmp_path / "changed.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.header)
        for index in order:
            cells = zip(table.header, table.rows[index], strict=True)
            writer.writerow([changed.get(name, cell) for name, cell in cells])
    expected = values(validate("training", source))
    assert values(validate("training", path)) == [expected[index] for index in order]
