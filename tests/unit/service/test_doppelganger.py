"""A second service with the same key is noticed by what it did on the chain."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.identities import address
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.chain.indexed import Indexed
from atoll.protocol import events as ev
from atoll.protocol.types import Address, BlockRef, Digest, JobId, RoundIndex, SeatIndex
from atoll.protocol.views import JobView
from atoll.service.doppelganger import ACTS, OF_ROUNDS, Doppelganger, live_rounds

ME, OTHER = address("me"), address("other")
OURS, FOREIGN = b"\x01" * 32, b"\x02" * 32
WAIT, AT, HEIGHT = 180, 1_000_000, 50
ANNOUNCED = Indexed(
    ev.GatewayAnnounced(ME, "http://x"), BlockRef(HEIGHT, Digest(bytes(32)), AT), 0, FOREIGN
)


def doppelganger(me: Address = ME, *, is_renewed: bool = False) -> Doppelganger:
    return Doppelganger(me, lambda tx_hash: tx_hash == f"0x{OURS.hex()}", WAIT, is_renewed)


def test_an_act_from_elsewhere_is_waited_out() -> None:
    found = doppelganger()
    found.see([ANNOUNCED])
    told = found.why_waits(AT + 30, HEIGHT + 3)
    assert "acted 3 blocks ago (GatewayAnnounced" in told
    assert "for 180 s, 150 s more" in told
    assert found.why_waits(AT + WAIT - 1, HEIGHT + 9)
    assert found.why_waits(AT + WAIT, HEIGHT + 10) == ""


def test_every_act_begins_the_wait_anew() -> None:
    found = doppelganger()
    later = replace(ANNOUNCED, block=replace(ANNOUNCED.block, timestamp=AT + 100))
    found.see([ANNOUNCED, later])
    assert found.why_waits(AT + WAIT, HEIGHT)
    assert found.why_waits(AT + 100 + WAIT, HEIGHT) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"transaction": OURS},
        {"event": ev.GatewayAnnounced(OTHER, "http://x")},
        {"event": ev.Deposited(ME, 0, 1)},
        {"event": ev.Stopped(1, ME, 0, 0, bytes(32))},
    ],
)
def test_what_is_ours_or_anothers_or_moves_money_only_is_not_waited_for(
    changed: dict[str, object],
) -> None:
    found = doppelganger()
    found.see([replace(ANNOUNCED, **changed)])  # type: ignore[arg-type]
    assert found.why_waits(AT, HEIGHT) == ""


def test_who_lost_its_journal_waits_though_nobody_acts() -> None:
    found = doppelganger(is_renewed=True)
    assert "journal is new" in found.why_waits(AT, HEIGHT)
    assert found.why_waits(AT + WAIT - 1, HEIGHT)
    assert found.why_waits(AT + WAIT, HEIGHT) == ""
    found.see([replace(ANNOUNCED, block=replace(ANNOUNCED.block, timestamp=AT + WAIT))])
    assert "acted" in found.why_waits(AT + WAIT + 1, HEIGHT)
    assert doppelganger().why_waits(AT, HEIGHT) == ""


# --- what a folder has lost ---


def said(event: object, transaction: bytes = FOREIGN) -> Indexed:
    block = BlockRef(HEIGHT, Digest(bytes(32)), AT)
    return Indexed(event, block, 0, transaction)  # type: ignore[arg-type]


def settled_at() -> tuple[Script, JobView, int]:
    """A job whose round 0 is audited and whose round 1 runs; and the time."""
    script = Script.ready()
    script.honest_round()
    net = script.net
    if net.view.open is None:
        net.advance()
    return script, net.view, net.now


def test_a_new_journal_knows_nothing_of_rounds_that_still_count() -> None:
    _, view, now = settled_at()
    me, views = PROVIDERS[0], {view.job_id: view}
    found = doppelganger(me)
    assert "this journal is new" in found.lost_past(views, now, is_new=True)
    assert found.lost_past(views, now, is_new=False) == ""
    assert doppelganger(OTHER).lost_past(views, now, is_new=True) == ""
    assert found.lost_past({}, now, is_new=True) == ""


def test_what_is_said_of_a_round_that_counts_and_not_from_here_is_lost() -> None:
    _, view, now = settled_at()
    me, views = PROVIDERS[0], {view.job_id: view}
    job, seat, digest = view.job_id, SeatIndex(0), Digest(bytes(32))
    (settled_round,) = view.settled
    for round_ in live_rounds(view, now):
        committed = ev.Committed(job, me, seat, round_, digest)
        for transaction, is_lost in ((OURS, False), (FOREIGN, True)):
            found = doppelganger(me)
            found.see([said(committed, transaction)])
            text = found.lost_past(views, now, is_new=False)
            assert bool(text) == is_lost
            assert not is_lost or f"round {round_} of job {job}" in text
    found = doppelganger(me)
    found.see([
        said(ev.Committed(JobId(job + 1), me, seat, RoundIndex(0), digest)),
        said(ev.Committed(job, me, seat, RoundIndex(9), digest)),
        said(ev.Committed(job, OTHER, seat, RoundIndex(0), digest)),
        said(ev.GatewayAnnounced(me, "http://x")),
    ])  # fmt: skip
    assert found.lost_past(views, now, is_new=False) == ""
    found.see([said(ev.AuditReportSealed(job, me, settled_round.round, digest))])
    assert "AuditReportSealed" in found.lost_past(views, now, is_new=False)
    later = settled_round.clock.window_end
    assert settled_round.round not in live_rounds(view, later)


def test_every_act_says_whose_it_is() -> None:
    for kind in ACTS:
        assert "account" in kind.__dataclass_fields__
    for kind in OF_ROUNDS:
        assert {"job_id", "account", "round"} <= kind.__dataclass_fields__.keys()
        assert kind in ACTS
