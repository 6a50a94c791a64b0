"""The docs as pages, in .site/pages; a link that leads nowhere, or to no heading, fails.

Run by `make docs`, with the Python of `.venv-docs`. The texts are laid beside each other as they
stand in the checkout, with whatever file they link to, so that every relative link holds.
"""
# ruff: noqa: S603 -- fixed commands of the tools that this script is about

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ROOT / ".site" / "texts"
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)|src=\"([^\":]+)\"")


def main() -> int:
    shutil.rmtree(TEXTS, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],  # noqa: S607 (as `make` does)
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listed.stdout.splitlines():
        text = ROOT / name
        linked = LINK.findall(CODE.sub("", text.read_text("utf-8")))
        for file in {text, *(text.parent / (path or image) for path, image in linked)}:
            if file.is_file():
                _lay(file)
    # Not `--quiet`, under which warnings do not count. The theme advertises, and asks not to.
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    return subprocess.run(
        mkdocs, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False
    ).returncode


def _lay(file: Path) -> None:
    place = TEXTS / Path(os.path.normpath(file)).relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


if __name__ == "__main__":
    sys.exit(main())
