"""Ids of the Hugging Face Hub: one small file each, a commit on the model, no network but for them.

A module in place of ``huggingface_hub`` answers as the library does; its errors have the names of
the library's classes. The library itself is asked, without a network, where it is installed.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import cli
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.engines import model_of
from scalemodel.resolve.hub_files import hub_config
from scalemodel.search.ranking_file import from_json, to_json

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "model_type": "llama",
    "_name_or_path": "somewhere/else",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
}
ID = "someone/small-model"

EntryNotFoundError = type("EntryNotFoundError", (Exception,), {})
RepositoryNotFoundError = type("RepositoryNotFoundError", (OSError,), {})
ERRORS = {
    error.__name__: error
    for error in (
        EntryNotFoundError,
        RepositoryNotFoundError,
        type("LocalEntryNotFoundError", (EntryNotFoundError, FileNotFoundError), {}),
        type("GatedRepoError", (RepositoryNotFoundError,), {}),
        type("RevisionNotFoundError", (OSError,), {}),
        type("OfflineModeIsEnabled", (ConnectionError,), {}),
        type("HFValidationError", (ValueError,), {}),
    )
}


class Hub:
    """What was asked of the Hub, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str, str | None]] = []
        self.text = json.dumps(CONFIG)
        self.raised: Exception | None = None

    def hf_hub_download(self, repo_id: str, filename: str, *, revision: str | None = None) -> str:
        self.asked.append((repo_id, filename, revision))
        if self.raised is not None:
            raise self.raised
        path = self.folder / "snapshots" / COMMIT / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8")
        return str(path)


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing remembered of other tests, and an empty folder to work in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    hub_config.cache_clear()
    yield
    hub_config.cache_clear()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    answering = Hub(tmp_path / "cache")
    module = ModuleType("huggingface_hub")
    module.hf_hub_download = answering.hf_hub_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return answering


def test_an_id_is_read_from_its_configuration_alone(hub: Hub) -> None:
    model = sm.model(ID)
    assert hub.asked == [(ID, "config.json", None)]
    assert (model.shape.layers, model.shape.hidden) == (2, 256)
    assert model.hub == ID
    assert model.shape == sm.model(CONFIG).shape


def test_the_commit_stands_in_name_and_repr_and_rows_and_survives_pickling(hub: Hub) -> None:
    model = sm.model(ID)
    assert model.revision == COMMIT
    assert f"{ID}@{COMMIT}" == model.name
    assert model.name in repr(model)
    assert pickle.loads(pickle.dumps(model)).revision == COMMIT
    task = sm.Training(global_batch=8, sequence=128)
    found = sm.search(model, sm.cluster("dgx_h100", nodes=1), task, top=1)
    kept = pickle.loads(pickle.dumps(found))
    assert kept.question.model.revision == COMMIT
    assert from_json(to_json(found)).ranking.question.model.revision == COMMIT


def test_a_name_that_a_row_holds_asks_for_the_same_commit(hub: Hub) -> None:
    again = sm.model(sm.model(ID).name)
    assert hub.asked[-1] == (ID, "config.json", COMMIT)
    assert again.name == sm.model(ID).name


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/3", COMMIT])
def test_a_revision_is_asked_for(hub: Hub, revision: str) -> None:
    model = sm.model(f"{ID}@{revision}")
    assert hub.asked == [(ID, "config.json", revision)]
    assert model.revision == COMMIT


@pytest.mark.parametrize("revision", ["", "../../x", "a b", "@", "a/../b"])
def test_what_is_no_revision_is_refused_unasked(hub: Hub, revision: str) -> None:
    with pytest.raises(ScaleModelError, match="must be a branch, a tag or a whole commit"):
        sm.model(f"{ID}@{revision}")
    assert hub.asked == []


def test_the_hub_is_asked_once(hub: Hub) -> None:
    sm.model(ID)
    sm.model(ID)
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    "source",
    [
        "llama3_8b",
        "Qwen/Qwen3-32B",
        "meta-llama/Meta-Llama-3-70B",
        CONFIG,
        Path("someone/small-model"),
        "./someone/small-model",
        "someone/small-model/config.json",
        "someone/small-model.json",
        "someone/small-model.toml",
        "a/b/c",
        "no_such_name",
    ],
)
def test_nothing_but_an_unknown_id_asks_the_hub(hub: Hub, source: Any) -> None:
    with suppress(ScaleModelError):
        sm.model(source)
    assert hub.asked == []


def test_commands_of_strangers_ask_nothing(hub: Hub) -> None:
    assert model_of(ID) is None
    assert model_of("Qwen/Qwen3-32B-FP8").name == "qwen3_32b"  # type: ignore[union-attr]
    assert hub.asked == []


# ----------------------------------------------------------------------------- folders of that name
def folder_of(name: str, config: dict[str, Any] | None) -> None:
    Path(name).mkdir(parents=True)
    if config is not None:
        (Path(name) / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_a_folder_wins_over_an_id_that_the_catalogue_does_not_have(hub: Hub) -> None:
    folder_of(ID, {**CONFIG, "num_hidden_layers": 3})
    assert sm.model(ID).shape.layers == 3
    assert sm.model(ID).revision == ""
    assert hub.asked == []
    assert sm.model(f"{ID}@main").shape.layers == 2


def test_a_catalogue_id_wins_over_a_folder(hub: Hub) -> None:
    folder_of("Qwen/Qwen3-32B", CONFIG)
    assert sm.model("Qwen/Qwen3-32B").name == "qwen3_32b"
    assert sm.model("./Qwen/Qwen3-32B").shape.layers == 2
    assert sm.model(Path("Qwen/Qwen3-32B")).shape.layers == 2
    assert hub.asked == []


def test_a_folder_without_a_configuration_is_named(hub: Hub) -> None:
    folder_of(ID, None)
    with pytest.raises(ScaleModelError, match=f"write '{ID}@main'"):
        sm.model(ID)
    assert hub.asked == []


# --------------------------------------------------------------------------------------- what fails
@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("LocalEntryNotFoundError", "unreachable_hub", "cannot be reached"),
        ("OfflineModeIsEnabled", "unreachable_hub", "HF_HUB_OFFLINE"),
        ("RepositoryNotFoundError", "unknown_model", "or private"),
        ("GatedRepoError", "gated_model", "hf auth login"),
        ("RevisionNotFoundError", "unknown_revision", "a branch, a tag"),
        ("EntryNotFoundError", "unknown_model", "holds no config.json"),
        ("HFValidationError", "unknown_model", "no id"),
    ],
)
def test_each_refusal_is_one_sentence(hub: Hub, kind: str, code: str, told: str) -> None:
    hub.raised = ERRORS[kind]("a long page\nof several lines")
    with pytest.raises(ScaleModelError) as refused:
        sm.model(ID)
    said = str(refused.value)
    assert refused.value.code == code
    assert said.startswith(f"model={ID!r}: ")
    assert told in said
    assert "pass its config.json (a path, its folder, or its contents)" in said
    assert "\n" not in said


def test_a_revision_stands_in_the_refusal(hub: Hub) -> None:
    hub.raised = ERRORS["RevisionNotFoundError"]()
    with pytest.raises(ScaleModelError, match=f"model='{ID}@v9': "):
        sm.model(f"{ID}@v9")


def test_other_failures_say_what_the_library_said(hub: Hub) -> None:
    hub.raised = OSError("No space left on device")
    with pytest.raises(ScaleModelError, match="OSError: No space left on device"):
        sm.model(ID)


def test_a_refusal_is_not_remembered(hub: Hub) -> None:
    hub.raised = ERRORS["LocalEntryNotFoundError"]()
    with pytest.raises(ScaleModelError):
        sm.model(ID)
    hub.raised = None
    assert sm.model(ID).revision == COMMIT


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ScaleModelError, match=r"pip install 'scalemodel\[hub\]'") as refused:
        sm.model(ID)
    assert refused.value.code == "missing_extra"
    assert f"model={ID!r}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "must hold a JSON object"),
        ('{"model_type": "strange"}', "strange"),
        ('{"model_type": "llama", "num_hidden_layers": -1}', "num_hidden_layers"),
    ],
)
def test_a_configuration_that_is_none_is_refused(hub: Hub, text: str, told: str) -> None:
    hub.text = text
    with pytest.raises(ScaleModelError, match=told) as refused:
        sm.model(ID)
    assert str(refused.value).startswith(f"model={ID!r}: ")
    assert "path of a file that exists" not in str(refused.value)


def test_an_unknown_family_can_be_read_as_the_nearest(hub: Hub) -> None:
    hub.text = json.dumps({**CONFIG, "model_type": "strange"})
    with pytest.warns(UserWarning, match="unknown family read as"):
        model = sm.model(ID, approximate=True)
    assert model.revision == COMMIT


# --------------------------------------------------------------------------------- the command line
def test_the_command_line_takes_an_id(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--cluster", "dgx_h100", "--global-batch", "8", "--sequence", "128", "--dp", "8"]
    cli.main(["estimate", ID, *asked, "--json"])
    row = json.loads(capsys.readouterr().out)
    assert row["model"] == f"{ID}@{COMMIT}"


def test_the_command_line_says_what_failed(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.raised = ERRORS["GatedRepoError"]()
    code = cli.main(
        ["estimate", ID, "--cluster", "dgx_h100", "--global-batch", "8", "--sequence", "128"]
    )
    assert code != 0
    assert "gated on the Hugging Face Hub" in capsys.readouterr().err


# -------------------------------------------------------------------------------------- the library
@pytest.fixture
def offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, dict[str, Any]], Path]:
    """The library with an own cache and no network; puts a configuration into its cache."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(repository: str, config: dict[str, Any]) -> Path:
        folder = tmp_path / "hub" / f"models--{repository.replace('/', '--')}"
        path = folder / "snapshots" / COMMIT / "config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(config), encoding="utf-8")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(COMMIT, encoding="utf-8")
        return path

    return put


def test_the_library_answers_from_its_cache(offline: Callable[..., Path]) -> None:
    offline(ID, CONFIG)
    assert sm.model(ID).name == f"{ID}@{COMMIT}"
    assert sm.model(f"{ID}@{COMMIT}").revision == COMMIT


def test_the_library_says_that_there_is_no_network(offline: Callable[..., Path]) -> None:
    with pytest.raises(ScaleModelError) as refused:
        sm.model(ID)
    assert refused.value.code == "unreachable_hub"


def test_the_library_says_what_is_no_id(offline: Callable[..., Path]) -> None:
    with pytest.raises(ScaleModelError) as refused:
        sm.model("someone/small--model")
    assert "no id that the Hugging Face Hub allows" in str(refused.value)
