"""Makes the pictures of the page anew, for README and docs/dashboard.md.

    python -m tests.integration.dashboard.pictures after RUN/report.html
    python -m tests.integration.dashboard.pictures live http://127.0.0.1:PORT/job/1

They are the page as a browser shows it, of a finished run and during one: wide and as on a
telephone, light and dark. What the page's menu has is written beside them, so that a test notices
when they are not the page any more.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.dashboard.browser import Tab, browsing

IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
MENU_FILE: Final = IMAGES / "menu.json"
MENU: Final = "[...document.querySelectorAll('nav a')].map((link) => link.textContent)"
CHOOSE: Final = """[...document.querySelectorAll('td.cell')]
    .find((cell) => cell.textContent === 'F')
    ?.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))"""
"""The first square of a holder that was slashed, which tells why below the grid."""
DISTANCES: Final = "document.getElementById('seats-distance')?.click()"
"""Where they were measured."""
WIDE, NARROW = 1400, 390


@dataclass(frozen=True)
class Picture:
    """From the top of the page, so many pixels.

    Attributes:
        name: of the file, whose ending is the format.
    """

    name: str
    width: int
    height: int
    dark: bool = False


PICTURES: Final = {
    "after": (
        Picture("page-light.png", WIDE, 1500),
        Picture("page-narrow-dark.png", NARROW, 1060, dark=True),
        Picture("page-after-dark.webp", WIDE, 1800, dark=True),
        Picture("page-after-narrow.webp", NARROW, 1500),
    ),
    "live": (
        Picture("page-live.webp", WIDE, 1800),
        Picture("page-live-narrow-dark.webp", NARROW, 1500, dark=True),
    ),
}
QUALITY: Final = 70


async def _take(tab: Tab, url: str, picture: Picture) -> None:
    await tab.look_like(width=picture.width, dark=picture.dark)
    await tab.open(url)
    await tab.run(CHOOSE)
    await tab.run(DISTANCES)
    clip = {"x": 0, "y": 0, "width": picture.width, "height": picture.height, "scale": 1}
    kind = picture.name.rsplit(".")[-1]
    how = {"format": kind} | ({"quality": QUALITY} if kind == "webp" else {})
    shot = await tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True, **how)
    (IMAGES / picture.name).write_bytes(base64.b64decode(shot["data"]))


async def _look(url: str, folder: Path, when: str) -> list[str]:
    async with browsing(folder) as tab:
        for picture in PICTURES[when]:
            await _take(tab, url, picture)
        menu: list[str] = await tab.run(MENU)
        return menu


def main(when: str, place: str) -> None:
    """Writes those of a finished run's report, or of a live page."""
    url = place if "://" in place else Path(place).resolve().as_uri()
    with tempfile.TemporaryDirectory() as folder:
        menu = asyncio.run(_look(url, Path(folder), when))
    MENU_FILE.write_text(json.dumps(menu) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
