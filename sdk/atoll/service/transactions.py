"""An operator's view of a service's transactions, whether it runs or not.

Rule of this file: a key has one writer. Where the service runs it is asked; where it does not, the
folder is held while its queue is used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final, Literal

from atoll.chain.contracts import AtollChain
from atoll.chain.deployment import Deployment
from atoll.chain.keys import load_key, read_password
from atoll.chain.txconfig import GWEI, QueueConfig
from atoll.chain.txfile import QUEUE_FILE, read_intents
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import Intent, TxState
from atoll.errors import ChainError, ConfigError
from atoll.protocol.token_units import parts_of
from atoll.service.config import ServiceConfig
from atoll.service.control import ask
from atoll.service.journal import Belongs, Journal
from atoll.service.lock import hold_folder, holder_of

Change = Literal["bump", "cancel"]
CHANGES: Final[tuple[Change, ...]] = ("bump", "cancel")
LIST: Final = "`atoll tx list --config …` has every one"
UNDER_WAY: Final = frozenset({TxState.QUEUED, TxState.SENT})


def list_transactions(data_dir: Path) -> list[dict[str, Any]]:
    """Every transaction of a data folder, oldest first; nothing is locked or written.

    Raises:
        ConfigError: no transaction was ever asked for there.
        StorageError: the file cannot be read.
    """
    return [_row(intent) for intent in read_intents(data_dir / QUEUE_FILE)]


async def change_transaction(config: ServiceConfig, number: int, change: Change) -> dict[str, Any]:
    """Bids more for a transaction that no block takes, or withdraws it; where it stands then.

    Args:
        number: its `id` in the list.

    Raises:
        ConfigError, KeystoreError: no such transaction, or the key cannot be used.
        ChainError: it is not under way, or the fee cap forbids a higher bid.
    """
    key = _key_of(config.data_dir, number)
    if holder_of(config.data_dir) is not None:
        await ask(config.data_dir, f"tx-{change}", key=key)
    else:
        async with opened_queue(config) as queue:
            await change_in(queue, key, change)
    return next(row for row in list_transactions(config.data_dir) if row["id"] == number)


async def change_in(queue: TxQueue, key: str, change: Change) -> None:
    """Does it with a queue that is at hand. Raises ChainError."""
    await (queue.bump(key) if change == "bump" else queue.cancel(key))


@asynccontextmanager
async def opened_queue(config: ServiceConfig) -> AsyncIterator[TxQueue]:
    """A stopped service's queue, its folder held meanwhile; nobody works at it yet.

    Raises:
        ConfigError, KeystoreError: another process runs in the folder, or the key cannot be used.
        ChainError: no endpoint answers, or it is another chain.
        JournalError: there is no queue's file yet, and the journal that it would be beside is no
            journal of this account.
    """
    config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold_folder(config.data_dir):
        account = load_key(config.keystore, read_password(config.password_file))
        deployment = Deployment.load(config.deployment)
        chain = await AtollChain.connect(config.rpc_urls, deployment, config.rpc_agreement)
        try:
            path, pair = config.data_dir / QUEUE_FILE, ""
            if not path.exists():  # the journal is made first: no queue's file was ever alone
                whose = Belongs.of(deployment, account.address)
                with closing(Journal(config.journal_file, whose)) as journal:
                    pair = journal.pair
            cap, per_stake = config.fees.max_fee_gwei * GWEI, config.fees.per_stake
            per_stake *= parts_of(deployment.decimals)
            bids = QueueConfig(fee_cap=cap, fee_per_stake=per_stake, pair=pair)
            with closing(TxQueue(chain, account, path, bids)) as queue:
                yield queue
        finally:
            await chain.close()


def _key_of(data_dir: Path, number: int) -> str:
    for row in list_transactions(data_dir):
        if row["id"] == number:
            break
    else:
        raise ConfigError(f"no transaction has the number {number}", next_step=LIST)
    if row["state"] not in UNDER_WAY:
        # Its key may stand for a later one, which nobody meant.
        raise ChainError(
            f"no transaction is under way as {number}: it is {row['state']}",
            next_step=LIST,
        )
    return str(row["key"])


def _row(intent: Intent) -> dict[str, Any]:
    return {
        "id": intent.id,
        "call": intent.call.label,
        "state": str(intent.state),
        "nonce": intent.nonce,
        "block": intent.block_number,
        "gas": intent.gas_used,
        "fee_wei": None if intent.fee_wei is None else str(intent.fee_wei),
        "tx_hash": intent.tx_hash,
        "key": intent.key,
        "message": intent.message,
    }
