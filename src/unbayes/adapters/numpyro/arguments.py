"""Which arguments of a program hold records, and along which axes its sites see them.

Found out by running the program on abstract arrays, once as it was called and once with twice the records:
the axis of a site that doubles is that of the records. What was found is then checked on numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide

from unbayes._numerics.records import count, to_arrays
from unbayes.adapters.numpyro.program import Call, Program, constrain, latent_shapes, prototype, run

BIND = "bind arguments that are not data with functools.partial"


def separate(
    program: Callable[..., Any],
    guide: AutoGuide,
    constants: dict[str, Any],
    args: tuple,
    kwargs: dict[str, Any],
    theta: Float[Array, " d"],
) -> tuple[Program, Call]:
    """Tell records from what is fixed, or refuse the call with a sentence.

    Parameters
    ----------
    program, guide, constants
        As for `Program`.
    args, kwargs
        The call.
    theta
        Where in the latent space to check that records are independent, shape (d,).

    Returns
    -------
    model
        The program without its records.
    records
        Its records, with None in place of the arguments that are fixed.
    """
    call = jax.tree.map(_as_array, (args, kwargs))
    length, axes = _find_records(program, guide, constants, call)
    records, fixed = eqx.partition(call, lambda leaf: _has_length(leaf, length))
    fixed = jax.tree.map(lambda leaf: _as_fixed(leaf, theta.dtype), fixed)
    records = to_arrays(records, "args", theta.dtype)
    template = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[:1]), records)
    model = Program(program, guide, constants, fixed, template, axes, theta.dtype.name)
    _require_independent(model, records, theta)
    return model, records


def _as_array(leaf: Any) -> Any:
    """NumPy arrays for data frames and the like, Python numbers for scalars, anything else as it is."""
    if isinstance(leaf, jax.Array) or not hasattr(leaf, "__array__"):
        return leaf
    array = np.asarray(leaf)
    return array if array.ndim else array.item()


def _as_fixed(leaf: Any, dtype: jnp.dtype) -> Any:
    if not eqx.is_array(leaf):
        return leaf
    return jnp.asarray(leaf, dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype)


def _has_length(leaf: Any, length: int) -> bool:
    return eqx.is_array(leaf) and leaf.ndim > 0 and leaf.shape[0] == length


class _Structure(NamedTuple):
    """Shapes of the latent sites, shapes of the observed sites' log-densities, and plates that subsample."""

    latent: dict[str, tuple[int, ...]]
    observed: dict[str, tuple[int, ...]]
    subsampled: tuple[str, ...]
    mutable: tuple[str, ...]


def _find_records(program, guide, constants, call: Call) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Number of records, and for each site that is observed along them its axis."""
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(call) if eqx.is_array(leaf) and leaf.ndim}
    if not lengths or 0 in lengths:
        got = "an empty array" if lengths else "none"
        raise ValueError(f"args must hold the records along the first axis of arrays, got {got}")
    try:
        once = _inspect(program, constants, call)
    except Exception as error:
        raise ValueError(f"args must be arguments that the model can run on, got {_cause(error)}") from error
    _require_supported(once, guide)
    found, obstacle = {}, ""
    for length in sorted(lengths):
        doubled = jax.tree.map(
            lambda leaf, n=length: np.concatenate([leaf, leaf]) if _has_length(leaf, n) else leaf, call
        )
        try:
            twice = _inspect(program, constants, doubled)
        except Exception as error:
            obstacle = obstacle or f"; with twice as many rows it fails: {_cause(error)}"
            continue
        local = [name for name, shape in once.latent.items() if twice.latent.get(name) != shape]
        if local:
            obstacle = (
                f"; latent site {local[0]!r} grows with them, and latent variables of single records cannot "
                "be unlearned: index a fixed number of them instead, theta[group]"
            )
        elif axes := _record_axes(once.observed, twice.observed, length):
            found[length] = axes
    if len(found) == 1:
        return found.popitem()
    if found:
        raise ValueError(
            f"args must tell records from other arrays, but {sorted(found)} rows could all be records; {BIND}"
        )
    raise ValueError(
        f"args must hold records along the first axis of arrays, and the model observe each of them apart; "
        f"{sorted(lengths)} rows were tried{obstacle}; {BIND}"
    )


def _inspect(program, constants, call: Call) -> _Structure:
    """Run the program on abstract arrays, with latent sites of whatever shape it gives them."""
    structure = _Structure({}, {}, (), ())
    arrays, rest = eqx.partition(call, eqx.is_array)

    def fill(site):
        if site["type"] == "param":
            return constants.get(site["name"])
        if site["type"] == "sample" and not site["is_observed"]:
            is_discrete = site["fn"].support is not None and site["fn"].support.is_discrete
            return jnp.zeros(site["fn"].shape(), int if is_discrete else float)
        return None

    def look(arrays):
        nonlocal structure
        args, kwargs = eqx.combine(arrays, rest)
        seeded = handlers.seed(program, rng_seed=0)
        trace = handlers.trace(handlers.substitute(seeded, substitute_fn=fill)).get_trace(*args, **kwargs)
        sites = [site for site in trace.values() if site["type"] == "sample"]
        structure = _Structure(
            {site["name"]: tuple(site["fn"].shape()) for site in sites if not site["is_observed"]},
            {site["name"]: _log_prob_shape(site) for site in sites if site["is_observed"]},
            tuple(
                name
                for name, site in trace.items()
                if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0])
            ),
            tuple(name for name, site in trace.items() if site["type"] == "mutable"),
        )

    jax.eval_shape(look, arrays)
    return structure


def _log_prob_shape(site) -> tuple[int, ...]:
    scale = () if site["scale"] is None else jnp.shape(site["scale"])
    return jnp.broadcast_shapes(jnp.shape(site["fn"].log_prob(site["value"])), scale)


def _require_supported(structure: _Structure, guide: AutoGuide) -> None:
    """Refuse programs that are not the guide's, or that cannot be taken apart by records."""
    expected = {name: tuple(prototype(guide, name).shape()) for name in latent_shapes(guide)}
    seen = guide.prototype_trace or {}
    for name in structure.latent:
        if name in seen and seen[name]["is_observed"]:
            raise ValueError(f"args must include the observed values of site {name!r}, got none for it")
    if set(structure.latent) != set(expected):
        raise ValueError(
            f"model must have the latent sites of the guide, {sorted(expected)}, "
            f"got {sorted(structure.latent)}"
        )
    for name, shape in structure.latent.items():
        if shape != expected[name]:
            raise ValueError(
                f"model must give latent site {name!r} the shape {expected[name]} that it has in the guide, "
                f"whatever records are given, got {shape}; latent variables of single records cannot be "
                "unlearned: index a fixed number of them instead, theta[group]"
            )
    if structure.subsampled:
        raise ValueError(
            f"model must not subsample, but plate {structure.subsampled[0]!r} does; leave its subsample_size "
            "out: only the erased rows are needed here"
        )
    if structure.mutable:
        raise ValueError(f"model must have no mutable state, got site {structure.mutable[0]!r}")
    if not structure.observed:
        raise ValueError("model must observe something, got a program without observed sites")


def _record_axes(
    once: dict[str, tuple[int, ...]], twice: dict[str, tuple[int, ...]], length: int
) -> tuple[tuple[str, int], ...]:
    """Sites with an axis that went from `length` to twice that, and which one, counted from the right."""
    axes = []
    for name, shape in once.items():
        after = twice.get(name, ())
        if len(after) != len(shape):
            return ()
        changed = [axis - len(shape) for axis, size in enumerate(shape) if after[axis] != size]
        if any(shape[axis] != length or after[axis] != 2 * length for axis in changed) or len(changed) > 1:
            return ()
        axes += [(name, axis) for axis in changed]
    return tuple(axes)


class _Check(NamedTuple):
    """Log-densities of sites, with all the records, some and none; and whether observed values can be."""

    whole: dict[str, Any]
    some: dict[str, Any]
    none: dict[str, Any]
    possible: dict[str, Any]


def _require_independent(model: Program, records: Call, theta: Float[Array, " d"]) -> None:
    """Refuse programs in which a record's log-density depends on other records, or a prior on any."""
    rows = np.array([count(records) - 1, count(records) - 1, 0])
    check = _check(model, records, jax.tree.map(lambda leaf: leaf[rows], records), theta)
    axes = dict(model.axes)
    for name, each in check.whole.items():
        if name not in axes:
            if not (_agree(each, check.some[name]) and _agree(each, check.none[name])):
                raise ValueError(
                    f"model must not let site {name!r} depend on the records, or must observe it along them: "
                    "its log-density changes with the records that are given"
                )
            continue
        if not check.possible[name].all():
            raise ValueError(f"args must give site {name!r} values in its support, got others among them")
        if not np.isfinite(each).all():
            raise ValueError(
                f"args must be possible under the guide, but the log-density of site {name!r} is "
                f"{each[~np.isfinite(each)][0]} there"
            )
        if not _agree(np.take(each, rows, axes[name]), check.some[name]):
            raise ValueError(
                f"model must treat records one by one, but the log-density of site {name!r} for a record "
                f"depends on which others are given; {BIND}"
            )


def _check(model: Program, records: Call, some: Call, theta: Float[Array, " d"]) -> _Check:
    return jax.tree.map(np.asarray, _compiled_check(model, records, some, theta))


@eqx.filter_jit
def _compiled_check(model: Program, records: Call, some: Call, theta) -> _Check:
    values = model.constants | constrain(model.guide, theta)[0]

    def log_probs(part, seed=0):
        return run(model.program, values, eqx.combine(part, model.fixed), seed)

    whole, trace = log_probs(records)
    possible = {name: _is_possible(trace[name]) for name, _ in model.axes}
    # Another seed: numbers that the program draws on its own show as a difference.
    return _Check(whole, log_probs(some, seed=1)[0], log_probs(model.template)[0], possible)


def _is_possible(site: dict[str, Any]) -> Array:
    """Whether observed values lie in the support of the site's distribution; masked ones need not."""
    fn = site["fn"]
    if isinstance(fn, dist.Unit | dist.MaskedDistribution) or fn.support is None:
        return jnp.ones((), bool)
    return jnp.asarray(fn.support(site["value"]))


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    tolerance = 10 * float(np.finfo(one.dtype).eps) ** 0.5
    scale = max(1.0, float(np.max(np.abs(one), initial=0)))
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=tolerance * scale)


def _cause(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
