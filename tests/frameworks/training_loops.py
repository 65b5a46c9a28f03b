"""Small training runs of real frameworks on a processor, as an interpreter that has them runs them.

    python training_loops.py NAME FOLDER                  hugging_face, lightning
    torchrun --nproc-per-node 2 training_loops.py ...     the others

Each trains a transformer of two layers for a few dozen steps with the monitor of this package in
its loop, and writes into FOLDER what the framework logs, a trace of PyTorch's profiler and
``monitor.json``. Weights are random and the processor is shared: the times say nothing of a
machine. `scalemodel` must be importable.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

import scalemodel as sm

HIDDEN, LAYERS, VOCAB, SEQUENCE, BATCH, STEPS = 64, 2, 256, 64, 4, 24


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:2], 4, HIDDEN // 4)
        parts = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (part.view(shape).transpose(1, 2) for part in parts)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """The whole model; its forward pass is its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def tokens_of(rank: int = 0, rows: int = BATCH * STEPS * 2) -> torch.Tensor:
    """Random sequences, others on every rank."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, VOCAB, (rows, SEQUENCE), generator=generator)


def monitored(ranks: int, batch: int = BATCH, **knobs: Any) -> sm.StepTimeMonitor:
    """A monitor of the job; it is predicted on an accelerator, so the processor falls behind."""
    shape = {"layers": LAYERS, "hidden": HIDDEN, "heads": 4, "ffn": 4 * HIDDEN, "vocab": VOCAB}
    est = sm.estimate(
        {"name": "tiny", "architecture": {**shape, "head_dim": HIDDEN // 4, "gated": False}},
        sm.cluster("dgx_h100", accelerators=ranks),
        sm.Training(global_batch=batch * ranks // knobs.get("tp", 1), sequence=SEQUENCE),
        sm.Strategy(micro_batch=BATCH, **knobs),
    )
    return sm.StepTimeMonitor(est, window=10, warm_up=3, on_slow=WARNINGS.append)


WARNINGS: list[str] = []


def profiler(path: Path) -> Any:
    """A profiler that records one step in the middle of the run."""
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=STEPS // 2, warmup=1, active=1, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
    )


def report(folder: Path, monitor: sm.StepTimeMonitor, *packages: str) -> None:
    """What the monitor saw, and the versions of what ran."""
    told = {
        "versions": {name: version(name) for name in ("torch", *packages)},
        "steps": monitor.steps,
        "median_s": monitor.median_s,
        "warnings": len(WARNINGS),
        "report": monitor.report(),
    }
    (folder / "monitor.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def hugging_face(folder: Path) -> None:
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=4 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        vocab_size=VOCAB,
        max_position_embeddings=SEQUENCE,
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        logging_steps=2,
        save_strategy="no",
        use_cpu=True,
        report_to=["tensorboard"],
        include_num_input_tokens_seen="all",
        disable_tqdm=True,
    )
    monitor = monitored(1, 2 * BATCH)
    found = profiler(folder / "trace.json")

    class Stepping(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            found.step()

    rows = [{"input_ids": row, "labels": row} for row in tokens_of(rows=2 * BATCH * STEPS)]
    with found:
        trainer = Trainer(
            model=LlamaForCausalLM(config),
            args=arguments,
            train_dataset=rows,
            callbacks=[monitor.hugging_face(), Stepping()],
        )
        trainer.train()
    trainer.save_state()
    report(folder, monitor, "transformers")


def lightning(folder: Path) -> None:
    import lightning as L
    from lightning.pytorch.callbacks import ThroughputMonitor
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
    from lightning.pytorch.profilers import PyTorchProfiler

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Gpt()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss = self.model(batch)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    monitor = monitored(1)
    events = TensorBoardLogger(folder, name="", version="events")
    monitor.log_to(events)
    throughput = ThroughputMonitor(
        batch_size_fn=lambda batch: batch.shape[0], length_fn=lambda batch: batch.numel()
    )
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=STEPS,
        log_every_n_steps=2,
        logger=[CSVLogger(folder, name="", version="csv"), events],
        callbacks=[throughput, monitor.lightning()],
        enable_progress_bar=False,
        enable_checkpointing=False,
        profiler=PyTorchProfiler(
            dirpath=folder,
            filename="trace",
            schedule=torch.profiler.schedule(wait=5, warmup=1, active=1, repeat=1),
            activities=[torch.profiler.ProfilerActivity.CPU],
            record_shapes=True,
        ),
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(tokens_of(), batch_size=BATCH))
    report(folder, monitor, "lightning")


def _loop(folder: Path, name: str, monitor: sm.StepTimeMonitor, step: Any, line: Any) -> None:
    """A loop of one's own: every step timed by the monitor, profiled, and logged on rank 0."""
    rank = torch.distributed.get_rank()
    rows = tokens_of(rank).split(BATCH)
    log = (folder / name).open("w", encoding="utf-8") if rank == 0 else None
    with profiler(folder / f"trace_rank{rank}.json") as found, log or contextlib.nullcontext():
        for number in range(1, STEPS + 1):
            begin = time.perf_counter()
            with monitor.timed():
                loss = step(rows[number])
            if log:
                log.write(line(number, time.perf_counter() - begin, float(loss.detach())) + "\n")
            found.step()


def _json(number: int, seconds: float, loss: float) -> str:
    tokens = BATCH * SEQUENCE * torch.distributed.get_world_size()
    told = {"step": number, "loss": round(loss, 4), "step_time_s": round(seconds, 6)}
    return json.dumps({**told, "tokens_per_s": round(tokens / seconds, 1)})


def fsdp2(folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size()
    mesh, model = init_device_mesh("cpu", (ranks,)), Gpt()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        return loss

    monitor = monitored(ranks, sharding="zero3")
    _loop(folder, "steps.jsonl", monitor, step, _json)
    _end(folder, monitor)


def _end(folder: Path, monitor: sm.StepTimeMonitor, *packages: str) -> None:
    if torch.distributed.get_rank() == 0:
        report(folder, monitor, *packages)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def accelerate(folder: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(log_with="tensorboard", project_dir=str(folder))
    accelerator.init_trackers("events")
    model = Gpt()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3))
    monitor = monitored(accelerator.num_processes).log_to(accelerator)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(tokens)
        accelerator.backward(loss)
        optimizer.step()
        return loss

    _loop(folder, "steps.jsonl", monitor, step, _json)
    if accelerator.is_main_process:
        report(folder, monitor, "accelerate")
    accelerator.end_training()  # ends the process group too


def megatron_core(folder: Path) -> None:
    # Two patches stand for what a processor has not: a device, and streams of random numbers there.
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.transformer_config import TransformerConfig

    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=ranks)
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        num_attention_heads=4,
        use_cpu_initialization=True,
        tensor_model_parallel_size=ranks,
        pipeline_dtype=torch.float32,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCAB,
        max_sequence_length=SEQUENCE,
        position_embedding_type="learned_absolute",
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    places = torch.arange(SEQUENCE)[None].expand(BATCH, -1)
    mask = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool), 1)
    same = tokens_of()[:BATCH]  # tensor ranks share their tokens

    def step(_: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(same, places, mask, labels=torch.roll(same, -1, 1)).mean()
        loss.backward()
        optimizer.step()
        return loss

    def line(number: int, seconds: float, loss: float) -> str:
        # What training_log of megatron.training prints, which megatron-core does not hold.
        return (
            f" iteration {number:8d}/{STEPS:8d} | consumed samples: {BATCH * number:12d} | elapsed "
            f"time per iteration (ms): {1e3 * seconds:.1f} | global batch size: {BATCH:5d} | "
            f"lm loss: {loss:.6E} |"
        )

    monitor = monitored(ranks, tp=ranks)
    _loop(folder, "train.log", monitor, step, line)
    _end(folder, monitor, "megatron-core")


def deepspeed(folder: Path) -> None:
    import deepspeed as ds
    from deepspeed.utils import logger

    ds.init_distributed("gloo")
    ranks = torch.distributed.get_world_size()
    if torch.distributed.get_rank() == 0:  # it prints rates at this level only
        handler = logging.FileHandler(folder / "train.log")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    model = Gpt()
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": 1,
        "steps_per_print": 1,
        "zero_optimization": {"stage": 1},
    }
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    engine, *_ = ds.initialize(model=model, optimizer=optimizer, config=config)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        loss = engine(tokens)
        engine.backward(loss)
        engine.step()
        return loss

    monitor = monitored(ranks, sharding="zero1")
    _loop(folder, "steps.jsonl", monitor, step, _json)
    _end(folder, monitor, "deepspeed")


LOOPS = (hugging_face, lightning, fsdp2, accelerate, megatron_core, deepspeed)

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    next(loop for loop in LOOPS if loop.__name__ == sys.argv[1])(target)
