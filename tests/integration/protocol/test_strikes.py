"""Strikes on a chain: the contract takes what a search of the store finds, and of true merges
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.protocol.chains import Chain, Reverted
from tests.integration.protocol.folding import started
from tests.integration.protocol.live import Live, live_terms
from tests.support.contracts import reveal_of
from tests.support.identities import digest
from tests.unit.protocol.script import WATCHER
from tests.vectors import generate_merge
from tests.vectors.generate_merge import manifest_of, model_of, updates_of

from atoll.aggregation.merge_round import MergedUpdate, merge_updates
from atoll.aggregation.stated_merge import MergedLayout, merged_pieces, statement_of
from atoll.chain.call import Call
from atoll.chain.contract_calls import Calls
from atoll.chain.deployment import REQUIRED, Deployment
from atoll.numerics.pieces import root_of_update
from atoll.numerics.sections import joined
from atoll.numerics.state import GlobalState
from atoll.numerics.trace.build.whole import program_of
from atoll.protocol.call_structs import RoundOpening
from atoll.protocol.events import MergeStruck, Missed
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.strikes import AHEAD, StrikePlace, StrikeProof, parts_of
from atoll.protocol.types import (
    ZERO_DIGEST,
    Bitmap,
    Digest,
    MissedDuty,
    RoundIndex,
    SeatIndex,
)
from atoll.storage.cid import RAW, Cid
from atoll.storage.local import LocalStore
from atoll.train import strike_search
from atoll.train.strike_search import StrikeSearch

SEATS = 4
ALL = Bitmap((1 << SEATS) - 1)


class Committee:
    """A job of the small model on the chain, and what its committee may say of round 0."""

    def __init__(self, chain: Chain, folder: Path, kind: str) -> None:
        self.manifest = manifest_of(kind, "trimmed_mean", "nesterov", inner="adamw")
        self.model = model_of(self.manifest, 0)
        self.store = LocalStore(str(folder))
        self.opening = self.store.add_pieces(self.model.pieces()).to_bytes()
        terms = self.manifest.terms
        self.initial = self.model.digest()
        root = program_of(self.manifest, self.initial).root
        expiry = chain.now + 100_000
        self.script = started(
            chain, live_terms(expiry=expiry, program=root, f=terms.f, steps=80, segment_steps=10)
        )
        net = self.script.net
        assert isinstance(net, Live)
        self.net, self.updates = net, dict[int, bytes]()

    def reveal(self, has: int | None = None) -> None:
        """Everybody sends a real update, and the committee has all or these seats' of them."""
        sections = updates_of(self.manifest, self.model, {}, None)
        self.updates = {seat: joined(parts) for seat, parts in sections.items()}
        script, net = self.script, self.net
        net.advance()
        for seat in sorted(net.waited):
            reveal, _, _ = reveal_of(f"{net.seed.hex()} {seat}", 8)
            root = root_of_update(self.updates[seat])
            script.reveals[seat] = replace(reveal, update_root=root)
            who = script.account(seat)
            net.commit(who, net.commitment(who, seat, script.reveals[seat]))
        for seat in sorted(net.waited):
            script.reveal(seat)
        script.say(has=has)

    def merged(self, seats: Bitmap = ALL) -> MergedUpdate:
        done = dict.fromkeys(map(SeatIndex, range(SEATS)), self.manifest.segments)
        record = MergeRecord(ALL, 1, [ALL], done)
        updates = {s: u for s, u in self.updates.items() if seats >> s & 1}
        about = {"record": record, "data_seed": self.net.seed, "manifest": self.manifest}
        return merge_updates(self.model, updates, **about)

    def certify(self, merged: MergedUpdate) -> None:
        """Stores what follows from it, and settles."""
        rows = len(merged.inputs.mergeable)
        layout = MergedLayout.of(self.manifest, self.model.shapes, 0, rows)
        update = b"".join(merged_pieces(merged, layout))
        cid = self.store.add_pieces([update])
        after: GlobalState = merged.moves(self.model.copied(), self.manifest)
        statement = statement_of(merged, after, root_of_update(update), cid.to_bytes())
        self.store.put_block(Cid(RAW, statement.digest), statement.to_bytes())
        net = self.net
        net.statement, net.state_of = statement.digest, lambda round, merged: after.digest()
        excluded = set(map(int, merged.inputs.excluded))
        self.script.settle(excluded, len(merged.inputs.merged))

    def search(self) -> StrikeProof | None:
        settled = self.net.folded.settled[0]
        return StrikeSearch(
            manifest=self.manifest,
            initial=self.initial,
            round=0,
            data_seed=settled.record.seed,
            available=settled.record.available,
            owed=settled.record.available,
            verdict=settled.verdict,
            updates=self.updates,
            store=self.store,
            opened=settled.record.model,
            opening=self.opening,
        ).search()

    def certify_nothing(self, state: Digest) -> None:
        """Settles a round that merged nothing, and whose state is that."""
        net = self.net
        net.statement, net.state_of = ZERO_DIGEST, lambda round, merged: state
        self.script.settle(set(), 0)

    def strike(self, proof: StrikeProof) -> None:
        """Announced, and then shown."""
        net, salt = self.net, digest("salt")
        addresses = dict.fromkeys(REQUIRED, net.chain.strikes.address)
        calls = Calls(Deployment(net.domain.chain_id, 0, addresses))
        strikes = calls.strikes(net.domain.chain_id)
        commitment = strikes.commitment(WATCHER, net.job, RoundIndex(0), proof.place, salt)
        about = calls.about(net.folded.settled[0])
        self._send(calls.announce(commitment))
        for part in parts_of(proof.updates):
            self._send(about.show_rows(proof, part))
        net.chain.anvil.ask("anvil_mine", hex(AHEAD))
        net.chain.now += AHEAD
        self._send(about.strike(proof, salt))

    def _send(self, call: Call) -> None:
        self.net.chain.transact({"from": WATCHER, "to": call.to, "data": "0x" + call.data.hex()})


@pytest.fixture(autouse=True)
def four_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_merge, "SEATS", SEATS)


def lie_at(merged: MergedUpdate) -> MergedUpdate:
    """Another number at the last coordinate of the last tensor."""
    name = max(merged.numerators, key=str.encode)
    values = merged.numerators[name].clone()
    values.reshape(-1)[-1] = 1 if int(values.reshape(-1)[-1]) < 0 else -1
    return replace(merged, numerators=merged.numerators | {name: values})


@pytest.mark.parametrize("kind", ["grid8", "grid4", "two_bit", "sign"])
def test_a_number_that_no_updates_give(chain: Chain, tmp_path: Path, kind: str) -> None:
    committee = Committee(chain, tmp_path, kind)
    committee.reveal()
    committee.certify(lie_at(committee.merged()))
    proof = committee.search()
    assert proof is not None and proof.place.section == 0
    committee.strike(proof)
    events = chain.said()
    (struck,) = [event for event in events if isinstance(event, MergeStruck)]
    missed = [event for event in events if isinstance(event, Missed)]
    assert struck.by == WATCHER
    assert {event.kind for event in missed} == {MissedDuty.MISMERGED}
    assert len(missed) == struck.signers.bit_count() > 0
    bond = committee.net.terms.verifier_bond
    assert all(event.penalty == bond // 2 for event in missed)


@pytest.mark.parametrize("kind", ["grid8", "two_bit"])
def test_a_true_merge_stands_whatever_is_shown(chain: Chain, tmp_path: Path, kind: str) -> None:
    committee = Committee(chain, tmp_path, kind)
    committee.reveal()
    merged = committee.merged()
    committee.certify(merged)
    assert committee.search() is None
    statement = committee.store.get_block(Cid(RAW, committee.net.statement))
    program = program_of(committee.manifest, committee.initial)
    assert program.merge is not None
    leaves = len(program.tree.levels[0])
    path = tuple(program.tree.path(leaves - 1))
    shown = (statement, program.merge.to_bytes(), leaves, path)
    for place in (StrikePlace(), StrikePlace(seat=SeatIndex(0))):
        with pytest.raises(Reverted):
            committee.strike(StrikeProof(place, *shown))
    model, place = committee.model, StrikePlace(is_derived=True)
    header, path = program.header.to_bytes(), tuple(program.tree.path(0))
    opening = RoundOpening(b"".join(model.roots()), model.exponent_bytes(), header, path)
    with pytest.raises(Reverted):
        committee.strike(StrikeProof(place, *shown, opening=opening))


def with_an_exponent(merged: MergedUpdate) -> MergedUpdate:
    """Another of the last tensor."""
    name = max(merged.exponents, key=str.encode)
    return replace(merged, exponents=merged.exponents | {name: merged.exponents[name] - 1})


def with_a_moment_exponent(merged: MergedUpdate) -> MergedUpdate:
    exponents = {name: value + 1 for name, value in merged.moment_exponents.items()}
    return replace(merged, moment_exponents=exponents)


def with_a_vote(merged: MergedUpdate) -> MergedUpdate:
    """Beyond what one may be."""
    first = merged.stated[0]
    votes = ((5, *first.votes[0][1:]), *first.votes[1:])
    return replace(merged, stated=(replace(first, votes=votes), *merged.stated[1:]))


def with_a_group(merged: MergedUpdate) -> MergedUpdate:
    """Of two rows, where the rule mixes none."""
    first = merged.stated[-1]
    groups = first.groups.copy()
    groups[0] = groups[0] | groups[1]
    return replace(merged, stated=(*merged.stated[:-1], replace(first, groups=groups)))


@pytest.mark.parametrize(
    "lie", [with_an_exponent, with_a_moment_exponent, with_a_vote, with_a_group]
)
def test_what_does_not_follow_in_a_statement(
    chain: Chain, tmp_path: Path, lie: Callable[[MergedUpdate], MergedUpdate]
) -> None:
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal()
    committee.certify(lie(committee.merged()))
    proof = committee.search()
    assert proof is not None and proof.place == StrikePlace(is_derived=True)
    assert (proof.opening is None) == (lie is with_a_group)
    committee.strike(proof)
    assert any(isinstance(event, MergeStruck) for event in chain.said())


def other_exponents(committee: Committee) -> bytes:
    exponents = {name: value + 1 for name, value in committee.model.exponents.items()}
    return committee.store.add_pieces(
        replace(committee.model, exponents=exponents).pieces()
    ).to_bytes()


def no_state(committee: Committee) -> bytes:
    return committee.store.add_pieces([b"of nothing"]).to_bytes()


def nowhere(committee: Committee) -> bytes:
    return Cid(RAW, digest("nobody has it")).to_bytes()


def no_cid(committee: Committee) -> bytes:
    return b"no CID"


@pytest.mark.parametrize("is_true", [False, True])
@pytest.mark.parametrize("opening", [other_exponents, no_state, nowhere, no_cid])
def test_a_false_cid_of_the_opening_state_hides_no_number(
    chain: Chain, tmp_path: Path, opening: Callable[[Committee], bytes], is_true: bool
) -> None:
    """A certificate's CID is bound to nothing, and who signed it also chose what it names."""
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal()
    merged = committee.merged()
    committee.certify(merged if is_true else lie_at(merged))
    committee.opening = opening(committee)
    proof = committee.search()
    assert (proof is None) == is_true
    assert proof is None or proof.place.section == 0


def test_an_update_that_is_in_no_list(chain: Chain, tmp_path: Path) -> None:
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal()
    committee.certify(committee.merged(Bitmap(ALL & ~0b10)))
    proof = committee.search()
    assert proof is not None and proof.place == StrikePlace(seat=SeatIndex(1))
    committee.strike(proof)
    assert any(isinstance(event, MergeStruck) for event in chain.said())


def test_a_certificate_of_another_state_than_the_statement(chain: Chain, tmp_path: Path) -> None:
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal()
    other = digest("another state")
    settle = committee.script.settle

    def elsewhere(excluded: set[int] | None = None, merged: int | None = None) -> None:
        committee.net.state_of = lambda round, merged: other
        settle(excluded, merged)

    committee.script.settle = elsewhere  # type: ignore[method-assign]
    committee.certify(committee.merged())
    proof = committee.search()
    assert proof is not None and proof.place == StrikePlace()
    committee.strike(proof)
    assert any(isinstance(event, MergeStruck) for event in chain.said())


# --- rounds that merged nothing ---


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a job begins is the model of the vectors, which no folder has."""

    def first(manifest: object, store: object) -> GlobalState:
        del store
        return model_of(manifest, 0)

    monkeypatch.setattr(strike_search, "open_initial_state", first)


@pytest.mark.usefixtures("begun")
def test_nothing_was_merged_although_all_were_there(chain: Chain, tmp_path: Path) -> None:
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal()
    committee.certify_nothing(replace(committee.model, round=1).digest())
    proof = committee.search()
    assert proof is not None and (proof.place.is_nothing, proof.owed) == (True, ALL)
    committee.strike(proof)
    assert any(isinstance(event, MergeStruck) for event in chain.said())


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("is_lie", [False, True])
def test_where_nothing_could_be_merged_the_state_is_carried_over(
    chain: Chain, tmp_path: Path, is_lie: bool
) -> None:
    committee = Committee(chain, tmp_path, "grid8")
    committee.reveal(has=1)
    carried = replace(committee.model, round=1)
    committee.certify_nothing(digest("another") if is_lie else carried.digest())
    proof = committee.search()
    if not is_lie:
        assert proof is None
        return
    assert proof is not None and proof.carried is not None
    assert proof.carried.parts == b"".join(committee.model.roots())
    committee.strike(proof)
    assert any(isinstance(event, MergeStruck) for event in chain.said())
