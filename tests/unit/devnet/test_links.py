"""Links of several processes at once: names and addresses of their own, and nothing left."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll_devnet.processes import links as linking
from atoll_devnet.processes.links import NETWORKS, Links, free_network, left_over

LONGEST = 15
"""Characters of a device's name."""
NO_PROCESS = 2**22 + 7
"""Linux gives no such number to a process."""
As = Callable[[int], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was run, of which nothing was done; it has the addresses that were given to it."""
    ran: list[tuple[str, ...]] = []

    def run(command: Any, **_: Any) -> Any:
        ran.append(tuple(command))
        has = b""
        if "show" in command:
            given = {w for words in ran if "add" in words for w in words}
            has = b"it has" if f"{command[-1]}/24" in given else b""
        return subprocess.CompletedProcess(command, 0, has, b"")

    monkeypatch.setattr(linking.subprocess, "run", run)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return ran


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> As:
    def as_(pid: int) -> None:
        monkeypatch.setattr(os, "getpid", lambda: pid)

    return as_


def made(ran: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    """Devices and namespaces, as their kind and name."""
    return {(words[1], words[3]) for words in ran if words[2:3] == ("add",) and words[1] != "addr"}


def removed(ran: list[tuple[str, ...]]) -> set[tuple[str, str]]:
    return {(words[1], words[3]) for words in ran if words[2:3] == ("del",)}


def test_links_of_two_processes_share_nothing(machine: list[Any], become: As) -> None:
    become(400)
    with Links(2, 10) as first:
        own, address = made(machine), first.host
        mine = {first.space(0), first.outer(1), first.bridge, first.address(1)}
        become(400 + len(NETWORKS))  # begins to look for a network where the other did
        machine[:] = [("ip", "addr", "add", f"{address}/24")]
        with Links(2, 10) as second:
            assert not own & made(machine)
            theirs = {second.space(0), second.outer(1), second.bridge, second.address(1)}
            assert not mine & theirs
            assert first.network != second.network


def test_all_that_is_made_is_removed_also_where_that_fails(
    machine: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Links(2, 10):
        assert len(made(machine)) == 5
    assert removed(machine) == made(machine)
    machine.clear()
    monkeypatch.setattr(Links, "shape", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Links(2, 10).__enter__()
    assert removed(machine) == made(machine) != set()


def test_the_kernel_takes_every_name(machine: list[Any], become: As) -> None:
    become(2**22)
    links = Links(253)
    assert max(map(len, (links.bridge, links.space(252), links.outer(252)))) <= LONGEST


def test_what_others_use_is_not_left_over() -> None:
    own, other = os.getpid(), os.getppid()
    names = [f"atl{own}", f"atl{own}-3", f"atl{NO_PROCESS}", f"atl{NO_PROCESS}-12"]
    others = [f"atl{other}", f"atl{other}-0", "atl", "atlas0", "atl7x", "eth0"]
    assert list(left_over([*names, *others])) == names


def test_a_network_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"10.77.255.1", "10.77.0.1"}
    monkeypatch.setattr(linking, "_is_ours", taken.__contains__)
    assert free_network(255) == "10.77.1"
    monkeypatch.setattr(linking, "_is_ours", lambda _: True)
    with pytest.raises(ConfigError, match="in use"):
        free_network(0)
