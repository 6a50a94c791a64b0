"""The gateway's own process: it serves, it knows members, and its end is nobody else's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import structlog
from eth_account import Account
from tests.support.identities import address

from atoll.chain.keys import sign_typed
from atoll.errors import ConfigError
from atoll.protocol.types import Address, Domain
from atoll.service import gateway_process
from atoll.service.gateway_process import GatewayFiles, GatewayProcess, GatewaySpec, Serves
from atoll.service.greeting import Greeter
from atoll.service.journal import Journal
from atoll.service.log_files import log_from
from atoll.service.task import Task
from atoll.storage.cid import Cid
from atoll.storage.connection_limiter import Budget
from atoll.storage.local import LocalStore

ACCOUNT = Account.from_key("0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
CHAIN, ROUNDS = 31337, address("rounds")
NOTHING: Serves = Task("test-nothing.v1", __name__)
EVERYTHING: Serves = Task("test-everything.v1", __name__)
BUDGET = Budget(connections=16, per_address=8, reserved=4)
AHEAD = """
import asyncio, json, multiprocessing, sys
from atoll.storage.connection_limiter import Budget
from atoll.service.gateway_process import GatewayProcess, GatewaySpec, fork_ahead
from atoll.service.worker import fork_ahead as fork_workers

async def main():
    told = json.loads(sys.argv[1])
    gateway = GatewayProcess(GatewaySpec(**{**told, "budget": Budget(**told["budget"])}))
    await gateway.start()
    if "stops" in sys.argv:
        await gateway.stop()
        assert not ahead.is_alive()
        await gateway.start()
    print(json.dumps([gateway.pid == ahead.pid, gateway.pid, gateway.url]), flush=True)
    await asyncio.Event().wait()

if __name__ == "__main__":
    fork_workers()
    before = set(multiprocessing.active_children())
    fork_ahead()
    (ahead,) = set(multiprocessing.active_children()) - before
    asyncio.run(main())
"""


@NOTHING.runs
def nothing(cid: Cid) -> bool:
    """What a cheat serves."""
    return False


@EVERYTHING.runs
def everything(cid: Cid) -> bool:
    """Says so, and gives it out."""
    structlog.get_logger().info("a word of the gateway")
    return True


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", sync=False)


@pytest.fixture
def spec(store: LocalStore, tmp_path: Path) -> GatewaySpec:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.publish("1/held-out/2", b"\x00said")
    return GatewaySpec(
        store=str(store.root),
        host="127.0.0.1",
        port=0,
        chain_id=CHAIN,
        rounds=ROUNDS,
        budget=BUDGET,
        journal=str(tmp_path / "journal.sqlite"),
    )


@pytest.fixture
async def gateway(spec: GatewaySpec) -> AsyncIterator[GatewayProcess]:
    process = GatewayProcess(spec)
    await process.start()
    yield process
    await process.stop()


async def get(gateway: GatewayProcess, path: str, **headers: str) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{gateway.url}/{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.read()


async def until(happened: Callable[[], object]) -> None:
    """Returns once it is so; the test's own limit ends what never is."""
    while not happened():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.02)


async def test_blocks_and_notes_are_served_and_counted(
    gateway: GatewayProcess, store: LocalStore
) -> None:
    cid = store.add_block(b"content")
    assert await get(gateway, f"ipfs/{cid}?format=raw") == (200, b"content")
    assert await get(gateway, "notes/1/held-out/2") == (200, b"\x00said")
    assert (await get(gateway, "notes/1/held-out/3"))[0] == 404
    await until(lambda: gateway.bytes_up == len(b"content") + len(b"\x00said"))


async def test_a_child_that_is_killed_is_started_anew_at_its_port(
    gateway: GatewayProcess, store: LocalStore
) -> None:
    cid = store.add_block(b"content")
    url, pid = gateway.url, gateway.pid
    assert pid is not None
    await get(gateway, f"ipfs/{cid}?format=raw")
    await until(lambda: gateway.bytes_up)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: gateway.trouble)
    assert gateway.connections == 0
    await until(lambda: not gateway.trouble)
    assert gateway.pid not in {None, pid}
    assert await get(gateway, f"ipfs/{cid}?format=raw") == (200, b"content")
    assert gateway.url == url
    await until(lambda: gateway.bytes_up == 2 * len(b"content"))


@pytest.mark.parametrize(("level", "is_told"), [(logging.INFO, True), (logging.WARNING, False)])
async def test_a_child_logs_from_the_level_up_that_its_parent_does(
    spec: GatewaySpec,
    store: LocalStore,
    capfd: pytest.CaptureFixture[str],
    level: int,
    is_told: bool,
) -> None:
    before = structlog.get_config()
    process = GatewayProcess(replace(spec, serves=EVERYTHING))
    log_from(level)
    try:
        await process.start()
        cid = store.add_block(b"content")
        assert await get(process, f"ipfs/{cid}?format=raw") == (200, b"content")
    finally:
        structlog.configure(**before)
        await process.stop()
    assert ("a word of the gateway" in capfd.readouterr().err) is is_told


@pytest.mark.parametrize("line", [b"x" * (1 << 10), b"[]", b"{}", b'{"bytes_up": {}}', b"\xff"])
async def test_a_child_that_says_what_it_should_not_is_started_anew(
    spec: GatewaySpec, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is the parent's end of the pipe that is fed; a child of ours says no such thing."""
    monkeypatch.setattr(gateway_process, "_LONGEST_LINE", 1 << 9)
    gateway = GatewayProcess(spec)
    await gateway.start()
    try:
        process, pid = gateway._process, gateway.pid
        assert process is not None and process.stdout is not None
        process.stdout.feed_data(line + b"\n")
        await until(lambda: gateway.pid not in {None, pid} and not gateway.trouble)
        assert (await get(gateway, "notes/1/held-out/2"))[0] == 200
    finally:
        await gateway.stop()


async def test_why_it_cannot_be_started_anew_is_known_until_it_is(gateway: GatewayProcess) -> None:
    assert gateway.pid is not None
    port = int(gateway.url.rpartition(":")[2])
    process = gateway._process
    assert process is not None
    os.kill(gateway.pid, signal.SIGKILL)
    await process.wait()
    taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    async with taken:
        await until(lambda: f"{port} is in use" in gateway.trouble)
    await until(lambda: not gateway.trouble)
    assert (await get(gateway, "notes/1/held-out/2"))[0] == 200


async def test_it_ends_with_its_parent(spec: GatewaySpec) -> None:
    gateway = GatewayProcess(spec)
    await gateway.start()
    process = gateway._process
    assert process is not None and process.stdin is not None
    process.stdin.close()  # as the kernel does when the parent is killed
    assert await process.wait() == 0
    await gateway.stop()


async def test_it_ends_without_a_word_where_nobody_listens(spec: GatewaySpec) -> None:
    """Its parent was killed while it started."""
    command = (sys.executable, "-m", "atoll.service.gateway_process")
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert child.stdin is not None and child.stderr is not None
    child._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    child.stdin.write(json.dumps(asdict(spec)).encode() + b"\n")
    assert await child.stderr.read() == b""
    assert await child.wait() == 0


async def test_a_store_that_cannot_be_used_is_one_clear_error(
    spec: GatewaySpec, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot use"):
        await GatewayProcess(replace(spec, store=str(tmp_path / "file"))).start()


@pytest.mark.parametrize("as_what", ["members", "submitters"])
async def test_members_and_submitters_are_who_it_is_told(
    gateway: GatewayProcess, as_what: str
) -> None:
    greeter = Greeter(Address(ACCOUNT.address), Domain(CHAIN, ROUNDS), partial(sign_typed, ACCOUNT))
    assert not await outlives_strangers(gateway, greeter(gateway.url))
    gateway.admit(**{"members": [], as_what: [ACCOUNT.address]}, files=GatewayFiles())
    for _ in range(100):  # until the child has read it
        if await outlives_strangers(gateway, greeter(gateway.url)):
            return
    pytest.fail("it is taken for a stranger")


async def test_it_takes_the_files_that_it_is_told_to_expect(
    gateway: GatewayProcess, spec: GatewaySpec
) -> None:
    block = b"an update"
    cid = Cid.of(block)

    async def put() -> int:
        url = f"{gateway.url}/ipfs/{cid}"
        async with aiohttp.ClientSession() as session, session.put(url, data=block) as answer:
            return answer.status

    assert await put() == 409
    gateway.admit([], GatewayFiles(accepted={cid: len(block)}))
    assert await answered(put) == 201
    assert LocalStore(spec.store).get_block(cid) == block
    assert gateway.pid is not None
    os.kill(gateway.pid, signal.SIGKILL)
    assert await answered(put) == 200  # the next child is told the same


async def test_it_shows_members_pieces_of_the_files_that_it_is_told_of(
    gateway: GatewayProcess, store: LocalStore
) -> None:
    block = b"an update"
    cid, other = store.add_bytes(block), store.add_bytes(b"no update")
    greeter = Greeter(Address(ACCOUNT.address), Domain(CHAIN, ROUNDS), partial(sign_typed, ACCOUNT))

    async def shown(of: Cid, before: int = 0) -> tuple[int, bytes]:
        """What the child answers, once that is another than before."""
        for _ in range(600):
            answer = await asked_once(of)
            if answer[0] != before:
                return answer
            await asyncio.sleep(0.1)
        pytest.fail(f"it answers {before} for a minute")

    async def asked_once(of: Cid) -> tuple[int, bytes]:
        url, headers = f"{gateway.url}/pieces/{of}?numbers=0", greeting
        async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as answer:
            return answer.status, await answer.read()

    greeting = {"Authorization": greeter(gateway.url)}
    assert (await shown(cid))[0] == 403
    gateway.admit([ACCOUNT.address], GatewayFiles(shown={cid: len(block)}))
    assert await shown(cid, before=403) == (200, block)
    assert (await shown(other))[0] == 404
    gateway.admit([ACCOUNT.address], GatewayFiles(shown={other: len(block)}))
    assert await shown(other, before=404) == (200, b"no update")
    assert (await shown(cid))[0] == 404


async def answered(put: Callable[[], Awaitable[int]]) -> int:
    """What a child says that listens, and has read what it is to expect."""
    while True:
        with suppress(aiohttp.ClientError):
            if (status := await put()) != 409:
                return status
        await asyncio.sleep(0.05)


async def outlives_strangers(gateway: GatewayProcess, greeting: str) -> bool:
    """Whether a connection that greets is still there once strangers have filled their room."""
    port = int(gateway.url.rpartition(":")[2])
    async with AsyncExitStack() as stack:

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            return reader, writer

        ours = await connect()
        assert await asks(*ours, f"Authorization: {greeting}\r\n")
        for _ in range(2 * BUDGET.connections):
            assert await asks(*await connect())
        return await asks(*ours)


async def asks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, more: str = "") -> bool:
    """Whether a request for nothing is answered."""
    try:
        writer.write(f"GET /notes/none HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return head.startswith(b"HTTP/1.1 404")


async def test_what_is_not_given_out_is_not_there(spec: GatewaySpec, store: LocalStore) -> None:
    cid = store.add_block(b"content")
    gateway = GatewayProcess(replace(spec, serves=NOTHING))
    await gateway.start()
    try:
        assert (await get(gateway, f"ipfs/{cid}?format=raw"))[0] == 404
    finally:
        await gateway.stop()


async def test_a_port_in_use_is_one_clear_error(
    gateway: GatewayProcess, spec: GatewaySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_process, "PORT_TRIES", 2)
    port = int(gateway.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"{port} is in use") as caught:
        await GatewayProcess(replace(spec, port=port)).start()
    assert caught.value.next_step is not None


async def test_a_service_that_starts_again_gets_its_port(
    gateway: GatewayProcess, spec: GatewaySpec
) -> None:
    port = int(gateway.url.rpartition(":")[2])
    again = GatewayProcess(replace(spec, port=port))
    starts = asyncio.create_task(again.start())
    await until(lambda: again.pid is not None)
    await gateway.stop()
    await starts
    try:
        assert (await get(again, "notes/none"))[0] == 404
    finally:
        await again.stop()


@pytest.mark.parametrize("stops", [False, True])
async def test_one_that_was_forked_ahead_serves_and_ends_with_its_parent(
    spec: GatewaySpec, stops: bool
) -> None:
    """A gateway that is started again is executed: what was forked ahead is taken once."""
    arguments = [json.dumps(asdict(spec)), *["stops"] * stops]
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AHEAD, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    is_forked, pid, url = json.loads(await parent.stdout.readline())
    assert is_forked is not stops
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"{url}/notes/1/held-out/2")
        assert await answer.read() == b"\x00said"
    watched = os.pidfd_open(pid)
    try:
        parent.kill()
        await parent.wait()
        assert select.select([watched], [], [], 600)[0]
    finally:
        os.close(watched)
