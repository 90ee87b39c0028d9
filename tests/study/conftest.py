"""A browser, for the tests of the report's page."""

import shutil

import pytest

# No GPU process and no shared memory of a container's size, for want of which it may hang.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def settle(page):
    """Wait until the page has unpacked its numbers and shows them."""
    page.locator("body[aria-busy=false]").wait_for()


@pytest.fixture(scope="session")
def chromium():
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """open_page(path, **context options) returns a page. A request, an error or a console message fails the test."""
    contexts, noise = [], []

    def opened(path, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: request.url.split("#")[0] == path.as_uri() or noise.append(request.url))
        page.goto(path.as_uri())
        settle(page)
        return page

    yield opened
    for context in contexts:
        assert not [page.url for page in context.pages if page.evaluate("window.hurt")]
        context.close()
    assert noise == []
