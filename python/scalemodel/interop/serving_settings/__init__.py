"""Commands, objects of Kubernetes and recipes of serving engines, read into a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import parse_json, read_text
from scalemodel.base.words import named_arguments
from scalemodel.interop.serving_settings.engines import read_server
from scalemodel.interop.serving_settings.inferencex import read_inferencex
from scalemodel.interop.serving_settings.objects import KINDS, paired, read_objects
from scalemodel.interop.serving_settings.record import ServingSettings
from scalemodel.interop.serving_settings.words import Server, program_of, servers_of
from scalemodel.interop.serving_settings.yaml_reader import read_documents
from scalemodel.serving.launch import ServingLaunch

__all__ = ["ServingSettings", "read_serving"]

_ENGINES: Final = ("vllm", "sglang", "tensorrt_llm")
_LONGEST_PATH: Final = 1000  # signs
_FRAMEWORKS: Final = (*_ENGINES, *KINDS, "inferencex")


def _text_of(source: object, framework: str) -> str:
    """The text of a source: itself, or that of the file that it names."""
    if isinstance(source, ServingLaunch):
        return source.script()
    if isinstance(source, Path):
        return read_text(source, argument=f"{framework}: ")
    text = str(source)
    if len(text) > _LONGEST_PATH:
        return text
    lines = text.strip().count("\n")
    if framework in _ENGINES:
        is_path = not lines and program_of(text.split()) is None and " -" not in text
    else:
        is_path = not lines and ":" not in text.replace("://", "")
    return read_text(text, argument=f"{framework}: ") if is_path else text


def _servers(framework: str, source: object, role: str = "") -> list[Server]:
    """Servers of an engine that a source starts."""
    if not isinstance(source, (str, Path, ServingLaunch)) and isinstance(source, Sequence):
        words = [str(word) for word in source]
        program = program_of(words)
        start = program[1] if program else 0
        return [Server(framework, tuple(words[start:]), role)]
    found = [
        replace(each, role=role or each.role)
        for each in servers_of(_text_of(source, framework))
        if each.framework == framework
    ]
    if not found:
        raise ScaleModelError(
            f"{framework}: the text starts no server of it", code="malformed_setting"
        )
    return found


def _commands(
    framework: str, source: object, engine: str, files: Mapping[str, str]
) -> ServingSettings:
    if isinstance(source, Mapping):
        if not source or set(source) - {"prefill", "decode"}:
            raise ScaleModelError(
                f"{framework}: source={sorted(map(str, source))}: a mapping holds the commands of "
                "prefill and decode"
            )
        servers = [
            server for role, each in source.items() for server in _servers(framework, each, role)
        ]
    else:
        servers = _servers(framework, source)
    pools = [
        read_server(
            framework, each.words, engine=engine, files={**each.files, **files}, role=each.role
        )
        for each in servers
    ]
    return paired(pools, framework)


def _tables(framework: str, source: object) -> list[Any]:
    """Documents of a source."""
    if isinstance(source, Mapping):
        return [source]
    if not isinstance(source, (str, Path, ServingLaunch)):
        if isinstance(source, Sequence) and all(isinstance(each, Mapping) for each in source):
            return list(source)
        raise ScaleModelError(
            f"{framework}: source={source!r}: must be a text, a path or a table",
            code="malformed_setting",
        )
    text = _text_of(source, framework)
    if text.lstrip().startswith("{"):
        return [parse_json(text, framework)]
    return read_documents(text, framework)


@named_arguments
def read_serving(
    framework: str,
    source: object,
    *,
    engine: str = "",
    files: Mapping[str, str] | None = None,
) -> ServingSettings:
    """What a deployment of a serving engine is set up as, ready for `serve`.

    Parameters
    ----------
    framework : str
        ``vllm``, ``sglang``, ``tensorrt_llm`` (commands); ``kubernetes``, ``kserve``, ``llm_d``,
        ``dynamo`` (objects of Kubernetes); ``inferencex`` (a recipe or a result).
    source : str, Path, sequence, mapping or ServingLaunch
        A command, its words, or a shell script; YAML, JSON or tables; or the path of a file with
        them. Two pools whose commands do not tell their phase are given as a mapping with
        ``prefill`` and ``decode``.
    engine : str
        Engine and version as for `serve`; the catalogue's latest when left out.
    files : mapping, optional
        Texts by name of files that the command names, such as TensorRT-LLM's options.

    Returns
    -------
    ServingSettings
        ``serve`` of it asks about the deployment; ``notes`` name what is predicted otherwise.

    Raises
    ------
    ScaleModelError : unknown framework, unreadable file, or a setting that is missing or wrong; the
        message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100, precision="fp8")
    >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4), concurrency=64)
    >>> read = sm.read_serving("vllm", plan.launch())
    >>> again = read.serve("dgx_h100", input_tokens=1000, output_tokens=100, concurrency=64)
    >>> again.to_dict() == plan.to_dict()
    True
    """
    if framework not in _FRAMEWORKS:
        raise ScaleModelError(
            f"framework={framework!r}: unknown; {nearest(str(framework), _FRAMEWORKS)}",
            code="unknown_framework",
        )
    given = dict(files or {})
    if framework in _ENGINES:
        return _commands(framework, source, engine, given)
    documents = _tables(framework, source)
    if framework != "inferencex":
        return read_objects(framework, documents, engine, given)
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise ScaleModelError("inferencex: must be one table", code="malformed_setting")
    return read_inferencex(documents[0], engine)
