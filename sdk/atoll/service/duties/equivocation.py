"""Shows that a member signed two verdicts about the same words: its whole bond, half of it ours.

Where our own merge is another than the certificate, whoever signed both is easy to find: its
signature of ours was heard while the round merged or is served still, that of the certificate is in
the settlement's transaction.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import structlog

from atoll.chain.calls import Call, Calls
from atoll.errors import NotFound
from atoll.law.certificates import (
    SIGNATURE_BYTES,
    certificate_bytes,
    parts_of,
    signer_of,
    signers_of,
)
from atoll.law.hashing import certificate_hash
from atoll.law.owes import committee_accounts
from atoll.law.views import JobView, SettledRound
from atoll.law.words import Address, Digest, HolderId, Miss, PlaceIndex, RoundIndex, Verdict, bits
from atoll.service.commands import ContractCall, Done, Fact, Work
from atoll.service.duties.merge import checked_of
from atoll.service.machine import AnyCommand, Decision, State

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
log = structlog.get_logger("atoll.equivocation")


@dataclass(frozen=True, slots=True)
class TwoSignatures:
    """A member's, of our verdict and of the certificate's."""

    holder: HolderId
    own: bytes
    certified: bytes


@dataclass(frozen=True, slots=True)
class SignersCompared(Fact):
    """Who signed both; nobody, in an honest committee."""

    found: tuple[TwoSignatures, ...]


@dataclass(frozen=True, slots=True)
class DoCompareSigners(Work[SignersCompared]):
    """Look for members whose signature is under both verdicts.

    Attributes:
        digest: of what our own merge says of the round's words.
    """

    round: RoundIndex
    digest: Digest

    async def perform(self, effects: Effects, view: JobView) -> Done[SignersCompared]:
        past = view.settled[self.round]
        certified = await _of_certificate(effects, view, past)
        found: list[TwoSignatures] = []
        for place in map(PlaceIndex, bits(past.signers)):
            holder = past.places[place]
            who = view.verifiers[holder].account
            other = certified.get(who) or await heard(effects, view, past.digest, who, past.round)
            mine = await heard(effects, view, self.digest, who, past.round)
            if mine is not None and other is not None:
                log.warning("equivocated", job=view.job_id, round=past.round, account=who)
                found.append(TwoSignatures(holder, mine, other))
        return Done(SignersCompared(tuple(found)))


@dataclass(frozen=True, slots=True)
class SendEquivocated(ContractCall):
    """Show both signatures."""

    once: ClassVar[bool] = True
    round: RoundIndex
    verdict: Verdict
    shown: TwoSignatures

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.shown.holder)

    def call(self, calls: Calls, view: JobView) -> Call:
        past, shown = view.settled[self.round], self.shown
        alone = tuple(
            certificate_bytes([_ONE], {_ONE: one}) for one in (shown.own, shown.certified)
        )
        both = (self.verdict, past.verdict)
        return calls.equivocated(past, shown.holder, both, (alone[0], alone[1]))


_ONE = Address("")


def note_name(view: JobView, round: RoundIndex, digest: Digest) -> str:
    """The name of a member's signature in `/notes/` of its gateway."""
    return f"{view.job_id}/signed/{round}/{digest.hex()}"


async def heard(
    effects: Effects, view: JobView, digest: Digest, member: Address, round: RoundIndex
) -> bytes | None:
    """A member's signature of a digest, from our journal or its gateway; kept once it was heard."""
    name, journal = note_name(view, round, digest), effects.context.journal
    own = member == effects.context.me
    kept = journal.note(name if own else f"{name}/{member}")
    gateway = view.gateways.get(member, "")
    if kept is not None or own or not gateway:
        return kept
    with suppress(NotFound):
        fetcher = effects.context.fetcher_of(view.job_id)
        note = await fetcher.note(gateway, name, SIGNATURE_BYTES)
        if note is not None and signer_of(digest, note) == member:
            journal.publish(f"{name}/{member}", note)
            return note
    return None


async def _of_certificate(
    effects: Effects, view: JobView, past: SettledRound
) -> dict[Address, bytes]:
    """The signatures in the settlement's own transaction; none where somebody else's called it."""
    committee = committee_accounts(view, past)
    chain = effects.context.chain
    for certificate in await chain.certificates(past.block.number, view.job_id):
        with suppress(ValueError):  # another call of the same name, which was refused
            signed = signers_of(past.digest, certificate, committee)
            parts = parts_of(certificate)
            return {committee[number]: parts[number] for number in bits(signed)}
    return {}


# --- decisions ---


def decide_equivocation(state: State[S]) -> Decision:
    """Looks once at every certificate that is not what we merged, and shows what it finds."""
    merged = checked_of(state)
    past = state.view.settled[-1] if state.view.settled else None
    if merged is None or past is None:
        return Decision("equivocation", "no certificate to hold against our own merge")
    digest = certificate_hash(past.slot, past.facts.seed, past.facts.words, merged.verdict)
    if digest == past.digest:
        return Decision("equivocation", "the certificate is our own merge's")
    compared = state.facts.of(DoCompareSigners, past.round, digest)
    if compared is None:
        wanted: tuple[AnyCommand, ...] = (DoCompareSigners(past.round, digest),)
        return Decision("equivocation", "looks who signed two verdicts", wanted)
    cuts = {one.holder: state.view.verifiers[one.holder].cuts for one in compared.found}
    due = [
        SendEquivocated(past.round, merged.verdict, one)
        for one in compared.found
        if (past.round, Miss.EQUIVOCATED) not in cuts[one.holder]
    ]
    return Decision("equivocation", f"{len(compared.found)} signed two verdicts", tuple(due))
