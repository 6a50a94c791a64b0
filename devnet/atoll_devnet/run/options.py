"""What a run is asked to do, as one frozen value; the command line and the tests both make it."""

from __future__ import annotations

import sysconfig
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from atoll.errors import ConfigError
from atoll.job.groups import is_hub
from atoll.job.presets import PRESETS
from atoll.job.spec import JobSpec, least_providers, method_chosen
from atoll_devnet.processes.chain import Backend

UNHURRIED: Final[Mapping[str, int | str]] = MappingProxyType(
    {
        "windows.train": 900,
        "windows.reveal": 240,
        "windows.merge": 360,
        "windows.audit": 900,
        "windows.open": 160,
        "windows.key": 240,
        "windows.window": 1920,
        "windows.game": 960,
        "windows.ready": 1800,
        "lifetime": "1d",
    }
)
"""Of a small job: no window ends before its work on a slow or busy machine. Where what everybody
only waits for is skipped, that length costs nothing.
"""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A whole run.

    Attributes:
        folder: where everything of the run goes; must not exist.
        watchers: outsiders who dispute what is wrong in settled rounds.
        cheats, verifier_cheats, watcher_cheats: names by seat and by index.
        report: where report.json is also written; it is always in `folder`.
        store: everyone's storage backend, `embedded` or `kubo:URL`.
        beginning: see `ClusterConfig`.
        skip_windows: move the chain's clock on once everyone who will act in a window has acted.
        has_stranger: somebody with gas and a line does to everyone what anybody can; with Anvil.
        measures: merge the rounds again, for each update's distance to the merge.
        job: what is submitted; without text it takes the standard library's source.
    """

    folder: Path
    providers: int = 4
    verifiers: int = 3
    watchers: int = 0
    cheats: Mapping[int, str] = field(default_factory=dict)
    verifier_cheats: Mapping[int, str] = field(default_factory=dict)
    watcher_cheats: Mapping[int, str] = field(default_factory=dict)
    backend: Backend = "anvil"
    block_seconds: float = 0.5
    report: Path | None = None
    skip_windows: bool = False
    store: str = "embedded"
    beginning: Path | None = None
    has_stranger: bool = False
    measures: bool = False
    job: JobSpec = PRESETS["demo"]


def fitting(
    job: JobSpec,
    providers: int,
    verifiers: int,
    cheats: Collection[int] = (),
    verifier_cheats: Collection[int] = (),
) -> JobSpec:
    """The job with slots for all; a minimum so small that the honest go on without the cheats."""
    honest, sincere = providers - len(cheats), verifiers - len(verifier_cheats)
    needed = least_providers(providers, method_chosen(job.method).rule)
    return job.but(
        {
            "members.seats": providers,
            "members.min_providers": max(needed, min(2, honest)),
            "members.slots": verifiers,
            "members.min_verifiers": max(1, sincere),
        }
    )


def with_text(job: JobSpec) -> JobSpec:
    """The job, with the standard library's modules where it names no text.

    Raises:
        ConfigError: a path that does not exist.
    """
    for path in (*job.data.paths, *job.data.held_out_paths):
        if not is_hub(path) and not Path(path).exists():
            raise ConfigError(
                f"no such file or folder: {path}", next_step="correct the path of the job's text"
            )
    if job.data.paths:
        return job
    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return job.but({"data.paths": [str(path) for path in library]})


def parse_cheats(texts: list[str], option: str) -> dict[int, str]:
    """`["2:lazy", "3:copy"]` as {2: "lazy", 3: "copy"}.

    Raises:
        ConfigError: not INDEX:NAME, or one index twice.
    """
    cheats: dict[int, str] = {}
    for text in texts:
        index, separator, name = text.partition(":")
        if not separator or not index.isdigit() or not name:
            raise ConfigError(
                f"{option} {text!r} is not NUMBER:NAME", next_step=f"write {option} 2:lazy"
            )
        if int(index) in cheats:
            raise ConfigError(f"{option} names {index} twice", next_step="give each one cheat")
        cheats[int(index)] = name
    return cheats
