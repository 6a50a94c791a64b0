"""The settings of a service: from a TOML file, from variables and from flags.

A file that cannot be used is a ConfigError that names the setting; nothing is guessed.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from atoll.chain.urls import require_endpoint
from atoll.errors import ConfigError
from atoll.service.drand_section import DrandSection
from atoll.service.machine_section import MachineSection
from atoll.service.messages import sentences
from atoll.storage.backend import parse_backend
from atoll.storage.connection_limiter import Budget
from atoll.storage.sources import MAX_URL, normalise_gateway

T = TypeVar("T", bound=BaseModel)
VARIABLES: Final = "ATOLL_SERVICE__"
"""What variables begin with that are settings; sections and names follow, with two lines between.
"""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GatewaySection(_Section):
    """Where this service serves its blocks."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    public_url: str | None = None
    """What is announced on chain where it differs from what is listened on. A provider needs none:
    it brings its updates to those who need them."""
    announce: bool = True
    """Whether anything is: behind a router that lets nothing in, a provider serves nobody."""
    private_peers: bool | None = None
    """Whether members whose announced address is of this machine or of a network around it are
    asked; left out, only on a development chain."""
    connections: int = Field(default=512, ge=8)
    """In all; a quarter of them is kept for members, of whom each may have an eighth."""
    connections_per_address: int = Field(default=64, ge=1)
    least_bytes_per_s: float = Field(default=16384, gt=0)
    """Who takes fewer while bytes wait for it is disconnected."""
    upload_mbit: float | None = Field(default=None, gt=0)
    """What the line carries, of which strangers have a quarter; left out, it is measured."""

    @field_validator("public_url")
    @classmethod
    def _can_be_announced(cls, url: str | None) -> str | None:
        """Of what nobody would ask anything costs gas, and is found out by a missed round."""
        if url is not None and normalise_gateway(url) is None:
            raise ValueError(
                f"{url!r} is no gateway's address: http(s)://HOST[:PORT][/PATH], without user, "
                f"query and fragment, at most {MAX_URL} bytes"
            )
        return url

    def budget(self) -> Budget:
        """These limits, as the gateway has them."""
        return Budget(
            connections=self.connections,
            per_address=self.connections_per_address,
            per_member=self.connections // 8,
            reserved=self.connections // 4,
            least_bytes_per_s=self.least_bytes_per_s,
            line_bytes_per_s=None if self.upload_mbit is None else self.upload_mbit * 125_000,
        )


class StoreSettings(_Section):
    """Where this service keeps its blocks beside its own folder, and how many."""

    backend: str = "embedded"
    """`embedded`, or `kubo:URL`: what is owed is mirrored into that daemon, too."""
    quota_bytes: int | None = Field(default=None, ge=64 << 20)
    """When reached, what is longest unused goes; what is still owed never does."""

    @field_validator("backend")
    @classmethod
    def _serves(cls, backend: str) -> str:
        try:
            kind, _ = parse_backend(backend)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if kind == "gateway":
            raise ValueError("a service has to keep its blocks: use embedded or kubo:URL")
        return backend


class KeeperConfig(_Section):
    """How long to leave a step that anyone may take to those before us in line."""

    stagger_s: int = Field(default=4, ge=0)


class FeeConfig(_Section):
    """What a transaction may cost at most.

    Attributes:
        max_fee_gwei: a gas; what keeps no bond is never bid more for.
        token_in_coin: what a token of the stakes is worth in the chain's coin. No contract says it,
            and a guess would be wrong on one side or the other: left out, `max_fee_gwei` holds for
            what keeps a bond, too.
        bond_share: the part of the bond that one transaction may cost which keeps it: a move of a
            game, or a key. A side of a game makes half of its 40 moves, so that with the default
            the whole of it costs no more than the bond.
    """

    max_fee_gwei: int = Field(default=200, ge=1)
    token_in_coin: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    bond_share: float = Field(default=0.05, ge=0, le=1)

    @property
    def per_stake(self) -> float:
        """Coins that a transaction may cost for each token that is at stake in it."""
        return self.bond_share * (self.token_in_coin or 0.0)


class PolicySection(_Section):
    """What jobs a service may stake on; a job that is refused costs nothing.

    Attributes:
        least_million_wei: a provider's pay for a million trained tokens, in units of the network's
            token. Where it is 0, jobs that pay nothing for training are taken, too.
        least_fee_wei: a verifier's fee for replaying a seat's round. Where it is 0, jobs that pay
            nothing for audits or signatures are taken, too.
        least_per_hour: tokens that an hour of this machine's work has to earn, as it measures
            before it joins (`most_of_window`); left out, any.
        least_move_s: seconds that every window has to leave for a transaction, a move of a game
            among them, and a side's clock in a game for ten; left out a minute, and nothing on a
            development chain (`policy.least_move`).
        longest_lock: days for which a job's terms may lock the bond of who asks to leave; six of
            the network's longest games may come on top, which no job's author decides.
        largest_bond: tokens.
        largest_share: of the account's tokens, staked ones included, that may be staked.
        jobs_at_once: jobs in which the account has a place; with as many no further one is looked
            at.
        most_parameters, most_data_bytes: of a job's model and text.
        most_memory_bytes, most_disk_bytes: that the largest part of its work may hold at once (a
            game beside it as much again), and that its data, its model and a round's updates may
            take; left out, what this machine has, and what is free where the service writes.
        most_of_window: the part of its window that a round's training, or what an auditor may have
            to replay of it, may take this machine, its merge with the held-out loss, and its run in
            a game, as it measures before it joins; left out, it measures nothing but for
            `least_per_hour`.
    """

    least_million_wei: int = Field(default=1, ge=0)
    least_fee_wei: int = Field(default=1, ge=0)
    least_per_hour: float | None = Field(default=None, gt=0)
    least_move_s: int | None = Field(default=None, ge=0)
    longest_lock: float = Field(default=30.0, gt=0)
    largest_bond: float | None = Field(default=None, gt=0)
    largest_share: float = Field(default=1.0, gt=0, le=1)
    jobs_at_once: int = Field(default=1 << 30, ge=1)
    most_parameters: int | None = Field(default=None, ge=1)
    most_data_bytes: int | None = Field(default=None, ge=1)
    most_memory_bytes: int | None = Field(default=None, ge=1)
    most_disk_bytes: int | None = Field(default=None, ge=1)
    most_of_window: float | None = Field(default=None, gt=0, le=1)

    @property
    def is_measured(self) -> bool:
        """Whether something depends on this machine's pace."""
        return self.most_of_window is not None or self.least_per_hour is not None


class HealthSection(_Section):
    """Where `/metrics`, `/livez` and `/readyz` are answered; port 0 is nowhere."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)


_HelperName = Annotated[str, Field(pattern=r"^[\w -]{1,40}$")]
_PassDigest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class RolloutsSection(_Section):
    """Where helpers of a provider ask for prompts of jobs that learn by rewards, and leave answers,
    each of which it checks before it uses it; port 0 is nowhere.

    Attributes:
        helpers: the name of each that is answered, and the digest that `atoll rollout` says.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    helpers: dict[_HelperName, _PassDigest] = Field(default_factory=dict)


class WatchdogSection(_Section):
    """Who is told once the service is blocked for `after_s`, and once it works again.

    Attributes:
        command: run with ATOLL_EVENT, ATOLL_HEALTH_STATUS and ATOLL_TEXT, and JSON on standard
            input.
        webhook: an address that gets the JSON as a POST.
    """

    command: str = ""
    webhook: str = ""
    after_s: float = Field(default=300.0, gt=0)


class ScheduleSection(_Section):
    """The hours, in UTC, in which this service joins rounds: `22:00-06:30`; none is always.

    Before they end it is in a round that it finishes, since a seat owes every round it counts in.

    Attributes:
        on_battery: whether it takes part while the machine is on its battery, too.
        most_by_others: the share of all cores' time, over five minutes, that programs of the usual
            priority may take before it sits out, until they take half of it; None is any.
    """

    hours: tuple[str, ...] = ()
    on_battery: bool = True
    most_by_others: float | None = Field(default=None, gt=0, lt=1)

    @field_validator("hours")
    @classmethod
    def _are_hours(cls, hours: tuple[str, ...]) -> tuple[str, ...]:
        for text in hours:
            start, end = _span(text)
            if start == end:
                raise ValueError(f"{text!r}: from and to are the same")
        return hours

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Seconds of the day, from and to; to may be the smaller one."""
        return [_span(text) for text in self.hours]


def _span(text: str) -> tuple[int, int]:
    """Raises ValueError."""
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)", text)
    if match is None:
        raise ValueError(f"{text!r} is not like 22:00-06:30")
    first, from_minute, last, to_minute = map(int, match.groups())
    return (first * 60 + from_minute) * 60, (last * 60 + to_minute) * 60


class ServiceConfig(_Section):
    """What a provider and a verifier both need to run.

    Relative paths are relative to the file they are written in.
    """

    role: Literal["provider", "verifier", "player"] | None = None
    """What the folder is for; another role's service refuses to start in it."""
    rpc_urls: tuple[str, ...] = Field(min_length=1)
    deployment: Path
    keystore: Path
    password_file: Path
    data_dir: Path
    jobs: Literal["any"] | tuple[int, ...] = "any"
    confirmations: int = Field(default=2, ge=0)
    rpc_agreement: int = Field(default=1, ge=1)
    """Endpoints of `rpc_urls` that have to give a block and its logs alike before anything is
    signed or staked by what it says: a single one could show a chain of its own, or hide logs."""
    doppelganger_wait_s: int = Field(default=180, ge=0)
    """Seconds of the chain's clock for which the account must not have acted from elsewhere before
    this service acts; 0 does not look."""
    poll_interval_s: float = Field(default=1.0, gt=0)
    gateway: GatewaySection = GatewaySection()
    store: StoreSettings = StoreSettings()
    keeper: KeeperConfig = KeeperConfig()
    drand: DrandSection = DrandSection()
    fees: FeeConfig = FeeConfig()
    policy: PolicySection = PolicySection()
    health: HealthSection = HealthSection()
    rollouts: RolloutsSection = RolloutsSection()
    watchdog: WatchdogSection = WatchdogSection()
    schedule: ScheduleSection = ScheduleSection()
    auto_claim: Literal["never", "each", "end"] = "end"
    """Claim pay after each final round, once at the job's end, or by hand."""
    merge: Literal["auto", "self", "apply"] = "auto"
    """Of a provider: whether it merges every round by itself, from all updates, or applies what the
    committee merged and looks at a part of them; `auto` merges where they are small."""
    owner: str | None = None
    """Who alone moves this account's stake and has its pay. The service proposes it, and stakes
    nothing before it has accepted."""
    reward_address: str | None = None
    """Who has this account's pay, if not the account. The service says so to the contracts before
    it stakes. An owner says it by itself, so that only one of the two can be named here."""
    worker_niceness: int = Field(default=10, ge=0, le=19)
    machine: MachineSection = MachineSection()
    log_file: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("rpc_agreement")
    @classmethod
    def _can_agree(cls, least: int, info: ValidationInfo) -> int:
        there = len(set(info.data.get("rpc_urls", ())))
        if there < least:
            raise ValueError(f"{least} endpoints cannot agree where rpc_urls names {there}")
        return least

    @field_validator("owner", "reward_address")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        if address is not None and re.fullmatch("0x[0-9a-fA-F]{40}", address) is None:
            raise ValueError(f"{address!r} is no address")
        if address is not None and not int(address, 16):
            raise ValueError("nobody has the key of the zero address")
        return address

    @model_validator(mode="after")
    def _are_endpoints(self) -> Self:
        """Of all settings, since what is said against one alone shows it, and its secrets."""
        for url in self.rpc_urls:
            try:
                require_endpoint(url)
            except ConfigError as error:
                raise ValueError(f"rpc_urls: {error}; {error.next_step}") from error
        return self

    @model_validator(mode="after")
    def _are_others_told_apart(self) -> Self:
        if self.schedule.most_by_others is not None and self.worker_niceness == 0:
            raise ValueError(
                "schedule.most_by_others tells other programs from this one's work by their "
                "priority: have worker_niceness be 1 or more"
            )
        return self

    @model_validator(mode="after")
    def _is_paid_once(self) -> Self:
        if self.owner is not None and self.reward_address is not None:
            raise ValueError(
                "owner and reward_address: an owner names who is paid by itself, with "
                "`atoll stake owner reward`; leave one of them out"
            )
        return self

    @property
    def store_dir(self) -> Path:
        return self.data_dir / "store"

    @property
    def journal_file(self) -> Path:
        return self.data_dir / "journal.sqlite"

    @property
    def metrics_file(self) -> Path:
        return self.data_dir / "metrics.json"

    def beside(self, folder: Path) -> Self:
        """The same settings with relative paths taken from `folder`."""
        names = ("deployment", "keystore", "password_file", "data_dir", "log_file")
        paths = {name: getattr(self, name) for name in names}
        return self.model_copy(
            update={name: folder / path for name, path in paths.items() if path is not None}
        )


@dataclass(frozen=True, slots=True)
class Layered:
    """Settings and where each of them is from.

    Attributes:
        values: as a TOML document.
        origins: dotted name → a flag, a variable, or a file; what is in none is a default.
    """

    values: dict[str, Any]
    origins: dict[str, str]


def read_config(
    cls: type[T],
    path: Path,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> T:
    """Reads and validates settings: a flag's, else a variable's, else the file's, else the default.

    Args:
        settings: `gateway.port=4001`, as after `--set`.
        environ: variables such as `ATOLL_SERVICE__GATEWAY__PORT`.

    Raises:
        ConfigError: no such file, not TOML, or a setting that cannot be used.
    """
    layered = read_layers(path, settings, environ)
    try:
        return cls.model_validate(layered.values)
    except ValidationError as error:
        name = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"{path}: {sentences(error, cls)}", next_step=f"correct {_origin(layered, name, path)}"
        ) from error


def _origin(layered: Layered, name: str, path: Path) -> str:
    """Where a value is from, or the setting that it is in, or the last one of a section; else the
    file.
    """
    matching = [
        origin
        for key, origin in layered.origins.items()
        if f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.")
    ]
    return matching[-1] if matching else str(path)


def read_layers(
    path: Path, settings: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Layered:
    """The settings of all sources in one document. Raises ConfigError."""
    layered = Layered(_read_toml(path), {})
    _note_origins(layered.values, "", str(path), layered.origins)
    for name in sorted(environ):
        if name.startswith(VARIABLES):
            parts = name.removeprefix(VARIABLES).lower().split("__")
            _set(layered, ".".join(parts), environ[name], f"the variable {name}")
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: no value", next_step="write --set NAME=VALUE")
        _set(layered, name.strip(), text.strip(), f"--set {setting}")
    return layered


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{name}.")
        else:
            settings[f"{prefix}{name}"] = value
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        makes = "make one with `atoll node init`, `atoll verifier init` or `atoll judge init`"
        raise ConfigError(
            f"there is no config {path}",
            next_step=f"{makes}, or pass --config FILE with the path of yours",
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the config {path}: {error.strerror}",
            next_step="pass --config FILE with the path of a TOML file",
        ) from error
    except (ValueError, RecursionError) as error:  # also too many digits, too deep, not UTF-8
        raise ConfigError(f"{path} is not TOML: {error}", next_step=f"correct {path}") from error


def _note_origins(
    values: Mapping[str, Any], prefix: str, where: str, origins: dict[str, str]
) -> None:
    origins |= dict.fromkeys(flat(values, prefix), where)


def _set(layered: Layered, name: str, text: str, origin: str) -> None:
    """Puts a value where its dotted name says; text that is no TOML value is text, and so is an
    address, which TOML takes for a number.
    """
    *sections, last = name.split(".")
    place = layered.values
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            raise ConfigError(f"{origin}: {section} is no section", next_step="correct its name")
    place[last] = text
    if not text.startswith("0x"):
        with suppress(ValueError, RecursionError):
            place[last] = tomllib.loads(f"value = {text}")["value"]
    layered.origins[name] = origin
