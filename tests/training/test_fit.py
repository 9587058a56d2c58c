"""Training finds the optimum of the ELBO, and says how close it came."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy.optimize import minimize

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, trained
from unbayes.inference import ascent
from unbayes.inference.objectives import elbo
from unbayes.metrics import parameter_kl
from unbayes.posteriors import gaussian_kl
from unbayes.progress import AbstractProgress

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
MODELS = {
    "logistic": (lambda: ub.logistic_regression(2), (X, (X[:, 0] > 0.3 * X[:, 1]).astype(int))),
    "poisson": (lambda: ub.poisson_regression(2), (X, RNG.poisson(np.exp(0.5 * X[:, 0])))),
    "probit": (
        lambda: ub.LinearModel(ub.RawFeatures(2), ub.ProbitLikelihood(), ub.DiagonalGaussian.standard(3)),
        (X, (X[:, 0] > 0.3 * X[:, 1]).astype(int)),
    ),
    "softmax": (lambda: ub.softmax_regression(2, 3), (X, RNG.integers(0, 3, 80))),
    "gamma shape": (
        lambda: ub.GammaShape(np.e, ub.DiagonalGaussian(jnp.zeros(1), jnp.ones(1))),
        RNG.gamma(np.e, 1 / np.e, 20),
    ),
    "any density": (
        lambda: ub.DensityModel(
            lambda theta: -0.5 * theta @ theta,
            lambda theta, y: -jnp.abs(y - theta.sum()) - 0.1 * theta @ theta,
            dim=2,
        ),
        RNG.normal(size=30),
    ),
}
FAMILIES = [ub.FullGaussian, ub.DiagonalGaussian]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "family", [ub.FullGaussian, pytest.param(ub.DiagonalGaussian, marks=pytest.mark.long)]
)
def test_natural_gradients_reach_a_stationary_point(name, family, dtype):
    make, records = MODELS[name]
    result = ub.fit(make(), records, family=family, key=KEY)
    assert isinstance(result.posterior, family)
    assert result.posterior.dtype == dtype
    # Where the integrals are sampled, the gradient that is followed is not quite that of the ELBO measured.
    sampled = name in ("softmax", "any density")
    limit = 1e-2 if sampled else (1e-11 if dtype == jnp.float64 else 1e-4)
    assert result.stationarity < limit
    assert np.all(np.diff(result.trace) >= -1e-4 * np.abs(result.trace[1:]))


@pytest.mark.long
def test_stationary_means_no_direction_goes_up():
    """The gradient of the quadrature ELBO, taken by automatic differentiation, vanishes."""
    problem = logistic()
    evidence = problem.model.encode(problem.full)
    gradient = jax.grad(lambda q: elbo(q, problem.model, evidence))(trained(logistic))
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(jnp.tril(jnp.atleast_2d(leaf)), 0, atol=1e-4)


@pytest.mark.long
def test_one_dimension_against_brute_force():
    """Gamma shape: the best Gaussian by a general-purpose optimiser on a dense grid."""
    make, y = MODELS["gamma shape"]
    model = make()
    grid, width = np.linspace(-12, 12, 20_001, retstep=True)
    log_joint = np.asarray(
        jax.vmap(lambda t: model.log_likelihood(t[None], model.encode(y)).sum() + model.log_prior(t[None]))(
            jnp.asarray(grid)
        )
    )

    def negative_elbo(parameters):
        mean, log_scale = parameters
        density = jnp.exp(-0.5 * ((grid - mean) / jnp.exp(log_scale)) ** 2) / (
            jnp.exp(log_scale) * np.sqrt(2 * np.pi)
        )
        return -(width * jnp.sum(density * log_joint) + log_scale)

    best = minimize(negative_elbo, jnp.array([1.0, -1.0]), method="BFGS").x
    found = ub.fit(model, y, family=ub.DiagonalGaussian, key=KEY).posterior
    np.testing.assert_allclose([found.mean[0], found.log_scale[0]], best, atol=2e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.long
def test_natural_and_stochastic_gradients_agree(family):
    problem = logistic()
    natural = ub.fit(problem.model, problem.full, family=family, key=KEY)
    method = ub.GradientVI(
        iterations=3000,
        draws=64,
        optimizer=optax.adam(optax.cosine_decay_schedule(3e-2, 3000)),
        early_stop=False,
    )
    stochastic = ub.fit(problem.model, problem.full, family=family, method=method, key=KEY)
    assert parameter_kl(stochastic.posterior, natural.posterior).value < 1e-3
    assert stochastic.elbo <= natural.elbo + 1e-9
    assert 0 < stochastic.stationarity < 1e-2
    assert stochastic.converged is None


@pytest.mark.long
def test_minibatches_reach_the_same_place():
    problem = linear_gaussian()
    schedule = optax.exponential_decay(2e-2, 500, 0.4)
    method = ub.GradientVI(
        iterations=4000, draws=8, batch_size=25, optimizer=optax.adam(schedule), early_stop=False
    )
    found = ub.fit(problem.model, problem.full, method=method, key=KEY).posterior
    assert float(gaussian_kl(found, trained(linear_gaussian))) < 0.05


def test_conjugate_models_are_trained_exactly():
    problem = linear_gaussian()
    design = np.asarray(problem.model.encode(problem.full).design)
    precision = design.T @ design / 0.25 + np.eye(4) / 4
    posterior = trained(linear_gaussian)
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_allclose(
        posterior.mean, np.linalg.solve(precision, design.T @ problem.full[1] / 0.25), atol=1e-12
    )
    one_step = ub.fit(problem.model, problem.full, method=ub.NaturalGradientVI(), key=KEY)
    assert float(gaussian_kl(one_step.posterior, posterior)) < 1e-12
    with pytest.raises(ValueError, match="method must be left out"):
        ub.fit(ub.BetaBernoulli(ub.Beta(1.0, 1.0)), np.array([1, 0]), method=ub.GradientVI(), key=KEY)


def test_wide_priors_start_at_the_mode(dtype):
    """Prior N(0, 100²): at a draw of the prior every likelihood is saturated."""
    x = RNG.normal(size=(300, 4))
    y = (x @ [4.0, -3.0, 2.0, 0.0] + RNG.logistic(size=300) > 0).astype(int)
    result = ub.fit(ub.logistic_regression(4, prior_scale=100.0), (x, y), key=KEY)
    assert result.stationarity < (1e-11 if dtype == jnp.float64 else 1e-3)
    assert np.abs(np.asarray(result.posterior.mean[1:]) - [4, -3, 2, 0]).max() < 1.5


@pytest.mark.long
def test_a_flow_does_at_least_as_well_as_the_gaussian_it_starts_from():
    problem = logistic()
    gaussian = ub.fit(problem.model, problem.full, key=KEY)
    flow = ub.AutoregressiveFlow(gaussian.posterior, key=KEY, layers=2, width=8)
    method = ub.GradientVI(
        iterations=1000,
        draws=64,
        optimizer=optax.adam(optax.cosine_decay_schedule(5e-3, 1000)),
        early_stop=False,
    )
    result = ub.fit(problem.model, problem.full, family=flow, method=method, key=KEY)
    assert result.elbo > gaussian.elbo - 0.02
    assert result.stationarity is None
    assert isinstance(result.posterior, ub.AutoregressiveFlow)
    np.testing.assert_array_equal(result.posterior.frame.tree.mean, gaussian.posterior.mean)


class Recorder(AbstractProgress):
    def __init__(self):
        self.total, self.done = 0, 0

    def track(self, description, total):
        self.total = total

        @contextlib.contextmanager
        def meter():
            yield self._advance

        return meter()

    def _advance(self, steps, note):
        self.done += steps


def test_early_stop_and_progress_leave_the_result_alone():
    problem, recorder = logistic(), Recorder()
    settings = {"iterations": 3000, "draws": 8, "optimizer": optax.adam(1e-2)}
    stopped = ub.fit(
        problem.model, problem.full, method=ub.GradientVI(**settings), key=KEY, progress=recorder
    )
    assert stopped.converged
    assert recorder.done == len(stopped.trace) < recorder.total == 3000
    whole = ub.fit(problem.model, problem.full, method=ub.GradientVI(**settings, early_stop=False), key=KEY)
    np.testing.assert_allclose(stopped.trace, whole.trace[: len(stopped.trace)], rtol=1e-9)
    assert "converged after" in str(stopped)


def test_watching_natural_gradients_does_not_change_them():
    problem, recorder = logistic(), Recorder()
    watched = ub.fit(problem.model, problem.full, key=KEY, progress=recorder)
    alone = ub.fit(problem.model, problem.full, key=KEY)
    np.testing.assert_allclose(watched.trace, alone.trace, rtol=1e-12)
    np.testing.assert_allclose(watched.posterior.mean, alone.posterior.mean, rtol=1e-9)
    assert recorder.done == len(watched.trace) < recorder.total


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.long
def test_mixed_steps_reach_the_same_belief_sooner(classes, dtype):
    """Well separated classes, where beliefs are wide and plain steps swing to and fro."""
    inputs = 3 * np.random.default_rng(1).normal(size=(60, 4))
    records = inputs, np.digitize(inputs @ [2.0, -1, 0.5, 0], [0, 4][: classes - 1])
    model = ub.logistic_regression(4) if classes == 2 else ub.softmax_regression(4, 3)
    settings = {"tolerance": 1e-6, "nodes": 400}
    plain, mixed = (
        ub.fit(model, records, method=ub.NaturalGradientVI(mixing=depth, **settings), key=KEY)
        for depth in (0, 3)
    )
    assert plain.converged
    assert mixed.converged
    assert len(mixed.trace) < 0.8 * len(plain.trace)
    assert parameter_kl(mixed.posterior, plain.posterior).value < (1e-5 if dtype == jnp.float64 else 1e-3)


@pytest.mark.parametrize("depth", [-1, 1.5])
def test_a_depth_of_mixing_must_be_a_count(depth):
    problem = logistic()
    with pytest.raises(ValueError, match="mixing must be an integer of at least 0, got"):
        ub.fit(problem.model, problem.full, method=ub.NaturalGradientVI(mixing=depth), key=KEY)


@pytest.mark.long
def test_a_dense_prior_away_from_zero_counts_in_full():
    """Training computes its precision once; the ELBO that it reports is the one of `objectives`."""
    root = np.array([[0.5, 0, 0], [0.3, 0.8, 0], [-0.2, 0.1, 1.5]])
    prior = ub.FullGaussian(np.array([1.0, -2.0, 0.5]), root)
    model = ub.LinearModel(ub.RawFeatures(2), ub.BernoulliLikelihood(), prior)
    records = MODELS["logistic"][1]
    for family in FAMILIES:
        found = ub.fit(model, records, family=family, key=KEY)
        assert found.elbo == pytest.approx(
            float(elbo(found.posterior, model, model.encode(records))), rel=1e-12
        )
        assert found.stationarity < 1e-11


@pytest.mark.parametrize("classes", [3, pytest.param(5, marks=pytest.mark.long)])
def test_one_node_is_the_mode_and_the_curvature_there(classes):
    model, records = ub.softmax_regression(2, classes), (X, np.arange(len(X)) % classes)
    found = ub.fit(model, records, method=ub.NaturalGradientVI(nodes=1), key=KEY)
    evidence = model.encode(records)

    def log_joint(theta):
        return model.log_prior(theta) + model.log_likelihood(theta, evidence).sum()

    at = found.posterior.mean
    assert found.converged
    np.testing.assert_allclose(jax.grad(log_joint)(at), 0, atol=1e-3)
    curvature = -jax.hessian(log_joint)(at)
    np.testing.assert_allclose(found.posterior.natural.precision.matrix, curvature, rtol=1e-3, atol=1e-3)


def test_a_family_that_does_not_fit_is_refused():
    problem = logistic()
    with pytest.raises(ValueError, match="family must have 3 parameters"):
        ub.fit(problem.model, problem.full, family=ub.FullGaussian.standard(5), key=KEY)
    with pytest.raises(TypeError, match="family must be a variational family"):
        ub.fit(problem.model, problem.full, family=ub.Beta, key=KEY)
    with pytest.raises(TypeError, match="family must be Gaussian for natural gradients"):
        ub.fit(
            problem.model, problem.full, family=ub.AutoregressiveFlow, method=ub.NaturalGradientVI(), key=KEY
        )
    with pytest.raises(ValueError, match="records inputs must be finite"):
        ub.fit(problem.model, (np.full((3, 2), np.nan), np.zeros(3)), key=KEY)


@pytest.mark.long
def test_many_parameters_take_fewer_passes_to_the_same_belief(monkeypatch):
    """L-BFGS leads to the mode, and steps are mixed; a tolerance of its own compiles the plain way anew."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(1000, ascent.LEAST_WIDE_DIM))
    targets = rng.random(1000) < 1 / (1 + np.exp(-inputs @ rng.normal(size=inputs.shape[1]) / 8))
    model = ub.logistic_regression(inputs.shape[1], bias=False)
    wide = ub.fit(model, (inputs, targets), key=KEY)
    monkeypatch.setattr(ascent, "LEAST_WIDE_DIM", 10**6)
    plain = ub.fit(model, (inputs, targets), method=ub.NaturalGradientVI(tolerance=1.1e-12), key=KEY)
    assert wide.converged
    assert plain.converged
    np.testing.assert_allclose(wide.elbo, plain.elbo, rtol=1e-12)
    assert parameter_kl(wide.posterior, plain.posterior).value < 1e-11
    # No dense curvature on the way to the mode, where Newton steps take several, and fewer afterwards.
    assert wide.passes - len(wide.trace) == 0 < plain.passes - len(plain.trace)
    assert len(wide.trace) < 0.8 * len(plain.trace)
