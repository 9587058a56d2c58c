"""Forked processes: told why they cannot compute, unless JAX had not yet begun."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork")
# Seconds after which a process counts as hanging.
PATIENCE = 120

START = """
import os, sys, warnings
warnings.simplefilter("ignore")  # JAX and Python warn of forks themselves.
import jax
import numpy as np
import unbayes as ub

x = np.linspace(-1, 1, 20)[:, None]
records = (x, 2 * x[:, 0])

def train():
    model = ub.linear_regression(1, noise_scale=0.1)
    return model, ub.fit(model, records, key=jax.random.key(0))

def in_child(*calls):
    "Run calls in a forked process, and print what each raises."
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    for call in calls:
        try:
            call()
            print("done", flush=True)
        except RuntimeError as error:
            print(error, flush=True)
    os._exit(0)
"""


def run(script):
    """Lines that a script prints, in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", START + script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.mark.long
def test_calls_after_a_fork_say_why_they_would_hang():
    lines = run("""
from unbayes.adapters.sklearn import BayesianLinearRegression

model, trained = train()
estimator = BayesianLinearRegression().fit(*records)
erased, key = (x[:2], records[1][:2]), jax.random.key(0)
in_child(
    train,
    lambda: ub.unlearn(trained.posterior, model, erased, key=key),
    lambda: ub.summarise(trained.posterior, model, erased, key=key),
    lambda: ub.refine(trained.posterior, model, records, key=key),
    lambda: model.predictive(trained.posterior, x),
    lambda: estimator.fit(*records),
    lambda: estimator.unlearn(*erased),
    lambda: estimator.predict(x),
)
print("parent", ub.unlearn(trained.posterior, model, erased, key=key).records)
""")
    assert len(lines) == 9
    for line in lines[:8]:
        assert "forked from one in which JAX had already computed" in line
        assert '"spawn" or "forkserver"' in line
        assert "loky" in line
    # Where it was forked from, all goes on.
    assert lines[8] == "parent 2"


def test_a_fork_before_jax_computes_is_none_of_our_business():
    assert run("in_child(train)") == ["done"]


def test_a_forked_process_that_computes_nothing_is_left_alone():
    assert run('train()\nin_child(lambda: print("reads", len(x)), lambda: ub.Auto())') == [
        "reads 20",
        "done",
        "done",
    ]
