"""An auditor finds an invented leaf, accuses, and the game takes the liar's bond; nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.chain.local_anvil import Anvil, start_anvil, stop
from tests.network.cheat import SEGMENT
from tests.network.members import account, create, network, open_session, until
from tests.network.test_two_rounds import TERMS

from atoll.law.views import JobView
from atoll.law.words import Address, Phase
from atoll.service.duties.upkeep import is_over


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    node = start_anvil("--block-time", "1")
    yield node
    stop(node)


async def test_a_liar_loses_its_bond_and_nobody_else_does(anvil: Anvil, tmp_path: Path) -> None:
    terms = {**TERMS, "rounds": 1, "window_seconds": 60, "game_seconds": 25}
    members, config = await network(tmp_path, anvil)
    async with open_session(config) as session:
        try:
            job, _ = await create(members, session, has_judge=True, **terms)
            members.start("liar", 1)
            for index in range(2, 8):
                members.start("provider" if index < 5 else "verifier", index)
            view = await until(session, job, _is_decided, 450)
        finally:
            members.stop()
            await members.chain.close()
    liar = Address(account(1).address)
    everyone = (*view.providers.values(), *view.verifiers.values())
    assert {h.account for h in everyone if h.has_fallen} == {liar}
    assert not any(h.cuts for h in everyone if h.account != liar)
    assert liar not in view.paid
    (lost,) = {game.claim.segment for game in view.games.values()}
    assert lost == SEGMENT


def _is_decided(view: JobView, now: int) -> bool:
    return view.phase is Phase.CLOSED and is_over(view, now)
