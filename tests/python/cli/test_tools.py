"""The verbs as tools of programs and agents, and completions of shells."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli import main, make_parser, tools
from scalemodel.cli.completion import words

needs_mcp = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason="mcp (extra mcp) is not installed"
)
TRAINING = {"global_batch": 64, "sequence": 8192}
COMMANDS = make_parser()._actions[-1]
QUESTION = {"model": "llama3_8b", "cluster": "dgx_h100", "task": TRAINING, "strategy": {"tp": 2}}


def test_a_tool_answers_what_its_verb_does() -> None:
    expected = sm.estimate(
        "llama3_8b", sm.cluster("dgx_h100"), sm.Training(**TRAINING), sm.Strategy(tp=2)
    )
    found = tools.answer("estimate", QUESTION)
    assert found["step_time_s"] == expected.step_time_s
    assert found["memory_bytes"] == expected.memory_bytes
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("name", list(tools.TOOLS))
def test_an_answer_has_what_its_schema_says(name: str) -> None:
    found = tools.answer(name, tools.TOOLS[name].example)
    schema = tools.answer_schema(name)
    assert set(found) == set(schema["required"]) == set(schema["properties"])
    assert json.loads(json.dumps(schema)) == schema


def test_a_questions_schema_follows_fields_and_signatures() -> None:
    properties = tools.question_schema("estimate")["properties"]
    knobs = properties["strategy"]["anyOf"][0]["properties"]
    assert list(knobs) == list(sm.Strategy().to_dict())
    assert knobs["tp"] == {
        "description": "tensor-parallel degree",
        "default": 1,
        "type": "integer",
        "minimum": 1.0,
        "maximum": 65535.0,
    }
    assert "bf16" in properties["task"]["properties"]["precision"]["enum"]


@pytest.mark.parametrize(
    "name, question, named",
    [
        ("estimate", {"model": "llama3_8b"}, "cluster: missing"),
        ("estimate", {**QUESTION, "colour": "red"}, "colour: unknown"),
        ("estimate", {**QUESTION, "task": {"global_batch": 64}}, "sequence"),
        ("list", {"kind": {"a": 1}}, "must not be an object"),
        ("divine", {}, "tool='divine'"),
    ],
)
def test_a_malformed_question_names_what_is_wrong(
    name: str, question: dict[str, Any], named: str
) -> None:
    with pytest.raises(ScaleModelError, match=named):
        tools.answer(name, question)


def test_every_command_that_answers_in_json_is_a_tool() -> None:
    found = tools.all_tools(COMMANDS)
    own = {"measure", "check", "mcp", "schema", "completion"}  # what no program asks for
    assert {name.replace("-", "_") for name in COMMANDS.choices} - own <= set(found)
    for name, one in found.items():
        assert one.meaning, name
        schema = one.question_schema()
        assert set(schema["required"]) <= set(schema["properties"])
        assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("name", "question", "argv"),
    [
        (
            "rl",
            {
                "model": "llama3_8b",
                "cluster": "dgx_h100",
                "prompts": 16,
                "generations": 8,
                "prompt_tokens": 128,
                "generated_tokens": 500,
                "limit_tokens": 2048,
                "tp": 2,
            },
            [
                "llama3_8b",
                "--cluster",
                "dgx_h100",
                "--prompts",
                "16",
                "--generations",
                "8",
                "--prompt-tokens",
                "128",
                "--generated-tokens",
                "500",
                "--limit-tokens",
                "2048",
                "--tp",
                "2",
            ],
        ),
        (
            "compare_clusters",
            {
                "model": "llama3_8b",
                "clusters": ["dgx_h100:4", "dgx_a100:8"],
                "tokens": 1e11,
                "global_batch": 64,
                "sequence": 8192,
            },
            [
                "llama3_8b",
                "--clusters",
                "dgx_h100:4",
                "dgx_a100:8",
                "--tokens",
                "1e11",
                "--global-batch",
                "64",
                "--sequence",
                "8192",
            ],
        ),
    ],
)
def test_a_command_as_a_tool_answers_what_it_prints(
    name: str, question: dict[str, Any], argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = tools.all_tools(COMMANDS)[name].answer(question)
    assert main([name.replace("_", "-"), *argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert found == (printed if isinstance(printed, dict) else {"rows": printed})
    assert not capsys.readouterr().out


def test_a_command_as_a_tool_names_what_is_wrong() -> None:
    known = tools.all_tools(COMMANDS)
    with pytest.raises(ScaleModelError, match="colour: unknown; trace takes file"):
        known["trace"].answer({"colour": "red"})
    with pytest.raises(ScaleModelError, match="no-such"):
        known["trace"].answer({"file": "no-such-file.jsonl"})
    with pytest.raises(ScaleModelError, match="model"):
        known["codesign"].answer({})


def test_the_command_prints_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "list"]) == 0
    assert set(json.loads(capsys.readouterr().out)["list"]) == {"question", "answer"}


def test_without_mcp_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    assert main(["mcp"]) == 2
    assert "scalemodel[mcp]" in capsys.readouterr().err


@needs_mcp
def test_an_agent_lists_and_calls_tools() -> None:
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk() -> tuple[Any, Any, Any]:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "scalemodel", "mcp"], env=dict(os.environ)
        )
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            good = await session.call_tool("estimate", QUESTION)
            bad = await session.call_tool("estimate", {**QUESTION, "model": "no such model"})
            return listed, good, bad

    listed, good, bad = anyio.run(talk)
    assert {one.name for one in listed.tools} == set(tools.all_tools(COMMANDS))
    assert good.structured_content == tools.answer("estimate", QUESTION)
    assert bad.is_error


# -------------------------------------------------------------------------------------- completion
def test_every_command_is_completed_with_its_options() -> None:
    parser = make_parser()
    commands = parser._actions[-1]
    found = words(commands)
    assert {"estimate", "check", "mcp"} <= set(found[""])
    assert "--cluster" in found["estimate"]
    assert {"bash", "zsh", "fish"} <= set(found["completion"])


@pytest.mark.parametrize(
    "typed, expected", [(["est"], "estimate"), (["estimate", "--clus"], "--cluster")]
)
def test_bash_completes(
    typed: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out + (
        f"\nCOMP_WORDS=(scalemodel {' '.join(typed)}); COMP_CWORD={len(typed)}\n"
        '_scalemodel; echo "${COMPREPLY[@]}"\n'
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert expected in ran.stdout.split()


def test_other_shells_get_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    assert "__fish_seen_subcommand_from estimate" in capsys.readouterr().out
    assert main(["completion", "zsh"]) == 0
    assert "bashcompinit" in capsys.readouterr().out
