"""The settings of a service, from one TOML file.

A file that cannot be used is a ConfigError that names the setting; nothing is guessed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from atoll.content.backend import parse_backend
from atoll.errors import ConfigError

T = TypeVar("T", bound=BaseModel)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GatewaySection(_Section):
    """Where this service serves its blocks."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    public_url: str | None = None
    """What is announced on chain where it differs from what is listened on."""


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
    stagger_blocks: int = Field(default=3, ge=0)


class FeeConfig(_Section):
    """What a transaction may cost at most."""

    max_fee_gwei: int = Field(default=200, ge=1)


class ServiceConfig(_Section):
    """What a provider and a verifier both need to run.

    Relative paths are relative to the file they are written in.
    """

    rpc_urls: tuple[str, ...] = Field(min_length=1)
    deployment: Path
    keystore: Path
    password_file: Path
    data_dir: Path
    jobs: Literal["any"] | tuple[int, ...] = "any"
    confirmations: int = Field(default=2, ge=0)
    poll_interval_s: float = Field(default=1.0, gt=0)
    gateway: GatewaySection = GatewaySection()
    store: StoreSettings = StoreSettings()
    keeper: KeeperConfig = KeeperConfig()
    fees: FeeConfig = FeeConfig()
    auto_claim: Literal["never", "each", "end"] = "end"
    """Claim pay after each final round, once at the job's end, or by hand."""
    worker_niceness: int = Field(default=10, ge=0, le=19)
    log_file: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

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


def read_config(cls: type[T], path: Path) -> T:
    """Reads and validates a TOML file.

    Raises:
        ConfigError: no such file, not TOML, or a setting that cannot be used.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read the config {path}: {error.strerror}",
            next_step="pass --config FILE with the path of a TOML file",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", next_step=f"correct {path}") from error
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()
        )
        raise ConfigError(f"{path}: {wrong}", next_step=f"correct {path}") from error
