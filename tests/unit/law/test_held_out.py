"""Reports of held-out losses: what is signed, what is read, whose it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account
from tests.unit.law.factories import digest

from atoll.chain.keys import sign_digest, signer_of
from atoll.law.canonical import decode, encode
from atoll.law.held_out import MAX_REPORT_BYTES, HeldOut, join, loss_bytes, loss_of
from atoll.law.words import Address, Domain, JobId

REPORT = HeldOut(
    Domain(31337, Address("0x" + "11" * 20)), JobId(7), 2, digest("model"), loss_bytes(2.5)
)
ACCOUNT = Account.from_key(b"\x07" * 32)


def test_a_report_reads_back_and_names_who_signed_it() -> None:
    signed = REPORT.to_bytes(sign_digest(ACCOUNT, REPORT.digest))
    assert len(signed) <= MAX_REPORT_BYTES
    report, signature = HeldOut.from_bytes(signed)
    assert report == REPORT
    assert signer_of(report.digest, signature) == ACCOUNT.address
    assert report.name == "7/held-out/2"


@pytest.mark.parametrize(
    "changes",
    [
        {"domain": Domain(1, REPORT.domain.rounds)},
        {"domain": Domain(31337, Address("0x" + "22" * 20))},
        {"job": JobId(8)},
        {"merged": 3},
        {"model": digest("another")},
        {"loss": loss_bytes(2.25)},
    ],
)
def test_every_field_is_signed(changes: dict[str, object]) -> None:
    signature = sign_digest(ACCOUNT, REPORT.digest)
    other = replace(REPORT, **changes)  # type: ignore[arg-type]
    assert signer_of(other.digest, signature) != ACCOUNT.address


def test_a_signature_that_is_none_is_nobodys() -> None:
    assert signer_of(REPORT.digest, bytes(65)) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "atoll.trace.v1"),
        ("chain_id", -1),
        ("rounds", "0x" + "ab" * 20),
        ("job", True),
        ("merged", 1 << 32),
        ("model", bytes(31)),
        ("loss", bytes.fromhex("7ff8000000000001")),
        ("loss", bytes.fromhex("7ff0000000000000")),
        ("signature", bytes(64)),
        ("more", 1),
    ],
)
def test_anything_else_is_no_report(field: str, value: object) -> None:
    plain = decode(REPORT.to_bytes(bytes(65)), MAX_REPORT_BYTES)
    assert isinstance(plain, dict)
    with pytest.raises(ValueError, match=r"report|number|bytes|address|loss"):
        HeldOut.from_bytes(encode({**plain, field: value}))  # type: ignore[dict-item]


def test_a_loss_is_eight_bytes() -> None:
    assert loss_bytes(1.0).hex() == "3ff0000000000000"
    assert loss_of(loss_bytes(0.1)) == 0.1
    assert math.isnan(loss_of(loss_bytes(-math.nan)))


def test_losses_are_joined_by_their_targets_and_rounded_once() -> None:
    assert join([([1.0, 2.0], [3, 1]), ([5.0], [4])]) == 25 / 8
    # Two binary64 additions would lose the small one against the large.
    assert join([([2.0**60, 1.0, -(2.0**60)], [1, 1, 1])]) == 1 / 3


@pytest.mark.parametrize(
    "parts", [[], [([3.0], [0])], [([1.0, math.inf], [1, 1])], [([1.0], [1]), ([math.nan], [0])]]
)
def test_nothing_that_counts_or_a_loss_that_is_not_finite_is_no_loss(parts: Any) -> None:
    assert math.isnan(join(parts))
    assert loss_bytes(join(parts)).hex() == "7ff8000000000000"


def test_losses_and_counts_are_one_for_one() -> None:
    with pytest.raises(ValueError, match="zip"):
        join([([1.0, 2.0], [1])])
