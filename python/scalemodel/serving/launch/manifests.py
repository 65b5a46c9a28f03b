"""Deployments as objects of Kubernetes: Dynamo, KServe with llm-d, KServe alone, and plain ones.

Dynamo: ``examples/backends/*/deploy/v1beta1/disagg.yaml`` and ``disagg-multinode.yaml`` of 1.3.
LLMInferenceService: ``docs/samples/llmisvc`` of KServe and its templates in
``config/llmisvcconfig``, which hand ``VLLM_ADDITIONAL_ARGS`` to a shell. Labels of a pool's phase:
``guides/pd-disaggregation/modelserver`` of llm-d.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from scalemodel._core import Autoscaler
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hub import is_hub_id
from scalemodel.serving.launch import scaling, sglang, tensorrt_llm, vllm
from scalemodel.serving.launch.commands import family_of, start_of
from scalemodel.serving.launch.instance import Instance, Start
from scalemodel.serving.launch.yaml_text import yaml_text

#: Images of the releases whose options are written.
IMAGES: Final = {
    "vllm": "vllm/vllm-openai:v0.24.0",
    "sglang": "lmsysorg/sglang:v0.5.23",
    "tensorrt_llm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0",
}
#: Runtimes of Dynamo: image and module.
RUNTIMES: Final = {
    "vllm": ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.1", "dynamo.vllm"),
    "sglang": ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.3.1", "dynamo.sglang"),
    "tensorrt_llm": ("nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.3.1", "dynamo.trtllm"),
}
#: Secret with the token of the Hub.
SECRET: Final = "hf-token-secret"
_PORT: Final = 8000
_WHERE_FILES_LIE: Final = "/etc/engine"

_ADDRESS: Final = {
    "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}

Pools = Sequence[tuple[Instance, int]]


def object_name(model: str) -> str:
    """Name of the objects of a model: lower case letters, digits and hyphens, at most 40.

    Examples
    --------
    >>> object_name("meta-llama/Llama-3.3-70B-Instruct"), object_name("'; rm -rf /")
    ('llama-3-3-70b-instruct', 'rm-rf')
    """
    text = model.rstrip("/ ").rsplit("/", 1)[-1]
    if not re.search("[A-Za-z]", text):
        text = model
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name and name[0].isalpha() else f"model-{name}".rstrip("-")


def _gpus(instance: Instance) -> dict[str, Any]:
    vendor = "amd" if instance.plan.cluster.accelerator.startswith("mi") else "nvidia"
    return {"limits": {f"{vendor}.com/gpu": str(instance.per_node)}}


def _one_line(instance: Instance, target: str) -> Start:
    """The command of an instance that one pod runs."""
    if instance.nodes > 1:
        raise ScaleModelError(
            f"target={target!r}: an instance of the plan spans {instance.nodes} nodes, a pod lies "
            "on one; choose dynamo, or llm_d for vLLM"
        )
    return start_of(instance)


def _files(name: str, start: Start) -> list[dict[str, Any]]:
    """The files of a command as an object."""
    if not start.files:
        return []
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    return [data | {"data": {file: text + "\n" for file, text in start.files.items()}}]


def _mounted(words: Sequence[str], start: Start) -> list[str]:
    return [f"{_WHERE_FILES_LIE}/{word}" if word in start.files else str(word) for word in words]


def _volume(
    name: str, start: Start, *, shared: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a container and its pod say of a command's files, and of memory that ranks share."""
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if start.files:
        mounts.append({"name": "engine", "mountPath": _WHERE_FILES_LIE})
        volumes.append({"name": "engine", "configMap": {"name": name}})
    if shared:
        # The 64 MiB that a pod has by itself are too few for ranks that pass messages through it.
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    return ({"volumeMounts": mounts}, {"volumes": volumes}) if mounts else ({}, {})


def _environment(instance: Instance, start: Start, role: str) -> dict[str, list[dict[str, Any]]]:
    """Variables of a container, and the address at which a server of one phase is reached."""
    found: list[dict[str, Any]] = [{"name": k, "value": v} for k, v in start.environment.items()]
    if role and family_of(instance.plan.engine) == "vllm":
        found.append(_ADDRESS)
    return {"env": found} if found else {}


def documents(objects: Sequence[dict[str, Any]]) -> str:
    """Objects as one file of YAML."""
    return "\n---\n".join(yaml_text(each) for each in objects) + "\n"


# -------------------------------------------------------------------------------------- Kubernetes
def kubernetes(
    pools: Pools, name: str, scalers: Sequence[Autoscaler | None] = ()
) -> tuple[str, list[str]]:
    """Deployments and Services, and what scales the first; replicas are then the most there are."""
    objects: list[dict[str, Any]] = []
    notes: list[str] = []
    for (instance, replicas), scaler in zip(pools, [*scalers, *[None] * len(pools)], strict=False):
        start = _one_line(instance, "kubernetes")
        notes += start.notes
        family, role = family_of(instance.plan.engine), instance.role
        own = f"{name}-{role}" if role else name
        labels = {"app": own}
        if role:
            labels |= {"llm-d.ai/role": role}
        words = _mounted(_listening(family, start.nodes[0], role), start)
        scaled = None
        if scaler is not None:
            scaled = scaling.scaled_object(own, family, scaler, replicas, notes)
            words += scaling.REPORTS.get(family, ()) if scaled else ()
        mount, volume = _volume(own, start, shared=instance.ranks > 1)
        container = {
            "name": "engine",
            "image": IMAGES[family],
            "command": words[: _heads(family)],
            "args": words[_heads(family) :],
            **_environment(instance, start, role),
            "envFrom": [{"secretRef": {"name": SECRET}}],
            "ports": [{"containerPort": _port(family, role)}],
            "resources": _gpus(instance),
            "readinessProbe": {"httpGet": {"path": "/health", "port": _port(family, role)}},
            **mount,
        }
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [container], **volume}}
        # A count in the file would be set again, over the autoscaler's, with every change of it.
        counted = {} if scaled else {"replicas": replicas}
        spec = {**counted, "selector": {"matchLabels": labels}, "template": pod}
        meta = {"name": own, "labels": labels}
        objects += _files(own, start)
        objects.append(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        )
        ports = [{"port": _PORT, "targetPort": _port(family, role)}]
        service = {"selector": labels, "ports": ports}
        objects.append(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": own}, "spec": service}
        )
        objects += [scaled] if scaled else []
    if len(pools) > 1:
        notes.append("a router that sends each prompt to both pools must stand before them")
    return documents(objects), notes


def _heads(family: str) -> int:
    """Words of a command before its first option or model."""
    return {"vllm": 2, "sglang": 3, "tensorrt_llm": 1}[family]


def _port(family: str, role: str) -> int:
    if not role:
        return _PORT
    ports = {"vllm": vllm.PORTS, "sglang": sglang.PORTS, "tensorrt_llm": tensorrt_llm.PORTS}
    return int(ports[family][role])


def _listening(family: str, words: Sequence[str], role: str) -> list[str]:
    """A command that listens on the port of its pod; one of a pool already does."""
    if role:
        return [*words, "--host", "0.0.0.0"] if family == "vllm" else list(words)
    return [*words, "--host", "0.0.0.0", "--port", str(_PORT)]


def kserve(pools: Pools, name: str) -> tuple[str, list[str]]:
    """An InferenceService of KServe with a container of its own."""
    if len(pools) > 1:
        raise ScaleModelError(
            "target='kserve': an InferenceService has one pool; choose llm_d, dynamo or kubernetes"
        )
    ((instance, replicas),) = pools
    start = _one_line(instance, "kserve")
    family = family_of(instance.plan.engine)
    words = _mounted(_listening(family, start.nodes[0], ""), start)
    mount, volume = _volume(name, start, shared=instance.ranks > 1)
    container = {
        "name": "kserve-container",
        "image": IMAGES[family],
        "command": words[: _heads(family)],
        "args": words[_heads(family) :],
        **_environment(instance, start, ""),
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "ports": [{"containerPort": _PORT, "protocol": "TCP"}],
        "resources": _gpus(instance),
        **mount,
    }
    predictor = {"minReplicas": replicas, "maxReplicas": replicas, "containers": [container]}
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": predictor | volume},
    }
    return documents([*_files(name, start), service]), list(start.notes)


# ------------------------------------------------------------------------------- llm-d with KServe
def _workload(instance: Instance, notes: list[str]) -> dict[str, Any]:
    """Degrees, template and workers of a pool."""
    layout = instance.plan.layout
    degrees = vllm.parallel(instance, notes)
    limits = vllm.options(instance, notes)
    found: dict[str, Any] = {}
    if instance.nodes > 1:
        rank = layout.tp * layout.pp * layout.cp
        # kserve/kserve, LLMInferenceService validation: pipeline and data exclude each other.
        whole_ranks = layout.pp == 1 and instance.per_node % rank == 0
        if layout.cp > 1 or (layout.dp > 1 and not whole_ranks):
            raise ScaleModelError(
                f"target='llm_d': {instance.plan.layout}: no LLMInferenceService spreads such an "
                "instance over nodes; choose dynamo"
            )
        spread: dict[str, Any] = {"tensor": int(layout.tp)}
        if layout.dp > 1:
            spread |= {"data": int(layout.dp), "dataLocal": instance.per_node // rank}
        else:
            spread |= {"pipeline": int(layout.pp)}
            if layout.pp != instance.nodes:
                notes.append(f"pipeline={layout.pp} stages of KServe take a node each")
        if layout.ep > 1:
            spread["expert"] = True
        found["parallelism"] = spread
        degrees = []
    arguments = {"name": "VLLM_ADDITIONAL_ARGS", "value": shlex.join([*degrees, *limits])}
    environment = [arguments, _ADDRESS] if instance.role else [arguments]
    container: dict[str, Any] = {"name": "main", "env": environment}
    container["resources"] = _gpus(instance)
    container["envFrom"] = [{"secretRef": {"name": SECRET}}]
    found["template"] = {"containers": [container]}
    if instance.nodes > 1:
        found["worker"] = {"containers": [container]}
    return found


def llm_d(pools: Pools, name: str) -> tuple[str, list[str]]:
    """An LLMInferenceService: llm-d's pools and router under KServe; vLLM alone."""
    model, engine = pools[0][0].model, pools[0][0].plan.engine
    if family_of(engine) != "vllm":
        raise ScaleModelError(
            f"target='llm_d', engine={engine!r}: an LLMInferenceService runs vLLM; choose dynamo, "
            "kserve or kubernetes"
        )
    if not is_hub_id(model):
        # The templates of KServe hand the name to a shell.
        raise ScaleModelError(f"target='llm_d': model={model!r}: must be an id of the Hub")
    notes: list[str] = pools[0][0].notes()
    spec: dict[str, Any] = {"model": {"uri": f"hf://{model}", "name": model}}
    spec |= {"router": {"route": {}, "gateway": {}, "scheduler": {}}}
    for instance, replicas in pools:
        pool = {"replicas": replicas, **_workload(instance, notes)}
        if instance.role == "prefill":
            spec["prefill"] = pool
        else:
            spec |= pool
    service = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": {"name": name},
        "spec": spec,
    }
    return documents([service]), list(dict.fromkeys(notes))


# ------------------------------------------------------------------------------------------ Dynamo
def _worker_words(instance: Instance, start: Start) -> list[str]:
    """Arguments of a worker of Dynamo."""
    notes: list[str] = []
    family, role = family_of(instance.plan.engine), instance.role
    if family == "vllm":
        words = ["--model", instance.model]
        words += [*vllm.parallel(instance, notes), *vllm.options(instance, notes)]
        return [*words, "--disaggregation-mode", role] if role else words
    if family == "sglang":
        words = ["--model-path", instance.model, "--served-model-name", instance.model]
        return [*words, *sglang.parallel(instance, notes), *sglang.options(instance, notes)]
    words = ["--model-path", instance.model, "--served-model-name", instance.model]
    words += ["--extra-engine-args", f"{_WHERE_FILES_LIE}/{next(iter(start.files))}"]
    return [*words, "--disaggregation-mode", role] if role else words


def _engine_file(instance: Instance, start: Start) -> Start:
    """TensorRT-LLM's worker reads degrees and limits from its file as well."""
    if family_of(instance.plan.engine) != "tensorrt_llm":
        return Start(start.nodes, start.environment, {}, start.notes)
    notes: list[str] = []
    layout = instance.plan.layout
    limits = tensorrt_llm.limits(instance, notes)
    table: dict[str, Any] = {"backend": "pytorch"}
    table |= {"tensor_parallel_size": int(layout.tp * layout.dp)}
    table |= {"pipeline_parallel_size": int(layout.pp)}
    if layout.cp > 1:
        table["context_parallel_size"] = int(layout.cp)
    if layout.ep > 1:
        table["moe_expert_parallel_size"] = int(layout.ep)
    pairs = dict(zip(limits[0:6:2], limits[1:6:2], strict=True))
    table |= {name.removeprefix("--"): int(value) for name, value in pairs.items()}
    if "--enable_chunked_prefill" in limits:
        table["enable_chunked_prefill"] = True
    table |= tensorrt_llm.options_table(instance, notes)
    (name,) = start.files
    return Start(start.nodes, start.environment, {name: yaml_text(table)}, start.notes)


def dynamo(pools: Pools, name: str) -> tuple[str, list[str]]:
    """A DynamoGraphDeployment with its frontend, and the files of its workers."""
    family = family_of(pools[0][0].plan.engine)
    image, module = RUNTIMES[family]
    frontend: dict[str, Any] = {"name": "main", "image": image}
    frontend["command"] = ["python3", "-m", "dynamo.frontend"]
    frontend["args"] = ["--http-port", str(_PORT)]
    parts: list[dict[str, Any]] = [
        {
            "name": "Frontend",
            "type": "frontend",
            "replicas": 1,
            "podTemplate": {"spec": {"containers": [frontend]}},
        }
    ]
    files: list[dict[str, Any]] = []
    notes: list[str] = []
    for instance, replicas in pools:
        start = _engine_file(instance, start_of(instance))
        notes += start.notes
        own = f"{name}-{instance.role or 'worker'}"
        mount, volume = _volume(own, start)
        # The runtime chooses ports itself.
        environment = {} if family == "vllm" else _environment(instance, start, "")
        container = {
            "name": "main",
            "image": image,
            "command": ["python3", "-m", module],
            "args": _worker_words(instance, start),
            **environment,
            "envFrom": [{"secretRef": {"name": SECRET}}],
            "resources": _gpus(instance),
            **mount,
        }
        part: dict[str, Any] = {"name": (instance.role or "worker").capitalize() + "Worker"}
        if not instance.role:
            part["name"] = "Worker"
        part |= {"type": instance.role or "worker", "replicas": replicas}
        if instance.nodes > 1:
            part["multinode"] = {"nodeCount": instance.nodes}
        part["podTemplate"] = {"spec": {"containers": [container], **volume}}
        parts.append(part)
        files += _files(own, start)
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {"components": parts},
    }
    return documents([*files, graph]), list(dict.fromkeys(notes))
