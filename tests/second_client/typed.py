"""What accounts sign, from the text of EIP-712 alone: SPEC-ROUNDS.md, 2.

A struct's fields are (type, name, value), none of them a struct or an array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.second_client.words import abi, keccak

Field = tuple[str, str, Any]


def typed(name: str, where: tuple[int, bytes], fields: Iterable[Field]) -> bytes:
    """The digest of a struct under the domain of a contract; `where` is (chain id, contract)."""
    chain, contract = where
    domain = _hash_struct(
        "EIP712Domain",
        (
            ("string", "name", b"Atoll"),
            ("string", "version", b"1"),
            ("uint256", "chainId", chain),
            ("address", "verifyingContract", contract),
        ),
    )
    return keccak(b"\x19\x01" + domain + _hash_struct(name, tuple(fields)))


def in_round(name: str, round_id: tuple[int, bytes, int, int], fields: Iterable[Field]) -> bytes:
    """Of a struct that begins with job and round; a round id is (chain, contract, job, round)."""
    chain, contract, job, round = round_id
    about = (("uint256", "job", job), ("uint32", "round", round))
    return typed(name, (chain, contract), (*about, *fields))


def _hash_struct(name: str, fields: tuple[Field, ...]) -> bytes:
    kind = f"{name}(" + ",".join(f"{type} {field}" for type, field, _ in fields) + ")"
    return keccak(keccak(kind.encode()) + b"".join(_word(type, value) for type, _, value in fields))


def _word(type: str, value: Any) -> bytes:
    if type in {"string", "bytes"}:
        return keccak(value)
    # Shorter bytes stand at the left of their word, numbers and addresses at the right.
    return value.ljust(32, b"\0") if type.startswith("bytes") else abi(value)
