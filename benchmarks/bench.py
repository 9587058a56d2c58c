"""What unlearning costs, as ratios within one run: `make bench` writes bench.md, bench.json and bench.png."""

import argparse
import inspect
import json
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax
from rich.console import Console
from sklearn.linear_model import LogisticRegression

import unbayes as ub
from unbayes.inference.stochastic import ADAM
from unbayes.metrics import predictive_kl
from unbayes.unlearning.methods import few_records
from unbayes_paper.base import Problem
from unbayes_paper.moon import moon
from workloads import KEY, many_columns, many_rows, problems, seconds

# The paper's recipe. A tenth of it is run, a hundredth on 100,000 rows, and the time multiplied.
RECIPE = {"iterations": 30_000, "draws": 1000}
LAMBDAS = (0.5, 0.1, 1e-3, 1e-5, 1e-9, 0.0)
Table = list[dict[str, Any]]
console = Console()


def _unlearn(full: ub.Trained, problem: Problem, **settings):
    return ub.unlearn(full.posterior, problem.model, problem.erased, key=KEY, **settings).posterior


def methods() -> Table:
    """Each method against retraining and the paper's recipe: time, and distance to the retrained belief.

    On moon a memory of 100 is all the training data.
    """
    table: Table = []
    for name, problem in problems().items():
        full = ub.fit(problem.model, problem.full, memory=100, key=KEY)
        retrain = partial(ub.fit, problem.model, problem.remaining, key=KEY)
        unlearn = partial(_unlearn, full, problem)
        retrained = retrain().posterior
        tenth = 100 if len(problem.full[1]) >= 100_000 else 10
        recipe = {**RECIPE, "iterations": RECIPE["iterations"] // tenth, "lam": 1e-9}
        calls = {
            "natural gradient": (unlearn, 50, 1),
            "natural gradient, memory of 100": (partial(unlearn, memory=full.memory), 20, 1),
            "retraining": (lambda retrain=retrain: retrain().posterior, 3, 1),
            "reverse KL on a bank": (partial(unlearn, method=ub.BankReverseKL()), 3, 1),
            f"EUBO, the paper's recipe from 1/{tenth}": (
                partial(unlearn, method=ub.EUBO(**recipe)),
                1,
                tenth,
            ),
            f"reverse KL, the paper's recipe from 1/{tenth}": (
                partial(unlearn, method=ub.ReverseKL(**recipe)),
                1,
                tenth,
            ),
        }
        unit = None
        for method, (call, repetitions, times) in calls.items():
            found = []
            took = times * seconds(
                lambda call=call, found=found: found.append(call()) or found[-1], repetitions
            )
            unit = unit or took
            away = predictive_kl(retrained, found[-1], problem.model, problem.erased[0]).forward.mean
            table.append(
                {"problem": name, "method": method, "seconds": took, "ratio": took / unit, "KL on D_e": away}
            )
            console.print(table[-1])
    return table


def growth() -> Table:
    """Time of unlearning against the number of erased, and of remaining, records."""
    table: Table = []
    model = many_rows(1000).model
    posterior = ub.fit(model, many_rows(100_000).full, key=KEY).posterior
    for size in (100, 1000, 10_000, 100_000, 1_000_000):
        records = many_rows(size, erased=1.0).erased
        evidence = model.encode(records)
        took = seconds(lambda evidence=evidence: _sites(posterior, model, evidence), 3)
        table.append({"of": "erased", "records": size, "seconds": took})
    for rows in (10_000, 100_000, 1_000_000):
        problem = many_rows(rows, erased=1000 / rows)
        full = ub.fit(problem.model, problem.full, key=KEY)
        table.append(
            {"of": "remaining", "records": rows, "seconds": seconds(partial(_unlearn, full, problem), 9)}
        )
    console.print(table)
    return table


@eqx.filter_jit
def _sites(posterior, model, evidence):
    return model.site(posterior, evidence, model.nodes())


def lower_bound() -> Table:
    """The pass over the erased records against what it cannot do without: its products, its likelihoods."""
    problem = many_rows(1_000_000, erased=0.5)
    posterior = ub.fit(problem.model, many_rows(10_000).full, key=KEY).posterior
    evidence = problem.model.encode(problem.erased)
    points = jnp.asarray(np.polynomial.hermite_e.hermegauss(32)[0])

    @jax.jit
    def least(design, targets, mean, factor):
        f, spread = design @ mean, jnp.sqrt(((design @ factor) ** 2).sum(1))
        likelihoods = jax.nn.log_sigmoid(f[:, None] + spread[:, None] * points).sum(1)
        return (design * likelihoods[:, None]).T @ design

    bare = seconds(lambda: least(evidence.design, evidence.targets, posterior.mean, posterior.scale_tril), 5)
    own = seconds(lambda: _sites(posterior, problem.model, evidence), 5)
    table = [{"records": 500_000, "pass": own, "lower bound": bare, "ratio": own / bare}]
    console.print(table)
    return table


def per_iteration(iterations: int = 2000) -> Table:
    """EUBO and reverse KL on moon against loops written by hand for this one model, and six λ against one.

    The last column is the paper's 30,000 iterations, by hand, against one natural-gradient step.
    """
    problem = moon("moon")
    full = ub.fit(problem.model, problem.full, key=KEY)
    evidence = problem.model.encode(problem.erased)
    side = 2 * evidence.targets - 1
    q = full.posterior

    def log_likelihood(thetas):
        return jax.nn.log_sigmoid(side * (thetas @ evidence.design.T)).sum(1)

    def log_density(thetas, mean, factor):
        white = jax.scipy.linalg.solve_triangular(factor, (thetas - mean).T, lower=True)
        return -0.5 * (white**2).sum(0) - jnp.log(jnp.abs(jnp.diagonal(factor))).sum()

    def eubo(parameters, key):
        mean, factor = parameters[0], jnp.tril(parameters[1])
        thetas = mean + jr.normal(key, (1000, q.dim)) @ factor.T
        own, trained = log_density(thetas, mean, factor), log_density(thetas, q.mean, q.scale_tril)
        seen = trained > log_density(q.mean[None], q.mean, q.scale_tril) + jnp.log(1e-9)
        return jnp.where(seen, log_likelihood(thetas), 0).mean() + (own - trained).mean()

    def reverse_kl(parameters, key):
        mean, factor = parameters[0], jnp.tril(parameters[1])
        thetas = q.mean + jr.normal(key, (1000, q.dim)) @ q.scale_tril.T
        seen = log_density(thetas, q.mean, q.scale_tril) > log_density(
            q.mean[None], q.mean, q.scale_tril
        ) + jnp.log(1e-9)
        weights = jax.nn.softmax(jnp.where(seen, -log_likelihood(thetas), 0))
        return -weights @ log_density(thetas, mean, factor)

    def by_hand(loss):
        @jax.jit
        def run(keys):
            def step(state, key):
                value, gradient = jax.value_and_grad(loss)(state[0], key)
                updates, memory = ADAM.update(gradient, state[1])
                return (optax.apply_updates(state[0], updates), memory), value

            start = (q.mean, q.scale_tril)
            return jax.lax.scan(step, (start, ADAM.init(start)), keys)

        return seconds(lambda: run(jr.split(KEY, iterations)), 3)

    table: Table = []
    step = seconds(partial(_unlearn, full, problem), 50)
    for method, loss in ((ub.EUBO, eubo), (ub.ReverseKL, reverse_kl)):
        own = method(lam=1e-9, iterations=iterations, draws=1000, whiten=False)
        one = seconds(partial(_unlearn, full, problem, method=own), 3)
        sweep = partial(ub.sweep, q, problem.model, problem.erased, method=own, lams=LAMBDAS, key=KEY)
        six = seconds(lambda sweep=sweep: [result.posterior for result in sweep()], 3)
        hand = by_hand(loss)
        table.append(
            {
                "method": method.__name__,
                "one": one,
                "by hand": hand,
                "ratio": one / hand,
                "six / one": six / one,
                "recipe / step": hand * RECIPE["iterations"] / iterations / step,
            }
        )
        console.print(table[-1])
    return table


def refinement() -> Table:
    """Passes over the remaining records to within a thousandth of a nat of the best ELBO, warm and cold."""
    table: Table = []
    for name, problem in problems().items():
        full = ub.fit(problem.model, problem.full, memory=100, key=KEY)
        cold = ub.fit(problem.model, problem.remaining, key=KEY)
        enough = cold.elbo - 1e-3
        needed = {"cold": cold.passes - len(cold.trace) + 1 + int(np.argmax(cold.trace >= enough))}
        for label, memory in (("unlearned", None), ("unlearned with memory", full.memory)):
            start = _unlearn(full, problem, memory=memory)
            trace = ub.refine(start, problem.model, problem.remaining, passes=30, key=KEY).trace
            needed[label] = 1 + int(np.argmax(trace >= enough)) if (trace >= enough).any() else None
        table.append({"problem": name, **needed})
        console.print(table[-1])
    return table


def many_parameters(dims: tuple[int, ...] = (500, 1000, 2000)) -> Table:
    """200 of 20,000 records erased beside d parameters, and the training before, as d grows.

    Unlearning against the same call by dense matrices; training against scikit-learn's, which finds the mode
    alone, and against two products of the records with a d × d matrix for each of its passes.
    """
    table: Table = []
    for dim in dims:
        problem = many_columns(dim)
        found = []
        train = partial(ub.fit, problem.model, problem.full, key=KEY)
        fit = seconds(lambda train=train, found=found: found.append(train()) or found[-1].posterior, 1)
        full = found[-1]
        rival = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000, tol=1e-6)
        mode = seconds(lambda rival=rival, full=problem.full: rival.fit(*full).coef_, 1)
        rows, square = jnp.asarray(problem.full[0]), full.posterior.scale_tril
        product = seconds(lambda rows=rows, square=square: rows @ square, 3)
        unlearn = partial(_unlearn, full, problem)
        short = seconds(unlearn, 5)
        with mock.patch.object(few_records, "LEAST_DIM", np.inf):
            dense = seconds(unlearn, 1)
        table.append(
            {
                "d": dim,
                "unlearn": short,
                "dense": dense,
                "dense / unlearn": dense / short,
                "fit": fit,
                "passes": full.passes,
                "scikit-learn": mode,
                "fit / scikit-learn": fit / mode,
                "fit / products": fit / (2 * full.passes * product),
            }
        )
        console.print(table[-1])
    return table


def sums(dims: tuple[int, ...] = (5, 10, 20, 40)) -> Table:
    """What a memory of sums costs beside the pass that takes sites, over 20,000 records of d features.

    Erasing takes the erased records' sites with the same sums. Training takes its own sums once, after as
    many passes as it needs.
    """
    table: Table = []
    for dim in dims:
        problem = many_columns(dim)
        model, evidence = problem.model, problem.model.encode(problem.full)
        full = ub.fit(model, problem.full, memory="sums", key=KEY)
        kept = full.memory.sums

        @eqx.filter_jit
        def sites(posterior, evidence, model=model):
            return model.site(posterior, evidence, model.nodes())

        @eqx.filter_jit
        def derivatives(posterior, evidence, model=model, kept=kept):
            return kept.of(posterior, model, evidence, model.nodes(), None)

        plain = seconds(partial(sites, full.posterior, evidence), 5)
        higher = seconds(partial(derivatives, full.posterior, evidence), 5)
        fits = [seconds(partial(_fitted, problem, memory), 3) for memory in (None, "sums", 100)]
        table.append(
            {
                "d": dim,
                "directions": kept.directions.shape[1],
                "sites": plain,
                "with sums / sites": (plain + higher) / plain,
                "fit": fits[0],
                "with sums / fit": fits[1] / fits[0],
                "with a coreset of 100 / fit": fits[2] / fits[0],
            }
        )
        console.print(table[-1])
    return table


def _fitted(problem: Problem, memory: Any):
    return ub.fit(problem.model, problem.full, memory=memory, roster=False, key=KEY).posterior


SECTIONS = {
    "methods": methods,
    "growth": growth,
    "lower bound": lower_bound,
    "per iteration": per_iteration,
    "refinement": refinement,
    "many parameters": many_parameters,
    "sums": sums,
}


def _markdown(results: dict[str, Table]) -> str:
    lines = ["# What unlearning costs", "", "Seconds on two cores in float64; only ratios travel.", ""]
    for name, table in results.items():
        lines += [f"## {name.capitalize()}", "", inspect.getdoc(SECTIONS[name]) or "", ""]
        lines += ["| " + " | ".join(table[0]) + " |", "| --- " * len(table[0]) + "|"]
        lines += ["| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in table] + [""]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return (
        f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _picture(results: dict[str, Table], path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for row in results["methods"]:
        marker = {"moon": "o", "banknote": "s", "100,000 rows": "^"}[row["problem"]]
        kind = row["method"].split(",")[0]
        colour = dict(
            zip(
                ("natural gradient", "retraining", "reverse KL on a bank", "EUBO", "reverse KL"),
                range(5),
                strict=True,
            )
        )
        away = max(row["KL on D_e"], 1e-9)
        left.loglog(row["seconds"], away, marker, color=f"C{colour[kind]}", ms=8, alpha=0.8)
        if row["problem"] == "moon":
            left.annotate(
                row["method"], (row["seconds"], away), fontsize=7, xytext=(6, 4), textcoords="offset points"
            )
    left.set(
        xlabel="seconds",
        ylabel="KL[retrained‖unlearned] on D_e",
        title="Time and distance (○ moon, □ banknote, △ 100,000 rows)",
    )
    for kind in ("erased", "remaining"):
        rows = [row for row in results["growth"] if row["of"] == kind]
        right.loglog(
            [row["records"] for row in rows], [row["seconds"] for row in rows], "o-", label=f"{kind} records"
        )
    right.set(xlabel="records", ylabel="seconds", title="Linear in what is erased, flat in what remains")
    right.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run all sections, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; all unless given")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the results")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    store = arguments.out / "bench.json"
    results = json.loads(store.read_text()) if store.exists() and arguments.sections else {}
    for name in arguments.sections or SECTIONS:
        console.rule(name)
        results[name] = SECTIONS[name]()
        store.write_text(json.dumps(results, indent=1))
    results = {name: results[name] for name in SECTIONS if name in results}
    (arguments.out / "bench.md").write_text(_markdown(results))
    if {"methods", "growth"} <= set(results):
        _picture(results, arguments.out / "bench.png")


if __name__ == "__main__":
    main()
