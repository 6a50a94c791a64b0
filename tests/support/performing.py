"""What each command of a member comes to in a schedule: the contracts' model, or invented work.

Rule of this file: a function a command, and the table of them at the end; a command without one
fails loudly, so that a new duty is looked at here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from eth_hash.auto import keccak
from tests.support.contracts import (
    bitmap,
    checkpoint_commitments_of,
    hashed,
    need,
    numbers,
    reveal_of,
)
from tests.support.identities import cid, digest

from atoll.protocol.audit_reports import AuditEntry
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.keeper_calls import KeeperCallKind
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeTerms, available_seats, candidates
from atoll.protocol.types import Digest, Reveal, Role, Verdict
from atoll.service.duties import (
    challenge,
    disagreement,
    equivocation,
    evaluation,
    join_and_leave,
    material,
    merge,
    replay_seat,
    round_start,
    send_keeper_calls,
    send_late_votes,
    strike,
    unpin,
    updates,
)
from atoll.service.entries import Entry, NotYet
from atoll_devnet.cheats.providers import Withhold
from atoll_node.duties import commit, push, serve, train
from atoll_verifier.duties import audit, committee

if TYPE_CHECKING:
    from tests.support.schedules import Member, World


class Nothing:
    """A command took effect and left no entry."""


Took: TypeAlias = type[Nothing]


@dataclass
class Begun:
    """Work that takes time.

    Attributes:
        ends: unix seconds of the chain.
    """

    command: Any
    ends: int
    comes_to: Callable[[], Any]


def _after(world: World, command: Any, seconds: float, entry: Entry) -> Begun:
    return Begun(command, world.net.now + int(seconds), lambda: entry)


FALSE_FROM: Final = {"lazy": 0, "poison-segment": 0, "wrong-data": 0, "hollow": 1}
"""By cheat the first of its segments that no run of them gives. What each cheat of these tables
sends is trained and replayed in `tests/unit/devnet/test_cheat_updates.py`.
"""
OF_UPDATES: Final = frozenset(
    {
        *("sign-flip", "flip5", "scale", "noise", "omniscient"),
        *("forged-moments", "forged-second-moments"),
        *("nan-moments", "garbage-bytes", "garbage-shapes"),
    }
)
"""Cheats whose segments are honest, and whose update is another."""
NO_UPDATES: Final = frozenset({"nan-moments", "garbage-bytes", "garbage-shapes"})
"""Of these, the ones whose bytes are no update: nobody says that it has them."""


# --- what a round really is ---


def honest_work(round: int, seat: int, seed: Digest, model: Digest, segments: int) -> list[Digest]:
    """The work tags that running these segments gives, for whoever runs them."""
    name = _name(round, seat, seed, model)
    return [digest(f"x {name} {j}") for j in range(segments)]


def _name(round: int, seat: int, seed: Digest, model: Digest) -> str:
    return f"{round} {seat} {seed.hex()} {model.hex()}"


def _states(leaves: bytes) -> list[bytes]:
    return [leaves[at : at + 32] for at in range(0, len(leaves), 64)]


# --- material ---


def _fetch_spec(world: World, member: Member, command: material.DoFetchSpec) -> Entry:
    return material.SpecReady(world.manifest)


def _fetch_data(world: World, member: Member, command: material.DoFetchData) -> Entry:
    return material.DataReady(cid("data"), digest("model 0"))


def _prepare_opening(
    world: World, member: Member, command: round_start.DoPrepareRoundStart
) -> Entry:
    if command.cid is None or command.digest is None:
        return round_start.RoundStartReady(cid("model 0"), digest("model 0"))
    return round_start.RoundStartReady(command.cid, command.digest)


# --- members ---


def _announce(world: World, member: Member, command: join_and_leave.SendAnnounce) -> Took:
    raise AssertionError("every gateway is announced before a schedule begins")


def _join(world: World, member: Member, command: join_and_leave.SendJoin) -> Took:
    if command.role is Role.PROVIDER:
        world.net.join(member.account, command.index)
    else:
        world.net.enrol(member.account, command.index, command.bond)
    return Nothing


def _leave(world: World, member: Member, command: join_and_leave.SendLeave) -> Took:
    is_seat = command.role is Role.PROVIDER
    (world.net.leave_seat if is_seat else world.net.leave_pool)(member.account)
    return Nothing


# --- providers ---


def _train(world: World, member: Member, command: train.DoTrain) -> Begun:
    """As many segments as its pace and the deadline that it is told of allow."""
    terms, began = world.net.terms, world.net.now
    whole = terms.steps // terms.segment_steps
    seconds = terms.train_seconds * world.pace * world.random.uniform(0.8, 1.2)
    cheat = command.function.kind.removeprefix("cheat-").removesuffix(".v1")
    is_short = cheat == "partial" or (cheat == "alternate" and command.round_id.round % 2 == 0)
    most = 1 if is_short else whole

    def comes_to() -> Entry:
        done = min(most, int(whole * (world.net.now - began) / seconds))
        name = _name(
            command.round_id.round, command.seat, command.data_seed, command.round_start_digest
        )
        reveal, key, tags = reveal_of(name, done)
        world.secrets[command.round_id.round, command.seat, member.account] = key
        reveal = _cheated(cheat, reveal, key, tags)
        if cheat in NO_UPDATES:
            world.no_updates.add(reveal.update_root)
        return train.Trained(
            command.round_id.round, reveal, command.round_start_digest, 1.0, seconds
        )

    return Begun(command, began + int(seconds * most / whole) + 1, comes_to)


def _cheated(cheat: str, reveal: Reveal, key: Digest, tags: list[Digest]) -> Reveal:
    """What a cheat of that name reveals instead: of it all that is false is a name."""
    if cheat in {"train-round", "partial", "alternate"}:
        return reveal
    if cheat == "wrong-work-tags":
        lies = [digest(f"invented {j}") for j, _ in enumerate(tags)]
        false = checkpoint_commitments_of("nothing", lies, key)
        mixed = zip(_states(reveal.checkpoint_commitments), range(32, len(false), 64), strict=True)
        return replace(
            reveal, checkpoint_commitments=b"".join(s + false[at : at + 32] for s, at in mixed)
        )
    if cheat in OF_UPDATES:
        return replace(reveal, update_root=hashed(reveal.update_root, keccak(cheat.encode())))
    if cheat in FALSE_FROM:
        at = 64 * FALSE_FROM[cheat]
        true, rest = reveal.checkpoint_commitments[:at], reveal.checkpoint_commitments[at:]
        return replace(reveal, checkpoint_commitments=true + bytes(byte ^ 1 for byte in rest))
    raise AssertionError(f"no schedule knows what {cheat} reveals")


def _tell_deadline(world: World, member: Member, command: train.TellDeadline) -> Entry:
    for begun in member.under_way.values():
        if isinstance(begun.command, train.DoTrain) and begun.command.round_id == command.round_id:
            begun.ends = min(begun.ends, command.until)
    return train.DeadlineTold()


def _serve(world: World, member: Member, command: serve.DoServe) -> Entry:
    return serve.Served()


def _commit(world: World, member: Member, command: commit.SendCommit) -> Took:
    need(world.net.seed == command.data_seed, "another seed")
    world.net.commit(member.account, command.commitment)
    return Nothing


def _reveal(world: World, member: Member, command: commit.SendReveal) -> Took:
    need(world.net.seed == command.data_seed, "another seed")
    world.net.reveal(member.account, command.reveal)
    return Nothing


def _key(world: World, member: Member, command: commit.SendKey) -> Took:
    key = world.secrets[command.round, command.seat, member.account]
    world.net.show_key(command.round, command.seat, key)
    return Nothing


def _disagree(world: World, member: Member, command: disagreement.SendDisagree) -> Took:
    world.net.disagree(member.account)
    return Nothing


# --- committees ---


def _get_update(world: World, member: Member, command: updates.DoGetUpdate) -> Entry:
    """Whoever is awake and has it serves it: its provider, or a member that fetched it."""
    has = any(
        world.is_awake(other.account)
        and (_serves_own(world, other, command) or _has_update(other, command))
        for other in world.members
    )
    need(has, "nobody serves it")
    return updates.UpdateSeen(command.update.root not in world.no_updates)


def _serves_own(world: World, member: Member, command: updates.DoGetUpdate) -> bool:
    view = world.net.view
    of_round = view.settled_round(command.round) or view.open
    assert of_round is not None  # whose updates are fetched
    owner = of_round.reveals[command.update.seat].account
    return member.account == owner and not isinstance(member.behaviour, Withhold)


def _has_update(member: Member, command: updates.DoGetUpdate) -> bool:
    found = member.state.entries.of(updates.DoGetUpdate, *command.about)
    return found is not None and found.is_available


def _merge(world: World, member: Member, command: merge.DoMerge) -> Entry:
    """Everything that is there and counts is merged: no check names anybody here."""
    record, terms = command.record, MergeTerms.of(Manifest.from_bytes(command.manifest))
    there = candidates(record, terms)
    merged = there if len(there) >= terms.minimum else ()
    available = available_seats(record.votes, record.committee, record.revealed)
    state = world.net.state_of(command.round_id.round + 1, str(sorted(numbers(available))))
    verdict = Verdict(bitmap(set()), len(merged), state, cid(state.hex()), bytes(8))
    return merge.RoundMerged(verdict)


def _evaluate(world: World, member: Member, command: evaluation.DoEvaluate) -> Entry:
    return evaluation.LossKnown(evaluation.NO_LOSS)


def _ready(world: World, member: Member, command: committee.SendReady) -> Took:
    world.net.say_ready(member.account)
    return Nothing


def _vote(world: World, member: Member, command: committee.SendVote) -> Took:
    need(world.net.seed == command.data_seed, "another seed")
    need(world.net.committee_draw == command.committee_draw, "another draw")
    world.net.say(member.account, command.has)
    return Nothing


def _sign_verdict(world: World, member: Member, command: committee.SignVerdict) -> Entry:
    world.signatures.setdefault(command.digest, {})[member.account] = world.net.now
    return committee.VerdictSigned(command.digest, command.verdict, b"", world.net.now)


def _settle(world: World, member: Member, command: committee.SendSettle) -> Took:
    """With the signatures that gateways serve now: of members that are awake."""
    net, running = world.net, world.net.view.open
    need(running is not None and running.digest_of(command.verdict) == command.digest, "over")
    signed = world.signatures.get(command.digest, {})
    at = {net.at(Role.VERIFIER, place, net.round).account: place for place in net.committee}
    signers = {at[a] for a in signed if a in at and world.is_awake(a)}
    is_whole = len(signers) == len(at) or net.now >= command.at + committee.GRACE_SECONDS
    if 3 * len(signers) < 2 * len(at) or not is_whole:
        raise NotYet(f"{len(signers)} of {len(at)} have signed", None)
    net.settle(signers, numbers(command.verdict.excluded), command.verdict.merged)
    return Nothing


def _sign(world: World, member: Member, command: committee.SendSign) -> Took:
    world.net.sign(command.holder)
    return Nothing


def _late_vote(world: World, member: Member, command: send_late_votes.SendLateVote) -> Took:
    world.net.late_vote(command.round, command.holder, command.has)
    return Nothing


def _grant(world: World, member: Member, command: send_late_votes.SendGrant) -> Took:
    world.net.grant(command.round, command.seat)
    return Nothing


# --- audits ---


def _replay(world: World, member: Member, command: replay_seat.DoReplay) -> Begun:
    round, seat = command.round_id.round, command.seat
    model = digest("model 0") if command.model is None else command.model
    tags = honest_work(
        round, seat, command.data_seed, model, len(command.checkpoint_commitments) // 64
    )
    name = _name(round, seat, command.data_seed, model)
    if command.function.kind.startswith("cheat-"):
        guess = [digest(f"guess {member.account} {j}") for j, _ in enumerate(tags)]
        told = AuditEntry.valid(seat, member.account, guess)
        return _after(world, command, 1, replay_seat.SeatReplayed(told, tuple(guess), 1.0))
    told = AuditEntry.valid(seat, member.account, tags)
    for at, state in enumerate(_states(command.checkpoint_commitments)):
        if state != digest(f"state {name} {at}"):
            told, tags = AuditEntry(seat, at, digest("own")), tags[:at]
            break
    else:
        if tags and command.update_root != digest(f"update {name}"):
            told = AuditEntry(seat, len(tags), digest("own update"))
    seconds = world.net.terms.train_seconds * world.pace * world.random.uniform(0.8, 1.2)
    return _after(world, command, seconds, replay_seat.SeatReplayed(told, tuple(tags), seconds))


def _seal(world: World, member: Member, command: audit.SealAuditReport) -> Entry:
    salt = hashed(int(member.account, 16), command.round, command.audit_seed)
    return audit.AuditReportSealed(command.body, salt)


def _send_report(world: World, member: Member, command: audit.SendAuditReport) -> Took:
    settled_round = world.net.view.settled[command.round]
    holder = world.net.view.auditor_of(settled_round, member.account)
    need(holder is not None, "no auditor")
    world.net.audit_report(command.round, holder, command.audit_report)
    return Nothing


def _open(world: World, member: Member, command: audit.SendOpen) -> Took:
    said = (command.sealed.body, command.sealed.salt)
    world.net.open_audit_report(command.round, command.holder, *said)
    return Nothing


def _challenge(world: World, member: Member, command: challenge.SendChallenge) -> Any:
    """A game at once: who is right wins it, as the judge's own tests hold."""
    net, settled_round = world.net, world.net.settled[command.round]
    need(net.now < settled_round.ends["window"], "its window is over")
    holder = net.member(Role.PROVIDER, settled_round.holders[command.seat])
    need(not holder.slashed, "slashed")
    if _is_false(world, command.round, command.seat, command.at):
        world.lost[command.round, command.seat] = command.at
        net.slash(Role.PROVIDER, holder.id, member.account, command.round)
        return Nothing
    return challenge.NotChallenged("it is as revealed")


def _is_false(world: World, round: int, seat: int, at: int) -> bool:
    settled_round = world.net.settled[round]
    reveal, seed = settled_round.reveals[seat], settled_round.record.seed
    model = settled_round.record.model if round else digest("model 0")
    name, states = _name(round, seat, seed, model), _states(reveal.checkpoint_commitments)
    if at == len(states):
        return reveal.update_root != digest(f"update {name}")
    key = settled_round.keys.get(seat)
    tags = honest_work(round, seat, seed, model, len(states))
    is_state_false = states[at] != digest(f"state {name} {at}")
    shown = (
        []
        if key is None
        else list(CheckpointCommitments.from_bytes(reveal.checkpoint_commitments).work_tags(key))
    )
    return is_state_false or (bool(shown) and shown[at] != tags[at])


# --- keepers ---


def _keeper_call(world: World, member: Member, command: send_keeper_calls.SendKeeperCall) -> Took:
    net, (round, holder, seat) = world.net, (command.round, command.holder, command.seat)
    calls: dict[KeeperCallKind, Callable[[], object]] = {
        KeeperCallKind.ADVANCE: net.advance,
        KeeperCallKind.SEED_AUDIT: net.seed_audit,
        KeeperCallKind.SETTLE_LATE: net.settle_late,
        KeeperCallKind.PENALISE_SEAT: lambda: net.penalise_seat(seat),
        KeeperCallKind.PENALISE_MEMBER: lambda: net.penalise_member(round, holder),
        KeeperCallKind.CLAIM: lambda: net.claim(command.role, holder, round),
        KeeperCallKind.RELEASE: lambda: net.release(command.role, holder),
        KeeperCallKind.BURN: lambda: net.burn(round),
        KeeperCallKind.LEAK: lambda: net.leak(
            round, seat, _shown(world, round, seat), member.account
        ),
        KeeperCallKind.ABSENT: lambda: net.report_absent(round, holder),
        KeeperCallKind.REPORT_MISSING_KEY: lambda: net.report_missing_key(round, seat),
        KeeperCallKind.CONTEST: lambda: net.contest(round, holder, seat, member.account),
        KeeperCallKind.SETTLE_CONTEST: lambda: net.settle_contest(round, holder, seat),
        KeeperCallKind.DROPPED: lambda: net.drop(round, holder, seat),
        KeeperCallKind.PROVEN: lambda: net.prove(round, holder, seat),
    }
    if command.what not in calls:
        raise AssertionError(f"no schedule has {command.what}")
    calls[command.what]()
    return Nothing


def _shown(world: World, round: int, seat: int) -> Digest:
    settled_round = world.net.view.settled[round]
    return settled_round.known_key(seat) or settled_round.keys[seat]  # type: ignore[arg-type, index]


def _claims(world: World, member: Member, command: send_keeper_calls.SendClaims) -> Took:
    for role, holder, to in command.dues:
        world.net.claim(role, holder, to)
    return Nothing


def _credit(world: World, member: Member, command: send_keeper_calls.SendClaimCredit) -> Took:
    world.net.claim_credit(command.account)
    return Nothing


def _find_strike(world: World, member: Member, command: strike.DoFindStrike) -> Took:
    """Of a schedule's merges, which have no numbers, nothing can be shown."""
    return strike.StrikeSought(command.round_id.round, strike.FoundStrike(), digest("salt"))


PERFORM: Final[dict[type[Any], Callable[[Any, Any, Any], Any]]] = {
    material.DoFetchSpec: _fetch_spec,
    material.DoFetchData: _fetch_data,
    round_start.DoPrepareRoundStart: _prepare_opening,
    join_and_leave.SendAnnounce: _announce,
    join_and_leave.SendJoin: _join,
    join_and_leave.SendLeave: _leave,
    train.DoTrain: _train,
    train.TellDeadline: _tell_deadline,
    serve.DoServe: _serve,
    # Whoever fetches an update has it in a schedule: what is brought changes nothing.
    push.DoPush: lambda _world, _member, command: push.Pushed(
        command.commitment, command.committee_draw
    ),
    commit.SendCommit: _commit,
    commit.SendReveal: _reveal,
    commit.SendKey: _key,
    disagreement.SendDisagree: _disagree,
    disagreement.NoteDisagreement: lambda _world, _member, command: command.found,
    updates.DoGetUpdate: _get_update,
    merge.DoMerge: _merge,
    evaluation.DoEvaluate: _evaluate,
    equivocation.DoCompareSigners: lambda *_: equivocation.SignersCompared(()),
    strike.DoFindStrike: _find_strike,
    committee.SendReady: _ready,
    committee.SendVote: _vote,
    committee.SignVerdict: _sign_verdict,
    committee.SendSettle: _settle,
    committee.SendSign: _sign,
    send_late_votes.SendLateVote: _late_vote,
    send_late_votes.SendGrant: _grant,
    replay_seat.DoReplay: _replay,
    audit.SealAuditReport: _seal,
    audit.SendAuditReport: _send_report,
    audit.SendOpen: _open,
    challenge.SendChallenge: _challenge,
    send_keeper_calls.SendKeeperCall: _keeper_call,
    send_keeper_calls.SendClaims: _claims,
    send_keeper_calls.SendClaimCredit: _credit,
    unpin.DoUnpin: lambda _world, _member, command: unpin.RoundsUnpinned(command.below),
    unpin.DoUnpinJob: lambda *_: unpin.JobUnpinned(),
}
