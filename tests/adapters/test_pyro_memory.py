"""Memories of Pyro guides: against the same densities in JAX, and against training without the records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pyro = pytest.importorskip("pyro", reason="needs the extra torch; run make test-torch")
torch = pytest.importorskip("torch")

import pyro.distributions as dist
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

import unbayes as ub
from reachable import rows_found
from unbayes.adapters.pyro import remember, unlearn
from unbayes.metrics import parameter_kl

from .test_pyro import (
    COUNTS,
    ERASED,
    KEY,
    REMAINING,
    X,
    Y,
    belief,
    counts,
    counts_log_likelihood,
    counts_record,
    regression_log_likelihood,
    set_belief,
    tensors,
    trained_regression,
)


@pytest.fixture(autouse=True)
def own_parameter_store():
    with pyro.get_param_store().scope():
        yield


def counts_log_prior(sites):
    rate, share = sites["rate"], sites["share"]
    return dist.Gamma(torch.tensor(2.0), 1.0).log_prob(rate) + dist.Beta(1.0, 1.0).log_prob(share)


def counts_prior(theta):
    """The same in JAX on the unconstrained scale, up to a constant."""
    return 2 * theta[0] - jnp.exp(theta[0]) + jax.nn.log_sigmoid(theta[1]) + jax.nn.log_sigmoid(-theta[1])


def records(rows=slice(None)):
    return {name: column[rows] for name, column in COUNTS.items()}


def as_tensors(rows=slice(None)):
    return {name: torch.tensor(column) for name, column in records(rows).items()}


def trained_counts(memory, family=ub.FullGaussian):
    """In JAX, and a guide with that belief."""
    with jax.enable_x64(True):
        model = ub.DensityModel(counts_prior, counts_record, dim=2)
        trained = ub.fit(model, records(), family=family, memory=memory, key=KEY)
        root = np.asarray(trained.posterior.to_full().scale_tril)
        kind = AutoMultivariateNormal if family is ub.FullGaussian else AutoDiagonalNormal
        guide = set_belief(kind(counts), np.asarray(trained.posterior.mean), root, as_tensors())
    return model, trained, guide


KINDS = {
    "sums": ("sums", ub.FullGaussian),
    "third, diagonal": (ub.Sums(order=3), ub.DiagonalGaussian),
    "curvature": ("curvature", ub.DiagonalGaussian),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.long
def test_a_memory_does_what_that_of_the_same_density_in_jax_does(name):
    """Derivatives of likelihood and prior by PyTorch, on the same nodes."""
    memory, family = KINDS[name]
    model, trained, guide = trained_counts(memory, family)
    kept = remember(guide, counts_log_likelihood, counts_log_prior, as_tensors(), memory, key=KEY)
    assert kept.stationarity < 1e-4
    recovered, result = unlearn(guide, counts_log_likelihood, as_tensors(slice(4)), memory=kept, key=KEY)
    with jax.enable_x64(True):
        erased = records(slice(4))
        expected = ub.unlearn(trained.posterior, model, erased, memory=trained.memory, key=KEY)
        alone = ub.unlearn(trained.posterior, model, erased, key=KEY)
    found = belief(recovered)
    np.testing.assert_allclose(found[0], expected.posterior.mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], expected.posterior.covariance, rtol=1e-6)
    assert np.abs(found[0] - alone.posterior.mean).max() > 1e-5
    assert result.trust.measures.order == expected.trust.measures.order
    assert (result.memory.records, result.memory.sums is None) == (21, expected.memory.sums is None)


def test_sums_bring_a_guide_close_to_training_without_the_records():
    model, _, guide = trained_counts(None)
    with jax.enable_x64(True):
        retrained = ub.fit(model, records(slice(4, None)), key=KEY)
    kept = remember(guide, counts_log_likelihood, counts_log_prior, as_tensors(), key=KEY)
    assert (kept.size, kept.sums.derivatives.order) == (0, 4)

    def off(memory):
        found, _ = unlearn(guide, counts_log_likelihood, as_tensors(slice(4)), memory=memory, key=KEY)
        with jax.enable_x64(True):
            return float(
                parameter_kl(ub.FullGaussian.from_covariance(*belief(found)), retrained.posterior).value
            )

    assert off(kept) < 0.1 * off(None)


def log_prior(sites):
    return (dist.Normal(0.0, 2.0).log_prob(sites["weights"])).sum() + dist.Normal(0.0, 2.0).log_prob(
        sites["bias"]
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_memory_serves_the_guide_it_was_kept_for_and_the_one_that_comes_back(dtype):
    guide, names = trained_regression(dtype), [f"person {i}" for i in range(60)]
    given = tensors(X, Y, dtype=dtype)
    kept = remember(guide, regression_log_likelihood, log_prior, given, ids=names, key=KEY)
    assert kept.stationarity < (1e-9 if dtype is torch.float64 else 1e-3)
    erased = tensors(X[ERASED], Y[ERASED], dtype=dtype)
    settings = {"ids": names[ERASED], "key": KEY}
    recovered, result = unlearn(guide, regression_log_likelihood, erased, memory=kept, **settings)
    assert rows_found((kept, recovered, result), X) == 0
    with pytest.raises(ValueError, match="10 of 10 are not: 'person 0'"):
        unlearn(recovered, regression_log_likelihood, erased, memory=result.memory, **settings)
    with pytest.raises(ValueError, match="kept for this posterior"):
        unlearn(recovered, regression_log_likelihood, erased, memory=kept, **settings)
    more = {"ids": names[10:15], "key": KEY, "memory": result.memory}
    _, later = unlearn(recovered, regression_log_likelihood, tensors(X[10:15], Y[10:15], dtype=dtype), **more)
    assert later.memory.records == len(X[REMAINING]) - 5


class _Cube(torch.autograd.Function):
    """x³, of which nobody wrote the third derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, slope):
        return slope * _Slope.apply(*ctx.saved_tensors)


class _Slope(_Cube):
    @staticmethod
    def forward(x):
        return 3 * x**2

    @staticmethod
    def backward(ctx, slope):
        return slope * _Curvature.apply(*ctx.saved_tensors)


class _Curvature(_Cube):
    @staticmethod
    def forward(x):
        return 6 * x

    @staticmethod
    def backward(ctx, slope):
        raise RuntimeError("there is no third derivative")


def test_functions_that_are_differentiated_twice_alone_leave_no_sums():
    def twice(sites):
        return log_prior(sites) + 0.0 * _Cube.apply(sites["bias"])

    call = (trained_regression(), regression_log_likelihood, twice, tensors(X, Y))
    with pytest.raises(
        ValueError, match=r"log_prior must .* differentiate four times; .* needs two, got there"
    ):
        remember(*call, key=KEY)
    assert remember(*call, "curvature", key=KEY).sums is None


BAD = {
    "one number per weight": (
        {"log_prior": lambda sites: dist.Normal(0.0, 2.0).log_prob(sites["weights"])},
        r"log_prior must return one number for all sites, shape \(\), got shape \(2,\)",
    ),
    "no tensor": ({"log_prior": lambda sites: 0.0}, r"log_prior must return one number .*, got float"),
    "impossible": (
        {"log_prior": lambda sites: sites["bias"] * torch.inf},
        r"log_prior must be finite at the mean of the guide",
    ),
    "likelihood": (
        {"log_likelihood": lambda sites, records: 0.0},
        r"log_likelihood must return one number per record, shape \(60,\), got float",
    ),
    "kind": ({"memory": "all"}, r"memory must be 'sums', .*, got 'all'"),
    "records to keep": (
        {"memory": ("sums", 10)},
        r"memory must be 'sums', 'curvature' or None for a guide of Pyro, .*, got Coreset\(size=10\)",
    ),
    "key": ({"key": 0}, r"key must come from jax.random.key, got 0"),
    "records": ({"records": tensors(X[:2], Y[:3])}, r"records must share their leading axis, got lengths"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_refused(name):
    given, match = BAD[name]
    call = {
        "log_likelihood": regression_log_likelihood,
        "log_prior": log_prior,
        "records": tensors(X, Y),
        "key": KEY,
        **given,
    }
    with pytest.raises((TypeError, ValueError), match=match):
        remember(trained_regression(), **call)
