"""Records as a linear model sees them."""

from typing import Any, ClassVar, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from unbayes._storable import Storable
from unbayes._validation import require_positive
from unbayes.models.features import AbstractFeatures


class LinearEvidence(Storable):
    """Records as a linear model sees them.

    Attributes
    ----------
    design
        Features a(x), shape (n, p).
    variance
        Variance of f that θ leaves open, shape (n,), or None.
    targets
        y, shape (n,); None of inputs alone.
    offset
        Part of f that is known, shape (n,), or None.
    """

    later_fields: ClassVar[dict[str, Any]] = {"offset": None}

    design: Float[Array, "n p"]
    variance: Float[Array, " n"] | None
    targets: Shaped[Array, "n ..."]
    offset: Float[Array, " n"] | None = None

    def require_valid(self) -> None:
        """Refuse a variance below zero."""
        if self.variance is not None:
            require_positive("variance", self.variance, or_zero=True)


@eqx.filter_jit
def featurise(features: AbstractFeatures, x) -> tuple[LinearEvidence, Array]:
    """Inputs as evidence without targets, and whether all features are finite."""
    design = features(x)
    inputs = LinearEvidence(design, features.variance(x), cast(Any, None), features.offset(x))
    return inputs, jnp.isfinite(design).all()
