"""How the command line starts: quickly, and on a plain install."""

import json

import pytest
from typer.testing import CliRunner

from cli.helpers import start
from unbayes import cli

EXTRAS = ("pandas", "pyarrow", "sklearn", "matplotlib", "jinja2", "numpyro", "torch")
PLAIN = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from unbayes.cli import main
main()
"""


def test_help_names_the_commands():
    shown = CliRunner().invoke(cli.app, ["--help"])
    assert shown.exit_code == 0
    assert "Take data back out" in shown.output
    assert all(name in shown.output for name in ("show", "erase", "reproduce"))


def test_help_imports_nothing_heavy():
    """Measured at 0.3 s; with JAX it would be ten times that."""
    code = """
import sys
from unbayes.cli import app
try:
    app(["erase", "--help"])
finally:
    heavy = {"jax", "numpy", "equinox", "optax", "pandas", "pyarrow"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = start(["-c", code])
    assert done.returncode == 0
    assert "--no-header" in done.stdout
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_plain_install_shows(files, format):
    done = start(["-c", PLAIN], "show", files.full, *(["--json"] if format == "json" else []))
    assert done.returncode == 0, done.stderr
    assert "LinearModel" in done.stdout


def test_a_plain_install_erases(files, rows, tmp_path):
    out = tmp_path / "out.unbayes"
    done = start(["-c", PLAIN], "erase", files.full, rows, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "trusted"
    parquet = tmp_path / "rows.parquet"
    parquet.write_bytes(b"PAR1")
    done = start(["-c", PLAIN], "erase", files.full, parquet, "--out", out)
    assert (done.returncode, done.stderr) == (2, "reading Parquet needs pip install 'unbayes[parquet]'\n")
