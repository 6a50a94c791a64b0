"""Logs as no contract of ours writes them: what an index must live with, whoever they come from."""

from __future__ import annotations

from typing import Final

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from atoll.chain.abi import registry
from atoll.protocol.types import Address

_LOG_HEADS: Final = 0
"""The place of the mapping from jobs to heads in the storage of the members contract."""
_HEAD = keccak(bytes(32) + _LOG_HEADS.to_bytes(32, "big")).hex()  # of what belongs to no job
_SIZE = "60403603"  # of the data: PUSH1 64, CALLDATASIZE, SUB
EMITTER = "0x" + "".join(
    (
        f"7f{_HEAD}54600052",  # the head before, at 0; x is zero, at 32
        "306040524360605242608052",  # contract, number, time
        "604060006101003760406101002060a052",  # keccak of the topics
        f"{_SIZE}604061014037{_SIZE}6101402060c052",  # and of the data
        "60e060002060201c",  # keccak of it all, 28 bytes of it
        "60005160e01c60010160e01b17",  # behind the count, which is one more
        f"7f{_HEAD}55",
        f"602035600035{_SIZE}610140a200",  # LOG2, STOP
    )
)
"""EVM code that logs its calldata (two words of topics, then the data) and keeps the head of it.

A test puts it where the members contract stands for one block.
"""
UNDECODABLE_URL = b"http://x\xff"


def gateway_log(account: Address, text: bytes) -> bytes:
    """Calldata with which `EMITTER` writes a `GatewayAnnounced` of any bytes."""
    (abi,) = (abi for abi in registry().events.values() if abi.name == "GatewayAnnounced")
    return abi.topic + encode(["address"], [account]) + encode(["bytes"], [text])
