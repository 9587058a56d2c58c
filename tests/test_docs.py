"""Every Python block of the documentation runs, prints what its page shows, and the site builds."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import pages

ROOT = Path(__file__).parent.parent
# What a page needs besides the extra `test`.
NEEDS = {"tutorials/gpytorch.md": "gpytorch", "tutorials/pyro.md": "pyro"}


# Pages that the quick tests run; the others take longer.
QUICK = {"quickstart.md"}


FETCHED = re.compile(r'(?:src|rel="[a-z ]*(?:stylesheet|preconnect|icon)" href)="(?:https?:)?//[^"]*')
STYLED = re.compile(r"""url\(['"]?(?!#|data:)([^)'"]+)""")
SETTINGS = {"jax_enable_x64": False, "jax_numpy_dtype_promotion": "standard"}


@pytest.fixture
def settings_of_a_user(tmp_path, monkeypatch):
    """A folder of its own, and JAX's settings; pages change what they need."""
    monkeypatch.chdir(tmp_path)
    before = {name: jax.config.values[name] for name in SETTINGS}
    for name, value in SETTINGS.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page in QUICK else pytest.mark.long) for page in pages.pages()]
)
@pytest.mark.usefixtures("settings_of_a_user")
def test_the_page_runs(page):
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason="needs the extra torch; run make test-torch")
    for block, printed in pages.run((pages.DOCS / page).read_text(), page):
        assert pages.agree(block.output, printed), f"{page} shows\n{block.output}\nbut prints\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("k-hat 0.71\n", "k-hat 0.72\n", True),
        ("k-hat 0.71\n", "k-hat 0.95\n", False),
        ("5 records\n", "6 records\n", False),
        ("trusted\n", "doubtful\n", False),
        ("  seconds 1.2\n", "  seconds 9.0\n", True),
        ("gap 1e-13\n", "gap 3e-12\n", True),
        ("KL 1.2e-03\n", "KL 2.1e-03\n", False),
        ("", "anything\n", False),
    ],
)
def test_outputs_are_compared(shown, printed, same):
    assert pages.agree(shown, printed) == same


def test_pages_and_tutorials_are_found():
    found = set(pages.pages())
    assert {"quickstart.md", "extending.md", *NEEDS} <= found
    assert sum(page.startswith("tutorials/") for page in found) == 8


def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs; run make docs-build")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    html = "".join(path.read_text() for path in tmp_path.rglob("*.html"))
    assert 'id="unbayes.unlearn"' in html
    assert FETCHED.findall(html) == []
    assert '<div class="arithmatex">' in html
    for style in tmp_path.rglob("*.css"):
        assert all((style.parent / name).exists() for name in STYLED.findall(style.read_text())), style
