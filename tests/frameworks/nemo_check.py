"""Passes jobs of NeMo through its own classes, its validation and Megatron-Core's checks.

Run by an interpreter that has ``nemo-toolkit`` and ``megatron-core`` with all that they need but
what needs accelerators. Reads a list of jobs as JSON, and writes one line for each: an empty one,
or what is refused.
"""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import Any

from answering import answer
from pretending import accelerators, have_transformer_engine, take_for_there

warnings.simplefilter("ignore")
#: Packages of logging, launching and quantisation that a configuration is checked without.
TAKEN_FOR_THERE = ("nv_one_logger", "leptonai", "modelopt")


def _prepare() -> None:
    """Megatron-Core renamed a class that one of NeMo's models imports by its old name."""
    take_for_there(TAKEN_FOR_THERE)
    import megatron.core.process_groups_config as groups

    if not hasattr(groups, "ModelCommProcessGroups"):
        groups.ModelCommProcessGroups = groups.ProcessGroupCollection
    from nemo.collections.nlp.modules.common import tokenizer_utils

    # The vocabulary of mock data would be fetched.
    tokenizer_utils.get_nmt_tokenizer = lambda *_, **__: types.SimpleNamespace(vocab_size=50257)
    have_transformer_engine()


def check(job: dict[str, Any]) -> None:
    """Run the script as far as ``pretrain``, then what it checks before the job starts."""
    import torch
    from nemo.collections import llm
    from nemo.collections.llm.api import _validate_config

    accelerators(*job["capability"], job["device"])
    words = job["words"]
    local = int(next(word.split("=")[1] for word in words if word.startswith("--nproc-per-node")))
    torch.cuda.device_count = lambda: local
    os.environ.update(job["environment"])
    os.environ.update(RANK="0", WORLD_SIZE=str(job["world"]), LOCAL_RANK="0")
    started = []
    llm.pretrain = lambda **what: started.append(what)
    sys.argv = words[words.index("pretrain.py") :]
    exec(compile(job["files"]["pretrain.py"], "pretrain.py", "exec"), {"__name__": "__main__"})
    (what,) = started
    model, trainer = what["model"], what["trainer"]
    _validate_config(model, what["data"], trainer, log=what["log"], optim=what["optim"])
    model.optim = what["optim"]
    # The degrees enter the model's configuration here, and Megatron-Core checks it once more.
    trainer.strategy.connect(model)
    assert trainer.num_devices * trainer.num_nodes == job["world"]


answer(check, _prepare)
