"""The page of a study is one valid file that says what was found and points at nothing outside."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from command_line import QUESTION, SMALL, TOO_LARGE, asked, run_command
from scalemodel.base.text import size_text
from scalemodel.estimator.uncertainty import step_text
from scalemodel.reports.sections import memory_front

SPACE = sm.Space(pp=1, cp=1, micro_batch=[1, 2])
OPTIONS = [*QUESTION, *SMALL, "--threads", "1"]
VOID = {"meta", "br"}


@pytest.fixture(autouse=True)
def closed_figures(agg: None) -> Iterator[None]:
    """What a page draws it also closes."""
    import matplotlib.pyplot as plt

    yield
    assert not plt.get_fignums()


class Page(html.parser.HTMLParser):
    """Balanced tags, names that occur once, and references that stay on the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.names: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_decl(self, decl: str) -> None:
        assert decl.lower() == "doctype html"
        assert not self.tags

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert len({name for name, _ in attrs}) == len(attrs)
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert "://" not in (value or ""), value
            if name == "id":
                self.names.append(str(value))
            if name.endswith("href"):
                self.references.append(str(value))
            self.references += re.findall(r"url\(([^)]*)\)", value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def checked(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "iframe", "img", "object", "embed", "base"} & set(page.tags)
    assert "@import" not in text
    assert len(set(page.names)) == len(page.names)
    assert {name[:1] for name in page.references} == {"#"}
    assert {name[1:] for name in page.references} <= set(page.names)
    assert page.tags.count("h1") == 1
    return page


def reported(**options: Any) -> sm.Report:
    return sm.report(*asked(), SPACE, threads=1, **options)


@pytest.fixture(scope="module")
def study() -> sm.Report:
    return reported(top=3)


def test_a_page_is_one_valid_file(study: sm.Report) -> None:
    page = checked(study.html)
    assert page.tags.count("svg") == 4
    sections = ["question", "answer", "parts", "choice", "front", "hardware", "help"]
    assert {*sections, "certainty", "assumptions", "repeat"} <= set(page.names)


def test_a_page_says_what_the_search_found(study: sm.Report) -> None:
    text, best = checked(study.html).text, sm.search(*asked(), SPACE, top=3, threads=1)
    assert study.ranking == best
    for est in best:
        assert repr(est.strategy) in text
    assert f"{step_text(best[0])} a step" in text
    assert f"{size_text(best[0].memory_bytes)} of 80.0 GiB" in text
    assert best.why_infeasible() in text
    won = sm.explain_choice(best, threads=1).text().splitlines()[:3]
    assert "\n".join(won) in html.unescape(study.html)
    for column in ("gemm_efficiency", "ideal fabric assumed", "comparable published runs"):
        assert column in text


def test_drawings_can_be_told_without_seeing_them(study: sm.Report) -> None:
    assert study.html.count('<svg role="img" aria-label="') == 4
    assert study.html.count("<figcaption>") == 4


def test_the_code_on_a_page_writes_the_same_page(study: sm.Report) -> None:
    names: dict[str, Any] = {}
    code = html.unescape(study.html.split("<pre>")[-1].split("</pre>")[0])
    assert code.endswith('page.write("study.html")')
    exec(code.removesuffix('page.write("study.html")'), names)
    assert names["page"].html == study.html


@pytest.mark.parametrize(
    "options",
    [
        {"objective": "energy_j"},
        {"objective": "tokens_per_s", "constraints": "power_w <= 690"},
        {"objective": "memory_bytes", "top": 1},
        {"objective": {"step_time_s": 1, "cost_usd": 0.5}, "network": {"dp": 0.5}},
    ],
)
def test_any_objective_makes_a_page(options: dict[str, Any]) -> None:
    found = reported(**options)
    text = checked(found.html).text
    assert found.ranking[0].verdict == "ok"
    for constraint in found.ranking.question.constraints:
        assert constraint in text
    assert ("dp 0.5" in text) == ("network" in options)


def test_one_strategy_makes_a_page() -> None:
    plan = {"tp": 2, "pp": 1, "cp": 1, "micro_batch": 1, "sharding": "zero1"}
    space = sm.Space(**plan, recompute="none", regather=True, placement="tp-cp-dp-pp")
    checked(sm.report(*asked(), space, threads=1).html)


def test_where_nothing_fits_the_page_says_why() -> None:
    found = sm.report("llama3_1_405b", *asked()[1:], SPACE, threads=1)
    page = checked(found.html)
    assert not found.ranking
    assert found.ranking.why_infeasible() in page.text
    assert "svg" not in page.tags


def test_less_memory_is_never_faster() -> None:
    question = sm.search(*asked(), SPACE, threads=1).question
    front = memory_front(question, 1)
    assert front.step_time_s.is_monotonic_increasing
    assert front.memory_bytes.is_monotonic_decreasing
    assert front.step_time_s.min() == sm.search(*asked(), SPACE, threads=1)[0].step_time_s


def test_numbers_of_the_contents_have_room() -> None:
    lines = reported(top=1).html.splitlines()
    (rule,) = [line for line in lines if line.startswith("nav ol {")]
    # Outside of a list item in a row its number would lie over the item before.
    assert "display: flex" in rule
    assert "list-style-position: inside" in rule


def test_progress_is_told_by_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    reported(top=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 10) for done in range(1, 11)]
    path = tmp_path / "study.html"
    ran = run_command(capsys, "report", *OPTIONS, "--out", path, "--progress")
    assert ran.err.splitlines()[-1] == "section 10 of 10"


def test_titles_are_text() -> None:
    title = 'a <b> & "c"'
    page = checked(reported(title=title, top=1).html)
    assert page.text.count(title) == 2


@pytest.mark.parametrize("title", ["", "  ", 3])
def test_titles_must_be_text(title: Any) -> None:
    with pytest.raises(sm.ScaleModelError, match="title="):
        reported(title=title)


def test_layer_groups_are_refused() -> None:
    model: Any = sm.compose("mlp", groups=[sm.Mlp(name="mlp", widths=(8, 8))])
    with pytest.raises(sm.ScaleModelError, match="layer groups"):
        sm.report(model, *asked()[1:])


def test_the_command_writes_the_page_of_python(
    study: sm.Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.html"
    ran = run_command(capsys, "report", *OPTIONS, "--top", "3", "--out", path)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"written to {path}"
    assert path.read_text(encoding="utf-8") == study.html
    ran = run_command(capsys, "report", *OPTIONS, "--out", path, "--title", "Mine", "--json")
    assert ran.document["out"] == str(path)
    assert ran.document["best"]["step_time_s"] == study.ranking[0].step_time_s
    assert "<title>Mine</title>" in path.read_text(encoding="utf-8")


def test_nothing_feasible_is_code_4_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.html"
    assert run_command(capsys, "report", *TOO_LARGE, "--out", path).code == 4
    assert "No strategy fits" in checked(path.read_text(encoding="utf-8")).text


@pytest.mark.parametrize("name", ["study.txt", "missing/study.html"])
def test_files_that_cannot_be_pages_are_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run_command(capsys, "report", *OPTIONS, "--out", tmp_path / name)
    assert (ran.code, ran.out) == (2, "")
    assert name in ran.err
