"""The loop of stochastic gradients: its steps are Adam's, and it lets go of what is flat and nothing else."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, trained
from unbayes.inference.stochastic import minimise_each

ITERATIONS = 600
ADAM = optax.adam(1e-2)
# Centres of bowls: the start, near it, and two so far away that Adam is on its way when time is up.
CENTRES = jnp.array([0.0, 0.3, 50.0, -80.0])


class Bowl(eqx.Module):
    centre: jax.Array
    noise: jax.Array

    def __call__(self, candidate, key):
        return ((candidate.mean - self.centre) ** 2).sum() + self.noise * jr.normal(key)


def start():
    return ub.DiagonalGaussian(jnp.zeros(2), jnp.ones(2))


def solve(centres=CENTRES, noise=0.01, **settings):
    return minimise_each(
        Bowl(centres, jnp.asarray(noise)),
        Bowl(0, None),
        start(),
        optimizer=ADAM,
        iterations=ITERATIONS,
        key=KEY,
        **settings,
    )


def by_hand(centre, noise=0.01):
    """Adam, written out."""
    mean, first, second, trace = np.zeros(2), np.zeros(2), np.zeros(2), []
    for step, key in enumerate(jr.split(KEY, ITERATIONS), 1):
        trace.append(((mean - centre) ** 2).sum() + noise * float(jr.normal(key)))
        slope = 2 * (mean - centre)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        mean = mean - 1e-2 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return mean, np.array(trace)


def test_without_a_stop_every_step_is_taken():
    for centre, (found, trace) in zip(CENTRES, solve(), strict=True):
        mean, expected = by_hand(float(centre))
        np.testing.assert_allclose(found.mean, mean, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(trace, expected, rtol=1e-7, atol=1e-9)


def test_what_is_flat_is_let_go_of_and_the_rest_goes_on():
    whole, stopped = solve(), solve(until_flat=True)
    lengths = [len(trace) for _, trace in stopped]
    assert lengths[0] < ITERATIONS
    assert lengths[1] < ITERATIONS
    assert lengths[2:] == [ITERATIONS, ITERATIONS]
    for (found, trace), (last, all_of_it), centre in zip(stopped, whole, CENTRES, strict=True):
        np.testing.assert_allclose(trace, all_of_it[: len(trace)], rtol=1e-12)
        if len(trace) == ITERATIONS:
            np.testing.assert_allclose(found.mean, last.mean, rtol=1e-12)
        else:
            np.testing.assert_allclose(found.mean, centre, atol=0.02)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 1.0])
def test_a_slope_above_the_noise_is_not_flat(noise):
    """Neither down nor, seen backwards, up."""
    for _, trace in solve(CENTRES[2:], noise, until_flat=True):
        assert len(trace) == ITERATIONS


def test_no_stop_without_noise_before_nothing_changes():
    """Where the objective is known exactly it is flat once steps no longer change it."""
    (found, trace), _ = solve(jnp.array([0.0, 50.0]), 0.0, until_flat=True)
    assert len(trace) < ITERATIONS
    np.testing.assert_array_equal(trace, 0)
    np.testing.assert_array_equal(found.mean, 0)


@pytest.mark.long
@pytest.mark.parametrize("method", [ub.EUBO, ub.ReverseKL])
def test_unlearning_stops_where_it_would_have_stayed(method):
    """The same draws: the trace is that of the whole descent, as far as it goes; the end is as close."""
    problem, full = linear_gaussian(), trained(linear_gaussian)
    settings = {"iterations": 3000, "draws": 200, "optimizer": optax.adam(1e-2)}
    lams = [1e-3, 0.0]
    whole, stopped = (
        ub.sweep(
            full,
            problem.model,
            problem.erased,
            method=method(**settings, early_stop=stop),
            lams=lams,
            key=KEY,
        )
        for stop in (False, True)
    )
    exact = ub.unlearn(full, problem.model, problem.erased, method=ub.Exact(), key=KEY).posterior
    for one, other in zip(whole, stopped, strict=True):
        assert len(one.trace) == 3000
        assert len(other.trace) < 3000
        np.testing.assert_allclose(other.trace, one.trace[: len(other.trace)], rtol=1e-6)
        found = [ub.metrics.parameter_kl(exact, each.posterior).value for each in (one, other)]
        assert found[1] < 2 * found[0] + 0.01, found
