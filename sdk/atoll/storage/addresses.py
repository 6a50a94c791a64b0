"""Which addresses gateways are reached at; a stranger's, those of the whole Internet alone."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

from atoll.proxies import proxy_hosts

_THREADS: Final = 32  # each waits for a name server and does nothing else
_KNOWN: Final = 4096
"""Names whose addresses are remembered, those that were found last."""


_TRANSLATED: Final = ip_network("64:ff9b::/96")
"""IPv4 addresses as machines that have IPv6 alone write them (RFC 6052)."""
_GIVEN_OUT: Final = ip_network("2000::/3")
"""All of IPv6 from which registries give addresses to anybody."""
_SPECIAL: Final = tuple(map(ip_network, ("192.0.0.0/24", "2001::/23", "2002::/16", "3fff::/20")))
"""Of protocols, tunnels and examples in there (IANA's registries of special purposes): which of
them `ipaddress` counts as global differs between versions of Python."""


def is_global(host: str) -> bool:
    """Whether a literal address is one of the whole Internet; what is a name counts as one."""
    try:
        address = _literal(host)
    except ValueError:
        # No name is of digits and dots alone: whoever connects takes 127.1 and 0 for an address.
        return not host.replace(".", "").isdigit()
    is_given_out = isinstance(address, IPv4Address) or address in _GIVEN_OUT
    is_special = address.is_multicast or any(address in network for network in _SPECIAL)
    return address.is_global and is_given_out and not is_special


def is_own(host: str) -> bool:
    """Whether a host leads whoever asks it to itself, or names no machine."""
    try:
        address = _literal(host)
    except ValueError:
        return host in {"", "localhost"}
    return address.is_loopback or address.is_unspecified


def _literal(host: str) -> IPv4Address | IPv6Address:
    """The address that is reached: an IPv4 address also where IPv6 writes it.

    Raises ValueError where the host is no literal address.
    """
    address = ip_address(host.strip("[]"))
    if isinstance(address, IPv6Address):
        if address in _TRANSLATED:
            return IPv4Address(address.packed[-4:])
        return address.ipv4_mapped or address
    return address


@dataclass(frozen=True, slots=True)
class _Question:
    """What a name server is asked for."""

    host: str
    port: int
    family: int


class GatewayResolver(AbstractResolver):
    """Resolves names in threads of its own, of which a silent name server holds one a name.

    A name that was found before has the addresses that it had then where no name server answers:
    strangers whose names hold every thread make no gateway unknown that was known.

    Args:
        patience_s: how long a name is waited for.
        private_addresses: whether those of this machine and of networks around it are given, too;
            of an HTTP proxy's own name they are.
    """

    def __init__(self, patience_s: float, *, private_addresses: bool) -> None:
        self._patience_s = patience_s
        self._private_addresses = private_addresses
        self._pool = ThreadPoolExecutor(_THREADS, "atoll-names")
        self._asked: dict[_Question, asyncio.Future[list[Any]]] = {}
        self._known: dict[_Question, list[Any]] = {}
        self._near: dict[str, bool] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Raises OSError where there is no address that may be asked, or none in time."""
        try:
            async with asyncio.timeout(self._patience_s):
                # It goes on when nobody waits any more: asked again, it takes no second thread.
                addresses = await asyncio.shield(self._lookup(host, port, family))
        except TimeoutError as error:
            addresses = self._known.get(_Question(host, port, family), [])
            if not addresses:
                text = "no name server answered in time"
                raise socket.gaierror(socket.EAI_AGAIN, text) from error
        else:
            self._remember(_Question(host, port, family), addresses)
        results = [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, proto, _, address in addresses
            if self._private_addresses or is_global(address[0]) or host in proxy_hosts()
        ]  # fmt: skip
        if not results:
            raise OSError(f"{host} is no address of the Internet")
        return results

    async def is_near(self, host: str, port: int) -> bool:
        """Whether a name is one of this machine or of a network around it, as far as we are told.

        It is looked up once: behind a proxy there may be no name server, which takes its time.
        """
        if host not in self._near:
            try:
                await self.resolve(host, port, socket.AF_UNSPEC)
            except OSError as error:
                self._near[host] = not isinstance(error, socket.gaierror)
            else:
                self._near[host] = False
            if len(self._near) > _KNOWN:
                del self._near[next(iter(self._near))]
        return self._near[host]

    def _lookup(self, host: str, port: int, family: int) -> asyncio.Future[list[Any]]:
        key = _Question(host, port, family)
        if key not in self._asked:
            ask = partial(
                socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
            )
            self._asked[key] = asyncio.get_running_loop().run_in_executor(self._pool, ask)
            self._asked[key].add_done_callback(lambda _: self._asked.pop(key))
        return self._asked[key]

    def _remember(self, key: _Question, addresses: list[Any]) -> None:
        self._known.pop(key, None)
        self._known[key] = addresses
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]

    async def close(self) -> None:
        """Waits for no name server."""
        self._pool.shutdown(wait=False, cancel_futures=True)
