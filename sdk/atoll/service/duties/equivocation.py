"""Shows that a member signed two verdicts about the same votes: its whole bond, half of it ours.

Where our own merge is another than the certificate, whoever signed both is easy to find: its
signature of ours was heard while the round merged or is served still, that of the certificate is in
the settlement's transaction, alone or in a sum that shows each of its signers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import structlog

from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.errors import NotFound
from atoll.protocol.call_structs import Certified
from atoll.protocol.certificates import CertificateKind, alone, is_enough, parts_of
from atoll.protocol.hashing import certificate_hash
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    Address,
    Digest,
    HolderId,
    MissedDuty,
    RoundIndex,
    SlotIndex,
    Verdict,
    bits,
)
from atoll.protocol.views import JobView
from atoll.service.commands import ContractCall, Work
from atoll.service.duties.certification import (
    accounts_in,
    kind_of,
    scheme_of,
    signature_bytes,
)
from atoll.service.duties.evaluation import verdict_of
from atoll.service.duties.merge import checked_of
from atoll.service.entries import Done, Entry
from atoll.service.machine import AnyCommand, Decision, State, by_view_and_entries

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
log = structlog.get_logger("atoll.equivocation")


@dataclass(frozen=True, slots=True)
class TwoSignatures:
    """A member's, of our verdict and of the certificate's, as certificates.

    Attributes:
        own: by the member alone.
        certified: by those of `together` that its map names.
    """

    holder: HolderId
    own: bytes
    certified: bytes
    together: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class SignersCompared(Entry):
    """Who signed both; nobody, in an honest committee."""

    kind: ClassVar[str] = "signers-compared.v1"
    found: tuple[TwoSignatures, ...]


@dataclass(frozen=True, slots=True)
class DoCompareSigners(Work[SignersCompared]):
    """Look for members whose signature is under both verdicts.

    Attributes:
        digest: of what our own merge says of the round's votes.
    """

    kind: ClassVar[str] = "compare-signers.v1"
    round: RoundIndex
    digest: Digest

    async def perform(self, effects: Effects, view: JobView) -> Done[SignersCompared]:
        settled_round = view.settled[self.round]
        committee = tuple(committee_accounts(view, settled_round))
        certificate, signers = await _of_settlement(effects, view, settled_round)
        kind = kind_of(view, effects.context.chain.deployment)
        equivocators: list[TwoSignatures] = []
        for slot in map(SlotIndex, bits(settled_round.signers)):
            holder = settled_round.slots[slot]
            who = view.verifiers[holder].account
            mine = await heard(effects, view, self.digest, who, settled_round.round)
            if mine is None:
                continue
            shown, together = certificate, committee
            if who not in signers:
                other = await heard(effects, view, settled_round.digest, who, settled_round.round)
                if other is None:
                    continue
                shown, together = alone(other, kind), (who,)
            log.warning("equivocated", job=view.job_id, round=settled_round.round, account=who)
            equivocators.append(TwoSignatures(holder, alone(mine, kind), shown, together))
        return Done(SignersCompared(tuple(equivocators)))


@dataclass(frozen=True, slots=True)
class SendEquivocated(ContractCall):
    """Show both signatures."""

    kind: ClassVar[str] = "show-two-signatures.v1"
    once: ClassVar[bool] = True
    round: RoundIndex
    verdict: Verdict
    shown: TwoSignatures

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.shown.holder)

    def call(self, calls: Calls, view: JobView) -> Call:
        settled_round, shown = view.settled[self.round], self.shown
        ours = Certified(self.verdict, (view.verifiers[shown.holder].account,), shown.own)
        certified = Certified(settled_round.verdict, shown.together, shown.certified)
        return calls.about(settled_round).equivocated(shown.holder, (ours, certified))


def note_name(view: JobView, round: RoundIndex, digest: Digest) -> str:
    """The name of a member's signature in `/notes/` of its gateway."""
    return f"{view.job_id}/signed/{round}/{digest.hex()}"


async def heard(
    effects: Effects, view: JobView, digest: Digest, member: Address, round: RoundIndex
) -> bytes | None:
    """A member's signature of a digest, from our journal or its gateway; kept once it was heard."""
    name, journal = note_name(view, round, digest), effects.context.journal
    is_ours = member == effects.context.me
    kept = journal.note(name if is_ours else f"{name}/{member}")
    gateway = view.gateways.get(member, "")
    if kept is not None or is_ours or not gateway:
        return kept
    size = signature_bytes(kind_of(view, effects.context.chain.deployment))
    with suppress(NotFound):
        fetcher = effects.context.fetcher_of(view.job_id)
        note = await fetcher.note(gateway, name, size)
        if note is None:
            return None
        scheme = await scheme_of(effects, view, digest, {member: note})
        if scheme.is_of(member, digest, note):
            journal.publish(f"{name}/{member}", note)
            return note
    return None


async def _of_settlement(
    effects: Effects, view: JobView, settled_round: SettledRound
) -> tuple[bytes, set[Address]]:
    """The certificate in the settlement's own transaction, and whom it names.

    Nobody, where another contract called on somebody's behalf.
    """
    committee = committee_accounts(view, settled_round)
    kind = kind_of(view, effects.context.chain.deployment)
    for certificate in await effects.context.chain.certificates(
        settled_round.block.number, view.job_id
    ):
        with suppress(ValueError):  # another call of the same name, which was refused
            parts = parts_of(certificate) if kind is CertificateKind.ECDSA else {}
            shown = {who: parts.get(i, b"") for i, who in enumerate(committee)}
            scheme = await scheme_of(effects, view, settled_round.digest, shown)
            signed = scheme.signers(settled_round.digest, certificate, committee)
            if is_enough(signed.bit_count(), len(committee)):
                return certificate, accounts_in(committee, signed)
    return b"", set()


# --- decisions ---


@by_view_and_entries
def decide_equivocation(state: State[S]) -> Decision:
    """Looks once at every certificate that is not what we merged, and shows what it finds.

    A loss that we have not worked out is the certificate's.
    """
    merged = checked_of(state)
    settled_round = state.view.settled[-1] if state.view.settled else None
    if merged is None or settled_round is None:
        return Decision("equivocation", "no certificate to hold against our own merge")
    verdict = verdict_of(state, settled_round.round, merged, settled_round.verdict.loss)
    assert verdict is not None  # it has a loss
    digest = certificate_hash(
        settled_round.round_id, settled_round.record.seed, settled_round.record.votes, verdict
    )
    if digest == settled_round.digest:
        return Decision("equivocation", "the certificate is our own merge's")
    compared = state.entries.of(DoCompareSigners, settled_round.round, digest)
    if compared is None:
        wanted: tuple[AnyCommand, ...] = (DoCompareSigners(settled_round.round, digest),)
        return Decision("equivocation", "looks who signed two verdicts", wanted)
    penalties = {
        signatures.holder: state.view.verifiers[signatures.holder].penalties
        for signatures in compared.found
    }
    due = [
        SendEquivocated(settled_round.round, verdict, signatures)
        for signatures in compared.found
        if (settled_round.round, MissedDuty.EQUIVOCATED) not in penalties[signatures.holder]
    ]
    return Decision("equivocation", f"{len(compared.found)} signed two verdicts", tuple(due))
