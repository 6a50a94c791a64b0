"""One job on one chain: its state, its clock, its log and who is in it."""

from __future__ import annotations

from tests.support.contracts.values import (
    PENALTY_BPS,
    WINNER_BPS,
    ZERO,
    Member,
    Past,
    most_duties,
    tagged,
)
from tests.support.identities import DOMAIN, JOB, address, cid, digest

from atoll.protocol import events as ev
from atoll.protocol.types import Address, BlockRef, Digest, JobStatus, Params, Phase, Role, Terms


class Chain:
    """What every contract of the one job reads and writes.

    Attributes:
        log: the events so far, each with its block.
    """

    def __init__(self, terms: Terms, funded: int = 10**24) -> None:
        self.domain, self.job = DOMAIN, JOB
        self.state_of = lambda round, merged: digest(f"state {round} {merged}")
        self.terms = terms
        self.now, self.number = 1_000_000, 100
        self.log: list[tuple[ev.ContractEvent, BlockRef]] = []
        self.phase, self.status = Phase.WAITING, JobStatus.OPEN
        self.round, self.committee_draw, self.deadline, self.streak = 0, 0, 0, 0
        self.cancelled = False
        self.members: dict[tuple[Role, int], Member] = {}
        self.held: set[int] = set()
        self.owing: dict[int, int] = {}  # seat: round of the missed duty
        self.repeats: dict[int, int] = {}  # of phases, by round
        self.still = (0, 0)  # round and second from which on a slot may change hands again
        self.ready, self.coming, self.going = set[int](), set[int](), set[int]()
        self.misses: dict[tuple[Role, Address], list[int]] = {}  # rounds, as often as missed
        self.excuses: dict[Address, list[int]] = {}  # ends of OPEN
        self.buckets: dict[int, int] = {}  # of providers' ids
        self.seasoned_from: dict[int, int] = {}  # rounds, by 28 seats
        self.duties_left = most_duties(terms)
        self.seed = self.next_seed = self.model = Digest(ZERO)
        self.seated, self.waited, self.committee = set[int](), set[int](), set[int]()
        self.settled: list[Past] = []
        self.funded, self.claimed, self.refunded, self.burnt, self.burnt_to = funded, 0, 0, 0, 0
        params = Params(PENALTY_BPS, WINNER_BPS, 1, 1, 1, 80, 80)
        spec = (digest("spec"), cid("spec"), digest("terms"), self.terms, params)
        self.emit(ev.JobCreated(self.job, address("submitter"), *spec, address("policy"), funded))
        self.credits: dict[Address, int] = {}

    # --- the chain ---

    @property
    def block(self) -> BlockRef:
        return BlockRef(self.number, digest(f"block {self.number}"), self.now)

    def beacon(self) -> Digest:
        """Hash of the block before."""
        return digest(f"block {self.number - 1}")

    def tagged(self, name: str, round: int, *parts: bytes | int) -> Digest:
        return tagged(name, round, *parts, where=(self.domain, self.job))

    def emit(self, event: ev.ContractEvent) -> None:
        self.log.append((event, self.block))

    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.number += 1

    def wait_until(self, when: int) -> None:
        self.wait(max(0, when - self.now))

    def member(self, role: Role, id: int) -> Member:
        return self.members[role, id]

    def own(self, account: Address) -> Member | None:
        mine = (m for m in self.members.values() if m.account == account and not m.released)
        return next(mine, None)

    def at(self, role: Role, index: int, round: int) -> Member:
        """Who has the seat or the slot in a round that it counts in."""
        held = [m for m in self.members.values() if (m.role, m.index) == (role, index)]
        return max((m for m in held if m.start <= round), key=lambda m: m.id)

    def _held(self, slot: int) -> list[Member]:
        held = self.members.values()
        return [m for m in held if (m.role, m.index) == (Role.VERIFIER, slot)]

    @property
    def following(self) -> int:
        is_open = self.phase in {Phase.TRAIN, Phase.REVEAL, Phase.MERGE}
        return self.round + is_open
