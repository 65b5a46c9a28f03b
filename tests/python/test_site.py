"""Pages of the site hold what the package has, each thing once; CI builds all of them."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel import catalog
from scalemodel.base.vocabulary import SPELLINGS, SYNONYMS

FOLDER = Path(__file__).resolve().parents[2] / "notebooks" / "site"


def load(name: str) -> ModuleType:
    """A module of the site, which is no package."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages: Any = load("pages")
KINDS = pages.kinds()


def test_every_verb_shows_a_call() -> None:
    assert pages.without_example(pages.verbs()) == []


def test_a_verb_without_a_call_is_found() -> None:
    def silent() -> None:
        """Nothing is shown."""

    assert pages.without_example({"silent": silent}) == ["silent"]


def test_every_verb_stands_below_a_question_in_the_help() -> None:
    named = {name for names in pages.questions().values() for name in names}
    parts = {"model", "compose", "cluster", "mixed_cluster", "list_catalog"}
    assert {name for name in pages.verbs() if "." not in name} - parts <= named


def test_every_public_name_has_one_entry() -> None:
    text = "\n".join(pages.reference_pages().values())
    entries = re.findall(r"^\.\. auto(?:class|function):: (\S+)$", text, re.MULTILINE)
    counts = Counter(entry.removeprefix("scalemodel.") for entry in entries)
    wanted = set(sm.__all__) - {"__version__", "plot"} | {f"plot.{n}" for n in sm.plot.__all__}
    assert wanted <= counts.keys()
    assert set(counts.values()) == {1}


def test_every_plot_is_in_the_gallery() -> None:
    shown = re.findall(r":img-bottom: gallery/(\w+)\.png", pages.gallery())
    helpers = {"collective_table", "gemm_table", "save", "style"}
    assert set(shown) == set(sm.plot.__all__) - helpers


def test_the_table_of_stacks_is_the_catalogue() -> None:
    rows = [line for line in pages.stacks().splitlines() if line.startswith("| [`")]
    assert [row.split("`")[1] for row in rows] == list(catalog.names("stacks"))
    accuracy = catalog.load("reference", "accuracy")["stacks"]
    left_out = {row["stack"]: row for row in accuracy if row["way"] == "left_out"}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        found = left_out.get(row.split("`")[1])
        assert cells[-2] == (f"{100 * found['mape_fraction']:.1f}" if found else "")


def test_the_glossary_has_every_term_and_every_spelling() -> None:
    text = pages.glossary()
    assert text.count("\n: ") == pages.readme()["Glossary"].count("\n| ") - 1
    for word in (*SPELLINGS, *SYNONYMS):
        assert re.search(rf"\b{word}\b", text), word


@settings(max_examples=25)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    accelerator=st.sampled_from(catalog.names("accelerators")),
    engine=st.sampled_from(catalog.names("engines")),
    data=st.data(),
)
def test_models_of_a_kind_rest_on_the_same(
    kind: str, accelerator: str, engine: str, data: st.DataObject
) -> None:
    model = data.draw(st.sampled_from(KINDS[kind]))
    shown = pages.parts_of(KINDS[kind][0], accelerator, engine)
    assert pages.parts_of(model, accelerator, engine) == shown


def test_every_section_of_the_readme_has_a_page() -> None:
    assert set(pages.readme()) - {""} <= pages.SECTIONS.keys()


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("[a](README.md)", "notebooks/README.md", "[a](guide.md)"),
        ("[a](../README.md#glossary)", "notebooks/README.md", "[a](glossary.md#glossary)"),
        (
            "[a](02_best_strategy.ipynb)",
            "notebooks/README.md",
            "[a](notebooks/02_best_strategy.ipynb)",
        ),
        ("[a](LICENSE)", "README.md", "a"),
        ("[a](https://example.org/b)", "README.md", "[a](https://example.org/b)"),
        ("`sm.estimate`", "README.md", "{py:obj}`sm.estimate <scalemodel.estimate>`"),
        ("`sm.no_such_name`", "README.md", "`sm.no_such_name`"),
        ("```\n[a](LICENSE) `sm.serve`\n```", "README.md", "```\n[a](LICENSE) `sm.serve`\n```"),
    ],
)
def test_links_lead_to_pages(text: str, at: str, expected: str) -> None:
    assert pages.relinked(text, at) == expected


def test_broken_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    build: Any = load("build")
    (tmp_path / "a.html").write_text('<p id="top"><a href="#top"></a><a href="b.html#here"></a>')
    (tmp_path / "b.html").write_text(
        '<a href="c.html"></a><a href="a.html#no"></a><a href="https://example.org/none"></a>'
        '<a href="a.html?q=1#top"></a><p id="here"></p>'
    )
    assert list(build.broken_links(tmp_path)) == ["b.html: a.html#no", "b.html: c.html"]
