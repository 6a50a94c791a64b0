"""What an account signs: EIP-712 typed data, so that a wallet shows what it is.

Rule of this file: a message is one struct of plain fields, under the domain of the contract that it
is for. Its digest is computed here, as the contracts do; a wallet computes it from `shown`.

Source: EIP-712; `eth_signTypedData_v4` for how a wallet is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from eth_abi.abi import encode
from eth_hash.auto import keccak

from atoll.protocol.types import Address, Digest, RoundId

NAME: Final = "Atoll"
VERSION: Final = "1"
_DOMAIN: Final = (
    ("string", "name"),
    ("string", "version"),
    ("uint256", "chainId"),
    ("address", "verifyingContract"),
)
_DYNAMIC: Final = frozenset({"bytes", "string"})


@dataclass(frozen=True, slots=True)
class TypedField:
    """A member of the struct; `type` is Solidity's, and no struct or array."""

    type: str
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class TypedMessage:
    """A struct and where it holds.

    Attributes:
        contract: that checks it, or that whoever checks it knows.
        name: of the struct.
    """

    chain_id: int
    contract: Address
    name: str
    fields: tuple[TypedField, ...]

    @property
    def digest(self) -> Digest:
        """The 32 bytes that are signed. Raises eth_abi's EncodingError on a value out of range."""
        values = (NAME, VERSION, self.chain_id, self.contract)
        domain = tuple(
            TypedField(*each, value) for each, value in zip(_DOMAIN, values, strict=True)
        )
        separator, content = _struct("EIP712Domain", domain), _struct(self.name, self.fields)
        return Digest(keccak(b"\x19\x01" + separator + content))

    @property
    def shown(self) -> dict[str, Any]:
        """What `eth_signTypedData_v4` takes: JSON, whose whole numbers are decimal text."""
        return {
            "types": {
                "EIP712Domain": [{"name": name, "type": kind} for kind, name in _DOMAIN],
                self.name: [{"name": each.name, "type": each.type} for each in self.fields],
            },
            "primaryType": self.name,
            "domain": {
                "name": NAME,
                "version": VERSION,
                "chainId": self.chain_id,
                "verifyingContract": self.contract,
            },
            "message": {each.name: _shown(each.value) for each in self.fields},
        }


def in_round(round_id: RoundId, name: str, *fields: TypedField) -> TypedMessage:
    """A message about a round, under the domain of the rounds contract."""
    domain = round_id.domain
    about = (
        TypedField("uint256", "job", round_id.job),
        TypedField("uint32", "round", round_id.round),
    )
    return TypedMessage(domain.chain_id, domain.rounds, name, (*about, *fields))


def enrolment(
    chain_id: int, members: Address, job: int, slot: int, *, bond: int, account: Address
) -> TypedMessage:
    """What an account shows at the members contract to take a slot: that it can sign."""
    fields = (
        TypedField("uint256", "job", job),
        TypedField("uint16", "slot", slot),
        TypedField("uint128", "bond", bond),
        TypedField("address", "account", account),
    )
    return TypedMessage(chain_id, members, "Enrolment", fields)


def _struct(name: str, fields: tuple[TypedField, ...]) -> bytes:
    kind = f"{name}({','.join(f'{each.type} {each.name}' for each in fields)})"
    types = ["bytes32" if each.type in _DYNAMIC else each.type for each in fields]
    return keccak(keccak(kind.encode()) + encode(types, [_word(each) for each in fields]))


def _word(field: TypedField) -> Any:
    if field.type not in _DYNAMIC:
        return field.value
    return keccak(field.value.encode() if field.type == "string" else field.value)


def _shown(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
