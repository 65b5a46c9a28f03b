"""Pages of the site: the papers of the repository cut to pages, and tables out of the package."""

from __future__ import annotations

import doctest
import html
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import scalemodel as sm
from scalemodel import catalog
from scalemodel.base.units import value_of
from scalemodel.base.vocabulary import SPELLINGS, SYNONYMS
from scalemodel.serving import basis

ROOT = Path(__file__).resolve().parents[2]
GUIDE, LAYOUT = "notebooks/README.md", "cpp/README.md"
ACCURACY = "python/scalemodel/validation/README.md"
MEASUREMENTS = "python/scalemodel/catalog/measurements/README.md"
FEATURES = "tests/features/README.md"
#: Page of every paper that is one page, by its path in the repository.
WHOLE = {
    GUIDE: "guide",
    LAYOUT: "contributing",
    ACCURACY: "accuracy",
    MEASUREMENTS: "measurements",
    FEATURES: "features",
    "CHANGELOG.md": "changelog",
}
#: Page of every section of the README; what stands before the first section is the first page.
SECTIONS = {
    "Two commands": "start",
    "A few lines": "start",
    "Your own cluster": "start",
    "The best of all strategies": "start",
    "Your own machine, shells and agents": "start",
    "Accuracy": "accuracy",
    "Which stack to name": "stacks",
    "How fast": "limits",
    "Limits": "limits",
    "Where things are, and where to read on": "contributing",
    "Glossary": "glossary",
    "Citing and contributing": "contributing",
    "Licence": "contributing",
}
#: Names of the package that stand for packages: their pages are those of their functions.
PACKAGES = ("codesign", "scaling", "plot")
#: Title of the names that answer no question by themselves.
PARTS = "Parts of a question"


def paper(name: str) -> str:
    """Text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    """Name of a heading in links, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def readme() -> dict[str, str]:
    """Sections of the README by their headings; the part before the first one is ``""``."""
    parts = re.split(r"^## (.*)\n", paper("README.md"), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


# ----------------------------------------------------------------------------------------- links
_LINK = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_NAME = re.compile(r"(?<!\[)`sm\.((?:plot\.)?\w+)`")
_FENCE = re.compile(r"(^```.*?^```|^<!--.*?-->)", re.MULTILINE | re.DOTALL)


def _page_of(file: str, section: str) -> str:
    """Page that shows a file of the repository, seen from the top of the site; empty: none."""
    if file == "README.md":
        heads = {anchor(heading): page for heading, page in SECTIONS.items()}
        return f"{heads[section]}.md" if section else "index.md"
    if file.endswith(".ipynb"):
        return f"notebooks/{Path(file).name}"
    return f"{WHOLE[file]}.md" if file in WHOLE else ""


def relinked(text: str, at: str, up: str = "") -> str:
    """Text of a file of the repository with its links leading to pages of the site.

    A link to a file that is on no page keeps its words only; public names become links.

    Parameters
    ----------
    text : str
        Markdown.
    at : str
        The file that it comes from.
    up : str
        What leads from the page to the top of the site.
    """

    def link(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        file, _, section = target.partition("#")
        path = (ROOT / at).parent / file if file else ROOT / at
        page = _page_of(str(path.resolve().relative_to(ROOT)), section)
        return f"[{words}]({up}{page}{'#' * bool(section)}{section})" if page else words

    def picture(found: re.Match[str]) -> str:
        path = ((ROOT / at).parent / found[2]).resolve().relative_to(ROOT)
        return f"![{found[1]}]({up}{path})"

    def name(found: re.Match[str]) -> str:
        return reference(found[1]) or found[0]

    pieces = _FENCE.split(text)
    for place in range(0, len(pieces), 2):
        linked = _PICTURE.sub(picture, _LINK.sub(link, pieces[place]))
        pieces[place] = _NAME.sub(name, linked)
    return "".join(pieces)


def reference(name: str) -> str:
    """Role that links a public name to its reference; empty where it has none."""
    home = sm.plot if name.startswith("plot.") else sm
    if name.removeprefix("plot.") not in home.__all__ or name in ("plot", "__version__"):
        return ""
    full = f"{name}.{name}" if name in PACKAGES else name
    return f"{{py:obj}}`sm.{name} <scalemodel.{full}>`"


def section(heading: str) -> str:
    """A section of the README with its heading and its links."""
    return f"## {heading}\n{relinked(readme()[heading], 'README.md')}"


def page_of_paper(name: str, title: str = "") -> str:
    """A paper that is one page, under a title of its own or the page's."""
    text = relinked(paper(name), name)
    return re.sub(r"\A# .*$", f"# {title}", text, flags=re.MULTILINE) if title else text


def notebook(path: Path) -> str:
    """A notebook with its stored outputs, linked; progress bars that need a server are left out."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content["metadata"].pop("widgets", None)
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = relinked("".join(cell["source"]), f"notebooks/{path.name}", "../")
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
    return json.dumps(content)


# ------------------------------------------------------------------------------------- reference
def questions() -> dict[str, list[str]]:
    """Public names by the question that they answer, as the help of the package groups them."""
    found: dict[str, list[str]] = {}
    place: list[str] = []
    for line in (inspect.getdoc(sm) or "").splitlines():
        if line.endswith("?") and not line.startswith(" "):
            place = found.setdefault(line, [])
        elif line.startswith("    ") and not line.lstrip().startswith(">>>"):
            place += [name for name in re.findall(r"`(\w+)`", line) if name in sm.__all__]
        elif line:
            place = []
    return found


def grouped() -> dict[str, list[str]]:
    """All public names by question: a class goes where functions of its module go."""
    groups = questions()
    known = {name for names in groups.values() for name in names}
    parts = groups.setdefault(PARTS, [])
    for name in sm.__all__:
        if name in known or name in ("plot", "__version__"):
            continue
        module = sm._MODULES[name]
        best = max(
            (question for question in groups if question != PARTS),
            key=lambda question: sum(sm._MODULES[other] == module for other in groups[question]),
        )
        alike = any(sm._MODULES[other] == module for other in groups[best])
        (groups[best] if alike and inspect.isclass(getattr(sm, name)) else parts).append(name)
    parts.sort(key=lambda name: inspect.isclass(getattr(sm, name)))  # verbs first
    return groups


def verbs() -> dict[str, Any]:
    """The public functions by name, plots included: what a user calls, classes apart."""
    found = {name: getattr(sm, name) for name in sm.__all__}
    found.update({f"plot.{name}": getattr(sm.plot, name) for name in sm.plot.__all__})
    return {
        n: thing for n, thing in found.items() if callable(thing) and not inspect.isclass(thing)
    }


def without_example(verbs: Mapping[str, Any]) -> list[str]:
    """Names of those whose docstring shows no call."""
    return [name for name, verb in verbs.items() if ">>>" not in (inspect.getdoc(verb) or "")]


def _entry(name: str) -> str:
    thing = getattr(sm, name)
    if inspect.isclass(thing):
        return f".. autoclass:: scalemodel.{name}\n"
    if name not in PACKAGES:
        return f".. autofunction:: scalemodel.{name}\n"
    lines = [f".. currentmodule:: scalemodel.{name}\n\n.. autofunction:: {name}\n"]
    for other in thing.__all__:
        if other != name and callable(getattr(thing, other)):
            kind = "class" if inspect.isclass(getattr(thing, other)) else "function"
            lines.append(f".. auto{kind}:: {other}\n")
    return "\n".join(lines)


def reference_pages() -> dict[str, str]:
    """Pages of the reference, as reStructuredText: one per question, and one of plots."""
    pages = {}
    for question, names in grouped().items():
        body = "\n".join(map(_entry, names))
        page = "parts" if question == PARTS else names[0]
        pages[f"reference/{page}"] = f"{question}\n{'=' * len(question)}\n\n{body}"
    drawn = "\n".join(
        (
            f".. image:: ../gallery/{name}.png\n   :width: 480\n   :alt: {name}\n\n"
            if draws(name)
            else ""
        )
        + f".. autofunction:: scalemodel.plot.{name}\n"
        for name in sm.plot.__all__
    )
    pages["reference/plots"] = f"Plots\n=====\n\n{drawn}"
    return pages


# --------------------------------------------------------------------------------------- gallery
def draws(name: str) -> bool:
    """Whether a name of `sm.plot` is a plot, not a table or a helper."""
    return "ax" in inspect.signature(getattr(sm.plot, name)).parameters


def draw_gallery(folder: Path) -> None:
    """Draw every plot as the example of its docstring does, one picture each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    shown, sys.displayhook = sys.displayhook, lambda value: None
    try:
        for name in filter(draws, sm.plot.__all__):
            function = getattr(sm.plot, name)
            names = dict(vars(sys.modules[function.__module__]))
            for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
                exec(compile(example.source, name, "single"), names)
            figure = plt.figure(plt.get_fignums()[-1])
            figure.savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight")
            plt.close("all")
    finally:
        sys.displayhook = shown


def gallery() -> str:
    """Every plot, with its picture and what it shows."""
    cards = []
    for name in filter(draws, sm.plot.__all__):
        first = (inspect.getdoc(getattr(sm.plot, name)) or "").split("\n\n")[0]
        cards.append(
            f":::{{grid-item-card}} {{py:obj}}`{name} <scalemodel.plot.{name}>`\n"
            f":img-bottom: gallery/{name}.png\n:img-alt: {name}\n\n"
            f"{' '.join(first.split())}\n:::\n"
        )
    return (
        "# Gallery\n\nEach picture is drawn by the example of its function, shown in the "
        "[reference](reference/plots.rst).\n\n"
        "::::{grid} 1 2 2 3\n:gutter: 3\n:class-container: gallery\n\n"
        + "\n".join(cards) + "::::\n"
    )  # fmt: skip


# -------------------------------------------------------------------------------------- glossary
def glossary() -> str:
    """The words of the house, and what else people call them."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", readme()["Glossary"], re.MULTILINE)[1:]
    rows = [row for row in rows if set(row[0]) - set("-: ")]
    terms = "\n".join(f"{term}\n: {meaning}\n" for term, meaning in rows)
    return (
        f"# Glossary\n\n{terms}\n## Other spellings\n\nChoices and arguments are understood as "
        "other tools spell them, in any case and with any separators; what they mean here:\n\n"
        + _table(("value", "also spelled"), _turned(SPELLINGS))
        + "\n"
        + _table(("argument or column", "also called"), _turned(SYNONYMS))
    )


def _turned(words: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    meant: dict[str, list[str]] = {}
    for word, names in words.items():
        for name in names:
            meant.setdefault(name, []).append(word)
    return [(f"`{name}`", ", ".join(sorted(other))) for name, other in sorted(meant.items())]


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *map(list, rows)]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines
    )


# ---------------------------------------------------------------------------------------- stacks
def _years(table: Mapping[str, Any]) -> str:
    first, last = table.get("year_min"), table.get("year_max")
    if first and last:
        return f"{first} to {last}"
    return f"from {first}" if first else f"to {last}" if last else ""


def _percent(row: Mapping[str, Any] | None) -> str:
    return f"{100 * row['mape_fraction']:.1f}" if row else ""


def stacks() -> str:
    """Which stack to name: every one of the catalogue, how well it does, and what it states."""
    errors = {
        (row["way"], row["stack"]): row for row in catalog.load("reference", "accuracy")["stacks"]
    }
    text = relinked(readme()["Which stack to name"], "README.md")
    before, after = re.split(r"^\|.*\n(?:\|.*\n)+", text, maxsplit=1, flags=re.MULTILINE)
    rows, details = [], []
    for name in catalog.names("stacks"):
        table = catalog.load("stacks", name)
        runs = sum(table.get("fitted", {}).get("runs", {}).values())
        said = ", ".join([*table.get("frameworks", ()), *table.get("tasks", ())])
        rows.append(
            (
                f"[`{name}`](#{anchor(name)})",
                str(table["title"]),
                said,
                _years(table),
                str(runs or ""),
                *(_percent(errors.get((way, name))) for way in ("fitted", "left_out", "plain")),
            )
        )
        facts = [
            (f"`{key}`", f"`{value_of(cell)}`", str(cell.get("source", "")))
            for part in ("stack", "unstated")
            for key, cell in table.get(part, {}).items()
            if isinstance(cell, Mapping)
        ]
        details.append(
            f"### {name}\n\n{table['title']}.\n\n{_table(('setting', 'value', 'source'), facts)}"
        )
    heads = (
        "`stack=`",
        "what it is",
        "framework or task of a run",
        "years",
        "runs fitted",
        "fitted",
        "left out",
        "plain",
    )
    return (
        f"# Which stack to name\n{before}{_table(heads, rows)}\n"
        "The last three columns are mean errors of the step time in percent over the runs of the "
        "stack: *fitted* with its own constants, *left out* with constants that have not seen the "
        "source, *plain* without a named stack ([Accuracy](accuracy.md)).\n\n"
        f"{after}\n## What each stack states\n\n" + "\n".join(details)
    )


# -------------------------------------------------------------------------------------- coverage
_SIGNS = {
    basis.MEASURED: '<span class="measured" title="{}">●</span>',
    basis.BORROWED: '<span class="borrowed" title="{}">◐</span>',
    basis.SHEET: '<span class="sheet" title="{}">○</span>',
}
_COVERAGE = """# Coverage

What an answer about serving rests on, part by part, as
{{py:obj}}`sm.coverage <scalemodel.coverage>` says it of one model:
<span class="coverage">{} measured on this accelerator with this engine, {} borrowed from another
accelerator, engine or format, {} from a data sheet or a roofline</span>. All of it is in BF16. A
sign tells its part where the pointer rests on it. Models of one kind and accelerators of one row
rest on the same.

"""

#: What each part of an answer rests on, in the order of `sm.coverage`.
Parts = tuple[tuple[str, str], ...]


def kinds() -> dict[str, list[str]]:
    """Models of the catalogue by what decides which kernels an engine runs for them."""
    found: dict[str, list[str]] = {}
    for name in catalog.names("models"):
        shape = sm.model(name).shape
        layers = "Mixtures of experts" if shape.experts else "Dense models"
        latent = " with latent attention" if shape.kv_lora_rank > 0 else ""
        found.setdefault(layers + latent, []).append(name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def parts_of(model: str, accelerator: str, engine: str, of_engine: bool = False) -> Parts:
    """Parts of an answer that the accelerator decides, or else those that the engine decides."""
    table = sm.coverage(model, accelerator, engine)
    rows = zip(table.part, table.basis, table.accelerator, strict=True)
    return tuple((part, found) for part, found, owner in rows if bool(owner) != of_engine)


def _signs(parts: Parts) -> str:
    return "".join(_SIGNS[found].format(f"{html.escape(part)}: {found}") for part, found in parts)


def _matrix(model: str) -> Iterator[str]:
    engines = catalog.names("engines")
    alike: dict[tuple[Parts, ...], list[str]] = {}
    for accelerator in catalog.names("accelerators"):
        row = tuple(parts_of(model, accelerator, engine) for engine in engines)
        alike.setdefault(row, []).append(accelerator)
    heads = "".join(f"<th>{engine.replace('_', '_<wbr>')}</th>" for engine in engines)
    yield f"<thead><tr><th>accelerators</th>{heads}</tr></thead><tbody>"
    for row in sorted(alike, key=lambda row: -str(row).count(f"'{basis.MEASURED}'")):
        cells = "".join(f'<td class="cell">{_signs(parts)}</td>' for parts in row)
        yield f"<tr><td>{', '.join(alike[row])}</td>{cells}</tr>"
    yield "</tbody>"


def coverage() -> str:
    """What answers about serving rest on: kinds of models, accelerators and engines."""
    lines = [_COVERAGE.format(*(sign.format("") for sign in _SIGNS.values()))]
    for kind, models in kinds().items():
        shown = ", ".join(part for part, _ in parts_of(models[0], "h100_sxm_80", "vllm_v1"))
        lines += [f"## {kind}", "", f"Parts, here of vllm_v1 on h100_sxm_80: {shown}.", ""]
        lines += ['<div class="coverage"><table>', *_matrix(models[0]), "</table></div>", ""]
        lines += [f"<details><summary>{len(models)} models</summary>"]
        lines += [f"<p>{', '.join(models)}</p></details>", ""]
    engines = catalog.names("engines")
    of_cpu = [dict(parts_of("llama3_70b", "h100_sxm_80", e, of_engine=True)) for e in engines]
    names = dict.fromkeys(part for parts in of_cpu for part in parts)
    rows = [(name, *(parts.get(name, "") for parts in of_cpu)) for name in names]
    return "\n".join([*lines, "## CPUs\n", _table(("part", *engines), rows)])
