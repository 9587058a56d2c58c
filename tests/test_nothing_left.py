"""Nothing of an erased record is reachable from a result, nor kept on disk."""

import functools
import os
import subprocess
import sys
import types
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from reachable import rows_found

KEY = jax.random.key(0)


@functools.cache
def records() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    return x, (x @ [1.5, -1.0, 0.5] + rng.logistic(size=400) > 0).astype(int)


def test_the_walk_finds_rows_wherever_they_hide():
    x = records()[0][:5]

    def closure():
        return x

    hiding = [x, {"a": (x,)}, closure, functools.partial(print, x), types.SimpleNamespace(x=x)]
    hiding += [lambda rows=x: rows, ub.Memory(5, coreset=jnp.asarray(x), weights=jnp.ones(5))]
    for place in hiding:
        assert rows_found(place, x) == 5
    assert rows_found(jnp.asarray(x) + 1, x) == 0


METHODS = {
    "Auto": ub.Auto(),
    "NaturalGradient": ub.NaturalGradient(),
    "EUBO": ub.EUBO(1e-3, iterations=20, draws=10),
    "ReverseKL": ub.ReverseKL(1e-3, iterations=20, draws=10),
    "BankReverseKL": ub.BankReverseKL(draws=500),
}


@pytest.mark.parametrize(
    "family", [ub.FullGaussian, pytest.param(ub.DiagonalGaussian, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_erased_row_is_reachable_from_a_result(method, family):
    x, y = records()
    model = ub.logistic_regression(3, prior_scale=3.0)
    trained = ub.fit(model, (x, y), family=family, memory=200, key=KEY)
    assert rows_found(trained.memory, x) == trained.memory.size
    result = ub.unlearn(
        trained.posterior, model, (x[:60], y[:60]), memory=trained.memory, method=method, key=KEY
    )
    assert rows_found(result, x[:60]) == 0
    # What is left of the memory is handed on, and nothing else that was dropped from it.
    assert rows_found(result, x[60:]) == result.memory.size > 0


@pytest.mark.long
def test_sums_hold_no_row():
    """Neither those that training keeps, of anybody, nor what a result hands on, nor statistics."""
    x, y = records()
    model = ub.logistic_regression(3, prior_scale=3.0)
    trained = ub.fit(model, (x, y), memory=("sums", 100), key=KEY)
    assert rows_found(trained.memory.only("sums"), x) == 0
    erased = (x[:60], y[:60])
    for memory in (trained.memory.only("sums"), trained.memory):
        options = {"memory": memory, "method": ub.NaturalGradient(), "key": KEY}
        assert rows_found(ub.summarise(trained.posterior, model, erased, **options), x) == 0
        result = ub.unlearn(trained.posterior, model, erased, **options)
        assert result.trust.measures.order == 4
        assert result.memory.sums is not None
        assert rows_found(result, x[:60]) == 0
        assert rows_found(result, x[60:]) == result.memory.size


def test_a_memory_made_of_the_erased_records_is_not_handed_on():
    x, y = records()
    model = ub.logistic_regression(3, prior_scale=3.0)
    trained = ub.fit(model, (x, y), key=KEY)
    erased = (x[:60], y[:60])
    memory = trained.memory.with_sample(model, erased, key=KEY)
    result = ub.unlearn(trained.posterior, model, erased, memory=memory, key=KEY)
    assert result.trust.measures.coverage > 0
    assert rows_found(result, x) == 0


def test_no_row_is_reachable_from_statistics():
    x, y = records()
    model = ub.logistic_regression(3, prior_scale=3.0)
    trained = ub.fit(model, (x, y), memory=200, key=KEY)
    for method in (ub.NaturalGradient(), ub.BankReverseKL(draws=500)):
        statistics = ub.summarise(
            trained.posterior, model, (x[:60], y[:60]), memory=trained.memory, method=method, key=KEY
        )
        assert rows_found(statistics, x) == 0


@pytest.mark.long
def test_no_erased_row_is_reachable_from_an_estimator():
    linear = pytest.importorskip("unbayes.adapters.sklearn")
    x, y = records()
    for estimator in (linear.BayesianLogisticRegression(memory=200), linear.BayesianLinearRegression()):
        estimator.fit(x, y)
        # The model centres its inputs: look for rows as they are, and as they are centred.
        centred = x[:60] - estimator.model_.features.centre
        for first in (0, 30):
            estimator.unlearn(x[first : first + 30], y[first : first + 30])
        assert rows_found(estimator, x[:60]) == rows_found(estimator, centred) == 0


@pytest.fixture
def standard_promotion():
    """Settings that NumPyro can run with: it relies on type promotion."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.long
@pytest.mark.parametrize("guide", ["AutoNormal", "AutoMultivariateNormal", "AutoLaplaceApproximation"])
@pytest.mark.usefixtures("standard_promotion")
def test_no_erased_row_is_reachable_from_an_unlearned_guide(guide):
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions, infer, optim

    from unbayes.adapters.numpyro import remember, unlearn

    def program(x, y=None):
        weights = numpyro.sample("weights", distributions.Normal(0, 3).expand([3]).to_event(1))
        with numpyro.plate("records", len(x)):
            logits = numpyro.deterministic("logits", x @ weights)
            numpyro.sample("y", distributions.Bernoulli(logits=logits), obs=y)

    x, y = (jnp.asarray(part, float) for part in records())
    trained = getattr(infer.autoguide, guide)(program)
    svi = infer.SVI(program, trained, optim.Adam(0.05), infer.Trace_ELBO())
    params = svi.run(KEY, 200, x, y, progress_bar=False).params
    assert rows_found(trained, np.asarray(x)) == 400  # NumPyro's own guide keeps what it was set up with.
    memory = remember(program, trained, params, x, y, size=100, key=KEY)
    found = unlearn(program, trained, params, x[:60], y[:60], memory=memory, key=KEY)
    assert rows_found(found, np.asarray(x[:60])) == 0
    drawn = infer.Predictive(found.guide, params=found.params, num_samples=5)(KEY)
    assert drawn["weights"].shape == (5, 3)
    assert found.guide.sample_posterior(KEY, found.params, sample_shape=(7,))["weights"].shape == (7, 3)
    medians = found.guide.median(found.params)["weights"]
    np.testing.assert_allclose(medians, found.result.posterior.mean, rtol=1e-4, atol=1e-4)


PROGRAM = """
import sys, jax, jax.numpy as jnp, numpy as np
import unbayes as ub
x = np.load(sys.argv[1]).astype(np.float32)
y = (x[:, 0] > 0).astype(int)
rows = jnp.asarray(x)
own = jax.jit(lambda shift: (rows * shift).sum())(2.0)  # A user's program, with the data in it.
model = ub.logistic_regression(3, prior_scale=3.0)
trained = ub.fit(model, (x, y), memory=20, key=jax.random.key(0))
ub.unlearn(trained.posterior, model, (x[:20], y[:20]), memory=trained.memory, key=jax.random.key(0))
loose = ub.DensityModel(lambda t: -0.5 * t @ t, lambda t, r: -((r - t) ** 2).sum() + 0 * rows.sum(), 3)
gaussian = ub.FullGaussian.standard(3)
ub.unlearn(gaussian, loose, x[:2], method=ub.BankReverseKL(draws=50), key=jax.random.key(0))
# Of such a model, what holds none of its functions is kept: the step, and what follows from it.
bound = ub.DensityModel(
    lambda t: -0.5 * t @ t, lambda t, r: -((r - t) ** 2).sum() + 1e-6 * jnp.cos(rows @ t).sum(), 3
)
trained = ub.fit(bound, x, memory="sums", key=jax.random.key(0))
ub.unlearn(trained.posterior, bound, x[:2], memory=trained.memory, key=jax.random.key(0))
"""


def _kept_programs(folder) -> list[bytes]:
    """Contents of the kept programs; JAX compresses them."""
    contents = []
    for path in folder.iterdir():
        data = path.read_bytes()
        try:
            contents.append(zlib.decompress(data))
        except zlib.error:
            zstandard = pytest.importorskip("zstandard")
            contents.append(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    return contents


@pytest.mark.long
@pytest.mark.parametrize("everything", [False, True], ids=["library", "control"])
def test_kept_programs_hold_no_rows(tmp_path, everything):
    rows = np.random.default_rng(3).normal(size=(100, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    folder = tmp_path / "programs"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment["UNBAYES_CACHE"] = str(folder)
    if everything:  # JAX's own setting writes a user's programs too: the search must find the rows in them.
        environment |= {"JAX_COMPILATION_CACHE_DIR": str(folder)}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "rows.npy")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    programs = [data for data in _kept_programs(folder) if len(data) > 100]
    assert len(programs) >= 5
    holding = [data for data in programs if any(row.tobytes() in data for row in rows)]
    assert bool(holding) is everything


@pytest.mark.long
def test_programs_are_kept_where_the_environment_says_or_not_at_all(tmp_path):
    base = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "UNBAYES_"))}
    code = "import jax, unbayes as ub; ub.FullGaussian; print(jax.config.jax_compilation_cache_dir)"

    def folder(**settings):
        environment = {**base, **settings}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert folder(UNBAYES_CACHE="off").strip() == "None"
    assert folder(UNBAYES_CACHE=str(tmp_path / "here")).strip() == str(tmp_path / "here")
    home = folder(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)).strip()
    assert home == str(tmp_path / "unbayes" / "programs")
    assert folder(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own")).strip() == str(tmp_path / "own")
