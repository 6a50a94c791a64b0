"""What accounts sign is what a wallet shows: its digest is eth-account's, as it is ours."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from eth_account import Account
from eth_account.messages import _hash_eip191_message, encode_typed_data
from tests.support.identities import address, cid, digest

from atoll.chain.keys import sign_typed
from atoll.protocol import audit_reports, bls, checkpoint_commitments
from atoll.protocol.certificates import signer_of
from atoll.protocol.hashing import certificate_message
from atoll.protocol.typed_data import TypedField, TypedMessage, enrolment
from atoll.protocol.types import (
    Address,
    Bitmap,
    Domain,
    HolderId,
    JobId,
    Role,
    RoundId,
    RoundIndex,
    SeatIndex,
    Verdict,
)
from atoll.service import greeting, stand_statements
from atoll.service.stand_statements import Stand, StandStatement

DOMAIN = Domain(31337, address("rounds"))
ROUND_ID = RoundId(DOMAIN, JobId(2**64 - 1), RoundIndex(3))
KEY = Account.from_key(b"\x07" * 32)
ME = Address(KEY.address)
VERDICT = Verdict(Bitmap(1 << 255 | 1), 65_535, digest("state"), cid("state"), b"\xff" * 8)
STATEMENT = StandStatement(Role.VERIFIER, Stand.REFUSES, 1_800_000_000, '360 s — "too short"')
MESSAGES = (
    certificate_message(ROUND_ID, digest("seed"), digest("votes"), VERDICT),
    enrolment(1, address("members"), 7, 31, bond=2**128 - 1, account=ME),
    checkpoint_commitments.key_message(ROUND_ID, digest("seed"), SeatIndex(255)),
    checkpoint_commitments.salt_message(ROUND_ID, digest("seed"), SeatIndex(255)),
    audit_reports.salt_message(ROUND_ID, digest("audit"), HolderId(2**32 - 1)),
    bls.secret_message(1, address("registry"), ME),
    greeting._message(DOMAIN, ME, "http://203.0.113.7:4001", 1_800_000_000),
    stand_statements.message_of(DOMAIN, JobId(7), ME, STATEMENT),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_a_wallet_signs_the_digest_that_we_check(message: TypedMessage) -> None:
    """`eth_signTypedData_v4` gets JSON, and so does this."""
    asked = json.loads(json.dumps(message.shown))
    assert _hash_eip191_message(encode_typed_data(full_message=asked)) == message.digest
    by_wallet = Account.sign_typed_data(KEY.key, full_message=asked).signature
    assert sign_typed(KEY, message) == bytes(by_wallet)
    assert signer_of(message.digest, bytes(by_wallet)) == ME


def test_no_two_messages_have_one_digest() -> None:
    assert len({message.digest for message in MESSAGES}) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_every_field_chain_and_contract_is_signed(message: TypedMessage) -> None:
    others = [
        replace(message, chain_id=2),
        replace(message, contract=address("another")),
        replace(message, name="Another"),
    ]
    for i, each in enumerate(message.fields):
        changed = (*message.fields[:i], _other(each), *message.fields[i + 1 :])
        others.append(replace(message, fields=changed))
    assert len({message.digest, *(each.digest for each in others)}) == len(others) + 1


def _other(each: TypedField) -> TypedField:
    if isinstance(each.value, int):
        return replace(each, value=each.value ^ 1)
    if each.type == "address":
        return replace(each, value=address("another"))
    first, rest = each.value[:1], each.value[1:]
    return replace(each, value=("~" if isinstance(first, str) else b"~") + rest)
