"""What every model can do."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes._numerics.fingerprint import fingerprint
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES, Nodes, is_sampled, standard_normal_nodes
from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate, weighted_sum
from unbayes._storable import Storable
from unbayes._validation import require_precision
from unbayes.models import differentiation
from unbayes.models.derivatives import Derivatives
from unbayes.models.predictive import Surprise
from unbayes.posteriors import (
    AbstractExponentialFamily,
    AbstractGaussian,
    AbstractPosterior,
    GaussianNatural,
    gaussian_kl,
    small_change,
)

# Parameters beyond which differentiating a general model twice, one matrix per node, costs too much.
LARGEST_DIFFERENTIATED_DIM = 300
# Records whose sites, a matrix each, are computed at a time.
SITES_AT_ONCE = 32
# Parameters beyond which sums of third derivatives, d³ numbers, cost too much where nobody asked for them.
LARGEST_THIRD_DIM = 32
# Directions along which a general model is differentiated four times, at every node.
LARGEST_DIFFERENTIATED_DIRECTIONS = 12


class AbstractModel(Storable):
    """A prior p(θ) and a likelihood p(record|θ), records independent given θ.

    A model meets raw records once, in `encode`, which refuses what it cannot use and returns *evidence*: a
    pytree of arrays with the records along the leading axis, in the form the likelihood wants them. All else
    works on evidence.
    """

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length d of θ."""

    @property
    @abc.abstractmethod
    def dtype(self) -> jnp.dtype:
        """Floating-point type in which the model computes."""

    @abc.abstractmethod
    def encode(self, records: Any, name: str = "records") -> Any:
        """Turn records into evidence, or refuse them with a sentence that calls them `name`."""

    def rows(self, records: Any, name: str = "records") -> Any:
        """Records in the digits by which they are known again: as encoded, unless that computes."""
        return self.encode(records, name)

    @property
    def fingerprint(self) -> str:
        """Equal for equal models, in any process; functions count by their name alone."""
        return fingerprint(self)

    @property
    def kept_inputs(self) -> Float[Array, "m k"] | None:
        """Inputs that the model itself holds, some of which may be those of training records."""
        return None

    @property
    def caveats(self) -> tuple[str, ...]:
        """What of the model may know records that are taken out of its posterior, in sentences."""
        return ()

    @abc.abstractmethod
    def log_prior(self, theta: Float[Array, " d"]) -> Float[Array, ""]:
        """Log p(θ)."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Float[Array, " d"], evidence: Any) -> Float[Array, " n"]:
        """Log p(record|θ), one number per record."""

    def log_likelihood_at(
        self, thetas: Float[Array, "s d"], evidence: Any, weights: Float[Array, " n"] | None = None
    ) -> tuple[Float[Array, " s"], Float[Array, ""]]:
        """Log-likelihood of all records at each of several θ, as deviations from its mean over the θ.

        Kept apart because it is the deviations that weights are made of: each record is centred before it is
        summed, so that float32 keeps their digits however many records there are.

        Returns
        -------
        deviations
            log p(D|θ_s) − mean, shape (s,).
        mean
            Mean of log p(D|θ_s) over s.
        """

        def part(weighted):
            evidence, weights = weighted
            each = jax.vmap(self.log_likelihood, (0, None))(thetas, evidence)
            mean = each.mean(0)
            return weighted_sum((each - mean).T, weights), weighted_sum(mean, weights)

        return accumulate(part, (evidence, weights), max(CHUNK_ELEMENTS // thetas.shape[0], 1))

    def nodes(self, count: int = QUASI_RANDOM_NODES) -> Nodes:
        """Nodes for `expected_log_likelihood` and `site`: `count` of them where `is_sampled`."""
        return standard_normal_nodes(self.integral_dim, self.dtype, count)

    @property
    def integral_dim(self) -> int:
        """Dimension of the space in which expectations of the log-likelihood are integrals."""
        return self.dim

    @property
    def is_sampled(self) -> bool:
        """Whether expectations of the log-likelihood are averages, good to a few digits only."""
        return is_sampled(self.integral_dim)

    @property
    def has_affordable_sites(self) -> bool:
        """Whether `site` costs little: integrals in few dimensions, or few enough second derivatives."""
        return self.integral_dim < self.dim or self.dim <= LARGEST_DIFFERENTIATED_DIM

    @property
    def has_dense_sites(self) -> bool:
        """Whether dense sites, d² numbers each, are affordable too."""
        return self.dim <= LARGEST_DIFFERENTIATED_DIM

    def expected_log_likelihood(
        self,
        gaussian: AbstractGaussian,
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
    ) -> Float[Array, ""]:
        """E_q[log p(D|θ)] for Gaussian q, summed over records, each counted `weights` times."""
        thetas = jax.vmap(gaussian.colour)(nodes.points)
        deviations, mean = self.log_likelihood_at(thetas, evidence, weights)
        return mean + nodes.weights @ deviations

    @property
    def gaussian_prior(self) -> AbstractGaussian | None:
        """The prior as a Gaussian, where it is one: terms in it then have closed forms."""
        return None

    def expected_log_prior(self, gaussian: AbstractGaussian, nodes: Nodes) -> Float[Array, ""]:
        """E_q[log p(θ)] for Gaussian q."""
        if self.gaussian_prior is not None:
            return -gaussian_kl(gaussian, self.gaussian_prior) - gaussian.entropy()
        return nodes.weights @ jax.vmap(lambda z: self.log_prior(gaussian.colour(z)))(nodes.points)

    def prior_site(self, gaussian: AbstractGaussian, nodes: Nodes) -> GaussianNatural:
        """Natural gradient of E_q[log p(θ)]: a Gaussian prior's own parameters, else by differentiation."""
        if self.gaussian_prior is None:
            one = jnp.zeros(1, self.dtype)
            return differentiation.second_order(self._log_prior_of_one, gaussian, one, nodes).site(gaussian)
        prior = self.gaussian_prior.natural
        return gaussian.site(prior.gradient_at(gaussian.mean), prior.precision)

    def site(
        self,
        gaussian: AbstractGaussian,
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
    ) -> GaussianNatural:
        """Natural gradient of E_q[log p(D|θ)], summed over records, by automatic differentiation.

        A record counts `weights` times. The sites of a diagonal Gaussian are diagonal; those of the same
        Gaussian `to_full` are dense.
        """
        arguments = (gaussian, evidence, nodes, weights)
        return differentiation.second_order(self.log_likelihood, *arguments).site(gaussian)

    def expected_log_likelihood_and_site(
        self,
        gaussian: AbstractGaussian,
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
    ) -> tuple[Float[Array, ""], GaussianNatural]:
        """Both at once; a model for which that costs less than one after the other says how."""
        arguments = (gaussian, evidence, nodes, weights)
        return self.expected_log_likelihood(*arguments), self.site(*arguments)

    def site_changes(
        self, before: AbstractGaussian, after: AbstractGaussian, evidence: Any, nodes: Nodes
    ) -> Float[Array, " n"]:
        """KL, in nats to second order, by which the change of each record's site moves the belief `after`."""
        full = after.to_full()

        def one(record):
            alone = jax.tree.map(lambda leaf: leaf[None], record)
            old, new = (self.site(gaussian, alone, nodes) for gaussian in (before, after))
            change = new - old
            return small_change(full.scale_tril, change.gradient_at(full.mean), change.precision.matrix)

        return jax.lax.map(one, evidence, batch_size=SITES_AT_ONCE)

    def influence(self, gaussian: AbstractGaussian, evidence: Any, nodes: Nodes) -> Float[Array, " n"]:
        """Share of the belief's precision that each record gave, summed over directions: tr(Σ s_i)."""

        def one(record):
            site = self.site(gaussian, jax.tree.map(lambda leaf: leaf[None], record), nodes)
            return site.precision.trace_with(gaussian)

        return jax.lax.map(one, evidence)

    @property
    def has_third_derivatives(self) -> bool:
        """Whether `derivatives` of third order, along all of θ, cost little beside sites."""
        return self.dim <= LARGEST_THIRD_DIM

    @property
    def most_directions(self) -> int:
        """Directions along which `derivatives` of fourth order are affordable, at most."""
        return min(self.dim, LARGEST_DIFFERENTIATED_DIRECTIONS)

    @property
    def has_fifth_derivatives(self) -> bool:
        """Whether fifth derivatives, along the leading directions, are affordable too."""
        return False

    def derivatives(
        self,
        gaussian: AbstractGaussian,
        directions: Float[Array, "d k"],
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
        order: int = 4,
    ) -> Derivatives:
        """E_q[∇³ log p(D|θ)] and so on up to `order`, summed over records, along k directions of θ."""
        return differentiation.site_and_derivatives(
            self.log_likelihood, gaussian, directions, evidence, nodes, weights, order
        )[1]

    def site_and_derivatives(
        self,
        gaussian: AbstractGaussian,
        directions: Float[Array, "d k"],
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
        order: int = 4,
    ) -> tuple[GaussianNatural, Derivatives]:
        """Both at once; a model for which that costs less than one after the other says how."""
        arguments = (evidence, nodes, weights)
        return self.site(gaussian, *arguments), self.derivatives(gaussian, directions, *arguments, order)

    def prior_derivatives(
        self, gaussian: AbstractGaussian, directions: Float[Array, "d k"], nodes: Nodes, order: int = 4
    ) -> Derivatives | None:
        """The same of log p(θ); None for a Gaussian prior, which has none."""
        if self.gaussian_prior is not None:
            return None
        one = jnp.zeros(1, self.dtype)
        return differentiation.site_and_derivatives(
            self._log_prior_of_one, gaussian, directions, one, nodes, None, order
        )[1]

    def _log_prior_of_one(self, theta, evidence):
        """The prior as what a single record says."""
        return self.log_prior(theta)[None]

    def bending(
        self,
        gaussian: AbstractGaussian,
        root: Float[Array, "d d"],
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
    ) -> Float[Array, "d d"]:
        """How much the records' curvature varies along each direction z, θ = m + root z, as E_q[(H − E H)²].

        Its leading eigenvectors are the directions along which higher derivatives matter most.
        """

        def second_derivatives(theta):
            def total(z):
                moved = theta + root @ z
                return weighted_sum(self.log_likelihood(moved, evidence), weights) + self.log_prior(moved)

            return jax.hessian(total)(jnp.zeros(root.shape[1], root.dtype))

        second = jax.lax.map(second_derivatives, jax.vmap(gaussian.colour)(nodes.points))
        away = second - jnp.tensordot(nodes.weights, second, 1)
        return jnp.einsum("k,kij,kjl->il", nodes.weights, away, away)

    def surprise(self, gaussian: AbstractGaussian, evidence: Any, nodes: Nodes) -> Surprise | None:
        """How improbable each record is under the belief without it; None where that cannot be told."""
        return None

    def deviance(
        self,
        gaussian: AbstractGaussian,
        evidence: Any,
        nodes: Nodes,
        weights: Float[Array, " n"] | None = None,
    ) -> Float[Array, ""] | None:
        """E_q[log p(D|θ)] below the most that it could be, in nats; None where there is no such bound.

        No record has less than zero, so no part of the training data has more than all of them.
        """
        most = self.largest_log_likelihood(evidence, weights)
        return (
            None if most is None else most - self.expected_log_likelihood(gaussian, evidence, nodes, weights)
        )

    def largest_log_likelihood(
        self, evidence: Any, weights: Float[Array, " n"] | None = None
    ) -> Float[Array, ""] | None:
        """Bound on log p(D|θ) over all θ; None where there is none."""
        return None

    @property
    def holds_functions(self) -> bool:
        """Whether the model holds functions of a user's, which may close over anything, data included."""
        return False

    @property
    def has_tied_records(self) -> bool:
        """Whether evidence of a record depends on those given with it, which must then be given together."""
        return False

    @property
    def site_rank(self) -> int:
        """Rank that the precision of one record's site has at most."""
        return self.dim

    @property
    def is_log_concave(self) -> bool:
        """Whether log p(record|θ) is concave in θ for every record, so that records only add precision."""
        return False

    @property
    def conjugate_prior(self) -> AbstractExponentialFamily | None:
        """The prior as a member of the family in which the posterior is exact, if there is one."""
        return None

    def is_conjugate_to(self, posterior: AbstractPosterior) -> bool:
        """Whether `posterior` is of the family in which this model's posterior is exact."""
        return self.conjugate_prior is not None and type(posterior) is type(self.conjugate_prior)

    def sufficient_statistics(self, evidence: Any, weights: Float[Array, " n"] | None = None) -> Any:
        """What the records, each `weights` times, add to natural parameters of the conjugate prior."""
        raise TypeError(f"{type(self).__name__} has no conjugate prior")

    def log_predictive(
        self,
        posterior: AbstractPosterior,
        records: Any,
        *,
        key: PRNGKeyArray | None = None,
        draws: int = 1000,
    ) -> Float[Array, " n"]:
        """Log-density of each record under the predictive distribution, log ∫ p(record|θ) q(θ) dθ.

        Exact where the posterior is conjugate, by quadrature where it is Gaussian and θ a scalar; otherwise
        from `draws` samples of θ, for which `key` must be given.
        """
        require_precision(posterior=posterior, model=self)
        evidence = self.encode(records)
        if self.is_conjugate_to(posterior):
            return _conjugate_log_predictive(self, posterior, evidence)
        if isinstance(posterior, AbstractGaussian) and self.dim == 1:
            nodes = standard_normal_nodes(1, self.dtype)
            thetas, log_weights = jax.vmap(posterior.colour)(nodes.points), jnp.log(nodes.weights)
        elif key is None:
            raise ValueError("key must be given: this predictive density is sampled")
        else:
            thetas = posterior.sample(key, (draws,))
            log_weights = jnp.full(draws, -jnp.log(draws), self.dtype)
        each = jax.vmap(self.log_likelihood, (0, None))(thetas, evidence)
        return logsumexp(each + log_weights[:, None], axis=0)


@eqx.filter_jit
def _conjugate_log_predictive(model: AbstractModel, posterior, evidence):
    """p(y|D) = p(y|θ) p(θ|D) / p(θ|D, y), which holds at every θ."""
    theta = posterior.sample(jax.random.key(0))

    def one(record):
        alone = jax.tree.map(lambda leaf: leaf[None], record)
        updated = jax.tree.map(jnp.add, posterior.natural, model.sufficient_statistics(alone))
        likelihood = model.log_likelihood(theta, alone)[0]
        return likelihood + posterior.log_prob(theta) - posterior.with_natural(updated).log_prob(theta)

    return jax.vmap(one)(evidence)
