"""Feature maps and kernels against scikit-learn and the dense formulas of Gaussian processes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as sk

from unbayes.models import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    CentredFeatures,
    FunctionFeatures,
    GaussianLikelihood,
    InducingInputs,
    LinearModel,
    Matern,
    PolynomialFeatures,
    RawFeatures,
    SquaredExponential,
    UnknownNoiseRegression,
    WhitenedInducingInputs,
    sparse_gp,
)
from unbayes.posteriors import DiagonalGaussian, FullGaussian, NormalInverseGamma

RNG = np.random.default_rng(0)
X, U = RNG.normal(size=(5, 2)), RNG.normal(size=(3, 2))
LENGTHSCALES = [0.7, 1.9]
KERNELS = {
    "squared exponential": (SquaredExponential(2.3, LENGTHSCALES), sk.RBF(LENGTHSCALES)),
    "matern 0.5": (Matern(2.3, LENGTHSCALES, 0.5), sk.Matern(LENGTHSCALES, nu=0.5)),
    "matern 1.5": (Matern(2.3, LENGTHSCALES, 1.5), sk.Matern(LENGTHSCALES, nu=1.5)),
    "matern 2.5": (Matern(2.3, LENGTHSCALES), sk.Matern(LENGTHSCALES, nu=2.5)),
}


@pytest.mark.parametrize(("own", "reference"), KERNELS.values(), ids=KERNELS)
def test_kernels_are_those_of_scikit_learn(own, reference):
    np.testing.assert_allclose(own(jnp.asarray(X), jnp.asarray(U)), 2.3 * reference(X, U), rtol=1e-10)
    np.testing.assert_allclose(own(jnp.asarray(X), jnp.asarray(X)), 2.3 * reference(X), rtol=1e-10)


def test_matern_has_three_shapes():
    with pytest.raises(ValueError, match=r"smoothness must be 0.5, 1.5 or 2.5, got 2"):
        Matern(1.0, [1.0], 2)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (RawFeatures(2), np.c_[np.ones(5), X]),
        (RawFeatures(2, bias=False), X),
        (PolynomialFeatures(2, 3), np.c_[np.ones(5), X, X**2, X**3]),
        (PolynomialFeatures(2, 2, bias=False), np.c_[X, X**2]),
    ],
)
def test_columns(features, expected):
    np.testing.assert_allclose(features(jnp.asarray(X)), expected, rtol=1e-12)
    assert features.size == expected.shape[1]
    assert features.variance(jnp.asarray(X)) is None
    assert not features.leaves_variance_open


def dense_conditional(kernel):
    """Mean map and covariance of f(X) given f(U), by the formula for a joint Gaussian."""
    across, within = (np.asarray(kernel(jnp.asarray(U), jnp.asarray(other))) for other in (X, U))
    weights = np.linalg.solve(within, across).T
    return weights, np.asarray(kernel(jnp.asarray(X), jnp.asarray(X))) - weights @ across


@pytest.mark.parametrize("kernel", [own for own, _ in KERNELS.values()], ids=KERNELS)
def test_inducing_inputs_are_the_dense_conditional(kernel):
    weights, covariance = dense_conditional(kernel)
    dtc, svgp = InducingInputs(U, kernel), InducingInputs(U, kernel, conditional_variance=True)
    for features in (dtc, svgp):
        np.testing.assert_allclose(features(jnp.asarray(X)), weights, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(features(jnp.asarray(U)), np.eye(3), atol=1e-9)
        np.testing.assert_allclose(features.prior.covariance, kernel(*[jnp.asarray(U)] * 2), rtol=1e-10)
    assert dtc.variance(jnp.asarray(X)) is None
    np.testing.assert_allclose(svgp.variance(jnp.asarray(X)), np.diag(covariance), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(svgp.variance(jnp.asarray(U)), 0, atol=1e-9)
    assert (np.asarray(svgp.variance(jnp.asarray(U))) >= 0).all()


def test_whitened_inducing_inputs_are_the_same_process():
    process = InducingInputs(U, KERNELS["matern 1.5"][0], conditional_variance=True)
    whitened = WhitenedInducingInputs(process)
    x = jnp.asarray(X)
    np.testing.assert_allclose(whitened(x), process(x) @ process.scale_tril, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(whitened.variance(x), process.variance(x))
    np.testing.assert_array_equal(whitened.prior.covariance, np.eye(3))


def test_centred_features_are_those_of_centred_inputs():
    process = InducingInputs(U, KERNELS["matern 1.5"][0], conditional_variance=True)
    x, centre = jnp.asarray(X), np.linspace(-3, 3, X.shape[1])
    for features in (RawFeatures(X.shape[1]), process):
        centred = CentredFeatures(features, centre)
        np.testing.assert_array_equal(centred(x + centre), features(x + centre - centre))
        assert (centred.size, centred.inputs) == (features.size, features.inputs)
    np.testing.assert_array_equal(
        CentredFeatures(process, centre).variance(x), process.variance(x - jnp.asarray(centre))
    )
    assert CentredFeatures(FunctionFeatures(jnp.tanh, 2, 2), [1.0, 2.0]).holds_functions
    with pytest.raises(ValueError, match=r"centre must have shape \(2\), got \(3,\)"):
        CentredFeatures(RawFeatures(2), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("keeps", [False, True])
def test_variance_is_open_where_it_is_declared(keeps):
    process = InducingInputs(U, KERNELS["matern 1.5"][0], conditional_variance=keeps)
    centred = CentredFeatures(process, U[0])
    for features in (process, WhitenedInducingInputs(process), centred):
        assert features.leaves_variance_open == keeps
        assert (features.variance(jnp.asarray(X)) is not None) == keeps


def test_jitter_is_relative_to_the_variance():
    kernel = SquaredExponential(100.0, LENGTHSCALES)
    plain, jittered = InducingInputs(U, kernel), InducingInputs(U, kernel, jitter=0.1)
    difference = np.asarray(jittered.prior.covariance - plain.prior.covariance)
    np.testing.assert_allclose(difference, 10 * np.eye(3), atol=1e-9)


def test_inducing_inputs_that_coincide_are_refused():
    twice = np.vstack([U, U])
    with pytest.raises(ValueError, match=r"not positive definite in float64 at jitter=0.0; give"):
        InducingInputs(twice, SquaredExponential(1.0, LENGTHSCALES))
    assert InducingInputs(twice, SquaredExponential(1.0, LENGTHSCALES), jitter=1e-6).size == 6
    with pytest.raises(ValueError, match=r"locations must have shape \(m, k\), got \(3,\)"):
        InducingInputs(U[:, 0], SquaredExponential(1.0, 1.0))


def test_variance_left_open_needs_a_model_that_can_use_it():
    features = InducingInputs(U, SquaredExponential(1.0, LENGTHSCALES), conditional_variance=True)
    with pytest.raises(ValueError, match="conditional_variance needs a likelihood with a single output"):
        LinearModel(features, CategoricalLikelihood(2), DiagonalGaussian.standard(6))
    with pytest.raises(ValueError, match="conditional_variance needs a model of known noise"):
        UnknownNoiseRegression(features, NormalInverseGamma(np.zeros(3), np.eye(3), 1.0, 1.0))


def test_sparse_gp_regression_with_all_inputs_is_the_dense_posterior():
    """With U = X nothing is left open, and the conjugate posterior is that of the full process."""
    kernel, noise, y = SquaredExponential(2.3, LENGTHSCALES), 0.3, np.sin(X[:, 0])
    model = sparse_gp(X, kernel, GaussianLikelihood(noise))
    added = eqx.filter_jit(model.sufficient_statistics)(model.encode((X, y)))
    posterior = FullGaussian.from_natural(jax.tree.map(jnp.add, model.conjugate_prior.natural, added))
    K, new = (2.3 * sk.RBF(LENGTHSCALES)(*pair) for pair in ((X,), (U, X)))
    gain = np.linalg.solve(K + noise**2 * np.eye(5), new.T).T
    predictive = model.predictive(posterior, U)
    np.testing.assert_allclose(predictive.mean, gain @ y, rtol=1e-6)
    # DTC leaves out var(f|u), k(x,x) − k(x,X) K⁻¹ k(X,x).
    open_variance = np.diag(2.3 * sk.RBF(LENGTHSCALES)(U) - new @ np.linalg.solve(K, new.T))
    dense = np.diag(2.3 * sk.RBF(LENGTHSCALES)(U) - gain @ new.T)
    np.testing.assert_allclose(predictive.variance, dense - open_variance + noise**2, rtol=1e-6)
    keeps = sparse_gp(X, kernel, GaussianLikelihood(noise), conditional_variance=True)
    np.testing.assert_allclose(keeps.predictive(posterior, U).variance, dense + noise**2, rtol=1e-6)


def test_a_network_as_features(dtype):
    network = eqx.nn.MLP(2, 4, 8, 1, key=jr.key(0))
    model = LinearModel(
        FunctionFeatures(eqx.filter_vmap(network), 2, 4), BernoulliLikelihood(), DiagonalGaussian.standard(5)
    )
    evidence = model.encode((X, [0, 1, 0, 1, 1]))
    hidden = np.maximum(X @ np.float64(network.layers[0].weight).T + np.float64(network.layers[0].bias), 0)
    outputs = hidden @ np.float64(network.layers[1].weight).T + np.float64(network.layers[1].bias)
    np.testing.assert_allclose(evidence.design, np.c_[np.ones(5), outputs], rtol=1e-4, atol=1e-6)
    assert evidence.design.dtype == model.log_likelihood(model.prior.mean, evidence).dtype == dtype


def test_a_function_of_the_wrong_shape_is_refused():
    features = FunctionFeatures(lambda x: x[:, :1], 2, 4)
    with pytest.raises(ValueError, match=r"function must return shape \(5, 4\) .* got \(5, 1\)"):
        features(jnp.asarray(X))
