"""A model looked at through something else."""

import jax.numpy as jnp

from unbayes.models import AbstractModel


class AbstractView(AbstractModel):
    """The prior and the records of `model`; a view says how beliefs about θ meet them.

    Sites are dense, whatever those of the model are.
    """

    model: AbstractModel

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.model.dim

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the model."""
        return self.model.dtype

    @property
    def has_dense_sites(self) -> bool:
        """Whether sites are dense, which those of a view always are."""
        return True

    @property
    def has_third_derivatives(self) -> bool:
        """Whether third derivatives are affordable: a view changes them, and does not say how."""
        return False

    @property
    def holds_functions(self) -> bool:
        """Whether the model holds functions of a user's."""
        return self.model.holds_functions

    @property
    def gaussian_prior(self):
        """Prior of the model, where it is Gaussian."""
        return self.model.gaussian_prior

    def encode(self, records, name="records"):
        """Records as the model reads them."""
        return self.model.encode(records, name)

    def log_prior(self, theta):
        """Log p(θ) of the model."""
        return self.model.log_prior(theta)

    def log_likelihood(self, theta, evidence):
        """Log p(record|θ) of the model, one per record."""
        return self.model.log_likelihood(theta, evidence)
