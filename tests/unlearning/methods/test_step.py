"""One step, where a full one would go too far."""

import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, Problem


def repeated(scale: float) -> Problem:
    """Correlated columns; what is erased has the very inputs of what remains, and other targets."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4)) @ (np.eye(4) + 0.8 * np.ones((4, 4)))
    y = x @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=40)
    others = x @ [2.0, 0.0, 1.5, 1.0] + rng.normal(size=40)
    model = ub.LinearModel(
        ub.RawFeatures(4, bias=False),
        ub.GaussianLikelihood(1.0),
        ub.DiagonalGaussian(np.zeros(4), np.full(4, scale)),
    )
    both = np.concatenate([x, x]), np.concatenate([y, others])
    return Problem(model, both, (x, others), (x, y))


def diagonal_optimum(problem: Problem, records) -> ub.DiagonalGaussian:
    """Closed form: mean of the exact posterior, diagonal of its precision."""
    return ub.DiagonalGaussian.from_natural(ub.fit(problem.model, records, key=KEY).posterior.natural)


def test_a_diagonal_step_ends_where_the_retraining_objective_is_largest_along_it():
    problem = repeated(scale=1e4)
    trained, retrained = (diagonal_optimum(problem, part) for part in (problem.full, problem.remaining))
    result = ub.unlearn(trained, problem.model, problem.erased, key=KEY)
    step = result.posterior.mean - trained.mean
    x = problem.remaining[0]
    slope = x.T @ x @ (retrained.mean - result.posterior.mean)
    assert abs(step @ slope) < 1e-5 * jnp.linalg.norm(step) * jnp.linalg.norm(slope)
    np.testing.assert_allclose(result.posterior.scale, retrained.scale, rtol=1e-6)
    # Each parameter for itself would go several times too far.
    assert 0.25 <= result.trust.measures.step < 0.5


def test_the_prior_of_a_diagonal_belief_counts_with_all_its_entries():
    """Where the prior gave nearly everything, the step is a Newton step in its dense precision."""
    problem = repeated(scale=1.0)
    root = np.linalg.cholesky(0.5 * np.eye(4) + 0.5)
    model = ub.LinearModel(
        ub.RawFeatures(4, bias=False), ub.GaussianLikelihood(100.0), ub.FullGaussian(np.zeros(4), root)
    )
    problem = problem._replace(model=model)
    trained, retrained = (diagonal_optimum(problem, part) for part in (problem.full, problem.remaining))
    found = ub.unlearn(trained, model, problem.erased, key=KEY).posterior
    before, after = (np.linalg.norm(q.mean - retrained.mean) for q in (trained, found))
    assert after < 0.05 * before


def quadratic(curvature: float, pull: float) -> ub.DensityModel:
    """Records whose log-likelihood is a parabola in each of two parameters: bent downwards, or upwards."""
    return ub.DensityModel(
        lambda theta: -0.5 * theta @ theta,
        lambda theta, record: record[0] * (pull * theta.sum() - 0.5 * curvature * theta @ theta),
        dim=2,
    )


@pytest.mark.parametrize("family", [ub.FullGaussian, ub.DiagonalGaussian])
@pytest.mark.parametrize(
    ("curvature", "taken", "verdict", "sentence"),
    [
        (-0.3, 1, "retrain", "had made the belief wider"),
        (1.5, 1 / 1.5, "retrain", "hold 150% of the belief's precision"),
        (20.0, 1 / 20, "retrain", "only the mean was moved, by 5% of a step"),
    ],
)
def test_what_is_no_part_of_the_precision_leaves_it_alone(family, curvature, taken, verdict, sentence):
    belief = family.standard(2)
    result = ub.unlearn(belief, quadratic(curvature, pull=0.4), np.ones((1, 1)), key=KEY)
    np.testing.assert_allclose(result.posterior.covariance, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(result.posterior.mean, -0.4 * taken, atol=1e-12)
    assert result.trust.measures.step == pytest.approx(taken)
    assert result.verdict == verdict
    assert any(sentence in doubt for doubt in result.doubts)


def test_a_little_noise_in_the_curvature_changes_nothing():
    result = ub.unlearn(ub.FullGaussian.standard(2), quadratic(-0.05, pull=0.4), np.ones((1, 1)), key=KEY)
    np.testing.assert_allclose(result.posterior.covariance, np.eye(2) / 1.05, rtol=1e-9)
    assert not any("wider" in doubt for doubt in result.doubts)


def test_a_curvature_moves_the_trained_mean_and_not_its_own():
    """Where training stopped early, the mean of the dense Gaussian is a step of training away."""
    problem = repeated(scale=10.0)
    dense = ub.fit(problem.model, problem.full, key=KEY).posterior.natural
    posterior = ub.DiagonalGaussian(np.zeros(4), dense.precision.diagonal**-0.5)
    memory = ub.Memory(records=80, curvature=dense)
    result = ub.unlearn(posterior, problem.model, problem.erased, memory=memory, key=KEY)
    x, others = problem.erased
    left = np.asarray(dense.precision.matrix) - x.T @ x
    np.testing.assert_allclose(result.posterior.mean, -np.linalg.solve(left, x.T @ others), rtol=1e-8)
