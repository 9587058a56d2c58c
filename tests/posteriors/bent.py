"""A flow far from its start, whose density is not Gaussian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax

from unbayes.posteriors import FullGaussian
from unbayes.posteriors.flow import AutoregressiveFlow

FRAME_MEAN = (0.5, -1.0, 0.3)
FRAME_SCALE_TRIL = ((1.2, 0.0, 0.0), (-0.4, 0.6, 0.0), (0.2, 0.1, 0.9))


def frame(dim: int) -> FullGaussian:
    return FullGaussian(jnp.array(FRAME_MEAN)[:dim], jnp.array(FRAME_SCALE_TRIL)[:dim, :dim])


def bent_flow(dim: int = 2, *, strength: float = 0.4, **architecture) -> AutoregressiveFlow:
    architecture = {"layers": 2, "width": 6, **architecture}
    flow = AutoregressiveFlow(frame(dim), key=jr.key(0), **architecture)
    trained, fixed = eqx.partition(
        flow, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable)
    )
    rng = np.random.default_rng(0)

    def move(weights):
        return weights + jnp.asarray(strength * rng.normal(size=weights.shape), weights.dtype)

    return eqx.combine(jax.tree.map(move, trained), fixed)
