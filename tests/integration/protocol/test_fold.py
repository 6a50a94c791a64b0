"""Whole jobs on a node: contracts, text and fold say the same after every transaction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.integration.protocol.chains import Chain, Reverted, signature
from tests.integration.protocol.folding import carry_out, finish, started
from tests.integration.protocol.live import Live, field_names, live_terms
from tests.support.contracts import Refused, numbers
from tests.support.identities import digest
from tests.unit.protocol.models import MODEL, PROGRAM, with_reset_periods
from tests.unit.protocol.script import PROVIDERS, WATCHER, Script

from atoll.chain.contract_calls import Calls
from atoll.chain.decode import from_abi
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.errors import ProtocolError
from atoll.protocol import pay
from atoll.protocol.call_structs import Certified
from atoll.protocol.certificates import certificate_bytes
from atoll.protocol.claims import ProgramHeader, SeatStatements
from atoll.protocol.events import EVENT_TYPES, Missed
from atoll.protocol.games.moves import Claim
from atoll.protocol.hashing import certificate_hash
from atoll.protocol.keeper_calls import KeeperCallKind, keeper_calls, leaked_keys
from atoll.protocol.late_votes import electors, grantable, lacks_vote, without_pay
from atoll.protocol.types import (
    TOKEN,
    HolderId,
    JobStatus,
    MissedDuty,
    Phase,
    Role,
    RoundIndex,
    SeatIndex,
)


def test_every_event_has_its_class(chain: Chain) -> None:
    said = {
        item["name"]: [field["name"] for field in item["inputs"]] for item in chain.events.values()
    }
    own = {name: list(field_names(kind)) for name, kind in EVENT_TYPES.items()}
    assert {name: said.get(name) for name in own} == own


def test_an_honest_job_from_its_first_seat_to_its_last_coin(chain: Chain) -> None:
    script = started(chain, live_terms(rounds=2, expiry=chain.now + 100_000))
    net = script.net
    assert isinstance(net, Live)
    first = script.honest_round()
    net.check()
    second = script.honest_round()
    net.check()
    assert net.phase is Phase.CLOSED
    script.audit(first, second)
    net.check()
    net.wait_until(max(settled_round.ends["window"] for settled_round in net.settled))
    finish(net)
    assert net.status is JobStatus.DONE
    assert all(m.released for m in net.members.values())
    assert net.claimed > 0
    (escrow,) = chain.call(chain.jobs, "escrowOf", net.job)
    assert escrow[:4] == (net.funded, net.claimed, net.refunded, net.burnt)
    assert chain.call(chain.jobs, "refundable", net.job) == (pay.refundable(net.folded),)


def test_pay_is_retained_and_lowers_rates_the_same_in_all_three(chain: Chain) -> None:
    """What is said, what is drawn, and that all of it goes home."""
    terms = live_terms(
        rounds=6,
        audit_rate=1,
        last_rate=1,
        rate_steps=3,
        provider_bond=TOKEN,
        segment_pay=TOKEN // 8,
        train_seconds=5_000,
        expiry=chain.now + 100_000,
    )
    script = started(chain, terms)
    net = script.net
    assert isinstance(net, Live)
    for round in range(6):
        script.honest_round()
        if round < 5:
            net.wait_until(net.settled[round].ends["window"])
            net.claim(Role.PROVIDER, 1, round + 1)
        net.check()
    assert all(settled_round.is_consistent for settled_round in net.folded.settled)
    held = net.folded.providers[HolderId(1)]
    assert (held.steps, held.retained) == (3, held.bond - TOKEN)
    assert chain.call(chain.members, "bondOf", net.job, Role.PROVIDER, 1) == (held.bond,)
    net.wait_until(max(settled_round.ends["window"] for settled_round in net.settled))
    finish(net)
    assert all(m.released for m in net.members.values())
    (escrow,) = chain.call(chain.jobs, "escrowOf", net.job)
    assert escrow[:4] == (net.funded, net.claimed, net.refunded, net.burnt)


def test_keys_that_are_missing_or_wrong_lose_pay_and_then_the_bond(chain: Chain) -> None:
    script = started(chain, live_terms(f=0, min_providers=2, expiry=chain.now + 100_000))
    net = script.net
    assert isinstance(net, Live)
    round = net.round
    script.train()
    script.say()
    net.settle(set(sorted(net.committee)[:3]))
    late = net.settled[round].slots[max(net.committee)]
    net.sign(late)
    ends = net.settled[round].ends
    for id in script.auditors(round):
        script.audit_report(round, id)
    net.wait_until(ends["audit"])
    for id in script.auditors(round):
        script.open(round, id)
    net.wait_until(ends["open"])
    script.show_keys(round, [0, 3])
    net.show_key(round, 1, script.secrets[round, 0][0])
    net.wait_until(ends["keys"])
    net.report_missing_key(round, 2)
    net.show_key(round, 1, script.secrets[round, 1][0])
    calls = {(one.call, one.seat) for one in keeper_calls(net.folded, net.chain.now)}
    missing = {seat for call, seat in calls if call is KeeperCallKind.REPORT_MISSING_KEY}
    assert missing == {1}, "shown, and late"
    net.report_missing_key(round, 1)
    net.check()
    keyless = [holder for holder in net.folded.providers.values() if holder.penalties]
    assert {holder.index for holder in keyless} == {1, 2}
    assert not any(holder.is_slashed for holder in net.folded.providers.values())
    net.wait_until(ends["window"])
    finish(net)
    net.check()
    assert net.burnt == 2 * net.terms.segments * net.terms.segment_pay


def test_who_is_silent_in_the_committee_draw_that_a_job_expires_in_misses(chain: Chain) -> None:
    script = started(chain, live_terms(expiry=chain.now + 1_000))
    net = script.net
    assert isinstance(net, Live)
    round = net.round
    script.train()
    silent = max(net.committee)
    script.say(sorted(net.committee - {silent}))
    net.wait_until(max(net.terms.expiry, net.deadline))
    net.settle_late()
    net.check()
    penalties = [
        one
        for one in keeper_calls(net.folded, net.chain.now)
        if one.call is KeeperCallKind.PENALISE_MEMBER
    ]
    assert [one.holder for one in penalties] == [net.settled[round].slots[silent]]
    carry_out(net, penalties[0])
    for slot in net.committee - {silent}:
        with pytest.raises(Refused):
            net.penalise_member(round, net.settled[round].slots[slot])
    net.check()
    net.wait_until(net.settled[round].ends["window"])
    finish(net)
    assert net.status is JobStatus.EXPIRED


def test_what_the_law_claims_is_what_the_contract_reads(chain: Chain) -> None:
    changes = {"rounds": 3, "f": 0, "min_providers": 2, "program": PROGRAM.root}
    long = {"audit_seconds": 1_000, "open_seconds": 1_000, "key_seconds": 1_000}
    script = started(chain, live_terms(expiry=chain.now + 100_000, **changes, **long))
    net = script.net
    assert isinstance(net, Live)
    net.state_of = lambda round, merged: MODEL.digest(round)
    for partial in ({}, {1: 6}):
        script.train(partial)
        script.say()
        script.settle()
    both = [(round, id) for round in (0, 1) for id in script.auditors(round)]
    for round, id in both:
        script.audit_report(round, id)
    net.wait_until(net.settled[1].ends["audit"])
    for round, id in both:
        script.open(round, id)
    net.wait_until(net.settled[1].ends["open"])
    for round in (0, 1):
        script.show_keys(round)
        for seat in map(SeatIndex, range(4)):
            compare_claims(
                net, SeatStatements.of(net.folded, RoundIndex(round), seat, MODEL, PROGRAM)
            )


def compare_claims(net: Live, said: SeatStatements) -> None:
    """The seat's own, and those of whoever called it valid."""
    auditors = [id for id, body in said.settled_round.opened_reports.items() if body.of(said.seat)]
    assert auditors
    for each in (said, *(replace(said, member=id) for id in auditors)):
        for segment, is_update_proof in ((0, False), (3, False), (said.segments - 1, True)):
            evidence = each.evidence(segment, is_update_proof=is_update_proof)
            (read,) = net.chain.call(net.chain.claims, "claim", evidence)
            assert from_abi(Claim, read) == each.claim(segment, is_update_proof=is_update_proof)


def test_the_law_and_the_contract_agree_on_claims_within_a_reset_period(chain: Chain) -> None:
    program = with_reset_periods(3)
    changes = {"rounds": 5, "f": 0, "min_providers": 2, "program": program.root}
    long = {"audit_seconds": 1_000, "open_seconds": 1_000, "key_seconds": 1_000}
    script = started(chain, live_terms(expiry=chain.now + 100_000, **changes, **long))
    net = script.net
    assert isinstance(net, Live)
    net.state_of = lambda round, merged: MODEL.digest(round)
    net.advance()
    net.leave_seat(PROVIDERS[3])
    settle_rounds(script, {})
    net.join(PROVIDERS[4], 3)  # counts from round 1 on, in which it does nothing
    settle_rounds(script, {1: 6}, {}, {})
    for round in range(4):
        for id in script.auditors(round):
            script.audit_report(round, id)
    net.wait_until(net.settled[3].ends["audit"])
    for round in range(4):
        for id in script.auditors(round):
            script.open(round, id)
    net.wait_until(net.settled[3].ends["open"])
    for round in range(4):
        script.show_keys(round)
    agreed: dict[tuple[int, int], set[int]] = {}
    for round, through_round in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (3, 3)):
        seats = net.folded.settled[round].reveals
        agreed[round, through_round] = {
            seat for seat in seats if fines_agree(net, program, round, through_round, seat)
        }
    # Seat 1 did less than round 1, and seat 3 changed hands behind round 0.
    assert agreed[0, 0] == agreed[3, 3] == agreed[2, 2] == {0, 1, 2, 3}
    assert (agreed[0, 1], agreed[0, 2]) == ({0, 1, 2}, {0, 2})
    assert (agreed[1, 1], agreed[1, 2]) == ({0, 1, 2}, {0, 2})


def settle_rounds(script: Script, *partial: dict[int, int]) -> None:
    for each in partial:
        script.train(each)
        script.say()
        script.settle()


def fines_agree(
    net: Live, program: ProgramHeader, round: int, through_round: int, seat: SeatIndex
) -> set[HolderId]:
    """Whose *valid* of a later round is one of this; the seat's own claim is compared, too."""
    said = SeatStatements.of(net.folded, RoundIndex(round), seat, MODEL, program)
    said = replace(said, through_round=RoundIndex(through_round))
    holder = net.folded.providers[said.told.holder]
    if not holder.counts_in(through_round):
        with pytest.raises(ProtocolError):
            said.claim(0)
        return set()
    compare_openings(net, said)
    auditors = {
        id for id, body in net.folded.settled[through_round].opened_reports.items() if body.of(seat)
    }
    assert auditors
    found = set()
    for id in auditors:
        with suppress(ProtocolError):
            compare_openings(net, replace(said, member=id))
            found.add(id)
    return found


def compare_openings(net: Live, said: SeatStatements) -> None:
    for segment in (0, 1):
        (read,) = net.chain.call(net.chain.claims, "claim", said.evidence(segment))
        assert from_abi(Claim, read) == said.claim(segment)


def test_what_a_committee_did_not_have_is_paid_by_late_votes_and_lost_by_a_leak(
    chain: Chain,
) -> None:
    script = started(chain, live_terms(expiry=chain.now + 100_000, audit_seconds=1_000))
    net = script.net
    assert isinstance(net, Live)
    script.train()
    script.say(has=0b0111)
    script.settle()
    told = net.folded.settled[0]
    everyone = sorted(numbers(electors(net.folded, told)))
    assert list(without_pay(net.folded, told, net.chain.now)) == [3]
    for slot in everyone[: len(everyone) // 2 + 1]:
        assert grantable(net.folded, net.folded.settled[0], net.chain.now) == []
        with pytest.raises(Refused):
            net.grant(0, 3)
        member = net.at(Role.VERIFIER, slot, 1)
        holder = net.folded.verifiers[HolderId(member.id)]
        assert lacks_vote(net.folded, net.folded.settled[0], holder, net.chain.now) == [3]
        net.late_vote(0, member.id, 0b1000)
    assert grantable(net.folded, net.folded.settled[0], net.chain.now) == [3]
    net.grant(0, 3)
    net.check()
    assert net.folded.settled[0].pay == 0b1111
    key = script.secrets[0, 3][0]
    (leaked,) = leaked_keys(net.folded.settled[0], net.chain.now, [key])
    with pytest.raises(Refused):
        net.leak(0, 3, key, script.account(3))
    net.leak(0, leaked.seat, leaked.key, WATCHER)
    net.check()
    assert net.folded.settled[0].pay == 0b0111
    with pytest.raises(Refused):
        net.grant(0, 3)
    with pytest.raises(Refused):
        net.settle_contest(0, 0, 3)
    net.wait_until(net.settled[0].ends["window"])
    net.burn(1)
    net.check()
    assert WATCHER not in net.folded.credits
    assert net.burnt == 8 * net.terms.segment_pay


def test_who_signs_two_verdicts_about_the_same_votes_loses_its_bond(chain: Chain) -> None:
    script = started(chain, live_terms(expiry=chain.now + 100_000))
    net = script.net
    assert isinstance(net, Live)
    script.train()
    script.say()
    script.settle()
    settled_round = net.folded.settled[0]
    slot = min(settled_round.slots)
    holder = settled_round.slots[slot]
    account = net.folded.verifiers[holder].account
    other = replace(settled_round.verdict, state=digest("another model"))
    message = certificate_hash(
        settled_round.round_id, settled_round.record.seed, settled_round.record.votes, other
    )
    both = tuple(
        certificate_bytes([account], {account: signature(account, one)})
        for one in (message, settled_round.digest)
    )
    addresses = dict.fromkeys(REQUIRED, chain.late_votes.address)
    calls = Calls(Deployment(net.domain.chain_id, 0, addresses))
    first = Certified(other, (account,), both[0])
    second = Certified(settled_round.verdict, (account,), both[1])
    same = calls.about(settled_round).equivocated(holder, (second, second))
    shown = calls.about(settled_round).equivocated(holder, (first, second))
    with pytest.raises(Reverted):
        chain.transact({"from": WATCHER, "to": same.to, "data": "0x" + same.data.hex()})
    chain.transact({"from": WATCHER, "to": shown.to, "data": "0x" + shown.data.hex()})
    (missed,) = [event for event in chain.said() if isinstance(event, Missed)]
    assert (missed.id, missed.kind, missed.penalty) == (
        holder,
        MissedDuty.EQUIVOCATED,
        net.terms.verifier_bond,
    )
