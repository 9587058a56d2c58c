"""Pages of the documentation as programs: their Python blocks, and the output that they show.

A fenced `text` block that follows a `python` block shows what that block prints.
`python tests/pages.py FILE…` runs pages and writes what they print into them.
"""

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Between machines and versions of JAX: a share of a number, and what may be rounding in single precision.
TOLERANCE, ROUNDING = 0.1, 2e-5


class Block(NamedTuple):
    """A piece of Python, what the page says that it prints, and where it ends."""

    code: str
    output: str
    end: int


def pages() -> list[str]:
    """Pages that hold Python, by their path below the folder of the documentation."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if BLOCK.search(path.read_text())]
    return [str(path.relative_to(DOCS)) for path in found]


def blocks(text: str) -> list[Block]:
    """The Python blocks of a page, in order."""
    return [Block(m["code"], m["output"] or "", m.end()) for m in BLOCK.finditer(text)]


def run(text: str, name: str) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in one namespace; each with what it printed."""
    names = {"__name__": name}
    for block in blocks(text):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, name, "exec"), names)
        yield block, printed.getvalue()


def agree(shown: str, printed: str) -> bool:
    """Whether two outputs have the same words and about the same numbers, whatever the seconds."""
    shown, printed = _without_seconds(shown), _without_seconds(printed)
    return NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split() and all(
        abs(float(one) - float(other)) <= max(TOLERANCE * abs(float(other)), _last_digit(one), ROUNDING)
        for one, other in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    )


def _without_seconds(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if line.split()[:1] != ["seconds"])


def _last_digit(number: str) -> float:
    """One in the last digit of a decimal fraction; whole numbers are meant as they stand."""
    mantissa, _, exponent = number.partition("e")
    _, _, digits = mantissa.partition(".")
    return 1.01 * 10.0 ** (int(exponent or 0) - len(digits)) if digits else 0.0


def rewrite(path: Path) -> None:
    """Put what a page prints into it."""
    text, place, parts = path.read_text(), 0, []
    for block, printed in run(text, path.name):
        parts.append(BLOCK.sub(lambda m: f"```python\n{m['code']}```\n", text[place : block.end]))
        parts.append(f"\n```text\n{printed}```\n" if printed else "")
        place = block.end
    path.write_text("".join(parts) + text[place:])


if __name__ == "__main__":
    for page in [Path(argument).absolute() for argument in sys.argv[1:]]:
        # Pages save files.
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            rewrite(page)
