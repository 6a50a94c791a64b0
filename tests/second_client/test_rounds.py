"""Whole rounds: the second client's states, work_tags and update are atoll's, to the byte.

Every job here is made by atoll and handed over as a provider finds it: the manifest's bytes, the
tokens, the global state's bytes. Three rounds each, a merge between them, so that merged moments
come back, and feedback, local parameters and what comes in late are carried over. Both clients
replay what was trained from a public initial state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import codec, documents, provide, rounds, state
from tests.second_client import merge as second
from tests.second_client.constants import tables_root
from tests.unit.train.factories import Job, make_job
from tests.unit.train.folders import make_folder

from atoll.aggregation.merge_round import merge
from atoll.numerics.initial_state import open_round
from atoll.numerics.problems import Problem, written
from atoll.numerics.segment import run_segment
from atoll.numerics.state import GlobalState, SeatState
from atoll.numerics.state_layout import seat_layout
from atoll.numerics.update_proof import close_round
from atoll.protocol.checkpoint_commitments import CheckpointCommitments
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.task_spec import TaskSpec
from atoll.protocol.types import Address, Bitmap, Digest, RoundIndex
from atoll.train.course import open_course, open_training_tokens
from atoll.train.data import write_tokens
from atoll.train.pretrained import prepare_init
from atoll.train.replay import RevealedRound, replay_seat
from atoll.train.round import train_round

ADAMW = {"optimizer": "adamw", "momentum": "0"}
SGD = {"optimizer": "sgd", "beta1": "0", "beta2": "0", "eps": "0", "weight_decay": "0.01"}
MUON = {"optimizer": "muon", "momentum": "0.95"}
COARSE = {"embedding": -12, "matrix": -12, "vector": -12}
FP32 = {"embedding": -40, "matrix": -40, "vector": -40}
Changes = dict[str, dict[str, Any]]

JOBS: dict[str, Changes] = {
    "AdamW, grid8, warm-up and cosine": {
        "inner": {**ADAMW, "schedule": "cosine", "warmup_steps": 3, "weight_decay": "0.1"},
        "codec": {"kind": "grid8"},
    },
    "AdamW, fp32, one head, no penalty batch": {
        "model": {"heads": 1, "kv_heads": 1, "tied": False, "seq": 9},
        "inner": {**ADAMW, "micro_batch": 4, "clip": "0.01"},
        "codec": {
            "kind": "fp32", "exponents": FP32, "moment_exponents": FP32,
            "min_exponent": -40, "max_exponent": -40,
        },
        "robust": {"rule": "mean"},
    },
    "Muon, grid4, dropout, fragments that come in late": {
        "model": {"heads": 4, "kv_heads": 2, "tied": False},
        "inner": {**MUON, "dropout": "0.1", "micro_batch": 1},
        "codec": {"kind": "grid4", "fragments": 2, "overlap": 3, "mixing": "0.25"},
    },
    "SGD with momentum, two bits with feedback, squared ReLU, dropout": {
        "model": {"mlp": "relu2", "heads": 4, "kv_heads": 4},
        "inner": {**SGD, "momentum": "0.9", "dropout": "0.333333333333333333"},
        "codec": {"kind": "two_bit", "feedback": "0.95", "exponents": COARSE},
    },
    "SGD, signs with feedback, mixed": {
        "inner": {**SGD, "momentum": "0"},
        "codec": {"kind": "sign", "feedback": "1", "mixing": "0.25", "exponents": COARSE},
    },
    "Muon, biases, normalised heads of a size of their own, stretched positions": {
        "model": {
            "head_dim": 6, "qkv_bias": True, "qk_norm": True, "rope_scaling": {
                "kind": "llama3", "factor": "8", "low": "1", "high": "4", "positions": 32,
            },
        },
        "inner": {**MUON, "dropout": "0.1"},
        "codec": {"kind": "grid8"},
    },
    "Lion, two bits": {
        "inner": {"optimizer": "lion", "momentum": "0", "eps": "0", "weight_decay": "0.1"},
        "codec": {"kind": "two_bit", "exponents": COARSE, "moment_exponents": COARSE},
    },
    "aligned data": {"data": {"aligned": True}},
    "Muon and AdamW, grid4, two lanes": {
        "inner": {**MUON, "micro_batch": 1, "lanes": 2},
        "codec": {"kind": "grid4"},
    },
    "SGD with momentum, signs": {
        "inner": {**SGD, "momentum": "0.9"},
        "codec": {"kind": "sign", "exponents": COARSE, "moment_exponents": COARSE},
    },
    "SGD without moments, cosines": {
        "inner": {**SGD, "momentum": "0"},
        "codec": {"kind": "dct", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "SGD, cosines with feedback": {
        "inner": {**SGD, "momentum": "0"},
        "codec": {"kind": "dct", "feedback": "0.999", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "AdamW, sparse with feedback": {
        "inner": ADAMW,
        "codec": {"kind": "sparse", "feedback": "0.95", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "AdamW, biases, positions that are divided, two bits": {
        "model": {"qkv_bias": True, "heads": 4, "kv_heads": 4, "rope_scaling": {
            "kind": "linear", "factor": "2.5", "low": "0", "high": "0", "positions": 0,
        }},
        "inner": ADAMW,
        "codec": {"kind": "two_bit", "exponents": COARSE, "moment_exponents": COARSE},
    },
    "a step that is not finite": {"inner": {**SGD, "momentum": "0", "lr": "10000", "clip": "1000"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("second client"))


def changed(job: Job, changes: Changes) -> Job:
    """The job with other choices, as a submitter would write it down."""
    plain = job.manifest.model_dump()
    for section, fields in changes.items():
        plain[section] = (plain.get(section) or {}) | fields
    steps = plain["inner"]["batch"] * plain["model"]["seq"]
    plain["terms"] = plain["terms"] | {"tokens_per_step": steps, "f": 0}
    plain["robust"] = plain["robust"] | {"f": 0}
    plain["reset_period"] = documents.reset_period_of(plain)
    plain["tables"] = tables_root(plain)
    return job.of(Manifest.model_validate(plain))


@dataclass(frozen=True)
class Trained:
    """What atoll makes of a seat's round."""

    states: tuple[bytes, ...]
    work_tags: tuple[bytes, ...]
    update: bytes
    carried_state: SeatState | None = None


def in_round(job: Job, model: GlobalState) -> Job:
    """The job's task in the model's round."""
    task = replace(
        job.task,
        round_id=replace(job.task.round_id, round=RoundIndex(model.round)),
        data_seed=bytes([5 + model.round]) * 32,
        global_state_cid=job.store.add_bytes(model.to_bytes()).to_bytes(),
    )
    return replace(job, model=model, task=task)


def trained(job: Job, brought: SeatState | None) -> Trained:
    """The round by atoll: what a provider runs, and its parts where a seat carries something."""
    task, manifest = job.task, job.manifest
    if not manifest.codec.is_stateful:
        done = train_round(task, job.store)
        return Trained(done.states, done.work_tags, done.update)
    course = open_course(
        manifest,
        data_seed=task.data_seed,
        seat=task.seat,
        round=task.round_id.round,
        store=job.store,
    )
    course, states, work_tags = replace(course, model=job.model), list[bytes](), list[bytes]()
    sampled = b""
    state = open_round(manifest, job.model, brought)
    for segment in range(manifest.segments):
        done = run_segment(state, segment, course)
        if not done.is_finite:
            break
        state = done.state
        states.append(done.digest)
        work_tags.append(done.work_tag)
        sampled += done.sampled_bytes
    if not states:
        return Trained((), (), b"")
    update, carried_state = close_round(manifest, job.model, state, task.dither, sampled=sampled)
    return Trained(tuple(states), tuple(work_tags), update, carried_state)


def provided(job: Job, brought: state.State | None) -> dict[str, Any]:
    """The same round by the second client, from bytes alone."""
    model = state.read_global(job.model.to_bytes())
    return provide.provide(opened_job(job), model, brought, seat_of(job))


def seat_of(job: Job) -> codec.Seat:
    return job.task.data_seed, job.task.seat


def opened_job(job: Job) -> provide.Job:
    tokens = open_training_tokens(job.manifest, job.store)[:]
    weights = b"" if job.manifest.init.cid is None else job.blob(job.manifest.init.cid)
    return provide.open_job(documents_of(job), tokens, weights)


def assert_same(theirs: Trained, mine: dict[str, Any]) -> None:
    """Every byte that the provider commits to, reveals and serves."""
    assert mine["states"] == list(theirs.states)
    assert mine["work_tags"] == list(theirs.work_tags)
    assert mine["update"] == theirs.update
    if theirs.carried_state is not None:
        assert state.seat_bytes(mine["carried_state"]) == theirs.carried_state.to_bytes()


@pytest.mark.parametrize("name", JOBS)
def test_rounds_to_the_byte(job: Job, name: str) -> None:
    ready = changed(job, JOBS[name])
    first = state.initial_global_state(documents_of(ready))
    assert state.global_bytes(first) == ready.model.to_bytes()
    assert state.global_digest(first) == ready.model.digest()
    done = play(ready, rounds=3)
    assert (done < ready.manifest.segments) == ("not finite" in name)


def play(ready: Job, rounds: int) -> int:
    """Rounds of one seat by both clients, each merged by both; the segments of the last one."""
    carried_state, brought, manifest = None, None, documents_of(ready)
    public = documents.is_public(manifest["codec"])
    for _ in range(rounds):
        ready = in_round(ready, ready.model)
        theirs, mine = trained(ready, carried_state), provided(ready, brought)
        assert_same(theirs, mine)
        if public:
            assert_the_replay_is_valid(ready, mine)
        if len(theirs.states) < ready.manifest.segments:
            return len(theirs.states)
        model = merged_by_both(ready, mine["update"])
        assert bool(model.moments.m) == bool(model.moment_exponents)
        if not public:
            blob = state.seat_bytes(mine["carried_state"])
            brought = state.read_seat(blob, manifest)
            layout = seat_layout(ready.manifest)
            carried_state = SeatState.from_bytes(blob, layout)
        ready = replace(ready, model=model)
    return len(theirs.states)


def assert_the_replay_is_valid(job: Job, mine: dict[str, Any]) -> None:
    """An auditor of either client finds what the seat reveals as it is."""
    key, account = bytes(range(32)), bytes(range(20))
    checkpoint_commitments = rounds.checkpoint_commitments_of(
        mine["states"], mine["work_tags"], key
    )
    model = state.read_global(job.model.to_bytes())
    found = provide.replay(
        opened_job(job), model, seat_of(job), checkpoint_commitments, mine["root"]
    )
    assert found[:2] == (mine["work_tags"], None)
    claimed = RevealedRound(
        CheckpointCommitments.from_bytes(checkpoint_commitments), Digest(mine["root"])
    )
    theirs = replay_seat(job.task, claimed, job.store)
    entry = theirs.entry(job.task.seat, Address("0x" + account.hex()))
    assert provide.duty(account, found) == (entry.at, entry.digest)


def merged_by_both(ready: Job, update: bytes) -> GlobalState:
    """The next global state, of the seat's update alone, whose bytes both clients write."""
    task, segments = ready.task, ready.manifest.segments
    record = {"segments": {task.seat: segments}, "committee": 1, "votes": [1 << task.seat]}
    record |= {"slashed": 0, "accused": 0}
    seat = Bitmap(1 << task.seat)
    told = MergeRecord(seat, 1, [seat], {task.seat: segments})
    updates = {task.seat: update}
    theirs = merge(
        ready.model, updates, record=told, data_seed=task.data_seed, manifest=ready.manifest
    ).global_state
    model = state.read_global(ready.model.to_bytes())
    mine, inputs = second.merge(documents_of(ready), model, record, updates, task.data_seed)
    assert inputs["merged"] == [task.seat]
    assert state.global_bytes(mine) == theirs.to_bytes()
    assert state.global_digest(mine) == theirs.digest()
    return theirs


REWARDS = {
    "an answer": {"kind": "answer", "weight": 1000, "opening": "", "closing": ""},
    "an answer between markers": {"kind": "answer", "weight": 70, "opening": "q", "closing": "e"},
    "a length": {"kind": "length", "weight": 3, "least": 2, "most": 4},
}
NONE = {"opening": "", "closing": "", "least": 0, "most": 0}
TASK = {
    "prompts": 7, "prompt_tokens": 5, "answer_bytes": 3, "group": 2, "new_tokens": 5,
    "ends": [*range(40, 48)], "rewards": [NONE | reward for reward in REWARDS.values()],
}  # fmt: skip
SAMPLED: dict[str, Changes] = {
    "AdamW": {"inner": ADAMW, "codec": {"kind": "grid8"}},
    "groups across micro-batches, feedback": {
        "inner": {**ADAMW, "micro_batch": 1},
        "codec": {"kind": "sparse", "feedback": "0.95", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "fragments that come in late": {
        "task": {"group": 4},
        "inner": {**SGD, "momentum": "0.9", "micro_batch": 4},
        "codec": {"kind": "grid4", "fragments": 2, "overlap": 3, "mixing": "0.25"},
    },
}


@pytest.mark.parametrize("name", SAMPLED)
def test_rounds_that_sample_to_the_byte(job: Job, name: str) -> None:
    """Of a text's bytes most pairs of letters stand somewhere, so answers are met now and then."""
    task = TaskSpec.model_validate(TASK | SAMPLED[name].get("task", {}))
    vocab = job.manifest.model.vocab
    texts = [b"qe"[token % 2 : token % 2 + 1] * (token % 3) for token in range(vocab)]
    problems = [
        Problem((3 + i, 9, 40)[: 1 + i % 3], b"qeq"[i % 2 :][: 1 + i % 2]) for i in range(7)
    ]
    data = write_tokens(written(problems, texts, task, "uint16"), job.store)
    fields = {"cid": data.cid, "nodes_cid": data.nodes_cid, "root": data.root, "dtype": "uint16"}
    fields |= {"train_tokens": task.words(vocab), "eval_cid": None, "eval_tokens": 0}
    changes = SAMPLED[name] | {"task": task.model_dump(), "data": fields | {"eval_batches": 0}}
    ready = changed(job, changes)
    assert play(ready, rounds=2) == ready.manifest.segments
    spread = {
        reward for step in range(8) for reward in rewards_of(in_round(ready, ready.model), step)
    }
    assert len(spread) > 2


def rewards_of(job: Job, step: int) -> tuple[int, ...]:
    """Of what a step samples by the round's model."""
    seat = {"data_seed": job.task.data_seed, "seat": job.task.seat}
    course = open_course(job.manifest, round=job.model.round, store=job.store, **seat)
    opened = SeatState.initial(job.model, seat_layout(job.manifest))
    rollouts = course.input_of(step, opened).rollouts
    assert rollouts is not None
    return rollouts.rewards


def test_a_round_from_weights_that_are_content(job: Job, tmp_path: Path) -> None:
    make_folder(tmp_path, "Qwen3", torch.bfloat16)
    prepared = prepare_init(tmp_path, 12, job.store)
    assert prepared.init.cid is not None
    weights, kind = job.blob(prepared.init.cid), {"inner": ADAMW, "codec": {"kind": "grid8"}}
    parts = {"model": prepared.model.model_dump(), "init": prepared.init.model_dump()}
    ready = changed(job, kind | parts)
    first = state.initial_global_state(documents_of(ready), weights)
    assert state.global_bytes(first) == ready.model.to_bytes()
    ready = in_round(ready, ready.model)
    assert_same(trained(ready, None), provided(ready, None))
    gain = {"model.norm.weight": np.ones(3, np.float32)}
    for odd, text in (
        (weights[:-1] + bytes([weights[-1] ^ 1]), "initial weights"),
        (state.write_blob("atoll.params.v1", {}, first["params"] | gain), "model"),
        (weights[:-4] + np.float32(np.nan).tobytes(), "numbers"),
        (state.global_bytes(first), "is not atoll.params.v1"),
    ):
        with pytest.raises(ValueError, match=text):
            state.initial_global_state(documents_of(ready), odd)


ADAPTERS: dict[str, tuple[str, dict[str, Any], Changes]] = {
    "Qwen3, one rank on all": (
        "Qwen3",
        {"rank": 1, "alpha": "16", "targets": ["q", "k", "v", "o", "gate", "up", "down"]},
        {"inner": {**ADAMW, "dropout": "0.1", "micro_batch": 1}, "codec": {"kind": "grid8"}},
    ),
    "Qwen2, biases, some targets, Muon, two bits": (
        "Qwen2, tied",
        {"rank": 5, "alpha": "3", "targets": ["k", "up"]},
        {"inner": MUON, "codec": {"kind": "two_bit", "exponents": COARSE}},
    ),
    "Llama, one target, fragments that come in late": (
        "Llama with wide heads",
        {"rank": 8, "alpha": "0.7", "targets": ["o", "down"]},
        {
            "inner": {**SGD, "momentum": "0.9"},
            "codec": {"kind": "grid4", "fragments": 2, "overlap": 3, "mixing": "0.25"},
        },
    ),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_rounds_of_adapters_to_the_byte(job: Job, name: str, tmp_path: Path) -> None:
    folder, lora, changes = ADAPTERS[name]
    make_folder(tmp_path, folder, torch.bfloat16)
    prepared = prepare_init(tmp_path, 12, job.store)
    parts = {"model": prepared.model.model_dump(), "lora": lora}
    parts |= {"init": prepared.init.model_dump() | {"seed": 11}}
    ready = changed(job, changes | parts)
    first = state.initial_global_state(documents_of(ready))
    assert state.global_bytes(first) == ready.model.to_bytes()
    assert play(ready, rounds=2) == ready.manifest.segments


def test_an_auditor_says_where_a_seat_has_a_mismatch(job: Job) -> None:
    ready = changed(job, JOBS["AdamW, grid8, warm-up and cosine"])
    mine, key = provided(ready, None), bytes(32)
    opened, model = opened_job(ready), state.read_global(ready.model.to_bytes())
    true = mine["states"]
    for at, told, root, own in (
        (2, [*true[:2], bytes(32), true[3]], mine["root"], true[2]),
        (4, true, bytes(32), mine["root"]),
        (3, true[:3], bytes(32), provided_until(ready, 3)),
    ):
        checkpoint_commitments = rounds.checkpoint_commitments_of(
            told, mine["work_tags"][: len(told)], key
        )
        found = provide.replay(opened, model, seat_of(ready), checkpoint_commitments, root)
        assert found == (mine["work_tags"][:at], at, own)
        claimed = RevealedRound(
            CheckpointCommitments.from_bytes(checkpoint_commitments), Digest(root)
        )
        theirs = replay_seat(ready.task, claimed, ready.store)
        assert (list(theirs.work_tags), theirs.mismatch_at, theirs.own) == found


def provided_until(job: Job, segments: int) -> bytes:
    """The update root of a seat that stops after so many segments."""
    model, opened = state.read_global(job.model.to_bytes()), opened_job(job)
    last, ids = state.initial_state(opened.manifest, model, None), b""
    for index in range(segments):
        ran = provide.segment(last, index, opened, model, seat_of(job))
        assert ran is not None
        last = ran[0]
        ids += ran[2]
    update, _ = provide.update_proof(opened.manifest, model, last, seat_of(job), ids)
    return codec.update_root(update)


def documents_of(job: Job) -> documents.Manifest:
    return documents.read_manifest(job.manifest.to_bytes())


def test_other_tokens_and_other_tables_are_refused(job: Job) -> None:
    ready = changed(job, {})
    manifest = documents_of(ready)
    tokens = open_training_tokens(ready.manifest, ready.store)[:]
    provide.open_job(manifest, tokens)
    with pytest.raises(ValueError, match="tables"):
        provide.open_job(manifest | {"tables": bytes(32)}, tokens)
    tokens[-1] ^= 1
    with pytest.raises(ValueError, match="tokens"):
        provide.open_job(manifest, tokens)


def test_a_value_that_is_not_finite_has_no_update() -> None:
    delta = {"a": np.array([1.0, np.inf], np.float32)}
    with pytest.raises(ValueError, match="not finite"):
        codec.encode("grid8", delta, {"a": -3}, (bytes(32), 0))
