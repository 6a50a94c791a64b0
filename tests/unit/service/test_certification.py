"""By which keys a job's certificates are signed, and what of others' signatures is taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_account import Account
from structlog.testing import capture_logs
from tests.support.identities import address, digest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import Script

from atoll.chain.deployment import REQUIRED, Deployment
from atoll.chain.keys import sign_typed
from atoll.errors import ConfigError
from atoll.protocol import bls
from atoll.protocol.bls_arkworks import Arkworks
from atoll.protocol.bls_library import InUse
from atoll.protocol.certificates import (
    Bls,
    CertificateKind,
    Ecdsa,
    certificate_bytes,
    signer_of,
)
from atoll.protocol.obligations import committee_accounts
from atoll.protocol.open_rounds import OpenRound
from atoll.protocol.typed_data import TypedMessage, enrolment
from atoll.protocol.types import Address, Bitmap, Digest, Domain, JobId, RoundIndex
from atoll.protocol.views import JobView
from atoll.service.duties import certification
from atoll.service.duties.certification import (
    enrolment_of,
    ensure_key,
    ensure_sum,
    kind_of,
    own_secret,
    signature_bytes,
    signature_of,
    sound,
)
from atoll.service.effects import Effects

ADDRESSES = {name: address(name) for name in (*REQUIRED, "BlsPolicy")}
DEPLOYMENT = Deployment(31337, 0, ADDRESSES)
MESSAGE = TypedMessage(31337, ADDRESSES["Rounds"], "Certificate", ())
HASH = MESSAGE.digest
KEY = Account.from_key(bytes([7]) * 32)
ME = Address(KEY.address)
PLAIN = JobView.of(Domain(31337, ADDRESSES["Rounds"]), JobId(1))
OLD = replace(PLAIN, policy=ADDRESSES["EcdsaPolicy"])
NEW = replace(PLAIN, policy=ADDRESSES["BlsPolicy"])
OTHERS = [address(f"member {i}") for i in range(3)]
SECRETS = {member: bls.secret_of(member.encode()) for member in OTHERS}


@dataclass
class Member:
    """Its own key, the registry's, and what was sent."""

    keys: dict[Address, bytes] = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)
    sums: dict[tuple[Address, ...], bytes] = field(default_factory=dict)
    contracts: dict[Address, bytes] = field(default_factory=dict)
    asked: int = 0

    async def code_at(self, account: Address) -> bytes:
        return b"code" if account in self.contracts else b""

    async def is_signer(self, account: Address, digest: Digest, signature: bytes) -> bool:
        return self.contracts[account] == signature

    async def bls_key(self, account: Address) -> bytes:
        self.asked += 1
        return self.keys.get(account, b"")

    async def bls_sum(self, accounts: list[Address]) -> bytes:
        return self.sums.get(tuple(accounts), b"")

    async def submit(self, name: str, call: Any, *, retry_failed: bool = False) -> None:
        self.sent[name] = call

    async def wait(self, name: str) -> None:
        key, proof = self.sent[name]
        message = bls.proof_message(31337, ADDRESSES["BlsPolicy"], ME, key)
        assert bls.is_signed_by_all([key], message, proof) is False  # another domain
        self.keys[ME] = key

    @property
    def effects(self) -> Effects:
        asked = {
            "bls_key": self.bls_key,
            "bls_sum": self.bls_sum,
            "code_at": self.code_at,
            "is_signer": self.is_signer,
        }
        chain = SimpleNamespace(deployment=DEPLOYMENT, **asked)
        calls = SimpleNamespace(register=lambda key, proof: (key, proof), keep=tuple)
        context = SimpleNamespace(
            me=ME, chain=chain, queue=self, sign=lambda message: sign_typed(KEY, message)
        )
        return cast(Effects, SimpleNamespace(context=context, calls=calls))


def test_the_jobs_policy_says_which() -> None:
    assert (kind_of(OLD, DEPLOYMENT), kind_of(NEW, DEPLOYMENT)) == (
        CertificateKind.ECDSA,
        CertificateKind.BLS,
    )
    assert [signature_bytes(kind) for kind in CertificateKind] == [1024, 96]
    for view, addresses in (
        (replace(PLAIN, policy=address("new")), ADDRESSES),
        (NEW, {name: address(name) for name in REQUIRED}),
    ):
        with pytest.raises(ConfigError, match="is not known here"):
            kind_of(view, Deployment(31337, 0, addresses))


def test_our_signature_is_of_the_kind_that_the_job_wants() -> None:
    context = Member().effects.context
    assert signer_of(HASH, signature_of(context, OLD, MESSAGE)) == ME
    key = bls.key_of(own_secret(context))
    assert bls.is_signed(key, HASH, signature_of(context, NEW, MESSAGE))
    # From the account's key alone: another process, another disk, the same.
    assert own_secret(Member().effects.context) == own_secret(context)


async def test_a_key_is_registered_once_and_only_where_it_is_wanted() -> None:
    member = Member()
    await ensure_key(member.effects, OLD)
    assert member.asked == 0 and not member.sent
    for _ in range(2):
        await ensure_key(member.effects, NEW)
    assert len(member.sent) == 1
    assert member.keys == {ME: bls.key_of(own_secret(member.effects.context))}
    with pytest.raises(ConfigError, match="is not known here"):
        await ensure_key(member.effects, PLAIN)


@pytest.mark.parametrize("reason", [None, "arkworks and py-ecc differ in keys"])
async def test_a_member_with_the_slow_library_is_warned(
    monkeypatch: pytest.MonkeyPatch, reason: str | None
) -> None:
    monkeypatch.setattr(certification, "in_use", lambda: InUse(Arkworks(), reason))
    with capture_logs() as logs:
        await ensure_key(Member().effects, NEW)
    warned = [line["cause"] for line in logs if line["event"] == "bls_by_the_reference"]
    assert warned == ([reason] if reason else [])


async def test_an_account_with_another_key_is_told_so() -> None:
    member = Member(keys={ME: b"\1" * 96})
    with pytest.raises(ConfigError, match="has another key"):
        await ensure_key(member.effects, NEW)
    assert not member.sent


@pytest.fixture
def script() -> Script:
    """Two rounds are settled by one pool, and a third runs; four more are to come."""
    made = Script.ready(make_terms(rounds=7))
    for _ in range(2):
        made.honest_round()
    return made


def running(script: Script, **changes: Any) -> tuple[JobView, OpenRound]:
    view = replace(script.net.view, policy=ADDRESSES["BlsPolicy"])
    assert view.open is not None
    return view, replace(view.open, **changes)


def with_keys(script: Script) -> Member:
    view, now = running(script)
    return Member(keys=dict.fromkeys(committee_accounts(view, now), b"\1" * 96))


async def test_a_committees_sum_is_asked_for_once(script: Script) -> None:
    member, (view, now) = with_keys(script), running(script)
    for _ in range(2):
        await ensure_sum(member.effects, view, now)
    committee = tuple(committee_accounts(view, now))
    assert list(member.sent.values()) == [committee]
    member.sent.clear()
    member.sums[committee] = b"\2" * 96
    await ensure_sum(member.effects, view, now)
    assert not member.sent


async def test_no_sum_is_asked_for_that_saves_nothing(script: Script) -> None:
    view, now = running(script)
    terms = view.require_terms()
    for odd, round in (
        (replace(view, policy=ADDRESSES["EcdsaPolicy"]), now),
        (replace(view, terms=replace(terms, rounds=RoundIndex(6))), now),
        (view, replace(now, ready=Bitmap(now.ready | 1 << 40))),  # drawn, or it has changed
        (view, replace(now, round_id=replace(now.round_id, round=RoundIndex(0)))),
        (view, replace(now, committee=Bitmap(7), ready=Bitmap(7))),  # another than before
    ):
        member = with_keys(script)
        await ensure_sum(member.effects, odd, round)
        assert not member.sent
    member = with_keys(script)
    member.keys.popitem()  # the registry would refuse it
    await ensure_sum(member.effects, view, now)
    assert not member.sent


async def test_whose_signature_does_not_stand_is_excluded() -> None:
    registry = {member: bls.key_of(secret) for member, secret in SECRETS.items()}
    member = Member(keys=registry)
    signed = {who: bls.sign(secret, HASH) for who, secret in SECRETS.items()}
    scheme, kept = await sound(member.effects, NEW, HASH, signed)
    assert isinstance(scheme, Bls) and kept == signed
    assert scheme.signers(HASH, scheme.certificate(OTHERS, kept), OTHERS) == 0b111
    # The second's is of something else; the third has another key since its was heard.
    bad = signed | {OTHERS[1]: bls.sign(SECRETS[OTHERS[1]], digest("else"))}
    member.keys[OTHERS[2]] = bls.key_of(9)
    scheme, kept = await sound(member.effects, NEW, HASH, bad)
    assert kept == {OTHERS[0]: signed[OTHERS[0]]}
    assert scheme.signers(HASH, scheme.certificate(OTHERS, kept), OTHERS) == 1
    del member.keys[OTHERS[0]]
    assert (await sound(member.effects, NEW, HASH, bad))[1] == {}


async def test_accounts_sign_with_their_own_keys() -> None:
    member = Member()
    mine = sign_typed(KEY, MESSAGE)
    scheme, kept = await sound(member.effects, OLD, HASH, {ME: mine, OTHERS[0]: mine})
    assert kept == {ME: mine} and member.asked == 0
    assert scheme == Ecdsa()


async def test_contracts_are_asked_and_taken_where_keys_are_not_enough() -> None:
    member, mine = Member(), sign_typed(KEY, MESSAGE)
    first, second, third = OTHERS
    member.contracts = {first: b"a Safe's", second: b"another"}
    served = {ME: mine, first: b"a Safe's", second: b"not its own", third: b"of no contract"}
    scheme, kept = await sound(member.effects, OLD, HASH, served)
    assert kept == {ME: mine, first: b"a Safe's"}
    # One key of two is not two thirds; of one it is.
    assert scheme.signers(HASH, scheme.certificate([ME, first], kept), [ME, first]) == 0b11
    assert scheme.certificate([ME], kept) == certificate_bytes([ME], {ME: mine})
    assert scheme.certificate([ME, first, second], kept) == certificate_bytes([ME, first], kept)
    with_no = certificate_bytes([ME, first, second], served)
    assert scheme.signers(HASH, with_no, [ME, first, second]) == 0b011  # as the policy counts
    assert scheme.signers(HASH, certificate_bytes([ME, third], served), [ME, third]) == 1


async def test_what_we_show_to_enrol_is_of_this_slot_and_bond() -> None:
    context = Member().effects.context
    asked = (31337, ADDRESSES["Members"], OLD.job_id, 3)
    message = enrolment(*asked, bond=7, account=ME)
    assert signer_of(message.digest, enrolment_of(context, OLD, 3, 7)) == ME
    assert enrolment_of(context, NEW, 3, 7) == b""  # its registered key shows it
