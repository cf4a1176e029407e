"""The documentation as built by `make docs`: its links, and its pages in a real browser."""

from __future__ import annotations

import os
import shutil
import threading
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.docs

SITE = Path(__file__).parent.parent / "docs" / "_build" / "html"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
#: Of the reference, these stand for all: the longest page, a function, a list of a module.
REFERENCE = {
    "api/index.html",
    "api/decoders.html",
    "api/generated/polymargin.LSSVMClassifier.html",
    "api/generated/polymargin.metrics.calibration_error.html",
}


class Links(HTMLParser):
    """What a page refers to, what it loads, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.references.append(found["href"])
        if tag in ("script", "img", "source", "iframe") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and found.get("href") and "stylesheet" in found.get("rel", ""):
            self.loaded.append(found["href"])


@cache
def links(path: Path) -> Links:
    parser = Links()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


def pages() -> list[str]:
    return sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if "_static" not in path.parts)


@pytest.fixture(scope="module", autouse=True)
def site():
    if not (SITE / "index.html").exists():
        pytest.fail("there is no documentation to look at: make docs builds it")


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium")
    if path is None:
        could = os.environ.get("CI") == "true" and shutil.which("apt-get") and os.geteuid() == 0
        (pytest.fail if could else pytest.skip)("there is no chromium; tools/install-chromium.sh installs it")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is missing: install polymargin with its test extra"
    )
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


class Visit:
    """A page of the browser that notes what was said on the console and what was asked for."""

    def __init__(self, browser, **options):
        self.page = browser.new_context(**options).new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append((message.type, message.text)))
        self.page.on("pageerror", lambda error: self.said.append(("error", str(error))))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def errors(self):
        return [text for kind, text in self.said if kind in ("error", "warning")]


def test_no_link_is_broken_and_nothing_is_loaded_from_elsewhere():
    broken = []
    for name in pages():
        path = SITE / name
        found = links(path)
        for target in found.references + found.loaded:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto", "data"):
                if target in found.loaded and parts.scheme != "data":
                    broken.append(f"{name} loads {target}")
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = place / "index.html" if place.is_dir() else place
            if not place.exists():
                broken.append(f"{name}: {target}")
            elif parts.fragment and place.suffix == ".html":
                anchors = links(place).anchors
                if unquote(parts.fragment) not in anchors:
                    broken.append(f"{name}: {target} (no such anchor)")
    assert broken == [], "\n".join(broken)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_say_nothing_and_fit(browser, address, size, scheme):
    visit = Visit(browser, color_scheme=scheme, **SIZES[size])
    looked_at = [name for name in pages() if not name.startswith("api/") or name in REFERENCE]
    assert set(looked_at) >= REFERENCE
    wide, unreadable = [], []
    for name in looked_at:
        visit.page.goto(f"{address}/{name}")
        if visit.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(name)
        background, ink = visit.page.evaluate(
            "[document.body, document.querySelector('main p, main h1')].map((element, number) =>"
            " getComputedStyle(element)[number ? 'color' : 'backgroundColor'].match(/[\\d.]+/g).slice(0, 3)"
            ".map(Number).reduce((a, b) => a + b))"
        )
        if (background > ink) != (scheme == "light") or abs(background - ink) < 300:
            unreadable.append(name)
    assert visit.errors() == []
    assert wide == []
    assert unreadable == []
    assert all(url.startswith((address, "data:")) for url in visit.asked)
    visit.page.context.close()


def test_search_finds_pages_without_a_network(browser, address):
    visit = Visit(browser, **SIZES["desktop"])
    visit.page.goto(f"{address}/search.html?q=reliability")
    results = visit.page.locator("#search-results li a")
    results.first.wait_for()
    titles = " ".join(results.all_inner_texts())
    assert "Trusting the probabilities" in titles
    assert "ReliabilityDisplay" in titles
    assert visit.errors() == []
    assert all(url.startswith((address, "data:")) for url in visit.asked)
    visit.page.context.close()


def test_search_works_from_the_disk(browser):
    visit = Visit(browser, **SIZES["desktop"])
    visit.page.goto(f"{(SITE / 'search.html').as_uri()}?q=landmarks")
    visit.page.locator("#search-results li a").first.wait_for()
    assert "Many rows" in " ".join(visit.page.locator("#search-results li a").all_inner_texts())
    visit.page.context.close()


def test_the_theme_can_be_switched(browser, address):
    visit = Visit(browser, color_scheme="light", **SIZES["desktop"])
    visit.page.goto(f"{address}/index.html")
    seen = set()
    for mode in ("dark", "light"):
        visit.page.locator(".theme-switch-button:visible").first.click()
        visit.page.locator(f".theme-change-button[data-mode={mode}]:visible").first.click()
        seen.add(visit.page.evaluate("document.documentElement.dataset.theme"))
    assert seen == {"light", "dark"}
    visit.page.context.close()


def test_formulas_are_drawn_by_the_browser(browser, address):
    visit = Visit(browser, **SIZES["phone"])
    visit.page.goto(f"{address}/theory.html")
    formulas = visit.page.locator("math")
    assert formulas.count() > 40
    assert visit.page.locator("div.math math").first.bounding_box()["height"] > 20
    visit.page.context.close()


def test_pictures_have_a_text(browser, address):
    visit = Visit(browser, **SIZES["desktop"])
    for name in ("index.html", "codings_and_decoders.html", "relevance.html"):
        visit.page.goto(f"{address}/{name}")
        shown = visit.page.locator("main img")
        assert shown.count() > 0
        for place in range(shown.count()):
            assert shown.nth(place).get_attribute("alt")
            assert shown.nth(place).evaluate("image => image.complete && image.naturalWidth > 0")
    visit.page.context.close()
