"""Options that several commands share, made from the field tables of the engine."""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import choice, hint, number_meant
from scalemodel.cli.output import MALFORMED

if TYPE_CHECKING:
    from scalemodel.resolve import Cluster
    from scalemodel.resolve.tasks import Training

#: What may stand for a model.
MODEL_HELP = "catalogue name, .toml, config.json or org/name[@revision] of the Hugging Face Hub"
#: Fields of the task without a default.
REQUIRED = ("global_batch", "sequence")
_FINE_TUNING = ("method", "lora_rank", "lora_targets")
#: More choices than these are told in the help text, not in the usage line.
_MOST_CHOICES = 8


_INVALID = re.compile(r"invalid choice: '(?P<given>.*?)' \(choose from (?P<legal>.*)\)")


def _meant(name: str, known: Iterable[str]) -> str:
    """Which option one that does not exist stands for."""
    fields = {option[2:].replace("-", "_"): option for option in known if option[2:]}
    likely = hint(name[2:].replace("-", "_"), fields)
    if not likely.startswith("did you mean"):
        return "--help lists those there are"
    for field in sorted(fields, key=len, reverse=True):
        likely = likely.replace(f"'{field}'", fields[field])
    return likely


class Parser(argparse.ArgumentParser):
    """Complains in one line that says what would be right."""

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves with the code of a malformed question."""
        self.exit(MALFORMED, f"{self.prog}: error: {self._told(message)}\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but options that do not exist are named with the ones meant."""
        if self._subparsers is None:
            known = self._option_string_actions
            for text in sys.argv[1:] if args is None else args:
                if text == "--":
                    break
                name, sign, value = text.partition("=")
                if name.startswith("--") and name not in known:
                    self.error(f"{name}{sign}{value}: no such option; {_meant(name, known)}")
        return super().parse_known_args(args, namespace)

    def _told(self, message: str) -> str:
        """A complaint of argparse with what is needed to do without it."""
        needed = "the following arguments are required: "
        if message.startswith(needed):
            names = message.removeprefix(needed).split(", ")
            said = (
                f"{name} {action.metavar or ''} ({action.help})".replace(f"{name} {name}", name)
                for name in names
                for action in self._actions
                if name in (*action.option_strings, action.metavar)
            )
            return needed + (", ".join(said) or ", ".join(names))
        if ": not allowed with argument " in message:
            return f"{message}; give one of the two"
        invalid = _INVALID.search(message)
        if invalid is not None:
            legal = [name.strip(" '") for name in invalid["legal"].split(",")]
            likely = nearest(invalid["given"], legal)
            if likely.startswith("did you mean"):
                return f"{message}; {likely}"
        return message


def whole(text: str) -> int:
    """A whole number of the command line.

    Examples
    --------
    >>> whole("8")
    8
    """
    try:
        return int(text)
    except ValueError:
        meant = number_meant(text)
        likely = f", such as {meant}" if isinstance(meant, int) else ", such as 8"
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number{likely}") from None


def number(text: str) -> float:
    """A number of the command line.

    Examples
    --------
    >>> number("15e12")
    15000000000000.0
    """
    try:
        return float(text)
    except ValueError:
        meant = number_meant(text)
        likely = "" if meant is None else f", such as {meant:g}"
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number{likely}") from None


def check_given(options: argparse.Namespace) -> None:
    """What a question cannot do without is there, where a command reads it from a file otherwise.

    Raises
    ------
    ScaleModelError : MODEL was given, and not all of `REQUIRED`.
    """
    missing = [name for name in REQUIRED if getattr(options, name) is None]
    if missing:
        names = ", ".join(option_name(name) for name in missing)
        raise ScaleModelError(f"MODEL={options.model!r} needs {names}", code="malformed")


def add_model(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The model, and whether a configuration of an unknown family is read all the same."""
    parser.add_argument("model", metavar="MODEL", nargs=None if required else "?", help=MODEL_HELP)
    parser.add_argument(
        "--approximate",
        action="store_true",
        help="read a config.json of an unknown family as the nearest known shape",
    )


def read_model(options: argparse.Namespace) -> None:
    """Read the model of a question that asks for the nearest known shape; others read theirs."""
    from scalemodel import resolve

    if getattr(options, "approximate", False) and isinstance(options.model, str):
        options.model = resolve.model(options.model, approximate=True)


def model_name(options: argparse.Namespace) -> str:
    """The model as it was given, or its name where it was read."""
    return str(getattr(options.model, "label", options.model))


def option_name(field: str) -> str:
    """Option of a field: ``micro_batch`` is ``--micro-batch``.

    Examples
    --------
    >>> option_name("micro_batch")
    '--micro-batch'
    """
    return "--" + field.replace("_", "-")


def add_field(group: Any, row: Mapping[str, Any], *, required: bool = False) -> None:
    """One option of a field table; left out, the engine's own default holds."""
    default = row["default"]
    text = row["meaning"].replace("%", "%%")
    kind: dict[str, Any]
    if row["kind"] == "bool":
        default = "on" if default else "off"
        kind = {"action": argparse.BooleanOptionalAction}
    elif row["kind"] == "choice":
        long = len(row["choices"]) > _MOST_CHOICES
        meant = functools.partial(choice, legal=row["choices"])
        kind = {"choices": row["choices"], "type": meant, "metavar": "ORDER" if long else None}
    else:
        kind = {"type": whole if row["kind"] == "int" else number, "metavar": "N"}
    group.add_argument(
        option_name(row["name"]),
        dest=row["name"],
        default=None,
        required=required,
        help=text if required else f"{text} (default {default})",
        **kind,
    )


def add_formats(parser: argparse.ArgumentParser) -> None:
    """The two formats for other programs."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="one JSON document")
    formats.add_argument("--csv", action="store_true", help="a CSV table")


def add_question(
    parser: argparse.ArgumentParser, *, required: bool = True, policies: bool = False
) -> None:
    """Model, cluster, stack and task.

    Not `required`: model and task may be left out together. `policies`: one strategy is asked for,
    which a routing policy may route.
    """
    add_model(parser, required=required)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="nodes of the job")
    size.add_argument("--accelerators", type=whole, metavar="N", help="accelerators of the job")
    cluster.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    add_network(cluster, policies=policies)
    add_task(parser, required=required)


def add_network(group: Any, *, policies: bool) -> None:
    """What the network leaves to each axis; with `policies` also by the name of one."""
    group.add_argument(
        "--network",
        type=network if policies else network_shares,
        metavar="SHARES|JSON|POLICY" if policies else "SHARES|JSON",
        help="part of the fabric's bandwidth by axis, such as dp=0.5,pp=0.8, or a JSON file of it"
        + (", or what a routing policy leaves to the strategy" if policies else "")
        + " (default: all of it)",
    )


def add_task(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """The task; not `required`: its fields may all be left out."""
    task = parser.add_argument_group("task")
    tuning = parser.add_argument_group(
        "fine-tuning (any of these makes the task one; rank or targets alone mean lora)"
    )
    for row in _core.Task.fields():
        group = tuning if row["name"] in _FINE_TUNING else task
        add_field(group, row, required=required and row["name"] in REQUIRED)
    task.add_argument(
        "--lengths",
        metavar="FILE|mean=N,spread=N",
        help="documents that are packed into the sequences: a file of their tokens, or log-normal "
        "lengths (default: each sequence is one document)",
    )
    task.add_argument(
        "--packing",
        choices=("plain", "balanced", "dynamic_cp"),
        help="which packs a data-parallel rank takes, and over how many context ranks a document "
        "is split",
    )


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """One option per field of a strategy."""
    strategy = parser.add_argument_group("strategy")
    for row in _core.Strategy.fields():
        add_field(strategy, row)


def given(options: argparse.Namespace, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields that were named on the command line."""
    found = {row["name"]: getattr(options, row["name"]) for row in rows}
    return {name: value for name, value in found.items() if value is not None}


def task_of(options: argparse.Namespace) -> Training:
    """The task that the options describe."""
    from scalemodel.resolve.tasks import FineTuning, Training

    named = given(options, (*_core.Task.fields(), {"name": "lengths"}, {"name": "packing"}))
    if any(name in named for name in _FINE_TUNING):
        named.setdefault("method", "lora")  # rank and targets speak of adapters
        return FineTuning(**named)
    return Training(**named)


def network(text: str) -> dict[str, float] | str:
    """Shares by axis, from text or a JSON file; other text is the name of a routing policy.

    Examples
    --------
    >>> network("dp=0.5,pp=0.8"), network("ecmp")
    ({'dp': 0.5, 'pp': 0.8}, 'ecmp')
    """
    if text.endswith(".json"):
        try:
            document = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise argparse.ArgumentTypeError(f"{text}: cannot be read ({error})") from None
        shares = document.get("network", document) if isinstance(document, dict) else document
        if not isinstance(shares, dict):
            raise argparse.ArgumentTypeError(f"{text}: must hold shares by axis")
        return shares
    if "=" not in text:
        return text
    found: dict[str, float] = {}
    for part in text.split(","):
        axis, _, share = (piece.strip() for piece in part.partition("="))
        try:
            found[axis] = float(share)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r}: must be like dp=0.5") from None
    return found


def network_shares(text: str) -> dict[str, float]:
    """Shares by axis; the name of a policy is refused, for it needs a strategy."""
    found = network(text)
    if isinstance(found, str):
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be like dp=0.5,pp=0.8 or a JSON file; a policy routes one strategy: "
            "scalemodel estimate --network POLICY --json writes such a file"
        )
    return found


def cluster_of(options: argparse.Namespace) -> Cluster:
    """The cluster that the options describe; its network too, unless that is a policy's name."""
    from scalemodel import resolve

    found = resolve.cluster(options.cluster, nodes=options.nodes, accelerators=options.accelerators)
    shares = getattr(options, "network", None)  # serving has no such option
    return found if isinstance(shares, str) else resolve.with_network(found, shares)


# ----------------------------------------------------------------------------------------- knobs
def knob_value(row: Mapping[str, Any], text: str) -> object:
    """One value of a knob, read from text.

    Examples
    --------
    >>> rows = {row["name"]: row for row in _core.Strategy.fields()}
    >>> knob_value(rows["tp"], "8"), knob_value(rows["regather"], "off")
    (8, False)
    """
    legal = ""
    if row["kind"] == "bool":
        if text in ("on", "off"):
            return text == "on"
        legal = "on or off"
    elif row["kind"] == "choice":
        text = choice(text, row["choices"])
        if text in row["choices"]:
            return text
        legal = "one of " + ", ".join(row["choices"])
    else:
        try:
            return int(text) if row["kind"] == "int" else float(text)
        except ValueError:
            legal = "a whole number" if row["kind"] == "int" else "a number"
    raise argparse.ArgumentTypeError(f"{text!r}: must be {legal}")


def add_knob(group: Any, row: Mapping[str, Any]) -> None:
    """An option that takes the values of a strategy field to be tried."""

    def value(text: str) -> object:
        return text if text == "auto" else knob_value(row, text)

    metavar = "N"
    text = row["meaning"].replace("%", "%%")
    if row["kind"] == "bool":
        metavar = "on|off"
    elif row["kind"] == "choice":
        metavar = "NAME"
        text += ": " + ", ".join(row["choices"])
    group.add_argument(
        option_name(row["name"]),
        dest=row["name"],
        default=None,
        nargs="+",
        type=value,
        metavar=metavar,
        help=text,
    )


def exclusion(text: str) -> dict[str, object]:
    """A combination to leave out, read from ``knob=value,knob=value``.

    Examples
    --------
    >>> exclusion("sharding=zero3,tp=8")
    {'sharding': 'zero3', 'tp': 8}
    """
    rows = {row["name"]: row for row in _core.Strategy.fields()}
    found: dict[str, object] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        name = name.replace("-", "_")
        if not sign or not value:
            raise argparse.ArgumentTypeError(f"{part!r}: must be like sharding=zero3,tp=8")
        if name not in rows:
            raise argparse.ArgumentTypeError(f"{name}: no such knob; {nearest(name, rows)}")
        found[name] = knob_value(rows[name], value)
    return found


def objective(text: str) -> str | dict[str, float]:
    """A column, or columns with weights: ``step_time_s=1,cost_usd=0.5``.

    Examples
    --------
    >>> objective("energy_j"), objective("step_time_s=1,cost_usd=0.5")
    ('energy_j', {'step_time_s': 1.0, 'cost_usd': 0.5})
    """
    if "=" not in text and "," not in text:
        return text
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (piece.strip() for piece in part.partition("="))
        try:
            weights[name] = float(weight)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{part!r}: must be like step_time_s=1,cost_usd=0.5"
            ) from None
    return weights


def shard(text: str) -> tuple[int, int]:
    """Which shard of how many, the first being 1.

    Examples
    --------
    >>> shard("2/4")
    (2, 4)
    """
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be I/N, such as 1/8 for the first of eight"
        )
    return int(index), int(count)
