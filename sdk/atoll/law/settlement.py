"""What a round is worth, and to whom: a function of the evidence, so honest verdicts are equal.

Rule of this file: integers only. A price per verified token, never a share of a pot: rejecting a
rival earns nobody anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from atoll.errors import ProtocolError
from atoll.law.hashing import tokens_root
from atoll.law.manifest import Manifest
from atoll.law.merkle import claims_tree
from atoll.law.views import JobView
from atoll.law.words import (
    Address,
    Bitmap,
    Digest,
    Phase,
    SeatIndex,
    Terms,
    Verdict,
    VerifierIndex,
    bits,
    to_bitmap,
)

DIVERGING_SHARE: Final = 4
"""A job halts when at least one revealed seat in this many diverged and was verified."""


@dataclass(frozen=True, slots=True)
class RoundEvidence:
    """What pay depends on: who was accepted with how many steps, and which verifiers did it all.

    `steps` and `providers` speak of every accepted seat, `verifiers` of every dutiful verifier.
    """

    accepted: Bitmap
    dutiful: Bitmap
    steps: Mapping[SeatIndex, int]
    providers: Mapping[SeatIndex, Address]
    verifiers: Mapping[VerifierIndex, Address]


@dataclass(frozen=True, slots=True)
class Settlement:
    """A round's pay and the claims after it; amounts in wei, `tokens` by seat."""

    tokens: tuple[int, ...]
    pay: Mapping[Address, int]
    claims: Mapping[Address, int]
    """Cumulative over the job, every account that ever earned, zero included."""

    @property
    def tokens_total(self) -> int:
        return sum(self.tokens)

    @property
    def cumulative_total(self) -> int:
        return sum(self.claims.values())


def compute_settlement(
    terms: Terms, evidence: RoundEvidence, previous: Mapping[Address, int]
) -> Settlement:
    """Pays price · steps · tokens per step to accepted seats and the fee to dutiful verifiers.

    Args:
        previous: cumulative claims after the round before; empty for round 0.

    Raises:
        KeyError: where the evidence lacks a seat's steps or an account.
    """
    tokens = [0] * terms.seats
    pay: dict[Address, int] = {}
    for seat in map(SeatIndex, bits(evidence.accepted)):
        tokens[seat] = evidence.steps[seat] * terms.tokens_per_step
        account = evidence.providers[seat]
        pay[account] = pay.get(account, 0) + tokens[seat] * terms.price_per_token
    for verifier in map(VerifierIndex, bits(evidence.dutiful)):
        account = evidence.verifiers[verifier]
        pay[account] = pay.get(account, 0) + terms.verifier_fee
    claims = dict(previous)
    for account, amount in pay.items():
        claims[account] = claims.get(account, 0) + amount
    return Settlement(tuple(tokens), pay, claims)


def diverged_seats(steps: Mapping[SeatIndex, int], terms: Terms) -> Bitmap:
    """Seats whose training stopped being finite before the round's last step."""
    return to_bitmap(seat for seat, done in steps.items() if done < terms.steps)


def is_diverging(
    revealed: Bitmap, accepted: Bitmap, steps: Mapping[SeatIndex, int], terms: Terms
) -> bool:
    """True iff the job halts: a quarter or more of the revealed seats verifiably diverged."""
    diverged = accepted & diverged_seats(steps, terms)
    return diverged.bit_count() * DIVERGING_SHARE >= max(revealed.bit_count(), 1)


def evidence_of(view: JobView) -> RoundEvidence:
    """The current round's evidence, once the contract has cut it."""
    state = view.state
    return RoundEvidence(
        accepted=state.accepted,
        dutiful=state.dutiful,
        steps={seat: item.reveal.steps for seat, item in view.reveals.items()},
        providers={seat: item.account for seat, item in view.reveals.items()},
        verifiers={verifier: m.account for verifier, m in view.snapshot.items()},
    )


def settle_view(view: JobView, terms: Terms) -> Settlement:
    """What the current round pays, from the evidence that the contract has cut."""
    return compute_settlement(terms, evidence_of(view), view.claims)


def build_verdict(
    view: JobView, manifest: Manifest, merged_digest: Digest, merged_cid: bytes
) -> Verdict:
    """The only verdict that the evidence allows, given the merge.

    Raises:
        ProtocolError: when the round is not being attested, or the block of the cut is unknown.
        ManifestError: when the manifest's terms are not the chain's.
    """
    if view.state.phase != Phase.ATTEST:
        raise ProtocolError(f"no verdict in phase {view.state.phase.name}")
    manifest.check_terms(view.terms_hash)
    settlement = settle_view(view, manifest.terms)
    tree = claims_tree(view.domain.chain_id, view.jobs, view.job_id, settlement.claims)
    return Verdict(
        evidence_root=view.state.evidence_root,
        cut_block_hash=view.cut_hash,
        merged_digest=merged_digest,
        merged_cid=merged_cid,
        claims_root=tree.root,
        cumulative_total=settlement.cumulative_total,
        tokens_root=tokens_root(settlement.tokens),
        tokens_total=settlement.tokens_total,
        parent=view.state.parent,
    )
