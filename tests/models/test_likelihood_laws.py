"""Laws of every likelihood: what its class declares, and its third derivatives."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_ndtr

from constructors import LIKELIHOODS, by_name
from unbayes.models import (
    AbstractLikelihood,
    BernoulliLikelihood,
    GaussianLikelihood,
    NormalPredictive,
    PoissonLikelihood,
    ProbitLikelihood,
    StudentTLikelihood,
)

ROWS = by_name(LIKELIHOODS)
GRID = np.concatenate([np.linspace(-8, 8, 33), [-60.0, -20.0, 20.0, 60.0]])


class StudentLikelihood(AbstractLikelihood):
    """y = f + noise with Student's t-distribution of three degrees of freedom: tails are not concave."""

    outputs: int = eqx.field(static=True, default=1)

    def encode_targets(self, y, name, dtype):
        return jnp.asarray(y, dtype)

    def log_prob(self, f, y):
        return -2 * jnp.log1p((y - f) ** 2 / 3)

    def predictive(self, f, log_weights):
        return NormalPredictive(jnp.exp(log_weights) @ f, jnp.ones(f.shape[1]))


class ClaimsTooMuch(StudentLikelihood):
    """Declares what is not so."""

    is_log_concave: ClassVar[bool] = True
    is_conjugate: ClassVar[bool] = True


over_rows = pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)


@eqx.filter_jit
def smallest_curvatures(likelihood, f, y):
    """Smallest eigenvalue of −∇² log p(y|f) at each f, the way that sites compute it."""
    if likelihood.outputs == 1:
        targets = jnp.broadcast_to(y, (len(f), *y.shape))
        return likelihood.integrals(f, jnp.zeros_like(f), targets).curvature
    one = jnp.ones(1, f.dtype)
    curvature = jax.vmap(lambda f: likelihood.integrals_at(f[:, None], y, one).curvature)(f)
    return jnp.linalg.eigvalsh(curvature)[:, 0]


def values_of_f(likelihood):
    if likelihood.outputs == 1:
        return jnp.asarray(GRID)
    return jnp.asarray(np.random.default_rng(0).choice(GRID, (60, likelihood.outputs)))


def is_concave(likelihood, targets):
    """By the sign of the curvature, and by values half-way between two others."""
    f = values_of_f(likelihood)
    log_prob = jax.jit(jax.vmap(likelihood.log_prob, (0, None)))
    ends = f, f[::-1]
    for y in map(jnp.asarray, targets):
        middle, mean = log_prob(0.5 * sum(ends), y), 0.5 * sum(log_prob(end, y) for end in ends)
        if (middle < mean - 1e-9 * (1 + jnp.abs(mean))).any():
            return False
        if (smallest_curvatures(likelihood, f, y) < -1e-12).any():
            return False
    return True


def is_quadratic(likelihood, targets):
    """Whether the curvature is the same everywhere."""
    f = values_of_f(likelihood)
    curvatures = np.array([smallest_curvatures(likelihood, f, jnp.asarray(y)) for y in targets])
    return np.ptp(curvatures) < 1e-9 * np.abs(curvatures).max()


@over_rows
def test_declared_log_concavity_holds(row):
    likelihood = row.make()
    assert likelihood.is_log_concave == is_concave(likelihood, row.targets)


@over_rows
def test_declared_conjugacy_holds(row):
    likelihood = row.make()
    if likelihood.outputs > 1:
        # One direction of f is flat, and so the smallest eigenvalue always zero; another one bends.
        assert not likelihood.is_conjugate
    else:
        assert likelihood.is_conjugate == is_quadratic(likelihood, row.targets)


def test_nothing_is_declared_unless_said():
    assert not StudentLikelihood.is_log_concave
    assert not StudentLikelihood.is_conjugate


def test_the_laws_find_out_what_is_not_so():
    assert not is_concave(ClaimsTooMuch(), [0.0, 2.0])
    assert not is_quadratic(ClaimsTooMuch(), [0.0, 2.0])


def bernoulli_third(f):
    return expit(f) * expit(-f) * np.tanh(f / 2)


def hazard(f):
    return np.exp(stats.norm.logpdf(f) - log_ndtr(f))


def probit_third(f):
    """Third derivative of log Φ: h (2 h² + 3 f h + f² − 1), as h' = −h (h + f)."""
    h = hazard(f)
    return h * (2 * h**2 + 3 * f * h + f**2 - 1)


# Third derivative in f, by hand.
THIRD = {
    "gaussian": (GaussianLikelihood(0.7), lambda f, y: 0 * f),
    "bernoulli": (BernoulliLikelihood(), lambda f, y: bernoulli_third(f)),
    "probit": (ProbitLikelihood(), lambda f, y: (2 * y - 1) * probit_third((2 * y - 1) * f)),
    "student": (
        StudentLikelihood(),
        lambda f, y: 8 * (y - f) * ((y - f) ** 2 - 9) / (3 + (y - f) ** 2) ** 3,
    ),
    "our student": (
        StudentTLikelihood(1.0, 3.0),
        lambda f, y: 8 * (y - f) * ((y - f) ** 2 - 9) / (3 + (y - f) ** 2) ** 3,
    ),
}


def expectation(function, mean, scale):
    if scale == 0:
        return function(np.array(mean))
    f = np.linspace(mean - 10 * scale, mean + 10 * scale, 100_001)
    return integrate.simpson(function(f) * stats.norm.pdf(f, mean, scale), x=f)


@pytest.mark.parametrize(("likelihood", "third"), THIRD.values(), ids=THIRD)
def test_third_derivatives_are_the_integrals(likelihood, third, dtype):
    """From a certain f to a wide one, both labels in one batch."""
    likelihood = jax.tree.map(lambda leaf: leaf.astype(dtype), likelihood)
    scales = (
        [0.0, 0.1, 1.0]
        if isinstance(likelihood, StudentLikelihood | StudentTLikelihood)
        else [0.0, 0.1, 1.0, 1.7, 1.9, 5.0, 12.0]
    )
    cases = [
        (distance * max(s, 0.5), s, y) for s in scales for distance in (-2, -0.3, 0, 1) for y in (0.0, 1.0)
    ]
    mean, scale, y = np.array(cases).T
    found = eqx.filter_jit(likelihood.third_derivatives)(
        *(jnp.asarray(a, dtype) for a in (mean, scale**2, y))
    )
    assert found.shape == (len(cases),)
    assert found.dtype == dtype
    expected = [expectation(lambda f, y=y: third(f, y), m, s) for m, s, y in cases]
    tolerance = 2e-5 if dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=tolerance)


def test_third_derivatives_of_counts_are_the_negative_rate(dtype):
    mean, variance = jnp.array([-1.0, 0.5, 3.0], dtype), jnp.array([0.0, 0.2, 4.0], dtype)
    found = PoissonLikelihood().third_derivatives(mean, variance, jnp.array([0.0, 2.0, 5.0], dtype))
    np.testing.assert_allclose(found, -np.exp(np.array([-1.0, 0.6, 5.0])), rtol=1e-5)
    assert found.dtype == dtype


@pytest.mark.parametrize("scale", [1.9, 10.0, 100.0])
def test_third_derivatives_of_very_wide_log_odds(scale, dtype):
    """Relative accuracy too, near zero and far out: labels do not matter, and signs follow the mean."""
    mean = scale * np.array([-3.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 3.0])
    arguments = jnp.asarray(mean, dtype), jnp.full(7, scale**2, dtype)
    third = BernoulliLikelihood().third_derivatives
    found = third(*arguments, jnp.ones(7, dtype))
    np.testing.assert_array_equal(found, third(*arguments, jnp.zeros(7, dtype)))
    expected = [expectation(bernoulli_third, m, scale) for m in mean]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-12)


@pytest.mark.parametrize("kind", [BernoulliLikelihood, PoissonLikelihood, GaussianLikelihood])
def test_own_formulas_agree_with_differentiated_curvature(kind):
    """The base class's answer, which the closed forms replace; curvature by finite differences."""
    likelihood = LIKELIHOODS[kind][0].make()
    mean = jnp.array([-2.0, 0.1, 1.0, 4.0, -3.0])
    variance, y = jnp.array([0.0, 0.3, 2.0, 9.0, 25.0]), jnp.array([0.0, 1.0, 0.0, 1.0, 1.0])
    own = likelihood.third_derivatives(mean, variance, y)
    general = AbstractLikelihood.third_derivatives(likelihood, mean, variance, y)
    np.testing.assert_allclose(own, general, rtol=1e-4, atol=1e-10)
    step = 1e-4
    above, below = (likelihood.integrals(mean + side * step, variance, y).curvature for side in (1, -1))
    np.testing.assert_allclose(own, -(above - below) / (2 * step), rtol=1e-4, atol=1e-7)
