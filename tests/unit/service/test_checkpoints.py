"""Who joins a long chain takes its logs from a member's gateway, and none that is not true."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.support.identities import DOMAIN, address, digest
from tests.unit.chain.test_index import DEPLOYMENT, Node
from tests.unit.chain.test_log_decode import log_of

from atoll.chain import index as index_module
from atoll.chain import log_snapshot
from atoll.chain.contracts import AtollChain
from atoll.chain.decode import RawLog
from atoll.chain.follower import Follower
from atoll.chain.index import EventIndex
from atoll.chain.log_snapshot import CheckpointRefused, read_snapshot, write_snapshot
from atoll.chain.logs import LogReader
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable
from atoll.protocol.events import GatewayAnnounced
from atoll.protocol.types import Address, BlockRef
from atoll.service import checkpoint_writer
from atoll.service.checkpoint_writer import CheckpointWriter
from atoll.service.checkpoints import NAME, CheckpointFinder, CheckpointNote
from atoll.storage import Gateway
from atoll.storage.rate_limits import Outsider
from atoll.storage.storage import Storage, StoreConfig, open_storage

BLOCKS, CONFIRMATIONS, FINAL = 120, 2, 10


class Chain(Node):
    """A node that is asked for announcements, too, and counts the ranges that it is asked for."""

    def __init__(self) -> None:
        super().__init__(BLOCKS + 1)
        self.ranges: list[tuple[int, int]] = []
        self.has_state: Callable[[int], bool] = lambda _: True

    async def ask(self, method: str, params: list[Any], read: Callable[[Any], Any]) -> Any:
        if method == "eth_getLogs":
            return read([log for log in self.logs if log["topics"][0] in params[0]["topics"][0]])
        if method == "eth_call":
            at = params[1]
            is_number = isinstance(at, str)  # asked of whoever takes no hash
            number = int(at, 16) if is_number else self.hashes.index(at["blockHash"])
            if is_number or not self.has_state(number):
                raise RpcUnavailable("no endpoint has the state of so old a block")
        return await super().ask(method, params, read)

    async def ask_several(
        self, count: int, method: str, params: list[Any], read: Callable[[Any], Any]
    ) -> list[Any]:
        first, last = (int(params[0][name], 16) for name in ("fromBlock", "toBlock"))
        self.ranges.append((first, last))
        return await super().ask_several(count, method, params, read)


@dataclass
class Notes:
    """Those of a journal."""

    by_name: dict[str, bytes] = field(default_factory=dict)

    def note(self, name: str) -> bytes | None:
        return self.by_name.get(name)

    def publish(self, name: str, body: bytes) -> None:
        self.by_name[name] = body


@dataclass
class Member:
    """Whoever has read the chain and serves a checkpoint of it."""

    node: Chain
    index: EventIndex
    storage: Storage
    notes: Notes
    gateway: Gateway

    async def look(self) -> CheckpointNote | None:
        """What it serves after one more look."""
        follower = Follower(self.index, DEPLOYMENT)
        chain = SimpleNamespace(deployment=DEPLOYMENT)
        parts = {"storage": self.storage, "journal": self.notes}
        context = SimpleNamespace(follower=follower, chain=chain, **parts)
        await CheckpointWriter().look(cast(Any, context))
        note = self.notes.note(NAME)
        return None if note is None else CheckpointNote.from_bytes(note)

    async def serve(self, data: bytes, **changes: Any) -> None:
        """Says that this is its checkpoint."""
        cid = await self.storage.add_bytes(data)
        said = {"block": 1, "count": 1, "cid": cid, "size": len(data), **changes}
        self.notes.publish(NAME, CheckpointNote(**said).to_bytes())

    async def file(self) -> bytes:
        """The checkpoint that it made."""
        note = await self.look()
        assert note is not None
        return self.storage.local.read_bytes(note.cid, note.size)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "WORTH_BLOCKS", 50)
    monkeypatch.setattr(index_module, "FINAL_BLOCKS", FINAL)
    monkeypatch.setattr(checkpoint_writer, "LEAST_LOGS", 5)


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    async with AsyncExitStack() as stack:
        storage = await open_storage(StoreConfig(tmp_path / "blocks", sync=False))
        stack.push_async_callback(storage.close)
        notes = Notes()
        gateway = Gateway(storage.local, notes=notes.note)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        node = Chain()
        node.announce(3, 0, gateway.url)
        for number in range(5, BLOCKS - 20, 10):
            node.announce(number, 0, f"http://{number}.example.org:1")
            node.announce(number, 1, gateway.url)
        index = index_of(node, tmp_path / "member")
        stack.callback(index.close)
        await index.poll()
        node.ranges.clear()
        yield Member(node, index, storage, notes, gateway)


def chain_of(node: Chain) -> AtollChain:
    chain = AtollChain("http://127.0.0.1:1", DEPLOYMENT)
    chain.events = LogReader(cast(FailoverProvider, node), DEPLOYMENT.addresses)
    return chain


def index_of(node: Chain, path: Path, **more: Any) -> EventIndex:
    return EventIndex(chain_of(node), confirmations=CONFIRMATIONS, path=path, **more)


async def joined(
    member: Member, folder: Path, account: Address | None = None
) -> tuple[EventIndex, str]:
    """An index that has just joined; and what it said of checkpoints."""
    storage = await open_storage(StoreConfig(folder / "joiner", sync=False))
    fetcher = storage.fetcher
    finder = CheckpointFinder(
        chain_of(member.node), lambda url: fetcher.among(lambda: [url], Outsider(NAME)), 0, account
    )
    index = index_of(member.node, folder / "joined", checkpoints=finder)
    try:
        with capture_logs() as logs:
            await index.poll()
    finally:
        await storage.close()
    mine, theirs = (
        [(item.event, item.block.number, item.block.timestamp) for item in each.history()]
        for each in (index, member.index)
    )
    assert mine == theirs
    assert index.confirmed == member.index.confirmed == BLOCKS - CONFIRMATIONS
    return index, " ".join(str(each.get("cause", each["event"])) for each in logs)


async def test_who_joins_takes_a_member_s_logs_and_reads_on_from_there(
    member: Member, tmp_path: Path
) -> None:
    note = await member.look()
    assert note is not None
    assert 90 <= note.block <= BLOCKS - CONFIRMATIONS - FINAL
    index, said = await joined(member, tmp_path)
    assert "begins with a checkpoint" in said
    assert member.node.ranges == [(note.block + 1, BLOCKS - CONFIRMATIONS)]
    assert index._store.checked == BLOCKS - CONFIRMATIONS
    index.close()


def _inflated(data: bytes) -> bytes:
    return zlib.decompress(data[len(log_snapshot.MAGIC) :])


def _deflated(body: bytes) -> bytes:
    return log_snapshot.MAGIC + zlib.compress(body)


def false(data: bytes) -> bytes:
    """Another URL in one of its logs."""
    return _deflated(_inflated(data).replace(b"http://25.example", b"http://26.example"))


def lacking(data: bytes) -> bytes:
    """Without its last log."""
    snapshot = read_snapshot(data, DOMAIN)
    logs = snapshot.logs[:-1]
    return b"".join(write_snapshot(DOMAIN, snapshot.block, len(logs), [logs]))


def stale(data: bytes) -> bytes:
    """Of a block that a reorg took back."""
    snapshot = read_snapshot(data, DOMAIN)
    block = BlockRef(snapshot.block.number, digest("lost"), snapshot.block.timestamp)
    return b"".join(write_snapshot(DOMAIN, block, len(snapshot.logs), [snapshot.logs]))


def of_the_future(data: bytes) -> bytes:
    snapshot = read_snapshot(data, DOMAIN)
    block = BlockRef(10**6, snapshot.block.hash, snapshot.block.timestamp)
    return b"".join(write_snapshot(DOMAIN, block, len(snapshot.logs), [snapshot.logs]))


def of_strangers(data: bytes) -> bytes:
    """With a log that is no event of ours."""
    snapshot = read_snapshot(data, DOMAIN)
    odd = RawLog(address("x"), (digest("topic"),), b"", 1, bytes(32), 0, b"", 1)
    logs = [odd, *snapshot.logs]
    return b"".join(write_snapshot(DOMAIN, snapshot.block, len(logs), [logs]))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (false, "is false: it has other logs than the state of block"),
        (lacking, "is false: it has other logs than the state of block"),
        (lambda data: data[:-20], "ends in the middle"),
        (lambda data: data + b"more", "has more than it says"),
        (lambda data: b"x" + data, "is no checkpoint of logs"),
        (lambda data: data[:40] + bytes(8) + data[48:], "the checkpoint"),
        (stale, "is stale: the chain has another block"),
        (of_the_future, "block 1000000 is none that is confirmed"),
        (of_strangers, "has logs that are not of the deployment"),
    ],
)
async def test_what_is_not_true_is_refused_and_the_chain_is_read_in_ranges(
    member: Member, tmp_path: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    await member.serve(change(await member.file()))
    index, said = await joined(member, tmp_path)
    assert why in said
    assert "begins with a checkpoint" not in said
    assert member.node.ranges == [(0, BLOCKS - CONFIRMATIONS)]
    index.close()


@pytest.mark.parametrize("change", [None, false, lacking])
async def test_where_nodes_keep_no_old_state_the_newest_block_decides(
    member: Member, tmp_path: Path, change: Callable[[bytes], bytes] | None
) -> None:
    note = await member.look()
    assert note is not None
    if change is not None:
        await member.serve(change(await member.file()))
    member.node.has_state = lambda number: number > note.block
    index, said = await joined(member, tmp_path)
    read_on, anew = (note.block + 1, BLOCKS - CONFIRMATIONS), (0, BLOCKS - CONFIRMATIONS)
    assert member.node.ranges == ([read_on] if change is None else [read_on, anew])
    assert ("the checkpoint is false" in said) == (change is not None)
    assert index._store.checked == BLOCKS - CONFIRMATIONS
    index.close()


@pytest.mark.parametrize("size", [1 << 40, 10])
async def test_one_that_is_larger_than_allowed_or_than_it_says_is_not_fetched(
    member: Member, tmp_path: Path, size: int
) -> None:
    await member.serve(await member.file(), size=size)
    index, said = await joined(member, tmp_path)
    assert "larger" in said or "more than" in said or "exceeds" in said
    assert member.node.ranges == [(0, BLOCKS - CONFIRMATIONS)]
    index.close()


async def test_a_true_one_behind_a_false_one_is_taken(member: Member, tmp_path: Path) -> None:
    notes, untrue = Notes(), false(await member.file())
    other = Gateway(member.storage.local, notes=notes.note)
    await other.start()
    try:
        member.node.announce(BLOCKS - 15, 0, other.url)  # the newest is asked first
        member.index.close()
        member.index = index_of(member.node, tmp_path / "again")
        await member.index.poll()
        cid = await member.storage.add_bytes(untrue)
        notes.publish(NAME, CheckpointNote(1, 1, cid, len(untrue)).to_bytes())
        index, said = await joined(member, tmp_path)
        assert "is false" in said
        assert "begins with a checkpoint" in said
        index.close()
    finally:
        await other.stop()


async def test_whom_the_logs_name_reads_ranges(member: Member, tmp_path: Path) -> None:
    """It has to know which transactions were its own, and no head covers that."""
    await member.look()
    index, said = await joined(member, tmp_path, address("a member"))
    assert "reads the chain in ranges" in said
    assert member.node.ranges == [(0, BLOCKS - CONFIRMATIONS)]
    index.close()


async def test_a_short_chain_is_read_at_once(
    member: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "WORTH_BLOCKS", BLOCKS)
    await member.look()
    index, said = await joined(member, tmp_path)
    assert said == ""
    index.close()


async def test_another_one_is_made_when_there_is_enough_new(member: Member) -> None:
    first = await member.look()
    assert first is not None and await member.look() == first
    assert member.storage.local.is_pinned(first.cid)
    node = member.node
    start = len(node.hashes)
    node.hashes += [f"0x{number + 5000:064x}" for number in range(60)]
    for number in range(start, start + 30, 2):
        node.announce(number, 0, f"http://{number}.example.org:1")
    await member.index.poll()
    second = await member.look()
    assert second is not None and second.count > first.count
    assert member.storage.local.is_pinned(second.cid)
    assert not member.storage.local.is_pinned(first.cid)


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of valid logs, or of nothing at all: a kilobyte of file for a megabyte of room."""
    monkeypatch.setattr(log_snapshot, "MOST_BYTES", 1 << 20)
    raw = log_of(GatewayAnnounced(address("a member"), "http://a:1"))
    block = BlockRef(9, digest("block"), 9)
    logs = [RawLog(raw.address, raw.topics, raw.data, 7, bytes(32), 0, b"", 7)] * 50_000
    bomb = b"".join(write_snapshot(DOMAIN, block, len(logs), [logs]))
    assert len(bomb) < 1 << 17
    with pytest.raises(CheckpointRefused, match="larger than 1048576 bytes"):
        read_snapshot(bomb, DOMAIN)
    header = _inflated(b"".join(write_snapshot(DOMAIN, block, 1, [])))
    with pytest.raises(CheckpointRefused, match="what no log can be"):
        read_snapshot(_deflated(header + bytes(1 << 22)), DOMAIN)
    huge = struct.pack(">QQ20sBI", 7, 7, bytes(20), 1, 1 << 31)
    with pytest.raises(CheckpointRefused, match="what no log can be"):
        read_snapshot(_deflated(header + huge), DOMAIN)


def test_it_says_which_deployment_it_is_of() -> None:
    data = b"".join(write_snapshot(DOMAIN, BlockRef(9, digest("block"), 9), 0, []))
    other = type(DOMAIN)(DOMAIN.chain_id + 1, DOMAIN.rounds)
    assert read_snapshot(data, DOMAIN).logs == ()
    with pytest.raises(CheckpointRefused, match="of another deployment"):
        read_snapshot(data, other)
