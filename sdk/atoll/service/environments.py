"""Releases of atoll beside this one, each in an environment of its own: `~/.atoll/releases/NUMBER`.

Rule of this file: an environment counts once `release.json` is in it, which is written last and
says what the installed worker said of itself. A folder without is one whose making was cut short,
and is made anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atoll.errors import ConfigError, NumericsMismatch
from atoll.files import write_once
from atoll.protocol.types import Digest
from atoll.service.wire import WORD, NotOnTheWire, pack, unpack

FOLDER_VARIABLE: Final = "ATOLL_RELEASES"
_FOLDER: Final = Path("~/.atoll/releases")
_RECORD: Final = "release.json"
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.(dev|post)[0-9]+)?")


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself first.

    Attributes:
        word: of the wire (see `WORD`).
        release: its number.
        digests: of the training code whose bits it gives, its own first.
    """

    word: str
    release: str
    digests: tuple[Digest, ...]


@dataclass(frozen=True)
class Environment:
    """A release that is installed beside this one."""

    folder: Path
    hello: Hello

    @property
    def command(self) -> tuple[str, ...]:
        return serving(self.folder)


def serving(folder: Path) -> tuple[str, ...]:
    """The command that starts the worker of an environment; every release keeps it."""
    scripts = folder / "bin"
    return (str(scripts / "python"), "-I", str(scripts / "atoll"), "release", "serve")


def releases_folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or _FOLDER).expanduser()


def environments() -> list[Environment]:
    """Those that are whole, by number.

    Raises:
        ConfigError: one cannot be read, or others can write where what they write would be run.
    """
    return sorted(map(_read, _folders()), key=_by_number)


def with_digest(digest: Digest) -> Environment | None:
    """The newest one that gives the bits of a job's digest; None where none does.

    Raises:
        ConfigError: others can write there, or one that might be it cannot be read.
        NumericsMismatch: those that do cannot be spoken to.
    """
    environments, unreadable = list[Environment](), list[ConfigError]()
    for folder in _folders():
        try:
            environments.append(_read(folder))
        except ConfigError as error:  # jobs of the others are served all the same
            unreadable.append(error)
    have = sorted((env for env in environments if digest in env.hello.digests), key=_by_number)
    fits = [env for env in have if env.hello.word == WORD]
    if have and not fits:
        raise NumericsMismatch(_unspoken(have[-1].hello))
    if unreadable and not fits:
        raise unreadable[0]
    return fits[-1] if fits else None


def _folders() -> list[Path]:
    folder = releases_folder()
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises where one may not look
        return []
    status = folder.stat()
    if status.st_uid not in {0, os.getuid()} or status.st_mode & 0o022:
        raise ConfigError(
            f"{folder} can be written by others", next_step=f"chmod go-w {folder}, and look at it"
        )
    return [record.parent for record in folder.glob(f"*/{_RECORD}")]


def _by_number(environment: Environment) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", environment.hello.release)]


def _unspoken(hello: Hello) -> str:
    return (
        f"release {hello.release} speaks {hello.word} with a service, and this service {WORD}: "
        f"serve its jobs with a service of that release, which has a key of its own"
    )


def make(number: str, sources: Iterable[str], *, shares_packages: bool) -> Path:
    """Installs a release in an environment that does not count yet (see `record`).

    Args:
        sources: what pip is told of where the release is.
        shares_packages: whether it takes what it needs, torch among it, from this environment.

    Raises:
        ConfigError: it is there, or cannot be installed.
    """
    folder = _place(number)
    if (folder / _RECORD).exists():
        raise ConfigError(
            f"release {number} is there",
            next_step=f"to make it anew: atoll release remove {number}",
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    venv.create(folder, with_pip=False, symlinks=True)
    python, extra = str(folder / "bin" / "python"), []
    if shares_packages:
        extra.append("--no-deps")
        _share(Path(_asked(python, "import sysconfig; print(sysconfig.get_path('purelib'))")))
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", *extra, *sources]
    pip = subprocess.run(command, check=False)  # noqa: S603 (pip, with what the user named)
    if pip.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise ConfigError(
            f"pip could not install release {number}: it ended with {pip.returncode}",
            next_step="see what it says above; --wheel installs a file, --from another index",
        )
    return folder


def record(folder: Path, ask: Callable[[], Hello]) -> Environment:
    """Has an environment count, as what its worker says it is.

    Raises:
        ConfigError: it is another release than its folder's, or its worker cannot be spoken to;
            nothing is left of it.
    """
    try:
        hello = ask()
        if hello.release != folder.name:
            raise ConfigError(f"what was installed is release {hello.release}, not {folder.name}")
        if hello.word != WORD:
            raise ConfigError(_unspoken(hello))
    except ConfigError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    message = pack(word=hello.word, release=hello.release, digests=[*hello.digests])
    write_once(folder / _RECORD, message)
    return Environment(folder, hello)


def remove(number: str) -> Path:
    """Deletes an environment; its folder. Raises ConfigError where there is none."""
    folder = _place(number)
    if not folder.is_dir():
        raise ConfigError(f"release {number} is not there", next_step="see: atoll release list")
    (folder / _RECORD).unlink(missing_ok=True)  # first: half of one does not count
    shutil.rmtree(folder)
    return folder


def hello_of(greeting: dict[str, Any]) -> Hello:
    """What a worker's first message says. Raises KeyError or TypeError where it says no such."""
    digests = tuple(Digest(bytes(digest)) for digest in greeting["digests"])
    return Hello(str(greeting["word"]), str(greeting["release"]), digests)


def _place(number: str) -> Path:
    if not _NUMBER.fullmatch(number):
        raise ConfigError(f"{number!r} is no number of a release", next_step="such as 0.3.0")
    return releases_folder() / number


def _read(folder: Path) -> Environment:
    try:
        return Environment(folder, hello_of(unpack((folder / _RECORD).read_bytes())))
    except (NotOnTheWire, KeyError, TypeError, ValueError, OSError) as error:
        raise ConfigError(
            f"{folder / _RECORD} cannot be read: {error}",
            next_step=f"atoll release remove {folder.name}, and add it again",
        ) from error


def _share(packages: Path) -> None:
    """Has an environment see the packages of this one, behind its own."""
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "shared.pth").write_text("".join(f"{path}\n" for path in sorted(here)))


def _asked(python: str, question: str) -> str:
    command = [python, "-I", "-c", question]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return answer.stdout.strip()
