"""The mistakes most likely made, and what is answered.

``python tests/golden/mistakes.py`` writes the answers into ``mistakes.txt``, to be read one by one.

Each answer names the argument, what it was given, what would be legal, and what to do about it; the
words for these four stand beside each mistake.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import scalemodel as sm
from scalemodel.cli import main
from scalemodel.resolve import hub_files

GOLDEN = Path(__file__).with_suffix(".txt")

#: What a reader has typed before.
BEFORE = """
cluster = sm.cluster("dgx_h100", nodes=8)
task = sm.Training(global_batch=64, sequence=4096)
est = sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=2))
large = sm.estimate("llama3_70b", cluster, task)
chat = sm.Inference(input_tokens=1000, output_tokens=100)
mine = {"name": "mine", "accelerator": "h100_sxm_80"}
script = "torchrun pretrain_gpt.py --seq-length 4k --micro-batch-size 1 --global-batch-size 64"
config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
          "num_attention_heads": 32, "intermediate_size": 11008, "hidden_act": "silu"}
def without(key): return {name: value for name, value in config.items() if name != key}
def ask(**knobs): return sm.estimate("llama3_70b", cluster, task, sm.Strategy(**knobs)).message()
def shell(line):
    import shlex
    return main(shlex.split(line.replace("JOB", "llama3_8b --cluster dgx_h100 TASK").replace(
        "TASK", "--global-batch 64 --sequence 4096")))
"""


class Mistake(NamedTuple):
    """What is typed, and words of the answer that name each of four things."""

    line: str
    argument: str
    value: str
    legal: str
    fix: str


#: What is typed, and behind it argument, value, what is legal, and the fix.
TYPED = r"""
sm.model("lama3_70b")
    model | lama3_70b | llama3_70b | did you mean
sm.model("Qwen/Qwen9-1T")
    model | Qwen/Qwen9-1T | models of the family qwen: qwen1_5 | pass its config.json
sm.model("MiniMaxAI/MiniMax-M9")
    model | MiniMax-M9 | models of the family minimax: minimax_m1 | pass its config.json
sm.model("adept/fuyu-9b")
    model | fuyu | families of the catalogue: | pass its config.json
sm.model("mistralai/Mistral-Large-4-Instruct")
    model | Mistral-Large-4 | family mistral: mistral_7b | pass its config.json
sm.model("70b")
    model | '70b' | llama3_70b | did you mean
sm.model(70e9)
    model | 70000000000.0 | a catalogue name, a path | 'llama3_8b'
sm.model("no_such/config.json")
    model= | no_such/config.json | the path of a file that exists | sm.list_catalog('models')
sm.model("dgx_h100")
    model | dgx_h100 | a model such as 'llama3_8b' | did you swap them?
sm.model("dlrm_a")
    model | dlrm_a | is made of layer groups | write sm.compose('dlrm_a')
sm.cluster("dgx_h10")
    cluster | dgx_h10 | dgx_h100 | did you mean
sm.cluster("my_cluster.toml")
    cluster= | my_cluster.toml | the path of a file that exists | sm.list_catalog('clusters')
sm.cluster("supermicro")
    cluster | supermicro | a cluster of sm.list_catalog('clusters') | {'accelerator': 'h100_sxm_80'}
sm.cluster("mi355x")
    cluster | mi355x | in nodes of 8 | {'accelerator': 'mi355x'}
sm.cluster("H100 SXM")
    cluster | H100 SXM | clusters with it: aws_p5 | {'accelerator': 'h100_sxm_80'}
sm.cluster("vera rubin")
    cluster | vera rubin | is the accelerator rubin | {'accelerator': 'rubin'}
sm.estimate("dgx_h100", "llama3_70b", task)
    cluster | llama3_70b | the model is given first, then the cluster | did you swap them?
sm.cluster("dgx_h100", nodes=2, accelerators=8)
    nodes | accelerators=8 | a whole number from 1 | give one of the two
sm.cluster("dgx_h100", nodes=0)
    nodes | =0 | must be a whole number | from 1 to 1e8
sm.cluster("dgx_h100", nodes="64")
    nodes | '64' | must be a whole number | did you mean nodes=64?
sm.cluster("dgx_h100", gpus=64)
    gpus | 64 | 'accelerators' | did you mean
sm.cluster("dgx_h100", num_nodes=8)
    num_nodes | 8 | 'nodes' | did you mean
sm.cluster("dgx_h100", accelerators=12)
    accelerators | =12 | give a multiple of 8 | nodes=2 is 16
sm.scaling("llama3_8b", "dgx_h100", task, [100])
    accelerators | =100 | give a multiple of 8 | nodes=13 is 104
sm.cluster({**mine, "fabric": {"bandwidth": "400 GHz"}})
    mine.fabric.bandwidth | '400 GHz' | one of the units B/s | 'GHz' is a unit of hz
sm.cluster({**mine, "fabric": {"bandwidth": "400 Gb/s"}})
    mine.fabric.bandwidth | '400 Gb/s' | one of the units B/s | a rate may be in bit/s
sm.cluster({**mine, "price": {"usd_per_accelerator_hour": "2.5"}})
    usd_per_accelerator_hour | '2.5' | one of the units USD/s, USD/h | no unit was given
sm.cluster({**mine, "node": {"accelerator": 4}})
    mine.node.accelerator | unknown key | 'accelerators' | did you mean
sm.cluster({"base": "dgx_h100", "accelerator": {"memory": {"capacity": "141 GB"}}})
    accelerator | {'memory': {'capacity': '141 GB'}} | a whole entry | 'base': 'h100_sxm_80'
sm.Training(global_batch=0, sequence=4096)
    global_batch | =0 | must be a whole number | from 1
sm.Training(global_batch=1024)
    sequence | global_batch=1024 | Tokens per sequence | give sequence=...
sm.Training(global_batch=1024, sequence="8k")
    sequence | '8k' | must be a whole number | did you mean sequence=8192?
sm.Training(global_batch=16_000_000, sequence=8192)
    global_batch | 16000000 | is in sequences | did you mean global_batch=1953?
sm.Training(global_batch=64.5, sequence=4096)
    global_batch | 64.5 | must be a whole number | sequences per optimizer step
sm.Training(global_batch=64, seq_len=4096)
    seq_len | 4096 | 'sequence' | did you mean
sm.Training(batch_size=64, sequence=1)
    batch_size | 64 | 'global_batch' | did you mean
sm.Training(64, 4096)
    arguments | 64, 4096 | are given by name | for example global_batch=64
sm.Training(global_batch=64, sequence=4096, precision="fp6")
    precision | 'fp6' | one of fp32, tf32, fp16, bf16, fp8, fp4 | did you mean precision='fp16'?
sm.Training(global_batch=64, sequence=4096, optimizer="adams")
    optimizer | 'adams' | one of adam, sgd, sgd_momentum | did you mean optimizer='adam'?
sm.Training(global_batch=64, sequence=4096, imbalance=0.5)
    imbalance | 0.5 | a number from 1 | busiest expert rank over the mean
sm.FineTuning(global_batch=64, sequence=4096, method="qlora")
    method | 'qlora' | one of full, lora | did you mean method='lora'?
sm.FineTuning(global_batch=64, sequence=4096, lora_rank=0)
    lora_rank | =0 | must be a whole number | from 1
sm.Preference(pairs=64, prompt_tokens=200, generated_tokens=300, limit_tokens=2048, method="sft")
    method | 'sft' | one of dpo, ipo, kto, simpo, orpo, reward | is FineTuning
sm.Inference(input_tokens=0, output_tokens=100)
    input_tokens | =0 | a number from 1 | tokens of a prompt
sm.Strategy(tp=1.5)
    tp | 1.5 | must be a whole number | tensor-parallel degree
sm.Strategy(tp="8")
    tp | '8' | must be a whole number | did you mean tp=8?
sm.Strategy(tp=0)
    tp | =0 | must be a whole number | from 1 to 65535
sm.Strategy(tensor_parallel=8)
    tensor_parallel | 8 | 'tp' | did you mean
sm.Strategy(micro_batch_size=2)
    micro_batch_size | 2 | 'micro_batch' | did you mean
sm.Strategy(8, 4)
    knobs | 8, 4 | are given by name | for example tp=1
sm.Strategy(sharding="zero4")
    sharding | 'zero4' | one of ddp, zero1, zero2, zero3, hsdp | did you mean sharding='zero3'?
sm.Strategy(recompute=True)
    recompute | True | one of none, selective, full | activation recomputation
sm.Strategy(schedule="gpipes")
    schedule | 'gpipes' | one of gpipe, 1f1b | did you mean schedule='gpipe'?
sm.Strategy(tp=2).replace(tpp=4)
    tpp | 4 | 'tp' | did you mean
ask(tp=12)
    tp | 12*1*1*5 = 60 | tp*cp*pp has to divide 64 | tp 12→8
ask(tp=8, dp=16)
    dp | 8*1*1*16 = 128 | tp*cp*pp has to divide 64 | dp 16→8
ask(tp=8, pp=3)
    pp | 8*1*3*2 = 48 | tp*cp*pp has to divide 64 | pp 3→4
ask(tp=8, pp=81)
    pp | 8*1*81*1 = 648 | tp*cp*pp has to divide 64 | pp 81→8
ask(tp=8, cp=3)
    cp | 8*3*1*2 = 48 | tp*cp*pp has to divide 64 | cp 3→2
ask(tp=8, micro_batch=48)
    dp*micro_batch | 8*48 = 384 | Nearest batches: 384 | micro_batch 48→8
ask(tp=8, pp=2, micro_batch=3)
    dp*micro_batch | 4*3 = 12 | Nearest batches: 60, 72 | micro_batch 3→2
ask(tp=8, ep=4)
    ep | ep=4 | ep in {1} | ep 4→1
ask(tp=8, schedule="dualpipe", pp=2)
    out_of_memory | needs # GiB | h100_sxm_80 has # GiB | pp 2→8
ask()
    out_of_memory | needs # GiB | h100_sxm_80 has # GiB | tp 1→8
ask(tp=8, vpp=4)
    vpp | vpp=4 | needs a pipeline | pp 1→2
sm.Space(tp=[2, 4], where="tp * pp < gpus")
    where | gpus | 'accelerators' | did you mean
sm.Space(where="tp = 8")
    where | 'tp = 8' | one comparison | such as 'tp * cp <= domain'
sm.Space(tp=[1, 1])
    tp | (1, 1) | listed twice | 1 is
sm.search("llama3_8b", cluster, task, objective="mfu")
    objective | 'mfu' | 'mfu_fraction' | did you mean
sm.search("llama3_8b", cluster, task, constraints="memory below 80 GB")
    constraints | memory below 80 GB | must be like 'power_w <= 650' | 0.9 * memory_capacity_bytes
sm.search("llama3_8b", cluster, task, {"tensor": [1, 2]})
    tensor | no such knob | 'tp' | did you mean
sm.pareto(sm.sweep("llama3_8b", cluster, task, {"tp": 2}), minimize=["step_time_s", "cost"])
    minimize | 'cost' | 'cost_usd' | did you mean
sm.codesign("llama3_8b", cluster, task, vary={"fabric.bandwith": [1, 2]})
    vary | 'fabric.bandwith' | 'fabric.bandwidth' | did you mean
sm.codesign("llama3_8b", cluster, task, vary={"fabric.bandwidth": ["800 Gbit"]})
    fabric.bandwidth | '800 Gbit' | one of the units B/s | Gbit/s
sm.estimate("llama3_8b", cluster, task, stack="nemo")
    stack | 'nemo' | 'nemo_mcore_2024_25' | did you mean
sm.serve("flan_t5_xxl", "dgx_h100", chat)
    source_tokens | 0 | those of a source | the model has an encoder
sm.serve("whisper_large_v3", "dgx_h100", chat.replace(source_tokens=3000))
    source_tokens | 3000 | must be 1500 | as every source of the model has
sm.serve("flux_1_dev", "dgx_h100", sm.Generation(height=512, width=512, frames=8))
    frames | 8 | must be 1 | makes images
sm.serve("llama3_8b", "dgx_h100", sm.Generation(height=512, width=512))
    model | llama3_8b | [generation] | makes images or videos
sm.serve("llama3_8b", "dgx_h100", chat, engine="vlm")
    engine | 'vlm' | 'vllm_v1' | did you mean
sm.model({**config, "hidden_sise": 4096, "hidden_size": None})
    config.json | `hidden_sise` | `hidden_size` is missing | did you mean
sm.model(without("hidden_size"))
    `hidden_size` | is missing | a whole number from 1 | the config.json of the model as published
sm.model({**config, "model_type": "lama"})
    model_type | 'lama' | known, nearest first | llama
sm.model({**config, "num_attention_heads": "32"})
    num_attention_heads | '32' | legal is | whole number
sm.read_settings("megatron", script)
    seq_length | '4k' | must be a whole number | a whole number
sm.read_settings("megatron-lm", script)
    framework | megatron-lm | 'megatron' | did you mean
sm.list_catalog("model")
    kind | 'model' | must be one of accelerators | models
est.explain("memroy")
    term | 'memroy' | 'memory' | did you mean
sm.training_run(est)
    tokens, days, budget_usd, energy_j | none was given | exactly one | give exactly one of
sm.training_run(est, tokens=15)
    tokens | =15 | must be at least | did you mean tokens=15e12?
sm.training_run(est, tokens="15T")
    tokens | '15T' | must be a number from | did you mean tokens=1.5e+13?
sm.training_run(est, token=1e12)
    token | 1000000000000.0 | 'tokens' | did you mean
sm.training_run(large, tokens=1e12)
    est | needs # GiB of # GiB | what does not fit does not run | try recompute none→full
sm.training_run(est, tokens=1e12, price="h100")
    price | 'h100' | USD per accelerator-hour, a list price | did you mean
sm.training_run(est, tokens=1e12, price="aws_p4d_2024")
    price | 'aws_p4d_2024' | not of h100_sxm_80 | pass a price of h100_sxm_80
sm.training_run(est, tokens=1e12, grid="germny")
    grid | 'germny' | known: usa, deu | deu
sm.training_run(est, tokens=1e12, reliability="llama3")
    failures | 'llama3' | 'llama_3' | did you mean
sm.plan_training("llama3_8b", "dgx_h100", task, tokens=1e12)
    days | None | a number above 0 | such as days=30
sm.plan_training("llama3_8b", "dgx_h100", task, tokens=1, days=9, max_nodes=8)
    max_nodes | no such argument | 'most_nodes' | did you mean
sm.compare_clusters("llama3_8b", ["dgx_h100"], task, tokens=1e12, price="cheap")
    price | 'cheap' | a basis (hyperscaler_on_demand | or a seller (AWS
sm.compare_clusters("llama3_8b", ["dgx_h100"], task, tokens=1e12, price={"dgx_b200": 5})
    price | {'dgx_b200': 5} | must name every cluster | add 'dgx_h100': USD per accelerator-hour
sm.plan_stages([sm.Stage("sft", est, tokens=1e9, steps=100)])
    tokens | =1000000000.0 | exactly one of | tokens, samples, steps
sm.plan_stages([sm.Stage("sft", "llama3_8b", steps=100)])
    answer | 'llama3_8b' | must be an Estimate | estimate_rl or estimate_tuning
sm.plan_stages([est])
    stages | Estimate( | must be a Stage | such as sm.Stage(
sm.reliability(64, write=20)
    write | 20 | 'write_s' | did you mean
sm.plan_spares(64, repair_s=3600, replicas=128)
    replicas | 128 | at most the 64 nodes | share a node
sm.plan_checkpoints(est, tiers=["local_disc"])
    tiers | 'local_disc' | 'local_disk' | did you mean
sm.data_loading(est, read="host_memory")
    read | 'host_memory' | must be one of | local_disk
sm.replan(est, 9, repair_s=3600)
    lost_nodes | 9 | from 1 to the | or the numbers
shell("estimate llama3_8b --cluster dgx_h100 --global-batch 64")
    --sequence | are required | tokens per sequence | --sequence N
shell("estimat JOB")
    COMMAND | 'estimat' | choose from 'estimate' | did you mean
shell("data-loading JOB --tp 8 --read host_memory")
    read | 'host_memory' | must be one of | local_disk
shell("estimate JOB --gpus 64")
    --gpus | no such option | --accelerators | did you mean
shell("serve llama3_8b --cluster dgx_h100 --ttft .5")
    --ttft | no such option | --ttft-s | did you mean
shell("estimate JOB --tp eight")
    --tp | 'eight' | must be a whole number | such as 8
shell("search JOB --nodes 2.5")
    --nodes | '2.5' | must be a whole number | such as 8
shell("tune llama3_8b --cluster dgx_h100 --prompt-tokens 9 --generated-tokens 9 --limit-tokens 99")
    tune | --pairs | (preferences) or --teacher | needs --pairs
shell("estimate JOB --sharding zero9")
    --sharding | 'zero9' | choose from 'ddp' | did you mean
shell("estimate JOB --nodes 2 --accelerators 16")
    --accelerators | --nodes | not allowed with | give one of the two
shell("estimate JOB --tp 2 --tokens 15")
    tokens | =15 | must be at least | did you mean tokens=15e12?
shell("estimate JOB --tp 2 --tokens 15T")
    --tokens | '15T' | must be a number | such as 1.5e+13
shell("estimate JOB --grid usa")
    --grid | need --tokens | of a whole run | add --tokens N
shell("estimate dgx_h100 --cluster llama3_8b TASK")
    cluster | llama3_8b | the model is given first | did you swap them?
shell("export-page site --engine engine.js")
    engine | engine.js | engine.wasm | -DSCALEMODEL_PAGE=ON
shell("sweep JOB --out rows.xls")
    out | 'rows.xls' | must end in | .csv or .parquet
shell("project 2.1 llama3_8b --cluster dgx_h100 --global-batch 16 --sequence 4096")
    --nodes | the following arguments are required | nodes of the jobs to project to | --nodes N
sm.project("node.json.gz", est, nodes=[64])
    profile= | node.json.gz | a log of steps, or seconds | such as 2.1
sm.StepTimeMonitor(est).log_to("runs")
    writer= | 'runs' | add_scalar (TensorBoard) | or be a function
sm.project(1.9, est, nodes=[64, 0])
    nodes | =0 | positive | must be
sm.project([1.9, -2], est, nodes=64)
    profile | -2 | above 0 | seconds of steps
shell("compare-clusters llama3_8b --clusters dgx_h100:many TASK --tokens 1e12")
    --clusters | dgx_h100:many | a cluster and nodes | must be like dgx_h100:64
"""


def listed() -> tuple[Mistake, ...]:
    """The mistakes, two lines each."""
    lines = TYPED.strip().splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return tuple(Mistake(line, *told.strip().split(" | ")) for line, told in pairs)


MISTAKES = listed()


def answer(line: str, names: dict[str, Any]) -> str:
    """What an error, a warning, a verdict or the command line says; predicted amounts are ``#``."""
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        try:
            value = eval(line, names)
        except sm.ScaleModelError as error:
            return hidden(f"ScaleModelError: {error}")
        except TypeError as error:  # an argument that is not there, or missing
            return f"TypeError: {error}"
    told = "\n".join(f"{one.category.__name__}: {one.message}" for one in warned)
    return hidden(said.getvalue().strip() or told or str(value))


def hidden(text: str) -> str:
    """Predicted amounts move with every fit; what is reviewed are the words around them."""
    return re.sub(r"\d[\d.]*(?= (?:%|(?:s|ms|[KMGT]iB)\b))", "#", text)


def text() -> str:
    """The whole file."""
    names: dict[str, Any] = {"sm": sm, "main": main}
    blocks = []
    exec(BEFORE, names)
    # The answers are those without the extra `hub`, wherever it is installed.
    with mock.patch.object(hub_files, "_library", side_effect=ImportError):
        for mistake in MISTAKES:
            told = "\n".join(
                textwrap.fill(
                    row,
                    100,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for row in answer(mistake.line, names).splitlines()
            )
            blocks.append(f">>> {mistake.line}\n{told}\n")
    return "\n".join(blocks)


if __name__ == "__main__":
    GOLDEN.write_text(text(), encoding="utf-8")
