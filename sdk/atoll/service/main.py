"""From a config file to a running service, and back to an exit code.

SIGTERM, Ctrl-C and the end of the terminal (SIGHUP) stop cleanly: transactions under way stay in
the queue's file, and the next start takes up where this one was. What whoever starts it has it
ignore stays ignored: SIGHUP below `nohup`, SIGINT where a script's `&` puts it into the background.
To give a place up is an order over the control socket (`orders`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, MutableMapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TextIO

import structlog

from atoll.chain.deployment import Deployment
from atoll.chain.keys import address_of
from atoll.errors import AtollError, of_disk
from atoll.numerics.kernels.devices import as_text
from atoll.numerics.kernels.variables import DEVICES_VARIABLE
from atoll.protocol.token_units import whole_token
from atoll.service.config import ServiceConfig, read_config
from atoll.service.journal import Belongs
from atoll.service.log_files import Lines, lines_to, log_file
from atoll.service.moving import renew_journal
from atoll.service.private import PRIVATE_UMASK
from atoll.service.terminal import for_people, printable
from atoll.train.torchrun import Torchrun

OPEN_FILES = 65536
Run = Callable[[ServiceConfig], Coroutine[Any, Any, None]]


_SEAT = "job {job}, round {round}, seat {seat}: "
SENTENCES = {
    "started": "runs as {account}; Ctrl-C ends it",
    "follows a job": "job {job}: follows it",
    "replays": _SEAT + "replays {segments} segments",
    "agrees": _SEAT + "is what a replay gives ({seconds} s of steps)",
    "came too late": _SEAT + "its window ended before our replay did",
    "leaks": _SEAT + "shows the key that it told too early",
    "collects": "job {job}: collects {amount_tokens} tokens",
    "mismatch": _SEAT + "{what} is not what a replay gives",
    "disputes": _SEAT + "disputes it with a bond of {bond_tokens} tokens",
    "plays": "game {game}: {move}",
    "concludes": "game {game}: {outcome}",
}
"""What a person who runs a player is told, by the log's events."""

_FOR_PROGRAMS = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())

Speaks = Literal["", "text", "json"]
"""Whether a player tells on standard output what it does, a line each, and how."""


def main(program: str, run: Run, argv: Sequence[str] | None = None, *, speaks: Speaks = "") -> int:
    """Reads `--config FILE`, `--set NAME=VALUE` and `--new-journal`, runs until told to stop; the
    exit code.

    Args:
        speaks: how what a player does is written to standard output.
    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("--config", type=Path, required=True, help="the service's TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--new-journal", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        os.umask(PRIVATE_UMASK)
        raise_open_files()
        config = read_config(ServiceConfig, arguments.config, arguments.set)
        config = config.beside(arguments.config.parent)
        here = Torchrun.here()
        if here is not None and here.rank:
            return follow(config, here)
        with logs_configured(config, speaks=speaks):
            if arguments.new_journal:
                renew(config)
            code = asyncio.run(until_stopped(run(config)))
            if here is not None and code == 0:
                let_go(here)
            return code
    except AtollError as error:
        return tell(error)
    except OSError as error:
        return tell(of_disk(error))


def follow(config: ServiceConfig, here: Torchrun) -> int:
    """Computes for the service that is torchrun's first rank, until that is over.

    Neither key nor folder of the config is touched: they need not be there on this host.
    """
    if config.machine.devices is not None:
        os.environ[DEVICES_VARIABLE] = as_text(config.machine.devices)
    os.nice(config.worker_niceness)
    # torchrun ends all ranks by SIGTERM, and whoever starts it may have Ctrl-C reach all as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from atoll.train.follower import follow_hosts  # noqa: PLC0415 (a service has no torch)

    with logs_configured(config.model_copy(update={"log_file": None})):
        follow_hosts(here)
    return 0


def let_go(here: Torchrun) -> None:
    """Has the ranks end that follow this service, which is over: torchrun waits for all of them."""
    from atoll.train.follower import end_hosts  # noqa: PLC0415 (as above)

    with contextlib.suppress(RuntimeError):  # torchrun is over itself
        end_hosts(here)


def renew(config: ServiceConfig) -> None:
    """Has the service start though its journal may lack what was signed. Raises AtollError."""
    whose = Belongs.of(Deployment.load(config.deployment), address_of(config.keystore))
    renew_journal(config.data_dir, whose)


def raise_open_files() -> None:
    """Takes as many open files as this process may: connections are some, and so are databases."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def until_stopped(work: Coroutine[Any, Any, None]) -> int:
    """Runs until done or until it is told to stop; what fails is told once, in one line."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return 0
    except AtollError as error:
        return tell(error)
    except BaseExceptionGroup as group:
        # Tasks of one group fail together: the error that has a next step is the cause.
        known = [error for error in _leaves(group) if isinstance(error, AtollError)]
        if not known:
            raise
        return tell(known[0])
    return 0


def tell(error: AtollError) -> int:
    """Writes cause and next step to stderr; returns the error's exit code."""
    sys.stderr.write(printable(f"error: {error}\n"))
    if error.next_step:
        sys.stderr.write(printable(f"next: {error.next_step}\n"))
    return error.exit_code


@contextlib.contextmanager
def logs_configured(config: ServiceConfig, *, speaks: Speaks = "") -> Iterator[None]:
    """Structured logs to the log file or to stderr: one JSON object a line, and lines for people
    where stderr is a terminal.

    A terminal at which a player speaks has its warnings there, and not every decision besides.
    """
    with contextlib.ExitStack() as stack:
        stream: TextIO = sys.stderr
        if config.log_file is not None:
            stream = stack.enter_context(log_file(config.log_file))
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                *([_teller(speaks)] if speaks else []),
                *([_warnings_only] if speaks and stream.isatty() else []),
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                *(for_people(stream) if stream.isatty() else _FOR_PROGRAMS),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(
                logging.getLevelNamesMapping()[config.log_level.upper()]
            ),
            logger_factory=lines_to(stream),
        )
        yield


def _teller(speaks: Speaks) -> Callable[..., MutableMapping[str, Any]]:
    """Tells some events on standard output, too."""
    lines = Lines(sys.stdout)

    def tell(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        sentence = SENTENCES.get(event["event"])
        if sentence is not None:
            text = sentence.format(**event, **_in_tokens(event))
            as_json = json.dumps({**event, "text": text}, default=str, sort_keys=True)
            lines.msg(as_json if speaks == "json" else printable(text))
        return event

    return tell


def _in_tokens(event: MutableMapping[str, Any]) -> dict[str, str]:
    """An event's amounts of wei as a person reads them."""
    amounts = {name: event[name] for name in ("amount", "bond") if name in event}
    return {f"{name}_tokens": f"{Decimal(wei) / whole_token():f}" for name, wei in amounts.items()}


def _warnings_only(_: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What is left of the log beside what is told."""
    if level in {"debug", "info"} or event["event"] in SENTENCES:
        raise structlog.DropEvent
    return event


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
