import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoMultivariateNormal,
    AutoNormal,
)
from numpyro.infer.util import potential_energy

from adapters.numpyro_programs import (
    KEY,
    Fitted,
    hierarchical,
    numpyro_settings,
    regression,
    set_up,
)
from unbayes.adapters.numpyro import remember, unlearn
from unbayes.adapters.numpyro.arguments import separate
from unbayes.adapters.numpyro.guides import read
from unbayes.adapters.numpyro.program import split

X = np.random.default_rng(0).normal(size=(12, 2))
Y = X @ [1.0, -1.0] + 0.1
SET_UP: dict[Any, Fitted] = {}


@pytest.fixture(autouse=True)
def _settings():
    with numpyro_settings():
        yield


def translated(program, *args, family=AutoDiagonalNormal, **kwargs):
    """The program as a model, its records, and a θ away from where the guide starts."""
    fitted = set_up(program, family, *args, **kwargs)
    theta = read(*fitted).posterior.mean + 0.3
    return *separate(program, fitted.guide, {}, args, kwargs, theta), theta


@pytest.mark.parametrize("make", [regression, hierarchical])
def test_prior_and_likelihood_make_numpyros_potential_energy(make):
    case = make()
    model, records, theta = translated(case.program, **case.arguments("full"))

    @jax.jit
    def both(theta):
        energy = potential_energy(case.program, (), case.arguments("full"), split(model.guide, theta))
        return model.log_prior(theta) + model.log_likelihood(theta, records).sum(), -energy

    np.testing.assert_allclose(*both(theta), rtol=1e-12)


def linear(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def log_normal(value, mean, scale=0.5):
    return -0.5 * ((value - mean) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))


def weighted(x, y, weight):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)), handlers.scale(scale=weight):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def test_scaled_sites_count_as_often_as_in_training():
    weight = np.linspace(0.5, 2, 12)
    model, records, theta = translated(weighted, X, Y, weight)
    np.testing.assert_allclose(
        model.log_likelihood(theta, records), weight * log_normal(Y, X @ np.asarray(theta))
    )


def missing(x, y, seen):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(x)), handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def test_masked_values_say_nothing():
    seen = np.arange(12) % 3 > 0
    model, records, theta = translated(missing, X, Y, seen)
    np.testing.assert_allclose(
        model.log_likelihood(theta, records), np.where(seen, log_normal(Y, X @ np.asarray(theta)), 0)
    )


def by_factor(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("ridge", -(weights**2).sum())
    numpyro.factor("fit", -((y - x @ weights) ** 2))


def test_factors_belong_to_the_likelihood_where_they_lie_along_the_records():
    model, records, theta = translated(by_factor, X, Y)
    values = np.asarray(theta)
    np.testing.assert_allclose(model.log_likelihood(theta, records), -((Y - X @ values) ** 2))
    np.testing.assert_allclose(
        model.log_prior(theta), log_normal(values, 0, 1).sum() - (values**2).sum(), rtol=1e-12
    )


def crossed(tests, y=None):
    """Pupils along the second of two plates, tests, which are not records, along the first."""
    ability = numpyro.sample("ability", dist.Normal(0, 1))
    with numpyro.plate("pupils", y.shape[0], dim=-2), numpyro.plate("tests", len(tests), dim=-1):
        numpyro.sample("y", dist.Normal(ability + tests, 0.5), obs=y)


def test_records_along_one_of_two_plates_are_summed_over_the_other():
    tests, y = np.array([0.0, 0.5, 1.0]), np.random.default_rng(1).normal(size=(7, 3))
    model, records, theta = translated(crossed, tests, y)
    expected = log_normal(y, float(theta[0]) + tests).sum(1)
    np.testing.assert_allclose(model.log_likelihood(theta, records), expected)


def learned_noise(x, y=None):
    scale = numpyro.param("scale", jnp.asarray(0.7), constraint=dist.constraints.positive)
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def test_parameters_of_the_program_stay_as_they_were():
    guide, params = set_up(learned_noise, AutoLaplaceApproximation, X, Y)
    params |= {"scale": jnp.asarray(0.25)}
    mode = np.linalg.solve(np.eye(2) + X.T @ X / 0.0625, X.T @ Y / 0.0625)
    params["auto_loc"] = jnp.asarray(mode)
    # Laplace approximations are exact here; the guide's own Hessian must see the same scale.
    unlearned = unlearn(learned_noise, guide, params, X[:3], Y[:3], key=KEY)
    precision = np.eye(2) + X[3:].T @ X[3:] / 0.0625
    np.testing.assert_allclose(
        unlearned.params["auto_loc"], np.linalg.solve(precision, X[3:].T @ Y[3:] / 0.0625), atol=1e-6
    )
    assert unlearned.params["scale"] == 0.25
    assert set(unlearned.params) == {"auto_loc", "scale"}


def grouped(x, y, covariate, group):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(slope * covariate[group] + x[:, 0], 0.5), obs=y)


def test_arguments_that_look_like_records_can_be_bound():
    covariate, group = np.arange(1.0, 4.0), np.array([2, 0, 1])
    with pytest.raises(ValueError, match=r"model must treat records one by one.*functools\.partial"):
        translated(grouped, X[:3], Y[:3], covariate, group)
    bound = functools.partial(grouped, covariate=jnp.asarray(covariate))
    model, records, theta = translated(bound, X[:3], Y[:3], group=group)
    expected = log_normal(Y[:3], float(theta[0]) * covariate[group] + X[:3, 0])
    np.testing.assert_allclose(model.log_likelihood(theta, records), expected)


def schools(effect, error):
    """Eight schools: every record has a latent variable of its own."""
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mean, 1))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def subsampled(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(x), subsample_size=2) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ weights, 0.5), obs=y[rows])


def joint(x, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    covariance = jnp.exp(-jnp.abs(x[:, :1] - x[:, 0])) + 0.1 * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(scale, covariance), obs=y)


def standardised(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal((x - x.mean(0)) @ weights, 0.5), obs=y)


def empirical(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, x.std(0)).to_event(1))
    numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def noisy(x, y):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    noise = jax.random.normal(numpyro.prng_key(), y.shape)
    numpyro.sample("y", dist.Normal(x @ weights + noise, 0.5), obs=y)


def sized(x, y, total):
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", total):
        numpyro.sample("y", dist.Normal(x @ weights, 0.5), obs=y)


def counts(x, y):
    level = numpyro.sample("level", dist.Normal(0, 1))
    numpyro.sample("y", dist.Bernoulli(logits=level + x[:, 0]), obs=y)


@pytest.mark.parametrize(
    ("program", "trained_on", "erased", "sentence"),
    [
        (schools, (Y, Y**2), (Y[:3], Y[:3] ** 2), r"latent site 'theta' the shape \(12,\).*got \(3,\)"),
        (schools, (Y, Y**2), (Y, Y**2), "latent site 'theta' grows with them"),
        (subsampled, (X, Y), (X[:3], Y[:3]), "model must not subsample, but plate 'data' does"),
        (joint, (X, Y), (X[:3], Y[:3]), "the model observe each of them apart"),
        (standardised, (X, Y), (X[:3], Y[:3]), "site 'y' for a record depends on which others"),
        (empirical, (X, Y), (X[:3], Y[:3]), "must not let site 'weights' depend on the records"),
        (noisy, (X, Y), (X[:3], Y[:3]), "model must treat records one by one"),
        (sized, (X, Y, 12), (X[:3], Y[:3], 3), "with twice as many rows it fails: .*functools.partial"),
        (linear, (X, Y), (X[:3],), "args must include the observed values of site 'y'"),
        (linear, (X, Y), (), "args must be arguments|along the first axis of arrays, got none"),
        (linear, (X, Y), (X[:0], Y[:0]), "got an empty array"),
        (linear, (X, Y), (X[:3, :1], Y[:3]), "args must be arguments that the model can run on, got"),
        (linear, (X, Y), (X[:3], Y[:3] * np.nan), "args must be finite in float64, got nan in row 0"),
        (counts, (X, X[:, 0] > 0), (X[:3], np.array([0, 1, 2])), "site 'y' values in its support"),
        (counts, (X, X[:, 0] > 0), (np.array([["a", "b"]]), np.ones(1)), "args must be arguments that"),
    ],
)
def test_programs_and_arguments_that_cannot_be_used_are_refused(program, trained_on, erased, sentence):
    fitted = set_up_once(program, AutoNormal, trained_on)
    with pytest.raises(ValueError, match=sentence):
        unlearn(program, *fitted, *erased, key=KEY)


def set_up_once(program, family, trained_on) -> Fitted:
    if (program, family) not in SET_UP:
        SET_UP[program, family] = set_up(program, family, *trained_on)
    return SET_UP[program, family]


def changed(fitted: Fitted, **params) -> Fitted:
    return Fitted(fitted.guide, fitted.params | params)


@pytest.mark.parametrize(
    ("family", "change", "sentence"),
    [
        (AutoNormal, lambda f: Fitted(AutoNormal(linear), f.params), "guide must have been set up on data"),
        (AutoDelta, lambda f: f, "guide must be one of AutoNormal, .*, got AutoDelta"),
        (AutoNormal, lambda f: Fitted(f.guide, {}), r"params must hold 'weights_auto_loc' .* got \[\]"),
        (
            AutoNormal,
            lambda f: Fitted(f.guide, None),
            "params must be a dictionary such as svi_result.params",
        ),
        (
            AutoDiagonalNormal,
            lambda f: changed(f, auto_loc=jnp.zeros(3)),
            r"params must hold 'auto_loc' of shape \(2,\), got \(3,\)",
        ),
        (
            AutoDiagonalNormal,
            lambda f: changed(f, auto_scale=jnp.array([0.1, jnp.nan])),
            "params must be finite, got NaN or infinity in 'auto_scale'",
        ),
        (
            AutoDiagonalNormal,
            lambda f: changed(f, auto_scale=jnp.array([0.1, -0.1])),
            "params must hold positive 'auto_scale', got -0.1",
        ),
        (
            AutoMultivariateNormal,
            lambda f: changed(f, auto_scale_tril=-jnp.eye(2)),
            "scale_tril with a positive diagonal",
        ),
        (
            AutoIAFNormal,
            lambda f: Fitted(f.guide, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), f.params)),
            "params of an AutoIAFNormal must be of JAX's default type, float64, got .*float32",
        ),
    ],
)
def test_guides_and_parameters_that_do_not_fit_are_refused(family, change, sentence):
    fitted = change(set_up_once(linear, family, (X, Y)))
    with pytest.raises((ValueError, TypeError), match=sentence):
        unlearn(linear, *fitted, X[:3], Y[:3], key=KEY)


def test_another_program_is_refused():
    fitted = set_up_once(linear, AutoNormal, (X, Y))
    with pytest.raises(ValueError, match=r"latent sites of the guide, \['weights'\], got \['level'\]"):
        unlearn(counts, *fitted, X[:3], X[:3, 0] > 0, key=KEY)
    with pytest.raises(TypeError, match="model must be a NumPyro program, a callable, got int"):
        unlearn(3, *fitted, X[:3], Y[:3], key=KEY)
    with pytest.raises(TypeError, match="key must come from"):
        unlearn(linear, *fitted, X[:3], Y[:3], key=0)


def test_a_point_that_is_no_mode_has_no_laplace_approximation():
    def narrow(x, y=None):
        location = numpyro.sample("location", dist.Normal(0, 10))
        numpyro.sample("y", dist.StudentT(1, location, 0.01), obs=y)

    guide, params = set_up(narrow, AutoLaplaceApproximation, X, Y)
    params["auto_loc"] = jnp.array([5.0])
    with pytest.raises(ValueError, match="params must be at a mode"):
        unlearn(narrow, guide, params, X[:3], Y[:3], key=KEY)


def test_memories_that_do_not_fit_are_refused():
    fitted = set_up_once(linear, AutoMultivariateNormal, (X, Y))
    memory = remember(linear, *fitted, X, Y, size=5, key=KEY)
    assert (memory.records, memory.size) == (12, 5)
    with pytest.raises(ValueError, match="memory must hold the same arguments of the model"):
        unlearn(linear, *fitted, X[:3], y=Y[:3], memory=memory, key=KEY)
    with pytest.raises(ValueError, match="size must be a number of records to keep, got -1"):
        remember(linear, *fitted, X, Y, size=-1, key=KEY)
    flow = set_up_once(linear, AutoIAFNormal, (X, Y))
    with pytest.raises(ValueError, match="memory must be left out: it serves Gaussians and"):
        remember(linear, *flow, X, Y, size=5, key=KEY)
