"""The folder of a page, without a browser: files, catalogue, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.cli import MALFORMED, OK, main
from scalemodel.estimator.evaluation import stack_at
from scalemodel.page import export, export_page
from scalemodel.page.catalogue import plain_record
from scalemodel.page.export import ENGINE, catalogue_text
from scalemodel.page.serving import CACHES
from scalemodel.page.settings import FIRST, SERVING, SPACE, reasons
from scalemodel.resolve.engines import engine
from scalemodel.resolve.serving_kernels import kernels_for


@pytest.fixture
def wasm(tmp_path: Path) -> Path:
    """What begins as WebAssembly does; only its bytes are looked at."""
    path = tmp_path / "engine.wasm"
    path.write_bytes(b"\0asm\1\0\0\0")
    return path


@pytest.fixture(scope="module")
def text() -> str:
    return catalogue_text()


@pytest.fixture(scope="module")
def held(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Folders that are written are given the catalogue, which takes seconds to put together."""
    monkeypatch.setattr(export, "catalogue_text", lambda: text)


def same(record: Any, entry: dict[str, Any]) -> None:
    """Every field is what the page holds, or its default."""
    for row in record.fields():
        value, default = getattr(record, row["name"]), row["default"]
        held = entry.get(row["name"])
        if held is None:
            assert value == default, row["name"]
        elif isinstance(held, dict):
            same(value, held)
        elif isinstance(held, list) and isinstance(held[0], dict):
            for item, one in zip(value, held, strict=True):
                same(item, one)
        else:
            assert value == (tuple(held) if isinstance(held, list) else held), row["name"]


def test_every_entry_is_what_python_resolves(held: dict[str, Any]) -> None:
    assert set(held["models"]) == set(catalog.names("models"))
    for name, entry in held["models"].items():
        model = sm.model(name)
        same(model.shape, entry["shape"])
        assert ("vision" in entry) == (model.vision is not None)
        if model.vision is not None:
            same(model.vision, entry["vision"])
    for name, entry in held["clusters"].items():
        cluster = sm.cluster(name, nodes=3)
        assert cluster.accelerators == 3 * entry["node_accelerators"]
        assert "accelerators" not in entry["core"]
        same(cluster.core, {**entry["core"], "accelerators": cluster.accelerators})
        for stack, index in entry["stacks"].items():
            same(stack_at(stack, cluster), held["stack_records"][index])


def test_the_first_question_has_an_answer(held: dict[str, Any]) -> None:
    assert held["settings"]["first"] == {**FIRST, **SERVING}
    task = sm.Training(**{name: FIRST[name] for name in ("global_batch", "sequence", "precision")})
    strategy = _core.Strategy(
        **{row["name"]: FIRST[row["name"]] for row in _core.Strategy.fields()}
    )
    cluster = sm.cluster(FIRST["cluster"], nodes=FIRST["nodes"])
    assert sm.estimate(FIRST["model"], cluster, task, strategy, stack=FIRST["stack"]).fits
    assert 1000 < sum(1 for _ in SPACE.strategies(FIRST["model"], cluster, task)) < 100_000


@pytest.mark.repeats
def test_kernels_are_what_python_resolves(held: dict[str, Any]) -> None:
    """Of every accelerator, engine and format: what the page puts together is `kernels_for`."""

    def fields_of(number: int) -> dict[str, Any]:
        return {
            name: held["kernel_values"][value]
            for name, value in held["kernel_sets"][number].items()
        }

    models = {entry["attention"]: name for name, entry in held["models"].items()}
    first = {entry["kernels"]: name for name, entry in reversed(held["clusters"].items())}
    put_together = 0
    for number, name in first.items():
        cluster = sm.cluster(name, nodes=1)
        for engine_name, entry in held["kernels"][number].items():
            same(engine(engine_name), held["engines"][engine_name]["core"])
            for i, (weights, part) in enumerate(entry["weights"].items()):
                attention = sorted(models)[i % len(models)]
                shape, cache = sm.model(models[attention]).shape, CACHES[i % len(CACHES)]
                if isinstance(part, str):
                    with pytest.raises(sm.ScaleModelError) as refused:
                        kernels_for(cluster, engine_name, shape, weights, cache)
                    assert str(refused.value) == part
                    continue
                found = {
                    **fields_of(part["fields"]),
                    **fields_of(entry["attention"][attention]),
                    **fields_of(part["caches"][cache]),
                }
                same(kernels_for(cluster, engine_name, shape, weights, cache)[0], found)
                own = kernels_for(cluster, engine_name, shape, weights, cache, images=True)[0]
                same(own, {**found, **fields_of(entry["encoder"])})
                put_together += 1
    assert put_together > 500


def test_every_verdict_has_words_and_every_control_a_meaning(held: dict[str, Any]) -> None:
    assert set(reasons()) == set(_core.reasons())
    for control in held["settings"]["controls"]:
        assert control["meaning"], control
        assert control["name"] in held["settings"]["first"]


def test_a_record_says_what_differs_from_its_defaults() -> None:
    assert plain_record(_core.Strategy()) == {}
    entry = plain_record(sm.cluster("dgx_h100").core)
    assert entry["accelerator"]["gemm"]["tiled"] is True
    json.dumps(entry, allow_nan=False)


@pytest.mark.repeats
def test_the_folder_points_nowhere_else(wasm: Path, tmp_path: Path, text: str) -> None:
    files = export_page(tmp_path / "site", engine=wasm)
    assert files[0].name == "index.html"
    names = {path.name for path in files}
    html = files[0].read_text(encoding="utf-8")
    named = set(re.findall(r'(?:src|href)="([^"]+)"', html))
    assert named - {"data:,"} == names - {"index.html"}
    for path in files:
        written = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", written), path.name
        assert (text in written) == (path.name == "catalogue.js")
    # Written again, it is the same folder.
    assert export_page(tmp_path / "site", engine=wasm) == files


@pytest.mark.usefixtures("known")
def test_the_command_names_what_is_missing(
    wasm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = str(tmp_path / "site")
    assert main(["export-page", site, "--engine", str(wasm)]) == OK
    assert "written to" in capsys.readouterr().out
    assert main(["export-page", site, "--engine", str(wasm), "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["files"]["index.html"] > 0
    assert main(["export-page", site, "--engine", str(tmp_path / "none.wasm")]) == MALFORMED
    assert "none.wasm" in capsys.readouterr().err
    wasm.write_bytes(b"<html>")
    assert main(["export-page", site, "--engine", str(wasm)]) == MALFORMED
    assert "is no WebAssembly" in capsys.readouterr().err
    if not ENGINE.exists():
        assert main(["export-page", site]) == MALFORMED
        assert "SCALEMODEL_PAGE" in capsys.readouterr().err
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    wasm.write_bytes(b"\0asm")
    assert main(["export-page", str(blocked / "site"), "--engine", str(wasm)]) == MALFORMED
    assert "cannot be written" in capsys.readouterr().err
