"""The verifier's machine: events in, commands out; each test breaks one thing of a valid job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias

import pytest
from tests.unit.law.factories import (
    ScriptedJob,
    address,
    cid,
    digest,
    make_manifest,
)

from atoll.law import events as ev
from atoll.law.duties import duties_of, merge_facts
from atoll.law.hashing import verdict_hash
from atoll.law.manifest import Manifest
from atoll.law.sampling import SeatDuty
from atoll.law.settlement import build_verdict
from atoll.law.views import SPARE_CHALLENGES, JobView
from atoll.law.words import (
    NO_SEGMENT,
    ZERO_DIGEST,
    Digest,
    Fault,
    Finding,
    Report,
    Role,
    SeatIndex,
    SegmentIndex,
    VerifierIndex,
    bits,
    to_bitmap,
)
from atoll.service.commands import Fact, key_of
from atoll.service.duties.material import DataReady, DoFetchData, DoFetchSpec, SpecReady
from atoll.service.duties.membership import SendJoin, SendLeave
from atoll.service.duties.opening import DoPrepareOpening, OpeningReady
from atoll.service.duties.upkeep import SendPoke
from atoll.service.machine import (
    AnyCommand,
    Cancel,
    Drain,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    Order,
    Setup,
    ViewChanged,
)
from atoll_verifier.audit import Audit
from atoll_verifier.behaviour import Ballot, VerifierBehaviour, VerifierState, Votes
from atoll_verifier.duties.attest import SendAttest, SignVerdict
from atoll_verifier.duties.ballot import BallotSigned, SendBallot, SignBallot
from atoll_verifier.duties.challenge import SendChallenge, SendWithdraw
from atoll_verifier.duties.check import DoCheck, SeatChecked
from atoll_verifier.duties.evaluate import DoEvaluate, Evaluated
from atoll_verifier.duties.merge import DoMerge, RoundMerged
from atoll_verifier.duties.note import DoNote, OutOfReach
from atoll_verifier.duties.ready import SendReady
from atoll_verifier.duties.replay import DoLink, DoReplay, LinkChecked, SegmentReplayed
from atoll_verifier.duties.score import DoScore, RevealedUpdate, RoundScored
from atoll_verifier.duties.settle import SendSettle
from atoll_verifier.duties.signing import Signing
from atoll_verifier.duties.take import BlockTaken, DoTake
from atoll_verifier.duties.vote import SendVote, SignVote, VoteSigned
from atoll_verifier.machine import step
from atoll_verifier.seatwork import about_seat

MANIFEST = make_manifest()
ME, INDEX = address("verifier 0"), VerifierIndex(0)
BLOCK = b"a block that nobody serves"
MISSING = Digest(sha256(BLOCK).digest())
URL = "http://127.0.0.1:4101"
Left: TypeAlias = tuple[str, Fact]
"""What a command left, under its key."""
DATA: Left = (key_of(DoFetchData), DataReady(cid("data"), ZERO_DIGEST))
OPENING: Left = (
    key_of(DoPrepareOpening, 0, None),
    OpeningReady(cid("opening"), digest("initial"), digest("params"), digest("moments")),
)


def auditing(
    manifest: Manifest = MANIFEST, seats: Iterable[int] | None = None, blocks: int = 0
) -> ScriptedJob:
    """A job whose first audit has started, so many blocks later; our gateway is announced."""
    job = ScriptedJob(manifest)
    job.number += blocks
    job.emit(ev.GatewayAnnounced(ME, URL))
    job.open()
    job.until_audit(seats)
    return job


def verifier(
    job: ScriptedJob, *left: Left, behaviour: VerifierBehaviour | None = None
) -> VerifierState:
    """A verifier that has manifest, data, opening state and what else was left."""
    return fresh_verifier(job, DATA, OPENING, *left, behaviour=behaviour)


def fresh_verifier(
    job: ScriptedJob, *left: Left, behaviour: VerifierBehaviour | None = None
) -> VerifierState:
    setup = Setup(URL, behaviour or VerifierBehaviour())
    state = VerifierState(ME, setup, job.view, Head(job.number, job.now), job.number)
    spec = SpecReady(job.manifest.to_bytes())
    for key, fact in ((key_of(DoFetchSpec), spec), *left):
        state = replace(state, facts=state.facts.plus(key, fact))
    return state


def given(state: VerifierState, job: ScriptedJob) -> tuple[VerifierState, list[Order]]:
    """What the machine starts when it sees the job as it is now."""
    state, first = step(state, ViewChanged(job.view, job.number))
    state, then = step(state, HeadAdvanced(Head(job.number, job.now)))
    return state, [*first, *then]


@pytest.mark.parametrize("method", ["diloco", "muloco"])
def test_a_seat_opens_with_what_everybody_has_unless_it_may_bring_its_own(method: str) -> None:
    """Its reveal's word is that of a reset: zero."""
    manifest = make_manifest({"method.name": method})
    job = auditing(manifest)
    audit = Audit.of(given(verifier(job), job)[0])
    assert audit is not None
    assert audit.work(SeatIndex(0)).optimiser_root == digest("moments")  # round 0 is public
    job = ScriptedJob(manifest)
    job.honest_round()
    job.open()
    job.until_audit(None)
    verdict = job.view.settled[0].verdict.merged_digest
    later = key_of(DoPrepareOpening, 1, verdict), OPENING[1]
    audit = Audit.of(given(verifier(job, later), job)[0])
    assert audit is not None
    own = job.view.opening_optimiser_root(SeatIndex(0))
    expected = digest("moments") if method == "diloco" else own
    assert audit.work(SeatIndex(0)).optimiser_root == expected


class Looker:
    """Finishes what a verifier starts, with the results that `wrong` says, until it waits.

    `wrong` holds keys' prefixes; whatever starts with one of them is found to be at fault, and
    whatever starts with one of `absent` is not found at all. With an `excess` replays at fault lie
    that far away instead. `has_blocks` says whether what is taken from the chain was here already.
    """

    def __init__(
        self,
        wrong: Iterable[str] = (),
        absent: Iterable[str] = (),
        excess: float = 0.0,
        has_blocks: bool = False,
    ) -> None:
        self.wrong, self.absent = tuple(wrong), tuple(absent)
        self.excess, self.has_blocks = excess, has_blocks
        self.done: list[AnyCommand] = []

    def run(self, state: VerifierState, commands: list[Order]) -> VerifierState:
        """The state once no work is left; transactions stay in flight."""
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            if isinstance(command, Cancel):
                continue
            self.done.append(command)
            if command.key.startswith(self.absent) and self.absent:
                failed = Failed(command.key, "nobody", not_found=True, missing=MISSING)
                state, more = step(state, failed)
                queue += more
                continue
            fact = self._result(command)
            if fact is not None:
                state, more = step(state, Finished(command.key, fact))
                queue += more
        return state

    def of(self, kind: type) -> list[AnyCommand]:
        return [command for command in self.done if isinstance(command, kind)]

    def _result(self, command: AnyCommand) -> Fact | None:
        fault = "wrong" if self.wrong and command.key.startswith(self.wrong) else ""
        match command:
            case DoCheck():
                return SeatChecked(fault)
            case DoReplay(work):
                differs = "" if self.excess else fault
                excess, at = self.excess if fault else 0.0, digest(command.key)
                return SegmentReplayed(work.account, differs, at, at, 5, 0.1, excess)
            case DoLink():
                return LinkChecked(fault)
            case DoScore():
                return RoundScored(())
            case DoMerge():
                return RoundMerged(cid("merged"), digest("merged"))
            case DoTake():
                return BlockTaken(self.has_blocks)
            case Signing():
                said: Fact = command.said
                return said
            case DoNote():
                return OutOfReach()
            case DoEvaluate():
                return Evaluated(bytes(8))
        return None


def looked(
    job: ScriptedJob,
    looker: Looker,
    *left: Left,
    behaviour: VerifierBehaviour | None = None,
) -> VerifierState:
    state, commands = given(verifier(job, *left, behaviour=behaviour), job)
    return looker.run(state, commands)


def duties(job: ScriptedJob, index: int = INDEX) -> dict[SeatIndex, SeatDuty]:
    return duties_of(job.view, job.manifest, VerifierIndex(index))


def my_seat(job: ScriptedJob) -> SeatIndex:
    """A seat that we are assigned to."""
    return next(iter(duties(job)))


def about(job: ScriptedJob, seat: SeatIndex) -> tuple[object, ...]:
    """What names a seat's work."""
    return about_seat(job.view.train_slot, seat, job.view.reveals[seat].reveal)


def sent(state: VerifierState, kind: type) -> list[AnyCommand]:
    return [command for command in state.in_flight.values() if isinstance(command, kind)]


def ballot_in(state: VerifierState) -> BallotSigned:
    (command,) = sent(state, SendBallot)
    assert isinstance(command, SendBallot)
    return command.ballot


def vote_in(state: VerifierState) -> VoteSigned:
    (command,) = sent(state, SendVote)
    assert isinstance(command, SendVote)
    return command.vote


# --- before the rounds ---


def test_a_verifier_joins_with_a_bond_for_reports_and_then_says_it_is_ready() -> None:
    job = ScriptedJob(MANIFEST, verifiers=0)
    job.emit(ev.GatewayAnnounced(ME, URL))
    terms = MANIFEST.terms
    state, commands = given(verifier(job), job)
    stake = terms.verifier_bond + (2 * terms.seats + SPARE_CHALLENGES) * terms.report_bond
    assert commands == [SendJoin(Role.VERIFIER, stake)]
    job.emit(ev.VerifierJoined(job.view.job_id, INDEX, ME, terms.verifier_bond))
    _, commands = given(state, job)
    assert commands == [SendReady(INDEX)]


def test_the_data_comes_before_the_bond() -> None:
    job = ScriptedJob(MANIFEST, verifiers=0)
    _, commands = given(fresh_verifier(job, OPENING), job)
    assert SendJoin not in [type(c) for c in commands]


def test_draining_gives_the_place_up() -> None:
    job = ScriptedJob(MANIFEST)
    job.emit(ev.GatewayAnnounced(ME, URL))
    state, _ = given(verifier(job), job)
    _, commands = step(state, Drain())
    assert commands == [SendLeave(Role.VERIFIER)]


# --- the report phase ---


def test_an_honest_audit_ends_in_a_ballot_of_every_duty() -> None:
    job, looker = auditing(), Looker()
    state = looked(job, looker)
    ballot = ballot_in(state)
    expected = {seat: to_bitmap(duty.segments) for seat, duty in duties(job).items()}
    assert {f.seat: f.segments for f in ballot.findings} == expected
    assert ballot.reports == ()
    assert ballot.replay_root != ZERO_DIGEST
    assert len(looker.of(DoCheck)) == 4
    assert len(looker.of(DoScore)) == 1
    assert len(looker.of(DoLink)) == sum(duty.link for duty in duties(job).values())


def test_looking_begins_when_something_is_revealed() -> None:
    job = ScriptedJob(MANIFEST)
    job.open()
    job.train()
    for seat in range(4):
        job.commit(seat)
    job.start_reveal()
    job.reveal(1)
    _, commands = given(verifier(job), job)
    assert [c.work.seat for c in commands if isinstance(c, DoCheck)] == [1]


def test_a_segment_that_replays_to_another_state_is_reported() -> None:
    job = auditing()
    seat = my_seat(job)
    segment = min(duties(job)[seat].segments)
    looker = Looker(wrong=[f"DoReplay:0:0:{seat}:"])
    ballot = ballot_in(looked(job, looker))
    (report,) = ballot.reports
    assert (report.seat, report.segment, report.fault) == (seat, segment, Fault.WRONG_REPLAY)
    assert seat not in [finding.seat for finding in ballot.findings]
    replays = [c for c in looker.of(DoReplay) if isinstance(c, DoReplay)]
    assert [c.segment for c in replays if c.work.seat == seat] == [segment]


def test_malformed_work_is_reported_by_whoever_sees_it() -> None:
    job = auditing()
    others = [s for s in range(4) if s not in duties(job)]
    seat = others[0] if others else 3
    ballot = ballot_in(looked(job, Looker(wrong=[f"DoCheck:0:0:{seat}:"])))
    (report,) = ballot.reports
    assert (report.seat, report.segment, report.fault) == (seat, NO_SEGMENT, Fault.MALFORMED)


def test_a_broken_link_is_reported() -> None:
    job = auditing()
    seat = next(s for s, duty in duties(job).items() if duty.link)
    ballot = ballot_in(looked(job, Looker(wrong=[f"DoLink:0:0:{seat}:"])))
    (report,) = ballot.reports
    assert (report.seat, report.fault) == (seat, Fault.WRONG_LINK)


def at(state: VerifierState, job: ScriptedJob, share: float, looker: Looker) -> VerifierState:
    """The state when this share of the report window is over, and what it started is done."""
    window = MANIFEST.terms.report_seconds
    job.now = job.view.state.deadline - window + int(window * share)
    state, commands = given(state, job)
    return looker.run(state, commands)


@pytest.mark.parametrize("part", ["Check", "Replay", "Link"])
def test_missing_data_is_asked_for_again_and_then_challenged(part: str) -> None:
    job = auditing()
    seat = next(s for s, duty in duties(job).items() if duty.link)
    looker = Looker(absent=[f"Do{part}:0:0:{seat}:"])
    state = at(looked(job, looker), job, 0.2, looker)
    assert not sent(state, SendChallenge)
    state = at(state, job, 0.3, looker)
    (challenge,) = sent(state, SendChallenge)
    assert isinstance(challenge, SendChallenge)
    report = challenge.report
    assert (report.seat, report.fault, report.evidence) == (seat, Fault.WITHHELD, MISSING)
    assert (report.segment == NO_SEGMENT) == (part == "Check")
    assert not sent(state, SendBallot)
    ballot = ballot_in(at(state, job, 0.8, looker))
    assert ballot.reports == ()


def test_nothing_is_challenged_when_too_little_time_is_left_to_answer() -> None:
    job = auditing()
    looker = Looker(absent=[f"DoCheck:0:0:{my_seat(job)}:"])
    state = looked(job, looker)
    assert not sent(at(state, job, 0.75, looker), SendChallenge)


def test_a_challenge_is_raised_once_and_taken_back_when_the_block_is_served() -> None:
    job = auditing()
    seat = my_seat(job)
    looker = Looker(absent=[f"DoCheck:0:0:{seat}:"])
    index = job.challenge(INDEX, seat, BLOCK, NO_SEGMENT)
    state = at(looked(job, looker), job, 0.3, looker)
    assert not sent(state, SendChallenge)
    assert not sent(state, SendWithdraw)
    (withdrawal,) = sent(at(state, job, 0.5, Looker()), SendWithdraw)
    assert isinstance(withdrawal, SendWithdraw)
    assert withdrawal.index == index


def test_a_block_that_someone_else_challenges_is_challenged_too() -> None:
    job = auditing()
    seat = my_seat(job)
    job.challenge(1, seat, BLOCK, NO_SEGMENT)
    looker = Looker(absent=[f"DoCheck:0:0:{seat}:"])
    assert sent(at(looked(job, looker), job, 0.3, looker), SendChallenge)


def test_an_answer_is_taken_from_the_chain_and_the_audit_goes_on() -> None:
    job = auditing()
    seat = my_seat(job)
    absent = Looker(absent=[f"DoCheck:0:0:{seat}:"])
    index = job.challenge(INDEX, seat, BLOCK, NO_SEGMENT)
    state = at(looked(job, absent), job, 0.5, absent)
    job.answer(index, BLOCK)
    state, commands = given(state, job)
    (take,) = commands
    assert isinstance(take, DoTake)
    assert (take.digest, take.block) == (MISSING, BLOCK)
    state = Looker().run(state, commands)  # no second passes: what was missing is tried at once
    assert sent(state, SendBallot)
    assert not sent(state, SendWithdraw)


def test_the_next_missing_block_is_another_challenge() -> None:
    job = auditing()
    seat = my_seat(job)
    job.answer(job.challenge(INDEX, seat, b"the first", NO_SEGMENT), b"the first")
    looker = Looker(absent=[f"DoCheck:0:0:{seat}:"])
    (challenge,) = sent(at(looked(job, looker), job, 0.5, looker), SendChallenge)
    assert isinstance(challenge, SendChallenge)
    assert challenge.report.evidence == MISSING


def test_no_more_is_challenged_than_the_contract_takes() -> None:
    job = auditing()
    seat = my_seat(job)
    for i in range(MANIFEST.terms.seats + SPARE_CHALLENGES):
        job.challenge(INDEX, seat, bytes([i]), NO_SEGMENT)
    looker = Looker(absent=[f"DoCheck:0:0:{seat}:"])
    assert not sent(at(looked(job, looker), job, 0.5, looker), SendChallenge)


def test_what_others_challenge_is_looked_at_once_our_own_work_is_done() -> None:
    drawn = (auditing(blocks=blocks) for blocks in range(100))
    job, theirs = next((j, s) for j in drawn for s in j.view.reveals if s not in duties(j))
    job.challenge(1, theirs, BLOCK, segment=1)
    looker = Looker()
    state = looked(job, looker)
    keys = [command.key for command in looker.of(DoReplay)]
    assert key_of(DoReplay, *about(job, theirs), 1) in keys
    assert not sent(state, SendChallenge)


def test_data_that_comes_late_is_not_reported() -> None:
    job = auditing()
    seat = my_seat(job)
    state = looked(job, Looker(absent=[f"DoCheck:0:0:{seat}:"]))
    job.now += 10
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    state = Looker().run(state, commands)
    ballot = ballot_in(state)
    assert ballot.reports == ()


def test_a_slow_verifier_ballots_what_it_has_and_accuses_nobody() -> None:
    job = auditing()
    state, _ = given(verifier(job), job)
    job.now = job.view.state.deadline - MANIFEST.terms.report_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    (sign,) = [c for c in commands if isinstance(c, SignBallot)]
    assert (sign.said.findings, sign.said.reports) == ((), ())


def test_a_signed_ballot_is_sent_again_after_a_restart_whatever_is_known_now() -> None:
    job = auditing()
    looker, seat = Looker(), my_seat(job)
    looked(job, looker)
    (sign,) = looker.of(SignBallot)
    assert isinstance(sign, SignBallot)
    key, signed = sign.key, sign.said
    state = looked(job, Looker(wrong=[f"DoReplay:0:0:{seat}:"]), (key, signed))
    ballot = ballot_in(state)
    assert (ballot.findings, ballot.reports) == (signed.findings, signed.reports)


def test_who_stands_out_is_replayed_whole() -> None:
    job = auditing()
    state, commands = given(verifier(job), job)
    seat = my_seat(job)

    class Outlier(Looker):
        def _result(self, command: AnyCommand) -> Fact | None:
            if isinstance(command, DoScore):
                return RoundScored((int(seat),))
            return super()._result(command)

    state = Outlier().run(state, commands)
    ballot = ballot_in(state)
    whole = duties_of(job.view, MANIFEST, INDEX, [seat])[seat]
    found = {f.seat: f.segments for f in ballot.findings}
    assert found[seat] == to_bitmap(whole.segments)
    assert len(whole.segments) > len(duties(job)[seat].segments)


def test_from_half_time_on_others_duties_are_taken_over_once() -> None:
    job, looker = auditing(make_manifest({"members.auditors": 1})), Looker()
    looked(job, looker)
    job.ballot(INDEX, duties(job))
    job.ballot(1, duties(job, 1))
    job.now = job.view.half_time - 1
    assert not sent(looked(job, Looker()), SendBallot)
    job.now = job.view.half_time
    theirs = duties(job, 2)
    state = looked(job, Looker())
    supplement = ballot_in(state)
    assert {f.seat for f in supplement.findings} <= set(theirs)
    job.ballot(INDEX, [f.seat for f in supplement.findings])
    assert not sent(looked(job, Looker()), SendBallot)


# --- the confirm phase ---


def confirming(fault: Fault = Fault.WRONG_REPLAY, segment: int = 2) -> tuple[ScriptedJob, int]:
    """A job in which verifier 1 reported seat 3."""
    job = auditing()
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    index = job.report(1, seat=3, fault=fault, segment=segment)
    job.confirm()
    return job, index


@pytest.mark.parametrize(
    ("fault", "segment", "wrong", "agrees"),
    [
        (Fault.WRONG_REPLAY, 2, "DoReplay:0:0:3:", True),
        (Fault.WRONG_REPLAY, 2, "", False),
        (Fault.WRONG_REPLAY, 99, "", False),
        (Fault.WRONG_LINK, NO_SEGMENT, "DoLink:0:0:3:", True),
        (Fault.WRONG_LINK, NO_SEGMENT, "", False),
        (Fault.MALFORMED, NO_SEGMENT, "DoCheck:0:0:3:", True),
        (Fault.MALFORMED, NO_SEGMENT, "", False),
        (Fault.WITHHELD, NO_SEGMENT, "", False),
        (Fault.WITHHELD, 2, "", False),
        (Fault.WITHHELD, 2, "DoReplay:0:0:3:", True),
        (Fault.WITHHELD, 7, "DoLink:0:0:3:", True),
        (Fault.WITHHELD, NO_SEGMENT, "DoCheck:0:0:3:", True),
        (Fault.WITHHELD, 7, "", False),
    ],
)
def test_a_vote_says_what_looking_again_showed(
    fault: Fault, segment: int, wrong: str, agrees: bool
) -> None:
    job, index = confirming(fault, segment)
    state = looked(job, Looker(wrong=[wrong] if wrong else []))
    vote = vote_in(state)
    assert (vote.agree, vote.disagree) == ((1 << index, 0) if agrees else (0, 1 << index))
    assert vote.cannot_fetch == 0


@pytest.mark.parametrize(
    ("fault", "segment", "part"),
    [
        (Fault.WITHHELD, NO_SEGMENT, "Check"),
        (Fault.WITHHELD, 2, "Replay"),
        (Fault.WITHHELD, 7, "Link"),
        (Fault.WRONG_REPLAY, 2, "Replay"),
    ],
)
def test_what_cannot_be_fetched_is_said_when_the_window_ends(
    fault: Fault, segment: int, part: str
) -> None:
    job, index = confirming(fault, segment)
    looker = Looker(absent=[f"Do{part}:0:0:3:"])
    state = looked(job, looker)
    assert not sent(state, SendVote)
    job.now = job.view.state.deadline - MANIFEST.terms.confirm_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    state = looker.run(state, commands)
    vote = vote_in(state)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == (0, 0, 1 << index)


@pytest.mark.parametrize("served_at", [0.7, 1.0])
def test_what_is_served_when_the_time_is_over_was_not_served(served_at: float) -> None:
    job = auditing()
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    index = job.challenge(1, 3, BLOCK, segment=2)
    absent = Looker(absent=["DoReplay:0:0:3:"])
    state = at(looked(job, absent), job, 0.6, absent)
    for share in (0.7, 0.9):
        state = at(state, job, share, Looker() if served_at <= share else absent)
    job.confirm()
    job.now += MANIFEST.terms.confirm_seconds * 2 // 3  # past the pause before the next try
    state, commands = given(state, job)
    vote = vote_in(Looker().run(state, commands))
    expected = (0, 1 << index, 0) if served_at < 0.8 else (0, 0, 1 << index)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == expected


def answered() -> tuple[ScriptedJob, int]:
    """A job in which our challenge of seat 3 was answered on the chain."""
    job = auditing()
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    index = job.challenge(INDEX, 3, BLOCK, segment=2)
    job.answer(index, BLOCK)
    job.confirm()
    return job, index


@pytest.mark.parametrize("has_blocks", [True, False])
def test_an_answered_challenge_was_false_if_the_block_was_here(has_blocks: bool) -> None:
    job, index = answered()
    vote = vote_in(looked(job, Looker(has_blocks=has_blocks)))
    expected = (0, 1 << index, 0) if has_blocks else (0, 0, 1 << index)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == expected


@pytest.mark.parametrize("wrong", [True, False])
def test_an_answer_saves_nobody_whose_segment_is_wrong_or_still_out_of_reach(wrong: bool) -> None:
    job, index = answered()
    segment = ["DoReplay:0:0:3:"]
    looker = Looker(wrong=segment) if wrong else Looker(absent=segment)
    state = looked(job, looker)
    job.now = job.view.state.deadline - MANIFEST.terms.confirm_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    vote = vote_in(looker.run(state, commands))
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == (1 << index, 0, 0)


def test_the_reporter_does_not_vote_on_its_own_report() -> None:
    job = auditing()
    job.report(INDEX, seat=3)
    job.confirm()
    assert not sent(looked(job, Looker()), SendVote)


def test_whoever_reported_one_segment_still_looks_at_another_of_the_seat() -> None:
    job = auditing()
    job.report(INDEX, seat=3, segment=1)
    other = job.report(1, seat=3, segment=2)
    job.confirm()
    seat, at = SeatIndex(3), digest("another state")
    checked = (key_of(DoCheck, *about(job, seat)), SeatChecked(""))
    replayed = SegmentReplayed(address("provider 3"), "differs", at, at, 5, 0.1)
    known = (key_of(DoReplay, *about(job, seat), 1), replayed)
    state = looked(job, Looker(wrong=["DoReplay:0:0:3:"]), checked, known)
    vote = vote_in(state)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == (1 << other, 0, 0)


def test_a_signed_vote_is_said_again() -> None:
    job, _ = confirming()
    looker = Looker()
    looked(job, looker)
    (sign,) = looker.of(SignVote)
    assert isinstance(sign, SignVote)
    vote = vote_in(looked(job, Looker(wrong=["DoReplay:0:0:3:"]), (sign.key, sign.said)))
    assert vote == sign.said


# --- the verdict ---


def attesting() -> ScriptedJob:
    job = auditing()
    for v in range(3):
        job.ballot(v, bits(job.view.state.audit_set))
    job.resolve()
    return job


def test_the_verdict_follows_from_the_evidence_and_the_merge() -> None:
    job = attesting()
    job.mine()
    looker = Looker()
    state = looked(job, looker)
    (merge,) = looker.of(DoMerge)
    assert isinstance(merge, DoMerge)
    assert [update.seat for update in merge.updates] == [0, 1, 2, 3]
    assert merge.facts == merge_facts(job.view)
    verdict = build_verdict(job.view, MANIFEST, digest("merged"), cid("merged"))
    (attest,) = sent(state, SendAttest)
    assert isinstance(attest, SendAttest)
    assert attest.verdict_hash == verdict_hash(job.view.slot, verdict)


def test_nothing_is_attested_before_the_cuts_block_has_a_hash() -> None:
    job = attesting()
    assert not sent(looked(job, Looker()), SendAttest)


def test_a_quorum_for_our_verdict_is_settled_by_the_first_in_line() -> None:
    job = attesting()
    job.attest([0])
    assert not sent(looked(job, Looker()), SendSettle)
    job = attesting()
    job.attest()
    (settle,) = sent(looked(job, Looker()), SendSettle)
    assert isinstance(settle, SendSettle)
    assert settle.verdict.merged_digest == digest("merged")


def test_a_verdict_that_is_not_ours_is_not_settled() -> None:
    job = attesting()
    job.attest()

    class Other(Looker):
        def _result(self, command: AnyCommand) -> Fact | None:
            if isinstance(command, DoMerge):
                return RoundMerged(cid("other"), digest("other"))
            return super()._result(command)

    state, commands = given(verifier(job), job)
    assert not sent(Other().run(state, commands), SendSettle)


def test_the_signed_verdict_of_a_cut_is_kept() -> None:
    job = attesting()
    job.mine()
    looker = Looker()
    looked(job, looker)
    (sign,) = looker.of(SignVerdict)
    assert isinstance(sign, SignVerdict)
    state = looked(job, Looker(), (sign.key, sign.said))
    (attest,) = sent(state, SendAttest)
    assert isinstance(attest, SendAttest)
    assert attest.verdict_hash == sign.said.verdict_hash == sign.content


def test_the_merge_needs_nothing_of_a_caught_seat() -> None:
    job = auditing()
    index = job.report(1, seat=3)
    job.second(2, index)
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    job.resolve()
    job.mine()
    looker = Looker()
    looked(job, looker)
    (merge,) = looker.of(DoMerge)
    assert isinstance(merge, DoMerge)
    assert [update.seat for update in merge.updates] == [0, 1, 2]
    assert merge.facts.caught == 1


def test_a_round_needs_the_model_it_starts_from() -> None:
    job = auditing()
    _, commands = given(fresh_verifier(job, DATA), job)
    assert commands == [DoPrepareOpening(0, MANIFEST.to_bytes(), None, None)]


# --- departures ---


class Stamps(VerifierBehaviour):
    def skips_replays(self, view: JobView) -> bool:
        return True


class Absent(VerifierBehaviour):
    def is_offline(self, view: JobView) -> bool:
        return True


class Accuses(VerifierBehaviour):
    def ballot_override(self, view: JobView, ballot: Ballot) -> Ballot:
        made_up = Report(SeatIndex(0), SegmentIndex(0), Fault.WRONG_REPLAY, digest("lie"))
        return Ballot(ballot.findings, (made_up,))

    def vote_override(self, view: JobView, votes: Votes) -> Votes:
        return Votes(votes.disagree, votes.agree, votes.cannot_fetch)


def test_a_rubber_stamp_claims_every_duty_without_looking() -> None:
    job, looker = auditing(), Looker()
    ballot = ballot_in(looked(job, looker, behaviour=Stamps()))
    expected = tuple(Finding(s, to_bitmap(d.segments)) for s, d in duties(job).items())
    assert ballot.findings == expected
    assert not looker.of(DoReplay) and not looker.of(DoCheck)
    assert ballot.replay_root == ZERO_DIGEST


def test_a_rubber_stamp_votes_that_nothing_is_wrong() -> None:
    job, index = confirming()
    vote = vote_in(looked(job, Looker(), behaviour=Stamps()))
    assert vote.disagree == 1 << index


def test_an_offline_verifier_does_nothing_in_a_round() -> None:
    job = auditing()
    job.now = job.view.state.deadline + 100
    _, commands = given(verifier(job, behaviour=Absent()), job)
    assert commands == []
    assert SendPoke in [type(c) for c in given(verifier(job), job)[1]]


def test_overrides_replace_what_is_said() -> None:
    job = auditing()
    ballot = ballot_in(looked(job, Looker(), behaviour=Accuses()))
    assert [report.evidence for report in ballot.reports] == [digest("lie")]
    job, index = confirming()
    vote = vote_in(looked(job, Looker(), behaviour=Accuses()))
    assert (vote.agree, vote.disagree) == (1 << index, 0)


@pytest.mark.parametrize("kind", [DoScore, DoMerge])
@pytest.mark.parametrize("field", ["opening", "data_seed"])
def test_updates_are_looked_at_anew_where_a_reorg_changed_what_they_are_read_with(
    kind: type[DoScore] | type[DoMerge], field: str
) -> None:
    """Dither and grid follow from seed and model: the same bytes are other integers then."""
    view = attesting().view
    facts = merge_facts(view)
    update = RevealedUpdate(0, cid("update"), digest("root"))
    one = kind(view.train_slot, b"manifest", cid("opening"), facts, digest("seed"), (update,))
    other = replace(one, **{field: digest("another")})  # type: ignore[arg-type]
    assert one.about != other.about


def _evaluated(state: VerifierState, job: ScriptedJob) -> list[int]:
    """Rounds merged into the model that the machine wants to evaluate."""
    _, orders = given(state, job)
    return [order.merged for order in orders if isinstance(order, DoEvaluate)]


def _settled_job(eval_batches: int = 2) -> ScriptedJob:
    changes = {"eval_cid": cid("held out"), "eval_tokens": 100, "eval_batches": eval_batches}
    data = MANIFEST.data.model_copy(update=changes)
    job = ScriptedJob(MANIFEST.model_copy(update={"data": data}))
    job.emit(ev.GatewayAnnounced(ME, URL))
    job.honest_round()
    return job


def test_models_are_evaluated_one_at_a_time_the_newest_first() -> None:
    job = _settled_job()
    state = verifier(job)
    assert _evaluated(state, job) == [1]
    state, _ = given(state, job)
    key = key_of(DoEvaluate, 1, digest("merged"))
    state, orders = step(state, Finished(key, Evaluated(bytes(8))))
    assert [order.merged for order in orders if isinstance(order, DoEvaluate)] == [0]
    key = key_of(DoEvaluate, 0, digest("initial"))
    state, orders = step(state, Finished(key, Evaluated(bytes(8))))
    assert [order for order in orders if isinstance(order, DoEvaluate)] == []


def test_a_model_that_nobody_serves_is_left_for_the_one_before() -> None:
    job = _settled_job()
    state, _ = given(verifier(job), job)
    state, orders = step(
        state, Failed(key_of(DoEvaluate, 1, digest("merged")), "gone", not_found=True)
    )
    assert [order.merged for order in orders if isinstance(order, DoEvaluate)] == [0]


def test_there_is_nothing_to_evaluate_without_a_set() -> None:
    job = _settled_job(eval_batches=0)
    assert _evaluated(verifier(job), job) == []


def test_who_is_no_verifier_of_the_job_evaluates_nothing() -> None:
    job = _settled_job()
    assert _evaluated(replace(verifier(job), me=address("stranger")), job) == []
