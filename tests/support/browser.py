"""A real browser for the pages that we write, where one is installed."""

import json
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.vega_lite import fault

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# No sandbox, since tests may run as root; what reaches for a network is switched off.
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


Opening = Callable[..., AbstractContextManager[tuple["Page", list[str]]]]


@contextmanager
def launched() -> Generator["Browser"]:
    """A browser that shows pages one after another, each as if it were the first."""
    from playwright.sync_api import sync_playwright  # conftest.py, which imports us, needs it not

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        yield browser
        browser.close()


@contextmanager
def opened(path: Path, *how: Any) -> Generator[tuple["Page", list[str]]]:
    """As `opened_in`, in a browser of its own."""
    with launched() as browser, opened_in(browser, path, *how) as shown:
        yield shown


@contextmanager
def opened_in(
    browser: "Browser", path: Path, scheme: str = "light", width: int = 1400, zone: str = "UTC"
) -> Generator[tuple["Page", list[str]]]:
    """Open a page from disk; yield it with everything it complains about or asks a network for."""
    messages: list[str] = []
    with browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        timezone_id=zone,
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note(messages, request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-chosen]", timeout=30_000)
        yield page, messages


def _note(messages: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:")):
        messages.append(f"request: {url}")


def charts(path: Path) -> dict[str, Any]:
    """The charts of a page by their names; that each is what the schema of Vega-Lite allows."""
    pattern = r'<script type="application/json" id="report">(.*?)</script>'
    [content] = re.findall(pattern, path.read_text("utf-8"))
    specs = {name: shown["spec"] for name, shown in json.loads(content)["shown"].items()}
    for spec in specs.values():
        assert fault(spec) == ""
    return specs


def marks(page: "Page", chart: str, kind: str) -> list[dict[str, str]]:
    """What each mark of a chart stands for, as it says itself."""
    labels = page.locator(f"#{chart} svg [aria-roledescription='{kind}']").evaluate_all(
        "marks => marks.map(mark => mark.getAttribute('aria-label'))"
    )
    return [dict(part.split(": ", 1) for part in label.split("; ")) for label in labels]
