"""Scripts and jobs: what is written starts one command, and says when read what was predicted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.interop.settings import Launch
from scalemodel.interop.settings.schedulers import SCHEDULERS
from scalemodel.interop.settings.torchtitan import FLAVORS
from scalemodel.search.framework_rules import FRAMEWORKS

CLUSTER = sm.cluster("dgx_h100", nodes=4)
TASK = sm.Training(global_batch=128, sequence=4096)
STACKS = {
    "megatron": "megatron_lm_2025",
    "megatron_bridge": "megatron_bridge_2026_06",
    "nemo": "nemo_mcore_2024_25",
    "torchtitan": "torchtitan_2025",
    "deepspeed": "plain",
    "accelerate": "plain",
}
#: Twelve questions: four models on three clusters, each with its framework.
MODELS = (
    ("llama3_70b", "megatron"),
    ("deepseek_v3", "megatron_bridge"),
    ("qwen3_30b_a3b", "nemo"),
    ("llama3_8b", "torchtitan"),
)
CLUSTERS = (("dgx_h100", 64), ("dgx_b200", 32), ("gb200_nvl72", 32))


def best(model: str, framework: str, cluster: sm.Cluster, top: int = 1) -> list[sm.Estimate]:
    task = sm.Training(global_batch=1024, sequence=4096)
    return list(
        sm.search(*(model, cluster, task), stack=STACKS[framework], framework=framework, top=top)
    )


def again(framework: str, est: sm.Estimate, source: object) -> sm.Estimate:
    read = sm.read_settings(
        framework, source, accelerators=est.cluster.accelerators, stack=est.stack
    )
    stack: Any = read.stack
    return sm.estimate(
        read.model or est.model, est.cluster, read.task or est.task, read.strategy, stack=stack
    )


def close(est: sm.Estimate, other: sm.Estimate) -> bool:
    step = abs(other.step_time_s / est.step_time_s - 1)
    return step < 0.01 and abs(other.memory_bytes / est.memory_bytes - 1) < 0.01


def round_trips(model: str, framework: str, name: str, nodes: int, top: int) -> int:
    """Strategies whose script is estimated as it was predicted, or names the difference."""
    found = best(model, framework, sm.cluster(name, nodes=nodes), top)
    for est in found:
        launched = sm.launch(est, framework)
        other = again(framework, est, launched.script())
        assert close(est, other) or any("all in all" in note for note in launched.notes)
        assert not any("refuses" in note for note in launched.notes)
    return len(found)


@pytest.mark.parametrize("model, framework", MODELS)
def test_the_best_strategy_comes_back_from_its_script(model: str, framework: str) -> None:
    assert round_trips(model, framework, *CLUSTERS[0], top=2) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name, nodes", CLUSTERS)
@pytest.mark.parametrize("model, framework", MODELS)
def test_the_ten_best_of_twelve_questions_come_back(
    model: str, framework: str, name: str, nodes: int
) -> None:
    assert round_trips(model, framework, name, nodes, top=10) == 10


# ------------------------------------------------------------------------------------ schedulers
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_jobs_of_schedulers_say_the_same_as_the_script(framework: str, scheduler: str) -> None:
    (est,) = best("llama3_8b", framework, CLUSTER)
    launched = sm.launch(est, framework, scheduler=scheduler)
    text = launched.script()
    assert (launched.nodes, launched.per_node) == (4, 8)
    other = again(framework, est, text)
    assert other.step_time_s == pytest.approx(est.step_time_s, rel=1e-9)
    assert other.memory_bytes == pytest.approx(est.memory_bytes, rel=1e-3)


@pytest.mark.parametrize("scheduler, nodes", [("jobset", 4), ("pytorchjob", 4), ("pytorchjob", 1)])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_jobs_of_kubernetes_are_yaml_that_holds_the_script(
    framework: str, scheduler: str, nodes: int
) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (est,) = best("llama3_8b", framework, sm.cluster("dgx_h100", nodes=nodes))
    launched = sm.launch(est, framework, scheduler=scheduler)
    job = yaml.safe_load(launched.script())
    plain = sm.launch(est, framework).script()
    if scheduler == "jobset":
        (workers,) = job["spec"]["replicatedJobs"]
        spec = workers["template"]["spec"]
        assert (spec["parallelism"], spec["completions"]) == (nodes, nodes)
        pods = [spec["template"]["spec"]]
        address = pods[0]["containers"][0]["env"][0]
        name = job["metadata"]["name"]
        assert address == {"name": "MASTER_ADDR", "value": f"{name}-workers-0-0.{name}"}
    else:
        replicas = job["spec"]["pytorchReplicaSpecs"]
        assert sum(one["replicas"] for one in replicas.values()) == nodes
        pods = [one["template"]["spec"] for one in replicas.values()]
    for pod in pods:
        (container,) = pod["containers"]
        assert container["command"] == ["/bin/bash", "-c"]
        assert container["args"] == [plain]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}


def test_a_batch_script_starts_one_task_per_node(tmp_path: Path) -> None:
    (est,) = best("llama3_8b", "deepspeed", CLUSTER)
    text = sm.launch(est, "deepspeed", scheduler="slurm").script()
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=llama3-8b\n#SBATCH --nodes=4\n")
    assert "#SBATCH --gpus-per-node=8" in text
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in {
        "srun": 'echo "$MASTER_ADDR:$MASTER_PORT $*" > started',
        "scontrol": "echo node-a; echo node-b",
        "head": 'read -r line; echo "$line"',
        "cat": "/bin/cat",
    }.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    subprocess.run(
        ["/bin/bash", "-c", text],
        cwd=tmp_path,
        env={"PATH": str(programs), "SLURM_JOB_NODELIST": "node-[a-b]"},
        check=True,
        timeout=20,
    )
    started = (tmp_path / "started").read_text()
    assert started.startswith("node-a:29500 torchrun --nproc-per-node=8 --nnodes=4")
    assert "--rdzv-endpoint=node-a:29500" in started
    assert "--max_steps 1000" in started
    assert (tmp_path / "ds_config.json").exists()


HOSTILE = ("x\ntouch ran #", "$(touch ran)", "'; touch ran; '", "END\ntouch ran\n", "a: [b", "\t")


@pytest.mark.parametrize("scheduler", ["", *SCHEDULERS])
@pytest.mark.parametrize("bad", HOSTILE)
def test_names_notes_and_words_of_strangers_start_nothing(
    tmp_path: Path, scheduler: str, bad: str
) -> None:
    job = Launch(
        *("megatron", ("torchrun", "train.py", bad), {"A": bad}, {}, (bad,)),
        run=("--data", bad),
        scheduler=scheduler,
        name=bad,
        nodes=2,
        per_node=8,
    )
    text = job.script()
    if scheduler in ("jobset", "pytorchjob"):
        yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
        table = yaml.safe_load(text)
        assert re.fullmatch(r"[a-z][a-z0-9-]*", table["metadata"]["name"])
        text = re.search(r"args", text) and _script_of(table)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("torchrun", "srun", "scontrol", "head", "touch"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} >> "$NOTES"\n')
        program.chmod(0o755)
    notes = tmp_path / "notes"
    subprocess.run(
        ["/bin/bash", "-c", text],
        cwd=tmp_path,
        env={"PATH": str(programs), "NOTES": str(notes)},
        check=True,
        timeout=20,
    )
    started = set(notes.read_text().split())
    assert started == ({"srun", "scontrol", "head"} if scheduler == "slurm" else {"torchrun"})


def _script_of(table: Any) -> str:
    spec = table["spec"]
    if "replicatedJobs" in spec:
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    else:
        pod = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    return str(pod["containers"][0]["args"][0])


# --------------------------------------------------------------------------------- the whole file
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_settings_of_the_run_stand_in_one_marked_block(framework: str) -> None:
    (est,) = best("llama3_8b", framework, CLUSTER)
    text = sm.launch(est, framework).script()
    begin, end = "Settings of the run: none was predicted", "End of the settings of the run"
    assert (text.count(begin), text.count(end)) == (1, 1)
    block = text.partition(begin)[2].partition(end)[0].lower().replace("-", "_")
    for asked in ("lr", "learning_rate"):
        if asked in block:
            break
    else:
        pytest.fail("no learning rate in the block")
    assert re.search(r"train_iters|steps", block)
    assert re.search(r"data", block) or framework == "megatron_bridge"


def test_an_estimate_that_does_not_fit_says_so_first() -> None:
    est = sm.estimate("llama3_70b", CLUSTER, TASK, sm.Strategy())
    assert est.verdict == "out_of_memory"
    launched = sm.launch(est, "megatron")
    assert launched.notes[0].startswith("predicted not to fit: it needs ")
    assert "# predicted not to fit" in launched.script()


@pytest.mark.parametrize("name", sorted(FLAVORS))
def test_torchtitan_has_a_complete_file_for_the_models_it_ships(name: str) -> None:
    est = sm.estimate(name, CLUSTER, TASK, sm.Strategy(sharding="zero3"), stack="torchtitan_2025")
    launched = sm.launch(est, "torchtitan")
    text = launched.files["torchtitan.toml"]
    model, flavor = FLAVORS[name]
    assert f'name = "{model}"\nflavor = "{flavor}"' in text
    for section in ("training", "parallelism", "activation_checkpoint", "compile"):
        assert f"[{section}]" in text
    assert not any("flavor" in note for note in launched.notes)
    module = launched.files["torchtitan_job.py"]
    compile(module, "torchtitan_job.py", "exec")
    assert launched.command[-2:] == ("--module=torchtitan_job", "--config=job")
    assert all(word in module for word in ("STEPS = ", "DATASET = ", "LEARNING_RATE = "))
    read = sm.read_settings("torchtitan", text)
    assert read.model is not None
    assert read.model.parameters == est.model.parameters


def read_back(est: Any) -> tuple[tuple[str, ...], Any]:
    """Notes of what starts an estimate in Megatron-LM, and the estimate of what it says."""
    launched = sm.launch(est, "megatron")
    read = sm.read_settings("megatron", launched.script())
    again = sm.estimate(read.model, est.cluster, read.task, read.strategy, stack=read.stack)
    return launched.notes, again


@pytest.mark.parametrize(
    "strategy", [sm.Strategy(tp=4, pp=4, vpp=2), sm.Strategy(tp=8, pp=2, micro_batch=2)]
)
def test_defaults_that_are_spelled_out_take_as_long(strategy: sm.Strategy) -> None:
    cluster = sm.cluster("dgx_h100", nodes=16)
    asked = sm.Training(global_batch=256, sequence=2048)
    est = sm.estimate("gpt3_20b", cluster, asked, strategy, stack=STACKS["megatron"])
    notes, again = read_back(est)
    assert not any("learned positions" in note for note in notes)
    assert again.step_time_s == est.step_time_s
    assert again.memory_bytes == est.memory_bytes


def test_a_longer_table_of_positions_is_told_and_is_all_that_differs() -> None:
    cluster = sm.cluster("dgx_h100", nodes=16)
    asked, strategy = sm.Training(global_batch=128, sequence=4096), sm.Strategy(tp=4, pp=4)
    est = sm.estimate("gpt3_20b", cluster, asked, strategy, stack=STACKS["megatron"])
    notes, again = read_back(est)
    assert any(note.startswith("has 4096 learned positions") for note in notes)
    assert est.step_time_s < again.step_time_s < 1.001 * est.step_time_s
    shape = est.model.shape.replace(positions=4096)
    longer = sm.model({"name": "longer", "architecture": shape.to_dict()})
    alike = sm.estimate(longer, cluster, asked, strategy, stack=STACKS["megatron"])
    assert alike.step_time_s == again.step_time_s


@pytest.mark.parametrize("framework", ["megatron", "megatron_bridge", "nemo"])
def test_a_vision_tower_that_is_not_started_is_named(framework: str) -> None:
    est = sm.estimate("gemma3_12b", CLUSTER, TASK, sm.Strategy(tp=4))
    named = "not expressed: the vision tower of gemma3_12b; its decoder is started alone"
    assert named in sm.launch(est, framework).notes
    assert sm.read_settings(framework, sm.launch(est, framework).script()).model.vision is None
    alone = sm.estimate("llama3_8b", CLUSTER, TASK, sm.Strategy(tp=4))
    assert not any("vision" in note for note in sm.launch(alone, framework).notes)


@pytest.mark.parametrize("version, parser", [((3, 10), "tomli"), ((3, 11), "tomllib")])
def test_the_module_of_torchtitan_reads_its_table_with_any_python_it_runs_on(
    version: tuple[int, int], parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sm.launch(
        sm.estimate("llama3_8b", CLUSTER, TASK, sm.Strategy(sharding="zero3")), "torchtitan"
    ).files["torchtitan_job.py"]
    header, _, _ = module.partition("\nfrom torchtitan")
    monkeypatch.setattr(sys, "version_info", version)
    for name in ("tomli", "tomllib"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    found: dict[str, object] = {}
    exec(header, found)
    assert found["tomllib"] is sys.modules[parser]


def test_a_model_that_torchtitan_does_not_ship_is_named() -> None:
    est = sm.estimate("gpt3_175b", CLUSTER, TASK, sm.Strategy(tp=8, pp=4))
    assert any("ships none" in note for note in sm.launch(est, "torchtitan").notes)


@pytest.mark.parametrize("framework", ["megatron", "megatron_bridge", "nemo"])
def test_learned_positions_come_back_where_no_setting_counts_them(framework: str) -> None:
    """NeMo and Megatron-Bridge take the length of a sequence for the number of positions."""
    task = sm.Training(global_batch=128, sequence=2048)
    est = sm.estimate("gpt3_20b", CLUSTER, task, sm.Strategy(tp=8, pp=2))
    script = sm.launch(est, framework).script()
    assert ("max_position_embeddings" in script.replace("-", "_")) == (framework == "megatron")
    read = sm.read_settings(framework, script)
    assert read.model is not None
    assert read.model.parameters == est.model.parameters


@pytest.mark.parametrize("name, backend", [("dgx_b200", "deepep"), ("gb200_nvl72", "hybridep")])
def test_tokens_travel_by_what_the_accelerator_takes(name: str, backend: str) -> None:
    """DeepEP has no domain of 72: Megatron-Bridge refuses it on Grace Blackwell."""
    est = sm.estimate(
        *("qwen3_30b_a3b", sm.cluster(name, nodes=8), TASK, sm.Strategy(ep=8)),
        stack="megatron_bridge_2026_06",
    )
    launched = sm.launch(est, "megatron_bridge")
    assert f"model.moe_flex_dispatcher_backend={backend}" in launched.command
    read = sm.read_settings("megatron_bridge", launched.script(), stack=est.stack)
    assert read.stack is not None
    assert read.stack.deduplicated_dispatch


# ------------------------------------------------------------------------------- texts and files
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_text_and_file_say_the_same(tmp_path: Path, framework: str) -> None:
    (est,) = best("llama3_8b", framework, CLUSTER)
    launched = sm.launch(est, framework)
    path = tmp_path / "job.sh"
    path.write_text(launched.script(), encoding="utf-8")
    text = sm.read_settings(framework, launched.script(), accelerators=32)
    assert sm.read_settings(framework, path, accelerators=32) == text
    assert sm.read_settings(framework, str(path), accelerators=32) == text
    for name, content in launched.files.items():
        if name.endswith(".py") and framework in ("megatron_bridge", "torchtitan"):
            continue  # it only takes the words of the command, or reads the file of settings
        part = tmp_path / name
        part.write_text(content, encoding="utf-8")
        alone = sm.read_settings(framework, content, accelerators=32)
        assert sm.read_settings(framework, part, accelerators=32) == alone
        assert alone.strategy.sharding == text.strategy.sharding
        assert alone.stack == text.stack


def test_unknown_schedulers_and_odd_sources_are_named() -> None:
    est = sm.estimate("llama3_8b", CLUSTER, TASK)
    with pytest.raises(sm.ScaleModelError, match="scheduler='pbs': unknown; "):
        sm.launch(est, "megatron", scheduler="pbs")
    with pytest.raises(sm.ScaleModelError, match="pipeline_model_parallel_layout: 3 stages must"):
        sm.read_settings(
            "megatron",
            {"pipeline_model_parallel_layout": "Et|t|tL", "pipeline_model_parallel_size": 2},
        )
    with pytest.raises(sm.ScaleModelError, match="longer than 20,000 signs"):
        sm.read_settings("megatron", {"pipeline_model_parallel_layout": "(t*999)*999|" * 5})
    with pytest.raises(sm.ScaleModelError, match="cannot be read"):
        sm.read_settings("deepspeed", "ds_config.json")
    with pytest.raises(sm.ScaleModelError, match="nested too deeply"):
        sm.read_settings("nemo", "import nemo\n" + "[" * 200)
