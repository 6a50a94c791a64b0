"""A verifier's duties inside a round: report, confirm, attest, settle.

Rule of this file: pure. What is said on chain is signed in the journal first (`DoSign`) and sent
from there, so that a restart says the same again and never anything else.
"""

from __future__ import annotations

from atoll.errors import ProtocolError
from atoll.law.duties import merge_facts
from atoll.law.hashing import verdict_hash
from atoll.law.sampling import NO_DUTY, SeatDuty
from atoll.law.settlement import build_verdict
from atoll.law.terms import is_quorum
from atoll.law.views import ReportRecord
from atoll.law.words import (
    Finding,
    Phase,
    SeatIndex,
    bits,
    to_bitmap,
)
from atoll.service.machine import Command, Decision
from atoll_verifier.audit import Audit, duty_of
from atoll_verifier.behaviour import Ballot, Votes
from atoll_verifier.challenges import helping
from atoll_verifier.commands import (
    DoMerge,
    DoSign,
    SendAttest,
    SendBallot,
    SendSettle,
    SendVote,
)
from atoll_verifier.facts import (
    BallotSigned,
    RoundMerged,
    VerdictSigned,
    VoteSigned,
    slot_text,
)
from atoll_verifier.opinions import confirming, votes_on

Duties = dict[SeatIndex, SeatDuty]
LOOKING = frozenset({Phase.REVEAL, Phase.DRAW, Phase.REPORT, Phase.CONFIRM})


def decide_checks(audit: Audit) -> Decision:
    """Looks at every revealed seat's update and trace as soon as they are revealed."""
    if audit.view.state.phase not in LOOKING:
        return Decision("check", "nothing is revealed")
    if audit.state.setup.behaviour.skips_replays(audit.view):
        return Decision("check", "the behaviour looks at nothing")
    commands: list[Command] = []
    for seat in audit.revealed:
        commands.extend(audit.tasks(seat, NO_DUTY))
    scoring = audit.scoring if not commands and audit.view.state.phase is Phase.REPORT else None
    if scoring is not None and scoring.key not in audit.state.facts:
        return Decision("check", "scores the updates", (scoring,))
    return Decision("check", f"{len(commands)} seats still to be checked", tuple(commands))


def decide_replays(audit: Audit) -> Decision:
    """Replays what the audit seed assigns to us, and from half time what falls to us."""
    if audit.view.state.phase is not Phase.REPORT:
        return Decision("replay", "no audit is running")
    if audit.state.setup.behaviour.skips_replays(audit.view):
        return Decision("replay", "the behaviour replays nothing")
    duties = all_duties(audit)
    tasks = [task for seat, duty in duties.items() for task in audit.tasks(seat, duty)]
    owed = sum(len(duty.segments) for duty in duties.values())
    help_ = helping(audit) if all(audit.state.is_missing(task.key) for task in tasks) else []
    return Decision("replay", f"{len(tasks)} tasks left of {owed} segments", (*tasks, *help_))


def decide_ballot(audit: Audit) -> Decision:
    """One ballot once every duty is done, or when the window is nearly over."""
    view, duties = audit.view, audit.duties
    if view.state.phase is not Phase.REPORT:
        return Decision("ballot", "no audit is running")
    if audit.me in view.ballots:
        return Decision("ballot", f"balloted in attempt {view.state.attempt}")
    if audit.state.now >= view.state.deadline:
        return Decision("ballot", "the window to ballot is over")
    what = _audit_name(audit, "main")
    signed = audit.state.facts.get(BallotSigned, f"ballot:{what}")
    if signed is not None:
        return Decision("ballot", "signed", (_ballot_command(audit, signed),))
    waits_for = _unfinished(audit, duties)
    if waits_for and not audit.is_late:
        return Decision("ballot", f"waits for seats {waits_for}")
    return Decision("ballot", "done looking", (DoSign(_ballot(audit, duties, what)),))


def decide_supplement(audit: Audit) -> Decision:
    """From half time on, one addition for what others left undone."""
    view = audit.view
    mine = view.ballots.get(audit.me)
    if view.state.phase is not Phase.REPORT or mine is None:
        return Decision("supplement", "no ballot of ours to add to")
    if audit.state.now < view.half_time or mine.is_supplemented:
        return Decision("supplement", "not before half time, and once")
    if audit.state.now >= view.state.deadline:
        return Decision("supplement", "the window to ballot is over")
    what = _audit_name(audit, "supplement")
    signed = audit.state.facts.get(BallotSigned, f"ballot:{what}")
    if signed is not None:
        return Decision("supplement", "signed", (_ballot_command(audit, signed),))
    extra = audit.fallback
    waits_for = _unfinished(audit, extra)
    if not extra or (waits_for and not audit.is_late):
        return Decision("supplement", f"waits for seats {waits_for}")
    return Decision("supplement", "took over", (DoSign(_ballot(audit, extra, what)),))


def decide_vote(audit: Audit) -> Decision:
    """Looks at each reported segment itself, then votes on all of them."""
    view = audit.view
    if view.state.phase is not Phase.CONFIRM:
        return Decision("vote", "nothing to confirm")
    if audit.me in view.votes or audit.state.now >= view.state.deadline:
        return Decision("vote", "voted, or too late to vote")
    reports = [r for r in view.attempt_reports if not r.reporters >> audit.me & 1]
    if not reports:
        return Decision("vote", "every report is our own or seconded by us")
    what = f"{_audit_name(audit, 'vote')}:{view.attempt_reports[-1].index}"
    signed = audit.state.facts.get(VoteSigned, f"vote:{what}")
    if signed is not None:
        maps = (signed.agree, signed.disagree, signed.cannot_fetch)
        return Decision("vote", "signed", (SendVote(view.slot, what, *maps),))
    tasks = [] if _is_idle(audit) else [t for r in reports for t in confirming(audit, r)]
    if tasks and not audit.is_late:
        return Decision("vote", f"looks at {len(reports)} reports", tuple(tasks))
    seen = _idle_votes(reports) if _is_idle(audit) else votes_on(audit, reports)
    votes = audit.state.setup.behaviour.vote_override(view, seen)
    signed = VoteSigned(what, votes.agree, votes.disagree, votes.cannot_fetch)
    return Decision("vote", "done looking", (DoSign(signed),))


def decide_attest(audit: Audit) -> Decision:
    """Merges what was accepted, signs the verdict that follows, and attests it."""
    view = audit.view
    if view.state.phase is not Phase.ATTEST:
        return Decision("attest", "nothing to attest")
    verdict = own_verdict(audit)
    if verdict is None:
        return _decide_verdict(audit)
    if audit.me in view.work.attestations:
        return Decision("attest", f"attested {verdict.verdict_hash.hex()[:16]}")
    if audit.state.now >= view.state.deadline:
        return Decision("attest", "the window to attest is over")
    if audit.state.head.number <= view.state.cut_block:
        return Decision("attest", f"waits for a block after {view.state.cut_block}")
    return Decision("attest", "signed", (SendAttest(view.slot, verdict.verdict_hash),))


def decide_settle(audit: Audit, line: int) -> Decision:
    """Settles once a quorum stands behind our verdict; others wait their turn in blocks."""
    view, terms = audit.view, audit.manifest.terms
    verdict = own_verdict(audit) if view.state.phase is Phase.ATTEST else None
    if verdict is None:
        return Decision("settle", "no verdict of ours")
    weight = view.attested_weight(verdict.verdict_hash)
    if not is_quorum(weight, view.state.total_weight, terms):
        return Decision("settle", f"{weight} of {view.state.total_weight} wei stand behind it")
    turn = view.block.number + line * audit.state.setup.keeper.stagger_blocks
    if audit.state.head.number < turn:
        return Decision("settle", f"leaves it to others until block {turn}")
    command = SendSettle(view.slot, verdict.verdict, verdict.verdict_hash)
    return Decision("settle", "a quorum stands behind it", (command,))


def own_verdict(audit: Audit) -> VerdictSigned | None:
    """What we signed for the running cut."""
    return audit.state.facts.get(VerdictSigned, f"verdict:{_cut_name(audit)}")


# --- ballots ---


def all_duties(audit: Audit) -> Duties:
    """Our own, and from half time on, once we balloted, what others left undone."""
    duties = dict(audit.duties)
    if audit.state.now >= audit.view.half_time and audit.me in audit.view.ballots:
        for seat, duty in audit.fallback.items():
            duties[seat] = duty_of(duties, seat) | duty
    return duties


def _is_idle(audit: Audit) -> bool:
    return audit.state.setup.behaviour.skips_replays(audit.view)


def _unfinished(audit: Audit, duties: Duties) -> list[int]:
    """Seats of the audit about which there is still something to find out."""
    if _is_idle(audit):
        return []
    seats = [SeatIndex(s) for s in bits(audit.view.state.audit_set)]
    waiting: list[int] = [s for s in seats if not audit.is_done(s, duty_of(duties, s))]
    if not waiting and audit.in_full is None:
        return list(seats)
    return waiting


def _ballot(audit: Audit, duties: Duties, what: str) -> BallotSigned:
    view = audit.view
    seats = [SeatIndex(s) for s in bits(view.state.audit_set)]
    if _is_idle(audit):
        found = Ballot(tuple(Finding(s, to_bitmap(d.segments)) for s, d in duties.items()), ())
    else:
        segments = {seat: audit.verified(seat, duty) for seat, duty in duties.items()}
        findings = tuple(Finding(s, bitmap) for s, bitmap in sorted(segments.items()) if bitmap)
        faults = (audit.fault(seat) for seat in seats)
        found = Ballot(findings, tuple(fault for fault in faults if fault is not None))
    cast = audit.state.setup.behaviour.ballot_override(view, found)
    return BallotSigned(what, cast.findings, cast.reports, audit.replay_root(duties))


def _ballot_command(audit: Audit, signed: BallotSigned) -> SendBallot:
    return SendBallot(
        audit.view.slot, signed.what, signed.findings, signed.reports, signed.replay_root
    )


def _audit_name(audit: Audit, part: str) -> str:
    """An audit's slot with its seed: after a reorg that changes the seed it is another audit."""
    return f"{slot_text(audit.view.slot)}:{audit.view.state.audit_seed.hex()[:16]}:{part}"


def _idle_votes(reports: list[ReportRecord]) -> Votes:
    return Votes(agree=0, disagree=to_bitmap(r.index for r in reports), cannot_fetch=0)


# --- verdicts ---


def _decide_verdict(audit: Audit) -> Decision:
    merging = _merging(audit)
    merged = audit.state.facts.get(RoundMerged, merging.key)
    if merged is None:
        return Decision("attest", "merges the accepted updates", (merging,))
    try:
        verdict = build_verdict(audit.view, audit.manifest, merged.digest, merged.cid)
    except ProtocolError as error:
        return Decision("attest", f"no verdict: {error}")
    digest = verdict_hash(audit.view.slot, verdict)
    signed = VerdictSigned(_cut_name(audit), verdict, digest)
    return Decision("attest", "signs the verdict", (DoSign(signed),))


def _merging(audit: Audit) -> DoMerge:
    """The merge that the evidence prescribes: all of it is on chain, or named by it."""
    view, facts, seats = audit.view, merge_facts(audit.view), audit.candidates
    slot = view.train_slot
    what = f"{slot.round}:{slot.attempt}:{to_bitmap(seats):x}:{facts.caught}"
    what += f":{audit.opening.digest.hex()[:12]}:{view.state.reveal_accumulator.hex()[:12]}"
    return DoMerge(
        what=what,
        round=slot.round,
        manifest=audit.spec,
        opening=audit.opening.cid,
        facts=facts,
        data_seed=view.state.data_seed,
        updates=audit.updates(seats),
    )


def _cut_name(audit: Audit) -> str:
    """A verdict's slot with its cut: two verdicts for one cut would be equivocation."""
    view = audit.view
    cut = view.work.cut
    return f"{slot_text(view.slot)}:{'' if cut is None else cut.hash.hex()}"
