"""Reference pages list what the package exports, so that a new class appears by itself.

On a page, `::: public MODULE` stands for one entry per public class or function that is
defined in that module or below it; `::: contracts MODULE` for one per abstract class.
Options under it hold for each.
"""

import ast
import functools
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
LISTING = re.compile(
    r"^::: (?P<kind>public|contracts) (?P<module>\S+)\n(?P<options>(?: +.*\n)*)",
    re.MULTILINE,
)


def on_pre_build(**kwargs: Any) -> None:
    """Read the package again for every build."""
    public_names.cache_clear()
    _parsed.cache_clear()


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Write listings out."""
    return LISTING.sub(_entries, markdown)


@functools.cache
def public_names() -> dict[str, str]:
    """Names in `unbayes/__init__.pyi`, and where each is defined; '' for modules."""
    imports = ast.parse((SOURCE / "unbayes/__init__.pyi").read_text()).body
    return {
        alias.name: _home(f"unbayes.{node.module}", alias.name) if node.module else ""
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if not alias.name.startswith("_")
    }


def _entries(listing: re.Match[str]) -> str:
    found = [
        name
        for name, home in public_names().items()
        if f"{home}.".startswith(f"{listing['module']}.")
        and name.startswith("Abstract") == (listing["kind"] == "contracts")
    ]
    if not found:
        raise ValueError(f"{listing['module']} has no {listing['kind']} names to list")
    return "\n".join(f"::: unbayes.{name}\n{listing['options']}" for name in found)


def _home(module: str, name: str) -> str:
    """The module that defines a name, behind all re-exports."""
    for node in _parsed(module).body:
        if isinstance(node, ast.ImportFrom) and name in [a.name for a in node.names]:
            return _home(str(node.module), name)
    return module


@functools.cache
def _parsed(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())
