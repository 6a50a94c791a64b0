"""The stranger does what it says, and no more."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import pytest

from atoll.errors import ConfigError
from atoll_devnet.cli import run_command
from atoll_devnet.processes.cluster import Member
from atoll_devnet.run.stranger import DAMAGED, _turn_bits, point_at


@pytest.mark.parametrize("files", [0, 3, 40])
def test_one_bit_each_of_a_few_files_is_turned(tmp_path: Path, files: int) -> None:
    before = {}
    for number in range(files):
        path = tmp_path / f"{number % 4}" / str(number)
        path.parent.mkdir(exist_ok=True)
        before[path] = bytes([number]) * (number * 100 + 1)
        path.write_bytes(before[path])
    _turn_bits(tmp_path, Random(1))
    turned = [
        sum((a ^ b).bit_count() for a, b in zip(path.read_bytes(), content, strict=True))
        for path, content in before.items()
    ]
    assert sorted(set(turned)) == ([0, 1] if files > DAMAGED else [1] if files else [])
    assert sum(turned) == min(DAMAGED, files)


def test_a_member_is_pointed_at_other_endpoints_and_keeps_the_rest(tmp_path: Path) -> None:
    class Pointed:
        folder = tmp_path

    config = tmp_path / "config.toml"
    config.write_text('rpc_urls = ["http://a"]\nkeystore = "key"\n')
    point_at(cast(Member, Pointed()), ["http://b", "http://c"])
    assert config.read_text() == 'rpc_urls = ["http://b", "http://c"]\nkeystore = "key"\n'


def test_it_takes_anvil() -> None:
    with pytest.raises(ConfigError, match="takes Anvil"):
        run_command(chain="ganache", stranger=True)
