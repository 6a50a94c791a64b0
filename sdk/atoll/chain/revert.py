"""Why a contract refused, in words. Sources: Solidity's `Error(string)` and `Panic(uint256)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eth_abi.abi import decode as abi_decode

from atoll.chain.abi import registry
from atoll.chain.response_checks import text
from atoll.chain.verdicts import RpcRefused, revert_data

ERROR_SELECTOR = bytes.fromhex("08c379a0")
PANIC_SELECTOR = bytes.fromhex("4e487b71")


@dataclass(frozen=True, slots=True)
class RevertReason:
    """A decoded refusal. `name` is the custom error's, "Error", "Panic" or "Revert"."""

    name: str
    args: tuple[Any, ...] = ()
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.name == "Error":
            return text(self.args[0])
        names = self.fields or ("",) * len(self.args)
        shown = (
            f"{name}={_show(value)}" if name else _show(value)
            for name, value in zip(names, self.args, strict=True)
        )
        return f"{self.name}({', '.join(shown)})"


def reason_of(refused: RpcRefused) -> RevertReason:
    """The reason in a node's refusal of a call; its words where it attached no data."""
    data = revert_data(refused.data)
    return RevertReason("Revert", (refused.text,)) if data is None else decode_revert(data)


def decode_revert(data: bytes) -> RevertReason:
    """Revert data to a reason; unknown data is shown as it is."""
    selector, body = data[:4], data[4:]
    try:
        if selector == ERROR_SELECTOR:
            return RevertReason("Error", abi_decode(["string"], body))
        if selector == PANIC_SELECTOR:
            return RevertReason("Panic", (hex(abi_decode(["uint256"], body)[0]),))
        abi = registry().errors.get(selector)
        if abi is not None:
            return RevertReason(abi.name, abi_decode(abi.types, body), abi.fields)
    except Exception:  # the bytes are anybody's, and eth-abi documents no closed list
        return RevertReason("Revert", (f"0x{data.hex()}",))
    return RevertReason("Revert", (f"0x{data.hex()}",) if data else ())


def _show(value: Any) -> str:
    return f"0x{value.hex()}" if isinstance(value, bytes) else text(str(value))
