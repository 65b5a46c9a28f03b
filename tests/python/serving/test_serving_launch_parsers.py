"""Commands of engines, read by the parsers of the engines themselves.

An engine rarely lives beside this package: ``SCALEMODEL_ENGINES_PYTHON`` names an interpreter that
has it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden/launch"
PYTHON = os.environ.get("SCALEMODEL_ENGINES_PYTHON", sys.executable)

VLLM = """
import importlib, json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
for name in ("launchers", "openai"):
    try:
        module = importlib.import_module(f"vllm.entrypoints.{name}.cli_args")
    except ImportError:
        continue
    parser = module.make_arg_parser(FlexibleArgumentParser())
    break
for words in json.load(sys.stdin):
    found = parser.parse_args(words)
    print("PARSED", json.dumps([found.model_tag, found.tensor_parallel_size,
        found.data_parallel_size, found.max_num_seqs, found.max_num_batched_tokens,
        found.max_model_len, found.kv_cache_dtype, found.enable_prefix_caching]))
"""
SGLANG = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for words in json.load(sys.stdin):
    found = parser.parse_args(words)
    print("PARSED", json.dumps([found.model_path, found.tp_size, found.dp_size,
        found.max_running_requests, found.chunked_prefill_size, found.context_length,
        found.kv_cache_dtype, not found.disable_radix_cache]))
"""


def commands(start: list[str]) -> list[list[str]]:
    """Words behind the program in every golden script that starts it."""
    found = []
    for path in sorted(GOLDEN.glob("*.sh")):
        for line in path.read_text(encoding="utf-8").splitlines():
            words = shlex.split(line, comments=True)
            for at in range(len(words)):
                if words[at : at + len(start)] == start:
                    found.append(words[at + len(start) :])
    return found


def parsed(module: str, program: str, found: list[list[str]]) -> list[list[object]]:
    """What the parser of an engine makes of commands."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment.pop("PYTHONPATH", None)
    known = subprocess.run(
        [PYTHON, "-c", f"import importlib.util as u; assert u.find_spec({module!r})"],
        check=False,
        capture_output=True,
        env=environment,
    )
    if known.returncode:
        pytest.skip(f"{module} is not installed for {Path(PYTHON).name}")
    run = subprocess.run(
        [PYTHON, "-c", program],
        check=False,
        input=json.dumps(found),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stdout.splitlines() if line.startswith("PARSED ")]
    return [json.loads(line.removeprefix("PARSED ")) for line in lines]


def test_vllm_parses_its_commands() -> None:
    found = commands(["vllm", "serve"])
    assert len(found) >= 7
    read = parsed("vllm", VLLM, found)
    assert ["meta-llama/Meta-Llama-3-70B-Instruct", 4, 1, 256, 8192, 2500, "fp8", False] in read
    assert ["deepseek-ai/DeepSeek-R1-0528", 1, 16, 128, 2048, 2500, "fp8", False] in read
    assert len(read) == len(found)


def test_sglang_parses_its_commands() -> None:
    found = commands(["-m", "sglang.launch_server"])
    assert len(found) >= 5
    read = parsed("sglang", SGLANG, found)
    llama = ["meta-llama/Meta-Llama-3-70B-Instruct", 4, 1, 256, 8192, 2500, "fp8_e4m3", False]
    assert llama in read
    assert len(read) == len(found)
