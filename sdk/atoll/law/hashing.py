"""Every hash that the contract and Python must compute alike.

Rule of this file: a hash is keccak-256 of the standard ABI encoding of a tag and its fields, so
that no two kinds of message can share a preimage. `tests/vectors/hashing.json` fixes the bytes for
both languages. Source: EIP-712's separation by domain and type, without its typed-data framing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple

from eth_abi.abi import encode
from eth_hash.auto import keccak

from atoll.law.words import (
    Address,
    Digest,
    Evidence,
    JobId,
    Offence,
    Reveal,
    SeatIndex,
    Slot,
    Terms,
    Verdict,
)

_SLOT_TYPES = ("uint256", "address", "uint256", "uint32", "uint16")
_TERMS_TYPE = (
    "(uint32,uint16,uint16,uint16,uint16,uint16,uint16,uint16,uint16,uint16,"
    "uint32,uint32,uint32,uint32,uint32,uint32,uint64,uint32,uint64,"
    "uint128,uint128,uint128,uint128,uint128,bytes32)"
)


def keccak256(data: bytes) -> Digest:
    """keccak-256 as Ethereum uses it (original padding, not SHA-3's)."""
    return Digest(keccak(data))


def sha256(data: bytes) -> Digest:
    """SHA-256 (FIPS 180-4): the hash of content."""
    return Digest(hashlib.sha256(data).digest())


def tag(name: str) -> Digest:
    """The first field of every hashed message: keccak-256 of its name and version."""
    return keccak256(name.encode())


def hash_fields(types: Sequence[str], values: Sequence[object]) -> Digest:
    """keccak-256 of `abi.encode(values)`. Raises EncodingError on a value out of range."""
    return keccak256(encode(list(types), list(values)))


def _slot_values(slot: Slot) -> tuple[object, ...]:
    return (slot.domain.chain_id, slot.domain.rounds, slot.job, slot.round, slot.attempt)


def _hash_in_slot(name: str, slot: Slot, types: Sequence[str], values: Sequence[object]) -> Digest:
    """keccak-256 of the tag, the slot and the fields that follow them."""
    return hash_fields(("bytes32", *_SLOT_TYPES, *types), (tag(name), *_slot_values(slot), *values))


def slot_hash(slot: Slot) -> Digest:
    """The slot as the attestation policy knows it."""
    return hash_fields(_SLOT_TYPES, _slot_values(slot))


def commitment(slot: Slot, seat: SeatIndex, sender: Address, reveal: Reveal) -> Digest:
    """What a provider commits; `slot.attempt` is the attempt that trained.

    The sender is part of it, so a copied commitment cannot be opened by another account.
    """
    types = ("uint16", "address", "bytes32", "bytes32", "bytes32", "uint32", "bool", "bytes32")
    values = (
        seat,
        sender,
        reveal.trace_root,
        reveal.update_root,
        reveal.optimiser_root,
        reveal.steps,
        reveal.reset,
        reveal.salt,
    )
    cids = (keccak256(reveal.update_cid), keccak256(reveal.trace_cid))
    return _hash_in_slot("atoll.commit.v1", slot, (*types, "bytes32", "bytes32"), (*values, *cids))


def accumulate_commit(accumulator: Digest, seat: SeatIndex, commitment_: Digest) -> Digest:
    """The running hash of a round's commits after one more; it starts at zero."""
    return hash_fields(("bytes32", "uint16", "bytes32"), (accumulator, seat, commitment_))


def accumulate_reveal(
    accumulator: Digest, seat: SeatIndex, commitment_: Digest, opening: Digest
) -> Digest:
    """The running hash of a round's reveals after one more.

    Args:
        commitment_: what was revealed, account included.
        opening: the optimiser root that the seat's round opens with.
    """
    return hash_fields(
        ("bytes32", "uint16", "bytes32", "bytes32"), (accumulator, seat, commitment_, opening)
    )


def round_facts(data_seed: Digest, reveal_accumulator: Digest, parent: Digest) -> Digest:
    """What the contract remembers of a settled round, so that a claim about it can be proved."""
    return hash_fields(("bytes32", "bytes32", "bytes32"), (data_seed, reveal_accumulator, parent))


def update_root(size: int, piece_root: Digest) -> Digest:
    """What is committed of an update of so many bytes; `bits.pieces` has the root over them."""
    return hash_fields(("bytes32", "uint64", "bytes32"), (tag("atoll.update.v1"), size, piece_root))


def dither_key(data_seed: Digest, seat: int, section: int, piece: int) -> Digest:
    """The key of one piece's dither in a seat's update; section 0 is the pseudo-gradient."""
    place = seat.to_bytes(2, "big") + section.to_bytes(1, "big") + piece.to_bytes(4, "big")
    return keccak256(data_seed + place)


def audit_seed(
    slot: Slot, commit_accumulator: Digest, reveal_accumulator: Digest, beacon_hash: Digest
) -> Digest:
    """The seed of an audit; `slot.attempt` is the attempt that audits."""
    return _hash_in_slot(
        "atoll.audit.v1",
        slot,
        ("bytes32", "bytes32", "bytes32"),
        (commit_accumulator, reveal_accumulator, beacon_hash),
    )


def data_seed_from_block(slot: Slot, beacon_hash: Digest) -> Digest:
    """The data seed of round 0, of a retrained attempt, and of a round opened from WAITING."""
    return _hash_in_slot("atoll.data.v1", slot, ("bytes32",), (beacon_hash,))


def data_seed_from_audit(slot: Slot, first_audit_seed: Digest) -> Digest:
    """The data seed of the round in `slot` (attempt 0), from the previous round's first audit."""
    if slot.attempt != 0:
        raise ValueError(f"a retrained attempt ({slot.attempt}) takes its data seed from a block")
    return _hash_in_slot("atoll.data.v1", slot, ("bytes32",), (first_audit_seed,))


def evidence_root(
    slot: Slot, evidence: Evidence, audit_seed_: Digest, reveal_accumulator: Digest
) -> Digest:
    """What a verdict must be about: the bitmaps that the contract derived, and their origin."""
    return _hash_in_slot(
        "atoll.evidence.v1",
        slot,
        ("uint256",) * 6 + ("bytes32", "bytes32"),
        (*astuple(evidence), audit_seed_, reveal_accumulator),
    )


def verdict_hash(slot: Slot, verdict: Verdict) -> Digest:
    """What verifiers attest."""
    types = ("bytes32",) * 5 + ("uint256", "bytes32", "uint256", "bytes32")
    values = (
        verdict.evidence_root,
        verdict.cut_block_hash,
        verdict.merged_digest,
        keccak256(verdict.merged_cid),
        verdict.claims_root,
        verdict.cumulative_total,
        verdict.tokens_root,
        verdict.tokens_total,
        verdict.parent,
    )
    return _hash_in_slot("atoll.verdict.v1", slot, types, values)


def tokens_root(tokens: Sequence[int]) -> Digest:
    """Hash of the verified tokens by seat; the list has `Terms.seats` entries."""
    return hash_fields(("uint64[]",), (list(tokens),))


def terms_hash(terms: Terms) -> Digest:
    """keccak256(abi.encode(Terms)), which the chain stores and the manifest must match."""
    return hash_fields((_TERMS_TYPE,), (astuple(terms),))


def fault_id(slot: Slot, offence: Offence, index: int) -> Digest:
    """Names one punishable offence of a round, once; the slot's attempt is not part of it."""
    chain_id, rounds, job, round_, _ = _slot_values(slot)
    return hash_fields(
        ("bytes32", "uint256", "address", "uint256", "uint32", "uint8", "uint16"),
        (tag("atoll.fault.v1"), chain_id, rounds, job, round_, int(offence), index),
    )


def claim_leaf(
    chain_id: int, jobs: Address, job: JobId, account: Address, cumulative: int
) -> Digest:
    """A leaf of the claims tree: double-hashed, bound to the escrow contract of one chain."""
    inner = hash_fields(
        ("bytes32", "uint256", "address", "uint256", "address", "uint256"),
        (tag("atoll.claim.v1"), chain_id, jobs, job, account, cumulative),
    )
    return keccak256(inner)
