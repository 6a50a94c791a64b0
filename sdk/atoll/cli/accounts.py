"""Whose account a command is about: a service's, by its config, or a keystore's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import services
from atoll.cli.network_commands import (
    SIGNING,
    Command,
    Network,
    known_address,
    need_deployment,
    taking,
)
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll.chain.deployment import Deployment
    from atoll.job.account import Reader
    from atoll.protocol.types import Address
    from atoll.service.wallet import Send

Node = Annotated[
    str | None,
    typer.Option("--node", metavar="ADDRESS", help="The account it is about; the key its owner's."),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="A node's or verifier's config file: its account."),
]


@dataclass(frozen=True)
class Whose:
    """What the options name: a config, or a network with a keystore; and whose account it is."""

    config: Path | None
    network: Network
    node: str | None = None

    @cached_property
    def settings(self) -> Any:
        """The service's settings; None without --config."""
        return None if self.config is None else services.load(self.config.expanduser())

    @cached_property
    def account(self) -> Address:
        """What the command is about: another one's with --node. Raises as `address`."""
        named: Address | None = known_address(self.node, "--node")
        return self.address if named is None else named

    @cached_property
    def address(self) -> Address:
        """Whose key it is. Raises ConfigError where none is named, KeystoreError."""
        from atoll.chain.keys import address_of

        keystore = self.network.keystore if self.settings is None else self.settings.keystore
        if keystore is None:
            raise ConfigError(
                "whose account? neither a config nor a keystore is named",
                next_step="pass --config FILE of a node or verifier, or --keystore FILE",
            )
        return address_of(keystore.expanduser())

    @property
    def deployment(self) -> Deployment:
        """The network's. Raises ConfigError."""
        from atoll.chain.deployment import Deployment

        if self.settings is not None:
            return Deployment.load(self.settings.deployment)
        return Deployment.load(need_deployment(self.network.deployment))

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reader]:
        """What the chain says. Raises ConfigError, ChainError."""
        from atoll.job.account import reading

        urls, agreement = self.network.rpc.split(","), 1
        if self.settings is not None:
            urls, agreement = list(self.settings.rpc_urls), self.settings.rpc_agreement
        async with reading(urls, self.deployment, self.folder, agreement) as reader:
            yield reader

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Send]:
        """How the account sends: by its service where that runs. Raises as `wallet.sending`."""
        from atoll.service.wallet import sending, sending_with

        if self.settings is not None:
            async with sending(self.settings) as send:
                yield send
            return
        async with self.network.open(must_sign=True) as client, client.sending() as queue:
            yield sending_with(queue)

    async def require_owner(self, reader: Reader) -> None:
        """Refuses before anything is sent what only the account's owner can do.

        Raises:
            ConfigError: the key is not the owner's.
        """
        me, account = self.address, self.account
        owned = await reader.chain.ownership(account)
        if owned.owner == me:
            return
        step = f"with the owner's key: --keystore FILE --node {account}"
        if owned.proposed == me:
            step = f"`atoll stake owner accept --node {account}` first: it is proposed to {me}"
        raise ConfigError(
            f"{account} belongs to {owned.owner}, and the key is that of {me}", next_step=step
        )

    @property
    def folder(self) -> Path:
        """Where this machine keeps what it knows of the account."""
        if self.settings is not None:
            return Path(self.settings.data_dir)
        return self.network.home.expanduser()

    def transactions(self) -> list[dict[str, Any]]:
        """Every transaction that is known here of the account; empty where none is."""
        from atoll.service.transactions import list_transactions

        try:
            return list_transactions(self.folder)
        except ConfigError:
            return []


def about_account(*, signs: bool = False) -> Callable[[Command], Command]:
    """Has a command take a config, or a network and a keystore, for its argument `whose`.

    Args:
        signs: with what opens the keystore, too.
    """
    options = {name: kind for name, kind in SIGNING.items() if signs or name != "password_file"}

    def made(config: Path | None, node: str | None, **given: Any) -> Whose:
        return Whose(config, Network(**given), node)

    return taking("whose", {"config": (Config, None), "node": (Node, None), **options}, made)
