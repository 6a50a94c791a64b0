"""Job files as the commands write them, and that of a job which goes on from another's model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.cli.network_commands import Network
from atoll.cli.output import say
from atoll.cli.snapshot import sign_lines
from atoll.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from atoll.job.spec import JobSpec

CONTINUED = "from the model of job"
"""What a job file that `continue` wrote says of itself."""


def job_text(spec: JobSpec, origin: str) -> str:
    """What is written of a job; `origin` says where it is from."""
    from atoll.job.toml_files import to_toml

    head = (
        f"A job, {origin}. What has a # in front is computed, and shown by\n"
        "`atoll job check`. Amounts are tokens; numbers, durations and text are as in TOML."
    )
    return to_toml(spec, head)


async def write_following(
    network: Network, job: int, rounds: int, folder: Path, settings: list[str] | None
) -> None:
    """Writes the file of a job that goes on from another's model, beside that model."""
    file = folder / "job.toml"
    async with network.open() as client:
        handle = client.attach(job)
        spec = await handle.continued(folder, rounds)
        for line in sign_lines(await handle.signs()):
            say(line)
    changed = spec.but(changes_of(rounds, settings))
    try:
        file.write_text(job_text(changed, f"{CONTINUED} {job}"), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {file}: {error}") from error


def changes_of(rounds: int, settings: list[str] | None) -> dict[str, Any]:
    """What the command line of `continue` says of the new job, by key path."""
    from atoll.job.toml_files import parse_setting

    return {"rounds": rounds} | dict(map(parse_setting, settings or []))


def is_continued(file: Path, job: int, changes: dict[str, Any]) -> bool:
    """Whether `continue` of that job wrote the file before, and it says what is asked for.

    Raises:
        ConfigError: there is another file, or it says otherwise.
    """
    from atoll.job.spec import JobSpec

    try:
        head, _, _ = file.read_text(encoding="utf-8").partition(".")
    except FileNotFoundError:
        return False
    except ValueError:
        head = ""
    if head != f"# A job, {CONTINUED} {job}":
        raise _in_the_way(file, f"is no file of `atoll job continue {job}`")
    there = JobSpec.read(file)
    if there.but(changes) != there:
        raise _in_the_way(file, "says otherwise than --rounds and --set")
    return True


def _in_the_way(file: Path, what: str) -> ConfigError:
    submit = shlex.join(["atoll", "job", "submit", str(file)])
    return ConfigError(
        f"{file} is there already, and {what}",
        next_step=f"name another --folder, or submit what it says: {submit} --max-spend N",
    )
