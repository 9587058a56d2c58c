"""The report is one self-contained page, says what was left out, and its JSON holds every number."""

import json
import re

import pytest

from unbayes.metrics import PredictiveKL, Spread
from unbayes_paper import figures, report
from unbayes_paper.base import Claim, Experiment, Findings, Measurement

EXPERIMENT = Experiment("toy", "A <toy>", "nowhere", "Nothing & more.", "none", (0.1, 0.2), lambda lab: None)


def _findings():
    figure, axes = figures.canvas()
    axes[0, 0].plot([1, 2], [3, 4])
    kl = PredictiveKL(Spread(1e-3, 2e-3), Spread(3e-3, 4e-3))
    rows = [
        Measurement("toy", "EUBO", 1e-9, seed, kl, kl, 0.5 + seed, 1.25, "doubtful", {"agreement": 0.99})
        for seed in (0, 1)
    ]
    claims = [Claim("it works", (True, False), "1 < 2"), Claim("ours too", (True,), "0", goal=True)]
    return Findings(
        rows,
        claims,
        [figures.finish(figure, "toy picture", "A line.")],
        ["a choice"],
        {("toy", "EUBO", 1e-9): 7.5},
    )


@pytest.fixture
def written(tmp_path):
    sections = [
        report.Section(EXPERIMENT, _findings(), 3.0),
        report.Section(EXPERIMENT._replace(name="gone"), None, missing="no data"),
    ]
    path = report.write(sections, tmp_path, quick=True)
    return path.read_text(), json.loads((tmp_path / "results.json").read_text()), tmp_path


def test_the_page_needs_nothing_else(written):
    html, _, _ = written
    assert not re.search(r'(?:src|href)="(?!#)', re.sub(r"<svg.*?</svg>", "", html, flags=re.S))
    assert "http" not in re.sub(r"<svg.*?</svg>", "", html, flags=re.S)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_page_says_what_was_found(written):
    html, _, _ = written
    assert "A &lt;toy&gt;" in html
    assert "Left out: no data" in html
    assert "holds in part" in html
    assert "1.00e-03 ± 2e-03 [1.00e-03, 1.00e-03]" in html
    assert "1 [0.5, 1.5]" in html  # KL over θ, two seeds.
    assert ">7.5<" in html
    assert "a choice" in html


def test_the_numbers_are_in_the_json(written):
    _, results, _ = written
    toy = results["experiments"]["toy"]
    assert toy["measurements"][1]["parameter_kl"] == 1.5
    assert toy["measurements"][0]["erased"]["backward"] == {"mean": 3e-3, "std": 4e-3}
    assert toy["claims"][0]["outcome"] == "holds in part"
    assert results["experiments"]["gone"]["missing"] == "no data"


def test_pictures_follow_the_page_and_stand_alone(written):
    html, _, folder = written
    assert "currentColor" in html
    assert figures.INK not in html
    alone = (folder / "figures" / "toy-picture.svg").read_text()
    assert "currentColor" not in alone


def test_identifiers_of_two_pictures_differ():
    pictures = []
    for name in ("one", "two"):
        figure, axes = figures.canvas()
        axes[0, 0].plot([1, 2], [3, 4])
        pictures.append(figures.finish(figure, name, "").svg)
    one, two = (set(re.findall(r'\bid="([^"]+)"', svg)) for svg in pictures)
    assert one.isdisjoint(two)
    for svg in pictures:
        ids = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= ids
        assert set(re.findall(r'xlink:href="#([^"]+)"', svg)) <= ids
