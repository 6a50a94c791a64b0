"""What accounts sign: the contracts hash it as a wallet does. And what contracts answer."""

from __future__ import annotations

import json
from dataclasses import astuple

import pytest
from eth_account.messages import encode_typed_data
from eth_utils.crypto import keccak
from tests.integration.chain.local_anvil import Anvil
from tests.support.identities import address, digest

from atoll.chain.contracts import AtollChain
from atoll.chain.keys import account_of
from atoll.protocol.hashing import certificate_message
from atoll.protocol.typed_data import TypedMessage, enrolment
from atoll.protocol.types import Address, Bitmap, JobId, RoundId, RoundIndex, Verdict

VERDICT = Verdict(Bitmap(1 << 200 | 5), 7, digest("state"), b"\x01\x55cid", b"\x7f" + bytes(7))
YES = "0x631626ba7e60e01b5f5260205ff3"  # PUSH4 magic, PUSH1 224, SHL, and the word is returned
EATS = "0x5b5f56"  # JUMPDEST, PUSH0, JUMP: for ever
CALLER = "0x3360e01b5f5260205ff3"  # something else


def by_wallet(message: TypedMessage) -> bytes:
    """As whoever gets it by `eth_signTypedData_v4` hashes it."""
    asked = encode_typed_data(full_message=json.loads(json.dumps(message.shown)))
    return keccak(b"\x19" + asked.version + asked.header + asked.body)


async def test_a_wallet_and_the_contracts_hash_the_same(chain: AtollChain) -> None:
    deployment = chain.deployment
    round_id = RoundId(deployment.domain, JobId(3), RoundIndex(2))
    message = certificate_message(round_id, digest("seed"), digest("votes"), VERDICT)
    plain = astuple(VERDICT)
    given = (3, 2, digest("seed"), digest("votes"), plain)
    (hashed,) = await chain.read("certificateHash", *given, contract="Rounds")
    assert hashed == message.digest == by_wallet(message)
    members, me = deployment.addresses["Members"], address("me")
    shown = enrolment(deployment.chain_id, members, 3, 1, bond=5, account=me)
    (hashed,) = await chain.read("enrolmentHash", 3, 1, 5, me, contract="Members")
    assert hashed == shown.digest == by_wallet(shown)
    for contract, said in (("Rounds", message), ("Members", shown)):
        fields, *domain = await chain.read("eip712Domain", contract=contract)
        names = ("name", "version", "chainId", "verifyingContract")
        assert fields == b"\x0f"
        asked = said.shown["domain"] | {"verifyingContract": said.contract.lower()}
        assert dict(zip(names, domain[:4], strict=True)) == asked


@pytest.mark.parametrize(("code", "answer"), [(YES, True), (EATS, False), (CALLER, False)])
async def test_a_contract_is_asked_and_no_more_than_it_may_take(
    chain: AtollChain, anvil: Anvil, code: str, answer: bool
) -> None:
    wallet = address(code)
    anvil.ask("anvil_setCode", wallet, code)
    assert await chain.is_signer(wallet, digest("certificate"), b"of any length") is answer


async def test_an_account_with_a_key_signs_with_it(chain: AtollChain, anvil: Anvil) -> None:
    account, said = account_of(b"\x21" * 32), digest("certificate")
    me = Address(account.address)
    signature = bytes(account.unsafe_sign_hash(said).signature)
    assert await chain.is_signer(me, said, signature)
    assert not await chain.is_signer(me, digest("another"), signature)
    assert not await chain.is_signer(me, said, b"")
    assert not await chain.is_signer(address("stranger"), said, signature)
    anvil.ask("anvil_setCode", me, EATS)  # as EIP-7702 gives it some
    assert await chain.is_signer(me, said, signature)
