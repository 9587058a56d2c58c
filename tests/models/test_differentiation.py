"""Models that are known by a function alone: one pass over the nodes, against plain derivatives."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unbayes._numerics.linalg import Half
from unbayes._numerics.quadrature import centre_node
from unbayes.models import AbstractModel, DensityModel, differentiation
from unbayes.posteriors import FullGaussian

from .rows import gaussians, grid

RECORDS = np.array([[0.3, -0.2], [1.0, 0.5], [-0.4, 0.8], [0.1, 0.9]])
WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5])


def hyperbolic(dim: int = 2, calls: list | None = None) -> DensityModel:
    """log p = −cosh(aᵀθ), of which every derivative has a closed form under a Gaussian."""

    def log_density(theta, record):
        if calls is not None:
            calls.append(1)
        return -jnp.cosh(theta @ record)

    return DensityModel(lambda theta: -0.5 * theta @ theta, log_density, dim)


def closed_form(gaussian: FullGaussian, records, order: int):
    """Σ_n w_n E[∇^order log p] along the axes of z, θ = m + L z."""
    f, along = records @ gaussian.mean, records @ gaussian.scale_tril
    wave = np.sinh(f) if order % 2 else np.cosh(f)
    each = -WEIGHTS * np.exp(0.5 * (along**2).sum(1)) * wave
    axes = "ijkl"[:order]
    return np.einsum(f"n,{','.join('n' + axis for axis in axes)}->{axes}", each, *[along] * order)


def test_one_pass_gives_what_plain_derivatives_do():
    model, (_, gaussian), nodes = hyperbolic(), gaussians(2), grid(2, 8)
    thetas = jax.vmap(gaussian.colour)(nodes.points)

    def total(theta):
        return WEIGHTS @ -jnp.cosh(RECORDS @ theta)

    value, site = model.expected_log_likelihood_and_site(gaussian, model.encode(RECORDS), nodes, WEIGHTS)
    assert float(value) == pytest.approx(float(nodes.weights @ jax.vmap(total)(thetas)), rel=1e-12)
    gradient = nodes.weights @ jax.vmap(jax.grad(total))(thetas)
    np.testing.assert_allclose(site.gradient_at(gaussian.mean), gradient, rtol=1e-10)
    curvature = -jnp.tensordot(nodes.weights, jax.vmap(jax.hessian(total))(thetas), 1)
    np.testing.assert_allclose(site.precision.matrix, curvature, rtol=1e-10)


@pytest.mark.parametrize("order", [3, 4])
def test_a_users_function_is_differentiated_in_one_place(order):
    calls = []
    model, (_, gaussian), nodes = hyperbolic(calls=calls), gaussians(2), grid(2, 8)
    evidence = model.encode(RECORDS)
    jax.make_jaxpr(lambda: model.expected_log_likelihood_and_site(gaussian, evidence, nodes))()
    assert len(calls) == 1
    basis = gaussian.scale_tril
    jax.make_jaxpr(lambda: model.site_and_derivatives(gaussian, basis, evidence, nodes, order=order))()
    assert len(calls) == 2


def test_sums_do_not_depend_on_chunks(monkeypatch):
    model, (_, gaussian), nodes = hyperbolic(), gaussians(2), grid(2, 8)
    evidence = model.encode(RECORDS)

    def sums(weights):
        return model.expected_log_likelihood_and_site(gaussian, evidence, nodes, weights)

    whole = [sums(weights) for weights in (WEIGHTS, None)]
    # Three records at a time: the last chunk is filled up.
    monkeypatch.setattr(differentiation, "CHUNK_ELEMENTS", 3 * nodes.count * 2)
    assert "scan" in str(jax.make_jaxpr(sums)(WEIGHTS))
    parts = [sums(weights) for weights in (WEIGHTS, None)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), parts, whole)


@pytest.mark.long
def test_higher_derivatives_have_their_closed_form():
    model, (_, gaussian), half = hyperbolic(), gaussians(2), Half(2)
    evidence, nodes = model.encode(RECORDS), grid(2, 20)
    third = closed_form(gaussian, RECORDS, 3)[half.indices]
    fourth = closed_form(gaussian, RECORDS, 4)[half.indices][:, *half.indices]
    of_third = model.derivatives(gaussian, gaussian.scale_tril, evidence, nodes, WEIGHTS, order=3)
    np.testing.assert_allclose(of_third.third, third, rtol=1e-8)
    assert of_third.fourth is None
    both = model.derivatives(gaussian, gaussian.scale_tril, evidence, nodes, WEIGHTS, order=4)
    np.testing.assert_allclose(both.third, third, rtol=1e-5)
    np.testing.assert_allclose(both.fourth, fourth, rtol=1e-5)
    site, _ = model.site_and_derivatives(gaussian, gaussian.scale_tril, evidence, nodes, WEIGHTS)
    expected = model.site(gaussian, evidence, nodes, WEIGHTS)
    np.testing.assert_allclose(site.precision.matrix, expected.precision.matrix, rtol=1e-10)


def test_along_other_directions_derivatives_turn():
    model, (_, gaussian), turn = hyperbolic(), gaussians(2), np.array([[0.6], [-0.8]])
    arguments = (model.encode(RECORDS), grid(2, 20), WEIGHTS, 4)
    found = model.derivatives(gaussian, gaussian.scale_tril @ turn, *arguments)
    along = turn[:, 0]
    third = np.einsum("ijk,i,j,k", closed_form(gaussian, RECORDS, 3), *[along] * 3)
    fourth = np.einsum("ijkl,i,j,k,l", closed_form(gaussian, RECORDS, 4), *[along] * 4)
    np.testing.assert_allclose([found.third.item(), found.fourth.item()], [third, fourth], rtol=1e-5)


def test_quasi_random_nodes_give_third_and_fourth_derivatives_to_a_few_percent():
    rng = np.random.default_rng(0)
    records = 0.3 * rng.normal(size=(4, 6))
    model = hyperbolic(6)
    gaussian = FullGaussian(0.3 * rng.normal(size=6), np.eye(6))
    found = model.derivatives(gaussian, gaussian.scale_tril, model.encode(records), model.nodes(), WEIGHTS)
    half = Half(6)
    third = closed_form(gaussian, records, 3)[half.indices]
    fourth = closed_form(gaussian, records, 4)[half.indices][:, *half.indices]
    for own, exact in ((found.third, third), (found.fourth, fourth)):
        assert np.linalg.norm(own - exact) < 0.1 * np.linalg.norm(exact)
    whole = np.asarray(found.fourth)[half.place][:, :, half.place]
    for axes in itertools.permutations(range(4)):
        np.testing.assert_allclose(whole, whole.transpose(axes), rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("order", [3, 4])
def test_a_single_node_gives_the_derivatives_at_the_mean(order):
    model, (_, gaussian) = hyperbolic(), gaussians(2)
    nodes = centre_node(2, model.dtype)
    found = model.derivatives(gaussian, gaussian.scale_tril, model.encode(RECORDS), nodes, WEIGHTS, order)
    f, along = RECORDS @ gaussian.mean, RECORDS @ gaussian.scale_tril
    third = np.einsum("n,ni,nj,nk->ijk", -WEIGHTS * np.sinh(f), along, along, along)
    np.testing.assert_allclose(found.third, third[Half(2).indices], rtol=1e-9)
    assert found.order == order


@pytest.mark.long
@pytest.mark.parametrize("belief", gaussians(2), ids=["diagonal", "full"])
def test_what_single_records_give_agrees_with_their_sites(belief):
    model, nodes = hyperbolic(), grid(2, 8)
    evidence, after = (
        model.encode(RECORDS),
        FullGaussian(belief.mean + 0.3, 1.2 * belief.to_full().scale_tril),
    )
    own = model.influence(belief, evidence, nodes)
    np.testing.assert_allclose(own, AbstractModel.influence(model, belief, evidence, nodes), rtol=1e-9)
    own = model.site_changes(belief, after, evidence, nodes)
    generic = AbstractModel.site_changes(model, belief.to_full(), after, evidence, nodes)
    np.testing.assert_allclose(own, generic, rtol=1e-9)
    assert own.max() > 1e-3


@pytest.mark.long
def test_of_many_parameters_random_pairs_tell_the_change():
    rng, dim = np.random.default_rng(1), 25
    model, records = hyperbolic(dim), rng.normal(size=(12, dim)) / 5
    before = FullGaussian(0.3 * rng.normal(size=dim), 0.5 * np.eye(dim))
    after = FullGaussian(before.mean, 0.7 * np.eye(dim))
    nodes = model.nodes(64)
    assert Half(dim).size > differentiation.LARGEST_PAIRS
    evidence = model.encode(records)
    own = model.site_changes(before, after, evidence, nodes)
    exact = AbstractModel.site_changes(model, before, after, evidence, nodes)
    np.testing.assert_allclose(own, exact, rtol=0.5)
    assert float(own.sum()) == pytest.approx(float(exact.sum()), rel=0.2)
