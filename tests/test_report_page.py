"""The page in a browser: Chromium, driven through Playwright."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from polymargin import LSSVMClassifier
from polymargin.comparison.repeated import RepeatedComparison
from polymargin.comparison.standings import standings
from polymargin.datasets import Dataset
from polymargin.report import compare_summary, fit_summary, write_page

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = [
    "<script>window.x=1</script>",
    '"><img src=x onerror="window.x=1">',
    "c <b>bold</b> &amp; " + "long" * 20,
]
SECTIONS = [
    "ranking", "reliability", "histograms", "confusion", "per-class", "uncertain", "wrong", "model", "relevance",
    "codebook", "surface", "regions",
]  # fmt: skip
FIGURES = ["reliability", "histograms", "relevance", "codebook", "surface", "regions"]


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


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A page about data whose names would like to be more than names."""
    X, y = load_iris(return_X_y=True)
    dataset = Dataset(NAMES[0], X[:, 2:], np.array(NAMES)[y], (NAMES[0], NAMES[1]), "here")
    comparison = RepeatedComparison(
        dataset,
        ["ls-svm"],
        ["one-vs-one", "one-vs-all"],
        ["softmax", "bayes", "hamming"],
        kernel="linear",
        repeats=2,
    )
    rows = [row for job in comparison.jobs() for row in comparison.run(job)]
    path = tmp_path_factory.mktemp("page") / "page.html"
    return write_page(compare_summary(comparison, standings(comparison, rows)), path).as_uri()


def opened(browser, url, **options):
    """Return the page, with what it said and asked for under `said` and `asked`."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(120_000)  # the page holds all of plotly.js; a machine may be busy
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(url)
    page.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
    return page


@pytest.fixture(scope="module")
def desktop(browser, url):
    page = opened(browser, url, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield page
    page.context.close()


def order(page):
    return page.locator("#ranking tbody tr").all_inner_texts()


def losses(page):
    cells = page.locator("#ranking tbody tr td:nth-child(4)")
    return [cells.nth(i).get_attribute("data-value") for i in range(cells.count())]


def test_every_section_is_there_and_drawn(desktop):
    for name in SECTIONS:
        section = desktop.locator(f"#{name}")
        assert section.is_visible()
        assert len(section.locator(".reading").inner_text()) > 40
    for name in FIGURES:
        plot = desktop.locator(f"#plot-{name}")
        assert plot.locator(".main-svg").first.is_visible()
        assert plot.get_attribute("aria-label")
        assert plot.bounding_box()["height"] > 150


def test_hostile_names_are_shown_as_text(desktop):
    assert desktop.locator("h1").inner_text() == NAMES[0]
    assert desktop.locator("#regions .xtitle").text_content() == NAMES[0]
    assert NAMES[1][:12] in desktop.locator("#regions .ytitle").text_content()
    shown = desktop.locator("#confusion tbody th").all_text_contents()
    assert [text.strip() for text in shown] == sorted(NAMES)
    columns = desktop.locator("#relevance .ytick text").all_text_contents()
    assert {text[:12] for text in columns} == {NAMES[0][:12], NAMES[1][:12]}
    legend = desktop.locator("#regions .legendtext").all_text_contents()
    assert NAMES[0] in legend
    assert any(text.startswith("c <b>bold</b>") for text in legend)
    assert desktop.evaluate("window.x") is None
    assert desktop.locator("img").count() == 0


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_the_ranking_sorts(desktop, by):
    heading = desktop.locator("#ranking th", has_text="Accuracy")
    button = heading.locator("button")

    def press():
        if by == "mouse":
            button.click()
        else:
            button.focus()
            desktop.keyboard.press("Enter")

    def shown():
        cells = desktop.locator("#ranking tbody tr td:nth-child(5)")
        return [float(cells.nth(i).get_attribute("data-value")) for i in range(cells.count())]

    desktop.locator("#ranking th", has_text="Log-loss").locator("button").click()
    press()
    ascending = order(desktop)
    assert heading.get_attribute("aria-sort") == "ascending"
    assert shown() == sorted(shown())
    press()
    assert heading.get_attribute("aria-sort") == "descending"
    assert shown() == sorted(shown(), reverse=True)
    assert shown()[0] > shown()[-1]
    assert order(desktop) != ascending
    assert desktop.locator("#ranking th[aria-sort=none]").count() == 8
    assert "Accuracy %, descending" in desktop.locator("#announcement").text_content()


def test_what_is_missing_stays_last(desktop):
    button = desktop.locator("#ranking th", has_text="Log-loss").locator("button")
    for _ in range(2):
        button.click()
        found = losses(desktop)
        assert found.count("") == 2  # Hamming decoding gives no probabilities
        assert found[-2:] == ["", ""]


def test_a_keyboard_reaches_everything_and_the_focus_shows(desktop):
    desktop.locator(".skip").focus()
    about = "(e => [e.tagName, getComputedStyle(e).outlineStyle, e.closest('section')?.id])(document.activeElement)"
    reached = []
    while not reached or reached[-1][0] != "BODY":  # the end of the page
        desktop.keyboard.press("Tab")
        reached.append(desktop.evaluate(about))
        assert len(reached) < 200
    assert {"A", "BUTTON", "SELECT", "SUMMARY", "DIV"} <= {tag for tag, *_ in reached}
    assert all(style == "solid" for tag, style, _ in reached if tag in ("BUTTON", "SELECT", "SUMMARY"))
    assert set(SECTIONS) <= {section for *_, section in reached}


def test_hovering_tells_the_numbers(desktop):
    plot = desktop.locator("#plot-regions")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").bounding_box()
    desktop.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + box["height"] * 0.12)
    desktop.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.1, steps=3)
    label = plot.locator(".hovertext")
    label.wait_for()
    assert any(name[:6] in label.text_content() for name in NAMES)


def test_another_class_can_be_chosen(desktop):
    def drawn():
        return desktop.evaluate("document.getElementById('plot-reliability').data[1].x")

    before = drawn()
    desktop.locator("select[data-for=reliability]").select_option("2")
    assert drawn() != before
    desktop.locator("select[data-for=reliability]").select_option("0")
    assert drawn() == before


def test_a_figure_has_its_numbers_as_a_table(desktop):
    desktop.locator("#reliability summary").click()
    table = desktop.locator("#reliability .numbers")
    assert table.is_visible()
    assert table.locator("tbody tr").count() == len(
        desktop.evaluate("document.getElementById('plot-reliability').data[1].x")
    )


def test_figures_follow_the_colour_scheme(desktop):
    def look():
        return desktop.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('#plot-reliability .xtick text')).fill]"
        )

    light = look()
    desktop.emulate_media(color_scheme="dark")
    desktop.wait_for_function(
        "c => getComputedStyle(document.querySelector('#plot-reliability .xtick text')).fill != c",
        arg=light[1],
    )
    dark = look()
    desktop.emulate_media(color_scheme="light")

    def brightness(colour):
        return sum(int(part) for part in colour[4:-1].split(","))

    assert brightness(light[0]) > brightness(light[1])
    assert brightness(dark[0]) < brightness(dark[1])


def test_a_phone_shows_it_without_sideways_scrolling(browser, url):
    page = opened(
        browser,
        url,
        viewport={"width": 390, "height": 844},
        is_mobile=True,
        has_touch=True,
        color_scheme="dark",
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in FIGURES:
        box = page.locator(f"#plot-{name} .main-svg").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    assert page.said == []
    page.context.close()


def test_nothing_was_said_or_asked_for(desktop, url):
    assert desktop.said == []
    assert [asked for asked in desktop.asked if not asked.startswith(("data:", "blob:"))] == [url]


@pytest.fixture(scope="module")
def long_url(tmp_path_factory):
    """A page about 24 classes with long names, of which the model has learned nothing."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(96, 5)), columns=[f"a column with a long name, number {j}" for j in range(5)]
    )
    y = np.array([f"a class with a rather long name, number {k}" for k in range(24)] * 4)
    model = make_pipeline(
        StandardScaler(), LSSVMClassifier(kernel="linear", C=0.01, coding="one-vs-all")
    ).fit(X, y)
    summary = fit_summary(
        model, X, y, title="noise", log_proba=model[-1].loo_log_proba_, classes=model.classes_
    )
    return write_page(summary, tmp_path_factory.mktemp("long") / "page.html").as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "mobile"), [(1400, False), (390, True)])
def test_many_classes_with_long_names(browser, long_url, width, mobile, scheme):
    page = opened(
        browser,
        long_url,
        viewport={"width": width, "height": 900},
        is_mobile=mobile,
        has_touch=mobile,
        color_scheme=scheme,
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "learned nothing" in page.get_by_role("alert").inner_text()
    if not mobile:
        clipped = (
            "[...document.querySelectorAll('section > .scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        )
        assert page.evaluate(f"{clipped}.map(e => e.getAttribute('aria-label'))") == []
    assert page.locator("#confusion table.confusion").count() == 0
    assert page.locator("#plot-confusion .main-svg").first.is_visible()
    assert page.locator("#confusion .rows tbody tr").count() > 5
    assert page.locator("#codebook .legend li").count() == 3
    colours = page.evaluate(
        "[document.body, document.querySelector('.warning')].map(e => getComputedStyle(e).color)"
        ".concat(getComputedStyle(document.body).backgroundColor)"
    )
    ink, warning, paper = (sum(int(part) for part in colour[4:-1].split(",")) for colour in colours)
    assert (ink > paper, warning > paper) == (scheme == "dark", scheme == "dark")
    assert page.said == []
    page.context.close()
