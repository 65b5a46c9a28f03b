"""Every command that answers in JSON as a tool for programs, its question read off its options."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import read_model

_JSON = "--json"
#: What says how an answer is shown.
_SHOWN = ("help", "json", "csv", "quiet", "progress")
_NUMBERS = {int: "integer", float: "number"}


def _schema_of(action: argparse.Action) -> dict[str, Any]:
    """Schema of the values of one option or argument."""
    told = {"description": " ".join(str(action.help or "").split())}
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return {"type": "boolean", **told}
    # Numbers may carry a unit: their own text is always legal.
    number = _NUMBERS.get(action.type) if isinstance(action.type, type) else None
    one: dict[str, Any] = {"type": [number, "string"] if number else ["string", "number"]}
    if action.choices is not None:
        one = {"enum": list(action.choices)}
    listed = action.nargs in ("+", "*") or isinstance(action.nargs, int)
    if listed or isinstance(action, argparse._AppendAction):
        return {"type": "array", "items": one, **told}
    return {**one, **told}


@dataclass(frozen=True)
class CommandTool:
    """A command as a tool.

    Attributes
    ----------
    name : str
        Of the tool: the command's, with underscores.
    parser : ArgumentParser
        Of the command.
    """

    name: str
    parser: argparse.ArgumentParser

    @property
    def meaning(self) -> str:
        """What the command does."""
        return " ".join(str(self.parser.description or "").split())

    def _actions(self) -> dict[str, argparse.Action]:
        return {action.dest: action for action in self.parser._actions if action.dest not in _SHOWN}

    def question_schema(self) -> dict[str, Any]:
        """JSON schema of what the command is asked: its arguments and options."""
        actions = self._actions()
        return {
            "type": "object",
            "properties": {name: _schema_of(action) for name, action in actions.items()},
            "required": [name for name, action in actions.items() if action.required],
            "additionalProperties": False,
        }

    @staticmethod
    def answer_schema() -> dict[str, Any]:
        """JSON schema of what the command answers: an object."""
        return {"type": "object"}

    def _arguments(self, question: Mapping[str, Any]) -> list[str]:
        actions = self._actions()
        unknown = [name for name in question if name not in actions]
        if unknown:
            raise ScaleModelError(f"{unknown[0]}: unknown; {self.name} takes {', '.join(actions)}")
        options, positional = [_JSON], ["--"]
        for name, action in actions.items():
            value = question.get(name)
            if value is None:
                continue
            if not action.option_strings:
                positional += [str(item) for item in (value if _is_list(value) else [value])]
            else:
                options += _spelled(action, value)
        return options + positional if len(positional) > 1 else options

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What the command answers.

        Raises
        ------
        ScaleModelError : the question is malformed; the message is the command's.
        """
        said, written = io.StringIO(), io.StringIO()
        code: object = None
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(written):
            try:
                options = self.parser.parse_args(self._arguments(question))
                read_model(options)
                code = options.run(options)
            except SystemExit as leaving:  # the parser has said why
                code = leaving.code
        try:
            found = json.loads(written.getvalue())
        except ValueError:
            text = said.getvalue().strip() or f"{self.name}: no answer (exit code {code})"
            raise ScaleModelError(text.splitlines()[-1].removeprefix("error: ")) from None
        return found if isinstance(found, dict) else {"rows": found}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _spelled(action: argparse.Action, value: Any) -> list[str]:
    """An option as a command line has it."""
    option = next(name for name in action.option_strings if name.startswith("--"))
    if isinstance(action, argparse.BooleanOptionalAction):
        return [option if value else "--no-" + option.removeprefix("--")]
    if action.nargs == 0:
        return [option] if value else []
    values = [str(item) for item in (value if _is_list(value) else [value])]
    if isinstance(action, argparse._AppendAction):
        return [part for item in values for part in (option, item)]
    return [option, *values] if len(values) != 1 else [f"{option}={values[0]}"]


def command_tools(commands: Any, without: Iterable[str] = ()) -> dict[str, CommandTool]:
    """Every command that answers in JSON, but those that are tools of their own already.

    Parameters
    ----------
    commands
        The subparsers of the command line.
    without : iterable of str
        Names of the others.
    """
    named = {name.replace("-", "_"): parser for name, parser in commands.choices.items()}
    return {
        name: CommandTool(name, parser)
        for name, parser in named.items()
        if _JSON in parser._option_string_actions and name not in set(without)
    }
