"""What members of a network begin with: tokens for bonds, coin for gas.

Rule of this file: an account is brought up to an amount, so that who asks twice pays once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.cli import services
from atoll.cli.network_commands import Network, known_address
from atoll.errors import InsufficientFunds

if TYPE_CHECKING:
    from atoll.chain.txqueue import TxQueue
    from atoll.job.client import Client
    from atoll.protocol.types import Address


async def fund_all(
    network: Network, members: list[str], tokens: str, coin: str
) -> list[dict[str, Any]]:
    """Brings each account up to so many tokens, and so much of the chain's coin.

    Raises:
        ConfigError: an account or an amount is none, or no key is named.
        InsufficientFunds: there is not enough for all; what was sent stays sent.
    """
    from atoll.job.groups import wei_of
    from atoll.protocol.token_units import MOST_DECIMALS

    accounts = [account_of(text) for text in members]
    async with network.open(must_sign=True) as client, client.sending() as queue:
        units, wei = wei_of(tokens), wei_of(coin, MOST_DECIMALS)
        return [await _fund(client, queue, account, tokens=units, coin=wei) for account in accounts]


def account_of(text: str) -> Address:
    """An address, or that of a service's folder or config. Raises ConfigError, KeystoreError."""
    from atoll.chain.keys import address_of

    place = Path(text).expanduser()
    if place.is_dir():
        place = place / services.CONFIG_NAME
    if place.is_file():
        return address_of(services.load(place).keystore)
    address: Address = known_address(text, "MEMBER")
    return address


async def _fund(
    client: Client, queue: TxQueue, to: Address, *, tokens: int, coin: int
) -> dict[str, Any]:
    """Of tokens and of the chain's coin, in wei."""
    from atoll.chain.call import Call
    from atoll.chain.txqueue import unspent_key
    from atoll.job.event_text import coin as shown_coin
    from atoll.job.event_text import tokens as shown

    chain = client.chain
    has, has_coin = await chain.token_balance(to), await chain.native_balance(to)
    lacks, lacks_coin = max(0, tokens - has), max(0, coin - has_coin)
    await _check(client, lacks, lacks_coin)
    if lacks:
        key = unspent_key(queue, f"fund:{to}:{has}:{lacks}")
        await client.transact(key, chain.calls.transfer(to, lacks))
    if lacks_coin:
        key = unspent_key(queue, f"gas:{to}:{has_coin}:{lacks_coin}")
        await queue.submit(key, Call(to, b"", "send"), value=lacks_coin, retry_failed=True)
        await queue.wait(key)
    text = f"{shown(lacks)} tokens, {shown_coin(lacks_coin)} of the chain's coin sent"
    sent = {"tokens_wei": str(lacks), "coin_wei": str(lacks_coin)}
    return {"address": to, **sent, "text": text}


async def _check(client: Client, tokens: int, coin: int) -> None:
    """Raises InsufficientFunds."""
    from atoll.job.event_text import coin as shown_coin
    from atoll.job.event_text import tokens as shown_tokens

    me = client.address
    for name, needed, there, shown in (
        ("tokens", tokens, await client.chain.token_balance(me), shown_tokens),
        ("of the chain's coin", coin, await client.chain.native_balance(me), shown_coin),
    ):
        if needed > there:
            raise InsufficientFunds(
                f"{me} has {shown(there)} {name}, and {shown(needed)} are lacking elsewhere",
                next_step="name another --keystore, or send less",
            )
