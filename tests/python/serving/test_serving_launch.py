"""Commands and objects that start serving plans: what they say, and that engines understand it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.resolve.hub import is_hub_id
from scalemodel.serving import launch_command, launch_options, serve_split
from scalemodel.serving.launch import family_of
from scalemodel.serving.launch.yaml_text import yaml_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPTIONS = Path(__file__).parents[2] / "golden/launch/options.toml"
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "TensorRT-LLM"}
TASK = sm.Inference(input_tokens=1000, output_tokens=200)
ONE = sm.cluster("dgx_h100")
TWO = sm.cluster("dgx_h200", nodes=2)
HOSTILE = ["'; touch ran #", "$(touch ran)", "`touch ran`", 'a" & touch ran', "x: [y", "{a}", "# x"]


def words(plan: Any) -> list[str]:
    return shlex.split(launch_command(plan))


def after(found: list[str], option: str) -> str:
    return found[found.index(option) + 1]


def plan_of(engine: str, model: Any = "llama3_70b", **given: Any) -> Any:
    layout = given.pop("layout", sm.ServingLayout(tp=4))
    cluster = given.pop("cluster", ONE)
    options = {name: given.pop(name) for name in ("concurrency", "requests_per_s") if name in given}
    limits = {name: given.pop(name) for name in list(given) if name.startswith("max_")}
    return sm.serve(
        model, cluster, TASK.replace(**given), layout, engine=ENGINES[engine], **options, **limits
    )


# ------------------------------------------------------------------------------------- the model
def test_every_id_of_the_catalogue_is_one_of_its_names() -> None:
    known = 0
    for name in catalog.names("models"):
        entry = catalog.load("models", name)
        hub = entry.get("hub", "")
        if hub:
            known += 1
            assert is_hub_id(hub)
            assert hub in entry["aliases"]
            assert sm.model(hub) == sm.model(name)
        assert sm.model(name).hub == hub
    assert known >= 80


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("model", "hub"),
    [
        ("llama3_70b", "meta-llama/Meta-Llama-3-70B-Instruct"),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
    ],
)
def test_commands_carry_the_id_of_the_checkpoint(engine: str, model: str, hub: str) -> None:
    found = words(plan_of(engine, model, precision="fp8"))
    assert hub in found
    assert model in found if model == hub else model not in found
    assert plan_of(engine, model).model.hub == hub


def test_a_model_without_a_checkpoint_is_noted() -> None:
    plan = sm.serve("gpt3_13b", "dgx_h100", TASK)
    assert words(plan)[2] == "gpt3_13b"
    assert "knows no checkpoint of gpt3_13b" in sm.launch_serving(plan).notes[0]


@pytest.mark.parametrize("field", ["", "4 bits", 7])
def test_a_wrong_id_of_an_own_entry_is_none(tmp_path: Path, field: object) -> None:
    path = tmp_path / "mine.toml"
    shape = "layers = 2\nhidden = 64\nvocab = 100\nheads = 4\nffn = 256\n"
    path.write_text(f'name = "mine"\nhub = {json.dumps(field)}\n[architecture]\n{shape}')
    assert sm.model(path).hub == ""


# ------------------------------------------------------------------------------------- limits
def test_every_limit_of_the_plan_is_in_the_command() -> None:
    given: dict[str, Any] = {"precision": "fp8", "kv_precision": "fp8", "prefix_hit_fraction": 0.5}
    limits = {"max_batched_tokens": 3000, "max_running_sequences": 48}
    vllm = words(plan_of("vllm", requests_per_s=1, **given, **limits))
    sglang = words(plan_of("sglang", requests_per_s=1, **given, **limits))
    tensorrt = words(plan_of("tensorrt_llm", requests_per_s=1, **given, **limits))
    assert after(vllm, "--max-num-seqs") == "48"
    assert after(vllm, "--max-num-batched-tokens") == "3000"
    assert after(vllm, "--max-model-len") == "1200"
    assert after(vllm, "--gpu-memory-utilization") == "0.9"
    assert after(vllm, "--block-size") == "16"
    assert {"--enable-chunked-prefill", "--enable-prefix-caching"} <= set(vllm)
    assert after(sglang, "--max-running-requests") == "48"
    assert after(sglang, "--chunked-prefill-size") == "3000"
    assert after(sglang, "--mem-fraction-static") == "0.88"
    assert "--disable-radix-cache" not in sglang
    assert after(tensorrt, "--max_batch_size") == "48"
    assert after(tensorrt, "--max_num_tokens") == "3000"
    options = launch_options(plan_of("tensorrt_llm", requests_per_s=1, **given, **limits))
    assert "enable_block_reuse: true" in options
    assert "free_gpu_memory_fraction: 0.95" in options


@pytest.mark.parametrize("engine", ENGINES)
def test_limits_are_those_of_the_prediction(engine: str) -> None:
    """What a plan found is what its command says: the size of a step is not lost on the way."""
    option = {
        "vllm": ("--max-num-seqs", "--max-num-batched-tokens"),
        "sglang": ("--max-running-requests", "--chunked-prefill-size"),
        "tensorrt_llm": ("--max_batch_size", "--max_num_tokens"),
    }[engine]
    plan = plan_of(engine, requests_per_s=2.0, precision="fp8")
    found = words(plan)
    assert int(after(found, option[0])) == plan.max_running_sequences
    assert int(after(found, option[1])) == plan.max_batched_tokens
    kept = words(plan_of(engine, concurrency=24, precision="fp8", layout=sm.ServingLayout(tp=8)))
    assert int(after(kept, option[0])) == 24


def test_limits_are_shared_out_over_data_parallel_ranks() -> None:
    layout = sm.ServingLayout(dp=8, ep=8)
    given: dict[str, Any] = {"layout": layout, "cluster": TWO, "precision": "fp8"}
    limits = {"max_batched_tokens": 16384, "max_running_sequences": 1024, "requests_per_s": 1}
    vllm = words(plan_of("vllm", "deepseek_v3", **given, **limits))
    assert after(vllm, "--max-num-seqs") == "128"
    assert after(vllm, "--max-num-batched-tokens") == "2048"
    assert "--enable-expert-parallel" in vllm
    sglang = words(plan_of("sglang", "deepseek_v3", **given, **limits))
    assert after(sglang, "--max-running-requests") == "1024"
    assert after(sglang, "--tp-size") == after(sglang, "--dp-size") == after(sglang, "--ep-size")
    assert "--enable-dp-attention" in sglang
    tensorrt = words(plan_of("tensorrt_llm", "deepseek_v3", **given, **limits))
    assert after(tensorrt, "--max_batch_size") == "128"
    assert after(tensorrt, "--max_num_tokens") == "2048"
    # Copies of a dense model are no ranks of it: the limits are of each copy.
    dense = words(plan_of("sglang", "llama3_8b", layout=sm.ServingLayout(dp=4), **limits))
    assert after(dense, "--max-running-requests") == "256"
    assert (after(dense, "--tp-size"), after(dense, "--dp-size")) == ("1", "4")
    assert "--enable-dp-attention" not in dense


def test_what_cannot_be_shared_out_is_noted() -> None:
    layout = sm.ServingLayout(dp=8, ep=8)
    plan = plan_of(
        "vllm", "deepseek_v3", layout=layout, cluster=TWO, precision="fp8", concurrency=40
    )
    notes = sm.launch_serving(plan).notes
    assert plan.replicas == 2
    assert "--max-num-seqs 20 over 8 ranks is rounded up to 3 each" in notes


def test_a_step_has_room_for_its_sequences() -> None:
    limits = {"max_batched_tokens": 64, "max_running_sequences": 512}
    plan = plan_of("vllm", "llama3_8b", layout=sm.ServingLayout(), requests_per_s=1, **limits)
    found = words(plan)
    assert after(found, "--max-num-seqs") == after(found, "--max-num-batched-tokens") == "64"
    assert "is cut to the 64 tokens" in sm.launch_serving(plan).notes[0]


def test_prompts_that_are_not_cut_fit_in_a_step() -> None:
    plan = plan_of("tensorrt_llm", max_batched_tokens=512, requests_per_s=1, precision="fp8")
    assert after(words(plan), "--max_num_tokens") == "1000"
    assert any("raised to 1000" in note for note in sm.launch_serving(plan).notes)


def test_lengths_that_vary_are_admitted() -> None:
    fixed, varied = plan_of("vllm"), plan_of("vllm", input_spread=1.0, output_spread=0.5)
    assert int(after(words(varied), "--max-model-len")) > 5 * 1200
    assert after(words(fixed), "--max-model-len") == "1200"
    part = plan_of("vllm", input_tokens=999.5, output_tokens=0.5 + 1)
    assert after(words(part), "--max-model-len") == "1001"


# ------------------------------------------------------------------------------------- formats
@pytest.mark.parametrize(
    ("engine", "precision", "option"),
    [
        ("vllm", "fp8", "--quantization fp8"),
        ("vllm", "fp8_block", "--quantization fp8_per_block"),
        ("vllm", "int8", "--quantization int8_per_channel_weight_only"),
        ("vllm", "int4", "--quantization awq_marlin"),
        ("vllm", "fp16", "--dtype float16"),
        ("sglang", "fp8", "--quantization fp8"),
        ("sglang", "int8", "--quantization gptq_marlin"),
        ("sglang", "int4", "--quantization awq_marlin"),
    ],
)
def test_weights_have_an_option(engine: str, precision: str, option: str) -> None:
    plan = plan_of(engine, "llama3_8b", layout=sm.ServingLayout(), precision=precision)
    assert option in launch_command(plan)
    notes = " ".join(sm.launch_serving(plan).notes)
    stored = precision == "int4" or (engine, precision) == ("sglang", "int8")
    assert ("must take the place" in notes) == stored


def test_a_checkpoint_that_is_stored_narrow_needs_no_option() -> None:
    layout = sm.ServingLayout(tp=8)
    stored = plan_of("vllm", "deepseek_v3", layout=layout, cluster=TWO, precision="fp8_block")
    assert "--quantization" not in words(stored)
    assert sm.launch_serving(stored).notes == ("the plan has 2 replicas, each started so",)
    wide = sm.serve("gpt_oss_20b", "dgx_h100", TASK)
    assert "is stored in mxfp4 and runs so" in sm.launch_serving(wide).notes[0]


def test_latent_attention_chooses_its_own_blocks() -> None:
    plan = plan_of(
        "vllm", "deepseek_v3", layout=sm.ServingLayout(tp=8), cluster=TWO, precision="fp8"
    )
    assert "--block-size" not in words(plan)


def test_drafts_come_from_the_checkpoint_or_from_another() -> None:
    given: dict[str, Any] = {"precision": "fp8", "speculative_tokens": 2}
    latent = {"layout": sm.ServingLayout(tp=8), "cluster": TWO}
    own = words(plan_of("vllm", "deepseek_v3", **latent, **given))
    draft = json.loads(after(own, "--speculative-config"))
    assert draft == {"method": "mtp", "num_speculative_tokens": 2}
    other = json.loads(after(words(plan_of("vllm", **given)), "--speculative-config"))
    assert other["model"] == "DRAFT_MODEL"
    # All three of SGLang's sizes are needed, or none.
    sglang = words(plan_of("sglang", "deepseek_v3", **latent, **given))
    assert after(sglang, "--speculative-num-steps") == "2"
    assert after(sglang, "--speculative-eagle-topk") == "1"
    assert after(sglang, "--speculative-num-draft-tokens") == "3"
    options = launch_options(plan_of("tensorrt_llm", "deepseek_v3", **latent, **given))
    assert "decoding_type: MTP\n  num_nextn_predict_layers: 2" in options


def test_latents_in_8_bits_have_a_kernel_of_their_own_on_hopper() -> None:
    given: dict[str, Any] = {"layout": sm.ServingLayout(tp=8), "cluster": TWO, "precision": "fp8"}
    narrow = plan_of("sglang", "deepseek_v3", **given, kv_precision="fp8")
    command = words(narrow)
    assert after(command, "--attention-backend") == "flashmla"
    assert sm.read_serving("sglang", narrow.launch()).unread == ()
    for plan in (
        plan_of("sglang", "deepseek_v3", **given),
        plan_of("sglang", precision="fp8", kv_precision="fp8"),
    ):
        assert "--attention-backend" not in words(plan)


def test_the_cache_of_tensorrt_llm_stands_in_one_place() -> None:
    """Its file replaces the table of the command line: a share in the latter would be lost."""
    plan = plan_of("tensorrt_llm", kv_precision="fp8", precision="fp8")
    assert "--kv_cache_free_gpu_memory_fraction" not in words(plan)
    assert launch_options(plan) == (
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.95\n  tokens_per_block: 32\n"
        "  dtype: fp8\n  enable_block_reuse: false"
    )
    assert launch_options(plan_of("vllm", kv_precision="fp8")) == ""


def test_compiled_engines_are_quantised_by_their_options() -> None:
    task = TASK.replace(precision="fp8", kv_precision="fp8")
    plan = sm.serve("llama3_8b", "dgx_h100", task, engine="TensorRT-LLM 0.17")
    assert "quant_algo: FP8\n  kv_cache_quant_algo: FP8" in launch_options(plan)
    assert "--backend" not in words(plan)


# ------------------------------------------------------------------------------------- nodes
@pytest.mark.parametrize("engine", ENGINES)
def test_an_instance_on_two_nodes_has_commands_for_both(engine: str) -> None:
    layout = sm.ServingLayout(dp=16, ep=16)
    plan = plan_of(engine, "deepseek_v3", layout=layout, cluster=TWO, precision="fp8")
    text = launch_command(plan)
    if engine == "tensorrt_llm":
        assert text.startswith("srun --mpi pmix --nodes 2 --ntasks 16 --ntasks-per-node 8 ")
        assert " trtllm-llmapi-launch trtllm-serve deepseek-ai/DeepSeek-V3 " in text
        return
    first, second = (line for line in text.splitlines() if not line.startswith("#"))
    assert '"$HEAD_IP' in first
    assert '"$HEAD_IP' in second
    if engine == "vllm":
        assert after(shlex.split(first), "--data-parallel-size-local") == "8"
        assert second == f"{first} --data-parallel-start-rank 8 --headless"
    else:
        assert second == first.replace("--node-rank 0", "--node-rank 1")


def test_a_pipeline_over_nodes_names_them() -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)
    plan = plan_of("vllm", layout=sm.ServingLayout(tp=8, pp=2), cluster=cluster)
    lines = launch_command(plan).splitlines()
    assert '--nnodes 2 --node-rank 0 --master-addr "$HEAD_IP"' in lines[1]
    assert lines[3].endswith('--node-rank 1 --master-addr "$HEAD_IP" --headless')


def test_degrees_that_an_engine_lacks_are_noted() -> None:
    experts = plan_of("vllm", "mixtral_8x7b", layout=sm.ServingLayout(tp=4, ep=2))
    assert "vLLM spreads them over all 4" in sm.launch_serving(experts).notes[0]
    given: dict[str, Any] = {"cluster": TWO, "precision": "fp8", "kv_precision": "fp8"}
    both = plan_of("tensorrt_llm", "deepseek_v3", layout=sm.ServingLayout(tp=2, dp=4), **given)
    assert "a whole attention" in " ".join(sm.launch_serving(both).notes)


# ------------------------------------------------------------------------- options of engines
def spelled(found: list[str]) -> list[str]:
    return [word[2:].partition("=")[0] for word in found if word.startswith("--")]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_is_one_of_the_release(engine: str) -> None:
    known = set(tomllib.loads(OPTIONS.read_text(encoding="utf-8"))[engine]["options"].split())
    tried = set()
    for model, layouts in (
        ("llama3_8b", ({"tp": 2, "pp": 2}, {"dp": 2}, {"cp": 2}, {"tp": 8, "pp": 2})),
        ("deepseek_v3", ({"dp": 16, "ep": 16}, {"tp": 8}, {"tp": 4, "dp": 2, "ep": 8})),
        ("mixtral_8x7b", ({"tp": 4, "ep": 4}, {"dp": 4, "ep": 4})),
    ):
        for degrees in layouts:
            for precision in ("bf16", "fp8", "fp8_block", "int8", "int4"):
                for drafts in (0, 1):
                    plan = plan_of(
                        engine,
                        model,
                        cluster=TWO,
                        layout=sm.ServingLayout(**degrees),
                        precision=precision,
                        kv_precision="fp8",
                        speculative_tokens=drafts,
                        prefix_hit_fraction=0.3 * drafts,
                    )
                    if plan.fits:
                        for line in launch_command(plan).splitlines():
                            found = shlex.split(line, comments=True)
                            if "trtllm-serve" in found:
                                found = found[found.index("trtllm-serve") :]
                            tried |= set(spelled(found))
    assert len(tried) >= 10
    unknown = {
        name for name in tried if name not in known and name.removeprefix("no-") not in known
    }
    assert not unknown


#: Behind a server of its own, and vLLM with a plug-in of another vendor.
UNCOMMANDED = ("tensorrt_llm_triton", "neuronx")


def test_an_engine_without_a_command_is_refused() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, engine="tensorrt_llm_triton_2024")
    with pytest.raises(sm.ScaleModelError, match="no command is known"):
        launch_command(plan)
    broken = sm.serve("llama3_1_405b", "dgx_h100", TASK)
    with pytest.raises(sm.ScaleModelError, match="does not run"):
        sm.launch_serving(broken)
    plan = sm.serve("llama3_8b", "dgx_h100", TASK)
    with pytest.raises(sm.ScaleModelError, match=r"target='helm': unknown"):
        sm.launch_serving(plan, "helm")  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="name='My App': must be small letters"):
        sm.launch_serving(plan, "kubernetes", name="My App")
    with pytest.raises(sm.ScaleModelError, match="must be what serve"):
        sm.launch_serving(TASK)  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="no command is known"):
        family_of("neuronx_2025")
    commanded = [name for name in catalog.names("engines") if not name.startswith(UNCOMMANDED)]
    assert {family_of(name) for name in commanded} == set(ENGINES)


# ------------------------------------------------------------------------------------- objects
def loaded(text: str) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    return list(yaml.safe_load_all(text))


TABLES = [
    {"a": "yes", "b": "1e3", "c": "a: b", "d": "# no", "e": "", "f": None, "g": [], "h": {}},
    {"a": [{"b": [1, [2, 3]], "c": {"d": True}}, "- x", [{"e": 1.5}]]},
    {
        "text": "a: 1\n\n  b: 2\nc\n",
        "not": "a\n",
        "ends": "a\nb",
        "spaces": " a\nb\n",
        "tab": "\ta\n",
    },
    {"null": "null", "0": "0o7", "~": "~", "<<": "<<", "é": 'ü"\\', "=": "=", "n": "off"},
]


@pytest.mark.parametrize("table", TABLES)
def test_yaml_is_read_as_it_was_meant(table: dict[str, Any]) -> None:
    assert loaded(yaml_text(table)) == [table]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", ["kubernetes", "kserve", "dynamo"])
def test_objects_hold_the_words_of_the_command(engine: str, target: Any) -> None:
    plan = plan_of(engine, precision="fp8", requests_per_s=1)
    launch = sm.launch_serving(plan, target, name="mine")
    objects = loaded(launch.script())
    assert all({"apiVersion", "kind", "metadata"} <= set(each) for each in objects)
    (each,) = (o for o in objects if o["kind"].startswith(("Deployment", "Inference", "Dynamo")))
    assert each["metadata"]["name"] == "mine"
    text = json.dumps(each)
    assert plan.model.hub in text
    assert json.dumps({"nvidia.com/gpu": "4"}) in text
    if engine == "tensorrt_llm":
        (files,) = (o for o in objects if o["kind"] == "ConfigMap")
        (options,) = loaded(files["data"]["options.yaml"])
        assert options["kv_cache_config"]["free_gpu_memory_fraction"] == 0.95
    else:
        option = {"vllm": "--max-num-batched-tokens", "sglang": "--chunked-prefill-size"}[engine]
        assert f'"{option}", "{plan.max_batched_tokens}"' in text


def test_selectors_and_ports_of_kubernetes_agree() -> None:
    plan = serve_split(
        "llama3_8b", ONE, TASK, requests_per_s=1, prefill_replicas=2, decode_replicas=3
    )
    objects = loaded(sm.launch_serving(plan, "kubernetes").script())
    pods = [o for o in objects if o["kind"] == "Deployment"]
    services = [o for o in objects if o["kind"] == "Service"]
    assert [pod["spec"]["replicas"] for pod in pods] == [2, 3]
    for pod, service in zip(pods, services, strict=True):
        template = pod["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert pod["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
        (container,) = template["spec"]["containers"]
        (port,) = container["ports"]
        assert service["spec"]["ports"][0]["targetPort"] == port["containerPort"]
        assert str(port["containerPort"]) == after(container["args"], "--port")
        assert labels["llm-d.ai/role"] in ("prefill", "decode")


def test_two_pools_have_commands_and_a_router() -> None:
    for engine in ENGINES:
        plan = serve_split(
            "llama3_8b", ONE, TASK, requests_per_s=1, decode_replicas=2, engine=ENGINES[engine]
        )
        launch = sm.launch_serving(plan)
        assert list(launch.commands) == ["prefill", "decode", "router"]
        router = launch.commands["router"] + launch.files.get("pools.yaml", "")
        for host in ("prefill-0", "decode-0", "decode-1"):
            assert host in router
        ports = {
            after(shlex.split(launch.commands[role]), "--port")
            for role in launch.commands
            if role != "router"
        }
        assert len(ports) == 2
        with pytest.raises(sm.ScaleModelError, match="has one pool"):
            sm.launch_serving(plan, "kserve")


def test_roles_of_the_pools_are_said() -> None:
    def launch(engine: str) -> Any:
        return sm.launch_serving(
            serve_split("llama3_8b", ONE, TASK, requests_per_s=1, engine=engine)
        )

    vllm = launch("vllm").commands
    transfer = json.loads(after(shlex.split(vllm["prefill"]), "--kv-transfer-config"))
    assert transfer == {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    sglang = launch("sglang").commands
    for role in ("prefill", "decode"):
        assert after(shlex.split(sglang[role]), "--disaggregation-mode") == role
    files = launch("TensorRT-LLM").files
    assert "disable_overlap_scheduler: true" in files["prefill_options.yaml"]
    assert "max_tokens_in_buffer: 1000" in files["decode_options.yaml"]


# ------------------------------------------------------------------------------------- strangers
def texts(value: Any) -> Iterator[str]:
    """Every text within tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("engine", ENGINES)
def test_names_of_strangers_stay_names(tmp_path: Path, engine: str, name: str) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    config |= {"num_attention_heads": 4, "intermediate_size": 256, "_name_or_path": name}
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = sm.serve(tmp_path / "config.json", ONE, TASK, engine=ENGINES[engine])
    assert plan.model.hub == ""
    found = words(plan)
    assert plan.model.name in found
    assert not {";", "&", "|"} & set(found)
    for target in ("kubernetes", "kserve", "dynamo"):
        objects = loaded(sm.launch_serving(plan, target).script())  # type: ignore[arg-type]
        pods = [o for o in objects if o["kind"] not in ("ConfigMap", "Service")]
        assert plan.model.name in list(texts(pods[0]))
    if engine == "vllm":
        with pytest.raises(sm.ScaleModelError, match="must be an id of the Hub"):
            sm.launch_serving(plan, "llm_d")
