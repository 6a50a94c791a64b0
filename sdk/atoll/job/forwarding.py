"""Pay goes on from the account that earned it to a wallet, whatever dies in between.

It is of pay that the contracts sent the account itself; what another payee has is that one's. What
was sent on is remembered in a file: the transfer's amount is written before the transfer is asked
for, under a key that names what had been sent on before, so that whoever repeats it asks for the
same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from atoll.chain.files import write_beside
from atoll.errors import StorageError
from atoll.law import events as ev
from atoll.law.owners import Ownership, enter, payee_of
from atoll.law.words import Address
from atoll.service.lock import hold_folder
from atoll.service.private import make_private

if TYPE_CHECKING:
    from atoll.chain.calls import Calls
    from atoll.service.wallet import Send

FOLDER: Final = "forwarding"


@dataclass(frozen=True, slots=True)
class Purse:
    """Wei that jobs have paid an account in all, and that it has now."""

    paid: int
    balance: int


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Where an account's pay goes, and how far that is.

    Attributes:
        to: the wallet.
        done: wei of the account's pay that are dealt with: sent on, or from before.
        sending: wei that are being sent to `to`; 0 while nothing is.
    """

    to: Address
    done: int
    sending: int = 0

    @classmethod
    def read(cls, file: Path) -> Forwarding | None:
        """What a file says; None where there is none. Raises StorageError."""
        try:
            plain = json.loads(file.read_bytes())
            return cls(Address(plain["to"]), int(plain["done_wei"]), int(plain["sending_wei"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            step = f"look what was sent from the account, then remove {file}"
            raise StorageError(f"cannot read {file}: {error}", next_step=step) from error

    def write(self, file: Path) -> Forwarding:
        """Itself, on the disk. Raises StorageError."""
        try:
            make_private(file.parent)
            write_beside(file, json.dumps(self.to_plain()).encode()).replace(file)
        except OSError as error:
            raise StorageError(f"cannot write {file}: {error}") from error
        return self

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"to": self.to, "done_wei": str(self.done), "sending_wei": str(self.sending)}

    def to_wallet(self, to: Address) -> Forwarding:
        """The same for another wallet; what is being sent already still goes to the old one."""
        return self if self.sending else Forwarding(to, self.done)

    def starting(self, purse: Purse) -> Forwarding:
        """With what is to be sent now: no more than the account has."""
        due = min(purse.paid - self.done, purse.balance)
        return self if self.sending or due <= 0 else Forwarding(self.to, self.done, due)

    def ended(self) -> Forwarding:
        """With what was sent dealt with."""
        return Forwarding(self.to, self.done + self.sending)


@contextmanager
def forwarding(folder: Path, account: Address, to: Address, paid: int) -> Iterator[Path]:
    """Holds the file of an account, in which counting begins before anything is claimed.

    Args:
        paid: wei that jobs have paid the account; what a first call does not send on.
    Raises:
        ConfigError: another process sends on.
        StorageError: the file cannot be read or written.
    """
    file = _file(folder, account)
    make_private(file.parent)
    with hold_folder(file.parent):
        if Forwarding.read(file) is None:
            Forwarding(to, paid).write(file)
        yield file


def unsent(folder: Path, account: Address, paid: int) -> int:
    """Wei that an earlier call has not sent on yet. Raises StorageError."""
    found = Forwarding.read(_file(folder, account))
    return 0 if found is None else paid - found.done


def _file(folder: Path, account: Address) -> Path:
    return folder / FOLDER / f"{account}.json"


def paid_to(events: Iterable[ev.ContractEvent], account: Address) -> int:
    """Wei that jobs have paid an account: claims and credits, while it was its own payee."""
    paid, owners = 0, dict[Address, Ownership]()
    for event in events:
        enter(owners, event)
        if getattr(event, "account", None) != account or payee_of(owners, account) != account:
            continue
        if isinstance(event, ev.Claimed | ev.CreditClaimed | ev.Collected):
            paid += event.amount
        elif isinstance(event, ev.Kept):
            paid -= event.amount
    return paid


async def send_on(file: Path, to: Address, purse: Purse, calls: Calls, send: Send) -> Forwarding:
    """One transfer: what a call before began to send, else what is due now. Says what it sent.

    Raises:
        TransactionFailed, ChainError: it was not sent; the next call sends the same.
        StorageError: the file cannot be read or written.
    """
    found = Forwarding.read(file) or Forwarding(to, purse.paid)
    sent = found.to_wallet(to).starting(purse).write(file)
    if sent.sending:
        await send(f"send-on:{sent.to}:{sent.done}", calls.transfer(sent.to, sent.sending))
        sent.ended().write(file)
    return sent
