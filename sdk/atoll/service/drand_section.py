"""The settings of a service about drand."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from atoll.chain.drand import QUICKNET
from atoll.storage.sources import normalise_gateway


class DrandSection(BaseModel):
    """Where drand's signatures are asked for, on a chain that draws by them.

    Attributes:
        urls: of its HTTP servers, in turns. A signature is checked, so that any may be anybody's.
        chain_hash: by which they know the chain of drand's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    urls: tuple[str, ...] = (
        "https://api.drand.sh",
        "https://api2.drand.sh",
        "https://api3.drand.sh",
        "https://drand.cloudflare.com",
    )
    chain_hash: str = Field(default=QUICKNET.hash, pattern=r"^[0-9a-f]{64}$")

    @field_validator("urls")
    @classmethod
    def _are_addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if normalise_gateway(url) is None:
                raise ValueError(f"{url!r} is no address of a server")
        return urls
