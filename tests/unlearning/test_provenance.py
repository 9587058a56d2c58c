"""Records that were never trained on, or are gone already, are refused where that is known, else doubted."""

import functools

import jax
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, take

WORDS = [f"customer {row}" for row in range(150)]


def poisson():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(120, 2))
    return ub.poisson_regression(2), (x, rng.poisson(np.exp(x @ [0.5, -0.4])))


@functools.cache
def fitted(**options):
    return ub.fit(logistic().model, logistic().full, key=KEY, **options)


class TestWithARoster:
    """What training keeps by default."""

    def test_records_that_were_never_there_are_refused_by_row(self):
        problem = logistic()
        x, y = (np.array(part) for part in problem.erased)
        y[[3, 5]] = 1 - y[[3, 5]]
        with pytest.raises(ValueError, match=r"2 of 20 are not: row 3, row 5\. They were erased before"):
            ub.unlearn(fitted().posterior, problem.model, (x, y), memory=fitted().memory, key=KEY)

    @pytest.mark.parametrize("method", [ub.Exact(), ub.NaturalGradient(), ub.BankReverseKL(draws=200)])
    def test_whatever_the_method(self, method):
        problem = linear_gaussian()
        full = ub.fit(problem.model, problem.full, key=KEY)
        x, y = take(problem.full, slice(0, 1))
        with pytest.raises(ValueError, match=r"1 of 1 are not: row 0"):
            ub.unlearn(
                full.posterior, problem.model, (x, y + 1e6), memory=full.memory, method=method, key=KEY
            )

    def test_twice_is_refused(self):
        problem, full = logistic(), fitted()
        options = {"memory": full.memory, "key": KEY}
        once = ub.unlearn(full.posterior, problem.model, problem.erased, **options)
        with pytest.raises(ValueError, match="20 of 20 are not"):
            ub.unlearn(once.posterior, problem.model, problem.erased, memory=once.memory, key=KEY)
        batch = ub.summarise(full.posterior, problem.model, problem.erased, **options)
        with pytest.raises(ValueError, match="statistics must hold each record once, got 40 of 40"):
            ub.solve(full.posterior, problem.model, batch + batch, **options)
        twice = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf[:2]]), problem.erased)
        with pytest.raises(ValueError, match="2 of 22 are not: row 20, row 21"):
            ub.unlearn(full.posterior, problem.model, twice, **options)

    def test_equal_records_of_two_people_are_no_repetition(self):
        x, y = take(logistic().full, np.r_[np.arange(100), np.arange(20)])
        model = logistic().model
        full = ub.fit(model, (x, y), key=KEY)
        batch = [
            ub.summarise(full.posterior, model, take((x, y), rows), memory=full.memory, key=KEY)
            for rows in (slice(0, 20), slice(100, 120))
        ]
        both = ub.solve(full.posterior, model, batch[0] + batch[1], memory=full.memory, key=KEY)
        assert (both.records, both.memory.records) == (40, 80)

    def test_skip_leaves_out_what_is_gone(self):
        problem, full = logistic(), fitted()
        once = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
        more = take(problem.full, slice(120, 150))
        options = {"memory": once.memory, "missing": "skip", "key": KEY}
        skipped = ub.unlearn(once.posterior, problem.model, more, **options)
        expected = ub.unlearn(
            once.posterior, problem.model, take(more, slice(0, 10)), memory=once.memory, key=KEY
        )
        assert skipped.records == 10
        np.testing.assert_allclose(skipped.posterior.mean, expected.posterior.mean, rtol=1e-10)
        with pytest.raises(ValueError, match="erased holds none of the training records that are left"):
            ub.unlearn(once.posterior, problem.model, problem.erased, **options)

    def test_allow_takes_them_and_says_retrain(self):
        problem, full = logistic(), fitted()
        x, y = problem.erased
        result = ub.unlearn(
            full.posterior, problem.model, (x, 1 - y), memory=full.memory, missing="allow", key=KEY
        )
        assert result.trust.measures.strangers == 20
        assert result.verdict is ub.Verdict.RETRAIN
        assert result.doubts[0].startswith("20 of the 20 erased records are not among the training records")

    def test_another_word_for_missing_is_refused(self):
        with pytest.raises(ValueError, match="missing must be 'refuse', 'skip' or 'allow', got 'ignore'"):
            ub.unlearn(fitted().posterior, logistic().model, logistic().erased, missing="ignore", key=KEY)

    def test_known_records_are_not_weighed(self):
        """An outlier that was trained on comes out without a doubt."""
        problem = linear_gaussian()
        x, y = (np.array(part) for part in problem.full)
        y[0] = 50.0
        full = ub.fit(problem.model, (x, y), key=KEY)
        result = ub.unlearn(full.posterior, problem.model, (x[:1], y[:1]), memory=full.memory, key=KEY)
        assert result.trusted
        assert result.trust.measures.unlikelihood is None
        assert result.caveats == ()


class TestIds:
    def test_records_are_known_by_their_ids(self):
        problem, full = logistic(), fitted(ids=tuple(WORDS), memory=60)
        options = {"memory": full.memory, "key": KEY}
        named = ub.unlearn(full.posterior, problem.model, problem.erased, ids=WORDS[130:], **options)
        plain = fitted(memory=60)
        same = ub.unlearn(plain.posterior, problem.model, problem.erased, memory=plain.memory, key=KEY)
        assert named.memory.size == same.memory.size
        np.testing.assert_allclose(named.posterior.mean, same.posterior.mean, rtol=1e-8)
        with pytest.raises(ValueError, match=r"are not: 'customer 130', 'customer 131'.*never trained on\. "):
            ub.unlearn(
                named.posterior, problem.model, problem.erased, ids=WORDS[130:], memory=named.memory, key=KEY
            )
        with pytest.raises(ValueError, match="ids must be given: training knew its records by identifiers"):
            ub.unlearn(full.posterior, problem.model, problem.erased, **options)

    def test_no_id_is_kept(self, tmp_path):
        full = fitted(ids=tuple(WORDS))
        ub.save(tmp_path / "model.unbayes", full.posterior, logistic().model, memory=full.memory)
        assert b"customer" not in (tmp_path / "model.unbayes").read_bytes()

    def test_a_roster_comes_back_from_a_file(self, tmp_path):
        problem, full = logistic(), fitted(memory=40)
        ub.save(tmp_path / "model.unbayes", full.posterior, problem.model, memory=full.memory)
        saved = ub.load(tmp_path / "model.unbayes")
        result = ub.unlearn(saved.posterior, saved.model, problem.erased, memory=saved.memory, key=KEY)
        ub.save(tmp_path / "model.unbayes", result.posterior, saved.model, memory=result.memory)
        saved = ub.load(tmp_path / "model.unbayes")
        with pytest.raises(ValueError, match="20 of 20 are not"):
            ub.unlearn(saved.posterior, saved.model, problem.erased, memory=saved.memory, key=KEY)


class TestWithoutARoster:
    """What the records themselves tell."""

    def test_it_is_said_what_cannot_be_noticed(self):
        problem = logistic()
        result = ub.unlearn(fitted().posterior, problem.model, problem.erased, tolerance=1, key=KEY)
        assert result.trusted
        assert any("erased before are not noticed" in caveat for caveat in result.caveats)
        assert any("trained with this model" in caveat for caveat in result.caveats)
        assert "erased before are not noticed" in str(result)

    def test_an_impossible_target_of_a_regression(self):
        problem = linear_gaussian()
        full = ub.fit(problem.model, problem.full, roster=False, key=KEY)
        x = problem.full[0][:1]
        with pytest.raises(
            ValueError, match="erased fits the model worse than all training records together"
        ):
            ub.unlearn(full.posterior, problem.model, (x, [1e6]), memory=full.memory, key=KEY)
        result = ub.unlearn(full.posterior, problem.model, (x, [1e6]), key=KEY)
        assert result.verdict is ub.Verdict.RETRAIN
        assert "1 of the 1 erased records (row 0) is very improbable" in result.doubts[0]

    def test_the_deviance_is_the_residual_sum_of_squares(self):
        problem = linear_gaussian()
        full = ub.fit(problem.model, problem.full, key=KEY)
        x, y = problem.full
        design = np.column_stack([np.ones(len(x)), x])
        mean, covariance = np.asarray(full.posterior.mean), np.asarray(full.posterior.covariance)
        residuals = (y - design @ mean) ** 2 + np.einsum("ni,ij,nj->n", design, covariance, design)
        assert full.memory.deviance == pytest.approx(residuals.sum() / (2 * 0.5**2), rel=1e-6)

    def test_an_impossible_count(self):
        model, (x, counts) = poisson()
        full = ub.fit(model, (x, counts), key=KEY)
        assert ub.unlearn(full.posterior, model, (x[:20], counts[:20]), tolerance=1, key=KEY).trusted
        result = ub.unlearn(full.posterior, model, (x[:1], [1000]), key=KEY)
        assert result.verdict is ub.Verdict.RETRAIN

    def test_flipped_labels_are_doubted_and_true_ones_are_not(self):
        problem, full = logistic(60), fitted()
        x, y = problem.erased
        assert ub.unlearn(full.posterior, problem.model, (x, y), tolerance=10, key=KEY).trusted
        result = ub.unlearn(full.posterior, problem.model, (x, 1 - y), tolerance=10, key=KEY)
        assert not result.trusted
        assert "very improbable" in result.doubts[0]

    def test_the_surprise_of_a_regression_is_that_of_leaving_the_record_out(self):
        problem = linear_gaussian()
        full = ub.fit(problem.model, problem.full, key=KEY).posterior
        evidence = problem.model.encode(take(problem.full, slice(0, 1)))
        found = problem.model.surprise(full, evidence, problem.model.nodes())
        without = ub.fit(problem.model, take(problem.full, slice(1, None)), key=KEY).posterior
        predictive = problem.model.predictive(without, problem.full[0][:1])
        z = (problem.full[1][0] - predictive.mean[0]) / np.sqrt(predictive.variance[0])
        assert float(found.value[0]) == pytest.approx(0.5 * float(z) ** 2, rel=1e-8)

    def test_how_improbable_does_not_depend_on_the_batches(self):
        problem, full = logistic(), fitted()
        parts = [take(problem.erased, rows) for rows in (slice(0, 7), slice(7, 20))]
        one, other = (ub.summarise(full.posterior, problem.model, part, key=KEY) for part in parts)
        whole = ub.unlearn(full.posterior, problem.model, problem.erased, key=KEY).trust.measures
        added = ub.solve(full.posterior, problem.model, other + one, key=KEY).trust.measures
        assert added.unlikelihood == pytest.approx(whole.unlikelihood, rel=1e-6)


class TestWhatStays:
    @pytest.mark.long
    def test_inducing_inputs_that_are_erased_records_are_named(self):
        x, y = logistic().full
        model = ub.sparse_gp(x[:10], ub.SquaredExponential(1.0, 1.0), ub.BernoulliLikelihood(), jitter=1e-6)
        full = ub.fit(model, (x, y), key=KEY)
        result = ub.unlearn(full.posterior, model, (x[7:27], y[7:27]), memory=full.memory, key=KEY)
        sentence = "inducing inputs that are inputs of erased records stay in the model: 3 of 10"
        assert result.caveats == (sentence,)
        halves = [
            ub.summarise(full.posterior, model, (x[rows], y[rows]), memory=full.memory, key=KEY)
            for rows in (slice(7, 9), slice(9, 27))
        ]
        assert ub.solve(full.posterior, model, sum(halves), memory=full.memory, key=KEY).caveats == (
            sentence,
        )
        assert ub.unlearn(full.posterior, model, (x[20:], y[20:]), memory=full.memory, key=KEY).caveats == ()

    def test_features_that_are_a_function_are_named(self):
        x, y = logistic().full
        features = ub.FunctionFeatures(lambda x: x**2, 2, 2)
        model = ub.LinearModel(features, ub.BernoulliLikelihood(), ub.DiagonalGaussian.standard(3))
        full = ub.fit(model, (x, y), key=KEY)
        result = ub.unlearn(full.posterior, model, (x[:9], y[:9]), memory=full.memory, key=KEY)
        assert "a function of yours" in result.caveats[0]
