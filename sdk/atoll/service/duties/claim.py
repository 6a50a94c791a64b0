"""Collects our pay from final rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atoll.chain.calls import Call, Calls
from atoll.law.merkle import claims_tree
from atoll.law.views import JobView
from atoll.law.words import Address, Digest
from atoll.service.commands import ContractCall
from atoll.service.duties.upkeep import is_over
from atoll.service.machine import Decision, State

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SendClaim(ContractCall):
    """Collect `due` wei: pay up to `cumulative`, proven against the final claims root, and credits.

    Without a proof only credits are collected.
    """

    account: Address
    cumulative: int
    due: int
    proof: tuple[Digest, ...]

    @property
    def about(self) -> tuple[object, ...]:
        return (self.cumulative, self.due)

    def call(self, calls: Calls, view: JobView) -> Call:
        return calls.claim(view.job_id, self.account, self.cumulative, list(self.proof))


# --- decisions ---


def decide_claim(state: State[S], when: str) -> Decision:
    """Collects our pay from final rounds: after `each`, at the `end`, or `never`."""
    view = state.view
    due = view.claimable(state.me)
    if due <= 0:
        return Decision("claim", "nothing more is final")
    if when == "never" or (when == "end" and not is_over(view)):
        return Decision("claim", f"{due} wei can be claimed, waiting: {when}")
    # What claims trees give waits while a game about our work is open; credits do not.
    earned = 0 if view.is_held(state.me) else view.final_claims.get(state.me, 0)
    claim = SendClaim(state.me, earned, due, _claim_proof(state) if earned else ())
    return Decision("claim", f"{due} wei can be claimed", (claim,))


def _claim_proof(state: State[S]) -> tuple[Digest, ...]:
    view = state.view
    tree = claims_tree(view.domain.chain_id, view.jobs, view.job_id, view.final_claims)
    return tuple(tree.proof(state.me))
