"""A real browser for the pages that we write, where one is installed."""

import json
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.read.vega_lite import fault

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
    browser: "Browser",
    path: Path,
    scheme: str = "light",
    width: int = 1400,
    zone: str = "UTC",  # empty: without scripts
) -> Generator[tuple["Page", list[str]]]:
    """Open a page from disk; yield it with everything it complains about or asks a network for."""
    messages: list[str] = []
    with browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        timezone_id=zone or "UTC",
        java_script_enabled=bool(zone),
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: _note(messages, request.url))
        page.set_default_timeout(10_000)
        page.goto(path.as_uri())
        if zone:
            page.wait_for_selector("body[data-chosen]", timeout=30_000)
        yield page, messages


def _note(messages: list[str], url: str) -> None:
    if not url.startswith(("file:", "data:")):
        messages.append(f"request: {url}")


def charts(path: Path) -> dict[str, dict[str, Any]]:
    """The charts of a page by their names and scopes; each is what Vega-Lite's schema allows."""
    pattern = r'<script type="application/json" id="report">(.*?)</script>'
    [content] = re.findall(pattern, path.read_text("utf-8"))
    report = json.loads(content)
    for spec in report["specs"]:
        assert fault({**spec, "data": {"name": "rows", "values": []}}) == ""
    return {name: scopes for name, scopes in report["panels"].items() if scopes}


def marks(page: "Page", chart: str, kind: str) -> list[dict[str, str]]:
    """What each mark of a chart stands for, as it says itself."""
    labels = page.locator(f"#{chart} svg [aria-roledescription='{kind}']").evaluate_all(
        "marks => marks.map(mark => mark.getAttribute('aria-label'))"
    )
    return [dict(part.split(": ", 1) for part in label.split("; ")) for label in labels]


def choose(page: "Page", label: str) -> None:
    """Choose a domain as somebody would, and wait until all is drawn."""
    page.get_by_label(label, exact=True).check()
    wait_for(page, label)


def wait_for(page: "Page", label: str) -> None:
    """Wait until all is drawn of a domain."""
    page.wait_for_function("label => document.body.dataset.chosen === label", arg=label)


# Each text that is seen: its contrast with the paper, its colours and itself.
_CONTRASTS = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, parent = text.parentElement;
    if (!text.data.trim() || !parent.checkVisibility() || parent.matches("script, style")) continue;
    const style = getComputedStyle(parent);
    const colour = parent.closest("svg") ? style.fill : style.color;
    const [more, less] = [light(colour), light(paper)].sort((a, b) => b - a);
    found.push([(more + 0.05) / (less + 0.05), `${colour} on ${paper}: ${text.data.trim()}`]);
  }
  return found;
}"""


def faint(page: "Page", least: float) -> set[str]:
    """The texts of a page whose contrast with its paper is too low."""
    contrasts = page.evaluate(_CONTRASTS)
    assert len(contrasts) > 10
    return {text for contrast, text in contrasts if contrast < least}


# What is seen, and is beyond the right edge of the page, or wider than what holds it.
_CUT_OFF = """() => [...document.body.querySelectorAll("*")]
  .filter((each) => each.checkVisibility() && !each.closest("svg, .unseen, #said"))
  .filter((each) => {
    const box = each.getBoundingClientRect();
    const scrolls = each.scrollWidth > each.clientWidth + 1
      && getComputedStyle(each).display !== "inline";
    return box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5 || scrolls;
  }).map((each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 80)}`)"""


def cut_off(page: "Page") -> list[str]:
    """The elements of a page that cannot be seen whole without scrolling sideways."""
    wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    return page.evaluate(_CUT_OFF) + (["the page"] if wide else [])
