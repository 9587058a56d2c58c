"""Training in passes over a source is training in memory, however the records come."""

import dataclasses

import jax
import numpy as np
import pytest

import unbayes as ub
from counting import Count
from problems import KEY, linear_gaussian, logistic, take


def counts(n=120, outputs=1):
    """Poisson counts, or classes where there are several outputs."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 2))
    if outputs > 1:
        return ub.softmax_regression(2, classes=outputs), (x, rng.integers(0, outputs, n))
    return ub.poisson_regression(2), (x, rng.poisson(np.exp(x @ [0.5, -0.3])))


def conjugate():
    """A Beta–Bernoulli pair."""
    return ub.BetaBernoulli(ub.Beta(1.0, 2.0)), np.random.default_rng(0).integers(0, 2, 50)


def problem_of(name):
    if name == "conjugate":
        return conjugate()
    if name in ("poisson", "softmax"):
        return counts(outputs=3 if name == "softmax" else 1)
    problem = {"linear": linear_gaussian, "logistic": logistic}[name]()
    return problem.model, problem.full


def pieces(records, size):
    """A function that returns the records in pieces, the last one small."""
    total = len(jax.tree.leaves(records)[0])
    return lambda: (take(records, slice(first, first + size)) for first in range(0, total, size))


def assert_close(left, right, rtol=1e-9, atol=1e-12):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol, atol)


@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
@pytest.mark.parametrize("name", ["linear", "logistic", "poisson", "softmax", "conjugate"])
def test_the_same_as_in_memory(name, family):
    model, records = problem_of(name)
    whole = ub.fit(model, records, family=family, key=KEY)
    streamed = ub.fit(model, ub.scan(pieces(records, 7), batch_rows=32), family=family, key=KEY)
    assert_close(streamed.posterior, whole.posterior, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(streamed.elbo, whole.elbo, rtol=1e-12)
    assert streamed.converged == whole.converged
    assert streamed.memory.records == whole.memory.records
    assert len(streamed.memory.roster) == len(whole.memory.roster)
    if whole.memory.deviance is not None:
        np.testing.assert_allclose(streamed.memory.deviance, whole.memory.deviance, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "poisson"])
@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
def test_sums_and_curvature_are_those_of_memory(name, family):
    model, records = problem_of(name)
    whole = ub.fit(model, records, family=family, memory="sums", key=KEY)
    streamed = ub.fit(
        model, ub.scan(pieces(records, 50), batch_rows=64), family=family, memory="sums", key=KEY
    )
    assert_close(streamed.memory.curvature, whole.memory.curvature, rtol=1e-6, atol=1e-7)
    erased = take(records, slice(0, 10))
    found = [
        ub.unlearn(each.posterior, model, erased, memory=each.memory, key=KEY) for each in (streamed, whole)
    ]
    assert_close(found[0].posterior, found[1].posterior, rtol=1e-6, atol=1e-8)
    assert found[0].verdict == found[1].verdict


def test_chunking_changes_nothing_but_rounding():
    model, records = problem_of("logistic")
    settings = {"memory": (ub.Sums(), 20), "key": KEY}
    one = ub.fit(model, ub.scan(pieces(records, 150), batch_rows=64), **settings)
    other = ub.fit(model, ub.scan(pieces(records, 11), batch_rows=64), **settings)
    assert_close(one.posterior, other.posterior, rtol=1e-12)
    np.testing.assert_array_equal(one.memory.coreset_marks.exact, other.memory.coreset_marks.exact)


@pytest.mark.long
def test_a_coreset_drawn_from_a_stream_is_unbiased():
    """Its weights estimate sums over all records; over draws, the mean is the sum."""
    model, records = problem_of("logistic")
    source = ub.scan(pieces(records, 40), batch_rows=50)
    estimates = []
    for seed in range(12):
        trained = ub.fit(model, source, memory=25, key=jax.random.key(seed), roster=seed % 2 == 0)
        memory = trained.memory
        assert len(memory.weights) == 25
        assert (np.asarray(memory.copies) == 1).all()
        estimates.append(float(memory.weights.sum()))
    assert abs(np.mean(estimates) - 150) < 4 * np.std(estimates) / 12**0.5


def test_a_coreset_larger_than_the_data_is_the_data():
    model, records = problem_of("logistic")
    trained = ub.fit(model, ub.scan(pieces(records, 40), batch_rows=50), memory=1000, key=KEY)
    assert len(trained.memory.weights) == 150
    assert (np.asarray(trained.memory.weights) == 1).all()


def test_whoever_was_trained_on_in_a_stream_is_known():
    model, records = problem_of("linear")
    trained = ub.fit(model, pieces(records, 33), key=KEY)
    ub.unlearn(trained.posterior, model, take(records, slice(3, 6)), memory=trained.memory, key=KEY)
    with pytest.raises(ValueError, match="must be among the training records"):
        ub.unlearn(trained.posterior, model, (np.ones((1, 3)), np.ones(1)), memory=trained.memory, key=KEY)


def test_every_pass_says_how_far_it_is():
    model, records = problem_of("logistic")
    progress = Count()
    trained = ub.fit(model, ub.scan(pieces(records, 40), batch_rows=50), key=KEY, progress=progress)
    assert len(progress.passes) == trained.passes
    assert all(done == 150 and note.endswith("records/s") for _, _, done, note in progress.passes)
    assert progress.passes[0][0].startswith("pass 1, looking for the mode")


def test_what_cannot_be_trained_in_passes_is_refused():
    model, records = problem_of("logistic")
    with pytest.raises(TypeError, match="need a Gaussian family and natural gradients"):
        ub.fit(model, pieces(records, 40), method=ub.GradientVI(), key=KEY)
    with pytest.raises(ValueError, match="read in several passes, which an iterator cannot"):
        ub.fit(model, iter([records]), key=KEY)
    with pytest.raises(ValueError, match="ids must be left out"):
        ub.fit(model, pieces(records, 40), ids=["a"], key=KEY)
    with pytest.raises(ValueError, match="records must hold at least one record, got none"):
        ub.fit(model, lambda: iter([]), key=KEY)


def test_trouble_in_a_stream_names_the_batch():
    model, records = problem_of("logistic")

    def stream():
        yield from pieces(records, 50)()
        yield (np.full((2, 2), np.nan), np.zeros(2))

    with pytest.raises(ValueError, match="batch 3 as given"):
        ub.fit(model, ub.scan(stream, batch_rows=50), key=KEY)

    def wrong():
        yield from pieces(records, 50)()
        yield (np.zeros((2, 2)), np.full(2, 7))

    with pytest.raises(ValueError, match=r"batch 3 \(batch 3 as given, rows 0 to 1\): records targets"):
        ub.fit(model, ub.scan(wrong, batch_rows=50), key=KEY)


def test_identifiers_come_from_their_column():
    import pyarrow

    model, (x, y) = problem_of("logistic")
    table = pyarrow.table({"a": x[:, 0], "b": x[:, 1], "y": y, "id": [f"r{row}" for row in range(150)]})
    source = ub.scan(table, columns=["a", "b"], target="y", ids="id", batch_rows=64)
    streamed = ub.fit(model, source, memory=30, key=KEY)
    left = ub.unlearn(
        streamed.posterior, model, (x[:2], y[:2]), ids=["r0", "r1"], memory=streamed.memory, key=KEY
    )
    with pytest.raises(ValueError, match="erased before"):
        ub.unlearn(left.posterior, model, (x[:1], y[:1]), ids=["r1"], memory=left.memory, key=KEY)
    twice = ub.scan(
        pyarrow.concat_tables([table, table.slice(0, 1)]), columns=["a", "b"], target="y", ids="id"
    )
    with pytest.raises(ValueError, match="ids must be different"):
        ub.fit(model, twice, key=KEY)


def test_a_single_node_is_laplaces_approximation():
    model, records = problem_of("poisson")
    method = ub.NaturalGradientVI(nodes=1)
    whole = ub.fit(model, records, method=method, key=KEY)
    streamed = ub.fit(model, ub.scan(pieces(records, 50), batch_rows=64), method=method, key=KEY)
    assert_close(streamed.posterior, whole.posterior, rtol=1e-8)


def test_refine_goes_on_from_an_unlearned_belief():
    problem = logistic()
    full = ub.fit(problem.model, problem.full, key=KEY)
    start = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    whole = ub.refine(start.posterior, problem.model, problem.remaining, key=KEY)
    streamed = ub.refine(
        start.posterior, problem.model, ub.scan(pieces(problem.remaining, 9), batch_rows=20), key=KEY
    )
    assert_close(streamed.posterior, whole.posterior)
    assert dataclasses.replace(whole.memory, lineage="").records == streamed.memory.records


@pytest.mark.parametrize("sizes", [(150, 100), (100, 150)])
def test_records_that_change_between_passes_are_noticed(sizes):
    model, records = problem_of("logistic")
    passes = []

    def stream():
        passes.append(sizes[bool(passes)])
        yield take(records, slice(0, passes[-1]))

    first, second = sizes
    with pytest.raises(ValueError, match=f"were {first} of them in one and {second} in another, pass 2"):
        ub.fit(model, stream, key=KEY)
