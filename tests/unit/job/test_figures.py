"""What a submitter knows of each model: its own count, and what committees signed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.identities import digest
from tests.unit.protocol.script import Script

from atoll.job.figures import Figures, RoundFigures, certified_loss, cid_of, known
from atoll.protocol.losses import loss_bytes
from atoll.protocol.round_list import RoundList
from atoll.protocol.types import ZERO_DIGEST
from atoll.protocol.views import JobView


@pytest.fixture
def script() -> Script:
    """Two settled rounds."""
    script = Script.ready()
    script.honest_round()
    script.honest_round()
    return script


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Figures]:
    kept = Figures(tmp_path / "figures.sqlite")
    yield kept
    kept.close()


def signed(view: JobView, round: int, loss: bytes, **changes: object) -> JobView:
    """The view, had the committee of a round said this of the model that it opened with."""
    settled = list(view.settled)
    verdict = replace(settled[round].verdict, loss=loss)
    settled[round] = replace(settled[round], verdict=verdict, **changes)  # type: ignore[arg-type]
    return replace(view, settled=RoundList(settled))


def test_a_round_certifies_the_model_that_it_opened_with(script: Script, figures: Figures) -> None:
    view = signed(script.net.view, 0, loss_bytes(5.5))
    view = signed(view, 1, loss_bytes(5.25))
    first, second, last = known(figures, view)
    assert (first.merged, first.loss, first.change) == (0, 5.5, None)
    assert (second.loss, second.change) == (5.25, -0.25)
    assert last.loss is None
    assert "not known yet" in last.text()
    assert "after round 0 5.250000 (-0.250000)" in second.text()


def test_what_was_not_evaluated_or_not_certified_is_no_loss(script: Script) -> None:
    view = script.net.view
    assert certified_loss(view, 0) is None  # the job has no held-out text
    late = signed(view, 0, loss_bytes(5.5), digest=ZERO_DIGEST)
    assert certified_loss(late, 0) is None
    assert certified_loss(signed(view, 0, loss_bytes(5.5)), 0) == loss_bytes(5.5)
    assert certified_loss(signed(view, 0, bytes.fromhex("7ff0000000000000")), 0) is None


def test_our_own_count_is_kept_and_believed(script: Script, figures: Figures) -> None:
    view = signed(script.net.view, 1, loss_bytes(5.25))
    model = view.settled[0].verdict.state
    figures.note_loss(view.spec_digest, 1, model, loss_bytes(5.0))
    figures.note_loss(view.spec_digest, 1, model, loss_bytes(4.0))
    found = known(figures, view)[1]
    assert (found.loss, found.is_disputed) == (5.0, True)
    assert "the committee signed 5.25" in found.text()
    assert found.to_json_value()["computed_here"] is True


def test_a_count_of_another_model_is_not_this_ones(script: Script, figures: Figures) -> None:
    view = script.net.view
    figures.note_loss(view.spec_digest, 1, digest("another"), loss_bytes(5.0))
    figures.note_loss(view.spec_digest, 2, view.settled[0].verdict.state, loss_bytes(5.0))
    assert [item.loss for item in known(figures, view)] == [None, None, None]


def test_a_round_without_a_certificate_leaves_the_model_where_it_was(script: Script) -> None:
    view = script.net.view
    settled = view.settled
    verdict = replace(settled[1].verdict, cid=b"")
    late = replace(view, settled=settled.changed(1, replace(settled[1], verdict=verdict)))
    assert cid_of(late, 2) == cid_of(view, 1) == settled[0].verdict.cid
    assert cid_of(view, 0) == b""


def test_equal_numbers_are_not_disputed() -> None:
    assert not RoundFigures(1, loss_bytes(2.0), loss_bytes(2.0)).is_disputed
    assert not RoundFigures(1, None, loss_bytes(2.0)).is_disputed
    assert RoundFigures(1, loss_bytes(2.0), loss_bytes(2.5)).is_disputed
