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


# Applicants to Berkeley's six largest departments, men and women, in 1973: applications and admissions.
APPLICATIONS = np.array([[825, 108], [560, 25], [325, 593], [417, 375], [191, 393], [373, 341]])
ADMITTED = np.array([[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]])


def admissions() -> Case:
    """Every applicant a record; departments differ in level and in how they treat men, not centred."""
    applications, admitted = APPLICATIONS.ravel(), ADMITTED.ravel()
    cell = np.repeat(np.arange(12), applications)
    rank = np.arange(len(cell)) - np.repeat(np.cumsum(applications) - applications, applications)
    admit = (rank < admitted[cell]).astype(np.int32)
    department, male = (cell // 2).astype(np.int32), (1.0 - cell % 2)

    def program(department, male, admit=None):
        centre = numpyro.sample("centre", dist.Normal(0, jnp.array([4.0, 1.0])))
        spread = numpyro.sample("spread", dist.HalfNormal(jnp.ones(2)))
        factor = numpyro.sample("factor", dist.LKJCholesky(2, concentration=2.0))
        z = numpyro.sample("z", dist.Normal(jnp.zeros((6, 2)), 1))
        effect = centre + z @ (spread[:, None] * factor).T
        logits = effect[department, 0] + effect[department, 1] * male
        with numpyro.plate("applicants", len(male)):
            numpyro.sample("admit", dist.Bernoulli(logits=logits), obs=admit)

    erased = np.random.default_rng(8).choice(len(cell), 25, replace=False)
    return Case(program, {"department": department, "male": male, "admit": admit}, {}, erased)


def mortality() -> Case:
    """Deaths by age, place and year: a random walk over ages, places within regions, a trend for each."""
    rng = np.random.default_rng(5)
    ages, regions, places, years = 8, 3, 9, 6
    region_of = np.repeat(np.arange(regions), places // regions)
    age, place, year = (each.ravel() for each in np.indices((ages, places, years)).astype(np.int32))
    level = -6 + 0.6 * np.arange(ages)
    where = 0.3 * rng.normal(size=regions)[region_of] + 0.15 * rng.normal(size=places)
    population = rng.integers(200, 4000, size=len(age)).astype(np.int32)
    logits = level[age] + where[place] - 0.03 * year + 0.05 * rng.normal(size=len(age))
    deaths = rng.binomial(population, 1 / (1 + np.exp(-logits))).astype(np.int32)

    def program(age, place, year, population, deaths=None):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0).expand([6]).to_event(1))
        base = numpyro.sample("base", dist.Normal(0, 10))
        drift = numpyro.sample("drift", dist.Normal(0, 1).expand([ages]).to_event(1))
        regional = numpyro.sample("regional", dist.Normal(0, 1).expand([2, regions]).to_event(2))
        local = numpyro.sample("local", dist.Normal(0, 1).expand([2, places]).to_event(2))
        trend_of_age = numpyro.sample("trend_of_age", dist.Normal(0, 1).expand([ages]).to_event(1))
        by_age = base + spread[0] * jnp.cumsum(drift)
        by_place = spread[1] * regional[0, region_of] + spread[2] * local[0]
        trend = (spread[3] * regional[1, region_of] + spread[4] * local[1])[place]
        trend = trend + spread[5] * trend_of_age[age]
        logits = by_age[age] + by_place[place] + trend * year
        with numpyro.plate("cells", len(age)):
            numpyro.sample("deaths", dist.Binomial(population, logits=logits), obs=deaths)

    records = {"age": age, "place": place, "year": year, "population": population, "deaths": deaths}
    return Case(program, records, {}, np.flatnonzero((place == 2) & (year >= 4)))


def zero_inflated() -> Case:
    """Fish caught by parties of visitors, many of whom did not fish."""
    rng = np.random.default_rng(6)
    x = np.stack([rng.integers(0, 4, 250), rng.integers(0, 2, 250), rng.integers(1, 5, 250)], 1).astype(float)
    rate = np.exp(-1.0 - 0.8 * x[:, 0] + 0.9 * x[:, 1] + 0.6 * x[:, 2])
    y = np.where(rng.random(250) < 0.4, 0, rng.poisson(rate)).astype(np.int32)

    def program(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2, 4]).to_event(2))
        with_bias = jnp.concatenate([jnp.ones((len(x), 1)), x], axis=1)
        gate, rate = with_bias @ beta[0], jnp.exp(with_bias @ beta[1])
        with numpyro.plate("parties", len(x)):
            numpyro.sample("y", dist.ZeroInflatedPoisson(1 / (1 + jnp.exp(-gate)), rate), obs=y)

    return Case(program, {"x": x, "y": y}, {}, np.argsort(y)[-12:])


def horseshoe() -> Case:
    """Sparse linear regression with a horseshoe prior."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(100, 12))
    y = x @ np.r_[2.0, -1.5, 1.0, np.zeros(9)] + 0.7 * rng.normal(size=100)

    def program(x, y=None):
        width = x.shape[1]
        local = numpyro.sample("local", dist.HalfCauchy(1).expand([width]).to_event(1))
        overall = numpyro.sample("overall", dist.HalfCauchy(1))
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([width]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Normal(x @ (overall * local * beta), noise), obs=y)

    return Case(program, {"x": x, "y": y}, {}, furthest(x[:, 0], 10))
