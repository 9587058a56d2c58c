"""Requests that arrive over time: aggregated, or unlearnt one after the other."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.random as jr
import numpy as np

import unbayes as ub
from unbayes.posteriors import AbstractPosterior
from unbayes.unlearning import AbstractMethod
from unbayes_paper import banknote, figures
from unbayes_paper.base import Claim, Descent, Experiment, Figure, Findings, Measurement, Problem
from unbayes_paper.claims import number
from unbayes_paper.compare import keep
from unbayes_paper.data import DataMissing
from unbayes_paper.lab import Kept, Lab
from unbayes_paper.moon import moon

LAZY, STEPWISE = "lazy", "step upon step"
CHOICES = (
    "On moon the 20 points furthest right arrive in 5 requests, in random order; on banknote 412 random "
    "records in 8 requests; in a quick run, 3 requests each.",
    "Lazy: everything erased so far is aggregated and taken out of the trained posterior at once. For the "
    "natural gradient and Auto that is a sum of statistics, kept without the rows. Step upon step: each "
    "request is taken out of what the one before it left.",
)


class Course(NamedTuple):
    """What a method left after each request; None where it found no posterior."""

    data: str
    method: str
    form: str
    after: list[Kept | None]


def run(lab: Lab) -> Findings:
    """Both data sets, every method, both forms."""
    settings = {"moon": (moon("moon"), lab.choose(3, 5), 50)}
    choices = CHOICES
    try:
        settings["banknote"] = (banknote.problem(), lab.choose(3, 8), 100)
    except DataMissing as error:
        choices = (*CHOICES, f"Banknote was left out: {error}.")
    measurements, claims, panels = [], [], []
    for name, (problem, requests, memory) in settings.items():
        courses, retrained, baseline, parts = _unlearn(lab, name, problem, requests, memory)
        rows = _measure(problem, parts, courses, retrained, baseline)
        measurements += rows
        claims += _claims(name, courses, rows)
        panels.append((name, rows))
    return Findings(measurements, claims, [_picture(panels)], choices)


def _unlearn(lab: Lab, name: str, problem: Problem, requests: int, memory: int):
    """Courses of all methods; the retrained posteriors; the trained one; the requests."""
    key = jr.key(0)
    order = np.random.default_rng(0).permutation(len(problem.erased[1]))
    rows = np.array_split(order, requests)
    parts = [tuple(array[chosen] for array in problem.erased) for chosen in rows]
    full = ub.fit(problem.model, problem.full, memory=memory, key=key)
    retrained = [
        ub.fit(problem.model, _without(problem, rows[: count + 1]), key=key).posterior
        for count in range(requests)
    ]
    descent = lab.descent(Descent(1500, 100), Descent(10_000, 1000))
    methods: dict[str, tuple[AbstractMethod, ub.Memory | None]] = {
        "natural gradient": (ub.NaturalGradient(), None),
        "Auto": (ub.Auto(), full.memory),
        **{label: (_at(method), None) for label, method in descent.methods.items()},
    }
    courses = []
    for label, (method, kept) in methods.items():
        for form, walk in ((LAZY, _lazily), (STEPWISE, _stepwise)):

            def compute(walk=walk, method=method, kept=kept):
                found = walk(full.posterior, kept, problem, parts, method, key)
                return [result or Kept(full.posterior, {"failed": True}) for result in found]

            depends_on = (full.posterior, kept, problem.model, parts, str(method), descent)
            after = lab.recall(f"sequential, {name}: {label}, {form}", depends_on, compute)
            courses.append(
                Course(
                    name, label, form, [None if result.facts.get("failed") else result for result in after]
                )
            )
    return courses, retrained, full.posterior, parts


def _at(method):
    """The λ at which the paper finds each method to work."""
    lam = 1e-9 if isinstance(method, ub.EUBO) else 0.0
    return dataclasses.replace(method, lam=lam)


def _without(problem: Problem, gone: Sequence[np.ndarray]):
    kept = np.setdiff1d(np.arange(len(problem.erased[1])), np.concatenate(gone))
    return tuple(
        np.concatenate([remaining, erased[kept]])
        for remaining, erased in zip(problem.remaining, problem.erased, strict=True)
    )


def _lazily(full: AbstractPosterior, memory, problem: Problem, parts, method, key) -> list[Kept | None]:
    if isinstance(method, ub.NaturalGradient | ub.Auto):
        statistics = [
            ub.summarise(full, problem.model, part, memory=memory, method=method, key=key) for part in parts
        ]
        sums = list(itertools.accumulate(statistics))
        return [
            _attempt(
                lambda count=count: ub.solve(
                    full, problem.model, sums[count], memory=memory, method=method, key=key
                )
            )
            for count in range(len(parts))
        ]
    return [
        _attempt(
            lambda count=count: ub.unlearn(
                full, problem.model, _join(parts[: count + 1]), method=method, key=key
            )
        )
        for count in range(len(parts))
    ]


def _stepwise(full: AbstractPosterior, memory, problem: Problem, parts, method, key) -> list[Kept | None]:
    found: list[Kept | None] = []
    state: Kept | None = Kept(full, {}, memory)
    for part in parts:
        if state is not None:
            state = _attempt(
                lambda state=state, part=part: ub.unlearn(
                    state.posterior, problem.model, part, memory=state.memory, method=method, key=key
                )
            )
        found.append(state)
    return found


def _attempt(call: Callable[[], ub.Unlearned]) -> Kept | None:
    try:
        return keep(call())
    except (ub.RetrainingNeeded, ValueError):
        return None


def _join(parts):
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _measure(problem: Problem, parts, courses, retrained, full) -> list[Measurement]:
    """Distance to what retraining gives after each request, over everything erased by then."""
    baseline = Course(courses[0].data, "no unlearning", "", [Kept(full, {})] * len(parts))
    measurements = []
    for course in (baseline, *courses):
        for count, kept in enumerate(course.after):
            label = f"{course.method}, {course.form}" if course.form else course.method
            row = Measurement(f"{course.data}, request {count + 1}", label, None, 0)
            if kept is not None:
                inputs = _join(parts[: count + 1])[0], problem.remaining[0]
                row = row._replace(
                    erased=ub.metrics.predictive_kl(
                        kept.posterior, retrained[count], problem.model, inputs[0]
                    ),
                    remaining=ub.metrics.predictive_kl(
                        kept.posterior, retrained[count], problem.model, inputs[1]
                    ),
                    parameter_kl=ub.metrics.parameter_kl(kept.posterior, retrained[count]).value,
                    seconds=kept.facts.get("seconds"),
                    verdict=kept.facts.get("verdict"),
                )
            measurements.append(row)
    return measurements


def _claims(name: str, courses: list[Course], rows: list[Measurement]) -> list[Claim]:
    last = len(courses[0].after)
    at_end = {m.method: m for m in rows if m.scenario == f"{name}, request {last}"}
    claims = []
    for method in ("natural gradient", "Auto"):
        lazy, steps = (at_end[f"{method}, {form}"] for form in (LAZY, STEPWISE))
        assert lazy.erased is not None
        ours = lazy.erased.forward.mean
        theirs = np.inf if steps.erased is None else steps.erased.forward.mean
        claims.append(
            Claim(
                f"{name}: errors do not accumulate: after the last request, {method} in the lazy form is at "
                "least as close to retraining as step upon step",
                (ours <= theirs,),
                f"{number(ours)} against {'no posterior' if theirs == np.inf else number(theirs)} on D_e",
            )
        )
    baseline = at_end["no unlearning"].erased
    best = at_end[f"Auto, {LAZY}"].erased
    assert baseline is not None
    assert best is not None
    claims.append(
        Claim(
            f"{name}: our best in the lazy form is below no unlearning after every request",
            tuple(
                a.erased.forward.mean <= b.erased.forward.mean
                for a, b in zip(
                    [m for m in rows if m.method == f"Auto, {LAZY}"],
                    [m for m in rows if m.method == "no unlearning"],
                    strict=True,
                )
                if a.erased is not None and b.erased is not None
            ),
            f"{number(best.forward.mean)} against {number(baseline.forward.mean)} at the end",
            goal=True,
        )
    )
    return claims


def _picture(panels) -> Figure:
    figure, axes = figures.canvas(1, len(panels), (4.4, 2.9))
    for axis, (name, rows) in zip(axes.flat, panels, strict=True):
        for method in ("no unlearning", "EUBO", "reverse KL", "natural gradient", "Auto"):
            for form, style in ((LAZY, "o-"), (STEPWISE, "x:")):
                label = method if method == "no unlearning" else f"{method}, {form}"
                values = [
                    np.nan if m.erased is None else m.erased.forward.mean for m in rows if m.method == label
                ]
                if method == "no unlearning" and form == STEPWISE:
                    continue
                axis.plot(
                    np.arange(1, len(values) + 1),
                    values,
                    style if method != "no unlearning" else "--",
                    color=figures.COLOURS[method],
                    ms=4,
                    lw=1.2,
                    label=label,
                )
        axis.set_yscale("log")
        axis.set_xticks(range(1, len({m.scenario for m in rows}) + 1))
        axis.set_xlabel("requests so far")
        axis.set_title(name)
    axes[0, 0].set_ylabel("KL on D_e")
    figures.legend(figure, axes[0, 0], 3)
    return figures.finish(
        figure,
        "sequential",
        "KL[unlearned‖retrained] on D_e after each request; a line that ends found no posterior.",
    )


SEQUENTIAL = Experiment(
    "sequential",
    "Requests that arrive over time",
    "section 3 and appendix, “lazy” unlearning",
    "People do not ask to be forgotten all at once. Each request could be taken out of what the last one "
    "left; or all that was ever erased is aggregated and taken out of the trained posterior. The paper "
    "recommends the latter, so that errors do not accumulate.",
    f"none for moon; {banknote.data.BANKNOTE_FILE} for banknote",
    (1.5, 30.0),
    run,
)
