"""Which machine is on battery, and for how long before a place is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.service.power import AWHILE_SECONDS, Mains, on_battery

DISCHARGING = {"type": "Battery", "status": "Discharging"}


def plugged(folder: Path, **supplies: dict[str, str]) -> Path:
    """A folder as Linux has it."""
    for name, files in supplies.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / name / file).write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize(
    ("battery", "is_on"),
    [
        (DISCHARGING, True),
        (DISCHARGING | {"scope": "System"}, True),
        (DISCHARGING | {"status": "Charging"}, False),
        (DISCHARGING | {"status": "Not charging"}, False),
        (DISCHARGING | {"scope": "Device"}, False),
        (DISCHARGING | {"type": "UPS"}, False),
    ],
)
def test_a_battery_of_the_machine_that_is_emptied(
    tmp_path: Path, battery: dict[str, str], is_on: bool
) -> None:
    assert on_battery(plugged(tmp_path, AC={"type": "Mains"}, BAT0=battery)) is is_on


def test_a_machine_without_any_is_on_mains(tmp_path: Path) -> None:
    assert not on_battery(tmp_path / "none")


def test_a_cable_that_is_pulled_for_a_moment_costs_no_place(tmp_path: Path) -> None:
    supplies = plugged(tmp_path, BAT0=DISCHARGING)
    mains = Mains(is_wanted=True, supplies=supplies)
    assert not mains.look(0.0)
    assert not mains.look(AWHILE_SECONDS - 1)
    plugged(tmp_path, BAT0={"status": "Charging"})
    assert not mains.look(AWHILE_SECONDS)
    plugged(tmp_path, BAT0=DISCHARGING)
    assert not mains.look(AWHILE_SECONDS + 1)
    assert mains.why_out == ""
    assert mains.look(2 * AWHILE_SECONDS + 1)
    assert "on battery" in mains.why_out
    assert not mains.look(2 * AWHILE_SECONDS + 2)  # nothing is new
    plugged(tmp_path, BAT0={"status": "Full"})
    assert mains.look(2 * AWHILE_SECONDS + 3)
    assert mains.why_out == ""


def test_who_did_not_ask_for_it_works_on(tmp_path: Path) -> None:
    mains = Mains(is_wanted=False, supplies=plugged(tmp_path, BAT0=DISCHARGING))
    assert not mains.look(0.0)
    assert not mains.look(AWHILE_SECONDS)
    assert mains.why_out == ""
