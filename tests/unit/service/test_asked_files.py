"""What a verifier's gateway takes of a job's beginning: what it asked for, and nobody had."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from tests.support.manifests import make_manifest
from tests.unit.protocol.network import Network
from tests.unit.service.held import URL
from tests.unit.storage.gateways import serving

from atoll.protocol.hashing import terms_hash
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.protocol.types import ZERO_DIGEST, Address
from atoll.service.asked_files import asked_files
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
)
from atoll.service.entries import Entry
from atoll.service.machine import (
    AnyCommand,
    Cancel,
    Event,
    Failed,
    Finished,
    Head,
    Ordered,
    Setup,
    State,
)
from atoll.service.service import Service
from atoll.storage import Fetcher, Gateway, LocalStore
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.push import Receivers
from atoll.train.belongings import MAX_TOKENIZER_BYTES
from atoll.train.data import nodes_bytes
from atoll_verifier.behaviour import VerifierBehaviour
from atoll_verifier.machine import step

ME = Address("0x" + "77" * 20)
TOKENS = (3 << 20) + 5
STILL = 0.5


@dataclass
class Asking:
    """A verifier without a place that looks at a job, as its machine goes from step to step."""

    state: State[Any]

    @classmethod
    def of(cls, manifest: Manifest, spec_cid: bytes | None = None) -> Asking:
        named = {
            "spec_cid": manifest.cid() if spec_cid is None else spec_cid,
            "terms_hash": terms_hash(manifest.terms),
        }
        view = replace(Network(manifest.terms).view, **named)
        return cls(State(ME, Setup(URL, VerifierBehaviour()), view, Head(1, 1)))

    def hear(self, *events: Event) -> list[AnyCommand]:
        """What it starts."""
        self.state, orders = step(self.state, *events)
        return [order for order in orders if not isinstance(order, Cancel)]

    @property
    def files(self) -> dict[Cid, int]:
        return asked_files(self.state)

    def did(self, command: AnyCommand, entry: Entry) -> list[AnyCommand]:
        return self.hear(Finished(command.key, entry))


@pytest.fixture
def ours(tmp_path: Path) -> LocalStore:
    """The submitter's."""
    return LocalStore(tmp_path / "ours", sync=False)


@pytest.fixture
def theirs(tmp_path: Path) -> LocalStore:
    """The verifier's."""
    return LocalStore(tmp_path / "theirs", sync=False)


@pytest.fixture
def manifest(ours: LocalStore) -> Manifest:
    """Of data that is here."""
    data = {
        "cid": ours.add_bytes(os.urandom(TOKENS)).to_bytes(),
        "nodes_cid": ours.add_bytes(os.urandom(nodes_bytes(TOKENS))).to_bytes(),
        "tokenizer_cid": ours.add_bytes(b"a tokenizer").to_bytes(),
        "train_tokens": TOKENS,
    }
    made = make_manifest({f"data.{name}": value for name, value in data.items()})
    ours.add_block(made.to_bytes(), DAG_CBOR)
    return made


def vetted(manifest: Manifest) -> Asking:
    """It has the manifest and takes the job; nobody had the data when it asked."""
    asking = Asking.of(manifest)
    (spec,) = of_kind(asking.hear(), DoFetchSpec)
    (data,) = of_kind(asking.did(spec, SpecReady(manifest.to_bytes())), DoFetchData)
    asking.hear(Failed(data.key, "nobody has it"))
    return asking


def of_kind(commands: list[AnyCommand], kind: type[AnyCommand]) -> list[AnyCommand]:
    return [command for command in commands if isinstance(command, kind)]


def test_a_manifest_is_taken_once_nobody_had_it(manifest: Manifest) -> None:
    """Its terms were looked at by then: of a job that they keep us from nothing is asked for."""
    asking = Asking.of(manifest)
    assert asking.files == {}
    (spec,) = of_kind(asking.hear(), DoFetchSpec)
    assert asking.files == {}
    asking.hear(Failed(spec.key, "nobody has it"))
    assert asking.files == {Cid.from_bytes(manifest.cid()): MAX_MANIFEST_BYTES}
    asking.did(spec, JobRefused("pays too little"))
    assert asking.files == {}


def test_data_are_taken_of_a_job_that_is_taken_in_the_manifests_lengths(manifest: Manifest) -> None:
    asking, data = vetted(manifest), manifest.data
    sizes = {
        data.tokenizer_cid: MAX_TOKENIZER_BYTES,
        data.nodes_cid: nodes_bytes(TOKENS),
        data.cid: TOKENS,
    }
    assert asking.files == {Cid.from_bytes(cid): most for cid, most in sizes.items()}
    asking.hear(Ordered("", may_take=False))  # another job has its turn
    assert asking.files == {}
    asking.hear(Ordered(""))
    assert len(asking.files) == 3
    asking.hear(Ordered("looks at those first that promise more"))
    assert asking.files == {}


def test_what_is_here_or_refused_is_not_taken(manifest: Manifest) -> None:
    command = DoFetchData(manifest.to_bytes())
    for entry in (DataReady(manifest.data.cid, ZERO_DIGEST), JobRefused("another program")):
        asking = vetted(manifest)
        asking.did(command, entry)
        assert asking.files == {}


@pytest.mark.parametrize("spec_cid", [b"", b"\x01", Cid.of(b"a manifest").to_bytes()])
def test_what_is_no_manifests_name_is_not_taken(manifest: Manifest, spec_cid: bytes) -> None:
    asking = Asking.of(manifest, spec_cid)
    (spec,) = of_kind(asking.hear(), DoFetchSpec)
    asking.hear(Failed(spec.key, "it is not to be had"))
    assert asking.files == {}


# --- at its gateway ---


@asynccontextmanager
async def gateway_of(store: LocalStore, asking: Asking) -> AsyncIterator[Gateway]:
    async with serving(store) as gateway:
        gateway.pushed.expect(asking.files)
        yield gateway


async def put(gateway: Gateway, cid: Cid, block: bytes) -> int:
    url = f"{gateway.url}/ipfs/{cid}"
    async with (
        aiohttp.ClientSession() as session,
        session.put(url, data=block, expect100=True) as answer,
    ):
        return answer.status


async def test_a_submitter_brings_all_that_a_job_begins_with(
    manifest: Manifest, ours: LocalStore, theirs: LocalStore
) -> None:
    asking = Asking.of(manifest)
    (spec,) = of_kind(asking.hear(), DoFetchSpec)
    asking.hear(Failed(spec.key, "nobody has it"))
    name = Cid.from_bytes(manifest.cid())
    async with gateway_of(theirs, asking) as gateway, Fetcher(ours, tuple) as fetcher:
        to, pusher = Receivers((gateway.url,), 1, STILL, STILL), fetcher.pusher()
        assert await pusher.push(name, to)
        assert theirs.read_bytes(name, MAX_MANIFEST_BYTES) == manifest.to_bytes()
        data = Cid.from_bytes(manifest.data.cid)
        assert not await pusher.push(data, to)  # it has not decided to take the job
        gateway.pushed.expect(vetted(manifest).files)
        for cid in (manifest.data.tokenizer_cid, manifest.data.nodes_cid, manifest.data.cid):
            assert await pusher.push(Cid.from_bytes(cid), to)
    assert theirs.read_bytes(data, TOKENS) == ours.read_bytes(data, TOKENS)


async def test_a_block_of_no_file_of_the_job_stores_nothing(
    manifest: Manifest, theirs: LocalStore
) -> None:
    block = os.urandom(1 << 20)
    async with gateway_of(theirs, vetted(manifest)) as gateway:
        assert await put(gateway, Cid.of(block), block) == 409
        assert await put(gateway, Cid.from_bytes(manifest.cid()), manifest.to_bytes()) == 409
        assert gateway.pushes.bytes_in == 0
    assert theirs.usage().blocks == 0


async def test_of_a_job_that_it_would_not_serve_nothing_is_stored(
    manifest: Manifest, ours: LocalStore, theirs: LocalStore
) -> None:
    asking = vetted(manifest)
    asking.did(DoFetchData(manifest.to_bytes()), JobRefused("has too much data"))
    async with gateway_of(theirs, asking) as gateway, Fetcher(ours, tuple) as fetcher:
        to = Receivers((gateway.url,), 1, STILL, STILL)
        for cid in map(Cid.from_bytes, (manifest.cid(), *manifest.content)):
            assert not await fetcher.pusher().push(cid, to)
    assert theirs.usage().blocks == 0


async def test_a_file_longer_than_the_manifest_says_is_not_stored(
    ours: LocalStore, theirs: LocalStore
) -> None:
    longer = ours.add_bytes(os.urandom(TOKENS + 1))
    data = {"data.cid": longer.to_bytes(), "data.train_tokens": TOKENS}
    async with gateway_of(theirs, vetted(make_manifest(data))) as gateway:
        assert await put(gateway, longer, ours.get_block(longer)) == 400
        leaf = ours.leaves(longer, TOKENS + 1)[0].cid
        assert await put(gateway, leaf, ours.get_block(leaf)) == 409
    assert theirs.usage().blocks == 0


async def test_a_manifest_longer_than_one_can_be_is_not_stored(
    manifest: Manifest, theirs: LocalStore
) -> None:
    block = bytes(MAX_MANIFEST_BYTES + 1)
    cid = Cid.of(block, DAG_CBOR)
    asking = Asking.of(manifest, cid.to_bytes())
    (spec,) = of_kind(asking.hear(), DoFetchSpec)
    asking.hear(Failed(spec.key, "nobody has it"))
    async with gateway_of(theirs, asking) as gateway:
        assert await put(gateway, cid, block) == 413
        assert gateway.pushes.bytes_in == 0
    assert theirs.usage().blocks == 0


async def test_bringing_goes_on_at_any_block(
    manifest: Manifest, ours: LocalStore, theirs: LocalStore
) -> None:
    cid, asking = Cid.from_bytes(manifest.data.cid), vetted(manifest)
    for leaf in (None, *ours.leaves(cid, TOKENS)[:2]):
        name = cid if leaf is None else leaf.cid
        theirs.put_block(name, ours.get_block(name))
    async with gateway_of(theirs, asking) as gateway, Fetcher(ours, tuple) as fetcher:
        assert await fetcher.pusher().push(cid, Receivers((gateway.url,), 1, STILL))
        assert fetcher.bytes_up == TOKENS - (2 << 20)
    assert theirs.read_bytes(cid, TOKENS) == ours.read_bytes(cid, TOKENS)


@pytest.mark.parametrize("role", ["verifier", "provider"])
def test_a_verifiers_service_tells_its_gateway(manifest: Manifest, role: str) -> None:
    asking = vetted(manifest)
    told = told_by(role, asking)
    assert told == ([(asking.files, {asking.state.view.submitter})] if role == "verifier" else [])


def test_nobodys_files_are_wanted_of_a_job_that_is_not_taken(manifest: Manifest) -> None:
    """Its submitter is a stranger like any other."""
    asking = vetted(manifest)
    asking.hear(Ordered("", may_take=False))
    assert told_by("verifier", asking) == [({}, set())]


def test_another_job_that_names_the_same_data_shorter_keeps_none_of_it_out(
    manifest: Manifest,
) -> None:
    honest = vetted(manifest)
    data = manifest.data
    shorter = {
        "data.cid": data.cid,
        "data.nodes_cid": data.nodes_cid,
        "data.train_tokens": 1000,
        # And as another file of its own, which may have fewer bytes.
        "data.tokenizer_cid": data.cid,
    }
    liar = vetted(make_manifest(shorter))
    assert liar.files[Cid.from_bytes(data.cid)] == MAX_TOKENIZER_BYTES
    for order in ((honest, liar), (liar, honest)):
        ((files, _),) = told_by("verifier", *order)
        assert all(files[cid] >= most for cid, most in honest.files.items())


def told_by(role: str, *asking: Asking) -> list[tuple[dict[Cid, int], set[Address]]]:
    """What a service tells its gateway that looks at these jobs."""
    told: list[tuple[dict[Cid, int], set[Address]]] = []
    machines = SimpleNamespace(states={n: each.state for n, each in enumerate(asking)})
    context = SimpleNamespace(ask_for=lambda *asked: told.append(asked))
    effects = SimpleNamespace(context=context)
    service = SimpleNamespace(role=role, machines=machines, effects=effects)
    Service._ask_for_files(cast(Any, service))
    return told
