"""Commands and objects that start a whole deployment: replicas, pools of one phase, routers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, get_args

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments
from scalemodel.serving.launch import manifests, sglang, tensorrt_llm, vllm
from scalemodel.serving.launch.commands import ENGINES, alone, family_of, shell, start_of
from scalemodel.serving.launch.instance import HEAD, Instance, Start
from scalemodel.serving.launch.yaml_text import yaml_text
from scalemodel.serving.plan import ServingPlan

Target = Literal["command", "kubernetes", "kserve", "llm_d", "dynamo"]


class TwoPools(Protocol):
    """What `serve_split` makes: a plan for prompts and one for answers."""

    @property
    def prefill(self) -> ServingPlan:
        """Plan of the pool of prompts."""

    @property
    def decode(self) -> ServingPlan:
        """Plan of the pool of answers."""

    @property
    def limits(self) -> Mapping[str, float]:
        """Of latency, by name."""

    @property
    def simulated(self) -> Mapping[str, float]:
        """Means and percentiles by the names of limits."""

    @property
    def missed(self) -> str:
        """The limit that does not hold."""


_WRITERS: Final[dict[str, Callable[[manifests.Pools, str], tuple[str, list[str]]]]] = {
    "kubernetes": manifests.kubernetes,
    "kserve": manifests.kserve,
    "llm_d": manifests.llm_d,
    "dynamo": manifests.dynamo,
}
#: Line that ends a file within a script.
_END: Final = "END"
#: File of the two pools of TensorRT-LLM.
_POOLS: Final = "pools.yaml"


@dataclass(frozen=True)
class ServingLaunch:
    """How a serving plan is started. Made by `launch_serving`.

    Attributes
    ----------
    target : str
        What reads it: ``command``, ``kubernetes``, ``kserve``, ``llm_d`` or ``dynamo``.
    engine : str
        Catalogue name.
    release : str
        Release of the engine whose options are written.
    commands : dict
        Command lines by what they start: ``serve``, or ``prefill``, ``decode`` and ``router``; an
        instance on several nodes has one line for each. Each replica runs them. Empty for objects
        of Kubernetes.
    files : dict
        Texts by the name of their file.
    notes : tuple of str
        What these cannot say about the plan, or need beside them.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
    >>> plan = sm.serve("Qwen/Qwen3-8B", "dgx_h100", task, concurrency=32, replicas=1)
    >>> print(sm.launch_serving(plan).commands["serve"])
    vllm serve Qwen/Qwen3-8B --tensor-parallel-size 1 --max-model-len 1100 --max-num-seqs 32 ...
    """

    target: str
    engine: str
    release: str
    commands: dict[str, str] = field(hash=False)
    files: dict[str, str] = field(hash=False)
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return self.script()

    def script(self) -> str:
        """All of it as one text: a shell script, or the YAML of objects with notes above it.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, concurrency=32, replicas=1)
        >>> sm.launch_serving(plan).script().splitlines()[0]
        '# vLLM 0.8 and later (V1 engine): options of 0.24.0'
        """
        title = catalog.load("engines", self.engine).get("title", self.engine)
        lines = [
            f"# {plain(title)}: options of {self.release}",
            *(f"# {plain(note)}" for note in self.notes),
        ]
        if not self.commands:
            return "\n".join([*lines, *self.files.values()])
        for name, text in self.files.items():
            if _END in text.split("\n"):
                raise ScaleModelError(
                    f"files: a line is {_END!r}: would end the file within a script"
                )
            lines += [f"cat > {shlex.quote(name)} <<'{_END}'", text.rstrip("\n"), _END]
        for name, command in self.commands.items():
            lines += [f"# {name}", command] if len(self.commands) > 1 else [command]
        return "\n".join(lines) + "\n"


def _pools_of(plan: ServingPlan | TwoPools) -> list[tuple[Instance, int]]:
    if isinstance(plan, ServingPlan):
        return [(alone(plan), plan.replicas)]
    # The decode pool counts the cache it was sent as looked up, which says nothing about prompts.
    cached = plan.prefill.task.prefix_hit_fraction > 0
    return [
        (Instance(plan.prefill, "prefill", cached), plan.prefill.replicas),
        (Instance(plan.decode, "decode", cached), plan.decode.replicas),
    ]


def _lines(start: Start) -> str:
    return "\n".join(shell(words, start.environment) for words in start.nodes)


def commands_of_pools(
    pools: list[tuple[Instance, int]],
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Command lines, files and notes of instances and their router."""
    commands: dict[str, str] = {}
    files: dict[str, str] = {}
    notes: list[str] = []
    for instance, replicas in pools:
        start = start_of(instance)
        commands[instance.role or "serve"] = _lines(start)
        files |= start.files
        notes += start.notes
        if len(start.nodes) > 1:
            notes.append(f"one line for each of {len(start.nodes)} nodes; {HEAD} is the first's")
        if replicas > 1:
            what = f"the {instance.role} pool" if instance.role else "the plan"
            notes.append(f"{what} has {replicas} replicas, each started so")
    if len(pools) == 1:
        return commands, files, notes
    counts = (pools[0][1], pools[1][1])
    family = family_of(pools[0][0].plan.engine)
    if family == "tensorrt_llm":
        files[_POOLS] = yaml_text(tensorrt_llm.pools(*counts))
        commands["router"] = shell(["trtllm-serve", "disaggregated", "-c", _POOLS])
    else:
        router = vllm.router if family == "vllm" else sglang.router
        commands["router"] = shell(router(*counts))
    notes.append("prefill-0, decode-0 and so on stand for the hosts of the pools' instances")
    return commands, files, notes


def _promise(plan: ServingPlan | TwoPools) -> list[str]:
    """The limits of latency that a plan was made for, what they come to, and at which load."""
    if not plan.limits:
        return []
    first = plan if isinstance(plan, ServingPlan) else plan.prefill
    at = "" if first.asked_rate is None else f" at {first.asked_rate:g} requests/s"
    told = [
        f"{name} {plan.simulated[name]:.3g} of {limit:g}"
        if name in plan.simulated
        else f"{name} {limit:g}"
        for name, limit in plan.limits.items()
    ]
    found = [f"limits{at}: {', '.join(told)}"]
    missed = "" if isinstance(plan, ServingPlan) else plan.missed
    return [*found, f"{missed} does not hold"] if missed else found


@named_arguments
def launch_serving(
    plan: ServingPlan | TwoPools, target: Target = "command", *, name: str = ""
) -> ServingLaunch:
    """What starts a serving plan: commands of its engine, or objects of Kubernetes.

    Parameters
    ----------
    plan : Serving or SplitServing
        A plan that runs; the second has a pool for prompts and a pool for answers.
    target : {"command", "kubernetes", "kserve", "llm_d", "dynamo"}
        Command lines; a Deployment and a Service for each pool; an InferenceService; an
        LLMInferenceService, which is llm-d under KServe (vLLM only); a DynamoGraphDeployment.
    name : str
        Of the objects; made of the model's when left out.

    Returns
    -------
    ServingLaunch
        Commands or files, and notes on what they cannot say. `read_serving` reads them back.

    Raises
    ------
    ScaleModelError : the plan does not run; the engine has no command; the target has no words for
        the plan.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
    >>> plan = sm.serve("Qwen/Qwen3-32B", "dgx_h100", task, sm.ServingLayout(tp=2), concurrency=64,
    ...                 replicas=4)
    >>> sm.launch_serving(plan).notes
    ('the plan has 4 replicas, each started so',)
    >>> print(sm.launch_serving(plan, "kubernetes").files["qwen3-32b.yaml"])
    apiVersion: apps/v1
    kind: Deployment
    ...
    """
    if target not in get_args(Target):
        raise ScaleModelError(
            f"target={target!r}: unknown; {nearest(str(target), get_args(Target))}",
            code="unknown_target",
        )
    both = hasattr(plan, "prefill") and hasattr(plan, "decode")
    if not both and not isinstance(plan, ServingPlan):
        raise ScaleModelError(
            f"plan={plan!r}: must be what serve, plan_serving or serve_split make"
        )
    pools = _pools_of(plan)
    first = pools[0][0]
    commands: dict[str, str] = {}
    if target == "command":
        commands, files, notes = commands_of_pools(pools)
    else:
        called = manifests.object_name(name or first.model)
        if name and called != name:
            raise ScaleModelError(
                f"name={name!r}: must be small letters, digits and hyphens, at most 40 of them"
            )
        text, notes = _WRITERS[target](pools, called)
        files = {f"{called}.yaml": text}
    kept = tuple(dict.fromkeys([*_promise(plan), *notes]))
    release = str(ENGINES[family_of(first.plan.engine)].RELEASE)
    return ServingLaunch(target, first.plan.engine, release, commands, files, kept)
