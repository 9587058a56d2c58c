"""Take records back out of a sparse Gaussian process that was trained with GPyTorch.

The module is read as a `LinearModel` and a Gaussian posterior, in double precision whatever its own, and the
result is written back into it. Hyperparameters and inducing inputs stay what they are.
"""

# pyright: reportMissingImports=false

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood as GPyTorchBernoulli
from gpytorch.likelihoods import GaussianLikelihood as GPyTorchGaussian
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.models import ApproximateGP
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    MeanFieldVariationalDistribution,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)
from jaxtyping import PRNGKeyArray

from unbayes import memory as memories
from unbayes._validation import require_key
from unbayes.adapters._torch import assign, to_array, to_double
from unbayes.inference.ascent import stationarity
from unbayes.memory import Memory
from unbayes.models import (
    AbstractKernel,
    AbstractLikelihood,
    GaussianLikelihood,
    InducingInputs,
    LinearModel,
    Matern,
    ProbitLikelihood,
    SquaredExponential,
    WhitenedInducingInputs,
)
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian
from unbayes.progress import AbstractProgress
from unbayes.unlearning import AbstractMethod, Unlearned
from unbayes.unlearning import unlearn as unlearn_from_posterior
from unbayes.unlearning.methods.auto import Auto

AUTO = Auto()
# Difference between a module's own prior and ours, relative to its variance, that is more than rounding.
LARGEST_ROUNDING = 1e-3


def unlearn(
    gp: ApproximateGP,
    likelihood: Likelihood,
    erased: Any,
    *,
    memory: Memory | None = None,
    method: AbstractMethod = AUTO,
    key: PRNGKeyArray,
    in_place: bool = False,
    progress: AbstractProgress | None = None,
) -> tuple[ApproximateGP, Unlearned]:
    """Take `erased` back out of a trained `gp`.

    Always start from the module as it was trained: where requests arrive one after the other, give it and all
    the records that were erased so far.

    Parameters
    ----------
    gp
        Trained by `gpytorch.mlls.VariationalELBO`, with a whitened or unwhitened variational strategy, a
        Cholesky or mean-field variational distribution, a zero or constant mean, and an RBF or Matérn kernel,
        scaled or not.
    likelihood
        Gaussian or Bernoulli, as it was in training.
    erased
        The pair (inputs, targets) of the records D_e, tensors or arrays; labels are 0 and 1, or −1 and 1.
    memory
        What `remember` kept of the training set: the more of it, the closer the result.
    method, key, progress
        As for `unbayes.unlearn`.
    in_place
        Whether to change `gp` itself, instead of a copy. If anything fails, it stays as it was.

    Returns
    -------
    gp
        The module without the erased records.
    result
        How it was done, and how far to trust it.
    """
    with jax.enable_x64(True):
        posterior, model = _read(gp, likelihood)
        result = unlearn_from_posterior(
            posterior,
            model,
            _records(gp, likelihood, erased),
            memory=memory,
            method=method,
            key=key,
            progress=progress,
        )
        # What GPyTorch has cached belongs to the old values, and cannot be copied.
        gp.variational_strategy._clear_cache()
        recovered = gp if in_place else copy.deepcopy(gp)
        _write(recovered, result.posterior)
    return recovered, result


def remember(
    gp: ApproximateGP,
    likelihood: Likelihood,
    records: Any,
    size: int,
    *,
    key: PRNGKeyArray,
) -> Memory:
    """Keep what later unlearning can use, while the training records are still at hand.

    Parameters
    ----------
    gp, likelihood
        As for `unlearn`, once trained.
    records
        All the training records D, as a pair (inputs, targets).
    size
        Number of records to keep; these are training data, and to be protected as such. 0 keeps how well
        training has converged and, for a mean-field distribution, how its parameters depend on each other.
    key
        Key of the draw.
    """
    require_key(key)
    if not (isinstance(size, int) and size >= 0):
        raise ValueError(f"size must be a number of records to keep, got {size!r}")
    with jax.enable_x64(True):
        posterior, model = _read(gp, likelihood)
        records = _records(gp, likelihood, records)
        left = float(stationarity(posterior, model, model.encode(records)))
        return memories.remember(posterior, model, records, size, left, key=key)


def _read(gp, likelihood) -> tuple[AbstractGaussian, LinearModel]:
    """The module as a posterior and a model; refuses what cannot be one.

    θ is the whitened variable of a whitened strategy, else u less the mean of the process.
    """
    _require_strategy(gp)
    mean = _read_mean(_only_child(gp, Mean, "mean"))
    kernel = _read_kernel(_only_child(gp, Kernel, "kernel"))
    strategy = gp.variational_strategy
    process = InducingInputs(
        to_double(strategy.inducing_points),
        kernel,
        conditional_variance=True,
        jitter=strategy.jitter_val / float(kernel.variance),
    )
    _require_forward(gp, mean, process)
    features = process if _includes_mean(gp) else WhitenedInducingInputs(process)
    model = LinearModel(features, _read_likelihood(likelihood), features.prior, offset=mean)
    return _read_distribution(strategy._variational_distribution, mean * _includes_mean(gp)), model


def _write(gp, posterior: Any) -> None:
    """Inverse of `_read`, as far as the variational distribution goes."""
    distribution = gp.variational_strategy._variational_distribution
    mean = _read_mean(_only_child(gp, Mean, "mean"))
    assign(distribution.variational_mean, posterior.mean + mean * _includes_mean(gp))
    if isinstance(posterior, DiagonalGaussian):
        assign(distribution._variational_stddev, posterior.scale)
    else:
        assign(distribution.chol_variational_covar, posterior.scale_tril)


def _includes_mean(gp) -> bool:
    """Whether the variational mean includes the mean of the process."""
    return type(gp.variational_strategy) is UnwhitenedVariationalStrategy


def _read_distribution(distribution, shift: float) -> AbstractGaussian:
    mean = to_double(distribution.variational_mean) - shift
    if type(distribution) is MeanFieldVariationalDistribution:
        return DiagonalGaussian(mean, to_double(distribution.variational_stddev))
    return FullGaussian(mean, to_double(distribution.chol_variational_covar))


def _read_likelihood(likelihood) -> AbstractLikelihood:
    if type(likelihood) is GPyTorchBernoulli:
        return ProbitLikelihood()
    if type(likelihood) is not GPyTorchGaussian or likelihood.noise.numel() != 1:
        raise TypeError(
            "likelihood must be GPyTorch's BernoulliLikelihood, or its GaussianLikelihood with one noise "
            f"level, got {_describe(likelihood)}"
        )
    return GaussianLikelihood(likelihood.noise.item() ** 0.5)


def _read_mean(mean) -> float:
    if type(mean) is ZeroMean:
        return 0.0
    if type(mean) is ConstantMean and (constant := to_double(mean.constant)).size == 1:
        return constant.item()
    raise TypeError(f"the mean of gp must be a ZeroMean or one ConstantMean, got {_describe(mean)}")


def _read_kernel(kernel: Any, variance: float = 1.0) -> AbstractKernel:
    if type(kernel) is ScaleKernel and (scale := to_double(kernel.outputscale)).size == 1:
        return _read_kernel(kernel.base_kernel, variance * scale.item())
    is_known = type(kernel) in (RBFKernel, MaternKernel)
    if not is_known or kernel.active_dims is not None or kernel.batch_shape != torch.Size():
        raise TypeError(
            "the kernel of gp must be an RBFKernel or a MaternKernel of all input columns, within a "
            f"ScaleKernel or not, got {_describe(kernel)}"
        )
    lengthscales = to_double(kernel.lengthscale)[0]
    if type(kernel) is RBFKernel:
        return SquaredExponential(variance, lengthscales)
    return Matern(variance, lengthscales, to_double(kernel.nu).item())


def _require_strategy(gp) -> None:
    if not isinstance(gp, ApproximateGP):
        raise TypeError(f"gp must be an ApproximateGP of GPyTorch, got {type(gp).__name__}")
    strategy = gp.variational_strategy
    if type(strategy) not in (VariationalStrategy, UnwhitenedVariationalStrategy):
        raise TypeError(
            "the strategy of gp must be a VariationalStrategy or an UnwhitenedVariationalStrategy, got "
            f"{type(strategy).__name__}"
        )
    distribution = strategy._variational_distribution
    if type(distribution) not in (CholeskyVariationalDistribution, MeanFieldVariationalDistribution):
        raise TypeError(
            "the variational distribution of gp must be a CholeskyVariationalDistribution or a "
            f"MeanFieldVariationalDistribution, got {type(distribution).__name__}"
        )
    if strategy.inducing_points.ndim != 2 or distribution.variational_mean.ndim != 1:
        raise ValueError(
            "gp must be one process with one output, got inducing points of shape "
            f"{tuple(strategy.inducing_points.shape)} and a variational mean of shape "
            f"{tuple(distribution.variational_mean.shape)}"
        )
    if not strategy.variational_params_initialized.item():
        raise ValueError("gp must be trained, got a module whose variational parameters were never set")
    if not getattr(strategy, "updated_strategy", torch.tensor(True)).item():
        raise ValueError("gp must be called once after loading, so that GPyTorch brings it up to date")


def _require_forward(gp, mean: float, process: InducingInputs) -> None:
    """Refuse a module that does more with its inputs than its mean and kernel do."""
    with torch.no_grad():
        prior = gp.forward(gp.variational_strategy.inducing_points)
        own_mean, own_covariance = to_double(prior.mean), to_double(prior.covariance_matrix)
    covariance = process.kernel(process.locations, process.locations)
    limit = LARGEST_ROUNDING * float(process.kernel.variance)
    off_mean, off_covariance = np.abs(own_mean - mean).max(), jnp.abs(own_covariance - covariance).max()
    if not (off_mean <= limit**0.5 and off_covariance <= limit):
        raise ValueError(
            "gp.forward must return its mean and its kernel at the inputs as they are; at the inducing "
            f"points, its mean is off by {off_mean:.2g} and its covariance by {float(off_covariance):.2g}"
        )


def _only_child(gp, kind: type, name: str):
    found = [child for child in gp.children() if isinstance(child, kind)]
    if len(found) != 1:
        raise TypeError(f"gp must have one {name} among its modules, got {len(found)}")
    return found[0]


def _records(gp, likelihood, records: Any) -> Any:
    """Arrays in the shape and with the labels that a model takes; what is no such pair is left as it is."""
    if not isinstance(records, tuple | list) or len(records) != 2:
        return records
    try:
        inputs, targets = (np.asarray(to_array(part)) for part in records)
    except ValueError:  # Rows of different lengths.
        return records
    if inputs.ndim == 1 and gp.variational_strategy.inducing_points.shape[1] == 1:
        inputs = inputs[:, None]
    if type(likelihood) is GPyTorchBernoulli and (targets == -1).any() and not (targets == 0).any():
        targets = np.where(targets == -1, 0, targets)
    return inputs, targets


def _describe(module) -> str:
    """Name of a module, and what of it may be more than one, or less than all."""
    parts = [
        f"{name}={tuple(map(int, value))}"
        for name in ("batch_shape", "active_dims")
        if (value := getattr(module, name, None)) is not None and len(value)
    ]
    return type(module).__name__ + (f" with {', '.join(parts)}" if parts else "")
