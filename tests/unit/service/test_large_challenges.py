"""A challenge whose evidence fits into no transaction is none, and waits for nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.protocol.models import MODEL, PROGRAM
from tests.unit.protocol.test_claims import SEAT, played, said_of

from atoll.protocol.types import RoundIndex
from atoll.service.duties import challenge
from atoll.service.duties.challenge import NotChallenged, SendChallenge
from atoll.service.entries import Done


class Staking:
    """Where a challenge comes that is sent."""

    async def __aenter__(self) -> None:
        raise InterruptedError

    async def __aexit__(self, *_: object) -> None:
        """Never entered."""


@pytest.mark.parametrize("room", [0, -1])
async def test_evidence_has_to_fit_into_a_transaction(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = played()
    size = len(said_of(script).evidence(1))

    async def model_of_round(*_: object) -> bytes:
        return b""

    async def shown(*_: object) -> tuple[object, ...]:
        return MODEL, PROGRAM

    monkeypatch.setattr(challenge, "model_of_round", model_of_round)
    monkeypatch.setattr(challenge, "MOST_CALLDATA", size + 256 + room)
    wanted = SendChallenge(RoundIndex(0), SEAT, 1, b"", PROGRAM.header.initial)
    effects: Any = SimpleNamespace(work_soon=shown, store_dir="", staking=Staking())
    if room < 0:
        done = await wanted.perform(effects, script.net.view)
        assert done == Done(NotChallenged(f"its {size} bytes fit into no transaction"))
        return
    with pytest.raises(InterruptedError):
        await wanted.perform(effects, script.net.view)
