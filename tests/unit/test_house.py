"""The drawing, the table and the lint's contract say the same about which room imports which.

And the pages of both services name every place where one may depart from them, and the
contributors' page every cheat.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from atoll_devnet.cheats.catalogue import PROVIDER_CHEATS, VERIFIER_CHEATS, WATCHER_CHEATS
from atoll_node.behaviour import ProviderBehaviour
from atoll_verifier.behaviour import VerifierBehaviour

ROOT = Path(__file__).parents[2]


def _layers() -> list[set[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    first = next(c for c in contracts["contracts"] if c["name"] == "imports go down")
    return [set(row.split(" | ")) for row in first["layers"]]


def test_the_table_for_contributors_is_the_contract() -> None:
    rows = re.findall(r"^\| (`atoll.*?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert [set(re.findall(r"`([a-z_.]+)`", row)) for row in rows] == _layers()


def test_the_drawing_is_the_contract() -> None:
    drawing = (ROOT / "docs" / "ARCHITECTURE.md").read_text().split("```")[1]
    rows = [set(re.findall(r"\batoll[._][a-z]+", line)) for line in drawing.splitlines()]
    assert [row for row in rows if row] == _layers()


def test_every_package_has_a_room() -> None:
    named = {name for row in _layers() for name in row}
    folders = {f"atoll.{p.parent.name}" for p in (ROOT / "sdk" / "atoll").glob("*/__init__.py")}
    assert folders | {"atoll.errors", "atoll_devnet", "atoll_node", "atoll_verifier"} == named


@pytest.mark.parametrize(
    ("page", "behaviour"),
    [
        ("node/atoll_node/PROVIDER.md", ProviderBehaviour),
        ("verifier/atoll_verifier/VERIFIER.md", VerifierBehaviour),
    ],
)
def test_every_hook_of_a_behaviour_is_on_its_page(page: str, behaviour: type) -> None:
    told = (ROOT / page).read_text(encoding="utf-8").split("## Departing on purpose")[1]
    hooks = {name for name in vars(behaviour) if not name.startswith("_")}
    assert hooks <= set(re.findall(r"`(\w+)`", told))


def test_every_cheat_is_in_the_contributors_table() -> None:
    page = (ROOT / "docs" / "contributor.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([a-z0-9-]+)`", page.split("## Cheats by name")[1]))
    assert {*PROVIDER_CHEATS, *VERIFIER_CHEATS, *WATCHER_CHEATS} <= told
