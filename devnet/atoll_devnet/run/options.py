"""What a run is asked to do, as one frozen value; the command line and the tests both make it."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import ConfigError
from atoll.job.spec import Choices, JobRequest, Members, Money, Windows
from atoll.law.manifest import ModelSpec, NumericsSpec
from atoll.law.words import NumericsMode
from atoll_devnet.processes.chain import Backend

SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The job that a run submits; what is None follows from the network's size.

    Attributes:
        method: how they train together, a name of `atoll.job.methods`.
        codec, dropout: as in `atoll.job.spec.Choices`.
        numerics: how replays compare.
        data: files and folders with text; empty takes the standard library's source.
        max_tokens: no more of the text than this.
        segment: inner steps of a segment; a round has `SEGMENTS` of them.
        expires_in: seconds from submission until the job may be closed unfinished.
    """

    rounds: int = 4
    coverage: float = 0.5
    seed: int = 0
    method: str = "fedavg"
    codec: str = ""
    dropout: str = "0"
    numerics: NumericsMode = "exact"
    data: tuple[Path, ...] = ()
    max_tokens: int = 2_000_000
    eval_batches: int = 16
    lr: str = "0.004"
    segment: int = 5
    batch: int = 8
    model: ModelSpec | None = None
    members: Members | None = None
    windows: Windows = field(
        default_factory=lambda: Windows(
            train=120, reveal=60, report=180, confirm=120, attest=60, dispute=5
        )
    )
    money: Money = field(default_factory=Money)
    expires_in: int = 3600


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A whole run.

    Attributes:
        folder: where everything of the run goes; must not exist.
        cheats, verifier_cheats: names by seat and by verifier index.
        report: where report.json is also written; it is always in `folder`.
        store: everyone's storage backend, `embedded` or `kubo:URL`.
        beginning: see `ClusterConfig`.
        skip_windows: move the chain's clock on once everyone who will act in a window has acted.
    """

    folder: Path
    providers: int = 4
    verifiers: int = 3
    cheats: Mapping[int, str] = field(default_factory=dict)
    verifier_cheats: Mapping[int, str] = field(default_factory=dict)
    backend: Backend = "anvil"
    block_seconds: float = 0.5
    report: Path | None = None
    skip_windows: bool = False
    store: str = "embedded"
    beginning: Path | None = None
    job: JobOptions = field(default_factory=JobOptions)

    def request(self, numerics: NumericsSpec) -> JobRequest:
        """The job, as it is submitted."""
        job = self.job
        return JobRequest(
            data=tuple(text_paths(job.data)),
            lifetime_s=job.expires_in,
            choices=Choices(
                name="devnet",
                seed=job.seed,
                rounds=job.rounds,
                coverage=job.coverage,
                method=job.method,
                codec=job.codec,
                dropout=job.dropout,
                lr=job.lr,
                steps=job.segment * SEGMENTS,
                segment=job.segment,
                batch=job.batch,
                micro_batch=job.batch,
                model=job.model,
                members=self.members(),
                windows=job.windows,
                money=job.money,
            ),
            max_tokens=job.max_tokens,
            eval_batches=job.eval_batches,
            numerics=numerics,
        )

    def members(self) -> Members:
        """Seats for all; enough of a minimum that the honest can go on when cheats are removed."""
        if self.job.members is not None:
            return self.job.members
        honest = self.providers - len(self.cheats)
        return Members(
            seats=self.providers,
            min_providers=max(1, min(2, honest)),
            min_verifiers=max(1, self.verifiers // 2),
            max_verifiers=max(self.verifiers, 1),
            auditors=min(2, self.verifiers),
        )


def tiny_model() -> ModelSpec:
    """Thirty thousand parameters: a round of it takes about a second."""
    return ModelSpec(
        kind="llama",
        vocab=256,
        width=32,
        layers=2,
        heads=2,
        kv_heads=2,
        mlp="swiglu",
        ffn=64,
        seq=32,
        tied=True,
        norm_eps="0.00001",
        rope_base=10000,
    )


def text_paths(data: tuple[Path, ...]) -> list[Path]:
    """The text of a job: files and folders at `data`, or the standard library's modules.

    Raises:
        ConfigError: a path that does not exist.
    """
    for path in data:
        if not path.exists():
            raise ConfigError(
                f"no such file or folder: {path}", next_step="correct the path after --data"
            )
    if data:
        return list(data)
    return sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))


def parse_cheats(texts: list[str], option: str) -> dict[int, str]:
    """`["2:lazy", "3:copy"]` as {2: "lazy", 3: "copy"}.

    Raises:
        ConfigError: not INDEX:NAME, or one index twice.
    """
    cheats: dict[int, str] = {}
    for text in texts:
        index, separator, name = text.partition(":")
        if not separator or not index.isdigit() or not name:
            raise ConfigError(
                f"{option} {text!r} is not NUMBER:NAME", next_step=f"write {option} 2:lazy"
            )
        if int(index) in cheats:
            raise ConfigError(f"{option} names {index} twice", next_step="give each one cheat")
        cheats[int(index)] = name
    return cheats
