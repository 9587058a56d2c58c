"""Every Python block of the README runs as it stands, one after the other."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def _surroundings():
    """What the README's reader has at hand: data, and a model of their own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=300) > 0).astype(int)
    return {
        "X": x,
        "y": y,
        "bad": np.arange(20),
        "key": jax.random.key(2),
        "batches_of_remaining_records": [(x[30:100], y[30:100]), (x[100:], y[100:])],
        "requests": [(x[20:25], y[20:25]), (x[25:30], y[25:30])],
        "log_prior": lambda theta: -0.5 * theta @ theta,
        "log_likelihood_of_one_record": lambda theta, record: -0.5 * jnp.sum((record - theta) ** 2),
    }


def test_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) >= 5
    names = _surroundings()
    for block in BLOCKS:
        exec(block, names)
        if "posterior" not in names and "trained" in names:
            names["posterior"] = names["trained"].posterior
    assert "information removed" in capsys.readouterr().out
    assert (tmp_path / "model.unbayes").exists()
    assert len(names["results"]) == 3
    assert names["result"].records == 10
    assert names["better"].passes >= 1
    assert names["model"].dim == 3


def test_the_first_block_is_short():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10
