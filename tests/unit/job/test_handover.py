"""A submitter that nobody reaches: to whom it brings a job's data, and when it may go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_account import Account
from tests.support.identities import JOB
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network
from tests.unit.storage.gateways import serving

from atoll.chain.keys import sign_typed
from atoll.errors import ChainError, NotFound
from atoll.job import handover
from atoll.job.followed import FollowedJob
from atoll.job.handover import hand_over, nobody_asks
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.types import Address, JobStatus, Role
from atoll.protocol.views import JobView
from atoll.service.duties.material import files_of
from atoll.service.stand_statements import (
    Stand,
    StandStatement,
    message_of,
    note_name,
    to_bytes,
)
from atoll.storage import Fetcher, Gateway, LocalStore
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.gateway_client import GatewayClient
from atoll.storage.sources import GatewaySource
from atoll.train.data import nodes_bytes

TOKENS = (1 << 20) + 5
KEYS = [Account.from_key(bytes([n]) * 32) for n in range(1, 6)]


@dataclass
class Member:
    """Who has announced a gateway, and says how it stands to the job.

    Attributes:
        joins: whether it takes a place once it has everything.
        takes: whether its gateway takes what it asks for.
    """

    key: Any
    store: LocalStore
    manifest: Manifest
    role: Role = Role.VERIFIER
    joins: bool = True
    takes: bool = True
    gateway: Gateway = field(init=False)

    @property
    def account(self) -> Address:
        return Address(self.key.address)

    @property
    def has_manifest(self) -> bool:
        return self.store.has(Cid.from_bytes(self.manifest.cid()))

    @property
    def has_all(self) -> bool:
        files = ((Cid.from_bytes(cid), most) for cid, most in files_of(self.manifest))
        try:
            return self.has_manifest and all(self.store.read_bytes(*file) for file in files)
        except NotFound:
            return False

    def note(self, name: str) -> bytes | None:
        """Its statement; it asks for what it lacks from now on."""
        if name != note_name(JOB):
            return None
        files = {Cid.from_bytes(cid): most for cid, most in files_of(self.manifest)}
        wanted = files if self.has_manifest else {}
        wanted[Cid.from_bytes(self.manifest.cid())] = MAX_MANIFEST_BYTES
        self.gateway.pushed.expect(wanted if self.takes else {})
        asks = self.has_manifest or not self.takes
        said = StandStatement(self.role, Stand.JOINS if asks else Stand.MEASURES, 0, "")
        domain = Network(self.manifest.terms).view.domain
        message = message_of(domain, JOB, self.account, said)
        return to_bytes(said, sign_typed(self.key, message))


@dataclass
class Chain:
    """Has a job that waits for members; `poor` could not pay its bond.

    Attributes:
        is_silent: whether it says nothing of stakes; asked: how often it was asked.
    """

    net: Network
    members: list[Member]
    spec_cid: bytes
    poor: set[Address] = field(default_factory=set)
    now: int = 0
    is_silent: bool = False
    asked: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    async def stake(self, account: Address, role: Role) -> Any:
        self.asked += 1
        if self.is_silent:
            raise ChainError("it does not answer")
        return SimpleNamespace(active=0)

    async def token_balance(self, account: Address) -> int:
        bond = self.net.terms.verifier_bond
        return bond - (account in self.poor)

    async def view(self) -> JobView:
        for member in self.members:
            held = self.net.view.standing(member.account)
            if member.joins and held is None and member.has_all:
                slot = len(self.net.view.verifiers)
                self.net.enrol(member.account, slot, self.net.terms.verifier_bond)
                self.net.say_ready(member.account)
        urls = {member.account: member.gateway.url for member in self.members}
        changes = {"spec_cid": self.spec_cid, **self.changes}
        return replace(self.net.view, gateways=urls, **changes)


@dataclass
class Site:
    """A job in a submitter's store, and its members."""

    store: LocalStore
    manifest: Manifest
    chain: Chain
    fetcher: Fetcher
    told: list[str] = field(default_factory=list)
    was_told: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, words: str) -> None:
        self.told.append(words)
        self.was_told.set()

    async def hand_over(self) -> tuple[Address, ...]:
        client = SimpleNamespace(
            store=self.store,
            chain=self.chain,
            follower=self.chain,
            session=SimpleNamespace(storage=SimpleNamespace(fetcher=self.fetcher)),
            fetcher_of=lambda job: self.fetcher,
        )
        job = FollowedJob(cast(Any, client), JOB)

        async def manifest() -> Manifest:
            return self.manifest

        scripted = SimpleNamespace(client=client, id=job.id, view=self.chain.view)
        scripted.manifest = manifest
        return await hand_over(cast(Any, scripted), self.tell)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(handover, "OFFER_SECONDS", 0.5)


@asynccontextmanager
async def site_of(folder: Path, *kinds: dict[str, Any], slots: int = 4) -> AsyncIterator[Site]:
    """Members of these kinds."""
    store = LocalStore(folder / "ours", sync=False)
    data = {
        "cid": store.add_bytes(os.urandom(TOKENS)).to_bytes(),
        "nodes_cid": store.add_bytes(os.urandom(nodes_bytes(TOKENS))).to_bytes(),
        "tokenizer_cid": store.add_bytes(b"a tokenizer").to_bytes(),
        "train_tokens": TOKENS,
    }
    manifest = make_manifest({f"data.{name}": value for name, value in data.items()})
    store.add_block(manifest.to_bytes(), DAG_CBOR)
    net = Network(replace(manifest.terms, slots=slots, min_verifiers=1))
    async with AsyncExitStack() as stack:
        members = []
        for at, kind in enumerate(kinds):
            theirs = LocalStore(folder / f"member {at}", sync=False)
            member = Member(KEYS[at], theirs, manifest, **kind)
            serves = serving(theirs, notes=member.note)
            member.gateway = await stack.enter_async_context(serves)
            members.append(member)
        fetcher = await stack.enter_async_context(Fetcher(store, tuple))
        yield Site(store, manifest, Chain(net, members, manifest.cid()), fetcher)


async def test_two_verifiers_that_ask_get_everything(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}, {}) as site:
        held = await site.hand_over()
        having = [member.account for member in site.chain.members if member.has_all]
        assert sorted(held) == sorted(having) and len(held) == 2
        assert all(f"{account} has the data of job {JOB}" in site.told for account in held)
        brought = [words for words in site.told if words.startswith("brings")]
        assert len(brought) == 2 and all("http://" in words for words in brought)
        assert site.fetcher.bytes_up < 2.1 * TOKENS


async def test_of_one_slot_one_is_enough(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}, slots=1) as site:
        assert len(await site.hand_over()) == 1
        assert site.fetcher.bytes_up < 1.1 * TOKENS


async def test_who_only_says_to_have_it_and_pays_for_a_place_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of these had the submitter go, and nobody had the data."""

    async def has(_: GatewayClient, cid: Cid, source: GatewaySource) -> bool:
        return source.url in liars or await truth(_, cid, source)

    truth = GatewayClient.has
    async with site_of(tmp_path, {}, {}, {}, {}) as site:
        liars = {member.gateway.url for member in site.chain.members[:2]}
        for slot, member in enumerate(site.chain.members[:2]):
            site.chain.net.enrol(member.account, slot, site.chain.net.terms.verifier_bond)
            site.chain.net.say_ready(member.account)
        monkeypatch.setattr(GatewayClient, "has", has)
        held = await site.hand_over()
        assert set(held) == {member.account for member in site.chain.members[2:]}
        assert any("does not show what it says to have" in words for words in site.told)


async def test_who_spends_its_bond_meanwhile_loses_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens could stand behind any number of gateways, one after another."""
    monkeypatch.setattr(handover, "STILL_SECONDS", 60.0)
    async with site_of(tmp_path, {"takes": False}, {}, slots=1) as site:
        spender, honest = site.chain.members
        honest.joins = False
        handing = asyncio.create_task(site.hand_over())
        site.chain.poor = {honest.account}
        while not any(spender.account in words for words in site.told):
            site.was_told.clear()
            await site.was_told.wait()
        site.chain.poor, honest.joins = {spender.account}, True
        assert await handing == (honest.account,)


async def test_a_chain_that_does_not_answer_takes_nobody_s_turn(tmp_path: Path) -> None:
    async with site_of(tmp_path, {"takes": False}, slots=1) as site:
        (member,) = site.chain.members
        handing = asyncio.create_task(site.hand_over())
        await site.was_told.wait()
        site.chain.is_silent = True
        asked = site.chain.asked
        while site.chain.asked < asked + 3:  # noqa: ASYNC110 (it is polled)
            await asyncio.sleep(0.01)
        member.takes, site.chain.is_silent = True, False
        assert await handing == (member.account,)
    assert sum(words.startswith("brings") for words in site.told) == 1


async def test_who_has_a_place_is_before_who_only_shows_a_bond(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}, {}) as site:
        *_, placed = site.chain.members
        site.chain.net.enrol(placed.account, 0, site.chain.net.terms.verifier_bond)
        view = await site.chain.view()
        handing = handover.Handover(cast(Any, None), (), site.tell)
        stands = {member.account: Stand.JOINS for member in site.chain.members[:2]}
        firsts = {handing._wanting(view, stands)[0] for _ in range(50)}
    assert firsts == {placed.account}


async def test_who_answers_first_is_not_before_all_others(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}, {}) as site:
        view = await site.chain.view()
        handing = handover.Handover(cast(Any, None), (), site.tell)
        stands = {member.account: Stand.JOINS for member in site.chain.members}
        firsts = {handing._wanting(view, stands)[0] for _ in range(200)}
    assert firsts == set(stands)


async def test_who_only_looks_at_the_job_is_offered_its_manifest_more_and_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: list[int] = []
    async with site_of(tmp_path, {}) as site:
        view = await site.chain.view()
        (member,) = site.chain.members
        handing = handover.Handover(cast(Any, None), (), site.tell)

        async def offer(_: str) -> None:
            offered.append(handing._looks)

        monkeypatch.setattr(handing, "_offer", offer)
        for handing._looks in range(1, 33):
            handing._offer_manifest(view, [member.account])
            await asyncio.sleep(0)
            handing._offered.clear()
    assert offered == [1, 2, 4, 8, 16, 32]


async def test_a_job_that_the_chain_took_back_is_not_taken_for_another(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}) as site:
        site.chain.spec_cid = b"another's"
        with pytest.raises(ChainError, match="took this one back"):
            await site.hand_over()
        assert site.fetcher.bytes_up == 0


async def test_who_has_everything_and_takes_no_place_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be anybody, and serve nobody."""
    monkeypatch.setattr(handover, "PLACE_SECONDS", 0.0)
    async with site_of(tmp_path, {"joins": False}, {}, {}) as site:
        held = await site.hand_over()
        assert set(held) == {member.account for member in site.chain.members[1:]}


async def test_who_takes_nothing_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "STILL_SECONDS", 0.3)
    async with site_of(tmp_path, {"takes": False}, {"takes": False}, {}, {}) as site:
        held = await site.hand_over()
        assert set(held) == {member.account for member in site.chain.members[2:]}
        assert any("took no block" in words for words in site.told)


async def test_a_turn_ends_however_much_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as long the next time: what takes longer than a turn comes all the same."""
    monkeypatch.setattr(handover, "TURN_SECONDS", 1e-9)
    monkeypatch.setattr(handover, "MOST_DOUBLED", 40)
    async with site_of(tmp_path, {}, {}) as site:
        assert len(await site.hand_over()) == 2
        assert any("does not have all after 0 min" in words for words in site.told)


async def test_who_has_not_the_bond_or_is_no_verifier_gets_nothing(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {"role": Role.PROVIDER}, {}, {}) as site:
        poor, provider, *others = site.chain.members
        site.chain.poor = {poor.account}
        assert set(await site.hand_over()) == {member.account for member in others}
        assert provider.store.usage().blocks == 0
        assert poor.store.usage().blocks <= 1  # the manifest, which is 16 KiB at most


async def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}) as site:
        await site.hand_over()
        sent = site.fetcher.bytes_up
        held = await site.hand_over()  # asks whether they have it, and sends nothing
        assert len(held) == 2 and site.fetcher.bytes_up == sent


async def test_data_that_the_disk_lost_is_said_before_anything_is_brought(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}) as site:
        lost = site.store.leaves(Cid.from_bytes(site.manifest.data.cid), TOKENS)[0].cid
        site.store.drop(lost)
        with pytest.raises(NotFound, match="1 blocks of the job's data are not in"):
            await site.hand_over()
    assert site.fetcher.bytes_up == 0


async def test_a_job_that_ended_or_runs_needs_nothing(tmp_path: Path) -> None:
    async with site_of(tmp_path, {}, {}) as site:
        site.chain.changes = {"status": JobStatus.CANCELLED}
        assert await site.hand_over() == ()
        assert site.fetcher.bytes_up == 0


async def test_a_lifetime_that_is_over_is_said(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        site.chain.now = site.manifest.terms.expiry
        with pytest.raises(NotFound, match="lifetime of job") as caught:
            await site.hand_over()
        assert "atoll job refund" in (caught.value.next_step or "")


async def test_why_nobody_gets_it_is_said_once(tmp_path: Path) -> None:
    async with site_of(tmp_path) as site:
        handing = asyncio.create_task(site.hand_over())
        await site.was_told.wait()
        handing.cancel()
        await asyncio.gather(handing, return_exceptions=True)
    assert site.told == ["no member has announced a gateway on this chain: waits for verifiers"]


def test_what_members_say_is_passed_on() -> None:
    view = Network().view
    accounts = {Address(key.address): "http://x" for key in KEYS[:3]}
    said = StandStatement(Role.VERIFIER, Stand.REFUSES, 0, "pays 0 wei a replay")
    words = nobody_asks(replace(view, gateways=accounts), {Address(KEYS[0].address): said})
    assert words == (
        f"no verifier at 3 announced gateways asks for the data of job {view.job_id} yet: "
        "1 member refuses: pays 0 wei a replay"
    )
