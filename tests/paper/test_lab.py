"""Results are kept by what they depend on, whole or not at all."""

import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, trained
from unbayes_paper.base import REVERSE_KL, UPPER_BOUND, Descent
from unbayes_paper.lab import Kept, Lab, fingerprint

POSTERIOR = ub.DiagonalGaussian(jnp.arange(3.0), jnp.ones(3))


def _compute(calls):
    calls.append(1)
    return [Kept(POSTERIOR, {"seconds": 1.5}), Kept(POSTERIOR, {}, ub.Memory(7))]


def test_computes_once(tmp_path):
    calls = []
    lab = Lab(tmp_path)
    first = lab.recall("a thing", (1, np.ones(2)), lambda: _compute(calls))
    second = lab.recall("a thing", (1, np.ones(2)), lambda: _compute(calls))
    assert len(calls) == 1
    assert [kept.facts for kept in second] == [{"seconds": 1.5}, {}]
    assert second[1].memory.records == 7
    np.testing.assert_array_equal(second[0].posterior.mean, first[0].posterior.mean)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1,), (2,)),
        ((np.ones(2),), (np.zeros(2),)),
        ((np.ones(2),), (np.ones((1, 2)),)),
        ((POSTERIOR,), (ub.DiagonalGaussian(jnp.arange(3.0), 2 * jnp.ones(3)),)),
        ((ub.logistic_regression(2),), (ub.poisson_regression(2),)),
        ((str(ub.EUBO(draws=10)),), (str(ub.EUBO(draws=20)),)),
    ],
)
def test_different_things_have_different_fingerprints(left, right):
    assert fingerprint(*left) == fingerprint(*left)
    assert fingerprint(*left) != fingerprint(*right)


def test_where_a_function_lies_in_memory_does_not_count():
    one, other = ((lambda: 0, np.ones(2)) for _ in range(2))
    assert one[0] is not other[0]
    assert fingerprint(*one) == fingerprint(*other)


def test_interrupted_work_leaves_nothing(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Lab(tmp_path).recall("a thing", (), interrupted)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_saved_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="notes"):
        Lab(tmp_path).recall("a thing", (), lambda: [Kept(POSTERIOR, {"bad": float("nan")})])
    assert list(tmp_path.iterdir()) == []


def test_a_run_may_choose_the_optimiser(tmp_path):
    """Its steps are the optimiser's: RMSProp at 1e-4 goes less far in a few steps than Adam at 1e-3."""
    quick, full = Descent(5, 50), Descent(6, 50, optimizer="RMSProp")
    assert Lab(tmp_path, quick=True).descent(quick, full) == quick
    assert Lab(tmp_path).descent(quick, full) == full
    problem, before = linear_gaussian(), trained(linear_gaussian)
    for name in (UPPER_BOUND, REVERSE_KL):
        moved = {}
        for optimizer in ("Adam", "RMSProp"):
            descent = Lab(tmp_path, quick=True, optimizer=optimizer).descent(quick, full)
            assert descent.iterations == 5
            found = ub.unlearn(
                before, problem.model, problem.erased, method=descent.methods[name], key=KEY
            ).posterior
            moved[optimizer] = float(jnp.abs(found.mean - before.mean).max())
        assert 1e-5 < moved["RMSProp"] < 0.5 * moved["Adam"]
