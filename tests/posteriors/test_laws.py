"""What every posterior must do; a new class is covered by its example in `tests/constructors.py`."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
import pytest

from constructors import POSTERIORS, PosteriorExample, by_name
from unbayes.posteriors import AbstractExponentialFamily

ROWS = by_name(POSTERIORS)
EXPONENTIAL = {name: row for name, row in ROWS.items() if row.evidence}


def over(rows):
    return pytest.mark.parametrize("row", rows.values(), ids=rows.keys())


class Measured(NamedTuple):
    """A posterior's draws, its support in small cells, and its mode."""

    posterior: Any
    draws: Any
    draws_alone: Any
    joint: Any
    log_prob: Any
    cells: Any
    cell_log_prob: Any
    cell_probability: Any
    max_log_prob: Any


@pytest.fixture(scope="module", params=ROWS)
def measured(request) -> Measured:
    return _measured(request.param)


def only(names):
    return pytest.mark.parametrize("measured", names, indirect=True)


@functools.cache
def _measured(name: str) -> Measured:
    return measure(ROWS[name])


def measure(row: PosteriorExample, count: int = 200) -> Measured:
    # Arguments, not constants: XLA would fold these while it compiles.
    axes = np.meshgrid(*[(np.arange(count) + 0.5) / count] * row.free, indexing="ij")
    u = np.stack(axes, -1).reshape(-1, row.free) if row.cover else None
    return _measure(row, row.make(), jr.key(0), u)


@eqx.filter_jit
def _measure(row: PosteriorExample, posterior, key, u) -> Measured:
    draws, joint = posterior.sample_and_log_prob(key, (20, 2000))
    cells, size = (posterior.values, 1.0) if row.cover is None else _cells(row, u)
    points = jnp.concatenate([draws.reshape(-1, posterior.dim), cells])
    log_prob, cell_log_prob = jnp.split(posterior.log_prob(points), [joint.size])
    return Measured(
        posterior,
        draws,
        posterior.sample(key, joint.shape),
        joint,
        log_prob.reshape(joint.shape),
        cells,
        cell_log_prob,
        jnp.exp(cell_log_prob) * size,
        posterior.max_log_prob(key),
    )


def _cells(row: PosteriorExample, u):
    """Points that fill the support, and the volume around each."""
    stretch = jnp.linalg.det(jax.vmap(jax.jacfwd(lambda u: row.cover(u)[: row.free]))(u))
    return jax.vmap(row.cover)(u), jnp.abs(stretch) / len(u)


@pytest.mark.long
def test_density_integrates_to_one(measured):
    assert float(measured.cell_probability.sum()) == pytest.approx(1, abs=1e-3)


def test_draws_follow_the_density(measured):
    draws = np.asarray(measured.draws).reshape(-1, measured.posterior.dim)
    for moment in (lambda t: t, lambda t: t**2, lambda t: t[:, :1] * t):
        expected = measured.cell_probability @ moment(measured.cells)
        error = moment(draws).std(0) / np.sqrt(len(draws))
        np.testing.assert_array_less(np.abs(moment(draws).mean(0) - expected), 4.5 * error + 2e-3)


def test_same_key_same_draw(measured):
    np.testing.assert_array_equal(measured.draws_alone, measured.draws)
    assert not np.array_equal(measured.draws[0], measured.draws[1])


def test_joint_density_agrees_with_log_prob(measured):
    np.testing.assert_allclose(measured.joint, measured.log_prob, rtol=0, atol=1e-9)


def test_nothing_is_denser_than_the_mode(measured):
    top = float(measured.max_log_prob)
    assert top >= float(measured.log_prob.max()) - 1e-12
    assert top >= float(measured.cell_log_prob.max()) - 1e-12


@only([name for name, row in ROWS.items() if row.evidence or not row.cover])
def test_entropy_is_that_of_the_density(measured):
    expected = -measured.cell_probability @ measured.cell_log_prob
    assert float(measured.posterior.entropy()) == pytest.approx(float(expected), abs=2e-3)


@pytest.mark.long
def test_vmap_over_posteriors_changes_nothing(measured):
    theta = measured.draws[0, :4]
    arrays, rest = eqx.partition(measured.posterior, eqx.is_array)
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), arrays)
    batched = jax.jit(jax.vmap(lambda a: eqx.combine(a, rest).log_prob(theta)))(twice)
    np.testing.assert_allclose(batched, [measured.log_prob[0, :4]] * 2, rtol=0, atol=1e-9)


@only([name for name, row in ROWS.items() if row.cover])
def test_gradients_agree_with_differences(measured):
    arrays, rest = eqx.partition(
        measured.posterior,
        eqx.is_inexact_array,
        is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable),
    )

    @jax.jit
    def slopes(left, right):
        def log_prob(at):
            """Along a line through the support, and along the ray of the parameters."""
            stretched = eqx.combine(jax.tree.map(lambda leaf: leaf * at[1], arrays), rest)
            return stretched.log_prob(left + at[0] * (right - left))

        at, step = jnp.array([0.4, 1.0]), 1e-5
        ahead, behind = (jax.vmap(log_prob)(at + side * step * jnp.eye(2)) for side in (1, -1))
        return jax.grad(log_prob)(at), (ahead - behind) / (2 * step)

    gradient, difference = slopes(*measured.draws[0, :2])
    np.testing.assert_allclose(gradient, difference, rtol=1e-5, atol=1e-7)
    assert np.abs(difference).min() > 1e-3


@over(ROWS)
def test_shapes_and_types(row, dtype):
    """Traced, not computed: nothing has to be compiled."""

    def of_shape(shape):
        posterior = row.make()
        theta, joint = posterior.sample_and_log_prob(jr.key(0), shape)
        scalars = [posterior.entropy()] if isinstance(posterior, AbstractExponentialFamily) else []
        modes = [posterior.mode()] if scalars else []
        return [theta, posterior.sample(jr.key(0), shape)], [joint, posterior.log_prob(theta)], modes, scalars

    dim = row.make().dim if row.free == 0 else len(row.cover(jnp.full(row.free, 0.5)))
    for shape in ((), (3,), (2, 3)):
        vectors, numbers, modes, scalars = eqx.filter_eval_shape(of_shape, shape)
        assert {leaf.shape for leaf in vectors} == {(*shape, dim)}
        assert {leaf.shape for leaf in numbers} == {shape}
        assert {leaf.shape for leaf in modes} <= {(dim,)}
        assert {leaf.shape for leaf in scalars} <= {()}
        assert {leaf.dtype for leaf in (*vectors, *numbers, *modes, *scalars)} == {dtype}


@over(ROWS)
def test_refuses_legacy_keys_and_wrong_shapes(row):
    posterior = row.make()
    for call in (posterior.sample, posterior.sample_and_log_prob):
        with pytest.raises(TypeError, match=r"key must be a typed key .* uint32"):
            call(jr.PRNGKey(0))
    for shape in ((), (posterior.dim + 1,), (posterior.dim, posterior.dim + 1)):
        with pytest.raises(ValueError, match=f"theta must have a last axis of length {posterior.dim}, got"):
            posterior.log_prob(np.zeros(shape))


@over(ROWS)
def test_is_immutable(row):
    posterior = row.make()
    name = dataclasses.fields(posterior)[0].name
    with pytest.raises(AttributeError):
        setattr(posterior, name, getattr(posterior, name))


@over({name: row for name, row in ROWS.items() if row.evidence or not row.cover})
def test_natural_parameters_round_trip(row):
    def close(left, right):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10), left, right)

    posterior = row.make()
    close(posterior.with_natural(posterior.natural), posterior)
    moved = posterior.with_natural(jax.tree.map(lambda a: 1.5 * a, posterior.natural))
    assert type(moved) is type(posterior)
    close(moved.with_natural(jax.tree.map(lambda a: a / 1.5, moved.natural)), posterior)


@pytest.mark.long
@over(EXPONENTIAL)
def test_evidence_left_counts_what_was_taken(row):
    prior, evidence = row.make(), row.evidence()
    posterior = prior.with_natural(jax.tree.map(jnp.add, prior.natural, evidence))

    def left(share):
        natural = jax.tree.map(lambda own, added: own - share * added, posterior.natural, evidence)
        return float(posterior.evidence_left(natural, prior))

    assert 0.9 < left(0.0) < 1
    assert left(0.5) == pytest.approx(left(0.0) / 2)
    assert left(1.0) == pytest.approx(0, abs=1e-12)
    assert left(1.001) < 0
    assert left(2.0) < -0.5
