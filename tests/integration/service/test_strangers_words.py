"""What strangers say reaches an operator in a line, and steers neither systemd nor a terminal."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_abi.abi import encode
from tests.support.manifests import make_manifest
from tests.unit.chain.test_endpoints import ROUNDS, chain_that

from atoll.chain.revert import ERROR_SELECTOR
from atoll.errors import ManifestError, RpcUnavailable, TransactionFailed
from atoll.protocol.canonical import decode
from atoll.protocol.canonical import encode as encode_cbor
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.types import Role
from atoll.service.config import WatchdogSection
from atoll.service.effects import Effects
from atoll.service.health_status import KnownOfService, blocking
from atoll.service.service import Service
from atoll.service.watchdog import Watchdog

SAID = "no\0body\nWATCHDOG=trigger\r\x1b]0;title\x07\u2028\udc80"


def refusal() -> str:
    """Why a manifest is refused that has a key of a stranger's making."""
    plain = decode(make_manifest().to_bytes(), MAX_MANIFEST_BYTES)
    assert isinstance(plain, dict)
    with pytest.raises(ManifestError) as refused:
        Manifest.from_bytes(encode_cbor({**plain, SAID[:-1]: 1}))
    return str(refused.value)


def is_a_line(text: str) -> bool:
    return text.isprintable() and "trigger" in text


async def test_an_endpoint_s_words_are_a_line() -> None:
    said = {"error": {"code": -1, "message": SAID}}
    reverted = (ERROR_SELECTOR + encode(["string"], [SAID[:-1]])).hex()
    refused = {"error": {"code": 3, "message": "execution reverted", "data": f"0x{reverted}"}}
    async with chain_that({"eth_getBalance": said, "eth_call": refused}) as chain:
        with pytest.raises(RpcUnavailable) as silent:
            await chain.native_balance(ROUNDS)
        with pytest.raises(TransactionFailed) as failed:
            await chain.stake(ROUNDS, Role.PROVIDER)
    assert is_a_line(str(silent.value)) and is_a_line(str(failed.value))


@pytest.mark.parametrize(
    "known",
    [
        KnownOfService(silent_seconds=90.0, silence=SAID),
        KnownOfService(silent_seconds=1.0, waiting=(SAID,)),
        KnownOfService(silent_seconds=1.0, strange=frozenset({1}), refused={1: refusal()}),
    ],
)
async def test_systemd_and_who_is_called_are_told_a_line(
    known: KnownOfService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`WATCHDOG=trigger` in a line of its own has systemd end the service (sd_notify(3))."""
    told = tmp_path / "told"
    section = WatchdogSection(command=f"sh -c 'printf %s \"$ATOLL_TEXT\" > {told}'", after_s=0.01)
    watchdog = Watchdog(0.0)
    nothing = SimpleNamespace(note=lambda _: None, checkpoint=lambda: None)
    context = SimpleNamespace(me=ROUNDS, journal=nothing, follower=nothing)
    effects = cast(Effects, SimpleNamespace(context=context))
    service: Service[Any] = Service("provider", None, cast(Any, None), effects)
    monkeypatch.setattr(Service, "health_status", lambda _: blocking(known))
    address = f"@atoll-{os.getpid()}-words"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(address.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        await service._look(section, watchdog)
        first, second = there.recv(1 << 16).decode().split("\n")
    assert first == "WATCHDOG=1" and second.startswith("STATUS=") and is_a_line(second)
    found = blocking(known)
    assert found is not None
    assert not found.is_fault or told.read_text() == found.text
