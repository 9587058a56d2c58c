"""What is compiled, and how often: a model's Python code runs only while it is traced."""

import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, logistic, trained
from unbayes.inference import stochastic

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


def test_a_memory_that_loses_records_traces_nothing():
    records = np.linspace(-1, 2, 100)
    kept = []

    def call(model, step):
        if not kept:
            kept.append(ub.fit(model, records, memory=60, key=KEY))
        state = kept[-1]
        one = np.asarray(state.memory.coreset)[:1]
        kept.append(ub.unlearn(state.posterior, model, one, memory=state.memory, key=KEY))

    first, *later = _traces(call, 3)
    assert [state.memory.size for state in kept] == [60, 59, 58, 57]
    assert first > 0
    assert later == [first, first]


def test_sums_that_are_handed_on_trace_nothing():
    """Other records, another belief, other directions: the same shapes."""
    records, kept = np.linspace(-1, 2, 100), []

    def call(model, step):
        if not kept:
            kept.append(ub.fit(model, records, memory="sums", key=KEY))
        state, some = kept[-1], records[5 * step : 5 * step + 5]
        kept.append(ub.unlearn(state.posterior, model, some, memory=state.memory, key=KEY))

    first, *later = _traces(call, 3)
    assert [state.memory.records for state in kept] == [100, 95, 90, 85]
    assert all(state.memory.sums is not None for state in kept)
    assert first > 0
    assert later == [first, first]


@pytest.mark.parametrize("method", [ub.EUBO, ub.ReverseKL])
def test_sweeps_leave_lapack_alone(method, monkeypatch):
    """Two batches of its calls at once may wait for each other for ever: see `unbayes._numerics.linalg`."""
    problem, programs = logistic(), []
    advance = stochastic._advance

    def advance_and_tell(*arguments):
        programs.append(advance.lower(*arguments).as_text())
        return advance(*arguments)

    monkeypatch.setattr(stochastic, "_advance", advance_and_tell)
    unlearning = method(iterations=2, draws=3, whiten=False)
    ub.sweep(trained(logistic), problem.model, problem.erased, method=unlearning, lams=[0.5, 0.1], key=KEY)
    assert len(programs) == 1
    assert "dot_general" in programs[0]
    assert "lapack" not in programs[0]


def _settings(method):
    return {
        name: getattr(method, name) for name in {"iterations", "draws"} & set(method.__dataclass_fields__)
    }
