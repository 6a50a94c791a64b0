"""`make docs`: every text is a page of the menu, and the API's page has the client's names."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import atoll
import atoll.sync

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-docs" / "bin" / "python"
TAKEN = (".ci", ".git", "mkdocs.yml", "sdk", "node", "verifier", "contracts", "devnet", "docs")
TAKEN += ("tests", "README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE")


def build(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, checkout / ".ci" / "docs.py"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The texts of this one, with its own `.ci` and docs, and all else by links."""
    folder = tmp_path_factory.mktemp("docs")
    for name in TAKEN:
        if name in {".ci", "docs"}:
            shutil.copytree(ROOT / name, folder / name)
        else:
            (folder / name).symlink_to(ROOT / name)
    return folder


def test_every_text_is_a_page_and_the_api_has_its_names(checkout: Path) -> None:
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    pages = checkout / ".site" / "pages"
    assert (pages / "docs" / "quickstart" / "index.html").is_file()
    assert (pages / "docs" / "first_job.ipynb").is_file()
    api = (pages / "docs" / "api" / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="atoll\.job\.(?:client|handle)\.\w+\.(\w+)"', api))
    for kind in (atoll.sync.Client, atoll.sync.Job):
        names = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
        # What `async with` does is no name of the other client; a view is for those who know it.
        assert names - shown <= {"open", "close", "id", "view", "newest"}
    assert "web3" in shown and "session" not in shown


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](submitter.md#nothing-of-the-kind)"])
def test_a_link_that_leads_nowhere_fails(checkout: Path, link: str) -> None:
    page = checkout / "docs" / "quickstart.md"
    before = page.read_text(encoding="utf-8")
    page.write_text(f"{before}\n\n{link}\n", encoding="utf-8")
    try:
        done = build(checkout)
    finally:
        page.write_text(before, encoding="utf-8")
    assert done.returncode != 0
    assert "quickstart.md" in done.stderr + done.stdout
