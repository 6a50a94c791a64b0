"""The stranger does what it says, and no more."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, WATCHER

from atoll.errors import ProtocolError
from atoll.protocol import events as ev
from atoll_devnet.run.stranger import (
    ACCOUNTS,
    DAMAGED,
    Deed,
    _announced,
    _turn_bits,
    check_deeds,
    point_at,
)


@pytest.mark.parametrize("files", [0, 3, 40])
def test_one_bit_each_of_a_few_files_is_turned(tmp_path: Path, files: int) -> None:
    before = {}
    for number in range(files):
        path = tmp_path / f"{number % 4}" / str(number)
        path.parent.mkdir(exist_ok=True)
        before[path] = bytes([number]) * (number * 100 + 1)
        path.write_bytes(before[path])
    counted = _turn_bits(tmp_path, Random(1))
    turned = [
        sum((a ^ b).bit_count() for a, b in zip(path.read_bytes(), content, strict=True))
        for path, content in before.items()
    ]
    assert sorted(set(turned)) == ([0, 1] if files > DAMAGED else [1] if files else [])
    assert sum(turned) == counted == min(DAMAGED, files)


def test_what_nobody_else_gives_out_stays_whole(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder, names in ((mine, ("ab/shared", "cd/own")), (other, ("ab/shared",))):
        for name in names:
            (folder / name).parent.mkdir(parents=True)
            (folder / name).write_bytes(b"block")
    assert _turn_bits(mine, Random(1), other) == 1
    assert (mine / "ab/shared").read_bytes() != b"block"
    assert (mine / "cd/own").read_bytes() == b"block"


def test_a_member_is_pointed_at_other_endpoints_and_keeps_the_rest(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('owner = "0x1"\nrpc_urls = ["http://a"]\nkeystore = "key"\n')
    point_at(tmp_path, ["http://b", "http://c"])
    there = 'owner = "0x1"\nrpc_urls = ["http://b", "http://c"]\nkeystore = "key"\n'
    assert config.read_text() == there


def test_gateways_besieged_are_others_on_this_machine_whatever_was_announced() -> None:
    net = Network()
    for account, url in (
        (PROVIDERS[0], "http://127.0.0.1:4001"),
        (PROVIDERS[1], "http://127.0.0.1:none"),
        (PROVIDERS[2], "http://other:4002"),
        (WATCHER, "http://[::1"),
        (ACCOUNTS[0], "http://127.0.0.1:4003"),
    ):
        net.emit(ev.GatewayAnnounced(account, url))
    assert _announced({net.view.job_id: net.view}) == {4001}


def test_a_deed_that_was_excluded_is_named() -> None:
    done = dict.fromkeys(Deed, 1)
    check_deeds(done)
    for deed in Deed:
        with pytest.raises(ProtocolError, match=deed.value):
            check_deeds(done | {deed: 0})
