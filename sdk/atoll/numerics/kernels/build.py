"""Builds a C source of this package once a machine, and loads it.

The library lies in the user's cache under a name made of source, flags, compiler and processor, so
an update or another machine on the same home builds its own. Beside it, its lock has its digest.
Nothing here decides a bit: whoever loads a library compares it with its plain path in this process
before it is used.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import structlog

from atoll.files import durable_rename

FLAGS = (
    "-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-shared", "-fPIC",
)  # fmt: skip
"""No flag lets the compiler change a value: products are not contracted, sums not reordered.

Errno and traps are no values; without them roots and roundings become vectors. Aliasing is allowed
because largest magnitudes are kept as words in the memory of the steps that they become.
"""
MACHINE_FLAGS = {"x86_64": ("-march=native", "-mprefer-vector-width=512")}
"""By processor, where it is more than to use every instruction of this one."""
SOURCE = Path(__file__).with_name("kernels.c")
BUILD_SECONDS = 120  # it takes three; a compiler that hangs must not stop a service for ever


T = TypeVar("T")
_log = structlog.get_logger("atoll.numerics.kernels")


class BuildFailed(Exception):
    """There is no compiler here, or it could not build the kernels, or its result does not load."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why what was compiled is not used here."""

    reason: str


def accepted(
    what: str, make: Callable[[], T], parted: Callable[[T], Sequence[str]]
) -> T | Unusable:
    """What is compiled, if it gives the reference's bits in this process.

    Why it is not used is logged, since the reference that runs instead is slower.

    Args:
        what: it is called in the log.
        make: loads it; may raise BuildFailed.
        parted: names what has other bits than the reference.
    """
    try:
        found = make()
        others = parted(found)
    except BuildFailed as error:
        reason = str(error)
    else:
        if not others:
            return found
        reason = f"other bits from {', '.join(others)}"
    _log.warning("compiled code is not used, the reference is slower", what=what, reason=reason)
    return Unusable(reason)


def load_library(source: Path = SOURCE) -> ctypes.CDLL:
    """The library for this machine, built if it is not in the cache.

    Where the compiler or the loader refuses the machine's own flags, it is built without them.

    Raises:
        BuildFailed: with the compiler's own words.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BuildFailed("no C compiler found (cc, or what CC names)")
    errors = []
    for extra in (MACHINE_FLAGS.get(platform.machine(), ("-march=native",)), ()):
        try:
            return ctypes.CDLL(str(_built(source, compiler, (*FLAGS, *extra))))
        except (BuildFailed, OSError) as error:  # OSError: what was built does not load
            errors.append(str(error))
    raise BuildFailed("; ".join(errors))


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/atoll or ~/.cache/atoll, the user's own and closed to others.

    Raises:
        BuildFailed: it belongs to somebody else.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "atoll" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BuildFailed(f"{folder} can be written by others")
    return folder


def _built(source: Path, compiler: str, flags: tuple[str, ...]) -> Path:
    try:
        path = cache_folder() / f"{_key(source, compiler, flags)}.so"
        with path.with_suffix(".lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one builds
            lock.seek(0)
            # A library that is not whole kills the process that loads it.
            if not path.exists() or lock.read() != _digest(path):
                _compile(source, compiler, flags, path)
                lock.truncate(0)
                lock.write(_digest(path))
    except OSError as error:
        raise BuildFailed(f"cannot use the cache: {error}") from error
    return path


def _compile(source: Path, compiler: str, flags: tuple[str, ...], path: Path) -> None:
    partial = path.with_suffix(".part")
    command = [compiler, *flags, str(source), "-o", str(partial), "-lm"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command on this package's own source
            command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{compiler} took more than {BUILD_SECONDS} s") from error
    if done.returncode:
        raise BuildFailed(f"{compiler}: {done.stderr.strip()[-500:]}")
    # A build that is killed leaves a part behind, never a library that looks whole.
    durable_rename(partial, path)


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _key(source: Path, compiler: str, flags: tuple[str, ...]) -> str:
    # Its file instead of its version, for which a process would have to run at every start.
    status = Path(compiler).resolve().stat()
    parts = (
        source.read_bytes(),
        " ".join(flags).encode(),
        f"{compiler} {status.st_size} {status.st_mtime_ns}".encode(),
        _processor().encode(),
    )
    return sha256(b"\0".join(sha256(part).digest() for part in parts)).hexdigest()[:32]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    lines = info.read_text().split("\n\n", maxsplit=1)[0].splitlines()
    return "\n".join(line for line in lines if line.startswith(names))
