"""Autoregressive flows: both forms, every permutation, and the frame. The laws look at the mode."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
import pytest
from scipy import stats

from unbayes.posteriors import FullGaussian
from unbayes.posteriors.flow import AutoregressiveFlow

from .bent import bent_flow, frame

FORMS = pytest.mark.parametrize("inverse", [True, False], ids=["inverse", "masked"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("inverse", "permutation"), [(True, "reverse"), (True, "random"), (True, "none"), (False, "none")]
)
def test_density_is_noise_over_jacobian(inverse, permutation):
    flow = bent_flow(2, inverse=inverse, permutation=permutation)

    @jax.jit
    def push(noise):
        def transform(noise):
            unwrapped = paramax.unwrap(flow)
            return unwrapped.frame.colour(unwrapped.bijection.transform(noise))

        theta = transform(noise)
        return theta, jax.jacfwd(transform)(noise), flow.log_prob(theta)

    noise = jnp.array([0.5, -1.2])
    _, jacobian, log_prob = push(noise)
    expected = stats.norm.logpdf(noise).sum() - np.linalg.slogdet(jacobian)[1]
    assert float(log_prob) == pytest.approx(float(expected), abs=1e-8)
    bend = np.linalg.solve(np.asarray(frame(2).scale_tril), jacobian)
    assert abs(bend[1, 0]) > 1e-2
    if permutation == "none":
        assert abs(bend[0, 1]) < 1e-12  # a coordinate depends on those before it, and on no other
    if permutation == "reverse":
        assert abs(bend[0, 1]) > 1e-2


@pytest.mark.long
def test_starts_at_a_frame_that_is_never_trained():
    gaussian = frame(2)
    flow = AutoregressiveFlow(gaussian, key=jr.key(3), layers=2, width=6)

    @eqx.filter_jit
    def look(flow):
        gradient = eqx.filter_grad(lambda q: q.log_prob(jnp.zeros(2)))(flow)
        return *flow.sample_and_log_prob(jr.key(0), (1000,)), gradient

    theta, log_prob, gradient = look(flow)
    np.testing.assert_allclose(log_prob, gaussian.log_prob(theta), atol=0.2)
    error = np.sqrt(gaussian.variance / 1000)
    np.testing.assert_array_less(np.abs(theta.mean(0) - gaussian.mean), 4 * error + 0.05)
    assert all(bool((leaf == 0).all()) for leaf in jax.tree.leaves(gradient.frame))
    assert any(bool((leaf != 0).any()) for leaf in jax.tree.leaves(gradient.bijection))


def test_architecture_is_as_asked():
    flow = eqx.filter_eval_shape(lambda: bent_flow(2, layers=8, width=5, depth=2))
    shapes = {leaf.shape for leaf in jax.tree.leaves(flow) if hasattr(leaf, "shape")}
    assert {(8, 5, 2), (8, 5, 5)} <= shapes


def test_mode_needs_a_key():
    with pytest.raises(ValueError, match="key must be given: the mode of a flow is searched"):
        bent_flow().mode()


@FORMS
def test_one_dimension(inverse):
    flow = bent_flow(1, inverse=inverse)
    grid = jnp.linspace(-12, 12, 2001)[:, None]
    log_prob = np.asarray(eqx.filter_jit(lambda q: q.log_prob(grid))(flow))
    assert np.trapezoid(np.exp(log_prob), grid[:, 0]) == pytest.approx(1, abs=1e-6)


def test_standard_starts_near_the_standard_normal():
    flow = AutoregressiveFlow.standard(2, key=jr.key(0), layers=2, width=6)
    log_prob = eqx.filter_jit(lambda q: q.log_prob(jnp.zeros(2)))(flow)
    assert float(log_prob) == pytest.approx(-np.log(2 * np.pi), abs=0.15)


def test_refuses_what_it_cannot_build():
    with pytest.raises(ValueError, match=r"permutation must be one of .*'reverse'.* got 'shuffle'"):
        AutoregressiveFlow(frame(2), key=jr.key(0), permutation="shuffle")
    with pytest.raises(ValueError, match="computes in JAX's default type, float64; its frame is float32"):
        AutoregressiveFlow(FullGaussian.standard(2, jnp.float32), key=jr.key(0))
