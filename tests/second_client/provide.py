"""A seat's round, from manifest and data to its states, work_tags and update: SPEC.md, section 9.

`provide` is what a provider does, `replay` what an auditor does of what a seat revealed. A job is
the manifest and its tokens; a seat is the data seed of the round and the seat's index.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.second_client import codec, moments, optimisers, rollouts, rounds, sections
from tests.second_client.arithmetic import Array, dropout_scale, kept, quiet
from tests.second_client.constants import corrections, rate, rotary, tables_root
from tests.second_client.documents import Manifest, optimiser_of
from tests.second_client.kernels import Ids, drop
from tests.second_client.model import (
    Drop,
    Params,
    Tables,
    logits_of,
    loss_and_gradients,
    policy_gradients,
)
from tests.second_client.state import (
    State,
    initial_state,
    mix_in,
    mixes_in,
    read_params,
    state_digest,
    state_roots,
)
from tests.second_client.words import ZERO, dropout_key, keccak, piece_root, step_draws, u64

LIMIT = np.float32(2.0**64)


@dataclass(frozen=True)
class Job:
    """What every seat of a job works from.

    `tokens` are the words of all training tokens, `base` the parameters that adapters are added to.
    """

    manifest: Manifest
    tokens: Any
    tables: Tables
    base: Params


def open_job(manifest: Manifest, tokens: Any, weights: bytes = b"") -> Job:
    """Raises ValueError unless data, tables and base are those that the manifest names.

    `weights` is the parameter set that the manifest names, where it names one.
    """
    if piece_root(tokens.astype(token_type(manifest)).tobytes()) != manifest["data"]["root"]:
        raise ValueError("these are not the manifest's tokens")
    if tables_root(manifest) != manifest["tables"]:
        raise ValueError("these tables are not the manifest's")
    base = {} if manifest["lora"] is None else dict(read_params(weights, manifest))
    return Job(manifest, tokens, rotary(manifest["model"]), base)


def token_type(manifest: Manifest) -> np.dtype[Any]:
    """What a word of the data is."""
    width = {"uint8": "<u1", "uint16": "<u2", "uint32": "<u4"}
    return np.dtype(width[manifest["data"]["dtype"]])


# ---------------------------------------------------------------------------------- one step


@quiet
def sampled_step(state: State, at: int, index: int, job: Job, seat: codec.Seat) -> State:
    """As `step`, of a job that samples what it learns; `at` counts within the round.

    In the result stand `drawn` and the step's `ids` besides.
    """
    inner, model = job.manifest["inner"], scaled_model(job.manifest)
    params = job.base | state["params"]
    made = rollouts.sampled(
        job.manifest, job.tokens, lambda ids: logits_of(params, ids, model, job.tables),
        (seat, at, index),
    )  # fmt: skip
    size = inner["micro_batch"]
    pairs = []
    for first in range(0, inner["batch"], size):
        rows = slice(first, first + size)
        learned = (made.signed[rows], made.weights[rows])
        pairs.append(policy_gradients(params, *learned, model, job.tables))
    losses, sums = _summed(pairs, inner["lanes"], state["params"])
    loss = math.fsum(float(each) for each in losses)
    done = _stepped(state, (loss, losses, sums), index, job, made.is_finite)
    if not done["diverged"]:
        done["rollouts"] = made.after(state["rollouts"])
    return done | {"drawn": made.drawn, "ids": made.signed}


@quiet
def step(state: State, ids_BT1: Ids, index: int, job: Job, key: tuple[int, int]) -> State:
    """The state after a step, `index` counting over the whole job.

    In the result stand besides: `loss`, the batch's; `losses`, the micro-batches'; `norm`, the
    gradient's; and `diverged`, with which everything else is as before the step.
    """
    inner = job.manifest["inner"]
    size = inner["micro_batch"]
    pieces = [ids_BT1[at : at + size] for at in range(0, len(ids_BT1), size)]
    shares = _shares([int((piece[:, 1:] >= 0).sum()) for piece in pieces])
    losses, gradients = _gradients(state["params"], pieces, shares, (index, job, key))
    loss = math.fsum(float(one) * share for one, share in zip(losses, shares, strict=True))
    return _stepped(state, (loss, losses, gradients), index, job)


def _stepped(
    state: State,
    learned: tuple[float, list[np.float32], Params],
    index: int,
    job: Job,
    is_finite: bool = True,
) -> State:
    """The state after the batch's loss, the micro-batches' and the gradients."""
    inner, (loss, losses, gradients) = job.manifest["inner"], learned
    norm = optimisers.global_norm(gradients[name] for name in sorted(gradients))
    seen = {"loss": loss, "losses": losses, "norm": norm}
    if not (is_finite and math.isfinite(loss) and math.isfinite(norm)):
        return state | seen | {"diverged": True}
    scale = optimisers.clip_scale(norm, float(inner["clip"]))
    after = _optimised(state, gradients, (scale, rate(job.manifest, index)), job.manifest)
    bounded = all(bool((np.abs(p) < LIMIT).all()) for p in after["params"].values())
    return (after if bounded else state) | seen | {"diverged": not bounded}


def _shares(targets: list[int]) -> list[float]:
    """Every micro-batch's share of the batch's targets."""
    total = sum(targets)
    return [count / total if total else 0.0 for count in targets]


def _gradients(
    params: Params,
    pieces: list[Ids],
    shares: list[float],
    setting: tuple[int, Job, tuple[int, int]],
) -> tuple[list[np.float32], Params]:
    """Every micro-batch's loss, and the gradients summed in order, lane by lane.

    `setting`: the step's index over the whole job, the job, the key of the masks.
    """
    index, job, key = setting
    size = job.manifest["inner"]["micro_batch"]
    model = scaled_model(job.manifest)
    pairs = []
    for piece, (ids, share) in enumerate(zip(pieces, shares, strict=True)):
        dropped = _dropper(job.manifest, index, key, piece * size * model["seq"])
        c = np.float32(share)
        everything = job.base | params
        pairs.append(loss_and_gradients(everything, ids, model, job.tables, dropped, c))
    return _summed(pairs, job.manifest["inner"]["lanes"], params)


def _summed(
    pairs: Sequence[tuple[np.float32, Params]], lanes_count: int, params: Params
) -> tuple[list[np.float32], Params]:
    """The losses, and the gradients of the params summed lane by lane."""
    losses: list[np.float32] = []
    lanes: list[Params] = []
    length = len(pairs) // lanes_count
    for piece, (loss, found) in enumerate(pairs):
        losses.append(loss)
        if piece % length == 0:
            lanes.append({n: found[n] for n in params})
        else:
            lanes[-1] = {n: lanes[-1][n] + found[n] for n in params}
    sums, *others = lanes
    for lane in others:
        sums = {n: sums[n] + lane[n] for n in params}
    return losses, sums


def scaled_model(manifest: Manifest) -> dict[str, Any]:
    """The manifest's model, with the scale of adapters beside where there are any."""
    model: dict[str, Any] = manifest["model"]
    lora = manifest["lora"]
    if lora is None:
        return model
    return model | {"scale": np.float32(float(lora["alpha"]) / lora["rank"])}


def _dropper(manifest: Manifest, index: int, key: tuple[int, int], tokens_before: int) -> Drop:
    """Dropout of a micro-batch with so many tokens of the batch before it."""
    share = manifest["inner"]["dropout"]

    def dropped(x_ND: Array, site: int) -> Array:
        if share == "0":
            return x_ND
        first = tokens_before * x_ND.shape[1]
        span = range(first, first + x_ND.size)
        return drop(x_ND, kept(share, key, index, site, span), dropout_scale(share))

    return dropped


def _optimised(
    state: State, gradients: Params, scalars: tuple[float, float], manifest: Manifest
) -> State:
    """The state after every parameter's optimiser; `scalars`: clipping factor and rate."""
    inner, count = manifest["inner"], state["count"] + 1
    is_corrected = optimisers.OPTIMISERS[inner["optimizer"]].is_corrected
    pair = corrections(manifest, count) if is_corrected else ()
    params, after = {}, {slot: dict(state[slot]) for slot in ("m", "v")}
    for name, p in state["params"].items():
        g, kind = gradients[name], optimiser_of(name, p.shape, inner)
        slots = {slot: kept[name] for slot, kept in after.items() if name in kept}
        step = optimisers.OPTIMISERS[kind].step
        params[name], slots = step(p, slots, g, (*scalars, *pair), inner)
        for slot, tensor in slots.items():
            after[slot][name] = tensor
    return state | {
        "params": params,
        **after,
        "count": count,
        "batches": state["batches"] + 1,
    }


# ------------------------------------------------------------------------------- one segment


def segment(
    state: State, index: int, job: Job, model: State, seat: codec.Seat
) -> tuple[State, bytes, bytes] | None:
    """The state after a segment of the model's round, its work tag, and the ids that it sampled.

    None where a step is not finite: the round has ended with the segment before.
    """
    inner, round = job.manifest["inner"], model["round"]
    key, first, work, ids = dropout_key(*seat), index * inner["segment"], b"", b""
    for at in range(first, first + inner["segment"]):
        begun = state | {"batches": 0, "rollouts": ZERO} if at == 0 else state
        if mixes_in(job.manifest, round, at):
            begun = mix_in(begun, model, job.manifest["codec"])
        number = round * inner["steps"] + at
        if "task" in job.manifest:
            done = sampled_step(begun, at, number, job, seat)
            ids += done["ids"].astype("<i4").tobytes()
        else:
            done = step(begun, batch_of(job, offsets_of(job, seat, at)), number, job, key)
        if done["diverged"]:
            return None
        work += work_of(done["norm"], done["losses"], done.get("drawn"))
        state = {name: done[name] for name in begun}
    if job.manifest["codec"]["feedback"] != "0":
        state = state | {"left": encoded(job.manifest, model, state, seat)[1]}
    return state, keccak(work), ids


def offsets_of(job: Job, seat: codec.Seat, at: int) -> list[int]:
    """Where the sequences of a step of a round begin."""
    data, length = job.manifest["data"], job.manifest["model"]["seq"]
    below, times = data["train_tokens"] - length, 1
    if data["aligned"]:
        below, times = (data["train_tokens"] - 1) // length, length
    draws = step_draws(*seat, at, job.manifest["inner"]["batch"], below)
    return [draw * times for draw in draws]


def batch_of(job: Job, offsets: list[int]) -> Ids:
    """Token ids [B, T + 1]: a sequence and the token after it from each offset.

    Of masked data, −1 − id where the token is no target.
    """
    length = job.manifest["model"]["seq"] + 1
    found = np.stack([job.tokens[start : start + length] for start in offsets]).astype(np.int64)
    if not job.manifest["data"]["masked"]:
        return found
    bit = 1 << 8 * token_type(job.manifest).itemsize - 1
    return np.where(found >= bit, ~(found - bit), found)


def work_of(norm: float, losses: Sequence[Any], drawn: Sequence[int] | None = None) -> bytes:
    """What the work tag takes in of a step; `drawn` where it sampled."""
    behind = [b""] * len(losses) if drawn is None else [u64(number) for number in drawn]
    words = [_float_bytes(float(loss), ">f") for loss in losses]
    pairs = (loss + number for loss, number in zip(words, behind, strict=True))
    return _float_bytes(norm, ">d") + b"".join(pairs)


def _float_bytes(x: float, form: str) -> bytes:
    """A float's big-endian bytes; a NaN is the one NaN."""
    return struct.pack(form, x if x == x else math.nan)


# --------------------------------------------------------------------------------- one round


def provide(job: Job, model: State, brought: State | None, seat: codec.Seat) -> dict[str, Any]:
    """A seat's round.

    Args:
        model: the global state that the round opens from.
        brought: the state that the seat carries on from its last accepted round; None for none,
            as in every public job.

    Returns:
        `states`: digests after the segments done; `work_tags`: their plain work tags; `update`,
        empty where none was done, with its `root`; `carried_state`.
    """
    state = initial_state(job.manifest, model, brought)
    inner, states, work_tags = job.manifest["inner"], list[bytes](), list[bytes]()
    ids = b""
    for index in range(inner["steps"] // inner["segment"]):
        done = segment(state, index, job, model, seat)
        if done is None:
            break
        state = done[0]
        states.append(state_digest(state_roots(state)))
        work_tags.append(done[1])
        ids += done[2]
    found = {"states": states, "work_tags": work_tags}
    if not states:
        return found | {"update": b"", "root": ZERO, "carried_state": state}
    update, carried_state = update_proof(job.manifest, model, state, seat, ids)
    return found | {
        "update": update,
        "root": codec.update_root(update),
        "carried_state": carried_state,
    }


def replay(
    job: Job, model: State, seat: codec.Seat, checkpoint_commitments: bytes, update_root: bytes
) -> tuple[list[bytes], int | None, bytes]:
    """What an auditor finds of what a seat revealed.

    Returns:
        The plain work_tags of the segments that are as revealed; the first segment that is not,
        their number for the update proof, None where all is as revealed; and what is true there.
    """
    state, work_tags, ids = initial_state(job.manifest, model, None), list[bytes](), b""
    for index, (said, _) in enumerate(rounds.read_checkpoint_commitments(checkpoint_commitments)):
        done = segment(state, index, job, model, seat)
        own = ZERO if done is None else state_digest(state_roots(done[0]))
        if done is None or own != said:
            return work_tags, index, own
        state = done[0]
        work_tags.append(done[1])
        ids += done[2]
    update = update_proof(job.manifest, model, state, seat, ids)[0] if work_tags else b""
    own = codec.update_root(update) if work_tags else ZERO
    return work_tags, None if own == update_root else len(work_tags), own


def duty(account: bytes, found: tuple[list[bytes], int | None, bytes]) -> tuple[int, bytes]:
    """What an audit report says of a replay."""
    work_tags, at, own = found
    return (rounds.VALID, rounds.valid_digest(account, work_tags)) if at is None else (at, own)


def update_proof(
    manifest: Manifest, model: State, last: State, seat: codec.Seat, ids: bytes = b""
) -> tuple[bytes, State]:
    """The update's bytes, and the state that the seat carries on; `ids`: what it sampled."""
    update, residual = encoded(manifest, model, last, seat)
    parts = [update, *_moments(manifest, model, last, seat)]
    if "task" in manifest:
        parts.append(ids.ljust(sections.ids_size(manifest), b"\0"))
    return sections.joined(parts), last | {"left": residual}


def encoded(
    manifest: Manifest, model: State, last: State, seat: codec.Seat
) -> tuple[bytes, Params]:
    """The change of the parameters with what is fed back, and what the bytes lack of it."""
    spec, spoken = manifest["codec"], sections.spoken_of(manifest, model)
    exponents = {name: model["exponents"][name] for name in spoken.delta}
    wanted = {name: model["params"][name] - last["params"][name] for name in spoken.delta}
    if spec["feedback"] == "0":
        return codec.encode(spec["kind"], wanted, exponents, seat), {}
    decay = np.float32(float(spec["feedback"]))
    wanted = {name: w + last["feedback"][name] * decay for name, w in wanted.items()}
    update = codec.encode(spec["kind"], wanted, exponents, seat)
    shapes = {name: w.shape for name, w in wanted.items()}
    said = codec.decode(spec["kind"], update, shapes, exponents, seat)
    return update, {name: w - said[name] for name, w in wanted.items()}


def _moments(manifest: Manifest, model: State, last: State, seat: codec.Seat) -> list[bytes]:
    """Sections 1 and 2 of an update, where there are any: the last state's moments."""
    spoken, found = sections.spoken_of(manifest, model), list[bytes]()
    if spoken.first:
        kind, m = manifest["codec"]["kind"], {name: last["m"][name] for name in spoken.first}
        found.append(codec.encode(kind, m, model["moment_exponents"], seat, 1))
    if spoken.second:
        v = {name: last["v"][name] for name in spoken.second}
        found.append(moments.write_factored(moments.sums_of(v), spoken.second))
    return found
