"""Members behind links of their own: a network namespace each, joined by a bridge. Takes root.

What a link does is the kernel's: so many megabits a second (tc, tbf), or nothing at all.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from atoll.errors import ConfigError

NAME: Final = "atl"
"""Begins the names of all devices and namespaces; then comes whose process's number. The kernel
takes fifteen characters: a process's number has seven at most, a member's three.
"""
NETWORKS: Final = tuple(f"10.77.{number}" for number in range(256))
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
    """A namespace for each member, and a link from it to a bridge; use it as a context manager, one
    at a time in a process. Other processes have names and addresses of their own.

    Attributes:
        mbit: megabits a second of every link, both ways; None for as fast as the machine is.
        network: three numbers of the addresses; one that is free here, once it is entered.

    Raises:
        ConfigError: this process may not make namespaces, or no network is free.
    """

    members: int
    mbit: int | None = None
    made: list[Sequence[str]] = field(default_factory=list)
    network: str = ""

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

    def move(self, file: Path, index: int, port: int) -> None:
        """Has a member's config name the chain and its gateway as they are seen from its namespace.

        Args:
            port: the chain's.
        """
        self.listen_at(file, self.address(index), port)

    def listen_at(self, file: Path, address: str, port: int) -> None:
        """Has the gateway of a member's config listen there, and its chain be asked at the bridge.

        Args:
            port: the chain's.
        """
        text = file.read_text().replace(f"http://127.0.0.1:{port}", f"http://{self.host}:{port}")
        file.write_text(text.replace("[gateway]\n", f'[gateway]\nhost = "{address}"\n'))

    @property
    def bridge(self) -> str:
        return f"{NAME}{os.getpid()}"

    @property
    def host(self) -> str:
        """The machine itself, as it is reached from the namespaces."""
        return f"{self.network}.1"

    def space(self, index: int) -> str:
        """The namespace's name."""
        return f"{self.bridge}-{index}"

    def outer(self, index: int) -> str:
        """The bridge's end of a member's link."""
        return f"{self.bridge}-{index}"

    def address(self, index: int) -> str:
        """Where a member is reached."""
        return f"{self.network}.{index + 2}"

    def counted(self, index: int) -> tuple[int, int]:
        """Bytes that a member sent and received."""
        counters = Path("/sys/class/net") / self.outer(index) / "statistics"
        up, down = (int((counters / name).read_text()) for name in ("rx_bytes", "tx_bytes"))
        return up, down

    def _make(self) -> None:
        _clear()
        self.network = free_network(os.getpid())
        self._run("ip link add", self.bridge, "type bridge", undo=f"ip link del {self.bridge}")
        self._run("ip addr add", f"{self.host}/24", "dev", self.bridge)
        self._run("ip link set", self.bridge, "up")
        for index in range(self.members):
            space, outer = self.space(index), self.outer(index)
            inside = f"ip netns exec {space}"
            self._run("ip netns add", space, undo=f"ip netns del {space}")
            peer = f"type veth peer name eth0 netns {space}"
            self._run("ip link add", outer, peer, undo=f"ip link del {outer}")
            self._run("ip link set", outer, "master", self.bridge, "up")
            self._run(inside, "ip addr add", f"{self.address(index)}/24", "dev eth0")
            self._run(inside, "ip link set eth0 up")
            self._run(inside, "ip link set lo up")
            if self.mbit is not None:
                self.shape(index, f"{self.mbit}mbit")

    def _run(self, *words: str, undo: str = "") -> None:
        subprocess.run(" ".join(words).split(), check=True)  # noqa: S603 (our own command line)
        if undo:
            self.made.append(undo.split())


def free_network(first: int) -> str:
    """A network in which this machine has no address yet: that number of `NETWORKS`, or the next;
    two that start at once count from different ones. Raises ConfigError.
    """
    count = len(NETWORKS)
    turned = (NETWORKS[(first + step) % count] for step in range(count))
    network_free = next((network for network in turned if not _is_ours(f"{network}.1")), None)
    if network_free is None:
        raise ConfigError(
            f"every network from {NETWORKS[0]} to {NETWORKS[-1]} is in use here",
            next_step="end another bench",
        )
    return network_free


def _is_ours(address: str) -> bool:
    """Whether this machine has the address."""
    command = ("ip", "-4", "-oneline", "addr", "show", "to", address)
    return bool(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603 (our own)


def _clear() -> None:
    """Removes what processes that were killed left here, however many links they had.

    Links first: a namespace lasts, and its link, as long as a process is in it.
    """
    for kind, folder in (("link", "/sys/class/net"), ("netns", "/var/run/netns")):
        for name in left_over(path.name for path in Path(folder).glob(f"{NAME}*")):
            command = ("ip", kind, "del", name)
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)  # noqa: S603 (our own)


def left_over(names: Iterable[str]) -> Iterator[str]:
    """Of names, those of links of processes that are gone: whose number is ours now had another."""
    for name in names:
        whose = re.fullmatch(rf"{NAME}(\d+)(-\d+)?", name)
        if whose and (int(whose[1]) == os.getpid() or not Path("/proc", whose[1]).exists()):
            yield name
