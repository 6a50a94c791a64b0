"""Events come once, in order, confirmed; and a chain that turns is noticed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil

from atoll.chain import index as index_module
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.chain.index import Advanced, Change, EventIndex, Rewound
from atoll.chain.indexed import Indexed
from atoll.chain.logs import LogReader
from atoll.errors import ConfigError, RpcUnavailable
from atoll.protocol.events import GatewayAnnounced
from atoll.protocol.types import Address
from atoll.service.session import SessionConfig, open_session
from atoll.storage.storage import StoreConfig
from atoll_devnet.chaos import invariants
from atoll_devnet.chaos.invariants import misremembered
from atoll_devnet.processes.hostile import EMITTER, UNDECODABLE_URL, gateway_log


class Announcer:
    """Makes events: every announcement is one GatewayAnnounced in a block of its own."""

    def __init__(self, chain: AtollChain, anvil: Anvil, account: LocalAccount) -> None:
        self.chain, self.anvil, self.account = chain, anvil, account

    def raw(self, url: str) -> str:
        nonce = int(self.anvil.ask("eth_getTransactionCount", self.account.address, "pending"), 16)
        call = self.chain.calls.announce_gateway(url)
        signed = self.account.sign_transaction(
            {
                "type": 2, "chainId": 31337, "nonce": nonce, "gas": 200_000, "value": 0,
                "maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**9, "to": call.to,
                "data": call.data,
            }
        )  # fmt: skip
        return "0x" + bytes(signed.raw_transaction).hex()

    def shout(self, text: bytes) -> None:
        """Announces what the contract itself would refuse."""
        roster = self.chain.deployment.addresses["Members"]
        code = self.anvil.ask("eth_getCode", roster, "latest")
        self.anvil.ask("anvil_setCode", roster, EMITTER)
        data = "0x" + gateway_log(Address(self.account.address), text).hex()
        order = {"from": self.account.address, "to": roster, "data": data, "gas": hex(200_000)}
        sent = self.anvil.ask("eth_sendTransaction", order)
        while self.anvil.ask("eth_getTransactionReceipt", sent) is None:
            continue
        self.anvil.ask("anvil_setCode", roster, code)

    def say(self, *names: str) -> None:
        """Returns once it is in a block: Anvil mines a moment after it has taken a transaction."""
        for name in names:
            sent = self.anvil.ask("eth_sendRawTransaction", self.raw(f"http://{name}"))
            while self.anvil.ask("eth_getTransactionReceipt", sent) is None:
                continue


@pytest.fixture
def announcer(chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount]) -> Announcer:
    return Announcer(chain, anvil, accounts[2])


@pytest.fixture
async def index(chain: AtollChain, tmp_path: Path) -> AsyncIterator[EventIndex]:
    opened = EventIndex(chain, confirmations=2, path=tmp_path / "index.sqlite")
    yield opened
    opened.close()


MOMENTS = {1: 3, 2: 5}
"""Questions of a poll that finds so many blocks. Of one: the head, its logs, their heads, since it
names the tip. Of two, the tip and the block between are asked for, too.
"""


class Turns:
    """Replaces the newest blocks by empty ones just before the chain is asked something."""

    def __init__(
        self, chain: AtollChain, anvil: Anvil, depth: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._anvil, self._depth, self._left = anvil, depth, 0
        for name in ("ask", "ask_several"):
            counted = self._counted(getattr(chain.provider, name))
            monkeypatch.setattr(chain.provider, name, counted)

    def _counted(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any) -> Any:
            if not self.happened:
                self._left -= 1
                if self.happened:
                    self._anvil.ask("anvil_reorg", self._depth, [])
            return await ask(*args)

        return counted

    @property
    def happened(self) -> bool:
        return self._left == 0

    def before(self, question: int) -> None:
        """Before the question of that number from now on, counted from 1."""
        self._left = question


def urls(changes: Iterable[Change]) -> list[str]:
    """What was announced, short."""
    events = [change.event for change in changes if isinstance(change, Indexed)]
    return [e.url.removeprefix("http://") for e in events if isinstance(e, GatewayAnnounced)]


async def test_only_confirmed_events_are_given_once_and_in_order(
    announcer: Announcer, anvil: Anvil, index: EventIndex
) -> None:
    announcer.say("a", "b", "c")
    first = await index.poll()
    assert urls(first) == ["a"]
    head = first[-1]
    assert isinstance(head, Advanced)
    assert (head.block.number, head.confirmed) == (anvil.height(), anvil.height() - 2)
    assert await index.poll() == []
    anvil.mine(2)
    assert urls(await index.poll()) == ["b", "c"]
    anvil.mine()
    (head,) = await index.poll()
    assert isinstance(head, Advanced)
    assert urls(index.history()) == ["a", "b", "c"]


async def test_what_is_not_confirmed_is_told_apart_and_kept_nowhere(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, tmp_path: Path
) -> None:
    index = EventIndex(chain, confirmations=2, path=tmp_path / "ahead", looks_ahead=True)
    announcer.say("a", "b", "c")
    assert urls(await index.poll()) == ["a"]
    assert urls(index.ahead) == ["b", "c"]
    assert urls(index.history()) == ["a"]
    anvil.ask("anvil_reorg", 1, [])
    anvil.mine()
    assert urls(await index.poll()) == ["b"]
    assert index.ahead == ()
    index.close()


async def test_an_event_knows_its_block(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, index: EventIndex
) -> None:
    announcer.say("a")
    height = anvil.height()
    anvil.mine(2)
    (found,) = [u for u in await index.poll() if isinstance(u, Indexed)
                and isinstance(u.event, GatewayAnnounced)]  # fmt: skip
    assert found.block == await chain.block(height)
    assert found.log_index == 0


async def test_a_new_index_starts_with_what_is_on_disk(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, tmp_path: Path
) -> None:
    path = tmp_path / "index.sqlite"
    announcer.say("a", "b")
    first = EventIndex(chain, confirmations=0, path=path)
    assert urls(await first.poll()) == ["a", "b"]
    first.close()
    announcer.say("c")
    second = EventIndex(chain, confirmations=0, path=path)
    assert urls(second.history()) == ["a", "b"]
    assert urls(await second.poll()) == ["a", "b", "c"]
    second.close()


async def test_a_log_that_does_not_decode_is_counted_and_passed_over(
    chain: AtollChain, announcer: Announcer, tmp_path: Path
) -> None:
    path = tmp_path / "index.sqlite"
    announcer.say("a")
    announcer.shout(UNDECODABLE_URL)
    announcer.say("b")
    first = EventIndex(chain, confirmations=0, path=path)
    assert urls(await first.poll()) == ["a", "b"]
    assert first.undecodable == 1
    assert urls(first.history()) == ["a", "b"]
    assert first.undecodable == 1
    first.close()
    announcer.say("c")
    second = EventIndex(chain, confirmations=0, path=path)
    assert urls(await second.poll()) == ["a", "b", "c"]
    assert second.undecodable == 1
    second.close()


async def test_a_reorg_below_the_confirmations_is_never_seen(
    announcer: Announcer, anvil: Anvil, index: EventIndex
) -> None:
    announcer.say("a", "b")
    anvil.mine()
    assert urls(await index.poll()) == ["a"]
    anvil.ask("anvil_reorg", 2, [])
    anvil.mine(2)
    changes = await index.poll()
    assert urls(changes) == []
    assert not any(isinstance(change, Rewound) for change in changes)


async def test_a_deep_reorg_rewinds_and_gives_the_other_chain(
    announcer: Announcer, anvil: Anvil, index: EventIndex
) -> None:
    announcer.say("a")
    kept = anvil.height()
    announcer.say("b", "c")
    anvil.mine(2)
    assert urls(await index.poll()) == ["a", "b", "c"]
    anvil.ask("anvil_reorg", 4, [])
    announcer.say("d")
    anvil.mine(2)
    changes = await index.poll()
    (rewound,) = [change for change in changes if isinstance(change, Rewound)]
    assert rewound.to_block <= kept
    refolded = urls(index.history())
    assert refolded == ["a", "d"]
    assert urls(changes) == refolded[-len(urls(changes)) :]


@pytest.mark.parametrize("found", MOMENTS)
async def test_a_reorg_in_the_middle_of_a_poll_leaves_no_trace(
    chain: AtollChain,
    announcer: Announcer,
    anvil: Anvil,
    found: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(chain, anvil, found + 1, monkeypatch)
    for moment in range(1, MOMENTS[found] + 1):
        announcer.say(f"kept{moment}", f"lost{moment}")
        path = tmp_path / f"{moment}.sqlite"
        index = EventIndex(chain, confirmations=0, path=path)
        assert f"lost{moment}" in urls(await index.poll())
        announcer.say(*(f"too{moment}-{n}" for n in range(found)))
        turns.before(moment)
        await index.poll()
        assert turns.happened
        anvil.mine()
        await index.poll()
        fresh = EventIndex(chain, confirmations=0, path=tmp_path / f"fresh{moment}.sqlite")
        await fresh.poll()
        assert urls(index.history()) == urls(fresh.history())
        index.close()
        fresh.close()


async def test_a_shorter_chain_is_a_reorg_once_it_has_a_block_in_another_s_place(
    announcer: Announcer, anvil: Anvil, index: EventIndex
) -> None:
    """Until then nothing tells it from an endpoint that lags."""
    announcer.say("a", "b", "c")
    anvil.mine(2)
    await index.poll()
    anvil.ask("anvil_rollback", 4)
    assert await index.poll() == []
    assert urls(index.history()) == ["a", "b", "c"]
    anvil.mine()
    changes = await index.poll()
    assert any(isinstance(change, Rewound) for change in changes)
    assert urls(index.history()) == ["a"]


async def test_a_reorg_while_it_was_off_is_noticed(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, tmp_path: Path
) -> None:
    path = tmp_path / "index.sqlite"
    announcer.say("a", "b")
    first = EventIndex(chain, confirmations=0, path=path)
    await first.poll()
    first.close()
    anvil.ask("anvil_reorg", 1, [])
    announcer.say("c")
    second = EventIndex(chain, confirmations=0, path=path)
    changes = await second.poll()
    assert any(isinstance(change, Rewound) for change in changes)
    assert urls(second.history()) in (["a", "c"], ["c"])
    assert "b" not in urls(second.history())
    second.close()


async def test_ranges_are_bounded(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(index_module, "MAX_RANGE", 3)
    asked: list[tuple[int, int]] = []
    read = LogReader.read

    async def watched(self: LogReader, first: int, last: int, parent: Any) -> Any:
        asked.append((first, last))
        return await read(self, first, last, parent)

    monkeypatch.setattr(LogReader, "read", watched)
    announcer.say("a")
    anvil.mine(10)
    announcer.say("b")
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index.sqlite")
    assert urls(await index.poll()) == ["a", "b"]
    assert all(last - first < 3 for first, last in asked)
    assert [first for first, _ in asked[1:]] == [last + 1 for _, last in asked[:-1]]
    index.close()


async def test_a_failure_half_way_loses_no_event(
    chain: AtollChain, announcer: Announcer, anvil: Anvil, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(index_module, "MAX_RANGE", 1)
    announcer.say("a", "b", "c")
    index = EventIndex(chain, confirmations=0, path=tmp_path / "index.sqlite")
    read = LogReader.read
    with monkeypatch.context() as patch:

        async def fails_at_the_end(self: LogReader, first: int, last: int, parent: Any) -> Any:
            if last == anvil.height():
                raise RpcUnavailable("nobody answers")
            return await read(self, first, last, parent)

        patch.setattr(LogReader, "read", fails_at_the_end)
        with pytest.raises(RpcUnavailable):
            await index.poll()
    assert urls(await index.poll()) == ["a", "b", "c"]
    index.close()


async def test_a_file_belongs_to_one_deployment(chain: AtollChain, tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    EventIndex(chain, confirmations=0, path=path).close()
    with pytest.raises(ConfigError, match="holds the events of"):
        EventIndex(chain, confirmations=0, path=path, from_block=0)


async def test_a_chain_that_began_anew_is_another_though_all_addresses_are_the_same(
    chain: AtollChain,
    spawn: Callable[..., Anvil],
    accounts: list[LocalAccount],
    announcer: Announcer,
    tmp_path: Path,
) -> None:
    """Else jobs and transactions of the one would be taken for the other's."""
    announcer.say("first")
    anew = spawn("--timestamp", "1800000000").url
    assert await deploy(anew, accounts[0]) == chain.deployment
    config = SessionConfig((anew,), chain.deployment, tmp_path, StoreConfig(tmp_path / "store"))
    for _ in range(2):  # its own again, too
        first = EventIndex(chain, confirmations=0, path=tmp_path / "events.sqlite")
        await first.poll()
        first.close()
    with pytest.raises(ConfigError, match="holds the events of") as caught:
        async with open_session(config):
            pass
    assert chain.genesis.hex() in str(caught.value)
    async with open_session(replace(config, folder=tmp_path / "another")) as session:
        await session.follower.poll()


async def test_on_other_chains_an_endpoint_s_false_block_0_keeps_nobody_from_starting(
    spawn: Callable[..., Anvil], accounts: list[LocalAccount], tmp_path: Path
) -> None:
    real, liar = (
        spawn("--chain-id", "84532", "--timestamp", f"18{n}0000000").url for n in range(2)
    )
    deployment = await deploy(real, accounts[0])
    assert await deploy(liar, accounts[0]) == deployment
    for url in (real, liar):
        config = SessionConfig((url,), deployment, tmp_path, StoreConfig(tmp_path / "store"))
        async with open_session(config):
            pass


async def test_who_forgot_an_event_is_told_from_who_reads_the_chain_now(
    anvil: Anvil,
    deployment: Deployment,
    announcer: Announcer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announcer.say("one", "two")
    config = SessionConfig((anvil.url,), deployment, tmp_path, StoreConfig(tmp_path / "store"))
    async with open_session(replace(config, confirmations=0)) as session:
        await session.follower.poll()
        assert await misremembered(session, tmp_path / "anew") == []
        with closing(sqlite3.connect(tmp_path / "events.sqlite")) as file, file:
            file.execute("DELETE FROM read_logs WHERE block = (SELECT max(block) FROM read_logs)")
        monkeypatch.setattr(invariants, "LOOKS", 2)
        (told,) = await misremembered(session, tmp_path / "again")
    assert "remembers other events" in told
