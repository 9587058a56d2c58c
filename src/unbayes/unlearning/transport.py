"""Unlearning for flows: moved by natural gradients of the affine map that is put behind them.

Write a flow as m + L z, with its mean m, a root L of its covariance, and draws z of what is left of it. A
trained flow is stationary in m and L too, so that

    E[∇ log p(θ, D)] = 0    and    −E[∇ log p(θ, D) (θ − m)ᵀ] Σ⁻¹ = Σ⁻¹ = (L Lᵀ)⁻¹,

sums over records both. A natural-gradient step therefore takes the part of the erased records from Σ⁻¹, as it
does for a Gaussian, where z is standard normal and the second is −E[∇² log p(θ, D)] by the theorem of Price.
"""

import dataclasses
from typing import Self

import equinox as eqx
import jax
from jaxtyping import Array, Float

from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.models.base import CHUNK_ELEMENTS
from unbayes.posteriors import AutoregressiveFlow, FullGaussian, matched_gaussian
from unbayes.posteriors.gram import inverse_triangular
from unbayes.quadrature import QUASI_RANDOM_NODES
from unbayes.records import accumulate, weighted_sum
from unbayes.unlearning.base import AbstractAdditiveMethod
from unbayes.unlearning.natural_gradient import NaturalGradient
from unbayes.unlearning.result import Solution
from unbayes.unlearning.view import AbstractView


class Transport(AbstractAdditiveMethod):
    """Push a flow forward by the affine map that natural gradients find.

    The shape that the flow has learnt stays, its place and its width change. No weights 1/p(D_e|θ) are
    involved, so none can collapse.

    Parameters
    ----------
    sampled, nodes, memory
        As for `NaturalGradient`.
    draws
        Draws of the flow, over which everything is averaged.
    """

    sampled: bool = False
    nodes: int = QUASI_RANDOM_NODES
    draws: int = 10_000
    memory: Memory | None = eqx.field(default=None, repr=False)

    def with_memory(self, memory: Memory | None) -> Self:
        """The method with what training kept."""
        return self if memory is None else dataclasses.replace(self, memory=memory)

    def check(self, posterior, model) -> None:
        """Refuse anything but a flow of ours."""
        if not isinstance(posterior, AutoregressiveFlow):
            raise TypeError(f"method Transport needs an AutoregressiveFlow, got {type(posterior).__name__}")

    @property
    def summary_settings(self) -> tuple:
        """What the Gaussian and its sites depend on; the memory counts by its arrays."""
        return (self.nodes, self.draws)

    def summarise(self, posterior, model, erased, *, key):
        """Sum of the sites."""
        gaussian, shaped = _split(posterior, model, key, self.draws)
        return self._steps.summarise(gaussian, shaped, erased, key=key)

    def solve(self, posterior, model, value, *, key, progress=None) -> Solution:
        """Move mean and covariance, and the flow with them."""
        gaussian, shaped = _split(posterior, model, key, self.draws)
        return _moved(posterior, gaussian, self._steps.solve(gaussian, shaped, value, key=key))

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Summarise, then solve; the rows tell more of what to expect of the remaining records."""
        gaussian, shaped = _split(posterior, model, key, self.draws)
        return _moved(posterior, gaussian, self._steps.run(gaussian, shaped, erased, key=key))

    @property
    def _steps(self) -> NaturalGradient:
        return NaturalGradient(self.sampled, self.nodes, self.memory)


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
        return full.site(pulls.mean(0), -0.5 * (slope + slope.T))


@eqx.filter_jit
def _split(flow, model: AbstractModel, key, draws: int) -> tuple[FullGaussian, _Shaped]:
    """Mean and covariance of draws that the key fixes, and the model under what is left of these draws."""
    gaussian = matched_gaussian(flow, key, draws)
    return gaussian, _Shaped(model, jax.vmap(gaussian.whiten)(flow.sample(key, (draws,))))


def _moved(flow, before: FullGaussian, solution: Solution) -> Solution:
    assert isinstance(flow, AutoregressiveFlow)
    assert isinstance(solution.posterior, FullGaussian)
    return solution._replace(posterior=flow.moved(before, solution.posterior), site=None)
