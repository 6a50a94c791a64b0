"""Makes the README's pictures anew, from the page of a finished run.

    python -m tests.integration.dashboard.pictures RUN/report.html

They are the page as a browser shows it: wide and light, and as on a telephone at night. What the
page's menu has is written beside them, so that a test notices when they are not the page any more.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.integration.dashboard.browser import Tab, browsing

IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
MENU_FILE: Final = IMAGES / "menu.json"
MENU: Final = "[...document.querySelectorAll('nav a')].map((link) => link.textContent)"
END: Final = "document.getElementById('grid').getBoundingClientRect().bottom + window.scrollY"
CHOOSE: Final = """[...document.querySelectorAll('td.cell')]
    .find((cell) => cell.textContent === 'F')
    ?.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))"""
"""The first square of a holder that was slashed, which tells why below the grid."""
MARGIN: Final = 8
LONGEST: Final = 1180


async def _picture(tab: Tab, *, width: int, dark: bool) -> bytes:
    """From the top to the end of the grid, as far as a picture goes."""
    await tab.look_like(width=width, dark=dark)
    await tab.run(CHOOSE)
    height = min(await tab.run(END) + MARGIN, LONGEST)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = await tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    return base64.b64decode(shot["data"])


async def _look(url: str, folder: Path) -> tuple[bytes, bytes, list[str]]:
    async with browsing(folder) as tab:
        await tab.look_like(width=1000)
        await tab.open(url)
        light = await _picture(tab, width=1000, dark=False)
        return light, await _picture(tab, width=380, dark=True), await tab.run(MENU)


def main(report: Path) -> None:
    """Writes them all."""
    with tempfile.TemporaryDirectory() as folder:
        light, dark, menu = asyncio.run(_look(report.resolve().as_uri(), Path(folder)))
    (IMAGES / "page-light.png").write_bytes(light)
    (IMAGES / "page-narrow-dark.png").write_bytes(dark)
    MENU_FILE.write_text(json.dumps(menu) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
