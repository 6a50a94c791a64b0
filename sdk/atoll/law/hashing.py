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

from atoll.law.words import Digest, Slot, Terms

_SLOT_TYPES = ("uint256", "address", "uint256", "uint32")
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


def slot_values(slot: Slot) -> tuple[object, ...]:
    """A slot as fields of a hash."""
    return (slot.domain.chain_id, slot.domain.rounds, slot.job, slot.round)


def hash_in_slot(name: str, slot: Slot, types: Sequence[str], values: Sequence[object]) -> Digest:
    """keccak-256 of the tag, the slot and the fields that follow them."""
    return hash_fields(("bytes32", *_SLOT_TYPES, *types), (tag(name), *slot_values(slot), *values))


def slot_hash(slot: Slot) -> Digest:
    """The slot as the attestation policy knows it."""
    return hash_fields(_SLOT_TYPES, slot_values(slot))


def update_root(size: int, piece_root: Digest) -> Digest:
    """What is committed of an update of so many bytes; `bits.pieces` has the root over them."""
    return hash_fields(("bytes32", "uint64", "bytes32"), (tag("atoll.update.v1"), size, piece_root))


def dither_key(data_seed: Digest, seat: int, section: int, piece: int) -> Digest:
    """The key of one piece's dither in a seat's update; section 0 is the pseudo-gradient."""
    place = seat.to_bytes(2, "big") + section.to_bytes(1, "big") + piece.to_bytes(4, "big")
    return keccak256(data_seed + place)


def terms_hash(terms: Terms) -> Digest:
    """keccak256(abi.encode(Terms)), which the chain stores and the manifest must match."""
    return hash_fields((_TERMS_TYPE,), (astuple(terms),))
