"""Take the pictures of the page that the documentation shows, with Chromium.

    python docs/record_page.py        # writes docs/page/*.png

The report and the live page of `ten_hospitals.py`, light and dark, on a desktop and on a phone. The live
page is taken in the middle of the run.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
OUT = HERE / "page"
SCREENS = {"desktop": (1180, 900), "phone": (390, 844)}
LAST = "#weights figure >> nth=0"
"""The last thing on the pictures of a desktop."""
STEELYARD = [sys.executable, "-m", "steelyard"]
ROUND = 14


def take(browser: Browser, address: str, kind: str, ready: str) -> None:
    """Pictures of one page in all screens and themes; `ready` is a text that it shows when it is there."""
    for screen, (width, height) in SCREENS.items():
        for theme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1.5
            )
            page.goto(address)
            page.get_by_text(ready).first.wait_for()
            figure = page.locator(LAST)
            figure.scroll_into_view_if_needed()
            figure.locator(".main-svg").first.wait_for(state="attached")
            page.evaluate("window.scrollTo(0, 0)")
            page.wait_for_timeout(1500)
            box = figure.bounding_box()
            assert box is not None
            bottom = box["y"] + box["height"] + 24 if screen == "desktop" else 2 * height
            clip = {"x": 0, "y": 0, "width": width, "height": bottom}
            page.screenshot(path=OUT / f"{kind}-{screen}-{theme}.png", clip=clip, full_page=True)
            if (kind, screen, theme) == ("report", "desktop", "light"):
                top = page.locator("#verdicts").bounding_box()["y"] + 24
                clip = {**clip, "y": top, "height": bottom - top}
                page.screenshot(path=OUT / "verdicts.png", clip=clip, full_page=True)
            page.close()


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-background-networking"]
        )
        run, report = Path(folder, "ten-hospitals"), Path(folder, "report.html")
        hospitals = [sys.executable, HERE / "ten_hospitals.py", run]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with ExitStack() as stack:
            going = subprocess.Popen([*hospitals, str(ROUND)], **pipes)
            stack.callback(going.kill)
            going.stdout.readline()
            server = subprocess.Popen([*STEELYARD, "page", run, "--json"], **pipes)
            stack.callback(server.kill)
            take(browser, json.loads(server.stdout.readline())["url"], "live", f"after {ROUND} rounds")
            going.communicate("\n", timeout=60)
        subprocess.run([*STEELYARD, "report", run, "--out", report], check=True)
        take(browser, report.as_uri(), "report", "after 30 rounds")
        browser.close()
    for path in OUT.glob("*.png"):  # 256 colours are enough for these pages, and take a third of the space
        Image.open(path).quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
