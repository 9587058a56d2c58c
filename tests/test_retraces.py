"""One compilation per call shape: a model's Python code runs only while it is traced."""

import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY

CALLS = {
    "eubo": ub.EUBO(iterations=5, draws=8),
    "reverse KL": ub.ReverseKL(iterations=5, draws=8),
    "reverse KL, bank": ub.BankReverseKL(draws=64),
}


class Counter:
    """A Gaussian log-likelihood that counts how often Python evaluates it."""

    def __init__(self):
        self.traces = 0

    def __call__(self, theta, record):
        self.traces += 1
        return -0.5 * (record - theta[0]) ** 2

    def model(self):
        return ub.DensityModel(lambda theta: -0.5 * theta @ theta, self, dim=1)


def _traces(call, repetitions):
    counter = Counter()
    model = counter.model()
    seen = []
    for step in range(repetitions):
        call(model, step)
        seen.append(counter.traces)
    return seen


@pytest.mark.parametrize("name", CALLS)
def test_unlearning_again_traces_nothing(name):
    """Other numbers in the same shapes: another posterior, other records, another key, another λ."""

    def call(model, step):
        full = ub.FullGaussian(jnp.full(1, 0.1 * step), jnp.full((1, 1), 0.5))
        lam = 1e-3 * step
        method = type(CALLS[name])(lam=lam, **_settings(CALLS[name]))
        ub.unlearn(full, model, np.full(3, 0.2 * step), method=method, key=KEY)

    first, *later = _traces(call, 3)
    assert first > 0
    assert later == [first, first]


@pytest.mark.parametrize("name", CALLS)
def test_a_sweep_traces_as_often_as_one_run(name):
    full = ub.FullGaussian(jnp.zeros(1), jnp.full((1, 1), 0.5))
    one, many = (
        _traces(
            lambda model, step, lams=lams: ub.sweep(
                full, model, np.zeros(3), method=CALLS[name], lams=lams, key=KEY
            ),
            1,
        )[0]
        for lams in ([0.5], [0.5, 0.1, 1e-3, 1e-5, 1e-9, 0.0])
    )
    assert many == one


@pytest.mark.parametrize("method", [ub.NaturalGradientVI(), ub.GradientVI(iterations=10, early_stop=False)])
def test_training_again_traces_nothing(method):
    def call(model, step):
        ub.fit(model, np.full(4, 0.3 * step), method=method, key=KEY)

    first, *later = _traces(call, 3)
    assert first > 0
    assert later == [first, first]


def _settings(method):
    return {
        name: getattr(method, name) for name in {"iterations", "draws"} & set(method.__dataclass_fields__)
    }
