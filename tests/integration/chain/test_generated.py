"""What is made from the contracts' interface is what is committed, as the artefacts are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll.chain.abi import load_artifact

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "contracts" / "tools"
INTERFACE: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(
    (ROOT / "contracts" / "interface.json").read_text(encoding="utf-8")
)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The generator, which is no package: its modules find one another beside them."""
    monkeypatch.syspath_prepend(str(TOOLS))
    names = ("generated", "interface", "typed_python", "typed_texts")
    import generated

    yield generated
    for name in names:
        del sys.modules[name]


def test_typed_python_and_tables_are_those_of_the_interface(tools: Any) -> None:
    made = tools.generated(INTERFACE)
    stale = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run: contracts/tools/export_artifacts.py"
    folder = ROOT / "sdk" / "atoll" / "protocol" / "events"
    assert {path for path in made if path.parent == folder} == set(folder.glob("*.py"))


def signature(item: dict[str, Any]) -> tuple[Any, ...]:
    """By types: what implements an interface may leave out a parameter's name."""
    inputs = [(one["type"], one["internalType"], one.get("indexed")) for one in item["inputs"]]
    return (item["name"], str(inputs))


@pytest.mark.parametrize("contract", INTERFACE)
def test_the_interface_is_that_of_the_artefacts(contract: str) -> None:
    """Else the typed code would be of another version than the bytecode beside it."""
    abi = load_artifact(contract)["abi"]
    parts = INTERFACE[contract]
    deployed = {signature(item) for item in abi if item["type"] in {"event", "function"}}
    described = {signature(item) for items in parts.values() for item in items}
    assert described <= deployed
    if parts["events"]:
        events = {signature(item) for item in abi if item["type"] == "event"}
        assert {signature(item) for item in parts["events"]} == events


def test_what_an_abi_cannot_say_is_said(tools: Any) -> None:
    """A notice of every event, and a caller of every call: a type or a text without is refused."""
    unsaid = json.loads(json.dumps(INTERFACE))
    del unsaid["Rounds"]["events"][0]["notice"]
    with pytest.raises(SystemExit, match="RoundOpened has no @notice"):
        tools.events(unsaid)
    unknown = json.loads(json.dumps(INTERFACE))
    unknown["Rounds"]["events"][0]["inputs"][0] |= {"internalType": "enum New", "type": "uint8"}
    with pytest.raises(SystemExit, match="no Python type is known for New"):
        tools.events(unknown)
    twice = json.loads(json.dumps(INTERFACE))
    twice["Game"]["events"].append(twice["Rounds"]["events"][0])
    with pytest.raises(SystemExit, match="two events have one name"):
        tools.events(twice)
