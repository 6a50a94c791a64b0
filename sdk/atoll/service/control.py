"""A running service's control socket: what it is doing, and what its operator asks of it.

Rule of this file: the socket is in the data folder, which is its owner's alone, so whoever can
connect may ask for everything; and whatever is asked is answered, if with an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import structlog
from aiohttp import web

from atoll.errors import AtollError, ConfigError
from atoll.nested import loads
from atoll.service.lock import holder_in

SOCKET_NAME: Final = "control.sock"
ASK_SECONDS: Final = 20.0
_LONGEST_PATH: Final = 100
"""Bytes; Linux takes 107, macOS 103."""
Answer = Callable[[dict[str, Any]], Awaitable[Any]]
log = structlog.get_logger("atoll.control")


class NotRunning(ConfigError):
    """Nobody answers at the data folder's socket."""


class StoppedBySignal(NotRunning):
    """Its process was stopped by a signal, and does nothing until another one."""


class Refused(AtollError):
    """The service answered with an error; cause, next step and exit code are its own."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        super().__init__(str(reply["error"]), next_step=reply.get("next_step"))
        self.exit_code = int(reply.get("exit_code", 1))


@asynccontextmanager
async def listening(data_dir: Path, answers: Mapping[str, Answer]) -> AsyncIterator[None]:
    """Answers questions by name while it is open.

    Args:
        data_dir: held by this process; a socket that another one left there is replaced.
        answers: what is asked → takes the arguments and gives JSON values, or raises AtollError.

    Raises:
        ConfigError: the socket cannot be made.
    """

    async def handle(request: web.Request) -> web.Response:
        answer = answers.get(request.match_info["question"])
        if answer is None:
            return _document({"error": "this service is not asked that"}, 404)
        try:
            return _document({"result": await answer(await request.json(loads=loads))})
        except AtollError as error:
            return _document(
                {"error": str(error), "next_step": error.next_step, "exit_code": error.exit_code}
            )
        except Exception as error:  # a defect of ours costs this answer, and not the service
            log.exception("defect: a question was not answered", question=request.path)
            return _document({"error": repr(error)})

    app = web.Application()
    app.router.add_post("/{question}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await _listen(runner, data_dir)
        yield
    finally:
        await runner.cleanup()
        with suppress(OSError):
            (data_dir / SOCKET_NAME).unlink()


async def _listen(runner: web.AppRunner, data_dir: Path) -> None:
    try:
        with _short(data_dir) as path:
            await web.UnixSite(runner, path).start()
        (data_dir / SOCKET_NAME).chmod(0o600)
    except OSError as error:
        raise ConfigError(f"no control socket can be made in {data_dir}: {error}") from error


async def ask(data_dir: Path, question: str, **arguments: Any) -> Any:
    """What the service that runs in a folder answers.

    Raises:
        NotRunning: none does, or it does not answer.
        Frozen: its process was stopped.
        Refused: it answered with an error.
    """
    holder = holder_in(data_dir)
    if holder is not None and holder.is_frozen:
        raise StoppedBySignal(
            f"the service in {data_dir} is frozen: somebody stopped process {holder.pid} (SIGSTOP, "
            "Ctrl-Z, or a write to a terminal that it had left), and its deadlines pass",
            next_step=f"`kill -CONT {holder.pid}` has it go on; `atoll node stop`, or `atoll "
            "verifier stop`, has it end",
        )
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    try:
        with _short(data_dir) as path:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(path), timeout=timeout
                ) as session,
                session.post(f"http://service/{question}", json=arguments) as response,
            ):
                reply = await response.json(loads=loads)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotRunning(
            f"no service answers in {data_dir}", next_step="start it, or look at its log"
        ) from error
    if "error" in reply:
        raise Refused(reply)
    return reply["result"]


def _document(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        text=json.dumps(document, default=str), status=status, content_type="application/json"
    )


@contextmanager
def _short(data_dir: Path) -> Iterator[str]:
    """The socket's path, by way of the open folder where it is longer than a socket's may be."""
    path = str(data_dir / SOCKET_NAME)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)
