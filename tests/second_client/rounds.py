"""What contracts and clients hash and draw of a round: SPEC-ROUNDS.md, sections 2, 3 and 7.

Rule of this file: bytes in, bytes out. A round id is (chain id, address of Rounds, job, round);
maps of seats and slots are integers; a reveal, a verdict and a record are dicts with the text's
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isqrt
from typing import Any

from tests.second_client.curve import recover, sign
from tests.second_client.typed import in_round
from tests.second_client.words import abi, bits, hashed, keccak

RoundId = tuple[int, bytes, int, int]
CHECKPOINT_COMMITMENT_BYTES = 64
VALID = 0xFFFF
COMMITTEE = 32

# ------------------------------------------------------------------ what a seat says (section 2)


def key_of(secret: int, round_id: RoundId, data_seed: bytes, seat: int) -> bytes:
    """A seat's key of a round, which only its account can make."""
    said = (("bytes32", "seed", data_seed), ("uint16", "seat", seat))
    return keccak(sign(secret, in_round("SecretOfWorkTags", round_id, said))[:64])


def key_hash(key: bytes) -> bytes:
    """κ."""
    return keccak(abi(key))


def masked(tag: bytes, key: bytes, j: int) -> bytes:
    """The work tag of segment j under the key; done twice it is the work tag again."""
    mask = keccak(abi(key, j))
    return bytes(a ^ b for a, b in zip(tag, mask, strict=True))


def checkpoint_commitments_of(states: Sequence[bytes], tags: Sequence[bytes], key: bytes) -> bytes:
    """What a reveal has of the segments: state digests and blinded tags."""
    pairs = zip(states, tags, strict=True)
    return b"".join(state + masked(tag, key, j) for j, (state, tag) in enumerate(pairs))


def read_checkpoint_commitments(checkpoint_commitments: bytes) -> list[tuple[bytes, bytes]]:
    """State digest and blinded tag of every segment. Raises ValueError for other lengths."""
    if len(checkpoint_commitments) % CHECKPOINT_COMMITMENT_BYTES:
        raise ValueError("not whole leaves")
    starts = range(0, len(checkpoint_commitments), CHECKPOINT_COMMITMENT_BYTES)
    return [
        (
            checkpoint_commitments[at : at + 32],
            checkpoint_commitments[at + 32 : at + CHECKPOINT_COMMITMENT_BYTES],
        )
        for at in starts
    ]


def work_tags_of(checkpoint_commitments: bytes, key: bytes) -> list[bytes]:
    """x of every segment."""
    return [
        masked(tag, key, j)
        for j, (_, tag) in enumerate(read_checkpoint_commitments(checkpoint_commitments))
    ]


def commitment(
    round_id: RoundId,
    data_seed: bytes,
    seat: int,
    account: bytes,
    told: Mapping[str, bytes],
    model: bytes,
) -> bytes:
    """`told` is the reveal; `model` the digest of what the round opens from, zero in round 0."""
    said = (
        keccak(told["checkpointCommitments"]),
        told["updateRoot"],
        model,
        told["keyHash"],
        told["salt"],
    )
    return hashed("atoll.commit.v2", *round_id, data_seed, seat, account, *said)


def reveals_accumulator(data_seed: bytes, reveals: Iterable[tuple[int, bytes]]) -> bytes:
    """Over (seat, commitment) in the chain's order."""
    found = data_seed
    for seat, made in reveals:
        found = keccak(abi(found, seat, made))
    return found


# -------------------------------------------------------------------------- seeds (section 3)


def data_seed(round_id: RoundId, source: bytes, block_hash: bytes) -> bytes:
    """`source` is the reveal accumulator of the round before, zero where WAITING ends."""
    return hashed("atoll.data.v2", *round_id, source, block_hash)


def audit_seed(round_id: RoundId, reveals: bytes, block_hash: bytes) -> bytes:
    """Of the block in which MERGE opened, and what a beacon makes of its hash."""
    return hashed("atoll.audit.v3", *round_id, reveals, block_hash)


def following_committee(audit_seed_: bytes) -> bytes:
    """ℓ of the first committee draw of a round, by the audit seed of the one that its opening
    settled.
    """
    return keccak(abi(audit_seed_, 0))


def later_committee(audit_seed_: bytes, committee_draw: int) -> bytes:
    """ℓ of a committee draw after the first, by its round's own audit seed."""
    seed = audit_seed_
    for i in range(1, committee_draw + 1):
        seed = keccak(abi(seed, i))
    return seed


def _smallest(hashes: Mapping[int, bytes], count: int) -> list[int]:
    """The numbers with the smallest hashes, in that order."""
    return sorted(hashes, key=lambda number: (hashes[number], number))[:count]


def committee_of(seed: bytes, pool: int) -> list[int]:
    """Slots of a committee draw, ascending."""
    return sorted(_smallest({slot: keccak(abi(seed, slot)) for slot in bits(pool)}, COMMITTEE))


def chance_of(rate: int) -> int:
    """Of the table of rates, in 2^-32: 2^(32 - rate/2), rounded up."""
    below = isqrt(2 ** (64 - rate))
    return below if below**2 == 2 ** (64 - rate) else below + 1


def seeded_seats(
    seed: bytes, revealed: int, rate: int, steps: Mapping[int, int] | None = None
) -> int:
    """The map of the seats that the seed draws; `steps` are those that seats have come down."""
    drawn = 0
    for seat in bits(revealed):
        tickets = hashed("atoll.audit-rate.v1", seed, seat // 8)
        ticket = tickets[4 * (seat % 8) : 4 * (seat % 8) + 4]
        own = min(15, rate + (steps or {}).get(seat, 0)) if rate else 0
        drawn |= (int.from_bytes(ticket, "big") < chance_of(own)) << seat
    return drawn


def sure_seat(seed: bytes, excluded: int) -> int:
    """The map of the excluded seat that is audited in any case; of none none."""
    seats = bits(excluded)
    return 1 << seats[int.from_bytes(seed, "big") % len(seats)] if seats else 0


def drawn_seats(
    seed: bytes,
    record: Mapping[str, int],
    rate: int,
    left: int,
    steps: Mapping[int, int] | None = None,
) -> int:
    """The map of the seats whose work is done again; `left` is U before the round."""
    sure = sure_seat(seed, record["excluded"])
    drawn = bits(seeded_seats(seed, record["revealed"], rate, steps) & ~sure)
    return sum(1 << seat for seat in drawn[max(0, len(drawn) - left) :]) | sure


def auditors_of(seed: bytes, drawn: int, ready: int) -> dict[int, int]:
    """The slot that does each drawn seat's work again."""
    slots = bits(ready)
    first = int.from_bytes(hashed("atoll.auditors.v1", seed), "big")
    return {seat: slots[(first + i) % len(slots)] for i, seat in enumerate(bits(drawn))}


# ------------------------------------------------------- votes and certificates (sections 2, 7)


def votes_accumulator(committee_draw: bytes, votes: Iterable[tuple[int, int]]) -> bytes:
    """Over (slot, has) in the chain's order: 28 bytes and four zero bytes."""
    found = committee_draw[:28] + bytes(4)
    for slot, has in votes:
        found = keccak(abi(found, slot, has))[:28] + bytes(4)
    return found


def certificate_digest(
    round_id: RoundId, data_seed_: bytes, votes: bytes, verdict: Mapping[str, Any]
) -> bytes:
    """What a committee signs."""
    said = (
        ("bytes32", "seed", data_seed_),
        ("bytes32", "votes", votes),
        ("uint256", "excluded", verdict["excluded"]),
        ("uint16", "merged", verdict["merged"]),
        ("bytes32", "state", verdict["state"]),
        ("bytes", "cid", verdict["cid"]),
        ("bytes8", "loss", verdict["loss"]),
        ("bytes32", "statement", verdict["statement"]),
    )
    return in_round("Certificate", round_id, said)


def signers_of(digest: bytes, committee: Sequence[bytes], certificate: bytes) -> int:
    """The map of who signed with a key; a contract's word only its chain has.

    Raises ValueError where the certificate is not whole, or of more members than there are.
    """
    named, rest, signers = int.from_bytes(certificate[:4], "big"), certificate[4:], 0
    if named >> len(committee):
        raise ValueError("not of the committee")
    for i in bits(named):
        size, rest = int.from_bytes(rest[:2], "big"), rest[2:]
        signature, rest = rest[:size], rest[size:]
        if len(signature) != size:
            raise ValueError("not a signature of each")
        signers |= _is_by(committee[i], digest, signature) << i
    if rest:
        raise ValueError("more than a signature of each")
    return signers


def _is_by(account: bytes, digest: bytes, signature: bytes) -> bool:
    try:
        return recover(digest, signature) == account
    except ValueError:
        return False


def record_hash(record: Mapping[str, Any]) -> bytes:
    """What the contract keeps of a round."""
    names = ("seed", "auditSeed", "reveals", "votes", "model")
    maps = ("revealed", "available", "excluded", "ready", "committee", "drawn")
    words = (record[name] for name in (*names, *maps, "certificate"))
    return hashed("atoll.round-record.v2", *words)


# ------------------------------------------------------------------------ audit reports (section 2)


def valid_digest(account: bytes, tags: Sequence[bytes]) -> bytes:
    """What an auditor says that found everything as revealed."""
    return keccak(account + b"".join(tags))


def body_of(duties: Mapping[int, tuple[int, bytes]]) -> bytes:
    """`duties`: of each seat at and digest."""
    return b"".join(
        bytes([seat]) + at.to_bytes(2, "big") + digest
        for seat, (at, digest) in sorted(duties.items())
    )


def audit_report_hash(
    round_id: RoundId, audit_seed_: bytes, member: tuple[int, bytes], body: bytes, salt: bytes
) -> bytes:
    """`member`: the auditor's id and account."""
    return hashed("atoll.audit-report.v1", *round_id, audit_seed_, *member, keccak(body), salt)


# -------------------------------------------------------------------------- names (section 2)


def set_of(job: int, role: int, id: int) -> int:
    return job << 40 | role << 32 | id


def position_of(set_: int, round: int) -> int:
    return set_ << 32 | round


def bond_lock(job: int, role: int, id: int) -> bytes:
    text = b"atoll.bond.v2"
    # abi.encode of a string: where it begins, and there its length and its bytes, filled up.
    head = abi(4 * 32, job, role, id)
    return keccak(head + abi(len(text)) + text.ljust(32, b"\0"))


def fault_id(
    members: bytes, job: int, holder: tuple[int, int], missed_duty: Sequence[int]
) -> bytes:
    """`holder`: role and id; `missed_duty`: round, kind, and the seat of a dropped accusation, else
    0."""
    round, kind, seat = missed_duty
    return hashed("atoll.fault.v3", members, job, *holder, round, seat << 8 | kind)
