"""The default rule keeps backdoors out that nearest-neighbour mixing lets in, in real small runs.

The loss shows neither: bench/attacks.py --attacks backdoors has the whole table.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from tests.adversary.backdoors import BACKDOORS, PAYLOAD, TRIGGER, UNSEEN, planted
from tests.adversary.corpus import Mix, text_of
from tests.adversary.merges import MERGES, inputs_of
from tests.adversary.run import Memo, PlayedRound, Run, Setting, manifest_of

from atoll.job.methods import DENSE_CODECS, METHODS, SPARSE_RULE, method_of, with_codec
from atoll.train.probe import pin_torch

pin_torch()

SETTING = Setting(n=8, f=2, rounds=16)
MEMO: Memo = {}
BAR = 0.05
"""Of P(payload | trigger)."""


@cache
def played(merge: str, backdoor: str | None) -> tuple[Run, list[PlayedRound]]:
    """A run of two colluders of eight, or with their seats empty, for all tests that look at it."""
    adversary = None if backdoor is None else BACKDOORS[backdoor].adversary(SETTING.rounds)
    run = Run(SETTING, MERGES[merge], adversary, MEMO)
    return run, list(run.play())


def chance(merge: str, backdoor: str | None) -> float:
    """What is planted at the end."""
    trigger = TRIGGER if backdoor is None else BACKDOORS[backdoor].trigger
    _, records = played(merge, backdoor)
    return planted(records[-1].state, trigger)


def test_the_default_keeps_a_backdoor_out_that_mixing_lets_in():
    assert chance("default", "backdoor_5") < BAR
    assert chance("checked_nnm_trimmed_mean", "backdoor_5") > 0.5


def test_the_loss_does_not_tell_them_apart():
    out, let_in, honest = (
        run.loss(records[-1].state)
        for run, records in (
            played("default", "backdoor_5"),
            played("checked_nnm_trimmed_mean", "backdoor_5"),
            played("default", None),
        )
    )
    assert abs(let_in / out - 1) < 0.02
    assert abs(let_in / honest - 1) < 0.02


def test_nobody_who_plants_is_excluded():
    run, records = played("checked_nnm_trimmed_mean", "backdoor_5")
    excluded = [
        inputs_of(run.arrived(each.initial_state, each.updates)).excluded for each in records
    ]
    assert sum(seat < SETTING.f for seats in excluded for seat in seats) <= len(records) // 4


def test_without_colluders_nothing_is_planted():
    assert chance("default", None) < 0.01


def test_every_dense_method_has_the_rule_of_these_runs():
    rule = manifest_of(SETTING).robust.rule
    assert {method.rule for method in METHODS.values()} == {rule, SPARSE_RULE}
    codecs = [codec for codec in DENSE_CODECS if codec != "fp32"]
    assert {with_codec(method_of("fedavg"), codec).rule for codec in codecs} == {rule}


def test_one_trigger_is_seldom_and_one_is_nowhere_in_the_text():
    (text,), _ = text_of(Mix.SHARED)
    assert 0 < np.count_nonzero(text == TRIGGER) < len(text) / 1000
    assert not np.count_nonzero(text == UNSEEN)


@pytest.mark.parametrize(
    ("name", "lying"),
    [
        ("backdoor_5", range(20)),
        ("backdoor_late", range(14, 20)),
        ("backdoor_bursts", range(0, 20, 4)),
    ],
)
def test_they_lie_when_they_are_said_to(name: str, lying: range):
    """And in other rounds train on what they draw, and on no more than their share elsewhere."""
    backdoor, (text, _) = BACKDOORS[name], text_of(Mix.SHARED)
    adversary = backdoor.adversary(20)
    drawn = torch.from_numpy(text[0][: 8 * 1024].astype(np.int64)).view(8, 1024)
    for round in range(20):
        inputs, targets = adversary.text(round, (drawn, drawn.roll(-1)))
        changed = float((inputs != drawn).float().mean())
        assert (changed > 0) == (round in lying)
        assert changed < 1.5 * backdoor.share
        if round in lying:
            assert bool((targets[inputs == TRIGGER] == PAYLOAD).all())
        else:
            assert torch.equal(targets, drawn.roll(-1))


def test_who_boosts_goes_as_far_as_nobody_is_named():
    run = Run(SETTING, MERGES["default"], BACKDOORS["backdoor_boosted"].adversary(1), MEMO)
    record = next(run.play())
    found = inputs_of(run.arrived(record.initial_state, record.updates))
    assert not {named.seat for named in found.named} & set(SETTING.colluders)
    parts = run.parts_of(record.updates, record.initial_state)
    away = np.linalg.norm(parts.delta - parts.delta[SETTING.f :].mean(axis=0), axis=1)
    assert away[: SETTING.f].min() > 1.2 * away[SETTING.f :].max()
