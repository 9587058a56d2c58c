"""Likelihoods and predictive distributions against scipy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, gammaln, log_expit, log_ndtr, log_softmax, ndtr

from unbayes.models import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    ClassPredictive,
    CountPredictive,
    GaussianLikelihood,
    LinearModel,
    LogNormalCountPredictive,
    NormalPredictive,
    PoissonLikelihood,
    ProbitLikelihood,
    SoftplusPoissonLikelihood,
    StudentTLikelihood,
    WeightedLikelihood,
    linear_regression,
)

# Likelihood of a scalar f, its log-probability by scipy, and targets.
SCALAR = {
    "gaussian": (GaussianLikelihood(0.7), lambda f, y: stats.norm.logpdf(y, f, 0.7), [-1.0, 2.5]),
    "bernoulli": (BernoulliLikelihood(), lambda f, y: log_expit(f if y else -f), [0.0, 1.0]),
    "probit": (ProbitLikelihood(), lambda f, y: log_ndtr(f if y else -f), [0.0, 1.0]),
    "poisson": (PoissonLikelihood(), lambda f, y: stats.poisson.logpmf(y, np.exp(f)), [0.0, 7.0]),
    "softplus poisson": (
        SoftplusPoissonLikelihood(),
        lambda f, y: stats.poisson.logpmf(y, np.logaddexp(0, f)),
        [0.0, 7.0],
    ),
    "student": (StudentTLikelihood(0.7, 4.0), lambda f, y: stats.t.logpdf(y, 4, f, 0.7), [-1.0, 2.5]),
}
over_scalar = pytest.mark.parametrize(("likelihood", "reference", "targets"), SCALAR.values(), ids=SCALAR)


def expectation(function, mean, variance):
    """Of a function of f ~ N(mean, variance), by adaptive quadrature."""
    scale = variance**0.5
    return integrate.quad(
        lambda f: stats.norm.pdf(f, mean, scale) * function(f),
        mean - 12 * scale,
        mean + 12 * scale,
        epsabs=1e-13,
        epsrel=1e-12,
        limit=500,
    )[0]


@over_scalar
def test_log_prob_is_that_of_scipy(likelihood, reference, targets):
    for y in targets:
        for f in (-30.0, -1.3, 0.0, 2.0):
            own = float(likelihood.log_prob(jnp.asarray(f), jnp.asarray(y)))
            assert own == pytest.approx(reference(f, y), rel=1e-12, abs=1e-13)


def test_bernoulli_derivatives_keep_their_digits(dtype):
    """σ(−f) and −σ(f) σ(−f), on both sides, at the kink of the formula and far out."""
    log_prob = BernoulliLikelihood().log_prob
    f = np.array([-80.0, -30.0, -1.0, 0.0, 1e-3, 2.0, 40.0, 80.0])
    at = jnp.asarray(f, dtype)
    first = jax.vmap(jax.grad(log_prob), (0, None))(at, jnp.ones((), dtype))
    second = jax.vmap(jax.grad(jax.grad(log_prob)), (0, None))(at, jnp.ones((), dtype))
    rounding = 8 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(first, expit(-f), rtol=rounding)
    np.testing.assert_allclose(second, -expit(f) * expit(-f), rtol=rounding, atol=rounding)


def test_categorical_log_prob_is_that_of_scipy():
    f = np.array([-1.0, 700.0, 2.0])
    for y in range(3):
        own = CategoricalLikelihood(3).log_prob(jnp.asarray(f), jnp.asarray(y))
        assert float(own) == pytest.approx(log_softmax(f)[y], rel=1e-12)


@eqx.filter_jit
def expected_log_prob(likelihood, mean, variance, y):
    return likelihood.expected_log_prob(mean, variance, y)


@over_scalar
@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.04), (-2.0, 1.0), (1.0, 4.0)])
def test_expected_log_prob_is_the_integral(likelihood, reference, targets, mean, variance):
    for y in targets:
        own = expected_log_prob(likelihood, jnp.asarray(mean), jnp.asarray(variance), jnp.asarray(y))
        expected = expectation(lambda f, y=y: reference(f, y), mean, variance)
        assert float(own) == pytest.approx(expected, rel=1e-7)


@over_scalar
def test_no_variance_leaves_log_prob_and_a_finite_gradient(likelihood, reference, targets):
    mean, y = jnp.asarray(0.4), jnp.asarray(targets[1])
    value, slopes = jax.jit(jax.value_and_grad(likelihood.expected_log_prob, (0, 1)))(mean, 0.0, y)
    assert float(value) == pytest.approx(reference(0.4, targets[1]), rel=1e-9)
    assert np.isfinite(slopes).all()


MEANS, VARIANCES = np.array([-1.0, 0.5, 2.0]), np.array([0.01, 1.0, 3.0])


def test_gaussian_predictive_is_normal():
    predictive = GaussianLikelihood(0.7).gaussian_predictive(jnp.asarray(MEANS), jnp.asarray(VARIANCES))
    reference = stats.norm(MEANS, np.sqrt(VARIANCES + 0.49))
    y = np.array([0.1, -2.0, 3.0])
    np.testing.assert_allclose(predictive.log_prob(y), reference.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(predictive.decision(), MEANS)


def test_bernoulli_predictive_is_the_integral():
    predict = eqx.filter_jit(BernoulliLikelihood().gaussian_predictive)
    predictive = predict(jnp.asarray(MEANS), jnp.asarray(VARIANCES))
    expected = [expectation(expit, m, v) for m, v in zip(MEANS, VARIANCES, strict=True)]
    np.testing.assert_allclose(predictive.probabilities[:, 1], expected, rtol=1e-6)
    np.testing.assert_allclose(predictive.probabilities.sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(predictive.decision(), np.array(expected) > 0.5)
    np.testing.assert_allclose(predictive.log_prob(np.ones(3)), np.log(expected), rtol=1e-6)


def test_probit_predictive_is_the_integral():
    probit = ProbitLikelihood()
    expected = [expectation(ndtr, m, v) for m, v in zip(MEANS, VARIANCES, strict=True)]
    closed = probit.gaussian_predictive(jnp.asarray(MEANS), jnp.asarray(VARIANCES))
    np.testing.assert_allclose(closed.probabilities[:, 1], expected, rtol=1e-10)
    np.testing.assert_allclose(closed.probabilities.sum(1), 1, rtol=1e-12)
    f, log_weights = np.array([[-40.0, 0.3, 2.0], [1.0, -0.2, 5.0]]), np.log([0.25, 0.75])
    mixed = probit.predictive(jnp.asarray(f), jnp.asarray(log_weights))
    np.testing.assert_allclose(mixed.probabilities[:, 1], [0.25, 0.75] @ ndtr(f), rtol=1e-10)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 12.0])
def test_probit_derivatives_are_the_integrals(scale):
    """From narrow to wide predictors, both labels, on either side of zero."""

    def hazard(f):
        return np.exp(stats.norm.logpdf(f) - log_ndtr(f))

    means, labels = scale * np.array([-2.0, -0.3, 1.0, 2.5]), np.array([1.0, 0.0, 1.0, 0.0])
    probit = ProbitLikelihood()
    arguments = jnp.asarray(means), jnp.full(4, scale**2), jnp.asarray(labels)
    value, slope, curvature = probit.integrals(*arguments)
    for row, (mean, side) in enumerate(zip(means, 2 * labels - 1, strict=True)):
        assert float(value[row]) == pytest.approx(expectation(log_ndtr, side * mean, scale**2), rel=1e-5)
        assert float(slope[row]) == pytest.approx(side * expectation(hazard, side * mean, scale**2), rel=1e-5)
        bend = expectation(lambda f: hazard(f) * (hazard(f) + f), side * mean, scale**2)
        assert float(curvature[row]) == pytest.approx(bend, rel=1e-4)


@pytest.mark.long
def test_probit_curvature_keeps_its_digits_far_out(dtype):
    """−(log Φ)'' → 1 − 1/f²; in float32, the difference of φ/Φ and −f has no digits left at f = −3000."""
    f = jnp.array([-30.0, -3000.0], dtype)
    _, slope, curvature = ProbitLikelihood().integrals(f, jnp.zeros(2, dtype), jnp.ones(2, dtype))
    np.testing.assert_allclose(slope, -f - 1 / f, rtol=1e-5)
    np.testing.assert_allclose(curvature, [1 - 1 / 30**2, 1.0], rtol=1e-5)


def test_probabilities_of_the_wrong_class_never_become_zero(dtype):
    """E[σ(−f)] → exp(−mean + variance / 2), far below the smallest float: KL must stay finite."""
    certain = eqx.filter_jit(BernoulliLikelihood().gaussian_predictive)(
        jnp.array([30.0, -30.0, 120.0, -800.0], dtype), jnp.array([4.0, 4.0, 4.0, 4.0], dtype)
    )
    wrong = certain.log_probabilities.min(1)
    np.testing.assert_allclose(wrong, [-28, -28, -118, -798], rtol=1e-3)
    swapped = ClassPredictive(certain.log_probabilities[::-1, ::-1])
    assert np.isfinite(certain.kl(swapped)).all()


@pytest.mark.long
def test_student_predictive_is_the_integral():
    one, other = (
        StudentTLikelihood(0.7, 4.0).gaussian_predictive(jnp.asarray(MEANS + shift), jnp.asarray(VARIANCES))
        for shift in (0.0, 0.4)
    )
    y = np.array([0.1, -2.0, 3.0])
    f = np.linspace(-9, 9, 401)[:, None]

    def density(y, shift):
        mean, scale = MEANS + shift, np.sqrt(VARIANCES)
        each = stats.t.pdf(y, 4, mean + scale * f, 0.7) * stats.norm.pdf(f)
        return integrate.simpson(each, x=f[:, 0], axis=0)

    np.testing.assert_allclose(one.log_prob(y), np.log(density(y, 0.0)), rtol=1e-6)
    np.testing.assert_allclose(one.decision(), MEANS, atol=1e-12)
    grid = np.linspace(-100, 100, 2001)
    p, q = (np.array([density(each, shift) for each in grid]) for shift in (0.0, 0.4))
    expected = integrate.simpson(p * np.log(p / q), x=grid, axis=0)
    np.testing.assert_allclose(one.kl(other), expected, rtol=1e-5)


@pytest.mark.long
def test_softplus_counts_are_mixtures_of_poisson_distributions():
    predictive = SoftplusPoissonLikelihood().gaussian_predictive(jnp.asarray(MEANS), jnp.asarray(VARIANCES))
    for row, (mean, variance) in enumerate(zip(MEANS, VARIANCES, strict=True)):
        chance = expectation(lambda f: stats.poisson.pmf(2, np.logaddexp(0, f)), mean, variance)
        assert float(predictive.log_prob(jnp.full(3, 2.0))[row]) == pytest.approx(np.log(chance), rel=1e-6)


@pytest.mark.long
def test_softplus_derivatives_keep_their_digits(dtype):
    """Far below zero softplus(f) is eᶠ, and −(log softplus)'' is ½ eᶠ; log p is that of y = 1."""
    f = jnp.array([-40.0, -12.0, -6.999], dtype)
    _, slope, curvature = SoftplusPoissonLikelihood().integrals(f, jnp.zeros(3, dtype), jnp.ones(3, dtype))
    t = np.exp(np.asarray(f, float))
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-8
    np.testing.assert_allclose(slope, 1 - 1.5 * t + 17 / 12 * t**2, rtol=tolerance)
    np.testing.assert_allclose(curvature[:2], (1.5 * t - 17 / 6 * t**2)[:2], rtol=tolerance)


def poisson_probabilities(mean, variance, counts):
    """∫ Poisson(y|exp f) N(f) df on a grid much finer than any Poisson distribution in it is wide."""
    z = np.linspace(-7, 7, 1001)
    f, weights = mean + variance**0.5 * z, stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    return np.exp(np.multiply.outer(counts, f) - np.exp(f) - gammaln(counts + 1)[:, None]) @ weights


def test_poisson_predictive_is_the_integral():
    """With nodes fixed for all counts, the last two KL came out ten times too large."""
    first = {"mean": [1.0, 1.0, 3.0, 5.0], "variance": [0.01, 0.0, 1.0, 0.2]}
    second = {"mean": [1.2, 1.3, 3.1, 5.1], "variance": [0.02, 0.25, 1.0, 0.3]}
    one, other = (
        PoissonLikelihood().gaussian_predictive(*map(jnp.asarray, side.values())) for side in (first, second)
    )
    counts = np.arange(2000.0)
    grid = jnp.broadcast_to(counts[:60], (4, 60))
    own, kl = np.exp(eqx.filter_jit(lambda p: p.log_prob(grid))(one)), one.kl(other)
    for row in range(4):
        p, q = (
            poisson_probabilities(*(side[moment][row] for moment in side), counts) for side in (first, second)
        )
        np.testing.assert_allclose(own[row], p[:60], rtol=1e-6, atol=1e-12)
        assert float(kl[row]) == pytest.approx(direct_kl(p, q), rel=1e-3)
    np.testing.assert_allclose(one.decision(), np.exp(np.add(first["mean"], np.divide(first["variance"], 2))))


def direct_kl(p, q):
    """Sum over what has not underflown."""
    return stats.entropy(p[p > 1e-200], q[p > 1e-200])


def test_kl_of_mixtures_of_counts_is_the_direct_sum():
    weights = np.array([0.2, 0.8])
    rates = np.array([[[1.0, 4.0], [300.0, 500.0]], [[2.0, 3.0], [280.0, 600.0]]])
    p, q = (CountPredictive(jnp.log(side), jnp.log(weights)) for side in rates)
    counts = np.arange(1200)
    kl = p.kl(q)
    for row in range(2):
        tables = [stats.poisson.pmf(counts[:, None], side[row]) @ weights for side in rates]
        assert float(kl[row]) == pytest.approx(direct_kl(*tables), rel=1e-9)
    np.testing.assert_allclose(p.decision(), rates[0] @ weights, rtol=1e-12)
    np.testing.assert_allclose(p.kl(p), 0, atol=1e-12)


def test_kl_between_a_mixture_of_counts_and_a_log_normal_rate():
    mixture = CountPredictive(jnp.log(jnp.array([[3.0]])), jnp.zeros(1))
    smooth = LogNormalCountPredictive(jnp.log(jnp.array([3.0])), jnp.array([0.0]))
    np.testing.assert_allclose(mixture.kl(smooth), 0, atol=1e-9)


def test_kl_of_normals_is_the_integral():
    p, q = NormalPredictive(jnp.array([1.0]), jnp.array([0.5])), NormalPredictive(jnp.zeros(1), jnp.ones(1))
    ratio = expectation(lambda y: stats.norm.logpdf(y, 1.0, 0.5**0.5) - stats.norm.logpdf(y), 1.0, 0.5)
    assert float(p.kl(q)[0]) == pytest.approx(ratio, rel=1e-9)


def test_kl_of_classes_is_the_sum():
    p, q = np.array([[0.2, 0.8, 0.0], [0.1, 0.4, 0.5]]), np.array([[0.5, 0.25, 0.25], [0.3, 0.3, 0.4]])
    with np.errstate(divide="ignore"):
        one, other = (ClassPredictive(jnp.asarray(np.log(table))) for table in (p, q))
    np.testing.assert_allclose(one.kl(other), stats.entropy(p, q, axis=1), rtol=1e-12)
    assert float(other.kl(one)[0]) == np.inf
    np.testing.assert_array_equal(one.decision(), [1, 2])


def test_classes_are_at_least_two():
    with pytest.raises(ValueError, match="classes must be at least 2, got 1"):
        CategoricalLikelihood(1)


@pytest.mark.long
def test_weights_multiply_everything_but_predictions():
    plain, weighted = BernoulliLikelihood(), WeightedLikelihood(BernoulliLikelihood())
    mean, variance = jnp.array([-1.0, 0.3, 2.0]), jnp.array([0.1, 1.0, 5.0])
    y, weights = jnp.array([0.0, 1.0, 1.0]), jnp.array([0.0, 0.5, 3.0])
    pairs = weighted.encode_targets(np.stack([y, weights], 1), "y", mean.dtype)
    np.testing.assert_array_equal(weighted.outcomes(pairs), y)
    for name in ("integrals", "third_derivatives", "expected_log_probs"):
        expected = getattr(plain, name)(mean, variance, y)
        found = getattr(weighted, name)(mean, variance, pairs)
        for part, expected_part in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(part, weights * expected_part, rtol=1e-12)
    np.testing.assert_array_equal(
        weighted.gaussian_predictive(mean, variance).log_probabilities,
        plain.gaussian_predictive(mean, variance).log_probabilities,
    )
    with pytest.raises(ValueError, match="y must have weights of at least 0, got -1 in row 1"):
        weighted.encode_targets([[0.0, 1.0], [1.0, -1.0]], "y", mean.dtype)
    with pytest.raises(ValueError, match=r"y must hold labels 0 to 1, got 2 in row 0"):
        weighted.encode_targets([[2.0, 1.0]], "y", mean.dtype)


def test_predictive_densities_of_weighted_records_are_those_of_their_targets():
    inputs, y = np.array([[0.5], [-1.0]]), np.array([0.2, 0.4])
    plain = linear_regression(1, noise_scale=0.5)
    weighted = LinearModel(plain.features, WeightedLikelihood(plain.likelihood), plain.prior)
    records = inputs, np.column_stack([y, [2.0, 0.0]])
    posterior = plain.prior.to_full()
    np.testing.assert_allclose(
        weighted.log_predictive(posterior, records), plain.log_predictive(posterior, (inputs, y)), rtol=1e-12
    )
