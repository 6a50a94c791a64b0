"""A member's gateway as a process of its own: what strangers cost it, they cost only it.

It opens the store and the journal's notes by themselves and has neither key nor chain; who is a
member it is told. Rule of this file: parent and child say JSON lines to each other and nothing
else, the child ends with its parent, and the parent starts a child that ended anew.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from atoll.chain.database import open_read_only
from atoll.errors import AtollError, ConfigError
from atoll.nested import loads
from atoll.protocol.types import Address, Domain
from atoll.service.background_tasks import end
from atoll.service.greeting import greeted
from atoll.service.log_files import level_here, lines_to, log_from
from atoll.service.shown_files import ShownFiles
from atoll.service.task import Task
from atoll.storage.cid import Cid
from atoll.storage.connection_limiter import Budget
from atoll.storage.gateway import Gateway, GatewayConfig, ListenAddress, url_of
from atoll.storage.local import LocalStore

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 5.0
TOLD_SECONDS: Final = 1.0
RESTART_SECONDS: Final = 1.0
PORT_TRIES: Final = 8
_LONGEST_LINE: Final = 1 << 22
log = structlog.get_logger("atoll.gateway")
_ahead: list[_Forked] = []
"""Made by `fork_ahead`, and not yet taken."""
Serves: TypeAlias = Task[[Cid], bool]
"""Says of a CID whether others get the block."""


@dataclass(frozen=True, slots=True)
class GatewaySpec:
    """What a child serves and where.

    Attributes:
        store: the folder of blocks; journal: the database whose notes are served; empty for none.
        url: what is announced; empty for what is listened on.
        serves: says of a CID whether it is given out; None gives out all.
        level: from which up the child logs; the parent tells its own.
    """

    store: str
    host: str
    port: int
    chain_id: int
    rounds: str
    budget: Budget
    journal: str = ""
    url: str = ""
    serves: Serves | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class GatewayFiles:
    """Files that a gateway knows of, each with the bytes that it may have.

    Attributes:
        accepted: are taken from whoever brings them.
        shown: of which members get pieces.
    """

    accepted: Mapping[Cid, int] = field(default_factory=dict)
    shown: Mapping[Cid, int] = field(default_factory=dict)


class GatewayProcess:
    """The parent's side.

    Attributes:
        bytes_up, connections, sent_away: what the child counted, a second ago or so.
        trouble: why nothing is served, once it was; empty where it is.
    """

    def __init__(self, spec: GatewaySpec) -> None:
        self._spec = spec
        self._process: asyncio.subprocess.Process | _Opened | None = None
        self._follows: asyncio.Task[None] | None = None
        self._orders: dict[str, Any] = _orders_of([], GatewayFiles())
        self._before = 0
        self.bytes_up = 0
        self.connections = 0
        self.sent_away: dict[str, int] = {}
        self.trouble = ""

    @property
    def url(self) -> str:
        """Where it is announced."""
        return self._spec.url or url_of(self._spec.host, self._spec.port)

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Returns when requests are answered. Raises ConfigError where it cannot listen."""
        tries = PORT_TRIES if self._spec.port else 1
        for left in reversed(range(tries)):
            try:
                await self._spawn()
                break
            except ConfigError as error:
                # The child of a service that was killed a moment ago may have the port still, on a
                # busy machine for seconds.
                if not left:
                    raise
                log.info("the gateway is tried again", cause=str(error), tries_left=left)
                await asyncio.sleep(RESTART_SECONDS)
        self._follows = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Ends the child and every connection."""
        follows, self._follows = self._follows, None
        try:
            await end([follows] if follows is not None else [])
        finally:
            await self._end()

    def admit(
        self,
        members: Iterable[str],
        files: GatewayFiles,
        seated: Iterable[str] = (),
        submitters: Iterable[str] = (),
    ) -> None:
        """Says from now on for whom room is kept, and which files are taken and shown.

        Args:
            seated: members who can always bring a block; submitters: others who can.
        """
        orders = _orders_of(members, files, seated, submitters)
        if orders != self._orders:
            self._orders = orders
            self._say(orders)

    async def _spawn(self) -> None:
        self._process = await (_ahead.pop().opened() if _ahead else _executed())
        self._say(asdict(replace(self._spec, level=level_here())))
        try:
            async with asyncio.timeout(START_SECONDS):
                answer = await self._hear()
        except TimeoutError:
            answer = {"error": f"the gateway's process did not start in {START_SECONDS:.0f} s"}
        except ValueError as error:
            answer = {"error": f"the gateway's process says what it should not: {str(error)[:200]}"}
        if answer is None or "error" in answer:
            await self._end()
            answer = answer or {"error": "the gateway's process ended before it listened"}
            raise ConfigError(answer["error"], next_step=answer.get("next_step"))
        # A child that is started anew listens where the one before did: that is announced.
        self._spec = replace(self._spec, port=answer["port"])
        self.trouble = ""
        self._say(self._orders)

    async def _follow(self) -> None:
        while True:
            try:
                while (counts := await self._hear()) is not None:
                    self.bytes_up = self._before + int(counts["bytes_up"])
                    self.connections = int(counts["connections"])
                    self.sent_away = counts["sent_away"]
            except (LookupError, TypeError, ValueError) as error:  # a line too long, or of no sense
                log.warning("the gateway's process says what it should not", cause=str(error)[:200])
            self._before, self.connections = self.bytes_up, 0
            self.trouble = "its process ended"
            log.warning("the gateway's process ended and is started anew")
            await self._end()
            await self._restart()

    async def _restart(self) -> None:
        while True:
            await asyncio.sleep(RESTART_SECONDS)
            try:
                return await self._spawn()
            except (ConfigError, OSError) as error:
                if self.trouble != str(error):  # told once of what comes again each second
                    log.warning("the gateway cannot be started", cause=str(error))
                self.trouble = str(error)

    async def _hear(self) -> dict[str, Any] | None:
        """The child's next line; None where there is none any more.

        Raises ValueError of a line that is too long, or no JSON.
        """
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        # The last line may be cut off by its end.
        return loads(line) if line.endswith(b"\n") else None

    def _say(self, document: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it has ended, and is started anew
                self._process.stdin.write(json.dumps(document).encode() + b"\n")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _orders_of(
    members: Iterable[str],
    files: GatewayFiles,
    seated: Iterable[str] = (),
    submitters: Iterable[str] = (),
) -> dict[str, Any]:
    """What a child is told while it runs, the same for the same."""

    def listed(by_cid: Mapping[Cid, int]) -> list[list[str | int]]:
        return [[cid, most] for cid, most in sorted((str(c), n) for c, n in by_cid.items())]

    return {
        "members": sorted(members),
        "accepted": listed(files.accepted),
        "shown": listed(files.shown),
        "seated": sorted(seated),
        "submitters": sorted(submitters),
    }


async def _executed() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "atoll.service.gateway_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
    )


def fork_ahead() -> None:
    """Makes the child of the next `GatewayProcess` now, with everything that is imported.

    Only for a process that has no thread yet, and the last that it forks: a process that was forked
    later would hold the pipe open by whose end this one knows that its parent ended.
    """
    heard, says = os.pipe()
    hears, parent_says = os.pipe()
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=_become, args=(heard, parent_says, says, hears), daemon=True)
    process.start()
    os.close(heard)
    os.close(parent_says)
    _ahead.append(_Forked(process, says, hears))


@dataclass(frozen=True, slots=True)
class _Forked:
    """A child that waits for what it is to serve; two file descriptors lead there and back."""

    process: BaseProcess
    says: int
    hears: int

    async def opened(self) -> _Opened:
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader(limit=_LONGEST_LINE)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(self.hears, "rb", 0)
        )
        stdin, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(self.says, "wb", 0)
        )
        return _Opened(self.process, stdin, lines)


@dataclass(frozen=True, slots=True)
class _Opened:
    """What `asyncio.subprocess.Process` is of a child that was executed."""

    process: BaseProcess
    stdin: asyncio.WriteTransport
    stdout: asyncio.StreamReader

    @property
    def pid(self) -> int | None:
        return self.process.pid

    async def wait(self) -> int | None:
        await asyncio.to_thread(self.process.join)
        return self.process.exitcode

    def kill(self) -> None:
        self.process.kill()


# --- the child's side ---


def _become(heard: int, says: int, *others: int) -> None:
    for descriptor in others:
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(heard), os.fdopen(says, "w")
    _main()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    if not (line := await lines.readline()):
        return  # forked ahead, and its parent ended without a gateway
    settings = loads(line)
    serves: Serves | None = None if settings["serves"] is None else Task(**settings["serves"])
    spec = GatewaySpec(**{**settings, "budget": Budget(**settings["budget"]), "serves": serves})
    log_from(spec.level)
    members: set[str] = set()
    try:
        gateway = _gateway_of(spec, members)
        gateway.pieces.shows = shown = ShownFiles(LocalStore(spec.store))
        await gateway.start()
    except AtollError as error:
        _tell({"error": str(error), "next_step": error.next_step})
        return
    _tell({"port": int(gateway.url.rpartition(":")[2])})
    counts = asyncio.create_task(_tell_counts(gateway))
    while line := await lines.readline():  # ends with the parent
        orders = loads(line)
        members.clear()
        members.update(orders["members"])
        gateway.pushes.seated = set(orders["seated"])
        gateway.connection_limiter.admit_submitters(orders["submitters"])
        gateway.pushed.expect({Cid.parse(cid): most for cid, most in orders["accepted"]})
        shown.expect({Cid.parse(cid): most for cid, most in orders["shown"]})
    counts.cancel()
    # At once: a service that starts again wants the port, and nothing here has to be kept.
    os._exit(0)


def _gateway_of(spec: GatewaySpec, members: set[str]) -> Gateway:
    allow = None if spec.serves is None else spec.serves.resolve()
    domain = Domain(spec.chain_id, Address(spec.rounds))

    def recognise(header: str) -> str | None:
        url = spec.url or gateway.url
        account = greeted(header, domain, url, time.time())
        known = members | gateway.connection_limiter.submitters
        return account if account in known else None

    store = LocalStore(spec.store)
    gateway = Gateway(
        store,
        ListenAddress(spec.host, spec.port),
        allow=allow,
        config=GatewayConfig(budget=spec.budget),
        notes=_notes_in(Path(spec.journal)) if spec.journal else lambda _: None,
        recognise=recognise,
    )
    return gateway


def _notes_in(journal: Path) -> Callable[[str], bytes | None]:
    def note(name: str) -> bytes | None:
        try:
            with closing(open_read_only(journal)) as db:
                row = db.execute("SELECT body FROM notes WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            log.warning("a note cannot be read", cause=str(error))
            return None
        return None if row is None else bytes(row[0])

    return note


async def _tell_counts(gateway: Gateway) -> None:
    last: dict[str, Any] = {}
    while True:
        connection_limiter = gateway.connection_limiter
        counts = {
            "bytes_up": gateway.bytes_up,
            "connections": connection_limiter.connections,
            "sent_away": connection_limiter.sent_away,
        }
        if counts != last:
            _tell(counts)
            last = {**counts, "sent_away": dict(connection_limiter.sent_away)}
        await asyncio.sleep(TOLD_SECONDS)


def _tell(document: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # the parent is gone, and nothing here has to be kept


def _main() -> None:
    # Ctrl-C reaches the whole process group; the parent decides when its gateway ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    structlog.configure(logger_factory=lines_to(sys.stderr))
    asyncio.run(_serve())


if __name__ == "__main__":
    _main()
