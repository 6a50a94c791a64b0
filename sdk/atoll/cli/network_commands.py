"""Which chain, contracts and key a command is about: flag, then environment, then what
`atoll network use` kept, then default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from atoll.cli.key_commands import PasswordFile, password_from
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from atoll.job.client import Client

Rpc = Annotated[
    str,
    typer.Option("--rpc", envvar="ATOLL_RPC", help="The chain's endpoints, with commas."),
]
DeploymentFile = Annotated[
    Path | None,
    typer.Option("--deployment", envvar="ATOLL_DEPLOYMENT", help="The network's deployment file."),
]
Keystore = Annotated[
    Path | None,
    typer.Option("--keystore", envvar="ATOLL_KEYSTORE", help="Your keystore; needed to pay."),
]
Home = Annotated[
    Path, typer.Option("--home", envvar="ATOLL_HOME", help="Where this client keeps its files.")
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host",
        envvar="ATOLL_HOST",
        help="The interface to serve the data at; left out, all with a public URL.",
    ),
]
Port = Annotated[
    int,
    typer.Option("--port", envvar="ATOLL_PORT", min=0, max=65535, help="0 is any free one."),
]
PublicUrl = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        envvar="ATOLL_PUBLIC_URL",
        help="Where others reach that: http://203.0.113.7:4001",
    ),
]
PrivatePeers = Annotated[
    bool | None,
    typer.Option(
        "--private-peers",
        envvar="ATOLL_PRIVATE_PEERS",
        help="Members are on this machine or its network, as on a development chain.",
    ),
]
DEFAULT_RPC = "http://127.0.0.1:8545"
DEFAULT_HOME = Path("~/.atoll/client")
__all__ = [
    "DEFAULT_HOME",
    "DEFAULT_RPC",
    "DeploymentFile",
    "Home",
    "Keystore",
    "Network",
    "PasswordFile",
    "Rpc",
    "need_deployment",
    "on_network",
    "taking",
]
Command = Callable[..., None]
Options = Mapping[str, tuple[Any, Any]]
"""Of the command line, in their order: each one's annotation and default."""
WATCHING: Final[Options] = {
    "rpc": (Rpc, DEFAULT_RPC),
    "deployment": (DeploymentFile, None),
    "home": (Home, DEFAULT_HOME),
    "private_peers": (PrivatePeers, None),
}
SIGNING: Final[Options] = {
    **WATCHING,
    "keystore": (Keystore, None),
    "password_file": (PasswordFile, None),
}
SERVING: Final[Options] = {
    **SIGNING,
    "host": (Host, None),
    "port": (Port, 0),
    "public_url": (PublicUrl, None),
}


@dataclass(frozen=True, slots=True)
class Network:
    """What the options say; `keystore` None can only watch. See `ClientConfig`.

    Attributes:
        announce: False where the command brings what a job begins with to verifiers.
    """

    rpc: str
    deployment: Path | None
    home: Path
    keystore: Path | None = None
    password_file: Path | None = None
    host: str | None = None
    port: int = 0
    public_url: str | None = None
    private_peers: bool | None = None
    announce: bool | None = None

    @asynccontextmanager
    async def open(self, *, must_sign: bool = False) -> AsyncIterator[Client]:
        """A connected client.

        Raises:
            ConfigError, KeystoreError: an option is missing or cannot be used.
            ChainError: no endpoint answers, or it is another chain.
        """
        from atoll.chain.keys import load_key

        account = None
        if self.keystore is not None:
            password = password_from(self.password_file)
            account = load_key(self.keystore.expanduser(), password)
        elif must_sign:
            raise ConfigError(
                "this needs a key to sign with",
                next_step="pass --keystore FILE, or make one with `atoll keys new`",
            )
        async with self._client(account, self.port) as client:
            yield client

    @asynccontextmanager
    async def watching(self, port: int) -> AsyncIterator[Client]:
        """A connected client that signs nothing, so that others may, and serves at `port`.

        Raises as `open`.
        """
        async with self._client(None, port) as client:
            yield client

    def _client(self, account: LocalAccount | None, port: int) -> Client:
        from atoll.job.client import Client
        from atoll.job.connection import ClientConfig

        deployment, endpoints = need_deployment(self.deployment), self.rpc.split(",")
        config = ClientConfig(
            home=self.home.expanduser(),
            host=self.host,
            port=port,
            public_url=self.public_url,
            private_peers=self.private_peers,
            announce=self.announce,
        )
        return Client(endpoints, deployment, account, config)


def need_deployment(path: Path | None) -> Path:
    """The deployment file. Raises ConfigError where none is named."""
    if path is None:
        raise ConfigError(
            "which network? no deployment file is named",
            next_step="choose one with `atoll network use FILE` or pass --deployment FILE; `atoll "
            "devnet up` starts a local one",
        )
    return path.expanduser()


def known_address(text: str | None, option: str) -> Any:
    """An option's address, with the capitals of its checksum; None for None. Raises ConfigError."""
    from eth_utils.address import is_address, to_checksum_address

    if text is None:
        return None
    if not is_address(text):
        raise ConfigError(f"{option}: {text!r} is no address", next_step="pass 0x and 40 digits")
    return to_checksum_address(text)


def on_network(*, signs: bool = False, serves: bool = False) -> Callable[[Command], Command]:
    """Has a command take the options of a network for its argument `network`.

    Args:
        signs: with a key, too.
        serves: with a key and where the data is served, too.
    """
    options = SERVING if serves else SIGNING if signs else WATCHING
    return taking("network", options, Network)


def taking(
    argument: str, options: Options, make: Callable[..., object]
) -> Callable[[Command], Command]:
    """Has a command take options in place of one argument, which is made of them.

    The command line sees the options where that argument stands among the others.
    """

    def decorate(command: Command) -> Command:
        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == argument:
                parameters += [_option(each, *kind) for each, kind in options.items()]
            else:
                parameters.append(_option(name, hints[name], parameter.default))

        @functools.wraps(command)
        def run(**given: Any) -> None:
            made = make(**{name: given.pop(name) for name in options})
            command(**given, **{argument: made})

        del run.__wrapped__  # or its parameters would be seen
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in parameters}
        return run

    return decorate


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)
