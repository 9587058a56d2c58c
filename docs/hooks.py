"""Reference pages list what the package exports, so that a new class appears by itself.

On a page, `::: public MODULE` stands for one entry per public class or function that is
defined in that module or below it; `::: contracts MODULE` for one per abstract class.
Options under it hold for each. Of two listings that fit a name, the closer one has it.
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
    listed = [(found["kind"], found["module"]) for found in LISTING.finditer(markdown)]
    return LISTING.sub(functools.partial(_entries, listed), markdown)


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


def _entries(listed: list[tuple[str, str]], listing: re.Match[str]) -> str:
    kind, module = listing["kind"], listing["module"]
    found = [
        name
        for name, home in public_names().items()
        if name.startswith("Abstract") == (kind == "contracts")
        and module == _closest(home, [each for other, each in listed if other == kind])
    ]
    if not found:
        raise ValueError(f"{module} has no {kind} names to list")
    return "\n".join(f"::: unbayes.{name}\n{listing['options']}" for name in found)


def _closest(home: str, modules: list[str]) -> str:
    """The innermost of the modules that hold `home`; '' where none does."""
    around = [module for module in modules if f"{home}.".startswith(f"{module}.")]
    return max(around, key=len, default="")


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
