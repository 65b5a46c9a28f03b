"""The mistakes most likely made, and what is answered.

``python tests/golden/mistakes.py`` writes the answers into ``mistakes.txt``, to be read one by one.

Each answer names the argument, what it was given, what would be legal, and what to do about it.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any

import scalemodel as sm
from scalemodel.cli import main

GOLDEN = Path(__file__).with_suffix(".txt")

#: What a reader has typed before.
BEFORE = """
cluster = sm.cluster("dgx_h100", nodes=8)
task = sm.Training(global_batch=64, sequence=4096)
est = sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=2))
chat = sm.Inference(input_tokens=1000, output_tokens=100)
mine = {"name": "mine", "accelerator": "h100_sxm_80"}
script = sm.launch(est, "megatron").script()
config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
          "num_attention_heads": 32, "intermediate_size": 11008}
def ask(**knobs): return sm.estimate("llama3_70b", cluster, task, sm.Strategy(**knobs)).message()
def shell(line):
    import shlex
    return main(shlex.split(line))
"""

MISTAKES = (
    # names
    'sm.model("lama3_70b")',
    'sm.cluster("dgx_h10")',
    'sm.cluster("my_cluster.toml")',
    'sm.estimate("llama3_8b", cluster, task, stack="nemo")',
    'sm.serve("llama3_8b", "dgx_h100", chat, engine="vlm")',
    'sm.list_catalog("model")',
    # counts and units
    'sm.cluster("dgx_h100", nodes=2, accelerators=8)',
    'sm.cluster("dgx_h100", nodes=0)',
    "sm.Training(global_batch=0, sequence=4096)",
    "sm.Training(global_batch=1024)",
    'sm.Training(global_batch=1024, sequence="8k")',
    'sm.Training(global_batch=1024, sequence=8192, precision="bfloat16")',
    "sm.Strategy(tp=1.5)",
    "sm.Strategy(tensor_parallel=8)",
    'sm.Strategy(sharding="zero4")',
    "sm.Strategy(recompute=True)",
    'sm.cluster({**mine, "fabric": {"bandwidth": "400 GHz"}})',
    'sm.codesign("llama3_8b", cluster, task, vary={"fabric.bandwith": [1, 2]})',
    'sm.codesign("llama3_8b", cluster, task, vary={"fabric.bandwidth": ["800 Gbit"]})',
    # strategies that cannot run
    "ask(tp=12)",
    "ask(tp=8, dp=16)",
    "ask(tp=8, pp=3)",
    "ask(tp=8, pp=81)",
    "ask(tp=8, micro_batch=48)",
    "ask(tp=8, ep=4)",
    'ask(tp=8, schedule="dualpipe", pp=2)',
    "ask()",
    "ask(tp=8, vpp=4)",
    # searches
    'sm.Space(tp=[2, 4], where="tp * pp < gpus")',
    'sm.search("llama3_8b", cluster, task, objective="mfu")',
    'sm.search("llama3_8b", cluster, task, constraints="memory < 80 GB")',
    'sm.search("llama3_8b", cluster, task, {"tensor": [1, 2]})',
    'sm.pareto(sm.sweep("llama3_8b", cluster, task, {"tp": 2}), minimize=["step_time_s", "cost"])',
    # configurations and files
    'sm.model({**config, "hidden_sise": 4096, "hidden_size": None})',
    'sm.model({**config, "model_type": "lama"})',
    'sm.model({key: value for key, value in config.items() if key != "vocab_size"})',
    'sm.read_settings("megatron", script.replace("--seq-length 4096", "--seq-length 4k"))',
    'sm.read_settings("megatron-lm", "train.sh")',
    'sm.validate("training", "no_such_file.csv")',
    'sm.read_kineto("no_such_trace.json")',
    # money and time
    "sm.training_run(est)",
    'sm.training_run(est, tokens=1e12, grid="germny")',
    "sm.Inference(input_tokens=0, output_tokens=100)",
    'est.explain("memroy")',
    # the command line
    'shell("estimate llama3_8b --cluster dgx_h100 --global-batch 64")',
    'shell("estimate llama3_8b --cluster dgx_h100 --global-batch 64 --sequence 4096 --tp eight")',
    'shell("search llama3_8b --cluster dgx_h100 --global-batch 64 --sequence 4096 --nodes 2.5")',
    'shell("sweep llama3_8b --cluster dgx_h100 --global-batch 64 --sequence 4096 --out rows.xls")',
)


def answer(line: str, names: dict[str, Any]) -> str:
    """What an error, a verdict or the command line says; predicted amounts are ``#``."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            value = eval(line, names)
        except sm.ScaleModelError as error:
            return f"ScaleModelError: {error}"
        except TypeError as error:  # an argument that is not there, or missing
            return f"TypeError: {error}"
    # Predicted amounts move with every fit; what is reviewed are the words around them.
    return re.sub(r"\d[\d.]*(?= (s|ms|%|[KMGT]iB))", "#", said.getvalue().strip() or str(value))


def text() -> str:
    """The whole file."""
    names: dict[str, Any] = {"sm": sm, "main": main}
    blocks = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(BEFORE, names)
        for line in MISTAKES:
            told = "\n".join(
                textwrap.fill(
                    row,
                    100,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for row in answer(line, names).splitlines()
            )
            blocks.append(f">>> {line}\n{told}\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
