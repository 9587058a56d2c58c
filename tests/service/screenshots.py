"""Makes the screenshots of the documentation anew: python tests/service/screenshots.py [folder].

They go into docs/ unless another folder is given, where all pages are shown, light, dark and on a phone.
"""

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(TESTS.parent / ".pytest_cache" / "programs"))

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

from service.browser import DESKTOP, PHONE, chromium, log_in, visit  # noqa: E402
from service.serving import serving  # noqa: E402
from service.story import Clock, tell, token  # noqa: E402
from unbayes.ledger import Ledger  # noqa: E402

DOCS = TESTS.parent / "docs"
PAGES = {
    "overview": "/",
    "model": "/models/credit-risk",
    "churn": "/models/churn",
    "requests": "/requests",
    "request": "/requests/10",
    "received": "/requests/9",
    "held": "/requests/12",
    "retrain": "/requests/11",
    "denied": "/requests/13",
    "submit": "/requests/new",
    "verify": "/verify",
    "log": "/log",
    "missing": "/requests/999",
}
# Pages of the documentation, with how much of them is shown.
SHOWN = {
    "overview": (DESKTOP, 1180),
    "model": (DESKTOP, 1060),
    "request": (DESKTOP, 1040),
    "phone": (PHONE, 844),
}


def shoot(page, path, height=None):
    """A picture of a page, or of its first so many pixels."""
    size = page.viewport_size
    clip = None if height is None else {"x": 0, "y": 0, "width": size["width"], "height": height}
    page.screenshot(path=path, full_page=True, clip=clip)


def main(folder=None):
    """Start a server with a story, and take pictures of it."""
    clock = Clock()
    with (
        tempfile.TemporaryDirectory() as place,
        chromium() as browser,
        Ledger.create(Path(place) / "ledger", clock=clock) as ledger,
    ):
        tell(ledger, clock, Path(place))
        with serving(ledger) as address:
            if folder is None:
                for_docs(browser, address, token(ledger))
            else:
                all_of(browser, address, token(ledger), Path(folder))


def for_docs(browser, address, shown):
    """Those of the documentation."""
    for name, (size, height) in SHOWN.items():
        with visit(browser, address, size=size) as page:
            log_in(page, shown)
            page.goto(PAGES.get(name, "/"))
            shoot(page, DOCS / f"service-{name}.png", height)


def all_of(browser, address, shown, folder):
    """Every page, in every way."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, dark, size in (("light", False, DESKTOP), ("dark", True, DESKTOP), ("phone", False, PHONE)):
        with visit(browser, address, dark=dark, size=size) as page:
            page.goto("/login")
            shoot(page, folder / f"login-{kind}.png")
            log_in(page, shown)
            for name, path in PAGES.items():
                page.goto(path)
                shoot(page, folder / f"{name}-{kind}.png")


if __name__ == "__main__":
    main(*sys.argv[1:2])
