"""Makes the README's pictures anew, from the page of a finished run.

    python -m tests.integration.window.pictures RUN/report.html

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

from tests.integration.window.browser import Tab, browsing

IMAGES: Final = Path(__file__).resolve().parents[3] / "docs" / "images"
MENU_FILE: Final = IMAGES / "menu.json"
MENU: Final = "[...document.querySelectorAll('nav a')].map((link) => link.textContent)"
END: Final = "document.getElementById('grid').getBoundingClientRect().bottom + window.scrollY"
MARGIN: Final = 8
LONGEST: Final = 1180


async def _picture(tab: Tab, file: Path, *, width: int, dark: bool, skips: str = "") -> None:
    """From the top, or from below what `skips` selects, to the end of the grid."""
    await tab.look_like(width=width, dark=dark)
    top = await tab.run(f"document.querySelector('{skips}').offsetTop") if skips else 0
    bottom = min(await tab.run(END) + MARGIN, top + LONGEST)
    clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
    shot = await tab.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    file.write_bytes(base64.b64decode(shot["data"]))


async def _make(report: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with browsing(Path(folder)) as tab:
            await tab.look_like(width=1000)
            await tab.open(report.resolve().as_uri())
            await _picture(tab, IMAGES / "page-light.png", width=1000, dark=False)
            await _picture(tab, IMAGES / "page-narrow-dark.png", width=380, dark=True)
            MENU_FILE.write_text(json.dumps(await tab.run(MENU)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_make(Path(sys.argv[1])))
