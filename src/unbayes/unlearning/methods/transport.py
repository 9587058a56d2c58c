"""Unlearning for flows: moved by natural gradients of the affine map that is put behind them.

Write a flow as m + L z, with its mean m, a root L of its covariance, and draws z of what is left of it. A
trained flow is stationary in m and L too, so that

    E[∇ log p(θ, D)] = 0    and    −E[∇ log p(θ, D) (θ − m)ᵀ] Σ⁻¹ = Σ⁻¹ = (L Lᵀ)⁻¹,

sums over records both. A natural-gradient step therefore takes the part of the erased records from Σ⁻¹, as it
does for a Gaussian, where z is standard normal and the second is −E[∇² log p(θ, D)] by the theorem of Price.
"""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from unbayes._numerics.linalg import inverse_triangular
from unbayes._numerics.quadrature import QUASI_RANDOM_NODES
from unbayes._numerics.records import CHUNK_ELEMENTS, accumulate, weighted_sum
from unbayes.models import AbstractModel
from unbayes.models.view import AbstractView
from unbayes.posteriors import AbstractFlow, DensePrecision, FullGaussian, matched_gaussian
from unbayes.unlearning.base import AbstractMethod
from unbayes.unlearning.methods.natural_gradient import NaturalGradient
from unbayes.unlearning.result import Solution


class Transport(AbstractMethod):
    """Push a flow forward by the affine map that natural gradients find.

    The shape that the flow has learnt stays, its place and its width change. No weights 1/p(D_e|θ) are
    involved, so none can collapse.

    Parameters
    ----------
    nodes
        As for `NaturalGradient`.
    draws
        Draws of the flow, over which everything is averaged.
    """

    nodes: int = QUASI_RANDOM_NODES
    draws: int = 10_000

    def check(self, posterior, model, memory) -> None:
        """Refuse a posterior that cannot be pushed through an affine map."""
        if not isinstance(posterior, AbstractFlow):
            raise TypeError(f"method Transport needs an AutoregressiveFlow, got {type(posterior).__name__}")

    @property
    def summary_settings(self) -> tuple:
        """Numbers of nodes and of draws."""
        return (self.nodes, self.draws)

    def summarise(self, posterior, model, erased, weights, *, memory, key):
        """Sums of the sites of the Gaussian with the flow's moments."""
        gaussian, shaped = _split(posterior, model, key, self.draws)
        return NaturalGradient(self.nodes).summarise(gaussian, shaped, erased, weights, memory=None, key=key)

    def solve(self, posterior, model, statistics, *, memory, key, progress=None) -> Solution:
        """Move mean and covariance, and the flow with them."""
        gaussian, shaped = _split(posterior, model, key, self.draws)
        solution = NaturalGradient(self.nodes).solve(gaussian, shaped, statistics, memory=memory, key=key)
        assert isinstance(posterior, AbstractFlow)
        assert isinstance(solution.posterior, FullGaussian)
        return solution._replace(posterior=posterior.moved(gaussian, solution.posterior))


class _Shaped(AbstractView):
    """A model under beliefs m + L z whose z is not normal, but any of `noise`.

    The belief is handed over as the Gaussian with its mean and covariance.
    """

    noise: Float[Array, "s d"]

    def expected_log_likelihood(self, gaussian, evidence, nodes, weights=None):
        return self.log_likelihood_at(jax.vmap(gaussian.colour)(self.noise), evidence, weights)[1]

    def site(self, gaussian, evidence, nodes, weights=None):
        """E[∇ log p], and minus the slope of ∇ log p over θ, symmetric."""
        thetas = jax.vmap(gaussian.colour)(self.noise)

        def part(weighted):
            evidence, weights = weighted

            def total(theta):
                return weighted_sum(self.log_likelihood(theta, evidence), weights)

            return jax.vmap(jax.grad(total))(thetas)

        pulls = accumulate(part, (evidence, weights), max(CHUNK_ELEMENTS // len(thetas), 1))
        full = gaussian.to_full()
        slope = pulls.T @ self.noise @ inverse_triangular(full.scale_tril) / len(thetas)
        return full.site(pulls.mean(0), DensePrecision(-0.5 * (slope + slope.T)))


@eqx.filter_jit
def _split(flow, model: AbstractModel, key, draws: int) -> tuple[FullGaussian, _Shaped]:
    """Mean and covariance of draws that the key fixes, and the model under what is left of these draws."""
    gaussian = matched_gaussian(flow, key, draws)
    return gaussian, _Shaped(model, jax.vmap(gaussian.whiten)(flow.sample(key, (draws,))))
