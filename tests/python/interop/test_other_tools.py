"""What is written for other tools, read by those tools; each test needs its tool installed."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm

CLUSTER = sm.cluster("dgx_h100", nodes=4)
TASK = sm.Training(global_batch=256, sequence=8192)
PLANS = [
    sm.Strategy(sharding="ddp"),
    sm.Strategy(sharding="zero1", cp=2, context="all_to_all"),
    sm.Strategy(sharding="zero2", offload_optimizer=True),
    sm.Strategy(sharding="zero3", tp=2, micro_batch=2),
]


def asked(plan: sm.Strategy) -> sm.Estimate:
    return sm.estimate("llama3_8b", CLUSTER, TASK, plan)


def imported(name: str) -> Any:
    """A tool whose import may warn about what this machine lacks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"{name.partition('.')[0]} is not installed")


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_deepspeed_reads_its_configuration(
    plan: sm.Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = imported("deepspeed.runtime.config")
    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)  # as if the job ran
    replicas = CLUSTER.accelerators // (plan.tp * plan.cp)

    class Ranks:
        """What DeepSpeed asks about the job."""

        def get_data_parallel_world_size(self) -> int:
            return replicas

    launch = sm.launch(asked(plan), "deepspeed")
    read = config.DeepSpeedConfig(json.loads(launch.files["ds_config.json"]), mpu=Ranks())
    stage = ("ddp", "zero1", "zero2", "zero3").index(plan.sharding)
    assert read.train_batch_size == TASK.global_batch
    assert read.train_micro_batch_size_per_gpu == plan.micro_batch
    assert read.gradient_accumulation_steps == TASK.global_batch // (plan.micro_batch * replicas)
    assert read.zero_optimization_stage == stage
    assert read.zero_enabled == (stage > 0)
    offload = read.zero_config.offload_optimizer
    assert (offload is not None and str(offload.device).endswith("cpu")) == plan.offload_optimizer


@pytest.mark.parametrize("plan", [*PLANS, sm.Strategy(sharding="hsdp", shard_degree=8)], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_accelerate_reads_its_configuration(plan: sm.Strategy, tmp_path: Path) -> None:
    config = imported("accelerate.commands.config.config_args")
    launch = sm.launch(asked(plan), "accelerate")
    (name,) = launch.files
    path = tmp_path / name
    path.write_text(launch.files[name], encoding="utf-8")
    read = config.load_config_from_file(str(path))  # refuses keys that it does not know
    assert (read.num_processes, read.num_machines) == (32, 4)
    assert read.mixed_precision == "bf16"
    kind = "MULTI_GPU" if plan.sharding == "ddp" else "FSDP"
    assert str(read.distributed_type).endswith(kind)
    degrees = read.parallelism_config
    assert math.prod(degrees.values()) == (32 if degrees else 1)

    words = imported("accelerate.commands.launch").launch_command_parser()
    parsed = words.parse_args(list(launch.command[2:]))
    assert parsed.config_file == name
    assert parsed.training_script == "train.py"


@pytest.mark.parametrize(
    "kind, changes",
    [
        ("LlamaConfig", {"num_key_value_heads": 8}),
        ("MistralConfig", {"sliding_window": 4096}),
        ("Qwen2Config", {}),
        ("Qwen3Config", {}),
        ("MixtralConfig", {}),
        ("GPT2Config", {}),
        ("GPTNeoXConfig", {}),
        ("FalconConfig", {}),
        ("BloomConfig", {}),
        ("OPTConfig", {}),
        ("Gemma2Config", {}),
        ("Phi3Config", {"pad_token_id": 0}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_configurations_of_transformers_have_its_parameters(
    kind: str, changes: dict[str, Any]
) -> None:
    """A smaller model of each family: every weight is counted, none twice."""
    transformers, torch = imported("transformers"), imported("torch")
    small = {"num_hidden_layers": 3, "vocab_size": 1024, **changes}
    config = getattr(transformers, kind)(**small)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    weights = {id(each): each.numel() for each in model.parameters()}
    document = json.loads(config.to_json_string(use_diff=False))
    assert sm.model(document).parameters == sum(weights.values())
