"""What a node answers of the words of state that our contracts keep of their logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from eth_abi.abi import decode, encode

from atoll.chain.decode import RawLog, checksummed
from atoll.chain.log_heads import EMPTY, HeadFold, LogKey
from atoll.chain.response_checks import raw_log

CONFIG = checksummed("0x" + "c0" * 20)


def timed(log: dict[str, Any], timestamp: int) -> RawLog:
    """A log as a node gives it, in a block of that time."""
    return replace(raw_log(log), timestamp=timestamp)


def answer(call: dict[str, Any], logs: Iterable[RawLog]) -> str:
    """The result of `Config.logHeads` where these logs are all there are, in order."""
    contracts, jobs = decode(["address[]", "uint256[]"], bytes.fromhex(call["data"][10:]))
    fold = HeadFold({})
    fold.fold_all(logs)
    keys = (LogKey(job, checksummed(contract)) for job in jobs for contract in contracts)
    return f"0x{encode(['bytes32[]'], [[fold.heads.get(key, EMPTY) for key in keys]]).hex()}"
