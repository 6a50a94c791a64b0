"""Effects on a chain and a store made of paper: what is sent, how often, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_utils.address import to_checksum_address
from tests.support.identities import JOB, address, digest
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import Script

from atoll.errors import (
    InsufficientFunds,
    MachineFault,
    NotFound,
    NumericsMismatch,
    ProtocolError,
    TooLarge,
    TransactionFailed,
)
from atoll.numerics.errors import MalformedState
from atoll.numerics.state_layout import max_params_bytes
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.hashing import terms_hash
from atoll.protocol.keeper_calls import KeeperCallKind as Kind
from atoll.protocol.manifest import InitSpec
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.owners import Ownership
from atoll.protocol.types import (
    Address,
    HolderId,
    JobId,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
    bits,
)
from atoll.protocol.views import JobView
from atoll.service.config import PolicySection
from atoll.service.context import Context
from atoll.service.duties import material
from atoll.service.duties.challenge import _allow
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.game import BondCollected, SendCollect
from atoll.service.duties.join_and_leave import SendAnnounce, SendJoin
from atoll.service.duties.material import (
    CHECK_MACHINE,
    MEASURE_PACE,
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
    files_of,
)
from atoll.service.duties.round_start import (
    MAKE_INITIAL_STATE,
    DoPrepareRoundStart,
    RoundStartReady,
)
from atoll.service.duties.send_keeper_calls import SendKeeperCall
from atoll.service.duties.unpin import DoUnpin, RoundsUnpinned
from atoll.service.effects import Effects
from atoll.service.entries import NotYet
from atoll.service.journal import Journal
from atoll.service.needs import Machine, least_disk, memory_of
from atoll.service.pace import Pace, most_duties, promised_per_hour
from atoll.service.policy import NotOurPolicy, manifest_refusal, room_refusal
from atoll.service.task import Task, TaskCall
from atoll.storage.cid import DAG_CBOR, DAG_PB, RAW, Cid
from atoll.storage.local import LocalStore
from atoll.storage.spread import Spread
from atoll.storage.storage import Storage

MANIFEST = make_manifest()
ME = address("me")


def of_job(kind: Kind, place: str = "") -> SendKeeperCall:
    """A call that anyone may make."""
    return SendKeeperCall(kind, RoundIndex(0), Role.PROVIDER, HolderId(2), SeatIndex(1), place)


ADDRESSES = {"Stakes": address("stakes"), "Game": address("game"), "EcdsaPolicy": "0x" + "0" * 40}
ADVANCE, RELEASE = of_job(Kind.ADVANCE, "place"), of_job(Kind.RELEASE)


def join(role: Role = Role.PROVIDER, bond: int = 100) -> SendJoin:
    return SendJoin(role, 0, RoundIndex(0), bond)


@dataclass
class Queue:
    """Mines what is submitted into the block that the test names."""

    block: int | None = 50
    calls: dict[str, Any] = field(default_factory=dict)
    mined: dict[str, int | None] = field(default_factory=dict)

    async def submit(self, key: str, call: Any, *, retry_failed: bool = False) -> None:
        assert retry_failed
        self.calls.setdefault(key, call)
        self.mined.setdefault(key, self.block)

    async def wait(self, key: str) -> Any:
        return self.status(key)

    def status(self, key: str) -> Any:
        if key not in self.mined:
            return None
        return SimpleNamespace(has_effect=self.mined[key] is not None, block=self.mined[key])


class Calls:
    """Every call is its name and arguments."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: (name, *args)


@dataclass
class Chain:
    active: int = 0
    locked: int = 0
    balance: int = 10**30
    allowed: int = 0
    calls: Calls = field(default_factory=Calls)
    deployment: Any = field(
        default_factory=lambda: SimpleNamespace(addresses=ADDRESSES, chain_id=31337)
    )
    refusal: TransactionFailed | None = None

    async def simulate(self, call: Any, sender: str) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        return b""

    async def head(self) -> Any:
        return SimpleNamespace(number=77, timestamp=MANIFEST.terms.expiry - 1000)

    owned: Ownership = field(default_factory=lambda: Ownership(ME, ME))

    async def nonce(self, account: str) -> int:
        return 4

    async def ownership(self, account: str) -> Ownership:
        return self.owned

    async def stake(self, account: str, role: Role) -> Any:
        return SimpleNamespace(active=self.active, locked=self.locked)

    async def token_balance(self, account: str) -> int:
        return self.balance

    async def allowance(self, owner: str, spender: str) -> int:
        return self.allowed


@dataclass
class Fetcher:
    store: LocalStore
    blocks: dict[Cid, bytes] = field(default_factory=dict)
    limits: dict[Cid, int] = field(default_factory=dict)

    spreads: list[Spread] = field(default_factory=list)

    async def fetch_spread(self, cid: Cid, max_bytes: int, spread: Spread) -> None:
        self.spreads.append(spread)
        await self.fetch(cid, max_bytes, [])

    async def fetch(self, cid: Cid, max_bytes: int, prefer: Sequence[str]) -> None:
        self.limits[cid] = max_bytes
        if cid not in self.blocks:
            raise NotFound(f"nobody has {cid}")
        if len(self.blocks[cid]) > max_bytes:
            raise TooLarge(f"more than {max_bytes} bytes")
        self.store.put_block(cid, self.blocks[cid])


@dataclass
class Worker:
    """Returns, or raises, what the test put in."""

    results: list[Any] = field(default_factory=list)
    asked: list[Task[..., Any]] = field(default_factory=list)
    gave_way: list[Task[..., Any]] = field(default_factory=list)

    async def run_last(self, call: TaskCall[Any]) -> Any:
        self.gave_way.append(call.task)
        return await self.run(call)

    async def run(self, call: TaskCall[Any], **_: Any) -> Any:
        self.asked.append(call.task)
        result = self.results.pop(0) if self.results else None
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def context(tmp_path: Path) -> Any:
    store = LocalStore(tmp_path / "store")
    return SimpleNamespace(
        me=ME,
        config=SimpleNamespace(
            store_dir=tmp_path / "store",
            data_dir=tmp_path,
            policy=PolicySection(),
            rpc_urls=("http://127.0.0.1:8545",),
            role="provider",
            owner=None,
            reward_address=None,
        ),
        follower=SimpleNamespace(views={}, confirmed=0),
        chain=Chain(),
        queue=Queue(),
        store=store,
        storage=Storage(store, cast(Any, None), None, read_only=False),
        fetcher=(fetcher := Fetcher(store)),
        fetcher_of=lambda job: fetcher,
        worker=Worker(),
        spare_worker=Worker(),
        game_worker=Worker(),
        journal=Journal(tmp_path / "journal.sqlite"),
    )


def effects(context: Any) -> Effects:
    return Effects(cast(Context, context))


def view_at(number: int) -> JobView:
    view = Network(MANIFEST.terms).view
    named = {"spec_cid": MANIFEST.cid(), "terms_hash": terms_hash(MANIFEST.terms)}
    return replace(view, block=replace(view.block, number=number), **named)


# --- transactions ---


async def test_a_transaction_asked_for_again_is_the_same_until_the_view_has_its_block(
    context: Any,
) -> None:
    await effects(context).run(view_at(10), ADVANCE)
    done = await effects(context).run(view_at(49), ADVANCE)
    assert done.block == 50
    key = f"{JOB}:{ADVANCE.key}"
    assert list(context.queue.calls) == [f"{key}#0"]
    await effects(context).run(view_at(50), ADVANCE)
    assert list(context.queue.calls) == [f"{key}#0", f"{key}#1"]


async def test_what_a_view_wants_that_has_its_block_is_asked_for_again_a_block_later(
    context: Any,
) -> None:
    context.follower.confirmed = 49
    assert (await effects(context).run(view_at(10), join())).block == 50
    context.follower.confirmed = 60
    assert (await effects(context).run(view_at(10), join())).block == 61


async def test_what_another_did_first_is_waited_for_in_the_view(context: Any) -> None:
    context.queue.block = None
    done = await effects(context).run(view_at(10), ADVANCE)
    assert done.block == 77
    context.follower.confirmed = 77  # and the view wants it still: it is asked for a block later
    assert (await effects(context).run(view_at(10), ADVANCE)).block == 78


TOO_EARLY = TransactionFailed("StillBound", error="StillBound", args=(1_000, 994))
BOUND = TransactionFailed("GameOpen", error="GameOpen", args=(JOB, 0, 2))


@pytest.mark.parametrize("refusal", [BOUND, None])
async def test_what_was_refused_and_names_no_time_is_looked_at_again_with_the_view(
    context: Any, refusal: TransactionFailed | None
) -> None:
    context.queue.block, context.chain.refusal = None, refusal
    done = await effects(context).run(view_at(1), RELEASE)
    assert done.block == 77


async def test_what_is_too_early_says_when_it_is_due(context: Any) -> None:
    context.queue.block, context.chain.refusal = None, TOO_EARLY
    with pytest.raises(NotYet) as refused:
        await effects(context).run(view_at(1), RELEASE)
    assert refused.value.due_at == 1_000
    assert len(context.journal.read(JOB)) == 0


@pytest.mark.parametrize(
    ("chain", "sent"),
    [
        (Chain(), ["approve", "deposit", "join"]),
        (Chain(allowed=10**30), ["deposit", "join"]),
        (Chain(active=100), ["join"]),
        (Chain(active=100, locked=1), ["approve", "deposit", "join"]),
    ],
)
async def test_joining_deposits_what_the_bond_lacks(
    context: Any, chain: Chain, sent: list[str]
) -> None:
    context.chain = chain
    await effects(context).run(view_at(1), join())
    assert [call[0] for call in context.queue.calls.values()] == sent
    deposits = [c for c in context.queue.calls.values() if c[0] == "deposit"]
    assert all(c == ("deposit", Role.PROVIDER, 100 - chain.active + chain.locked) for c in deposits)


async def test_a_deposit_that_is_not_confirmed_is_not_sent_twice(context: Any) -> None:
    """The stake is found as it was before: by a node that lags, or because it was taken home."""

    def deposits() -> int:
        return sum(call[0] == "deposit" for call in context.queue.calls.values())

    for confirmed, sent in ((1, 1), (49, 1), (50, 2)):
        context.follower.confirmed = confirmed
        await effects(context).run(view_at(1), join())
        assert deposits() == sent


OWNER = to_checksum_address("0x" + "c0" * 20)


async def test_nothing_is_staked_before_the_owner_has_accepted(context: Any) -> None:
    """It is proposed by itself, once; the config may write the address in any case."""
    context.config.owner = OWNER.lower()
    with pytest.raises(NotOurPolicy, match="has not accepted") as refused:
        await effects(context).run(view_at(1), join())
    assert refused.value.next_step is not None
    assert f"accept --node {ME}" in refused.value.next_step
    assert list(context.queue.calls.values()) == [("propose_owner", ME, OWNER)]
    context.chain.owned = Ownership(ME, ME, Address(OWNER))
    context.queue.calls.clear()
    with pytest.raises(NotOurPolicy, match="has not accepted"):
        await effects(context).run(view_at(1), join())
    assert context.queue.calls == {}
    context.chain.owned = Ownership(Address(OWNER), Address(OWNER))
    await effects(context).run(view_at(1), join())
    assert [call[0] for call in context.queue.calls.values()] == ["approve", "deposit", "join"]


async def test_who_is_paid_is_named_once_before_anything_is_staked(context: Any) -> None:
    context.config.reward_address = OWNER.lower()
    await effects(context).run(view_at(1), join())
    sent = [call[0] for call in context.queue.calls.values()]
    assert sent == ["set_payee", "approve", "deposit", "join"]
    assert next(iter(context.queue.calls.values())) == ("set_payee", ME, OWNER)
    context.queue.calls.clear()
    context.chain.owned = Ownership(ME, Address(OWNER))
    await effects(context).run(view_at(1), join())
    assert "set_payee" not in [call[0] for call in context.queue.calls.values()]


async def test_nothing_is_staked_where_an_owner_has_somebody_else_paid(context: Any) -> None:
    context.config.reward_address = OWNER
    other = Address("0x" + "ab" * 20)
    context.chain.owned = Ownership(other, other)
    with pytest.raises(NotOurPolicy, match="has its pay go to 0xabab"):
        await effects(context).run(view_at(1), join())
    assert context.queue.calls == {}


async def test_nothing_is_staked_in_an_account_of_another_owner(context: Any) -> None:
    context.config.owner = OWNER
    context.chain.owned = Ownership(Address("0x" + "ab" * 20), ME)
    with pytest.raises(NotOurPolicy, match="belongs to 0xabab"):
        await effects(context).run(view_at(1), join())
    assert context.queue.calls == {}


async def test_a_node_without_tokens_is_staked_for_by_its_owner(context: Any) -> None:
    context.config.owner = OWNER
    context.chain.owned, context.chain.balance = Ownership(Address(OWNER), Address(OWNER)), 0
    with pytest.raises(InsufficientFunds) as refused:
        await effects(context).run(view_at(1), join())
    assert f"stake add AMOUNT --as provider --node {ME}" in str(refused.value.next_step)
    context.chain.active = 100
    await effects(context).run(view_at(1), join())
    assert [call[0] for call in context.queue.calls.values()] == ["join"]


async def test_a_bond_that_is_too_much_of_the_wallet_is_not_staked(context: Any) -> None:
    context.chain.balance = 190
    context.config.policy = PolicySection(largest_share=0.5)
    with pytest.raises(NotOurPolicy, match=r"policy\.largest_share is 0\.5"):
        await effects(context).run(view_at(1), join())
    assert context.queue.calls == {}
    context.chain.balance = 200
    await effects(context).run(view_at(1), join())
    assert len(context.queue.calls) == 3


async def test_no_more_jobs_at_once_than_the_policy_says(context: Any) -> None:
    context.config.policy = PolicySection(jobs_at_once=1)
    here = effects(context)
    await here.run(view_at(1), join())
    await here.run(view_at(1), join())  # the same job is no other one
    context.follower.views = {JOB: view_at(1)}
    other = replace(view_at(1), job_id=JobId(JOB + 1))
    with pytest.raises(NotOurPolicy, match="serves 1 other jobs"):
        await here.run(other, join())
    context.follower.views = {JOB: view_at(50)}  # has the block of the join, and no place: we left
    await here.run(other, join())


async def test_a_job_that_opens_no_round_does_not_count(context: Any) -> None:
    context.config.policy = PolicySection(jobs_at_once=1)
    here = effects(context)
    await here.run(view_at(1), join())
    context.follower.views = {JOB: view_at(1)}
    here.unpaid = frozenset({JOB})
    await here.run(replace(view_at(1), job_id=JobId(JOB + 1)), join())


async def test_what_no_busy_machine_explains_is_measured_once(context: Any) -> None:
    """Else anybody's jobs, for whom each is free, would have it measure for minutes."""
    context.config.policy = PolicySection(most_of_window=0.5)
    context.worker.results = [None, paced(1e6)]
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, spec_of(view))
    assert isinstance(done.entry, JobRefused)
    assert context.worker.asked.count(MEASURE_PACE) == 1


@pytest.mark.parametrize(
    ("role", "policy", "reason"),
    [
        ("provider", {"least_million_wei": 10**30}, "policy.least_million_wei"),
        ("verifier", {"least_fee_wei": 10**30}, "policy.least_fee_wei"),
        ("provider", {"largest_bond": 1e-18}, "policy.largest_bond"),
        ("verifier", {"largest_bond": 1e-18}, "policy.largest_bond"),
    ],
)
async def test_terms_against_the_policy_are_refused_before_anything_is_fetched(
    context: Any, role: str, policy: dict[str, Any], reason: str
) -> None:
    context.config.role, context.config.policy = role, PolicySection(**policy)
    view = view_at(1)
    done = await effects(context).run(view, spec_of(view))
    assert isinstance(done.entry, JobRefused)
    assert reason in done.entry.reason
    assert context.fetcher.limits == {}


@pytest.mark.parametrize(
    ("policy", "reason"),
    [({"most_parameters": 1}, "most_parameters"), ({"most_data_bytes": 1}, "most_data_bytes")],
)
def test_a_job_that_is_too_large_is_refused(policy: dict[str, Any], reason: str) -> None:
    assert manifest_refusal(PolicySection(), MANIFEST) == ""
    assert f"policy.{reason} is 1" in manifest_refusal(PolicySection(**policy), MANIFEST)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("what", ["memory", "disk"])
def test_a_job_that_takes_more_memory_or_disk_than_it_may_is_refused(role: Role, what: str) -> None:
    takes = {"memory": memory_of(role, MANIFEST), "disk": least_disk(MANIFEST)}
    for less in (0, 1):
        asked = PolicySection(**{f"most_{what}_bytes": takes[what] - less})
        allowed = room_refusal(asked, role, MANIFEST, Machine(**takes))
        is_here = replace(Machine(**takes), **{what: takes[what] - less})
        there = room_refusal(PolicySection(), role, MANIFEST, is_here)
        if less:
            assert f"policy.most_{what}_bytes is {takes[what] - 1}" in allowed
            assert there == (
                f"takes {takes[what]} bytes of {what}, and this machine has {takes[what] - 1}"
            )
        else:
            assert allowed == there == ""


async def test_a_model_that_no_machine_holds_is_refused_before_anything_is_staked(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(material, "memory", lambda: (1 << 20, 1 << 20))
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, spec_of(view))
    assert isinstance(done.entry, JobRefused)
    assert f"this machine has {1 << 20}" in done.entry.reason
    assert (context.worker.asked, context.queue.calls) == ([], {})


def paced(step_seconds: float) -> Pace:
    """What the worker measures; a round of this manifest has 40 steps."""
    return Pace(step_seconds, 0.0, parameters=1, timed_parameters=1, update_bytes=1)


@pytest.mark.parametrize(
    ("role", "window", "steps"),
    [
        ("provider", "train_seconds", 40),
        ("verifier", "audit_seconds", 40 * most_duties(MANIFEST.terms)),
        ("provider", "game_seconds", 40 + 5 + 20),
        ("verifier", "game_seconds", 40 + 5 + 20),
    ],
)
@pytest.mark.parametrize("keeps_up", [True, False])
async def test_a_job_faster_than_this_machine_is_refused_with_the_numbers(
    context: Any, role: str, window: str, steps: int, keeps_up: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its submitter could else dispute right work, and have the bond of who has no time left."""
    monkeypatch.setattr(material, "PACE_PAUSE_S", 0)
    context.config.role, context.config.policy = role, PolicySection(most_of_window=0.5)
    names = ["train_seconds", "audit_seconds", "merge_seconds", "game_seconds"]
    room = dict.fromkeys(names, 10_000)
    terms = replace(MANIFEST.terms, window_seconds=20_000, **{**room, window: 100})
    manifest = MANIFEST.model_copy(update={"terms": terms})
    limit = 100 / 2 / steps
    slow = [paced(1.01 * limit)] * material.PACE_TRIES
    # Something else kept the machine busy for a while.
    context.worker.results = [None, *slow[1:], paced(limit) if keeps_up else slow[0]]
    context.fetcher.blocks[Cid.from_bytes(manifest.cid())] = manifest.to_bytes()
    done = await effects(context).run(view_at(1), DoFetchSpec(manifest.cid(), terms_hash(terms)))
    if keeps_up:
        assert isinstance(done.entry, SpecReady)
        assert done.entry.manifest == manifest.to_bytes()
        assert done.entry.hourly > 0
    else:
        assert isinstance(done.entry, JobRefused)
        assert done.entry.reason.startswith(
            f"{window.removesuffix('_seconds')} window 100 s < 101 s"
        )
        assert done.entry.reason.endswith("and policy.most_of_window is 0.5")
    measured = context.worker.asked.count(MEASURE_PACE)
    assert measured == material.PACE_TRIES


async def test_who_withdrew_all_deposits_again_for_the_next_slot(context: Any) -> None:
    """In another job, or in the same; the stake found is what it was the first time."""
    for job in (JOB, JobId(2), JOB):
        await effects(context).run(replace(view_at(1), job_id=job), join())
        context.follower.confirmed = context.queue.block
    sent = [call[0] for call in context.queue.calls.values()]
    assert (sent.count("approve"), sent.count("deposit")) == (3, 3)


async def test_each_challenge_is_allowed_its_bond_though_all_is_as_before_the_last(
    context: Any,
) -> None:
    """An earlier bond came home, so balance and allowance are what they were then."""
    for number in range(3):
        await _allow(effects(context), 100)
        assert len(context.queue.calls) == number + 1
    assert set(context.queue.calls.values()) == {("approve", ADDRESSES["Game"], 100)}


async def test_an_allowance_under_way_is_not_sent_twice(context: Any) -> None:
    context.queue.block = None
    for _ in range(2):
        await _allow(effects(context), 100)
    assert len(context.queue.calls) == 1
    context.chain.allowed = 100
    await _allow(effects(context), 100)
    assert len(context.queue.calls) == 1


async def test_without_that_bound_nothing_is_measured(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    await effects(context).run(view, spec_of(view))
    assert context.worker.asked == [CHECK_MACHINE]
    assert context.worker.gave_way == context.worker.asked  # to what is owed


async def test_who_has_a_place_owes_its_rounds_whatever_the_policy_says_now(context: Any) -> None:
    net = Network(MANIFEST.terms)
    net.join(ME, 0)
    view = replace(net.view, spec_cid=MANIFEST.cid(), terms_hash=terms_hash(MANIFEST.terms))
    bounds = {"least_million_wei": 10**30, "most_parameters": 1, "most_of_window": 1e-9}
    context.config.policy = PolicySection(**bounds)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, spec_of(view))
    assert done.entry == SpecReady(MANIFEST.to_bytes())
    assert context.worker.asked and not context.worker.gave_way


async def test_what_is_of_the_account_is_sent_once_for_all_jobs(context: Any) -> None:
    for job in (JOB, JOB + 1):
        await effects(context).run(replace(view_at(1), job_id=JobId(job)), SendAnnounce("http://x"))
    assert len(context.queue.calls) == 1


async def test_what_a_game_left_is_collected(context: Any) -> None:
    """Whosoever pays for the account: the contract asks for the payee."""
    context.chain.owned = Ownership(address("owner"), address("wallet"))
    games: Any = {n: SimpleNamespace(outcome=Outcome(n)) for n in range(1, 4)}
    view = replace(view_at(1), games=games)
    for game in games:
        assert (await effects(context).run(view, SendCollect(game))).entry == BondCollected()
    asked = [call for call in context.queue.calls.values() if call[0] == "game_withdraw"]
    assert asked == [("game_withdraw", of) for of in (ME, ME, ME)]


async def test_a_deposit_under_way_is_not_sent_twice(context: Any) -> None:
    await effects(context).run(view_at(1), join())
    await effects(context).run(view_at(1), join())
    assert [c[0] for c in context.queue.calls.values()].count("deposit") == 1


async def test_too_few_tokens_say_how_many_are_lacking(context: Any) -> None:
    context.chain.balance = 40
    with pytest.raises(InsufficientFunds, match=r"has 40 wei .* lacks 100") as caught:
        await effects(context).run(view_at(1), join())
    assert caught.value.next_step is not None
    assert context.queue.calls == {}


# --- material ---


def spec_of(view: JobView) -> DoFetchSpec:
    return DoFetchSpec(view.spec_cid, view.terms_hash)


async def test_a_manifest_that_fits_is_kept(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, spec_of(view))
    promised = promised_per_hour(Role.PROVIDER, MANIFEST.terms)
    assert done.entry == SpecReady(MANIFEST.to_bytes(), promised)
    assert [pin.reason for pin in context.store.pins()] == [f"job/{JOB}"]


async def test_a_manifest_that_nobody_has_is_asked_for_again(context: Any) -> None:
    view = view_at(1)
    with pytest.raises(NotFound):
        await effects(context).run(view, spec_of(view))


async def test_other_terms_than_the_chains_are_refused(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, replace(spec_of(view), terms_hash=digest("other")))
    assert isinstance(done.entry, JobRefused)
    assert "terms" in done.entry.reason


async def test_a_machine_of_another_class_refuses_the_job(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    context.worker.results = [NumericsMismatch("another probe")]
    done = await effects(context).run(view, spec_of(view))
    assert done.entry == JobRefused("another probe")
    assert context.store.pins() == []  # else strangers fill the disk with jobs that nobody takes


async def test_who_has_a_place_tries_again_what_its_machine_did_not_come_to_once(
    context: Any,
) -> None:
    """A refusal lasts as long as the process, and what is owed has no such time."""
    net = Network(MANIFEST.terms)
    net.join(ME, 0)
    view = replace(net.view, spec_cid=MANIFEST.cid(), terms_hash=terms_hash(MANIFEST.terms))
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    context.worker.results = [MachineFault("a bit of the probe")]
    with pytest.raises(ProtocolError, match="a bit of the probe"):
        await effects(context).run(view, spec_of(view))
    weights = from_weights(context).to_bytes()
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = [MalformedState("another root")]
    with pytest.raises(ProtocolError, match="another root"):
        await effects(context).run(view, DoFetchData(weights))
    done = await effects(context).run(view, spec_of(view))
    assert done.entry == SpecReady(MANIFEST.to_bytes())


@pytest.mark.parametrize("is_known", [True, False])
async def test_data_of_a_journal_that_was_moved_without_its_store_is_kept_here(
    context: Any, is_known: bool
) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    if is_known:
        ready = DataReady(MANIFEST.data.cid, digest("model"))
        context.journal.write(JOB, DoFetchData(b"").key, ready)
    data = {Cid.from_bytes(cid) for cid, _ in files_of(MANIFEST)}
    carrier = effects(context)
    for _ in range(2):  # at every start
        await carrier.run(view, spec_of(view))
        kept = {pin.cid for pin in await carrier.kept_for(view)}
        assert kept == {Cid.from_bytes(view.spec_cid), *(data if is_known else ())}


async def test_bytes_that_are_no_manifest_are_refused(context: Any) -> None:
    view = view_at(1)
    data = b"\xa0"
    cid = Cid.of(data, DAG_CBOR)
    context.fetcher.blocks[cid] = data
    done = await effects(context).run(view, DoFetchSpec(cid.to_bytes(), view.terms_hash))
    assert isinstance(done.entry, JobRefused)


@pytest.mark.parametrize("codec", [RAW, DAG_PB])
async def test_a_manifest_is_never_looked_for_in_a_tree(context: Any, codec: int) -> None:
    """A stranger's tree costs more to walk than the one block that a manifest is."""
    view = view_at(1)
    cid = Cid.of(MANIFEST.to_bytes(), codec)
    context.fetcher.blocks[cid] = MANIFEST.to_bytes()
    done = await effects(context).run(view, DoFetchSpec(cid.to_bytes(), view.terms_hash))
    assert isinstance(done.entry, JobRefused)
    assert "DAG-CBOR" in done.entry.reason


CHECKED = (None, (MANIFEST.terms.program, digest("model")))
"""What a worker says of sound data: nothing, and the program that the terms name."""


@pytest.mark.parametrize("large", ["", "cid", "nodes_cid", "eval_cid"])
async def test_no_file_of_the_data_may_be_larger_than_the_manifest_says(
    context: Any, large: str
) -> None:
    """A free job must not fill a provider's disk with what its manifest does not speak of."""
    spec = MANIFEST.data
    held_out = spec.model_copy(update={"eval_cid": spec.cid, "eval_tokens": 50_000})
    sizes = {"cid": spec.train_tokens, "nodes_cid": 32, "eval_cid": 50_000, "tokenizer_cid": 9}
    blocks = {name: bytes(size + (name == large)) for name, size in sizes.items()}
    context.fetcher.blocks |= {Cid.of(block): block for block in blocks.values()}
    cids = {name: Cid.of(block).to_bytes() for name, block in blocks.items()}
    manifest = MANIFEST.model_copy(update={"data": held_out.model_copy(update=cids)})
    context.worker.results = list(CHECKED)
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(done.entry, JobRefused if large else DataReady)
    assert bool(context.store.pins()) is not bool(large)
    if large:
        assert not context.store.has(Cid.from_bytes(cids[large]))


WEIGHTS = Cid.of(b"the weights")


def from_weights(context: Any) -> Any:
    """A job that starts from content; its text is here, its weights are not."""
    blocks = {"cid": bytes(99), "nodes_cid": bytes(32), "tokenizer_cid": b"tokenizer"}
    context.fetcher.blocks |= {Cid.of(block): block for block in blocks.values()}
    named = {name: Cid.of(block).to_bytes() for name, block in blocks.items()}
    init = InitSpec(seed=None, cid=WEIGHTS.to_bytes(), root=digest("params"))
    data = MANIFEST.data.model_copy(update={**named, "train_tokens": 99})
    return MANIFEST.model_copy(update={"data": data, "init": init})


async def test_initial_weights_are_fetched_with_the_data_and_kept(context: Any) -> None:
    manifest = from_weights(context)
    assert manifest.content[-1] == WEIGHTS.to_bytes()
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = list(CHECKED)
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(done.entry, DataReady)
    assert WEIGHTS in {pin.cid for pin in context.store.pins()}
    assert context.fetcher.limits[WEIGHTS] == max_params_bytes(manifest.model)


async def test_a_job_is_not_ready_while_nobody_has_its_weights(context: Any) -> None:
    manifest = from_weights(context)
    with pytest.raises(NotFound, match=str(WEIGHTS)):
        await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert context.journal.read(JOB).of(DoFetchData) is None


@pytest.mark.parametrize("error", [MalformedState("another root"), TooLarge("too many bytes")])
async def test_a_job_whose_weights_are_wrong_is_refused_alone(context: Any, error: Any) -> None:
    manifest = from_weights(context)
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = [error, *CHECKED]
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert done.entry == JobRefused(str(error))
    again = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(again.entry, DataReady)  # what was refused is that job, not the service


async def test_an_update_is_asked_of_its_author_and_of_the_committee_that_serves_it_on(
    context: Any,
) -> None:
    script = Script.ready()
    script.train()
    view = script.net.view
    running = view.open
    assert running is not None
    committee = [
        view.verifiers[running.slots[SlotIndex(p)]].account for p in bits(running.committee)
    ]
    author = running.reveals[SeatIndex(0)].account
    urls = {
        who: f"http://{i}.example" for i, who in enumerate((author, context.me, *committee[1:]))
    }
    cid = Cid.of(b"an update")
    context.fetcher.blocks[cid] = b"an update"
    view = replace(view, gateways=urls)
    await effects(context).fetch_spread(view, running.round, cid, 9, author)
    relays = [urls[member] for member in committee[1:]]  # the first has announced nothing
    patience = view.require_terms().merge_seconds / 4
    told = Spread(urls[author], frozenset(relays), urls[context.me], patience)
    assert context.fetcher.spreads == [told]
    assert committee_gateways(view, running.round + 1) == []


@pytest.mark.parametrize("found", ["merged", "other"])
async def test_an_opening_state_must_have_the_verdicts_digest(context: Any, found: str) -> None:
    data = b"a state"
    cid = Cid.of(data)
    context.fetcher.blocks[cid] = data
    initial_state = RoundStartReady(cid.to_bytes(), digest(found))
    context.worker.results = [initial_state]
    command = DoPrepareRoundStart(3, MANIFEST.to_bytes(), cid.to_bytes(), digest("merged"))
    if found == "other":
        with pytest.raises(ProtocolError, match="round 3 has digest"):
            await effects(context).run(view_at(1), command)
        return
    done = await effects(context).run(view_at(1), command)
    assert done.entry == initial_state
    journaled = context.journal.read(JOB)
    assert journaled.of(DoPrepareRoundStart, 3, digest("merged")) == initial_state


@pytest.mark.parametrize("is_right", [True, False])
async def test_the_first_rounds_model_is_held_against_what_the_terms_were(
    context: Any, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    """It is made here, and no certificate names it: a bit that flips would cost the bond."""
    here, model = effects(context), context.store.add_bytes(b"a model").to_bytes()
    made = RoundStartReady(model, digest("made" if is_right else "flipped"))

    async def work_soon(call: TaskCall[RoundStartReady]) -> RoundStartReady:
        assert call.task == MAKE_INITIAL_STATE
        return made

    monkeypatch.setattr(here, "work_soon", work_soon)
    context.journal.write(JOB, DoFetchData(b"").key, DataReady(b"data", digest("made")))
    initial_state = DoPrepareRoundStart(0, MANIFEST.to_bytes(), None, None)
    if is_right:
        assert (await initial_state.perform(here, view_at(1))).entry == made
        assert await model_of_round(here, view_at(1), 0, b"") == made.cid
        return
    with pytest.raises(MachineFault):
        await initial_state.perform(here, view_at(1))
    with pytest.raises(MachineFault):
        await model_of_round(here, view_at(1), 0, b"")


async def test_nobody_looks_twice_at_a_state_that_its_own_merge_made(context: Any) -> None:
    """The worker trains from it by then: a look would wait for, or take from, the training."""
    data = b"a state"
    cid = Cid.of(data)
    context.fetcher.blocks[cid] = data
    command = DoPrepareRoundStart(3, MANIFEST.to_bytes(), cid.to_bytes(), digest("merged"), True)
    done = await effects(context).run(view_at(1), command)
    assert done.entry == RoundStartReady(cid.to_bytes(), digest("merged"))
    assert context.worker.asked == []


async def test_blocks_of_final_rounds_are_let_go(context: Any) -> None:
    carrier = effects(context)
    for round_ in range(3):
        await carrier.keep(view_at(1), round_, Cid.of(bytes([round_])).to_bytes())
    done = await carrier.run(view_at(1), DoUnpin(0, 2))
    assert done.entry == RoundsUnpinned(2)
    assert [pin.reason for pin in context.store.pins()] == [f"job/{JOB}/round/2"]


# --- the worker ---

A_REPLAY: Task[[], str] = Task("test-replay.v1", __name__)
A_MOVE: Task[[], str] = Task("test-move.v1", __name__)
A_MERGE: Task[[], str] = Task("test-merge.v1", __name__)
A_ROUND: Task[[], str] = Task("test-round.v1", __name__)


@dataclass
class Lane:
    """A worker whose calls wait for the test, and say what they are of; who has no patience is told
    at once.
    """

    done: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[Task[..., Any], bool]] = field(default_factory=list)

    async def run(
        self,
        call: TaskCall[str],
        *,
        is_first: bool = False,
        due: int = 0,
        patience_s: float | None = None,
    ) -> Task[..., str]:
        self.asked.append((call.task, is_first))
        if patience_s is not None:
            raise TimeoutError
        await self.done.wait()
        return call.task


async def test_what_is_urgent_has_a_process_of_its_own_while_a_round_is_replayed(
    context: Any,
) -> None:
    main, spare = context.worker, context.spare_worker = Lane(), Lane()
    games = context.game_worker = Lane()
    spare.done.set()
    here = effects(context)
    replay = asyncio.create_task(here.work(A_REPLAY()))
    # Of a game, whose clock runs; its first one takes as long as a round, and whoever is disputed
    # has to merge, and say words, all the same.
    move = asyncio.create_task(here.play(A_MOVE()))
    await asyncio.sleep(0)
    assert (main.asked, games.asked) == ([(A_REPLAY, False)], [(A_MOVE, True)])
    assert await here.work_soon(A_MERGE()) == A_MERGE
    assert main.asked == [(A_REPLAY, False), (A_MERGE, True)]
    assert spare.asked == [(A_MERGE, False)]
    games.done.set()
    main.done.set()
    assert (await replay, await move) == (A_REPLAY, A_MOVE)
    assert await here.work_soon(A_MERGE()) == A_MERGE  # nothing is in its way now
    assert len(spare.asked) == 1


async def test_a_game_about_the_first_round_waits_for_no_round_that_is_trained(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is made anew, for each move, and the clock has no room for others' rounds."""
    main, spare = context.worker, context.spare_worker = Lane(), Lane()
    spare.done.set()
    here, kept = effects(context), list[bytes]()
    opened = RoundStartReady(b"initial", digest("initial"))

    async def keep(view: JobView, round: int, cid: bytes) -> None:
        kept.append(cid)

    async def work_soon(call: TaskCall[Any]) -> RoundStartReady:
        assert await soon(call) == call.task
        return opened

    soon = here.work_soon
    monkeypatch.setattr(here, "keep", keep)
    monkeypatch.setattr(here, "work_soon", work_soon)
    training = asyncio.create_task(here.work(A_ROUND()))
    await asyncio.sleep(0)
    made = asyncio.create_task(model_of_round(here, view_at(1), 0, b"manifest"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert made.done()
    assert spare.asked == [(MAKE_INITIAL_STATE, False)]
    assert kept == [await made]
    main.done.set()
    await training


async def test_a_rounds_model_is_looked_for_where_we_opened_it_from(context: Any) -> None:
    """Two thirds of a committee can sign the right model with a CID that nobody has, and then
    dispute what everybody trained from it, who merged themselves.
    """
    script = Script.ready()
    script.honest_round()
    view, manifest = script.net.view, MANIFEST.to_bytes()
    certified = view.settled[0].verdict
    own = Cid.of(b"the model")
    context.fetcher.blocks[own] = b"the model"
    with pytest.raises(NotFound):
        await model_of_round(effects(context), view, 1, manifest)
    for digest_, found in ((digest("another model"), None), (certified.state, own)):
        opened = DoPrepareRoundStart(1, manifest, own.to_bytes(), digest_, is_own=True)
        entry = RoundStartReady(own.to_bytes(), digest_)
        context.journal.write(view.job_id, opened.key, entry)
        if found is None:
            with pytest.raises(NotFound):
                await model_of_round(effects(context), view, 1, manifest)
        else:
            assert await model_of_round(effects(context), view, 1, manifest) == own.to_bytes()
