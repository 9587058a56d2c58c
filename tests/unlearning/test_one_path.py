"""One path: `unlearn` is summarise, then solve, however the records were split and in whatever order."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest

import unbayes as ub
from moon import moon
from problems import KEY, Problem, linear_gaussian, logistic, split, take
from unbayes.unlearning import methods

for module in pkgutil.iter_modules(methods.__path__, f"{methods.__name__}."):
    importlib.import_module(module.name)

QUICK = {"iterations": 3, "draws": 16}


def poisson() -> Problem:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 2))
    counts = rng.poisson(np.exp(x @ [0.5, -0.4]))
    return split(ub.poisson_regression(2), (x, counts), np.arange(100, 120))


def softmax() -> Problem:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 2))
    y = (x @ rng.normal(size=(2, 3)) + rng.gumbel(size=(90, 3))).argmax(1)
    return split(ub.softmax_regression(2, 3), (x, y), np.arange(70, 90))


# What is erased, and what training remembers.
PROBLEMS: dict[str, tuple[Callable[[], Problem], Any]] = {
    "linear": (linear_gaussian, None),
    "logistic": (logistic, None),
    "logistic, memory": (logistic, 60),
    "logistic, sums": (logistic, "sums"),
    "moon, sums": (lambda: moon("moon"), ("sums", 30)),
    "poisson": (poisson, None),
    "softmax": (softmax, None),
    "moon, cluster": (lambda: moon("moon"), None),
    "moon, class": (lambda: moon("yellow 50"), None),
    "flow": (logistic, None),
}
ADDITIVE = {
    "auto": ub.Auto(),
    "exact": ub.Exact(),
    "natural gradient": ub.NaturalGradient(),
    "bank": ub.BankReverseKL(draws=200, lam=1e-6),
    "transport": ub.Transport(draws=500),
}
DESCENTS = {"eubo": ub.EUBO, "reverse KL": ub.ReverseKL}
PAIRS = [
    ("linear", "exact"),
    ("linear", "natural gradient"),
    ("linear", "bank"),
    ("logistic", "auto"),
    ("logistic", "natural gradient"),
    ("logistic", "bank"),
    ("logistic, memory", "natural gradient"),
    ("logistic, memory", "bank"),
    ("logistic, sums", "natural gradient"),
    ("moon, sums", "natural gradient"),
    ("poisson", "natural gradient"),
    ("softmax", "natural gradient"),
    ("moon, cluster", "natural gradient"),
    ("moon, class", "natural gradient"),
    ("moon, class", "bank"),
    ("flow", "transport"),
]
SLOW = {"transport"}


class Trained(NamedTuple):
    posterior: ub.AbstractPosterior
    memory: ub.Memory | None
    problem: Problem


@functools.cache
def train(name: str) -> Trained:
    make, size = PROBLEMS[name]
    problem = make()
    full = ub.fit(problem.model, problem.full, memory=size, key=KEY)
    posterior = full.posterior
    if name == "flow":
        posterior = ub.AutoregressiveFlow(posterior, key=KEY, layers=1, width=4)
    return Trained(posterior, None if size is None else full.memory, problem)


def concrete(cls):
    found = {cls}.union(*map(concrete, cls.__subclasses__()))
    return {each for each in found if not inspect.isabstract(each) and each.__module__.startswith("unbayes.")}


def test_every_method_has_a_row():
    found = concrete(ub.AbstractMethod)
    assert {cls for cls in found if not cls.keeps_rows} == {type(method) for method in ADDITIVE.values()}
    assert {cls for cls in found if cls.keeps_rows} == set(DESCENTS.values())
    assert {method for _, method in PAIRS} == set(ADDITIVE)
    assert {problem for problem, _ in PAIRS} == set(PROBLEMS)


def parts_of(erased, seed: int, sizes):
    """The records in random order, in parts of these sizes."""
    total = len(jax.tree.leaves(erased)[0])
    rows = np.random.default_rng(seed).permutation(total)
    ends = np.cumsum(sizes)
    assert ends[-1] == total
    return [take(erased, part) for part in np.split(rows, ends[:-1])]


def add(parts, seed: int):
    """Sum in a random order, two at a time."""
    rng, parts = np.random.default_rng(seed), list(parts)
    while len(parts) > 1:
        one = parts.pop(rng.integers(len(parts)))
        other = parts.pop(rng.integers(len(parts)))
        parts.append(one + other)
    return parts[0]


def assert_same(found: ub.Unlearned, expected: ub.Unlearned, tolerance: float):
    """Same posterior to rounding, same measures, same doubts, same verdict, same memory."""
    for own, other in zip(*map(parameters, (found.posterior, expected.posterior)), strict=True):
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)
    pairs = zip(found.trust.measures, expected.trust.measures, strict=True)
    for name, (own, other) in zip(found.trust.measures._fields, pairs, strict=True):
        if isinstance(other, float):
            assert own == pytest.approx(other, rel=100 * tolerance, abs=tolerance), name
        else:
            assert own == other, name
    assert found.doubts == expected.doubts
    assert found.verdict is expected.verdict
    assert found.records == expected.records
    assert (found.memory is None) == (expected.memory is None)
    if found.memory is not None:
        assert (found.memory.records, found.memory.size) == (expected.memory.records, expected.memory.size)
        for own, other in zip(*(map(parameters, (found.memory.sums, expected.memory.sums))), strict=True):
            largest = np.abs(other).max()
            np.testing.assert_allclose(own, other, rtol=0, atol=100 * tolerance * max(largest, 1))


def parameters(posterior):
    return jax.tree.leaves(eqx.filter(posterior, eqx.is_array))


@pytest.mark.parametrize(
    ("problem", "method"),
    [pytest.param(*pair, marks=[pytest.mark.slow] if pair[1] in SLOW else []) for pair in PAIRS],
)
def test_unlearn_is_summarise_then_solve(problem, method):
    posterior, memory, (model, _, erased, _) = train(problem)
    options = {"memory": memory, "method": ADDITIVE[method], "key": KEY}
    at_once = ub.unlearn(posterior, model, erased, **options)

    whole = ub.summarise(posterior, model, erased, **options)
    solved = ub.solve(posterior, model, whole, **options)
    jax.tree.map(np.testing.assert_array_equal, *map(parameters, (solved.posterior, at_once.posterior)))
    assert solved.trust == at_once.trust
    assert (solved.choice, solved.method) == (at_once.choice, at_once.method)

    # Parts of one size, so that nothing is compiled anew.
    for seed in range(3):
        sizes = [at_once.records // 10] * 10
        parts = [ub.summarise(posterior, model, p, **options) for p in parts_of(erased, seed, sizes)]
        assert_same(ub.solve(posterior, model, add(parts, seed), **options), at_once, 1e-8)


@pytest.mark.parametrize("problem", ["logistic", "logistic, memory", "logistic, sums"])
@pytest.mark.parametrize("sizes", [[1, 19], [3, 1, 9, 7], [1] * 20], ids=str)
def test_sizes_of_the_batches_do_not_matter(problem, sizes):
    posterior, memory, (model, _, erased, _) = train(problem)
    at_once = ub.unlearn(posterior, model, erased, memory=memory, key=KEY)
    options = {"memory": memory, "key": KEY}
    parts = [ub.summarise(posterior, model, p, **options) for p in parts_of(erased, len(sizes), sizes)]
    assert_same(ub.solve(posterior, model, add(parts, len(sizes)), **options), at_once, 1e-8)


@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_descents_take_the_same_path_with_the_rows(name, lam):
    """Their statistics are the rows: batches do not add up, but one batch is summarised and solved for."""
    posterior, _, (model, _, erased, _) = train("logistic")
    method = DESCENTS[name](lam=lam, **QUICK)
    assert method.keeps_rows
    at_once = ub.unlearn(posterior, model, erased, method=method, key=KEY)
    evidence = model.encode(erased)
    weights = np.ones(len(jax.tree.leaves(evidence)[0]))
    value = method.summarise(posterior, model, evidence, weights, memory=None, key=KEY)
    statistics = ub.Statistics(value, None, None, 20, method.origin(posterior, model, None, KEY))
    solution = method.solve(posterior, model, statistics, memory=None, key=KEY)
    jax.tree.map(np.testing.assert_array_equal, *map(parameters, (solution.posterior, at_once.posterior)))
    np.testing.assert_array_equal(solution.trace, at_once.trace)
    measures = at_once.trust.measures._asdict()
    assert solution.measured.items() <= measures.items()
    with pytest.raises(TypeError, match="reads the erased rows in every iteration"):
        ub.summarise(posterior, model, erased, method=method, key=KEY)
