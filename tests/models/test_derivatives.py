"""Sums of higher derivatives: against differences of sites, the generic path, and what they predict."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from constructors import LIKELIHOODS
from unbayes._numerics.linalg import Half
from unbayes._numerics.quadrature import centre_node
from unbayes._numerics.records import padded
from unbayes.models import AbstractModel
from unbayes.models.derivatives import Derivatives, of_outputs
from unbayes.posteriors import small_change
from unbayes.unlearning.methods.step import change_of_pull

from .rows import INPUTS, LABELS, MODELS, gaussians, grid

WEIGHTS = np.array([1.0, 0.0, 2.0, 1.0, 0.5])


def third_of(model, gaussian, evidence, nodes, weights=None, way=ub.LinearModel.derivatives):
    """All of them, shape (d, d, d), where q is standard normal."""
    found = eqx.filter_jit(way)(model, gaussian, gaussian.scale_tril, evidence, nodes, weights, order=3)
    assert found.fourth is found.fifth is None
    return found.third[found.half.place]


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
        own = third_of(model, gaussian, evidence, over_f, WEIGHTS)
        generic = third_of(model, gaussian, evidence, over_theta, WEIGHTS, AbstractModel.derivatives)
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
    nodes = centre_node(2, model.dtype)
    found = third_of(model, gaussian, model.encode(records), nodes, way=ub.DensityModel.derivatives)
    f = records @ gaussian.mean
    along = records @ gaussian.scale_tril
    np.testing.assert_allclose(found, np.einsum("n,ni,nj,nl->ijl", -np.sinh(f), along, along, along))


def test_records_add_up():
    model, targets = MODELS["logistic"]
    _, gaussian = gaussians(model.dim)
    nodes = model.nodes()
    parts = [model.encode((INPUTS[rows], targets[rows])) for rows in (slice(2), slice(2, None))]
    whole = third_of(model, gaussian, model.encode((INPUTS, targets)), nodes)
    added = sum(third_of(model, gaussian, part, nodes) for part in parts)
    np.testing.assert_allclose(whole, added, rtol=1e-12)


@pytest.mark.parametrize("name", ["logistic", "poisson", "softmax"])
def test_they_tell_how_pulls_change_with_a_small_step(name):
    """The change of the records' own sites, to first order in a step of the mean."""
    model, targets = MODELS[name]
    evidence, nodes = model.encode((INPUTS, targets)), grid(model.integral_dim, 40)
    _, before = gaussians(model.dim)
    third = eqx.filter_jit(model.derivatives)(before, before.scale_tril, evidence, nodes, order=3)
    site = eqx.filter_jit(model.site)
    errors = []
    for size in (0.1, 0.01):
        after = ub.FullGaussian(before.mean + size * np.linspace(1, -0.5, model.dim), before.scale_tril)
        change = site(after, evidence, nodes) - site(before, evidence, nodes)
        true = small_change(after.scale_tril, change.gradient_at(after.mean), change.precision.matrix)
        told = change_of_pull(before, after, third)
        errors.append(abs(float(told / true) - 1))
    assert errors[1] < 0.1
    assert errors[1] < 0.3 * errors[0]


# Oracles: derivatives of log p by repeated differentiation, integrated on a fine grid.

POINTS = np.linspace(-8, 8, 2001)
HEIGHTS = np.exp(-0.5 * POINTS**2) / np.exp(-0.5 * POINTS**2).sum()
SCALARS = {
    "gaussian": (ub.GaussianLikelihood(0.7), LABELS - 0.3),
    "bernoulli": (ub.BernoulliLikelihood(), LABELS),
    "probit": (ub.ProbitLikelihood(), LABELS),
    "poisson": (ub.PoissonLikelihood(), 3 * LABELS),
    "softplus poisson": (ub.SoftplusPoissonLikelihood(), 3 * LABELS),
    "student": (ub.StudentTLikelihood(0.7, 4.0), LABELS - 0.3),
    "integrated": (ub.IntegratedLikelihood(ub.ProbitLikelihood()), np.c_[LABELS, [0.5, 2, 1, 0, 3]]),
    "weighted": (ub.WeightedLikelihood(ub.BernoulliLikelihood()), np.c_[LABELS, [0.5, 2, 1, 0, 3]]),
}
# It takes a while to compile what differentiates the logarithm of a softplus five times.
LONG = {"softplus poisson", "integrated"}
DIRECTIONS = {"all": np.array([[0.6, 0.0], [-0.3, 0.5]]), "one": np.array([[0.2], [-0.7]])}


def test_every_scalar_likelihood_has_a_row():
    listed = {type(likelihood) for likelihood, _ in SCALARS.values()}
    assert listed == set(LIKELIHOODS) - {ub.CategoricalLikelihood, ub.HeteroscedasticLikelihood}


def expected_of_scalar(model, gaussian, directions, evidence, weights):
    """Σ_n w_n E[l⁽ᵏ⁾(f_n)] b_n ⊗ … ⊗ b_n, of orders 3 to 5, with b = directionsᵀ a."""
    design = np.asarray(evidence.design, float)
    scale = np.linalg.norm(design @ np.asarray(gaussian.scale_tril, float), axis=1)
    f = (design @ np.asarray(gaussian.mean, float))[:, None] + scale[:, None] * POINTS
    function, along = model.likelihood.log_prob, design @ directions
    found = []
    for order in range(1, 6):
        function = jax.grad(function)
        if order >= 3:
            each = jax.jit(jax.vmap(jax.vmap(function, (0, None))))(f, evidence.targets) @ HEIGHTS
            letters = "abcde"[:order]
            products = ",".join(f"n{letter}" for letter in letters)
            found.append(np.einsum(f"n,{products}->{letters}", weights * each, *[along] * order))
    return found


def dense(derivatives):
    """As tensors with one axis per order."""
    place = derivatives.half.place
    found = [derivatives.third[place]]
    if derivatives.fourth is not None:
        found.append(derivatives.fourth[place][:, :, place])
    if derivatives.fifth is not None:
        place = Half(derivatives.fifth.shape[2]).place
        found.append(derivatives.fifth[place][:, :, place])
    return found


def assert_close(found, expected, tolerance):
    """Entries of each order within a part of its largest one."""
    for own, other in zip(found, expected, strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=0, atol=tolerance * (np.abs(other).max() + 1e-9))


@eqx.filter_jit
def derive(model, *arguments, order):
    return model.derivatives(*arguments, order=order)


@pytest.mark.parametrize(
    ("name", "along"),
    [
        *(pytest.param(name, "all", marks=[pytest.mark.long] * (name in LONG)) for name in SCALARS),
        ("bernoulli", "one"),
        ("probit", "one"),
    ],
)
def test_derivatives_of_scalar_likelihoods(name, along):
    likelihood, targets = SCALARS[name]
    model = ub.LinearModel(ub.RawFeatures(1), likelihood, ub.DiagonalGaussian.standard(2))
    gaussian, evidence = gaussians(2)[1], model.encode((INPUTS, targets))
    expected = expected_of_scalar(model, gaussian, DIRECTIONS[along], evidence, WEIGHTS)
    found = derive(model, gaussian, DIRECTIONS[along], evidence, model.nodes(), WEIGHTS, order=5)
    # 32 nodes hold six digits of what log-odds of this width bend in fifth order.
    assert_close(dense(found), expected, 2e-5 if name in ("bernoulli", "weighted") else 1e-6)
    assert name != "gaussian" or not any(map(np.any, dense(found)))


@pytest.mark.parametrize("order", [3, 4])
def test_lower_orders_are_the_first_of_higher_ones(order):
    model, targets = MODELS["logistic"]
    arguments = gaussians(2)[1], DIRECTIONS["all"], model.encode((INPUTS, targets)), model.nodes(), WEIGHTS
    found, more = (dense(derive(model, *arguments, order=each)) for each in (order, 5))
    assert len(found) == order - 2
    assert_close(found, more[: order - 2], 1e-14)


def test_derivatives_in_single_precision():
    """As in double precision, of the same numbers, to what float32 holds."""
    with jax.enable_x64(False):
        model = ub.logistic_regression(1)
        evidence = model.encode((INPUTS, LABELS))
        gaussian = ub.FullGaussian(jnp.array([0.4, -1.0]), jnp.array([[0.5, 0.0], [0.2, 0.6]]))
        directions, weights = (jnp.asarray(each, model.dtype) for each in (DIRECTIONS["all"], WEIGHTS))
        found = derive(model, gaussian, directions, evidence, model.nodes(), weights, order=5)
        assert {leaf.dtype.name for leaf in jax.tree.leaves(found)} == {"float32"}
    likelihood = ub.LinearModel(ub.RawFeatures(1), ub.BernoulliLikelihood(), ub.DiagonalGaussian.standard(2))
    double = likelihood.encode((INPUTS, LABELS))
    expected = expected_of_scalar(likelihood, gaussian, np.float64(directions), double, WEIGHTS)
    assert_close([np.float64(each) for each in dense(found)], expected, 1e-4)


@pytest.mark.parametrize("mean", [0.0, 0.7, -30.0])
@pytest.mark.parametrize("scale", [0.0, 0.5, 1.7, 1.9, 10.0])
def test_higher_derivatives_of_log_odds(mean, scale):
    """Where f is exactly zero, and on either side of the width where the quadrature changes."""
    given = (jnp.array([each]) for each in (mean, scale**2, 1.0))
    found = eqx.filter_jit(ub.BernoulliLikelihood().higher_derivatives)(*given, 5)
    chance = 1 / (1 + np.exp(-(mean + scale * POINTS)))
    spread = chance * (1 - chance)
    fourth = -spread * (1 - 6 * spread)
    fifth = -spread * (1 - 2 * chance) * (1 - 12 * spread)
    expected = [(2 * chance - 1) * spread @ HEIGHTS, fourth @ HEIGHTS, fifth @ HEIGHTS]
    np.testing.assert_allclose(np.ravel(found), expected, rtol=0, atol=2e-5)


def brute_force(model, gaussian, directions, evidence, nodes, weights, orders):
    """E_q[log p] under a shift of the mean, differentiated again and again."""
    thetas = jax.vmap(gaussian.colour)(nodes.points)

    def expected(z):
        each = jax.vmap(lambda theta: model.log_likelihood(theta + directions @ z, evidence))(thetas)
        return nodes.weights @ each @ weights

    function, found = jax.hessian(expected), []
    for _ in range(orders):
        function = jax.jacfwd(function)
        found.append(function)
    return jax.jit(lambda z: [each(z) for each in found])(jnp.zeros(directions.shape[1]))


@pytest.mark.parametrize("along", [1, pytest.param(3, marks=pytest.mark.long)])
def test_derivatives_of_several_outputs(along):
    model, targets = MODELS["softmax"]
    gaussian, evidence = gaussians(3)[1], model.encode((INPUTS, targets))
    gaussian = ub.FullGaussian(gaussian.mean, 0.5 * gaussian.scale_tril)
    directions = np.random.default_rng(1).normal(size=(3, along))
    expected = brute_force(model, gaussian, directions, evidence, grid(3, 12), WEIGHTS, 3)
    found = derive(model, gaussian, directions, evidence, grid(2, 24), WEIGHTS, order=5)
    assert_close(dense(found), expected, 1e-5)


def quartic(theta, record):
    """Log-density whose fifth derivatives vanish."""
    a, b = record[:2] @ theta, record[2:] @ theta
    return -0.5 * a**2 + 0.3 * a * b**2 - 0.02 * a**4 + 0.05 * b**3 * a


QUARTIC = ub.DensityModel(lambda theta: -0.5 * theta @ theta, quartic, dim=2)
ROWS = np.random.default_rng(3).normal(size=(5, 4))


@pytest.mark.parametrize("along", DIRECTIONS)
def test_derivatives_of_a_density(along):
    gaussian, evidence, nodes = gaussians(2)[1], QUARTIC.encode(ROWS), grid(2, 4)
    expected = brute_force(QUARTIC, gaussian, DIRECTIONS[along], evidence, nodes, WEIGHTS, 2)
    assert not QUARTIC.has_fifth_derivatives
    for order in (3, 4):
        found = derive(QUARTIC, gaussian, DIRECTIONS[along], evidence, nodes, WEIGHTS, order=order)
        # Fourth derivatives of a general model are differences of third ones.
        assert_close(dense(found), expected[: order - 2], 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "softmax", "density"])
def test_derivatives_do_not_depend_on_chunks_or_padding(name, monkeypatch):
    model, records = (QUARTIC, ROWS) if name == "density" else (MODELS[name][0], (INPUTS, MODELS[name][1]))
    nodes, gaussian = grid(model.integral_dim, 4), gaussians(model.dim)[1]
    order = 5 if model.has_fifth_derivatives else 4
    evidence = model.encode(records)
    whole = derive(model, gaussian, gaussian.scale_tril, evidence, nodes, None, order=order)
    filled, weights = padded(evidence, model.dtype)
    assert len(weights) > len(INPUTS)
    for place in ("models.base", "models.derivatives", "_numerics.records"):
        monkeypatch.setattr(f"unbayes.{place}.CHUNK_ELEMENTS", 500)
    monkeypatch.setattr("unbayes._numerics.records.CACHED_ELEMENTS", 500)
    again = eqx.filter_jit(lambda *arguments: model.derivatives(*arguments, order=order))
    arguments = gaussian, gaussian.scale_tril, filled, nodes, weights
    assert "scan" in str(jax.make_jaxpr(lambda: model.derivatives(*arguments, order=order))())
    assert_close(dense(again(*arguments)), dense(whole), 1e-12)


TURN = np.array([[0.8, 0.0], [-0.4, 1.3]])


def test_derivatives_seen_from_elsewhere_are_those_computed_there():
    """Exactly, where fifth derivatives vanish: along new directions, from another mean, of another width."""
    gaussian, evidence, nodes = gaussians(2)[1], QUARTIC.encode(ROWS), grid(2, 4)
    root, move = gaussian.scale_tril, np.array([0.7, -1.2])
    other = ub.FullGaussian(gaussian.mean + root @ move, 2 * jnp.eye(2))
    here = derive(QUARTIC, gaussian, root, evidence, nodes, None, order=4)
    there = derive(QUARTIC, other, root @ TURN, evidence, nodes, None, order=4)
    assert_close(dense(here.seen_from(move, TURN)), dense(there), 1e-8)
    assert float(jnp.abs(here.third - there.third).max()) > 0.1


def test_fifth_derivatives_turn_with_the_leading_directions():
    """Those along the other ones are not known, and taken to be zero from anywhere."""
    rng = np.random.default_rng(0)
    along = np.concatenate([rng.normal(size=(4, 1, 2)), np.zeros((4, 1, 1))], axis=2)
    turn = np.tril(rng.normal(size=(3, 3)))
    tensors = [rng.normal(size=(4, *[1] * order)) for order in (3, 4, 5)]
    sums = jax.jit(lambda along: of_outputs(along, tensors))
    whole, turned = sums(along), sums(along @ turn)
    here = Derivatives(whole.third, whole.fourth, sums(along[:, :, :2]).fifth)
    found = dense(eqx.filter_jit(Derivatives.seen_from)(here, jnp.zeros(3), turn))
    assert_close(found[:2], dense(turned)[:2], 1e-12)
    expected = dense(turned)[2]
    assert_close(found[2:], [expected[:2, :2, :2, :2, :2]], 1e-12)
    assert not np.any(expected[2])


@pytest.mark.long
def test_fifth_derivatives_go_along_the_leading_directions(monkeypatch):
    monkeypatch.setattr("unbayes.models.derivatives.LARGEST_FIFTH_DIRECTIONS", 1)
    model, targets = MODELS["logistic"]
    arguments = model.encode((INPUTS, targets)), model.nodes(), None
    found = model.derivatives(gaussians(2)[1], DIRECTIONS["all"], *arguments, order=5)
    alone = model.derivatives(gaussians(2)[1], DIRECTIONS["all"][:, :1], *arguments, order=5)
    assert found.fifth.shape == (1, 1, 1)
    np.testing.assert_allclose(found.fifth, alone.fifth, rtol=1e-12)
    found.require_valid()
