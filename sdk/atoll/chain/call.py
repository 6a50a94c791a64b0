"""One call of a contract's function, and what encodes it.

Rule of this file: whether and when a call is sent is the queue's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eth_abi.abi import encode as abi_encode

from atoll.chain.abi import registry
from atoll.chain.decode import to_abi
from atoll.chain.deployment import Deployment
from atoll.protocol.types import Address


@dataclass(frozen=True, slots=True)
class Call:
    """One function call, ready to be put into a transaction.

    Attributes:
        label: the function's name, for messages and for the gas report.
        permissionless: anyone may do it, so that finding it done by another is no failure.
        stake: wei of the stake token that the sender loses unless it is done in time; what one of
            its transactions may cost follows from it.
    """

    to: Address
    data: bytes
    label: str
    permissionless: bool = False
    stake: int = 0


class CallBuilder:
    """Builds calls to one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._addresses = deployment.addresses

    def build(
        self, name: str, *args: Any, contract: str | None = None, permissionless: bool = False
    ) -> Call:
        """Any function, by its Solidity name; the typed methods are the better way.

        Args:
            args: dataclasses, enums and plain values, in ABI order.
            contract: which contract, where more than one has a function of this name.
        Raises:
            ChainError: no such function.
        """
        function = registry().function(name, contract)
        data = function.selector + abi_encode(function.inputs, [to_abi(value) for value in args])
        return Call(self._addresses[function.contract], data, name, permissionless)
