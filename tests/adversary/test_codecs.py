"""Runs, and attacks, with other codecs than int8. bench/attacks.py --codecs has the figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.adversary.adversaries import ADVERSARIES, concentrated, hidden, malformed_bytes
from tests.adversary.codecs import CODECS, spec_of, write
from tests.adversary.merges import among_friends, default, rule_alone
from tests.adversary.run import Adversary, Arrived, Knowledge, Memo, Run, Setting
from tests.adversary.updates import where_few_send, where_nobody_sends

from atoll.bits.codec.dither import DitherKey
from atoll.bits.state import GlobalState
from atoll.law.manifest import SPARSE_CODECS, Manifest
from atoll.train.probe import configure_native

configure_native()

DENSE = tuple(codec for codec in CODECS if codec not in SPARSE_CODECS)
SPARSE = tuple(codec for codec in CODECS if codec in SPARSE_CODECS)


def first_round(setting: Setting) -> Knowledge:
    """What colluders know when they choose their first updates."""
    seen: list[Knowledge] = []
    watching = Adversary(seen.append, targets=lambda targets: targets)
    next(Run(setting, rule_alone, watching).play())
    return seen[0]


@pytest.mark.parametrize("codec", CODECS)
def test_a_manifest_of_every_codec_is_valid_and_trains(codec: str):
    run = Run(Setting(n=3, f=0, rounds=3, steps=8, codec=codec), among_friends)
    assert dict(Manifest.from_bytes(run.manifest.to_bytes())) == dict(run.manifest)
    assert run.manifest.codec == spec_of(codec)
    records = list(run.play())
    assert run.loss(records[-1].state) < run.loss(records[0].opening) - 0.3


@pytest.mark.parametrize("codec", CODECS)
def test_malformed_bytes_are_refused_and_count_as_caught(codec: str):
    setting = Setting(n=4, f=1, rounds=1, steps=2, codec=codec)
    seen: list[tuple[set[int], int]] = []

    def watching(arrived: Arrived) -> GlobalState:
        seen.append((set(arrived.updates), arrived.caught))
        return default(arrived)

    next(Run(setting, watching, malformed_bytes()).play())
    assert seen == [(set(setting.honest), 1)]


@pytest.mark.parametrize("codec", ["two_bit", "sign", *SPARSE])
def test_what_a_codec_left_out_comes_the_round_after(codec: str):
    run = Run(Setting(n=2, f=0, codec=codec), among_friends)
    state = next(run.play()).opening
    spec, dither, rng = spec_of(codec), DitherKey(run.seed_of(0), 0), np.random.default_rng(1)
    noise = rng.normal(0, 2.0**-9, run.layout.total)
    tensors = {
        name: state.params[name].new_tensor(noise[span]).view(shape)
        for name, shape, span in run.layout.spans()
    }
    first = write(tensors, None, spec, dither, state.exponents)
    nothing = {name: value * 0 for name, value in tensors.items()}
    second = write(nothing, first, spec, dither, state.exponents)
    assert first.residual is not None
    kept = {name: value * float(spec.feedback) for name, value in first.residual.items()}
    assert second.data == write(kept, None, spec, dither, state.exponents).data
    assert second.data != write(nothing, None, spec, dither, state.exponents).data


@pytest.mark.parametrize("codec", CODECS)
def test_a_row_is_written_as_near_as_the_codec_can_say(codec: str):
    """Grids say their own rows exactly; where values choose a step it may come out one lower."""
    known = first_round(Setting(n=4, f=1, steps=4, codec=codec))
    sent, meant = known.arrives(known.honest[:1])[0], known.honest[0]
    if codec in ("grid8", "grid4"):
        assert (sent == meant).all()
    else:
        assert sent @ meant > 0.8 * np.linalg.norm(sent) * np.linalg.norm(meant)


@pytest.mark.parametrize("codec", SPARSE)
def test_colluders_of_a_sparse_codec_share_out_coordinates_that_few_send(codec: str):
    known = first_round(Setting(n=6, f=2, steps=4, codec=codec))
    alone = where_nobody_sends(known.honest, 2, known.rng)
    assert not known.honest[:, alone.any(axis=0)].any()
    against = where_few_send(known.honest, 2, known.rng)
    assert (against * known.honest.sum(axis=0) <= 0).all()
    for rows in (alone, against):
        assert (np.count_nonzero(rows, axis=0) <= 1).all()
        lengths = np.linalg.norm(known.arrives(rows), axis=1)
        median = np.median(np.linalg.norm(known.honest, axis=1))
        assert (median < lengths).all() and (lengths < 3 * median).all()


@pytest.mark.parametrize("codec", SPARSE)
def test_what_nobody_else_sends_can_be_exchanged_without_a_trace_in_inner_products(codec: str):
    known = first_round(Setting(n=6, f=2, steps=4, codec=codec))
    rows = hidden(known, where_nobody_sends(known.honest, 2, known.rng), share=1.0)
    exchanged = (rows != known.trained).sum(axis=1)
    assert (exchanged > np.count_nonzero(known.trained, axis=1) / 4).all()
    assert (np.count_nonzero(rows, axis=1) == np.count_nonzero(known.trained, axis=1)).all()
    assert (rows @ known.honest.T == known.trained @ known.honest.T).all()


@pytest.mark.parametrize("codec", SPARSE)
def test_a_mean_over_contributors_alone_does_not_bear_concentration(codec: str):
    """Percent over the honest-only mean with the same codec; replays find the colluders."""
    lost = excess(Setting(n=6, f=1, rounds=4, codec=codec), concentrated)
    assert lost["rule_alone"] > 5
    assert lost["default"] < 1


@pytest.mark.parametrize("codec", DENSE)
def test_the_rule_of_a_dense_codec_bears_what_its_mean_does_not(codec: str):
    lost = excess(Setting(n=6, f=1, rounds=4, codec=codec), ADVERSARIES["scaled_flip"])
    assert lost["among_friends"] > 5
    assert abs(lost["rule_alone"]) < 1.5
    assert abs(lost["default"]) < 1.5


def excess(setting: Setting, build: Callable[[], Adversary]) -> dict[str, float]:
    """Percent of final loss over that of the honest seats alone, by merge."""
    memo: Memo = {}
    base = Run(setting, among_friends, memo=memo).final_loss()
    return {
        merge.__name__: 100 * (Run(setting, merge, build(), memo).final_loss() / base - 1)
        for merge in (default, rule_alone, among_friends)
    }
