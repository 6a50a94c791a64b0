"""A job of another release is worked on by that release's own code, in a process of its own.

The worker process asks itself whose code a job needs; where it is not its own and a release that
has it was added (`atoll release add`), it hands the work over and waits. So the service has one
worker to start, kill and queue for, whatever the release.

Rule of this file: whoever is asked ends with whoever asks: it ends as its standard input does.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import structlog

from atoll.errors import AtollError, ConfigError
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Digest
from atoll.service.environments import (
    Environment,
    Hello,
    hello_of,
    with_digest,
)
from atoll.service.task import TaskCall
from atoll.service.wire import WORD, pack, pack_error, unpack, unpack_error
from atoll.train.releases import check_code, met_digests

GREETING_S = 120.0
"""A cold start reads and hashes the training code; no worker takes longer that will ever answer."""
R = TypeVar("R")
_LOSES = ("PYTHONPATH", "PYTHONHOME")
"""What would put our code before the other release's."""
_log = structlog.get_logger("atoll.worker")
_started: dict[Path, Peer] = {}


class Peer:
    """The worker of another release, started by this one.

    Raises:
        ConfigError: what the command starts is no worker, or says nothing for long.
    """

    def __init__(self, command: tuple[str, ...]) -> None:
        self._program = command[0]
        environment = {k: v for k, v in os.environ.items() if k not in _LOSES}
        try:
            self._process = subprocess.Popen(  # noqa: S603 (of a folder that is ours alone)
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        except OSError as error:
            raise self._no_worker(error) from error
        self.hello = self._greeted()

    def call(self, call: TaskCall[R]) -> R:
        """As the function does here: returns what it returns, raises what it raises.

        Raises:
            NotOnTheWire: it, or what it is given, is nothing that releases ask each other.
            PeerDied: the process ended.
        """
        request = pack(work=call.task, args=call.args, kwargs=call.kwargs)
        try:
            self._stdin.write(request)
            self._stdin.flush()
            answer = unpack(self._line())
        except BrokenPipeError as error:
            raise self._died() from error
        except BaseException:
            self.end()  # else the next to ask would have this answer
            raise
        if "error" in answer:
            raise unpack_error(answer)
        return cast(R, answer["result"])

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        with suppress(OSError):
            self._stdin.close()
        self._process.kill()
        self._process.wait()
        self._stdout.close()

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _line(self) -> bytes:
        line = self._stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died()
        return line

    def _died(self) -> PeerDied:
        self.end()
        return PeerDied(f"the worker of another release ended ({self._process.returncode})")

    def _greeted(self) -> Hello:
        """Its first message. Raises ConfigError where that does not come, or is another."""
        late = threading.Timer(GREETING_S, self._process.kill)
        late.start()
        try:
            return hello_of(unpack(self._line()))
        except (AtollError, ValueError, KeyError, TypeError) as error:
            self.end()
            raise self._no_worker(error) from error
        finally:
            late.cancel()

    def _no_worker(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self._program} starts no worker of atoll: {error}",
            next_step="remove the release, and add it again (atoll release remove, add)",
        )


class PeerDied(AtollError):
    """The worker of another release ended in the middle of a task."""


def handed_over(call: TaskCall[R]) -> Callable[[], R] | None:
    """What does the work where it is of a job whose training code another release has; None where
    it is to be done here.

    Raises:
        NumericsMismatch: it is of a job whose training code nothing here has.
    """
    digest = _digest_of(call.args)
    if digest is None or digest in met_digests():
        return None
    place = with_digest(digest)
    if place is None:
        # Whatever the work is, and though the machine was checked when the job was joined: its
        # release may have gone since, and a round of other code costs the bond.
        check_code(digest)
        return None
    return lambda: _peer(place).call(call)


def _peer(place: Environment) -> Peer:
    peer = _started.get(place.folder)
    if peer is not None and peer.is_running:
        return peer
    peer = Peer(place.command)
    hello = peer.hello
    if hello != place.hello:
        peer.end()
        raise ConfigError(
            f"{place.folder} was changed since it was added: it is {hello.release}, {hello.word}",
            next_step=f"atoll release remove {place.folder.name}, and add it again",
        )
    _log.info("started another release's worker", release=hello.release)
    _started[place.folder] = peer
    return peer


def ask_who(command: tuple[str, ...]) -> Hello:
    """What the worker that a command starts says of itself. Raises ConfigError where it is none."""
    peer = Peer(command)
    peer.end()
    return peer.hello


def _digest_of(args: tuple[object, ...]) -> Digest | None:
    """The digest in the manifest that work is about: its first argument, or in that."""
    manifest = getattr(args[0], "manifest", args[0]) if args else None
    return _named(manifest) if isinstance(manifest, bytes) else None


@lru_cache(maxsize=64)
def _named(manifest: bytes) -> Digest | None:
    try:
        return Digest(Manifest.from_bytes(manifest).numerics.code_digest)
    except (AtollError, ValueError):
        return None  # whoever does the work says what is wrong with it


# --- the other side ---


def serve(call: Callable[[TaskCall[Any]], Any]) -> None:
    """Greets, and does what it is asked on standard input until that ends; then the process ends.

    Args:
        call: does one piece of work.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # whoever asks decides when it ends
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print
    digests = sorted(met_digests())
    _say(answers, {"word": WORD, "release": version("atoll"), "digests": [*map(bytes, digests)]})
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(waiting,), daemon=True).start()
    while True:
        _say(answers, _answer(call, waiting.get()))


def _answer(call: Callable[[TaskCall[Any]], Any], line: bytes) -> dict[str, Any]:
    try:
        asked = unpack(line)
        work = asked["work"](*asked["args"], **asked["kwargs"])
        digest = _digest_of(work.args)
        if digest is not None:
            check_code(digest)
        return {"result": call(work)}
    except Exception as error:  # the asker's to judge
        return pack_error(error)


def _say(answers: IO[bytes], message: dict[str, Any]) -> None:
    try:
        line = pack(**message)
    except AtollError as error:
        line = pack(**pack_error(error))
    answers.write(line)
    answers.flush()


def _listen(waiting: queue.SimpleQueue[bytes]) -> None:
    """Ends the process, whatever it does, as soon as nobody can ask it any more."""
    while line := sys.stdin.buffer.readline():
        waiting.put(line)
    os._exit(0)
