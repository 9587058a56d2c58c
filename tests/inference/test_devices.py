"""Sums over records are the same on however many devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from problems import KEY, linear_gaussian, logistic, take
from unbayes.inference.passes import shared


def sums():
    """Of training and unlearning by several methods, from sources and of arrays.

    Without marks, whose salt is a digest of the posterior's last digits.
    """
    found = []
    for problem, methods in (
        (logistic(), (ub.Auto(), ub.BankReverseKL(draws=64))),
        (linear_gaussian(), (ub.Exact(),)),
    ):
        # The last batch is smaller, and no multiple of anything.
        full = ub.scan(problem.full, batch_rows=64)
        trained = ub.fit(problem.model, full, memory=(ub.Sums(), 20), key=KEY)
        found += [trained.posterior, trained.memory]
        for method in methods:
            for erased in (ub.scan(problem.erased, batch_rows=15), take(problem.full, slice(0, 128))):
                found.append(
                    ub.summarise(
                        trained.posterior,
                        problem.model,
                        erased,
                        memory=trained.memory.only("sums"),
                        method=method,
                        key=KEY,
                    )
                )
    leaves = map(np.asarray, jax.tree.leaves(found))
    return [leaf for leaf in leaves if leaf.dtype.kind == "f"]


def devices_that_share(records):
    """How many devices take part in a sum over so many records."""
    rows = jnp.ones(records)
    return int(jax.jit(lambda rows: shared(lambda *_: jnp.ones(()), (), rows, rows))(rows))


@pytest.fixture(scope="module")
def by_one():
    """What one device finds."""
    assert devices_that_share(8) == 1
    return sums()


@pytest.mark.long
@pytest.mark.parametrize("number", [2, 4, 8])
def test_however_many_devices(number, by_one, tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={number}"
    paths = [os.path.dirname(__file__), *sys.path]
    environment = os.environ | {
        "XLA_FLAGS": flags,
        "PYTHONPATH": os.pathsep.join(paths),
        "JAX_ENABLE_X64": "1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    code = "import sys, numpy, test_devices as t\n"
    code += "assert (t.devices_that_share(8), t.devices_that_share(9)) == (int(sys.argv[2]), 1)\n"
    code += "numpy.savez(sys.argv[1], *t.sums())\n"
    command = [sys.executable, "-c", code, tmp_path / "found.npz", str(number)]
    subprocess.run(command, env=environment, check=True)
    for one, other in zip(np.load(tmp_path / "found.npz").values(), by_one, strict=True):
        np.testing.assert_allclose(one, other, 1e-12, 1e-12 * np.abs(other).max(initial=0))
