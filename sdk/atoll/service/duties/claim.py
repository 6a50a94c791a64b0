"""Collects our pay from final rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Never, TypeVar

from atoll.law.merkle import claims_tree
from atoll.law.views import JobView
from atoll.law.words import Digest
from atoll.service.commands import Done, Transaction
from atoll.service.duties.upkeep import is_over
from atoll.service.machine import Decision, State

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class SendClaim(Transaction[Never]):
    """Collect `due` wei: pay up to `cumulative`, proven against the final claims root, and credits.

    Without a proof only credits are collected.
    """

    cumulative: int
    due: int
    proof: tuple[Digest, ...]

    @property
    def about(self) -> tuple[object, ...]:
        return (self.cumulative, self.due)

    async def perform(self, effects: Effects, view: JobView) -> Done[Never]:
        me = effects.context.me
        call = effects.calls.claim(view.job_id, me, self.cumulative, list(self.proof))
        return await effects.transact_again(view, self, call)


# --- decisions ---


def decide_claim(state: State[S], when: str) -> Decision:
    """Collects our pay from final rounds: after `each`, at the `end`, or `never`."""
    view = state.view
    due = view.claimable(state.me)
    if due <= 0:
        return Decision("claim", "nothing more is final")
    if when == "never" or (when == "end" and not is_over(view)):
        return Decision("claim", f"{due} wei can be claimed, waiting: {when}")
    earned = view.final_claims.get(state.me, 0)
    claim = SendClaim(earned, due, _claim_proof(state) if earned else ())
    return Decision("claim", f"{due} wei can be claimed", (claim,))


def _claim_proof(state: State[S]) -> tuple[Digest, ...]:
    view = state.view
    tree = claims_tree(view.domain.chain_id, view.jobs, view.job_id, view.final_claims)
    return tuple(tree.proof(state.me))
