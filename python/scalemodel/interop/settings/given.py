"""What somebody set in a training framework, as plain names and values, and what was read of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scalemodel.base.errors import ScaleModelError

_YES = ("true", "1", "yes", "on")
_END = ";"  # of a command
_ALL_WORDS = ("$@", "$*")  # what stands for the words of a script, which are read where they stand
_NO = ("false", "0", "no", "off", "none", "null", "")


class Given:
    """Settings by name; remembers which were asked for."""

    def __init__(self, values: Mapping[str, object], framework: str) -> None:
        self._values = dict(values)
        self._framework = framework
        self._asked: set[str] = set()

    def _find(self, names: tuple[str, ...]) -> tuple[str, object] | None:
        self._asked.update(names)
        for name in names:
            value = self._values.get(name)
            if value is not None and value != "":
                return name, value
        return None

    def _wrong(self, name: str, value: object, legal: str) -> ScaleModelError:
        return ScaleModelError(
            f"{self._framework}: {name}={value!r}: must be {legal}", code="malformed_setting"
        )

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number from 0 upwards under the first of the names that is set."""
        found = self._find(names)
        if found is None:
            if default is None:
                raise ScaleModelError(
                    f"{self._framework}: {names[0]}: missing", code="missing_setting"
                )
            return default
        name, value = found
        try:
            number = float(str(value))
        except ValueError:
            raise self._wrong(name, value, "a whole number") from None
        if not number.is_integer() or not 0 <= number <= 1e12:
            raise self._wrong(name, value, "a whole number")
        return int(number)

    def flag(self, *names: str, default: bool = False) -> bool:
        """A switch; a name without a value is on."""
        found = self._find(names)
        if found is None:
            return default
        name, value = found
        text = str(value).lower()
        if text not in _YES and text not in _NO:
            raise self._wrong(name, value, "true or false")
        return text in _YES

    def text(self, *names: str, default: str = "") -> str:
        """A word, in lower case."""
        found = self._find(names)
        return default if found is None else str(found[1]).lower()

    def choice(self, legal: Mapping[str, str], *names: str, default: str) -> str:
        """The meaning of a word; a word without one is refused."""
        found = self._find(names)
        if found is None:
            return default
        name, value = found
        if str(value).lower() not in legal:
            raise self._wrong(name, value, "one of " + ", ".join(legal))
        return legal[str(value).lower()]

    def raw(self, *names: str) -> object:
        """A value as it was given, None where it is not."""
        found = self._find(names)
        return None if found is None else found[1]

    def unread(self) -> list[str]:
        """Names that were not read."""
        return sorted(set(self._values) - self._asked)


def from_tokens(tokens: list[str]) -> dict[str, object]:
    """Names and values of command-line options, dashes as underscores.

    Examples
    --------
    >>> from_tokens(["train.py", "--tensor-model-parallel-size", "8", "--swiglu", "--lr=1e-4"])
    {'tensor_model_parallel_size': '8', 'swiglu': True, 'lr': '1e-4'}
    >>> from_tokens(["train.py", "model.num_layers=8"])  # as Hydra and NeMo-Run take them
    {'num_layers': '8'}
    """
    values: dict[str, object] = {}
    name = ""
    for token in tokens:
        if re.match(r"--[a-zA-Z]", token):
            name, equals, value = token[2:].partition("=")
            name = name.replace("-", "_")
            values[name] = value if equals else True
            if equals:
                name = ""
        elif override := re.fullmatch(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", token):
            values[override[1].rpartition(".")[2]] = override[2].strip("'\"")
            name = ""
        elif token == _END:
            name = ""
        elif name:
            before = values[name]
            values[name] = token if before is True else f"{before} {token}"
    return values


def from_script(text: str) -> dict[str, object]:
    r"""Options of a command or of a shell script, with the variables that the script sets.

    Examples
    --------
    >>> from_script("TP=8\ntorchrun train.py --tensor-model-parallel-size $TP  # a node")
    {'tensor_model_parallel_size': '8'}
    """
    plain = re.sub(r"\\\s*\n", " ", re.sub(r"(^|\s)#.*", r"\1", text)).replace("'", "")
    plain = plain.replace('"', "")
    variables: dict[str, str] = {}
    for found in re.finditer(r"(?:^|[\s;])([A-Za-z_]\w*)=([^\s(;]+)", plain):
        # A list of options in a variable, ARGS=( --a 1 ) or ARGS="--a 1", is read where it is
        # written, not where it is used.
        variables[found[1]] = "" if found[2][:2] == "--" else _expanded(found[2], variables)
    flat = re.sub(r"[A-Za-z_]\w*\+?=(?=[\s(]|--)|\$\{\w+\[[@*]\]\}", " ", plain)
    tokens = re.sub(r"\n|;", f" {_END} ", re.sub(r"\(\s|\s\)", " ", flat)).split()
    words = [_expanded(token, variables) for token in tokens if token not in _ALL_WORDS]
    return from_tokens([word for word in words if word])


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        return variables.get(name, default if default is not None else found[0])

    return re.sub(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)", value, text)


def leaves(table: Mapping[str, Any]) -> dict[str, object]:
    """Innermost names and values of nested tables; of equal names the last one counts.

    Examples
    --------
    >>> leaves({"model": {"num_layers": 2}, "train": {"micro_batch_size": 1}})
    {'num_layers': 2, 'micro_batch_size': 1}
    """
    values: dict[str, object] = {}
    for key, cell in table.items():
        if isinstance(cell, Mapping):
            values.update(leaves(cell))
        elif cell is not None:
            values[str(key)] = cell
    return values


def paths(table: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Values of nested tables by their dotted path.

    Examples
    --------
    >>> paths({"compile": {"enable": True}, "training.steps": 2})
    {'compile.enable': True, 'training.steps': 2}
    """
    values: dict[str, object] = {}
    for key, cell in table.items():
        if isinstance(cell, Mapping):
            values.update(paths(cell, f"{prefix}{key}."))
        elif cell is not None:
            values[f"{prefix}{key}"] = cell
    return values
