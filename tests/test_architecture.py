"""Imports point inward."""

import ast
import sys
from pathlib import Path

import pytest

import unbayes

ROOT = Path(unbayes.__file__).parent
# From the innermost room outwards; a module may import from its own room and from those before it.
ROOMS = [
    {"quadrature", "records", "progress", "settings", "diagnostics", "posteriors"},
    {"models"},
    {"objectives", "metrics", "loop", "mixing", "ascent", "memory"},
    {"training"},
    {"unlearning"},
    {"persistence"},
    {"adapters", "experiments"},
    {"cli"},
]
DEPTH = {name: depth for depth, names in enumerate(ROOMS) for name in names}
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")
CORE_DEPENDENCIES = {
    "jax",
    "jaxtyping",
    "equinox",
    "optax",
    "paramax",
    "flowjax",
    "numpy",
    "arviz_stats",
    "scipy",
    "rich",
}
# What else a room outside the core may import.
OPTIONAL_DEPENDENCIES = {
    "adapters/sklearn": {"sklearn"},
    "adapters/numpyro": {"numpyro"},
    "adapters/_torch": {"torch"},
    "adapters/gpytorch": {"torch", "gpytorch", "linear_operator"},
    "adapters/pyro": {"torch", "pyro"},
    "experiments": {"sklearn", "matplotlib", "pandas", "pyarrow", "jinja2", "markupsafe"},
    "cli": {"typer"},
}


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "unbayes":
            yield from (f"unbayes.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _room(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_inward(path):
    room = _room(path)
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "unbayes" and room not in ("experiments", "cli"):
            assert len(parts) > 1, f"{room} imports the whole package"
            assert DEPTH[parts[1]] <= DEPTH[room], f"{room} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_needs_no_extra(path):
    place = str(path.relative_to(ROOT).with_suffix(""))
    optional = {
        name for room, names in OPTIONAL_DEPENDENCIES.items() if place.startswith(room) for name in names
    }
    for name in _imports(path):
        top = name.split(".")[0]
        assert top == "unbayes" or top in sys.stdlib_module_names | CORE_DEPENDENCIES | optional, name


def test_modules_stay_small():
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in MODULES}
    assert {name: n for name, n in lengths.items() if n > 400} == {}
