"""What reading a busy chain costs a service: questions and bytes a block, and those of a join.

    python bench/chain_reading.py [--json] [--blocks 200] [--logs 400] [--join 10000]

An Anvil with the contracts, on which strangers write `--logs` logs a block, in transactions of a
hundred, and an account announces a gateway in each tenth block. One index follows for `--blocks`
blocks, with two confirmations, and looks once a block; a second one joins when the chain has
`--join` blocks; a third has an endpoint that hides one log of a block in between. Every question
is counted with the bytes that go and come. Bars: 0.1 questions about receipts and 3,000 bytes a
block; 50 questions for the join; the hidden log is there with the look that read its range.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eth_account import Account

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.integration.chain.local_anvil import Anvil, start_anvil, stop

from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.chain.index import EventIndex
from atoll.chain.indexed import Indexed
from atoll.chain.replies import Reply

CONFIRMATIONS = 2
EACH = 100
"""Logs of one transaction."""
STRANGER = "0x" + "57" * 20
ONE_LOG = "6007600060" + "00a1"
"""PUSH1 7, PUSH1 0, PUSH1 0, LOG1: a topic and no data."""
KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
"""Anvil's first account: known to everyone, worth nothing."""
RECEIPTS_A_BLOCK, BYTES_A_BLOCK, QUESTIONS_OF_A_JOIN = 0.1, 3_000, 50


class Meter:
    """Counts what is asked of a chain, and the bytes of questions and answers.

    Args:
        hides: the height of a block whose last log is left out.
    """

    def __init__(self, chain: AtollChain, hides: int | None = None) -> None:
        self.asked: Counter[str] = Counter()
        self.bytes, self._hides = 0, hides
        self._post = chain.provider._post
        chain.provider._post = self.post  # type: ignore[method-assign]

    async def post(self, endpoint: Any, method: str, params: Sequence[Any]) -> Reply:
        reply = await self._post(endpoint, method, params)
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        self.asked[method] += 1
        self.bytes += len(json.dumps(question)) + len(reply.body)
        if method != "eth_getLogs" or self._hides is None:
            return reply
        document = json.loads(reply.body)
        kept = [log for log in document["result"] if log["blockNumber"] != hex(self._hides)]
        body = json.dumps({**document, "result": kept}).encode()
        return Reply(body, reply.asked, reply.status, reply.rest_s)

    @property
    def receipts(self) -> int:
        return self.asked["eth_getBlockReceipts"] + self.asked["eth_getTransactionReceipt"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--logs", type=int, default=400)
    parser.add_argument("--join", type=int, default=10_000)
    options = parser.parse_args()
    anvil = start_anvil("--no-mining")
    try:
        document = asyncio.run(_measured(anvil, options))
    finally:
        stop(anvil)
    print(json.dumps(document) if options.json else json.dumps(document, indent=2))


async def _measured(anvil: Anvil, options: argparse.Namespace) -> dict[str, Any]:
    anvil.automine(True)
    account = Account.from_key(KEY)
    deployment = await deploy(anvil.url, account)
    anvil.automine(False)
    anvil.ask("anvil_setCode", STRANGER, "0x" + ONE_LOG * EACH + "00")
    with tempfile.TemporaryDirectory(prefix="atoll-chain-") as folder:
        following = await _follow(anvil, deployment, options, Path(folder))
        anvil.mine(max(0, options.join - anvil.height()))
        joining = await _join(anvil, deployment, Path(folder) / "join", None)
        hidden = await _join(anvil, deployment, Path(folder) / "hidden", following["last_event"])
    bars = {
        "receipts": following["receipts_a_block"] <= RECEIPTS_A_BLOCK,
        "bytes": following["bytes_a_block"] <= BYTES_A_BLOCK,
        "join": joining["questions"] <= QUESTIONS_OF_A_JOIN,
        "hidden": hidden["events"] == joining["events"],
    }
    return {"following": following, "joining": joining, "hidden": hidden, "bars": bars}


async def _follow(
    anvil: Anvil, deployment: Deployment, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    chain = await AtollChain.connect(anvil.url, deployment)
    index = EventIndex(chain, confirmations=CONFIRMATIONS, path=folder / "follow")
    await index.poll()
    meter, events, last = Meter(chain), 0, 0
    for number in range(options.blocks):
        _mine(anvil, chain, options.logs, f"http://{number}" if number % 10 == 0 else None)
        seen = [each for each in await index.poll() if isinstance(each, Indexed)]
        events, last = events + len(seen), max([last, *(each.block.number for each in seen)])
    index.close()
    await chain.close()
    return {
        "blocks": options.blocks,
        "foreign_logs_a_block": options.logs,
        "events": events,
        "last_event": last,
        "questions_a_block": meter.asked.total() / options.blocks,
        "receipts_a_block": meter.receipts / options.blocks,
        "bytes_a_block": meter.bytes / options.blocks,
        "asked": dict(meter.asked),
    }


def _mine(anvil: Anvil, chain: AtollChain, logs: int, url: str | None) -> None:
    """One block that strangers fill, with an announcement of ours or none."""
    sender = Account.from_key(KEY).address
    for _ in range(logs // EACH):
        anvil.ask("eth_sendTransaction", {"from": sender, "to": STRANGER, "gas": hex(200_000)})
    if url is not None:
        call = chain.calls.announce_gateway(url)
        order = {"from": sender, "to": call.to, "data": f"0x{call.data.hex()}", "gas": hex(300_000)}
        anvil.ask("eth_sendTransaction", order)
    anvil.mine()


async def _join(
    anvil: Anvil, deployment: Deployment, path: Path, hides: int | None
) -> dict[str, Any]:
    """Reads the whole chain anew, from an endpoint that hides a block's logs or from a true one."""
    chain = await AtollChain.connect(anvil.url, deployment)
    meter = Meter(chain, hides)
    index = EventIndex(chain, confirmations=CONFIRMATIONS, path=path)
    changes = await index.poll()
    index.close()
    await chain.close()
    return {
        "blocks": index.confirmed if hides is None else None,
        "events": sum(isinstance(each, Indexed) for each in changes),
        "excluded_logs": chain.events.excluded,
        "questions": meter.asked.total(),
        "bytes": meter.bytes,
        "asked": dict(meter.asked),
    }


if __name__ == "__main__":
    main()
