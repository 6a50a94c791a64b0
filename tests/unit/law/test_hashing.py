"""Hashes bind what they say they bind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.law.factories import SLOT, address, digest, make_manifest, make_reveal

from atoll.law import hashing
from atoll.law.words import Attempt, Domain, Offence, RoundIndex, SeatIndex

SEAT, SENDER = SeatIndex(1), address("provider")


def test_keccak_is_ethereums() -> None:
    empty = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert hashing.keccak256(b"").hex() == empty


def test_a_commitment_by_another_sender_or_seat_or_slot_is_another() -> None:
    reveal = make_reveal()
    variants = {
        hashing.commitment(SLOT, SEAT, SENDER, reveal),
        hashing.commitment(SLOT, SeatIndex(2), SENDER, reveal),
        hashing.commitment(SLOT, SEAT, address("copier"), reveal),
        hashing.commitment(replace(SLOT, attempt=Attempt(2)), SEAT, SENDER, reveal),
        hashing.commitment(replace(SLOT, round=RoundIndex(4)), SEAT, SENDER, reveal),
        hashing.commitment(
            replace(SLOT, domain=Domain(1, SLOT.domain.rounds)), SEAT, SENDER, reveal
        ),
        hashing.commitment(
            replace(SLOT, domain=Domain(31337, address("other"))), SEAT, SENDER, reveal
        ),
    }
    assert len(variants) == 7


def test_a_fault_is_the_same_in_every_attempt_of_its_round() -> None:
    later = replace(SLOT, attempt=Attempt(2))
    for offence in Offence:
        assert hashing.fault_id(SLOT, offence, 3) == hashing.fault_id(later, offence, 3)


def test_a_data_seed_from_an_audit_is_for_a_first_attempt() -> None:
    with pytest.raises(ValueError, match="retrained"):
        hashing.data_seed_from_audit(SLOT, digest("audit"))


def test_data_seeds_from_a_block_and_from_an_audit_share_one_form() -> None:
    first = replace(SLOT, attempt=Attempt(0))
    from_block = hashing.data_seed_from_block(first, digest("source"))
    assert hashing.data_seed_from_audit(first, digest("source")) == from_block


def test_terms_that_differ_in_one_field_hash_differently() -> None:
    terms = make_manifest().terms
    assert hashing.terms_hash(terms) != hashing.terms_hash(replace(terms, seats=terms.seats + 1))


def test_a_claim_is_bound_to_its_escrow_and_chain() -> None:
    leaves = {
        hashing.claim_leaf(1, address("jobs"), SLOT.job, SENDER, 5),
        hashing.claim_leaf(2, address("jobs"), SLOT.job, SENDER, 5),
        hashing.claim_leaf(1, address("others"), SLOT.job, SENDER, 5),
        hashing.claim_leaf(1, address("jobs"), SLOT.job, SENDER, 6),
    }
    assert len(leaves) == 4
