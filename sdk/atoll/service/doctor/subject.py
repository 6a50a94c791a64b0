"""What is examined: a config, or as much of one as the command line says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from atoll.numerics.kernels.devices import Devices
from atoll.service.config import GatewaySection, ServiceConfig


@dataclass(frozen=True, slots=True)
class Subject:
    """What checks read; None and empty where there is nothing to look at.

    Attributes:
        fee_cap: wei a gas that are never exceeded but by what keeps a bond.
        fee_per_stake: coins that a transaction may cost for each token at stake in it.
        owner: who shall own the account; None leaves that open.
        devices: on which it trains and replays; None is what the environment says.
        store_dir: where blocks are kept; its quota is `quota_bytes`.
    """

    rpc_urls: tuple[str, ...] = ()
    deployment: Path | None = None
    keystore: Path | None = None
    password_file: Path | None = None
    data_dir: Path | None = None
    store_dir: Path | None = None
    quota_bytes: int | None = None
    gateway: GatewaySection | None = None
    fee_cap: int = 0
    fee_per_stake: float = 0.0
    owner: str | None = None
    devices: Devices | None = None

    @classmethod
    def of(cls, config: ServiceConfig) -> Self:
        """Everything that a service's config names."""
        return cls(
            rpc_urls=config.rpc_urls,
            deployment=config.deployment,
            keystore=config.keystore,
            password_file=config.password_file,
            data_dir=config.data_dir,
            store_dir=config.store_dir,
            quota_bytes=config.store.quota_bytes,
            gateway=config.gateway,
            fee_cap=config.fees.max_fee_gwei * 10**9,
            fee_per_stake=config.fees.per_stake,
            owner=config.owner,
            devices=config.machine.devices,
        )
