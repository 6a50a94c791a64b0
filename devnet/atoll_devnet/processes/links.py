"""Members behind links of their own: a network namespace each, joined by a bridge. Takes root.

What a link does is the kernel's: so many megabits a second (tc, tbf), or nothing at all.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from atoll.errors import ConfigError

if TYPE_CHECKING:
    from atoll_devnet.processes.cluster import Member

NETWORK, OUTER = "10.77.0", "atollb"
BRIDGE: Final = "atollbench"
HOST: Final = f"{NETWORK}.1"
"""The machine itself, as it is reached from the namespaces."""
BURST, LATENCY = "256kb", "100ms"
_CLONE_NEWNET: Final = 0x40000000


def enter_namespace(name: str) -> None:
    """Moves this process to a network namespace. Raises OSError where it may not."""
    handle = os.open(f"/var/run/netns/{name}", os.O_RDONLY)
    try:  # os.setns is Python 3.12's
        if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
    finally:
        os.close(handle)


@dataclass
class Links:
    """A namespace for each member, and a link from it to a bridge; use it as a context manager.

    Attributes:
        mbit: megabits a second of every link, both ways; None for as fast as the machine is.

    Raises:
        ConfigError: this process may not make namespaces.
    """

    members: int
    mbit: int | None = None
    made: list[Sequence[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if os.geteuid():
            raise ConfigError("network namespaces take root", next_step="run it as root")

    def __enter__(self) -> Links:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for command in reversed(self.made):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603 (our own)

    def shape(self, index: int, rate: str = "") -> None:
        """Lets a link carry so much a second, as `512kbit`, both ways; as much as it can if empty.

        Raises CalledProcessError.
        """
        inside = f"ip netns exec {self.space(index)}"
        for where, device in (("", self.outer(index)), (inside, "eth0")):
            if rate:
                shape = f"root tbf rate {rate} burst {BURST} latency {LATENCY}"
                self._run(where, "tc qdisc replace dev", device, shape)
            else:
                self._run(where, "tc qdisc del dev", device, "root")

    def cut(self, index: int) -> None:
        """Nothing passes from now on, and nobody is told."""
        self._run("ip link set", self.outer(index), "down")

    def mend(self, index: int) -> None:
        """What was cut works again."""
        self._run("ip link set", self.outer(index), "up")

    def move(self, member: Member, index: int, port: int) -> None:
        """Has a member's file name the chain and its gateway as they are seen from its namespace.

        Args:
            port: the chain's.
        """
        listen_at(member, self.address(index), port)

    def space(self, index: int) -> str:
        """The namespace's name."""
        return f"{BRIDGE}{index}"

    def outer(self, index: int) -> str:
        """The bridge's end of a member's link."""
        return f"{OUTER}{index}"

    def address(self, index: int) -> str:
        """Where a member is reached."""
        return f"{NETWORK}.{index + 2}"

    def counted(self, index: int) -> tuple[int, int]:
        """Bytes that a member sent and received."""
        counters = Path("/sys/class/net") / self.outer(index) / "statistics"
        up, down = (int((counters / name).read_text()) for name in ("rx_bytes", "tx_bytes"))
        return up, down

    def _make(self) -> None:
        self._clear()
        self._run("ip link add", BRIDGE, "type bridge", undo=f"ip link del {BRIDGE}")
        self._run("ip addr add", f"{HOST}/24", "dev", BRIDGE)
        self._run("ip link set", BRIDGE, "up")
        for index in range(self.members):
            space, outer = self.space(index), self.outer(index)
            inside = f"ip netns exec {space}"
            self._run("ip netns add", space, undo=f"ip netns del {space}")
            self._run("ip link add", outer, "type veth peer name eth0 netns", space)
            self._run("ip link set", outer, "master", BRIDGE, "up")
            self._run(inside, "ip addr add", f"{self.address(index)}/24", "dev eth0")
            self._run(inside, "ip link set eth0 up")
            self._run(inside, "ip link set lo up")
            if self.mbit is not None:
                self.shape(index, f"{self.mbit}mbit")

    def _clear(self) -> None:
        """What a process that was killed left here, however many links it had.

        Links first: a namespace lasts, and its link, as long as a process is in it.
        """
        devices = Path("/sys/class/net").glob(f"{OUTER}*")  # the bridge is one of them
        spaces = Path("/var/run/netns").glob(f"{BRIDGE}*")
        left = [("link", path) for path in devices] + [("netns", path) for path in spaces]
        for kind, path in left:
            command = ("ip", kind, "del", path.name)
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603 (our own)

    def _run(self, *words: str, undo: str = "") -> None:
        subprocess.run(" ".join(words).split(), check=True)  # noqa: S603 (our own command line)
        if undo:
            self.made.append(undo.split())


def listen_at(member: Member, address: str, port: int) -> None:
    """Has a member's gateway listen there, and its chain be asked at the bridge.

    Args:
        port: the chain's.
    """
    file = member.folder / "config.toml"
    text = file.read_text().replace(f"http://127.0.0.1:{port}", f"http://{HOST}:{port}")
    file.write_text(text.replace("[gateway]\n", f'[gateway]\nhost = "{address}"\n'))
