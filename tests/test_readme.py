"""The Python of the README runs as it stands, its links lead somewhere, and it stays short."""

import re
from pathlib import Path

import numpy as np

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)", TEXT)
MOST_WORDS = 900


def _surroundings():
    """What the README's reader has at hand: data, and rows that have to go."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x @ [2.0, -1.0, 0.5, 0.0] + rng.logistic(size=300) > 0).astype(int)
    return {"X": x, "y": y, "bad": np.arange(20)}


def test_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = _surroundings()
    for block in BLOCKS:
        exec(block, names)
    assert names["result"].records == 20
    assert "information removed" in capsys.readouterr().out
    assert (tmp_path / "model.unbayes").exists()


def test_the_first_block_is_short():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10


def test_the_readme_is_short():
    assert len(TEXT.split()) <= MOST_WORDS


def test_links_lead_to_files():
    assert "docs/quickstart.md" in LINKS
    assert [link for link in LINKS if not (README.parent / link).exists()] == []
