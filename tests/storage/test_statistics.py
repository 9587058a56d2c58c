"""Statistics in files: every bit comes back, they add up in another process, and no erased row is in them."""

import functools
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, take

RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """What is erased from what, and how."""

    posterior: ub.AbstractPosterior
    model: ub.AbstractModel
    erased: Any
    memory: ub.Memory | None = None
    method: ub.AbstractMethod = ub.Auto()

    def options(self, **other):
        return {"memory": self.memory, "method": self.method, "key": KEY, **other}

    def summarise(self, rows=slice(None), **other):
        erased = take(self.erased, rows)
        return ub.summarise(self.posterior, self.model, erased, **self.options(**other))

    def solve(self, statistics, **other):
        return ub.solve(self.posterior, self.model, statistics, **self.options(**other))


def coins() -> Case:
    model, y = ub.BetaBernoulli(ub.Beta(1.0, 2.0)), RNG.integers(0, 2, 60)
    return Case(ub.fit(model, y, key=KEY).posterior, model, y[:20], method=ub.Exact())


def unknown_noise() -> Case:
    x, y = linear_gaussian().full
    prior = ub.NormalInverseGamma(np.zeros(4), np.eye(4), 2.0, 2.0)
    model = ub.UnknownNoiseRegression(ub.RawFeatures(3), prior)
    return Case(ub.fit(model, (x, y), key=KEY).posterior, model, (x[:20], y[:20]), method=ub.Exact())


def linear() -> Case:
    problem = linear_gaussian()
    full = ub.fit(problem.model, problem.full, key=KEY).posterior
    return Case(full, problem.model, problem.erased, method=ub.Exact())


def classes(memory: int | None = None, **settings) -> Case:
    problem = logistic()
    full = ub.fit(problem.model, problem.full, memory=memory, key=KEY)
    kept = None if memory is None else full.memory
    return Case(full.posterior, problem.model, problem.erased, kept, **settings)


def flow() -> Case:
    start = classes()
    shaped = ub.AutoregressiveFlow(start.posterior, key=KEY, layers=1, width=4)
    return start._replace(posterior=shaped, method=ub.Transport())


CASES: dict[str, Callable[[], Case]] = {
    "exact, coins": coins,
    "exact, unknown noise": unknown_noise,
    "exact, linear": linear,
    "natural gradient": lambda: classes(method=ub.NaturalGradient()),
    "natural gradient, memory": lambda: classes(40, method=ub.NaturalGradient()),
    "bank": lambda: classes(method=ub.BankReverseKL(draws=300)),
    "transport": flow,
}
SLOW = {"transport": pytest.mark.slow}
over_cases = pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW.get(n, ())) for n in CASES])
over_rows = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=SLOW.get(n, ())) for n in CASES if n != "exact, coins"]
)


@functools.cache
def case(name: str) -> Case:
    return CASES[name]()


@functools.cache
def statistics(name: str, start: int | None = None, stop: int | None = None) -> ub.Statistics:
    return case(name).summarise(slice(start, stop))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "erased.unbayes"


def assert_identical(left, right):
    """Same classes, same settings, same bits."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert (a.dtype, a.shape, np.asarray(a).tobytes()) == (b.dtype, b.shape, np.asarray(b).tobytes())


def arrays_of(path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: np.load(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
            if name.endswith(".npy")
        }


class TestRoundTrip:
    @over_cases
    def test_every_bit_comes_back(self, name, path):
        before = statistics(name)
        ub.save_statistics(path, before)
        loaded = ub.load_statistics(path)
        assert_identical(loaded, before)
        assert (loaded.records, loaded.origin) == (20, before.origin)
        first = path.read_bytes()
        ub.save_statistics(path, loaded)
        assert path.read_bytes() == first

    def test_digests_of_ids_come_back_and_no_id_is_in_the_file(self, path):
        words = [f"anna-{row}" for row in range(20)]
        before = case("exact, linear").summarise(ids=words)
        ub.save_statistics(path, before)
        assert ub.load_statistics(path).ids == before.ids
        assert len(set(before.ids)) == 20
        assert b"anna" not in path.read_bytes()


# Loads a model and two statistics of each case, adds, solves, and prints the posterior.
ELSEWHERE = """
import json, sys
import equinox as eqx
import jax
import unbayes as ub

found = {}
for name, draws in json.loads(sys.argv[2]).items():
    saved = ub.load(f"{sys.argv[1]}/{name}.model")
    total = sum(ub.load_statistics(f"{sys.argv[1]}/{name}.{part}") for part in (1, 2))
    method = ub.BankReverseKL(draws=draws) if draws else ub.Auto()
    options = {"memory": saved.memory, "method": method, "key": jax.random.key(0)}
    result = ub.solve(saved.posterior, saved.model, total, **options)
    leaves = [leaf.tolist() for leaf in jax.tree.leaves(eqx.filter(result.posterior, eqx.is_array))]
    found[name] = [result.records, result.verdict, leaves]
print(json.dumps(found))
"""


def solve_elsewhere(names, folder):
    for name in names:
        each = case(name)
        ub.save(folder / f"{name}.model", each.posterior, each.model, memory=each.memory)
        ub.save_statistics(folder / f"{name}.1", statistics(name, 0, 7))
        ub.save_statistics(folder / f"{name}.2", statistics(name, 7, 20))
    draws = {name: getattr(case(name).method, "draws", 0) if name == "bank" else 0 for name in names}
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(folder), json.dumps(draws)],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def parameters(posterior):
    return jax.tree.leaves(eqx.filter(posterior, eqx.is_array))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in CASES if name not in SLOW], marks=pytest.mark.long),
        pytest.param(list(SLOW), marks=pytest.mark.slow),
    ],
    ids=["quick", "slow"],
)
def test_a_new_process_adds_and_solves(names, tmp_path):
    """Another session knows the file of the model, those of the statistics, and the key."""
    found = solve_elsewhere(names, tmp_path)
    assert list(found) == names
    for name, (records, verdict, leaves) in found.items():
        here = case(name).solve(statistics(name))
        assert (records, verdict) == (20, here.verdict), name
        for other, own in zip(leaves, parameters(here.posterior), strict=True):
            np.testing.assert_allclose(other, own, rtol=1e-9, atol=1e-9, err_msg=name)
        # Something was taken out, so the comparison says something.
        before = parameters(case(name).posterior)
        assert any(not np.allclose(a, b, rtol=1e-6) for a, b in zip(leaves, before, strict=True)), name


def rows_in(path, erased) -> list[int]:
    """Erased records that a file holds: rows among its arrays, or any number of theirs among its bytes."""
    x, y = (np.asarray(part, np.float64) for part in erased)
    data, arrays = path.read_bytes(), arrays_of(path).values()
    found = set()
    for row, (inputs, target) in enumerate(zip(x, y, strict=True)):
        numbers = [*inputs, target] if target % 1 else inputs
        if any(kind(number).tobytes() in data for number in numbers for kind in (np.float64, np.float32)):
            found.add(row)
        for array in arrays:
            if array.size >= inputs.size:
                windows = np.lib.stride_tricks.sliding_window_view(array.ravel(), inputs.size)
                if np.isclose(windows, inputs, rtol=1e-4, atol=0).all(1).any():
                    found.add(row)
    return sorted(found)


class TestNoRows:
    @over_rows
    def test_no_erased_row_is_in_the_file(self, name, path):
        ub.save_statistics(path, statistics(name))
        assert rows_in(path, case(name).erased) == []

    def test_a_row_would_be_found(self, path):
        """Sums over one record tell the record, as `save_statistics` warns: here its row is found."""
        x, y = linear_gaussian().full
        model = ub.linear_regression(3, noise_scale=1.0)
        full = ub.fit(model, (x, y), key=KEY).posterior
        ub.save_statistics(path, ub.summarise(full, model, (x[:1], y[:1]), method=ub.Exact(), key=KEY))
        assert rows_in(path, (x[:1], y[:1])) == [0]
        ub.save_statistics(path, ub.summarise(full, model, (x[:2], y[:2]), method=ub.Exact(), key=KEY))
        assert rows_in(path, (x[:2], y[:2])) == []

    @over_rows
    def test_more_records_take_no_more_room(self, name, path, tmp_path):
        ub.save_statistics(path, statistics(name))
        ub.save_statistics(tmp_path / "fewer", statistics(name, 0, 7))
        shapes = [{n: a.shape for n, a in arrays_of(p).items()} for p in (path, tmp_path / "fewer")]
        # But for the marks of the records, eight bytes each, where the memory has a roster.
        marks = [each.pop("statistics.provenance.members.npy", None) for each in shapes]
        assert marks in ([None, None], [(20, 2), (7, 2)])
        assert shapes[0] == shapes[1]


class TestRefusals:
    def test_damage(self, path):
        ub.save_statistics(path, statistics("exact, linear"))
        data = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
        for content in contents:
            start = data.index(content)
            for position in (start, start + len(content) // 2, start + len(content) - 1):
                flipped = bytearray(data)
                flipped[position] ^= 1
                path.write_bytes(flipped)
                with pytest.raises(ub.UnreadableFile, match="damaged") as refusal:
                    ub.load_statistics(path)
                assert str(path) in str(refusal.value)
        path.write_bytes(data[:-30])
        with pytest.raises(ub.UnreadableFile, match="damaged, cut short"):
            ub.load_statistics(path)

    def test_files_of_another_kind(self, path):
        ub.save_statistics(path, statistics("exact, linear"))
        with pytest.raises(ub.UnreadableFile, match="it holds statistics, not model"):
            ub.load(path)
        ub.save(path, case("exact, linear").posterior)
        with pytest.raises(ub.UnreadableFile, match="it holds model, not statistics"):
            ub.load_statistics(path)

    def test_what_is_not_a_number_or_no_statistics(self, path):
        good = statistics("exact, linear")
        bad = eqx.tree_at(lambda s: s.value.linear, good, jnp.full(4, jnp.nan))
        with pytest.raises(ValueError, match=r"statistics\.value\.linear must be finite, got nan"):
            ub.save_statistics(path, bad)
        with pytest.raises(TypeError, match="statistics must be a sum of what summarise returned"):
            ub.save_statistics(path, good.value)
        assert not path.exists()

    @pytest.mark.parametrize("foreign", ["posterior", "model", "memory", "method", "key"])
    def test_statistics_that_are_foreign_to_the_posterior(self, foreign, path):
        """Whatever of the five is another one, `solve` refuses what comes out of the file."""
        here = case("natural gradient")
        ub.save_statistics(path, statistics("natural gradient"))
        loaded = ub.load_statistics(path)
        moved = eqx.tree_at(lambda q: q.mean, here.posterior, here.posterior.mean + 1e-12)
        posterior, model, options = here.posterior, here.model, here.options()
        if foreign == "posterior":
            posterior = moved
        elif foreign == "model":
            model = ub.logistic_regression(2, prior_scale=3.0 + 1e-12)
        else:
            other = {
                "memory": ub.Memory(records=150),
                "method": ub.NaturalGradient(nodes=7),
                "key": jax.random.key(1),
            }
            options[foreign] = other[foreign]
        with pytest.raises(
            ValueError, match="statistics must come from the posterior, model, memory, method"
        ):
            ub.solve(posterior, model, loaded, **options)
        assert here.solve(loaded).records == 20


class TestIds:
    def named(self, words, rows=slice(0, 3)):
        return case("exact, linear").summarise(rows, ids=words)

    def test_records_that_both_hold_are_counted(self, path):
        one = self.named(["anna", "ben", "carl"])
        ub.save_statistics(path, one)
        other = self.named(["dora", "ben", "emil"], slice(3, 6))
        for left, right in ((one, other), (other, one), (ub.load_statistics(path), other)):
            with pytest.raises(ValueError, match=r"would be taken out twice; 1 ids are in both$"):
                left + right
        with pytest.raises(ValueError, match=r"3 ids are in both$"):
            one + one

    def test_different_records_add(self):
        total = self.named(["c", "a", "b"]) + self.named(["z", "d", "y"], slice(3, 6))
        assert len(total.ids) == 6
        assert total.records == 6
        plain = case("exact, linear").summarise(slice(0, 6))
        assert plain.ids == ()
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), total.value, plain.value)
        # A third batch meets all that were added before.
        with pytest.raises(ValueError, match=r"1 ids are in both$"):
            total + self.named(["d", "e", "f"], slice(6, 9))

    def test_named_and_unnamed_do_not_add(self):
        plain = case("exact, linear").summarise(slice(3, 6))
        for left, right in ((plain, self.named(["a", "b", "c"])), (self.named(["a", "b", "c"]), plain)):
            with pytest.raises(ValueError, match="all of them were given ids, or none"):
                left + right

    @pytest.mark.parametrize(
        ("words", "error", "sentence"),
        [
            (["a", "b"], ValueError, "ids must name each of the 3 records, got 2"),
            ([], ValueError, "ids must name each of the 3 records, got 0"),
            (["a", "b", "a"], ValueError, "ids must be different, got 'a' more than once"),
            ([1.0, 2.0, 3.0], TypeError, "ids must be a list of words or whole numbers"),
            (["a", b"b", "c"], TypeError, "ids must be a list of words or whole numbers"),
            ("abc", TypeError, "ids must be a list of words or whole numbers"),
        ],
        ids=["too few", "none", "twice", "fractions", "bytes", "one word"],
    )
    def test_what_cannot_name_the_records_is_refused(self, words, error, sentence):
        with pytest.raises(error, match=sentence):
            self.named(words)

    def test_any_iterable_will_do_and_numbers_are_words(self):
        assert self.named(word for word in ("3", "1", "2")).ids == self.named(np.array([3, 1, 2])).ids
