"""The README's table comes from the results."""

import pytest

from unbayes_paper import readme


def _row(method, lam, value):
    return {
        "scenario": "moon",
        "seed": 0,
        "method": method,
        "lam": lam,
        "erased": {"forward": {"mean": value, "std": 0.0}},
    }


def test_best_lambda_and_zero():
    rows = [
        _row("no unlearning", None, 0.5),
        _row("EUBO", 1e-9, 0.25),
        _row("EUBO", 0.0, 2.0),
        _row("Auto", None, 1e-5),
    ]
    lines = readme.table({"experiments": {"moon": {"measurements": rows}}}).splitlines()
    assert len(lines) == 3
    assert lines[2] == "| moon, 20 points furthest right | 0.5 | 0.25 | 2 |  |  |  | 1.00e-05 |"


def test_the_text_goes_between_the_markers():
    page = f"before\n{readme.START}\nold\n{readme.END}\nafter"
    assert readme.insert(page, "new") == f"before\n{readme.START}\nnew\n{readme.END}\nafter"
    with pytest.raises(ValueError, match="markers"):
        readme.insert("nothing here", "new")
