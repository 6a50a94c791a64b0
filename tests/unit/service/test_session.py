"""What a session holds: each job's blocks come from that job's gateways."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.identities import JOB, address, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, Script
from tests.unit.service.held import MANIFEST

from atoll.protocol.types import Address, Digest, HolderId, JobId
from atoll.protocol.views import JobView
from atoll.service.config import GatewaySection
from atoll.service.gateway_process import GatewayFiles
from atoll.service.session import Session, members_of
from atoll.service.update_limits import max_update_bytes
from atoll.storage import Fetcher, LocalStore
from atoll.storage.cid import DAG_CBOR, Cid
from atoll.storage.rate_limits import Outsider

MAINNET, ANVIL = 1, 31337


async def test_a_job_s_blocks_are_asked_of_that_job_s_gateways_only(tmp_path: Path) -> None:
    view = Network().view
    own, submitter, stranger = "http://me:1", address("submitter"), address("a stranger")
    urls = {submitter: "http://paid:1", stranger: "http://free:1", address("me"): own}
    views = {
        JOB: replace(view, submitter=submitter, gateways=urls),
        JobId(99): replace(view, submitter=stranger, gateways=urls),
        JobId(100): replace(view, submitter=address("me"), gateways=urls),
    }
    nothing = cast(Any, None)
    follower = SimpleNamespace(
        gateways=lambda job: views[job].gateway_urls() if job in views else (), views=views
    )
    gateway = SimpleNamespace(public_url=own, announce=True, private_peers=True)
    listen = SimpleNamespace(gateway=gateway, account=None)
    session = Session(cast(Any, listen), nothing, cast(Any, follower))
    session.gateway = cast(Any, SimpleNamespace(url="http://10.0.0.1:1"))
    async with Fetcher(LocalStore(tmp_path), tuple) as fetcher:
        session.storage = cast(Any, SimpleNamespace(fetcher=fetcher))
        asked = {job: list(session.fetcher_of(job)._gateways()) for job in (*views, JobId(1))}
    assert asked == {
        JOB: ["http://paid:1"], JobId(99): ["http://free:1"], JobId(100): [], JobId(1): []
    }  # fmt: skip


async def test_what_we_have_nothing_in_is_an_outsiders(tmp_path: Path) -> None:
    ours, me, nothing = Script.ready().net.view, PROVIDERS[0], cast(Any, None)
    mine = replace(ours, submitter=me, providers={}, verifiers={})
    strange = replace(mine, submitter=address("a stranger"))
    views = {JOB: ours, JobId(98): mine, JobId(99): strange}
    config = SimpleNamespace(account=SimpleNamespace(address=me))
    session = Session(cast(Any, config), nothing, cast(Any, SimpleNamespace(views=views)))
    async with Fetcher(LocalStore(tmp_path), tuple) as fetcher:
        session.storage = cast(Any, SimpleNamespace(fetcher=fetcher))
        parties = [session.fetcher_of(JobId(job))._party for job in (JOB, 98, 99, 1)]
    assert parties == [JOB, 98, Outsider(99), Outsider(1)]


def test_room_is_kept_for_the_members_of_our_jobs_alone() -> None:
    me, nothing = PROVIDERS[0], cast(Any, None)
    ours = Script.ready().net.view
    others = replace(ours, submitter=address("a stranger"), providers={}, verifiers={})
    follower = SimpleNamespace(views={JOB: ours, JobId(99): others})
    config = SimpleNamespace(account=SimpleNamespace(address=me))
    session = Session(cast(Any, config), nothing, cast(Any, follower))
    assert session.admitted() == members_of(ours)
    gone = replace(ours.providers[HolderId(2)], is_released=True)
    follower.views[JOB] = replace(ours, providers={**ours.providers, HolderId(2): gone})
    assert session.admitted() == members_of(ours) - {gone.account} != members_of(ours)
    left = {id: holder for id, holder in ours.providers.items() if holder.account != me}
    follower.views[JOB] = replace(ours, providers=left)
    assert session.admitted() == members_of(ours) - {me}  # we have left, and still serve them


def test_a_submitter_keeps_its_room_with_whoever_starts_again_when_its_bond_is_home() -> None:
    """It may fetch the result until the claim deadline, and strangers can fill their own room."""
    me, nothing = PROVIDERS[0], cast(Any, None)
    ours = Script.ready().net.view
    home = {id: replace(holder, is_released=True) for id, holder in ours.providers.items()}
    over = replace(ours, providers=home)
    config = SimpleNamespace(account=SimpleNamespace(address=me))
    for view, expected in ((over, members_of(over)), (replace(over, providers={}), set())):
        follower = SimpleNamespace(views={JOB: view})
        session = Session(cast(Any, config), nothing, cast(Any, follower))
        assert session.admitted() == expected
    assert over.submitter in members_of(over)


def test_a_verifier_s_gateway_expects_updates_as_long_as_the_job_can_have(tmp_path: Path) -> None:
    script, store = Script.ready(), LocalStore(tmp_path, sync=False)
    script.net.advance()
    script.train()
    cid = Cid.of(MANIFEST.to_bytes(), DAG_CBOR)
    named = {"spec_cid": cid.to_bytes(), "spec_digest": Digest(MANIFEST.digest())}
    views = {JobId(1): replace(script.net.view, **named)}
    session = watching(VERIFIERS[0], views)
    session.storage = cast(Any, SimpleNamespace(local=store))
    session.admitted()
    assert session.files() == GatewayFiles()  # how long they may be is not known yet
    store.add_block(MANIFEST.to_bytes(), DAG_CBOR)
    running = views[JobId(1)].open
    assert running is not None
    updates = [Cid.from_bytes(each.reveal.update_cid) for each in running.reveals.values()]
    files = dict.fromkeys(updates, max_update_bytes(MANIFEST))
    assert files and session.files() == GatewayFiles(files, files)
    views[JobId(1)] = replace(views[JobId(1)], open=replace(running, reveals={}))  # a reorg
    assert session.files() == GatewayFiles()
    views[JobId(1)] = replace(script.net.view, **(named | {"spec_digest": digest("another")}))
    assert session.files() == GatewayFiles()


def test_an_update_that_names_a_file_that_was_asked_for_makes_it_no_shorter(
    tmp_path: Path,
) -> None:
    script, store = Script.ready(), LocalStore(tmp_path, sync=False)
    script.net.advance()
    script.train()
    name = store.add_block(MANIFEST.to_bytes(), DAG_CBOR)
    named = {"spec_cid": name.to_bytes(), "spec_digest": Digest(MANIFEST.digest())}
    session = watching(VERIFIERS[0], {JobId(1): replace(script.net.view, **named)})
    session.storage = cast(Any, SimpleNamespace(local=store))
    session.admitted()
    (data, *_), most = session.files().accepted, max_update_bytes(MANIFEST)
    for asked in (most + 1, most - 1):
        session.ask_for({data: asked}, set())
        assert session.files().accepted[data] == max(asked, most)


@pytest.mark.parametrize("is_member", [False, True])
async def test_who_submits_what_is_asked_for_can_always_bring_some_and_is_no_member(
    *, is_member: bool
) -> None:
    view, orders = Script.ready().net.view, []
    account = VERIFIERS[1] if is_member else address("a submitter")
    session = watching(VERIFIERS[0], {JOB: view})
    session.ask_for({Cid.of(b"data"): 4}, {account})
    gateway = SimpleNamespace(admit=lambda *each: orders.append(each))
    admits = asyncio.create_task(session._admit(cast(Any, gateway)))
    await asyncio.sleep(0)
    admits.cancel()
    members, _, seated, submitters = orders[0]
    assert members == members_of(view) and account in seated
    assert submitters == (set() if is_member else {account})


@pytest.mark.parametrize(
    ("section", "chain_id", "url"),
    [
        ({}, ANVIL, "http://127.0.0.1:4001"),
        ({}, MAINNET, ""),
        ({"announce": False}, ANVIL, ""),
        ({"public_url": "http://example.org"}, MAINNET, "http://example.org"),
        ({"public_url": "http://example.org", "announce": False}, MAINNET, ""),
        ({"private_peers": True}, MAINNET, "http://127.0.0.1:4001"),
    ],
)
def test_what_nobody_reaches_is_not_announced(
    section: dict[str, Any], chain_id: int, url: str
) -> None:
    deployment = SimpleNamespace(chain_id=chain_id)
    config = SimpleNamespace(gateway=GatewaySection(**section), deployment=deployment, account=None)
    session = Session(cast(Any, config), cast(Any, None), cast(Any, None))
    session.gateway = cast(Any, SimpleNamespace(url="http://127.0.0.1:4001"))
    assert session.url == url


def watching(account: Address, views: dict[JobId, JobView]) -> Session:
    config = SimpleNamespace(account=SimpleNamespace(address=account))
    return Session(cast(Any, config), cast(Any, None), cast(Any, SimpleNamespace(views=views)))
