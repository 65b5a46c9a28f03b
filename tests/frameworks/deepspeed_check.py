"""Passes configurations of DeepSpeed through its own configuration classes.

Run by an interpreter that has ``deepspeed``. Reads a list of jobs as JSON, and writes one line for
each: an empty one, or what is refused.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from answering import answer

warnings.simplefilter("ignore")


class Ranks:
    """What DeepSpeed asks about the groups of a job."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas

    def get_data_parallel_world_size(self) -> int:
        """Replicas of the model."""
        return self.replicas


def check(job: dict[str, Any]) -> None:
    """Read the configuration as `deepspeed.initialize` does; no key may be unknown."""
    from deepspeed.runtime import config
    from deepspeed.runtime.tensor_parallel import config as tensor_parallel

    config.dist.get_rank = lambda: 0
    table = json.loads(job["files"]["ds_config.json"])
    degrees = table.get("tensor_parallel", {}).get("autotp_size", 1)
    replicas = job["world"] // (degrees * table.get("sequence_parallel_size", 1))
    read = config.DeepSpeedConfig(table, mpu=Ranks(replicas))
    assert read.train_batch_size == table["train_batch_size"]
    assert read.gradient_accumulation_steps == table["gradient_accumulation_steps"]
    assert read.zero_optimization_stage == table["zero_optimization"]["stage"]
    _check_optimizer(read)
    assert tensor_parallel.get_tensor_parallel_config(table).autotp_size in (0, degrees)


def _check_optimizer(read: Any) -> None:
    """What the engine asks: a name of its own or of PyTorch, and ZeRO only what it was told."""
    import torch
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS

    name, stage = read.optimizer_name, read.zero_optimization_stage
    if name is not None and name not in DEEPSPEED_OPTIMIZERS:
        assert hasattr(torch.optim, name), f"{name} is not a supported DeepSpeed Optimizer"
        assert stage == 0 or read.zero_allow_untested_optimizer, "untested ZeRO optimizer"
    if name == "muon" and stage == 3:
        assert not read.zero_config.reduce_scatter, (
            "Muon and reduce scatter cannot be used together"
        )


answer(check)
