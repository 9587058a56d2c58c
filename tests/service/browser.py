"""A real Chromium, where there is one, and what it must not do."""

import contextlib
import shutil
import urllib.parse

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((found for found in map(shutil.which, NAMES) if found), None)
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-quic"),
]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@contextlib.contextmanager
def chromium():
    """A browser without windows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """Notes what a page of one server must not do: call others, break its own policy, or fail in a script."""

    def __init__(self, context, address):
        self._host, self.found = urllib.parse.urlsplit(address).netloc, []
        context.on("request", self._request)
        context.on("page", self._page)

    def _request(self, request):
        parts = urllib.parse.urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about") and parts.netloc != self._host:
            self.found.append(f"called {request.url}")

    def _page(self, page):
        page.on("pageerror", lambda error: self.found.append(f"a script failed: {error}"))
        page.on("console", self._console)

    def _console(self, message):
        # What the server refuses is written to the console, too; tests look at those answers themselves.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.found.append(f"console: {message.text}")


@contextlib.contextmanager
def visit(browser, address, *, dark=False, size=DESKTOP, scale=1):
    """A page of a fresh session, watched: nothing that it must not do is let pass."""
    context = browser.new_context(
        base_url=address,
        viewport=size,
        color_scheme="dark" if dark else "light",
        device_scale_factor=scale,
        reduced_motion="reduce",
    )
    watch = Watch(context, address)
    try:
        yield context.new_page()
        if watch.found:
            raise AssertionError("\n".join(watch.found))
    finally:
        context.close()


def log_in(page, token):
    """Log in by the form."""
    page.goto("/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")
