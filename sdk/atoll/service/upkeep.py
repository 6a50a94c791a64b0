"""Duties that keep a job moving and its money flowing; anyone may do them, members take turns.

Rule of this file: pure, and nothing here changes what a round decides, only how soon. A step that
anyone may take is taken by the first in line; the others wait a little longer each, so that it
happens once while everyone is there and happens at all while anyone is.
"""

from __future__ import annotations

from typing import TypeVar

from atoll.law.merkle import claims_tree
from atoll.law.views import JobView, SettledRound
from atoll.law.words import Address, Digest, Phase, Role, bits
from atoll.service.commands import (
    DoUnpin,
    SendClaim,
    SendCredit,
    SendFinalise,
    SendPoke,
    SendPunish,
    SendRelease,
)
from atoll.service.config import KeeperConfig
from atoll.service.facts import BondReleased, RoundsUnpinned, release_key
from atoll.service.machine import Decision, State

S = TypeVar("S")

BEACON_PHASES = frozenset({Phase.SEEDING, Phase.DRAW})
PUNISHMENTS_AT_ONCE = 4
"""So that a long list of faults does not fill the queue in front of a commit."""


def place_in_line(view: JobView, role: Role, index: int | None) -> int:
    """How many members act before this one; turns rotate with the round.

    Providers are first where training is waited for, verifiers elsewhere; who has no place in the
    round comes last.
    """
    state = view.state
    seats = bits(state.seated) or sorted(view.seats)
    verifiers = bits(state.verifiers) or sorted(view.verifiers)
    mine, others = (seats, verifiers) if role is Role.PROVIDER else (verifiers, seats)
    if index not in mine:
        return len(seats) + len(verifiers)
    turn = (mine.index(index) - state.round - state.attempt) % len(mine)
    providers_first = state.phase in {Phase.SEEDING, Phase.TRAIN, Phase.REVEAL}
    return turn if (role is Role.PROVIDER) == providers_first else len(others) + turn


def decide_poke(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Moves the job on once its deadline or its beacon block has passed."""
    view, phase = state.view, state.view.state.phase
    late_s, late_blocks = line * config.stagger_s, line * config.stagger_blocks
    now = state.now - late_s
    block = state.head.number - (late_blocks if phase in BEACON_PHASES else 0)
    if not view.is_poke_due(now, block):
        waits_for = f"block {view.state.beacon_block}" if phase in BEACON_PHASES else "its deadline"
        return Decision("poke", f"{phase.name} waits for {waits_for}, {line} are before us")
    place = f"{view.state.round}:{view.state.attempt}:{phase.name.lower()}"
    place += f":{view.state.deadline or view.state.beacon_block}"
    if phase is Phase.WAITING:
        place += f":{len(view.seats)}:{len(view.verifiers)}:{view.state.status.name.lower()}"
    return Decision("poke", f"{phase.name} is over", (SendPoke(place),))


def decide_finalise(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Makes the oldest settled round final once its dispute window has ended."""
    view = state.view
    if not view.finalisable(state.now - line * config.stagger_s):
        return Decision("finalise", "no dispute window has ended")
    return Decision("finalise", "a dispute window has ended", (SendFinalise(view.final_rounds),))


def decide_punish(state: State[S], line: int, config: KeeperConfig) -> Decision:
    """Executes the punishments and credits that the evidence already decided."""
    view = state.view
    due = view.punishable(state.now - line * config.stagger_s)[:PUNISHMENTS_AT_ONCE]
    punish = tuple(SendPunish(fault.round, fault.offence, fault.index) for fault in due)
    may_credit = state.now >= view.closed_at + line * config.stagger_s
    credits = view.due_credits[:PUNISHMENTS_AT_ONCE] if may_credit else ()
    credit = tuple(SendCredit(c.round, c.role, c.index) for c in credits)
    return Decision("punish", f"{len(punish)} faults, {len(credit)} credits due", punish + credit)


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


def decide_release(state: State[S], role: Role) -> Decision:
    """Gets the bond unlocked once nothing that it answers for is open."""
    view, is_member = state.view, holds_place(state.view, role, state.me)
    if not is_member and not awaits_release(state, role):
        return Decision("release", "no bond is held")
    released = state.facts.get(BondReleased, release_key(role))
    if is_member and (not is_over(view) or (released is not None and released.was_over)):
        return Decision("release", "the job holds the bond, or it was released")
    if served_last(view, role, state.me) >= view.final_rounds:
        return Decision("release", "the last round served is not final")
    if any(fault.account == state.me for fault in view.due_faults):
        return Decision("release", "a punishment is pending")
    command = SendRelease(role, len(view.settled), is_over(view))
    return Decision("release", "nothing is owed any more", (command,))


def holds_place(view: JobView, role: Role, account: Address) -> bool:
    """Whether the account is a member now, or waits to become one: either locks a bond."""
    if role is Role.PROVIDER:
        return view.seat_of(account) is not None or account in view.waiting
    return view.verifier_of(account) is not None


def awaits_release(state: State[S], role: Role) -> bool:
    """Whether the bond of an earlier membership is still held."""
    released = state.facts.get(BondReleased, release_key(role))
    last = served_last(state.view, role, state.me)
    return last >= 0 and (released is None or released.settled_rounds <= last)


def served_last(view: JobView, role: Role, account: Address) -> int:
    """The last settled round in which the account had a part; −1 for none."""
    served = [past.slot.round for past in view.settled if account in _members(past, role)]
    return served[-1] if served else -1


def _members(past: SettledRound, role: Role) -> list[Address]:
    return list((past.seats if role is Role.PROVIDER else past.verifiers).values())


def decide_unpin(state: State[S], needed: int | None = None) -> Decision:
    """Lets go of the blocks of rounds that are final and that nothing starts from any more.

    Args:
        needed: the earliest round whose blocks we still need for ourselves, if any.
    """
    view = state.view
    done = state.facts.get(RoundsUnpinned, "unpinned")
    first = 0 if done is None else done.below
    # A round in dispute restarts from its parent, so the one before the first open one stays.
    below = min(view.final_rounds, view.state.round) - 1
    below = below if needed is None else min(below, needed)
    if below <= first:
        return Decision("unpin", f"keeps the rounds from {first} on")
    return Decision("unpin", f"rounds below {below} are final", (DoUnpin(first, below),))


def is_over(view: JobView) -> bool:
    """Whether no further round will run and every settled one is final."""
    closed = view.state.phase is Phase.CLOSED or view.state.status.is_closed
    return closed and view.final_rounds == len(view.settled)


def _claim_proof(state: State[S]) -> tuple[Digest, ...]:
    view = state.view
    tree = claims_tree(view.domain.chain_id, view.jobs, view.job_id, view.final_claims)
    return tuple(tree.proof(state.me))
