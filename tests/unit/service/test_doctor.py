"""Each check of `atoll doctor`, on something that is right and on the same with one thing wrong."""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from atoll.chain.keys import create_key
from atoll.errors import ConfigError
from atoll.numerics.kernels.engine import reference_engine
from atoll.protocol.bls_arkworks import Arkworks
from atoll.protocol.bls_library import InUse
from atoll.protocol.types import BlockRef, Digest
from atoll.service.config import GatewaySection
from atoll.service.doctor import chain_checks, examine, file_checks, machine_checks
from atoll.service.doctor.findings import Finding, Level, ok
from atoll.service.doctor.gateway_checks import check_gateway
from atoll.service.doctor.subject import Subject
from atoll.service.lock import hold_folder
from atoll.service.private import require_private
from atoll.train import memory_limit

PASSWORD = "correct horse battery"
HEAD = BlockRef(7, Digest(bytes(32)), 1_000_000)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A key, its password and a data folder, as they should be."""
    data = tmp_path / "da?ta"  # not every path is a URL
    data.mkdir(mode=0o700)
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD)
    key = create_key(tmp_path / "keys", PASSWORD, devnet=True)
    return Subject(keystore=key.path, password_file=password, data_dir=data, store_dir=data)


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_a_key_that_its_password_opens(subject: Subject) -> None:
    assert levels(file_checks.check_key(subject)) == [Level.OK]
    assert subject.password_file is not None
    subject.password_file.write_text("another password")
    (found,) = file_checks.check_key(subject)
    assert (found.level, "does not open" in found.text) == (Level.FAILURE, True)


@pytest.mark.parametrize(("name", "mode"), [("keystore", 0o644), ("password_file", 0o640),
                                            ("data_dir", 0o750)])  # fmt: skip
def test_modes_that_let_others_in_are_failures_and_refused(
    subject: Subject, name: str, mode: int
) -> None:
    assert levels(file_checks.check_modes(subject)) == [Level.OK]
    path: Path = getattr(subject, name)
    wanted = "700" if path.is_dir() else "600"
    path.chmod(mode)
    (found,) = file_checks.check_modes(subject)
    mends = shlex.join(["chmod", wanted, str(path)])
    assert (found.level, found.next_step) == (Level.FAILURE, mends)
    with pytest.raises(ConfigError, match="others can use it"):
        require_private([path])


def test_a_journal_that_others_can_read(subject: Subject) -> None:
    assert subject.data_dir is not None
    journal = subject.data_dir / "journal.sqlite"
    journal.touch(mode=0o600)
    assert levels(file_checks.check_modes(subject)) == [Level.OK]
    journal.chmod(0o604)
    assert levels(file_checks.check_modes(subject)) == [Level.FAILURE]


def test_room_on_the_disk(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = replace(subject, quota_bytes=1 << 30)
    for room, wanted in ((1 << 29, Level.FAILURE), (5 << 30, Level.WARNING), (50 << 30, Level.OK)):
        usage = (1 << 40, 0, room)
        monkeypatch.setattr(
            file_checks.shutil, "disk_usage", lambda _, u=usage: type("", (), {"free": u[2]})
        )
        assert file_checks.check_disk(bounded)[0].level is wanted
    assert levels(file_checks.check_disk(bounded)) == [Level.OK, Level.OK]
    assert levels(file_checks.check_disk(replace(subject, quota_bytes=60 << 30))) == [
        Level.OK,
        Level.WARNING,
    ]
    assert levels(file_checks.check_disk(subject)) == [Level.OK, Level.WARNING]  # no quota at all


def test_a_damaged_database_is_told_and_read_only(subject: Subject) -> None:
    assert subject.data_dir is not None
    path = subject.data_dir / "journal.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE entries (body TEXT)")
        database.executemany("INSERT INTO entries VALUES (?)", [("x" * 500,)] * 50)
    database.close()
    assert levels(file_checks.check_running(subject)) == [Level.OK]
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[4096:8192] = bytes(4096)
    path.write_bytes(damaged)
    assert levels(file_checks.check_running(subject)) == [Level.OK, Level.FAILURE]
    assert path.read_bytes() == damaged


def test_who_runs_is_told(subject: Subject) -> None:
    assert subject.data_dir is not None
    with hold_folder(subject.data_dir):
        (found,) = file_checks.check_running(subject)
    assert f"runs in {subject.data_dir}" in found.text


@pytest.mark.parametrize(
    ("now", "level"),
    [(1_000_010, Level.OK), (999_990, Level.OK), (999_900, Level.FAILURE),
     (1_000_500, Level.WARNING)],
)  # fmt: skip
def test_the_clock_against_the_newest_block(now: float, level: Level) -> None:
    assert levels(chain_checks._check_clock(seen(8453), now)) == [level]


def seen(chain_id: int) -> chain_checks.SeenEndpoint:
    return chain_checks.SeenEndpoint("http://127.0.0.1:8545", chain_id, HEAD)


@pytest.mark.parametrize("chain_id", [1337, 31337])
def test_a_development_chain_may_run_ahead_of_this_machine(chain_id: int) -> None:
    (found,) = chain_checks._check_clock(seen(chain_id), 900_000)
    assert (found.level, found.next_step) == (Level.OK, "")
    assert "100000 s ahead" in found.text and str(chain_id) in found.text
    assert levels(chain_checks._check_clock(seen(chain_id), 1_000_500)) == [Level.WARNING]
    assert levels(chain_checks._check_clock(seen(chain_id + 1), 900_000)) == [Level.FAILURE]


def test_where_a_system_does_not_say_what_is_free_all_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name: at for name, at in os.sysconf_names.items() if name != "SC_AVPHYS_PAGES"}
    monkeypatch.setattr(os, "sysconf_names", names)
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", tmp_path / "none")
    total, free = machine_checks.memory()
    assert total == free > 0


def test_memory_is_what_the_group_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", limit)
    for text, level in ((str(1 << 29), Level.FAILURE), (str(3 << 30), Level.WARNING)):
        limit.write_text(text + "\n")
        assert levels(machine_checks.check_memory()) == [level]
    assert levels(machine_checks.check_python()) == [Level.OK]


def test_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks.resource, "getrlimit", lambda _: (1024, 524288))
    (found,) = machine_checks.check_open_files()
    assert (found.level, found.next_step) == (Level.WARNING, "ulimit -n 4096")


def test_slow_kernels_are_told_on_every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = reference_engine()
    monkeypatch.setattr("atoll.numerics.kernels.engine.make_engine", lambda device: slow)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    for device, wanted in (("cpu", "C compiler (gcc or clang), then"), ("cuda:1", "PyTorch 2.10")):
        (finding,) = machine_checks._check_kernels(device)
        assert finding.level is Level.WARNING and wanted in (finding.next_step or "")


def test_each_device_is_tried_and_one_that_is_not_there_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(machine_checks, "_check_kernels", lambda name: [ok("kernels", name)])
    for devices, wanted in (
        (None, ["a rank on cpu", "cpu"]),
        (("cpu", "cpu"), ["2 ranks on cpu, cpu", "cpu"]),
        (("cuda:1",), ["a rank on cuda:1", "cuda:1"]),
        ("all", ["2 ranks on cuda:0, cuda:1", "cuda:0", "cuda:1"]),
    ):
        _, *found = machine_checks.check_torch(Subject(devices=devices))
        assert [each.text for each in found] == wanted
    _, missing = machine_checks.check_torch(Subject(devices=("cuda:0", "cuda:2")))
    assert (missing.level, "no cuda:2" in missing.text) == (Level.FAILURE, True)
    assert "nvidia-smi" in (missing.next_step or "")


@pytest.mark.parametrize("reason", [None, "arkworks and py-ecc differ in keys"])
def test_what_signs_in_bls_is_named(monkeypatch: pytest.MonkeyPatch, reason: str | None) -> None:
    used = InUse(Arkworks(), reason)
    monkeypatch.setattr("atoll.protocol.bls_library.in_use", lambda: used)
    (finding,) = machine_checks.check_bls()
    assert finding.level is (Level.WARNING if reason else Level.OK)
    assert (reason or "arkworks") in finding.text


def test_this_machines_kernels_are_accepted() -> None:
    assert levels(machine_checks.check_torch(Subject())) == [Level.OK] * 3


async def test_a_gateway_that_its_public_url_leads_to(unused_tcp_port: int) -> None:
    here = f"http://127.0.0.1:{unused_tcp_port}"
    section = GatewaySection(port=unused_tcp_port, public_url=here)
    port, reach = await check_gateway(Subject(gateway=section))
    assert (port.level, reach.level) == (Level.OK, Level.WARNING)
    assert "on this machine or its network only" in reach.text
    elsewhere = section.model_copy(update={"public_url": "http://127.0.0.1:9"})
    port, reach = await check_gateway(Subject(gateway=elsewhere))
    assert (port.level, reach.level) == (Level.OK, Level.FAILURE)
    assert "host is local, 127.0.0.1: set it to 0.0.0.0" in str(reach.next_step)
    everywhere = elsewhere.model_copy(update={"host": "0.0.0.0"})
    port, reach = await check_gateway(Subject(gateway=everywhere))
    assert (reach.level, "host" in str(reach.next_step)) == (Level.FAILURE, False)
    unannounced = section.model_copy(update={"public_url": None})
    assert levels(await check_gateway(Subject(gateway=unannounced))) == [Level.OK, Level.WARNING]
    silent = unannounced.model_copy(update={"announce": False})
    assert levels(await check_gateway(Subject(gateway=silent))) == [Level.OK, Level.OK]
    moving = section.model_copy(update={"port": 0})
    assert levels(await check_gateway(Subject(gateway=moving))) == [Level.FAILURE]


async def test_a_port_that_another_has(unused_tcp_port: int) -> None:
    import asyncio

    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", unused_tcp_port)
    async with server:
        section = GatewaySection(port=unused_tcp_port)
        (found,) = await check_gateway(Subject(gateway=section))
    assert (found.level, "is in use" in found.text) == (Level.FAILURE, True)


async def test_a_check_that_fails_by_itself_ends_nothing(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Subject) -> list[Finding]:
        raise RuntimeError("odd machine")

    monkeypatch.setattr(examine, "check_disk", broken)
    found = {f.name: f async for f in examine.examine(subject, numerics=False)}
    assert (found["disk"].level, "odd machine" in found["disk"].text) == (Level.FAILURE, True)
    assert found["key"].level is Level.OK
    assert found["endpoint"].level is Level.WARNING


@pytest.mark.parametrize(("per_stake", "level"), [(0.0, Level.WARNING), (0.0001, Level.OK)])
def test_a_cap_that_would_cost_bonds_is_told(per_stake: float, level: Level) -> None:
    found = chain_checks._check_fees(Subject(fee_cap=200 * 10**9, fee_per_stake=per_stake))
    assert found.level is level and "200 gwei" in found.text
    assert ("token_in_coin" in (found.next_step or "")) == (level is Level.WARNING)
