"""Every error Atoll raises on purpose, as one tree.

A message says what happened, with the numbers; `next_step` says what to do about it. The command
line prints both on one line each and exits with `exit_code`.
"""

from __future__ import annotations

import errno


class AtollError(Exception):
    """Base of all deliberate errors.

    Attributes:
        next_step: the command or action that helps, or None where nothing does.
        exit_code: what the command line exits with.
    """

    exit_code = 1

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.next_step = next_step


class ConfigError(AtollError):
    """What the user wrote (flag, file, environment) cannot be used."""

    exit_code = 2


class ManifestError(ConfigError):
    """A manifest that is malformed, out of bounds, or differs from the chain's terms."""


class KeystoreError(ConfigError):
    """A key that is missing, unreadable or protected by another password."""


class ChainError(AtollError):
    """The chain could not be asked, or refused."""

    exit_code = 3


class RpcUnavailable(ChainError):
    """No RPC endpoint answered."""


class WrongChain(ChainError):
    """The RPC endpoint serves another chain than the deployment names."""


class UndecodableLog(ChainError):
    """A log of one of the contracts that is not the event its topic promises.

    Strangers write into logs: this is an answer about one log, and never a reason to stop.
    """


class InsufficientFunds(ChainError):
    """The account cannot pay for what was asked."""


class TransactionFailed(ChainError):
    """A transaction was refused or reverted; the message carries the contract's reason.

    Attributes:
        error: name of the contract's custom error ("Error" for a plain message, "Panic" for a
            panic), or None where the node named none.
        args_: the error's arguments, in the order of the ABI.
    """

    def __init__(
        self,
        message: str,
        *,
        error: str | None = None,
        args: tuple[object, ...] = (),
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, next_step=next_step)
        self.error = error
        self.args_ = args


class StorageError(AtollError):
    """A block could not be read, written or fetched.

    Attributes:
        lost: CID of the block that our own store should have and has not; empty where it is no such
            error.
    """

    exit_code = 4
    lost = ""


def of_disk(error: OSError) -> StorageError:
    """What the file system refused, in words. Raises the error itself where it names no file."""
    if error.errno == errno.ENOSPC:
        step = "free some room and run the same command again"
        return StorageError(f"the disk is full: {error.filename or error}", next_step=step)
    if error.filename is None:
        raise error
    step = "correct the path, or who may read and write there"
    return StorageError(f"{error.filename}: {error.strerror}", next_step=step)


class NotFound(StorageError):
    """No known source has the block, the file or the entry."""


class CorruptBlock(StorageError):
    """The bytes do not hash to their CID."""


class TooLarge(StorageError):
    """More bytes than the caller allowed."""


class DiskFull(StorageError):
    """The disk has no room; nothing was left half-written."""


class ProtocolError(AtollError):
    """A party, or this program, broke the protocol's law."""

    exit_code = 5


class MalformedUpdate(ProtocolError):
    """An update whose bytes are not the canonical encoding the manifest prescribes."""


class NumericsMismatch(ProtocolError):
    """This machine does not reproduce the manifest's probe digest."""


class MachineFault(NumericsMismatch):
    """Two runs of one computation on this machine have two results: it is nobody else's fault."""
