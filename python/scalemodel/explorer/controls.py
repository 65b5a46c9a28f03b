"""Sliders and buttons of an explorer, made of ipywidgets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.explain.explanation import safe
from scalemodel.explorer.settings import (
    ACCELERATOR,
    MACHINE,
    MODEL,
    QUESTION,
    STACK,
    STRATEGY,
    TASK,
    Explored,
    Setting,
)

_PAGE = "explored.html"
_GROUPS = (QUESTION, STRATEGY, TASK, MACHINE)
_MENUS = {
    MODEL: "of the catalogue",
    ACCELERATOR: "of the catalogue; another one comes in nodes of the usual kind",
    STACK: "the software that runs the step",
}


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
        self._meanings = {**_meanings(), **_MENUS}
        self._made: dict[str, Any] = {}
        self._offered = dict(explorer.settings)
        self.inputs: dict[str, Any] = {}
        actions: dict[str, tuple[str, str, Callable[[], str]]] = {
            "pin": ("Pin", "compare what follows with this answer", self._pin),
            "search": ("Fastest", "search the fastest strategy", self._search),
            "help": ("What helps?", "what limits it and what would help", self._help),
            "page": ("Page", f"write {_PAGE}", self._page),
        }
        self.buttons = {name: self._button(*action) for name, action in actions.items()}
        self._groups = {group: self._widgets.VBox() for group in _GROUPS}
        self._gather()
        self.box = self._box()
        explorer.listen(self._show)

    def _gather(self) -> None:
        """Have a widget for each setting there is, in its group; others wait for their model."""
        settings = self.explorer.settings
        if list(settings) == list(self.inputs):
            return  # every widget that is made or moved is a message to the page
        for name in settings:
            if name not in self._made:
                self._made[name] = self._input(name, settings[name])
        self.inputs = {name: self._made[name] for name in settings}
        for group, shown in self._groups.items():
            head = self._widgets.HTML(f"<b>{group.capitalize()}</b>")
            own = [self.inputs[name] for name in settings if settings[name].group == group]
            shown.children = [head, *own]

    def _input(self, name: str, setting: Setting) -> Any:
        own, meaning = self.explorer.values[name], self._meanings.get(name, "")
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
            options = self._options(setting, own)
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
        widgets = self._widgets
        buttons = widgets.HBox(list(self.buttons.values()))
        left = widgets.VBox([*self._groups.values(), buttons])
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
            self._gather()
            for name, value in self.explorer.values.items():
                made = self.inputs[name]
                self._offer(made, name, value)
                if made.value != value:
                    made.value = value
        finally:
            self._quiet = False
        self.answer.value = self.explorer.html()

    @staticmethod
    def _options(setting: Setting, value: Any) -> list[Any]:
        """What a slider or menu offers, the present value among it even if none chose it."""
        values = list(setting.values)
        if value not in values:
            values.append(value)
        if any(isinstance(each, str) for each in values):
            return values
        texts = [f"× {each:g}" if setting.scales else f"{each:,}" for each in sorted(values)]
        return list(zip(texts, sorted(values), strict=True))

    def _offer(self, made: Any, name: str, value: Any) -> None:
        """Let a widget take what its setting offers now: each model and machine has its own."""
        if not hasattr(made, "options"):
            return
        setting = self.explorer.settings[name]
        known = [each[1] if isinstance(each, tuple) else each for each in made.options]
        if value not in known or self._offered.get(name, setting) != setting:
            made.options = self._options(setting, value)
        self._offered[name] = setting

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
