"""``scalemodel mcp`` and ``scalemodel schema``: the verbs for agents and other programs."""

from __future__ import annotations

import argparse
import importlib
import json
from functools import partial
from typing import Any

from scalemodel._core import __version__
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.output import OK


def add_mcp(commands: Any) -> None:
    """The command that serves the verbs to agents."""
    parser = commands.add_parser(
        "mcp",
        help="serve the verbs to agents (MCP)",
        description="Serve estimate, search, serve, plan_serving, list and every other command "
        "that answers in JSON as tools of the Model Context Protocol on standard input and output. "
        "Needs the extra mcp.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=partial(_mcp, commands))


def add_schema(commands: Any) -> None:
    """The command that prints the schemas of questions and answers."""
    parser = commands.add_parser(
        "schema",
        help="print JSON schemas of questions and answers",
        description="Print the JSON schemas of what every tool is asked and answers.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=partial(_schema, commands))
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="one tool; default: all")


def _schema(commands: Any, options: argparse.Namespace) -> int:
    from scalemodel.cli import tools

    known = tools.all_tools(commands)
    if options.tool is not None and options.tool not in known:
        raise ScaleModelError(f"tool={options.tool!r}: must be one of {', '.join(known)}")
    found = {
        name: {"question": known[name].question_schema(), "answer": known[name].answer_schema()}
        for name in ([options.tool] if options.tool else known)
    }
    print(json.dumps(found, indent=2, ensure_ascii=False))
    return OK


def _mcp(commands: Any, options: argparse.Namespace) -> int:
    try:
        anyio = importlib.import_module("anyio")
        lowlevel = importlib.import_module("mcp.server.lowlevel")
        stdio = importlib.import_module("mcp.server.stdio")
        types = importlib.import_module("mcp_types")
    except ImportError:
        raise ScaleModelError(
            "mcp is not installed, and agents are served with it: pip install 'scalemodel[mcp]'",
            code="missing_extra",
        ) from None

    from scalemodel.cli import tools

    known = tools.all_tools(commands)

    async def listed(context: Any, parameters: Any) -> Any:
        found = [
            types.Tool(
                name=one.name,
                description=one.meaning,
                input_schema=one.question_schema(),
                output_schema=one.answer_schema(),
            )
            for one in known.values()
        ]
        return types.ListToolsResult(tools=found)

    async def called(context: Any, parameters: Any) -> Any:
        try:
            if parameters.name not in known:
                raise ScaleModelError(
                    f"tool={parameters.name!r}: must be one of {', '.join(known)}"
                )
            found = known[parameters.name].answer(parameters.arguments or {})
        except ScaleModelError as error:
            said = types.TextContent(type="text", text=str(error))
            return types.CallToolResult(content=[said], is_error=True)
        text = types.TextContent(type="text", text=json.dumps(found, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=found)

    server = lowlevel.Server(
        "scalemodel", version=__version__, on_list_tools=listed, on_call_tool=called
    )

    async def run() -> None:
        async with stdio.stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)
    return OK
