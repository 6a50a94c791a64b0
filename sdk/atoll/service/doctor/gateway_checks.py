"""Whether others reach our gateway: a block of ours is fetched through the public URL."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from atoll.errors import ConfigError
from atoll.proxies import proxy_of
from atoll.service.config import GatewaySection
from atoll.service.doctor.findings import Finding, failure, ok, warning
from atoll.service.doctor.subject import Subject
from atoll.service.lock import holder_of
from atoll.storage.addresses import is_global
from atoll.storage.gateway import Gateway, ListenAddress
from atoll.storage.local import LocalStore

FETCH_SECONDS: Final = 10.0
BLOCK_BYTES: Final = 32
PROBE: Final = "bafkqaaa"
"""The empty block, which every gateway has."""
EVERYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - what a host may say


async def check_gateway(subject: Subject) -> list[Finding]:
    """The port, and the way from outside to it."""
    section = subject.gateway
    if section is None:
        return []
    if section.public_url and not section.port:
        step = "set port in [gateway] to the one that your router passes on"
        return [failure("gateway", "public_url is set, and the port is any free one", step)]
    is_running = subject.data_dir is not None and holder_of(subject.data_dir) is not None
    if is_running:
        findings = [ok("port", f"{section.port or 'any'}: the running service has it")]
        return findings + await _check_reach(section, PROBE, b"")
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder), sync=False)
        block = secrets.token_bytes(BLOCK_BYTES)
        gateway = Gateway(store, ListenAddress(section.host, section.port))
        try:
            await gateway.start()
        except ConfigError as error:
            return [failure("port", str(error), error.next_step or "choose another port")]
        try:
            findings = [ok("port", f"{section.host}:{section.port or 'any'} can be listened on")]
            return findings + await _check_reach(section, str(store.add_block(block)), block)
        finally:
            await gateway.stop()


async def _check_reach(section: GatewaySection, cid: str, block: bytes) -> list[Finding]:
    if not section.announce:
        text = "nobody is told an address: a provider brings its updates to those who need them"
        return [ok("public URL", text)]
    if section.public_url is None:
        if not _is_local(section.host):
            text = f"{section.host} is announced as it is listened on"
            return [warning("public URL", text, "set public_url in [gateway] to what others use")]
        text = "others cannot reach this machine: it listens on a local address only, which is "
        text += "enough for a provider, and not for a verifier"
        step = "set host to 0.0.0.0 and public_url to what others use, in [gateway]"
        return [warning("public URL", text, step)]
    url = section.public_url.rstrip("/")
    problem = await _fetched(url, cid, block)
    if problem:
        step = "open the port in firewall and router, and check public_url in [gateway]"
        if _is_local(section.host):
            step += f"; or host is local, {section.host}: set it to 0.0.0.0"
        return [failure("public URL", f"{url} does not lead here: {problem}", step)]
    if _is_local(urlsplit(url).hostname or ""):
        text = f"{url} leads here, on this machine or its network only"
        return [warning("public URL", text, "set public_url to an address that others reach")]
    return [ok("public URL", f"{url} leads here, as seen from this machine")]


async def _fetched(url: str, cid: str, block: bytes) -> str:
    """Why the block did not come through the URL; empty where it did."""
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{url}/ipfs/{cid}?format=raw", allow_redirects=False, proxy=proxy_of(url)
            ) as answer,
        ):
            body = await answer.content.read(BLOCK_BYTES + 1)
            if answer.status != 200:
                return f"it answers {answer.status}"
            return "" if body == block else "it answers with other bytes"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return str(error) or type(error).__name__


def _is_local(host: str) -> bool:
    return host == "localhost" or not (is_global(host) or host in EVERYWHERE)
