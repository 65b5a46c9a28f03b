"""Passes jobs of Megatron-Bridge through its own configuration and its checks.

Run by an interpreter that has ``megatron-bridge`` and ``megatron-core`` with all that they need but
what needs accelerators. Reads a list of jobs as JSON, and writes one line for each: an empty one,
or what is refused.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from answering import answer
from pretending import accelerators, have_transformer_engine, take_for_there

warnings.simplefilter("ignore")
#: Packages of kernels, data and recovery that a configuration is checked without.
TAKEN_FOR_THERE = (
    *("transformer_engine", "datasets", "megatron.energon", "modelopt"),
    "nvidia_resiliency_ext",
)


def _pretend(job: dict[str, Any]) -> None:
    """The accelerators of the job, and as many processes."""
    from megatron.bridge.training import config
    from megatron.bridge.utils import common_utils

    accelerators(*job["capability"], job["device"])
    for module in (config, common_utils):
        module.get_world_size_safe = lambda: job["world"]


def _prepare() -> None:
    """Modules that ask for Transformer Engine by themselves are read without it."""
    import megatron.core.transformer
    import megatron.training.arguments  # noqa: F401

    take_for_there(TAKEN_FOR_THERE)
    from megatron.bridge.training import gpt_step, pretrain  # noqa: F401

    have_transformer_engine()


def check(job: dict[str, Any]) -> None:
    """Run the script as far as ``pretrain``, which checks the configuration before it starts."""
    import os

    from megatron.bridge.training import config, pretrain

    _pretend(job)
    os.environ.update(job["environment"])
    os.environ.update(RANK="0", WORLD_SIZE=str(job["world"]), LOCAL_RANK="0")
    checked = []

    def stop(config: Any, **_: Any) -> None:
        module.runtime_config_update(config)
        checked.append(config)

    module = config
    pretrain.pretrain = stop
    words = job["words"]
    sys.argv = words[words.index("pretrain.py") :]
    exec(compile(job["files"]["pretrain.py"], "pretrain.py", "exec"), {"__name__": "__main__"})
    (read,) = checked
    assert (
        read.train.global_batch_size % (read.train.micro_batch_size * read.data_parallel_size) == 0
    )


answer(check, _prepare)
