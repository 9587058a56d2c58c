"""Pyro guides against conjugate posteriors, the same densities in JAX, and retraining by SVI."""

import functools
import json
import os
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

pyro = pytest.importorskip("pyro", reason="needs the extra torch; run make test-torch")
torch = pytest.importorskip("torch")

import pyro.distributions as dist
from pyro.infer import SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDelta, AutoDiagonalNormal, AutoMultivariateNormal, AutoNormal

import unbayes as ub
from reachable import rows_found
from unbayes.adapters.pyro import unlearn
from unbayes.metrics import parameter_kl

# More threads than idle cores only wait for each other.
torch.set_num_threads(1)

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X @ [1.0, -2.0] + 0.4 + 0.5 * RNG.normal(size=60)
ERASED, REMAINING = slice(0, 10), slice(10, 60)


@pytest.fixture(autouse=True)
def own_parameter_store():
    with pyro.get_param_store().scope():
        yield


def tensors(*arrays, dtype=torch.float64):
    return tuple(torch.tensor(array, dtype=dtype) for array in arrays)


def set_belief(guide, mean, scale_tril, *arguments):
    """Make N(mean, scale_tril scale_trilᵀ) the guide's distribution of its flat latent."""
    guide(*arguments)
    scale = np.diag(scale_tril).copy()
    with torch.no_grad():
        guide.loc.copy_(torch.tensor(mean))
    guide.scale = torch.tensor(scale).to(guide.loc)
    if isinstance(guide, AutoMultivariateNormal):
        guide.scale_tril = torch.tensor(scale_tril / scale[:, None]).to(guide.loc)
    return guide


def belief(guide):
    """Mean and covariance of the flat latent, as Pyro tells them."""
    with torch.no_grad():
        posterior = guide.get_posterior()
        mean = posterior.mean.double().numpy()
        if isinstance(guide, AutoMultivariateNormal):
            return mean, posterior.covariance_matrix.double().numpy()
        return mean, np.diag(posterior.variance.double().numpy())


def state(guide):
    return {name: value.clone() for name, value in guide.state_dict().items()}


def assert_unchanged(before, guide):
    assert before.keys() == guide.state_dict().keys()
    assert all(torch.equal(value, before[name]) for name, value in guide.state_dict().items())


def regression(x, y=None):
    weights = pyro.sample("weights", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    bias = pyro.sample("bias", dist.Normal(torch.zeros((), dtype=x.dtype), 2.0))
    with pyro.plate("records", len(x)):
        pyro.sample("y", dist.Normal((x * weights).sum(-1) + bias, 0.5), obs=y)


def regression_log_likelihood(sites, records):
    x, y = records
    return dist.Normal(x @ sites["weights"] + sites["bias"], 0.5).log_prob(y)


def regression_posterior(rows):
    design = np.c_[X[rows], np.ones(len(X[rows]))]
    covariance = np.linalg.inv(np.eye(3) / 4 + design.T @ design / 0.25)
    return covariance @ design.T @ Y[rows] / 0.25, covariance


def trained_regression(dtype=torch.float64):
    mean, covariance = regression_posterior(slice(None))
    x, y = tensors(X, Y, dtype=dtype)
    return set_belief(AutoMultivariateNormal(regression), mean, np.linalg.cholesky(covariance), x, y)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_linear_regression_is_the_conjugate_posterior(dtype, tolerance):
    guide = trained_regression(dtype)
    before = state(guide)
    erased = tensors(X[ERASED], Y[ERASED], dtype=dtype)
    recovered, result = unlearn(guide, regression_log_likelihood, erased, tolerance=1, key=KEY)
    for own, expected in zip(belief(recovered), regression_posterior(REMAINING), strict=True):
        np.testing.assert_allclose(own, expected, atol=tolerance)
    assert recovered.loc.dtype == dtype
    assert result.trusted
    assert result.records == 10
    assert_unchanged(before, guide)


def test_means_of_a_diagonal_guide_are_the_conjugate_posterior():
    """Three independent means, so that the exact posterior is diagonal."""
    y = RNG.normal([1.0, 0.0, -1.0], size=(30, 3))

    def model(y):
        theta = pyro.sample("theta", dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0).to_event(1))
        with pyro.plate("records", len(y)):
            pyro.sample("y", dist.Normal(theta, 0.7).to_event(1), obs=y)

    def exact(y):
        precision = 1 + len(y) / 0.49
        return y.sum(0) / 0.49 / precision, np.eye(3) / precision

    mean, covariance = exact(y)
    guide = set_belief(AutoDiagonalNormal(model), mean, np.sqrt(covariance), *tensors(y))
    recovered, result = unlearn(
        guide,
        lambda sites, y: dist.Normal(sites["theta"], 0.7).to_event(1).log_prob(y),
        torch.tensor(y[:5]),
        key=KEY,
        in_place=True,
    )
    assert recovered is guide
    for own, expected in zip(belief(guide), exact(y[5:]), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-9)
    assert "A memory of sums brings the result closer" in result.doubts[0]


COUNTS = {"count": RNG.poisson(3.0, 25), "exposure": RNG.uniform(0.5, 2.0, 25)}


def counts(records):
    rate = pyro.sample("rate", dist.Gamma(torch.tensor(2.0, dtype=torch.float64), 1.0))
    share = pyro.sample("share", dist.Beta(torch.tensor(1.0, dtype=torch.float64), 1.0))
    with pyro.plate("records", 25):
        pyro.sample("y", dist.Poisson(rate * share * records["exposure"]), obs=records["count"])


def counts_log_likelihood(sites, records):
    return dist.Poisson(sites["rate"] * sites["share"] * records["exposure"]).log_prob(records["count"])


def counts_record(theta, record):
    """The same in JAX, on the unconstrained scale: θ = (log rate, log-odds of the share)."""
    mean = jnp.exp(theta[0]) * jax.nn.sigmoid(theta[1]) * record["exposure"]
    count = jnp.asarray(record["count"], mean.dtype)
    return count * jnp.log(mean) - mean - jax.scipy.special.gammaln(count + 1)


METHODS = {
    "natural gradient": ub.NaturalGradient(),
    "bank": ub.BankReverseKL(draws=200),
    "EUBO": ub.EUBO(lam=1e-3, iterations=10, draws=20),
}


@pytest.mark.parametrize("name", METHODS)
def test_constrained_sites_give_what_the_same_density_in_jax_gives(name):
    """Values, gradients and second derivatives by PyTorch, on the same random numbers."""
    mean, scale_tril = np.array([1.6, 0.5]), np.array([[0.3, 0.0], [-0.2, 0.35]])
    records = {name: torch.tensor(column) for name, column in COUNTS.items()}
    guide = set_belief(AutoMultivariateNormal(counts), mean, scale_tril, records)
    erased = {name: column[:4] for name, column in records.items()}
    recovered, result = unlearn(guide, counts_log_likelihood, erased, method=METHODS[name], key=KEY)
    model = ub.DensityModel(lambda theta: norm.logpdf(theta).sum(), counts_record, dim=2)
    expected = ub.unlearn(
        ub.FullGaussian(mean, scale_tril),
        model,
        {name: column[:4] for name, column in COUNTS.items()},
        method=METHODS[name],
        key=KEY,
    )
    found = belief(recovered)
    np.testing.assert_allclose(found[0], expected.posterior.mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], expected.posterior.covariance, rtol=1e-6)
    assert np.abs(found[0] - mean).max() > 1e-3
    assert (result.khat is None) == (expected.khat is None)


# Those with the smallest first coordinate are erased: they mattered.
SORTED = X[np.argsort(X[:, 0])]
LABELS = (RNG.random(60) < 1 / (1 + np.exp(-SORTED @ [2.0, -1.0]))).astype(np.float32)


def logistic(x, y=None):
    weights = pyro.sample("weights", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    with pyro.plate("records", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=(x * weights).sum(-1)), obs=y)


@functools.cache
def trained_by_svi(start=0):
    """In float32, as PyTorch does unless told otherwise."""
    x, y = tensors(SORTED[start:], LABELS[start:], dtype=torch.float32)
    pyro.set_rng_seed(0)
    guide = AutoMultivariateNormal(logistic)
    optimizer = pyro.optim.ClippedAdam({"lr": 0.2, "lrd": 0.98, "betas": (0.9, 0.99)})
    svi = SVI(logistic, guide, optimizer, Trace_ELBO(num_particles=100, vectorize_particles=True))
    # Guides of one name share what is in the store.
    with pyro.get_param_store().scope():
        for _ in range(250):
            svi.step(x, y)
    return guide, svi


def test_logistic_regression_is_close_to_retraining_by_svi():
    (guide, svi), (retrained, _) = trained_by_svi(), trained_by_svi(REMAINING.start)
    before = state(guide)

    def log_likelihood(sites, records):
        x, y = records
        return dist.Bernoulli(logits=x @ sites["weights"]).log_prob(y)

    erased = tensors(SORTED[ERASED], LABELS[ERASED], dtype=torch.float32)
    recovered, result = unlearn(guide, log_likelihood, erased, tolerance=1, key=KEY)
    found, old, new = (
        ub.FullGaussian.from_covariance(*belief(module)) for module in (recovered, guide, retrained)
    )
    assert result.trusted
    assert parameter_kl(found, new).value < 0.15 * parameter_kl(old, new).value
    # The original is what it was, and can still be trained.
    assert_unchanged(before, guide)
    svi.step(*tensors(SORTED, LABELS, dtype=torch.float32))


def test_a_copy_has_parameters_of_its_own_in_the_store():
    guide = trained_regression()
    x, y = tensors(X, Y)
    everyone = {(): guide}
    for erased in (range(10), range(10, 20)):
        records = x[list(erased)], y[list(erased)]
        everyone[erased], _ = unlearn(guide, regression_log_likelihood, records, key=KEY)
    for module in everyone.values():
        assert Predictive(regression, guide=module, num_samples=3)(x)["y"].shape == (3, 60)
    for erased, module in everyone.items():
        remaining = np.delete(np.arange(60), list(erased))
        for own, expected in zip(belief(module), regression_posterior(remaining), strict=True):
            np.testing.assert_allclose(own, expected, atol=1e-9)


def test_a_second_request_in_place_is_noticed():
    guide = trained_regression()
    unlearn(guide, regression_log_likelihood, tensors(X[:5], Y[:5]), key=KEY, in_place=True)
    before = state(guide)
    for in_place in (True, False):
        with pytest.raises(ValueError, match=r"guide was already changed in place by an earlier unlearn"):
            unlearn(guide, regression_log_likelihood, tensors(X[5:9], Y[5:9]), key=KEY, in_place=in_place)
    assert_unchanged(before, guide)


def test_requests_at_once_lose_none_silently():
    """Of several threads, one writes; the others say that they did not."""
    guide = trained_regression()
    start = threading.Barrier(3)

    def request(row):
        start.wait()
        erased = tensors(X[row : row + 1], Y[row : row + 1])
        try:
            unlearn(guide, regression_log_likelihood, erased, key=KEY, in_place=True)
        except (RuntimeError, ValueError) as error:
            return str(error)
        return row

    with futures.ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(request, range(3)))
    erased = [answer for answer in answers if isinstance(answer, int)]
    assert len(erased) == 1
    for answer in answers:
        assert answer in erased or "changed by another call while" in answer or "already changed" in answer
    expected = regression_posterior(np.delete(np.arange(60), erased))
    np.testing.assert_allclose(belief(guide)[0], expected[0], atol=1e-9)


def test_in_place_the_store_sees_the_result():
    guide = trained_regression()
    guide(*tensors(X, Y))
    parameters = list(guide.parameters())
    unlearn(guide, regression_log_likelihood, tensors(X[ERASED], Y[ERASED]), key=KEY, in_place=True)
    assert all(old is new for old, new in zip(parameters, guide.parameters(), strict=True))
    scale = pyro.param("AutoMultivariateNormal.scale").detach().numpy()
    _, covariance = regression_posterior(REMAINING)
    np.testing.assert_allclose(scale, np.diag(np.linalg.cholesky(covariance)), rtol=1e-6)


SCRIPT = """
import json, jax, torch, test_pyro
guide = test_pyro.trained_regression()
erased = test_pyro.tensors(test_pyro.X[:10], test_pyro.Y[:10])
test_pyro.unlearn(guide, test_pyro.regression_log_likelihood, erased, key=jax.random.key(0), in_place=True)
assert jax.numpy.ones(1).dtype == "float32"
print(json.dumps(guide.loc.tolist()))
"""


def test_no_digit_is_lost_where_jax_computes_in_single_precision():
    """Threads of callbacks see the setting of the process, which the tests have changed."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path, "JAX_ENABLE_X64": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected, _ = regression_posterior(REMAINING)
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-9)


def bends_sharply(sites, records):
    return -(sites["bias"] - sites["bias"].detach()).abs().sqrt() + records[1]


def values_decide(sites, records):
    _, y = records
    return y * (1.0 if float(sites["bias"]) > 0 else 2.0)


GOOD = tensors(X[:2], Y[:2])
BAD_CALLS = {
    "normal guide": ({"guide": lambda: AutoNormal(regression)}, r"guide must be .*, got AutoNormal"),
    "point guide": ({"guide": lambda: AutoDelta(regression)}, r"guide must be .*, got AutoDelta"),
    "never run": (
        {"guide": lambda: AutoMultivariateNormal(regression)},
        r"guide must be trained, got one that was never run",
    ),
    "one number": (
        {"log_likelihood": lambda sites, records: regression_log_likelihood(sites, records).sum()},
        r"log_likelihood must return one number per record, shape \(2,\), got shape \(\)",
    ),
    "no tensor": (
        {"log_likelihood": lambda sites, records: 0.0},
        r"log_likelihood must return one number per record, shape \(2,\), got float",
    ),
    "impossible": (
        {"log_likelihood": lambda sites, records: -records[1] * torch.inf},
        r"log_likelihood must be finite at the mean of the guide",
    ),
    "no derivative": (
        {"log_likelihood": bends_sharply},
        r"log_likelihood must have finite derivatives at the mean of the guide",
    ),
    "control flow": (
        {"log_likelihood": values_decide},
        r"log_likelihood must be written in operations that torch.func can map and differentiate twice, got",
    ),
    "not a number": ({"erased": (GOOD[0], GOOD[1] * torch.nan)}, r"erased must be finite .*nan in row 0"),
    "lengths": ({"erased": tensors(X[:2], Y[:3])}, r"erased must share their leading axis, got lengths"),
    "no records": ({"erased": tensors(X[:0], Y[:0])}, r"erased must hold at least one record, got none"),
    "key": ({"key": 0}, r"key must come from jax.random.key, got 0"),
    "method": ({"method": ub.Exact()}, r"method Exact needs a posterior that is conjugate to the model"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_leaves_the_guide_untouched(name):
    given, match = BAD_CALLS[name]
    call = {"log_likelihood": regression_log_likelihood, "erased": GOOD, "key": KEY, **given}
    guide = call.pop("guide", trained_regression)()
    before = state(guide)
    with pytest.raises((TypeError, ValueError), match=match):
        unlearn(guide, call.pop("log_likelihood"), call.pop("erased"), in_place=True, **call)
    assert_unchanged(before, guide)


def test_no_erased_row_is_reachable_from_a_copy():
    guide, records = trained_regression(), tensors(X, Y)
    assert rows_found(guide, X) == len(X)  # Pyro's own guide keeps what it was set up with.
    copy, result = unlearn(guide, regression_log_likelihood, tensors(X[ERASED], Y[ERASED]), key=KEY)
    assert rows_found((copy, result), X) == 0
    assert copy(*records).keys() == guide(*records).keys()
