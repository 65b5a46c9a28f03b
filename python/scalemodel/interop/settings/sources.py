"""Settings wherever they stand: mappings, objects, files, texts and whole scripts."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import LARGEST_DOCUMENT, parse_json, read_text
from scalemodel.base.safe_text import plain
from scalemodel.interop.settings.given import from_script, from_tokens, leaves

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

#: Tables within tables; the parser of YAML takes long to find out that there are too many.
_DEEPEST: Final = 100
#: Frameworks whose readers take nested tables.
_NESTED: Final = ("deepspeed", "accelerate", "torchtitan")
#: The line that begins a file within a script, and the word that ends it.
_BEGIN: Final = re.compile(r"\s*cat >+ ?(\S{1,500}) <<-?['\"]?(\w+)['\"]?\s*")
_MOST_DOTS: Final = 64  # of a key; the parser nests a call for each
_OPTION: Final = re.compile(r"(?:^|\s)--[A-Za-z]")
_SECTION: Final = re.compile(r"^\s*\[[\w.\"'-]+\]\s*(#.*)?$", re.MULTILINE)
_ASSIGNMENT: Final = re.compile(r"^\s*[\w.-]+\s*=\s*\S", re.MULTILINE)
_IMPORT: Final = re.compile(r"^(from [\w.]+ )?import ", re.MULTILINE)


def values_of(framework: str, source: object) -> dict[str, Any]:
    r"""Names and values of settings; nested where the framework's reader wants them nested.

    Examples
    --------
    >>> values_of("torchtitan", "[training]\nseq_len = 8192\n")
    {'training': {'seq_len': 8192}}
    """
    table = _table(framework, source)
    return table if framework in _NESTED else leaves(table)


def _table(framework: str, source: object) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, (str, Path)):
        text, path = _read(framework, source)
        return _parsed(text, path, framework)
    if isinstance(source, Sequence) and not isinstance(source, (bytes, bytearray)):
        return from_tokens([str(word) for word in source])
    if hasattr(source, "__dict__") and not callable(source):
        return {key: _plain(cell) for key, cell in vars(source).items() if not key.startswith("_")}
    raise ScaleModelError(
        f"{framework}: source={source!r}: must be a mapping, a namespace, a path or a text",
        code="malformed_setting",
    )


def _read(framework: str, source: str | Path) -> tuple[str, str]:
    """A text and the path of its file; no path where the source is the text."""
    if isinstance(source, Path) or not _is_text(source):
        return read_text(source, argument=f"{framework}: "), str(source)
    if len(source) > LARGEST_DOCUMENT:
        raise ScaleModelError(
            f"{framework}: the text has more than {LARGEST_DOCUMENT:,} signs",
            code="unreadable_file",
        )
    return source, ""


def stack_of_script(framework: str, source: object) -> str:
    r"""The catalogue's stack a script of `launch` was predicted with; empty where it says none.

    Releases of a framework differ in numbers that no setting states, so the script's first line
    says which was meant.

    Examples
    --------
    >>> line = "# predicted: 6.466 s a step, 133 GiB per accelerator, software stack maxtext"
    >>> stack_of_script("megatron", line + "\ntorchrun pretrain_gpt.py")
    'maxtext'
    """
    if isinstance(source, (str, Path)):
        text, _ = _read(framework, source)
    else:
        text = str(getattr(source, "predicted", ""))
    for line in text.splitlines():
        if line.lstrip("# \t").startswith("predicted: "):
            name = line.rpartition(" software stack ")[2].strip()
            return name if name in catalog.names("stacks") else ""
    return ""


def _is_text(source: str) -> bool:
    """Whether a string holds settings, and is not the path of a file that does."""
    text = source.strip()
    return "\n" in text or text.startswith("{") or _OPTION.search(text) is not None


def _plain(cell: object) -> object:
    if hasattr(cell, "__dict__") and not isinstance(cell, type) and not callable(cell):
        return {key: _plain(inner) for key, inner in vars(cell).items() if not key.startswith("_")}
    return cell


# ------------------------------------------------------------------------------------------ texts
def _parsed(text: str, name: str, framework: str) -> dict[str, Any]:
    """What a text holds, by the name of its file or else by its looks."""
    suffix = Path(name).suffix.lower()
    where = f"{framework}: {name}" if name else f"{framework}: the text"
    if suffix == ".json" or (not suffix and text.lstrip().startswith("{")):
        return _checked(parse_json(text, where), where)
    if suffix == ".toml":
        return _toml(text, where)
    if suffix == ".py":
        return _python(text, where)
    files, rest = written_files(text)
    if files or (_OPTION.search(text) and not _IMPORT.search(text)):
        return _script(files, rest, framework)
    if suffix in (".yaml", ".yml"):
        return _yaml(text, where)
    if _IMPORT.search(text):
        return _python(text, where)
    if _SECTION.search(text) or _ASSIGNMENT.search(text):
        return _toml(text, where)
    return _yaml(text, where)


def written_files(text: str) -> tuple[list[tuple[str, str]], str]:
    """Files that a script writes, by name, and what is left of the script."""
    files: list[tuple[str, str]] = []
    rest: list[str] = []
    held: list[str] = []
    name = end = ""
    for line in text.split("\n"):
        if end:
            if line.strip() == end:
                files.append((name, "\n".join(held)))
                end = ""
            else:
                held.append(line)
        elif found := _BEGIN.fullmatch(line):
            name, end, held = found[1].strip("'\""), found[2], []
        else:
            rest.append(line)
    return files, "\n".join(rest)


def _script(files: list[tuple[str, str]], rest: str, framework: str) -> dict[str, Any]:
    """What the files of a script hold, then the options of its command."""
    table: dict[str, Any] = {}
    for name, text in files:
        if Path(name).suffix.lower() in (".json", ".toml", ".py", ".yaml", ".yml"):
            table |= _parsed(_dedented(text), name, framework)
    return {**table, **from_script(rest)}


def _dedented(text: str) -> str:
    """Lines without the margin that all of them share, as within a job of Kubernetes."""
    lines = text.split("\n")
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines)


def _checked(read: object, where: str) -> dict[str, Any]:
    if not isinstance(read, dict):
        raise ScaleModelError(
            f"{where}: must hold a table, not {type(read).__name__}", code="unreadable_file"
        )
    return read


def _toml(text: str, where: str) -> dict[str, Any]:
    if any(line.partition("=")[0].count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ScaleModelError(f"{where}: a key has more than 64 parts", code="unreadable_file")
    try:
        return dict(tomllib.loads(text))
    except RecursionError:
        why = "nested too deeply"
    except ValueError as error:
        why = f"not valid TOML ({plain(error)})"
    raise ScaleModelError(f"{where}: {why}", code="unreadable_file")


def _depth(text: str) -> int:
    """Most brackets that are open at once, those in texts among them."""
    most = depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        most = max(most, depth)
    return most


def _yaml(text: str, where: str) -> dict[str, Any]:
    simple = simple_yaml(text)
    if simple is not None:
        return simple
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ScaleModelError(
            f"{where}: reading YAML needs PyYAML: pip install pyyaml; or pass the parsed table",
            code="missing_extra",
        ) from None
    if _depth(text) > _DEEPEST:
        raise ScaleModelError(f"{where}: nested too deeply", code="unreadable_file")
    try:
        return _checked(yaml.safe_load(text), where)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, ScaleModelError):
            raise
        reason = plain(error) or "nested too deeply"
        raise ScaleModelError(f"{where}: {reason}", code="unreadable_file") from None


def simple_yaml(text: str) -> dict[str, Any] | None:
    r"""Tables of plain words and numbers, as `sm.launch` writes them; None for any other YAML.

    Examples
    --------
    >>> simple_yaml("a:\n  b: true\nc: 3\n"), simple_yaml("a: [1, 2]")
    ({'a': {'b': 'true'}, 'c': '3'}, None)
    """
    table: dict[str, Any] = {}
    inner: dict[str, Any] | None = None
    for line in text.split("\n"):
        if not line.strip():
            continue
        found = re.fullmatch(r"( {2})?(\w+):(?: ([\w.+-]+))?", line)
        if found is None or (found[1] and inner is None):
            return None
        if found[3] is None:
            if found[1]:
                return None
            inner = table[found[2]] = {}
        elif found[1] and inner is not None:
            inner[found[2]] = found[3]
        else:
            inner, table[found[2]] = None, found[3]
    return table or None


def _python(text: str, where: str) -> dict[str, Any]:
    """Keyword arguments and assignments of a recipe whose values are literals."""
    if _depth(text) > _DEEPEST or text.count("(") > 10_000:
        raise ScaleModelError(f"{where}: nested too deeply", code="unreadable_file")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScaleModelError(
            f"{where}: not Python ({plain(error)})", code="unreadable_file"
        ) from None
    values: dict[str, Any] = {}
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(word.arg, word.value) for word in node.keywords if word.arg is not None]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            pairs = [(node.targets[0].attr, node.value)]
        for name, cell in pairs:
            if isinstance(cell, ast.Attribute):  # a member of an enumeration
                values[name] = cell.attr
                continue
            try:
                value = ast.literal_eval(cell)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                continue
            if value is not None:
                values[name] = value
    return values
