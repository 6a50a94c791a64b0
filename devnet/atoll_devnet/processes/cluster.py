"""A local network: a chain, and every participant as a process with a key and a folder of its own.

Rule of this file: participants share nothing but the addresses of the chain and the contracts; each
gets a copy of what it needs in its own folder.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from atoll.chain.deploy import DeployConfig
from atoll.chain.deployment import Deployment
from atoll.chain.keys import create_key, list_keys, load_key
from atoll.errors import ConfigError
from atoll.protocol.types import Address, Role
from atoll_devnet.cheats.catalogue import (
    check_provider_cheat,
    check_verifier_cheat,
    check_watcher_cheat,
)
from atoll_devnet.processes.chain import Backend, ChainConfig, LocalChain
from atoll_devnet.processes.funding import Grant, deploy_contracts, fund
from atoll_devnet.processes.process import free_port
from atoll_devnet.processes.warm import MemberProcess

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

PROVIDER, VERIFIER, WATCHER = "provider", "verifier", "watcher"
"""Kinds of members."""
STAKE_TOKENS = 10_000
SUBMITTER_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What network to start.

    Attributes:
        folder: everything is in here, logs included; must not hold another network.
        watchers: outsiders who replay settled rounds and dispute what is wrong.
        provider_cheats, verifier_cheats, watcher_cheats: name of the cheat by seat or index.
        confirmations: blocks on top of an event before anyone acts on it.
        block_seconds: as in `ChainConfig`.
        deployment: what the contracts start with; None takes the development network's.
        chain_port: 0 takes a free one.
        in_order: member i takes seat or slot i, and a job opens once all are in.
        store: every member's storage backend.
        beginning: the folder of a network that `prepare_beginning` made, with at least as many
            members; this one starts with its chain, contracts, keys and money.
        owned: providers that name the submitter as owner, and stake nothing before it accepts.
        ranks: of each member that has several, by its name, as `verifier 0`.
    """

    folder: Path
    providers: int = 4
    verifiers: int = 3
    watchers: int = 0
    provider_cheats: Mapping[int, str] = field(default_factory=dict)
    verifier_cheats: Mapping[int, str] = field(default_factory=dict)
    watcher_cheats: Mapping[int, str] = field(default_factory=dict)
    backend: Backend = "anvil"
    block_seconds: float = 0.5
    confirmations: int = 1
    poll_interval_s: float = 0.5
    deployment: DeployConfig | None = None
    chain_port: int = 0
    in_order: bool = True
    store: str = "embedded"
    beginning: Path | None = None
    owned: tuple[int, ...] = ()
    ranks: Mapping[str, int] = field(default_factory=dict)

    def check(self) -> None:
        """Raises ConfigError when the numbers or the cheats do not fit together."""
        if self.providers < 1 or self.verifiers < 1:
            raise ConfigError("a network needs at least one provider and one verifier")
        if self.beginning is not None and (self.backend != "anvil" or self.deployment is not None):
            raise ConfigError("a beginning is one of Anvil, with the contracts that it has")
        for cheats, count, check, what in (
            (self.provider_cheats, self.providers, check_provider_cheat, "seat"),
            (self.verifier_cheats, self.verifiers, check_verifier_cheat, "verifier"),
            (self.watcher_cheats, self.watchers, check_watcher_cheat, "watcher"),
        ):
            for index, name in cheats.items():
                check(name)
                if not 0 <= index < count:
                    raise ConfigError(
                        f"there is no {what} {index}: {count} start, numbered from 0",
                        next_step=f"name a {what} from 0 to {count - 1}",
                    )


@dataclass(frozen=True, slots=True)
class Member:
    """A provider, verifier or watcher of the network.

    Attributes:
        kind: which of these, as `processes.member` names it.
        cheat: the name of what it does wrong, or None.
        account: address of its key.
        port: where its gateway listens; kept over restarts.
    """

    kind: str
    index: int
    cheat: str | None
    account: Address
    folder: Path
    port: int
    process: MemberProcess

    @property
    def name(self) -> str:
        return f"{self.kind} {self.index}"

    @property
    def gateway_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config_file(self) -> Path:
        return self.folder / "config.toml"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "data" / "metrics.json"

    @property
    def journal_file(self) -> Path:
        return self.folder / "data" / "journal.sqlite"


@dataclass(frozen=True, slots=True)
class _Key:
    account: Address
    keystore: Path
    password_file: Path


class Cluster:
    """The network; use it as an async context manager so that nothing survives it."""

    def __init__(self, config: ClusterConfig) -> None:
        config.check()
        self.config = config
        self.folder = config.folder.resolve()
        self.chain = LocalChain(
            ChainConfig(
                self.folder / "chain", config.backend, config.block_seconds, config.chain_port
            )
        )
        self.providers: list[Member] = []
        self.verifiers: list[Member] = []
        self.watchers: list[Member] = []
        self._deployment: Deployment | None = None
        self._submitter: LocalAccount | None = None

    @property
    def deployment(self) -> Deployment:
        if self._deployment is None:
            raise ConfigError("the network has not been started")
        return self._deployment

    @property
    def submitter(self) -> LocalAccount:
        """The account that pays for jobs."""
        if self._submitter is None:
            raise ConfigError("the network has not been started")
        return self._submitter

    @property
    def submitter_folder(self) -> Path:
        return self.folder / "submitter"

    @property
    def members(self) -> Iterator[Member]:
        yield from self.providers
        yield from self.verifiers
        yield from self.watchers

    @property
    def names(self) -> dict[Address, str]:
        """What pages and reports call everybody."""
        known = {member.account: member.name for member in self.members}
        return known | {Address(self.submitter.address): "the submitter"}

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # interrupted while it starts: `__aexit__` is not called then
            self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def start(self) -> None:
        """Chain, contracts, keys, money and processes; returns when all have been started."""
        await self.start_chain()
        for member in self.members:
            member.process.start()

    async def start_chain(self) -> None:
        """Everything but the members' processes."""
        beginning = self.config.beginning
        if beginning is not None:
            shutil.copy(beginning / "chain" / self.chain.state_file.name, self.chain.state_file)
        await self.chain.start()
        if beginning is None:
            self._deployment = await deploy_contracts(self.chain, self.config.deployment)
        else:
            self._deployment = Deployment.load(beginning / "submitter" / "deployment.json")
        key = self._make_key(self.submitter_folder)
        password = key.password_file.read_text(encoding="utf-8")
        self._submitter = load_key(key.keystore, password)
        self.providers = [self._make(PROVIDER, i) for i in range(self.config.providers)]
        self.verifiers = [self._make(VERIFIER, i) for i in range(self.config.verifiers)]
        self.watchers = [self._make(WATCHER, i) for i in range(self.config.watchers)]
        self._deployment = replace(self._deployment, names=self.names)
        self._deployment.save(self.submitter_folder / "deployment.json")
        funded = self.members if beginning is None else iter(self.watchers)
        token = 10**self._deployment.decimals
        grants = [Grant(member.account, STAKE_TOKENS * token) for member in funded]
        if beginning is None:
            grants.append(Grant(key.account, SUBMITTER_TOKENS * token))
        await fund(self.chain, self._deployment, grants)

    def stop(self) -> None:
        """Ends every process; the folder stays."""
        for member in self.members:
            member.process.request_stop()
        for member in self.members:
            member.process.stop()
        self.chain.stop()

    def check(self) -> None:
        """Raises ProcessFailed if the chain, or a member, ended by itself with an error."""
        self.chain.check()
        for member in self.members:
            member.process.check()

    def add(self, role: Role, cheat: str | None = None) -> Member:
        """One more member, not funded and not started."""
        members = self.providers if role is Role.PROVIDER else self.verifiers
        member = self._make(role.name.lower(), len(members), cheat)
        members.append(member)
        return member

    def _make(self, kind: str, index: int, cheat: str | None = None) -> Member:
        cheats = {
            PROVIDER: self.config.provider_cheats,
            VERIFIER: self.config.verifier_cheats,
            WATCHER: self.config.watcher_cheats,
        }
        cheat = cheat or cheats[kind].get(index)
        folder = self.folder / f"{kind}-{index}"
        key, port = self._make_key(folder), free_port()
        self.deployment.save(folder / "deployment.json")
        config_file = folder / "config.toml"
        owned = kind == PROVIDER and index in self.config.owned
        text = self._config_text(key, port, self.submitter.address if owned else None)
        name = f"{kind} {index}"
        devices = ["cpu"] * self.config.ranks.get(name, 1)
        text += f"\n[machine]\ndevices = {json.dumps(devices)}\n" if len(devices) > 1 else ""
        config_file.write_text(text, encoding="utf-8")
        arguments = [kind, "--config", str(config_file)]
        if self.config.in_order and kind != WATCHER:
            place = (index, self.config.providers, self.config.verifiers)
            arguments += ["--place", *map(str, place)]
        arguments += ["--cheat", cheat] if cheat else []
        process = MemberProcess(name, "atoll_devnet.processes.member", arguments, folder / "log")
        return Member(kind, index, cheat, key.account, folder, port, process)

    def _make_key(self, folder: Path) -> _Key:
        """A new key, or the beginning's, whose folder has the same name."""
        folder.mkdir(parents=True, mode=0o700)
        if (
            self.config.beginning is not None
            and (old := self.config.beginning / folder.name).is_dir()
        ):
            return _copy_key(old, folder)
        password, password_file = secrets.token_hex(16), folder / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(password, encoding="utf-8")
        info = create_key(folder / "keys", password, devnet=True)
        return _Key(info.address, info.path, password_file)

    def _config_text(self, key: _Key, port: int, owner: str | None) -> str:
        quoted = json.dumps  # TOML's basic strings are JSON's
        first = "" if owner is None else f"owner = {quoted(owner)}\n"
        return f"""\
{first}rpc_urls = [{quoted(self.chain.rpc_url)}]
deployment = "deployment.json"
keystore = {quoted("keys/" + key.keystore.name)}
password_file = "password"
data_dir = "data"
confirmations = {self.config.confirmations}
poll_interval_s = {self.config.poll_interval_s}
auto_claim = "end"
worker_niceness = 0

[gateway]
port = {port}

[store]
backend = {quoted(self.config.store)}

[keeper]
stagger_s = 2

[fees]
token_in_coin = 1.0
"""


async def prepare_beginning(folder: Path, providers: int, verifiers: int) -> None:
    """Makes what other networks can start from: contracts deployed, keys made, accounts funded.

    Raises what `Cluster.start_chain` raises.
    """
    cluster = Cluster(ClusterConfig(folder, providers, verifiers))
    try:
        await cluster.start_chain()
    finally:
        cluster.stop()  # which has Anvil write its state


def _copy_key(old: Path, folder: Path) -> _Key:
    shutil.copy(old / "password", folder)
    shutil.copytree(old / "keys", folder / "keys")
    (info,) = list_keys(folder / "keys")
    return _Key(info.address, info.path, folder / "password")
