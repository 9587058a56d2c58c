"""Autoregressive normalizing flows, built from flowjax bijections."""

from typing import Any, Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import paramax
from flowjax.bijections import (
    AbstractBijection,
    Affine,
    Chain,
    Flip,
    Invert,
    MaskedAutoregressive,
    Permute,
    Scan,
)
from jax.scipy.linalg import solve_triangular
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray
from paramax.utils import inv_softplus

from unbayes.posteriors.base import AbstractFlow
from unbayes.posteriors.gaussian import FullGaussian
from unbayes.posteriors.mode import find_mode

Permutation = Literal["reverse", "random", "none"]


class AutoregressiveFlow(AbstractFlow):
    """Standard-normal noise pushed through autoregressive layers, then through the map of a Gaussian.

    Parameters
    ----------
    frame
        Gaussian close to which the flow starts; it stays fixed, the layers learn what departs from it.
    key
        Key of the networks' random start.
    layers
        Number of autoregressive layers.
    width, depth
        Hidden units and hidden layers of each layer's network.
    inverse
        True for the inverse autoregressive form, which draws in one pass of the networks and inverts in d;
        False for the masked form, the other way round.
    permutation
        Order of the coordinates from one layer to the next: "reverse", "random" or "none".
    """

    bijection: AbstractBijection
    frame: paramax.NonTrainable[FullGaussian]
    layers: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    inverse: bool = eqx.field(static=True)
    permutation: Permutation = eqx.field(static=True)

    def __init__(
        self,
        frame: FullGaussian,
        *,
        key: PRNGKeyArray,
        layers: int = 4,
        width: int = 32,
        depth: int = 1,
        inverse: bool = True,
        permutation: Permutation = "reverse",
    ):
        if frame.dtype != jnp.result_type(float):
            raise ValueError(
                f"a flow computes in JAX's default type, {jnp.result_type(float)}; its frame is {frame.dtype}"
            )
        if permutation not in get_args(Permutation):
            raise ValueError(f"permutation must be one of {get_args(Permutation)}, got {permutation!r}")
        self.layers, self.width, self.depth = layers, width, depth
        self.inverse, self.permutation = inverse, permutation
        make = eqx.filter_vmap(lambda k: _layer(k, frame.dim, width, depth, permutation))
        stack = Scan(make(jr.split(key, layers)))
        self.bijection = stack if inverse else Invert(stack)
        self.frame = paramax.NonTrainable(frame)

    @classmethod
    def standard(cls, dim: int, dtype: jnp.dtype | None = None, *, key: PRNGKeyArray, **architecture) -> Self:
        """Flow close to N(0, I), with the architecture of the constructor."""
        return cls(FullGaussian.standard(dim, dtype), key=key, **architecture)

    @property
    def dim(self) -> int:
        """Length d of θ."""
        return self.bijection.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type."""
        return self.frame.tree.dtype

    def _sample(self, key):
        return self._sample_and_log_prob(key)[0]

    def _sample_and_log_prob(self, key):
        flow = paramax.unwrap(self)
        noise = jr.normal(key, (self.dim,), self.dtype)
        inner, log_det = flow.bijection.transform_and_log_det(noise)
        return flow.frame.colour(inner), norm.logpdf(noise).sum() - log_det - flow.frame.log_det_scale

    def _log_prob(self, theta):
        flow = paramax.unwrap(self)
        noise, log_det = flow.bijection.inverse_and_log_det(flow.frame.whiten(theta))
        return norm.logpdf(noise).sum() + log_det - flow.frame.log_det_scale

    def moved(self, before: FullGaussian, after: FullGaussian) -> Self:
        """The flow pushed through the affine map that takes the Gaussian `before` to `after`."""
        frame = paramax.unwrap(self.frame)
        mean = after.colour(before.whiten(frame.mean))
        relative = solve_triangular(before.scale_tril, frame.scale_tril, lower=True)
        moved = FullGaussian(mean, after.scale_tril @ relative)
        return eqx.tree_at(lambda flow: flow.frame, self, paramax.NonTrainable(moved))

    def stored_fields(self) -> dict[str, Any]:
        """The architecture, the frame, and the networks as their arrays in order."""
        fields = super().stored_fields()
        arrays = tuple(jax.tree.leaves(eqx.filter(self.bijection, eqx.is_array)))
        return {**fields, "bijection": arrays, "frame": self.frame.tree}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> Self:
        """A new flow of the same architecture, with the stored arrays put into it."""
        architecture = dict(fields)
        stored, frame = architecture.pop("bijection"), architecture.pop("frame")

        def skeleton(frame):
            return cls(frame, key=jr.key(0), **architecture)

        def signature(tree):
            return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]

        # Shapes first: an absurd architecture must not get as far as memory.
        fits = architecture["depth"] <= len(stored)
        if not fits or signature(eqx.filter_eval_shape(skeleton, frame).bijection) != signature(stored):
            raise ValueError("its arrays do not fit its architecture")
        flow = skeleton(frame)
        arrays, rest = eqx.partition(flow.bijection, eqx.is_array)
        bijection = eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), stored), rest)
        return eqx.tree_at(lambda f: f.bijection, flow, bijection)

    def mode(self, key: PRNGKeyArray | None = None, *, starts: int = 8) -> Float[Array, " d"]:
        """Where the density is largest, by BFGS from the likeliest of a thousand draws."""
        if key is None:
            raise ValueError("key must be given: the mode of a flow is searched from random starts")
        return find_mode(self, self.frame.tree, key, starts)


def _layer(key, dim: int, width: int, depth: int, permutation: Permutation) -> AbstractBijection:
    network_key, permutation_key = jr.split(key)
    layer = MaskedAutoregressive(
        network_key, transformer=_scaled_shift(), dim=dim, nn_width=width, nn_depth=depth
    )
    # A last layer close to zero starts the flow at its frame, however many layers there are.
    layer = eqx.tree_at(
        lambda m: m.masked_autoregressive_mlp.layers[-1],
        layer,
        replace_fn=lambda last: jax.tree.map(lambda w: 0.01 * w if eqx.is_inexact_array(w) else w, last),
    )
    if permutation == "none" or dim == 1:
        return layer
    if permutation == "reverse":
        return Chain([layer, Flip((dim,))])
    return Chain([layer, Permute(jr.permutation(permutation_key, dim))])


def _scaled_shift() -> Affine:
    """Affine map whose scale stays above 0.01: deep stacks can neither collapse nor blow up at once."""
    floor = 1e-2
    scale = paramax.Parameterize(lambda x: jax.nn.softplus(x) + floor, inv_softplus(jnp.asarray(1 - floor)))
    return eqx.tree_at(lambda a: a.scale, Affine(), scale)
