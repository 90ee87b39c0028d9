"""Draws examples/induction_heads.png again: the report of a training, opened in Chromium. Not a test: a program.

    python -m tests.study.readme_picture

It trains as `python examples/induction_heads.py --out …` does, points at a cell of the induction head, and writes what
the window shows, in true colour."""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from ..examples.scripts import EXAMPLES, load
from .conftest import ARGUMENTS, settle

SIZE = {"width": 1280, "height": 900}
SHOWN = "layer=blocks.1.attn&head=1&sequence=1&snapshot=8"  # step 200, at which the flow is drawn
QUERY, KEY = 24, 9  # a query of the second period, and the key that it does not yet look at, but should


def screenshot(report, path):
    """Write what Chromium shows of a report of that training, as a PNG."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE)
        page.goto(f"{report.as_uri()}#{SHOWN}")
        settle(page)
        page.mouse.move(*page.evaluate(f"heads.cell('pattern', {QUERY}, {KEY})"))
        image = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    image.convert("RGB").save(path, optimize=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        load("induction_heads").main(["--out", folder])
        screenshot(Path(folder) / "induction.html", EXAMPLES / "induction_heads.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
