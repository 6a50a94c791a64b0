"""The signatures by which two thirds of a committee name the next model.

Rule of this file: what `EcdsaPolicy.sol` and `BlsPolicy.sol` take is taken here, and nothing else:
a map of the signers, then each one's own signature in their order, behind its length: ECDSA with
the lower of the two values of s, or what a contract takes for its own (ERC-1271), which has been
asked; or the sum of the signers' BLS12-381 signatures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from eth_keys.datatypes import Signature
from eth_keys.exceptions import BadSignature
from eth_utils.address import to_checksum_address
from eth_utils.exceptions import ValidationError

from atoll.protocol import bls
from atoll.protocol.hashing import keccak256
from atoll.protocol.types import Address, Bitmap, Digest, bits, to_bitmap

MAP_BYTES: Final = 4
SIGNATURE_BYTES: Final = 65
"""Of a key's signature."""
LENGTH_BYTES: Final = 2
MOST_SIGNATURE_BYTES: Final = 1024
"""Of a contract's signature that a client takes: whoever settles pays for its bytes."""
_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
"""Of secp256k1 (SEC 2, 2.4.1), rounded down."""
_V: Final = 27


def signer_of(digest: Digest, signature: bytes) -> Address | None:
    """The account that signed the 32 bytes as they are; None where nobody did.

    r ‖ s ‖ v, v being 27 or 28. A signature with the larger s is nobody's: one message has one.
    """
    if len(signature) != SIGNATURE_BYTES or signature[-1] - _V not in {0, 1}:
        return None
    if int.from_bytes(signature[32:64], "big") > _HALF_ORDER:
        return None
    recoverable = signature[:64] + bytes([signature[-1] - _V])
    try:
        point = Signature(recoverable).recover_public_key_from_msg_hash(digest).to_bytes()
    except (BadSignature, ValidationError):
        return None
    if not any(point):  # infinity, which libsecp256k1 and the EVM refuse and plain Python gives
        return None
    return Address(to_checksum_address(keccak256(point)[-20:]))


def certificate_bytes(committee: Sequence[Address], signatures: Mapping[Address, bytes]) -> bytes:
    """What the policy takes, of those members that have signed.

    Args:
        committee: accounts, by ascending slot.
        signatures: of members, as gateways serve them.
    """
    signed = [i for i, member in enumerate(committee) if member in signatures]
    whole = to_bitmap(signed).to_bytes(MAP_BYTES, "big")
    parts = (signatures[committee[i]] for i in signed)
    return whole + b"".join(len(part).to_bytes(LENGTH_BYTES, "big") + part for part in parts)


def parts_of(certificate: bytes) -> dict[int, bytes]:
    """Its signatures by their member's number, unchecked. Raises ValueError on another length."""
    numbers = bits(Bitmap(int.from_bytes(certificate[:MAP_BYTES], "big")))
    parts, start = {}, MAP_BYTES
    for number in numbers:
        length, begins = certificate[start : start + LENGTH_BYTES], start + LENGTH_BYTES
        start = begins + int.from_bytes(length, "big")
        parts[number] = certificate[begins:start]
    if len(certificate) != start:
        raise ValueError(f"{len(certificate)} bytes are no certificate")
    return parts


def is_enough(signed: int, committee: int) -> bool:
    """Two thirds."""
    return 3 * signed >= 2 * committee > 0


class CertificateKind(StrEnum):
    """Which certificates a job wants, by the name that a submitter writes."""

    ECDSA = "ecdsa"
    BLS = "bls"

    @property
    def policy(self) -> str:
        """The contract that checks them."""
        return {"ecdsa": "EcdsaPolicy", "bls": "BlsPolicy"}[self.value]


class Scheme(Protocol):
    """What one kind of certificate is made of."""

    def is_of(self, member: Address, digest: Digest, signature: bytes) -> bool:
        """Whether a signature as gateways serve it is the member's."""

    def certificate(self, committee: Sequence[Address], signed: Mapping[Address, bytes]) -> bytes:
        """What the policy takes, of those members (accounts by ascending slot) that signed."""

    def signers(self, digest: Digest, certificate: bytes, committee: Sequence[Address]) -> Bitmap:
        """Who of the committee signed, as the policy counts them.

        Raises ValueError on what it would refuse.
        """


@dataclass(frozen=True, slots=True)
class Ecdsa:
    """Signatures by the accounts' own keys, or as their contracts take them.

    Attributes:
        contracts: members that have code and did not sign with a key, each with the signatures that
            it takes for its own, as the chain says now: (digest, signature).
    """

    contracts: Mapping[Address, frozenset[tuple[Digest, bytes]]] = field(default_factory=dict)

    def is_of(self, member: Address, digest: Digest, signature: bytes) -> bool:
        is_answered = (digest, signature) in self.contracts.get(member, frozenset())
        return is_answered or signer_of(digest, signature) == member

    def certificate(self, committee: Sequence[Address], signed: Mapping[Address, bytes]) -> bytes:
        """Without contracts where keys are enough: an answer is dear, and may be another by then.

        Who is left out signs on the chain, and pays for that itself.
        """
        by_key = {who: each for who, each in signed.items() if who not in self.contracts}
        chosen = by_key if is_enough(len(by_key), len(committee)) else signed
        return certificate_bytes(committee, chosen)

    def signers(self, digest: Digest, certificate: bytes, committee: Sequence[Address]) -> Bitmap:
        named = Bitmap(int.from_bytes(certificate[:MAP_BYTES], "big"))
        parts = parts_of(certificate)
        if named >> len(committee):
            raise ValueError("a signer is no member")
        return to_bitmap(i for i, part in parts.items() if self.is_of(committee[i], digest, part))


@dataclass(frozen=True, slots=True)
class Bls:
    """Signatures by registered keys.

    Attributes:
        keys: of accounts, as the registry has them now; who has none cannot sign.
    """

    keys: Mapping[Address, bytes]

    def is_of(self, member: Address, digest: Digest, signature: bytes) -> bool:
        return bls.is_signed(self.keys.get(member, b""), digest, signature)

    def certificate(self, committee: Sequence[Address], signed: Mapping[Address, bytes]) -> bytes:
        numbers = [i for i, member in enumerate(committee) if member in signed]
        whole = to_bitmap(numbers).to_bytes(MAP_BYTES, "big")
        return whole + bls.added(signed[committee[i]] for i in numbers)

    def signers(self, digest: Digest, certificate: bytes, committee: Sequence[Address]) -> Bitmap:
        if len(certificate) != MAP_BYTES + bls.POINT_BYTES:
            raise ValueError(f"{len(certificate)} bytes are no certificate")
        signed = Bitmap(int.from_bytes(certificate[:MAP_BYTES], "big"))
        if signed >> len(committee):
            raise ValueError("a signer is no member")
        keys = [self.keys.get(committee[number], b"") for number in bits(signed)]
        if not bls.is_signed_by_all(keys, digest, certificate[MAP_BYTES:]):
            raise ValueError("the sum is not of all these members' signatures")
        return signed


def alone(signature: bytes, kind: CertificateKind) -> bytes:
    """The certificate of a committee of one, of a signature as gateways serve it.

    Raises ValueError where that is none of the kind.
    """
    if kind is CertificateKind.BLS:
        return (1).to_bytes(MAP_BYTES, "big") + bls.added([signature])
    nobody = Address("")
    return certificate_bytes([nobody], {nobody: signature})
