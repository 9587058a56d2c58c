"""Programs that are compiled quickly, where they take longer to compile than to run."""

import threading

import jax.numpy as jnp
import numpy as np
import pytest

from unbayes._numerics.programs import QUICK, compiled, quickly


@compiled
def doubled(value, name: str):
    """Twice the value."""
    return {name: 2 * value}


def test_both_ways_give_the_same():
    value = jnp.arange(3.0)
    with quickly(True):
        quick = doubled(value, "twice")
    with quickly(False):
        well = doubled(value, "twice")
    np.testing.assert_array_equal(quick["twice"], well["twice"])
    assert doubled.__doc__ == "Twice the value."


@pytest.fixture
def options(monkeypatch):
    """Options of the compiler with which functions are called, in order."""
    seen = []

    def filter_jit(function, compiler_options=None):
        def call(*args):
            seen.append(compiler_options)
            return function(*args)

        return call

    monkeypatch.setattr("unbayes._numerics.programs.eqx.filter_jit", filter_jit)
    return seen


def test_the_context_decides_for_its_own_thread(options):
    function = compiled(lambda: None)
    with quickly(True):
        function()
        other = threading.Thread(target=function)
        other.start()
        other.join()
        with quickly(False):
            function()
        function()
    function()
    assert options == [QUICK, None, None, QUICK, None]
