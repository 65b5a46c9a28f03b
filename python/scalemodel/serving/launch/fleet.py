"""Commands and objects that start a planned fleet: replicas of several kinds and their router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scalemodel._core import Autoscaler, CacheTier
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.launch import manifests, sglang, vllm
from scalemodel.serving.launch.commands import ENGINES, family_of, shell, start_of
from scalemodel.serving.launch.deploy import ServingLaunch, commands_of_pools
from scalemodel.serving.launch.instance import HEAD, Instance
from scalemodel.serving.plan import ServingPlan
from scalemodel.serving.verdicts import layout_text

#: Policies of the routers before engines, by that of a plan (docs of the SGLang model gateway and
#: of vLLM's router, `--policy`).
_POLICIES: Final = {
    "round_robin": "round_robin",
    "random": "random",
    "power_of_two": "power_of_two",
    "prefix_aware": "cache_aware",
    "session_sticky": "consistent_hash",
}
#: What routes as the other policies do.
_ELSEWHERE: Final = {
    "least_loaded": "power_of_two is nearest to least_loaded among the policies of this router",
    "kv_cost": "kv_cost is the router of Dynamo: python -m dynamo.frontend --router-mode kv",
    "weighted_scorers": "weighted_scorers are those of llm-d's EndpointPickerConfig",
}
_NEAREST: Final = {
    "least_loaded": "power_of_two",
    "kv_cost": "cache_aware",
    "weighted_scorers": "cache_aware",
}
_ROUTERS: Final = {"vllm": vllm.replica_router, "sglang": sglang.replica_router}


@dataclass(frozen=True)
class FleetParts:
    """What is to be started.

    Attributes
    ----------
    pairs : tuple of (ServingPlan, int)
        Kinds of replicas and how many there are of each.
    router : str
    longest : int
        Tokens of the longest request, prompt and answer.
    prefix_caching : bool
    notes : tuple of str
        What else the plan has that no command says.
    tier_setup : str
    tiers : tuple of CacheTier
        Below the KV caches of replicas; of pools, of those of prompts.
    scalers : tuple of (Autoscaler or None)
        Of the replicas; of pools, of each.
    """

    pairs: tuple[tuple[ServingPlan, int], ...]
    router: str
    longest: int
    prefix_caching: bool
    notes: tuple[str, ...] = ()
    tier_setup: str = ""
    tiers: tuple[CacheTier, ...] = ()
    scalers: tuple[Autoscaler | None, ...] = ()

    def instances(self) -> list[tuple[Instance, int]]:
        """Instances of all kinds; of pools, those of prompts first."""
        pools = any(plan.task.prefilled for plan, _ in self.pairs)
        roles = {True: "decode", False: "prefill"}
        return [
            (
                Instance(
                    plan,
                    roles[plan.task.prefilled] if pools else "",  # type: ignore[arg-type]
                    self.prefix_caching,
                    self.longest,
                    *(("", ()) if plan.task.prefilled else (self.tier_setup, self.tiers)),
                ),
                count,
            )
            for plan, count in self.pairs
        ]


def launch_fleet(parts: FleetParts, target: str = "command", name: str = "") -> ServingLaunch:
    """What starts a fleet: commands, or a Deployment and a Service of each kind of its replicas.

    Raises
    ------
    ScaleModelError : an unknown target; pools of several kinds each, which no router of an engine
        knows.
    """
    if target not in ("command", "kubernetes"):
        raise ScaleModelError(f"target={target!r}: must be command or kubernetes for a fleet")
    if not parts.pairs:
        raise ScaleModelError("launch: no fleet keeps the limits")
    instances = parts.instances()
    pools = bool(instances[0][0].role)
    if pools and len(instances) > 2:
        raise ScaleModelError("launch: pools of several kinds each have no router to start")
    first = instances[0][0]
    notes = list(parts.notes)
    commands: dict[str, str] = {}
    files: dict[str, str] = {}
    scalers = [scaler for scaler in parts.scalers if scaler is not None]
    if target == "kubernetes" and (pools or len(instances) == 1):
        files, said = _objects(instances, name, parts.scalers)
        notes += said if pools else [*said, _routing(parts.router)]
    elif target == "kubernetes":
        notes += _as_said(scalers)
        files, said = _objects(instances, name)
        notes += [*said, _routing(parts.router)]
    elif pools:
        commands, files, said = commands_of_pools(instances)
        notes += [*said, *_as_said(scalers)]
    else:
        notes += _as_said(scalers)
        commands, files, said = _commands(instances, parts.router)
        notes += said
    release = str(ENGINES[family_of(first.plan.engine)].RELEASE)
    kept = tuple(dict.fromkeys(notes))
    return ServingLaunch(target, first.plan.engine, release, commands, files, kept)


def _as_said(scalers: Sequence[Autoscaler]) -> list[str]:
    """Autoscalers that no command is."""
    return [f"replicas are the most there are: {scaler}" for scaler in scalers]


def _objects(
    instances: Sequence[tuple[Instance, int]],
    name: str,
    scalers: Sequence[Autoscaler | None] = (),
) -> tuple[dict[str, str], list[str]]:
    files: dict[str, str] = {}
    notes: list[str] = []
    called = manifests.object_name(name or instances[0][0].model)
    if instances[0][0].role:
        text, notes = manifests.kubernetes(list(instances), called, scalers)
        return {f"{called}.yaml": text}, notes
    for place, (instance, count) in enumerate(instances):
        own = f"{called}-{place}" if len(instances) > 1 else called
        text, said = manifests.kubernetes([(instance, count)], own, scalers)
        files[f"{own}.yaml"] = text
        notes += [f"{own}: on nodes of {instance.plan.cluster.name}", *said]
    return files, notes


def _routing(router: str) -> str:
    return _ELSEWHERE.get(router, f"the router before them: policy {_POLICIES.get(router)}")


def _commands(
    instances: Sequence[tuple[Instance, int]], router: str
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    commands: dict[str, str] = {}
    files: dict[str, str] = {}
    notes: list[str] = []
    hosts: list[str] = []
    for instance, count in instances:
        start = start_of(instance)
        kind = f"{instance.plan.cluster.name} {layout_text(instance.plan.layout)}"
        commands[kind] = "\n".join(shell(words, start.environment) for words in start.nodes)
        files |= start.files
        notes += [f"{kind}: {count} replicas, each started so", *start.notes]
        if len(start.nodes) > 1:
            notes.append(f"one line for each of {len(start.nodes)} nodes; {HEAD} is the first's")
        hosts += [f"{kind.replace('_', '-').replace(' ', '-')}-{n}" for n in range(count)]
    family = family_of(instances[0][0].plan.engine)
    if len(hosts) == 1:
        return commands, files, notes
    notes.append("replicas on one host need ports and accelerators of their own")
    if family not in _ROUTERS:
        notes.append(f"this engine brings no router: one that routes by {router} stands before it")
        return commands, files, notes
    policy = _POLICIES.get(router) or _NEAREST[router]
    if router in _ELSEWHERE:
        notes.append(_ELSEWHERE[router])
    commands["router"] = shell(_ROUTERS[family](hosts, policy))
    notes.append(f"{hosts[0]} and so on stand for the hosts of replicas")
    return commands, files, notes
