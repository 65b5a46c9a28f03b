"""Passes configurations of Hugging Face Accelerate through its own launcher and plugins.

Run by an interpreter that has ``accelerate`` (1.10 and later). Reads a list of jobs as JSON, and
writes one line for each: an empty one, or what is refused.
"""

from __future__ import annotations

import os
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any

from answering import answer

warnings.simplefilter("ignore")


def _environment(job: dict[str, Any], path: Path) -> tuple[Any, dict[str, str]]:
    """What ``accelerate launch`` hands to the processes, and the options that it understood."""
    from accelerate.commands import launch
    from accelerate.utils import launch as variables

    variables.is_fp8_available = lambda: True  # Transformer Engine is taken for there
    variables.is_port_in_use = lambda *_: False
    words = job["words"][job["words"].index("launch") + 1 :]
    words = [f"--config_file={path}" if "config_file" in word else word for word in words]
    args = launch.launch_command_parser().parse_args(words)
    args, _, _ = launch._validate_launch_command(args)
    return args, variables.prepare_multi_gpu_env(args)


def check(job: dict[str, Any]) -> None:
    """Parse, validate and build the plugins, as ``Accelerator()`` does in every process."""
    from accelerate import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accelerate.yaml"
        path.write_text(job["files"]["accelerate.yaml"], encoding="utf-8")
        args, variables = _environment(job, path)
    assert int(args.num_processes) == job["world"]
    assert int(args.nproc_per_node) * int(args.num_machines) == job["world"]
    os.environ.update(variables)
    if args.use_fsdp:
        plugin = FullyShardedDataParallelPlugin()
        assert plugin.fsdp_version == 2
        assert plugin.reshard_after_forward in (True, False)
    mesh = ParallelismConfig()
    mesh._validate_accelerator(
        types.SimpleNamespace(
            multi_device=True,
            num_processes=job["world"],
            is_fsdp2=bool(args.use_fsdp),
            distributed_type="FSDP",
            is_main_process=False,
        )
    )


answer(check)
