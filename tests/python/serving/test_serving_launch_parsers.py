"""Commands of engines, read by the parsers of the engines themselves.

See `frameworks.tools` for where the engines are looked for.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import scalemodel as sm
from frameworks import tools
from frameworks.serving_draws import plans

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOLDEN = Path(__file__).parents[2] / "golden/launch"

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


def starts(script: str, start: list[str]) -> list[list[str]]:
    """Words behind the program wherever a script starts it."""
    found = []
    for line in script.splitlines():
        words = shlex.split(line, comments=True)
        for at in range(len(words)):
            if words[at : at + len(start)] == start:
                found.append(words[at + len(start) :])
    return found


def commands(start: list[str]) -> list[list[str]]:
    """Words behind the program in every golden script that starts it."""
    scripts = [path.read_text(encoding="utf-8") for path in sorted(GOLDEN.glob("*.sh"))]
    return [words for script in scripts for words in starts(script, start)]


def random_commands(engine: str, start: list[str]) -> list[list[str]]:
    """One command of each of many plans at random."""
    found = []
    for plan in plans(tools.drawn(250), [engine], first=100_000 * tools.seed(1)):
        found += starts(sm.launch_serving(plan).script(), start)[:1]
    assert len(found) == tools.drawn(250)
    return found


def parsed(module: str, program: str, found: list[list[str]]) -> list[list[object]]:
    """What the parser of an engine makes of commands."""
    run = subprocess.run(
        [tools.interpreter_with(module), "-c", program],
        check=False,
        input=json.dumps(found),
        capture_output=True,
        text=True,
        env=tools.environment(),
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "module, program, engine, start",
    [
        ("vllm", VLLM, "vllm_v1", ["vllm", "serve"]),
        ("sglang", SGLANG, "sglang_2025", ["-m", "sglang.launch_server"]),
    ],
)
def test_engines_parse_commands_of_plans_at_random(
    module: str, program: str, engine: str, start: list[str]
) -> None:
    tools.interpreter_with(module)
    found = random_commands(engine, start)
    assert len(parsed(module, program, found)) == len(found)


def check_keys(count: int, first: int) -> None:
    """Keys of the options files of plans at random are published ones, at every level."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    text = (GOLDEN / "options.toml").read_text(encoding="utf-8")
    known = {
        name: set(words.split())
        for name, words in tomllib.loads(text)["tensorrt_llm"]["keys"].items()
    }
    engines = ["tensorrt_llm_2025", "tensorrt_llm_pytorch_2025", "tensorrt_llm_pytorch_2026"]
    for plan in plans(count, engines, first=first):
        for content in sm.launch_serving(plan).files.values():
            table = yaml.safe_load(content)
            assert set(table) <= known["top"]
            for name, inner in table.items():
                if isinstance(inner, dict):
                    assert set(inner) <= known[name]


def test_keys_of_tensorrt_llm_are_published() -> None:
    check_keys(30, 0)


@pytest.mark.slow
def test_keys_of_tensorrt_llm_are_published_for_many_plans() -> None:
    check_keys(tools.drawn(250), 100_000 * tools.seed(1))
