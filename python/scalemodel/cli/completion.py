"""``scalemodel completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from scalemodel.cli.output import OK

SHELLS = ("bash", "zsh", "fish")


def add_completion(commands: Any) -> None:
    """The command that prints completions of a shell."""
    parser = commands.add_parser(
        "completion",
        help="print completions for a shell",
        description='Print completions of commands and options: eval "$(scalemodel completion '
        'bash)" in ~/.bashrc, the same in ~/.zshrc, or scalemodel completion fish | source.',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    parser.set_defaults(run=partial(_completion, commands))


def words(commands: Any) -> dict[str, list[str]]:
    """Options of every command, and choices of its arguments; the commands under an empty name."""
    found = {name: _own(command) for name, command in commands.choices.items()}
    return {"": [*found, "--help", "--version"], **found}


def _own(parser: argparse.ArgumentParser) -> list[str]:
    named = [option for action in parser._actions for option in action.option_strings]
    choices = [
        str(choice)
        for action in parser._actions
        if action.choices is not None
        for choice in action.choices
    ]
    return [option for option in named if option.startswith("--")] + choices


def bash(found: dict[str, list[str]]) -> str:
    """Completions for bash; zsh runs them too."""
    cases = [
        f'    {name}) words="{" ".join(options)}" ;;' for name, options in found.items() if name
    ]
    return "\n".join(
        [
            "_scalemodel() {",
            '  local words current="${COMP_WORDS[COMP_CWORD]}"',
            "  COMPREPLY=()",
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join(found[""])}"',
            '  else case "${COMP_WORDS[1]}" in',
            *cases,
            "  esac; fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _scalemodel scalemodel",
        ]
    )


def fish(found: dict[str, list[str]]) -> str:
    """Completions for fish."""
    lines = [
        f'complete -c scalemodel -n __fish_use_subcommand -f -a "{" ".join(found[""])}"',
        *(
            f'complete -c scalemodel -n "__fish_seen_subcommand_from {name}" '
            f'-a "{" ".join(options)}"'
            for name, options in found.items()
            if name
        ),
    ]
    return "\n".join(lines)


def _completion(commands: Any, options: argparse.Namespace) -> int:
    found = words(commands)
    if options.shell == "fish":
        print(fish(found))
        return OK
    if options.shell == "zsh":
        print("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit")
    print(bash(found))
    return OK
