"""The same training in another process, under caps of its own."""

from __future__ import annotations

from tests.unit.numerics.test_lab import SHORT

from atoll.lab import differential as lab
from atoll.lab.differential import Setting, run_apart


def test_another_process_under_caps_gives_it_too() -> None:
    caps = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    result = run_apart(SHORT, Setting(kernels="eager", caps=caps))
    assert isinstance(result, lab.LabResult)
    assert result.digest == lab.expected_digest(SHORT)
    assert result.isa.startswith("DEFAULT; ATEN_CPU_CAPABILITY=default")


def test_a_setting_that_cannot_be_had_says_why() -> None:
    assert "unknown route" in str(run_apart(SHORT, Setting(route="int4")))
