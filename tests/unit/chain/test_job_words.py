"""What a person is told about a job."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from atoll.job.narrate import describe, tokens
from atoll.law.events import EVENT_TYPES, Punished, Reported, RoundVoided, VerifierReady
from atoll.law.words import (
    NO_SEGMENT,
    TOKEN,
    Address,
    Attempt,
    Digest,
    Fault,
    JobId,
    Offence,
    Report,
    RoundIndex,
    SeatIndex,
    SegmentIndex,
    VerifierIndex,
)

SILENT = {
    "RoundOpened", "BeaconRearmed", "AuditArmed", "ReportSeconded", "Voted",
    "Attested", "MembershipDropped", "ProviderUnqueued", "ProviderLeaving", "VerifierLeaving",
    "StepsOpened", "StepPicked", "TapePosted", "RowRevealed", "Picked", "NodePicked", "LeafPosted",
    "Decided", "NotTold", "BondReturned", "PayWithheld",
    "GatewayAnnounced", "Deposited", "ThawStarted", "Withdrawn", "Locked", "Unlocked", "Slashed",
}  # fmt: skip
"""Events that change nothing for a person, or that another event tells better."""
SLOT = (JobId(1), RoundIndex(2), Attempt(0))


def any_value(hint: Any) -> Any:
    """Some value of a field's type."""
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if get_origin(hint) is tuple:
        return (any_value(get_args(hint)[0]),)
    if dataclasses.is_dataclass(hint):
        return any_of(hint)
    return {int: 3, str: "text", bytes: bytes(32), bool: True}.get(hint) or next(iter(hint))


def any_of(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(*(any_value(hints[field.name]) for field in dataclasses.fields(kind)))


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_event_has_words_or_is_silent_on_purpose(name: str) -> None:
    text = describe(any_of(EVENT_TYPES[name]))
    assert (text is None) == (name in SILENT)
    assert text is None or (text and "<" not in text)


def test_reports_say_seat_fault_and_segment() -> None:
    report = Report(SeatIndex(3), SegmentIndex(5), Fault.WRONG_REPLAY, Digest(bytes(32)))
    reported = Reported(*SLOT, 0, VerifierIndex(1), report, True)
    assert describe(reported) == "round 2: verifier 1 reports seat 3: wrong replay in segment 5"
    whole = dataclasses.replace(report, segment=NO_SEGMENT, fault=Fault.WITHHELD)
    assert describe(dataclasses.replace(reported, report=whole)) == (
        "round 2: verifier 1 reports seat 3: withheld"
    )


def test_punishments_say_how_much_and_why() -> None:
    account = Address("0x" + "12" * 20)
    event = Punished(JobId(1), RoundIndex(2), Offence.REPORT, 0, account, Digest(bytes(32)), TOKEN)
    assert describe(event) == f"{account} loses 1 for a decided report in round 2"


def test_accounts_have_the_names_that_a_network_gives_them() -> None:
    account = Address("0x" + "12" * 20)
    names = {account: "provider 3"}
    event = VerifierReady(JobId(1), VerifierIndex(0), account)
    assert describe(event, names.__getitem__) == "provider 3 holds the data and is ready"


def test_void_rounds_say_why() -> None:
    assert describe(RoundVoided(*SLOT, "NoQuorum")) == "round 2 is void (NoQuorum)"
    again = RoundVoided(JobId(1), RoundIndex(2), Attempt(1), "NoQuorum")
    assert describe(again) == "round 2 (attempt 2) is void (NoQuorum)"


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
