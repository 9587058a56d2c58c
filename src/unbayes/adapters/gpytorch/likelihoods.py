"""Likelihoods of GPyTorch as ours."""

# pyright: reportMissingImports=false

from typing import Any

import gpytorch.likelihoods as theirs
import numpy as np
import torch

from unbayes.adapters._torch import to_double
from unbayes.models import (
    AbstractLikelihood,
    GaussianLikelihood,
    PoissonLikelihood,
    ProbitLikelihood,
    SoftplusPoissonLikelihood,
    StudentTLikelihood,
)

# Rates of counts by which a link is told, at f = 0: 1 of an exponential, 0.69 of softplus.
LINKS = {1.0: PoissonLikelihood, float(np.log(2)): SoftplusPoissonLikelihood}


def read_likelihood(likelihood: Any) -> AbstractLikelihood:
    """The same likelihood of ours; refuses what has no counterpart."""
    kind = type(likelihood)
    if kind is theirs.BernoulliLikelihood:
        return ProbitLikelihood()
    if kind is theirs.GaussianLikelihood and likelihood.noise.numel() == 1:
        return GaussianLikelihood(_number(likelihood.noise) ** 0.5)
    if kind is theirs.StudentTLikelihood and likelihood.noise.numel() == 1:
        return StudentTLikelihood(_number(likelihood.noise) ** 0.5, _number(likelihood.deg_free))
    if kind is getattr(theirs, "PoissonLikelihood", None):
        rate = likelihood.forward(torch.zeros((), dtype=torch.float64)).rate.item()
        for expected, ours in LINKS.items():
            if np.isclose(rate, expected):
                return ours()
    raise TypeError(
        "likelihood must be GPyTorch's BernoulliLikelihood or PoissonLikelihood, or its GaussianLikelihood "
        f"or StudentTLikelihood with one noise level, got {kind.__name__}"
    )


def read_targets(likelihood: Any, targets: np.ndarray) -> np.ndarray:
    """Targets with the labels that our likelihood takes."""
    is_signed = type(likelihood) is theirs.BernoulliLikelihood and (targets == -1).any()
    return np.where(targets == -1, 0, targets) if is_signed and not (targets == 0).any() else targets


def _number(tensor: torch.Tensor) -> float:
    return to_double(tensor).item()
