"""A memory of sums: what is kept, what stays of it, and what is refused."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, logistic
from unbayes._numerics.records import CHUNK_ELEMENTS
from unbayes.memory import kinds_of
from unbayes.memory.sums import KeptSums

SUMS, CURVATURE = ub.Sums(), ub.Curvature()
KINDS = [
    (None, ()),
    ((), ()),
    ("sums", (SUMS,)),
    ("curvature", (CURVATURE,)),
    (0, (CURVATURE,)),
    (7, (ub.Coreset(7),)),
    (ub.Sums(order=3, directions=5), (ub.Sums(3, 5),)),
    (ub.Coreset(), (ub.Coreset(100),)),
    (CURVATURE, (CURVATURE,)),
    (("sums", 7), (SUMS, ub.Coreset(7))),
    ([ub.Coreset(7), SUMS, None], (ub.Coreset(7), SUMS)),
    (("sums", (7, ["curvature"])), (SUMS, ub.Coreset(7), CURVATURE)),
]
NO_KIND = (
    r"memory must be 'sums', Sums\(…\), a number of records to keep, Coreset\(…\), several of these, or None"
)
REFUSED = {
    "truth value": (lambda: True, rf"{NO_KIND}, got True"),
    "negative number": (lambda: -1, rf"{NO_KIND}, got -1"),
    "unknown word": (lambda: "coreset", rf"{NO_KIND}, got 'coreset'"),
    "fraction": (lambda: 3.5, rf"{NO_KIND}, got 3\.5"),
    "array": (lambda: np.arange(3), rf"{NO_KIND}, got array\(\[0, 1, 2\]\)"),
    "wrong among right": (lambda: ("sums", -1), rf"{NO_KIND}, got -1"),
    "order": (lambda: ub.Sums(order=5), "order must be 3 or 4, got 5"),
    "fractional order": (lambda: ub.Sums(order=4.0), r"order must be 3 or 4, got 4\.0"),
    "no directions": (
        lambda: ub.Sums(directions=0),
        "directions must be a number of them, at least 1, or None, got 0",
    ),
    "half a direction": (lambda: ub.Sums(directions=1.5), r"at least 1, or None, got 1\.5"),
    "no records": (lambda: ub.Coreset(0), "size must be a number of records, at least 1, got 0"),
    "truth value for a size": (lambda: ub.Coreset(True), "size must be a number of records, .* got True"),
    "two coresets": (
        lambda: (20, ub.Coreset(30)),
        r"memory must hold one Coreset\(…\) at most, got \(20,",
    ),
    "two sums": (lambda: ["sums", ub.Sums(3)], r"memory must hold one Sums\(…\) at most, got \['sums', Sums"),
    "nested": (lambda: (0, ("curvature",)), r"memory must hold one Curvature\(…\) at most"),
}


@pytest.mark.parametrize(("given", "expected"), KINDS, ids=str)
def test_kinds_are_told(given, expected):
    assert kinds_of(given) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_other_kinds_are_refused(name):
    make, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=sentence):
        kinds_of(make())


def test_a_kind_is_refused_before_anything_is_trained():
    problem = logistic()
    with pytest.raises(ValueError, match="one Sums"):
        ub.fit(problem.model, (), memory=("sums", "sums"), key=KEY)


def test_flows_have_no_sums():
    problem = logistic()
    flow = ub.AutoregressiveFlow(ub.FullGaussian.standard(3), key=KEY, layers=1, width=4)
    with pytest.raises(ValueError, match="sums serve Gaussian posteriors, got AutoregressiveFlow"):
        ub.memory.remember(flow, problem.model, problem.full, "sums", None, key=KEY)


@pytest.fixture(scope="module")
def trained():
    problem = logistic()
    return ub.fit(problem.model, problem.full, memory=("sums", 40), key=KEY)


def test_what_is_kept(trained):
    sums = trained.memory.sums
    assert (sums.dim, sums.derivatives.directions, sums.derivatives.order, sums.share) == (3, 3, 4, 1.0)
    assert sums.derivatives.fifth.shape == (6, 6, 3)
    np.testing.assert_allclose(sums.directions.T @ sums.directions, np.eye(3), atol=1e-12)
    assert "sums of order 4, a coreset of 40" in str(trained.memory)


def test_they_are_the_derivatives_of_all_records(trained):
    """Padding of the records, and the key, make no difference."""
    problem, sums = logistic(), trained.memory.sums
    basis = trained.posterior.scale_tril @ sums.directions
    evidence = problem.model.encode(problem.full)
    derive = eqx.filter_jit(problem.model.derivatives)
    expected = derive(trained.posterior, basis, evidence, problem.model.nodes(), None, order=5)
    for found, other in zip(*map(jax.tree.leaves, (sums.derivatives, expected)), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-11)
    alone = ub.fit(problem.model, problem.full, memory="sums", key=jax.random.key(5)).memory.sums
    jax.tree.map(np.testing.assert_array_equal, alone, sums)


def test_directions_lead_where_records_bend_most():
    """Two of three: the coefficient that no record speaks of comes last."""
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(80, 1)), np.zeros(80)]
    y = (x[:, 0] + rng.logistic(size=80) > 0).astype(int)
    kept = ub.fit(ub.logistic_regression(2), (x, y), memory=ub.Sums(3, directions=2), key=KEY).memory.sums
    assert kept.directions.shape == (3, 2)
    assert kept.derivatives.order == 3
    assert kept.share == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(kept.directions[2], 0, atol=1e-9)
    one = ub.fit(ub.logistic_regression(2), (x, y), memory=ub.Sums(3, directions=1), key=KEY).memory.sums
    assert 0.5 < one.share < 0.999
    np.testing.assert_allclose(np.abs(one.directions[:, 0] @ kept.directions[:, 0]), 1, atol=1e-9)


PARTS = ("sums", "coreset", "weights", "coreset_marks", "copies")


@pytest.mark.parametrize("kinds", [(), ("sums",), ("coreset",), ("sums", "coreset"), ("curvature",)], ids=str)
def test_only_some_kinds(kinds, trained):
    memory = trained.memory
    left = memory.only(*kinds)
    for name in PARTS:
        expected = getattr(memory, name) if ("sums" if name == "sums" else "coreset") in kinds else None
        assert getattr(left, name) is expected
    assert (left.records, left.roster, left.belongs_to) == (150, memory.roster, memory.belongs_to)
    # Statistics of one do not add up with those of another.
    assert (left.origin == memory.origin) is (len(kinds) == 2)
    left.require_valid()


def test_only_leaves_the_curvature_to_any_kind():
    problem = logistic()
    memory = ub.fit(problem.model, problem.full, family=ub.DiagonalGaussian, memory="sums", key=KEY).memory
    assert memory.only().curvature is None
    assert memory.only("sums").curvature is memory.only("curvature").curvature is memory.curvature
    assert memory.curvature is not None
    with pytest.raises(ValueError, match="kinds must be sums, coreset or curvature, got 'roster'"):
        memory.only("sums", "roster")


WIDE = 20


def wide_model():
    def log_density(theta, record):
        f = record[:WIDE] @ theta
        return -jax.nn.softplus(-record[WIDE] * f)

    return ub.DensityModel(lambda theta: -0.5 * theta @ theta, log_density, dim=WIDE)


def test_a_general_model_is_differentiated_along_few_directions():
    """Never along all of θ, and nothing that is formed has more numbers than a chunk, of many records too."""
    model, rows = wide_model(), np.random.default_rng(0).normal(size=(1000, WIDE + 1))
    assert model.most_directions == 12
    gaussian, nodes = ub.FullGaussian.standard(WIDE), model.nodes()
    directions = jnp.eye(WIDE)[:, : model.most_directions]
    program = jax.make_jaxpr(
        lambda rows: model.derivatives(gaussian, directions, rows, nodes, None, order=4)
    )(model.encode(rows))
    assert not any(shape.count(WIDE) > 2 for shape in shapes(program.jaxpr))
    assert max(map(np.prod, shapes(program.jaxpr))) <= CHUNK_ELEMENTS


def shapes(jaxpr):
    """Shapes of all that a program computes, inner programs included."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars if hasattr(variable.aval, "shape"))
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield from shapes(inner)


@pytest.mark.long
def test_sums_of_a_general_model_go_along_few_directions():
    model, rows = wide_model(), np.random.default_rng(0).normal(size=(30, WIDE + 1))
    rows[:, WIDE] = np.sign(rows[:, 0])
    kept = ub.memory.remember(ub.FullGaussian.standard(WIDE), model, rows, ub.Sums(), None, key=KEY).sums
    assert isinstance(kept, KeptSums)
    assert (kept.dim, kept.derivatives.directions, kept.derivatives.order) == (WIDE, 12, 4)
    assert kept.derivatives.fifth is None
    assert 0.5 < kept.share < 1


def test_sums_that_could_not_be_loaded_are_not_saved(tmp_path, trained):
    wrong = dataclasses.replace(trained.memory, sums=dataclasses.replace(trained.memory.sums, share=1.5))
    with pytest.raises(ValueError, match=r"memory\.sums\.share must be between 0 and 1, got 1\.5"):
        ub.save(tmp_path / "file", trained.posterior, logistic().model, memory=wrong)


@pytest.mark.parametrize("name", [pytest.param("float32", marks=pytest.mark.long), "float64"])
def test_sums_are_saved_and_used(name, tmp_path):
    """What was loaded unlearns as what was saved, bit for bit."""
    with jax.enable_x64(name == "float64"):
        _assert_saved_and_used(tmp_path, name)


def _assert_saved_and_used(tmp_path, name):
    problem = logistic()
    model = ub.logistic_regression(2, prior_scale=3.0)
    trained = ub.fit(model, problem.full, memory="sums", key=KEY)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(trained.memory.sums)} == {name}
    ub.save(tmp_path / "file", trained.posterior, model, memory=trained.memory)
    saved = ub.load(tmp_path / "file")
    jax.tree.map(np.testing.assert_array_equal, saved.memory.sums, trained.memory.sums)
    found, expected = (
        ub.unlearn(each.posterior, model, problem.erased, memory=each.memory, key=KEY)
        for each in (saved, trained)
    )
    assert found.trust == expected.trust
    assert found.trust.measures.order == 4
    jax.tree.map(np.testing.assert_array_equal, found.posterior, expected.posterior)
