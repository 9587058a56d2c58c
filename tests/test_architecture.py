"""Imports point inward."""

import ast
import sys
from pathlib import Path

import pytest

import unbayes

ROOT = Path(unbayes.__file__).parent
PAPER = ROOT.with_name("unbayes_paper")
# From the innermost room outwards; a module may import from its own room and from those before it.
ROOMS = [
    {"_version", "_fork", "_finite", "_replace", "_numerics", "_storable", "progress", "_validation"},
    {"data"},
    {"posteriors"},
    {"models"},
    {"metrics", "inference", "objectives"},
    {"memory"},
    {"training", "trust"},
    {"unlearning"},
    {"storage"},
    {"ledger"},
    {"adapters", "service", "distributed"},
    {"cli"},
]
DEPTH = {name: depth for depth, names in enumerate(ROOMS) for name in names}
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")
PAPER_MODULES = sorted(PAPER.rglob("*.py"))
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
    "lazy_loader",
}
# What else a room outside the core may import.
OPTIONAL_DEPENDENCIES = {
    "adapters/sklearn": {"sklearn"},
    "adapters/numpyro": {"numpyro"},
    "adapters/_torch": {"torch"},
    "adapters/gpytorch": {"torch", "gpytorch", "linear_operator"},
    "adapters/pyro": {"torch", "pyro"},
    "data": {"pyarrow", "fsspec", "deltalake", "pyiceberg"},
    "distributed": {"dask", "distributed", "pyspark", "pyarrow", "cloudpickle"},
    "cli": {"typer", "pyarrow"},
    "adapters/mlflow": {"mlflow"},
    "service": {
        *("fastapi", "starlette", "pydantic", "uvicorn", "httptools", "jinja2", "prometheus_client"),
        *("structlog", "jwt", "httpx", "pyarrow", "python_multipart"),
    },
    "ledger": {"sqlalchemy", "alembic", "psycopg", "cryptography", "rfc8785", "jinja2", "pyarrow"},
}
# What the extra `paper` brings, and typer, which the core brings for its command line.
PAPER_DEPENDENCIES = {"sklearn", "matplotlib", "pandas", "pyarrow", "jinja2", "typer"}


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
        if parts[0] == "unbayes" and room != "cli":
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


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_product_does_not_import_the_paper(path):
    assert not [name for name in _imports(path) if name.split(".")[0] == PAPER.name]


@pytest.mark.parametrize("path", PAPER_MODULES, ids=lambda p: p.name)
def test_the_paper_needs_the_product_and_its_extra(path):
    allowed = sys.stdlib_module_names | CORE_DEPENDENCIES | PAPER_DEPENDENCIES
    assert {name.split(".")[0] for name in _imports(path)} <= allowed | {"unbayes", PAPER.name}


@pytest.mark.parametrize("root", [ROOT, PAPER], ids=lambda root: root.name)
def test_modules_stay_small(root):
    lengths = {str(p.relative_to(root)): len(p.read_text().splitlines()) for p in root.rglob("*.py")}
    assert lengths
    assert {name: n for name, n in lengths.items() if n > 400} == {}
