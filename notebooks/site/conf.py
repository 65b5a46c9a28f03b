"""Settings of Sphinx for the site; `build.py` beside it writes the pages."""

from __future__ import annotations

import re

import scalemodel

project = "scalemodel"
release = version = scalemodel.__version__
copyright = "the authors of scalemodel, Apache-2.0"
html_title = f"scalemodel {release}"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False

# The step before the site executes the notebooks; here their stored outputs are shown.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4

napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "returns_style")]  # members say the same as entries
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# What a docstring sets in single backticks: a name of the package, or code.
_QUOTED = re.compile(r"(?<![`\w:])`([^`\n]+)`(?![`_])")
# An error and its cause on one line, which napoleon expects on two.
_RAISED = re.compile(r"^(\s*)(\w*(?:Error|Warning|Interrupt)(?:, \w+)*) : (.*)$")


def _shown(found: re.Match[str]) -> str:
    word = found[1].removeprefix("sm.").removeprefix("scalemodel.")
    if word in scalemodel.__all__ and word not in ("plot", "codesign", "scaling"):
        return f":py:obj:`{word} <scalemodel.{word}>`"
    return f"``{found[1]}``"


def read_docstring(app, what, name, obj, options, lines) -> None:
    """Link the public names that a docstring mentions; give every error a line of its own."""
    written = []
    for line in lines:
        raised = _RAISED.match(line)
        both = [f"{raised[1]}{raised[2]}", f"{raised[1]}    {raised[3]}"] if raised else [line]
        written += [_QUOTED.sub(_shown, part) for part in both]
    lines[:] = written


def setup(app) -> None:
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # before napoleon
