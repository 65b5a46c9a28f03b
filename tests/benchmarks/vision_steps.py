"""Trains decoders with a vision tower, and without its images, as Transformers runs them.

    python tests/benchmarks/vision_steps.py --out steps.csv [--seconds 300]    # one accelerator
    python tests/benchmarks/vision_steps.py --device cpu --out steps.csv       # tiny ones, a check
    python tests/benchmarks/vision_steps.py --compare steps.csv                # beside predictions

Weights are random and FP32, cast by autocast to BF16, the optimizer is fused AdamW; nothing is
compiled. Decoders have a vocabulary of 32,768, some have fewer layers than their models: the rest
would not fit. Each row with images comes after the same tokens without: the difference is the
tower's.

One H100 (2026-11-28, torch 2.11.0, Transformers 5.17), predicted with the stack `transformers`, of
which no constant comes from here: nine steps without images -3 % (worst -11 %, Gemma 3 of 2,048
tokens), Qwen3-VL 2B with images -3 % for 1,024 and -18 % for 512 pixels a side, Gemma 3 from 0 to
+5 %, frozen towers -8 to -13 %. Two things that Transformers does are not priced. The mask of all
images of a batch, which lets none see another (Ministral 3: -9 % for one image, -28 % for two). And
Qwen's attention, which without a kernel for packed sequences is called window by window: Qwen2.5-VL
launches 39,600 kernels more, seven a window and layer, and takes three times as long (-63 and
-66 %).
"""

from __future__ import annotations

import argparse
import csv
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QWEN3 = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 2048,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 6144,
        "vocab_size": 32768,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "mrope_section": [24, 20, 20]},
    },
    "tie_word_embeddings": True,
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 24,
        "hidden_size": 1024,
        "num_heads": 16,
        "intermediate_size": 4096,
        "out_hidden_size": 2048,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [5, 11, 17],
    },
    "image_token_id": 32767,
}
QWEN2_5 = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "hidden_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
        "vocab_size": 32768,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24]},
    },
    "tie_word_embeddings": True,
    "vision_config": {
        "model_type": "qwen2_5_vl",
        "depth": 32,
        "hidden_size": 1280,
        "num_heads": 16,
        "intermediate_size": 3420,
        "out_hidden_size": 2048,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "in_channels": 3,
    },
    "image_token_id": 32767,
}
MINISTRAL = {
    "model_type": "mistral3",
    "text_config": {
        "model_type": "ministral3",
        "hidden_size": 3072,
        "num_hidden_layers": 10,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9216,
        "vocab_size": 32768,
        "tie_word_embeddings": True,
    },
    "tie_word_embeddings": True,
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "head_dim": 64,
        "patch_size": 14,
        "image_size": 1540,
    },
    "spatial_merge_size": 2,
    "image_token_index": 32767,
}
GEMMA3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "intermediate_size": 10240,
        "vocab_size": 32768,
        "sliding_window": 1024,
        "tie_word_embeddings": True,
    },
    "tie_word_embeddings": True,
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
        "image_size": 896,
        "vision_use_head": False,
    },
    "mm_tokens_per_image": 256,
    "image_token_index": 32767,
}


@dataclass(frozen=True)
class Run:
    """One row: a model, its sequences, and the images of each."""

    name: str
    config: dict[str, Any]
    batch: int
    sequence: int
    images: int = 0
    side: int = 0  # pixels, of square images
    frozen: bool = False

    @property
    def row_id(self) -> str:
        seen = f"-{self.images}x{self.side}" if self.images else ""
        return f"{self.name}-b{self.batch}-s{self.sequence}{seen}{'-frozen' * self.frozen}"

    def patches(self) -> int:
        """Patches of an image."""
        return (self.side // self.config["vision_config"]["patch_size"]) ** 2

    def tokens(self) -> int:
        """Tokens that the decoder gets of an image."""
        merge = self.config["vision_config"].get("spatial_merge_size") or self.config.get(
            "spatial_merge_size"
        )
        return self.patches() // merge**2 if merge else self.config["mm_tokens_per_image"]


RUNS = (
    Run("qwen3_vl_2b", QWEN3, 2, 2048),
    Run("qwen3_vl_2b", QWEN3, 2, 2048, 1, 1024),
    Run("qwen3_vl_2b", QWEN3, 2, 2048, 1, 1024, frozen=True),
    Run("gemma3_4b", GEMMA3, 3, 1024),
    Run("gemma3_4b", GEMMA3, 3, 1024, 1, 896),
    Run("gemma3_4b", GEMMA3, 3, 1024, 1, 896, frozen=True),
    Run("ministral_3_3b", MINISTRAL, 2, 2048),
    Run("ministral_3_3b", MINISTRAL, 2, 2048, 1, 1120),
    Run("qwen2_5_vl_3b", QWEN2_5, 2, 2048),
    Run("qwen2_5_vl_3b", QWEN2_5, 2, 2048, 1, 1120),
    Run("qwen3_vl_2b", QWEN3, 8, 1024),
    Run("qwen3_vl_2b", QWEN3, 8, 1024, 1, 512),
    Run("qwen3_vl_2b", QWEN3, 1, 4096),
    Run("qwen3_vl_2b", QWEN3, 1, 4096, 3, 1024),
    Run("gemma3_4b", GEMMA3, 1, 2048),
    Run("gemma3_4b", GEMMA3, 1, 2048, 4, 896),
    Run("qwen2_5_vl_3b", QWEN2_5, 8, 1024),
    Run("qwen2_5_vl_3b", QWEN2_5, 8, 1024, 1, 560),
    Run("ministral_3_3b", MINISTRAL, 1, 4096),
    Run("ministral_3_3b", MINISTRAL, 1, 4096, 1, 1540),
    Run("ministral_3_3b", MINISTRAL, 1, 4096, 1, 1540, frozen=True),
)


# --------------------------------------------------------------------------------------- measured


def tiny(run: Run) -> Run:
    """The same kind, small enough for a CPU."""
    config = {
        key: dict(part) if isinstance(part, dict) else part for key, part in run.config.items()
    }
    text, tower = config["text_config"], config["vision_config"]
    text |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96}
    text["vocab_size"] = 300
    config |= {key: 299 for key in ("image_token_id", "image_token_index") if key in config}
    if "rope_parameters" in text:
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 2, 2]}
    tower |= {"hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "head_dim": 16}
    tower |= {"num_attention_heads": 4, "depth": 2, "num_hidden_layers": 2, "out_hidden_size": 64}
    if "fullatt_block_indexes" in tower:
        tower["fullatt_block_indexes"] = [1]
    if "deepstack_visual_indexes" in tower:
        tower["deepstack_visual_indexes"] = [0]
    return Run(run.name, config, 1, run.sequence, run.images, run.side, run.frozen)


def inputs(run: Run, device: str) -> dict[str, Any]:
    """Random tokens, with the places of images among them, and random pixels."""
    import torch

    config = run.config
    place = config.get("image_token_id", config.get("image_token_index"))
    tokens = torch.randint(100, place, (run.batch, run.sequence), device=device)
    kinds = torch.zeros_like(tokens)
    for image in range(run.images):
        start = 4 + image * (run.tokens() + 4)
        tokens[:, start : start + run.tokens()] = place
        kinds[:, start : start + run.tokens()] = 1
    found: dict[str, Any] = {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "labels": tokens,
    }
    kind = config["model_type"]
    if kind == "gemma3":
        found["token_type_ids"] = kinds
    elif kind.startswith("qwen"):
        found["mm_token_type_ids"] = kinds
    if not run.images:
        return found
    count = run.batch * run.images
    if kind.startswith("qwen"):
        tower = config["vision_config"]
        along = run.side // tower["patch_size"]
        width = tower["in_channels"] * tower["temporal_patch_size"] * tower["patch_size"] ** 2
        found["pixel_values"] = torch.randn(count * run.patches(), width, device=device)
        found["image_grid_thw"] = torch.tensor([[1, along, along]] * count, device=device)
    else:
        found["pixel_values"] = torch.randn(count, 3, run.side, run.side, device=device)
        if kind == "mistral3":
            found["image_sizes"] = torch.tensor([[run.side, run.side]] * count, device=device)
    return found


def model_of(run: Run, device: str) -> Any:
    """The model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = {key: part for key, part in run.config.items() if key != "model_type"}
    config = AutoConfig.for_model(run.config["model_type"], **settings)
    config._attn_implementation = "sdpa"
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
    model = model.to(device).train()
    model.config.use_cache = False
    for name, weight in model.named_parameters():
        if run.frozen and ("visual" in name or "vision_tower" in name):
            weight.requires_grad_(False)
    return model


def measured(run: Run, device: str) -> dict[str, object]:
    """The row of a run: its step, its forward pass, its kernels and its peak."""
    import adapter_steps
    import torch
    import training_steps

    torch.manual_seed(0)
    gc.collect()
    model = model_of(run, device)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=device == "cuda")
    given = inputs(run, device)

    def forward() -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            return model(**given).loss

    def step() -> Any:
        loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step_s = adapter_steps.timed(step, device)
    reserved = torch.cuda.max_memory_reserved() if device == "cuda" else 0
    forward_s = adapter_steps.timed(forward, device)
    names = training_steps.kernels(step) if device == "cuda" else []
    if not bool(torch.isfinite(step())):
        raise RuntimeError(f"{run.row_id}: the loss is not finite")
    tower = [
        weight.numel()
        for name, weight in model.named_parameters()
        if "visual" in name or "vision_tower" in name
    ]
    return {
        "row_id": run.row_id,
        "source": f"vision_steps.py, torch {torch.__version__}",
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "batch": run.batch,
        "sequence": run.sequence,
        "images": run.images,
        "side": run.side,
        "frozen": int(run.frozen),
        "params_B": sum(weight.numel() for weight in model.parameters()) / 1e9,
        "tower_B": sum(tower) / 1e9,
        "step_s": step_s,
        "forward_s": forward_s,
        "kernels_s": sum(float(str(one["time_us"])) for one in names) / 1e6,
        "kernels": sum(int(str(one["count"])) for one in names),
        "memory_GB": reserved / 1e9,
        "top": ";".join(
            f"{str(one['kernel'])[:60].replace(';', ',')}={one['count']}x{one['time_us']:.0f}"
            for one in names[:14]
        ),
    }


def rows(seconds: float, device: str) -> Iterator[dict[str, object]]:
    """Rows of all runs until the time is spent."""
    import torch

    start = time.monotonic()
    for run in RUNS:
        if time.monotonic() - start > seconds:
            print(f"{run.row_id}: no time left", flush=True)
            continue
        begin = time.monotonic()
        try:
            row = measured(tiny(run) if device == "cpu" else run, device)
        except Exception as error:  # one run that does not fit must not cost the others
            print(f"{run.row_id}: {type(error).__name__}: {str(error)[:400]}", flush=True)
        else:
            print(
                f"{run.row_id}: {row['step_s']:.4f} s, kernels {row['kernels_s']:.4f} s, "
                f"{row['memory_GB']:.1f} GB (took {time.monotonic() - begin:.0f} s)",
                flush=True,
            )
            yield row
        if device == "cuda":
            torch.cuda.empty_cache()


# -------------------------------------------------------------------------------------- predicted


def compare(file: Path) -> None:
    """Prints each row of a file beside its prediction, and the tower's part of both."""
    import scalemodel as sm

    with file.open(encoding="utf-8", newline="") as source:
        rows = {row["row_id"]: row for row in csv.DictReader(source)}
    cluster = sm.cluster({"accelerator": "h100_sxm_80"}, accelerators=1)
    decoder = (0.0, 0.0)
    for run in RUNS:
        if run.row_id not in rows:
            continue
        seen = {"images": run.images, "image_height": run.side, "image_width": run.side}
        task = sm.Training(
            global_batch=run.batch,
            sequence=run.sequence,
            **(seen | {"frozen_vision": run.frozen} if run.images else {}),
        )
        strategy = sm.Strategy(micro_batch=run.batch, sharding="ddp")
        est = sm.estimate(sm.model(run.config), cluster, task, strategy, stack="transformers")
        both = (float(rows[run.row_id]["step_s"]), est.step_time_s)
        line = f"{run.row_id}: {both[0]:.4f} s, predicted {both[1]:.4f} s"
        line += f" ({100 * (both[1] / both[0] - 1):+.0f} %)"
        if run.images:
            line += f"; tower {both[0] - decoder[0]:.4f} s, {both[1] - decoder[1]:.4f} s"
        else:
            decoder = both
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--out", type=Path, help="CSV to write")
    way.add_argument("--compare", type=Path, metavar="CSV", help="print predictions of its rows")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after these")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    arguments = parser.parse_args()
    if arguments.compare is not None:
        compare(arguments.compare)
        return
    import torch

    torch.set_float32_matmul_precision("high")
    writer = None
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        for row in rows(arguments.seconds, arguments.device):
            if writer is None:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
