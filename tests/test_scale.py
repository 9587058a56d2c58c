"""The benchmark of scale: its pages show what it found, and its parts run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "scale.json"


def _tables():
    spec = importlib.util.spec_from_file_location("scale_tables", FOLDER / "scale_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_show_what_was_found():
    tables, found = _tables(), json.loads(RESULTS.read_text())
    assert RESULTS.with_suffix(".md").read_text() == tables.report(found)
    for name, text in tables.documentation(found).items():
        assert (ROOT / "docs" / "figures" / name).read_text() == text
        assert f'--8<-- "{name}"' in (ROOT / "docs" / "scale.md").read_text()


def test_the_paper_reckons_with_the_library_as_it_is():
    from unbayes.data.files import PART_ROWS
    from unbayes.distributed.dask import FAN_IN

    tables = _tables()
    assert (tables.PART_ROWS, tables.FAN_IN) == (PART_ROWS, FAN_IN)


@pytest.mark.slow
def test_parts_run_on_few_rows(tmp_path):
    results = tmp_path / "scale.json"
    command = [
        sys.executable,
        FOLDER / "scale.py",
        "--file-rows",
        "3000",
        "--most",
        "10",
        "--folder",
        tmp_path / "files",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*command, "--results", results, "linear", "engines"], env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    found = json.loads(results.read_text())
    assert list(found) == ["linear", "engines"]
    for model in ("linear", "logistic"):
        assert max(found["engines"][model]["statistics"]) <= 1e-12
        assert len(found["engines"][model]["verdicts"]) == 1
    assert "files in reverse" in results.with_suffix(".md").read_text()
    assert not (tmp_path / "files").exists()
