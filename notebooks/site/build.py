"""Build the site: `python notebooks/site/build.py FOLDER` writes FOLDER/html (extra `site`)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parent))
import pages


def sources() -> dict[str, str]:
    """Text of every page by its path below the top of the site."""
    first = pages.relinked(pages.readme()[""], "README.md")
    notebooks = sorted((pages.ROOT / "notebooks").glob("*.ipynb"))
    reference = pages.reference_pages()
    return {
        "index.md": f"{first}\n{contents([p.stem for p in notebooks], list(reference))}",
        "start.md": joined("Start", "start"),
        "limits.md": joined("Limits and speed", "limits"),
        "guide.md": pages.page_of_paper(pages.GUIDE, "The guide"),
        "stacks.md": pages.stacks(),
        "coverage.md": pages.coverage(),
        "accuracy.md": accuracy(),
        "glossary.md": pages.glossary(),
        "gallery.md": pages.gallery(),
        "measurements.md": pages.page_of_paper(pages.MEASUREMENTS),
        "features.md": pages.page_of_paper(pages.FEATURES, "Features"),
        "changelog.md": pages.page_of_paper("CHANGELOG.md"),
        "contributing.md": contributing(),
        **{f"{name}.rst": text for name, text in reference.items()},
        **{f"notebooks/{path.name}": pages.notebook(path) for path in notebooks},
    }


def joined(title: str, page: str) -> str:
    """The README's sections of a page."""
    listed = [heading for heading, where in pages.SECTIONS.items() if where == page]
    listed = [heading for heading in listed if heading in pages.readme()]
    return f"# {title}\n\n" + "\n".join(map(pages.section, listed))


def accuracy() -> str:
    """The paper on accuracy, after the README's table by domain."""
    (table,) = re.findall(r"(?:^\|.*\n)+", pages.readme()["Accuracy"], re.MULTILINE)
    title, rest = pages.page_of_paper(pages.ACCURACY).split("\n", 1)
    return f"{title}\n\n{table}\n{rest}"


def contributing() -> str:
    """How to cite, and how to add things."""
    text = pages.page_of_paper(pages.LAYOUT, "Contributing")
    title, rest = text.split("\n", 1)
    return f"{title}\n\n{pages.section('Citing and contributing')}\n## Layout\n{rest}"


def contents(notebooks: list[str], reference: list[str]) -> str:
    """Hidden lists of all pages, which the navigation shows."""
    parts = {
        "Use": ["start", "guide", "gallery"],
        "Trust": ["accuracy", "coverage", "stacks", "limits", "measurements", "features"],
        "Notebooks": [f"notebooks/{name}" for name in notebooks],
        "Reference": [*reference, "glossary"],
        "Project": ["changelog", "contributing"],
    }
    return "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in parts.items()
    )


def assemble(folder: Path) -> None:
    """Write the sources of the site below a folder."""
    for name, text in sources().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    pages.draw_gallery(folder / "gallery")
    shutil.copytree(pages.ROOT / "notebooks/figures", folder / "notebooks/figures")
    (folder / "_static").mkdir()
    here = Path(__file__).parent
    shutil.copy(here / "site.css", folder / "_static")
    shutil.copy(here / "conf.py", folder)


class Links(HTMLParser):
    """What a page names itself, and what it leads to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.targets: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id" or (key == "name" and tag == "a"):
                self.names.add(value or "")
            elif key in ("href", "src"):
                self.targets.add(value or "")


def broken_links(site: Path) -> Iterator[str]:
    """Links from page to page that lead nowhere; those to other sites are not followed."""
    found = {page.resolve(): Links(page) for page in site.rglob("*.html")}
    for page, links in found.items():
        for target in sorted(links.targets):
            file, _, name = target.partition("#")
            if re.match(r"\w+:|//", target):
                continue
            path = (page.parent / unquote(file.partition("?")[0])).resolve() if file else page
            if not path.exists() or (name and path in found and name not in found[path].names):
                yield f"{page.relative_to(site.resolve())}: {target}"


def main(folder: Path) -> int:
    """Assemble, build and follow all links; warnings are errors, told with all others."""
    for name in ("sources", "doctrees", "html"):
        shutil.rmtree(folder / name, ignore_errors=True)
    assemble(folder / "sources")
    command = ["-W", "--keep-going", "-q", "-d", str(folder / "doctrees")]
    built = [str(folder / "sources"), str(folder / "html")]
    status = subprocess.run([sys.executable, "-m", "sphinx", *command, *built], check=False)
    broken = list(broken_links(folder / "html"))
    print("\n".join([*broken, f"{len(list(folder.glob('html/**/*.html')))} pages"]))
    return status.returncode or bool(broken)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python notebooks/site/build.py FOLDER")
    sys.exit(main(Path(sys.argv[1]).resolve()))
