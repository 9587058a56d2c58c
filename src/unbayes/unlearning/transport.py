"""Unlearning for flows: moved as natural gradients move a Gaussian with the same mean and covariance."""

import dataclasses
from typing import Self

import equinox as eqx

from unbayes.memory import Memory
from unbayes.posteriors import AutoregressiveFlow, FullGaussian, matched_gaussian
from unbayes.quadrature import QUASI_RANDOM_NODES
from unbayes.unlearning.base import AbstractAdditiveMethod
from unbayes.unlearning.natural_gradient import NaturalGradient
from unbayes.unlearning.result import Solution


class Transport(AbstractAdditiveMethod):
    """Push a flow forward by the affine map that takes one Gaussian to another.

    The first has the flow's mean and covariance; the second is what `NaturalGradient` makes of it. The shape
    that the flow has learnt stays, its place and its width change. No weights 1/p(D_e|θ) are involved, so
    none can collapse.

    Parameters
    ----------
    sampled, nodes, memory
        As for `NaturalGradient`.
    draws
        Draws of the flow from which its mean and covariance are taken.
    """

    sampled: bool = False
    nodes: int = QUASI_RANDOM_NODES
    draws: int = 10_000
    memory: Memory | None = eqx.field(default=None, repr=False)

    def with_memory(self, memory: Memory | None) -> Self:
        """The method with what training kept."""
        return self if memory is None else dataclasses.replace(self, memory=memory)

    def check(self, posterior, model) -> None:
        """Refuse anything but a flow of ours."""
        if not isinstance(posterior, AutoregressiveFlow):
            raise TypeError(f"method Transport needs an AutoregressiveFlow, got {type(posterior).__name__}")

    @property
    def summary_settings(self) -> tuple:
        """What the Gaussian and its sites depend on; the memory counts by its arrays."""
        return (self.nodes, self.draws)

    def summarise(self, posterior, model, erased, *, key):
        """Sum of the sites at the Gaussian."""
        return self._steps.summarise(self._gaussian(posterior, key), model, erased, key=key)

    def solve(self, posterior, model, value, *, key, progress=None) -> Solution:
        """Move the Gaussian, and the flow with it."""
        gaussian = self._gaussian(posterior, key)
        return _moved(posterior, gaussian, self._steps.solve(gaussian, model, value, key=key))

    def run(self, posterior, model, erased, *, key, progress=None) -> Solution:
        """Summarise, then solve; the rows tell more of what to expect of the remaining records."""
        gaussian = self._gaussian(posterior, key)
        return _moved(posterior, gaussian, self._steps.run(gaussian, model, erased, key=key))

    @property
    def _steps(self) -> NaturalGradient:
        return NaturalGradient(self.sampled, self.nodes, self.memory)

    def _gaussian(self, posterior, key):
        return matched_gaussian(posterior, key, self.draws)


def _moved(flow, before: FullGaussian, solution: Solution) -> Solution:
    assert isinstance(flow, AutoregressiveFlow)
    assert isinstance(solution.posterior, FullGaussian)
    return solution._replace(posterior=flow.moved(before, solution.posterior), site=None)
