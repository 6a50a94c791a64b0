"""Duties before and after the rounds: the job's data, the bond, the gateway's address, leaving.

Rule of this file: pure. Nothing is staked on a job before its manifest was held against the chain,
this machine reproduced its probe, and every shard is here.
"""

from __future__ import annotations

from typing import TypeVar

from atoll.law.views import JobView
from atoll.law.words import Digest, JobStatus, RoundIndex
from atoll.service.commands import (
    DoFetchData,
    DoFetchSpec,
    DoPrepareOpening,
    SendAnnounce,
)
from atoll.service.facts import DataReady, JobRefused, OpeningReady, SpecReady, opening_key
from atoll.service.machine import Decision, State

S = TypeVar("S")


def decide_material(state: State[S]) -> Decision:
    """Gets the manifest, tries the probe, then gets the data."""
    view, facts = state.view, state.facts
    refused = facts.get(JobRefused, "refused")
    if refused is not None:
        return Decision("material", f"refused: {refused.reason}")
    if view.state.status is JobStatus.NONE or view.state.status.is_closed:
        return Decision("material", f"the job is {view.state.status.name}")
    spec = facts.get(SpecReady, "spec")
    if spec is None:
        command = DoFetchSpec(view.spec_cid, view.terms_hash)
        return Decision("material", "the manifest is not here", (command,))
    if "data" not in facts:
        return Decision("material", "the data is not here", (DoFetchData(spec.manifest),))
    return Decision("material", "manifest and data are here")


def has_material(state: State[S]) -> bool:
    """Whether everything that a round needs, beside the model, is in the store."""
    return state.facts.get(DataReady, "data") is not None and "refused" not in state.facts


def decide_announce(state: State[S], url: str) -> Decision:
    """Says on chain where our blocks are served, whenever that changes."""
    announced = state.view.gateways.get(state.me)
    if announced == url or state.view.state.status.is_closed:
        return Decision("announce", f"announced {url}")
    return Decision("announce", f"announced {announced}, serving {url}", (SendAnnounce(url),))


def decide_opening(state: State[S]) -> Decision:
    """Gets the global state that the running round starts from."""
    spec = state.facts.get(SpecReady, "spec")
    if spec is None or not has_material(state):
        return Decision("opening", "waits for the manifest and the data")
    if opening_of(state) is not None:
        return Decision("opening", "the round's global state is here")
    round_ = state.view.state.round
    parent = parent_of(state.view)
    if round_ > 0 and parent is None:
        return Decision("opening", f"round {round_} has no parent verdict yet")
    cid, digest = (None, None) if parent is None else parent
    command = DoPrepareOpening(round_, spec.manifest, cid, digest)
    return Decision("opening", "the round's global state is not here", (command,))


def opening_of(state: State[S]) -> OpeningReady | None:
    """The running round's opening state, once it is here."""
    round_, parent = state.view.state.round, parent_of(state.view)
    if round_ > 0 and parent is None:
        return None
    return state.facts.get(OpeningReady, opening_key(round_, parent[1] if parent else None))


def parent_of(view: JobView) -> tuple[bytes, Digest] | None:
    """CID and digest of the merged state that the running round starts from; None in round 0."""
    if view.state.round == 0:
        return None
    settled = view.settled_round(RoundIndex(view.state.round - 1))
    return None if settled is None else (settled.verdict.merged_cid, settled.verdict.merged_digest)
