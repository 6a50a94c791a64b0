"""What a chain takes of a contract's code, and what room is left in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import atoll.chain
from atoll.chain.abi import load_artifact

ARTIFACTS: Final = Path(atoll.chain.__file__).parent / "artifacts"
CODE_LIMIT: Final = 24_576
"""Bytes of a contract (EIP-170)."""
ROOM: Final = 1_024


def test_every_contract_leaves_a_kilobyte_below_the_limit() -> None:
    names = [path.stem for path in ARTIFACTS.glob("*.json")]
    free = {name: CODE_LIMIT - load_artifact(name)["runtime"]["bytes"] for name in names}
    assert "Game" in free
    assert {name: room for name, room in free.items() if room < ROOM} == {}
