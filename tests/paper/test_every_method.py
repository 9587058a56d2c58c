"""The table and picture of every method, with methods that take no time."""

import io

import numpy as np
import pytest
from matplotlib import image
from rich.console import Console

import unbayes as ub
from unbayes_paper import every_method

OPTIMISED = True


@pytest.mark.long
def test_it_prints_one_table_and_draws_one_picture(tmp_path, monkeypatch):
    names = ["natural gradient", "… with a memory", "EUBO, λ=1e-9", "bank, λ=0"]
    assert set(names) <= set(every_method.METHODS)
    quick = [
        *[ub.NaturalGradient()] * 2,
        ub.EUBO(lam=1e-9, iterations=10, draws=20),
        ub.BankReverseKL(draws=500),
    ]
    monkeypatch.setattr(every_method, "METHODS", dict(zip(names, quick, strict=True)))
    comparison = every_method.compare(seed=0, progress=None)
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(every_method.table(comparison))
    text = console.export_text()
    assert all(name in text for name in ["no unlearning", *names])
    assert "…" not in text.replace("… with a memory", "")
    assert "4.3e-01" not in text  # The direction is unlearned‖retrained, 0.29 before unlearning.
    assert "2.9e-01" in text
    every_method.picture(comparison, tmp_path / "moon.png")
    pixels = image.imread(tmp_path / "moon.png")
    assert min(pixels.shape[:2]) > 300
    assert np.ptp(pixels[..., :3]) > 0.5
