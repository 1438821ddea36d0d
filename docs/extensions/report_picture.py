"""Renew docs/images/report.png: the first screen of the page that `dynagram report` writes.

    dynagram report -o page && python docs/extensions/report_picture.py page/index.html

Needs playwright and a Chromium; its path can be given in CHROMIUM.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

PICTURE = Path(__file__).parent.parent / "images" / "report.png"
SIZE: ViewportSize = {"width": 1080, "height": 900}


def take(page: Path) -> None:
    """The picture of a page, light, as wide as a column of text."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport=SIZE, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
