"""`atoll network`: put the contracts on a chain, look at them, compare them with this version."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from atoll.cli import governing, network_choice
from atoll.cli.key_commands import password_from
from atoll.cli.network_commands import (
    DEFAULT_RPC,
    DeploymentFile,
    Keystore,
    Network,
    PasswordFile,
    Rpc,
    known_address,
    need_deployment,
    on_network,
)
from atoll.cli.output import Json, agree, emit, say
from atoll.cli.parameters import Settings, parameters, plain, proposal_lines, shown
from atoll.errors import ChainError, ConfigError, StorageError

if TYPE_CHECKING:
    from atoll.chain.contracts import AtollChain
    from atoll.chain.deployment import Deployment
    from atoll.protocol.types import Address, Params

T = TypeVar("T")
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Deploy a network's contracts, show and verify them, and own it.",
)
DAY = 24 * 60 * 60
BeaconKind = Literal["drand", "history"]
Beacon = Annotated[
    BeaconKind | None,
    typer.Option(help="What draws: drand, or blocks' hashes; left out, the chain's own."),
]
BEACONS: dict[BeaconKind, str] = {"drand": "DrandBeacon", "history": "HistoryBeacon"}
SAID_IN_WORDS = ("proposedParams", "proposedPolicy")


@app.command()
def deploy(
    out: Annotated[Path, typer.Option(help="Where the deployment file goes.")],
    token: Annotated[
        str | None,
        typer.Option(help="An ERC-20 with permit and without transfer fees; none makes a new one."),
    ] = None,
    supply: Annotated[
        int, typer.Option(min=1, max=10**15, help="Of a new token, all of it yours.")
    ] = 10**9,
    decimals: Annotated[
        int, typer.Option(min=6, max=18, help="Of a new token; another one says its own.")
    ] = 18,
    owner: Annotated[
        str | None, typer.Option(help="Who may propose parameters and pause; you, if excluded.")
    ] = None,
    unbonding_days: Annotated[int, typer.Option(min=1, max=365)] = 7,
    change_days: Annotated[int, typer.Option(min=1, max=30)] = 2,
    beacon: Beacon = None,
    settings: Settings = None,
    explorer: Annotated[
        str, typer.Option(metavar="URL", help="Where people look at the chain: pages link there.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before paying gas.")] = False,
    rpc: Rpc = DEFAULT_RPC,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    json: Json = False,
) -> None:
    """Deploy every contract from a key, write the deployment file, and verify what is there.

    A deployment that is cut short is begun anew by the next one: what is there then is nobody's.
    """
    from atoll.chain.default_params import default_params
    from atoll.chain.deploy import DeployConfig, ask_chain_id
    from atoll.chain.deploy import deploy as put_on_chain
    from atoll.chain.deployment import checked_explorer
    from atoll.chain.keys import load_key
    from atoll.chain.verification import folder_beside, write_requests
    from atoll.protocol.token_units import decimals_used, use_decimals

    _require_new(out, folder_beside(out))
    explorer = checked_explorer(explorer)
    if keystore is None:
        raise ConfigError("which key deploys?", next_step="pass --keystore FILE")
    chosen = known_address(token, "--token")
    use_decimals(decimals if chosen is None else asyncio.run(_decimals(rpc, chosen)))
    chain_id = asyncio.run(ask_chain_id(rpc.split(",")))
    params = parameters(default_params(chain_id, decimals_used()), settings or [])
    config = DeployConfig(
        token=chosen,
        decimals=decimals_used(),
        supply=supply,
        owner=known_address(owner, "--owner"),
        params=params,
        beacon=None if beacon is None else BEACONS[beacon],
        unbonding_delay=unbonding_days * DAY,
        change_delay=change_days * DAY,
    )
    account = load_key(keystore.expanduser(), password_from(password_file))
    _agree(params, config.owner or account.address, account.address, yes=yes, json=json)
    made = asyncio.run(put_on_chain(rpc.split(","), account, config))
    made = replace(made, explorer=explorer)
    _save(made, out, json=json)
    say(f"{out} has the deployment: whoever joins the network needs it")
    write_requests(made, folder_beside(out), is_new_token=chosen is None)
    say(f"{folder_beside(out)} has what Sourcify is asked with, a file for each address")
    _say_what_follows(made)
    _verify(rpc, out, json=json)


@app.command()
def show(rpc: Rpc = DEFAULT_RPC, deployment: DeploymentFile = None, json: Json = False) -> None:
    """Show the contracts, everything that they say of themselves, and what its owner proposed."""
    from atoll.chain.configuration import read_configuration
    from atoll.chain.inspection import read_parameters

    async def read(chain: AtollChain) -> tuple[dict[str, Any], list[str]]:
        head, now = await chain.head(), await read_configuration(chain)
        return {
            "chain_id": chain.deployment.chain_id,
            "block": head.number,
            "since_block": chain.deployment.block,
            "addresses": dict(sorted(chain.deployment.addresses.items())),
            "parameters": await read_parameters(chain),
            "configuration": plain(now),
        }, proposal_lines(now)

    contracts, proposed = _asked(rpc, deployment, read)
    emit(contracts, "\n".join([*_lines(contracts), *proposed]), as_json=json)


@app.command()
@on_network(signs=True)
def fund(
    members: Annotated[
        list[str],
        typer.Argument(metavar="MEMBER…", help="Addresses, or folders of `atoll node init`."),
    ],
    tokens: Annotated[str, typer.Option(help="Each has so many tokens then.")] = "0",
    coin: Annotated[str, typer.Option(help="And so much of the chain's coin, for gas.")] = "0",
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Send accounts what they lack of an amount of tokens and coin; nothing to who has as much."""
    from atoll.cli.funding import fund_all

    sent = asyncio.run(fund_all(network, members, tokens, coin))
    text = "\n".join(f"{each['address']}  {each['text']}" for each in sent)
    emit(sent, text, as_json=json)


@app.command()
def verify(rpc: Rpc = DEFAULT_RPC, deployment: DeploymentFile = None, json: Json = False) -> None:
    """Compare the code at every address, and what it names, with this version's; exits with 3."""
    _verify(rpc, deployment, json=json)


app.command()(network_choice.use)
for each in (governing.pause, governing.resume, governing.propose, governing.apply):
    app.command()(each)
app.add_typer(governing.owner, name="owner")


def _verify(rpc: str, deployment: Path | None, *, json: bool) -> None:
    from atoll.chain.inspection import verify_contracts

    checks = _asked(rpc, deployment, verify_contracts)
    wrong = [f"{check.name}: {problem}" for check in checks for problem in check.problems]
    lines = [
        f"{'ok' if not check.problems else 'not':<4} {check.name:<17} {check.address}  "
        f"{'; '.join(check.problems) or check.note or f'{check.code_bytes} bytes'}"
        for check in checks
    ]
    document = {"ok": not wrong, "contracts": [check.to_json_value() for check in checks]}
    emit(document, "\n".join(lines), as_json=json)
    if wrong:
        raise ChainError(
            f"{len(wrong)} contracts are not this version's: {wrong[0]}",
            next_step="ask whoever runs the network for its version of atoll and deployment file",
        )


def _asked(rpc: str, deployment: Path | None, question: Callable[[AtollChain], Awaitable[T]]) -> T:
    """What a deployment answers. Raises ConfigError, ChainError."""
    from atoll.chain.contracts import AtollChain
    from atoll.chain.deployment import Deployment

    known = Deployment.load(need_deployment(deployment))

    async def ask() -> T:
        chain = AtollChain(rpc.split(","), known)
        try:
            await chain.provider.check_all()
            return await question(chain)
        finally:
            await chain.close()

    return asyncio.run(ask())


def _require_new(out: Path, folder: Path) -> None:
    """That both can be made there, before anything is paid. Raises ConfigError."""
    for path in (out, folder):
        if path.exists():
            raise ConfigError(f"{path} exists already", next_step="name another file with --out")
    try:
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ConfigError(
            f"no file can be made in the folder {out.parent}: {error.strerror}",
            next_step="make the folder, or name another file with --out",
        ) from error


def _say_what_follows(made: Deployment) -> None:
    """From what the chain has."""
    if "BlsPolicy" not in made.addresses:
        say("this chain has no precompiles for BLS12-381 (EIP-2537): certificates in ECDSA only")
    if "DrandBeacon" in made.addresses:
        say("draws wait for drand's signatures, which every member posts; api.drand.sh has them")


def _save(made: Deployment, out: Path, *, json: bool) -> None:
    """Writes the deployment file; one that cannot be written is printed, for it is paid for.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        made.save(out)
    except OSError as error:
        emit(asdict(made), made.to_json(), as_json=json)
        raise StorageError(
            f"all is deployed, and {out} cannot be written: {error.strerror}",
            next_step="put what was printed into a file: it is the deployment file",
        ) from error


async def _decimals(rpc: str, token: Address) -> int:
    from atoll.chain.deploy import decimals_of
    from atoll.chain.rpc import FailoverProvider

    provider = FailoverProvider(rpc.split(","), chain_id=None)
    try:
        return await decimals_of(provider, token)
    finally:
        await provider.disconnect()


def _agree(params: Params, owner: str, payer: str, *, yes: bool, json: bool) -> None:
    """Says what is deployed, and asks, unless told not to. Raises ConfigError."""
    for name, value in asdict(params).items():
        say(f"{name:<20} {shown(name, value)}")
    say(f"owner {owner}; gas is paid by {payer}")
    agree("deploy a network", yes=yes, as_json=json)


def _lines(contracts: dict[str, Any]) -> list[str]:
    lines = [f"chain {contracts['chain_id']}, at block {contracts['block']}"]
    for name, address in contracts["addresses"].items():
        lines.append(f"{name:<17} {address}")
        for view, value in contracts["parameters"].get(name, {}).items():
            if view in SAID_IN_WORDS:
                continue
            if isinstance(value, dict):
                lines += [f"    {field:<20} {part}" for field, part in value.items()]
            else:
                lines.append(f"    {view:<20} {value}")
    return lines
