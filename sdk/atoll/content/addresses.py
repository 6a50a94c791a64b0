"""Which addresses a stranger may have us connect to: those of the whole Internet alone."""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver


def is_global(host: str) -> bool:
    """Whether a literal address is one of the whole Internet; what is a name counts as one."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return True
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_global and not address.is_multicast


class GlobalResolver(AbstractResolver):
    """Resolves names, and leaves out addresses of this machine and of networks around it."""

    def __init__(self) -> None:
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError where nothing is left."""
        found = await self._resolver.resolve(host, port, family)
        left = [result for result in found if is_global(result["host"])]
        if not left:
            raise OSError(f"{host} is no address of the Internet")
        return left

    async def close(self) -> None:
        await self._resolver.close()
