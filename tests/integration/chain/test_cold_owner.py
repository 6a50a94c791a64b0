"""The steps of docs/operator.md for an owner whose key is elsewhere, typed as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from eth_account.signers.local import LocalAccount
from tests.integration.chain.local_anvil import Anvil
from tests.support.patience import PATIENCE

from atoll.chain.contract_calls import Calls
from atoll.chain.contracts import AtollChain
from atoll.chain.deploy import deploy
from atoll.chain.deployment import Deployment
from atoll.protocol.owners import Ownership
from atoll.protocol.types import TOKEN, Address, Role

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operator.md"
WALLET = Address("0x00000000000000000000000000000000000A7011")
AFTER = "another machine:\n\n"
COIN = 10**18


def steps() -> list[tuple[str, str]]:
    """Whose machine it is, and what is typed there, in the page's order."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(AFTER)
    (block,) = re.findall(r"\A```sh\n(.*?)```", rest, re.DOTALL)
    found, machine = [], ""
    for line in block.splitlines():
        if line.startswith("# The "):
            machine = "node" if line.startswith("# The node") else "owner"
        else:
            found.append((machine, line.split("  #")[0].strip()))
    return found


@dataclass
class Machine:
    """A folder with nothing in it but a password and a deployment file, and a shell there."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, folder: Path, deployment: Deployment) -> Machine:
        folder.mkdir(mode=0o700)
        password = folder / "password"
        password.touch(mode=0o600)
        password.write_text(f"correct horse of the {folder.name}\n")
        deployment.save(folder / "deployment.json")
        plain = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        own = {"HOME": str(folder), "ATOLL_PASSWORD_FILE": "password", "NO_COLOR": "1"}
        return cls(folder, plain | own)

    def start(self, command: str) -> subprocess.Popen[str]:
        assert command.startswith("atoll ")
        words = [sys.executable, "-m", "atoll.cli.main", *shlex.split(command)[1:]]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(words, cwd=self.folder, env=self.environment, **pipes)

    def types(self, command: str) -> tuple[int, str]:
        """How a command ends, and what it says."""
        if command.startswith("export "):
            self.environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
            return 0, ""
        with self.start(command) as process:
            said, _ = process.communicate()
            return process.returncode, said


@dataclass
class Walk:
    """Both machines, and what the page's words stand for as far as that is known."""

    anvil: Anvil
    deployment: Deployment
    funder: str
    machines: dict[str, Machine]
    words: dict[str, str]

    def meant(self, command: str) -> str:
        for word, meaning in self.words.items():
            command = re.sub(rf"\b{word}\b(?!=)", meaning, command)
        assert not re.findall(r"[ =](?:[A-Z]{3,})\b(?!_)", command), command
        return command

    def goes(self, machine: str, command: str) -> str:
        """What the command says, which ends well."""
        code, said = self.machines[machine].types(self.meant(command))
        assert code == 0, f"{command}: {said}"
        return said

    def fails(self, machine: str, command: str, code: int) -> str:
        """What a command says that comes too early."""
        found, said = self.machines[machine].types(self.meant(command))
        assert found == code, f"{command}: {said}"
        return said

    def send(self, to: str, tokens: int = 0) -> None:
        """Coin for gas, and tokens, from whoever has both."""
        self.anvil.ask("anvil_setBalance", self.words[to], hex(COIN))
        call = Calls(self.deployment).transfer(Address(self.words[to]), tokens * TOKEN)
        order = {"from": self.funder, "to": call.to, "data": f"0x{call.data.hex()}"}
        self.anvil.ask("eth_sendTransaction", order)
        self.anvil.mine()

    async def chain_says(self) -> tuple[Ownership, int, int, int]:
        """Whose the node is; what is staked of it, and what its and its owner's wallets have."""
        chain = await AtollChain.connect(self.anvil.url, self.deployment)
        node, owner = (Address(self.words[name]) for name in ("NODE", "OWNER"))
        stake = await chain.stake(node, Role.PROVIDER)
        wallets = [await chain.token_balance(who) // TOKEN for who in (node, owner)]
        owned = await chain.ownership(node)
        await chain.close()
        return (owned, (stake.active + stake.unbonding) // TOKEN, wallets[0], wallets[1])

    @property
    def says(self) -> tuple[Ownership, int, int, int]:
        return asyncio.run(self.chain_says())

    def runs(self, command: str) -> None:
        """A service in front, until it is stopped from elsewhere."""
        node = self.machines["node"]
        with node.start(self.meant(command)) as process:
            try:
                deadline = time.monotonic() + PATIENCE
                stop = "atoll node stop --config me/config.toml --json"
                while '"was_running": true' not in node.types(stop)[1]:
                    assert process.poll() is None and time.monotonic() < deadline
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


@pytest.fixture
def walk(anvil: Anvil, accounts: list[LocalAccount], tmp_path: Path) -> Walk:
    deployment = asyncio.run(deploy(anvil.url, accounts[0]))
    machines = {who: Machine.empty(tmp_path / who, deployment) for who in ("owner", "node")}
    return Walk(anvil, deployment, accounts[0].address, machines, {"URL": anvil.url})


def test_an_owner_far_away_gets_a_node_and_its_stake_by_the_pages_steps(walk: Walk) -> None:
    """Each step that comes too early, or without what it needs, says what is to be done first."""
    todo = iter(steps())

    def goes(command: str, word: str = "") -> str:
        machine, typed = next(todo)
        assert typed.startswith(command), f"the page has {typed!r} where {command!r} is due"
        return walk.goes(machine, typed)

    walk.words["OWNER"], walk.words["KEYSTORE"] = goes("atoll keys new").split()
    made = goes("atoll node init").splitlines()
    walk.words["NODE"] = node = made[0]
    assert made[1:] == [
        "send it coin for gas, and no tokens; then:",
        "  atoll stake owner propose --config me/config.toml",
        f"with the key of {walk.words['OWNER']}, which needs coin and the tokens that are to be "
        "staked:",
        f"  atoll stake owner accept --node {node}",
        f"  atoll stake add AMOUNT --as provider --node {node}",
        "then: atoll node run --config me/config.toml",
    ]
    walk.send("NODE")
    walk.send("OWNER", 300)
    assert f"atoll stake owner accept --node {node}" in goes("atoll stake owner propose")
    early = walk.fails("node", "atoll doctor --config me/config.toml", 2)
    assert f"`atoll stake owner accept --node {node}` by the key of" in early
    assert f"`atoll stake add AMOUNT --as ROLE --node {node}` by the key of" in early
    assert "send it at least" not in early

    goes("export")
    add = "atoll stake add 100 --as provider --node NODE"
    assert f"`atoll stake owner accept --node {node}` first" in walk.fails("owner", add, 2)
    assert "who alone moves the stake" in goes("atoll stake owner accept")
    assert "100 staked: 100 free" in goes("atoll stake add")
    owner = Address(walk.words["OWNER"])
    assert walk.says == (Ownership(owner, owner), 100, 0, 200)

    assert f"{owner} alone moves the stake" in goes("atoll doctor")
    walk.runs(next(todo)[1])
    walk.words["WALLET"] = WALLET
    assert f"pay        goes to {WALLET}" in goes("atoll stake owner reward")
    assert f"{WALLET}, which is paid for it" in goes("atoll claim")
    told = goes("atoll earnings")
    assert "stake      100 free" in told and f" has {WALLET} (pay goes there)" in told
    machine, last = next(todo)
    assert "100 tokens begin to unbond\nrun this again from" in walk.goes(machine, last)
    walk.anvil.ask("evm_increaseTime", 8 * 86_400)
    walk.anvil.mine()
    assert f"100 tokens are in the wallet of {owner}" in walk.goes(machine, last)
    assert walk.says == (Ownership(owner, WALLET), 0, 0, 300)
    assert list(todo) == []
