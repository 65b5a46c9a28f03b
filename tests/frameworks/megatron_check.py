"""Passes commands of Megatron-LM through its own argument checks.

Run by an interpreter that has ``megatron-core`` with its ``megatron.training`` (0.17 and later).
Reads a list of commands as JSON, and writes one line for each: an empty one, or what is refused.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import types
import typing
import warnings
from typing import Any

import typing_extensions
from answering import answer
from pretending import have_transformer_engine

warnings.simplefilter("ignore")
if not hasattr(typing, "override"):  # Python 3.11
    typing.override = typing_extensions.override


def _pretend(command: dict[str, Any]) -> None:
    """What this machine lacks is taken for there: the accelerators, and Transformer Engine."""
    import torch

    capability = tuple(command["capability"])
    device = types.SimpleNamespace(major=capability[0], minor=capability[1])
    torch.cuda.get_device_capability = lambda *_: capability
    torch.cuda.get_device_properties = lambda *_: device
    os.environ.update(command["environment"])
    os.environ.update(RANK="0", WORLD_SIZE=str(command["world"]), LOCAL_RANK="0")


def check(command: dict[str, Any]) -> None:
    """Parse, validate and build the configuration, as ``pretrain_gpt.py`` does."""
    from megatron.training import arguments

    _pretend(command)
    words = command["words"]
    sys.argv = words[words.index("pretrain_gpt.py") :]
    args = arguments.parse_args()
    arguments.validate_args(args)
    arguments.core_transformer_config_from_args(args)
    _check_optimizer(args)


def _check_optimizer(args: Any) -> None:
    """What ``get_megatron_optimizer`` asks before it makes one: it needs the model."""
    from megatron.core.optimizer import OptimizerConfig

    names = [field.name for field in dataclasses.fields(OptimizerConfig)]
    config = OptimizerConfig(**{name: getattr(args, name) for name in names if hasattr(args, name)})
    if config.optimizer not in ("adam", "sgd"):
        assert not config.fp16, "emerging optimizer with fp16"
        # Parameters that are no matrices lie in buffers of the scalar optimizer of Muon.
        assert config.optimizer == "muon" or not args.use_layer_wise_distributed_optimizer


answer(check, have_transformer_engine)
