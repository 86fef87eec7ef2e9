"""Doctests pass, and all public names are documented."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
import rung

MODULES = [f"rung.{module.name}" for module in pkgutil.iter_modules(rung.__path__) if module.name not in ("_native", "__main__")]


@pytest.mark.parametrize("name", ["rung", *MODULES])
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_public_name_has_a_docstring():
    for name in rung.__all__:
        value = getattr(rung, name)
        assert name.startswith("__") or inspect.getdoc(value), name
        for member, attribute in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and callable(attribute):
                assert inspect.getdoc(attribute), f"{name}.{member}"


def test_every_function_has_an_example():
    functions = [name for name in rung.__all__ if inspect.isfunction(getattr(rung, name))]
    assert len(functions) >= 9
    for name in functions:
        assert ">>>" in (inspect.getdoc(getattr(rung, name)) or ""), name
