"""What a person is told about a job."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from tests.support.manifests import make_terms
from tests.unit.protocol.script import Script

from atoll.job.event_text import MISSED_DUTIES, concerns, describe, tokens
from atoll.job.job_snapshot import JobSnapshot, final_rounds
from atoll.job.job_update import is_about
from atoll.protocol import events as ev
from atoll.protocol.audit_reports import AuditEntry, AuditReport
from atoll.protocol.events import EVENT_TYPES
from atoll.protocol.game_records import bond_set
from atoll.protocol.games.game_machine import Outcome
from atoll.protocol.games.moves import Claim
from atoll.protocol.rounds import apply
from atoll.protocol.types import (
    TOKEN,
    ZERO_DIGEST,
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    JobStatus,
    MissedDuty,
    Role,
    RoundIndex,
    SeatIndex,
    SlotIndex,
)

SILENT = {
    "GatewayAnnounced", "Deposited", "UnbondStarted", "Withdrawn", "Locked", "Unlocked", "Slashed",
    "BondReturned", "NotTold",
}  # fmt: skip
"""Events of no job, or that another event tells better."""
JOB, ROUND, ID = JobId(1), RoundIndex(2), HolderId(5)
ACCOUNT, OTHER = Address("0x" + "12" * 20), Address("0x" + "34" * 20)


def any_value(hint: Any) -> Any:
    """Some value of a field's type."""
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if get_origin(hint) is tuple:
        return (any_value(get_args(hint)[0]),)
    if dataclasses.is_dataclass(hint):
        return any_of(hint)
    return {int: 3, str: "text", bytes: bytes(35), bool: True}.get(hint) or next(iter(hint))


def any_of(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(*(any_value(hints[field.name]) for field in dataclasses.fields(kind)))


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_event_has_words_or_is_silent_on_purpose(name: str) -> None:
    text = describe(any_of(EVENT_TYPES[name]))
    assert (text is None) == (name in SILENT)
    assert text is None or (text and "<" not in text)


def test_audit_reports_say_which_seats_are_valid_and_where_others_have_a_mismatch() -> None:
    valid = AuditEntry.valid(SeatIndex(0), ACCOUNT, [])
    mismatches = [AuditEntry(SeatIndex(seat), at, ZERO_DIGEST) for seat, at in ((2, 7), (3, 0))]
    event = ev.Opened(JOB, ACCOUNT, ID, ROUND, AuditReport((valid, *mismatches)).to_bytes())
    assert describe(event) == (
        f"round 2: {ACCOUNT} opens its audit report: seat 0 is valid; seat 2 has a mismatch at 7; "
        "seat 3 has a mismatch at 0"
    )
    assert [is_about(event, seat, ()) for seat in range(4)] == [True, False, True, True]


@pytest.mark.parametrize("kind", MissedDuty)
def test_missed_duties_say_how_much_and_why(kind: MissedDuty) -> None:
    event = ev.Missed(JOB, ACCOUNT, Role.PROVIDER, ID, ROUND, kind, TOKEN)
    assert describe(event) == f"{ACCOUNT} loses 1 of its bond for {MISSED_DUTIES[kind]} in round 2"


def test_slashes_take_a_provider_s_pay_and_a_verifier_s_bond_only() -> None:
    event = ev.HolderSlashed(JOB, ACCOUNT, OTHER, Role.PROVIDER, ID, RoundIndex(1), 3 * TOKEN)
    assert describe(event) == (
        f"{ACCOUNT} is slashed and loses 3 of its bond, and its pay from round 1 on; "
        f"{OTHER} gets a share of the bond"
    )
    of_verifier = describe(dataclasses.replace(event, role=Role.VERIFIER))
    assert of_verifier is not None and "pay" not in of_verifier


def test_accounts_have_the_names_that_a_network_gives_them() -> None:
    names = {ACCOUNT: "verifier 3"}
    event = ev.Ready(JOB, ACCOUNT, SlotIndex(0), ID)
    assert describe(event, names.__getitem__) == "verifier 3 holds the data and is ready"


def test_void_rounds_say_who_missed_them() -> None:
    assert describe(ev.Waiting(JOB, ROUND, Bitmap(0))) == "round 2 waits for members"
    assert describe(ev.Waiting(JOB, ROUND, Bitmap(0b101))) == (
        "round 2 waits for members; seats 0, 2 missed it"
    )


def test_who_stops_is_slashed_or_disagrees() -> None:
    root = Digest(b"\x01" * 32)
    stopped = ev.Stopped(JOB, ACCOUNT, SeatIndex(1), ROUND, root)
    assert "another model than was certified" in (describe(stopped) or "")
    assert "slashed" in (describe(dataclasses.replace(stopped, root=ZERO_DIGEST)) or "")


def settled(script: Script) -> ev.Settled:
    (event,) = (e for e, _ in script.net.log if isinstance(e, ev.Settled))
    return event


def test_a_settlement_says_who_was_available_and_who_excluded() -> None:
    script = Script.ready()
    script.train()
    script.say(has=0b1011)
    script.net.wait(1)
    script.settle(excluded={1}, merged=2)
    event = settled(script)
    model = event.verdict.state.hex()[:12]
    assert describe(event) == (
        "round 0 is settled: seats 0, 1, 3 were available, 1 excluded; "
        f"2 updates make model {model}"
    )


def test_a_settlement_without_a_certificate_says_so() -> None:
    event = dataclasses.replace(settled_example(), digest=ZERO_DIGEST)
    assert describe(event) == (
        "round 0 is settled without a certificate: seats 0, 1, 2, 3 were available, the model stays"
    )


def settled_example() -> ev.Settled:
    script = Script.ready()
    script.honest_round()
    return settled(script)


def test_a_job_is_final_when_its_last_window_is_over_and_no_game_is_open() -> None:
    script = Script.ready(make_terms(rounds=2))
    net = script.net
    for _ in range(2):
        script.honest_round()
    ended = JobSnapshot.of(net.view, net.now)
    assert (ended.status, ended.settled_rounds) == (JobStatus.DONE, 2)
    assert (ended.final_rounds, ended.is_final) == (0, False)
    ends = [settled_round.clock.window_end for settled_round in net.view.settled]
    assert final_rounds(net.view, ends[0]) == 1
    assert JobSnapshot.of(net.view, ends[1] - 1).final_rounds == 1
    assert JobSnapshot.of(net.view, ends[1]).is_final
    holder = net.view.settled[1].seats[SeatIndex(0)]
    bond = bond_set(net.view.job_id, Role.PROVIDER, holder)
    nothing = [ZERO_DIGEST] * 4
    position = Digest(bytes(28) + (1).to_bytes(4, "big"))
    claim = Claim(ACCOUNT, bond, position, ZERO_DIGEST, False, 0, 1, 3, *nothing)
    challenged = ev.Challenged(9, ACCOUNT, OTHER, TOKEN, claim, b"")
    view = apply(net.view, challenged, net.view.block)
    assert final_rounds(view, ends[1]) == 1
    assert not JobSnapshot.of(view, ends[1]).is_final
    assert describe(challenged) == (
        f"round 1: {OTHER} disputes segment 3 of seat 0, with a bond of 1: game 9"
    )
    through_round = dataclasses.replace(claim, position=Digest(bytes(28) + (2).to_bytes(4, "big")))
    assert describe(dataclasses.replace(challenged, claim=through_round)) == (
        f"round 1: {OTHER} disputes segment 3 of seat 0 through round 2, with a bond of 1: game 9"
    )
    assert concerns(challenged, view) and not concerns(challenged, net.view)
    over = apply(view, ev.Ended(9, Outcome.CHALLENGER_LOST), view.block)
    assert JobSnapshot.of(over, ends[1]).is_final


def test_what_is_about_a_seat_names_it_or_its_holder_or_nobody() -> None:
    of_seat = ev.Committed(JOB, ACCOUNT, SeatIndex(1), ROUND, ZERO_DIGEST)
    of_seats = ev.RevealOpened(JOB, ROUND, Bitmap(0b10), 0)
    of_holder = ev.KeyShown(JOB, ACCOUNT, ROUND, ZERO_DIGEST)
    of_all = ev.CancelRequested(JOB)
    events = [of_seat, of_seats, of_holder, of_all]
    assert [is_about(event, 1, {ACCOUNT}) for event in events] == [True] * 4
    assert [is_about(event, 0, {OTHER}) for event in events] == [False, False, False, True]


@pytest.mark.parametrize(
    ("wei", "text"),
    [
        (0, "0"),
        (TOKEN, "1"),
        (3 * TOKEN // 2, "1.5"),
        (10**12, "0.000001"),
        (1, "0"),
        (10**22, "10,000"),
    ],
)
def test_amounts_read_as_tokens(wei: int, text: str) -> None:
    assert tokens(wei) == text
