"""Objects of Kubernetes, and the pools of servers that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.engines import read_server
from scalemodel.interop.serving_settings.record import ServingSettings
from scalemodel.interop.serving_settings.words import program_of, servers_of, split_words

_ROLES: Final = ("prefill", "decode")
#: Objects that a framework's manifest must hold one of.
KINDS: Final = {
    "dynamo": ("DynamoGraphDeployment",),
    "llm_d": ("LLMInferenceService", "Deployment", "LeaderWorkerSet"),
    "kserve": ("InferenceService", "LLMInferenceService"),
    "kubernetes": ("Deployment", "StatefulSet", "LeaderWorkerSet"),
}


def _table(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ScaleModelError(f"{where}={value!r}: must be a table", code="malformed_setting")
    return value


def _list(value: object, where: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ScaleModelError(f"{where}={value!r}: must be a list", code="malformed_setting")
    return value


def _count(value: object, where: str, default: int) -> int:
    if value is None:
        return default
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if not 0 <= number <= 10**9:
        raise ScaleModelError(
            f"{where}={value!r}: must be a whole number", code="malformed_setting"
        )
    return number


def accelerator_in(text: str) -> str:
    """The accelerator of the catalogue that a label names; empty: none.

    Examples
    --------
    >>> accelerator_in("NVIDIA-H100-80GB-HBM3"), accelerator_in("cluster:b300-nv")
    ('h100_sxm_80', 'b300')
    """
    words = text.replace("cluster:", "").replace("_", "-").split("-")
    for label in (text, *("-".join(words[:end]) for end in range(len(words), 0, -1)), *words):
        if label and catalog.is_entry("accelerators", label):
            return catalog.find("accelerators", label)
    return ""


def _gpus(container: Mapping[str, Any], part: Mapping[str, Any]) -> int:
    """Accelerators of a pod."""
    for table in (container, part):
        resources = _table(table.get("resources"), "resources")
        for kind in ("limits", "requests"):
            for name, value in _table(resources.get(kind), f"resources.{kind}").items():
                if name == "gpu" or str(name).endswith("/gpu"):
                    return _count(value, str(name), 0)
    return 0


def _hint(pod: Mapping[str, Any]) -> str:
    """Accelerator that a pod asks its node for."""
    for name, value in _table(pod.get("nodeSelector"), "nodeSelector").items():
        if "gpu" in str(name).lower() or "accelerator" in str(name).lower():
            found = accelerator_in(str(value))
            if found:
                return found
    return ""


def _words(container: Mapping[str, Any]) -> list[str]:
    """Command and arguments of a container; what a shell in it is given counts as a script."""
    words: list[str] = []
    for key in ("command", "args"):
        value = container.get(key)
        words += split_words(value) if isinstance(value, str) else map(str, _list(value, key))
    return words


def _server(container: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """Engine and its words that a container starts."""
    words = _words(container)
    program = program_of(words)
    if program is not None:
        return program[0], tuple(words[program[1] :])
    for word in words:
        for server in servers_of(word) if " " in word else ():
            return server.framework, server.words
    return None


def _role(*labels: object) -> str:
    """The phase that labels of a pool name."""
    text = " ".join(str(label).lower() for label in labels if label)
    return next((role for role in _ROLES if role in text), "")


def _files(documents: Iterable[Any]) -> dict[str, str]:
    """Texts of the ConfigMaps of a manifest, by file."""
    found: dict[str, str] = {}
    for each in documents:
        if isinstance(each, Mapping) and each.get("kind") == "ConfigMap":
            for name, text in _table(each.get("data"), "data").items():
                found[str(name)] = str(text)
    return found


class Manifest:
    """Documents of YAML, and how their containers are read."""

    def __init__(self, documents: Sequence[Any], engine: str, files: Mapping[str, str]) -> None:
        self.documents = [each for each in documents if isinstance(each, Mapping)]
        self.engine = engine
        self.files = {**_files(documents), **files}

    def pool(
        self,
        container: Mapping[str, Any],
        part: Mapping[str, Any],
        pod: Mapping[str, Any],
        role: str,
        replicas: int,
    ) -> ServingSettings | None:
        """The settings of the server in a container; None where it holds no server."""
        server = _server(container)
        if server is None:
            return None
        framework, words = server
        return read_server(
            framework,
            words,
            engine=self.engine,
            files=self.files,
            role=role,
            replicas=replicas,
            node_accelerators=_gpus(container, part),
            cluster=_hint(pod),
        )


def _pods(manifest: Manifest, each: Mapping[str, Any]) -> list[ServingSettings]:
    """Pools of a workload with one template."""
    spec = _table(each.get("spec"), "spec")
    template = spec.get("template") or _table(
        _table(spec.get("leaderWorkerTemplate"), "leaderWorkerTemplate").get("leaderTemplate")
        or _table(spec.get("leaderWorkerTemplate"), "").get("workerTemplate"),
        "leaderWorkerTemplate",
    )
    template = _table(template, "template")
    pod = _table(template.get("spec"), "template.spec")
    meta = _table(each.get("metadata"), "metadata")
    labels = _table(_table(template.get("metadata"), "metadata").get("labels"), "labels")
    role = _role(labels.get("llm-d.ai/role"), meta.get("name"))
    replicas = _count(spec.get("replicas"), "replicas", 1)
    found = []
    for container in _list(pod.get("containers"), "containers"):
        pool = manifest.pool(_table(container, "containers"), {}, pod, role, replicas)
        if pool is not None:
            found.append(pool)
    return found


def _dynamo(manifest: Manifest, each: Mapping[str, Any]) -> list[ServingSettings]:
    """Pools of a DynamoGraphDeployment, of either version."""
    spec = _table(each.get("spec"), "spec")
    parts = [
        (str(_table(part, "components").get("name")), _table(part, "components"))
        for part in _list(spec.get("components"), "components")
    ]
    services = _table(spec.get("services"), "services")
    parts += [(str(name), _table(part, str(name))) for name, part in services.items()]
    found = []
    for name, part in parts:
        pod = _table(_table(part.get("podTemplate"), "podTemplate").get("spec"), "spec")
        older = _table(part.get("extraPodSpec"), "extraPodSpec")
        containers = [*_list(pod.get("containers"), "containers")]
        if older.get("mainContainer"):
            containers.append(older["mainContainer"])
        for container in containers:
            table = _table(container, "containers")
            words = " ".join(_words(table))
            told = next((r for r in _ROLES if f"--disaggregation-mode {r}" in words), "")
            if "--is-prefill-worker" in words:
                told = "prefill"
            kinds = (part.get("type"), part.get("subComponentType"))
            # A worker of both phases is often called a decode worker.
            role = told or _role(*kinds)
            replicas = _count(part.get("replicas"), f"{name}.replicas", 1)
            pool = manifest.pool(table, part, pod or older, role, replicas)
            if pool is not None:
                found.append(pool)
    if not any(pool.role == "prefill" for pool in found):
        found = [replace(pool, role="") for pool in found]
    return [replace(p, role="decode") if len(found) > 1 and not p.role else p for p in found]


def _arguments(pod: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
    """Options that a template of an LLMInferenceService adds to the server's, and its container."""
    for container in _list(pod.get("containers"), "containers"):
        table = _table(container, "containers")
        if table.get("name") not in ("main", None):
            continue
        words = _words(table)
        program = program_of(words)
        words = words[program[1] :] if program else words
        for variable in _list(table.get("env"), "env"):
            each = _table(variable, "env")
            if each.get("name") == "VLLM_ADDITIONAL_ARGS":
                words += split_words(str(each.get("value", "")))
        return words, table
    return [], {}


def _llm_service(manifest: Manifest, each: Mapping[str, Any]) -> list[ServingSettings]:
    """Pools of an LLMInferenceService."""
    spec = _table(each.get("spec"), "spec")
    model = _table(spec.get("model"), "model")
    uri = str(model.get("uri", ""))
    hub = uri.removeprefix("hf://") if uri.startswith("hf://") else str(model.get("name") or uri)
    pools = [(spec, "decode" if spec.get("prefill") else "")]
    if spec.get("prefill"):
        pools.append((_table(spec.get("prefill"), "prefill"), "prefill"))
    found = []
    for part, role in pools:
        pod = _table(part.get("template"), "template")
        words, container = _arguments(pod)
        degrees = _table(part.get("parallelism"), "parallelism")
        for key, option in (
            ("tensor", "--tensor-parallel-size"),
            ("pipeline", "--pipeline-parallel-size"),
            ("data", "--data-parallel-size"),
        ):
            if degrees.get(key) is not None:
                words += [option, str(degrees[key])]
        if degrees.get("expert"):
            words.append("--enable-expert-parallel")
        found.append(
            read_server(
                "vllm",
                (hub, *words),
                engine=manifest.engine,
                role=role,
                replicas=_count(part.get("replicas"), "replicas", 1),
                node_accelerators=_gpus(container, {}),
                cluster=_hint(pod),
            )
        )
    return found


def _service(manifest: Manifest, each: Mapping[str, Any]) -> list[ServingSettings]:
    """The pool of an InferenceService: a container of its own, or KServe's runtime of vLLM."""
    spec = _table(each.get("spec"), "spec")
    pod = _table(spec.get("predictor"), "predictor")
    replicas = _count(pod.get("minReplicas"), "minReplicas", 1)
    for container in _list(pod.get("containers"), "containers"):
        pool = manifest.pool(_table(container, "containers"), {}, pod, "", replicas)
        if pool is not None:
            return [pool]
    runtime = _table(pod.get("model"), "model")
    if not runtime:
        return []
    words = _words(runtime)
    uri = str(runtime.get("storageUri", ""))
    named = next((w.partition("=")[2] for w in words if w.startswith("--model_id=")), "")
    hub = named or uri.removeprefix("hf://")
    kept = [word for word in words if not word.startswith(("--model_id", "--model_name"))]
    pool = read_server(
        "vllm",
        (hub, *kept),
        engine=manifest.engine,
        replicas=replicas,
        node_accelerators=_gpus(runtime, {}),
        cluster=_hint(pod),
    )
    return [pool]


_READERS: Final[dict[str, Callable[[Manifest, Mapping[str, Any]], list[ServingSettings]]]] = {
    "DynamoGraphDeployment": _dynamo,
    "LLMInferenceService": _llm_service,
    "InferenceService": _service,
    "Deployment": _pods,
    "StatefulSet": _pods,
    "LeaderWorkerSet": _pods,
}


def paired(pools: Sequence[ServingSettings], where: str) -> ServingSettings:
    """One deployment of the pools of a file: one pool, or one for each phase."""
    if len(pools) == 1:
        return replace(pools[0], role="") if pools[0].role == "decode" else pools[0]
    by_role = {pool.role: pool for pool in pools}
    if len(pools) == 2 and set(by_role) == set(_ROLES):
        return replace(by_role["decode"], prefill=by_role["prefill"])
    what = ", ".join(pool.role or "no phase" for pool in pools) or "none"
    raise ScaleModelError(
        f"{where}: must hold one server, or one for prefill and one for decode; found {what}",
        code="malformed_setting",
    )


def read_objects(
    framework: str, documents: Sequence[Any], engine: str, files: Mapping[str, str]
) -> ServingSettings:
    """The deployment of a manifest."""
    manifest = Manifest(documents, engine, files)
    kinds = KINDS[framework]
    pools: list[ServingSettings] = []
    for each in manifest.documents:
        kind = str(each.get("kind"))
        if kind in kinds:
            pools += _READERS[kind](manifest, each)
    if not pools:
        raise ScaleModelError(
            f"{framework}: no server in an object of kind {' or '.join(kinds)}",
            code="malformed_setting",
        )
    return paired(pools, framework)
