"""Pages and the studio in a real browser: Debian's chromium, driven by playwright.

Skipped, with the reason, only where chromium or playwright is not installed.
"""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from dynagram.report import (
    Axis,
    Code,
    Figure,
    Finding,
    Line,
    Section,
    Table,
    Text,
    Tile,
    line_chart,
    panels,
    render,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    pages = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with pages.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page_of(browser):
    """Open an address; what the console and the network saw is kept in `seen`."""
    contexts = []

    def open_page(address, *, viewport=DESK, dark=False):
        context = browser.new_context(
            viewport=viewport, color_scheme="dark" if dark else "light",
            permissions=["clipboard-read", "clipboard-write"],
        )  # fmt: skip
        contexts.append(context)
        page = context.new_page()
        page.seen = {"errors": [], "requests": []}
        page.on("pageerror", lambda error: page.seen["errors"].append(str(error)))
        page.on(
            "console",
            lambda entry: page.seen["errors"].append(entry.text) if entry.type == "error" else None,
        )
        page.on("request", lambda request: page.seen["requests"].append(request.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    x = np.arange(1.0, 6.0)
    lines = {HOSTILE: Line(x, x**2, 0.1 * x), "theory": Line(x, x**2 + 1)}
    one = line_chart(lines, Axis("layer"), Axis("value"), title="a rather long title " * 6)
    two = panels({"left": lines, HOSTILE: lines}, Axis("x"), Axis("y"))
    layers = {name: Line(x, x, band=(x - 1, x + 1)) for name in ("first", "second")}
    three = line_chart(layers, Axis("step"), Axis("a title\nof two lines"), ordered=True)
    rows = [["b", "10.5", HOSTILE], ["a", "−2", "y"], ["c", "9 ± 1", "z"]]
    blocks = [
        Finding(HOSTILE, "1", "2 ± 1", "trust: " + HOSTILE, reasons=[HOSTILE]),
        Figure(one, "A chart.", "call()"),
        Figure(two, "Panels."),
        Figure(three, "Ranges of layers."),
        Table(["name", "number", HOSTILE], rows),
        Table(["name"], [["folded " + HOSTILE]], folded=HOSTILE),
        Code("pip install " + "x" * 300),
        Text(HOSTILE),
    ]
    page = render(HOSTILE, [Section(HOSTILE, blocks, Tile(HOSTILE, "1", "good", HOSTILE))])
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def ready(page):
    page.wait_for_selector("html[data-ready='1']", timeout=60_000)
    return page


@pytest.mark.parametrize(("viewport", "dark"), [(DESK, False), (PHONE, False), (DESK, True)])
def test_a_page_opens_fits_and_asks_for_nothing(page_of, report, viewport, dark):
    page = ready(page_of(report.as_uri(), viewport=viewport, dark=dark))
    assert page.seen["errors"] == []
    others = [url for url in page.seen["requests"] if not url.startswith(("file:", "data:"))]
    assert others == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.locator(".chart svg.marks").count() == 3
    for index in range(3):
        box = page.locator(".chart svg.marks").nth(index).bounding_box()
        assert 150 < box["width"] <= viewport["width"]
    assert page.title() == HOSTILE  # names stay text
    assert page.locator("main img").count() == 0


def test_tables_sort_by_keyboard_and_code_copies(page_of, report):
    page = ready(page_of(report.as_uri()))
    first = "section > .table tbody tr:first-child td:first-child"
    button = page.locator("th button").nth(1)
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator(first).inner_text() == "a"  # −2 is the least
    page.keyboard.press("Enter")
    assert page.locator(first).inner_text() == "b"  # 10.5 the largest
    page.locator("th button").nth(0).click()
    assert page.locator(first).inner_text() == "a"
    assert page.locator("th[aria-sort]").count() == 1
    folded = page.locator("section > details.more")
    assert not folded.locator("table").is_visible()
    folded.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert folded.locator("table").is_visible()
    page.locator("section > .code > button").click()
    page.wait_for_selector("text=Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("pip install xxx")


def test_hover_tells_numbers_and_the_button_turns_dark(page_of, report):
    page = ready(page_of(report.as_uri()))
    box = page.locator("#chart-1 svg .mark-rule.role-mark line").nth(2).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#vg-tooltip-element.visible", timeout=10_000)
    assert page.locator("#vg-tooltip-element img").count() == 0
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator(".theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(page_of, report, dark):
    """WCAG: a contrast of at least 4.5 for text."""
    page = ready(page_of(report.as_uri(), dark=dark))
    pairs = page.evaluate("""() => [...document.querySelectorAll(
        "p, td, th button, dd, dt, figcaption, .tile span, summary, code")].map((element) => {
        let ground = element;
        while (getComputedStyle(ground).backgroundColor === "rgba(0, 0, 0, 0)") {
          ground = ground.parentElement;
        }
        return [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor];
      })""")

    def luminance(text):
        parts = [int(part) / 255 for part in text[4:-1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert pairs
    for colour, ground in {tuple(pair) for pair in pairs if "rgba" not in pair[0]}:
        low, high = sorted([luminance(colour), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (colour, ground)


# --- the studio -------------------------------------------------------------------------------

START = "activation=relu&C_b=0&C_W=2&width=16&depth=3&steps=40&data=two+points&eta=0.05"


@pytest.fixture
def studio():
    from dynagram.studio import Studio

    with Studio() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def settled(page):
    page.wait_for_selector(".studio[data-ready='1']", timeout=120_000)
    return page


@pytest.mark.parametrize("viewport", [DESK, PHONE])
def test_the_studio_opens_and_its_sliders_move_it(page_of, studio, viewport):
    page = settled(page_of(f"{studio.address}#{START}", viewport=viewport))
    assert page.seen["errors"] == []
    assert all(url.startswith((studio.address, "data:")) for url in page.seen["requests"])
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    assert page.locator(".panel .chart svg.marks").count() == 3
    page.wait_for_selector(".studio[data-steps='40']", timeout=60_000)
    words = page.locator("[data-part=flow] p").inner_text()
    assert "keeps its size" in words
    slider = page.locator("input[data-name=C_W]")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("PageUp")
    page.wait_for_selector("[data-part=flow] p:not(:text('keeps its size'))")
    assert "C_W=" in page.url
    again = settled(page_of(page.url, viewport=viewport))  # a link reproduces it
    assert again.locator("input[data-name=C_W]").input_value() == slider.input_value()


def test_networks_in_the_browser_learn_what_theory_says(page_of, studio):
    page = settled(page_of(f"{studio.address}#{START.replace('steps=40', 'steps=400')}"))
    page.wait_for_selector(".studio[data-steps='400']", timeout=60_000)
    outputs = page.evaluate("""async () => {
      const {SmallNetwork} = await import(location.pathname + "studio.js");
      const state = new URLSearchParams(location.hash.slice(1));
      const table = await (await fetch("api/table?activation=relu&data=two+points")).json();
      const mixed = {...table, C_b: 0, C_W: 2, eta: 0.05, widths: [2, 64, 64, 1], skip: [0, 0, 0]};
      const ends = [];
      for (let seed = 1; seed <= 40; seed++) {
        const network = new SmallNetwork(mixed, seed);
        for (let step = 0; step < 400; step++) network.step();
        ends.push([network.forward([1, 1]).output, network.forward([-1, 1]).output,
          network.forward([0, 1]).output]);
      }
      return ends;
    }""")
    from dynagram.studio import answer

    ends = np.array(outputs)
    np.testing.assert_allclose(ends[:, 0], 1.0, atol=0.02)
    np.testing.assert_allclose(ends[:, 1], -1.0, atol=0.02)
    values = {"activation": "relu", "C_b": 0, "C_W": 2, "width": 64, "depth": 3, "steps": 400,
              "eta": 0.05, "data": "two points"}  # fmt: skip
    middle = min(answer("trained", values)["rows"], key=lambda row: abs(row["x"]))
    spread = 0.5 * (middle["high"] - middle["mean"])
    error = spread / np.sqrt(len(ends))
    assert abs(ends[:, 2].mean() - middle["mean"]) < 4 * error
    assert 0.6 < ends[:, 2].std() / spread < 1.6


def test_nonsense_two_windows_and_a_server_that_is_gone(page_of, studio):
    hostile = f"{START}&formula=%3Cscript%3E&activation=formula"
    page = settled(page_of(f"{studio.address}#{hostile}"))
    assert "cannot be read as a formula" in page.locator("[data-part=flow] p").inner_text()
    other = settled(page_of(f"{studio.address}#{START}"))
    assert "keeps its size" in other.locator("[data-part=flow] p").inner_text()
    other.locator("[data-copy=python]").click()
    other.wait_for_selector(".studio[data-copied]")
    assert "MLP([2, 16, 16, 1], 'relu'" in other.locator(".studio").get_attribute("data-copied")
    studio.shutdown()
    studio.server_close()
    other.locator("input[data-name=C_W]").focus()
    other.keyboard.press("ArrowRight")
    other.wait_for_selector("text=Is the studio still running?")
