"""The lab prints one digest, and refuses what it cannot do exactly."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from atoll.cli.numerics import app
from atoll.errors import ConfigError, NumericsMismatch
from atoll.lab import differential as lab
from atoll.lab.differential import LabRun, Setting, run, standard_matrix
from atoll.numerics.kernels.engine import engine_on

SHORT = LabRun(width=32, layers=1, seq=16, steps=4)


def test_routes_kernels_and_threads_give_the_expected_digest() -> None:
    expected = lab.expected_digest(SHORT)
    assert expected is not None
    settings = [
        Setting(),
        Setting(route="fp32"),
        Setting(route="fp64", kernels="eager"),
        Setting(threads=2, kernels="eager"),
        Setting(slices=1),
        Setting(slices=3, route="fp32", inner=7),
    ]
    try:
        assert {run(SHORT, setting).digest for setting in settings} == {expected}
    finally:
        run(SHORT, Setting(threads=1))


def test_muon_gives_one_digest_too() -> None:
    what = replace(SHORT, optimizer="muon")
    fast = run(what, Setting()).digest
    assert run(what, Setting(route="fp64", kernels="eager")).digest == fast
    assert fast not in {None, lab.expected_digest(SHORT)}


def test_another_seed_gives_another_digest() -> None:
    other = LabRun(width=32, layers=1, seq=16, steps=4, seed=1)
    assert run(other, Setting()).digest != lab.expected_digest(SHORT)


def test_the_matrix_covers_every_route_kernel_thread_count_and_cap() -> None:
    matrix = standard_matrix()
    for optimizer in ("adamw", "muon"):
        settings = [setting for what, setting in matrix if what.optimizer == optimizer]
        assert {s.route for s in settings} >= {"int8", "fp32", "fp64"}
        assert {s.threads for s in settings} == {1, 2}
        assert {name for s in settings for name in s.caps} == set(lab.CAPS)
    assert all(lab.expected_digest(what) for what, _ in matrix)


def test_the_command_prints_json() -> None:
    arguments = ["verify", "--json", "--width=32", "--layers=1", "--seq=16", "--steps=4"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    document = json.loads(result.stdout.splitlines()[-1])
    assert document["digest"] == lab.expected_digest(SHORT)
    assert document.keys() >= {"route", "threads", "isa", "device", "tokens_per_second"}


def test_a_digest_other_than_the_repositorys_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atoll.lab.differential._batch", _shifted)
    arguments = ["verify", "--width=32", "--layers=1", "--seq=16", "--steps=4"]
    with pytest.raises(NumericsMismatch, match="expected"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def _shifted(tokens: object, what: LabRun, step: int) -> object:
    part = lab.Windows(lab.lab_tokens(9), what.seq).at([step] * (lab.BATCH // 2))
    return [part, part]


def test_an_unknown_optimizer_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown optimizer"):
        CliRunner().invoke(app, ["verify", "--optimizer=sgd"], catch_exceptions=False)


def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device"):
        run(LabRun(), Setting(device="cuda"))
    with pytest.raises(ConfigError, match="unknown device 'tpu'; known: cpu, cuda"):
        engine_on("tpu")
