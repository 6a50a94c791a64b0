"""States of the machines in which everything that a job needs is here."""

from __future__ import annotations

from typing import Any

from tests.support.identities import cid, digest
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network

from atoll.protocol.types import ZERO_DIGEST, Address, Verdict
from atoll.service.duties.material import DataReady, DoFetchData, DoFetchSpec, SpecReady
from atoll.service.duties.merge import RoundMerged, merging
from atoll.service.duties.round_start import DoPrepareRoundStart, RoundStartReady, parent_of
from atoll.service.duties.updates import DoGetUpdate, UpdateSeen
from atoll.service.entries import Entries
from atoll.service.machine import Head, Setup, State

MANIFEST = make_manifest()
URL = "http://127.0.0.1:4001"


def state_of(
    net: Network, me: Address, behaviour: Any, entries: Entries | None = None
) -> State[Any]:
    """With manifest, data and the running round's model at hand."""
    found = entries or Entries()
    found = found.plus(DoFetchSpec(b"", ZERO_DIGEST).key, SpecReady(MANIFEST.to_bytes()))
    found = found.plus(DoFetchData(b"").key, DataReady(cid("data"), ZERO_DIGEST))
    parent = parent_of(net.view)
    here, name = parent or (cid("model 0"), digest("model 0"))
    initial_state = DoPrepareRoundStart(net.view.round, b"", here, parent[1] if parent else None)
    found = found.plus(initial_state.key, RoundStartReady(here, name))
    head = Head(net.number, net.now)
    block = (net.number, net.now)
    return State(me, Setup(URL, behaviour), net.view, head, *block, found)


def with_updates(state: State[Any]) -> State[Any]:
    """Every revealed update of the running round is here."""
    from dataclasses import replace

    entries, running = state.entries, state.view.open
    assert running is not None
    for told in running.reveals.values():
        key = DoGetUpdate.kind + f":{running.round}:{told.commitment.hex()}"
        entries = entries.plus(key, UpdateSeen(True))
    return replace(state, entries=entries)


def with_merge(state: State[Any], verdict: Verdict) -> State[Any]:
    """The running round is merged to this."""
    from dataclasses import replace

    command = merging(state)
    assert command is not None
    return replace(state, entries=state.entries.plus(command.key, RoundMerged(verdict)))
