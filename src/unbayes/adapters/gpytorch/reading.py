"""Between a module of GPyTorch and a posterior with its model."""

# pyright: reportMissingImports=false

from typing import Any, NamedTuple

import gpytorch.variational
import numpy as np
import torch
from gpytorch.models import ApproximateGP
from gpytorch.variational import UnwhitenedVariationalStrategy, VariationalStrategy

from unbayes.adapters._torch import to_array
from unbayes.adapters.gpytorch.beliefs import read_belief, require_belief, write_belief, written
from unbayes.adapters.gpytorch.likelihoods import read_likelihood, read_targets
from unbayes.adapters.gpytorch.process import GivenFeatures, Process
from unbayes.models import LinearModel, to_float_array
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian
from unbayes.unlearning.provenance import count_inputs

# The last one computes the same as the first, and is not in every version of GPyTorch.
STRATEGIES = (
    VariationalStrategy,
    UnwhitenedVariationalStrategy,
    getattr(gpytorch.variational, "LargeBatchVariationalStrategy", VariationalStrategy),
)


class Reading(NamedTuple):
    """A module as it was read.

    Attributes
    ----------
    posterior, model
        The belief about θ: the whitened variable of a whitened strategy, else u less the mean of the process.
    process, likelihood
        What turns records into those that the model takes.
    """

    posterior: AbstractGaussian
    model: LinearModel
    process: Process
    likelihood: Any

    def records(self, given: Any, name: str) -> Any:
        """Records as the model takes them; what is no pair of arrays is left for the model to refuse."""
        if not isinstance(given, tuple | list) or len(given) != 2:
            return given
        try:
            targets = np.asarray(to_array(given[1]))
        except ValueError:  # Rows of different lengths.
            return given
        x = self._inputs(to_array(given[0]), f"{name} inputs")
        if targets.ndim == 1 and len(targets) != len(x):
            raise ValueError(f"{name} must pair inputs and targets, got {len(x)} and {len(targets)}")
        if not len(x):
            raise ValueError(f"{name} must hold at least one record, got none")
        belief = np.asarray(self.posterior.mean), np.asarray(self.posterior.covariance)
        columns = self.process.columns(x, *belief, f"{name} inputs")
        return columns, read_targets(self.likelihood, targets)

    def kept_inputs(self, given: Any) -> np.ndarray:
        """How many of the given records have each of the inducing points as their input."""
        points = to_array(self.process.strategy.inducing_points)
        x = self._inputs(to_array(given[0]), "inputs")
        return count_inputs(x, points) if x.shape[1:] == points.shape[1:] else np.zeros(len(points), np.int32)

    def _inputs(self, x: Any, name: str) -> np.ndarray:
        """Finite numbers; only a module that changes its inputs first may take another number of columns."""
        try:
            x = np.asarray(x)
        except ValueError as error:
            raise ValueError(f"{name} must be an array, got rows of different lengths") from error
        columns = self.process.strategy.inducing_points.shape[1]
        is_plain = type(self.process.module).__call__ is ApproximateGP.__call__
        if is_plain and x.ndim == 1 and columns == 1:
            x = x[:, None]
        shape = (None, columns) if is_plain else (None, *x.shape[1:])
        return np.asarray(to_float_array(x, name, self.model.dtype, shape))

    def write(self, gp: Any, posterior: Any) -> None:
        """Give a module of the same kind another belief."""
        strategy = gp.variational_strategy
        strategy._clear_cache()
        distribution = strategy._variational_distribution
        write_belief(distribution, written(distribution, posterior, self.process.shift))


def read(gp: Any, likelihood: Any) -> Reading:
    """The module as a posterior and a model; refuses what cannot be one."""
    _require_strategy(gp)
    process = Process(gp)
    posterior = read_belief(process.strategy._variational_distribution, process.shift)
    prior: AbstractGaussian = DiagonalGaussian.standard(process.size, posterior.dtype)
    if process.includes_mean:
        prior = FullGaussian(np.zeros(process.size), np.asarray(process.root.cpu()))
    model = LinearModel(GivenFeatures(process.size + 2), read_likelihood(likelihood), prior)
    return Reading(posterior, model, process, likelihood)


def _require_strategy(gp) -> None:
    if not isinstance(gp, ApproximateGP):
        raise TypeError(f"gp must be an ApproximateGP of GPyTorch, got {type(gp).__name__}{_layer(gp)}")
    strategy = gp.variational_strategy
    if type(strategy) not in STRATEGIES:
        raise TypeError(
            "the strategy of gp must be a VariationalStrategy or an UnwhitenedVariationalStrategy, got "
            f"{type(strategy).__name__}"
        )
    distribution = strategy._variational_distribution
    require_belief(distribution)
    shape = tuple(distribution.shape())
    if strategy.inducing_points.ndim != 2 or len(shape) != 1:
        raise ValueError(
            "gp must be one process with one output, got inducing points of shape "
            f"{tuple(strategy.inducing_points.shape)} and a variational mean of shape {shape}"
        )
    if not strategy.variational_params_initialized.item():
        raise ValueError("gp must be trained, got a module whose variational parameters were never set")
    if not getattr(strategy, "updated_strategy", torch.tensor(True)).item():
        raise ValueError("gp must be called once after loading, so that GPyTorch brings it up to date")


def _layer(module: Any) -> str:
    """How to hand in a process that is a layer of something else; nothing to say where there is none."""
    is_module = isinstance(module, torch.nn.Module)
    layers = (
        [name for name, part in module.named_children() if isinstance(part, ApproximateGP)]
        if is_module
        else []
    )
    if not layers:
        return ""
    return f"; hand in its layer {layers[0]}, and as inputs what that layer is given"
