"""`atoll devnet`: a whole network on this machine."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from atoll.cli.jobfile import JobFile, Preset, Settings, Text, chosen_job
from atoll.cli.network_commands import Options, taking
from atoll.cli.output import Json, emit
from atoll.errors import ConfigError
from atoll_devnet.processes.ending import run_until_told

if TYPE_CHECKING:
    from atoll.job.spec import JobSpec
    from atoll_devnet.processes.chain import Backend
    from atoll_devnet.run.options import RunOptions

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="A local network: chain, strangers, cheats, report.",
)

Folder = Annotated[
    Path | None, typer.Option(help="Where the run's files go; default .atoll/runs/TIME.")
]
StoreBackend = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="ATOLL_STORE_BACKEND",
        help="Everyone's storage: embedded, or kubo:http://127.0.0.1:5001.",
    ),
]
SkipWindows = Annotated[bool, typer.Option(help="Move the clock on where everybody only waits.")]
Stranger = Annotated[
    bool, typer.Option("--stranger", help="Somebody attacks everyone, as anybody can.")
]
Report = Annotated[Path | None, typer.Option(help="Write report.json here, too.")]


def _cheats(text: str) -> Any:
    return Annotated[list[str] | None, typer.Option(metavar="NUMBER:NAME", help=text)]


def _most(count: int, text: str) -> Any:
    return Annotated[int | None, typer.Option(min=1, max=count, help=text)]


CAST: Final[Options] = {
    "providers": (_most(64, "Default: the job's seats, or 4."), None),
    "verifiers": (_most(32, "Default: 3, within the job's bounds."), None),
    "cheat": (_cheats("A cheating provider."), None),
    "verifier_cheat": (_cheats("A cheating verifier."), None),
    "watchers": (
        Annotated[int, typer.Option(min=0, max=8, help="Outsiders who dispute what is wrong.")],
        0,
    ),
    "watcher_cheat": (_cheats("A lying watcher."), None),
}


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part in a run, and who of them cheats how."""

    providers: int | None
    verifiers: int | None
    cheat: list[str] | None
    verifier_cheat: list[str] | None
    watchers: int
    watcher_cheat: list[str] | None


JOB: Final[Options] = {
    "job": (JobFile, None),
    "preset": (Preset, None),
    "data": (Text, None),
    "set_": (Settings, None),
}


@dataclass(frozen=True, slots=True)
class ChosenJob:
    """What is trained: a file's job, or a preset's."""

    job: Path | None
    preset: str | None
    data: list[str] | None
    set_: list[str] | None

    def spec(self) -> JobSpec:
        """Raises ConfigError where both are named, or no such job can be."""
        if self.job is not None and self.preset is not None:
            raise ConfigError(
                f"--preset {self.preset} is for a job without a file, and --job names {self.job}",
                next_step="leave one of the two out",
            )
        name = "demo" if self.preset is None else self.preset
        return chosen_job(self.job, name, self.data, self.set_)


PLACE: Final[Options] = {
    "chain": (Annotated[str, typer.Option(help="anvil or ganache.")], "anvil"),
    "skip_windows": (SkipWindows, False),
    "stranger": (Stranger, False),
    "store": (StoreBackend, "embedded"),
    "report": (Report, None),
    "folder": (Folder, None),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Which chain and storage a run is on, what happens around it, and where its files go."""

    chain: str
    skip_windows: bool
    stranger: bool
    store: str
    report: Path | None
    folder: Path | None

    def backend(self) -> Backend:
        """Raises ConfigError for what is no chain."""
        if self.chain not in {"anvil", "ganache"}:
            raise ConfigError(
                f"no chain is called {self.chain!r}", next_step="use --chain anvil or ganache"
            )
        return "ganache" if self.chain == "ganache" else "anvil"


@app.command("run")
@taking("chosen", JOB, ChosenJob)
@taking("cast", CAST, Cast)
@taking("place", PLACE, Place)
def run_command(
    *,
    chosen: ChosenJob,
    cast: Cast,
    place: Place,
    json: Json = False,
) -> None:
    """Run a job on a new local network, and say what became of everyone."""
    from atoll_devnet.run.options import RunOptions, fitting, parse_cheats

    backend, spec = place.backend(), chosen.spec()
    cheats = parse_cheats(cast.cheat or [], "--cheat")
    members = spec.members
    lies = parse_cheats(cast.verifier_cheat or [], "--verifier-cheat")
    is_file = chosen.job is not None
    few = cast.providers or (members.seats if is_file else 4)
    most = cast.verifiers or (max(members.min_verifiers, min(3, members.slots)) if is_file else 3)
    options = RunOptions(
        folder=_new_folder(place.folder),
        providers=few,
        verifiers=most,
        watchers=cast.watchers,
        cheats=cheats,
        verifier_cheats=lies,
        watcher_cheats=parse_cheats(cast.watcher_cheat or [], "--watcher-cheat"),
        backend=backend,
        report=place.report,
        skip_windows=place.skip_windows,
        store=_checked(place.store),
        has_stranger=place.stranger,
        measures=True,
        job=spec if is_file else fitting(spec, few, most, cheats, lies),
    )
    _run(options, json)


ABOUT_THE_DEMO: Final = (
    "A first look: a tiny model learns to write like Python's standard library. "
    "Two of its four providers cheat, to show what becomes of that."
)


@app.command()
def demo(
    stranger: Stranger = False,
    store: StoreBackend = "embedded",
    report: Report = None,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Four providers, two of them cheating, three verifiers: a few minutes on two cores."""
    from atoll.job.presets import PRESETS
    from atoll_devnet.run.options import UNHURRIED, RunOptions

    options = RunOptions(
        folder=_new_folder(folder),
        cheats={2: "poison-segment", 3: "flip5"},
        report=report,
        skip_windows=True,
        store=_checked(store),
        has_stranger=stranger,
        measures=True,
        job=PRESETS["demo"].but({**UNHURRIED, "about": ABOUT_THE_DEMO}),
    )
    _run(options, json)


@app.command()
def up(
    providers: Annotated[int, typer.Option(min=1, max=64)] = 3,
    verifiers: Annotated[int, typer.Option(min=1, max=32)] = 3,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the chain.")] = 8545,
    skip_windows: SkipWindows = False,
    store: StoreBackend = "embedded",
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Start a network and leave it running, for jobs, providers and verifiers of your own."""
    from atoll_devnet.run.standing import StandingNetwork, stand

    def tell(values: dict[str, str]) -> None:
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        emit(values, "\n".join(lines), as_json=json)

    place = _new_folder(folder)
    network = StandingNetwork(place, providers, verifiers, port, _checked(store), skip_windows)
    run_until_told(stand(network, tell))


@app.command("fund")
def fund_command(
    account: Annotated[str, typer.Argument(help="Address of the account.")],
    tokens: Annotated[int, typer.Option(min=0, help="Whole tokens.")] = 10_000,
    rpc: Annotated[str, typer.Option(envvar="ATOLL_RPC")] = "http://127.0.0.1:8545",
    deployment: Annotated[Path | None, typer.Option(envvar="ATOLL_DEPLOYMENT")] = None,
    json: Json = False,
) -> None:
    """Give an account of a local network coin for gas, and tokens."""
    from atoll_devnet.run.standing import give

    if deployment is None:
        raise ConfigError(
            "which network is not said",
            next_step="`atoll network use FILE` of `atoll devnet up`, or pass --deployment FILE",
        )
    asyncio.run(give(account, tokens, rpc, deployment))
    emit({"account": account, "tokens": tokens}, f"{account} has the money", as_json=json)


@app.command()
def cheats(json: Json = False) -> None:
    """List the cheats that can be staged."""
    from atoll_devnet.cheats.catalogue import PROVIDER_CHEATS, VERIFIER_CHEATS, WATCHER_CHEATS

    data = {
        "provider": dict(PROVIDER_CHEATS),
        "verifier": dict(VERIFIER_CHEATS),
        "watcher": dict(WATCHER_CHEATS),
    }
    lines = [
        f"{role:<9} {name:<15} {what}"
        for role, known in data.items()
        for name, what in known.items()
    ]
    emit(data, "\n".join(lines), as_json=json)


def _run(options: RunOptions, json: bool) -> None:
    from atoll_devnet.report.summary import summary
    from atoll_devnet.run.runner import run

    result = run_until_told(run(options))
    emit(result.report, summary(result.report, result.sample, result.folder), as_json=json)
    sys.stdout.flush()


def _checked(store: str) -> str:
    """The backend, where members can publish through it."""
    from atoll.storage.backend import parse_backend

    if parse_backend(store)[0] == "gateway":
        raise ConfigError(
            "members have to keep their blocks, and a gateway only reads",
            next_step="use --store embedded or kubo:URL",
        )
    return store


def _new_folder(folder: Path | None) -> Path:
    name = time.strftime("%Y%m%d-%H%M%S")
    return (folder or Path(".atoll") / "runs" / name).resolve()
