"""`atoll node` and `atoll verifier`: set up and run a member of the network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from atoll.cli import services
from atoll.cli.config_command import Set
from atoll.cli.network_commands import (
    DEFAULT_RPC,
    DeploymentFile,
    Options,
    PasswordFile,
    Rpc,
    known_address,
    taking,
)
from atoll.cli.output import Json, emit

Folder = Annotated[Path, typer.Option(help="Where its key, config and data are.")]
Config = Annotated[Path, typer.Option("--config", help="Its config file.")]


def price_option(text: str) -> Any:
    """An option with an amount that is not below zero."""
    return typer.Option(min=0, metavar="N", help=text)


def _price(text: str, usual: float) -> tuple[Any, float]:
    return Annotated[float, price_option(text)], usual


PRICES: Final[Options] = {
    "watts": _price("The machine draws at work.", 350.0),
    "electricity": _price("Dollars for a kilowatt hour.", 0.30),
    "rent": _price("Dollars an hour for the machine.", 0.0),
    "gas_gwei": _price("Gwei for a unit of gas.", 0.005),
    "coin": _price("Dollars for one of the chain's coins.", 3000.0),
    "token": _price("Dollars for one of the network's tokens.", 1.0),
    "interest": _price("A year, that what is locked could have earned elsewhere.", 0.05),
}
"""By the fields of `atoll.job.break_even.MemberPrices`."""


@dataclass(frozen=True, slots=True)
class RoleCommand:
    """What tells the two roles apart on the command line.

    Attributes:
        command: the word after `atoll`.
        service: the module whose `serve` runs it.
    """

    command: str
    role: str
    service: str

    @property
    def folder(self) -> Path:
        return Path("~/.atoll") / self.command


def member_app(member: RoleCommand) -> typer.Typer:
    """The commands of one role."""
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, help=f"Set up and run a {member.role}."
    )
    default_config = member.folder / services.CONFIG_NAME

    _add_init(app, member)

    @app.command()
    def run(
        config: Config = default_config,
        settings: Set = None,
        new_journal: services.NewJournal = False,
    ) -> None:
        """Run until told to stop; a restart takes up where this one was."""
        start = (f"atoll {member.command} run", member.service, config.expanduser())
        code = services.run_service(*start, settings or [], new_journal=new_journal)
        raise typer.Exit(code)

    _add_feasibility(app, member, default_config)

    @app.command()
    def status(config: Config = default_config, json: Json = False) -> None:
        """Say what keeps it from its work, with the next step; then what it does and has done."""
        verdict = services.status_of(config.expanduser())
        emit(verdict, services.status_text(verdict), as_json=json)

    add_stop(app, default_config)
    _add_orders(app, default_config)
    return app


def _add_feasibility(app: typer.Typer, member: RoleCommand, default_config: Path) -> None:
    """What is asked before anything is staked."""

    @app.command()
    @taking("prices", PRICES, dict)
    def feasibility(
        job: Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)],
        config: Config = default_config,
        *,
        prices: dict[str, float],
        json: Json = False,
    ) -> None:
        """Time some steps of a job's model here, and hold them against its windows: whether this
        machine keeps up, how much memory, disk and line it takes, and from which price on it pays.
        Exits with 2 where it does not keep up.

        It takes two minutes at most, and torch. Nothing is sent or staked; a service that trains
        meanwhile makes it slower.
        """
        verdict = services.fit_of(config.expanduser(), member.role, job, prices)
        emit(verdict.to_json_value(), "\n".join(verdict.lines()), as_json=json)
        if not verdict.fits:
            raise typer.Exit(services.DOES_NOT_FIT)


def add_stop(app: typer.Typer, default_config: Path) -> None:
    """What ends a service, however it was started."""

    @app.command()
    def stop(
        config: Config = default_config,
        wait: Annotated[
            float, typer.Option("--wait", min=0, help="Seconds for an orderly end.")
        ] = 60.0,
        kill: Annotated[
            bool, typer.Option("--kill", help="Then kill it: nothing that it signed is lost.")
        ] = False,
        json: Json = False,
    ) -> None:
        """End the running service, also one in the background, frozen or hanging, and wait for it.

        It says what is owed meanwhile: a seat that is absent is penalised. `drain` gives slots up
        first.
        """
        from atoll.cli.stopping import stop as stop_service

        ended = stop_service(config.expanduser(), wait, kills=kill)
        emit(ended, ended["text"], as_json=json)


Owner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="ADDRESS",
        help="Who alone moves the stake and has the pay, once it accepts: a key kept elsewhere.",
    ),
]


def _add_init(app: typer.Typer, member: RoleCommand) -> None:
    """What makes a member's folder."""

    @app.command()
    def init(
        folder: Folder = member.folder,
        key: Annotated[
            Path | None, typer.Option(help="A keystore to use; left out, a new key is made.")
        ] = None,
        password_file: PasswordFile = None,
        host: Annotated[
            str | None,
            typer.Option(help="The interface to serve blocks at; left out, all with a public URL."),
        ] = None,
        port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 0,
        public_url: Annotated[
            str | None, typer.Option(help="Where others reach it: http://203.0.113.7:4001")
        ] = None,
        reward: Annotated[
            str | None,
            typer.Option("--reward", metavar="ADDRESS", help="Another address that has the pay."),
        ] = None,
        owner: Owner = None,
        rpc: Rpc = DEFAULT_RPC,
        deployment: DeploymentFile = None,
        json: Json = False,
    ) -> None:
        """Make a folder with a key and a config; at a terminal, what is left out is asked."""
        to = known_address(reward, "--reward")
        choices = services.Choices(
            member.role,
            rpc,
            deployment,
            password_file,
            key,
            host,
            port,
            public_url,
            to,
            known_address(owner, "--owner"),
        )
        where = folder.expanduser()
        made = services.write_config(where, choices if json else services.asked(choices))
        emit(made, "\n".join(_made_lines(member, made, choices.owner)), as_json=json)


def _made_lines(member: RoleCommand, made: dict[str, str], owner: str | None) -> list[str]:
    """What to do with a new folder, in that order; an owner's tokens never lie with the node."""
    node, config = made["address"], made["config"]
    start = services.starting(member.command, "run", config=config)
    if owner is None:
        return [node, f"fund it, then: {start}"]
    return [
        node,
        "send it coin for gas, and no tokens; then:",
        f"  {services.starting('stake', 'owner', 'propose', config=config)}",
        f"with the key of {owner}, which needs coin and the tokens that are to be staked:",
        f"  atoll stake owner accept --node {node}",
        f"  atoll stake add AMOUNT --as {member.role} --node {node}",
        f"then: {start}",
    ]


def _add_orders(app: typer.Typer, default_config: Path) -> None:
    """What a running service is told; each prints where it stands then."""

    def obeyed(config: Path, what: str, json: bool, **arguments: int) -> None:
        orders = services.order(config.expanduser(), what, **arguments)
        emit(orders, services.orders_text(orders) or "takes part", as_json=json)

    @app.command()
    def drain(config: Config = default_config, json: Json = False) -> None:
        """Finish the running rounds, leave every job, and end once all bonds are home.

        Until then it does what it still owes: keys, audit reports, games. A restart goes on
        draining; started again behind the end it joins nothing until `resume`.
        """
        obeyed(config, "drain", json)

    @app.command()
    def pause(config: Config = default_config, json: Json = False) -> None:
        """Finish the running rounds, leave every job, join none, until `resume`.

        A seat owes every round that it counts in: who only stopped would be penalised.
        """
        obeyed(config, "pause", json)

    @app.command()
    def resume(config: Config = default_config, json: Json = False) -> None:
        """Take part again after `pause`, `drain` or `leave`."""
        obeyed(config, "resume", json)

    @app.command()
    def leave(
        job: Annotated[int, typer.Argument(metavar="JOB", help="The job's number.", min=1)],
        config: Config = default_config,
        json: Json = False,
    ) -> None:
        """Finish the running round of one job, leave it, and do not join it again."""
        obeyed(config, "leave", json, job=job)

    @app.command()
    def schedule(config: Config = default_config, json: Json = False) -> None:
        """Show the hours in which it joins rounds, and whether it is in them now.

        They are set in the config's section `schedule`, as `hours = ["22:00-06:30"]`, in UTC.
        """
        orders = services.schedule_of(config.expanduser())
        emit(orders, services.schedule_text(orders), as_json=json)


node = member_app(RoleCommand("node", "provider", "atoll_node.service"))
verifier = member_app(RoleCommand("verifier", "verifier", "atoll_verifier.service"))
