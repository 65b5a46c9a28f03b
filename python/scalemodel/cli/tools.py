"""The verbs as tools for programs: questions and answers as plain JSON, each with its schema.

A question's schema is read off the signature of its tool, off the fields of the task it takes and
off the engine's table of knobs; an answer's off the record that the verb returns.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.command_tools import CommandTool, command_tools
from scalemodel.estimator.estimate import estimate
from scalemodel.estimator.knobs import Strategy
from scalemodel.resolve.tasks import Training
from scalemodel.search.search import search
from scalemodel.serving.search import plan_serving
from scalemodel.serving.serve import serve
from scalemodel.serving.task import Inference


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are none or without end become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(cell) for key, cell in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(cell) for cell in value]
    item = getattr(value, "item", None)
    value = item() if callable(item) else value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [_plain(row) for row in frame.to_dict("records")]


# ---------------------------------------------------------------------------------------- verbs
def ask_estimate(
    *,
    model: str,
    cluster: str,
    task: Training,
    strategy: Strategy | None = None,
    stack: str = "plain",
    nodes: int | None = None,
    accelerators: int | None = None,
) -> dict[str, Any]:
    """Time, memory, energy and cost of one training step with one parallel strategy."""
    built = resolve.cluster(cluster, nodes=nodes, accelerators=accelerators)
    found = estimate(model, built, task, strategy, stack=stack)
    return dict(_plain(found.to_dict()))


def ask_search(
    *,
    model: str,
    cluster: str,
    task: Training,
    top: int = 10,
    stack: str = "plain",
    nodes: int | None = None,
    accelerators: int | None = None,
) -> dict[str, Any]:
    """The fastest parallel strategies of a training step that fit in memory."""
    built = resolve.cluster(cluster, nodes=nodes, accelerators=accelerators)
    found = search(model, built, task, top=top, stack=stack)
    return {"evaluated": int(found.evaluated), "strategies": _rows(found.table)}


def ask_serve(
    *,
    model: str,
    cluster: str,
    task: Inference,
    layout: _core.ServingLayout | None = None,
    engine: str = "vllm_v1",
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    nodes: int | None = None,
    accelerators: int | None = None,
) -> dict[str, Any]:
    """Rates, latencies, memory and cost of serving a model with one layout of an engine."""
    built = resolve.cluster(cluster, nodes=nodes, accelerators=accelerators)
    found = serve(
        model,
        built,
        task,
        layout,
        engine=engine,
        concurrency=concurrency,
        requests_per_s=requests_per_s,
    )
    return dict(_plain(found.to_dict()))


def ask_plan_serving(
    *,
    model: str,
    cluster: str,
    task: Inference,
    engine: str = "vllm_v1",
    requests_per_s: float | None = None,
    top: int = 10,
    nodes: int | None = None,
    accelerators: int | None = None,
) -> dict[str, Any]:
    """The best layouts of a serving engine for a load."""
    built = resolve.cluster(cluster, nodes=nodes, accelerators=accelerators)
    found = plan_serving(model, built, task, engine=engine, requests_per_s=requests_per_s, top=top)
    return {"plans": _rows(found.best)}


def ask_list(
    *, kind: Literal["models", "clusters", "accelerators", "stacks", "engines"]
) -> dict[str, Any]:
    """Names that the catalogue knows, which questions may use."""
    return {"names": list(catalog.names(kind))}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A verb as a tool: its name, what it does, and a question that shows what answers hold."""

    name: str
    ask: Callable[..., dict[str, Any]]
    example: Mapping[str, Any]

    @property
    def meaning(self) -> str:
        """What the tool answers."""
        return inspect.getdoc(self.ask) or ""

    def question_schema(self) -> dict[str, Any]:
        """`question_schema` of it."""
        return question_schema(self.name)

    def answer_schema(self) -> dict[str, Any]:
        """`answer_schema` of it."""
        return answer_schema(self.name)

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """`answer` of it."""
        return answer(self.name, question)


_WHERE = {"model": "llama3_8b", "cluster": "dgx_h100"}
_TRAINING = {"global_batch": 64, "sequence": 8192}
_INFERENCE = {"input_tokens": 1000, "output_tokens": 200}
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("estimate", ask_estimate, {**_WHERE, "task": _TRAINING, "strategy": {"tp": 2}}),
        Tool("search", ask_search, {**_WHERE, "task": _TRAINING, "top": 1}),
        Tool("serve", ask_serve, {**_WHERE, "task": _INFERENCE, "concurrency": 8}),
        Tool("plan_serving", ask_plan_serving, {**_WHERE, "task": _INFERENCE, "top": 1}),
        Tool("list", ask_list, {"kind": "stacks"}),
    )
}


def all_tools(commands: Any) -> dict[str, Tool | CommandTool]:
    """The verbs, then every other command of the command line that answers in JSON."""
    return {**TOOLS, **command_tools(commands, TOOLS)}


# -------------------------------------------------------------------------------------- schemas
_NAMES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
_KINDS = {"int": "integer", "double": "number", "float": "number", "bool": "boolean"}


def _knobs(record: Any) -> dict[str, Any]:
    """Schema of an engine record by its table of fields."""
    properties = {}
    for row in record.fields():
        cell: dict[str, Any] = {"description": row["meaning"], "default": row["default"]}
        if row["choices"]:
            cell["enum"] = list(row["choices"])
        elif row["kind"] in _KINDS:
            cell["type"] = _KINDS[row["kind"]]
            if abs(row["low"]) < 1e300 and cell["type"] != "boolean":
                cell |= {"minimum": row["low"], "maximum": row["high"]}
        properties[row["name"]] = cell
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _only_in_python(hint: Any) -> bool:
    """What no JSON text can say, beside a name or a table that it can."""
    return typing.get_origin(hint) is os.PathLike or hint in (Path, resolve.Model)


def _of_type(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        told = [one for one in arguments if one is not type(None)]
        kinds = [_of_type(one) for one in told if not _only_in_python(one)]
        empty = [{"type": "null"}] if type(None) in arguments else []
        return {"anyOf": [*kinds, *empty]} if len(kinds) + len(empty) > 1 else kinds[0]
    if origin is Mapping:
        return {"type": "object"}
    if origin is Sequence:
        return {"type": "array", "items": _of_type(arguments[0])}
    if dataclasses.is_dataclass(hint):
        return _of_signature(typing.cast("Callable[..., Any]", hint))
    if hasattr(hint, "fields"):
        return _knobs(hint)
    return {"type": _NAMES[hint]}


def _of_signature(function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        properties[name] = _of_type(hints[name])
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        elif parameter.default is None or isinstance(parameter.default, (bool, int, float, str)):
            properties[name]["default"] = parameter.default
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _of_value(value: Any) -> dict[str, Any]:
    """Schema of an answer like this one; a number or a text may be missing in another."""
    if isinstance(value, Mapping):
        properties = {key: _of_value(cell) for key, cell in value.items()}
        return {"type": "object", "properties": properties, "required": list(properties)}
    if isinstance(value, list):
        return {"type": "array", **({"items": _of_value(value[0])} if value else {})}
    if isinstance(value, bool):
        return {"type": ["boolean", "null"]}
    if isinstance(value, (int, float)):
        return {"type": ["number", "null"]}
    return {"type": ["string", "number", "null"]}


def question_schema(name: str) -> dict[str, Any]:
    """JSON schema of what a tool is asked.

    Examples
    --------
    >>> question_schema("list")["required"]
    ['kind']
    >>> question_schema("estimate")["properties"]["task"]["required"]
    ['global_batch', 'sequence']
    """
    return _of_signature(tool(name).ask)


@lru_cache(maxsize=16)
def answer_schema(name: str) -> dict[str, Any]:
    """JSON schema of what a tool answers, read off its answer to an example.

    Examples
    --------
    >>> answer_schema("estimate")["properties"]["step_time_s"]
    {'type': ['number', 'null']}
    """
    return _of_value(answer(name, tool(name).example))


def tool(name: str) -> Tool:
    """The tool of a name."""
    if name not in TOOLS:
        raise ScaleModelError(f"tool={name!r}: must be one of {', '.join(TOOLS)}")
    return TOOLS[name]


# -------------------------------------------------------------------------------------- answers
def _built(hint: Any, value: Any, where: str) -> Any:
    """A JSON object as the record that a tool takes."""
    if not isinstance(value, Mapping):
        return value
    for one in (hint, *typing.get_args(hint)):
        if dataclasses.is_dataclass(one) or hasattr(one, "fields"):
            make = typing.cast("Callable[..., Any]", one)
            try:
                return make(**value)
            except TypeError as error:
                raise ScaleModelError(f"{where}: {error}") from None
    raise ScaleModelError(f"{where}={value!r}: must not be an object")


def answer(name: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool answers to a question in JSON.

    Raises
    ------
    ScaleModelError : the question is malformed; the message names the argument.

    Examples
    --------
    >>> "plain" in answer("list", {"kind": "stacks"})["names"]
    True
    """
    ask = tool(name).ask
    hints = typing.get_type_hints(ask)
    parameters = inspect.signature(ask).parameters
    unknown = [key for key in question if key not in parameters]
    missing = [
        key
        for key, one in parameters.items()
        if one.default is inspect.Parameter.empty and key not in question
    ]
    if unknown or missing:
        said = f"{unknown[0]}: unknown" if unknown else f"{missing[0]}: missing"
        raise ScaleModelError(f"{said}; {name} takes {', '.join(parameters)}")
    return ask(**{key: _built(hints[key], cell, key) for key, cell in question.items()})
