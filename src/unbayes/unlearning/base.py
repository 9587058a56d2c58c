"""The contract of unlearning methods: summarise a batch → add → solve, wherever the mathematics allows."""

import abc
import hashlib
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unbayes.memory import Memory
from unbayes.models import AbstractModel
from unbayes.posteriors import AbstractPosterior, GaussianNatural
from unbayes.progress import AbstractProgress
from unbayes.unlearning.result import Solution


class AbstractMethod(eqx.Module):
    """A way to take records back out of a posterior."""

    def check(self, posterior: AbstractPosterior, model: AbstractModel) -> None:
        """Refuse a posterior or a model that the method cannot work with."""

    def choose(self, posterior: AbstractPosterior, model: AbstractModel) -> "tuple[AbstractMethod, str]":
        """The method that runs, and why where that was a choice: itself, but for `Auto`."""
        return self, ""

    def with_memory(self, memory: Memory | None) -> Self:
        """The method with what training kept; itself, where it has no use for that."""
        return self

    @abc.abstractmethod
    def run(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        erased: Any,
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Solution:
        """Unlearn `erased`, as `model.encode` returned it, from `posterior`."""


class Statistics(eqx.Module):
    """What one pass over a batch of erased records leaves behind; sums over batches, in any order.

    Attributes
    ----------
    value
        Sums over the records, a pytree of arrays.
    site
        What the records had added to a Gaussian posterior, which `solve` checks was ever there; None where
        that is not known.
    matches
        How often each record of the memory's coreset was among them, shape (k,); None without a coreset.
    records
        Number of records.
    origin
        Fingerprint of posterior, model, memory, method and key: only statistics of one origin add up.
    """

    value: Any
    site: GaussianNatural | None
    matches: Float[Array, " k"] | None
    records: int = eqx.field(static=True)
    origin: str = eqx.field(static=True)

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Statistics):
            raise TypeError(f"statistics add to statistics, got {type(other).__name__}")
        if self.origin != other.origin:
            raise ValueError(
                "statistics add up only if they come from the same posterior, model, memory, method and key; "
                "always summarise at the trained posterior, never at an unlearned one"
            )
        value, site, matches = jax.tree.map(
            jnp.add, (self.value, self.site, self.matches), (other.value, other.site, other.matches)
        )
        return type(self)(value, site, matches, self.records + other.records, self.origin)

    def __radd__(self, other: Any) -> Self:
        """Let `sum` start from zero."""
        return self if other == 0 else self + other


class AbstractAdditiveMethod(AbstractMethod):
    """A method that needs each erased record once, for its part in a sum.

    Batches can be summarised apart, in any order and on any machine, and added.
    """

    @abc.abstractmethod
    def summarise(
        self, posterior: AbstractPosterior, model: AbstractModel, erased: Any, *, key: PRNGKeyArray
    ) -> Any:
        """Sums over the records of a batch, at the trained posterior."""

    @abc.abstractmethod
    def solve(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        value: Any,
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> Solution:
        """The posterior without the records that `value` sums over; `key` as for `summarise`."""

    @property
    def gives_site(self) -> bool:
        """Whether `site` can be told from what `summarise` returns, without another pass."""
        return False

    def site(self, value: Any) -> GaussianNatural:
        """What the records that `value` sums over had added to a Gaussian posterior."""
        raise TypeError(f"{type(self).__name__} does not compute sites")

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Summarise, then solve."""
        value = self.summarise(posterior, model, erased, key=key)
        return self.solve(posterior, model, value, key=key, progress=progress)

    @property
    def summary_settings(self) -> tuple:
        """Settings of the method that its statistics depend on."""
        return ()

    def origin(self, posterior: AbstractPosterior, model: AbstractModel, key: PRNGKeyArray) -> str:
        """Fingerprint of everything that statistics depend on besides the records."""
        digest = hashlib.blake2b(repr((type(self).__name__, *self.summary_settings)).encode(), digest_size=16)
        for leaf in jax.tree.leaves(eqx.filter((self, posterior, model, jr.key_data(key)), eqx.is_array)):
            digest.update(f"{leaf.dtype}{leaf.shape}".encode())
            digest.update(np.asarray(leaf).tobytes())
        return digest.hexdigest()


class AbstractIterativeMethod(AbstractMethod):
    """A method that reads the erased rows in every iteration: what it computes from them moves with q̃.

    Its statistics are the rows themselves, so batches cannot be summarised and thrown away.
    """


class AbstractAdjustedMethod(AbstractMethod):
    """A method with an adjusted likelihood, equation (6), whose threshold λ is `lam`."""

    lam: eqx.AbstractVar[float]

    @abc.abstractmethod
    def run_each(
        self,
        posterior: AbstractPosterior,
        model: AbstractModel,
        erased: Any,
        lams: Sequence[float],
        *,
        key: PRNGKeyArray,
        progress: AbstractProgress | None = None,
    ) -> list[Solution]:
        """Unlearn once for every λ in `lams`, in one compiled call."""

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Unlearn at the method's own λ."""
        return self.run_each(posterior, model, erased, (self.lam,), key=key, progress=progress)[0]
