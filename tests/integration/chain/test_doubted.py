"""What endpoints say of a transaction ends it by time, and costs what they ask for within a cap."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account.signers.local import LocalAccount
from eth_account.typed_transactions import TypedTransaction
from hexbytes import HexBytes
from tests.integration.chain.altered import Change, altered, says
from tests.integration.chain.local_anvil import Anvil
from tests.integration.chain.queues import SOMEONE, Clock
from tests.unit.chain.trouble import TROUBLE

from atoll.chain.call import Call
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.chain.txconfig import GWEI, QueueConfig
from atoll.chain.txqueue import TxQueue
from atoll.chain.txrecords import TxState
from atoll.chain.txstatus import NO_MONEY, TRIED_AGAIN, TxStatus
from atoll.errors import ChainError
from atoll.protocol.types import Address, JobId, Role

CONFIG = QueueConfig(poll_seconds=0.0, rebroadcast_seconds=3600.0)
REVERTED = says("eth_estimateGas", 3, "execution reverted: too early")
Opened = Callable[..., Any]


@pytest.fixture
def opened(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], tmp_path: Path
) -> Opened:
    """Opens a queue whose endpoints change what the node says, and its clock."""

    @asynccontextmanager
    async def open_queue(
        *changes: Change, config: QueueConfig = CONFIG
    ) -> AsyncIterator[tuple[TxQueue, AtollChain, Clock]]:
        async with altered(anvil.url, changes[0]) as url, altered(anvil.url, changes[-1]) as other:
            urls = [url, other] if len(changes) > 1 else [url]
            chain, clock = await AtollChain.connect(urls, deployment), Clock()
            path = tmp_path / "tx.sqlite"
            queue = TxQueue(chain, accounts[0], path, config, clock=clock)
            try:
                yield queue, chain, clock
            finally:
                queue.close()
                await chain.close()

    return open_queue


def state(queue: TxQueue, key: str = "pay") -> TxStatus:
    found = queue.status(key)
    assert found is not None
    return found


async def is_mined(queue: TxQueue, anvil: Anvil, *keys: str) -> bool:
    """Whether it comes into a block while the chain makes some; Anvil may keep it for a moment."""
    for _ in range(50):
        await queue.pump()
        if all(state(queue, key).has_effect for key in keys or ("pay",)):
            return True
        anvil.mine()
    return False


class While:
    """A change that lasts until it is over."""

    def __init__(self, change: Change) -> None:
        self.change, self.is_over, self.asked = change, False, 0

    def __call__(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        said = None if self.is_over else self.change(asked)
        self.asked += said is not None
        return said


def poor(asked: dict[str, Any]) -> dict[str, Any] | None:
    return {"result": "0x0"} if asked["method"] == "eth_getBalance" else None


@pytest.mark.parametrize("change", [REVERTED, poor, says("eth_estimateGas", -32000, "no state")])
async def test_a_refusal_is_asked_for_again_at_each_new_block_and_may_pass(
    opened: Opened, anvil: Anvil, change: Change
) -> None:
    stale = While(change)
    async with opened(stale) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        for _ in range(20):  # as often as it likes, within the same time
            await queue.pump()
            assert state(queue).state is TxState.QUEUED
            assert state(queue).message.startswith(TRIED_AGAIN)
            asked = stale.asked
            await queue.pump()
            assert stale.asked == asked  # nothing is asked anew before there is a block
            anvil.mine()
        clock.now += CONFIG.doubt_seconds - 1
        stale.is_over = True
        assert await is_mined(queue, anvil) and state(queue).message == ""


async def test_what_is_refused_for_long_enough_is_the_chain_s_word(
    opened: Opened, anvil: Anvil
) -> None:
    async with opened(REVERTED) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        clock.now += CONFIG.doubt_seconds
        await queue.pump()  # without a block, too
        assert (state(queue).state, state(queue).error) == (TxState.FAILED, "Revert")
        assert "transfer reverted: Revert(execution reverted: too early)" in state(queue).message


async def test_who_is_not_paid_for_is_told_in_numbers_once_it_is_sure(opened: Opened) -> None:
    async with opened(poor) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        clock.now += CONFIG.doubt_seconds
        await queue.pump()
        assert (state(queue).state, state(queue).error) == (TxState.FAILED, NO_MONEY)


async def test_what_no_endpoint_understands_holds_up_nothing_and_ends_at_last(
    opened: Opened, anvil: Anvil
) -> None:
    def chokes(asked: dict[str, Any]) -> dict[str, Any] | None:
        if asked["method"] != "eth_estimateGas" or not asked["params"][0]["data"].endswith("07"):
            return None
        return {"error": {"code": -32000, "message": "execution timeout"}}

    async with opened(chokes) as (queue, chain, clock):
        await queue.submit("odd", chain.calls.transfer(SOMEONE, 7))
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        assert await is_mined(queue, anvil)
        for waited in (CONFIG.doubt_seconds, CONFIG.unclear_seconds):
            assert state(queue, "odd").state is TxState.QUEUED
            clock.now += waited
            anvil.mine()
            await queue.pump()
        assert state(queue, "odd").state is TxState.FAILED
        assert "execution timeout" in state(queue, "odd").message


async def test_a_first_endpoint_that_judges_by_an_old_state_is_overruled(
    opened: Opened, anvil: Anvil
) -> None:
    async with opened(REVERTED, lambda _: None) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        assert await is_mined(queue, anvil)


async def test_what_was_said_before_nobody_was_asked_for_long_is_forgotten(
    opened: Opened, anvil: Anvil
) -> None:
    """A laptop that slept, or no endpoint at all: the first that answers then is often behind."""
    async with opened(REVERTED) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        for _ in range(3):
            await queue.pump()
            assert state(queue).state is TxState.QUEUED
            clock.now += 3600.0
        await queue.pump()
        clock.now += CONFIG.doubt_seconds
        await queue.pump()
        assert state(queue).state is TxState.FAILED


async def test_a_first_endpoint_that_knows_of_no_money_is_overruled(
    opened: Opened, anvil: Anvil
) -> None:
    async with opened(poor, lambda _: None) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        clock.now += CONFIG.doubt_seconds
        assert await is_mined(queue, anvil)


@pytest.mark.parametrize("liar", [0, 1])
@pytest.mark.parametrize("said", [0, 1000])
async def test_one_endpoint_s_nonce_keeps_nothing_from_the_blocks(
    opened: Opened, anvil: Anvil, liar: int, said: int
) -> None:
    """Under a nonce that is too high no block ever takes it, nor what comes after it."""

    def lies(asked: dict[str, Any]) -> dict[str, Any] | None:
        is_asked = asked["method"] == "eth_getTransactionCount"
        return {"result": hex(said)} if is_asked and not fooled.is_over else None

    fooled = While(lies)
    changes = [lies, lambda _: None] if liar == 0 else [lambda _: None, lies]
    async with opened(*changes) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        fooled.is_over = liar == 0 and said == 0  # behind, and up to date in the end
        assert await is_mined(queue, anvil)


@pytest.mark.parametrize("name", TROUBLE)
async def test_no_kind_of_trouble_of_the_first_endpoint_costs_a_transaction(
    opened: Opened, name: str, anvil: Anvil
) -> None:
    body = TROUBLE[name].body
    said = body if isinstance(body, dict) else {"result": body}

    def troubled(asked: dict[str, Any]) -> dict[str, Any] | None:
        return None if asked["method"] == "eth_chainId" else said

    async with opened(troubled, lambda _: None) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        assert await is_mined(queue, anvil)


@pytest.mark.parametrize("text", ["insufficient funds for gas * price", "intrinsic gas low"])
async def test_a_call_refused_before_its_first_step_is_of_the_account_and_not_moot(
    opened: Opened, text: str
) -> None:
    async with opened(says("eth_estimateGas", -32000, text)) as (queue, chain, clock):
        await queue.submit("advance", chain.calls.advance(JobId(1)))
        await queue.pump()
        assert state(queue, "advance").state is TxState.QUEUED
        clock.now += CONFIG.doubt_seconds
        await queue.pump()
        ended = state(queue, "advance")
        assert (ended.state, ended.error) == (TxState.FAILED, NO_MONEY)
        assert chain.provider.useless_answers == 0


async def test_one_that_is_stuck_is_withdrawn_only_where_it_would_fail_for_a_while(
    opened: Opened, anvil: Anvil
) -> None:
    fails = While(says("eth_call", 3, "execution reverted"))
    anvil.automine(False)
    config = replace(CONFIG, doubt_seconds=5.0)
    async with opened(fails, config=config) as (queue, chain, clock):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        (sent,) = anvil.pending()
        clock.now += config.replace_seconds
        await queue.pump()
        fails.is_over = True
        clock.now += config.doubt_seconds
        await queue.pump()
        (dearer,) = anvil.pending()
        assert dearer["input"] == sent["input"] and dearer["hash"] != sent["hash"]
        fails.is_over = False
        for waited in (config.replace_seconds, config.doubt_seconds):
            clock.now += waited
            await queue.pump()
        (empty,) = anvil.pending()
        assert empty["to"].lower() == queue.address.lower()


class Market:
    """An endpoint that suggests a tip, and takes none below a floor; remembers what was bid."""

    def __init__(self, suggests: Any, floor: int = 0, text: str = "minimum needed {floor}") -> None:
        self.suggests, self.floor, self.text = suggests, floor, text
        self.bids: list[tuple[int, int]] = []

    def __call__(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        if asked["method"] == "eth_maxPriorityFeePerGas":
            return self.suggests if isinstance(self.suggests, dict) else {"result": self.suggests}
        if asked["method"] != "eth_sendRawTransaction":
            return None
        fields = TypedTransaction.from_bytes(HexBytes(asked["params"][0])).as_dict()
        bid = (fields["maxPriorityFeePerGas"], fields["maxFeePerGas"])
        self.bids.append(bid)
        if bid[0] >= self.floor:
            return None
        message = "transaction underpriced: " + self.text.format(floor=self.floor)
        return {"error": {"code": -32000, "message": message}}


async def bids_of(opened: Opened, *markets: Market) -> TxStatus:
    async with opened(*markets) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
        return state(queue)


async def test_the_tip_that_is_suggested_is_bid(opened: Opened) -> None:
    market = Market(hex(30 * GWEI), 25 * GWEI)
    await bids_of(opened, market)
    assert [tip for tip, _ in market.bids] == [30 * GWEI]


async def test_of_two_suggestions_the_lower_one_is_bid(opened: Opened) -> None:
    """One endpoint makes nothing dear."""
    greedy, honest = Market(hex(150 * GWEI)), Market(hex(3 * GWEI))
    await bids_of(opened, greedy, honest)
    assert [tip for tip, _ in greedy.bids + honest.bids] == [3 * GWEI]


async def test_where_nobody_suggests_a_tip_it_is_as_configured(opened: Opened) -> None:
    def lost(asked: dict[str, Any]) -> dict[str, Any] | None:
        return {"error": "no"} if asked["method"] == "eth_feeHistory" else market(asked)

    market = Market({"error": {"code": -32601, "message": "no such method"}})
    async with opened(lost) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
    assert [tip for tip, _ in market.bids] == [CONFIG.priority_fee]


async def test_a_fee_history_tells_tip_and_base_fee_where_no_tip_is_suggested(
    opened: Opened, anvil: Anvil
) -> None:
    base = int(anvil.ask("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
    rewards = [[hex(0)], [hex(4 * GWEI)], [hex(6 * GWEI)], [hex(0)], [hex(5 * GWEI)]]
    history = {"baseFeePerGas": [hex(base)] * 5 + [hex(base + 7)], "reward": rewards}

    def known(asked: dict[str, Any]) -> dict[str, Any] | None:
        return {"result": history} if asked["method"] == "eth_feeHistory" else market(asked)

    market = Market({"error": {"code": -32601, "message": "no such method"}})
    async with opened(known) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        await queue.pump()
    assert market.bids == [(5 * GWEI, 2 * (base + 7) + 5 * GWEI)]


@pytest.mark.parametrize("text", ["minimum needed {floor}", "tip needed {floor}, tip permitted 1"])
async def test_the_floor_that_a_refusal_names_is_bid_at_once_and_from_then_on(
    opened: Opened, text: str, anvil: Anvil
) -> None:
    market = Market(hex(GWEI), 25 * GWEI, text)
    async with opened(market) as (queue, chain, _):
        for key in ("pay", "pay more"):
            await queue.submit(key, chain.calls.transfer(SOMEONE, 5))
        assert await is_mined(queue, anvil, "pay", "pay more")
    assert [tip for tip, _ in market.bids] == [GWEI, 25 * GWEI, 25 * GWEI]


async def test_neither_a_suggestion_nor_a_floor_passes_the_cap(opened: Opened) -> None:
    market = Market(hex(10**30), 10**15)
    found = await bids_of(opened, market)
    assert found.state is TxState.SENT and "more than the fee cap" in found.message
    assert len(market.bids) == 1
    assert all(most <= CONFIG.fee_cap for _, most in market.bids)


async def test_what_keeps_a_bond_may_cost_a_part_of_it(
    opened: Opened, anvil: Anvil, accounts: list[LocalAccount]
) -> None:
    """Whoever makes blocks dear for as long as a move's clock runs wins no game by it."""
    anvil.automine(False)
    base = int(anvil.ask("eth_getBlockByNumber", "latest", False)["baseFeePerGas"], 16)
    config = replace(CONFIG, fee_cap=base // 2, fee_per_stake=0.05, replace_seconds=1.0)
    bond = 10**18
    async with opened(lambda _: None, config=config) as (queue, chain, clock):
        move = replace(chain.calls.transfer(SOMEONE, 5), stake=bond)
        await queue.submit("claim", chain.calls.transfer(SOMEONE, 6))
        await queue.submit("move", move)
        await queue.pump()
        (sent,) = anvil.pending()
        assert sent["input"] == f"0x{move.data.hex()}"
        assert "above the fee cap" in state(queue, "claim").message
        for _ in range(200):
            clock.now += 1.0
            await queue.pump()
        (dearest,) = anvil.pending()
        cost = int(dearest["gas"], 16) * int(dearest["maxFeePerGas"], 16)
        assert 0.8 * bond * 0.05 < cost <= bond * 0.05
        with pytest.raises(ChainError, match="fee cap"):
            await queue.bump("move")
        assert await is_mined(queue, anvil, "move")


async def test_what_is_at_stake_outlives_a_restart(
    chain: AtollChain, anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path
) -> None:
    config = replace(CONFIG, fee_cap=1, fee_per_stake=1.0)
    queue = TxQueue(chain, accounts[0], tmp_path / "tx", config)
    await queue.submit("move", replace(chain.calls.transfer(SOMEONE, 5), stake=10**20))
    queue.close()
    queue = TxQueue(chain, accounts[0], tmp_path / "tx", config)
    assert await is_mined(queue, anvil, "move")
    queue.close()


async def test_a_receipt_without_a_price_costs_what_was_bid_and_burnt(
    opened: Opened, anvil: Anvil
) -> None:
    found: dict[str, Any] = {}

    def bare(asked: dict[str, Any]) -> dict[str, Any] | None:
        if asked["method"] != "eth_getTransactionReceipt":
            return None
        said = anvil.ask("eth_getTransactionReceipt", *asked["params"])
        found.update(said or {})
        return {"result": said and {**said, "effectiveGasPrice": None}}

    async with opened(bare) as (queue, chain, _):
        await queue.submit("pay", chain.calls.transfer(SOMEONE, 5))
        assert await is_mined(queue, anvil)
        gas, price = (int(found[name], 16) for name in ("gasUsed", "effectiveGasPrice"))
        assert state(queue).fee_wei == gas * price


@pytest.mark.parametrize("method", ["eth_getCode", "eth_call"])
async def test_a_contract_that_one_endpoint_has_not_yet_is_there(
    anvil: Anvil, deployment: Deployment, accounts: list[LocalAccount], method: str
) -> None:
    """A first endpoint from before the deployment would end every start beside a good one."""

    def before(asked: dict[str, Any]) -> dict[str, Any] | None:
        return {"result": "0x"} if asked["method"] == method else None

    owner = Address(accounts[0].address)
    async with altered(anvil.url, before) as url:
        chain = await AtollChain.connect([url, anvil.url], deployment)
        assert (await chain.stake(owner, Role.PROVIDER)).active == 0
        await chain.close()
        with pytest.raises(ChainError, match=r"no contract at|has no code"):
            alone = await AtollChain.connect(url, deployment)
            try:
                await alone.stake(owner, Role.PROVIDER)
            finally:
                await alone.close()


async def test_a_value_that_nobody_can_pay_is_no_money_whatever_a_node_calls_it(
    opened: Opened,
) -> None:
    """Nodes estimate nothing for it: "insufficient funds for transfer", and other words."""
    async with opened(lambda _: None) as (queue, _, clock):
        await queue.submit("send", Call(SOMEONE, b"", "send"), value=10**30)
        await queue.pump()
        clock.now += CONFIG.doubt_seconds
        await queue.pump()
        assert (state(queue, "send").state, state(queue, "send").error) == (
            TxState.FAILED,
            NO_MONEY,
        )


async def test_one_asked_for_anew_is_doubted_anew(opened: Opened) -> None:
    async with opened(REVERTED) as (queue, chain, clock):
        for _ in range(2):
            await queue.submit("pay", chain.calls.transfer(SOMEONE, 5), retry_failed=True)
            await queue.pump()
            assert state(queue).state is TxState.QUEUED
            await queue.cancel("pay")
            clock.now += CONFIG.doubt_seconds


@pytest.mark.parametrize("suggested", [30 * GWEI, GWEI])
async def test_a_network_is_deployed_for_what_nodes_take(
    anvil: Anvil, accounts: list[LocalAccount], suggested: int
) -> None:
    market = Market(hex(suggested), 25 * GWEI)
    async with altered(anvil.url, market) as url:
        deployed = await deploy(url, accounts[0])
    assert anvil.ask("eth_getCode", deployed.addresses["Rounds"], "latest") != "0x"
    low = [tip for tip, _ in market.bids if tip < market.floor]
    assert low == [suggested] * (suggested < market.floor)
