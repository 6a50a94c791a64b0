"""A job from its events: who held what, and what was said of each round (SPEC-ROUNDS.md, 13).

Rule of this file: events are (name, arguments by the text's names) in the chain's order. Missed
duties, slashes and games are not followed: a job in which there are any is not for this reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.second_client import money
from tests.second_client.rounds import following_committee
from tests.second_client.words import ZERO, bits

Event = tuple[str, Mapping[str, Any]]
PROVIDER, VERIFIER = 0, 1
ENTERS = {"Seated": (PROVIDER, "seat"), "Enrolled": (VERIFIER, "slot")}
LEAVES = {"SeatLeaving": PROVIDER, "SlotLeaving": VERIFIER}
NEVER = 1 << 32
REFUSED = frozenset(
    {"Missed", "HolderSlashed", "Struck", "Leaked", "Contested", "Withheld", "LateVote"}
)


def read(plain: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Events as JSON has them: bytes and addresses in hex. Raises ValueError for those refused."""
    events = [(str(event["name"]), _unhexed(event["arguments"])) for event in plain]
    refused = {name for name, _ in events} & REFUSED
    if refused:
        raise ValueError(f"not followed here: {', '.join(sorted(refused))}")
    return events


def _unhexed(value: Any) -> Any:
    if isinstance(value, str):
        return bytes.fromhex(value.removeprefix("0x"))
    if isinstance(value, Mapping):
        return {name: _unhexed(each) for name, each in value.items()}
    return value


def holders_of(events: Iterable[Event]) -> dict[tuple[int, int], dict[str, Any]]:
    """By role and id: account, seat or slot, and the rounds `from` to, but not, `to`."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for name, said in events:
        if name in ENTERS:
            role, index = ENTERS[name]
            held = {"account": said["account"], "index": said[index]}
            found[role, said["id"]] = held | {"from": said["from"], "to": NEVER}
        elif name in LEAVES:
            found[LEAVES[name], said["id"]]["to"] = said["to"]
        elif name == "Seasoned":
            held = found[PROVIDER, said["id"]]
            held.setdefault("seasoned", []).append((said["from"], said["steps"]))
    return found


def holder(
    holders: Mapping[tuple[int, int], Mapping[str, Any]], role: int, index: int, round: int
) -> int:
    """The id that has the seat or the slot in the round."""
    return max(
        id
        for (its, id), held in holders.items()
        if its == role and held["index"] == index and held["from"] <= round < held["to"]
    )


def steps_in(held: Mapping[str, Any], round: int) -> int:
    """Entries of the table that a holder is drawn more rarely by in a round."""
    return max((steps for start, steps in held.get("seasoned", ()) if start <= round), default=0)


def rounds_of(events: Iterable[Event]) -> list[dict[str, Any]]:
    """What the chain says of each round, of the last opening of its number."""
    rounds: list[dict[str, Any]] = []
    waits, whole = True, 0
    for name, said in events:
        if name == "JobCreated":
            whole = said["terms"]["steps"] // said["terms"]["segmentSteps"]
        elif name == "RoundOpened":
            del rounds[said["round"] :]
            by = said["seed"] if waits else following_committee(rounds[-1]["auditSeed"])
            seeded = sum(earlier.get("seeded", 0) for earlier in rounds)
            rounds.append(_opened(said) | {"drawnBy": by, "whole": whole, "duties": seeded})
        elif name in _FOLDS:
            _FOLDS[name](rounds[said["round"]], said)
        if name in {"RoundOpened", "Waiting"}:
            waits = name == "Waiting"
    return rounds


def _opened(said: Mapping[str, Any]) -> dict[str, Any]:
    names = ("round", "seed", "ready", "committee", "model")
    lists: dict[str, Any] = {"reveals": {}, "votes": [], "bodies": {}, "keys": {}}
    return {name: said[name] for name in names} | lists | {"committeeDraw": 0, "auditSeed": ZERO}


def _revealed(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    told["reveals"][said["seat"]] = {"account": said["account"], **said["reveal"]}


def _said(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    told["votes"].append((said["slot"], said["has"]))


def _committee_draw(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    told.update(committee_draw=said["committeeDraw"], committee=said["committee"], votes=[])


def _settled(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    done = {seat: len(r["checkpointCommitments"]) // 64 for seat, r in told["reveals"].items()}
    merged = said["verdict"]["merged"] if any(said["digest"]) else None
    pay = said["available"] & money.earning(done, told["whole"], merged)
    told.update(verdict=said["verdict"], signers=said["signers"], pay=pay)
    told.update(auditSeed=said["record"]["auditSeed"])
    told["seeded"] = said["record"]["drawn"].bit_count() - bool(said["record"]["excluded"])


def _opened_body(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    told["bodies"][said["id"]] = said["body"]


def _key(told: dict[str, Any], said: Mapping[str, Any]) -> None:
    told["keys"][said["account"]] = said["key"]


_FOLDS = {
    "Revealed": _revealed,
    "Voted": _said,
    "CommitteeDrawn": _committee_draw,
    "Settled": _settled,
    "Signed": lambda told, said: told.update(signers=said["signers"]),
    "PayChanged": lambda told, said: told.update(pay=said["pay"]),
    "Opened": _opened_body,
    "KeyShown": _key,
}


def paid(
    told: Mapping[str, Any], ids: Mapping[tuple[int, int], int], fees: Mapping[str, int]
) -> dict[tuple[int, int], int]:
    """Of a settled round by role and id; `ids` by role and seat or slot.

    `fees` has segment, sign and duty: the price of a segment, and both fees.
    """
    found: dict[tuple[int, int], int] = {}
    for seat in bits(told["pay"]):
        done = len(told["reveals"][seat]["checkpointCommitments"]) // 64
        found[PROVIDER, ids[PROVIDER, seat]] = done * fees["segment"]
    for slot in bits(told["signers"]):
        found[VERIFIER, ids[VERIFIER, slot]] = fees["sign"]
    for id, body in told["bodies"].items():
        key = VERIFIER, id
        found[key] = found.get(key, 0) + len(body) // 35 * fees["duty"]
    return found
