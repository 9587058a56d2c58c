"""Records that are known by their derivatives at one belief alone, as seen from beliefs nearby.

By the theorems of Bonnet and Price, E[log p] of records under N(m + δ, Σ + Δ) is, beyond its terms of first
and second order at N(m, Σ),

    ⅙ T3[δ, δ, δ] + ½ T3[δ, Δ] + 1/24 T4[δ, δ, δ, δ] + ¼ T4[δ, δ, Δ] + ⅛ T4[Δ, Δ] + …

with the sums T3 = Σ E[∇³ log p] and T4 = Σ E[∇⁴ log p]. Its derivatives say how the records' sites change:

    gradient   ½ T3:(Δ + δδᵀ) + ½ T4[δ, Δ] + ⅙ T4[δ, δ, δ]
    precision  −T3 δ − ½ T4:(Δ + δδᵀ)

A series in Δ goes astray where a belief becomes much wider: curvatures do not fall in proportion to it. With
Δ/(1 + γΔ) in its place the series is the same to this order, and stays bounded.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unbayes._numerics.linalg import Half
from unbayes.models.derivatives import Derivatives
from unbayes.models.view import AbstractView
from unbayes.posteriors import AbstractGaussian, DensePrecision, FullGaussian, GaussianNatural

# Of a gradient along so many directions, and of a precision.
_Term = tuple[Float[Array, " k"], Float[Array, "k k"]]


class Series(eqx.Module):
    """The terms of third and fourth order, as a function of a Gaussian belief.

    Attributes
    ----------
    centre
        m, shape (d,).
    projection
        From θ − m to k coordinates in which the belief at the centre is standard normal, shape (k, d).
    derivatives
        T3 and T4 along these coordinates, and T5 along the first of them.
    damping
        γ, zero for the plain series.
    order
        Of the last term that is summed, 3 or 4.
    """

    centre: Float[Array, " d"]
    projection: Float[Array, "k d"]
    derivatives: Derivatives
    damping: Float[Array, ""]
    order: int = eqx.field(static=True, default=4)

    def value_and_site(self, gaussian: FullGaussian) -> tuple[Float[Array, ""], GaussianNatural]:
        """What these terms add to E[log p], and to the natural gradient."""
        half, third, fourth = self.derivatives.half, self.derivatives.third, self.derivatives.fourth
        move, wider = self._change(gaussian)
        damped = jnp.linalg.inv(jnp.eye(len(move), dtype=gaussian.dtype) + self.damping * wider)
        square, spread = half.contracted(jnp.outer(move, move)), half.contracted(damped @ wider)
        value = (square / 6 + spread / 2) @ third @ move
        gradient = 0.5 * (square + spread) @ third
        precision = -half.matrix(third @ move)
        if fourth is not None and self.order > 3:
            along_square, along_spread = fourth @ square, fourth @ spread
            value += square @ (along_square / 24 + along_spread / 4) + spread @ along_spread / 8
            gradient += half.matrix(0.5 * along_spread + along_square / 6) @ move
            precision -= 0.5 * half.matrix(along_square + along_spread)
        # The change of Δ/(1 + γΔ) with Δ has this factor on either side.
        curvature = self.projection.T @ (damped @ precision @ damped) @ self.projection
        return value, gaussian.site(self.projection.T @ gradient, DensePrecision(curvature))

    def next_term(self, belief: AbstractGaussian, target: GaussianNatural) -> Float[Array, ""] | None:
        """KL, in nats, by which the term after the last would move a belief; None where it is not known.

        Of the fifth order, its share of the gradient is 1/24 T5[δ, δ, δ, δ] + ¼ T5[δ, δ, Δ] + ⅛ T5[Δ, Δ], and
        of the precision −⅙ T5[δ, δ, δ] − ½ T5[δ, Δ]. The mean answers through the dense precision of
        `target`, also where the belief is diagonal; of the precision such a belief takes the diagonal alone.
        Fifth derivatives are known along the leading directions, where most of the term lies.
        """
        found = self._fourth(belief.to_full()) if self.order == 3 else self._fifth(belief.to_full())
        if found is None:
            return None
        gradient, precision = found
        projection = self.projection[: len(gradient)]
        root = target.precision.inverse_factor()
        moved = root @ (root.T @ (projection.T @ gradient))
        narrower = belief.shares(DensePrecision(projection.T @ precision @ projection))
        return 0.5 * moved @ (belief.natural.precision @ moved) + 0.25 * (narrower**2).sum()

    def _fourth(self, gaussian: FullGaussian) -> _Term | None:
        """Gradient and precision of the term of fourth order, undamped."""
        half, fourth = self.derivatives.half, self.derivatives.fourth
        if fourth is None:
            return None
        move, wider = self._change(gaussian)
        along_square, along_spread = (
            fourth @ half.contracted(jnp.outer(move, move)),
            fourth @ half.contracted(wider),
        )
        gradient = half.matrix(0.5 * along_spread + along_square / 6) @ move
        return gradient, -0.5 * half.matrix(along_square + along_spread)

    def _fifth(self, gaussian: FullGaussian) -> _Term | None:
        """The same of fifth order, along the leading directions."""
        fifth = self.derivatives.fifth
        if fifth is None:
            return None
        leading = fifth.shape[2]
        half = Half(leading)
        move, wider = (each[tuple([slice(leading)] * each.ndim)] for each in self._change(gaussian))
        square, spread = half.contracted(jnp.outer(move, move)), half.contracted(wider)
        both = square[:, None] * (square / 24 + spread / 4) + spread[:, None] * spread / 8
        return jnp.tensordot(both, fifth, 2), -half.matrix((fifth @ move) @ (square / 6 + spread / 2))

    def _change(self, gaussian: FullGaussian) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        """δ and Δ."""
        root = self.projection @ gaussian.scale_tril
        move = self.projection @ (gaussian.mean - self.centre)
        return move, root @ root.T - jnp.eye(len(move), dtype=gaussian.dtype)


class SeriesModel(AbstractView):
    """A model whose records are joined by others of which only a series is known."""

    series: Series

    def expected_log_likelihood(self, gaussian, evidence, nodes, weights=None):
        """E_q[log p] of the records at hand, and the terms of the series."""
        return self.expected_log_likelihood_and_site(gaussian, evidence, nodes, weights)[0]

    def site(self, gaussian, evidence, nodes, weights=None):
        """Natural gradient of that."""
        return self.expected_log_likelihood_and_site(gaussian, evidence, nodes, weights)[1]

    def expected_log_likelihood_and_site(self, gaussian: AbstractGaussian, evidence, nodes, weights=None):
        """Both; of the series alone, where there are no records at hand."""
        full = gaussian.to_full()
        value, site = self.series.value_and_site(full)
        if evidence is None:
            return value, site
        own, own_site = self.model.expected_log_likelihood_and_site(full, evidence, nodes, weights)
        return value + own, site + own_site
