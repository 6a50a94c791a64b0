"""Pay that is sent on: never more than was paid or is there, and never a wei twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from atoll.errors import ConfigError, StorageError
from atoll.job.forwarding import Forwarding, Purse, forwarding, unsent
from atoll.law.words import Address

ME, WALLET, OTHER = (Address("0x" + digit * 40) for digit in "123")
FRESH = Forwarding(WALLET, 100)


@pytest.mark.parametrize(
    ("paid", "balance", "sending"), [(130, 500, 30), (130, 20, 20), (100, 500, 0), (130, 0, 0)]
)
def test_what_is_sent_is_what_was_paid_since_and_is_there(
    paid: int, balance: int, sending: int
) -> None:
    assert FRESH.starting(Purse(paid, balance)).sending == sending


def test_what_is_being_sent_stays_as_it_was_asked_for() -> None:
    sending = FRESH.starting(Purse(130, 500))
    assert sending.starting(Purse(900, 900)) == sending == sending.to_wallet(OTHER)
    assert sending.ended() == Forwarding(WALLET, 130)
    assert sending.ended().to_wallet(OTHER) == Forwarding(OTHER, 130)


def test_counting_begins_with_the_first_call_and_is_kept(tmp_path: Path) -> None:
    assert unsent(tmp_path, ME, 40) == 0
    with forwarding(tmp_path, ME, WALLET, 40) as file:
        assert Forwarding.read(file) == Forwarding(WALLET, 40)
    with forwarding(tmp_path, ME, WALLET, 90) as file:
        assert Forwarding.read(file) == Forwarding(WALLET, 40)
        with pytest.raises(ConfigError), forwarding(tmp_path, ME, WALLET, 90):
            pass
        replace(FRESH, sending=7).write(file)
        assert file.stat().st_mode & 0o077 == file.parent.stat().st_mode & 0o077 == 0
    assert unsent(tmp_path, ME, 107) == 7


def test_a_damaged_file_is_not_guessed(tmp_path: Path) -> None:
    with forwarding(tmp_path, ME, WALLET, 0) as file:
        file.write_text("{")
        with pytest.raises(StorageError) as told:
            Forwarding.read(file)
    assert told.value.next_step is not None
