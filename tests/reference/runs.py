"""Runs that nobody made, in the schema of published ones."""

from __future__ import annotations

import csv
import io

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
    """Rows as a CSV, cells that a row lacks left empty."""
    file = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
