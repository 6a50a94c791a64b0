"""Who asks a gateway: signed for that gateway and that chain, for some minutes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from eth_account import Account
from tests.support.identities import address

from atoll.chain.keys import sign_typed
from atoll.protocol.typed_data import TypedMessage
from atoll.protocol.types import Address, Domain
from atoll.service.greeting import SKEW_SECONDS, VALID_SECONDS, Greeter, greeted

ACCOUNT = Account.from_key("0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d")
HERE, NOW = "http://203.0.113.7:4001", 1_800_000_000.0
CHAIN = Domain(31337, address("rounds"))


@pytest.fixture
def header() -> str:
    greeter = Greeter(
        Address(ACCOUNT.address), CHAIN, partial(sign_typed, ACCOUNT), now=lambda: NOW
    )
    return greeter(HERE)


def test_a_greeting_names_its_account(header: str) -> None:
    assert greeted(header, CHAIN, HERE, NOW) == ACCOUNT.address
    assert greeted(header, CHAIN, HERE + "/", NOW) == ACCOUNT.address
    assert greeted(header, CHAIN, HERE, NOW + VALID_SECONDS + SKEW_SECONDS) == ACCOUNT.address


def test_elsewhere_and_later_it_is_nobodys(header: str) -> None:
    assert greeted(header, CHAIN, "http://203.0.113.8:4001", NOW) is None
    assert greeted(header, replace(CHAIN, chain_id=1), HERE, NOW) is None
    assert greeted(header, replace(CHAIN, rounds=address("other")), HERE, NOW) is None
    assert greeted(header, CHAIN, HERE, NOW + VALID_SECONDS + SKEW_SECONDS + 1) is None
    assert greeted(header, CHAIN, HERE, NOW - SKEW_SECONDS - 1) is None


@pytest.mark.parametrize(
    ("find", "put"),
    [("Atoll", "Bearer"), (str(int(NOW) + VALID_SECONDS), str(int(NOW) + VALID_SECONDS + 1)),
     (ACCOUNT.address, "0x" + "11" * 20), (" ", "  "), ("Atoll", "Atoll " + "x" * 300)],
)  # fmt: skip
def test_a_changed_greeting_is_nobodys(header: str, find: str, put: str) -> None:
    assert find in header
    assert greeted(header.replace(find, put, 1), CHAIN, HERE, NOW) is None


@pytest.mark.parametrize("cut", [1, 2, 64, 130])
def test_a_cut_signature_is_nobodys(header: str, cut: int) -> None:
    assert greeted(header[:-cut], CHAIN, HERE, NOW) is None


def test_a_greeting_is_signed_anew_in_time() -> None:
    times = [NOW]
    signed: list[TypedMessage] = []

    def sign(message: TypedMessage) -> bytes:
        signed.append(message)
        return bytes(65)

    greeter = Greeter(Address(ACCOUNT.address), CHAIN, sign, now=lambda: times[-1])
    assert greeter(HERE) == greeter(HERE)
    assert len(signed) == 1
    times.append(NOW + VALID_SECONDS * 0.6)
    greeter(HERE)
    assert len(signed) == 2


@pytest.mark.parametrize("step", [-3600.0, -86400.0, 3600.0])
def test_who_set_its_clock_is_known_at_once(step: float) -> None:
    """A clock that was ahead signed for a time that nobody else has for an hour."""
    times = [NOW]
    sign = partial(sign_typed, ACCOUNT)
    greeter = Greeter(Address(ACCOUNT.address), CHAIN, sign, now=lambda: times[0])
    greeter(HERE)
    times[0] += step
    assert greeted(greeter(HERE), CHAIN, HERE, times[0]) == ACCOUNT.address
