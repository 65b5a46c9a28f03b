"""Fine-tunes decoders of Transformers with PEFT's adapters, without a compiler.

    python tests/benchmarks/adapter_steps.py --count   # kernels and bytes of a layer, on a CPU
    python tests/benchmarks/adapter_steps.py --host    # CPU time of a layer, on one thread
    python tests/benchmarks/adapter_steps.py --out steps.csv [--seconds 300]   # one accelerator
    scalemodel validate --kind training steps.csv --out predicted.csv

Base weights are frozen BF16, adapters of rank 16 sit on all seven matrices of a layer; PEFT keeps
them in FP32 unless told otherwise, and autocast turns them and their inputs back.

Counted on a CPU with torch 2.13.0, Transformers 5.24.0 and PEFT 0.21.2 (2026-11-27), a layer
forward + back: 38 + 70 kernels without adapters, 66 + 101 with adapters in BF16, 94 + 129 in FP32.
Beside each k x n matrix, adapters move 10 n + (4 n + 6 k) bytes a token in BF16 that are no GEMM's,
and 12 k each way more in FP32: 235 + 217 and 481 + 463 kB a token and layer of Llama 3.2 1B, 430 +
406 and 897 + 872 of 8B (gradients of norms, which frozen ones lack, left out of the difference).

One thread of an AMD EPYC needed 1.5 ms a layer without adapters, 2.7 with BF16 and 3.3 with FP32
adapters, 3.8 to 4.5 with dropout: 13 to 16 us a kernel, before a driver has launched any.

One H200 (2026-11-27, torch 2.11.0, Transformers 5.17, PEFT 0.21.0): steps over 16 tokens, which are
the CPU's, took 27 to 44 us a kernel, 34 in the mean of 11; 1B takes .12 to .17 s a step up to 4,096
tokens and 8B .18 to .28 up to 2,048, whatever the batch. Predicted with those 34 us: 1B of 16,384
tokens +3 %, 8B of 8,192 +2 % (-11 and -10 % before sums of adapters cost time and every matrix had
its own); shorter ones .12 to .14 s and .24 s, without the host's spread. Memory 6.7 % off in the
mean.
"""

from __future__ import annotations

import argparse
import csv
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import training_steps
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WARM_UP = 3
STEPS = 6
MATRICES = (*("q_proj", "k_proj", "v_proj", "o_proj"), *("gate_proj", "up_proj", "down_proj"))
COLUMNS = (*training_steps.COLUMNS, "forward_s", "host_s", "kernels_s", "kernels")


@dataclass(frozen=True)
class Sizes:
    """A decoder of Llama's kind."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head: int
    vocab: int = 128256
    tied: bool = False


LLAMA_1B = Sizes("llama3_2_1b", 16, 2048, 8192, 32, 8, 64, tied=True)
LLAMA_8B = Sizes("llama3_8b", 32, 4096, 14336, 32, 8, 128)
TINY = Sizes("tiny", 2, 32, 32, 4, 2, 8, vocab=64)


@dataclass(frozen=True)
class Adapters:
    """What is trained: nothing but the whole model where there is no rank."""

    name: str
    rank: int = 16
    wide: bool = True  # FP32, as PEFT makes them
    dropout: float = 0.0
    targets: tuple[str, ...] = MATRICES


NONE = Adapters("no adapters", rank=0)
NARROW = Adapters("BF16 adapters", wide=False)
WIDE = Adapters("FP32 adapters")
DROPPING = Adapters("FP32 adapters, dropout", dropout=0.05)
ATTENTION = Adapters("FP32 adapters on attention", targets=MATRICES[:4])

#: Decoder, adapters, sequences of a step, their length.
RUNS = (
    *((LLAMA_1B, one, 4, 1024) for one in (WIDE, NARROW, DROPPING, ATTENTION)),
    *((LLAMA_1B, WIDE, batch, length) for batch, length in ((1, 512), (1, 2048), (8, 2048))),
    *((LLAMA_8B, WIDE, batch, length) for batch, length in ((1, 512), (2, 1024), (4, 2048))),
    (LLAMA_8B, NARROW, 2, 1024),
)


def decoder(sizes: Sizes, adapters: Adapters, device: str) -> Any:
    """A decoder with random weights in BF16, and its adapters."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=sizes.layers,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.ffn,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=sizes.head,
        vocab_size=sizes.vocab,
        tie_word_embeddings=sizes.tied,
        attn_implementation="sdpa",
        use_cache=False,
    )
    with torch.device(device):
        model: Any = LlamaForCausalLM(config).to(torch.bfloat16)
        if adapters.rank:
            wanted = LoraConfig(
                r=adapters.rank,
                lora_dropout=adapters.dropout,
                target_modules=list(adapters.targets),
                task_type="CAUSAL_LM",
            )
            model = get_peft_model(model, wanted, autocast_adapter_dtype=adapters.wide)
    return model.train()


def loss_of(model: Any, batch: int, length: int, vocab: int, device: str) -> torch.Tensor:
    """The loss of a random batch."""
    tokens = torch.randint(vocab, (batch, length), device=device)
    seen = torch.ones_like(tokens)
    with torch.autocast(device, dtype=torch.bfloat16):
        return model(input_ids=tokens, attention_mask=seen, labels=tokens).loss


# ---------------------------------------------------------------------------------------- counts


class Kernels(TorchDispatchMode):
    """Counts operations that are no views, and bytes of those that are neither GEMM nor attention.

    What the CPU makes of several operations a GPU makes of one where the framework has a kernel for
    it (dropout); all others are alike.
    """

    VIEWS = frozenset(
        (
            *("view", "t", "transpose", "expand", "slice", "detach", "unsqueeze", "squeeze"),
            *("select", "_unsafe_view", "split", "permute", "alias", "_reshape_alias", "unbind"),
            *("as_strided", "empty", "empty_like", "empty_strided", "new_empty_strided", "device"),
            *("lift_fresh", "_local_scalar_dense", "is_nonzero", "result_type", "new_empty"),
            "scalar_tensor",
        )
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = self.moved = 0
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = operation(*args, **(kwargs or {}))
        name = operation._schema.name.split("::")[1]
        if name in self.VIEWS:
            return out
        self.count += 1
        self.names[name] += 1
        if name not in ("mm", "addmm", "bmm") and "attention" not in name:
            tensors = (one for one in tree_leaves((args, kwargs, out)))
            self.moved += sum(
                one.numel() * one.element_size() for one in tensors if isinstance(one, torch.Tensor)
            )
        return out


def counted(sizes: Sizes, adapters: Adapters, length: int) -> tuple[list[int], list[int]]:
    """Kernels forward and back of a decoder, and the bytes that they move."""
    model = decoder(sizes, adapters, "cpu")
    with Kernels() as forward:
        loss = loss_of(model, 1, length, sizes.vocab, "cpu")
    with Kernels() as backward:
        loss.backward()
    return [forward.count, backward.count], [forward.moved, backward.moved]


def narrowed(sizes: Sizes, layers: int) -> Sizes:
    """Widths of an eighth: what a token moves is in proportion to them."""
    eighth = {key: getattr(sizes, key) // 8 for key in ("hidden", "ffn", "heads", "kv_heads")}
    return Sizes(**{**vars(sizes), **eighth, "layers": layers, "vocab": 64})


def count() -> None:
    """Prints what one layer more and tokens more add."""
    for sizes in (LLAMA_1B, LLAMA_8B):
        for adapters in (NONE, NARROW, WIDE):
            found = {
                (layers, length): counted(narrowed(sizes, layers), adapters, length)
                for layers in (1, 2)
                for length in (64, 128)
            }
            kernels = [found[2, 64][0][way] - found[1, 64][0][way] for way in (0, 1)]
            layer = {
                length: [found[2, length][1][way] - found[1, length][1][way] for way in (0, 1)]
                for length in (64, 128)
            }
            token = [8 * (layer[128][way] - layer[64][way]) / 64e3 for way in (0, 1)]
            print(
                f"{sizes.name}, {adapters.name}: {kernels[0]} + {kernels[1]} kernels a layer, "
                f"{token[0]:.0f} + {token[1]:.0f} kB a token",
                flush=True,
            )


def host() -> None:
    """Prints the CPU time that one layer more adds where tensors are tiny."""
    torch.set_num_threads(1)
    for adapters in (NONE, NARROW, WIDE, DROPPING):
        taken = {}
        for layers in (2, 10):
            model = decoder(Sizes(**{**vars(TINY), "layers": layers}), adapters, "cpu")
            times = []
            for _ in range(40):
                start = time.perf_counter()
                loss = loss_of(model, 1, 4, TINY.vocab, "cpu")
                middle = time.perf_counter()
                loss.backward()
                times.append((middle - start, time.perf_counter() - middle))
                model.zero_grad(set_to_none=True)
            taken[layers] = [sorted(way)[len(times) // 4] for way in zip(*times, strict=True)]
        one = [1e6 * (taken[10][way] - taken[2][way]) / 8 for way in (0, 1)]
        print(f"{adapters.name}: {one[0]:.0f} + {one[1]:.0f} us a layer", flush=True)


# ----------------------------------------------------------------------------------------- steps


def timed(step: Callable[[], object], device: str) -> float:
    """Seconds of a step, in the mean of several."""
    for repeat in range(WARM_UP + STEPS):
        if repeat == WARM_UP:
            finish(device)
            start = time.perf_counter()
        step()
    finish(device)
    return (time.perf_counter() - start) / STEPS


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measured(
    sizes: Sizes, adapters: Adapters, batch: int, length: int, device: str
) -> dict[str, object]:
    """The row of a run: its step, the forward pass alone, and a step of hardly any tokens."""
    torch.manual_seed(0)
    gc.collect()
    model = decoder(sizes, adapters, device)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=device == "cuda")

    def step(sequences: int = batch, tokens: int = length) -> torch.Tensor:
        loss = loss_of(model, sequences, tokens, sizes.vocab, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    host_s = timed(lambda: step(1, 16), device)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step_s = timed(step, device)
    reserved = torch.cuda.max_memory_reserved() if device == "cuda" else 0
    forward_s = timed(lambda: loss_of(model, batch, length, sizes.vocab, device), device)
    names = training_steps.kernels(step) if device == "cuda" else []
    if not bool(torch.isfinite(step())):
        raise RuntimeError(f"{sizes.name}, {adapters.name}: the loss is not finite")
    on_all = adapters.targets == MATRICES
    targets = f"lora_targets={'all' if on_all else 'attention'}"
    flags = ("eager", f"lora_rank={adapters.rank}", targets)
    return {
        "row_id": f"{sizes.name}-b{batch}-s{length}-{adapters.name}",
        "source": f"adapter_steps.py, torch {torch.__version__}",
        "year": time.strftime("%Y"),
        "framework": "Transformers, PEFT",
        "model": sizes.name,
        "model_family": "llama",
        "n_layers": sizes.layers,
        "hidden": sizes.hidden,
        "n_heads": sizes.heads,
        "n_kv_heads": sizes.kv_heads,
        "head_dim": sizes.head,
        "ffn": sizes.ffn,
        "gated_ffn": 1,
        "vocab": sizes.vocab,
        "params_B": (count_of(model.parameters()) - count_of(trained)) / 1e9,
        "moe_experts": 0,
        "task": "LoRA",
        "seq_len": length,
        "micro_batch": batch,
        "global_batch": batch,
        "precision": "bf16",
        "precision_class": "16bit",
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        **dict.fromkeys(("n_gpus", "gpus_per_node", "tp", "pp", "dp", "cp", "ep"), 1),
        "sharding": "none",
        "recompute": "none",
        "flash_attn": "yes",
        "other_flags": ";".join(flags),
        "status": "ok",
        "norm_step_time_s": step_s,
        "norm_basis": "step_time",
        "memory_GB": reserved / 1e9,
        "memory_basis": "reserved",
        "forward_s": forward_s,
        "host_s": host_s,
        "kernels_s": sum(float(str(one["time_us"])) for one in names) / 1e6,
        "kernels": sum(int(str(one["count"])) for one in names),
    }


def count_of(weights: Iterable[torch.nn.Parameter]) -> int:
    return sum(weight.numel() for weight in weights)


def rows(seconds: float, device: str) -> Iterator[dict[str, object]]:
    """Rows of all runs until the time is spent; on a CPU, of a tiny one."""
    start = time.monotonic()
    for sizes, adapters, batch, length in RUNS if device == "cuda" else ((TINY, WIDE, 1, 8),):
        if time.monotonic() - start > seconds:
            print(f"{sizes.name}, {adapters.name}: no time left", flush=True)
            continue
        try:
            row = measured(sizes, adapters, batch, length, device)
        except Exception as error:  # one run that does not fit must not cost the others
            print(f"{sizes.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        print(
            f"{row['row_id']}: {row['norm_step_time_s']:.4f} s, forward {row['forward_s']:.4f}, "
            f"of 16 tokens {row['host_s']:.4f}, kernels {row['kernels_s']:.4f}",
            flush=True,
        )
        yield row
        if device == "cuda":
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--count", action="store_true", help="count kernels and bytes of a layer")
    parser.add_argument("--host", action="store_true", help="time the CPU alone")
    parser.add_argument("--out", type=Path, help="CSV to write of measured steps")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after these")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    if arguments.count:
        count()
    if arguments.host:
        host()
    if arguments.out is None:
        return
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows(arguments.seconds, arguments.device):
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
