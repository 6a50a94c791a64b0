"""What a script of a job has somebody owe."""

from __future__ import annotations

from tests.unit.protocol.script import Script

from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls
from atoll.protocol.obligations import Duty, obligations_of


def owed(script: Script, account: str) -> list[tuple[Duty, int]]:
    found = obligations_of(script.net.view, account, script.net.now)  # type: ignore[arg-type]
    return [(each.duty, each.until) for each in found]


def calls(script: Script) -> set[KeeperCallKind]:
    return {each.call for each in keeper_calls(script.net.view, script.net.now)}
