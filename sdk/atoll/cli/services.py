"""What `atoll node` and `atoll verifier` share: a folder with a config, and the service in it.

Rule of this file: services are found by name, since their packages import atoll and not the other
way round.
"""

from __future__ import annotations

import importlib
import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.key_commands import password_from
from atoll.errors import ConfigError
from atoll.job.readable import moment

if TYPE_CHECKING:
    from atoll.job.feasibility import Feasibility
    from atoll.service.watcher import Player

NewJournal = Annotated[
    bool,
    typer.Option(
        "--new-journal",
        help="Go on though the journal is lost, once nobody else acts with the key: what was "
        "signed in rounds that still count may be signed otherwise, which costs the bond.",
    ),
]
CONFIG_NAME = "config.toml"
DOES_NOT_FIT = 2
"""The exit code of a machine that does not keep up with a job."""
COMMANDS = {"provider": "node", "verifier": "verifier"}
MACHINE = """
[machine]
# The GPUs on which it trains and replays, a rank each: "all", or some of them. Without a line it is
# one rank on the CPU; ["cpu", "cpu"] is two.
# devices = ["cuda:0", "cuda:1"]
"""
POLICY = """
[policy]
# What is staked on: a job that is refused costs nothing. Without a line there is no bound.
# By itself it takes no job that pays nothing, that may lock its bond for more than 30 days, or
# whose windows leave less than a minute for a transaction, which a development chain's may.
jobs_at_once = 1
largest_share = 0.5
most_of_window = 0.8
# What an hour of this machine has to earn, in tokens: of every job it works out the price.
# least_per_hour = 1
# The least price of a million trained tokens, and the least fee of a replay, in units of the
# network's token. `atoll node feasibility JOB`, or `atoll verifier feasibility JOB`, says what such
# a job earns this machine, and from which price on an hour of it is a token.
# least_million_wei = 1000000000000000000 least_fee_wei = 1000000000000000000
# longest_lock = 30 least_move_s = 60 largest_bond = 100 most_parameters = 1000000000
# most_data_bytes = 10000000000 Excluded, these are what this machine has, and what is free where
# the service writes. most_memory_bytes = 8000000000 most_disk_bytes = 50000000000

[schedule]
# The hours, in UTC, in which it joins rounds. Without a line it is all of them.
# hours = ["22:00-06:30"]
# Whether it takes part while the machine is on its battery.
# on_battery = false
# What share of all cores' time others may take before it sits out.
# most_by_others = 0.25
"""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a new folder is made of.

    Attributes:
        key: a keystore that is there; None makes a new key.
        password_file: opens the key; None asks for a password, and keeps it in the folder.
        host: None is every interface where there is a public URL, else this machine alone.
        port: 0 is any free one, which others cannot reach.
        reward: the wallet that has the pay; None leaves it with the account.
        owner: who alone moves the stake and has the pay; None leaves both with the key.
    """

    role: str
    rpc: str
    deployment: Path | None
    password_file: Path | None
    key: Path | None = None
    host: str | None = None
    port: int = 0
    public_url: str | None = None
    reward: str | None = None
    owner: str | None = None

    @property
    def listens_at(self) -> str:
        """The interface's address that blocks are served at."""
        if self.host is not None:
            return self.host
        return "127.0.0.1" if self.public_url is None else "0.0.0.0"  # noqa: S104 - it is announced


def asked(choices: Choices) -> Choices:
    """The choices, with what is left open asked for, where there is somebody to ask."""
    if not sys.stdin.isatty():
        return choices

    if choices.deployment is None:
        file = typer.prompt("The network's deployment file", err=True)
        choices = replace(choices, deployment=Path(file).expanduser())
    if choices.public_url is None:
        text = "The address at which others reach this machine (empty: none yet)"
        url = typer.prompt(text, default="", show_default=False, err=True)
        choices = replace(choices, public_url=url or None)
    if choices.public_url is not None and not choices.port:
        port = typer.prompt("The port that leads to", "4001", value_proc=_port, err=True)
        choices = replace(choices, port=port)
    return choices


def _port(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 5 and 0 < int(text) < 1 << 16):
        raise typer.BadParameter(f"{text!r} is no port, a number from 1 to 65535")
    return int(text)


def write_config(folder: Path, choices: Choices) -> dict[str, str]:
    """Makes a service's folder: key, copy of the deployment, config. Returns what was made.

    Raises:
        ConfigError: the folder has a config already, the deployment cannot be read, or no service
            could run with the choices.
        KeystoreError: the password is weak or wrong, or the key cannot be read or written.
    """
    from atoll.chain.deployment import Deployment
    from atoll.cli.network_commands import need_deployment

    config = folder / CONFIG_NAME
    if config.exists():
        raise ConfigError(f"{config} exists already", next_step="name another --folder")
    known = Deployment.load(need_deployment(choices.deployment))
    _check(choices)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    address, keystore, password_file = _key(folder, choices)
    known.save(folder / "deployment.json")
    endpoints = ", ".join(json.dumps(url) for url in choices.rpc.split(","))
    reward = f"reward_address = {json.dumps(choices.reward)}\n" if choices.reward else ""
    reward += f"owner = {json.dumps(choices.owner)}\n" if choices.owner else ""
    public = f"public_url = {json.dumps(choices.public_url)}\n" if choices.public_url else ""
    config.write_text(
        f'role = "{choices.role}"\n'
        f"rpc_urls = [{endpoints}]\n"
        'deployment = "deployment.json"\n'
        f"keystore = {json.dumps(str(keystore))}\n"
        f"password_file = {json.dumps(str(password_file))}\n"
        f'data_dir = "data"\n{reward}\n'
        "[gateway]\n"
        f"host = {json.dumps(choices.listens_at)}\n"
        f"port = {choices.port}\n{public}{MACHINE}" + (POLICY if choices.role != "player" else ""),
        encoding="utf-8",
    )
    return {"config": str(config), "address": address, "keystore": str(folder / keystore)}


def _check(choices: Choices) -> None:
    """That a service can run with the choices, before a key is made. Raises ConfigError."""
    from pydantic import ValidationError

    from atoll.service.config import ServiceConfig
    from atoll.service.messages import explain

    gateway = {name: getattr(choices, name) for name in ("port", "public_url")}
    gateway["host"] = choices.listens_at
    made = dict.fromkeys(("deployment", "keystore", "password_file", "data_dir"), ".")
    document = {"role": choices.role, "rpc_urls": choices.rpc.split(","), "gateway": gateway}
    paid = {"owner": choices.owner, "reward_address": choices.reward}
    try:
        ServiceConfig.model_validate(made | document | paid)
    except ValidationError as error:
        raise explain(error, ServiceConfig, "the options") from error


def _key(folder: Path, choices: Choices) -> tuple[str, Path, Path]:
    """Address, keystore and password file, these as the config names them."""
    from atoll.chain.keys import create_key, verify_key
    from atoll.service.private import require_private

    password_file = (choices.password_file or folder / "password").expanduser().resolve()
    if choices.password_file is None and password_file.exists():
        # It may be all that opens a key that is there.
        step = f"pass --password-file {shlex.quote(str(password_file))}, or name another --folder"
        raise ConfigError(f"{password_file} exists already", next_step=step)
    password = password_from(choices.password_file, new=choices.key is None)
    if choices.password_file is not None:
        require_private([password_file])
    if choices.key is not None:
        key = verify_key(choices.key.expanduser().resolve(), password)
        require_private([key.path])
    else:
        key = create_key(folder / "keys", password)
    if choices.password_file is None:
        password_file.touch(mode=0o600)
        password_file.write_text(password + "\n", encoding="utf-8")
    return key.address, _from(folder, key.path), _from(folder, password_file)


def _from(folder: Path, path: Path) -> Path:
    """A path from the folder on where it is inside, so that the folder can be moved."""
    inside, place = folder.resolve(), path.resolve()
    return place.relative_to(inside) if place.is_relative_to(inside) else place


def run_service(
    program: str, service: str, config: Path, settings: list[str], *, new_journal: bool = False
) -> int:
    """Runs a service until it is told to stop; its exit code."""
    from atoll.service.main import main

    serve = importlib.import_module(service).serve
    changes = [part for setting in settings for part in ("--set", setting)]
    return main(program, serve, ["--config", str(config), *changes, *renewing(new_journal)])


def renewing(new_journal: bool) -> list[str]:
    """What a service is started with where it goes on without its journal."""
    return ["--new-journal"] if new_journal else []


def order(config: Path, what: str, **arguments: Any) -> dict[str, Any]:
    """Has the running service of a config obey an order; where it stands then.

    Raises:
        ConfigError: it is not running.
    """
    import asyncio

    from atoll.service.control import ask
    from atoll.service.lock import holder_of

    settings = load(config)
    if holder_of(settings.data_dir) is None:
        raise ConfigError(
            f"no service of {config} is running, and only it can leave a job and do what it owes",
            next_step=f"{_start(settings, config)}, then this command again",
        )
    return dict(asyncio.run(ask(settings.data_dir, what, **arguments)))


def _start(settings: Any, config: Path) -> str:
    return starting(COMMANDS.get(settings.role, "node"), "run", config=config)


def starting(*words: str, config: Path | str) -> str:
    """The command, as a shell takes it, that starts the service of a config."""
    return shlex.join(["atoll", *words, "--config", str(config)])


def fit_of(config: Path, role: str, job: int, prices: dict[str, float]) -> Feasibility:
    """Whether this machine keeps up with a job, and what it costs.

    Args:
        prices: by the fields of `MemberPrices`.

    Raises:
        NotFound: nobody serves the job's manifest.
        ConfigError: the train extra is missing, or no two steps were done in two minutes.
    """
    import asyncio

    from atoll.job.break_even import MemberPrices
    from atoll.job.feasibility_trial import try_job

    return asyncio.run(try_job(load(config), role, job, MemberPrices(**prices)))


def schedule_of(config: Path) -> dict[str, Any]:
    """The hours of a config, and what they say now."""
    import time

    from atoll.service.orders import off_hours

    settings = load(config)
    why = off_hours(settings.schedule, int(time.time()))
    return {"hours": list(settings.schedule.hours), "is_in": not why, "text": why}


def schedule_text(schedule: dict[str, Any]) -> str:
    """A schedule for a person."""
    if not schedule["hours"]:
        return "always: no hours are set"
    hours = ", ".join(schedule["hours"])
    return f"{hours} UTC: " + (schedule["text"] or "it is in its hours")


def load(config: Path) -> Any:
    """The settings in a config file. Raises ConfigError."""
    from atoll.service.config import ServiceConfig, read_config

    return read_config(ServiceConfig, config).beside(config.parent)


def status_of(config: Path) -> dict[str, Any]:
    """What a service has measured, and whether it runs."""
    from atoll.chain.deployment import Deployment
    from atoll.service.lock import holder_of
    from atoll.service.metrics import read_metrics

    settings = load(config)
    known = Deployment.load(settings.deployment)
    pid = holder_of(settings.data_dir)
    status = {
        "running": pid is not None,
        "pid": pid,
        "chain_id": known.chain_id,
        "data_dir": str(settings.data_dir),
        **read_metrics(settings.metrics_file),
    }
    if pid is None:
        step = _start(settings, config)
        return status | {"blocking": {"name": "stopped", "text": "not running", "next_step": step}}
    return status | _asked_of(settings.data_dir)


def _asked_of(data_dir: Path) -> dict[str, Any]:
    """What a running service says of itself, or that it does not answer."""
    import asyncio

    from atoll.service.control import NotRunning, StoppedBySignal, ask

    try:
        return dict(asyncio.run(ask(data_dir, "status")))
    except StoppedBySignal as error:
        step = error.next_step
        return {"blocking": {"name": "frozen", "text": str(error), "next_step": step}}
    except NotRunning as error:
        text = "the process runs, and does not answer: it starts, stops, or hangs"
        return {"blocking": {"name": "silent", "text": text, "next_step": error.next_step}}


def owed_text(owed: dict[str, Any]) -> str:
    """What a service owes, and by when, for a person."""
    left = owed["seconds_left"]
    until = "until the next settlement" if left is None else f"in {left} s"
    return f"{owed['duty']} of round {owed['round']}, {until}"


def orders_text(status: dict[str, Any]) -> str:
    """What a service was told, and how far it is; empty where nothing was."""
    orders = status.get("orders", {})
    bonded = ", ".join(map(str, status.get("bonded", [])))
    orders_given = [status["sits_out"]] if status.get("sits_out") else []
    orders_given += [
        f"leaves job {job} and does not join it again" for job in orders.get("left", [])
    ]
    if not orders_given:
        return ""
    rest = f"; bonds are still in job {bonded}" if bonded else "; no bond is in a job"
    return "; ".join(orders_given) + rest


def status_text(status: dict[str, Any]) -> str:
    """A status for a person."""
    apart = {
        "jobs",
        "gas",
        "blocking",
        "duties",
        "obligations",
        "missed_duties",
        "failing",
        "under_way",
    }
    apart |= {"orders", "sits_out", "bonded", "over", "taken", "sent", "stands"}
    over = status.get("over", [])
    blocked, orders = status.get("blocking"), orders_text(status)
    rows = {"blocked": blocked["text"], "next": blocked["next_step"]} if blocked else {}
    rows |= {"orders": orders} if orders else {}
    rows |= {"over": f"job {', '.join(map(str, over))}"} if over else {}
    rows |= {name: _shown(name, value) for name, value in status.items() if name not in apart}
    lines = [f"{name:<16} {text}" for name, text in rows.items()]
    for job, stand in status.get("stands", {}).items():
        why = f": {stand['text']}" if stand["text"] else ""
        lines.append(f"job {job} stand        {stand['stand']}{why}")
    for job, duties in status.get("duties", {}).items():
        of_job = duties.items() if int(job) not in over else ()
        lines += [f"job {job} {duty:<12} {reason}" for duty, reason in of_job]
    for job, owed in status.get("obligations", {}).items():
        lines += [f"job {job} owes {owed_text(each)}" for each in owed]
    for job, missed in status.get("missed_duties", {}).items():
        lines += [
            f"job {job} was penalised for {each['missed_duty']} of round {each['round']}"
            for each in missed
        ]
    for job, rounds in status.get("jobs", {}).items():
        for index, measures in rounds.items():
            sums = "  ".join(f"{name} {value:,.9g}" for name, value in measures.items())
            lines.append(f"{_whose(int(job), int(index))}: {sums}")
    return "\n".join(lines)


def _whose(job: int, index: int) -> str:
    """What measures are of: a job's round, a job, or the service."""
    from atoll.service.metrics import NO_ROUND

    if index != NO_ROUND:
        return f"job {job} round {index}"
    return f"job {job}" if job else "service"


def _shown(name: str, value: Any) -> str:
    if name == "head":
        return f"block {value['block']}, {moment(value['time'])}"
    if value is None or value in ([], {}):
        return "none"
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def play(
    name: str,
    player: Player,
    config: Path,
    jobs: list[int] | None,
    *,
    as_json: bool,
    new_journal: bool = False,
) -> None:
    """Has an outsider's service, or a part of a node's, run until it is told to stop."""
    from atoll.service.main import main
    from atoll.service.watcher import serve

    async def run(settings: Any) -> None:
        if jobs:
            settings = settings.model_copy(update={"jobs": tuple(jobs)})
        await serve(settings, player)

    arguments = ["--config", str(config.expanduser()), *renewing(new_journal)]
    raise typer.Exit(main(name, run, arguments, speaks="json" if as_json else "text"))
