"""Brownie compiles to our artefacts, and deploys as `atoll network deploy` does."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil

from atoll.chain.deploy import deploy

CHECK = Path(__file__).parents[3] / "contracts" / "tools" / "brownie_check"


def transactions(anvil: Anvil) -> list[tuple[str | None, str]]:
    """To whom, and the data, of all that the first account has sent."""
    blocks = (anvil.ask("eth_getBlockByNumber", hex(n), True) for n in range(1, anvil.height() + 1))
    sent = [each for block in blocks for each in block["transactions"]]
    assert len({each["from"] for each in sent}) == 1
    sent.sort(key=lambda each: int(each["nonce"], 16))
    return [(each["to"], each["input"]) for each in sent]


async def test_brownie_deploys_the_same_bytes(
    spawn: Callable[..., Anvil], accounts: list[LocalAccount]
) -> None:
    ours, theirs = spawn(), spawn("--base-fee", "0")  # Brownie offers development chains no price
    await deploy(ours.url, accounts[0])
    command = [CHECK, "--rpc", theirs.url]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    assert transactions(theirs) == transactions(ours)
    assert transactions(ours)
