"""Settings of Megatron-Bridge: overrides of a configuration, and the script that takes them.

Names are those of its ``ConfigContainer`` (NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/
training/config.py), whose parts are Megatron-Core's configurations.
"""

from __future__ import annotations

from typing import Final

from scalemodel.interop.settings import megatron_core
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.megatron_core import Setting
from scalemodel.interop.settings.question import Job

_FILE: Final = "pretrain.py"
#: Where the sections of the core's settings lie.
_PATH: Final = {
    "model": "model",
    "parallel": "model",
    "train": "train",
    "ddp": "ddp",
    "optimizer": "optimizer",
    "dist": "dist",
    "precision": "mixed_precision",
    "overlap": "comm_overlap",
}
#: Its model takes the length of a sequence alone (models/gpt_provider.py).
_LEFT_OUT: Final = ("max_position_embeddings",)
#: Settings that belong to the model whatever their section says.
_OF_MODEL: Final = ("use_megatron_fsdp",)
_RUN: Final = (
    *("train.train_iters=1000", "optimizer.lr=1e-4", "optimizer.min_lr=1e-5"),
    *("scheduler.lr_warmup_iters=100", "scheduler.lr_decay_iters=1000"),
    *("validation.eval_iters=0", "logger.log_interval=1"),
)
_SCRIPT: Final = '''\
"""Starts a job of Megatron-Bridge; every word of the command line overrides a setting."""

import sys

import torch
import torch.nn.functional as F
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig

from megatron.bridge.models.{module} import {provider}
from megatron.bridge.training.comm_overlap import CommOverlapConfig
from megatron.bridge.training.config import (
    CheckpointConfig,
    ConfigContainer,
    LoggerConfig,
    MockGPTDatasetConfig,
    RNGConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import MixedPrecisionConfig
from megatron.bridge.training.pretrain import pretrain
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

config = ConfigContainer(
    model={provider}(activation_func={activation}),
    train=TrainingConfig(),
    optimizer=OptimizerConfig(optimizer="adam", clip_grad=1.0),
    scheduler=SchedulerConfig(lr_decay_style="cosine"),
    ddp=DistributedDataParallelConfig(average_in_collective=True),
    # Set: the dataset and the tokenizer of your run; this one is mock data.
    dataset=MockGPTDatasetConfig(
        random_seed=1234,
        reset_attention_mask=False,
        reset_position_ids=False,
        eod_mask_loss=False,
        seq_length={sequence},
        num_dataset_builder_threads=1,
        data_sharding=True,
        dataloader_type="single",
        num_workers=1,
    ),
    tokenizer=TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size={vocab}),
    checkpoint=CheckpointConfig(),
    logger=LoggerConfig(),
    rng=RNGConfig(seed=1234),
    mixed_precision=MixedPrecisionConfig(params_dtype={dtype}, pipeline_dtype={dtype}),
    comm_overlap=CommOverlapConfig(tp_comm_overlap=False),
)
config = process_config_with_overrides(config, cli_overrides=sys.argv[1:])
pretrain(config=config, forward_step_func=forward_step)
'''


def hydra(value: object) -> str:
    """A value as overrides take it.

    Examples
    --------
    >>> hydra(True), hydra(0.0), hydra(["a", "b"]), hydra("Et|tL")
    ('true', '0.0', '[a,b]', '"Et|tL"')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(hydra, value)) + "]"
    text = str(value)
    return text if text.replace("_", "").replace(".", "").isalnum() else f'"{text}"'


def _words(setting: Setting) -> list[str]:
    name, value = setting.name, setting.value
    words = [f"{_PATH[setting.section]}.{name}={hydra(value)}"]
    if name == "window_size":
        words = [f"model.window_size=[{value}]"]
    elif name in ("overlap_grad_reduce", "overlap_param_gather"):
        # The setup of overlaps decides, where there is one: comm_overlap.py.
        words += [f"comm_overlap.{name}={hydra(value)}"]
    elif name == "overlap_moe_expert_parallel_comm":
        words = [f"model.{name}={hydra(value)}"]
    elif name == "use_distributed_optimizer":
        words += [f"optimizer.{name}={hydra(value)}"]
    elif name == "use_megatron_fsdp":
        words += [f"dist.{name}={hydra(value)}"]
    elif name == "grad_reduce_in_fp32":
        words += [f"ddp.{name}={hydra(value)}"]
    return words


def write(job: Job) -> Launch:
    """Overrides of a configuration, and the script that takes them."""
    notes: list[str] = []
    shape = job.model.shape
    settings = megatron_core.settings_of(job, notes)
    latent = bool(shape.kv_lora_rank)
    dtype = {"fp32": "torch.float32", "fp16": "torch.float16"}.get(job.precision, "torch.bfloat16")
    script = _SCRIPT.format(
        module="mla_provider" if latent else "gpt_provider",
        provider="MLAModelProvider" if latent else "GPTModelProvider",
        activation="F.silu" if shape.gated else "F.gelu",
        sequence=int(job.task.sequence),
        vocab=int(shape.vocab) - 1,
        dtype=dtype,
    )
    kept = [setting for setting in settings if setting.name not in _LEFT_OUT]
    words = [word for setting in kept for word in _words(setting)]
    return Launch(
        framework="megatron_bridge",
        command=job.torchrun(_FILE, *words),
        environment=megatron_core.environment(job),
        files={_FILE: script},
        notes=tuple(notes),
        run=_RUN,
    )
