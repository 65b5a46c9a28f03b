"""Whatever object a verb is called with: one error of the package, or an answer."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm

VERBS = sorted(
    name
    for name in dir(sm)
    if inspect.isfunction(getattr(sm, name)) or hasattr(getattr(sm, name).__init__, "__wrapped__")
)
#: Verbs that take anything for true, and then work for long.
LONG = {"validate": {"left_out"}}
WRONG: tuple[Any, ...] = (
    *(None, 3, -1, 0, 1e300, float("nan"), True, object()),
    *("nonsense", "", b"x", "\N{GRINNING FACE}\udc80"),
    *([], {}, (), ["a"], {"a": 1}, [None]),
)


class _Listener:
    """The package, with one verb that notes how its own examples call it first."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(sm, name)
        if name != self.verb:
            return found

        def call(*positional: Any, **given: Any) -> Any:
            self.calls.append((positional, given))
            return found(*positional, **given)

        return call


def first_call(verb: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """How the examples of a verb call it; none where they need what is not here."""
    listener = _Listener(verb)
    function = getattr(sm, verb)
    # As in its own module, where examples find what they do not import.
    names = {**vars(sys.modules[function.__module__]), "sm": listener}
    names[verb] = getattr(listener, verb)
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
        if example.source.strip() == "import scalemodel as sm":
            continue
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
            exec(example.source, names)
        if listener.calls:
            positional, given = listener.calls[0]
            return positional, {k: v for k, v in given.items() if k != "executor"}  # it is shut now
    return None


def changed_calls(
    verb: Callable[..., Any], positional: tuple[Any, ...], given: dict[str, Any]
) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """That call with each argument in turn replaced by each wrong object."""
    parameters = inspect.signature(verb).parameters
    names = list(parameters)[: len(positional)]
    others = [
        name
        for name, item in parameters.items()
        if name not in names and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    ]
    calls = []
    for value in WRONG:
        for i, name in enumerate(names):
            calls.append((name, (*positional[:i], value, *positional[i + 1 :]), given))
        for name in others:
            calls.append((name, positional, {**given, name: value}))
    return calls


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # numbers are doubted that may be meant
@pytest.mark.parametrize("name", VERBS)
def test_one_error_whatever_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some texts are names of files to write
    call = first_call(name)
    if call is None:
        pytest.skip("its examples call it with what is made elsewhere")
    verb = getattr(sm, name)
    for argument, positional, given in changed_calls(verb, *call):
        if argument in LONG.get(name, ()):
            continue
        try:
            verb(*positional, **given)
        except sm.ScaleModelError:
            pass
        except Exception as error:
            value = given.get(argument, positional)
            pytest.fail(f"{name}: {argument} of {value!r:.200}: {error!r}")
