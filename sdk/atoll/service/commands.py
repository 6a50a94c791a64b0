"""Effects that both roles ask for. `Do…` is work on this machine, `Send…` is a transaction.

Rule of this file: a command carries everything its effect needs, and its key names the effect:
doing it twice under one key is doing it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from atoll.law.words import Digest, Offence, Role
from atoll.service.facts import opening_key


class Work:
    """May be cancelled when the view changes, and done again."""

    __slots__ = ()

    @property
    def is_work(self) -> bool:
        return True


class Transaction:
    """Goes through the transaction queue; never taken back by the machine."""

    __slots__ = ()

    @property
    def is_work(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class DoFetchSpec(Work):
    """Fetch the manifest, hold it against the chain, and try the job's probe."""

    spec_cid: bytes
    terms_hash: Digest

    @property
    def key(self) -> str:
        return "spec"


@dataclass(frozen=True, slots=True)
class DoFetchData(Work):
    """Fetch every shard of the dataset, the evaluation text and the tokeniser."""

    manifest: bytes

    @property
    def key(self) -> str:
        return "data"


@dataclass(frozen=True, slots=True)
class DoPrepareOpening(Work):
    """Bring a round's opening global state into the store and check it.

    `cid` and `digest` come from the parent verdict; None for round 0, whose state follows from the
    manifest.
    """

    round: int
    manifest: bytes
    cid: bytes | None
    digest: Digest | None

    @property
    def key(self) -> str:
        return opening_key(self.round, self.digest)


@dataclass(frozen=True, slots=True)
class DoUnpin(Work):
    """Let go of the blocks of rounds from `first` up to, not including, `below`."""

    first: int
    below: int

    @property
    def key(self) -> str:
        return f"unpin:{self.below}"


@dataclass(frozen=True, slots=True)
class SendAnnounce(Transaction):
    url: str

    @property
    def key(self) -> str:
        return f"announce:{self.url}"


@dataclass(frozen=True, slots=True)
class SendJoin(Transaction):
    """Deposit what the bond (wei) lacks, then join."""

    role: Role
    bond: int

    @property
    def key(self) -> str:
        return f"join:{self.role.name.lower()}"


@dataclass(frozen=True, slots=True)
class SendLeave(Transaction):
    role: Role

    @property
    def key(self) -> str:
        return f"leave:{self.role.name.lower()}"


@dataclass(frozen=True, slots=True)
class SendRelease(Transaction):
    """Unlock what this account no longer owes the job."""

    role: Role
    settled_rounds: int
    is_over: bool

    @property
    def key(self) -> str:
        return f"release:{self.role.name.lower()}"


@dataclass(frozen=True, slots=True)
class SendPoke(Transaction):
    """Move the job on. `place` names the phase and its deadline or beacon."""

    place: str

    @property
    def key(self) -> str:
        return f"poke:{self.place}"


@dataclass(frozen=True, slots=True)
class SendFinalise(Transaction):
    round: int

    @property
    def key(self) -> str:
        return f"finalise:{self.round}"


@dataclass(frozen=True, slots=True)
class SendPunish(Transaction):
    round: int
    offence: Offence
    index: int

    @property
    def key(self) -> str:
        return f"punish:{self.round}:{self.offence.name.lower()}:{self.index}"


@dataclass(frozen=True, slots=True)
class SendCredit(Transaction):
    round: int
    role: Role
    index: int

    @property
    def key(self) -> str:
        return f"credit:{self.round}:{self.role.name.lower()}:{self.index}"


@dataclass(frozen=True, slots=True)
class SendClaim(Transaction):
    """Collect `due` wei: pay up to `cumulative`, proven against the final claims root, and credits.

    Without a proof only credits are collected.
    """

    cumulative: int
    due: int
    proof: tuple[Digest, ...]

    @property
    def key(self) -> str:
        return f"claim:{self.cumulative}:{self.due}"
