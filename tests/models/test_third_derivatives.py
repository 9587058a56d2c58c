"""Sums of third derivatives: against differences of sites, the generic path, and what they predict."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from unbayes._numerics.quadrature import centre_node
from unbayes.models import AbstractModel
from unbayes.posteriors import small_change
from unbayes.unlearning.methods.step import change_of_pull

from .rows import INPUTS, MODELS, gaussians, grid

WEIGHTS = np.array([1.0, 0.0, 2.0, 1.0, 0.5])


def differences(model, gaussian, evidence, nodes, weights=None):
    """Minus the change of the sites' precision with the mean, where q is standard normal."""
    root, step = gaussian.scale_tril, 1e-4

    def precision(z):
        moved = ub.FullGaussian(gaussian.mean + root @ z, root)
        return root.T @ model.site(moved, evidence, nodes, weights).precision.matrix @ root

    ahead, behind = (jax.vmap(precision)(side * step * jnp.eye(model.dim)) for side in (1, -1))
    return -jnp.moveaxis((ahead - behind) / (2 * step), 0, -1)


@pytest.mark.parametrize("name", ["linear", "logistic", "poisson", "softmax", "svgp", "probit"])
def test_third_derivatives_are_differences_of_sites(name):
    model, targets = MODELS[name]
    evidence = model.encode((INPUTS, targets))
    over_f, over_theta = grid(model.integral_dim, 40), grid(model.dim, 30)
    _, gaussian = gaussians(model.dim)

    @eqx.filter_jit
    def all_ways():
        own = model.third_derivatives(gaussian, evidence, over_f, WEIGHTS)
        generic = AbstractModel.third_derivatives(model, gaussian, evidence, over_theta, WEIGHTS)
        return own, generic, differences(model, gaussian, evidence, over_f, WEIGHTS)

    own, generic, expected = all_ways()
    np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(generic, expected, rtol=1e-3, atol=1e-4)
    for axes in [(1, 0, 2), (0, 2, 1), (2, 1, 0)]:
        np.testing.assert_allclose(own, np.transpose(own, axes), rtol=1e-9, atol=1e-9)


def test_a_single_node_gives_the_derivatives_at_the_mean():
    def log_density(theta, record):
        return -jnp.cosh(theta @ record)

    model = ub.DensityModel(lambda theta: -0.5 * theta @ theta, log_density, 2)
    records = np.array([[0.3, -0.2], [1.0, 0.5]])
    _, gaussian = gaussians(2)
    found = model.third_derivatives(gaussian, model.encode(records), centre_node(2, model.dtype))
    f = records @ gaussian.mean
    along = records @ gaussian.scale_tril
    np.testing.assert_allclose(found, np.einsum("n,ni,nj,nl->ijl", -np.sinh(f), along, along, along))


def test_records_add_up():
    model, targets = MODELS["logistic"]
    _, gaussian = gaussians(model.dim)
    nodes = model.nodes()
    parts = [model.encode((INPUTS[rows], targets[rows])) for rows in (slice(2), slice(2, None))]
    whole = model.third_derivatives(gaussian, model.encode((INPUTS, targets)), nodes)
    added = sum(model.third_derivatives(gaussian, part, nodes) for part in parts)
    np.testing.assert_allclose(whole, added, rtol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "poisson", "softmax"])
def test_they_tell_how_pulls_change_with_a_small_step(name):
    """The change of the records' own sites, to first order in a step of the mean."""
    model, targets = MODELS[name]
    evidence, nodes = model.encode((INPUTS, targets)), grid(model.integral_dim, 40)
    _, before = gaussians(model.dim)
    third = model.third_derivatives(before, evidence, nodes)
    errors = []
    for size in (0.1, 0.01):
        after = ub.FullGaussian(before.mean + size * np.linspace(1, -0.5, model.dim), before.scale_tril)
        change = model.site(after, evidence, nodes) - model.site(before, evidence, nodes)
        true = small_change(after.scale_tril, change.gradient_at(after.mean), change.precision.matrix)
        told = change_of_pull(before, after, third)
        errors.append(abs(float(told / true) - 1))
    assert errors[1] < 0.1
    assert errors[1] < 0.3 * errors[0]
