"""The page of public names."""

from __future__ import annotations

import inspect

import pytest

import rl_otel
from tests import process


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Lazy loading answers a wrong name as any module does."""
    with pytest.raises(AttributeError, match="no attribute 'stepp'"):
        _ = rl_otel.stepp


def test_the_list_is_sorted_and_complete() -> None:
    """`__all__` is the page of the API: in order, each name once, and what `dir()` shows."""
    assert list(rl_otel.__all__) == sorted(set(rl_otel.__all__))
    assert set(rl_otel.__all__) <= set(dir(rl_otel))


@pytest.mark.parametrize("name", [name for name in rl_otel.__all__ if not name.startswith("__")])
def test_each_name_loads_and_is_documented(name: str) -> None:
    """A public name can be had, and says in a sentence what it is for."""
    value = getattr(rl_otel, name)
    if not inspect.ismodule(value):
        assert getattr(value, "__module__", "").startswith("rl_otel")
    assert (inspect.getdoc(value) or "").split("\n")[0].rstrip().endswith(".")


def test_each_part_loads_first_in_a_process() -> None:
    """Whatever a program asks for first, it works: no name relies on another one being loaded."""
    one_of_each = {getattr(getattr(rl_otel, name), "__module__", ""): name for name in rl_otel.__all__}
    script = """
        import os, sys
        for name in sys.argv[1:]:
            if os.fork() == 0:
                exec(f"from rl_otel import {name}")
                os._exit(0)
            assert os.wait()[1] == 0, name
        assert "rl_otel" not in sys.modules
    """
    process.run(script, *one_of_each.values())


def test_the_version_is_a_text() -> None:
    """`rl_otel.__version__` tells which release runs."""
    assert isinstance(rl_otel.__version__, str)
