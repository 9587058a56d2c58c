"""Extending is small: every class has an example and obeys the laws, those of the page on extending too."""

import ast
import dataclasses
import inspect
import json
import sys
from importlib import resources
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pages
import unbayes as ub
from constructors import (
    EXAMPLES,
    FEATURES,
    KERNELS,
    METHODS,
    MODELS,
    POSTERIORS,
    LikelihoodExample,
    MethodExample,
    PosteriorExample,
    by_name,
    line,
    missing_examples,
)
from models import test_likelihood_laws as likelihood_laws
from posteriors import test_laws as posterior_laws
from problems import KEY, linear_gaussian, split, take, trained
from unbayes.storage.tree import describe, rebuild
from unlearning import test_oracle as method_laws

STORED = {
    name: example
    for base, table in EXAMPLES.items()
    if base is not ub.AbstractMethod
    for name, example in by_name(table).items()
}


def over(examples):
    return pytest.mark.parametrize("example", examples.values(), ids=examples)


def classes_of_the_page():
    """The classes that docs/extending.md adds, without what it does with them."""
    code = "\n".join(block.code for block in pages.blocks((pages.DOCS / "extending.md").read_text()))
    kept = [
        node for node in ast.parse(code).body if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef)
    ]
    names = {"__name__": "extending"}
    exec(compile(ast.Module(kept, []), "extending.md", "exec"), names)
    return names["StudentLikelihood"], names["NewtonStep"], names["RankOneGaussian"]


Student, NewtonStep, RankOneGaussian = classes_of_the_page()


# Every class of the library.


@pytest.mark.parametrize("base", EXAMPLES, ids=lambda base: base.__name__)
def test_every_class_has_an_example(base):
    assert not missing_examples(base, EXAMPLES[base])
    for kind, examples in EXAMPLES[base].items():
        assert {type(example.make()) for example in examples} == {kind}


def test_a_class_without_an_example_is_noticed():
    others = {kind: examples for kind, examples in POSTERIORS.items() if kind is not ub.Gamma}
    assert missing_examples(ub.AbstractPosterior, others) == (
        "tests/constructors.py must hold an example of each AbstractPosterior, got none of Gamma"
    )


def stored(value):
    """What a file holds of an object: a description, and arrays."""
    arrays = {}
    return json.loads(json.dumps(describe(value, "it", arrays))), arrays


@over(STORED)
def test_what_is_stored_is_rebuilt_bit_for_bit(example):
    value = example.make()
    description, arrays = stored(value)
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    # No file can hold a function.
    functions = {f"it.{name}": part for name, part in parts.items() if inspect.isroutine(part)}
    found = rebuild(description, "it", dict(arrays), functions)
    assert type(found) is type(value)
    again, others = stored(found)
    assert again == description
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        assert (array.dtype, array.shape) == (others[name].dtype, others[name].shape)
        assert array.tobytes() == others[name].tobytes()


@over(STORED)
def test_objects_are_immutable(example):
    value = example.make()
    name = dataclasses.fields(value)[0].name
    with pytest.raises(AttributeError):
        setattr(value, name, getattr(value, name))


@over(by_name(METHODS))
def test_methods_are_settings_and_nothing_else(example):
    method = example.make()
    assert method == example.make()
    assert all(not isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(method))


@over(by_name(FEATURES))
def test_features_have_the_size_and_the_variance_that_they_declare(example, dtype):
    features = example.make()
    features = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, features)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, features.inputs)), dtype)
    design, variance = features(x), features.variance(x)
    assert design.shape == (4, features.size)
    assert design.dtype == dtype
    assert (variance is not None) == features.leaves_variance_open
    if variance is not None:
        assert variance.shape == (4,)
        assert (variance >= 0).all()


@over(by_name(KERNELS))
def test_kernels_are_covariances(example):
    """Symmetric, positive definite, zero far away, differentiable at distance zero too."""
    kernel = example.make()
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, kernel.lengthscales.size)))
    matrix = np.asarray(kernel(x, x))
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_allclose(np.diag(matrix), kernel.variance)
    assert np.linalg.eigvalsh(matrix).min() > 0
    assert np.abs(kernel(x, x + 1e3)).max() < 1e-9
    assert np.isfinite(jax.grad(lambda x: kernel(x, x).sum())(x)).all()


@over(by_name(MODELS))
def test_models_have_one_log_likelihood_per_record(example):
    model = example.make()
    evidence = model.encode(example.records)
    records = {len(leaf) for leaf in jax.tree.leaves(evidence)}
    belief = model.conjugate_prior or ub.FullGaussian.standard(model.dim, model.dtype)
    thetas = belief.sample(KEY, (3,))
    each = jax.vmap(model.log_likelihood, (0, None))(thetas, evidence)
    assert {each.shape[1]} == records
    deviations, mean = model.log_likelihood_at(thetas, evidence)
    np.testing.assert_allclose(deviations + mean, each.sum(1), rtol=1e-9)
    assert {each.dtype, thetas.dtype, model.log_prior(thetas[0]).dtype} == {model.dtype}


# Public names.


def exported():
    return {name: getattr(ub, name) for name in ub.__all__ if not name.startswith("_")}


def test_abstract_bases_of_public_classes_are_public():
    public = exported()
    bases = {
        base
        for cls in public.values()
        if inspect.isclass(cls)
        for base in cls.__mro__
        if base.__module__.startswith("unbayes.") and base.__name__.startswith("Abstract")
    }
    assert {base.__name__ for base in bases if public.get(base.__name__) is not base} == set()
    assert set(EXAMPLES) <= set(public.values())


def test_every_class_with_an_example_is_public():
    public = exported()
    kinds = {kind for table in EXAMPLES.values() for kind in table}
    assert {kind.__name__ for kind in kinds if public.get(kind.__name__) is not kind} == set()


def test_the_reference_lists_every_public_name_once(monkeypatch):
    monkeypatch.syspath_prepend(pages.DOCS)
    import hooks

    sources = [path.read_text() for path in sorted((pages.DOCS / "reference").glob("*.md"))]
    entries = [
        row.removeprefix("::: unbayes.")
        for source in sources
        for row in hooks.on_page_markdown(source).splitlines()
        if row.startswith("::: ")
    ]
    modules = {name for name, home in hooks.public_names().items() if not home}
    names = set(hooks.public_names()) - modules
    assert names | modules == set(exported())
    assert {name: entries.count(name) for name in names} == dict.fromkeys(names, 1)
    assert all(f"unbayes.{name}" in "".join(sources) for name in modules)
    sys.modules.pop("hooks")


def test_the_package_says_that_it_is_typed():
    assert resources.files("unbayes").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ub.EUBO(lam=3), r"lam must lie in \[0, 1\], got 3"),
        (lambda: ub.EUBO(iterations=0), "iterations must be an integer of at least 1, got 0"),
        (lambda: ub.ReverseKL(draws=0.5), "draws must be an integer of at least 1, got 0.5"),
        (lambda: ub.EUBO(batch_size=0), "batch_size must be an integer of at least 1, got 0"),
        (lambda: ub.BankReverseKL(draws=-1), "draws must be an integer of at least 1, got -1"),
        (lambda: ub.NaturalGradient(nodes=0), "nodes must be an integer of at least 1, got 0"),
        (lambda: ub.NaturalGradientVI(nodes=0), "nodes must be an integer of at least 1, got 0"),
        (lambda: ub.NaturalGradientVI(mixing=-1), "mixing must be an integer of at least 0, got -1"),
        (lambda: ub.GradientVI(batch_size=0), "batch_size must be an integer of at least 1, got 0"),
        (lambda: Student(1.0, freedom=2.0), "freedom must be above 2, got 2.0"),
        (lambda: NewtonStep(length=0.0), r"length must lie in \(0, 1\], got 0.0"),
    ],
)
def test_settings_are_refused_when_an_object_is_made(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# The classes of the page on extending.


class BoastfulStudent(Student):
    """Declares what is not so."""

    is_log_concave: ClassVar[bool] = True


def rank_one():
    return RankOneGaussian(jnp.array([0.5, -1.0]), jnp.array([-0.3, 0.2]), jnp.array([0.4, -0.8]))


def robust(likelihood=Student, rows=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 1))
    y = x[:, 0] + 0.3 * rng.standard_t(4, size=rows)
    model = ub.LinearModel(ub.RawFeatures(1), likelihood(0.3), ub.DiagonalGaussian.standard(2))
    return split(model, (x, y), np.arange(6))


ADDED = {
    "likelihood": LikelihoodExample(lambda: Student(0.7), [-3.0, 0.0, 2.5]),
    "posterior": PosteriorExample(rank_one, line, 2),
}


@over(ADDED)
def test_added_classes_are_stored_without_being_registered(example):
    test_what_is_stored_is_rebuilt_bit_for_bit(example)
    test_objects_are_immutable(example)


def test_an_added_likelihood_obeys_the_laws():
    likelihood_laws.test_declared_log_concavity_holds(ADDED["likelihood"])
    likelihood_laws.test_declared_conjugacy_holds(ADDED["likelihood"])
    with pytest.raises(AssertionError):
        likelihood_laws.test_declared_log_concavity_holds(
            LikelihoodExample(lambda: BoastfulStudent(0.7), [0.0])
        )


def test_an_added_posterior_obeys_the_laws():
    measured = posterior_laws.measure(ADDED["posterior"])
    for law in (
        posterior_laws.test_density_integrates_to_one,
        posterior_laws.test_draws_follow_the_density,
        posterior_laws.test_joint_density_agrees_with_log_prob,
        posterior_laws.test_nothing_is_denser_than_the_mode,
        posterior_laws.test_gradients_agree_with_differences,
    ):
        law(measured)


def test_shapes_and_types_of_an_added_posterior(dtype):
    posterior_laws.test_shapes_and_types(ADDED["posterior"], dtype)


def test_an_added_method_obeys_the_laws():
    example = MethodExample(NewtonStep)
    method_laws.test_reaches_the_exact_answer_on_linear_gaussian_data(example)
    method_laws.test_batches_add_up_unless_rows_are_kept(example)


def test_an_added_method_knows_when_it_is_exact():
    problem, full = linear_gaussian(), trained(linear_gaussian)
    assert NewtonStep().is_exact(full, problem.model)
    assert not NewtonStep(0.5).is_exact(full, problem.model)
    with pytest.raises(TypeError, match="NewtonStep needs a FullGaussian, got DiagonalGaussian"):
        ub.unlearn(
            ub.DiagonalGaussian.standard(4), problem.model, problem.erased, method=NewtonStep(), key=KEY
        )


def test_statistics_of_an_added_method_go_through_a_file(tmp_path):
    problem, full = linear_gaussian(), trained(linear_gaussian)
    settings = {"method": NewtonStep(), "key": KEY}
    for name, rows in (("a", slice(0, 5)), ("b", slice(5, 20))):
        sums = ub.summarise(full, problem.model, take(problem.erased, rows), **settings)
        ub.save_statistics(tmp_path / name, sums)
    total = ub.load_statistics(tmp_path / "a") + ub.load_statistics(tmp_path / "b")
    found = ub.solve(full, problem.model, total, **settings).posterior
    np.testing.assert_allclose(found.mean, trained(linear_gaussian, "remaining").mean, atol=1e-9)


def test_fit_and_unlearn_take_an_added_likelihood(tmp_path):
    problem = robust()
    full, retrained = (ub.fit(problem.model, part, key=KEY) for part in (problem.full, problem.remaining))
    result = ub.unlearn(full.posterior, problem.model, problem.erased, memory=full.memory, key=KEY)
    after, before = (
        ub.metrics.parameter_kl(q, retrained.posterior).value for q in (result.posterior, full.posterior)
    )
    assert after < 0.1 * before
    ub.save(tmp_path / "file", result.posterior, problem.model)
    assert eqx.tree_equal(ub.load(tmp_path / "file").model, problem.model)


def test_fit_and_unlearn_take_an_added_posterior():
    problem = robust()
    training = ub.GradientVI(iterations=50, draws=4)
    full = ub.fit(problem.model, problem.full, family=RankOneGaussian, method=training, key=KEY).posterior
    assert isinstance(full, RankOneGaussian)
    method = ub.BankReverseKL(draws=500, iterations=20, batch_size=50)
    result = ub.unlearn(full, problem.model, problem.erased, method=method, key=KEY)
    assert isinstance(result.posterior, RankOneGaussian)
    assert np.isfinite(result.information)
    assert isinstance(ub.Auto().choose(full, problem.model)[0], ub.BankReverseKL)


@pytest.mark.long
def test_too_much_evidence_is_refused_only_where_log_concavity_is_declared():
    """The same density and the same records, four times over; only what the class declares differs."""
    problem, boastful = robust(), robust(BoastfulStudent).model
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    more = tuple(np.concatenate([part] * 4) for part in problem.full)
    for method in (ub.NaturalGradient(), NewtonStep()):
        with pytest.raises(ValueError, match="erased holds more evidence than the posterior has beyond"):
            ub.unlearn(full, boastful, more, method=method, key=KEY)
    result = ub.unlearn(full, problem.model, more, method=ub.NaturalGradient(), key=KEY)
    assert result.trust.measures.evidence_left is None
    assert result.verdict is ub.Verdict.RETRAIN
