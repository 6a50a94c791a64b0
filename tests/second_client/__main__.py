"""Works a finished job out again: `python -m tests.second_client FOLDER`.

In the folder lie `manifest.cbor`, `tokens` (the training tokens, raw), `held_out` (the evaluation
set's) and `events.json`: the domain, and the job's events in the chain's order, with the names and
arguments of SPEC-ROUNDS.md 13. Where the manifest names initial weights, they lie there as
`weights`. What is printed is JSON: of every round what its seats' training gives, who is drawn, the
merge, what its committee signs and its auditors open; and what everybody is paid in all.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from tests.second_client import chain, money, provide, rounds
from tests.second_client.documents import read_manifest
from tests.second_client.evaluate import held_out_loss
from tests.second_client.merge import available_seats, merge
from tests.second_client.state import State, global_bytes, global_digest, initial_global_state
from tests.second_client.stated import stated
from tests.second_client.words import ZERO, bits, file_cid, sha256


def main() -> None:
    folder = Path(sys.argv[1])
    manifest = read_manifest((folder / "manifest.cbor").read_bytes())
    kind = provide.token_type(manifest)
    tokens = np.frombuffer((folder / "tokens").read_bytes(), kind)
    held_out = np.frombuffer((folder / "held_out").read_bytes(), kind)
    weights = (folder / "weights").read_bytes() if manifest["init"]["cid"] else b""
    document = json.loads((folder / "events.json").read_text())
    events, at = chain.read(document["events"]), bytes.fromhex(document["rounds"])
    job, terms = provide.open_job(manifest, tokens, weights), money.read_terms(manifest["terms"])
    model, holders = initial_global_state(manifest, weights), chain.holders_of(events)
    found, pay = [], Counter[tuple[int, int]]()
    for number, told in enumerate(chain.rounds_of(events)):
        round_id = (document["chain"], at, document["job"], number)
        held = Holders(holders, number, told)
        loss = loss_of(job, model, held_out)
        model, said = work_out(job, model, (round_id, terms, loss), told, held)
        found.append(said)
        pay.update(held.paid(terms))
    plain = {f"{role} {id}": amount for (role, id), amount in sorted(pay.items())}
    digest = sha256((folder / "manifest.cbor").read_bytes())
    once = {"spec": digest.hex(), "terms": money.terms_hash(terms).hex()}
    json.dump(once | {"budget": money.budget(terms), "rounds": found, "paid": plain}, sys.stdout)


def loss_of(job: provide.Job, model: State, tokens: Any) -> bytes:
    """What a verdict says of the model that a round opens from."""
    data = job.manifest["data"]
    if data["eval_cid"] is None or data["eval_batches"] == 0:
        return bytes(8)
    return held_out_loss(job.base | model["params"], job.manifest, job.tables, tokens)


class Holders:
    """Who has which seat and slot in a round."""

    def __init__(self, holders: Any, round: int, told: Any) -> None:
        seats, slots = set(told["reveals"]), set(bits(told["ready"] | told["committee"]))
        self.told = told
        self.ids = {
            (role, index): chain.holder(holders, role, index, round)
            for role, indices in ((chain.PROVIDER, seats), (chain.VERIFIER, slots))
            for index in indices
        }
        self.steps = {
            seat: chain.steps_in(holders[chain.PROVIDER, self.ids[chain.PROVIDER, seat]], round)
            for seat in seats
        }
        self.accounts = {at: holders[at[0], id]["account"] for at, id in self.ids.items()}

    def paid(self, terms: money.Terms) -> dict[tuple[int, int], int]:
        fees = {"segment": terms["segment_pay"]}
        fees |= {"sign": terms["sign_fee"], "duty": terms["duty_fee"]}
        return chain.paid(self.told, self.ids, fees)


def work_out(
    job: provide.Job, model: State, setting: Any, told: Any, held: Holders
) -> tuple[State, dict[str, Any]]:
    """The next global state, and what should have been said of a round."""
    (round_id, terms, loss), seed = setting, told["seed"]
    before = global_digest(model) if round_id[3] else ZERO
    done = {seat: provide.provide(job, model, None, (seed, seat)) for seat in told["reveals"]}
    record = {
        "segments": {seat: len(each["states"]) for seat, each in done.items()},
        "committee": told["committee"].bit_count(),
        "votes": [has for _, has in told["votes"]],
        "slashed": 0,
        "accused": 0,
    }
    updates = {seat: each["update"] for seat, each in done.items()}
    after, inputs = merge(job.manifest, model, record, updates, seed)
    statement = stated(job.manifest, model, record, updates, seed, file_cid)
    made = {
        seat: rounds.commitment(round_id, seed, seat, reveal["account"], reveal, before)
        for seat, reveal in told["reveals"].items()
    }
    later = rounds.later_committee(told["auditSeed"], told["committeeDraw"])
    of_round = {
        "seed": seed,
        "auditSeed": told["auditSeed"],
        "reveals": rounds.reveals_accumulator(seed, made.items()),
        "votes": rounds.votes_accumulator(later if told["committeeDraw"] else seed, told["votes"]),
        "model": before,
        "revealed": sum(1 << seat for seat in made),
        "available": sum(1 << seat for seat in available_seats(record)),
        "excluded": sum(1 << seat for seat in inputs["excluded"]),
        "ready": told["ready"],
        "committee": told["committee"],
    }
    rate = money.rate_of(terms, last=round_id[3] + 1 == terms["rounds"])
    left = money.most_duties(terms) - told["duties"]
    of_round["drawn"] = rounds.drawn_seats(told["auditSeed"], of_round, rate, left, held.steps)
    verdict = told["verdict"] | {
        "excluded": of_round["excluded"],
        "merged": len(inputs["merged"]),
        "state": global_digest(after),
        "cid": file_cid(global_bytes(after)),
        "loss": loss,
        "statement": ZERO if statement is None else sha256(statement[1]),
    }
    of_round["certificate"] = rounds.certificate_digest(round_id, seed, of_round["votes"], verdict)
    committee_draw = later if told["committeeDraw"] else told["drawnBy"]
    return after, {
        "seats": {
            str(seat): _seat(each, told["reveals"][seat], told) for seat, each in done.items()
        },
        "commitments": {str(seat): each.hex() for seat, each in made.items()},
        "committee": rounds.committee_of(committee_draw, told["ready"]),
        "record": rounds.record_hash(of_round).hex(),
        "digest": of_round["certificate"].hex(),
        "merged": global_digest(after).hex(),
        "loss": loss.hex(),
        "bodies": _bodies(told, of_round["drawn"], done, held),
    }


def _seat(done: Any, reveal: Any, told: Any) -> dict[str, Any]:
    """What the seat should have revealed; its leaves where its key is known."""
    key = told["keys"].get(reveal["account"])
    checkpoint_commitments = (
        None
        if key is None
        else rounds.checkpoint_commitments_of(done["states"], done["work_tags"], key).hex()
    )
    states = [state.hex() for state in done["states"]]
    return {
        "states": states,
        "root": done["root"].hex(),
        "checkpointCommitments": checkpoint_commitments,
    }


def _bodies(told: Any, drawn: int, done: Any, held: Holders) -> dict[str, str]:
    """What each auditor should have opened, by its id."""
    duties: dict[int, dict[int, tuple[int, bytes]]] = {}
    for seat, slot in rounds.auditors_of(told["auditSeed"], drawn, told["ready"]).items():
        account = held.accounts[chain.VERIFIER, slot]
        digest = rounds.valid_digest(account, done[seat]["work_tags"])
        duties.setdefault(held.ids[chain.VERIFIER, slot], {})[seat] = rounds.VALID, digest
    return {str(id): rounds.body_of(each).hex() for id, each in sorted(duties.items())}


if __name__ == "__main__":
    main()
