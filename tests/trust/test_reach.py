"""A record that drowns all others in rounding is refused, and its row is named."""

import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY
from unbayes.trust.reach import require_reach

ROW = 3


def _posterior(model):
    return ub.FullGaussian(jnp.zeros(model.dim, model.dtype), 0.1 * jnp.eye(model.dim, dtype=model.dtype))


def _regression(value, where):
    x, y = np.ones((5, 1)), np.ones(5)
    (x if where == "inputs" else y)[ROW] = value
    return x, y


MODELS = {
    "linear": lambda: ub.linear_regression(1, noise_scale=0.5),
    "poisson": lambda: ub.poisson_regression(1),
    "logistic": lambda: ub.logistic_regression(1),
    "probit": lambda: ub.LinearModel(
        ub.RawFeatures(1), ub.ProbitLikelihood(), ub.DiagonalGaussian(jnp.zeros(2), jnp.ones(2))
    ),
    "softmax": lambda: ub.softmax_regression(1, 3),
}
FAR = [
    (name, where, value)
    for name in MODELS
    for where in ("inputs", "targets")
    for value in (1e20, -1e20, 1e30)
    # Labels are checked by the likelihood, and counts are not negative.
    if where == "inputs" or name == "linear" or (name == "poisson" and value > 0)
]


@pytest.mark.parametrize(("name", "where", "value"), FAR)
def test_its_row_is_named(name, where, value, dtype):
    model = MODELS[name]()
    evidence = model.encode(_regression(value, where), "erased")
    size = f"{abs(float(dtype.type(value))):.3g}".replace("+", r"\+")
    with pytest.raises(
        ValueError, match=rf"erased must hold records that {dtype}.* {size} in row {ROW}, which"
    ):
        require_reach(_posterior(model), model, evidence)


@pytest.mark.parametrize("name", MODELS)
def test_ordinary_records_and_large_ones_pass(name, dtype):
    """Unscaled columns, such as years or incomes, are no reason to refuse: θ is learnt in their scale."""
    model = MODELS[name]()
    for value in (1.0, 2e3, 1e5):
        posterior = ub.DiagonalGaussian(jnp.zeros(model.dim), jnp.full(model.dim, 1 / value))
        require_reach(posterior, model, model.encode(_regression(value, "inputs"), "erased"))


def test_the_limit_is_a_nat_in_rounding():
    """½ (y/σ)² reaches 1/ε at y = σ √(2/ε)."""
    model = ub.linear_regression(1, noise_scale=1.0)
    posterior = ub.FullGaussian(jnp.zeros(2), 1e-12 * jnp.eye(2))
    limit = np.sqrt(2 / np.finfo(float).eps)
    require_reach(posterior, model, model.encode(_regression(0.99 * limit, "targets"), "erased"))
    with pytest.raises(ValueError, match=r"make a log-likelihood of size 4\.6e"):
        require_reach(posterior, model, model.encode(_regression(1.01 * limit, "targets"), "erased"))


def test_what_says_nothing_but_overflows():
    """A label that is certain has log-likelihood zero, whatever the input; its curvature is 0 · ∞."""
    model = ub.logistic_regression(1)
    posterior = ub.FullGaussian(jnp.array([0.0, 1.0]), 1e-3 * jnp.eye(2))
    with pytest.raises(ValueError, match=f"in row {ROW}, which overflow;"):
        require_reach(posterior, model, model.encode(_regression(1e200, "inputs"), "erased"))


def test_records_of_any_model():
    model = ub.DensityModel(lambda t: -0.5 * t @ t, lambda t, r: -((r["y"] - t[0]) ** 2), dim=1)
    records = {"y": np.array([0.0, 1.0, 1e20]), "kind": np.arange(3)}
    with pytest.raises(ValueError, match=r"forgotten must hold .* in row 2"):
        require_reach(_posterior(model), model, model.encode(records), "forgotten")


def conjugate(model, records):
    return ub.fit(model, records, key=KEY).posterior, model, records


def regression():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 1))
    return x, x[:, 0] + 0.5 * rng.normal(size=40)


CALLS = {
    "exact": (lambda: conjugate(ub.linear_regression(1, noise_scale=0.5), regression()), ub.Exact()),
    "unknown noise": (
        lambda: conjugate(
            ub.UnknownNoiseRegression(
                ub.RawFeatures(1), ub.NormalInverseGamma(np.zeros(2), np.eye(2), 2.0, 2.0)
            ),
            regression(),
        ),
        ub.Exact(),
    ),
    "natural gradient": (
        lambda: conjugate(ub.linear_regression(1, noise_scale=0.5), regression()),
        ub.NaturalGradient(),
    ),
    "bank": (
        lambda: conjugate(ub.linear_regression(1, noise_scale=0.5), regression()),
        ub.BankReverseKL(draws=100),
    ),
    "eubo": (
        lambda: conjugate(ub.linear_regression(1, noise_scale=0.5), regression()),
        ub.EUBO(iterations=2, draws=10),
    ),
    "reverse KL": (
        lambda: conjugate(ub.linear_regression(1, noise_scale=0.5), regression()),
        ub.ReverseKL(iterations=2, draws=10),
    ),
}


@pytest.mark.parametrize("value", [1e10, 1e20, 1e300])
@pytest.mark.parametrize("where", [0, 1], ids=["inputs", "targets"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n == "unknown noise" else ()) for n in CALLS]
)
def test_every_method_says_so(name, where, value):
    """A target of 1e10 was taken out, and the result trusted."""
    make, method = CALLS[name]
    posterior, model, records = make()
    erased = [np.array(part[:5]) for part in records]
    erased[where][ROW] = value
    with pytest.raises(ValueError, match=rf"^erased must hold records .* in row {ROW}, which"):
        ub.unlearn(posterior, model, tuple(erased), method=method, key=KEY)


@pytest.mark.long
def test_transport_says_so():
    posterior, model, (x, _y) = conjugate(ub.linear_regression(1, noise_scale=0.5), regression())
    flow = ub.AutoregressiveFlow(posterior, key=KEY, layers=1, width=4)
    with pytest.raises(ValueError, match=r"^erased must hold records .* in row 0, which"):
        ub.unlearn(flow, model, (x[:1], [1e20]), method=ub.Transport(draws=100), key=KEY)


@pytest.mark.long
@pytest.mark.parametrize("value", [1e10, 1e20, 1e300])
def test_counts_beyond_all_that_was_counted(value):
    model = ub.GammaPoisson(ub.Gamma(1.0, 1.0))
    with pytest.raises(ValueError, match=r"^erased"):
        ub.unlearn(ub.Gamma(100.0, 30.0), model, np.array([3.0, value]), key=KEY)
