"""Posteriors, models and memories in files: every bit comes back, and nothing else is let in."""

import inspect
import os
import pathlib
import subprocess
import sys
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import unbayes as ub
from constructors import EXAMPLES
from storage.tampering import entries_of, manifest_of, npy, tamper
from unbayes import models
from unbayes._storable import Storable, find_class, stored_name
from unbayes.memory.marks import Marker, Marks
from unbayes.memory.sums import KeptSums
from unbayes.models.derivatives import Derivatives
from unbayes.models.view import AbstractView
from unbayes.storage import Saved, UnreadableFile

HERE = pathlib.Path(__file__).parent
KEY = jr.key(7)


def full(dim):
    return ub.FullGaussian(jr.normal(KEY, (dim,)), jnp.eye(dim) + 0.1 * jr.normal(KEY, (dim, dim)))


def diagonal(dim):
    return ub.DiagonalGaussian(jr.normal(KEY, (dim,)), jnp.linspace(0.3, 2.0, dim))


def flow(**architecture):
    return ub.AutoregressiveFlow(full(3), key=KEY, layers=2, width=4, **architecture)


def regression_belief():
    return ub.NormalInverseGamma(jnp.arange(3.0), 2 * jnp.eye(3) + 0.1, 1.7, 20.3)


def gp(kernel, **form):
    return ub.sparse_gp(
        jnp.linspace(-2, 2, 5)[:, None], kernel, ub.BernoulliLikelihood(), jitter=1e-4, **form
    )


def whitened():
    return ub.WhitenedInducingInputs(gp(ub.Matern(1.3, 0.7)).features)


def density():
    return ub.DensityModel(log_prior, log_density, dim=1)


def log_prior(theta):
    return -0.5 * (theta**2).sum()


def log_density(theta, y):
    return -((y - theta[0]) ** 2)


POSTERIORS = {
    "diagonal": lambda: diagonal(3),
    "full": lambda: full(3),
    "flow inverse reverse": lambda: flow(),
    "flow inverse random": lambda: flow(permutation="random"),
    "flow inverse none": lambda: flow(permutation="none"),
    "flow masked reverse": lambda: flow(inverse=False),
    "flow masked random": lambda: flow(inverse=False, permutation="random", depth=2),
    "flow masked none": lambda: flow(inverse=False, permutation="none"),
    "beta": lambda: ub.Beta(2.1, 3.3),
    "dirichlet": lambda: ub.Dirichlet([0.7, 1.3, 2.9]),
    "gamma": lambda: ub.Gamma(2.1, 0.3),
    "normal-inverse-gamma": regression_belief,
    "table": lambda: ub.Table(jnp.arange(8.0).reshape(4, 2), jnp.array([0.1, -jnp.inf, 2.3, -1.7])),
}


def memory(**parts):
    return ub.Memory(9, 1e-9, **parts)


def natural(precision):
    return ub.GaussianNatural(jnp.arange(2.0), precision)


MEMORIES = {
    "light": memory,
    "curvature": lambda: memory(curvature=natural(ub.DensePrecision(jnp.eye(2) + 0.1))),
    "diagonal curvature": lambda: memory(curvature=natural(ub.DiagonalPrecision(jnp.ones(2)))),
    "coreset": lambda: memory(
        coreset=models.LinearEvidence(jnp.ones((3, 2)), None, jnp.arange(3)), weights=jnp.ones(3)
    ),
    "sums": lambda: memory(
        sums=KeptSums(Derivatives(jnp.ones((3, 2)), jnp.ones((3, 3)), jnp.ones((3, 3, 2))), jnp.eye(2), 0.9)
    ),
    "sums of third derivatives": lambda: memory(sums=KeptSums(Derivatives(jnp.ones((1, 1))), jnp.eye(2, 1))),
    "marks": lambda: memory(
        marker=Marker("00" * 16, jnp.ones(2, jnp.float32)),
        roster=Marks(jnp.arange(6, dtype=jnp.int32).reshape(3, 2), jnp.zeros((3, 2), jnp.int32)),
    ),
    "coreset of any model": lambda: memory(coreset={"y": (jnp.ones(3), jnp.arange(3))}, weights=jnp.ones(3)),
}

MODELS = {
    "linear": lambda: ub.linear_regression(2, noise_scale=0.3),
    "logistic": lambda: ub.logistic_regression(2, prior_scale=0.7, bias=False),
    "softmax": lambda: ub.softmax_regression(2, 3),
    "poisson": lambda: ub.poisson_regression(2),
    "gp": lambda: gp(ub.SquaredExponential(1.3, 0.7)),
    "gp rough": lambda: gp(ub.Matern(1.3, 0.7, 1.5)),
    "gp with variance": lambda: gp(ub.SquaredExponential(1.3, 0.7), conditional_variance=True),
    "gp rough with variance": lambda: gp(ub.Matern(1.3, 0.7, 0.5), conditional_variance=True),
    "gp whitened": lambda: ub.LinearModel(whitened(), ub.ProbitLikelihood(), full(5), offset=0.4),
    "polynomial": lambda: ub.LinearModel(ub.PolynomialFeatures(1, 3), ub.GaussianLikelihood(0.3), full(4)),
    "function": lambda: ub.LinearModel(
        ub.FunctionFeatures(jnp.tanh, 2, 2, bias=False), ub.PoissonLikelihood(), full(2)
    ),
    "gamma shape": lambda: ub.GammaShape(0.3, diagonal(1)),
    "density": density,
    "beta-bernoulli": lambda: ub.BetaBernoulli(ub.Beta(0.3, 0.7)),
    "dirichlet-categorical": lambda: ub.DirichletCategorical(ub.Dirichlet([0.7, 1.3])),
    "gamma-poisson": lambda: ub.GammaPoisson(ub.Gamma(0.3, 0.7)),
    "unknown noise": lambda: ub.UnknownNoiseRegression(ub.RawFeatures(2), regression_belief()),
}

FUNCTIONS = {
    "function": {"model.features.function": jnp.tanh},
    "density": {"model.prior_log_density": log_prior, "model.record_log_density": log_density},
}


def library_classes():
    """Concrete storable classes of the library; adapters and views of models are never saved."""

    def walk(cls):
        return {cls}.union(*map(walk, cls.__subclasses__()))

    return {
        cls
        for cls in walk(Storable)
        if cls.__module__.startswith("unbayes.")
        and not cls.__module__.startswith("unbayes.adapters.")
        and not inspect.isabstract(cls)
        and not issubclass(cls, AbstractView)
    } - {Storable}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "belief.unbayes"


@pytest.fixture
def saved(path):
    """A small file, whose bytes can be tampered with one at a time."""
    ub.save(path, diagonal(2), ub.linear_regression(1, noise_scale=0.3), notes={"records": 3})
    return path


def assert_identical(left, right):
    """Same classes, same settings, same bits."""
    arrays = [eqx.filter(tree, eqx.is_array) for tree in (left, right)]
    assert jax.tree.structure(arrays[0]) == jax.tree.structure(arrays[1])
    for a, b in zip(*map(jax.tree.leaves, arrays), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@eqx.filter_jit
def behaviour(posterior):
    theta = posterior.sample(KEY)
    return theta, posterior.log_prob(theta)


def assert_refused(path, match, **arguments):
    with pytest.raises(UnreadableFile, match=match) as refusal:
        ub.load(path, **arguments)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


class TestRoundTrip:
    @pytest.mark.long
    @pytest.mark.parametrize("name", POSTERIORS)
    def test_posterior(self, name, dtype, path):
        posterior = POSTERIORS[name]()
        assert posterior.dtype == dtype
        ub.save(path, posterior)
        loaded = ub.load(path)
        assert type(loaded.posterior) is type(posterior)
        assert_identical(loaded.posterior, posterior)
        assert loaded.model is None
        assert loaded.notes is None
        if "flow" not in name or name in ("flow inverse random", "flow masked reverse"):  # Slow to compile.
            jax.tree.map(np.testing.assert_array_equal, behaviour(loaded.posterior), behaviour(posterior))

    @pytest.mark.parametrize("name", MODELS)
    def test_model(self, name, dtype, path):
        model = MODELS[name]()
        assert model.dtype == dtype
        ub.save(path, diagonal(model.dim), model)
        loaded = ub.load(path, functions=FUNCTIONS.get(name)).model
        assert type(loaded) is type(model)
        assert_identical(loaded, model)
        functions = [[leaf for leaf in jax.tree.leaves(m) if callable(leaf)] for m in (loaded, model)]
        assert functions[0] == functions[1]

    def test_every_bit_of_a_number(self, dtype, path):
        limits = jnp.finfo(dtype)
        odd = jnp.array([-0.0, limits.tiny / 4, limits.max, 1 + limits.eps], dtype)
        posterior = eqx.tree_at(lambda q: q.mean, diagonal(4), odd)
        ub.save(path, posterior)
        assert np.asarray(ub.load(path).posterior.mean).tobytes() == np.asarray(odd).tobytes()

    def test_float32_in_a_float64_session(self, path):
        posterior = diagonal(3)
        posterior = jax.tree.map(lambda a: a.astype(jnp.float32), posterior)
        ub.save(path, posterior)
        assert_identical(ub.load(path).posterior, posterior)

    def test_notes(self, path):
        notes = {"records": 3, "stationarity": 1e-300, "tags": ["a", None, True], "nested": {"θ": "ü"}}
        ub.save(path, diagonal(2), notes=notes)
        assert ub.load(path).notes == notes

    def test_same_content_is_the_same_file(self, saved, tmp_path):
        first = saved.read_bytes()
        loaded = ub.load(saved)
        ub.save(str(tmp_path / "again"), loaded.posterior, loaded.model, notes=loaded.notes)
        assert (tmp_path / "again").read_bytes() == first

    def test_every_class_is_found_by_its_name(self):
        """No two classes share a name, which one of them could then not be loaded by."""
        found = {cls: find_class(stored_name(cls)) for cls in library_classes()}
        assert len(found) > 30
        assert all(cls is other for cls, other in found.items())

    def test_rows_above_cover_every_class(self, path):
        def classes(node):
            match node:
                case {"class": name, "fields": fields}:
                    return {name}.union(*map(classes, fields.values()))
            return set()

        seen = set()
        for make in POSTERIORS.values():
            ub.save(path, make())
            seen |= classes(manifest_of(path)["posterior"])
        for make in MODELS.values():
            model = make()
            ub.save(path, diagonal(model.dim), model)
            seen |= classes(manifest_of(path)["model"])
        for make in MEMORIES.values():
            ub.save(path, diagonal(2), memory=make())
            seen |= classes(manifest_of(path)["memory"])
        within_statistics = {"Provenance", "RegressionNatural", "Sites", "Statistics"}
        within_checkpoints = {"Drawn", "Surveyed"}
        # Those with an example make their round trip in `test_extending`.
        examples = {cls.__name__ for table in EXAMPLES.values() for cls in table}
        elsewhere = within_statistics | within_checkpoints | examples
        assert {stored_name(cls) for cls in library_classes()} <= seen | elsewhere


class TestOtherSessions:
    @pytest.mark.long
    def test_a_new_process_knows_every_class(self, tmp_path):
        """Nothing but `load` is used there, so nothing else has imported what a file holds."""
        for name, make in POSTERIORS.items():
            ub.save(tmp_path / f"posterior, {name}", make())
        for name in MODELS.keys() - FUNCTIONS.keys():
            model = MODELS[name]()
            ub.save(tmp_path / f"model, {name}", diagonal(model.dim), model)
        for name, make in MEMORIES.items():
            ub.save(tmp_path / f"memory, {name}", diagonal(2), memory=make())
        script = (
            "import os, sys, unbayes\n"
            "for name in sorted(os.listdir(sys.argv[1])):\n"
            "    found = unbayes.load(os.path.join(sys.argv[1], name))\n"
            "    print(name, *(type(part).__name__ for part in found[:3]), sep=';')"
        )
        ran = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            capture_output=True,
            text=True,
            env={**os.environ, "JAX_ENABLE_X64": "1"},
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        here = [
            ";".join([file.name, *(type(part).__name__ for part in ub.load(file)[:3])])
            for file in sorted(tmp_path.iterdir())
        ]
        assert ran.stdout.splitlines() == here

    def test_a_gaussian_and_its_memory_of_format_1(self):
        saved = ub.load(HERE / "version_1.unbayes")
        memory = saved.memory
        assert saved.notes == {"records": 30}
        assert (memory.records, memory.size, memory.is_stand_in) == (30, 5, False)
        assert isinstance(memory.curvature.precision, ub.DensePrecision)
        assert memory.sums is None
        # The diagonal Gaussian nearest to the dense one is the posterior itself, as it was when trained.
        nearest = ub.DiagonalGaussian.from_natural(memory.curvature)
        np.testing.assert_allclose(nearest.mean, saved.posterior.mean, atol=1e-6)
        np.testing.assert_allclose(nearest.scale, saved.posterior.scale, rtol=1e-6)
        # Its records have no marks: erased ones among them could not be found.
        with pytest.raises(ValueError, match="memory must know its records by marks, got one of an earlier"):
            memory.sight(None)

    def test_a_flow_of_format_1(self):
        flow = ub.load(HERE / "version_1_flow.unbayes").posterior
        # As the version that wrote it computed it.
        assert float(flow.log_prob(jnp.zeros(2))) == pytest.approx(-1.8402030403394967, rel=1e-12)

    @pytest.mark.parametrize("name", ["version_1", "version_1_flow"])
    def test_what_was_read_is_written_in_the_format_of_today(self, name, path):
        old = ub.load(HERE / f"{name}.unbayes")
        ub.save(path, old.posterior, old.model, memory=old.memory, notes=old.notes)
        assert (manifest_of(HERE / f"{name}.unbayes")["version"], manifest_of(path)["version"]) == (1, 2)
        assert_identical(ub.load(path), old)


@pytest.mark.parametrize("name", MEMORIES)
class TestMemory:
    def test_round_trip(self, name, path):
        memory = MEMORIES[name]()
        ub.save(path, diagonal(2), memory=memory)
        loaded = ub.load(path).memory
        assert_identical(loaded, memory)
        assert (loaded.records, loaded.stationarity) == (memory.records, memory.stationarity)

    def test_without_the_memory_no_record_is_stored(self, name, path):
        ub.save(path, diagonal(2))
        assert ub.load(path).memory is None


class TestFunctions:
    def test_a_network_is_not_stored(self, path):
        network = eqx.filter_vmap(eqx.nn.Linear(2, 2, key=KEY))
        features = ub.FunctionFeatures(network, 2, 2)
        ub.save(path, full(3), ub.LinearModel(features, ub.BernoulliLikelihood(), full(3)))
        stored = set(manifest_of(path)["arrays"])
        assert stored == {
            f"{where}.{part}" for where in ("posterior", "model.prior") for part in vars(full(1))
        }
        loaded = ub.load(path, functions={"model.features.function": network}).model
        assert_identical(loaded.features, features)

    @pytest.mark.parametrize("missing", ["model.prior_log_density", "model.record_log_density"])
    def test_a_missing_one_is_named(self, path, missing):
        ub.save(path, diagonal(1), density())
        given = {name: f for name, f in FUNCTIONS["density"].items() if name != missing}
        with pytest.raises(ValueError, match=f"functions must hold the function '{missing}'"):
            ub.load(path, functions=given)

    def test_what_is_not_callable_is_refused(self, path):
        ub.save(path, diagonal(2), MODELS["function"]())
        with pytest.raises(ValueError, match=r"functions must hold the function 'model\.features.function'"):
            ub.load(path, functions={"model.features.function": 3})

    def test_a_function_too_many_is_named(self, saved):
        with pytest.raises(ValueError, match=r"functions must name .* got model\.features\.fun"):
            ub.load(saved, functions={"model.features.fun": jnp.tanh})


class OwnFeatures(models.AbstractFeatures):
    inputs: int = eqx.field(static=True)

    @property
    def size(self):
        return self.inputs

    def __call__(self, x):
        return x


class Beta(ub.Beta):
    """Bears the name of a class of the library."""


class TestOwnClasses:
    def test_own_features_round_trip(self, path):
        model = ub.LinearModel(OwnFeatures(2), ub.GaussianLikelihood(0.3), diagonal(2))
        ub.save(path, full(2), model)
        assert_identical(ub.load(path).model, model)
        assert manifest_of(path)["model"]["fields"]["features"]["class"] == f"{__name__}:OwnFeatures"

    def test_a_name_of_the_library_stays_the_library_s(self, path):
        for cls in (Beta, ub.Beta):
            ub.save(path, cls(1.0, 2.0))
            assert type(ub.load(path).posterior) is cls
        assert manifest_of(path)["posterior"]["class"] == "Beta"

    def test_a_class_that_was_not_imported_is_named(self, path):
        ub.save(path, Beta(1.0, 2.0))
        tamper(path, lambda m: m["posterior"].update({"class": "elsewhere:Beta"}))
        assert_refused(path, "posterior is of the class 'elsewhere:Beta', which this version does not know")
        assert "elsewhere" not in sys.modules

    def test_a_local_class_that_was_replaced_is_refused(self, path):
        def make():
            class Local(ub.Beta):
                pass

            return Local(1.0, 2.0)

        old, new = make(), make()
        ub.save(path, new)
        with pytest.raises(TypeError, match=r"posterior is a .*Local, which unbayes cannot save"):
            ub.save(path, old)


class NoStorable(eqx.Module):
    """A module of another library."""

    size: int = 3


def tower(levels):
    node = {}
    for _ in range(levels):
        node = {"in": node}
    return node


SAVE_REFUSALS = {
    "a foreign module": (lambda: (NoStorable(),), {}, r"posterior is a .*NoStorable, which unbayes cannot"),
    "a foreign part": (
        lambda: (full(2), eqx.tree_at(lambda m: m.prior, MODELS["linear"](), NoStorable())),
        {},
        r"model\.prior is a .*NoStorable, which unbayes cannot save",
    ),
    "a training result": (lambda: (ub.Trained(full(2), "", 0.0, 0.0, True, np.zeros(1)),), {}, r"Trained"),
    "a model first": (lambda: (MODELS["linear"](),), {}, "posterior must be a posterior, got LinearModel"),
    "no posterior": (lambda: (None,), {}, "posterior must be a posterior, got NoneType"),
    "a posterior twice": (lambda: (full(2), full(2)), {}, "model must be a model or None, got FullGaussian"),
    "half precision": (
        lambda: (jax.tree.map(lambda a: a.astype(jnp.bfloat16), full(2)),),
        {},
        r"posterior\.mean must have one of the types .* got bfloat16",
    ),
    "not a number": (
        lambda: (eqx.tree_at(lambda q: q.mean, full(2), jnp.array([0.0, jnp.nan])),),
        {},
        r"posterior\.mean must be finite, got nan",
    ),
    "infinite value of a table": (
        lambda: (ub.Table(jnp.array([[-jnp.inf], [0.0]]), jnp.zeros(2)),),
        {},
        r"posterior\.values must be finite, got -inf",
    ),
    "notes with NaN": (lambda: (full(2),), {"notes": {"a": float("nan")}}, "notes must be a dict"),
    "notes with a tuple": (lambda: (full(2),), {"notes": {"a": (1, 2)}}, "notes must be a dict"),
    "notes with a number as key": (lambda: (full(2),), {"notes": {1: 2}}, "notes must be a dict"),
    "notes with an array": (lambda: (full(2),), {"notes": {"a": np.zeros(2)}}, "notes must be a dict"),
    "a tower of notes": (lambda: (full(2),), {"notes": tower(200)}, "nested in at most 100 levels, got more"),
    "notes in a list": (lambda: (full(2),), {"notes": [1]}, "notes must be a dict"),
}


class TestSaving:
    @pytest.mark.parametrize("name", SAVE_REFUSALS)
    def test_refused_before_anything_is_written(self, name, saved):
        make, options, match = SAVE_REFUSALS[name]
        before = saved.read_bytes()
        with pytest.raises((TypeError, ValueError), match=match):
            ub.save(saved, *make(), **options)
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == [saved.name]

    @pytest.mark.parametrize(
        ("owner", "function"),
        [
            (os, "replace"),
            (os, "fsync"),
            (np.lib.format, "write_array"),
            (zipfile.ZipFile, "writestr"),
            (zipfile.ZipFile, "close"),
        ],
    )
    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk", "interrupt"])
    def test_a_failure_leaves_the_old_file(self, saved, monkeypatch, owner, function, error):
        before, old = saved.read_bytes(), ub.load(saved)
        original, calls = getattr(owner, function), []

        def fails_the_second_time(*args, **kwargs):
            calls.append(args)
            if function in ("write_array", "writestr") and len(calls) == 1:
                return original(*args, **kwargs)
            raise error

        monkeypatch.setattr(owner, function, fails_the_second_time)
        with pytest.raises(type(error)):
            ub.save(saved, full(5), notes={"new": True})
        monkeypatch.undo()
        assert calls
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == [saved.name]
        assert_identical(ub.load(saved).posterior, old.posterior)

    def test_replaces_an_older_file(self, saved):
        ub.save(saved, full(5))
        assert_identical(ub.load(saved), Saved(full(5), None, None, None))
        assert os.listdir(saved.parent) == [saved.name]

    def test_no_training_rows(self, path):
        def size_and_shapes(rows):
            x = 1000 + np.random.default_rng(0).normal(size=(rows, 2))
            model = ub.linear_regression(2, noise_scale=0.3)
            ub.save(path, ub.fit(model, (x, x.sum(1)), key=KEY).posterior, model)
            data = path.read_bytes()
            assert not any(row.tobytes() in data for row in x)
            return len(data), {name: array["shape"] for name, array in manifest_of(path)["arrays"].items()}

        assert size_and_shapes(20) == size_and_shapes(400)


def set_array(array, allow_pickle=False):
    return lambda entries: entries.update({"posterior.mean.npy": npy(array, allow_pickle)})


def declare(**what):
    return lambda manifest: manifest["arrays"]["posterior.mean"].update(what)


def describe(**fields):
    return lambda manifest: manifest["posterior"]["fields"].update(fields)


# Edits of a file whose checksums are all made right again: (edit of the manifest, of the entries, sentence).
FORGERIES = {
    "a tower": (lambda m: m.update(notes=tower(400)), None, "nested in more than 100 levels"),
    "notes that are a word": (lambda m: m.update(notes="word"), None, "its notes are no dict"),
    "future version": (lambda m: m.update(version=3), None, "format version 3; .* reads up to 2"),
    "another kind": (lambda m: m.update(kind="statistics"), None, "it holds statistics, not model"),
    "no version": (lambda m: m.pop("version"), None, "format version None"),
    "another format": (lambda m: m.update(format="other"), None, "not written by unbayes"),
    "unknown class": (
        lambda m: m["posterior"].update({"class": "os.system"}),
        None,
        "posterior is of the class 'os.system'",
    ),
    "abstract class": (
        lambda m: m["posterior"].update({"class": "AbstractPosterior"}),
        None,
        "posterior is of the class 'AbstractPosterior'",
    ),
    "missing field": (
        lambda m: m["posterior"]["fields"].pop("mean"),
        None,
        r"posterior has the fields \['log",
    ),
    "extra field": (describe(more=1), None, "posterior has the fields .*'more'"),
    "unknown node": (describe(mean={"import": "os"}), None, r"posterior\.mean is described in a way"),
    "a list": (describe(mean=[1, 2]), None, r"posterior\.mean is described in a way"),
    "array that is not there": (
        describe(mean={"array": "x"}),
        None,
        r"posterior\.mean is described in a way",
    ),
    "array used twice": (
        describe(mean={"array": "posterior.log_scale"}),
        None,
        r"posterior\.\w+ is described in a way",
    ),
    "array used nowhere": (lambda m: m.update(model=None), None, "belong nowhere: model.likelihood.noise"),
    "number for an array": (
        describe(mean=1.0),
        None,
        r"posterior\.mean must be float of shape \(d\), got 1.0",
    ),
    "no posterior": (
        lambda m: m.pop("posterior"),
        None,
        "belong nowhere: posterior.mean, posterior.log_scale",
    ),
    "model for a posterior": (
        lambda m: m.update(posterior=m["model"], model=m["posterior"]),
        None,
        "posterior must be a posterior, got LinearModel",
    ),
    "posterior for a model": (
        lambda m: m.update(model=m["model"]["fields"]["prior"], arrays=m["arrays"]),
        None,
        "belong nowhere: model.likelihood.noise_scale",
    ),
    "no list of arrays": (lambda m: m.pop("arrays"), None, "damaged"),
    "wrong shape": (declare(shape=[1, 2]), None, r"posterior\.mean is float64 of shape \(2,\), not"),
    "wrong type": (declare(dtype="int64"), None, r"posterior\.mean is float64 of shape \(2,\), not int64"),
    "absurd shape": (declare(shape=[10**15]), None, r"posterior\.mean of shape .* cannot take \d+ bytes"),
    "negative shape": (declare(shape=[-2]), None, r"posterior\.mean is float64 of shape \(2,\), not"),
    "absurd header": (
        None,
        lambda e: e.update({"posterior.mean.npy": npy(np.zeros(2)).replace(b"(2,), }   ", b"(9999,), }")}),
        r"posterior\.mean is float64 of shape \(9999,\)",
    ),
    "trailing bytes": (None, lambda e: e.update({"posterior.mean.npy": npy(np.zeros(999))}), "cannot take"),
    "unknown type": (declare(dtype="object"), None, r"posterior\.mean has the type object"),
    "complex": (declare(dtype="complex128"), set_array(np.zeros(2, complex)), "has the type complex128"),
    "not a number": (None, set_array(np.array([0.0, np.nan])), r"posterior\.mean must be finite, got nan"),
    "infinite": (None, set_array(np.array([-np.inf, 0.0])), r"posterior\.mean must be finite, got -inf"),
    "missing entry": (None, lambda e: e.pop("posterior.mean.npy"), "entries are not those"),
    "extra entry": (None, lambda e: e.update({"more.npy": npy(np.zeros(2))}), "entries are not those"),
    "undeclared entry": (lambda m: m["arrays"].pop("posterior.mean"), None, "entries are not those"),
}


class TestRefusals:
    @pytest.mark.parametrize("name", FORGERIES)
    def test_forgery(self, name, saved):
        edit_manifest, edit_entries, match = FORGERIES[name]
        tamper(saved, edit_manifest, edit_entries)
        assert_refused(saved, match)

    def test_tampering_without_an_edit_is_harmless(self, saved):
        before = ub.load(saved)
        tamper(saved)
        assert_identical(ub.load(saved), before)

    def test_a_file_from_before_a_field_was_added(self, saved):
        before = ub.load(saved)
        tamper(saved, lambda manifest: manifest["model"]["fields"].pop("offset"))
        assert_identical(ub.load(saved), before)

    @pytest.mark.parametrize("edit", [declare(shape=[3]), describe(mean=0.0), lambda m: m.update(notes={})])
    def test_edited_manifest(self, saved, edit):
        tamper(saved, edit, forge=False)
        assert_refused(saved, "manifest was edited or damaged")

    def test_edited_array(self, saved):
        tamper(saved, None, set_array(np.array([1.0, 2.0])), forge=False)
        assert_refused(saved, r"posterior\.mean was edited or damaged")

    def test_every_truncation(self, path):
        ub.save(path, diagonal(1))
        data = path.read_bytes()
        for length in range(len(data)):
            path.write_bytes(data[:length])
            assert_refused(path, "damaged, cut short or not a zip file")

    def test_every_flipped_byte(self, path):
        """Contents are protected to the last bit; only zip fields that nobody reads (dates) are free."""
        ub.save(path, diagonal(1), notes={"records": 3})
        data, before = path.read_bytes(), ub.load(path)
        protected = set()
        for content in entries_of(path).values():
            start = data.index(content)
            protected.update(range(start, start + len(content)))
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << (position % 8)
            path.write_bytes(flipped)
            if position in protected:
                assert_refused(path, "damaged")
                continue
            try:
                loaded = ub.load(path)
            except UnreadableFile:
                continue
            assert_identical(loaded, before)
            assert loaded.notes == before.notes

    def test_no_code_is_run(self, saved, tmp_path):
        class Harmful:
            def __reduce__(self):
                return pathlib.Path.touch, (tmp_path / "harm",)

        harmful = np.array([Harmful(), Harmful()])
        tamper(saved, None, set_array(harmful, allow_pickle=True))
        assert_refused(saved, r"posterior\.mean is object of shape \(2,\), not float64")
        assert not (tmp_path / "harm").exists()

    def test_a_zip_bomb_is_not_expanded(self, saved, monkeypatch):
        tamper(saved, declare(shape=[10**6]), set_array(np.zeros(10**6)), compression=zipfile.ZIP_DEFLATED)
        assert saved.stat().st_size < 10**5
        read = []
        monkeypatch.setattr(zipfile.ZipFile, "read", lambda archive, name: read.append(name))
        assert_refused(saved, "claim more room than the file has")
        assert read == []

    def test_an_absurd_shape_is_not_read(self, saved, monkeypatch):
        tamper(saved, declare(shape=[10**15]))
        original, read = zipfile.ZipFile.read, []
        monkeypatch.setattr(
            zipfile.ZipFile, "read", lambda a, name: (read.append(name), original(a, name))[1]
        )
        assert_refused(saved, "cannot take")
        assert read == ["manifest.json"]

    def test_an_entry_twice(self, saved):
        with zipfile.ZipFile(saved, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("posterior.mean.npy", npy(np.zeros(2)))
        assert_refused(saved, "entries are not those")

    @pytest.mark.parametrize("content", [b"", b"plain text\n", b"PK\x03\x04 and no more", bytes(4096)])
    def test_no_zip_file(self, path, content):
        path.write_bytes(content)
        assert_refused(path, "damaged, cut short or not a zip file")

    @pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_foreign_zip(self, path, compression):
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("word/document.xml", "<w:document/>")
        assert_refused(path, "not written by unbayes")

    @pytest.mark.parametrize("manifest", ["{}", "[]", "3", '{"format": "npz", "version": 1}'])
    def test_foreign_manifest(self, path, manifest):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", manifest)
        assert_refused(path, "not written by unbayes")

    def test_directory(self, tmp_path):
        assert_refused(tmp_path, "directory")

    def test_missing_file(self, path):
        with pytest.raises(FileNotFoundError):
            ub.load(path)

    def test_float64_without_x64(self, path):
        ub.save(path, diagonal(2))
        with jax.enable_x64(False):
            assert_refused(
                path, r'posterior\.mean is float64.*update\("jax_enable_x64", True\).*JAX_ENABLE_X64=1'
            )

    def test_flow_of_another_type_than_the_session(self, path):
        with jax.enable_x64(False):
            ub.save(path, flow())
        assert_refused(path, "default type, float64; its frame is float32")

    @pytest.mark.parametrize(
        "architecture",
        [
            {"layers": 3},
            {"width": 5},
            {"depth": 2},
            {"depth": 10**9},
            {"width": 10**6, "layers": 10**6},
            {"permutation": "random"},
            {"permutation": "sideways"},
            {"layers": "two"},
            {"bijection": None},
            {"frame": None},
        ],
        ids=str,
    )
    def test_flow_of_another_architecture(self, path, architecture):
        ub.save(path, flow())
        stored = manifest_of(path)["arrays"]
        kept = [name for name in stored if not any(f".{part}" in name for part in architecture)]

        def drop(entries):
            for name in set(stored) - set(kept):
                del entries[f"{name}.npy"]

        def edit(manifest):
            describe(**architecture)(manifest)
            manifest["arrays"] = {name: manifest["arrays"][name] for name in kept}

        tamper(path, edit, drop)
        assert_refused(path, "posterior cannot be rebuilt as AutoregressiveFlow")
