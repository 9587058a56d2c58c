"""Features × likelihood × Gaussian prior: f = offset + a(x)ᵀθ."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.linalg import cholesky_of_each
from unbayes._numerics.programs import kept
from unbayes._numerics.quadrature import Nodes, safe_sqrt
from unbayes._numerics.records import (
    accumulate,
    cached_chunk,
    for_each,
    require_records,
    to_float_array,
    weighted_sum,
)
from unbayes._validation import require_precision
from unbayes.models import linear_derivatives, linear_predictive
from unbayes.models.base import LARGEST_THIRD_DIM, AbstractModel
from unbayes.models.evidence import LinearEvidence, featurise
from unbayes.models.features import AbstractFeatures
from unbayes.models.leave_one_out import surprise
from unbayes.models.likelihoods import AbstractLikelihood, Integrals
from unbayes.models.predictive import AbstractPredictive
from unbayes.posteriors import AbstractGaussian, AbstractPosterior, FullGaussian, GaussianNatural
from unbayes.posteriors.precision import LARGEST_DENSE_DIM

# Outputs beyond which third derivatives of the likelihood, outputs³ numbers a record, cost too much.
LARGEST_THIRD_OUTPUTS = 3
# Directions along which fourth derivatives are summed: 820 pairs of them, 5 megabytes in float64.
LARGEST_SUMMED_DIRECTIONS = 40


class LinearModel(AbstractModel):
    """y ~ likelihood(f), f = offset + a(x)ᵀθ, θ Gaussian.

    Linear, logistic, softmax and Poisson regression, and sparse Gaussian processes, are all of this kind.
    With several outputs, θ is the matrix W of shape (outputs, p), row by row, and f = offset + W a(x).

    Parameters
    ----------
    features
        The map a(x).
    likelihood
        p(y|f).
    prior
        Gaussian of length outputs · p; its dtype is the model's.
    offset
        A known constant, such as the mean of a Gaussian process; zero unless given. `features` may know a
        part of f that is not the same for all inputs, which adds to it.
    """

    later_fields: ClassVar[dict[str, Any]] = {"offset": None}

    features: AbstractFeatures
    likelihood: AbstractLikelihood
    prior: AbstractGaussian
    offset: Float[Array, ""] | None

    def __init__(
        self,
        features: AbstractFeatures,
        likelihood: AbstractLikelihood,
        prior: AbstractGaussian,
        offset: float | None = None,
    ):
        _require_fit(features, likelihood, prior)
        self.features, self.likelihood = _cast((features, likelihood), prior.dtype)
        self.prior = prior
        self.offset = None if offset is None else jnp.asarray(offset, prior.dtype)

    def require_valid(self) -> None:
        """Refuse a prior that does not fit features and likelihood, and parts of another type."""
        _require_fit(self.features, self.likelihood, self.prior)
        # A function's arrays are the caller's own.
        parts = {"likelihood": self.likelihood, "offset": self.offset}
        parts |= {} if self.features.holds_functions else {"features": self.features}
        for name, part in parts.items():
            for leaf in jax.tree.leaves(eqx.filter(part, eqx.is_inexact_array)):
                if leaf.dtype != self.dtype:
                    raise ValueError(f"{name} must be {self.dtype} as the prior is, got {leaf.dtype}")

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.prior.dim

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the prior."""
        return self.prior.dtype

    @property
    def integral_dim(self) -> int:
        """Expectations are integrals over f."""
        return self.likelihood.integral_dim

    @property
    def has_dense_sites(self) -> bool:
        """Sums of outer products: dense up to thousands of parameters."""
        return self.dim <= LARGEST_DENSE_DIM

    @property
    def holds_functions(self) -> bool:
        """Whether the features are a function of a user's."""
        return self.features.holds_functions

    @property
    def site_rank(self) -> int:
        """The number of outputs: a record's precision is a matrix of that size, between features."""
        return self.likelihood.outputs

    @property
    def is_log_concave(self) -> bool:
        """As the likelihood says: f is linear in θ."""
        return self.likelihood.is_log_concave

    @property
    def gaussian_prior(self) -> AbstractGaussian:
        """The prior, which is always Gaussian."""
        return self.prior

    def encode(self, records: Any, name: str = "records") -> LinearEvidence:
        """Turn a pair (inputs, targets) into evidence."""
        if not isinstance(records, tuple | list) or len(records) != 2:
            raise TypeError(f"{name} must be a pair (inputs, targets), got {type(records).__name__}")
        targets = self.likelihood.encode_targets(records[1], f"{name} targets", self.dtype)
        inputs = self._encode_inputs(records[0], f"{name} inputs")
        total = inputs.design.shape[0]
        if total != targets.shape[0]:
            raise ValueError(f"{name} must pair inputs and targets, got {total} and {len(targets)}")
        require_records(total, name)
        targets, variance = self.likelihood.absorb(targets, inputs.variance)
        return LinearEvidence(inputs.design, variance, targets, inputs.offset)

    def rows(self, records: Any, name: str = "records") -> tuple[Array, Array]:
        """Inputs and targets as given: features of one input may differ in their last digits."""
        inputs = to_float_array(records[0], f"{name} inputs", self.dtype, (None, self.features.inputs))
        return inputs, self.likelihood.encode_targets(records[1], f"{name} targets", self.dtype)

    @property
    def kept_inputs(self) -> Float[Array, "m k"] | None:
        """Inputs that the features hold, such as inducing inputs."""
        return self.features.kept_inputs

    @property
    def caveats(self) -> tuple[str, ...]:
        """Features that are a function may have been trained on the records."""
        if not self.features.holds_functions:
            return ()
        return ("the features are a function of yours: what it learnt from erased records stays in it",)

    def encode_inputs(self, x, name: str = "inputs") -> tuple[Float[Array, "n p"], Float[Array, " n"] | None]:
        """Features of raw inputs, and the variance of f that θ leaves open."""
        encoded = self._encode_inputs(x, name)
        return encoded.design, encoded.variance

    def _encode_inputs(self, x, name: str = "inputs") -> LinearEvidence:
        inputs = to_float_array(x, name, self.dtype, (None, self.features.inputs))
        encoded, finite = featurise(self.features, inputs)
        if not finite:
            raise ValueError(f"{name} must give finite features, got NaN or overflow in {self.dtype}")
        return encoded

    def predictor(
        self,
        theta: Float[Array, " d"],
        design: Float[Array, "n p"],
        offset: Float[Array, " n"] | None = None,
    ) -> Float[Array, "n ..."]:
        """Values f, shape (n,), or (n, outputs) where there are several; `offset` as evidence has it."""
        f = self._outputs(theta, design, offset)
        return f[:, 0] if self.likelihood.outputs == 1 else f

    def _outputs(self, theta, design, offset) -> Float[Array, "n o"]:
        f = design @ theta.reshape(self.likelihood.outputs, -1).T
        f = f if self.offset is None else f + self.offset
        return f if offset is None else f + offset[:, None]

    def log_prior(self, theta):
        """Log p(θ)."""
        return self.prior.log_prob(theta)

    def log_likelihood(self, theta, evidence: LinearEvidence):
        """Log p(y|f), or its expectation over f given θ where θ leaves f open, equation (10)."""
        f = self.predictor(theta, evidence.design, evidence.offset)
        if evidence.variance is None:
            return jax.vmap(self.likelihood.log_prob)(f, evidence.targets)
        return jax.vmap(self.likelihood.expected_log_prob)(f, evidence.variance, evidence.targets)

    def expected_log_likelihood(self, gaussian, evidence: LinearEvidence, nodes: Nodes, weights=None):
        """E_q[log p(D|θ)], integrated over f record by record."""

        def part(weighted):
            evidence, weights = weighted
            moments = self._predictor_moments(gaussian, evidence, nodes)
            return weighted_sum(self._expected_log_probs(*moments, evidence.targets, nodes), weights)

        return accumulate(part, (evidence, weights), self._chunk(nodes))

    def site(self, gaussian, evidence: LinearEvidence, nodes: Nodes, weights=None) -> GaussianNatural:
        """Natural gradient of E_q[log p(D|θ)]: small integrals per record, times a and a aᵀ."""
        return self.expected_log_likelihood_and_site(gaussian, evidence, nodes, weights)[1]

    def expected_log_likelihood_and_site(
        self, gaussian, evidence: LinearEvidence, nodes: Nodes, weights=None
    ) -> tuple[Float[Array, ""], GaussianNatural]:
        """Both from the same integrals."""

        def part(weighted):
            evidence, weights = weighted
            moments = self._predictor_moments(gaussian, evidence, nodes)
            value, slope, curvature = self._integrals(*moments, evidence.targets, nodes)
            if weights is not None:
                slope, curvature = weights[:, None] * slope, weights[:, None, None] * curvature
            gradient = jnp.einsum("no,np->op", slope, evidence.design).reshape(-1)
            return weighted_sum(value, weights), gradient, gaussian.gram(evidence.design, curvature)

        value, *derivatives = accumulate(part, (evidence, weights), self._chunk(nodes))
        return value, gaussian.site(*derivatives)

    @property
    def has_third_derivatives(self) -> bool:
        """Few parameters, and few outputs: the sums take n·outputs³ and n·d³ operations."""
        return self.dim <= LARGEST_THIRD_DIM and self.likelihood.outputs <= LARGEST_THIRD_OUTPUTS

    @property
    def most_directions(self) -> int:
        """Directions whose sums of fourth derivatives fit in a few megabytes."""
        return min(self.dim, LARGEST_SUMMED_DIRECTIONS)

    @property
    def has_fifth_derivatives(self) -> bool:
        """Few outputs: the sums take n·outputs⁵ operations."""
        return self.likelihood.outputs <= LARGEST_THIRD_OUTPUTS

    def derivatives(self, gaussian, directions, evidence, nodes, weights=None, order=4):
        """Small integrals per record, times products of a."""
        return linear_derivatives.derivatives(self, gaussian, directions, evidence, nodes, weights, order)

    def bending(self, gaussian, root, evidence, nodes, weights=None):
        """Σ_n (|l‴| √c + |l⁗| c) b bᵀ with b = rootᵀ a and c = |b|²."""
        return linear_derivatives.bending(self, gaussian, root, evidence, nodes, weights)

    def site_changes(self, before, after, evidence: LinearEvidence, nodes: Nodes):
        """As for any model; of f = W a, slopes and curvatures of f tell all, without a matrix per record."""
        moments = [self._predictor_moments(gaussian, evidence, nodes) for gaussian in (before, after)]
        old, new = (self._integrals(*each, evidence.targets, nodes) for each in moments)
        shift = moments[1][0] - moments[0][0]
        pull = new.slope - old.slope + jnp.einsum("noq,nq->no", old.curvature, shift)
        covariance = after.output_covariance(evidence.design, self.likelihood.outputs)
        spread = (new.curvature - old.curvature) @ covariance
        quadratic = jnp.einsum("no,noq,nq->n", pull, covariance, pull)
        return 0.5 * quadratic + 0.25 * jnp.einsum("noq,nqo->n", spread, spread)

    def surprise(self, gaussian, evidence: LinearEvidence, nodes: Nodes):
        """Of each target, under the predictive distribution of the belief less the record's own site."""
        return for_each(lambda part: surprise(self, gaussian, part, nodes), evidence, self._chunk(nodes))

    def largest_log_likelihood(self, evidence: LinearEvidence, weights=None):
        """The sum of what each target could have at most, were f free."""
        most = self.likelihood.largest_log_probs(evidence.targets)
        return None if most is None else weighted_sum(most, weights)

    def influence(self, gaussian, evidence: LinearEvidence, nodes: Nodes):
        """tr(Σ s_i), which for f = W a is the trace of curvature times covariance of f."""

        def influences(part):
            mean, root = self._predictor_moments(gaussian, part, nodes)
            curvature = self._integrals(mean, root, part.targets, nodes).curvature
            return jnp.einsum("noq,nor,nqr->n", curvature, root, root)

        return for_each(influences, evidence, self._chunk(nodes))

    def _integrals(self, mean, root, targets, nodes: Nodes) -> Integrals:
        """For each record, f ~ N(mean, root rootᵀ): values (n,), slopes (n, o), curvatures (n, o, o)."""
        if self.likelihood.outputs == 1:
            value, slope, curvature = self.likelihood.integrals(mean[:, 0], root[:, 0, 0] ** 2, targets)
            return Integrals(value, slope[:, None], curvature[:, None, None])
        f = jax.vmap(self._values, (0, 0, None))(mean, root, nodes)
        return jax.vmap(self.likelihood.integrals_at, (0, 0, None))(f, targets, nodes.weights)

    def _expected_log_probs(self, mean, root, targets, nodes: Nodes):
        """Values alone; of a single output, in the form that is cheap to differentiate."""
        if self.likelihood.outputs == 1:
            return self.likelihood.expected_log_probs(mean[:, 0], root[:, 0, 0] ** 2, targets)
        return self._integrals(mean, root, targets, nodes).value

    def _values(self, mean, root, nodes: Nodes) -> Float[Array, "o k"]:
        """Values of f at the nodes, for one record."""
        return mean[:, None] + root[:, : self.integral_dim] @ nodes.points.T

    def _predictor_moments(self, gaussian: AbstractGaussian, evidence: LinearEvidence, nodes: Nodes):
        """Mean of f, shape (n, o), and a square root of its covariance, shape (n, o, o)."""
        outputs, variance = self.likelihood.outputs, evidence.variance
        mean = self._outputs(gaussian.mean, evidence.design, evidence.offset)
        # Where there is a single node, the mean alone is looked at.
        is_point = nodes.count == 1
        nothing = jnp.zeros((*mean.shape, outputs), mean.dtype)
        if is_point and outputs > 1:
            return mean, nothing
        covariance = nothing if is_point else gaussian.output_covariance(evidence.design, outputs)
        if outputs == 1:
            return mean, safe_sqrt(covariance if variance is None else covariance + variance[:, None, None])
        rotation = self.likelihood.rotation(mean.dtype)
        return mean, rotation.T @ cholesky_of_each(rotation @ covariance @ rotation.T)

    def sufficient_statistics(
        self, evidence: LinearEvidence, weights: Float[Array, " n"] | None = None
    ) -> GaussianNatural:
        """What the records add to the natural parameters of a conjugate belief, Gaussian likelihood only."""
        if self.conjugate_prior is None:
            return super().sufficient_statistics(evidence, weights)
        origin = FullGaussian.standard(self.dim, self.dtype)
        return self.site(origin, evidence, self.nodes(), weights)

    @property
    def conjugate_prior(self) -> FullGaussian | None:
        """The prior with a dense covariance, for a Gaussian likelihood."""
        return self.prior.to_full() if self.likelihood.is_conjugate else None

    def predictive(
        self, posterior: AbstractPosterior, x, *, key: PRNGKeyArray | None = None, draws: int = 1000
    ) -> AbstractPredictive:
        """Predictive distributions at inputs x.

        By quadrature where the posterior is Gaussian, on `draws` nodes where f has several outputs; otherwise
        from `draws` samples of θ, for which `key` must be given.
        """
        require_precision(posterior=posterior, model=self)
        with kept(self.holds_functions):
            return linear_predictive.of(self, posterior, self._encode_inputs(x), key, draws)

    def log_predictive(
        self,
        posterior: AbstractPosterior,
        records: Any,
        *,
        key: PRNGKeyArray | None = None,
        draws: int = 1000,
    ) -> Float[Array, " n"]:
        """Log-density of each record under `predictive`, by quadrature wherever that has one.

        Where θ leaves f open, `log_likelihood` is a bound on log p(record|θ), not log p(record|θ) itself.
        """
        require_precision(posterior=posterior, model=self)
        evidence = self.encode(records)
        if evidence.variance is None and not isinstance(posterior, AbstractGaussian):
            return super().log_predictive(posterior, records, key=key, draws=draws)
        inputs = dataclasses.replace(evidence, variance=self.open_variance(evidence), targets=None)
        with kept(self.holds_functions):
            predictive = linear_predictive.of(self, posterior, inputs, key, draws)
        return predictive.log_prob(self.likelihood.outcomes(evidence.targets))

    def open_variance(self, evidence: LinearEvidence) -> Float[Array, " n"] | None:
        """Variance of f that θ leaves open: the features', or what the targets carry."""
        carried = self.likelihood.open_variance(evidence.targets)
        return evidence.variance if carried is None else carried

    def _chunk(self, nodes: Nodes) -> int:
        per_record = max(nodes.points.size * self.likelihood.outputs, self.dim * self.likelihood.outputs)
        return cached_chunk(per_record, self.dim)


def _require_fit(features: AbstractFeatures, likelihood: AbstractLikelihood, prior: AbstractGaussian) -> None:
    expected = likelihood.outputs * features.size
    if prior.dim != expected:
        raise ValueError(
            f"prior must have length {expected} ({likelihood.outputs} outputs × {features.size} "
            f"features), got {prior.dim}"
        )
    if likelihood.outputs > 1 and features.leaves_variance_open:
        raise ValueError("conditional_variance needs a likelihood with a single output")


def _cast(tree: Any, dtype: jnp.dtype) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)
