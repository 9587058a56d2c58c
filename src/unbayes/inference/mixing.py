"""Steps that learn from those before them: Anderson's mixing, for the fixed points of natural gradients."""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unbayes.posteriors import FullGaussian, GaussianNatural

# Added to the least squares, relative to their size, so that steps which tell the same do no harm.
RIDGE = 1e-12
# Along which changes of the precision are compared.
DIRECTIONS = 4


class History(NamedTuple):
    """The last few steps of an ascent.

    Attributes
    ----------
    natural
        Natural parameters from which the next step starts.
    targets
        Natural parameters after a full step from each belief before, shapes (m, d) and (m, d, d).
    residuals
        How far each of those steps went.
    taken
        Number of steps since the history began, of which the last m are kept.
    """

    natural: GaussianNatural
    targets: GaussianNatural
    residuals: GaussianNatural
    taken: Array

    @classmethod
    def begin(cls, natural: GaussianNatural, depth: int) -> Self:
        """No steps yet, and room for `depth` of them."""
        room = jax.tree.map(lambda leaf: jnp.zeros((depth, *leaf.shape), leaf.dtype), natural)
        return cls(natural, room, room, jnp.asarray(0))

    def propose(
        self, gaussian: FullGaussian, target: GaussianNatural, step: Float[Array, ""]
    ) -> GaussianNatural:
        """Combination of all targets whose residuals, as far as they are linear, cancel best.

        Where there is no history, a share `step` of the way to `target`.

        Parameters
        ----------
        gaussian
            The belief of `natural`; what counts as small is measured around it.
        target
            Natural parameters of a full step from it.
        step
            For the first step.
        """
        residual = jax.tree.map(jnp.subtract, target, self.natural)
        now = _in_deviations(gaussian, residual)
        before = jax.vmap(_in_deviations, (None, 0))(gaussian, self.residuals)
        is_filled = jnp.arange(len(before)) < self.taken
        changes = jnp.where(is_filled[:, None], now - before, 0)
        products = changes @ changes.T
        ridge = jnp.diag(RIDGE * jnp.trace(products) + jnp.where(is_filled, 0.0, 1.0))
        shares = jnp.linalg.solve(products + ridge, changes @ now)

        def next_leaf(leaf, change, latest, earlier):
            mixture = latest - shares.sum() * latest + jnp.tensordot(shares, earlier, 1)
            return jnp.where(self.taken > 0, mixture, leaf + step * change)

        return jax.tree.map(next_leaf, self.natural, residual, target, self.targets)

    def after(
        self, natural: GaussianNatural, target: GaussianNatural, accepted: Array, counts: Array
    ) -> Self:
        """History once `natural` was tried: begun anew unless it was accepted, and the step `counts`."""
        place = self.taken % len(self.targets.linear)
        residual = jax.tree.map(jnp.subtract, target, self.natural)
        targets, residuals = (
            jax.tree.map(lambda leaf, new: leaf.at[place].set(new), kept, latest)
            for kept, latest in ((self.targets, target), (self.residuals, residual))
        )
        natural = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), natural, self.natural)
        return type(self)(natural, targets, residuals, jnp.where(accepted & counts, self.taken + 1, 0))


def _in_deviations(gaussian: FullGaussian, residual: GaussianNatural) -> Float[Array, " r"]:
    """A step in standard deviations of a belief: of its mean and, along some directions, of its precision.

    All directions would tell how far the step goes by KL, at the price of products of whole matrices.
    """
    signs = np.random.default_rng(0).choice([-1, 1], (gaussian.dim, DIRECTIONS)) / (2 * DIRECTIONS) ** 0.5
    directions = jnp.column_stack([-gaussian.mean, gaussian.scale_tril @ signs.astype(gaussian.dtype)])
    change = (residual.precision.matrix @ directions).at[:, 0].add(residual.linear)
    return (gaussian.scale_tril.T @ change).ravel()
