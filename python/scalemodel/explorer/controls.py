"""Sliders and buttons of an explorer, made of ipywidgets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.explain.explanation import safe
from scalemodel.explorer.settings import MACHINE, STRATEGY, TASK, Explored, Setting

_PAGE = "explored.html"


def _widgets() -> Any:
    try:
        return importlib.import_module("ipywidgets")
    except ImportError:
        raise ScaleModelError(
            'pip install "scalemodel[explore]"  (needed for sliders in a notebook)',
            code="missing_extra",
        ) from None


def _meanings() -> dict[str, str]:
    rows = (*_core.Strategy.fields(), *_core.Task.fields())
    return {str(row["name"]): str(row["meaning"]) for row in rows}


class Controls:
    """Widgets that turn an explorer and show its answer.

    Attributes
    ----------
    box : ipywidgets.Box
        All of them.
    inputs : dict
        Widget of each setting.
    buttons : dict
        ``pin``, ``search``, ``help``, ``page``.
    answer, note : ipywidgets.HTML
        The answer, and what a button said.
    """

    def __init__(self, explorer: Explored) -> None:
        self.explorer = explorer
        self._widgets = _widgets()
        self._quiet = False
        self.answer = self._widgets.HTML(value=explorer.html())
        self.note = self._widgets.HTML()
        meanings = _meanings()
        self.inputs = {
            name: self._input(name, setting, meanings.get(name, ""))
            for name, setting in explorer.settings.items()
        }
        actions: dict[str, tuple[str, str, Callable[[], str]]] = {
            "pin": ("Pin", "compare what follows with this answer", self._pin),
            "search": ("Fastest", "search the fastest strategy", self._search),
            "help": ("What helps?", "what limits it and what would help", self._help),
            "page": ("Page", f"write {_PAGE}", self._page),
        }
        self.buttons = {name: self._button(*action) for name, action in actions.items()}
        self.box = self._box()
        explorer.listen(self._show)

    def _input(self, name: str, setting: Setting, meaning: str) -> Any:
        own = self.explorer.values[name]
        about = {
            "description": name.removeprefix("accelerator."),
            "tooltip": meaning or f"how many times the machine's {name}",
            "style": {"description_width": "11em"},
            "layout": {"width": "26em"},
        }
        if all(isinstance(value, bool) for value in setting.values):
            made = self._widgets.Checkbox(value=own, indent=True, **about)
        elif isinstance(own, str):
            made = self._widgets.Dropdown(options=setting.values, value=own, **about)
        else:
            options = [(f"× {v:g}" if setting.scales else f"{v:,}", v) for v in setting.values]
            made = self._widgets.SelectionSlider(options=options, value=own, **about)

        def turned(change: dict[str, Any]) -> None:
            if not self._quiet:
                self._try(lambda: self._turn(name, change["new"]))

        made.observe(turned, names="value")
        return made

    def _button(self, text: str, meaning: str, action: Callable[[], str]) -> Any:
        made = self._widgets.Button(description=text, tooltip=meaning, layout={"width": "auto"})

        def pressed(_: object) -> None:
            self.note.value = f"<pre>{safe(text)}…</pre>"  # a search may take seconds
            self._try(action)

        made.on_click(pressed)
        return made

    def _box(self) -> Any:
        widgets, groups = self._widgets, (STRATEGY, TASK, MACHINE)
        listed = {
            group: [
                self.inputs[name]
                for name, setting in self.explorer.settings.items()
                if setting.group == group
            ]
            for group in groups
        }
        headed = [
            widgets.VBox([widgets.HTML(f"<b>{group.capitalize()}</b>"), *listed[group]])
            for group in groups
        ]
        left = widgets.VBox([*headed, widgets.HBox(list(self.buttons.values()))])
        right = widgets.VBox([self.answer, self.note], layout={"flex": "1 1 30em"})
        return widgets.HBox([left, right], layout={"flex_flow": "row wrap"})

    # ---------------------------------------------------------------------------------- actions
    def _try(self, action: Callable[[], str]) -> None:
        """Do it; a question that makes no sense is told, and the answer stays."""
        try:
            said = action()
        except ScaleModelError as error:
            said = str(error)
        self.note.value = f"<pre style='white-space:pre-wrap'>{safe(said)}</pre>" if said else ""

    def _show(self) -> None:
        self._quiet = True
        try:
            for name, value in self.explorer.values.items():
                made = self.inputs[name]
                if made.value != value:
                    self._offer(made, name, value)
                    made.value = value
        finally:
            self._quiet = False
        self.answer.value = self.explorer.html()

    def _offer(self, made: Any, name: str, value: Any) -> None:
        """Let a slider take a value that a search or a program found between its own."""
        options = getattr(made, "options", None)
        if options is None:
            return
        labelled = [each if isinstance(each, tuple) else (each, each) for each in options]
        if value in [each for _, each in labelled]:
            return
        scales = self.explorer.settings[name].scales
        text = f"× {value:g}" if scales else value if isinstance(value, str) else f"{value:,}"
        labelled.append((text, value))
        if not isinstance(value, str):
            labelled.sort(key=lambda each: each[1])
        made.options = labelled

    def _turn(self, name: str, value: Any) -> str:
        self.explorer.set(**{name: value})
        return ""

    def _pin(self) -> str:
        self.explorer.pin()
        return ""

    def _search(self) -> str:
        self.explorer.search()
        return ""

    def _help(self) -> str:
        from scalemodel.estimator.diagnosis import diagnose

        return str(diagnose(self.explorer.estimate))

    def _page(self) -> str:
        return f"written to {self.explorer.report().write(_PAGE)}"
