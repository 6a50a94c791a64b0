"""What a member says of a job it has no place in: signed, short, and nobody's but its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from eth_account import Account
from tests.support.identities import JOB
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, Script
from tests.unit.service.held import state_of

from atoll.chain.keys import sign_typed
from atoll.errors import NotFound
from atoll.job.standings import Standing, grouped, standings, standings_text, stands_of
from atoll.protocol.types import ZERO_DIGEST, Address, JobId, Role
from atoll.service.choice import Choice
from atoll.service.duties.material import DoFetchSpec, JobRefused
from atoll.service.entries import Entries
from atoll.service.journal import Journal
from atoll.service.stand_statements import (
    MAX_BYTES,
    MOST_TEXT,
    Stand,
    StandStatement,
    from_bytes,
    message_of,
    note_name,
    stand_of,
    to_bytes,
)
from atoll_node.behaviour import ProviderBehaviour

KEYS = [Account.from_key(bytes([n]) * 32) for n in range(1, 6)]
VIEW = Network().view
DOMAIN, REASON = VIEW.domain, "game window 240 s < 371 s"
SAID = StandStatement(Role.PROVIDER, Stand.REFUSES, 1_700_000_000, REASON)


def address_of(key: Any) -> Address:
    return Address(key.address)


def signed(key: Any, said: StandStatement = SAID, job: JobId = VIEW.job_id) -> bytes:
    return to_bytes(said, sign_typed(key, message_of(DOMAIN, job, address_of(key), said)))


def test_a_statement_is_read_as_it_was_signed() -> None:
    data = signed(KEYS[0])
    assert from_bytes(data, DOMAIN, VIEW.job_id, address_of(KEYS[0])) == SAID
    assert len(signed(KEYS[0], replace(SAID, text="x" * MOST_TEXT))) == MAX_BYTES


@pytest.mark.parametrize("at", [0, 1, 5, 20, 80, -1])
def test_one_byte_changed_is_no_statement(at: int) -> None:
    data = bytearray(signed(KEYS[0]))
    data[at] ^= 1
    assert from_bytes(bytes(data), DOMAIN, VIEW.job_id, address_of(KEYS[0])) is None


def test_it_is_of_one_account_job_and_network() -> None:
    data, me = signed(KEYS[0]), address_of(KEYS[0])
    assert from_bytes(data, DOMAIN, VIEW.job_id, address_of(KEYS[1])) is None
    assert from_bytes(data, DOMAIN, JobId(VIEW.job_id + 1), me) is None
    assert from_bytes(data, replace(DOMAIN, chain_id=1), VIEW.job_id, me) is None
    assert from_bytes(data, replace(DOMAIN, rounds=me), VIEW.job_id, me) is None


@pytest.mark.parametrize("data", [b"", b"\x00" * 75, b"\xff" * 75, b"\x00" * (MAX_BYTES + 1)])
def test_what_is_none_is_none(data: bytes) -> None:
    assert from_bytes(data, DOMAIN, VIEW.job_id, address_of(KEYS[0])) is None


def test_words_that_would_steer_a_terminal_are_said_without() -> None:
    said = replace(SAID, text="a\x1b[2Jb\nc\u202ed")
    found = from_bytes(signed(KEYS[0], said), DOMAIN, VIEW.job_id, address_of(KEYS[0]))
    assert found is not None and found.text == "a [2Jb c d"


# --- what a machine says ---


def test_a_member_says_that_it_measures_refuses_waits_or_has_joined() -> None:
    script, choice = Script.ready(), Choice(PROVIDERS[0], Role.PROVIDER)
    joined = state_of(script.net, PROVIDERS[0], ProviderBehaviour())
    assert stand_of(joined, choice) == (Stand.JOINED, "")
    other = state_of(script.net, Address("0x" + "77" * 20), ProviderBehaviour())
    assert stand_of(other, choice) == (Stand.JOINS, "")
    assert stand_of(replace(other, entries=Entries()), choice) == (Stand.MEASURES, "")
    refused = Entries().plus(
        DoFetchSpec(b"", ZERO_DIGEST).key, JobRefused(REASON + "\x1b" + "é" * 500)
    )
    stand, text = stand_of(replace(other, entries=refused), choice) or (None, "")
    assert (stand, text.startswith(REASON)) == (Stand.REFUSES, True)
    assert len(text.encode()) <= MOST_TEXT and text.isprintable()
    out = replace(other, sits_out="is paused, as ordered")
    assert stand_of(out, choice) == (Stand.WAITS, "is paused, as ordered")


def test_its_note_has_a_name_that_a_gateway_serves_and_goes_with_all_others(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        for name in (note_name(JOB), note_name(JobId(JOB + 1)), f"{JOB}/signed/0/aa"):
            journal.publish(name, b"note")
        journal.withdraw(note_name(JOB))
        assert journal.note(note_name(JOB)) is None
        assert journal.note(note_name(JobId(JOB + 1))) == b"note"
        journal.withdraw(note_name("*"))
        assert journal.note(note_name(JobId(JOB + 1))) is None
        assert journal.note(f"{JOB}/signed/0/aa") == b"note"


# --- what a submitter counts ---


def client(notes: Mapping[str, bytes], poor: Any = None) -> Any:
    """Gateways by URL, some of which answer nothing; an account that has no tokens."""

    async def note(url: str, name: str, most: int) -> bytes | None:
        if url not in notes:
            raise NotFound("it does not answer")
        return notes[url] if name == note_name(VIEW.job_id) else None

    async def stake(account: Address, role: Role) -> Any:
        return SimpleNamespace(active=VIEW.require_terms().provider_bond // 2)

    async def token_balance(account: Address) -> int:
        half = -(-VIEW.require_terms().provider_bond // 2)
        return half - (account == poor)

    storage = SimpleNamespace(fetcher=SimpleNamespace(note=note))
    chain = SimpleNamespace(stake=stake, token_balance=token_balance)
    return cast(Any, SimpleNamespace(session=SimpleNamespace(storage=storage), chain=chain))


def announced(*keys: Any) -> Any:
    return replace(VIEW, gateways={address_of(key): f"http://{n}" for n, key in enumerate(keys)})


async def test_statements_of_announced_accounts_with_the_bond_are_counted() -> None:
    """A stranger's copy, one that could not pay, and one that does not answer are not."""
    measures = replace(SAID, stand=Stand.MEASURES, text="")
    notes = {
        "http://0": signed(KEYS[0]),
        "http://1": signed(KEYS[1]),
        "http://2": signed(KEYS[2], measures),
        "http://3": signed(KEYS[0]),
    }
    found = await standings(client(notes), announced(*KEYS))
    assert standings_text(found) == f"2 members refuse: {REASON}; 1 measures"
    found = await standings(client(notes, address_of(KEYS[1])), announced(*KEYS))
    assert standings_text(found) == f"1 member measures; 1 refuses: {REASON}"
    assert found[1].to_json_value() == {"stand": "refuses", "text": REASON, "members": 1}


async def test_of_many_gateways_others_are_asked_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atoll.job.standings.MOST_ASKED", 2)
    notes = {f"http://{n}": signed(key) for n, key in enumerate(KEYS)}
    looks = [await stands_of(client(notes), announced(*KEYS)) for _ in range(200)]
    assert all(len(look) == 2 for look in looks)
    assert {account for look in looks for account in look} == set(map(address_of, KEYS))


async def test_a_job_that_runs_or_is_over_asks_nobody() -> None:
    script = Script.ready()
    script.net.advance()
    assert await standings(client({}), replace(script.net.view, gateways={})) == []
    assert grouped([]) == []
    assert standings_text([Standing(Stand.WAITS, "", 2)]) == "2 members wait"
