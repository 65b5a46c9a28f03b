"""What Tab and help show of the names that users type most."""

from __future__ import annotations

import inspect
import pydoc

import pytest

import scalemodel as sm


def test_a_strategy_offers_its_knobs_with_their_defaults() -> None:
    parameters = inspect.signature(sm.Strategy).parameters
    plain = sm.Strategy()
    assert list(parameters) == list(plain.to_dict())
    for name, parameter in parameters.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == getattr(plain, name)


def test_the_signature_of_a_strategy_binds_what_the_class_takes() -> None:
    bound = inspect.signature(sm.Strategy).bind(tp=4, sharding="zero3")
    assert sm.Strategy(**bound.arguments) == sm.Strategy(tp=4, sharding="zero3")
    with pytest.raises(TypeError):
        inspect.signature(sm.Strategy).bind(tensor_parallel=4)


def test_help_of_a_strategy_says_what_each_knob_means() -> None:
    text = pydoc.plain(pydoc.render_doc(sm.Strategy))
    for row in type(sm.Strategy()).fields():
        assert f"{row['name']} : " in text
        assert row["meaning"] in text
    assert text.index("Parameters") < text.index("Examples")


def test_dir_of_plot_lists_plots_and_nothing_else() -> None:
    listed = dir(sm.plot)
    assert listed == sorted(sm.plot.__all__)
    assert {"pareto", "breakdown", "save"} <= set(listed)
    assert not any(inspect.ismodule(getattr(sm.plot, name)) for name in listed)


@pytest.mark.parametrize("name", ["scaling", "codesign"])
def test_dir_of_a_verb_lists_its_companions_and_its_arguments_are_known(name: str) -> None:
    verb = getattr(sm, name)
    listed = dir(verb)
    assert listed == sorted(verb.__all__)
    assert name in listed
    assert not {"Any", "ModuleType", "sys"} & set(listed)
    assert list(inspect.signature(verb).parameters)[:3] == ["model", "cluster", "task"]
