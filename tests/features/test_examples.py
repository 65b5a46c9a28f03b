"""Every public name, and every public method of one, is documented with an example that runs.

The examples themselves are run as doctests of their modules.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import scalemodel as sm

FINDER = doctest.DocTestParser()


def documented(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """A public name; of a module the functions and classes that it offers."""
    if not isinstance(thing, ModuleType):
        yield name, thing
        return
    for inner in thing.__all__:
        if inspect.isclass(getattr(thing, inner)) or inspect.isfunction(getattr(thing, inner)):
            yield f"{name}.{inner}", getattr(thing, inner)


def has_example(thing: Any) -> bool:
    return bool(FINDER.get_examples(inspect.getdoc(thing) or ""))


PUBLIC = [
    pair
    for name in sm.__all__
    if name != "__version__"
    for pair in documented(name, getattr(sm, name))
]


@pytest.mark.parametrize("name, thing", PUBLIC, ids=[name for name, _ in PUBLIC])
def test_every_public_name_has_an_example(name: str, thing: Any) -> None:
    assert has_example(thing)


@pytest.mark.parametrize("name", ["Ablation", "ServingLayout", "Strategy"])
def test_examples_of_the_engine_run(name: str) -> None:
    """They belong to no module of Python, where doctest would find them."""
    thing = getattr(sm, name)
    found = FINDER.get_doctest(inspect.getdoc(thing) or "", {name: thing}, name, None, None)
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0


METHODS = [
    (f"{name}.{method}", getattr(thing, method))
    for name, thing in PUBLIC
    if inspect.isclass(thing)
    for method in vars(thing)
    if not method.startswith("_") and callable(getattr(thing, method))
]


@pytest.mark.parametrize("name, method", METHODS, ids=[name for name, _ in METHODS])
def test_every_public_method_says_what_it_does(name: str, method: Any) -> None:
    assert inspect.getdoc(method)
