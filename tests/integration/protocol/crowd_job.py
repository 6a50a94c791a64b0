"""The job that strangers call the contracts of, block by block, and the view that its logs give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.integration.protocol.chains import Chain, Contract, signature
from tests.integration.protocol.live import Live
from tests.unit.protocol.script import PROVIDERS, SECRETS, VERIFIERS

from atoll.chain.decode import RawLog, checksummed, decode_log
from atoll.chain.deployment import Deployment
from atoll.chain.follower import Fold
from atoll.chain.indexed import Indexed
from atoll.protocol import bls
from atoll.protocol.certificates import Bls, certificate_bytes
from atoll.protocol.events import ContractEvent
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import (
    Address,
    BlockRef,
    Digest,
    Reveal,
    Role,
)
from atoll.protocol.views import JobView

OUTSIDER = PROVIDERS[5]
FEW = tuple(VERIFIERS[:5])
MANY = tuple(SECRETS)
"""More than a committee has."""
Sent = tuple[Address, Contract, str, tuple[object, ...]]
MOVE = "a move"
"""Stands for the name of a call whose one argument is its calldata."""
GAS = 12_000_000
FAR = 2**32 - 1


def bls_secret(account: Address) -> int:
    return bls.secret_of(account.encode())


class CrowdJob:
    """One job, whoever calls its contracts, and the fold of what these say.

    Attributes:
        signers: who may be a member.
        view: as of the last block; while a block is filled also with a settlement that is in it.
        events: of all contracts, up to the last block.
        keys: of reveals, with their plain work tags, by what the key hashes to.
        works: of segments, by their plain work tags.
        audit_reports: bodies and salts by what was sealed.
        taken: names of calls that were not refused.
    """

    def __init__(
        self, chain: Chain, net: Live, rng: random.Random, signers: tuple[Address, ...] = FEW
    ) -> None:
        self.chain, self.net, self.rng, self.signers = chain, net, rng, signers
        self.everybody = (*PROVIDERS[:5], *signers, OUTSIDER)
        self.has_bls = any(item["name"] == "keep" for item in chain.policy.abi if "name" in item)
        self.job, self.terms = net.job, net.terms
        names = (
            "Config", "Stakes", "Jobs", "Rounds", "Members", "Audits", "LateVotes", "Claims", "Game"
        )  # fmt: skip
        attributes = {"LateVotes": "late_votes"}
        addresses = {
            name: getattr(chain, attributes.get(name, name.lower())).address for name in names
        }
        self.deployment = Deployment(net.domain.chain_id, 0, addresses)
        self.fold = Fold(self.deployment, None)
        self.keys: dict[Digest, tuple[Digest, tuple[Digest, ...]]] = {}
        self.committed: dict[Digest, Reveal] = {}
        self.works: dict[Digest, bytes] = {}
        self.audit_reports: dict[Digest, tuple[bytes, Digest]] = {}
        self.taken: set[str] = set()
        self._read = 0
        self.items: list[Indexed] = []
        self.raws: list[RawLog] = []
        self.follow()

    @property
    def events(self) -> list[ContractEvent]:
        """What the contracts have said so far."""
        return [item.event for item in self.items]

    # --- blocks ---

    def turn_back(self, snapshot: str, now: int) -> None:
        """Takes back all blocks since a snapshot of the node (`evm_snapshot`), made at `now`."""
        self.chain.anvil.ask("evm_revert", snapshot)
        self.chain.now, self._read, self.items, self.raws = now, 0, [], []
        self.fold = Fold(self.deployment, None)
        self.follow()

    def follow(self) -> None:
        """Folds what the blocks since the last look say."""
        newest = self.chain.anvil.height()
        asked: dict[str, Any] = {"fromBlock": hex(self._read), "toBlock": hex(newest)}
        asked["address"] = list(self.deployment.addresses.values())
        for log in self.chain.anvil.ask("eth_getLogs", asked):
            block = self.chain.anvil.ask("eth_getBlockByNumber", log["blockNumber"], False)
            hash = Digest(bytes.fromhex(block["hash"][2:]))
            reference = BlockRef(int(block["number"], 16), hash, int(block["timestamp"], 16))
            topics = tuple(bytes.fromhex(topic[2:]) for topic in log["topics"])
            data, index = bytes.fromhex(log["data"][2:]), int(log["logIndex"], 16)
            raw = RawLog(
                checksummed(log["address"]), topics, data, reference.number, hash, index,
                timestamp=reference.timestamp,
            )  # fmt: skip
            event = decode_log(raw)
            if event is not None:
                self.raws.append(raw)
                self.items.append(Indexed(event, reference, index))
                self.fold.fold(self.items[-1])
        self._read = newest + 1
        self.view: JobView = self.fold.views[self.job]

    def block(self, calls: list[Sent], after: int) -> None:
        """Mines these calls in one block, `after` seconds later, and follows it."""
        chain, hashes = self.chain, []
        for sender, contract, name, arguments in calls:
            raw = arguments[0] if name == MOVE else contract.calldata(name, *arguments)
            assert isinstance(raw, bytes)
            data = "0x" + raw.hex()
            sent = {"from": sender, "to": contract.address, "data": data, "gas": hex(GAS)}
            hashes.append(chain.anvil.ask("eth_sendTransaction", sent))
        chain.now += after
        chain.anvil.ask("evm_setNextBlockTimestamp", chain.now)
        chain.anvil.ask("evm_mine")
        chain.now += 1
        assert not chain.anvil.pending()
        for hash, (_, _, name, _) in zip(hashes, calls, strict=True):
            if int(chain.anvil.ask("eth_getTransactionReceipt", hash)["status"], 16):
                self.taken.add(name)
        self.follow()

    # --- who and what ---

    def someone(self) -> Address:
        return self.rng.choice(self.everybody)

    def some_round(self) -> int:
        newest = len(self.view.settled)
        return self.rng.choice([max(0, newest - 1)] * 3 + [newest, self.rng.randrange(newest + 2)])

    def some_settled_round(self) -> SettledRound | None:
        settled = self.view.settled
        initial_state = [
            settled_round
            for settled_round in settled
            if settled_round.clock.is_opening(self.chain.now)
        ]
        if initial_state and self.rng.random() < 0.7:
            return self.rng.choice(initial_state)
        open_ = [
            settled_round
            for settled_round in settled
            if self.chain.now < settled_round.clock.window_end
        ]
        return self.rng.choice(open_ * 5 + list(settled)) if settled else None

    def some_id(self, role: Role) -> int:
        return self.rng.randrange(1, len(self.view.holders(role)) + 2)

    def _certificate(
        self, accounts: Sequence[Address], signers: Sequence[Address], message: Digest
    ) -> bytes:
        """Of these signers, in the way of this job."""
        if not self.has_bls:
            return certificate_bytes(accounts, {a: signature(a, message) for a in signers})
        signed = {a: bls.sign(bls_secret(a), message) for a in signers}
        return Bls({}).certificate(accounts, signed)
