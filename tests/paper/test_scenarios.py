"""The scenarios of `make trust`, and the copies of a few that the product's tests have."""

import warnings
from collections import Counter

import jax
import numpy as np
import pytest

import moon
import scenarios
import unbayes as ub
from unbayes_paper.moon import moon as paper_moon
from unbayes_paper.scenarios import held_back, held_back_scenarios
from unbayes_paper.scenarios import scenarios as paper_scenarios
from unbayes_paper.scenarios.erasures import leverage

SMALLEST_NUMBER = 250


@pytest.fixture(scope="module")
def all_scenarios():
    return list(paper_scenarios())


@pytest.fixture(scope="module")
def held_back_ones():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "scenarios on .* are left out")
        return list(held_back_scenarios())


def _assert_same(copy, original):
    for part in ("full", "erased", "remaining"):
        jax.tree.map(np.testing.assert_array_equal, getattr(copy, part), getattr(original, part))
    assert str(copy.model) == str(original.model)


def _rows(records):
    """How often each row is there."""
    return Counter(row.tobytes() for row in np.column_stack(records))


@pytest.mark.parametrize("scenario", moon.SCENARIOS)
def test_the_tests_have_the_papers_moon_data(scenario):
    _assert_same(moon.moon(scenario, 1), paper_moon(scenario, 1))


def test_the_tests_have_scenarios_of_make_trust(all_scenarios):
    originals = {s.name: s.problem for s in all_scenarios if s.family is ub.FullGaussian}
    for name, copy in scenarios.scenarios().items():
        _assert_same(copy, originals[name])


def test_there_are_many_scenarios_and_no_two_have_a_name(all_scenarios):
    assert len(all_scenarios) >= SMALLEST_NUMBER
    assert len({(s.name, s.family) for s in all_scenarios}) == len(all_scenarios)


def test_those_held_back_are_on_other_tables(all_scenarios, held_back_ones):
    assert len(held_back_ones) >= 40
    assert all(s.is_held_back for s in held_back_ones)
    assert not any(s.is_held_back for s in all_scenarios)
    tables = {s.name.split(",")[0] for s in held_back_ones}
    assert len(tables) >= 6
    assert not tables & {s.name.split(",")[0] for s in all_scenarios}


def test_tables_of_packages_that_are_missing_are_left_out_with_a_sentence(monkeypatch):
    monkeypatch.setattr(held_back.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="left out") as found:
        names = [name for name, _ in held_back.held_back_tables()]
    assert len(found) == 2
    assert "rings" in names
    assert not {"late flights", "affairs"} & set(names)


def test_problems_are_well_formed(all_scenarios, held_back_ones):
    for name, problem, *_ in all_scenarios + held_back_ones:
        (x, y), (erased_x, erased_y) = problem.full, problem.erased
        assert 0 < len(erased_y) < len(y) == len(x), name
        assert np.isfinite(x).all(), name
        assert _rows(problem.erased) + _rows(problem.remaining) == _rows(problem.full), name
        problem.model.encode((erased_x[:1], erased_y[:1]))


def test_the_banknote_data_are_used_where_they_are_given(all_scenarios):
    x = np.random.default_rng(0).normal(size=(60, 4))
    records = x, (x[:, 0] > 0).astype(int)
    added = {s.name for s in paper_scenarios(records)} - {s.name for s in all_scenarios}
    assert added
    assert all(name.startswith("banknote, ") for name in added)


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("mislabelled", 5),
        ("copies", 4),
        ("planted outliers", 2),
        ("drifting", 4),
        ("tight prior", 4),
        ("loose prior", 4),
        ("wide", 8),
        ("probit", 5),
        ("near-separable", 5),
        ("leverage", 20),
    ],
)
def test_each_kind_is_there(all_scenarios, kind, least):
    assert sum(kind in s.name for s in all_scenarios) >= least


def test_some_are_not_trained_to_convergence(all_scenarios):
    short = [s for s in all_scenarios if s.training is not None]
    assert {s.training.iterations for s in short} == {1, 3}
    assert all("step" in s.name for s in short)


def test_all_copies_are_erased_or_one_of_each_stays(all_scenarios):
    problems = {s.name: s.problem for s in all_scenarios if "copies" in s.name}
    for name, problem in problems.items():
        erased, remaining = _rows(problem.erased), _rows(problem.remaining)
        assert {remaining[row] for row in erased} == {int("some" in name)}, name


def test_leverage_is_the_diagonal_of_the_hat_matrix():
    x = np.random.default_rng(0).normal(size=(50, 3))
    design = np.column_stack([np.ones(50), x])
    # The ridge as rows of data.
    ridged = np.vstack([design, np.eye(4)])
    hat = ridged @ np.linalg.pinv(ridged)
    np.testing.assert_allclose(leverage(x), np.diagonal(hat)[:50], rtol=1e-10)
