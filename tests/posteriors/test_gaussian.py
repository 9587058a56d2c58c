"""Gaussians against NumPy, scipy and the textbook."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unbayes.posteriors import (
    DensePrecision,
    DiagonalGaussian,
    DiagonalPrecision,
    FullGaussian,
    GaussianNatural,
    gaussian_kl,
)

MEAN = np.array([1.0, -2.0, 0.5])
ROOT = np.array([[0.5, 0.0, 0.0], [0.3, 1.2, 0.0], [-0.7, 0.1, 2.0]])

MAKE = {
    "diagonal": lambda mean=MEAN, root=ROOT: DiagonalGaussian(jnp.asarray(mean), np.abs(np.diag(root))),
    "full": lambda mean=MEAN, root=ROOT: FullGaussian(jnp.asarray(mean), root),
}
FORMS = {"diagonal": DiagonalPrecision, "full": DensePrecision}
over_families = pytest.mark.parametrize("family", MAKE)


def moments(gaussian):
    return np.asarray(gaussian.mean), np.asarray(gaussian.covariance)


def textbook_kl(p, q):
    (m, S), (n, T) = moments(p), moments(q)
    _, log_det_p = np.linalg.slogdet(S)
    _, log_det_q = np.linalg.slogdet(T)
    difference = n - m
    spread = np.trace(np.linalg.solve(T, S)) + difference @ np.linalg.solve(T, difference)
    return 0.5 * (spread - len(m) + log_det_q - log_det_p)


@pytest.mark.long
@over_families
def test_density_and_entropy_are_those_of_scipy(family, dtype):
    gaussian = MAKE[family](MEAN.astype(dtype), ROOT.astype(dtype))
    reference = stats.multivariate_normal(*(np.float64(moment) for moment in moments(gaussian)))
    theta = np.random.default_rng(0).normal(size=(4, 3))
    tolerance = 100 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(gaussian.log_prob(theta), reference.logpdf(theta), rtol=tolerance)
    np.testing.assert_allclose(gaussian.entropy(), reference.entropy(), rtol=tolerance)


@over_families
def test_moments_and_natural_parameters(family):
    gaussian = MAKE[family]()
    covariance = ROOT @ ROOT.T if family == "full" else np.diag(np.diag(ROOT) ** 2)
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(gaussian.covariance, covariance, rtol=1e-12)
    np.testing.assert_allclose(gaussian.variance, np.diag(covariance), rtol=1e-12)
    np.testing.assert_allclose(gaussian.natural.linear, precision @ MEAN, rtol=1e-10)
    assert isinstance(gaussian.natural.precision, FORMS[family])
    np.testing.assert_allclose(gaussian.natural.precision.matrix, precision, rtol=0, atol=1e-10)
    np.testing.assert_allclose(gaussian.to_full().covariance, covariance, rtol=1e-12)


@over_families
def test_colour_and_whiten_are_inverses(family):
    gaussian, noise = MAKE[family](), jnp.array([0.3, -1.0, 2.0])
    np.testing.assert_allclose(gaussian.whiten(gaussian.colour(noise)), noise, rtol=1e-12)
    np.testing.assert_allclose(gaussian.colour(jnp.zeros(3)), MEAN, rtol=1e-12)


def test_from_covariance_and_signs_of_columns():
    plain = MAKE["full"]()
    flipped = FullGaussian(MEAN, ROOT * np.array([1.0, -1.0, -1.0]))
    from_covariance = FullGaussian.from_covariance(MEAN, ROOT @ ROOT.T)
    theta = np.random.default_rng(1).normal(size=(5, 3))
    for other in (flipped, from_covariance, FullGaussian(MEAN, ROOT + np.triu(np.ones((3, 3)), 1))):
        np.testing.assert_allclose(other.log_prob(theta), plain.log_prob(theta), rtol=1e-12)
        np.testing.assert_allclose(other.natural.precision.matrix, plain.natural.precision.matrix, rtol=1e-10)
        assert float(other.entropy()) == pytest.approx(float(plain.entropy()))
        assert float(gaussian_kl(other, plain)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p_family", MAKE)
@pytest.mark.parametrize("q_family", MAKE)
def test_kl_of_all_pairs(p_family, q_family):
    p = MAKE[p_family]()
    q = MAKE[q_family](MEAN + 0.7, ROOT.T @ ROOT)
    assert float(gaussian_kl(p, q)) == pytest.approx(textbook_kl(p, q), rel=1e-10)
    assert float(gaussian_kl(p, p)) == pytest.approx(0, abs=1e-12)


entries = st.floats(-2, 2)
scales = st.floats(0.1, 3)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(entries, entries), min_size=3, max_size=3),
    st.lists(st.tuples(scales, scales), min_size=3, max_size=3),
    st.sampled_from(["diagonal", "full"]),
    st.sampled_from(["diagonal", "full"]),
)
def test_kl_is_never_negative(means, diagonals, p_family, q_family):
    (m, n), (s, t) = np.array(means).T, np.array(diagonals).T
    p, q = MAKE[p_family](m, np.diag(s) + np.tril(ROOT, -1)), MAKE[q_family](n, np.diag(t))
    kl = float(gaussian_kl(p, q))
    assert kl >= -1e-12
    assert kl == pytest.approx(textbook_kl(p, q), rel=1e-9, abs=1e-9)


@over_families
def test_push_is_the_law_of_a_coloured_draw(family):
    outer, inner = MAKE[family](), MAKE[family](MEAN / 2, ROOT.T @ ROOT)
    pushed, root = outer.push(inner), np.linalg.cholesky(outer.covariance)
    np.testing.assert_allclose(pushed.mean, root @ np.asarray(inner.mean) + MEAN, rtol=1e-10)
    np.testing.assert_allclose(pushed.covariance, root @ np.asarray(inner.covariance) @ root.T, atol=1e-10)


@over_families
def test_shares_of_precision(family):
    gaussian = MAKE[family]()
    np.testing.assert_allclose(gaussian.shares(0.3 * gaussian.natural.precision), 0.3)
    part = DiagonalPrecision(jnp.array([0.5, 0.0, -0.1]))
    eigenvalues = np.linalg.eigvals(np.asarray(gaussian.covariance @ part.matrix)).real
    for same in (part, DensePrecision(part.matrix)):
        np.testing.assert_allclose(np.sort(gaussian.shares(same)), np.sort(eigenvalues), atol=1e-12)


@over_families
def test_site_of_a_gaussian_factor_is_its_natural_parameters(family):
    """Bonnet and Price are exact for log g(θ) = bᵀθ − ½ θᵀAθ."""
    gaussian = MAKE[family]()
    linear, precision = jnp.array([0.4, -1.0, 2.0]), jnp.asarray(ROOT @ ROOT.T)
    site = gaussian.site(linear - precision @ gaussian.mean, DensePrecision(precision))
    assert isinstance(site.precision, FORMS[family])
    if family == "full":
        np.testing.assert_allclose(site.linear, linear, atol=1e-12)
        np.testing.assert_allclose(site.precision.matrix, precision)
    else:
        off_diagonal = precision - jnp.diag(jnp.diag(precision))
        np.testing.assert_allclose(site.linear, linear - off_diagonal @ gaussian.mean, atol=1e-12)
        np.testing.assert_allclose(site.precision.diagonal, jnp.diag(precision))
    given_diagonal = gaussian.site(jnp.zeros(3), DiagonalPrecision(jnp.diag(precision)))
    assert isinstance(given_diagonal.precision, FORMS[family])
    np.testing.assert_allclose(given_diagonal.precision.matrix, jnp.diag(jnp.diag(precision)))


@over_families
@pytest.mark.parametrize("outputs", [1, 3])
def test_output_covariance_and_gram(family, outputs):
    rng = np.random.default_rng(2)
    size = 2 * outputs
    root = np.tril(rng.normal(size=(size, size))) + 2 * np.eye(size)
    gaussian = MAKE[family](rng.normal(size=size), root)
    design, weights = rng.normal(size=(4, 2)), rng.normal(size=(4, outputs, outputs))
    weights = weights + weights.swapaxes(1, 2)
    covariances = np.asarray(gaussian.output_covariance(jnp.asarray(design), outputs))
    for row, covariance in zip(design, covariances, strict=True):
        to_outputs = np.kron(np.eye(outputs), row)
        expected = to_outputs @ np.asarray(gaussian.covariance) @ to_outputs.T
        np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-10)
    expected = sum(np.kron(w, np.outer(a, a)) for w, a in zip(weights, design, strict=True))
    gram = gaussian.gram(jnp.asarray(design), jnp.asarray(weights))
    assert isinstance(gram, FORMS[family])
    kept = expected if family == "full" else np.diag(np.diag(expected))
    np.testing.assert_allclose(gram.matrix, kept, atol=1e-12)


@over_families
def test_precision_that_is_not_positive_gives_nan(family):
    diagonal = DiagonalPrecision(jnp.array([1.0, -1.0]))
    for precision in (diagonal, DensePrecision(diagonal.matrix)):
        gaussian = type(MAKE[family]()).from_natural(GaussianNatural(jnp.ones(2), precision))
        assert bool(jnp.isnan(gaussian.log_prob(jnp.zeros(2))))


@pytest.mark.parametrize("cls", [DiagonalGaussian, FullGaussian])
def test_standard(cls, dtype):
    gaussian = cls.standard(3)
    assert gaussian.dtype == dtype
    np.testing.assert_array_equal(gaussian.covariance, np.eye(3))
    assert cls.standard(3, jnp.float32).dtype == jnp.float32


@over_families
def test_integers_become_floats(family, dtype):
    gaussian = MAKE[family]([0, 1], np.diag([0.5, 2.0]))
    assert gaussian.dtype == gaussian.log_prob(jnp.zeros(2)).dtype == dtype
    np.testing.assert_allclose(gaussian.variance, [0.25, 4.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalGaussian(jnp.zeros(3), 2.0), r"scale must have shape \(3,\), got \(\)"),
        (
            lambda: DiagonalGaussian(jnp.zeros((3, 2)), jnp.ones(2)),
            r"mean must have shape \(2,\), got \(3, 2\)",
        ),
        (lambda: FullGaussian(jnp.zeros(3), jnp.ones(3)), r"scale_tril must have shape \(3, 3\)"),
        (
            lambda: gaussian_kl(MAKE["full"](), DiagonalGaussian.standard(1)),
            "p and q must have the same length",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
