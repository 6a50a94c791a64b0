"""Whose bytes leave next: members' at once, strangers' in turn within a quarter of the line.

A home's uplink is a few Mbit/s, and TCP shares it among connections: beside 64 of a stranger's, a
member has a 65th of it, so that its update is not available in time. Limits on connections do not
mend that, since one stranger's few are more than a member's one.

How much the line carries is measured. What members were sent tells it while one is served, since
only they have a bond to lose; strangers could acknowledge what never arrived. Where no member was
served lately, strangers are given more and more until bytes queue, which is what the line carries.

Rule of this file: nothing that strangers do takes more than their share from a member that is
being served.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import sys
import termios
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from atoll.storage.rate_limits import FairSlots

TICK_S: Final = 0.25
"""Between two looks at what left."""
PIECE: Final = 1 << 16
"""Bytes written at once."""
BLOCK: Final = 1 << 20
"""What an answer mostly is: a leaf of a file."""
ANSWER: Final = 512
"""What an answer takes beside its body, with the packets of its connection."""
FIRST_BYTES_PER_S: Final = 512 << 10
"""What a line is taken for at first, and at least where no member tells: 4 Mbit/s."""
_LEAST_BYTES_PER_S: Final = 64 << 10  # a member that takes nothing starves nobody
_GROWTH: Final = 1.25  # a tick: from 4 Mbit/s to 1 Gbit/s in six seconds
_QUEUE_S: Final = 0.5  # bytes of so many seconds that are not acknowledged queue somewhere
_REMEMBERED_S: Final = 300.0
_LONGEST_ANSWER_S: Final = 15.0  # whoever asks for a block gives it up after 20


@dataclass(frozen=True, slots=True)
class SentBytes:
    """What members, or strangers, were sent in a tick.

    Attributes:
        taken: bytes that they acknowledged.
        queued: bytes written and not acknowledged at its end.
        requests: of theirs, under way at its end.
    """

    taken: int = 0
    queued: int = 0
    requests: int = 0

    def __add__(self, other: SentBytes) -> SentBytes:
        return SentBytes(
            self.taken + other.taken, self.queued + other.queued, self.requests + other.requests
        )


class UplinkLine:
    """What the line to everybody else carries, bytes a second, as far as it shows.

    Args:
        stated: what its owner says; None where it is measured.
        clock: seconds, monotonic.
    """

    def __init__(self, stated: float | None, clock: Callable[[], float]) -> None:
        self._stated = stated
        self._clock = clock
        self._members = self._members_before = 0.0
        self._since = clock()
        self._probed = float(FIRST_BYTES_PER_S)
        self._known_until = -math.inf
        self._serves_member = False

    @property
    def bytes_per_s(self) -> float:
        """The rate of which strangers have a share now."""
        if self._stated is not None:
            return self._stated
        members = max(self._members, self._members_before)
        if self._serves_member and members:
            return max(members, _LEAST_BYTES_PER_S)
        return max(members, self._probed)

    def tick(
        self, seconds: float, members: SentBytes, strangers: SentBytes, *, was_short: bool
    ) -> None:
        """Notes what left in the last seconds; `was_short` where strangers waited for their share.

        A member counts as served while it takes bytes: one that holds a connection and takes none
        leaves the line to others.
        """
        now = self._clock()
        if now - self._since >= _REMEMBERED_S / 2:
            self._members_before, self._members, self._since = self._members, 0.0, now
        self._serves_member = members.taken > 0
        if self._serves_member:
            self._members = max(self._members, members.taken / seconds)
        elif members.requests == 0 and now >= self._known_until:
            self._probe(strangers.taken / seconds, strangers.queued, was_short=was_short)

    def _probe(self, rate: float, queued: int, *, was_short: bool) -> None:
        if queued > max(rate * _QUEUE_S, PIECE):
            # Slow readers look like a slow line, and are strangers' trouble down to the least.
            self._probed = max(rate, FIRST_BYTES_PER_S)
            self._known_until = self._clock() + _REMEMBERED_S
        elif was_short:
            self._probed *= _GROWTH


class StrangersShare:
    """A part of the line, which strangers have in turn, one address like another.

    Args:
        share: of the line.
        line: what it carries.
        clock: seconds, monotonic.
    """

    def __init__(self, share: float, line: UplinkLine, clock: Callable[[], float]) -> None:
        self._share, self._line, self._clock = share, line, clock
        self._turns = FairSlots(1)
        self._requests: Counter[Hashable] = Counter()
        self._credit, self._counted_at = float(PIECE), clock()
        self.was_short = False

    def retry_after_s(self, party: Hashable) -> int | None:
        """Seconds after which to ask again, where a request more would take too long; else None.

        What a party asks for at once shares its part: eight blocks side by side would all be given
        up before they are whole, over and over, and the line would have carried nothing.
        """
        under_way = self._requests[party]
        block_s = len(self._requests.keys() | {party}) * BLOCK / self._bytes_per_s
        if not under_way or (under_way + 1) * block_s <= _LONGEST_ANSWER_S:
            return None
        return min(math.ceil(block_s), 60)

    @contextmanager
    def request(self, party: Hashable) -> Iterator[None]:
        """A request of a party that is being answered, of which more pieces are to come."""
        self._requests[party] += 1
        try:
            yield
        finally:
            self._requests[party] -= 1
            if not self._requests[party]:
                del self._requests[party]

    async def turn(self, party: Hashable, size: int) -> None:
        """Returns when so many bytes may be written to a party."""
        await self._turns.acquire(party)
        try:
            while (seconds := self._seconds_short()) > 0:
                self.was_short = True
                await asyncio.sleep(min(seconds, TICK_S))
            self._credit -= size
        finally:
            self._turns.release()

    @property
    def _bytes_per_s(self) -> float:
        return self._share * self._line.bytes_per_s

    def _seconds_short(self) -> float:
        """Until the next bytes may leave; what has not been used for a tick is not saved up."""
        now, rate = self._clock(), self._bytes_per_s
        most = max(float(PIECE), rate * TICK_S)
        self._credit = min(most, self._credit + (now - self._counted_at) * rate)
        self._counted_at = now
        return max(0.0, -self._credit / rate)


def queued_in_kernel(transport: asyncio.BaseTransport) -> int:
    """Bytes written that the other side has not acknowledged, where the kernel tells (tcp(7))."""
    connection = transport.get_extra_info("socket")
    if sys.platform != "linux" or connection is None or connection.fileno() < 0:
        return 0
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:  # it has just ended
        return 0
    return int.from_bytes(answer, sys.byteorder)
