"""Laws of precisions: whatever its form, each does what its matrix does in NumPy."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unbayes.posteriors import (
    AbstractPrecision,
    DensePrecision,
    DiagonalGaussian,
    DiagonalPrecision,
    FullGaussian,
)

RNG = np.random.default_rng(0)
ROOTS = RNG.normal(size=(3, 4, 4))
# Positive definite, with a condition number that leaves float32 most of its digits.
MATRICES = ROOTS @ ROOTS.swapaxes(1, 2) / 4 + np.eye(4)
VECTOR = RNG.normal(size=4)
FACTOR = np.tril(RNG.normal(size=(4, 4))) + 2 * np.eye(4)

# How to make each form from a symmetric matrix, of which it keeps what it can. From structured to dense.
FORMS = {
    DiagonalPrecision: lambda matrix: DiagonalPrecision(jnp.diagonal(matrix)),
    DensePrecision: DensePrecision,
}
GAUSSIANS = {
    "diagonal": lambda dtype: DiagonalGaussian(VECTOR.astype(dtype), np.diag(FACTOR).astype(dtype)),
    "full": lambda dtype: FullGaussian(VECTOR.astype(dtype), FACTOR.astype(dtype)),
}


def concrete(cls):
    found = {cls}.union(*map(concrete, cls.__subclasses__()))
    return {each for each in found if not inspect.isabstract(each)}


def ordered():
    """Every concrete class of the library; one without a row in `FORMS` fails in each law."""
    known = list(FORMS)
    own = [cls for cls in concrete(AbstractPrecision) if cls.__module__.startswith("unbayes.")]
    return sorted(own, key=lambda cls: known.index(cls) if cls in known else len(known))


CLASSES = ordered()
over_forms = pytest.mark.parametrize("form", CLASSES, ids=lambda cls: cls.__name__)
over_pairs = pytest.mark.parametrize(
    ("left", "right"),
    [(left, right) for left in CLASSES for right in CLASSES],
    ids=lambda cls: cls.__name__,
)


def make(form, dtype=np.float64, matrix=MATRICES[0]):
    """A precision of that form, and its matrix in float64 NumPy."""
    precision = FORMS[form](jnp.asarray(matrix, dtype))
    return precision, np.asarray(precision.matrix, np.float64)


def assert_close(found, expected, dtype=np.float64):
    found = np.asarray(found)
    assert found.dtype == dtype
    tolerance = 200 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_every_class_has_a_row():
    assert set(FORMS) == set(CLASSES)
    assert len(CLASSES) >= 2


@over_forms
def test_views_of_the_matrix(form, dtype):
    precision, matrix = make(form, dtype)
    assert precision.dim == 4
    assert_close(precision.matrix, matrix.T, dtype)
    assert_close(precision.diagonal, np.diag(matrix), dtype)
    # All that this form can hold of the matrix it was made from, and its diagonal whatever the form.
    np.testing.assert_allclose(np.diag(matrix), np.diag(MATRICES[0]), rtol=1e-6)
    kept = matrix != 0
    np.testing.assert_allclose(matrix[kept], MATRICES[0][kept], rtol=1e-6)


@over_pairs
def test_sums_and_differences(left, right, dtype):
    (a, first), (b, second) = make(left, dtype), make(right, dtype, MATRICES[1])
    assert_close((a + b).matrix, first + second, dtype)
    assert_close((b + a).matrix, first + second, dtype)
    assert_close((a - b).matrix, first - second, dtype)
    np.testing.assert_array_equal((a + b).matrix, (b + a).matrix)


@over_pairs
def test_a_sum_has_the_less_structured_form_of_its_terms(left, right):
    (a, _), (b, _) = make(left), make(right, matrix=MATRICES[1])
    expected = max(left, right, key=list(FORMS).index)
    for result in (a + b, b + a, a - b, b - a):
        assert type(result) is expected


@over_forms
def test_sums_are_associative_and_have_inverses(form, dtype):
    a, b, c = (make(form, dtype, matrix)[0] for matrix in MATRICES)
    assert_close(((a + b) + c).matrix, np.asarray((a + (b + c)).matrix, np.float64), dtype)
    assert_close((a + b - b).matrix, np.asarray(a.matrix, np.float64), dtype)
    np.testing.assert_array_equal((a - a).matrix, 0)


@over_forms
@pytest.mark.parametrize("factor", [-1, 0.5, "array"])
def test_multiples(form, factor, dtype):
    precision, matrix = make(form, dtype)
    factor = jnp.asarray(0.3, dtype) if factor == "array" else factor
    for result in (precision * factor, factor * precision):
        assert type(result) is form
        assert_close(result.matrix, float(factor) * matrix, dtype)


@over_forms
def test_products_and_solutions(form, dtype):
    precision, matrix = make(form, dtype)
    vector = jnp.asarray(VECTOR, dtype)
    assert_close(precision @ vector, matrix @ VECTOR, dtype)
    assert_close(precision.solve(vector), np.linalg.solve(matrix, VECTOR), dtype)
    assert_close(precision @ precision.solve(vector), VECTOR, dtype)


@over_forms
def test_log_determinant(form, dtype):
    precision, matrix = make(form, dtype)
    assert_close(precision.log_det(), np.linalg.slogdet(matrix)[1], dtype)


@over_forms
def test_inverse_factor(form, dtype):
    precision, matrix = make(form, dtype)
    factor = np.asarray(precision.inverse_factor())
    assert_close(factor, np.linalg.cholesky(np.linalg.inv(matrix)), dtype)
    np.testing.assert_array_equal(np.triu(factor, 1), 0)
    assert (np.diag(factor) > 0).all()


@over_forms
@pytest.mark.parametrize("gaussian", GAUSSIANS)
def test_trace_with_a_covariance(form, gaussian, dtype):
    precision, matrix = make(form, dtype)
    gaussian = GAUSSIANS[gaussian](dtype)
    covariance = np.asarray(gaussian.covariance, np.float64)
    assert_close(precision.trace_with(gaussian), np.trace(matrix @ covariance), dtype)


@over_forms
def test_shares_are_eigenvalues_in_ascending_order(form, dtype):
    precision, matrix = make(form, dtype)
    shares = precision.shares(jnp.asarray(FACTOR, dtype))
    assert_close(shares, np.linalg.eigvalsh(FACTOR.T @ matrix @ FACTOR), dtype)
    assert (np.diff(shares) >= 0).all()
    # Of its own precision, a belief has all of it in every direction.
    assert_close(0.3 * precision.shares(precision.inverse_factor()), np.full(4, 0.3), dtype)


@over_pairs
def test_restricting_keeps_what_the_form_can_hold(left, right):
    (a, _), (b, matrix) = make(left), make(right, matrix=MATRICES[1])
    kept = a.restrict(b)
    assert type(kept) is left
    np.testing.assert_array_equal(kept.matrix, FORMS[left](b.matrix).matrix)
    np.testing.assert_array_equal(kept.diagonal, np.diag(matrix))
    np.testing.assert_array_equal(a.restrict(kept).matrix, kept.matrix)
    if list(FORMS).index(right) <= list(FORMS).index(left):
        np.testing.assert_array_equal(kept.matrix, b.matrix)


@over_forms
@pytest.mark.parametrize("least", [-1.0, 0.0])
def test_nothing_is_computed_from_what_is_not_positive_definite(form, least, dtype):
    precision, _ = make(form, dtype, np.diag([2.0, least, 1.0, 3.0]))
    results = {
        "solve": precision.solve(jnp.asarray(VECTOR, dtype)),
        "log_det": precision.log_det(),
        "inverse_factor": precision.inverse_factor(),
    }
    for name, result in results.items():
        # Rounding decides whether what is singular has a factor, which is then infinite.
        is_bad = np.isnan(result) if least < 0 else ~np.isfinite(result)
        assert is_bad.any(), name


@over_forms
def test_is_a_pytree_that_is_batched(form):
    several = [make(form, matrix=matrix)[0] for matrix in MATRICES]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    solved = jax.vmap(lambda precision: precision.solve(VECTOR))(stacked)
    np.testing.assert_allclose(solved, [each.solve(VECTOR) for each in several], rtol=1e-12)
    together = jax.tree.map(jnp.add, several[0], several[1])
    np.testing.assert_array_equal(together.matrix, (several[0] + several[1]).matrix)
