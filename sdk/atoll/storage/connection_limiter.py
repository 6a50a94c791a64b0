"""Who may be connected to a gateway: budgets that a stranger cannot use up for a member.

Every connection is let in, and somebody else is sent away where that makes too many: the stranger
whose last word is longest ago, those last whom we are answering. So who fills the room pushes out
those who fill it, and a member, who is known from its first request on, is served.

Rule of this file: it counts and decides; what is decided happens through `Connection.leave`, or,
where there is no room and nothing is being answered, through `Connection.refuse`, which says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from atoll.storage.uplink import SentBytes


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a gateway's connections.

    Attributes:
        connections: in all.
        per_address: of strangers from one IPv4 address or IPv6 /64.
        per_member: of one member; more count as strangers'.
        per_submitter: the same of one who brings what a job begins with.
        reserved: connections, and requests, that only members may have.
        header_s: until the first request's headers are here.
        idle_s: between two requests.
        least_bytes_per_s: what a reader takes at least, after `patience_s`, while bytes wait.
        line_bytes_per_s: what the line to everybody else carries; None where it is measured.
        strangers_share: of the line, for all strangers together.
    """

    connections: int = 512
    per_address: int = 64
    per_member: int = 64
    per_submitter: int = 8
    reserved: int = 128
    header_s: float = 10.0
    idle_s: float = 30.0
    least_bytes_per_s: float = 16384.0
    patience_s: float = 10.0
    line_bytes_per_s: float | None = None
    strangers_share: float = 0.25


@dataclass(slots=True, eq=False)
class Connection:
    """One connection.

    Attributes:
        address: whose it is, as far as limits go.
        leave: ends it at once; refuse: tells it to come again, and ends it.
        waiting: bytes that were written and not taken yet; queued: bytes that the kernel has, and
            the other side has not acknowledged.
        since: when it came; active: when it last came, asked, or was answered.
        member: who it is, once known; requests: how many began.
        submitter: who it is, where it is no member and may bring what a job begins with.
        is_looked_at: whether it was looked who it is, of those who are admitted now.
        busy: requests that are being answered; written: body bytes given to it so far.
    """

    address: str
    leave: Callable[[], object]
    refuse: Callable[[], object]
    waiting: Callable[[], int]
    queued: Callable[[], int]
    since: float
    active: float
    member: str | None = None
    submitter: str | None = None
    is_looked_at: bool = False
    requests: int = 0
    busy: int = 0
    written: int = 0
    _taken: tuple[float, int] = (0.0, 0)
    _acknowledged: int = 0

    @property
    def is_known(self) -> bool:
        """Whether no stranger's connection can push it out."""
        return self.member is not None or self.submitter is not None

    def asks_as_stranger(self, method: str) -> bool:
        """Whether a request waits for strangers' ones: of who is no member all but what it brings
        as a submitter, who has no bond to lose by what it takes of the line.
        """
        brings = self.submitter is not None and method in {"HEAD", "PUT"}
        return self.member is None and not brings

    def sent(self) -> SentBytes:
        """What it was sent since this was last asked."""
        queued = self.waiting() + self.queued()
        acknowledged = max(self._acknowledged, self.written - queued)
        taken, self._acknowledged = acknowledged - self._acknowledged, acknowledged
        return SentBytes(taken, queued, self.busy)

    def is_too_slow(self, now: float, budget: Budget) -> bool:
        """Whether it takes its bytes below the least rate, looked at every `patience_s`."""
        waits = self.waiting()
        taken = self.written - waits
        if waits == 0 or self._taken[0] == 0.0:
            self._taken = (now, taken)
            return False
        seconds, size = now - self._taken[0], taken - self._taken[1]
        if seconds < budget.patience_s:
            return False
        self._taken = (now, taken)
        return size < budget.least_bytes_per_s * seconds


@dataclass(slots=True)
class ConnectionLimiter:
    """Everyone who is connected.

    Args:
        clock: seconds, monotonic.

    Attributes:
        sent_away: connections that were ended, by reason.
        submitters: who may bring what their jobs begin with, and are no members.
    """

    budget: Budget
    clock: Callable[[], float]
    sent_away: dict[str, int] = field(default_factory=dict)
    submitters: frozenset[str] = frozenset()
    _connections: dict[object, Connection] = field(default_factory=dict)

    @property
    def connections(self) -> int:
        """How many are connected."""
        return len(self._connections)

    def arrived(
        self,
        key: object,
        host: str,
        leave: Callable[[], object],
        *,
        refuse: Callable[[], object] | None = None,
        waiting: Callable[[], int],
        queued: Callable[[], int] = lambda: 0,
    ) -> None:
        """Lets a connection in, and sends others away where it is one too many."""
        now = self.clock()
        connection = self._connections[key] = Connection(
            address_of(host), leave, refuse or leave, waiting, queued, now, now
        )
        strangers = self._strangers()
        members = len(self._connections) - len(strangers)
        self._trim(
            [g for g in strangers if g.address == connection.address], self.budget.per_address
        )
        room = self.budget.connections - max(self.budget.reserved, members)
        self._trim(self._strangers(), room)

    def left(self, key: object) -> None:
        """Forgets a connection that has ended."""
        self._connections.pop(key, None)

    def connection(self, key: object) -> Connection | None:
        """Who a connection is; None where it was sent away."""
        return self._connections.get(key)

    def asked(self, connection: Connection) -> None:
        """Notes that a connection's request is here."""
        connection.requests += 1
        connection.active = self.clock()

    def begins(self, connection: Connection) -> None:
        """Notes that a request is being answered: one that waits for its turn is not."""
        connection.busy += 1

    def ends(self, connection: Connection) -> None:
        """Notes that a request was answered."""
        connection.busy -= 1
        connection.active = self.clock()

    def admit_submitters(self, submitters: Iterable[str]) -> None:
        """Says who may bring what a job begins with from now on, and nobody else: also by a
        connection that was there before.
        """
        admitted = frozenset(submitters)
        if admitted == self.submitters:
            return
        self.submitters = admitted
        for connection in self._connections.values():
            connection.submitter = None
            connection.is_looked_at = connection.member is not None

    def recognised(self, connection: Connection, account: str) -> None:
        """Notes that a connection is a member's, or a submitter's."""
        others = self._connections.values()
        if connection.is_known:
            return
        if account in self.submitters:
            if sum(other.submitter == account for other in others) < self.budget.per_submitter:
                connection.submitter = account
        elif sum(other.member == account for other in others) < self.budget.per_member:
            connection.member = account

    def sweep(self) -> None:
        """Sends away who does not speak, and who does not listen; to be called every second."""
        now = self.clock()
        for connection in list(self._connections.values()):
            if connection.requests == 0 and now - connection.since > self.budget.header_s:
                self._send_away(connection, "header")
            elif connection.is_too_slow(now, self.budget):
                self._send_away(connection, "rate")

    def sent(self) -> tuple[SentBytes, SentBytes]:
        """What members and what strangers were sent since this was last asked."""
        members, strangers = SentBytes(), SentBytes()
        for connection in self._connections.values():
            if connection.member is None:
                strangers += connection.sent()
            else:
                members += connection.sent()
        return members, strangers

    def _strangers(self) -> list[Connection]:
        return [each for each in self._connections.values() if not each.is_known]

    def _trim(self, connections: Iterable[Connection], most: int) -> None:
        """Leaves `most` of them: who was silent longest goes first, whom we answer last."""
        order = sorted(connections, key=lambda g: (g.busy > 0, g.active))
        for connection in order[: max(0, len(order) - most)]:
            self._send_away(connection, "room")

    def _send_away(self, connection: Connection, reason: str) -> None:
        self.sent_away[reason] = self.sent_away.get(reason, 0) + 1
        self._connections = {
            key: other for key, other in self._connections.items() if other is not connection
        }
        if reason == "room" and not connection.busy:  # else its answer is on the line
            connection.refuse()
        else:
            connection.leave()


def address_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 that one IPv6 customer has."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return address.exploded[:19]
    return str(address)
