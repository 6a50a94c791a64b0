"""The provider's machine: what a provider does now, from the chain's mirror and its journal.

Rule of this file: pure. Each `_decide_…` is one duty of PROVIDER.md, in the order in which they
matter when several want the same minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from atoll.law.hashing import commitment
from atoll.law.manifest import Manifest
from atoll.law.views import JobView
from atoll.law.words import (
    ZERO_DIGEST,
    Digest,
    JobStatus,
    Phase,
    Role,
    SeatIndex,
)
from atoll.service.commands import SendJoin, SendLeave
from atoll.service.config import KeeperConfig
from atoll.service.facts import SpecReady, manifest_of
from atoll.service.machine import Command, Decision, Event, State, advance
from atoll.service.membership import (
    decide_announce,
    decide_material,
    decide_opening,
    has_material,
    opening_of,
    parent_of,
)
from atoll.service.upkeep import (
    awaits_release,
    decide_claim,
    decide_finalise,
    decide_poke,
    decide_punish,
    decide_release,
    decide_unpin,
    place_in_line,
)
from atoll_node.behaviour import ProviderBehaviour
from atoll_node.commands import DoTrain, DoTrainAhead, SendAnswer, SendCommit, SendReveal
from atoll_node.facts import Trained, TrainedAhead, ahead_key, trained_key, unanswerable_key


@dataclass(frozen=True, slots=True)
class ProviderSetup:
    """What does not change while the service runs.

    Attributes:
        gateway_url: what is announced on chain.
        auto_claim: `never`, `each` or `end`.
    """

    gateway_url: str
    keeper: KeeperConfig = field(default_factory=KeeperConfig)
    auto_claim: str = "end"
    behaviour: ProviderBehaviour = field(default_factory=ProviderBehaviour)


ProviderState: TypeAlias = State[ProviderSetup]


def step(state: ProviderState, event: Event) -> tuple[ProviderState, list[Command]]:
    """Takes an event in and says what to start now."""
    return advance(state, event, decide)


def decide(state: ProviderState) -> list[Decision]:
    """Every duty's wish, the urgent ones first."""
    view, setup = state.view, state.setup
    seat = view.active_seat_of(state.me)
    line = place_in_line(view, Role.PROVIDER, seat)
    return [
        _decide_reveal(state, seat),
        _decide_commit(state, seat),
        _decide_answers(state),
        decide_poke(state, line, setup.keeper),
        decide_material(state),
        decide_announce(state, setup.gateway_url),
        _decide_membership(state),
        decide_opening(state) if seat is not None else Decision("opening", "no seat to train for"),
        _decide_ahead(state, seat),
        _decide_train(state, seat),
        decide_finalise(state, _after_verifiers(view, line), setup.keeper),
        decide_punish(state, _after_verifiers(view, line), setup.keeper),
        decide_claim(state, setup.auto_claim),
        decide_release(state, Role.PROVIDER),
        decide_unpin(state, _moments_round(state)),
    ]


def _after_verifiers(view: JobView, line: int) -> int:
    """Verifiers look after final rounds; a provider does it where none of them does."""
    return line + len(view.verifiers)


def _decide_membership(state: ProviderState) -> Decision:
    """Takes a seat or a place in the waiting list; leaves when asked to."""
    view = state.view
    if view.state.status.is_closed or view.state.status is JobStatus.NONE:
        return Decision("membership", f"the job is {view.state.status.name}")
    seat, queued = view.seat_of(state.me), state.me in view.waiting
    if state.draining:
        return _decide_leaving(view, seat, queued)
    if seat is not None or queued:
        return Decision("membership", "queued" if seat is None else f"holds seat {seat}")
    obstacle = _obstacle(state)
    if obstacle:
        return Decision("membership", obstacle)
    bond = view.require_terms().provider_bond
    return Decision("membership", "joins", (SendJoin(Role.PROVIDER, bond),))


def _obstacle(state: ProviderState) -> str:
    """Why we do not join now; empty where we do."""
    if not has_material(state):
        return "joins once manifest and data are here"
    if _was_rejected(state):
        return "was rejected; joins again only when told to"
    if awaits_release(state, Role.PROVIDER):
        return "joins again once the earlier bond is released"
    if not state.setup.behaviour.may_join(state.view):
        return "waits with joining, as its behaviour says"
    return ""


def _decide_leaving(view: JobView, seat: SeatIndex | None, queued: bool) -> Decision:
    if seat is None and not queued:
        return Decision("membership", "has left")
    if seat is not None and view.leaving >> seat & 1:
        return Decision("membership", "leaves when this round is settled")
    return Decision("membership", "asked to leave", (SendLeave(Role.PROVIDER),))


def _was_rejected(state: ProviderState) -> bool:
    """Whether a settled round, or a pending fault, took our seat for what we did in it."""
    me = state.me
    for past in state.view.settled:
        mine = [seat for seat, holder in past.seats.items() if holder == me]
        if any(past.evidence.rejected >> seat & 1 for seat in mine):
            return True
    return False


def _decide_train(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Trains the running round, once."""
    view = state.view
    if seat is None or view.state.phase is not Phase.TRAIN:
        return Decision("train", f"no seat in TRAIN ({view.state.phase.name})")
    opening = opening_of(state)
    spec = state.facts.get(SpecReady, "spec")
    if spec is None or opening is None:
        return Decision("train", "waits for the round's global state")
    if _trained(state, seat) is not None or view.state.committed >> seat & 1:
        return Decision("train", f"round {view.state.round} is trained")
    if state.now >= view.state.deadline:
        return Decision("train", "the window to commit is over")
    command = _training(state, seat, spec, (opening.cid, opening.digest))
    if ahead_key(command.key) in state.in_flight:
        return Decision("train", f"trains round {view.state.round}, its first segments ahead")
    return Decision("train", f"trains round {view.state.round}", (command,))


def _decide_ahead(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Trains what of the running round needs no merged model, while that is on its way."""
    view, parent = state.view, parent_of(state.view)
    spec, manifest = state.facts.get(SpecReady, "spec"), manifest_of(state.facts)
    if seat is None or view.state.phase is not Phase.TRAIN or parent is None:
        return Decision("ahead", f"no merged model to wait for ({view.state.phase.name})")
    if spec is None or manifest is None or not has_material(state):
        return Decision("ahead", "waits for the manifest and the data")
    training = _training(state, seat, spec, parent)
    command, resets = DoTrainAhead(training), training.optimiser is None
    if resets or not (manifest.segments_ahead and state.setup.behaviour.trains_ahead):
        return Decision("ahead", "the first segment needs the merged model")
    # What is under way is finished: training anew from the opening would take longer.
    if opening_of(state) is not None and command.key not in state.in_flight:
        return Decision("ahead", "the merged model is here")
    if training.begun or view.state.committed >> seat & 1 or state.now >= view.state.deadline:
        return Decision("ahead", "trained what comes before the merged model, or too late")
    return Decision("ahead", f"begins round {view.state.round}", (command,))


def _training(
    state: ProviderState, seat: SeatIndex, spec: SpecReady, opening: tuple[bytes, Digest]
) -> DoTrain:
    """The running round's training; `opening` is CID and digest of the state it starts from."""
    view, behaviour = state.view, state.setup.behaviour
    slot, (cid, digest) = view.train_slot, opening
    key = trained_key(slot.round, slot.attempt, seat, view.state.data_seed, digest)
    ahead = state.facts.get(TrainedAhead, ahead_key(key))
    return DoTrain(
        slot=slot,
        seat=seat,
        data_seed=view.state.data_seed,
        manifest=spec.manifest,
        opening=cid,
        opening_digest=digest,
        optimiser=_own_optimiser(state, seat, Manifest.from_bytes(spec.manifest)),
        function=behaviour.train_function,
        extra=behaviour.train_extra(view),
        key=key,
        begun=ahead.trace if ahead else b"",
        blind_key=ahead.blind_key if ahead else b"",
    )


def _own_optimiser(state: ProviderState, seat: SeatIndex, manifest: Manifest) -> bytes | None:
    """The seat state that the chain last accepted from us; None opens with a reset.

    Where rounds open with our own parameters, those of a round that was not the last are stale.
    """
    accepted = _accepted(state, seat)
    if accepted is None:
        return None
    if manifest.codec.carries_params:
        whole = accepted.reveal.steps == manifest.inner.steps
        if not whole or accepted.round != state.view.train_slot.round - 1:
            return None
    return accepted.carried_state


def _accepted(state: ProviderState, seat: SeatIndex) -> Trained | None:
    """Our last training whose moments the chain accepted."""
    root = state.view.last_optimiser_root(seat)
    mine = [t for t in state.facts.all_of(Trained) if t.reveal.optimiser_root == root]
    return mine[-1] if mine and root != ZERO_DIGEST else None


def _moments_round(state: ProviderState) -> int | None:
    """The round whose carried state the next one opens with."""
    seat = state.view.seat_of(state.me)
    accepted = None if seat is None else _accepted(state, seat)
    return None if accepted is None else accepted.round


def _trained(state: ProviderState, seat: SeatIndex) -> Trained | None:
    opening = opening_of(state)
    if opening is None:
        return None
    slot, seed = state.view.train_slot, state.view.state.data_seed
    return state.facts.get(
        Trained, trained_key(slot.round, slot.attempt, seat, seed, opening.digest)
    )


def _decide_commit(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Commits to what was trained, before the window ends."""
    view = state.view
    if seat is None or view.state.phase is not Phase.TRAIN:
        return Decision("commit", "nothing to commit to now")
    if view.state.committed >> seat & 1:
        return Decision("commit", f"committed in round {view.state.round}")
    trained = _trained(state, seat)
    if trained is None:
        return Decision("commit", "waits for training")
    if state.now >= view.state.deadline:
        return Decision("commit", "the window to commit is over")
    if state.setup.behaviour.skips_commit(view):
        return Decision("commit", "the behaviour does not commit")
    return Decision("commit", "trained", (_commit_command(state, seat, trained),))


def _commit_command(state: ProviderState, seat: SeatIndex, trained: Trained) -> SendCommit:
    view, slot = state.view, state.view.train_slot
    own = commitment(slot, seat, state.me, trained.reveal)
    value = state.setup.behaviour.commit_override(view, own)
    return SendCommit(slot.round, slot.attempt, value, commit_guard(seat, trained))


def commit_guard(seat: int, trained: Trained) -> str:
    """The journal slot of a commitment: one for each seat, attempt and data seed.

    The data seed is part of it because a reorg that changes the seed makes a new slot of it.
    """
    seed: Digest = trained.data_seed
    return f"commit:{trained.round}:{trained.attempt}:{seat}:{seed.hex()}"


def _decide_reveal(state: ProviderState, seat: SeatIndex | None) -> Decision:
    """Opens the commitment and starts to serve what it is about."""
    view = state.view
    if seat is None or view.state.phase is not Phase.REVEAL:
        return Decision("reveal", "nothing to reveal now")
    if not (view.state.committed & ~view.state.revealed) >> seat & 1:
        return Decision("reveal", "did not commit in this round, or has revealed")
    trained = _trained(state, seat)
    if trained is None:
        return Decision("reveal", "the journal has no training for this commitment")
    if state.now >= view.state.deadline:
        return Decision("reveal", "the window to reveal is over")
    if state.setup.behaviour.skips_reveal(view):
        return Decision("reveal", "the behaviour does not reveal")
    slot = view.train_slot
    return Decision("reveal", "committed", (SendReveal(slot.round, slot.attempt, trained.reveal),))


def _decide_answers(state: ProviderState) -> Decision:
    """Puts challenged blocks of ours on the chain where they are small enough."""
    view, answers = state.view, state.setup.behaviour.answers
    if view.state.phase is not Phase.REPORT or state.now >= view.state.deadline:
        return Decision("answer", "no challenge can be answered now")
    challenges = [
        record
        for record in view.attempt_reports
        if record.accused == state.me and record.awaits_answer
    ]
    due = [
        SendAnswer(view.slot, record.index, record.report.evidence)
        for record in challenges
        if unanswerable_key(record.report.evidence) not in state.facts
        and answers(view, record, state.now)
    ]
    return Decision("answer", f"answers {len(due)} of {len(challenges)} challenges", tuple(due))
