"""Every method against closed forms and known limits; a new method is covered by its example."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unbayes as ub
from constructors import DECAYING, METHODS, by_name
from problems import KEY, bimodal, linear_gaussian, logistic, take, trained
from unbayes.metrics import parameter_kl

OPTIMISED = True

FOR_GAUSSIANS = {name: example for name, example in by_name(METHODS).items() if not example.for_flows}
ADJUSTED = {
    "eubo": ub.EUBO(iterations=200, draws=300),
    "reverse KL": ub.ReverseKL(iterations=200, draws=300),
    "reverse KL, bank": ub.BankReverseKL(draws=2000),
}


@pytest.mark.parametrize("example", FOR_GAUSSIANS.values(), ids=FOR_GAUSSIANS)
def test_reaches_the_exact_answer_on_linear_gaussian_data(example):
    method, draws = example.make(), example.draws
    problem = linear_gaussian()
    full, retrained = trained(linear_gaussian), trained(linear_gaussian, "remaining")
    result = ub.unlearn(full, problem.model, problem.erased, method=method, key=KEY)
    size = full.dim + full.dim * (full.dim + 1) / 2
    share = 1.0 if result.effective_sample_size is None else _share_of_effective_draws(result)
    # Expected KL of a Gaussian fitted to n draws is size / 2n; weights leave `share` of the draws.
    monte_carlo_error = size / (2 * draws * share)
    assert parameter_kl(result.posterior, retrained).value <= 4 * monte_carlo_error + 1e-9
    assert 4 * monte_carlo_error < 0.2 * parameter_kl(full, retrained).value
    assert result.trusted, result.doubts


@pytest.mark.parametrize("example", FOR_GAUSSIANS.values(), ids=FOR_GAUSSIANS)
def test_batches_add_up_unless_rows_are_kept(example):
    settings = {"method": example.make(), "key": KEY}
    problem, full = linear_gaussian(), trained(linear_gaussian)
    batches = [take(problem.erased, rows) for rows in (slice(0, 7), slice(7, 20))]
    if settings["method"].keeps_rows:
        with pytest.raises(TypeError, match="reads the erased rows in every iteration"):
            ub.summarise(full, problem.model, batches[0], **settings)
        return
    total = sum(ub.summarise(full, problem.model, batch, **settings) for batch in batches)
    solved = ub.solve(full, problem.model, total, **settings)
    at_once = ub.unlearn(full, problem.model, problem.erased, **settings)
    np.testing.assert_allclose(solved.posterior.mean, at_once.posterior.mean, atol=1e-9, rtol=0)
    np.testing.assert_allclose(solved.posterior.covariance, at_once.posterior.covariance, atol=1e-9, rtol=0)


def _share_of_effective_draws(result):
    draws = getattr(result.method, "draws", 4000)
    diagnosed = draws if isinstance(result.method, ub.BankReverseKL) else 4000
    return result.effective_sample_size / diagnosed


@pytest.mark.parametrize("method", [ub.Exact(), ub.NaturalGradient()])
def test_what_is_exact_is_exact(method):
    problem = linear_gaussian()
    result = ub.unlearn(trained(linear_gaussian), problem.model, problem.erased, method=method, key=KEY)
    retrained = trained(linear_gaussian, "remaining")
    np.testing.assert_allclose(result.posterior.mean, retrained.mean, atol=1e-9)
    np.testing.assert_allclose(result.posterior.covariance, retrained.covariance, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", ["eubo", "reverse KL", "reverse KL, bank"])
def test_bimodal_example_of_the_paper(name):
    """Optima by quadrature: EUBO N(0.0697, 1.0079²), reverse KL N(0.0629, 1.0243²)."""
    full, model, erased = bimodal()
    method = {
        "eubo": ub.EUBO(iterations=4000, optimizer=optax.adam(optax.cosine_decay_schedule(2e-2, 4000))),
        "reverse KL": ub.ReverseKL(
            iterations=4000, draws=4000, optimizer=optax.adam(optax.cosine_decay_schedule(2e-2, 4000))
        ),
        "reverse KL, bank": ub.BankReverseKL(draws=200_000),
    }[name]
    found = ub.unlearn(full, model, erased, method=method, key=KEY).posterior
    mean, scale = (0.0697, 1.0079) if name == "eubo" else (0.0629, 1.0243)
    assert abs(float(found.mean[0]) - mean) <= 0.003
    assert abs(float(found.scale[0]) - scale) <= 0.003


@pytest.mark.parametrize("name", ADJUSTED)
@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
def test_lambda_one_unlearns_nothing(name, family):
    full = trained(logistic, family=family)
    problem = logistic()
    method = type(ADJUSTED[name])(lam=1.0, **_settings(ADJUSTED[name]))
    result = ub.unlearn(full, problem.model, problem.erased, method=method, key=KEY)
    jax.tree.map(np.testing.assert_array_equal, result.posterior, full)
    assert result.information == 0


@pytest.mark.parametrize("name", ADJUSTED)
def test_lambda_zero_is_the_plain_likelihood(name):
    """A threshold below every draw's density changes nothing, so λ → 0 is λ = 0."""
    problem, full = logistic(), trained(logistic)
    tiny, zero = ub.sweep(
        full, problem.model, problem.erased, method=ADJUSTED[name], lams=[1e-300, 0.0], key=KEY
    )
    jax.tree.map(np.testing.assert_array_equal, tiny.posterior, zero.posterior)


@pytest.mark.parametrize("name", ADJUSTED)
def test_a_sweep_is_its_single_runs(name):
    problem, full, method = logistic(), trained(logistic), ADJUSTED[name]
    lams = [1e-1, 1e-3, 0.0]
    swept = ub.sweep(full, problem.model, problem.erased, method=method, lams=lams, key=KEY)
    for lam, result in zip(lams, swept, strict=True):
        single = type(method)(lam=lam, **_settings(method))
        alone = ub.unlearn(full, problem.model, problem.erased, method=single, key=KEY)
        np.testing.assert_allclose(result.posterior.mean, alone.posterior.mean, rtol=1e-8)
        np.testing.assert_allclose(result.posterior.covariance, alone.posterior.covariance, rtol=1e-8)
        assert result.method.lam == lam


def _settings(method):
    names = {"iterations", "draws"} & set(method.__dataclass_fields__)
    return {name: getattr(method, name) for name in names}


@pytest.mark.parametrize("name", ADJUSTED)
@pytest.mark.long
def test_unlearning_brings_the_posterior_closer_to_retraining(name, dtype):
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    retrained = ub.fit(problem.model, problem.remaining, key=KEY).posterior
    result = ub.unlearn(full, problem.model, problem.erased, method=ADJUSTED[name], key=KEY)
    assert result.posterior.dtype == dtype
    assert parameter_kl(result.posterior, retrained).value < 0.8 * parameter_kl(full, retrained).value


@pytest.mark.long
def test_methods_for_a_flow():
    """A flow around the exact posterior of a linear model ends near the exact answer."""
    problem = linear_gaussian()
    full, retrained = trained(linear_gaussian), trained(linear_gaussian, "remaining")
    flow = ub.AutoregressiveFlow(full, key=KEY, layers=1, width=8, inverse=False)
    before = parameter_kl(flow, retrained, key=KEY)
    for method in (
        ub.BankReverseKL(draws=4000, iterations=400, batch_size=200, optimizer=DECAYING),
        ub.EUBO(iterations=400, draws=100, optimizer=DECAYING),
        *(example.make() for example in by_name(METHODS).values() if example.for_flows),
    ):
        result = ub.unlearn(flow, problem.model, problem.erased, method=method, key=KEY)
        after = parameter_kl(result.posterior, retrained, key=KEY)
        assert after.value < 0.2 * before.value
        assert jnp.isfinite(result.information)
