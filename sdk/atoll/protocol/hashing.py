"""Every hash that the contract and Python must compute alike.

Rule of this file: a hash is keccak-256 of the standard ABI encoding of a tag and its fields, so
that no two kinds of message can share a preimage. `tests/vectors/rounds.json` fixes the bytes for
both languages. What an account signs is typed data (`typed_data`), and has no tag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Final

from eth_abi.abi import encode
from eth_hash.auto import keccak

from atoll.protocol.typed_data import TypedField, TypedMessage, in_round
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    MissedDuty,
    Reveal,
    Role,
    RoundId,
    RoundRecord,
    SeatIndex,
    SlotIndex,
    Terms,
    Verdict,
)

_ROUND_ID_TYPES = ("uint256", "address", "uint256", "uint32")
_TERMS_TYPE = (
    "(uint32,uint16,uint16,uint16,uint16,uint8,uint8,uint8,uint8,uint32,uint32,uint32,uint32,uint32,"
    "uint32,uint32,uint32,uint32,uint32,uint32,uint64,uint32,uint32,uint64,"
    "uint128,uint128,uint128,uint128,uint128,bytes32)"
)
NO_SEAT: Final = SeatIndex(0)
_ACCUMULATOR_BYTES = 28
"""Of the votes' accumulator, which shares its storage word with another."""


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


def round_id_values(round_id: RoundId) -> tuple[object, ...]:
    """A round id as fields of a hash."""
    return (round_id.domain.chain_id, round_id.domain.rounds, round_id.job, round_id.round)


def hash_in_round(
    name: str, round_id: RoundId, types: Sequence[str], values: Sequence[object]
) -> Digest:
    """keccak-256 of the tag, the round id and the fields that follow them."""
    return hash_fields(
        ("bytes32", *_ROUND_ID_TYPES, *types), (tag(name), *round_id_values(round_id), *values)
    )


def round_id_hash(round_id: RoundId) -> Digest:
    """The round id as the attestation policy knows it."""
    return hash_fields(_ROUND_ID_TYPES, round_id_values(round_id))


def data_seed(round_id: RoundId, source: Digest, block_hash: Digest) -> Digest:
    """The data seed of the round in `round_id`.

    Args:
        source: reveal accumulator of the round before; zero for a round opened from WAITING.
        block_hash: of the block before the one in which that REVEAL ended, or the round opened.
    """
    return hash_in_round("atoll.data.v2", round_id, ("bytes32", "bytes32"), (source, block_hash))


def audit_seed(round_id: RoundId, reveals: Digest, block_hash: Digest) -> Digest:
    """The audit seed of a round, from the block in which its MERGE opened."""
    types = ("bytes32", "bytes32")
    return hash_in_round("atoll.audit.v3", round_id, types, (reveals, block_hash))


def commitment(
    round_id: RoundId,
    seed: Digest,
    seat: SeatIndex,
    account: Address,
    *,
    reveal: Reveal,
    model: Digest,
) -> Digest:
    """What a provider commits; the account is part of it, so that nobody can open a copy.

    Args:
        seed: the data seed.
        reveal: what will be revealed.
        model: digest of the model that the round opens from.
    """
    types = ("bytes32", "uint16", "address", "bytes32", "bytes32", "bytes32", "bytes32", "bytes32")
    checkpoint_commitments, root, key = (
        keccak256(reveal.checkpoint_commitments),
        reveal.update_root,
        reveal.key_hash,
    )
    values = (seed, seat, account, checkpoint_commitments, root, model, key, reveal.salt)
    return hash_in_round("atoll.commit.v2", round_id, types, values)


def accumulate_reveal(accumulator: Digest, seat: SeatIndex, commitment: Digest) -> Digest:
    """The running hash of a round's reveals after one more; it starts as the data seed."""
    return hash_fields(("bytes32", "uint256", "bytes32"), (accumulator, seat, commitment))


def cut_off(digest: Digest) -> Digest:
    """A digest as the votes' accumulator has it: 28 bytes and 4 zero bytes."""
    return Digest(digest[:_ACCUMULATOR_BYTES] + bytes(32 - _ACCUMULATOR_BYTES))


def accumulate_vote(accumulator: Digest, slot: SlotIndex, has: Bitmap) -> Digest:
    """The running hash of a committee draw's votes after one more."""
    return cut_off(hash_fields(("bytes32", "uint256", "uint256"), (accumulator, slot, has)))


def accumulate_votes(committee_draw: Digest, votes: Iterable[tuple[SlotIndex, Bitmap]]) -> Digest:
    """Of a committee draw with this seed: all its votes, in the chain's order."""
    accumulator = cut_off(committee_draw)
    for slot, has in votes:
        accumulator = accumulate_vote(accumulator, slot, has)
    return accumulator


def certificate_message(
    round_id: RoundId, seed: Digest, votes: Digest, verdict: Verdict
) -> TypedMessage:
    """What a committee signs: `seed` is the data seed, `votes` the accumulator."""
    return in_round(
        round_id,
        "Certificate",
        TypedField("bytes32", "seed", seed),
        TypedField("bytes32", "votes", votes),
        TypedField("uint256", "excluded", verdict.excluded),
        TypedField("uint16", "merged", verdict.merged),
        TypedField("bytes32", "state", verdict.state),
        TypedField("bytes", "cid", verdict.cid),
        TypedField("bytes8", "loss", verdict.loss),
        TypedField("bytes32", "statement", verdict.statement),
    )


def certificate_hash(round_id: RoundId, seed: Digest, votes: Digest, verdict: Verdict) -> Digest:
    """The digest of what a committee signs."""
    return certificate_message(round_id, seed, votes, verdict).digest


def record_hash(record: RoundRecord) -> Digest:
    """The one word that the contract keeps of a settled round."""
    types = ("bytes32",) * 6 + ("uint256",) * 6 + ("bytes32",)
    return hash_fields(types, (tag("atoll.round-record.v2"), *astuple(record)))


def bond_lock(job: JobId, role: Role, holder: HolderId) -> Digest:
    """Names the lock of a holder's bond in `Stakes`."""
    types = ("string", "uint256", "uint8", "uint32")
    return hash_fields(types, ("atoll.bond.v2", job, int(role), holder))


def fault_id(
    members: RoundId, role: Role, holder: HolderId, kind: MissedDuty, seat: SeatIndex = NO_SEAT
) -> Digest:
    """Names one missed duty of a holder in a round; `members.domain` has the address of Members.

    Args:
        seat: that a dropped accusation is about; 0 of other kinds.
    """
    _, contract, job, round = round_id_values(members)
    what = seat << 8 | int(kind)
    return hash_fields(
        ("bytes32", "address", "uint256", "uint8", "uint32", "uint32", "uint256"),
        (tag("atoll.fault.v3"), contract, job, int(role), holder, round, what),
    )


def update_root(size: int, piece_root: Digest) -> Digest:
    """What is committed of an update of so many bytes; `numerics.pieces` has the root over them."""
    return hash_fields(("bytes32", "uint64", "bytes32"), (tag("atoll.update.v1"), size, piece_root))


def dither_key(data_seed: Digest, seat: int, section: int, piece: int) -> Digest:
    """The key of one piece's dither in a seat's update; section 0 is the pseudo-gradient."""
    position = seat.to_bytes(2, "big") + section.to_bytes(1, "big") + piece.to_bytes(4, "big")
    return keccak256(data_seed + position)


def terms_hash(terms: Terms) -> Digest:
    """keccak256(abi.encode(Terms)), which the chain stores and the manifest must match."""
    return hash_fields((_TERMS_TYPE,), (astuple(terms),))
