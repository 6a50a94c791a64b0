"""`atoll tx`: what is stuck is seen, bid for and withdrawn, by the service or without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.chain.conftest import KEYS
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.keys import import_key, load_key
from atoll.chain.txfile import QUEUE_FILE, read_pairing
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import TxState
from atoll.errors import ChainError, ConfigError
from atoll.protocol.types import Address
from atoll.service.config import ServiceConfig
from atoll.service.control import listening
from atoll.service.journal import Belongs, Journal, JournalGone
from atoll.service.lock import hold_folder
from atoll.service.transactions import (
    change_in,
    change_transaction,
    list_transactions,
    opened_queue,
)

PASSWORD = "correct horse battery"


@pytest.fixture
async def config(
    anvil: Anvil, deployment: Deployment, chain: AtollChain, tmp_path: Path
) -> AsyncIterator[ServiceConfig]:
    """A stopped service with one transaction that no block takes."""
    deployment.save(tmp_path / "deployment.json")
    (tmp_path / "password").write_text(PASSWORD)
    key = import_key(tmp_path / "keys", KEYS[0], PASSWORD, devnet=True)
    settings = ServiceConfig(
        rpc_urls=(anvil.url,),
        deployment=tmp_path / "deployment.json",
        keystore=key.path,
        password_file=tmp_path / "password",
        data_dir=tmp_path / "data",
    )
    settings.data_dir.mkdir()
    anvil.automine(False)
    with closing(queue_of(settings, chain)) as queue:
        await queue.submit("1:Approve", chain.calls.approve(spender(chain), 5))
        await queue.pump()
    yield settings


def queue_of(config: ServiceConfig, chain: AtollChain) -> TxQueue:
    account = load_key(config.keystore, PASSWORD)
    return TxQueue(chain, account, config.data_dir / QUEUE_FILE)


def spender(chain: AtollChain) -> Address:
    return chain.deployment.addresses["Stakes"]


def price(anvil: Anvil) -> int:
    (waiting,) = anvil.pending()
    return int(waiting["maxFeePerGas"], 16)


async def test_what_is_stuck_is_bid_for_and_withdrawn(
    config: ServiceConfig, anvil: Anvil, chain: AtollChain
) -> None:
    (row,) = list_transactions(config.data_dir)
    assert (row["call"], row["state"], row["nonce"]) == ("approve", "sent", anvil_nonce(anvil))
    before = price(anvil)
    await change_transaction(config, row["id"], "bump")
    dearer = price(anvil)
    assert dearer > before
    await change_transaction(config, row["id"], "cancel")
    assert price(anvil) > dearer
    assert anvil.pending()[0]["input"] == "0x"  # an empty transfer has the nonce now
    anvil.mine()
    with closing(queue_of(config, chain)) as queue:
        await queue.pump()
    (row,) = list_transactions(config.data_dir)
    assert (row["state"], row["message"]) == ("reverted", "approve was withdrawn")
    with pytest.raises(ChainError, match="no transaction is under way"):
        await change_transaction(config, row["id"], "bump")
    with pytest.raises(ConfigError, match="no transaction has the number 9"):
        await change_transaction(config, 9, "cancel")


async def test_a_running_service_is_asked(
    config: ServiceConfig, anvil: Anvil, chain: AtollChain
) -> None:
    before = price(anvil)
    with hold_folder(config.data_dir), closing(queue_of(config, chain)) as queue:

        async def bump(arguments: dict[str, str]) -> None:
            await change_in(queue, arguments["key"], "bump")

        async with listening(config.data_dir, {"tx-bump": bump}):
            await change_transaction(config, 1, "bump")
    assert price(anvil) > before


async def test_a_command_before_the_first_start_makes_both_files_of_a_folder(
    config: ServiceConfig, chain: AtollChain, tmp_path: Path
) -> None:
    fresh = config.model_copy(update={"data_dir": tmp_path / "fresh"})
    whose = Belongs.of(chain.deployment, load_key(config.keystore, PASSWORD).address)
    for _ in range(2):
        async with opened_queue(fresh) as queue:
            await queue.submit("Approve", chain.calls.approve(spender(chain), 5))
            await queue.pump()
            assert any(tx.state is TxState.SENT for tx in queue.transactions())
        with closing(Journal(fresh.journal_file, whose)) as journal:
            beside = read_pairing(fresh.data_dir / QUEUE_FILE)
            assert beside is not None and beside.signed
            assert (beside.pair, journal.is_new) == (journal.pair, True)
    fresh.journal_file.unlink()
    with pytest.raises(JournalGone, match="is missing"):
        Journal(fresh.journal_file, whose)
    async with opened_queue(fresh) as queue:  # money that is there can still be taken out
        assert queue.waiting()
    assert not fresh.journal_file.exists()


def anvil_nonce(anvil: Anvil) -> int:
    (waiting,) = anvil.pending()
    return int(waiting["nonce"], 16)
