"""The commands of docs/quickstart.md, as they stand there, end with tokens in a wallet.

They are typed as a reader would, and a hostile stranger looks on, who does its deeds as soon as
there is somebody to do them to.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.patience import AT_MOST_SECONDS, wait_while_it_moves

from atoll.chain.deployment import Deployment
from atoll.service.background_tasks import background_tasks
from atoll_devnet.processes.chain import CHAIN_IDS, Endpoint
from atoll_devnet.run.stranger import Near, Stranger, check_deeds

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
MOST = 12
"""Commands to the first reward."""
INSTALLS = "make setup"
"""What made the environment that runs this test."""
WAIT = ("atoll watch", "atoll job result")
"""What ends with the job, minutes after the first reward."""
LOOK_SECONDS = 0.05
"""Between the looks of the stranger, who has to be there before a member starts."""
LOG_LINES = 30
MOVES = ("told", "journal.sqlite*")
"""What the commands print, and what members have done."""


def blocks(*, behind: bool = False) -> list[str]:
    """What the page says to type, up to the first reward, or behind it."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition("\n## ")
    return re.findall(r"```sh\n(.*?)```", after if behind else before, re.DOTALL)


def commands(block: str) -> list[str]:
    """A command a line; what is indented or begins a loop goes on until its end."""
    whole = block.replace("\\\n", "")
    return [line for line in whole.splitlines() if line and not line.startswith((" ", "done"))]


def test_it_takes_twelve_commands() -> None:
    found = [command for block in blocks() for command in commands(block)]
    assert found[0] == INSTALLS
    assert len(found) <= MOST, found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A folder beside whose parts the page's commands run, as in a checkout."""
    for name in (".venv", "contracts", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield tmp_path
    shutil.rmtree(tmp_path / "quick", ignore_errors=True)


def logs(folder: Path) -> str:
    """The ends of what the members wrote."""
    texts = [
        "\n".join([str(file), *file.read_text(encoding="utf-8").splitlines()[-LOG_LINES:]])
        for file in sorted(folder.glob("quick/*/log"))
    ]
    return "\n".join(texts)


def run_all(script: str, folder: Path) -> str:
    """What the commands print, one after another in one shell; whatever they start ends with it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ATOLL_")}
    with (folder / "told").open("wb") as told_to:
        process = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=folder,
            env={**environment, "HOME": str(folder), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=told_to,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        code = wait_while_it_moves(process, folder, MOVES)
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    told = (folder / "told").read_text(encoding="utf-8", errors="replace")
    assert code == 0, f"{told}\n{logs(folder)}"
    return told


async def stranger_of(folder: Path) -> Stranger:
    """Somebody who knows what the commands have made, once there are folders of all members."""
    deployment, last = folder / "network.json", folder / "verifier-2"
    while not (last / "config.toml").exists():  # noqa: ASYNC110 (files are looked for)
        await asyncio.sleep(LOOK_SECONDS)
    chain = Endpoint("http://127.0.0.1:8545", CHAIN_IDS["anvil"])
    honest = (folder / "node-1", folder / "node-2")
    return Stranger(Near(chain, Deployment.load(deployment), folder / "stranger", (), last, honest))


async def run_all_beside_a_stranger(script: str, folder: Path) -> str:
    """What the commands print while somebody attacks all that they start."""

    async def attack() -> None:
        stranger.append(await stranger_of(folder / "quick"))
        async with stranger[0].before_members():
            await stranger[0].beside_first_job()

    stranger: list[Stranger] = []
    async with background_tasks([attack()]):
        told = await asyncio.to_thread(run_all, script, folder)
    check_deeds(stranger[0].deeds)
    return told


@pytest.mark.timeout(AT_MOST_SECONDS)
async def test_the_page_ends_with_a_reward_in_a_wallet(checkout: Path) -> None:
    assert is_free(8545), "the page's chain takes port 8545, where somebody else listens"
    typed = "".join(block for block in blocks() if block.strip() != INSTALLS)
    (rest,) = blocks(behind=True)
    seen = [command for command in commands(rest) if not command.startswith(WAIT)]
    assert len(seen) == 4
    told = await run_all_beside_a_stranger("\n".join([typed, *seen]), checkout)
    (paid,) = re.findall(r"^([\d.]+) tokens: job 1, seat [01]: rounds 0 to [01]$", told, re.M)
    # Of two segments, those that were done in the two minutes there are for them.
    done = dict(re.findall(r"([\d.]+) training, paid: ([12]) of 2 segments", told))
    # Five steps of eight sequences of 64 bytes a segment, a millionth of a token each.
    assert paid == f"{int(done[paid]) * 5 * 8 * 64 / 10**6:g}"
    wallet = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
    (has,) = re.findall(f"^{wallet}, which is paid for it, has ([0-9.]+) tokens$", told, re.M)
    assert float(has) >= float(paid)  # the other provider's service claims for it, too
    assert "drains, as ordered; " in told
    assert "but: " not in told, "the ledger does not add up"
