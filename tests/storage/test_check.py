"""Fields of a file are checked: their types, shapes and numbers, and whether objects belong together."""

import json
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

import unbayes as ub
from storage.tampering import npy, tamper
from unbayes import models
from unbayes._storable import Storable
from unbayes.memory.sums import KeptSums
from unbayes.models.derivatives import Derivatives


def gp():
    return ub.sparse_gp(jnp.linspace(-2, 2, 5)[:, None], ub.Matern(1.3, 0.7), ub.BernoulliLikelihood())


def full(dim):
    return ub.FullGaussian(jnp.arange(float(dim)), jnp.eye(dim) + 0.1)


def curvature(dim=2, dtype=None):
    return ub.GaussianNatural(jnp.ones(dim, dtype), ub.DensePrecision(jnp.eye(dim, dtype=dtype)))


def remembered(**parts):
    return {"memory": ub.Memory(9, 1e-9, **parts)}


def sums():
    """Along two directions of three; fifth derivatives along the first of them."""
    derivatives = Derivatives(jnp.ones((3, 2)), jnp.ones((3, 3)), jnp.ones((1, 1, 1)))
    return KeptSums(derivatives, jnp.eye(3, 2), 0.9)


def coreset(rows=3, columns=2, dtype=None):
    design = jnp.ones((rows, columns), dtype)
    return remembered(
        coreset=models.LinearEvidence(design, jnp.ones(rows, dtype), jnp.zeros(rows, dtype)),
        weights=jnp.ones(rows, dtype),
    )


# What is saved, by name.
SAVED: dict[str, Callable[[], tuple[tuple, dict]]] = {
    "full": lambda: ((full(2),), {}),
    "diagonal": lambda: ((ub.DiagonalGaussian([1.0, 2.0], [1.0, 2.0]),), {}),
    "beta": lambda: ((ub.Beta(1.0, 2.0), ub.BetaBernoulli(ub.Beta(1.0, 1.0))), {}),
    "dirichlet": lambda: ((ub.Dirichlet([1.0, 2.0]),), {}),
    "gamma": lambda: ((ub.Gamma(1.0, 2.0),), {}),
    "regression": lambda: ((ub.NormalInverseGamma(jnp.arange(2.0), jnp.eye(2), 1.5, 9.0),), {}),
    "table": lambda: ((ub.Table([[0.0], [1.0]], [0.0, -np.inf]),), {}),
    "linear": lambda: ((full(2), ub.linear_regression(1, noise_scale=0.3)), {}),
    "softmax": lambda: ((full(6), ub.softmax_regression(1, 3)), {}),
    "gp": lambda: ((full(5), gp()), {}),
    "shape": lambda: ((full(1), ub.GammaShape(0.3, full(1))), {}),
    "curvature": lambda: (
        (ub.DiagonalGaussian([1.0, 2.0], [1.0, 2.0]),),
        remembered(curvature=curvature()),
    ),
    "coreset": lambda: ((full(2), ub.linear_regression(1, noise_scale=0.3)), coreset()),
    "sums": lambda: ((full(3),), remembered(sums=sums())),
}


def array(name: str, value) -> Callable[[dict, dict], None]:
    """Put another array in the place of one, with a header and a checksum that are right."""
    value = np.asarray(value)

    def edit(manifest, entries):
        entries[f"{name}.npy"] = npy(value)
        manifest["arrays"][name].update(dtype=value.dtype.name, shape=value.shape)

    return edit


def setting(place: str, value: Any) -> Callable[[dict, dict], None]:
    """Put another number or word in the place of one."""

    def edit(manifest, entries):
        *where, name = place.split(".")
        node = manifest[where[0]]
        for part in where[1:]:
            node = node["fields"][part]
        node["fields"][name] = value

    return edit


INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
# What is saved, how it is edited, and what is said.
FAULTS = {
    "factor of another shape": (
        "full",
        array("posterior.raw_scale_tril", np.eye(2, 3)),
        r"posterior\.raw_scale_tril must be float of shape \(d, d\), got float64 of shape \(2, 3\), "
        r"beside mean of float64 of shape \(2,\)",
    ),
    "factor of another length": (
        "full",
        array("posterior.raw_scale_tril", np.eye(3)),
        r"raw_scale_tril must be float of shape \(d, d\), got float64 of shape \(3, 3\)",
    ),
    "upper-triangular factor": (
        "full",
        array("posterior.raw_scale_tril", np.array([[1.0, 0.5], [0.0, 1.0]])),
        r"posterior\.raw_scale_tril must be lower triangular, got 0\.5 above its diagonal",
    ),
    "singular factor": (
        "full",
        array("posterior.raw_scale_tril", np.diag([1.0, 0.0])),
        r"posterior\.raw_scale_tril must have no zero on its diagonal",
    ),
    "mean of integers": (
        "full",
        array("posterior.mean", np.zeros(2, np.int32)),
        r"posterior\.mean must be float of shape \(d\), got int32 of shape \(2,\)",
    ),
    "mean of truth values": ("full", array("posterior.mean", np.zeros(2, bool)), "mean must be float"),
    "mean of another type": (
        "full",
        array("posterior.mean", np.zeros(2, np.float32)),
        "posterior must be of one floating-point type, got mean of float32, raw_scale_tril of float64",
    ),
    "mean that is a matrix": (
        "diagonal",
        array("posterior.mean", np.zeros((2, 1))),
        r"must be .* \(d\), got",
    ),
    "scale of another length": ("diagonal", array("posterior.log_scale", np.zeros(3)), r"log_scale must be"),
    "scale beyond its range": (
        "diagonal",
        array("posterior.log_scale", np.array([0.0, 1e4])),
        r"posterior\.log_scale must be the logarithm of a float64, got one beyond its range",
    ),
    "scale of zero": ("diagonal", array("posterior.log_scale", np.array([0.0, -1e4])), "beyond its range"),
    "negative count": (
        "beta",
        array("posterior.failures", -1.0),
        r"posterior\.failures must be positive, got -1",
    ),
    "count of zero": (
        "dirichlet",
        array("posterior.counts", np.array([0.0, 1.0])),
        "counts must be positive",
    ),
    "count in a vector": (
        "beta",
        array("posterior.failures", np.ones(1)),
        r"failures must be float of shape \(\)",
    ),
    "negative rate": ("gamma", array("posterior.rate", -1.0), "rate must be positive"),
    "indefinite precision": (
        "regression",
        array("posterior.precision", INDEFINITE),
        r"posterior\.precision must be positive definite",
    ),
    "noise below zero": ("regression", array("posterior.energy", 0.1), r"posterior\.energy must exceed"),
    "table without a possible value": (
        "table",
        array("posterior.natural_log_prob", np.full(2, -np.inf)),
        r"natural_log_prob must have a finite maximum",
    ),
    "table with NaN": (
        "table",
        array("posterior.natural_log_prob", np.array([0.0, np.nan])),
        r"natural_log_prob must be finite, got nan",
    ),
    "NaN prior": (
        "linear",
        array("model.prior.mean", np.array([0.0, np.nan])),
        r"model\.prior\.mean must be finite",
    ),
    "infinite prior": (
        "linear",
        array("model.prior.log_scale", np.array([0.0, np.inf])),
        "must be finite, got inf",
    ),
    "prior of another length": (
        "linear",
        lambda m, e: [array(f"model.prior.{n}", np.zeros(3))(m, e) for n in ("mean", "log_scale")],
        r"model\.prior must have length 2 \(1 outputs × 2 features\), got 3",
    ),
    "features of another number": (
        "linear",
        setting("model.features.inputs", 4),
        r"model\.prior must have length 5 \(1 outputs × 5 features\), got 2",
    ),
    "features that are a word": (
        "linear",
        setting("model.features.inputs", "one"),
        "inputs must be int, got 'one'",
    ),
    "features that are true": (
        "linear",
        setting("model.features.inputs", True),
        "inputs must be int, got True",
    ),
    "a number for a truth value": ("linear", setting("model.features.bias", 1), "bias must be bool, got 1"),
    "fewer than no features": (
        "linear",
        setting("model.features.inputs", -1),
        r"model\.features\.inputs must be positive or zero, got -1",
    ),
    "noise of zero": (
        "linear",
        array("model.likelihood.noise_scale", 0.0),
        "noise_scale must be positive, got 0",
    ),
    "noise of another type": (
        "linear",
        array("model.likelihood.noise_scale", np.float32(1)),
        r"model\.likelihood must be float64 as the prior is, got float32",
    ),
    "several outputs of a single one": (
        "linear",
        setting("model.likelihood.outputs", 2),
        r"model\.likelihood\.outputs must be one of 1, got 2",
    ),
    "one class": ("softmax", setting("model.likelihood.outputs", 1), "outputs must be at least 2, got 1"),
    "likelihood that is a prior": (
        "linear",
        lambda m, e: (
            m["model"]["fields"].update(
                likelihood={"class": "RawFeatures", "fields": {"inputs": 1, "bias": True}}
            )
            or (m["arrays"].pop("model.likelihood.noise_scale") and e.pop("model.likelihood.noise_scale.npy"))
        ),
        r"model\.likelihood must be AbstractLikelihood, got RawFeatures",
    ),
    "lengthscales of another number": (
        "gp",
        array("model.features.kernel.lengthscales", np.ones(3)),
        r"model\.features\.kernel must have one length scale, or 1, got 3",
    ),
    "negative lengthscale": (
        "gp",
        array("model.features.kernel.lengthscales", np.array([-1.0])),
        r"model\.features\.kernel\.lengthscales must be positive, got -1",
    ),
    "unknown smoothness": ("gp", setting("model.features.kernel.smoothness", 7.5), "smoothness must be 0.5"),
    "upper factor of a kernel": (
        "gp",
        array("model.features.scale_tril", np.triu(np.ones((5, 5)))),
        r"model\.features\.scale_tril must be lower triangular",
    ),
    "negative rate of a model": ("shape", array("model.rate", -0.3), r"model\.rate must be positive"),
    "posterior of another length": (
        "linear",
        lambda m, e: [
            array("posterior.mean", np.zeros(3))(m, e),
            array("posterior.raw_scale_tril", np.eye(3))(m, e),
        ],
        "posterior must have 2 parameters of float64 to fit the model, got 3 of float64",
    ),
    "posterior of another type": (
        "linear",
        lambda m, e: [
            array("posterior.mean", np.zeros(2, np.float32))(m, e),
            array("posterior.raw_scale_tril", np.eye(2, dtype=np.float32))(m, e),
        ],
        "posterior must have 2 parameters of float64 to fit the model, got 2 of float32",
    ),
    "curvature of another length": (
        "curvature",
        lambda m, e: [
            array("memory.curvature.linear", np.zeros(3))(m, e),
            array("memory.curvature.precision.entries", np.eye(3))(m, e),
        ],
        r"memory\.curvature must have 2 parameters to fit the posterior, got 3",
    ),
    "curvature that does not fit itself": (
        "curvature",
        array("memory.curvature.precision.entries", np.eye(3)),
        r"memory\.curvature\.precision must have dimension 2, got 3",
    ),
    "curvature of another type": (
        "curvature",
        lambda m, e: [
            array("memory.curvature.linear", np.zeros(2, np.float32))(m, e),
            array("memory.curvature.precision.entries", np.eye(2, dtype=np.float32))(m, e),
        ],
        r"memory\.curvature\.linear must be float64 as the posterior is, got float32",
    ),
    "sums along a direction too many": (
        "sums",
        array("memory.sums.directions", np.eye(3)),
        r"memory\.sums\.directions must be 2, as in the sums, got 3",
    ),
    "sums along directions of another length": (
        "sums",
        array("memory.sums.directions", np.eye(4, 2)),
        r"memory\.sums must have 3 parameters to fit the posterior, got 4",
    ),
    "directions that are not orthonormal": (
        "sums",
        array("memory.sums.directions", np.ones((3, 2))),
        r"memory\.sums\.directions must be orthonormal",
    ),
    "directions of another type": (
        "sums",
        array("memory.sums.directions", np.eye(3, 2, dtype=np.float32)),
        r"memory\.sums\.directions must be float64 as the posterior is, got float32",
    ),
    "sums of another type": (
        "sums",
        lambda m, e: [
            array(f"memory.sums.derivatives.{name}", np.ones(shape, np.float32))(m, e)
            for name, shape in {"third": (3, 2), "fourth": (3, 3), "fifth": (1, 1, 1)}.items()
        ],
        r"memory\.sums\.derivatives\.third must be float64 as the posterior is, got float32",
    ),
    "third derivatives of a pair too few": (
        "sums",
        lambda m, e: [
            array(f"memory.sums.derivatives.{name}", np.ones(shape))(m, e)
            for name, shape in {"third": (2, 2), "fourth": (2, 2)}.items()
        ],
        r"memory\.sums\.derivatives\.third must have 3 rows, one for each pair of 2 directions, got 2",
    ),
    "fourth derivatives of other pairs": (
        "sums",
        array("memory.sums.derivatives.fourth", np.ones((2, 2))),
        r"memory\.sums\.derivatives\.fourth must be float of shape \(h, h\) or None, got float64 of shape "
        r"\(2, 2\)",
    ),
    "fifth derivatives along more directions": (
        "sums",
        array("memory.sums.derivatives.fifth", np.ones((6, 6, 3))),
        r"memory\.sums\.derivatives\.fifth must go along 2 directions at most, got 3",
    ),
    "fifth derivatives of other pairs": (
        "sums",
        array("memory.sums.derivatives.fifth", np.ones((2, 2, 2))),
        r"memory\.sums\.derivatives\.fifth must have shape \(3, 3, 2\), got \(2, 2, 2\)",
    ),
    "fourth derivatives that are not symmetric": (
        "sums",
        array("memory.sums.derivatives.fourth", np.arange(9.0).reshape(3, 3)),
        r"memory\.sums\.derivatives\.fourth must be symmetric",
    ),
    "NaN among sums": (
        "sums",
        array("memory.sums.derivatives.fourth", np.full((3, 3), np.nan)),
        r"memory\.sums\.derivatives\.fourth must be finite, got nan",
    ),
    "share of more than all": (
        "sums",
        setting("memory.sums.share", 1.5),
        r"memory\.sums\.share must be between 0 and 1, got 1\.5",
    ),
    "share that is a word": (
        "sums",
        setting("memory.sums.share", "all"),
        r"sums\.share must be float, got 'all'",
    ),
    "sums that are none": (
        "sums",
        lambda m, e: (
            m["memory"]["fields"].update(sums=3)
            or [m["arrays"].pop(n) and e.pop(f"{n}.npy") for n in list(m["arrays"]) if "sums" in n]
        ),
        r"memory\.sums must be KeptSums or None, got 3",
    ),
    "coreset whose arrays differ in length": (
        "coreset",
        array("memory.coreset.targets", np.zeros(4)),
        r"memory\.coreset\.targets must be any type of shape \(n, \.\.\.\), got float64 of shape \(4,\)",
    ),
    "coreset with a negative variance": (
        "coreset",
        array("memory.coreset.variance", -np.ones(3)),
        r"memory\.coreset\.variance must be positive or zero, got -1",
    ),
    "coreset of another width": (
        "coreset",
        array("memory.coreset.design", np.ones((3, 7))),
        r"memory\.coreset must hold records of the model, which cannot read them",
    ),
    "weights of another length": (
        "coreset",
        array("memory.weights", np.ones(2)),
        r"memory\.coreset must hold 2 records, as weights does, got 3",
    ),
    "negative weights": (
        "coreset",
        array("memory.weights", np.array([1.0, -2.0, 1.0])),
        r"memory\.weights must be positive or zero, got -2",
    ),
    "weights that are integers": (
        "coreset",
        array("memory.weights", np.ones(3, np.int32)),
        "weights must be float",
    ),
    "NaN in a coreset": (
        "coreset",
        array("memory.coreset.targets", np.full(3, np.nan)),
        "must be finite, got nan",
    ),
    "records below zero": (
        "coreset",
        setting("memory.records", -1),
        "records must be positive or zero, got -1",
    ),
    "half a record": ("coreset", setting("memory.records", 1.5), r"memory\.records must be int, got 1\.5"),
    "negative stationarity": (
        "coreset",
        setting("memory.stationarity", -1.0),
        "stationarity must be positive or",
    ),
    "lineage that is a number": ("coreset", setting("memory.lineage", 3), "lineage must be str, got 3"),
    "prior that is missing": (
        "beta",
        lambda m, e: (
            m["model"]["fields"].update(prior=None)
            or [
                m["arrays"].pop(f"model.prior.{n}") and e.pop(f"model.prior.{n}.npy")
                for n in ("successes", "failures")
            ]
        ),
        r"model\.prior must be Beta, got None",
    ),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "belief.unbayes"


def edited(path, edit) -> None:
    """Apply an edit of manifest and entries; all checksums are right afterwards."""

    def edit_entries(entries):
        manifest = json.loads(entries["manifest.json"])
        edit(manifest, entries)
        entries["manifest.json"] = json.dumps(manifest).encode()

    tamper(path, None, edit_entries)


@pytest.mark.parametrize("name", SAVED)
def test_what_is_right_is_loaded(name, path):
    arguments, options = SAVED[name]()
    ub.save(path, *arguments, **options)
    assert isinstance(ub.load(path).posterior, type(arguments[0]))


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_refused(name, path):
    what, edit, sentence = FAULTS[name]
    arguments, options = SAVED[what]()
    ub.save(path, *arguments, **options)
    edited(path, edit)
    with pytest.raises(ub.UnreadableFile, match=sentence) as refusal:
        ub.load(path)
    assert str(refusal.value).startswith(f"{path} cannot be loaded: ")
    assert "\n" not in str(refusal.value)


def test_signs_of_a_factor_are_free(path):
    """Optimisers pass through zero; the covariance is the same."""
    posterior = ub.FullGaussian(jnp.zeros(2), jnp.diag(jnp.array([-1.0, 2.0])))
    ub.save(path, posterior)
    np.testing.assert_array_equal(ub.load(path).posterior.covariance, posterior.covariance)


# What could not be loaded is not saved either: (what to save, sentence).
UNSAVED = {
    "posterior of another length": (
        lambda: ((full(3), ub.linear_regression(1, noise_scale=0.3)), {}),
        "posterior must have 2 parameters of float64 to fit the model, got 3",
    ),
    "NaN prior": (
        lambda: (
            (
                full(2),
                eqx.tree_at(
                    lambda m: m.prior.mean, ub.linear_regression(1, noise_scale=0.3), jnp.full(2, jnp.nan)
                ),
            ),
            {},
        ),
        r"model\.prior\.mean must be finite, got nan",
    ),
    "integers for a mean": (
        lambda: ((eqx.tree_at(lambda q: q.mean, full(2), jnp.arange(2)),), {}),
        r"posterior\.mean must be float of shape \(d\), got int64",
    ),
    "coreset of another model": (
        lambda: ((full(2), ub.linear_regression(1, noise_scale=0.3)), coreset(columns=7)),
        r"memory\.coreset must hold records of the model",
    ),
    "negative weights": (
        lambda: ((full(2),), remembered(coreset=jnp.ones(2), weights=-jnp.ones(2))),
        r"memory\.weights must be positive or zero, got -1",
    ),
}


@pytest.mark.parametrize("name", UNSAVED)
def test_what_could_not_be_loaded_is_not_saved(name, path):
    make, sentence = UNSAVED[name]
    arguments, options = make()
    with pytest.raises(ValueError, match=sentence):
        ub.save(path, *arguments, **options)
    assert not path.exists()


class Loose(Storable):
    """A user's class, annotated as users do."""

    plain: float
    whole: Int[Array, " k"]
    part: Float[Array, " k"] | None
    limit: "Float[Array, ' k']"
    later: Any = None


class LooseBelief(ub.Beta):
    loose: Loose

    def __init__(self, loose):
        super().__init__(1.0, 2.0)
        self.loose = loose


def loose(**changes):
    fields = {
        "plain": jnp.ones(3),
        "whole": jnp.arange(2),
        "part": None,
        "limit": jnp.ones((4, 4)),
    }
    return LooseBelief(Loose(**{**fields, **changes}))


class TestOwnClasses:
    def test_what_annotations_do_not_say_is_left_alone(self, path):
        ub.save(path, loose())
        assert ub.load(path).posterior.loose.plain.shape == (3,)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"whole": jnp.ones(2)}, r"posterior\.loose\.whole must be int of shape \(k\), got float64"),
            (
                {"part": jnp.ones(3), "whole": jnp.arange(2)},
                r"part must be float of shape \(k\) or None, got float64 of shape \(3,\)",
            ),
        ],
    )
    def test_what_they_say_holds(self, path, change, sentence):
        with pytest.raises(ValueError, match=sentence):
            ub.save(path, loose(**change))

    def test_numpy_arrays_are_arrays(self, path):
        ub.save(path, loose(whole=np.arange(2), part=np.ones(2)))
        assert isinstance(ub.load(path).posterior.loose.part, jax.Array)


class TestPrecision:
    def test_the_sentence_says_what_to_do(self, path):
        ub.save(path, full(2))
        with jax.enable_x64(False), pytest.raises(ub.UnreadableFile) as refusal:
            ub.load(path)
        for part in (str(path), 'jax.config.update("jax_enable_x64", True)', "JAX_ENABLE_X64=1"):
            assert part in str(refusal.value)

    def test_of_statistics_too(self, path):
        model = ub.BetaBernoulli(ub.Beta(1.0, 1.0))
        key = jax.random.key(0)
        ub.save_statistics(path, ub.summarise(ub.Beta(5.0, 5.0), model, np.array([1]), key=key))
        with jax.enable_x64(False), pytest.raises(ub.UnreadableFile, match="JAX_ENABLE_X64=1") as refusal:
            ub.load_statistics(path)
        assert str(path) in str(refusal.value)

    @pytest.mark.parametrize(
        ("place", "value", "sentence"),
        [
            ("statistics.records", 0, r"statistics\.records must be positive, got 0"),
            ("statistics.records", True, r"statistics\.records must be int, got True"),
            ("statistics.origin", 3, r"statistics\.origin must be str, got 3"),
            (
                "statistics.ids",
                {"tuple": [3]},
                r"statistics\.ids must be tuple\[str, \.\.\.\], got",
            ),
        ],
    )
    def test_fields_of_statistics(self, path, place, value, sentence):
        model = ub.BetaBernoulli(ub.Beta(1.0, 1.0))
        key = jax.random.key(0)
        ub.save_statistics(path, ub.summarise(ub.Beta(5.0, 5.0), model, np.array([1]), key=key))
        edited(path, setting(place, value))
        with pytest.raises(ub.UnreadableFile, match=sentence):
            ub.load_statistics(path)
