"""Who joins a long chain takes the logs that a member's gateway serves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_account.signers.local import LocalAccount
from structlog.testing import capture_logs
from tests.integration.chain.local_anvil import Anvil
from tests.integration.chain.test_index import Announcer

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.service import checkpoint_writer
from atoll.service.checkpoint_writer import CheckpointWriter
from atoll.service.checkpoints import NAME, CheckpointNote
from atoll.service.journal import Journal
from atoll.service.session import Session, SessionConfig, open_session
from atoll.storage.storage import StoreConfig

LONG = 5_000


def config_of(anvil: Anvil, deployment: Deployment, folder: Path) -> SessionConfig:
    store = StoreConfig(folder / "blocks", sync=False)
    return SessionConfig((anvil.url,), deployment, folder, store)


async def checkpoint_of(member: Session, journal: Journal) -> CheckpointNote:
    parts = {"follower": member.follower, "chain": member.chain}
    context = SimpleNamespace(**parts, storage=member.storage, journal=journal)
    await CheckpointWriter().look(cast(Any, context))
    note = journal.note(NAME)
    assert note is not None
    return CheckpointNote.from_bytes(note)


def counted_ranges(session: Session) -> list[int]:
    """The first blocks of the ranges that it asks for from now on."""
    firsts, provider = list[int](), session.chain.provider
    ask_several = provider.ask_several

    async def noted(count: int, method: str, params: Sequence[Any], read: Any) -> Any:
        firsts.append(int(params[0]["fromBlock"], 16))
        return await ask_several(count, method, params, read)

    provider.ask_several = noted  # type: ignore[method-assign]
    return firsts


async def test_who_joins_a_long_chain_begins_with_a_member_s_checkpoint(
    anvil: Anvil,
    chain: AtollChain,
    deployment: Deployment,
    accounts: list[LocalAccount],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint_writer, "LEAST_LOGS", 3)
    says = Announcer(chain, anvil, accounts[1])
    async with open_session(config_of(anvil, deployment, tmp_path / "member")) as member:
        path = tmp_path / "journal.sqlite"
        with closing(Journal(path)) as journal:
            gateway = await member.serve(journal=path)
            for url in ("http://a.example.org:1", "http://b.example.org:1", gateway.url):
                anvil.ask("eth_sendRawTransaction", says.raw(url))
            anvil.mine(LONG)
            await member.follower.poll()
            note = await checkpoint_of(member, journal)
            assert note.block >= LONG // 2
            async with open_session(config_of(anvil, deployment, tmp_path / "joiner")) as joiner:
                firsts = counted_ranges(joiner)
                with capture_logs() as logs:
                    await joiner.follower.poll()
                assert "begins with a checkpoint" in [each["event"] for each in logs]
                assert min(firsts) == note.block + 1
                mine, theirs = (
                    [(item.event, item.block.number) for item in each.follower.history()]
                    for each in (joiner, member)
                )
                assert mine == theirs
                assert len(mine) >= 3
