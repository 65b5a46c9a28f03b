"""``scalemodel mcp`` and ``scalemodel schema``: the verbs for agents and other programs."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

from scalemodel._core import __version__
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.output import OK


def add_mcp(commands: Any) -> None:
    """The command that serves the verbs to agents."""
    parser = commands.add_parser(
        "mcp",
        help="serve the verbs to agents (MCP)",
        description="Serve estimate, search, serve, plan_serving and list as tools of the Model "
        "Context Protocol on standard input and output. Needs the extra mcp.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_mcp)


def add_schema(commands: Any) -> None:
    """The command that prints the schemas of questions and answers."""
    parser = commands.add_parser(
        "schema",
        help="print JSON schemas of questions and answers",
        description="Print the JSON schemas of what every tool is asked and answers.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_schema)
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="one tool; default: all")


def _schema(options: argparse.Namespace) -> int:
    from scalemodel.cli import tools

    names = [tools.tool(options.tool).name] if options.tool else list(tools.TOOLS)
    found = {
        name: {"question": tools.question_schema(name), "answer": tools.answer_schema(name)}
        for name in names
    }
    print(json.dumps(found, indent=2, ensure_ascii=False))
    return OK


def _mcp(options: argparse.Namespace) -> int:
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

    async def listed(context: Any, parameters: Any) -> Any:
        found = [
            types.Tool(
                name=one.name,
                description=one.meaning,
                input_schema=tools.question_schema(one.name),
                output_schema=tools.answer_schema(one.name),
            )
            for one in tools.TOOLS.values()
        ]
        return types.ListToolsResult(tools=found)

    async def called(context: Any, parameters: Any) -> Any:
        try:
            found = tools.answer(parameters.name, parameters.arguments or {})
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
