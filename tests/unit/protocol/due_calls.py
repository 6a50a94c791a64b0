"""Which calls a script of a job makes due."""

from __future__ import annotations

from tests.unit.protocol.script import Script

from atoll.protocol.holders import Holder
from atoll.protocol.keeper_calls import (
    KeeperCall,
    KeeperCallKind,
    keeper_calls,
)
from atoll.protocol.types import (
    HolderId,
    Role,
    RoundIndex,
)

FIRST = RoundIndex(0)


def due(script: Script, call: KeeperCallKind) -> list[KeeperCall]:
    return [each for each in keeper_calls(script.net.view, script.net.now) if each.call is call]


def seat_holder(script: Script, seat: int, round: int = 0) -> Holder:
    return script.net.view.providers[HolderId(script.net.at(Role.PROVIDER, seat, round).id)]


def settled(seats: int = 4) -> Script:
    """One round that everybody met."""
    script = Script.ready(seats=seats)
    script.honest_round()
    return script
