"""Runs, and attacks, with other codecs than int8. bench/attacks.py --codecs has the figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.adversary.adversaries import ADVERSARIES, unchanged
from tests.adversary.codecs import CODECS, DEFAULT, Parts
from tests.adversary.merges import among_friends, default, rule_alone
from tests.adversary.run import Adversary, Knowledge, Memo, Run, Setting

from atoll.protocol.manifest import Manifest
from atoll.train.probe import pin_torch

pin_torch()

OTHERS = tuple(codec for codec in CODECS if codec != DEFAULT)


@pytest.mark.parametrize("codec", CODECS)
def test_a_manifest_of_every_codec_is_valid_and_trains(codec: str):
    run = Run(Setting(n=4, f=0, rounds=3, steps=8, codec=codec), among_friends)
    assert Manifest.from_bytes(run.manifest.to_bytes()) == run.manifest
    assert run.manifest.shares_moments
    records = list(run.play())
    assert all(record.state.moments.is_warm for record in records)
    assert run.loss(records[-1].state) < run.loss(records[0].initial_state) - 0.3


@pytest.mark.parametrize("codec", CODECS)
def test_rows_are_written_as_near_as_the_codec_can_say(codec: str):
    """Grids say their own rows exactly; where values choose a step it may come out one lower."""
    known = first_round(Setting(n=5, f=1, steps=4, codec=codec))
    meant = known.honest.mean(1) if codec == "two_bit" else _first_of(known.honest)
    sent = known.arrives(meant)
    np.testing.assert_array_equal(sent.factored, meant.factored.astype("<f4"))
    for there, here in ((sent.delta[0], meant.delta[0]), (sent.first[0], meant.first[0])):
        if codec == "two_bit":
            assert there @ here > 0.5 * np.linalg.norm(there) * np.linalg.norm(here)
        else:
            np.testing.assert_array_equal(there, here)


def _first_of(parts: Parts) -> Parts:
    return Parts(parts.delta[:1], parts.first[:1], parts.factored[:1])


def first_round(setting: Setting) -> Knowledge:
    """What colluders know when they choose their first updates."""
    seen: list[Knowledge] = []
    watching = Adversary(seen.append, text=unchanged)
    next(Run(setting, rule_alone, watching).play())
    return seen[0]


@pytest.mark.parametrize("codec", OTHERS)
def test_the_rule_bears_what_a_mean_does_not(codec: str):
    lost = excess(Setting(n=6, f=1, rounds=3, codec=codec), ADVERSARIES["scaled_flip"])
    assert lost["among_friends"] > 5
    assert lost["rule_alone"] < 4  # a flip reaches the edge of what is honest; the checks name it
    assert abs(lost["default"]) < 2


def excess(setting: Setting, build: Callable[[], Adversary]) -> dict[str, float]:
    """Percent of final loss over that of the honest seats alone, by merge."""
    memo: Memo = {}
    base = Run(setting, among_friends, memo=memo).final_loss()
    return {
        merge.__name__: 100 * (Run(setting, merge, build(), memo).final_loss() / base - 1)
        for merge in (default, rule_alone, among_friends)
    }
