"""Settings of NeMo 2: a script that calls ``llm.pretrain``.

Names are those of ``nemo.collections.llm`` and ``nemo.lightning`` (NVIDIA/NeMo, 2.0 to 2.5), whose
model and strategy take Megatron-Core's settings.
"""

from __future__ import annotations

import json
from typing import Final

from scalemodel.interop.settings import megatron_core
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.megatron_core import Setting
from scalemodel.interop.settings.question import Job

_FILE: Final = "pretrain.py"
#: Settings that `MegatronTokenDropCallback` and `MegatronCommOverlapCallback` hold.
_DROP: Final = ("moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity")
_OVERLAP: Final = ("tp_comm_overlap", "overlap_p2p_comm")
#: Settings that `MegatronStrategy` takes; all others of parallelism belong to the model.
_STRATEGY: Final = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout"),
    *("expert_model_parallel_size", "expert_tensor_parallel_size", "sequence_parallel"),
    "use_tp_pp_dp_mapping",
)
#: NeMo takes these from its data module, its tokenizer or its own defaults.
_LEFT_OUT: Final = ("max_position_embeddings", "cross_entropy_fusion_impl")
_SCRIPT: Final = '''\
"""Starts a job of NeMo."""

import torch
import torch.nn.functional as F
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.transformer.enums import AttnBackend

from nemo import lightning as nl
from nemo.collections import llm
from nemo.lightning.pytorch.callbacks.megatron_comm_overlap import MegatronCommOverlapCallback
from nemo.lightning.pytorch.callbacks.moe_token_drop import MegatronTokenDropCallback
from nemo.lightning.pytorch.plugins.mixed_precision import MegatronMixedPrecision

# {begin}
MAX_STEPS = 1000
LEARNING_RATE = 1e-4
MIN_LEARNING_RATE = 1e-5
WARMUP_STEPS = 100
LOG_DIR = "results"


def data():
    """The data of the run; this one is mock data."""
    return llm.MockDataModule(
        seq_length={sequence}, micro_batch_size={micro_batch}, global_batch_size={global_batch}
    )


# {end}

config = llm.{config}(
{model})
strategy = nl.MegatronStrategy(
{strategy}    pipeline_dtype={dtype},
    ddp=DistributedDataParallelConfig(
{ddp}    ),
)
trainer = nl.Trainer(
    devices={devices},
    num_nodes={nodes},
    max_steps=MAX_STEPS,
    accelerator="gpu",
    strategy=strategy,
    plugins=MegatronMixedPrecision(
{precision}        params_dtype={dtype},
    ),
    callbacks=[
{callbacks}    ],
    log_every_n_steps=1,
    limit_val_batches=0,
)
llm.pretrain(
    model=llm.{model_class}(config),
    data=data(),
    trainer=trainer,
    log=nl.NeMoLogger(log_dir=LOG_DIR),
    optim=nl.MegatronOptimizerModule(
        config=OptimizerConfig(
            lr=LEARNING_RATE,
{optimizer}        ),
        lr_scheduler=nl.lr_scheduler.CosineAnnealingScheduler(
            max_steps=MAX_STEPS, warmup_steps=WARMUP_STEPS, min_lr=MIN_LEARNING_RATE
        ),
    ),
)
'''
_BEGIN: Final = "---- Settings of the run: none was predicted; set every one for yours. ----"
_END: Final = "---- End of the settings of the run. ----"


def _lines(settings: list[Setting], indent: int) -> str:
    margin = " " * indent
    return "".join(f"{margin}{one.name}={_literal(one)},\n" for one in settings)


def _literal(setting: Setting) -> str:
    if setting.name == "attention_backend":
        return f"AttnBackend.{setting.value}"
    if setting.name == "window_size":
        return f"({setting.value})"
    return json.dumps(setting.value) if isinstance(setting.value, str) else repr(setting.value)


def _sorted(settings: list[Setting]) -> dict[str, list[Setting]]:
    """Settings by the call of the script that takes them."""
    calls: dict[str, list[Setting]] = {
        name: []
        for name in ("model", "strategy", "ddp", "optimizer", "precision", "overlap", "drop")
    }
    for one in settings:
        if one.name in _LEFT_OUT or one.section == "train":
            continue
        if one.name in _STRATEGY:
            call = "strategy"
        elif one.name in _DROP:
            call = "drop"
        elif one.name in _OVERLAP:
            call = "overlap"
        else:
            call = {"parallel": "model", "overlap": "model"}.get(one.section, one.section)
        calls[call].append(one)
        if one.name in ("overlap_grad_reduce", "overlap_param_gather"):
            calls["overlap"].append(one)
        elif one.name == "use_distributed_optimizer":
            calls["optimizer"].append(one)
        elif one.name == "grad_reduce_in_fp32":
            calls["ddp"].append(one)
    return calls


def _precision(settings: list[Setting], precision: str) -> list[Setting]:
    sixteen = {"fp16": "16-mixed", "fp32": "32"}.get(precision, "bf16-mixed")
    kept = [one for one in settings if one.name not in ("bf16", "fp16")]
    return [Setting("precision", "precision", sixteen), *kept]


def write(job: Job) -> Launch:
    """A script that builds the model, the strategy and the trainer, and starts them."""
    notes: list[str] = []
    shape, plan = job.model.shape, job.strategy
    calls = _sorted(megatron_core.settings_of(job, notes))
    latent = bool(shape.kv_lora_rank)
    activation = "F.silu" if shape.gated else "F.gelu"
    callbacks = f"        MegatronCommOverlapCallback(\n{_lines(calls['overlap'], 12)}        ),\n"
    if calls["drop"]:
        callbacks += f"        MegatronTokenDropCallback(\n{_lines(calls['drop'], 12)}        ),\n"
    script = _SCRIPT.format(
        begin=_BEGIN,
        end=_END,
        sequence=int(job.task.sequence),
        micro_batch=int(plan.micro_batch),
        global_batch=int(job.task.global_batch),
        config="DeepSeekV3Config" if latent else "GPTConfig",
        model_class="DeepSeekModel" if latent else "GPTModel",
        model=_lines(calls["model"], 4) + f"    activation_func={activation},\n",
        strategy=_lines(calls["strategy"], 4),
        ddp=_lines(calls["ddp"], 8),
        devices=job.processes,
        nodes=job.nodes,
        precision=_lines(_precision(calls["precision"], job.precision), 8),
        optimizer=_lines(calls["optimizer"], 12),
        callbacks=callbacks,
        dtype={"fp32": "torch.float32", "fp16": "torch.float16"}.get(
            job.precision, "torch.bfloat16"
        ),
    )
    return Launch(
        framework="nemo",
        command=job.torchrun(_FILE),
        environment=megatron_core.environment(job),
        files={_FILE: script},
        notes=tuple(notes),
    )
