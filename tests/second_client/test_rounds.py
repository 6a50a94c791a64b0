"""Whole rounds: the second client's trace, states and update are atoll's, to the byte.

Every job here is made by atoll and handed over as a provider finds it: the manifest's bytes, the
tokens, the global state's bytes. Three rounds each, a merge between them, so that merged moments
come back, and feedback, local parameters and what comes in late are carried over.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.second_client import codec, documents, provide, state
from tests.second_client import merge as second
from tests.second_client.constants import tables_root
from tests.unit.train.factories import Job, make_job
from tests.unit.train.folders import make_folder

from atoll.bits.state import GlobalState
from atoll.law.manifest import Manifest
from atoll.law.merge_inputs import MergeFacts
from atoll.law.words import Bitmap, RoundIndex
from atoll.merge.round import merge
from atoll.train.course import open_training_tokens
from atoll.train.pretrained import prepare_init
from atoll.train.probe import numerics_spec
from atoll.train.round import TrainedRound, train_round

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
    "AdamW, fp32, one head, no cut batch": {
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
    "SGD, signs with feedback, fragments": {
        "inner": {**SGD, "momentum": "0"},
        "codec": {"kind": "sign", "feedback": "1", "fragments": 2, "exponents": COARSE},
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
    "Muon and AdamW, grid4": {"inner": {**MUON, "micro_batch": 4}, "codec": {"kind": "grid4"}},
    "SGD with momentum, signs": {
        "inner": {**SGD, "momentum": "0.9"},
        "codec": {"kind": "sign", "exponents": COARSE, "moment_exponents": COARSE},
    },
    "SGD without moments, cosines": {
        "inner": {**SGD, "momentum": "0"},
        "codec": {"kind": "dct", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "AdamW, sparse": {
        "inner": ADAMW,
        "codec": {"kind": "sparse", "exponents": COARSE},
        "robust": {"rule": "contributor_mean"},
    },
    "AdamW, biases, positions that are divided, two bits": {
        "model": {"qkv_bias": True, "heads": 4, "kv_heads": 4, "rope_scaling": {
            "kind": "linear", "factor": "2.5", "low": "0", "high": "0", "positions": 0,
        }},
        "inner": ADAMW,
        "codec": {"kind": "two_bit", "exponents": COARSE, "moment_exponents": COARSE},
    },
    "a seat that diverges": {"inner": {**SGD, "momentum": "0", "lr": "10000", "clip": "1000"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("second client"))


def changed(job: Job, changes: Changes) -> Job:
    """The job with other choices, as a submitter would write it down."""
    plain = job.manifest.model_dump() | {"numerics": numerics_spec("exact").model_dump()}
    for section, fields in changes.items():
        plain[section] = (plain[section] or {}) | fields
    steps = plain["inner"]["batch"] * plain["model"]["seq"]
    plain["terms"] = plain["terms"] | {"tokens_per_step": steps, "min_providers": 1}
    plain["epoch"] = documents.epoch_of(plain)
    plain["tables"] = tables_root(plain)
    return job.of(Manifest.model_validate(plain))


def in_round(job: Job, model: GlobalState, before: TrainedRound | None) -> Job:
    """The job's task in the model's round, with what the seat carried out of the one before."""
    before = None if documents.is_public(documents_of(job)["codec"]) else before
    task = replace(
        job.task,
        slot=replace(job.task.slot, round=RoundIndex(model.round)),
        data_seed=bytes([5 + model.round]) * 32,
        global_state_cid=job.store.add_bytes(model.to_bytes()).to_bytes(),
        opening_optimiser=before.carried_cid if before else None,
    )
    return replace(job, model=model, task=task)


def provided(job: Job, brought: state.State | None) -> state.State:
    """The same round by the second client, from bytes alone."""
    task, slot = job.task, job.task.slot
    contract = bytes.fromhex(slot.domain.rounds[2:])
    return provide.provide(
        opened_job(job),
        state.read_global(job.model.to_bytes()),
        brought,
        (slot.domain.chain_id, contract, slot.job, slot.round, slot.attempt),
        (task.data_seed, task.seat),
    )


def opened_job(job: Job) -> provide.Job:
    tokens = open_training_tokens(job.manifest, job.store)[:]
    weights = b"" if job.manifest.init.cid is None else job.blob(job.manifest.init.cid)
    return provide.open_job(documents_of(job), tokens, weights)


def assert_same(job: Job, trained: TrainedRound, mine: state.State) -> None:
    """Every byte that the provider commits to, reveals and serves."""
    for leaf, ours in zip(trained.document.leaves, mine["leaves"], strict=True):
        assert ours == {name: getattr(leaf, name) for name in ours}
    for cid, ours in zip(trained.document.states, mine["states"], strict=True):
        assert state.seat_bytes(ours) == job.blob(cid)
    for roots, ours in zip(trained.document.state_roots, mine["states"], strict=True):
        assert state.state_roots(ours) == tuple(roots)
    assert mine["steps"] == trained.steps
    assert mine["trace_root"] == trained.trace_root
    assert mine["update"] == trained.update or trained.diverged
    assert mine["update_root"] == trained.update_root or trained.diverged
    assert mine["optimiser_root"] == trained.optimiser_root
    assert state.seat_bytes(mine["carried"]) == job.blob(trained.carried_cid)


@pytest.mark.parametrize("name", JOBS)
def test_rounds_to_the_byte(job: Job, name: str) -> None:
    ready = changed(job, JOBS[name])
    first = state.initial_global_state(documents_of(ready))
    assert state.global_bytes(first) == ready.model.to_bytes()
    assert state.global_digest(first) == ready.model.digest()
    diverged = play(ready, rounds=3)
    assert diverged == ("diverges" in name)


def play(ready: Job, rounds: int) -> bool:
    """Rounds of one seat by both clients, each merged by both; whether it diverged."""
    trained, brought, manifest = None, None, documents_of(ready)
    public = documents.is_public(manifest["codec"])
    for number in range(rounds):
        ready = in_round(ready, ready.model, trained)
        trained, mine = train_round(ready.task, ready.store), provided(ready, brought)
        assert_same(ready, trained, mine)
        if trained.diverged:
            return True
        model = merged_by_both(ready, mine["update"])
        assert bool(model.moments.m) == bool(model.moment_exponents)
        carried = state.seat_bytes(mine["carried"])
        brought = None if public else state.read_seat(carried, manifest, number + 1)
        ready = replace(ready, model=model)
    return False


def merged_by_both(ready: Job, update: bytes) -> GlobalState:
    """The next global state, of the seat's update alone, whose bytes both clients write."""
    task, steps = ready.task, ready.manifest.inner.steps
    facts = {"revealed": 1 << task.seat, "rejected": 0, "unresolved": 0, "caught": 0}
    facts["steps"] = {task.seat: steps}
    told = MergeFacts(Bitmap(1 << task.seat), Bitmap(0), Bitmap(0), 0, {task.seat: steps})
    updates = {task.seat: update}
    theirs = merge(
        ready.model, updates, facts=told, data_seed=task.data_seed, manifest=ready.manifest
    ).global_state
    model = state.read_global(ready.model.to_bytes())
    mine, inputs = second.merge(documents_of(ready), model, facts, updates, task.data_seed)
    assert inputs["merged"] == [task.seat]
    assert state.global_bytes(mine) == theirs.to_bytes()
    assert state.global_digest(mine) == theirs.digest()
    return theirs


def test_a_round_from_weights_that_are_content(job: Job, tmp_path: Path) -> None:
    make_folder(tmp_path, "Qwen3", torch.bfloat16)
    prepared = prepare_init(tmp_path, 12, job.store)
    assert prepared.init.cid is not None
    weights, kind = job.blob(prepared.init.cid), {"inner": ADAMW, "codec": {"kind": "grid8"}}
    parts = {"model": prepared.model.model_dump(), "init": prepared.init.model_dump()}
    ready = changed(job, kind | parts)
    first = state.initial_global_state(documents_of(ready), weights)
    assert state.global_bytes(first) == ready.model.to_bytes()
    ready = in_round(ready, ready.model, None)
    assert_same(ready, train_round(ready.task, ready.store), provided(ready, None))
    gain = {"model.norm.weight": np.ones(3, np.float32)}
    for odd, words in (
        (weights[:-1] + bytes([weights[-1] ^ 1]), "initial weights"),
        (state.write_blob("atoll.params.v1", {}, first["params"] | gain), "model"),
        (weights[:-4] + np.float32(np.nan).tobytes(), "numbers"),
        (state.global_bytes(first), "is not atoll.params.v1"),
    ):
        with pytest.raises(ValueError, match=words):
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
    assert not play(ready, rounds=2)


def test_a_seat_that_resets_in_a_later_round(job: Job) -> None:
    ready = changed(job, JOBS["Muon, grid4, dropout, fragments that come in late"])
    model = merged_by_both(ready, provided(in_round(ready, ready.model, None), None)["update"])
    ready = in_round(ready, model, None)
    trained = train_round(ready.task, ready.store)
    assert trained.reset
    assert_same(ready, trained, provided(ready, None))


def test_a_verifier_replays_any_segment_from_the_state_that_is_served(job: Job) -> None:
    ready = changed(job, JOBS["SGD with momentum, two bits with feedback, squared ReLU, dropout"])
    trained = train_round(ready.task, ready.store)
    opened, model = opened_job(ready), state.read_global(ready.model.to_bytes())
    seat = (ready.task.data_seed, ready.task.seat)
    for index, leaf in enumerate(trained.document.leaves):
        served = ready.blob(trained.document.states[index])
        opening = state.read_seat(served, opened.manifest, round=0)
        last, found = provide.segment(opening, index, opened, model, seat)
        assert found == {name: getattr(leaf, name) for name in found}
        assert state.seat_bytes(last) == ready.blob(trained.document.states[index + 1])
    update, carried = provide.link(opened.manifest, model, last, seat)
    assert codec.update_root(update) == trained.update_root
    assert state.optimiser_root(carried) == trained.optimiser_root


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
