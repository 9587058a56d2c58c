"""The page in a real browser: the whole story by clicking, for everybody, at every width."""

import contextlib
import re
import threading

import pytest

from service.browser import CHROMIUM, DESKTOP, PHONE, chromium, log_in, visit
from service.serving import serving
from service.story import Clock, tell, token
from unbayes.ledger import Ledger, verify_report

pytest.importorskip("playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

PAGES = {
    "overview": "/",
    "model": "/models/credit-risk",
    "requests": "/requests",
    "nobody": "/requests?state=reported",
    "done": "/requests/10",
    "received": "/requests/20",
    "approved": "/requests/16",
    "held": "/requests/12",
    "retrain": "/requests/11",
    "extended": "/requests/14",
    "denied": "/requests/13",
    "submit": "/requests/new",
    "verify": "/verify",
    "log": "/log",
    "missing": "/requests/999",
    "report": "/requests/10/report",
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A ledger with a story, and the customers in it."""
    folder, clock = tmp_path_factory.mktemp("story"), Clock()
    with Ledger.create(folder / "ledger", clock=clock) as ledger:
        customers, _ = tell(ledger, clock, folder)
        yield ledger, customers


@pytest.fixture(scope="module")
def ledger(told):
    return told[0]


@pytest.fixture(scope="module")
def address(ledger):
    with serving(ledger) as address:
        yield address


@pytest.fixture(scope="module")
def shown(ledger):
    return token(ledger)


@contextlib.contextmanager
def working(ledger, model):
    """Somebody who applies what is wanted, as the worker does."""
    stop = threading.Event()

    def work():
        while not stop.wait(0.1):
            if ledger.model(model).wanted is not None:
                stop.wait(1)
                ledger.apply(model)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def violations(page):
    """What axe finds on a page, in words."""
    found = axe.Axe().run(page).response["violations"]
    return [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found]


def test_the_checks_of_this_file_find_what_they_look_for(browser, address):
    with pytest.raises(AssertionError) as refused:
        _spoil(browser, address)
    assert "inline style" in str(refused.value)
    assert "http://127.0.0.1:9/" in str(refused.value)


def _spoil(browser, address):
    with visit(browser, address) as page:
        page.goto("/login")
        assert violations(page) == []
        page.evaluate("document.querySelector('label').remove()")
        assert violations(page) != []
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>')")
        page.evaluate("fetch('http://127.0.0.1:9/').catch(() => 0)")
        page.evaluate("new Promise((done) => setTimeout(done, 200))")


def test_from_submission_to_a_verified_report_by_clicking(browser, address, told, shown, tmp_path):
    ledger, customers = told
    before = ledger.current("credit-risk").number
    with visit(browser, address) as page, working(ledger, "credit-risk"):
        page.goto("/")
        assert page.url.endswith("/login")
        log_in(page, shown)
        page.get_by_role("link", name="Submit a request").click()
        page.get_by_label("Model", exact=True).select_option("credit-risk")
        page.get_by_text("taken out of credit-risk").wait_for()
        assert page.url.endswith("/requests/new?model=credit-risk")
        page.get_by_label("Person").fill("erika.mustermann@example.org")
        page.get_by_label("Reference").fill("DSR-5000")
        table = customers.csv(580, 581).encode()
        page.get_by_label("A file").set_input_files(
            {"name": "rows.csv", "mimeType": "text/csv", "buffer": table}
        )
        page.get_by_role("button", name="Submit the request").click()
        page.get_by_text("The request was received.").wait_for()
        number = int(re.search(r"/requests/(\d+)", page.url)[1])
        assert page.get_by_role("heading", level=1).inner_text() == f"Request {number} DSR-5000"

        page.get_by_text("Approve", exact=True).click()
        page.get_by_role("button", name=f"Yes, approve request {number}").click()
        page.get_by_text("The request was approved.").wait_for()
        assert ledger.show(number).state == "approved"

        page.get_by_role("complementary").get_by_role("link", name="credit-risk").click()
        page.get_by_role("button", name="Apply now").click()
        page.get_by_role("heading", name="Being applied").wait_for()
        assert page.get_by_role("progressbar", name="Being applied").is_visible()
        page.get_by_text("Finished: what could be applied is applied.").wait_for(timeout=60_000)
        assert page.get_by_text(f"Version {before + 1} is in production").is_visible()

        page.get_by_role("link", name="Requests", exact=True).click()
        page.get_by_role("link", name=f"Request {number}", exact=True).click()
        assert page.locator(".title .tag").inner_text().endswith("done")
        assert page.get_by_text("2 records were taken out of the model credit-risk").is_visible()
        page.get_by_role("button", name="Verify").click()
        page.get_by_text(f"The report on request {number} is in order.").wait_for()
        assert page.url.endswith(f"/requests/{number}")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download JSON").click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        assert verify_report(file.read_bytes(), ledger.public_key).contents.records.erased == 2
        page.get_by_role("link", name="Read the report").click()
        assert "Erasure report" in page.title()
        assert page.evaluate("getComputedStyle(document.querySelector('.verdict')).borderLeftWidth") == "4px"

        page.goto("/verify")
        page.get_by_label("The file of a report").set_input_files(file)
        page.get_by_role("button", name="Check it").click()
        page.get_by_text("The file is in order.").wait_for()
        page.get_by_role("link", name="Log", exact=True).click()
        page.get_by_role("button", name="Verify the whole log").click()
        page.get_by_text("The log is whole.").wait_for()
        page.get_by_role("button", name="Sign a checkpoint").click()
        page.get_by_text("A checkpoint of the log was signed.").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in").wait_for()
        assert page.context.cookies() == []


def test_deciding_otherwise_by_clicking(browser, address, told, shown):
    ledger, customers = told
    rows = [customers.rows(row) for row in (582, 583, 584)]
    denied, put_off, taken_back = (
        ledger.request("credit-risk", subject=f"p{i}", rows=each).id for i, each in enumerate(rows)
    )
    with visit(browser, address, size=PHONE) as page:
        log_in(page, shown)
        page.goto(f"/requests/{denied}")
        page.get_by_text("Deny", exact=True).click()
        page.get_by_label("Ground").fill("<b>kept</b> by law")
        page.get_by_role("button", name="Yes, deny").click()
        page.get_by_text("<b>kept</b> by law").wait_for()
        page.goto(f"/requests/{put_off}")
        page.get_by_text("Extend", exact=True).click()
        page.get_by_label("Days more").fill("20")
        page.get_by_label("Reason").fill("three archives")
        page.get_by_role("button", name="Yes, put it off").click()
        page.get_by_text("The due date was put off.").wait_for()
        page.goto(f"/requests/{taken_back}")
        page.get_by_text("Withdraw", exact=True).click()
        page.get_by_role("button", name="Yes, withdraw").click()
        page.get_by_text("The request was withdrawn").wait_for()
    states = [ledger.show(number).state for number in (denied, put_off, taken_back)]
    assert states == ["denied", "received", "withdrawn"]
    assert ledger.show(put_off).is_extended


def test_filters_and_pages_of_the_list_without_loading_it_anew(browser, address, shown):
    with visit(browser, address) as page:
        log_in(page, shown)
        page.goto("/requests")
        page.evaluate("window.same = true")
        page.get_by_label("Model").select_option("churn")
        page.wait_for_url("**/requests?model=churn**")
        page.get_by_label("State").select_option("denied")
        page.wait_for_url("**state=denied**")
        page.get_by_text("1 request", exact=True).wait_for()
        assert page.get_by_role("row").count() == 2
        assert page.evaluate("window.same")
        page.go_back()
        page.wait_for_url("**/requests?model=churn**")
        page.get_by_text("4 requests, the newest first").wait_for()
        page.get_by_label("Requests of one person").fill("person 4107")
        page.get_by_role("button", name="Find").click()
        page.get_by_role("heading", name="1 request of this person").wait_for()
        assert "4107" not in page.url


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_everybody_can_use_every_page_at_every_width(browser, address, shown, size, dark):
    found = {}
    with visit(browser, address, dark=dark, size=size) as page:
        page.goto("/login")
        found["login"] = violations(page)
        log_in(page, shown)
        for name, path in PAGES.items():
            page.goto(path)
            for action in page.locator("details").all():
                action.locator("summary").click()
                found[name] = found.get(name, []) + (
                    violations(page) if action.evaluate("e => e.name") else []
                )
            found[name] = found.get(name, []) + violations(page)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > size["width"]:
                found[name].append(f"{wide} pixels wide")
    assert {name: what for name, what in found.items() if what} == {}


def test_without_scripts_it_works_as_well(browser, address, told, shown):
    ledger, customers = told
    request = ledger.request("credit-risk", subject="p9", rows=customers.rows(585))
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    log_in(page, shown)
    page.goto("/requests")
    page.get_by_label("State").select_option("received")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name=f"Request {request.id}", exact=True).click()
    page.get_by_text("Approve", exact=True).click()
    page.get_by_role("button", name="Yes, approve").click()
    page.get_by_text("The request was approved.").wait_for()
    page.goto("/requests/10")
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("The report on request 10 is in order.").wait_for()
    context.close()


def test_by_keyboard_alone(browser, address, told, shown):
    ledger, customers = told
    request = ledger.request("credit-risk", subject="p10", rows=customers.rows(586))
    with visit(browser, address) as page:
        page.goto("/login")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type(shown)
        page.keyboard.press("Enter")
        page.wait_for_url("**/")
        page.goto(f"/requests/{request.id}")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Approve":
                break
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("Enter")
        for _ in range(3):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "BUTTON":
                break
        page.keyboard.press("Enter")
        page.get_by_text("The request was approved.").wait_for()
    assert ledger.show(request.id).state == "approved"


def test_a_link_from_elsewhere_needs_one_click(browser, address, shown):
    with visit(browser, address) as page:
        log_in(page, shown)
        page.goto("about:blank")
        page.set_content(f'<a href="{address}/log">a mail</a>')
        page.get_by_role("link", name="a mail").click()
        page.get_by_role("link", name="go on").click()
        page.get_by_role("heading", name="Checkpoints").wait_for()


def test_a_page_elsewhere_can_send_nothing(browser, address, ledger, shown):
    before = ledger.log.checkpoints()
    assert before[-1].size < ledger.log.state().size
    with visit(browser, address) as page:
        log_in(page, shown)
        page.goto("about:blank")
        page.set_content(f'<form method="post" action="{address}/log/checkpoints"><button>x</button></form>')
        with page.expect_response("**/log/checkpoints") as answer:
            page.get_by_role("button").click()
        assert answer.value.status in (303, 403)
    assert ledger.log.checkpoints() == before
