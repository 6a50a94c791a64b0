"""Effects on a chain made of paper: what is sent, how often, and which jobs are refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from tests.support.identities import JOB, address
from tests.unit.protocol.network import Network
from tests.unit.service.contexts import ADDRESSES, MANIFEST, ME, Chain, effects, spec_of, view_at

from atoll.errors import (
    InsufficientFunds,
    TransactionFailed,
)
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.hashing import terms_hash
from atoll.protocol.keeper_calls import KeeperCallKind as Kind
from atoll.protocol.owners import Ownership
from atoll.protocol.types import (
    Address,
    HolderId,
    JobId,
    Role,
    RoundIndex,
    SeatIndex,
)
from atoll.service.config import PolicySection
from atoll.service.duties import material
from atoll.service.duties.challenge import _allow
from atoll.service.duties.game import BondCollected, SendCollect
from atoll.service.duties.join_and_leave import SendAnnounce, SendJoin
from atoll.service.duties.material import (
    CHECK_MACHINE,
    MEASURE_PACE,
    DoFetchSpec,
    JobRefused,
    SpecReady,
)
from atoll.service.duties.send_keeper_calls import SendKeeperCall
from atoll.service.entries import NotYet
from atoll.service.needs import Machine, least_disk, memory_of
from atoll.service.pace import Pace, most_duties
from atoll.service.policy import NotOurPolicy, manifest_refusal, room_refusal
from atoll.storage.cid import Cid


def of_job(kind: Kind, place: str = "") -> SendKeeperCall:
    """A call that anyone may make."""
    return SendKeeperCall(kind, RoundIndex(0), Role.PROVIDER, HolderId(2), SeatIndex(1), place)


ADVANCE, RELEASE = of_job(Kind.ADVANCE, "place"), of_job(Kind.RELEASE)


def join(role: Role = Role.PROVIDER, bond: int = 100) -> SendJoin:
    return SendJoin(role, 0, RoundIndex(0), bond)


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


@pytest.mark.parametrize("is_known", [True, False])
async def test_runs_of_games_in_our_other_jobs_are_counted(
    context: Any, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever disputes us in all of them at once could else take bonds of right work."""
    monkeypatch.setattr(material, "PACE_PAUSE_S", 0)
    context.config.role, context.config.policy = "provider", PolicySection(most_of_window=0.5)
    room = dict.fromkeys(["train_seconds", "audit_seconds", "merge_seconds"], 10_000)
    terms = replace(MANIFEST.terms, window_seconds=20_000, game_seconds=100, **room)
    manifest = MANIFEST.model_copy(update={"terms": terms})
    context.fetcher.blocks[Cid.from_bytes(manifest.cid())] = manifest.to_bytes()
    fetch = DoFetchSpec(manifest.cid(), terms_hash(terms))
    here, pace = effects(context), paced(0.6 * 50 / 65)
    await here.run(view_at(1), join())
    context.follower.views = {JOB: view_at(1)}
    if is_known:
        context.journal.write(JOB, fetch.key, SpecReady(manifest.to_bytes()))
    context.worker.results = [None, pace, *[pace] * material.PACE_TRIES]
    done = await here.run(replace(view_at(1), job_id=JobId(JOB + 1)), fetch)
    assert isinstance(done.entry, JobRefused if is_known else SpecReady)
    if isinstance(done.entry, JobRefused):
        assert done.entry.reason.startswith("game window 100 s < 120 s, of which runs in this job")


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
