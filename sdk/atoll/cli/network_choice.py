"""`atoll network use`: which network commands mean that are not told one.

It is the default of a network's options: a flag goes before a variable, and that before what is
kept here, each by itself.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from atoll.cli.output import Json, emit, say, table
from atoll.errors import ConfigError, StorageError

NOT_FOR: Final = frozenset({"deploy", "use"})
"""Commands that make a network, or choose one: what is chosen already is no default of theirs."""
OPTIONS: Final = {"ATOLL_RPC": "rpc", "ATOLL_DEPLOYMENT": "deployment"}
"""By their variables, which every option of a network has."""
MOST_BYTES: Final = 1 << 20
SECONDS: Final = 30.0


def take_chosen(command: Any) -> None:
    """Has a command's options of a network, and those of all below it, default to what is chosen.

    What is kept is read when an option needs it, so that nothing else fails where it is damaged.
    """
    if command.name in NOT_FOR:
        return
    for option in command.params:
        attribute = OPTIONS.get(getattr(option, "envvar", None) or "")
        if attribute is not None:
            usual = option.default
            option.default = partial(_chosen, attribute, usual)
            option.show_default = f"the chosen network's{f', else {usual}' if usual else ''}"
    for inner in getattr(command, "commands", {}).values():
        take_chosen(inner)


def _chosen(attribute: str, usual: Any) -> Any:
    from atoll.job.chosen_network import chosen_network

    network = chosen_network()
    return (getattr(network, attribute) if network is not None else "") or usual


def use(
    network: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|URL|NAME]",
            help="A deployment file, where one is fetched, or the name of a network that was used.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="To call it; default the file's own.")
    ] = None,
    rpc: Annotated[
        str | None, typer.Option("--rpc", help="Its chain's endpoints, with commas; kept, too.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Choose none.")] = False,
    json: Json = False,
) -> None:
    """Choose the network of all commands that are not told one; with nothing, list those known.

    What is kept is a copy: use the file again where the network is deployed anew. A flag or a
    variable (ATOLL_DEPLOYMENT, ATOLL_RPC) still says another one for a while.
    """
    from atoll.job.chosen_network import choose_network, known_networks

    if none or network is None:
        if network is not None or name is not None or rpc is not None:
            raise ConfigError("--name and --rpc are of a network that is used, --none of none")
        if none:
            choose_network(None)
        _show(as_json=json)
        return
    if rpc is not None:
        _require_endpoints(rpc)
    known = known_networks().get(network)
    if known is None:
        _keep(network, name, rpc or "")
    elif name is not None:
        raise ConfigError(
            f"{network} is known by that name", next_step=f"for a file: ./{network} --name NAME"
        )
    else:
        _use_known(known.name, rpc if rpc is not None else known.rpc)
    _show(as_json=json)


def _require_endpoints(rpc: str) -> None:
    from atoll.chain.urls import require_endpoint

    for url in rpc.split(","):
        require_endpoint(url)


def _use_known(name: str, rpc: str) -> None:
    from atoll.job.chosen_network import keep_network, known_networks

    known = known_networks()[name]
    text = _read(known.deployment).to_json()
    keep_network(name, text, rpc=rpc, source=known.source)


def _keep(place: str, name: str | None, rpc: str) -> None:
    """Copies what a file or a URL has, and chooses it."""
    from atoll.chain.deployment import Deployment
    from atoll.job.chosen_network import keep_network, known_networks

    if "://" in place:
        deployment, source = Deployment.from_json(asyncio.run(_fetched(place))), place
        stem = place.split("?", 1)[0].rstrip("/").rpartition("/")[2].removesuffix(".json")
    else:
        path = Path(place).expanduser()
        if not path.exists():
            names = ", ".join(known_networks()) or "none yet"
            raise ConfigError(
                f"no file and no known network: {place}",
                next_step=f"known: {names}; ask whoever runs a network for its deployment file",
            )
        deployment, source, stem = Deployment.load(path), str(path.absolute()), path.stem
    name = name or stem
    before = known_networks().get(name)
    if before is not None and _read(before.deployment) != deployment:
        say(f"{name} had other contracts before, from {before.source}")
    keep_network(name, deployment.to_json(), rpc=rpc, source=source)


def _read(path: Path) -> Any:
    from atoll.chain.deployment import Deployment

    return Deployment.load(path)


async def _fetched(url: str) -> str:
    """A deployment file's text. Whoever could change it on its way could take all that is paid, so
    it comes encrypted, or from this machine, and from no place that another one names.

    Raises:
        ConfigError: the URL is none of these. StorageError: it is not there.
    """
    import aiohttp

    from atoll.chain.urls import is_of_this_machine
    from atoll.proxies import proxy_of

    if not url.startswith("https://") and not (
        url.startswith("http://") and is_of_this_machine(url)
    ):
        raise ConfigError(f"{url} is not https://", next_step="fetch it by hand, and pass the file")
    step = "fetch it by hand, and pass the file"
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, proxy=proxy_of(url), allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                where = answer.headers.get("Location", "")
                more = f", and names {where}" if where else ""
                raise StorageError(f"{url} answers {answer.status}{more}", next_step=step)
            content = bytearray()
            async for part in answer.content.iter_chunked(1 << 16):
                content += part
                if len(content) > MOST_BYTES:
                    raise StorageError(f"{url} has more than {MOST_BYTES} bytes", next_step=step)
            return content.decode()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StorageError(f"cannot fetch {url}: {reason}", next_step=step) from error


def _show(*, as_json: bool) -> None:
    from atoll.chain.urls import redact
    from atoll.job.chosen_network import chosen_network, known_networks

    chosen = chosen_network()
    rows = [
        {
            "used": chosen is not None and network.name == chosen.name,
            "name": network.name,
            "chain_id": _read(network.deployment).chain_id,
            "rpc": ",".join(map(redact, network.rpc.split(","))) if network.rpc else "",
            "source": network.source,
            "deployment": str(network.deployment),
        }
        for network in known_networks().values()
    ]
    lines = [{**row, "used": "*" if row["used"] else ""} for row in rows]
    emit(rows, table(list(lines)), as_json=as_json)
