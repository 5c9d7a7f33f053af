"""A real browser for the pages that we write, where one is installed."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# No sandbox, since tests may run as root; what reaches for a network is switched off.
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


@contextmanager
def opened(
    path: Path, scheme: str = "light", width: int = 1400, zone: str = "UTC"
) -> Generator[tuple[Page, list[str]]]:
    """Open a page from disk; yield it with everything it complains about or asks a network for."""
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 900},
            timezone_id=zone,
        )
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note(said, request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-chosen]", timeout=30_000)
        yield page, said
        browser.close()


def _note(said: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:")):
        said.append(f"request: {url}")


def marks(page: Page, chart: str, kind: str) -> list[dict[str, str]]:
    """What each mark of a chart stands for, as it says itself."""
    told = page.locator(f"#{chart} svg [aria-roledescription='{kind}']").evaluate_all(
        "marks => marks.map(mark => mark.getAttribute('aria-label'))"
    )
    return [dict(part.split(": ", 1) for part in label.split("; ")) for label in told]
