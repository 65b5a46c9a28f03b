"""Settings of training frameworks: read into a question, written from an estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import read_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.interop.settings import accelerate, deepspeed, megatron, megatron_reader, torchtitan
from scalemodel.interop.settings.given import from_script, from_tokens, leaves, read_table
from scalemodel.interop.settings.question import Job, Launch, Settings, job_of

__all__ = ["Launch", "Settings", "launch", "read_settings"]

_WRITERS: Final[dict[str, Callable[[Job], Launch]]] = {
    "megatron": megatron.write,
    "torchtitan": torchtitan.write,
    "deepspeed": deepspeed.write,
    "accelerate": accelerate.write,
}
# NeMo and Megatron-Bridge keep Megatron-Core's names in tables of their own.
_READERS: Final[dict[str, Callable[[dict[str, Any], int], Settings]]] = {
    "megatron": megatron_reader.read,
    "nemo": megatron_reader.read,
    "megatron_bridge": megatron_reader.read,
    "torchtitan": torchtitan.read,
    "deepspeed": deepspeed.read,
    "accelerate": accelerate.read,
}
_COMMANDS: Final = ("megatron", "torchtitan")
_TABLES: Final = (".json", ".toml", ".yaml", ".yml")


def _known(framework: str, names: Sequence[str]) -> str:
    if framework not in names:
        raise ScaleModelError(
            f"framework={framework!r}: unknown; {nearest(str(framework), names)}",
            code="unknown_framework",
        )
    return framework


def launch(est: Estimate, framework: str) -> Launch:
    """How to start the strategy of an estimate in a training framework.

    Parameters
    ----------
    est : Estimate
        Of a strategy that can run.
    framework : {"megatron", "torchtitan", "deepspeed", "accelerate"}

    Returns
    -------
    Launch
        Command, environment and files; ``notes`` name what the framework cannot express. Data,
        learning rate and logging are left to the reader.

    Raises
    ------
    ScaleModelError : unknown framework, or a strategy that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2, pp=2))
    >>> "--tensor-model-parallel-size" in sm.launch(est, "megatron").command
    True
    >>> sm.read_settings("megatron", sm.launch(est, "megatron").script()).model.parameters
    8030261248
    """
    return _WRITERS[_known(framework, tuple(_WRITERS))](job_of(est))


def _values(framework: str, source: object) -> dict[str, Any]:
    words = isinstance(source, Sequence) and not isinstance(source, str)
    if words and framework in _COMMANDS:
        return from_tokens([str(word) for word in source])  # type: ignore[attr-defined]
    if isinstance(source, (str, Path)) and framework in _COMMANDS:
        text = str(source)
        if "\n" not in text and "--" not in text and Path(text).suffix not in _TABLES:
            text = read_text(text, argument=f"{framework}: ")
        if "--" in text:
            return from_script(text)
    table = read_table(source, framework)
    return leaves(table) if framework not in ("deepspeed", "accelerate") else table


def read_settings(framework: str, source: object, *, accelerators: int = 0) -> Settings:
    """Model, task and strategy of a job set up in a training framework.

    Parameters
    ----------
    framework : {"megatron", "nemo", "megatron_bridge", "torchtitan", "deepspeed", "accelerate"}
    source : str, Path, sequence, mapping or object
        A configuration file (JSON, TOML; YAML where PyYAML is installed), a mapping, or an object
        with attributes such as an ``argparse.Namespace``. For Megatron and torchtitan also a
        command, its words, or a shell script, whose own variables are filled in.
    accelerators : int
        Of the job, where the settings do not tell; needed for the groups of a hybrid sharding.

    Returns
    -------
    Settings
        ``model`` or ``task`` is None where the framework keeps them elsewhere.

    Raises
    ------
    ScaleModelError : unknown framework, unreadable file, or a setting that is missing or wrong; the
        message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> read = sm.read_settings("deepspeed", {"train_micro_batch_size_per_gpu": 4,
    ...                                       "zero_optimization": {"stage": 3}})
    >>> read.strategy.sharding, read.strategy.micro_batch
    ('zero3', 4)
    """
    reader = _READERS[_known(framework, tuple(_READERS))]
    if isinstance(accelerators, bool) or not isinstance(accelerators, int) or accelerators < 0:
        raise ScaleModelError(f"accelerators={accelerators!r}: must be a whole number from 0")
    return reader(_values(framework, source), accelerators)
