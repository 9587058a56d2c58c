"""Erased records may come from a source: the statistics are those of the same records in memory."""

import jax
import numpy as np
import pyarrow
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, take


def pieces(records, size):
    total = len(jax.tree.leaves(records)[0])
    return lambda: (take(records, slice(first, first + size)) for first in range(0, total, size))


def assert_same(left, right, rtol=1e-12):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol, 1e-14)


def conjugate():
    """A Beta–Bernoulli pair and its posterior."""
    model, y = ub.BetaBernoulli(ub.Beta(1.0, 2.0)), np.random.default_rng(0).integers(0, 2, 80)
    return model, y, ub.fit(model, y, key=KEY)


def of(name):
    if name == "conjugate":
        return conjugate()
    problem = {"linear": linear_gaussian, "logistic": logistic}[name]()
    return problem.model, problem.full, ub.fit(problem.model, problem.full, memory=30, key=KEY)


METHODS = {
    "conjugate": ub.Exact(),
    "linear": ub.Exact(),
    "logistic": ub.NaturalGradient(),
    "logistic by draws": ub.BankReverseKL(),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_same_as_in_memory(name):
    model, records, trained = of(name.split()[0])
    erased = take(records, slice(0, 40))
    settings = {"memory": trained.memory, "method": METHODS[name], "key": KEY}
    whole = ub.summarise(trained.posterior, model, erased, **settings)
    source = ub.scan(pieces(erased, 7), batch_rows=16)
    streamed = ub.summarise(trained.posterior, model, source, **settings)
    assert streamed.records == 40
    assert_same((streamed.value, streamed.site), (whole.value, whole.site))
    one = ub.unlearn(trained.posterior, model, source, **settings)
    other = ub.unlearn(trained.posterior, model, erased, **settings)
    assert_same(one.posterior, other.posterior, 1e-10)
    assert one.verdict == other.verdict
    assert one.caveats == other.caveats


def test_an_iterator_is_enough():
    model, records, trained = of("logistic")
    erased = take(records, slice(0, 20))
    once = ub.unlearn(trained.posterior, model, pieces(erased, 6)(), memory=trained.memory, key=KEY)
    whole = ub.unlearn(trained.posterior, model, erased, memory=trained.memory, key=KEY)
    assert_same(once.posterior, whole.posterior, 1e-10)


def test_at_most_two_programs_however_the_records_come():
    """Row groups, parts and remainders of all sizes."""
    model, records, trained = of("logistic")
    traces = []

    class Counted(ub.NaturalGradient):
        def summarise(self, posterior, model, erased, weights, *, memory, key):
            traces.append(jax.tree.leaves(erased)[0].shape)
            return super().summarise(posterior, model, erased, weights, memory=memory, key=key)

    x, y = records
    rng = np.random.default_rng(0)
    parts = []
    for size in (5000, 17, 4096, 900, 1, 2100):
        rows = rng.integers(0, 150, size)
        parts.append((x[rows], y[rows]))
    settings = {"method": Counted(), "missing": "allow", "key": KEY}
    for part in parts:
        ub.summarise(trained.posterior, model, ub.scan(part, batch_rows=2048), **settings)
    assert set(traces) == {(2048, 3), (128, 3)}


def test_records_that_are_gone_are_skipped_batch_by_batch():
    model, records, trained = of("logistic")
    first = ub.unlearn(trained.posterior, model, take(records, slice(0, 10)), memory=trained.memory, key=KEY)
    again = ub.scan(pieces(take(records, slice(0, 20)), 5), batch_rows=5)
    with pytest.raises(ValueError, match=r"batch 0 .*: erased must be among"):
        ub.unlearn(first.posterior, model, again, memory=first.memory, key=KEY)
    settings = {"memory": first.memory, "missing": "skip", "key": KEY}
    skipped = ub.unlearn(first.posterior, model, again, **settings)
    plain = ub.unlearn(first.posterior, model, take(records, slice(0, 20)), **settings)
    assert skipped.records == plain.records == 10
    assert_same(skipped.posterior, plain.posterior, 1e-10)
    gone = ub.scan(pieces(take(records, slice(0, 10)), 5), batch_rows=5)
    with pytest.raises(ValueError, match="erased holds none of the training records that are left"):
        ub.unlearn(first.posterior, model, gone, **settings)


def test_identifiers_come_from_their_column_and_nothing_is_taken_twice():
    problem = logistic()
    x, y = problem.full
    ids = [f"r{row}" for row in range(150)]
    trained = ub.fit(problem.model, (x, y), ids=ids, key=KEY)
    table = pyarrow.table({"a": x[:9, 0], "b": x[:9, 1], "y": y[:9], "id": ids[:9]})
    named = {"columns": ["a", "b"], "target": "y", "ids": "id"}
    settings = {"memory": trained.memory, "key": KEY}
    streamed = ub.unlearn(trained.posterior, problem.model, ub.scan(table, **named), **settings)
    plain = ub.unlearn(trained.posterior, problem.model, (x[:9], y[:9]), ids=ids[:9], **settings)
    assert_same(streamed.posterior, plain.posterior, 1e-10)
    twice = ub.scan(pyarrow.concat_tables([table, table]), batch_rows=9, **named)
    with pytest.raises(ValueError, match="taken out twice"):
        ub.summarise(trained.posterior, problem.model, twice, **settings)
    with pytest.raises(ValueError, match="ids must be left out"):
        ub.summarise(trained.posterior, problem.model, ub.scan(table, **named), ids=ids[:9], **settings)


def test_a_method_that_keeps_rows_takes_no_source():
    model, records, trained = of("logistic")
    with pytest.raises(TypeError, match="reads the erased rows in every iteration"):
        ub.unlearn(trained.posterior, model, pieces(records, 10), method=ub.EUBO(), key=KEY)
