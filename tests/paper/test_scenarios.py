"""The scenarios of `make trust`, and the copies of a few that the product's tests have."""

import jax
import numpy as np
import pytest

import moon
import scenarios
import unbayes as ub
from unbayes_paper.moon import moon as paper_moon
from unbayes_paper.scenarios import scenarios as paper_scenarios


def _assert_same(copy, original):
    for part in ("full", "erased", "remaining"):
        jax.tree.map(np.testing.assert_array_equal, getattr(copy, part), getattr(original, part))
    assert str(copy.model) == str(original.model)


@pytest.mark.parametrize("scenario", moon.SCENARIOS)
def test_the_tests_have_the_papers_moon_data(scenario):
    _assert_same(moon.moon(scenario, 1), paper_moon(scenario, 1))


def test_the_tests_have_scenarios_of_make_trust():
    originals = {s.name: s.problem for s in paper_scenarios() if s.family is ub.FullGaussian}
    for name, copy in scenarios.scenarios().items():
        _assert_same(copy, originals[name])


def test_there_are_scenarios_of_many_kinds():
    assert len(list(paper_scenarios())) >= 100
