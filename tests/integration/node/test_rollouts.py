"""Helpers of a provider, each a process: an honest one spares it work, and no other costs it more
than a look."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from aiohttp.test_utils import TestServer
from tests.unit.train.factories import task_of
from tests.unit.train.folders import make_folder
from tests.unit.train.test_rollouts import PROBLEMS, SEQ, TASK, rl_manifest

from atoll.numerics.generate import Generated, Generator, Request, generate
from atoll.numerics.problems import written
from atoll.protocol.manifest import Manifest
from atoll.protocol.task_spec import TaskSpec
from atoll.service.config import RolloutsSection, ServiceConfig
from atoll.storage.local import LocalStore
from atoll.train.data import write_tokens
from atoll.train.initial_model import open_initial_state
from atoll.train.pretrained import prepare_init
from atoll.train.round import TrainedRound, train_round
from atoll.train.seat_task import TrainTask
from atoll_node.rollouts import shared_generation, splitting
from atoll_node.rollouts.endpoint import MOST_EACH, Endpoint, rollouts_endpoint
from atoll_node.rollouts.passes import digest_of, header_of, pass_for
from atoll_node.rollouts.spool import Count, Offer, Spool
from atoll_node.tasks import train

ROOT = Path(__file__).parents[3]
LOOK, PATIENCE = 0.01, 120.0
STEPS, ROWS = 4, 8
NAMES = ("liar", "garbage", "slow", "thief", "a victim")
"""Of helpers whom the provider has let in, and who are no good, but for the victim."""


def adapter_manifest(store: LocalStore, folder: Path) -> Manifest:
    """The same task, learned by adapters on a folder's model."""
    make_folder(folder, "Qwen3", torch.float32)
    prepared = prepare_init(folder, SEQ, store)
    task, vocab = TaskSpec.model_validate(TASK), prepared.model.vocab
    texts = [bytes([65 + token % 8]) for token in range(vocab)]
    data = write_tokens(written(PROBLEMS, texts, task, "uint16"), store)
    plain = rl_manifest(store).model_dump()
    plain["data"] |= {"cid": data.cid, "nodes_cid": data.nodes_cid, "root": data.root}
    plain["data"] |= {"train_tokens": task.words(vocab)}
    plain |= {
        "model": prepared.model.model_dump(),
        "init": prepared.init.model_dump() | {"seed": 3},
        "lora": {"rank": 4, "alpha": "8", "targets": ["q", "v"]},
    }
    return Manifest.model_validate(plain)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "data" / "store", sync=False)


@pytest.fixture(params=["whole", "adapters"])
def task(request: pytest.FixtureRequest, store: LocalStore, tmp_path: Path) -> TrainTask:
    is_whole = request.param == "whole"
    manifest = rl_manifest(store) if is_whole else adapter_manifest(store, tmp_path / "base")
    model = open_initial_state(manifest, store)
    return task_of(manifest, store.add_bytes(model.to_bytes()).to_bytes())


@pytest.fixture
async def url(tmp_path: Path, store: LocalStore) -> AsyncIterator[str]:
    """Of a provider's endpoint, a process."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    nothing, url = tmp_path / "nothing", f"http://127.0.0.1:{port}"
    passes = {name: name for name in NAMES} | {"a friend": pass_for(tmp_path / "home", url)}
    helpers = {name: digest_of(header_of(pass_)) for name, pass_ in passes.items()}
    config = ServiceConfig(
        rpc_urls=("http://127.0.0.1:1",),
        deployment=nothing,
        keystore=nothing,
        password_file=nothing,
        data_dir=tmp_path / "data",
        rollouts=RolloutsSection(port=port, helpers=helpers),
    )
    async with rollouts_endpoint(config):
        yield url


def spool_of(store: LocalStore) -> Spool:
    return Spool.beside(str(store.root))


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [sys.executable, "-m", *command], stdin=pipe, stdout=pipe, text=True, env=environment
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def until(condition: Any) -> None:
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, "it never came"
        time.sleep(LOOK)


def trained_beside(
    task: TrainTask, store: LocalStore, patch: pytest.MonkeyPatch, waits: Any
) -> TrainedRound:
    """A round as a provider's worker trains it, one that is so slow that it waits for `waits`
    before its own first part."""

    def slow(generator: Generator, request: Request) -> Generated:
        until(waits)
        return generate(generator, request)

    patch.setattr(shared_generation, "generate", slow)
    patch.setattr(splitting, "LOST_SHARE", float("inf"))  # however long it waits here
    until(spool_of(store).has_helpers)
    return train(task, str(store.root), ())


async def test_an_honest_helper_generates_and_is_counted(
    task: TrainTask, store: LocalStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, spool = train_round(task, store), spool_of(store)
    told = ("--for", url, "--home", str(tmp_path / "home"))

    def is_helped() -> bool:
        offer = spool.offer()
        return offer is not None and any(spool.results(offer, offer.parts))

    def beside_a_helper() -> TrainedRound:
        with process("atoll.cli.main", "rollout", *told):
            return trained_beside(task, store, monkeypatch, is_helped)

    shared = await asyncio.to_thread(beside_a_helper)
    assert (shared.states, shared.work_tags) == (alone.states, alone.work_tags)
    assert (shared.update_root, shared.sampled) == (alone.update_root, alone.sampled)
    count = spool.counts()["a friend"]
    assert STEPS - 1 <= count.sequences < (STEPS - 1) * ROWS  # the first is done at once
    assert count.tokens >= count.sequences
    assert count.false == 0
    assert json.loads(await read(f"{url}/counts"))["a friend"]["tokens"] == count.tokens
    assert f"<td>a friend</td><td>{count.sequences}</td>" in await read(f"{url}/")


async def read(url: str) -> str:
    def ask() -> str:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(ask)


def beside_a_stranger(
    kind: str, url: str, task: TrainTask, store: LocalStore, patch: pytest.MonkeyPatch
) -> tuple[TrainedRound, str]:
    """What was trained once the stranger had sent what it has, and what it says of that."""
    with process("tests.integration.node.rollout_strangers", kind, url) as stranger:
        lines: list[str] = []
        assert stranger.stdout is not None
        reading = threading.Thread(target=lambda: lines.extend(stranger.stdout or ()), daemon=True)
        reading.start()
        trained = trained_beside(task, store, patch, lambda: lines)
        until(lambda: len(lines) == 2)
    reading.join()
    return trained, lines[1].strip()


SAID = {
    "liar": "refused",
    "garbage": "400 400 410 404 404 204 410",
    "slow": "holds",
    "thief": "404 410 410 410",
    "stranger": "401 401 401 401 401",
}


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("task", ["whole"], indirect=True)
async def test_a_helper_that_is_no_good_changes_nothing(
    kind: str, task: TrainTask, store: LocalStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train_round(task, store)
    given = (kind, url, task, store, monkeypatch)
    shared, said = await asyncio.to_thread(beside_a_stranger, *given)
    assert said == SAID[kind]
    assert (shared.states, shared.work_tags) == (alone.states, alone.work_tags)
    assert shared.update_root == alone.update_root
    counts = spool_of(store).counts()
    assert set(counts) <= {kind}  # nothing is said of whom it took a part from
    count = counts.get(kind, Count())
    assert (count.sequences, count.tokens) == (0, 0)
    # Of a liar no more are looked at than this in each step.
    assert (count.false > 0) is (kind in {"liar", "garbage"})
    assert count.false <= shared_generation.MOST_FALSE * STEPS


@pytest.mark.parametrize("task", ["whole"], indirect=True)
async def test_without_a_helper_a_step_is_generated_at_once(
    task: TrainTask, store: LocalStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_generation, "generate", None)
    spool = spool_of(store)
    shared = await asyncio.to_thread(train, task, str(store.root), ())
    assert shared.update_root == train_round(task, store).update_root
    assert spool.offer() is None


@pytest.mark.parametrize("task", ["whole"], indirect=True)
def test_who_asks_and_sends_nothing_costs_one_step_in_parts(
    task: TrainTask, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which generating takes a second, of however many sequences."""
    spool, seconds = spool_of(store), [0.0]
    spool.begin()
    alone = train_round(task, store)

    def timed(make: Any) -> Any:
        def made(*args: Any) -> Any:
            seconds[0] += 1
            spool.note_helper()
            asked.append(spool.offer() is not None)
            return make(*args)

        return made

    asked: list[bool] = []
    monkeypatch.setattr(shared_generation, "generate", timed(generate))
    monkeypatch.setattr(shared_generation, "make_here", timed(shared_generation.make_here))
    monkeypatch.setattr(shared_generation, "monotonic", lambda: seconds[0])
    spool.note_helper()
    shared = train(task, str(store.root), ())
    assert (shared.states, shared.work_tags) == (alone.states, alone.work_tags)
    # At once, then 1, 2, 4 and 1 of eight parts, then at once.
    assert asked == [False, *[True] * 4, False, False]


async def test_who_takes_files_slowly_keeps_itself_alone_from_being_answered(
    tmp_path: Path, store: LocalStore
) -> None:
    spool, digest = Spool(tmp_path / "spool"), "0" * 64
    spool.begin()
    offer = Offer(
        step="0" * 32,
        manifest=digest,
        params=digest,
        base=None,
        parts=(),
        prompts=(),
        new_tokens=1,
        ends=(),
        key=(1, 2),
        global_step=0,
        seq=SEQ,
    )
    spool.publish(offer, {digest: bytes(1 << 26)})
    names = {digest_of(header_of(name)): name for name in ("slow", "other")}
    async with TestServer(Endpoint(spool, store, names).app()) as server:
        held = [await asyncio.open_connection(server.host, server.port) for _ in range(MOST_EACH)]
        for reader, writer in held:
            head = f"GET /files/{digest} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer slow\r\n\r\n"
            writer.write(head.encode())
            assert b" 200 " in await reader.readline()
        async with aiohttp.ClientSession() as session:

            async def status(name: str, path: str = "/offer") -> int:
                headers = {"Authorization": f"Bearer {name}"}
                async with session.get(server.make_url(path), headers=headers) as answer:
                    return answer.status

            assert await status("slow") == 503
            assert (await status("other"), await status("nobody", "/counts")) == (200, 200)
            held[0][1].transport.abort()
            for _ in range(200):
                if await status("slow") == 200:
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError("who is gone counts still")
            held[1][1].transport.abort()
