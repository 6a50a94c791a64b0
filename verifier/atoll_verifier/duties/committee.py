"""A committee member's vote and signature, and the settlement that they allow.

Signatures go from gateway to gateway: each member serves its own under the name of what it signs,
and whoever is first in line puts them together.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Never

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.errors import ProtocolError, RpcUnavailable
from atoll.protocol.call_structs import Certified
from atoll.protocol.certificates import SIGNATURE_BYTES, CertificateKind, alone, is_enough
from atoll.protocol.hashing import certificate_hash, certificate_message
from atoll.protocol.merge_inputs import MergeTerms, candidates
from atoll.protocol.obligations import Duty, Obligation, committee_accounts
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    Phase,
    RoundIndex,
    SlotIndex,
    Verdict,
)
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Transaction
from atoll.service.duties.certification import ensure_sum, signature_of, sound
from atoll.service.duties.equivocation import heard, note_name
from atoll.service.duties.evaluation import evaluating, loss_of, verdict_of
from atoll.service.duties.material import has_material, manifest_of, spec_of
from atoll.service.duties.merge import (
    DoMerge,
    RoundMerged,
    checked_of,
    checking,
    merged_of,
    merging,
)
from atoll.service.duties.round_start import preparing, round_start_at, round_start_of
from atoll.service.duties.signing import Signing
from atoll.service.duties.updates import seen
from atoll.service.entries import Done, Entry, NotYet
from atoll.service.machine import AnyCommand, Decision
from atoll_verifier.behaviour import VerifierState

if TYPE_CHECKING:
    from atoll.service.effects import Effects

VOTE_PART: Final = 4
"""So large a part of a committee draw's time is left when a member says what it has by then."""
GRACE_SECONDS: Final = 4
"""For whoever signs a little later: its signature in the certificate costs less than alone."""


@dataclass(frozen=True, slots=True)
class SendReady(ContractCall):
    """ "I hold manifest, data and model." """

    kind: ClassVar[str] = "ready.v1"
    holder: HolderId

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.ready(view.job_id)


@dataclass(frozen=True, slots=True)
class SendVote(ContractCall):
    kind: ClassVar[str] = "availability-vote.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    committee_draw: int
    slot: SlotIndex
    data_seed: Digest
    has: Bitmap

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.committee_draw, self.data_seed)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.vote(view.job_id, self.slot, self.data_seed, self.has)


@dataclass(frozen=True, slots=True)
class VerdictSigned(Entry):
    """What we signed of a round, and when, by the chain's clock."""

    kind: ClassVar[str] = "merge-signed.v2"
    digest: Digest
    verdict: Verdict
    signature: bytes
    at: int


@dataclass(frozen=True, slots=True)
class SignVerdict(Signing[VerdictSigned]):
    """Two verdicts about the same votes would cost the whole bond."""

    kind: ClassVar[str] = "merge-signature.v1"
    round: RoundIndex
    data_seed: Digest
    votes: Digest
    digest: Digest
    verdict: Verdict
    at: int

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.data_seed, self.votes)

    @property
    def said(self) -> VerdictSigned:
        return VerdictSigned(self.digest, self.verdict, b"", self.at)

    @property
    def content(self) -> bytes:
        return self.digest

    async def perform(self, effects: Effects, view: JobView) -> Done[VerdictSigned]:
        self.claim(effects, view)
        about = (self.data_seed, self.votes, self.verdict)
        message = certificate_message(view.round_id(self.round), *about)
        signature = signature_of(effects.context, view, message)
        effects.context.journal.publish(note_name(view, self.round, self.digest), signature)
        return Done(VerdictSigned(self.digest, self.verdict, signature, self.at))


@dataclass(frozen=True, slots=True)
class SendSettle(Transaction[Never]):
    """Put the committee's signatures together and settle."""

    kind: ClassVar[str] = "settle.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    digest: Digest
    verdict: Verdict
    at: int

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.digest)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        current = effects.context.follower.views.get(view.job_id, view)
        running = current.open
        if running is None or running.digest_of(self.verdict) != self.digest:
            raise ProtocolError(f"round {self.round} is settled, or its votes are others now")
        committee = committee_accounts(current, running)
        served = await self._collect(effects, current, committee)
        scheme, signatures = await sound(effects, current, self.digest, served)
        now = (await effects.context.chain.head(1.0)).timestamp
        is_whole = len(signatures) == len(committee) or now >= self.at + GRACE_SECONDS
        if not is_enough(len(signatures), len(committee)) or not is_whole:
            raise NotYet(f"{len(signatures)} of {len(committee)} have signed", None)
        certificate = scheme.certificate(committee, signatures)
        # Of a committee that is drawn from a larger pool the contract knows no accounts beforehand.
        shown = tuple(committee) if running.committee == running.ready else ()
        certified = Certified(self.verdict, shown, certificate)
        call = effects.calls.settle_words(view.job_id, running.votes, certified)
        settled = await effects.transact(view, self, call)
        with suppress(RpcUnavailable):  # nothing waits for it, and the next settlement asks again
            await ensure_sum(effects, current, running)
        return settled

    async def _collect(
        self, effects: Effects, view: JobView, committee: list[Address]
    ) -> dict[Address, bytes]:
        """All at once: a gateway that is slow must not make the others wait behind it."""
        asked = (heard(effects, view, self.digest, member, self.round) for member in committee)
        signatures = zip(committee, await asyncio.gather(*asked), strict=True)
        return {member: signature for member, signature in signatures if signature is not None}


@dataclass(frozen=True, slots=True)
class SendSign(ContractCall):
    """Add our signature of the last settlement, which came without it."""

    kind: ClassVar[str] = "add-signature.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    holder: HolderId
    signature: bytes

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.holder)

    def call(self, calls: Calls, view: JobView) -> Call:
        settled_round = view.settled[self.round]
        is_key = len(self.signature) == SIGNATURE_BYTES
        kind = CertificateKind.ECDSA if is_key else CertificateKind.BLS
        own = alone(self.signature, kind)
        return calls.sign(view.job_id, settled_round.record, self.holder, own)


# --- decisions ---


def decide_committee(
    state: VerifierState, owed: tuple[Obligation, ...], line: int
) -> list[Decision]:
    """Readiness, the vote of the committee draw, the verdict and its settlement."""
    duties = {each.duty: each for each in owed}
    return [
        _decide_ready(state, duties.get(Duty.READY)),
        _decide_vote(state, duties.get(Duty.VOTE)),
        _decide_verdict(state, [each for each in owed if each.duty is Duty.SIGN]),
        _decide_settle(state, line),
    ]


def _decide_ready(state: VerifierState, owed: Obligation | None) -> Decision:
    if owed is None or not state.setup.behaviour.may_say_ready(state.view):
        return Decision("ready", "nothing to say")
    if round_start_of(state) is None:
        return Decision("ready", "waits for the model")
    return Decision("ready", "says that data and model are here", (SendReady(owed.holder),))


def _decide_vote(state: VerifierState, owed: Obligation | None) -> Decision:
    view, running = state.view, state.view.open
    if owed is None or running is None:
        return Decision("vote", "owes no vote")
    available, unknown = seen(state)
    has_time = state.now < running.votes_end - view.require_terms().merge_seconds // VOTE_PART
    if unknown and has_time:
        return Decision("vote", f"waits for {unknown.bit_count()} updates")
    # Without the model it can sign nothing: the others decide, if they can, or it says so late.
    if has_time and round_start_of(state) is None:
        return Decision("vote", "waits for the model")
    has = state.setup.behaviour.vote_override(view, available)
    slot = next(p for p, h in running.slots.items() if h == owed.holder)
    vote = SendVote(running.round, running.committee_draw, slot, running.seed, has)
    return Decision("vote", f"has {available.bit_count()} updates", (vote,))


def _decide_verdict(state: VerifierState, owed: list[Obligation]) -> Decision:
    view, running = state.view, state.view.open
    if state.setup.behaviour.skips_signing(view):
        return Decision("verdict", "signs nothing, as its behaviour says")
    late = [each for each in owed if running is None or each.round != running.round]
    if late:
        return _decide_late(state, late[0])
    if not owed or running is None:
        return Decision("verdict", "owes no signature")
    if signed_of(state, running) is not None:
        return Decision("verdict", f"signed round {running.round}")
    merged = merged_of(state)
    ours = None if merged is None else verdict_of(state, running.round, merged)
    if ours is None:
        wanted = _working_out(state, running.round, merging(state), merged)
        return Decision("verdict", "merges" if wanted else "waits for the model", wanted)
    verdict = state.setup.behaviour.verdict_override(view, ours)
    where = (running.round, running.seed, running.votes_accumulator)
    sign = SignVerdict(*where, running.digest_of(verdict), verdict, state.now)
    is_false = _drops_some(state, ours) and not state.setup.behaviour.signs_without(view)
    reason = "signs nothing: an update that most say to have is none" if is_false else "signs"
    return Decision("verdict", reason, () if is_false else (sign,))


def _drops_some(state: VerifierState, verdict: Verdict) -> bool:
    """Whether a stated merge has an update in none of its lists that most members say to have: it
    is not canonical, and whoever signed that could be struck for it.
    """
    running, manifest = state.view.open, manifest_of(state.entries)
    if running is None or manifest is None or not any(verdict.statement):
        return False
    possible = candidates(running.merge_record, MergeTerms.of(manifest))
    return verdict.merged + verdict.excluded.bit_count() < len(possible)


def _working_out(
    state: VerifierState, round: RoundIndex, merge: DoMerge | None, merged: RoundMerged | None
) -> tuple[AnyCommand, ...]:
    """The merge of a round and the loss of what it opened from, whichever is not here."""
    function = state.setup.behaviour.merge_function
    merges = () if merge is None or merged is not None else (replace(merge, function=function),)
    evaluate = None if loss_of(state, round) is not None else evaluating(state, round)
    return merges if evaluate is None else (*merges, evaluate)


def _decide_late(state: VerifierState, owed: Obligation) -> Decision:
    """Of the last settlement: only what our own merge gave, which may have come after it."""
    settled_round = state.view.settled[owed.round]
    about = (settled_round.round, settled_round.record.seed, settled_round.record.votes)
    signed, merged = state.entries.of(SignVerdict, *about), checked_of(state)
    ours = None if merged is None else verdict_of(state, settled_round.round, merged)
    if signed is None and ours is None:
        return Decision(
            "verdict", "merges what is settled already", _catching_up(state, settled_round)
        )
    if signed is None and ours is not None:
        digest = certificate_hash(settled_round.round_id, *about[1:], ours)
        if digest == settled_round.digest:
            sign = SignVerdict(*about, digest, ours, state.now)
            return Decision("verdict", "signs what is settled already", (sign,))
    if signed is None or signed.digest != settled_round.digest:
        return Decision("verdict", "the last certificate is not what we merged")
    return Decision(
        "verdict", "signs late", (SendSign(settled_round.round, owed.holder, signed.signature),)
    )


def _catching_up(state: VerifierState, settled_round: SettledRound) -> tuple[AnyCommand, ...]:
    """Its model first, where the settlement came before that was here."""
    spec, command = spec_of(state.entries), checking(state)
    if command is not None:
        return _working_out(state, settled_round.round, command, checked_of(state))
    if (
        spec is None
        or not has_material(state)
        or round_start_at(state, settled_round.round) is not None
    ):
        return ()
    return (preparing(state, settled_round.round, spec),)


def signed_of(state: VerifierState, running: OpenRound) -> VerdictSigned | None:
    """What we signed about the votes of the running committee draw."""
    about = (running.round, running.seed, running.votes_accumulator)
    return state.entries.of(SignVerdict, *about)


def _decide_settle(state: VerifierState, line: int) -> Decision:
    running = state.view.open
    if running is None or running.phase is not Phase.MERGE:
        return Decision("settle", "nothing merges")
    signed = signed_of(state, running)
    if signed is None or not running.may_settle(state.now):
        return Decision("settle", "waits for votes and a verdict")
    if state.now < signed.at + line * state.setup.keeper.stagger_s:
        return Decision("settle", f"{line} are before us")
    settle = SendSettle(running.round, signed.digest, signed.verdict, signed.at)
    return Decision("settle", "settles", (settle,))
