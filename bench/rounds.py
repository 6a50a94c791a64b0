"""What a round costs a provider: time beside its steps, bytes a parameter, gas.

    python bench/rounds.py [--json] [--preset demo] [--set KEY=VALUE ...] [--seats 1]
                           [--verifiers 3] [--link-mbit 100] [--wide-mbit 1000] [--hidden]
                           [--merge apply] [--no-gas] [--folder PATH]

One provider on one core; chain, verifiers and submitter on the others (on the same one where the
machine has no other, and then they take from it: `cores`). The job has one seat, so that nobody
waits for a second provider that shares the other core, and every round of it is audited. With more
`--seats` only the bytes mean something.

`utilisation`: seconds in training steps, without hashing, ÷ seconds from the first round's opening
to the last settlement. `outside_steps`: the share of the training thread's time that it was not in
steps. `uplink_bytes_per_parameter` and `downlink_bytes_per_parameter`: what a provider's gateway
sent and its fetcher received, the mean, a round, from the first round's opening on;
`largest_uplink` is that of who sent most. What came before, which is the training data and who
serves it on, is `before_first_round`, a parameter, once in a job. `verifier_bytes_per_parameter`: a
verifier's, the mean. The bars are 0.90, 0.03 and 2.4 bytes up with int8, 0.7 with 2 bits, for
rounds that train 60 seconds or more (`train_seconds`).

With `--link-mbit` every member has a network namespace and one link to a bridge, both of whose ends
let so many megabits a second through (tc, tbf); that takes root. `link_bytes_per_parameter` is then
what the kernel counted on the provider's link, questions to the chain included. The first
verifier's link may be another, of `--wide-mbit`. With `--hidden` no provider announces a gateway,
and `--merge` is what providers' configs say: `apply` has them take what the committee merged. The
last round's merge nobody trains on, so what they receive is of one round less then, and asks for
two rounds or more.

`gas`: of a call in steady state (`contracts/test/integration/Gas.t.sol`, which forge runs), the
claim being of ten rounds; `per_provider_round` is everybody's gas of a round, claims included, for
each seat, by seats/members. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from atoll.cli.jobfile import chosen_job
from atoll.errors import ChainError
from atoll.job.client import Client
from atoll.job.connection import ClientConfig
from atoll.job.handle import JobHandle
from atoll.job.spec import JobSpec
from atoll.protocol import events as ev
from atoll.protocol.manifest import Manifest
from atoll.protocol.views import JobView
from atoll.service.metrics import read_metrics
from atoll_devnet.processes.chain import ChainConfig, LocalChain
from atoll_devnet.processes.cluster import SUBMITTER_TOKENS, Cluster, ClusterConfig, Member
from atoll_devnet.processes.ending import run_until_told
from atoll_devnet.processes.links import Links
from atoll_devnet.processes.process import Process
from atoll_devnet.run.evaluation import sizes
from atoll_devnet.run.options import fitting, with_text

T = TypeVar("T", int, float)
ROOT = Path(__file__).parents[1]
MEMBER = "atoll_devnet.processes.member"
BLOCK_SECONDS, LOOK_SECONDS = 1.0, 1.0
COUNT_SECONDS = 5.0
"""From the first opening until members have written down what they sent before it; nobody sends
anything again until the round is trained."""
DEFAULTS = {
    "rounds": 3,
    "lifetime": "3h",
    "inner.steps": 3400,
    "inner.segment": 340,
    "evaluate.batches": 1,
    "windows.train": "20m",
    "windows.audit": "5m",
    "windows.open": "2m",
    "windows.key": "2m",
    "windows.window": "30m",
    "windows.move": "1m",
    "windows.game": "10m",
}
"""Of the demo's job, so that a round trains a minute or more where nothing else runs, and members
on links of their own, who take the chain for a distant one, have time for a transaction."""


@dataclass(frozen=True)
class Options:
    """What is measured."""

    spec: JobSpec
    seats: int
    verifiers: int
    link_mbit: int | None
    wide_mbit: int | None
    is_hidden: bool
    merge: str
    has_gas: bool
    folder: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="nothing but the last line")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seats", type=int, default=1)
    parser.add_argument("--verifiers", type=int, default=3)
    parser.add_argument("--link-mbit", type=int)
    parser.add_argument("--wide-mbit", type=int)
    parser.add_argument("--hidden", action="store_true")
    parser.add_argument("--merge", choices=("auto", "self", "apply"), default="auto")
    parser.add_argument("--no-gas", action="store_true")
    parser.add_argument("--folder", default="")
    asked = parser.parse_args()
    spec = chosen_job(None, asked.preset, None, None)
    spec = spec.but(DEFAULTS) if asked.preset == "demo" else spec
    members = (asked.seats, asked.verifiers)
    spec = fitting(chosen_changes(spec, asked.set), *members)
    with tempfile.TemporaryDirectory(prefix="atoll-rounds-", dir=asked.folder or None) as folder:
        options = Options(
            spec,
            *members,
            link_mbit=asked.link_mbit,
            wide_mbit=asked.wide_mbit,
            is_hidden=asked.hidden,
            merge=asked.merge,
            has_gas=not asked.no_gas,
            folder=Path(folder),
        )
        found = run_until_told(measure(options))
    if options.has_gas:
        found["gas"] = gas()
    if not asked.json:
        for name, value in found.items():
            print(f"{name:<32} {value}")
    print(json.dumps(found))


def chosen_changes(spec: JobSpec, settings: Sequence[str]) -> JobSpec:
    """The job with what the command line changes."""
    from atoll.job.toml_files import parse_setting

    return spec.but(dict(map(parse_setting, settings)))


# --- the network ---


def _cores() -> tuple[set[int], set[int]]:
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest) or {first}


OWN_CORE, OTHER_CORES = _cores()
"""The provider's core, and everybody else's: of those that this process began with."""


def cores_of(member: Member, cluster: Cluster) -> set[int]:
    """Where a member runs: of several providers nothing is timed, and all share the machine."""
    if len(cluster.providers) > 1:
        return OWN_CORE | OTHER_CORES
    return OWN_CORE if member is cluster.providers[0] else OTHER_CORES


def command_of(member: Member, which: set[int], links: Links | None, index: int) -> list[str]:
    """How a member is started: on its cores, in its namespace."""
    command = ["taskset", "-c", ",".join(map(str, sorted(which)))]
    command += ["ip", "netns", "exec", links.space(index)] if links else []
    return [*command, sys.executable, "-m", MEMBER, *member.process.arguments]


@contextmanager
def running(cluster: Cluster, links: Links | None) -> Iterator[None]:
    """The members, each a process, the first provider on a core of its own."""
    processes: list[Process] = []
    try:
        for index, member in enumerate(cluster.members):
            if links:
                links.move(member.config_file, index, cluster.chain.port)
            command = command_of(member, cores_of(member, cluster), links, index)
            env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
            processes.append(Process(member.name, command, member.folder / "log", env))
            processes[-1].start()
        yield
    finally:
        for process in processes:
            process.stop()


def configure(member: Member, options: Options) -> None:
    """Says in a provider's config what is measured."""
    text = member.config_file.read_text("utf-8")
    if options.is_hidden:
        text = text.replace("[gateway]\n", "[gateway]\nannounce = false\n")
    member.config_file.write_text(f'merge = "{options.merge}"\n{text}', "utf-8")


# --- the measurement ---


@dataclass(frozen=True)
class Traffic:
    """Bytes that members sent and received until now.

    Attributes:
        told: of each member, by name, what it counted itself.
        link: of the provider, what the kernel counted; None without links.
    """

    told: dict[str, tuple[float, float]]
    link: tuple[int, int] | None

    @classmethod
    def of(cls, cluster: Cluster, links: Links | None) -> Traffic:
        told = {member.name: counted_by(member) for member in cluster.members}
        return cls(told, links.counted(0) if links else None)

    def minus(self, before: Traffic) -> Traffic:
        """What came since then."""
        told = {name: _less(both, before.told[name]) for name, both in self.told.items()}
        link = self.link and before.link and _less(self.link, before.link)
        return Traffic(told, link)


def _less(now: tuple[T, T], before: tuple[T, T]) -> tuple[T, T]:
    return now[0] - before[0], now[1] - before[1]


def counted_by(member: Member) -> tuple[float, float]:
    """Bytes up and down by a member's own count; it writes them down every other second."""
    jobs: dict[str, Any] = read_metrics(member.metrics_file).get("jobs", {})  # type: ignore[assignment]
    traffic = jobs.get("0", {}).get("-1", {})
    return traffic.get("bytes_up", 0.0), traffic.get("bytes_down", 0.0)


@dataclass(frozen=True)
class Trained:
    """The job after its last settlement.

    Attributes:
        began: when its first round opened, unix seconds; `before` is the traffic until then.
    """

    view: JobView
    manifest: Manifest
    began: int
    before: Traffic


async def measure(options: Options) -> dict[str, Any]:
    """Runs the job until its last round is settled."""
    config = ClusterConfig(
        options.folder / "net", options.seats, options.verifiers, block_seconds=BLOCK_SECONDS
    )
    os.sched_setaffinity(0, OTHER_CORES)
    cluster = Cluster(config)
    with ExitStack() as stack:
        links = None
        if options.link_mbit is not None:
            links = stack.enter_context(Links(options.seats + options.verifiers, options.link_mbit))
            chain = ChainConfig(
                config.folder / "chain", block_seconds=BLOCK_SECONDS, options=("--host", links.host)
            )
            cluster.chain = LocalChain(chain)
            if options.wide_mbit is not None:
                links.shape(options.seats, f"{options.wide_mbit}mbit")
        stack.callback(cluster.stop)
        await cluster.start_chain()
        for member in cluster.providers:
            configure(member, options)
        stack.enter_context(running(cluster, links))
        trained = await train(cluster, with_text(options.spec), links)
        link = links.counted(0) if links else None
    since = replace(Traffic.of(cluster, None), link=link).minus(trained.before)
    return figures(cluster.providers[0], trained) | of_traffic(options, cluster, trained, since)


async def train(cluster: Cluster, spec: JobSpec, links: Links | None) -> Trained:
    """Submits the job and waits until its last round is settled."""
    host = links.host if links else "127.0.0.1"
    config = ClientConfig(home=cluster.submitter_folder, host=host)
    async with Client(
        cluster.chain.rpc_url, cluster.deployment, cluster.submitter, config
    ) as client:
        draft = await client.draft(spec)
        handle = await client.submit(draft, max_spend=str(SUBMITTER_TOKENS))
        rounds, before = draft.manifest.terms.rounds, Traffic({}, None)
        while (view := await seen(handle)) is None or len(view.settled) < rounds:
            cluster.check()
            if not before.told and view is not None and view.open is not None:
                await asyncio.sleep(COUNT_SECONDS)
                before = Traffic.of(cluster, links)
            if view is not None and view.status.is_closed:
                raise SystemExit(f"the job ended after {len(view.settled)} of {rounds} rounds")
            await asyncio.sleep(LOOK_SECONDS)
        items = client.session.follower.history()
        began = next(i.block.timestamp for i in items if isinstance(i.event, ev.RoundOpened))
    return Trained(view, draft.manifest, began, before)


async def seen(handle: JobHandle) -> JobView | None:
    """The job; None while the block that has it is not confirmed."""
    try:
        return await handle.view()
    except ChainError:
        return None


def figures(provider: Member, trained: Trained) -> dict[str, Any]:
    """From what the provider measured itself."""
    view = trained.view
    told: dict[str, Any] = read_metrics(provider.metrics_file).get("jobs", {})  # type: ignore[assignment]
    rounds = [told[str(view.job_id)][str(settled_round.round)] for settled_round in view.settled]
    steps = [names["train_seconds"] for names in rounds]
    thread = sum(names["thread_seconds"] for names in rounds)
    wall = view.settled[-1].block.timestamp - trained.began
    return {
        "bench": "rounds",
        "cores": len(OWN_CORE | OTHER_CORES),
        "parameters": sizes(trained.manifest.to_bytes())[1],
        "rounds": len(rounds),
        "train_seconds": [round(seconds, 1) for seconds in steps],
        "wall_seconds": wall,
        "utilisation": round(sum(steps) / wall, 4),
        "outside_steps": round(1 - sum(steps) / thread, 4),
    }


def of_traffic(
    options: Options, cluster: Cluster, trained: Trained, since: Traffic
) -> dict[str, Any]:
    """Bytes a parameter: of rounds, which are `since` the first one's opening, and before."""
    parameters = sizes(trained.manifest.to_bytes())[1]
    rounds = parameters * len(trained.view.settled)
    providers, verifiers = (
        [since.told[member.name] for member in members]
        for members in (cluster.providers, cluster.verifiers)
    )
    before = [trained.before.told[member.name] for member in cluster.providers]
    of_provider = _both(_mean(providers), rounds)
    if options.merge == "apply":
        applied = parameters * (len(trained.view.settled) - 1)
        of_provider["down"] = _both(_mean(providers), applied)["down"]
    found = {
        "seats": options.seats,
        "uplink_bytes_per_parameter": of_provider["up"],
        "largest_uplink": round(max(up for up, _ in providers) / rounds, 4),
        "downlink_bytes_per_parameter": of_provider["down"],
        "verifier_bytes_per_parameter": _both(_mean(verifiers), rounds),
        "before_first_round": _both(_mean(before), parameters),
    }
    if since.link is None:
        return found
    link = {"link_bytes_per_parameter": _both(since.link, rounds)}
    return found | {"link_mbit": options.link_mbit} | link


def _mean(counts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return fmean(up for up, _ in counts), fmean(down for _, down in counts)


def _both(counts: tuple[float, float], shared: int) -> dict[str, float]:
    return {"up": round(counts[0] / shared, 4), "down": round(counts[1] / shared, 4)}


# --- gas ---

_LINE = re.compile(r"^ +(?P<what>[a-z].*): (?P<gas>\d+)(?: \[.*\])?$")
_NAMES = {
    "commit": "commit",
    "reveal": "reveal",
    "vote": "have",
    "settlement": "settle",
    "auditReport": "audit_report",
    "open": "open",
    "key": "key",
    "claim of ten rounds, seat": "claim",
}
"""What forge calls it, and what is reported: of 16 seats and 7 members where that matters."""
_MEMBERS = {"4": "4/3", "16": "16/7", "64": "64/7", "256": "256/32"}


def gas() -> dict[str, Any]:
    """The gas tests' figures."""
    forge = str(ROOT / "contracts" / "tools" / "forge")
    command = [forge, "test", "--match-contract", "GasTest", "--match-test", "P41", "-vv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"forge failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return read_gas(done.stdout)


def read_gas(output: str) -> dict[str, Any]:
    """What forge printed, by name."""
    found: dict[str, Any] = {}
    rounds: dict[str, int] = {}
    size = ""
    for line in output.splitlines():
        told = _LINE.match(line)
        if told is None:
            size = "" if line.startswith("[") else size
            continue
        what, amount = told["what"], int(told["gas"])
        if what == "seats":
            size = told["gas"]
        elif what == "a seat and round, all in":
            rounds[_MEMBERS[size]] = amount
        elif what in _NAMES and size in {"", "16"}:
            found[_NAMES[what]] = amount
    return {name: found[name] for name in _NAMES.values()} | {"per_provider_round": rounds}


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # what it had begun has ended
        sys.exit(128 + signal.SIGINT)
