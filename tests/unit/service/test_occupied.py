"""When others use the machine, and for how long before a place is given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.service.occupied import AWHILE_SECONDS, Occupied, ticks

TICKS = 100 * AWHILE_SECONDS


class Machine:
    """Its file, which says what all cores did."""

    def __init__(self, folder: Path) -> None:
        self.file, self.user, self.nice, self.idle = folder / "stat", 1e9, 0.0, 0.0

    def after(self, *, others: float, ours: float = 0.0) -> Path:
        """A while later, of which these shares were used."""
        self.user += TICKS * others
        self.nice += TICKS * ours
        self.idle += TICKS * (1 - others - ours)
        line = f"cpu {self.user:.0f} {self.nice:.0f} 0 {self.idle:.0f} 0 0 0 0 0 0"
        self.file.write_text(f"{line}\ncpu0 1 2\n")
        return self.file


def test_what_has_a_lower_priority_is_no_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    seen = Occupied(0.25, machine.after(others=0))
    assert not seen.look(0.0)
    machine.after(others=0.2, ours=0.8)
    assert not seen.look(AWHILE_SECONDS)
    machine.after(others=0.3, ours=0.7)
    assert seen.look(2 * AWHILE_SECONDS)
    assert "in use by others" in seen.why_out


def test_it_comes_back_once_they_take_half_of_the_bound(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    seen = Occupied(0.5, machine.after(others=0))
    told = []
    for number, share in enumerate((0.0, 0.6, 0.3, 0.2, 0.45)):
        machine.after(others=share)
        seen.look(number * AWHILE_SECONDS)
        told.append(bool(seen.why_out))
    assert told == [False, True, True, False, False]


def test_a_moment_costs_no_place(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    seen = Occupied(0.25, machine.after(others=0))
    seen.look(0.0)
    machine.after(others=1)
    assert not seen.look(AWHILE_SECONDS - 1)


@pytest.mark.parametrize("text", ["", "cpu 1", "cpu a b c", "intr 1 2 3 4 5", "cpu 5 5 5 5"])
def test_a_machine_that_does_not_say_is_never_in_use(tmp_path: Path, text: str) -> None:
    file = tmp_path / "stat"
    file.write_text(text)
    seen = Occupied(0.25, file)
    assert not any(seen.look(number * AWHILE_SECONDS) for number in range(3))
    assert not Occupied(0.25, tmp_path / "none").look(0.0)


def test_this_machine_says_it() -> None:
    found = ticks()
    assert found is not None
    assert 0 <= found.others < found.all
