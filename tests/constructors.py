"""Small examples of every class of the library, over which the laws run.

A new class gets one line here. Tests walk the subclasses of each abstract class and ask for it where it is
missing; see `EXAMPLES`.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import logit

import unbayes as ub
from models.rows import INPUTS, WHITENED
from models.rows import MODELS as LINEAR_MODELS
from posteriors.bent import bent_flow, frame
from unbayes.posteriors import RegressionNatural

# Packages whose classes obey laws; adapters need libraries that may not be there.
ROOMS = ("posteriors", "models", "training", "unlearning")


class PosteriorExample(NamedTuple):
    """How to make a posterior, and how to test it.

    `cover` maps the unit cube of `free` dimensions onto the support; None where that is finite.
    `evidence` adds to the natural parameters of an exponential family.
    """

    make: Callable[[], ub.AbstractPosterior]
    cover: Callable | None
    free: int
    evidence: Callable[[], Any] | None = None


class LikelihoodExample(NamedTuple):
    """How to make a likelihood, and valid targets."""

    make: Callable[[], ub.AbstractLikelihood]
    targets: list


class ModelExample(NamedTuple):
    """How to make a model, and valid records."""

    make: Callable[[], ub.AbstractModel]
    records: Any


class MethodExample(NamedTuple):
    """A method, and the number of draws whose Monte-Carlo error its answer carries.

    They are those of one step, or those of a bank.
    """

    make: Callable[[], ub.AbstractMethod]
    draws: float = np.inf
    for_flows: bool = False


class Example(NamedTuple):
    """How to make anything else."""

    make: Callable[[], Any]


def line(u):
    return 2 * logit(u)


def half_line(u):
    return u / (1 - u)


def simplex(u):
    return jnp.stack([u[0], (1 - u[0]) * u[1], (1 - u[0]) * (1 - u[1])])


def line_and_half_line(u):
    return jnp.stack([line(u[0]), half_line(u[1])])


def dense(*rows):
    return ub.DensePrecision(jnp.array(rows))


def diagonal(*entries):
    return ub.DiagonalPrecision(jnp.array(entries))


POSTERIORS = {
    ub.DiagonalGaussian: (
        PosteriorExample(
            lambda: ub.DiagonalGaussian([1.0, -2.0], [0.5, 2.0]),
            line,
            2,
            lambda: ub.GaussianNatural(jnp.array([50.0, -30.0]), diagonal(100.0, 80.0)),
        ),
    ),
    ub.FullGaussian: (
        PosteriorExample(
            lambda: frame(2),
            line,
            2,
            lambda: ub.GaussianNatural(jnp.array([50.0, -30.0]), dense([100.0, 40.0], [40.0, 80.0])),
        ),
    ),
    ub.AutoregressiveFlow: (
        PosteriorExample(lambda: bent_flow(inverse=True), line, 2),
        PosteriorExample(lambda: bent_flow(inverse=False), line, 2),
    ),
    ub.Beta: (
        PosteriorExample(
            lambda: ub.Beta(3.0, 2.0), lambda u: u, 1, lambda: (jnp.array(90.0), jnp.array(80.0))
        ),
    ),
    ub.Dirichlet: (
        PosteriorExample(
            lambda: ub.Dirichlet([2.0, 3.0, 4.0]), simplex, 2, lambda: jnp.array([90.0, 80.0, 99.0])
        ),
    ),
    ub.Gamma: (
        PosteriorExample(
            lambda: ub.Gamma(3.0, 2.0), half_line, 1, lambda: (jnp.array(70.0), jnp.array(90.0))
        ),
    ),
    ub.NormalInverseGamma: (
        PosteriorExample(
            lambda: ub.NormalInverseGamma([1.5], [[2.0]], 3.0, 2.0),
            line_and_half_line,
            2,
            lambda: RegressionNatural(
                ub.GaussianNatural(jnp.array([60.0]), dense([90.0])), jnp.array(90.0), jnp.array(99.0)
            ),
        ),
    ),
    ub.Table: (
        PosteriorExample(lambda: ub.Table([[0.0, 1.0], [2.0, -1.0], [3.0, 0.5]], [0.3, -0.2, 1.0]), None, 0),
    ),
}

LIKELIHOODS = {
    ub.GaussianLikelihood: (LikelihoodExample(lambda: ub.GaussianLikelihood(0.7), [-3.0, 0.0, 2.5]),),
    ub.BernoulliLikelihood: (LikelihoodExample(ub.BernoulliLikelihood, [0.0, 1.0]),),
    ub.ProbitLikelihood: (LikelihoodExample(ub.ProbitLikelihood, [0.0, 1.0]),),
    ub.CategoricalLikelihood: (LikelihoodExample(lambda: ub.CategoricalLikelihood(3), [0, 1, 2]),),
    ub.WeightedLikelihood: (
        LikelihoodExample(
            lambda: ub.WeightedLikelihood(ub.GaussianLikelihood(0.7)), [[-3.0, 2.5], [0.0, 2.5], [2.5, 2.5]]
        ),
        LikelihoodExample(
            lambda: ub.WeightedLikelihood(ub.CategoricalLikelihood(3)), [[0.0, 0.5], [2.0, 7.0]]
        ),
    ),
    ub.PoissonLikelihood: (LikelihoodExample(ub.PoissonLikelihood, [0.0, 1.0, 40.0]),),
    ub.SoftplusPoissonLikelihood: (LikelihoodExample(ub.SoftplusPoissonLikelihood, [0.0, 1.0, 40.0]),),
    ub.HeteroscedasticLikelihood: (
        LikelihoodExample(lambda: ub.HeteroscedasticLikelihood(0.7), [-3.0, 0.0, 2.5]),
    ),
    ub.IntegratedLikelihood: (
        LikelihoodExample(
            lambda: ub.IntegratedLikelihood(ub.GaussianLikelihood(0.7)), [[-3.0, 0.6], [0.0, 0.6]]
        ),
        LikelihoodExample(lambda: ub.IntegratedLikelihood(ub.ProbitLikelihood()), [[0.0, 0.0], [1.0, 2.5]]),
        LikelihoodExample(
            lambda: ub.IntegratedLikelihood(ub.BernoulliLikelihood()), [[0.0, 0.0], [1.0, 2.5]]
        ),
    ),
    ub.StudentTLikelihood: (LikelihoodExample(lambda: ub.StudentTLikelihood(0.7, 4.0), [-3.0, 0.0, 2.5]),),
}

LOCAL = ub.LocalFeatures(WHITENED, INPUTS[:2], [0.3, -1.0], [0.1, 0.2])
FEATURES = {
    ub.RawFeatures: (Example(lambda: ub.RawFeatures(1)), Example(lambda: ub.RawFeatures(2, bias=False))),
    ub.CentredFeatures: (Example(lambda: ub.CentredFeatures(ub.RawFeatures(2), [3.0, -50.0])),),
    ub.PolynomialFeatures: (Example(lambda: ub.PolynomialFeatures(2, 3)),),
    ub.FunctionFeatures: (Example(lambda: ub.FunctionFeatures(jnp.tanh, 2, 2)),),
    ub.InducingInputs: (
        Example(lambda: WHITENED.process),
        Example(lambda: ub.InducingInputs([[-1.0], [1.0]], ub.Matern(2.0, [1.2]))),
    ),
    ub.WhitenedInducingInputs: (Example(lambda: WHITENED),),
    ub.LocalFeatures: (Example(lambda: LOCAL),),
}

KERNELS = {
    ub.SquaredExponential: (Example(lambda: ub.SquaredExponential(2.3, [0.7, 1.9])),),
    ub.Matern: tuple(
        Example(lambda smoothness=smoothness: ub.Matern(2.3, [0.7, 1.9], smoothness))
        for smoothness in (0.5, 1.5, 2.5)
    ),
}

MODELS = {
    ub.LinearModel: tuple(
        ModelExample(lambda model=model: model, (INPUTS, targets))
        for model, targets in LINEAR_MODELS.values()
    ),
    ub.BlockProcess: (
        ModelExample(
            lambda: ub.pitc_gp([[-1.0], [1.0]], ub.SquaredExponential(2.0, [1.2]), noise_scale=0.5),
            (INPUTS, INPUTS[:, 0] ** 2, np.array([1, 0, 1, 1, 0])),
        ),
    ),
    ub.DensityModel: (
        ModelExample(
            lambda: ub.DensityModel(
                lambda theta: -0.5 * theta @ theta, lambda theta, y: -jnp.abs(y - theta.sum()), dim=2
            ),
            np.array([0.3, -1.0, 2.0]),
        ),
    ),
    ub.GammaShape: (
        ModelExample(
            lambda: ub.GammaShape(0.3, ub.DiagonalGaussian([0.2], [1.0])), np.array([0.5, 2.0, 9.0])
        ),
    ),
    ub.BetaBernoulli: (ModelExample(lambda: ub.BetaBernoulli(ub.Beta(0.3, 0.7)), np.array([0, 1, 1])),),
    ub.DirichletCategorical: (
        ModelExample(lambda: ub.DirichletCategorical(ub.Dirichlet([0.7, 1.3, 2.0])), np.array([0, 2, 1, 1])),
    ),
    ub.GammaPoisson: (ModelExample(lambda: ub.GammaPoisson(ub.Gamma(0.3, 0.7)), np.array([0, 3, 7])),),
    ub.UnknownNoiseRegression: (
        ModelExample(
            lambda: ub.UnknownNoiseRegression(
                ub.RawFeatures(1), ub.NormalInverseGamma([0.1, -0.2], np.eye(2), 1.7, 20.3)
            ),
            (INPUTS, INPUTS[:, 0] - 0.3),
        ),
    ),
}

DECAYING = optax.adam(optax.cosine_decay_schedule(1e-2, 1500))
METHODS = {
    ub.Auto: (MethodExample(ub.Auto),),
    ub.Exact: (MethodExample(ub.Exact),),
    ub.NaturalGradient: (MethodExample(ub.NaturalGradient),),
    ub.EUBO: tuple(
        MethodExample(
            lambda batch_size=batch_size: ub.EUBO(
                iterations=1500, draws=2000, optimizer=DECAYING, batch_size=batch_size
            ),
            2000,
        )
        for batch_size in (None, 10)
    ),
    ub.ReverseKL: (
        MethodExample(lambda: ub.ReverseKL(iterations=1500, draws=2000, optimizer=DECAYING), 2000),
    ),
    ub.BankReverseKL: (MethodExample(lambda: ub.BankReverseKL(draws=20_000), 20_000),),
    ub.Transport: (MethodExample(ub.Transport, 10_000, for_flows=True),),
}

EXAMPLES = {
    ub.AbstractPosterior: POSTERIORS,
    ub.AbstractLikelihood: LIKELIHOODS,
    ub.AbstractFeatures: FEATURES,
    ub.AbstractKernel: KERNELS,
    ub.AbstractModel: MODELS,
    ub.AbstractMethod: METHODS,
}


def by_name(table: Mapping[type, Iterable[Any]]) -> dict[str, Any]:
    """Examples of a table, each with a name for a test."""
    return {
        f"{kind.__name__} {number}" if number else kind.__name__: example
        for kind, examples in table.items()
        for number, example in enumerate(examples)
    }


def concrete_classes(base: type) -> set[type]:
    """Classes of the library below `base` that somebody can make an object of."""
    _import_everything()
    found = {each for below in base.__subclasses__() for each in {below, *concrete_classes(below)}}
    return {
        each
        for each in found
        if each.__module__.startswith(tuple(f"unbayes.{room}." for room in ROOMS))
        and not each.__name__.startswith(("Abstract", "_"))
        and not inspect.isabstract(each)
    }


def missing_examples(base: type, table: Mapping[type, Any]) -> str:
    """A sentence on the classes without an example; empty where all have one."""
    names = sorted(each.__name__ for each in concrete_classes(base) - set(table))
    if not names:
        return ""
    return (
        f"tests/constructors.py must hold an example of each {base.__name__}, got none of {', '.join(names)}"
    )


def _import_everything() -> None:
    """Load every module, since a class is known once its module is."""
    for room in ROOMS:
        package = importlib.import_module(f"unbayes.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
