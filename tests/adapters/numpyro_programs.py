"""NumPyro programs with data, trained by SVI on all records and, for reference, on the remaining ones."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoGuide

KEY = jax.random.key(0)


class Case(NamedTuple):
    """A program, the arguments that hold records, those that do not, and which records to erase."""

    program: Callable[..., Any]
    records: dict[str, np.ndarray]
    fixed: dict[str, Any]
    erased_rows: np.ndarray

    def arguments(self, part: str) -> dict[str, Any]:
        """The arguments of the program with all the records, the erased or the remaining ones."""
        total = len(next(iter(self.records.values())))
        rows = {
            "full": np.arange(total),
            "erased": self.erased_rows,
            "remaining": np.setdiff1d(np.arange(total), self.erased_rows),
        }[part]
        return {name: value[rows] for name, value in self.records.items()} | self.fixed


class Fitted(NamedTuple):
    guide: AutoGuide
    params: dict[str, Any]


@contextlib.contextmanager
def numpyro_settings(dtype: str = "float64"):
    """Settings that NumPyro can run with: it relies on type promotion."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(dtype == "float64"):
        yield


def set_up(program, family: Callable[..., AutoGuide], *args, **kwargs) -> Fitted:
    """A guide that knows its program and is not trained."""
    guide = family(program)
    trace = handlers.trace(handlers.seed(guide, KEY)).get_trace(*args, **kwargs)
    return Fitted(guide, {name: site["value"] for name, site in trace.items() if site["type"] == "param"})


def train(case: Case, family: type[AutoGuide], part: str, steps: int = 1000) -> Fitted:
    """Train from scratch with falling step sizes, so that little of the optimiser's noise is left."""
    guide = family(case.program)
    schedule = optax.exponential_decay(0.04, steps // 8, 0.5, transition_begin=steps // 4)
    svi = SVI(case.program, guide, optax.adam(schedule), Trace_ELBO(num_particles=10))
    result = svi.run(KEY, steps, progress_bar=False, **case.arguments(part))
    return Fitted(guide, result.params)


def furthest(x: np.ndarray, count: int) -> np.ndarray:
    """Rows with the largest entries of a column: erased records that are a corner of the data."""
    return np.argsort(x)[-count:]


def regression() -> Case:
    """Linear regression with unknown noise, in a plate."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = x @ [1.0, -2.0] + 0.3 + 0.5 * rng.standard_t(4, size=80)

    def program(x, y=None):
        weights = numpyro.sample("weights", dist.Normal(0, 2).expand([x.shape[1]]).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, 2))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        mean = numpyro.deterministic("mean", x @ weights + bias)
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    return Case(program, {"x": x, "y": y}, {}, furthest(x[:, 0], 12))


def logistic() -> Case:
    """Logistic regression without a plate."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    y = (rng.random(120) < 1 / (1 + np.exp(-(x @ [1.5, -1.0] + 0.5)))).astype(np.int32)

    def program(x, y=None):
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 2.0).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, 2))
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + bias), obs=y)

    return Case(program, {"x": x, "y": y}, {}, furthest(x[:, 0], 12))


def poisson() -> Case:
    """Poisson regression with an offset, log exposure, that no latent variable belongs to."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=100)
    exposure = rng.uniform(0.5, 3.0, size=100)
    y = rng.poisson(exposure * np.exp(0.5 + 0.4 * x)).astype(np.int32)

    def program(x, exposure, y=None):
        level = numpyro.sample("level", dist.Normal(0, 2))
        slope = numpyro.sample("slope", dist.StudentT(4, 0, 1))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Poisson(exposure * jnp.exp(level + slope * x)), obs=y)

    return Case(program, {"x": x, "exposure": exposure, "y": y}, {}, furthest(x, 15))


def hierarchical() -> Case:
    """Batters, each with a latent skill; a record is an at-bat, observed at two sites."""
    rng = np.random.default_rng(3)
    batters, turns = 5, 90
    skill = rng.normal(-0.5, 0.7, size=batters)
    batter = rng.integers(batters, size=turns).astype(np.int32)
    hit = (rng.random(turns) < 1 / (1 + np.exp(-skill[batter]))).astype(np.int32)
    speed = 2 + 0.5 * skill[batter] + 0.5 * rng.normal(size=turns)

    def program(batter, hit=None, speed=None, *, batters):
        league = numpyro.sample("league", dist.Normal(0, 1))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        base = numpyro.sample("base", dist.Normal(0, 2))
        with numpyro.plate("batters", batters):
            skill = numpyro.sample("skill", dist.Normal(league, spread))
        with numpyro.plate("turns", len(batter)):
            numpyro.sample("hit", dist.Bernoulli(logits=skill[batter]), obs=hit)
            numpyro.sample("speed", dist.Normal(base + 0.5 * skill[batter], 0.5), obs=speed)

    erased = np.flatnonzero(batter == 1)[:10]
    return Case(program, {"batter": batter, "hit": hit, "speed": speed}, {"batters": batters}, erased)


def network() -> Case:
    """A Bayesian neural network with one small hidden layer; a tenth of the records is poisoned."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-2, 2, size=(100, 1))
    y = np.sin(1.5 * x[:, 0]) + 0.2 * rng.normal(size=100)
    poisoned = np.arange(10)
    y[poisoned] += 0.8

    def program(x, y=None, *, hidden):
        inner = numpyro.sample("inner", dist.Normal(0, 1).expand([2, hidden]).to_event(2))
        outer = numpyro.sample("outer", dist.Normal(0, 1).expand([hidden]).to_event(1))
        with_bias = jnp.concatenate([x, jnp.ones_like(x)], axis=1)
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(jnp.tanh(with_bias @ inner) @ outer, 0.2), obs=y)

    return Case(program, {"x": x, "y": y}, {"hidden": 4}, poisoned)
