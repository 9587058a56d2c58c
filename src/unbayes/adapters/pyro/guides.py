"""Between a guide of Pyro and a Gaussian posterior."""

# pyright: reportMissingImports=false

import copy
import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

from unbayes.adapters._torch import assign, to_double
from unbayes.posteriors import AbstractGaussian, DiagonalGaussian, FullGaussian

_copies = itertools.count(1)

Guide: TypeAlias = AutoDiagonalNormal | AutoMultivariateNormal


def parameters(guide: Any) -> Iterable[torch.Tensor]:
    """All parameters; what has none is refused by `read`."""
    return guide.parameters() if isinstance(guide, torch.nn.Module) else ()


def read(guide: Any) -> AbstractGaussian:
    """The belief about the flat latent; refuses what is none."""
    if type(guide) not in (AutoDiagonalNormal, AutoMultivariateNormal):
        raise TypeError(
            "guide must be an AutoMultivariateNormal or an AutoDiagonalNormal of Pyro, got "
            f"{type(guide).__name__}"
        )
    if guide.prototype_trace is None:
        raise ValueError("guide must be trained, got one that was never run")
    mean, scale = to_double(guide.loc), to_double(guide.scale)
    if type(guide) is AutoDiagonalNormal:
        return DiagonalGaussian(mean, scale)
    return FullGaussian(mean, scale[:, None] * to_double(guide.scale_tril))


def write(guide, posterior: Any) -> None:
    """Inverse of `read`."""
    assign(guide.loc, posterior.mean)
    if isinstance(posterior, DiagonalGaussian):
        guide.scale = torch.from_numpy(np.array(posterior.scale)).to(guide.loc)
        return
    factor = np.array(posterior.scale_tril)
    factor *= np.sign(np.diag(factor))
    scale = np.diag(factor).copy()
    guide.scale = torch.from_numpy(scale).to(guide.loc)
    guide.scale_tril = torch.from_numpy(factor / scale[:, None]).to(guide.loc)


def copied(guide):
    """A guide with parameters of its own, under a name of its own.

    Pyro's guides do not survive `copy.deepcopy`, which takes the model away from the original, and guides of
    one name share their parameters through the parameter store.
    """
    twin = object.__new__(type(guide))
    shallow = {
        name: copy.copy(value) if isinstance(value, dict) else value for name, value in vars(guide).items()
    }
    vars(twin).update(shallow)
    twin._parameters = {
        name: torch.nn.Parameter(value.detach().clone(), value.requires_grad)
        for name, value in guide._parameters.items()
    }
    twin.prototype_trace = _without_data(guide.prototype_trace)
    twin._pyro_context = type(guide._pyro_context)()
    twin._pyro_name = f"{guide._pyro_name}_unlearned_{next(_copies)}"
    return twin


def _without_data(trace):
    """A copy of the trace that a guide was set up with, without its arguments and observed values."""
    bare = trace.copy()
    for name, site in trace.nodes.items():
        is_latent = site["type"] == "sample" and not site["is_observed"]
        if not is_latent and site["type"] != "param":
            bare.remove_node(name)
    return bare
