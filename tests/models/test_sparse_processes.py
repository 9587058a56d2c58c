"""FITC, PITC and PIC against Gaussian processes written out in NumPy, in training and in unlearning."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import unbayes as ub
from unbayes.data.source import Batch
from unbayes.inference.passes import encoded

KEY = jax.random.key(0)
NOISE, JITTER, MEAN = 0.3, 1e-6, 0.4
KERNEL = ub.SquaredExponential(1.7, [0.8, 1.1])
BLOCKS = np.array([3, -1, 3, 0, 0, 3, 7, 0, 3, -1, 0, 0])


def _data(count=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (count, 2))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + NOISE * rng.normal(size=count)


X, Y = _data()
AT = np.concatenate([_data(4, seed=1)[0], X[:2]])
INDUCING = np.array([[-1.5, 0.2], [-0.3, -1.0], [0.4, 1.0], [1.6, -0.4]])


def kernel(left, right):
    scaled = (left[:, None] - right[None]) / np.array([0.8, 1.1])
    return 1.7 * np.exp(-0.5 * (scaled**2).sum(-1))


class Dense:
    """The joint Gaussian of targets and values of f that a sparse process stands for, as matrices.

    `ties` says which pairs of records have their covariance kept as it is.
    """

    def __init__(self, ties, x=X, y=Y, inducing=INDUCING, own_noise=0.0):
        self.x, self.y, self.inducing = x, y, inducing
        self.inner = kernel(inducing, inducing) + 1.7 * JITTER * np.eye(len(inducing))
        explained = self.q(x, x)
        self.left = np.where(ties, kernel(x, x) - explained, 0) + np.diag(NOISE**2 + own_noise + 0 * y)
        self.covariance = explained + self.left

    def q(self, left, right):
        return kernel(left, self.inducing) @ np.linalg.solve(self.inner, kernel(self.inducing, right))

    def log_evidence(self):
        return stats.multivariate_normal.logpdf(self.y, np.full(len(self.y), MEAN), self.covariance)

    def belief(self):
        """Posterior mean and covariance of the inducing values."""
        cross = kernel(self.inducing, self.x)
        gain = np.linalg.solve(self.covariance, cross.T).T
        return gain @ (self.y - MEAN), self.inner - gain @ cross.T

    def predict(self, at, near=None):
        """Mean and variance of new targets; records `near` covary with them as without inducing inputs."""
        cross = self.q(at, self.x)
        if near is not None:
            cross[:, near] = kernel(at, self.x[near])
        gain = np.linalg.solve(self.covariance, cross.T).T
        return MEAN + gain @ (self.y - MEAN), 1.7 + NOISE**2 - (gain * cross).sum(1)


def alone(count=12):
    return np.eye(count, dtype=bool)


def within(blocks):
    return blocks[:, None] == blocks[None]


def model_of(kind, inducing=INDUCING):
    """The library's process, with a mean, in JAX's default type."""
    covariance = ub.SquaredExponential(1.7, [0.8, 1.1])
    if kind == "pitc":
        model = ub.pitc_gp(inducing, covariance, noise_scale=NOISE, jitter=JITTER)
        return ub.BlockProcess(model.features, model.likelihood, model.prior, offset=MEAN)
    model = ub.fitc_gp(inducing, covariance, ub.GaussianLikelihood(NOISE), jitter=JITTER)
    return ub.LinearModel(model.features, model.likelihood, model.prior, offset=MEAN)


def records_of(kind, rows=slice(None)):
    return (X[rows], Y[rows], BLOCKS[rows]) if kind == "pitc" else (X[rows], Y[rows])


def dense_of(kind, rows=slice(None)):
    ties = within(BLOCKS[rows]) if kind == "pitc" else alone(len(Y[rows]))
    return Dense(ties, X[rows], Y[rows])


def is_belief(posterior, mean, covariance, tolerance=1e-8):
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=tolerance)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=0, atol=tolerance)


over_kinds = pytest.mark.parametrize("kind", ["fitc", "pitc"])


@over_kinds
def test_training_is_the_dense_process(kind):
    model, dense = model_of(kind), dense_of(kind)
    trained = ub.fit(model, records_of(kind), key=KEY)
    is_belief(trained.posterior, *dense.belief())
    assert trained.elbo == pytest.approx(dense.log_evidence(), rel=1e-9)
    predictive = model.predictive(trained.posterior, AT)
    mean, variance = dense.predict(AT)
    np.testing.assert_allclose(predictive.mean, mean, atol=1e-8)
    np.testing.assert_allclose(predictive.variance, variance, atol=1e-8)


def test_fitc_is_dtc_with_the_variance_that_was_left_out():
    """Beside the deterministic form the noise of each record grows by k(x, x) − q(x, x), and no more."""
    fitc, rows = model_of("fitc"), np.array([2, 5])
    dtc = ub.sparse_gp(INDUCING, KERNEL, ub.GaussianLikelihood(NOISE), jitter=JITTER)
    dense = Dense(np.zeros((12, 12), bool))
    is_belief(ub.fit(dtc, (X, Y - MEAN), key=KEY).posterior, *dense.belief())
    extra = kernel(X, X).diagonal() - dense.q(X, X).diagonal()
    evidence = fitc.encode((X[rows], Y[rows]))
    np.testing.assert_allclose(evidence.targets[:, 1], extra[rows], atol=1e-12)
    assert evidence.variance is None


@over_kinds
def test_inducing_inputs_at_all_inputs_are_the_exact_process(kind):
    """Whatever the blocks."""
    model = model_of(kind, X)
    posterior = ub.fit(model, records_of(kind), key=KEY).posterior
    gain = np.linalg.solve(kernel(X, X) + NOISE**2 * np.eye(len(X)), kernel(X, AT)).T
    predictive = model.predictive(posterior, AT)
    np.testing.assert_allclose(predictive.mean, MEAN + gain @ (Y - MEAN), atol=1e-4)
    variance = 1.7 + NOISE**2 - (gain * kernel(AT, X)).sum(1)
    np.testing.assert_allclose(predictive.variance, variance, atol=1e-4)


def test_one_block_is_the_exact_evidence():
    model = model_of("pitc")
    trained = ub.fit(model, (X, Y, np.zeros(len(X), int)), key=KEY)
    exact = stats.multivariate_normal.logpdf(Y, np.full(12, MEAN), kernel(X, X) + NOISE**2 * np.eye(12))
    assert trained.elbo == pytest.approx(exact, abs=1e-4)


def test_blocks_of_one_record_are_fitc():
    own, expected = (
        ub.fit(model_of(kind), records, key=KEY)
        for kind, records in (("pitc", (X, Y, np.arange(12))), ("fitc", (X, Y)))
    )
    is_belief(own.posterior, expected.posterior.mean, expected.posterior.covariance, 1e-12)
    assert own.elbo == pytest.approx(expected.elbo, rel=1e-12)


@pytest.mark.parametrize("block", [3, 0, 7])
def test_predictions_near_a_block_are_pic(block):
    model, rows = model_of("pitc"), np.flatnonzero(block == BLOCKS)
    posterior = ub.fit(model, records_of("pitc"), key=KEY).posterior
    near = model.local(records_of("pitc", rows))
    mean, variance = dense_of("pitc").predict(AT, near=rows)
    predictive = near.predictive(posterior, AT)
    np.testing.assert_allclose(predictive.mean, mean, atol=1e-8)
    np.testing.assert_allclose(predictive.variance, variance, atol=1e-8)
    assert np.abs(mean - dense_of("pitc").predict(AT)[0]).max() > 1e-3


def test_what_pic_holds_of_a_block_is_made_anew_when_some_of_it_is_erased():
    """The belief without the records, beside the others of their block: as if they had never been there."""
    model, gone = model_of("pitc"), np.array([0, 8])
    left = np.setdiff1d(np.arange(12), gone)
    beside, old = np.flatnonzero(BLOCKS[left] == 3), np.flatnonzero(BLOCKS == 3)
    trained = ub.fit(model, records_of("pitc"), key=KEY)
    less = ub.unlearn(trained.posterior, model, _parting(old, gone), key=KEY).posterior
    near = model.local(records_of("pitc", left[beside]))
    mean, variance = dense_of("pitc", left).predict(AT, near=beside)
    np.testing.assert_allclose(near.predictive(less, AT).mean, mean, atol=1e-8)
    np.testing.assert_allclose(near.predictive(less, AT).variance, variance, atol=1e-8)
    stale = model.local(records_of("pitc", old)).predictive(less, AT).mean
    assert np.abs(stale - mean).max() > 1e-3


def _parting(rows, gone):
    """Rows of blocks, as records of which those that are not `gone` stay."""
    return (*records_of("pitc", rows), ~np.isin(rows, gone))


@over_kinds
def test_whole_blocks_go_exactly_in_any_batches(kind):
    model, dense = model_of(kind), dense_of(kind, BLOCKS == 0)
    trained = ub.fit(model, records_of(kind), memory=(), key=KEY)
    batches = [np.flatnonzero(block == BLOCKS) for block in (7, 3, -1)]
    for parts in ([np.concatenate(batches)], batches, batches[::-1]):
        statistics = [
            ub.summarise(
                trained.posterior, model, records_of(kind, part[::-1]), memory=trained.memory, key=KEY
            )
            for part in parts
        ]
        result = ub.solve(trained.posterior, model, sum(statistics), memory=trained.memory, key=KEY)
        assert result.verdict == "trusted", result
        is_belief(result.posterior, *dense.belief(), 1e-8)
        again = ub.fit(model, records_of(kind, BLOCKS == 0), key=KEY).posterior
        is_belief(result.posterior, again.mean, again.covariance, 1e-10)


def test_parts_of_blocks_go_exactly_one_after_the_other():
    """What goes first is told apart from all that was there, what goes next from what is left."""
    model, block, first, second = model_of("pitc"), np.flatnonzero(BLOCKS == 0), [4, 10], [3]
    trained = ub.fit(model, records_of("pitc"), key=KEY).posterior
    steps = [(block, first), (np.setdiff1d(block, first), second)]
    parts = [_parting(np.random.default_rng(0).permutation(rows), gone) for rows, gone in steps]
    total = sum(ub.summarise(trained, model, part, key=KEY) for part in parts)
    assert total.records == 3
    found = ub.solve(trained, model, total, key=KEY).posterior
    at_once = ub.unlearn(trained, model, _parting(block, first + second), key=KEY).posterior
    is_belief(found, at_once.mean, at_once.covariance, 1e-10)
    is_belief(found, *dense_of("pitc", np.setdiff1d(np.arange(12), first + second)).belief())


def test_every_method_takes_fitc():
    """A natural gradient is exact too, and the memory's curvature is that of the records."""
    model, gone = model_of("fitc"), np.array([1, 4, 5])
    left = np.setdiff1d(np.arange(12), gone)
    trained = ub.fit(model, records_of("fitc"), memory="sums", key=KEY)
    found = ub.unlearn(
        trained.posterior, model, records_of("fitc", gone), method=ub.NaturalGradient(), key=KEY
    )
    is_belief(found.posterior, *dense_of("fitc", left).belief(), 1e-8)


def test_variances_of_measurements_add_to_the_noise():
    own = np.linspace(0.0, 0.5, 12)
    dense = Dense(within(BLOCKS), own_noise=own)
    trained = ub.fit(model_of("pitc"), (X, np.column_stack([Y, own]), BLOCKS), key=KEY)
    is_belief(trained.posterior, *dense.belief())
    assert trained.elbo == pytest.approx(dense.log_evidence(), rel=1e-9)
    rows = np.flatnonzero(BLOCKS == 3)
    near = model_of("pitc").local((X[rows], np.column_stack([Y, own])[rows], BLOCKS[rows]))
    predictive = near.predictive(trained.posterior, AT)
    for found, expected in zip((predictive.mean, predictive.variance), dense.predict(AT, rows), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_whitened_inducing_inputs_say_the_same():
    plain = model_of("pitc")
    whitened = ub.WhitenedInducingInputs(plain.features)
    model = ub.BlockProcess(whitened, plain.likelihood, whitened.prior, offset=MEAN)
    trained = ub.fit(model, records_of("pitc"), key=KEY)
    assert trained.elbo == pytest.approx(dense_of("pitc").log_evidence(), rel=1e-9)
    rows = np.flatnonzero(BLOCKS == 3)
    mean, variance = dense_of("pitc").predict(AT, near=rows)
    near = model.local(records_of("pitc", rows)).predictive(trained.posterior, AT)
    np.testing.assert_allclose(near.mean, mean, atol=1e-8)
    np.testing.assert_allclose(near.variance, variance, atol=1e-8)


@over_kinds
def test_single_precision_keeps_its_digits(kind):
    with jax.enable_x64(False):
        model = model_of(kind)
        assert model.dtype == jnp.float32
        records = records_of(kind)
        trained = ub.fit(model, records, key=KEY)
        gone = np.flatnonzero(BLOCKS == 3)
        less = ub.unlearn(trained.posterior, model, records_of(kind, gone), key=KEY).posterior
    assert less.mean.dtype == jnp.float32
    is_belief(trained.posterior, *dense_of(kind).belief(), 2e-3)
    is_belief(less, *dense_of(kind, BLOCKS != 3).belief(), 2e-3)


def test_log_predictive_density_of_a_record_is_by_itself():
    model, dense = model_of("pitc"), dense_of("pitc")
    posterior = ub.fit(model, records_of("pitc"), key=KEY).posterior
    mean, variance = dense.predict(AT)
    found = model.log_predictive(posterior, (AT, Y[:6], np.zeros(6, int)))
    np.testing.assert_allclose(found, stats.norm.logpdf(Y[:6], mean, np.sqrt(variance)), atol=1e-7)


def test_classes_take_the_variance_that_is_left_open():
    """log ∫ p(y|f) p(f|θ) df where SVGP has ∫ p(f|θ) log p(y|f) df, which is less."""
    labels = (Y > 0).astype(float)
    fitc = ub.fitc_gp(INDUCING, KERNEL, ub.ProbitLikelihood(), jitter=JITTER)
    svgp = ub.sparse_gp(INDUCING, KERNEL, ub.ProbitLikelihood(), conditional_variance=True, jitter=JITTER)
    theta = jnp.array([0.3, -1.0, 0.5, 0.2])
    design, variance = (np.asarray(part) for part in fitc.encode_inputs(X))
    own = eqx.filter_jit(fitc.log_likelihood)(theta, fitc.encode((X, labels)))
    chance = stats.norm.logcdf((2 * labels - 1) * (design @ np.asarray(theta)) / np.sqrt(1 + variance))
    np.testing.assert_allclose(own, chance, rtol=1e-9)
    assert (own > eqx.filter_jit(svgp.log_likelihood)(theta, svgp.encode((X, labels)))).all()


@pytest.mark.parametrize(
    ("records", "error", "message"),
    [
        ((X, Y), TypeError, r"records must be \(inputs, targets, blocks\) or .* got tuple of 2"),
        ((X, Y, BLOCKS / 2), TypeError, r"records blocks must be whole numbers of shape \(n\), got float64"),
        ((X, Y, BLOCKS[:3]), ValueError, r"records must have one of each part in every row, got lengths"),
        ((X, Y, BLOCKS, BLOCKS), TypeError, r"records stays must be booleans of shape \(n\), got int64"),
        ((X, Y, BLOCKS, BLOCKS < 9), ValueError, r"records must hold at least one record, got none"),
        (X, TypeError, r"records must be \(inputs, targets, blocks\)"),
    ],
)
def test_bad_blocks_are_refused(records, error, message):
    with pytest.raises(error, match=message):
        model_of("pitc").encode(records)


def test_a_process_that_does_not_fit_is_refused():
    model = model_of("pitc")
    with pytest.raises(ValueError, match="likelihood must be IntegratedLikelihood"):
        ub.BlockProcess(model.features, ub.GaussianLikelihood(NOISE), model.prior)
    closed = ub.InducingInputs(INDUCING, KERNEL, jitter=JITTER)
    with pytest.raises(ValueError, match="features must be those of inducing inputs with conditional_var"):
        ub.BlockProcess(closed, model.likelihood, model.prior)
    with pytest.raises(ValueError, match="records must be all records of a single block"):
        model.local(records_of("pitc"))
    for other in (ub.HeteroscedasticLikelihood(0.3), ub.PoissonLikelihood()):
        with pytest.raises(ValueError, match="likelihood must be Gaussian, Bernoulli or probit, or another"):
            ub.IntegratedLikelihood(other)


class TestTiedRecords:
    """Records of a block say nothing without each other, so that nothing may divide them unasked."""

    trained = staticmethod(lambda: ub.fit(model_of("pitc"), records_of("pitc"), memory=(), key=KEY))

    def test_sources_are_refused(self):
        model, source = model_of("pitc"), lambda: iter([records_of("pitc")])
        posterior = self.trained().posterior
        for call in (
            lambda: ub.fit(model, source, key=KEY),
            lambda: ub.refine(posterior, model, source, key=KEY),
            lambda: ub.unlearn(posterior, model, source, key=KEY),
        ):
            with pytest.raises(TypeError, match="must be in memory: those of a BlockProcess are tied"):
                call()

    def test_rows_are_not_skipped_within_a_block(self):
        model, trained = model_of("pitc"), self.trained()
        x, y, blocks = records_of("pitc", [6, 1, 9])
        strange = x + np.array([[0.5], [0.0], [0.0]]), y, blocks
        with pytest.raises(ValueError, match="1 of 3: missing='skip' cannot leave out what others are tied"):
            ub.unlearn(trained.posterior, model, strange, memory=trained.memory, missing="skip", key=KEY)

    def test_rows_that_stay_are_not_erased(self):
        """They are none of the statistics, and those that go are known again."""
        model, trained = model_of("pitc"), self.trained()
        rows = np.flatnonzero(BLOCKS == 3)
        parting = _parting(rows, [0])
        less = ub.unlearn(trained.posterior, model, parting, memory=trained.memory, key=KEY)
        assert less.records == 1
        assert less.memory.records == 11
        with pytest.raises(ValueError, match="1 of 1 are not"):
            ub.unlearn(less.posterior, model, parting, memory=less.memory, key=KEY)

    def test_training_goes_on_from_what_is_left(self):
        model, trained = model_of("pitc"), self.trained()
        left = records_of("pitc", BLOCKS != 3)
        refined = ub.refine(trained.posterior, model, left, passes=3, key=KEY).posterior
        is_belief(refined, *dense_of("pitc", BLOCKS != 3).belief())


@pytest.mark.parametrize("size", [1, 3, 9])
def test_batches_of_blocks_are_filled_up_after_they_were_told_apart(size):
    """Records that fill a batch up do not join the last block, not even where its last row stays."""
    model, rows = model_of("pitc"), np.flatnonzero(BLOCKS == 0)
    records = (*records_of("pitc", rows), np.arange(len(rows)) > 1)
    evidence, weights = encoded(model, Batch(records, 2, 2 + size))
    expected = model.encode(records)
    assert weights.sum() == 2
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:2], b), evidence, expected)
    assert {len(leaf) for leaf in jax.tree.leaves(evidence)} == {len(weights)}
