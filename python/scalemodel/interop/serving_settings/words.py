"""Command lines and shell scripts as options by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scalemodel.base.errors import ScaleModelError

#: Signs of a script that is read at most.
LONGEST: Final = 1_000_000
#: Lines of a text in quotes.
_LONGEST_TEXT: Final = 200
_STOPS: Final = frozenset((";", "&", "&&", "|", "||", ";;"))
_HEREDOC: Final = re.compile(
    r"^[ \t]*cat[ \t]*>[ \t]*(?P<name>\S+)[ \t]*<<-?[ \t]*(['\"]?)(?P<end>\w+)\2[ \t]*\n"
    r"(?P<text>.*?)^(?P=end)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_ROLE: Final = re.compile(r"^[ \t]*#[ \t]*(prefill|decode|router|serve)[ \t]*$", re.MULTILINE)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_THOUSANDS: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
#: What starts a server: the words, and the engine.
PROGRAMS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("vllm", "serve"), "vllm"),
    (("-m", "vllm.entrypoints.openai.api_server"), "vllm"),
    (("-m", "dynamo.vllm"), "vllm"),
    (("sglang.launch_server",), "sglang"),
    (("sglang", "serve"), "sglang"),
    (("-m", "dynamo.sglang"), "sglang"),
    (("trtllm-serve", "disaggregated"), ""),
    (("trtllm-serve", "serve"), "tensorrt_llm"),
    (("trtllm-serve",), "tensorrt_llm"),
    (("-m", "dynamo.trtllm"), "tensorrt_llm"),
)


@dataclass
class Options:
    """Options of a command by their long name without dashes, words joined by ``_``.

    Names that were asked for are remembered, so that the others can be told.
    """

    values: dict[str, str | bool]
    positional: list[str] = field(default_factory=list)
    framework: str = ""
    asked: set[str] = field(default_factory=set)

    def _find(self, names: tuple[str, ...]) -> tuple[str, str | bool] | None:
        self.asked.update(names)
        return next(((name, self.values[name]) for name in names if name in self.values), None)

    def _wrong(self, name: str, value: object, legal: str) -> ScaleModelError:
        return ScaleModelError(
            f"{self.framework}: {name}={value!r}: must be {legal}", code="malformed_setting"
        )

    def text(self, *names: str) -> str:
        """A value; empty where none of the names is set."""
        found = self._find(names)
        return "" if found is None or found[1] is True else str(found[1])

    def count(self, *names: str, least: int = 1) -> int | None:
        """A whole number; engines also take 8k for 8000 and 8K for 8192."""
        found = self._find(names)
        if found is None:
            return None
        name, value = found
        match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kmgKMG]?)", str(value))
        number = float(match[1]) * _THOUSANDS.get(match[2], 1) if match else None
        if number is None or not number.is_integer() or not least <= number <= 1e12:
            raise self._wrong(name, value, f"a whole number from {least}")
        return int(number)

    def share(self, *names: str) -> float | None:
        """A number above 0, at most 1."""
        found = self._find(names)
        if found is None:
            return None
        try:
            number = float(found[1])
        except ValueError:
            number = 0.0
        if not 0 < number <= 1:
            raise self._wrong(*found, "a number above 0, at most 1")
        return number

    def switch(self, name: str, *, default: bool = False) -> bool:
        """A switch, of which ``--no-`` is the opposite."""
        on, off = self._find((name,)), self._find((f"no_{name}",))
        if off is not None:
            return False
        if on is None:
            return default
        if on[1] is True or str(on[1]).lower() in ("true", "1"):
            return True
        if str(on[1]).lower() in ("false", "0"):
            return False
        raise self._wrong(name, on[1], "true or false")

    def unread(self) -> tuple[str, ...]:
        """Names that were not read."""
        return tuple(sorted(set(self.values) - self.asked))


def options_of(
    words: Sequence[str], framework: str, short: Mapping[str, str] | None = None
) -> Options:
    """Options of the words behind a program.

    `short` are other spellings of names, without dashes. An option takes the words up to the next
    one; those in front of all options are positional.

    Examples
    --------
    >>> found = options_of(["Qwen/Qwen3-8B", "-tp=2", "--max-num-seqs", "8k"], "vllm",
    ...                    {"tp": "tensor_parallel_size"})
    >>> found.positional, found.values
    (['Qwen/Qwen3-8B'], {'tensor_parallel_size': '2', 'max_num_seqs': '8k'})
    """
    found = Options({}, framework=framework)
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            spelled, equals, value = word.lstrip("-").partition("=")
            name = spelled.replace("-", "_")
            name = (short or {}).get(name, name)
            found.values[name] = value if equals else True
            if equals:
                name = ""
        elif not name:
            found.positional.append(word)
        else:
            before = found.values[name]
            found.values[name] = word if before is True else f"{before} {word}"
    return found


@dataclass(frozen=True)
class Server:
    """A server that a script starts."""

    framework: str
    words: tuple[str, ...]
    role: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def program_of(words: Sequence[str]) -> tuple[str, int] | None:
    """The engine that words start, and where its own words begin; None where they start none."""
    for start in range(len(words)):
        for name, framework in PROGRAMS:
            if tuple(words[start : start + len(name)]) == name:
                return (framework, start + len(name)) if framework else None
    return None


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[2], found[0])

    return re.sub(r"\$\{(\w+)\}|\$(\w+)", value, word)


def split_words(text: str) -> list[str]:
    """The words of one command.

    Examples
    --------
    >>> split_words("vllm serve 'a b'")
    ['vllm', 'serve', 'a b']
    """
    if len(text) > LONGEST:
        raise ScaleModelError(f"a command of {len(text)} signs: at most {LONGEST} are read")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _no_command([text], error) from None


def _lines(text: str) -> Iterable[list[str]]:
    """Words and separators of every line; a text in quotes may go on over several."""
    waiting: list[str] = []
    for line in text.replace("\\\n", " ").split("\n"):
        waiting.append(line)
        lexer = shlex.shlex("\n".join(waiting), posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        try:
            yield [*lexer, ";"]
        except ValueError as error:
            if len(waiting) < _LONGEST_TEXT:
                continue
            raise _no_command(waiting, error) from None
        waiting = []
    if waiting:
        raise _no_command(waiting, "no closing quotation")


def _no_command(lines: Sequence[str], why: object) -> ScaleModelError:
    return ScaleModelError(f"{lines[0][:60]!r}: no command of a shell ({why})")


def _commands(text: str) -> Iterable[list[str]]:
    """Words of every command of a script, its own variables filled in."""
    variables: dict[str, str] = {}
    words: list[str] = []
    for token in (each for line in _lines(text) for each in line):
        if token not in _STOPS:
            words.append(_expanded(token, variables))
            continue
        exported = words[1:] if words[:1] == ["export"] else []
        while words and (found := _ASSIGNED.fullmatch(words[0])):
            variables[found[1]] = found[2]
            words = words[1:]
        for word in exported:
            if found := _ASSIGNED.fullmatch(word):
                variables[found[1]] = found[2]
        if words and not exported:
            yield words
        words = []


def servers_of(text: str) -> list[Server]:
    r"""The servers that a command or a script starts, nodes of one instance once.

    Examples
    --------
    >>> [each.framework for each in servers_of("TP=2\nvllm serve m -tp $TP &\nwait")]
    ['vllm']
    """
    if len(text) > LONGEST:
        raise ScaleModelError(f"a script of {len(text)} signs: at most {LONGEST} are read")
    files = {found["name"].strip("'\""): found["text"] for found in _HEREDOC.finditer(text)}
    plain = _HEREDOC.sub("", text)
    parts = _ROLE.split(plain)
    found: list[Server] = []
    for role, part in zip(["", *parts[1::2]], parts[0::2], strict=True):
        for words in _commands(part):
            program = program_of(words)
            if program is None:
                continue
            framework, start = program
            own = role if role in ("prefill", "decode") else ""
            server = Server(framework, tuple(words[start:]), own, files)
            if _of_an_instance(server) not in map(_of_an_instance, found):
                found.append(server)
    return found


#: Options that tell nodes of an instance apart, and how many words they take.
_PLACES: Final = {"--node-rank": 2, "--data-parallel-start-rank": 2, "--headless": 1}


def _of_an_instance(server: Server) -> tuple[str, ...]:
    """What the commands of all nodes of an instance have in common."""
    words, kept, skip = server.words, [server.framework, server.role], 0
    for word in words:
        if skip:
            skip -= 1
        elif word in _PLACES:
            skip = _PLACES[word] - 1
        else:
            kept.append(word)
    return tuple(kept)
