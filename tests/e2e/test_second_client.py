"""The second client, given what a finished network made public, says what the network said.

It runs as a program of its own. What it is given is the manifest, the training tokens, the held-out
ones and the job's events; what it prints is compared with what the same events say: states, masked
words and update roots of every seat, merged digests, certificates, round records, audit reports and
pay.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.network.members import Site, Who, everybody, is_settled_up, submit, submitter_of
from tests.support.event_documents import documents_of
from tests.support.small_job import numerics_of_members, small_manifest, with_program

from atoll.numerics.schedule_tables import tables_root
from atoll.protocol import events as ev
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.hashing import record_hash
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import JobId
from atoll.service.session import Session, open_session
from atoll.storage.local import LocalStore
from atoll.train.corpus.options import DataOptions
from atoll.train.corpus.prepare import prepare
from atoll.train.course import open_held_out_tokens, open_training_tokens
from atoll_devnet.processes.cluster import Cluster
from atoll_devnet.run.skipping import skipping
from atoll_devnet.run.stranger import hostile_network

ROOT = Path(__file__).parents[2]
FINE = {"embedding": -40, "matrix": -40, "vector": -40}
MOMENTUM = {"optimizer": "sgd", "momentum": "0.9", "beta1": "0", "beta2": "0", "eps": "0"}
Changes = dict[str, dict[str, Any]]
JOBS: dict[str, Changes] = {
    "int8, of conversations the answers": {"codec": {"kind": "grid8"}},
    "int4, dropout": {"codec": {"kind": "grid4"}, "inner": {"dropout": "0.1"}},
    "two bits, Muon, Nesterov": {
        "codec": {"kind": "two_bit"},
        "inner": {"optimizer": "muon", "momentum": "0.95"},
        "outer": {"kind": "nesterov", "momentum": "0.9", "lr": "0.7"},
    },
    "signs, SGD with momentum": {"codec": {"kind": "sign"}, "inner": MOMENTUM},
    "fp32, every seat audited": {
        "codec": {
            "kind": "fp32",
            "exponents": FINE,
            "moment_exponents": FINE,
            "min_exponent": -40,
            "max_exponent": -40,
        },
        "robust": {"rule": "mean", "f": 0},
        "terms": {"f": 0},
    },
}
TERMS = {
    "rounds": 2,
    "min_providers": 4,
    "min_verifiers": 3,
    "train_seconds": 180,
    "reveal_seconds": 60,
    "merge_seconds": 120,
    "audit_seconds": 180,
    "open_seconds": 90,
    "key_seconds": 90,
    "window_seconds": 180,
    "ready_seconds": 600,
    "audit_rate": 2,
    "last_rate": 0,
    "game_seconds": 20,
}
"""Long enough for a slow machine with five jobs at once: what is left of a window is skipped."""


async def test_the_second_client_says_what_the_network_said(
    tmp_path: Path, beginning: Path
) -> None:
    async with (
        hostile_network(Who().config(Site(tmp_path, beginning))) as cluster,
        skipping(cluster, print),
        open_session(submitter_of(cluster)) as session,
    ):
        now = (await session.chain.head()).timestamp
        manifests = [_manifest_of(name, session.store, now) for name in JOBS]
        for manifest in manifests:
            await submit(session, manifest)
        made = await _jobs_of(session, manifests)
        await _until_paid(cluster, session, set(made))
        for job, manifest in made.items():
            folder = tmp_path / f"job-{job}"
            history = (indexed.event for indexed in session.follower.history())
            events = [event for event in history if getattr(event, "job_id", None) == job]
            _write_public(folder, session, manifest, (job, events))
            assert _work_out(folder) == _said(events)


async def _jobs_of(session: Session, manifests: list[Manifest]) -> dict[JobId, Manifest]:
    """Which job each became; a stranger's have taken some of the numbers."""
    by_digest = {manifest.digest(): manifest for manifest in manifests}
    while True:
        await session.follower.poll()
        views = session.follower.views.items()
        made = {job: by_digest.get(view.spec_digest) for job, view in views}
        found = {job: manifest for job, manifest in made.items() if manifest is not None}
        if len(found) == len(manifests):
            return found
        await asyncio.sleep(0.5)


async def _until_paid(cluster: Cluster, session: Session, jobs: set[JobId]) -> None:
    """Follows the chain until all these jobs are over and everybody has its pay."""
    while True:
        cluster.check()
        await session.follower.poll()
        now, views = (await session.chain.head()).timestamp, session.follower.views
        if all(job in views and is_settled_up(views[job], now) for job in jobs):
            held = [(job, holder) for job in jobs for holder in everybody(views[job])]
            assert [each for each in held if each[1].penalties or each[1].is_slashed] == []
            return
        await asyncio.sleep(0.5)


def _work_out(folder: Path) -> Any:
    """What the second client prints."""
    program = [sys.executable, "-m", "tests.second_client", str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _manifest_of(name: str, store: LocalStore, now: int) -> Manifest:
    plain = small_manifest(store, numerics_of_members(), expiry=now + 3600, **TERMS).model_dump()
    plain["name"] = f"job {list(JOBS).index(name)}"
    for part, changed in JOBS[name].items():
        plain[part] |= changed
    if "conversations" in name:
        rows = store.root.parent / "rows.jsonl"
        _write_conversations(rows)
        vocab = plain["model"]["vocab"]
        options = DataOptions(paths=(rows,), chat=True, held_out="0.1", model_vocab=vocab)
        plain["data"] = prepare(options, store, lambda _: None).spec(1).model_dump()
    drafted = Manifest.model_validate(plain)
    steps = drafted.terms.rounds * drafted.inner.steps
    plain["tables"] = tables_root(drafted.model, drafted.inner, steps)
    return with_program(Manifest.model_validate(plain), store)


def _write_conversations(path: Path) -> None:
    """Rows of which only the answers are learned."""
    with path.open("w") as rows:
        for n in range(300):
            asked = {"role": "user", "content": f"What comes after {n}?"}
            answer = {"role": "assistant", "content": f"After {n} comes {n + 1}."}
            rows.write(json.dumps({"messages": [asked, answer]}) + "\n")


# --- what is public, and what was said ---


def _write_public(
    folder: Path, session: Session, manifest: Manifest, told: tuple[JobId, list[Any]]
) -> None:
    """Writes what everybody has of the job."""
    folder.mkdir()
    (job, events), store = told, session.store
    (folder / "manifest.cbor").write_bytes(manifest.to_bytes())
    (folder / "tokens").write_bytes(open_training_tokens(manifest, store)[:].tobytes())
    held_out = open_held_out_tokens(manifest, store)
    (folder / "held_out").write_bytes(held_out[0 : len(held_out)].tobytes())
    domain = session.chain.deployment.domain
    document = {
        "chain": domain.chain_id,
        "rounds": str(domain.rounds).removeprefix("0x"),
        "job": job,
        "events": documents_of(events),
    }
    (folder / "events.json").write_text(json.dumps(document))


def _said(events: list[Any]) -> dict[str, Any]:
    """What the network said, as the second client prints it."""
    created = next(e for e in events if isinstance(e, ev.JobCreated))
    paid = Counter[tuple[int, int]]()
    for event in events:
        if isinstance(event, ev.Claimed):
            paid[int(event.role), event.id] += event.amount
            assert event.burnt == 0
    settled = {event.round: event for event in events if isinstance(event, ev.Settled)}
    assert sorted(settled) == [0, 1]
    return {
        "spec": created.spec_digest.hex(),
        "terms": created.terms_hash.hex(),
        "budget": created.funded,
        "rounds": [_round_said(events, settled[number]) for number in sorted(settled)],
        "paid": {f"{role} {id}": amount for (role, id), amount in sorted(paid.items())},
    }


def _round_said(events: list[Any], settled: ev.Settled) -> dict[str, Any]:
    number = settled.round
    of_round = [e for e in events if getattr(e, "round", None) == number]
    keys = {e.account for e in of_round if isinstance(e, ev.KeyShown)}
    reveals = [e for e in of_round if isinstance(e, ev.Revealed)]
    # One round in sixteen draws nobody; the last draws all.
    is_audited = any(isinstance(e, ev.Opened) for e in of_round)
    assert (keys and is_audited) or (number == 0 and not settled.record.drawn)
    return {
        "seats": {str(e.seat): _seat_said(e, e.account in keys) for e in reveals},
        "commitments": {
            str(e.seat): e.commitment.hex() for e in of_round if isinstance(e, ev.Committed)
        },
        "committee": [slot for slot in range(256) if settled.record.committee >> slot & 1],
        "record": record_hash(settled.record).hex(),
        "digest": settled.digest.hex(),
        "merged": settled.verdict.state.hex(),
        "bodies": {str(e.id): e.body.hex() for e in of_round if isinstance(e, ev.Opened)},
        "loss": settled.verdict.loss.hex(),
    }


def _seat_said(revealed: ev.Revealed, has_key: bool) -> dict[str, Any]:
    checkpoint_commitments = CheckpointCommitments.from_bytes(
        revealed.reveal.checkpoint_commitments
    )
    return {
        "states": [
            checkpoint_commitment.state.hex()
            for checkpoint_commitment in checkpoint_commitments.items
        ],
        "root": revealed.reveal.update_root.hex(),
        "checkpointCommitments": checkpoint_commitments.to_bytes().hex() if has_key else None,
    }
