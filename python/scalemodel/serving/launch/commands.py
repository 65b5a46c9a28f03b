"""Commands of every engine, by the name of its entry in the catalogue."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.launch import sglang, tensorrt_llm, vllm
from scalemodel.serving.launch.instance import Instance, Start, Variable
from scalemodel.serving.plan import ServingPlan

ENGINES: Final[dict[str, ModuleType]] = {
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt_llm": tensorrt_llm,
}
#: Its engines lie in a repository of models; no one command starts them.
_BEHIND_TRITON: Final = "tensorrt_llm_triton"


def family_of(engine: str) -> str:
    """The engine whose commands an entry of the catalogue understands.

    Raises
    ------
    ScaleModelError : none is known.

    Examples
    --------
    >>> family_of("vllm_v1"), family_of("tensorrt_llm_pytorch_2026")
    ('vllm', 'tensorrt_llm')
    """
    found = next((name for name in ENGINES if engine.startswith(name)), None)
    if found is None or engine.startswith(_BEHIND_TRITON):
        raise ScaleModelError(f"engine={engine!r}: no command is known that starts it")
    return found


#: Families with an encoder that engines have a class of: vLLM Whisper alone since it removed all
#: others with its first engine (vllm-project/vllm#24907); TensorRT-LLM what its documentation of
#: encoder-decoder models on the PyTorch backend lists (docs/source/models/encoder-decoder.md).
_ENCODED: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("whisper",),
    "sglang": ("mllama",),
    "tensorrt_llm": ("bart", "mbart", "mllama", "t5", "whisper"),
}


def _check_encoder(plan: ServingPlan) -> None:
    """Refuse to start an encoder that the engine has no class of."""
    if not plan.model.reads_source:
        return
    family = family_of(plan.engine)
    compiled = family == "tensorrt_llm" and tensorrt_llm.is_compiled(plan.engine)
    if plan.model.family in _ENCODED.get(family, ()) and not compiled:
        return
    listed = "; ".join(f"{name}: {', '.join(models)}" for name, models in _ENCODED.items())
    raise ScaleModelError(
        f"engine={plan.engine!r}: no command is known by which it starts {plan.model.name}; "
        f"families with an encoder that start, by engine: {listed} (PyTorch backend)"
    )


#: Kinds of recurrent mixer that no engine has a model of (the same registries).
_OF_RESEARCH: Final = ("delta", "gla", "hgrn", "rwkv4", "rwkv6")
#: Kinds of recurrent mixer, and families, that an engine has no model of. vLLM: none of its
#: registry of models (vllm/model_executor/models/registry.py) is RWKV, xLSTM or JetMoE;
#: TensorRT-LLM: those of its PyTorch backend that have a recurrent mixer are Nemotron-H, Granite 4,
#: Qwen3-Next and Qwen3.5 (docs/source/models/supported-models.md).
_LACKED: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("jet", "jetmoe", "rg_lru", "rwkv7", "xlstm", *_OF_RESEARCH),
    "sglang": ("jetmoe", "rg_lru", "xlstm", *_OF_RESEARCH),
    "tensorrt_llm": (
        *("convolution", "jet", "jetmoe", "kimi_delta", "lightning", "mamba1"),
        *("rg_lru", "rwkv7", "xlstm", *_OF_RESEARCH),
    ),
}


def _check_mixers(plan: ServingPlan) -> None:
    """Refuse to start a kind of mixer or a family that the engine has no model of."""
    model, lacked = plan.model, _LACKED.get(family_of(plan.engine), ())
    words = {
        model.shape.recurrence: f"with {model.shape.recurrence} mixers",
        model.family: f"of the {model.family} family",
    }
    for kind, said in words.items():
        if kind not in lacked:
            continue
        others = [name for name in ENGINES if kind not in _LACKED.get(name, ())]
        raise ScaleModelError(
            f"engine={plan.engine!r}: starts no model {said}, as {model.name} is; "
            f"not known to lack them: {', '.join(others) or 'none'}"
        )


def start_of(instance: Instance) -> Start:
    """How an instance is started."""
    _check_encoder(instance.plan)
    _check_mixers(instance.plan)
    experts = instance.plan.layout.expert_ranks
    if experts:
        raise ScaleModelError(
            f"expert_ranks={experts}: no release of an engine has a command that starts experts "
            "on a pool of their own"
        )
    start: Callable[[Instance], Start] = ENGINES[family_of(instance.plan.engine)].start
    return start(instance)


def shell(words: Iterable[str], environment: Mapping[str, str] | None = None) -> str:
    r"""Words as a shell reads them; only a `Variable` is filled in.

    Examples
    --------
    >>> shell(["a", "$(b)", Variable("$HEAD_IP")], {"C": "1 2"})
    'C=\'1 2\' a \'$(b)\' "$HEAD_IP"'
    """
    before = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    quoted = [f'"{word}"' if isinstance(word, Variable) else shlex.quote(word) for word in words]
    return " ".join([*before, *quoted])


def alone(plan: ServingPlan) -> Instance:
    """An instance that serves both phases."""
    return Instance(plan, prefix_caching=plan.task.prefix_hit_fraction > 0)


def launch_command(plan: ServingPlan) -> str:
    """The command line of one instance, ready for a shell.

    An instance that spans several nodes has one line for each of them, ``$HEAD_IP`` being the
    address of the first. What the command line of TensorRT-LLM cannot say (attention data
    parallelism, the cache) is expected in ``options.yaml``; `launch_options` writes it. Commands of
    a whole deployment, its files and its notes are made by `launch_serving`.

    Raises
    ------
    ScaleModelError : the plan does not run, or its engine has no such command.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100, precision="fp8")
    >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4), concurrency=32,
    ...                 replicas=1)
    >>> print(launch_command(plan))
    vllm serve meta-llama/Meta-Llama-3-70B-Instruct --tensor-parallel-size 4 ...
    """
    start = start_of(alone(plan))
    if len(start.nodes) == 1:
        return shell(start.nodes[0], start.environment)
    lines = []
    for node, words in enumerate(start.nodes):
        lines += [f"# on node {node}", shell(words, start.environment)]
    return "\n".join(lines)


def launch_options(plan: ServingPlan) -> str:
    """What stands in ``options.yaml`` beside the command of TensorRT-LLM; empty for other engines.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100, kv_precision="fp8")
    >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4),
    ...                 engine="TensorRT-LLM")
    >>> print(launch_options(plan))
    kv_cache_config:
      free_gpu_memory_fraction: 0.95
      tokens_per_block: 32
      dtype: fp8
      enable_block_reuse: false
    """
    return "\n".join(start_of(alone(plan)).files.values())
