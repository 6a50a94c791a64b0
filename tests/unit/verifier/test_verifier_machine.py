"""The verifier's machine: events in, commands out; each test breaks one thing of a valid job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

import pytest
from tests.unit.law.factories import (
    ScriptedJob,
    address,
    cid,
    digest,
    make_manifest,
)

from atoll.job.presets import Members
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
from atoll.service.commands import DoPrepareOpening, SendJoin, SendPoke
from atoll.service.facts import DataReady, OpeningReady, SpecReady
from atoll.service.journal import Fact
from atoll.service.machine import (
    Command,
    Drain,
    Failed,
    Finished,
    Head,
    HeadAdvanced,
    ViewChanged,
)
from atoll_verifier.audit import VerifierSetup, VerifierState
from atoll_verifier.behaviour import Ballot, VerifierBehaviour, Votes
from atoll_verifier.commands import (
    DoCheck,
    DoLink,
    DoMerge,
    DoNote,
    DoReplay,
    DoScore,
    DoSign,
    DoTake,
    SendAttest,
    SendBallot,
    SendChallenge,
    SendReady,
    SendSettle,
    SendVote,
    SendWithdraw,
)
from atoll_verifier.facts import (
    BallotSigned,
    BlockTaken,
    LinkChecked,
    RoundMerged,
    RoundScored,
    SeatChecked,
    SegmentReplayed,
    VerdictSigned,
    VoteSigned,
    seat_work,
)
from atoll_verifier.machine import step

MANIFEST = make_manifest()
ME, INDEX = address("verifier 0"), VerifierIndex(0)
BLOCK = b"a block that nobody serves"
MISSING = Digest(sha256(BLOCK).digest())
URL = "http://127.0.0.1:4101"
MATERIAL = (
    SpecReady(MANIFEST.to_bytes()),
    DataReady(cid("data")),
    OpeningReady(0, digest("initial"), cid("opening"), digest("params")),
)


def auditing(manifest: Manifest = MANIFEST, seats: Iterable[int] | None = None) -> ScriptedJob:
    """A job whose first audit has started; our gateway is announced."""
    job = ScriptedJob(manifest)
    job.emit(ev.GatewayAnnounced(ME, URL))
    job.open()
    job.until_audit(seats)
    return job


def verifier(
    job: ScriptedJob, *facts: Fact, behaviour: VerifierBehaviour | None = None
) -> VerifierState:
    """A verifier that has manifest, data, opening state and `facts`."""
    setup = VerifierSetup(URL, behaviour=behaviour or VerifierBehaviour())
    state = VerifierState(ME, setup, job.view, Head(job.number, job.now), job.number)
    spec = SpecReady(job.manifest.to_bytes())
    return replace(state, facts=state.facts.plus(*MATERIAL, spec, *facts))


def given(state: VerifierState, job: ScriptedJob) -> tuple[VerifierState, list[Command]]:
    """What the machine starts when it sees the job as it is now."""
    state, first = step(state, ViewChanged(job.view, job.number))
    state, then = step(state, HeadAdvanced(Head(job.number, job.now)))
    return state, [*first, *then]


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
        self.done: list[Command] = []

    def run(self, state: VerifierState, commands: list[Command]) -> VerifierState:
        """The state once no work is left; transactions stay in flight."""
        queue = list(commands)
        while queue:
            command = queue.pop(0)
            self.done.append(command)
            if command.key.startswith(self.absent) and self.absent:
                failed = Failed(command.key, "nobody", not_found=True, missing=MISSING)
                state, more = step(state, failed)
                queue += more
                continue
            fact = self._result(command)
            if fact is not None:
                state, more = step(state, Finished(command.key, (fact,)))
                queue += more
        return state

    def of(self, kind: type) -> list[Command]:
        return [command for command in self.done if isinstance(command, kind)]

    def _result(self, command: Command) -> Fact | None:
        fault = "wrong" if self.wrong and command.key.startswith(self.wrong) else ""
        match command:
            case DoCheck(work):
                return SeatChecked(work.what, fault)
            case DoReplay(work, segment):
                at = digest(command.key)
                return SegmentReplayed(
                    work.what, segment, "" if self.excess else fault, at, at, 5, 0.1,
                    self.excess if fault else 0.0,
                )  # fmt: skip
            case DoLink(work):
                return LinkChecked(work.what, fault)
            case DoScore():
                return RoundScored(command.what, ())
            case DoMerge():
                return RoundMerged(command.what, cid("merged"), digest("merged"))
            case DoTake(missing):
                return BlockTaken(missing, self.has_blocks)
            case DoSign(signed):
                return signed
            case DoNote(noted):
                return noted
        return None


def looked(
    job: ScriptedJob,
    looker: Looker,
    *facts: Fact,
    behaviour: VerifierBehaviour | None = None,
) -> VerifierState:
    state, commands = given(verifier(job, *facts, behaviour=behaviour), job)
    return looker.run(state, commands)


def duties(job: ScriptedJob, index: int = INDEX) -> dict[SeatIndex, SeatDuty]:
    return duties_of(job.view, job.manifest, VerifierIndex(index))


def my_seat(job: ScriptedJob) -> SeatIndex:
    """A seat that we are assigned to."""
    return next(iter(duties(job)))


def job_name(job: ScriptedJob, seat: SeatIndex) -> str:
    """What the journal calls a seat's work."""
    return seat_work(job.view.train_slot, seat, job.view.reveals[seat])


def sent(state: VerifierState, kind: type) -> list[Command]:
    return [command for command in state.in_flight.values() if isinstance(command, kind)]


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
    state = verifier(job)
    state = replace(state, facts=state.facts.minus(frozenset({"data"})))
    _, commands = given(state, job)
    assert SendJoin not in [type(c) for c in commands]


def test_draining_gives_the_place_up() -> None:
    job = ScriptedJob(MANIFEST)
    job.emit(ev.GatewayAnnounced(ME, URL))
    state, _ = given(verifier(job), job)
    _, commands = step(state, Drain())
    assert [c.key for c in commands] == ["leave:verifier"]


# --- the report phase ---


def test_an_honest_audit_ends_in_a_ballot_of_every_duty() -> None:
    job, looker = auditing(), Looker()
    state = looked(job, looker)
    (ballot,) = sent(state, SendBallot)
    assert isinstance(ballot, SendBallot)
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
    looker = Looker(wrong=[f"replay:0:0:{seat}:"])
    (ballot,) = sent(looked(job, looker), SendBallot)
    assert isinstance(ballot, SendBallot)
    (report,) = ballot.reports
    assert (report.seat, report.segment, report.fault) == (seat, segment, Fault.WRONG_REPLAY)
    assert seat not in [finding.seat for finding in ballot.findings]
    replays = [c for c in looker.of(DoReplay) if isinstance(c, DoReplay)]
    assert [c.segment for c in replays if c.work.seat == seat] == [segment]


def test_malformed_work_is_reported_by_whoever_sees_it() -> None:
    job = auditing()
    others = [s for s in range(4) if s not in duties(job)]
    seat = others[0] if others else 3
    (ballot,) = sent(looked(job, Looker(wrong=[f"check:0:0:{seat}:"])), SendBallot)
    assert isinstance(ballot, SendBallot)
    (report,) = ballot.reports
    assert (report.seat, report.segment, report.fault) == (seat, NO_SEGMENT, Fault.MALFORMED)


def test_a_broken_link_is_reported() -> None:
    job = auditing()
    seat = next(s for s, duty in duties(job).items() if duty.link)
    (ballot,) = sent(looked(job, Looker(wrong=[f"link:0:0:{seat}:"])), SendBallot)
    assert isinstance(ballot, SendBallot)
    (report,) = ballot.reports
    assert (report.seat, report.fault) == (seat, Fault.WRONG_LINK)


def at(state: VerifierState, job: ScriptedJob, share: float, looker: Looker) -> VerifierState:
    """The state when this share of the report window is over, and what it started is done."""
    window = MANIFEST.terms.report_seconds
    job.now = job.view.state.deadline - window + int(window * share)
    state, commands = given(state, job)
    return looker.run(state, commands)


@pytest.mark.parametrize("part", ["check", "replay", "link"])
def test_missing_data_is_asked_for_again_and_then_challenged(part: str) -> None:
    job = auditing()
    seat = next(s for s, duty in duties(job).items() if duty.link)
    looker = Looker(absent=[f"{part}:0:0:{seat}:"])
    state = at(looked(job, looker), job, 0.2, looker)
    assert not sent(state, SendChallenge)
    state = at(state, job, 0.3, looker)
    (challenge,) = sent(state, SendChallenge)
    assert isinstance(challenge, SendChallenge)
    report = challenge.report
    assert (report.seat, report.fault, report.evidence) == (seat, Fault.WITHHELD, MISSING)
    assert (report.segment == NO_SEGMENT) == (part == "check")
    assert not sent(state, SendBallot)
    (ballot,) = sent(at(state, job, 0.8, looker), SendBallot)
    assert isinstance(ballot, SendBallot)
    assert ballot.reports == ()


def test_nothing_is_challenged_when_too_little_time_is_left_to_answer() -> None:
    job = auditing()
    looker = Looker(absent=[f"check:0:0:{my_seat(job)}:"])
    state = looked(job, looker)
    assert not sent(at(state, job, 0.75, looker), SendChallenge)


def test_a_challenge_is_raised_once_and_taken_back_when_the_block_is_served() -> None:
    job = auditing()
    seat = my_seat(job)
    looker = Looker(absent=[f"check:0:0:{seat}:"])
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
    looker = Looker(absent=[f"check:0:0:{seat}:"])
    assert sent(at(looked(job, looker), job, 0.3, looker), SendChallenge)


def test_an_answer_is_taken_from_the_chain_and_the_audit_goes_on() -> None:
    job = auditing()
    seat = my_seat(job)
    absent = Looker(absent=[f"check:0:0:{seat}:"])
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
    looker = Looker(absent=[f"check:0:0:{seat}:"])
    (challenge,) = sent(at(looked(job, looker), job, 0.5, looker), SendChallenge)
    assert isinstance(challenge, SendChallenge)
    assert challenge.report.evidence == MISSING


def test_no_more_is_challenged_than_the_contract_takes() -> None:
    job = auditing()
    seat = my_seat(job)
    for i in range(MANIFEST.terms.seats + SPARE_CHALLENGES):
        job.challenge(INDEX, seat, bytes([i]), NO_SEGMENT)
    looker = Looker(absent=[f"check:0:0:{seat}:"])
    assert not sent(at(looked(job, looker), job, 0.5, looker), SendChallenge)


def test_what_others_challenge_is_looked_at_once_our_own_work_is_done() -> None:
    job = auditing()
    theirs = next(SeatIndex(s) for s in job.view.reveals if s not in duties(job))
    job.challenge(1, theirs, BLOCK, segment=1)
    looker = Looker()
    state = looked(job, looker)
    keys = [command.key for command in looker.of(DoReplay)]
    assert f"replay:{job_name(job, theirs)}:1" in keys
    assert not sent(state, SendChallenge)


def test_data_that_comes_late_is_not_reported() -> None:
    job = auditing()
    seat = my_seat(job)
    state = looked(job, Looker(absent=[f"check:0:0:{seat}:"]))
    job.now += 10
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    state = Looker().run(state, commands)
    (ballot,) = sent(state, SendBallot)
    assert isinstance(ballot, SendBallot)
    assert ballot.reports == ()


def test_a_slow_verifier_ballots_what_it_has_and_accuses_nobody() -> None:
    job = auditing()
    state, _ = given(verifier(job), job)
    job.now = job.view.state.deadline - MANIFEST.terms.report_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    (sign,) = [c for c in commands if isinstance(c, DoSign)]
    assert isinstance(sign.signed, BallotSigned)
    assert (sign.signed.findings, sign.signed.reports) == ((), ())


def test_a_signed_ballot_is_sent_again_after_a_restart_whatever_is_known_now() -> None:
    job = auditing()
    state = looked(job, Looker())
    (signed,) = state.facts.all_of(BallotSigned)
    seat = my_seat(job)
    state = looked(job, Looker(wrong=[f"replay:0:0:{seat}:"]), signed)
    (ballot,) = sent(state, SendBallot)
    assert isinstance(ballot, SendBallot)
    assert (ballot.findings, ballot.reports) == (signed.findings, signed.reports)


def test_who_stands_out_is_replayed_whole() -> None:
    job = auditing()
    state, commands = given(verifier(job), job)
    seat = my_seat(job)

    class Outlier(Looker):
        def _result(self, command: Command) -> Fact | None:
            if isinstance(command, DoScore):
                return RoundScored(command.what, (int(seat),))
            return super()._result(command)

    state = Outlier().run(state, commands)
    (ballot,) = sent(state, SendBallot)
    assert isinstance(ballot, SendBallot)
    whole = duties_of(job.view, MANIFEST, INDEX, [seat])[seat]
    found = {f.seat: f.segments for f in ballot.findings}
    assert found[seat] == to_bitmap(whole.segments)
    assert len(whole.segments) > len(duties(job)[seat].segments)


def test_from_half_time_on_others_duties_are_taken_over_once() -> None:
    job, looker = auditing(make_manifest(Members(auditors=1))), Looker()
    looked(job, looker)
    job.ballot(INDEX, duties(job))
    job.ballot(1, duties(job, 1))
    job.now = job.view.half_time - 1
    assert not sent(looked(job, Looker()), SendBallot)
    job.now = job.view.half_time
    theirs = duties(job, 2)
    state = looked(job, Looker())
    (supplement,) = sent(state, SendBallot)
    assert isinstance(supplement, SendBallot)
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
        (Fault.WRONG_REPLAY, 2, "replay:0:0:3:", True),
        (Fault.WRONG_REPLAY, 2, "", False),
        (Fault.WRONG_REPLAY, 99, "", False),
        (Fault.WRONG_LINK, NO_SEGMENT, "link:0:0:3:", True),
        (Fault.WRONG_LINK, NO_SEGMENT, "", False),
        (Fault.MALFORMED, NO_SEGMENT, "check:0:0:3:", True),
        (Fault.MALFORMED, NO_SEGMENT, "", False),
        (Fault.WITHHELD, NO_SEGMENT, "", False),
        (Fault.WITHHELD, 2, "", False),
        (Fault.WITHHELD, 2, "replay:0:0:3:", True),
        (Fault.WITHHELD, 7, "link:0:0:3:", True),
        (Fault.WITHHELD, NO_SEGMENT, "check:0:0:3:", True),
        (Fault.WITHHELD, 7, "", False),
    ],
)
def test_a_vote_says_what_looking_again_showed(
    fault: Fault, segment: int, wrong: str, agrees: bool
) -> None:
    job, index = confirming(fault, segment)
    state = looked(job, Looker(wrong=[wrong] if wrong else []))
    (vote,) = sent(state, SendVote)
    assert isinstance(vote, SendVote)
    assert (vote.agree, vote.disagree) == ((1 << index, 0) if agrees else (0, 1 << index))
    assert vote.cannot_fetch == 0


@pytest.mark.parametrize(
    ("fault", "segment", "part"),
    [
        (Fault.WITHHELD, NO_SEGMENT, "check"),
        (Fault.WITHHELD, 2, "replay"),
        (Fault.WITHHELD, 7, "link"),
        (Fault.WRONG_REPLAY, 2, "replay"),
    ],
)
def test_what_cannot_be_fetched_is_said_when_the_window_ends(
    fault: Fault, segment: int, part: str
) -> None:
    job, index = confirming(fault, segment)
    looker = Looker(absent=[f"{part}:0:0:3:"])
    state = looked(job, looker)
    assert not sent(state, SendVote)
    job.now = job.view.state.deadline - MANIFEST.terms.confirm_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    state = looker.run(state, commands)
    (vote,) = sent(state, SendVote)
    assert isinstance(vote, SendVote)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == (0, 0, 1 << index)


@pytest.mark.parametrize("served_at", [0.7, 1.0])
def test_what_is_served_when_the_time_is_over_was_not_served(served_at: float) -> None:
    job = auditing()
    for v in range(3):
        job.ballot(v, (0, 1, 2))
    index = job.challenge(1, 3, BLOCK, segment=2)
    absent = Looker(absent=["replay:0:0:3:"])
    state = at(looked(job, absent), job, 0.6, absent)
    for share in (0.7, 0.9):
        state = at(state, job, share, Looker() if served_at <= share else absent)
    job.confirm()
    job.now += MANIFEST.terms.confirm_seconds * 2 // 3  # past the pause before the next try
    state, commands = given(state, job)
    (vote,) = sent(Looker().run(state, commands), SendVote)
    assert isinstance(vote, SendVote)
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
    (vote,) = sent(looked(job, Looker(has_blocks=has_blocks)), SendVote)
    assert isinstance(vote, SendVote)
    expected = (0, 1 << index, 0) if has_blocks else (0, 0, 1 << index)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == expected


@pytest.mark.parametrize("wrong", [True, False])
def test_an_answer_saves_nobody_whose_segment_is_wrong_or_still_out_of_reach(wrong: bool) -> None:
    job, index = answered()
    segment = ["replay:0:0:3:"]
    looker = Looker(wrong=segment) if wrong else Looker(absent=segment)
    state = looked(job, looker)
    job.now = job.view.state.deadline - MANIFEST.terms.confirm_seconds // 5
    state, commands = step(state, HeadAdvanced(Head(job.number, job.now)))
    (vote,) = sent(looker.run(state, commands), SendVote)
    assert isinstance(vote, SendVote)
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
    what = seat_work(job.view.train_slot, seat, job.view.reveals[seat])
    known = SegmentReplayed(what, SegmentIndex(1), "differs", at, at, 5, 0.1)
    state = looked(job, Looker(wrong=["replay:0:0:3:"]), SeatChecked(what, ""), known)
    (vote,) = sent(state, SendVote)
    assert isinstance(vote, SendVote)
    assert (vote.agree, vote.disagree, vote.cannot_fetch) == (1 << other, 0, 0)


def test_a_signed_vote_is_said_again() -> None:
    job, _ = confirming()
    (signed,) = looked(job, Looker()).facts.all_of(VoteSigned)
    (vote,) = sent(looked(job, Looker(wrong=["replay:0:0:3:"]), signed), SendVote)
    assert isinstance(vote, SendVote)
    assert vote.disagree == signed.disagree


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
        def _result(self, command: Command) -> Fact | None:
            if isinstance(command, DoMerge):
                return RoundMerged(command.what, cid("other"), digest("other"))
            return super()._result(command)

    state, commands = given(verifier(job), job)
    assert not sent(Other().run(state, commands), SendSettle)


def test_the_signed_verdict_of_a_cut_is_kept() -> None:
    job = attesting()
    job.mine()
    (signed,) = looked(job, Looker()).facts.all_of(VerdictSigned)
    state = looked(job, Looker(), signed)
    (attest,) = sent(state, SendAttest)
    assert isinstance(attest, SendAttest)
    assert attest.verdict_hash == signed.verdict_hash == signed.content()


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
    state = verifier(job)
    state = replace(state, facts=state.facts.minus(frozenset({"opening:0"})))
    _, commands = given(state, job)
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
    (ballot,) = sent(looked(job, looker, behaviour=Stamps()), SendBallot)
    assert isinstance(ballot, SendBallot)
    expected = tuple(Finding(s, to_bitmap(d.segments)) for s, d in duties(job).items())
    assert ballot.findings == expected
    assert not looker.of(DoReplay) and not looker.of(DoCheck)
    assert ballot.replay_root == ZERO_DIGEST


def test_a_rubber_stamp_votes_that_nothing_is_wrong() -> None:
    job, index = confirming()
    (vote,) = sent(looked(job, Looker(), behaviour=Stamps()), SendVote)
    assert isinstance(vote, SendVote)
    assert vote.disagree == 1 << index


def test_an_offline_verifier_does_nothing_in_a_round() -> None:
    job = auditing()
    job.now = job.view.state.deadline + 100
    _, commands = given(verifier(job, behaviour=Absent()), job)
    assert commands == []
    assert SendPoke in [type(c) for c in given(verifier(job), job)[1]]


def test_overrides_replace_what_is_said() -> None:
    job = auditing()
    (ballot,) = sent(looked(job, Looker(), behaviour=Accuses()), SendBallot)
    assert isinstance(ballot, SendBallot)
    assert [report.evidence for report in ballot.reports] == [digest("lie")]
    job, index = confirming()
    (vote,) = sent(looked(job, Looker(), behaviour=Accuses()), SendVote)
    assert isinstance(vote, SendVote)
    assert (vote.agree, vote.disagree) == (1 << index, 0)
