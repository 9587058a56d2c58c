"""Models with a conjugate prior: a posterior is the prior plus sums over the records."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln, xlogy
from jax.scipy.stats import norm
from jaxtyping import Array

from unbayes._numerics.records import require_records, to_float_array, weighted_sum
from unbayes.models.base import AbstractModel
from unbayes.models.evidence import LinearEvidence
from unbayes.models.features import AbstractFeatures
from unbayes.models.likelihoods import BernoulliLikelihood, CategoricalLikelihood, PoissonLikelihood
from unbayes.posteriors import (
    AbstractExponentialFamily,
    Beta,
    DensePrecision,
    Dirichlet,
    Gamma,
    GaussianNatural,
    NormalInverseGamma,
    RegressionNatural,
)


class AbstractConjugateModel(AbstractModel):
    """A likelihood whose `prior` belongs to its conjugate family."""

    prior: eqx.AbstractVar[AbstractExponentialFamily]

    @property
    def dim(self) -> int:
        """Length of θ."""
        return self.prior.dim

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the prior."""
        return self.prior.dtype

    @property
    def conjugate_prior(self) -> AbstractExponentialFamily:
        """The prior, which belongs to the conjugate family."""
        return self.prior

    def log_prior(self, theta):
        """Log p(θ)."""
        return self.prior.log_prob(theta)


class BetaBernoulli(AbstractConjugateModel):
    """Outcomes y ∈ {0, 1} of unknown probability; records are an array of shape (n,)."""

    prior: Beta

    def encode(self, records: Any, name: str = "records") -> Array:
        """Outcomes as an array of zeros and ones."""
        y = BernoulliLikelihood().encode_targets(records, name, self.dtype)
        require_records(len(y), name)
        return y

    def log_likelihood(self, theta, evidence):
        """Log-probability of each outcome."""
        return jnp.where(evidence == 1, jnp.log(theta[0]), jnp.log1p(-theta[0]))

    def sufficient_statistics(self, evidence, weights=None):
        """Numbers of ones and of zeros."""
        ones, total = weighted_sum(evidence, weights), weighted_sum(jnp.ones_like(evidence), weights)
        return ones, total - ones


class DirichletCategorical(AbstractConjugateModel):
    """Classes y of unknown probabilities; records are an array of shape (n,)."""

    prior: Dirichlet

    def encode(self, records: Any, name: str = "records") -> Array:
        """Outcomes as an array of class numbers."""
        y = CategoricalLikelihood(self.prior.dim).encode_targets(records, name, self.dtype)
        require_records(len(y), name)
        return y

    def log_likelihood(self, theta, evidence):
        """Log-probability of each class."""
        return jnp.log(theta)[evidence]

    def sufficient_statistics(self, evidence, weights=None):
        """Number of records of each class."""
        return jnp.zeros(self.prior.dim, self.dtype).at[evidence].add(1 if weights is None else weights)


class GammaPoisson(AbstractConjugateModel):
    """Counts y of unknown rate; records are an array of shape (n,)."""

    prior: Gamma

    def encode(self, records: Any, name: str = "records") -> Array:
        """Counts as an array of non-negative whole numbers."""
        y = PoissonLikelihood().encode_targets(records, name, self.dtype)
        require_records(len(y), name)
        return y

    def log_likelihood(self, theta, evidence):
        """Log-probability of each count."""
        return xlogy(evidence, theta[0]) - theta[0] - gammaln(evidence + 1)

    def sufficient_statistics(self, evidence, weights=None):
        """Sum of the counts, and number of records."""
        return weighted_sum(evidence, weights), weighted_sum(jnp.ones_like(evidence), weights)


class UnknownNoiseRegression(AbstractConjugateModel):
    """y = a(x)ᵀw + noise of unknown variance; records are a pair (inputs, targets).

    Parameters
    ----------
    features
        The map a(x), p features.
    prior
        Normal–inverse-gamma over p weights and the noise variance.
    """

    features: AbstractFeatures
    prior: NormalInverseGamma

    def __init__(self, features: AbstractFeatures, prior: NormalInverseGamma):
        self.features, self.prior = features, prior
        self.require_valid()

    def require_valid(self) -> None:
        """Refuse a prior that does not fit the features."""
        if self.prior.dim != self.features.size + 1:
            raise ValueError(f"prior must hold {self.features.size} weights, got {self.prior.dim - 1}")
        if self.features.leaves_variance_open:
            raise ValueError("conditional_variance needs a model of known noise")

    @property
    def holds_functions(self) -> bool:
        """Whether the features are a function of a user's."""
        return self.features.holds_functions

    def encode(self, records: Any, name: str = "records") -> LinearEvidence:
        """Features and targets of a pair (inputs, targets)."""
        if not isinstance(records, tuple | list) or len(records) != 2:
            raise TypeError(f"{name} must be a pair (inputs, targets), got {type(records).__name__}")
        x = to_float_array(records[0], f"{name} inputs", self.dtype, (None, self.features.inputs))
        y = to_float_array(records[1], f"{name} targets", self.dtype, (None,))
        if len(x) != len(y):
            raise ValueError(f"{name} must pair inputs and targets, got {len(x)} and {len(y)}")
        require_records(len(y), name)
        offset = self.features.offset(x)
        return LinearEvidence(self.features(x), None, y if offset is None else y - offset)

    def log_likelihood(self, theta, evidence: LinearEvidence):
        """Log-density of each target."""
        return norm.logpdf(evidence.targets, evidence.design @ theta[:-1], jnp.sqrt(theta[-1]))

    def sufficient_statistics(self, evidence: LinearEvidence, weights=None) -> RegressionNatural:
        """Sums of a y, a aᵀ, ½ and ½ y²."""
        design, y = evidence.design, evidence.targets
        counted, total = design, jnp.asarray(len(y), self.dtype)
        if weights is not None:
            counted, total = weights[:, None] * design, weights.sum()
        gaussian = GaussianNatural(counted.T @ y, DensePrecision(counted.T @ design))
        return RegressionNatural(gaussian, 0.5 * total, 0.5 * weighted_sum(y**2, weights))
