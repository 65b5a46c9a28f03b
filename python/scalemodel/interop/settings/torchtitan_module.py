"""The module that gives torchtitan 0.3 the settings of a TOML file.

torchtitan 0.2 reads the file itself (``--job.config_file``); 0.3 calls a function of a module
(``--module`` and ``--config``), and its configuration holds the model and its converters.
"""

from __future__ import annotations

from typing import Final

#: Name of the module, and of its function.
NAME: Final = "torchtitan_job"
FUNCTION: Final = "job"

MODULE: Final = '''\
"""The job of torchtitan.toml for torchtitan 0.3; 0.2 takes --job.config_file=torchtitan.toml."""

import sys
from importlib import import_module
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip install tomli
    import tomli as tomllib

from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.quantization import (
    Float8GroupedExpertsConverter,
    Float8LinearConverter,
)
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.trainer import Trainer

# ---- Settings of the run: none was predicted; set every one for yours. ----
STEPS = 1000
DATASET = "c4_test"
LEARNING_RATE = 1e-4
WARMUP_STEPS = 100
TOKENIZER = "./assets/hf"
OUTPUTS = "./outputs"
# ---- End of the settings of the run. ----

TABLE = tomllib.loads(Path(__file__).with_name("torchtitan.toml").read_text(encoding="utf-8"))


def model():
    """The model that torchtitan ships, with its converters and its exchange of tokens."""
    named, mesh = TABLE["model"], dict(TABLE["parallelism"])
    compiled = "model" in TABLE["compile"]["components"]
    kinds = {
        "quantize.linear.float8": Float8LinearConverter.Config(
            filter_fqns=["lm_head", "router.gate"], model_compile_enabled=compiled
        ),
        "quantize.grouped_mm.float8": Float8GroupedExpertsConverter.Config(
            model_compile_enabled=compiled
        ),
    }
    options = {"converters": [kinds[name] for name in named.get("converters", [])]}
    if "expert_parallel_comm_backend" in mesh:
        options["moe_comm_backend"] = mesh["expert_parallel_comm_backend"]
    registry = import_module("torchtitan.models." + named["name"])
    return registry.model_registry(named["flavor"], **options)


def parallelism():
    """Degrees and stages, by the names of 0.3."""
    mesh = dict(TABLE["parallelism"])
    # Experts have tensor ranks where they have no ranks of their own; keys are gathered.
    for gone in (
        "expert_tensor_parallel_degree",
        "expert_parallel_comm_backend",
        "enable_async_tensor_parallel",
        "context_parallel_rotate_method",
    ):
        mesh.pop(gone, None)
    parts = mesh.pop("module_fqns_per_model_part", None)
    if parts is not None:
        parts = [["lm_head" if name == "output" else name for name in part] for part in parts]
    return ParallelismConfig(module_fqns_per_model_part=parts, **mesh)


def job():
    """What --config names."""
    spec = model()
    rings = TABLE["parallelism"]["enable_async_tensor_parallel"]
    kept = {"none": None, "selective": SelectiveAC.Config(), "full": FullAC.Config()}
    return Trainer.Config(
        model_spec=spec,
        hf_assets_path=TOKENIZER,
        dump_folder=OUTPUTS,
        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),
        optimizer=default_adamw(lr=LEARNING_RATE),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=WARMUP_STEPS),
        dataloader=HuggingFaceTextDataLoader.Config(dataset=DATASET),
        training=TrainingConfig(steps=STEPS, disable_cuda_graphs=True, **TABLE["training"]),
        parallelism=parallelism(),
        activation_checkpoint=kept[TABLE["activation_checkpoint"]["mode"]],
        compile=CompileConfig(enable_async_tensor_parallel=rings, **TABLE["compile"]),
    )
'''
