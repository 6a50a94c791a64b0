"""Hashes: what is in each of them, and that nothing else gives the same."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from tests.support.contracts import bitmap, hashed, reveal_of, tagged
from tests.support.identities import ROUND_ID, address, digest
from tests.support.manifests import make_terms
from tests.unit.protocol.network import Network

from atoll.protocol import hashing
from atoll.protocol.types import (
    ZERO_DIGEST,
    Bitmap,
    HolderId,
    JobId,
    MissedDuty,
    Role,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
)

SENDER, SEED, MODEL = address("provider"), digest("seed"), digest("model")
REVEAL, _, _ = reveal_of("reveal", 3)


def test_keccak_is_ethereums() -> None:
    """Of no bytes: not SHA-3's, whose padding differs."""
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert hashing.keccak256(b"").hex() == empty


def test_hashes_are_words_one_after_another() -> None:
    """As the network that knows no ABI writes them."""
    round_id = replace(ROUND_ID, round=RoundIndex(0))
    net = Network()
    net.seed, net.model = SEED, MODEL
    seat = SeatIndex(5)
    given = hashing.commitment(round_id, SEED, seat, SENDER, reveal=REVEAL, model=MODEL)
    assert given == net.commitment(SENDER, 5, REVEAL)
    assert hashing.data_seed(round_id, SEED, MODEL) == tagged("atoll.data.v2", 0, SEED, MODEL)
    assert hashing.audit_seed(round_id, SEED, MODEL) == tagged("atoll.audit.v3", 0, SEED, MODEL)
    assert hashing.accumulate_reveal(SEED, seat, MODEL) == hashed(SEED, 5, MODEL)
    said = hashing.accumulate_vote(SEED, SlotIndex(3), Bitmap(6))
    assert said == hashed(SEED, 3, 6)[:28] + bytes(4)
    assert hashing.accumulate_votes(SEED, []) == SEED[:28] + bytes(4)


def test_a_commitment_binds_everything_but_the_cid() -> None:
    def of(**changes: Any) -> bytes:
        given: dict[str, Any] = {
            "round_id": ROUND_ID, "seed": SEED, "seat": SeatIndex(5), "account": SENDER,
            "reveal": REVEAL, "model": MODEL,
        }  # fmt: skip
        return hashing.commitment(**{**given, **changes})

    others = [
        of(round_id=replace(ROUND_ID, round=RoundIndex(9))),
        of(round_id=replace(ROUND_ID, job=JobId(9))),
        of(seed=MODEL),
        of(seat=SeatIndex(6)),
        of(account=address("thief")),
        of(model=SEED),
        *(
            of(reveal=replace(REVEAL, **{name: digest(name)}))
            for name in ("update_root", "key_hash", "salt", "checkpoint_commitments")
        ),
    ]
    assert len({of(), *others}) == 11
    assert of(reveal=replace(REVEAL, update_cid=b"")) == of()


def test_round_records_that_differ_anywhere_hash_differently() -> None:
    record = RoundRecord(*(digest(i) for i in range(5)), *(bitmap({i}) for i in range(6)))  # type: ignore[arg-type]
    hashes = {hashing.record_hash(record)}
    for field in fields(record):
        is_bitmap = isinstance(getattr(record, field.name), int)
        other = Bitmap(77) if is_bitmap else digest("other")
        hashes.add(hashing.record_hash(replace(record, **{field.name: other})))
    assert len(hashes) == 13


def test_terms_that_differ_in_one_field_hash_differently() -> None:
    terms = make_terms()
    hashes = {hashing.terms_hash(terms), hashing.terms_hash(replace(terms, program=digest("p")))}
    for field in fields(terms)[:-1]:
        hashes.add(hashing.terms_hash(replace(terms, **{field.name: 77})))
    assert len(hashes) == len(fields(terms)) + 1


def test_locks_and_faults_are_of_one_holder() -> None:
    one, two = HolderId(1), HolderId(2)
    locks = {
        hashing.bond_lock(JobId(j), role, h) for j in (1, 2) for role in Role for h in (one, two)
    }
    assert len(locks) == 8
    faults = {
        hashing.fault_id(replace(ROUND_ID, round=RoundIndex(r)), role, h, kind)
        for r in (0, 1)
        for role in Role
        for h in (one, two)
        for kind in MissedDuty
    }
    assert len(faults) == 8 * len(MissedDuty)


def test_a_round_id_is_its_chain_contract_job_and_round() -> None:
    domain = ROUND_ID.domain
    numbers = (domain.chain_id, int(domain.rounds, 16), ROUND_ID.job, ROUND_ID.round)
    assert hashing.round_id_hash(ROUND_ID) == hashed(*numbers)


def test_update_roots_bind_the_size() -> None:
    assert hashing.update_root(1, ZERO_DIGEST) != hashing.update_root(2, ZERO_DIGEST)
