"""Gets the global state that the running round starts from, and checks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from atoll.errors import MachineFault, ProtocolError
from atoll.numerics.state_layout import max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.types import Digest, Phase
from atoll.protocol.views import JobView
from atoll.service.commands import Work
from atoll.service.duties.material import DataReady, DoFetchData, has_material, spec_of
from atoll.service.entries import Done, Entry
from atoll.service.machine import Decision, State
from atoll.service.task import Task
from atoll.storage.cid import Cid

if TYPE_CHECKING:
    from atoll.service.effects import Effects

S = TypeVar("S")
MAKE_INITIAL_STATE: Final[Task[[bytes, str], RoundStartReady]] = Task(
    "make-initial-state.v1", "atoll.service.tasks"
)
INSPECT_STATE: Final[Task[[bytes, bytes, str], RoundStartReady]] = Task(
    "inspect-state.v1", "atoll.service.tasks"
)


@dataclass(frozen=True, slots=True)
class RoundStartReady(Entry):
    """The global state that a round starts from is in the store and has the settled digest."""

    kind: ClassVar[str] = "round-start-ready.v1"
    cid: bytes
    digest: Digest


@dataclass(frozen=True, slots=True)
class DoPrepareRoundStart(Work[RoundStartReady]):
    """Bring a round's initial global state into the store and check it.

    Attributes:
        cid, digest: as certified; None for round 0, whose state follows from the manifest.
        is_own: whether our own merge made it, and so worked out the digest.
    """

    kind: ClassVar[str] = "prepare-round-start.v1"
    round: int
    manifest: bytes
    cid: bytes | None
    digest: Digest | None
    is_own: bool = False

    @property
    def about(self) -> tuple[object, ...]:
        return (self.round, self.digest)

    async def perform(self, effects: Effects, view: JobView) -> Done[RoundStartReady]:
        with effects.context.store.holding():  # what the worker leaves is not pinned yet
            return Done(await self._open(effects, view))

    async def _open(self, effects: Effects, view: JobView) -> RoundStartReady:
        opened: RoundStartReady
        if self.cid is None or self.digest is None:
            return await first_model(effects, view, self.manifest)
        limit = max_state_bytes(Manifest.from_bytes(self.manifest))
        prefer = committee_gateways(view, self.round - 1)
        await effects.fetch(view, self.round, Cid.from_bytes(self.cid), limit, prefer)
        if self.is_own:  # the worker trains from it by now: nothing is asked of it twice
            return RoundStartReady(self.cid, self.digest)
        call = INSPECT_STATE(self.manifest, self.cid, effects.store_dir)
        opened = await effects.work_soon(call)
        if opened.digest != self.digest:
            raise ProtocolError(
                f"the model of round {self.round} has digest {opened.digest.hex()}, "
                f"its certificate says {self.digest.hex()}"
            )
        await effects.keep(view, self.round, opened.cid)
        return opened


async def first_model(effects: Effects, view: JobView, manifest: bytes) -> RoundStartReady:
    """Round 0's model, made from the manifest, and kept.

    No certificate names it, so it is held against what was made of it with the data: of that one
    the terms name the program.

    Raises:
        MachineFault: the two are not the same.
    """
    opened = await effects.work_soon(MAKE_INITIAL_STATE(manifest, effects.store_dir))
    fetched = effects.context.journal.read(view.job_id).of(DoFetchData)
    if isinstance(fetched, DataReady) and opened.digest != fetched.initial:
        raise MachineFault(
            f"the first model was {fetched.initial.hex()}, "
            f"and made again it is {opened.digest.hex()}",
            next_step="test this machine's memory; nothing is trained or judged from it",
        )
    await effects.keep(view, 0, opened.cid)
    return opened


# --- decisions ---


def decide_round_start(state: State[S], ours: bytes = b"") -> Decision:
    """Gets the global state that the running round starts from.

    Args:
        ours: where it is, if our own merge made it: then nobody has to serve it.
    """
    spec, view = spec_of(state.entries), state.view
    if view.phase is Phase.CLOSED:
        return Decision("round start", "no further round opens")
    if spec is None or not has_material(state):
        return Decision("round start", "waits for the manifest and the data")
    if round_start_of(state) is not None:
        return Decision("round start", "the round's global state is here")
    command = preparing(state, view.round, spec, ours)
    return Decision("round start", "the round's global state is not here", (command,))


def preparing(state: State[S], round: int, spec: bytes, ours: bytes = b"") -> DoPrepareRoundStart:
    """What brings the state that a round starts from, or started from."""
    parent = state.view.settled[round - 1].verdict if round else None
    if parent is None:
        return DoPrepareRoundStart(round, spec, None, None)
    return DoPrepareRoundStart(round, spec, ours or parent.cid, parent.state, is_own=bool(ours))


def round_start_of(state: State[S]) -> RoundStartReady | None:
    """The running round's initial state, once it is here."""
    return round_start_at(state, state.view.round)


def round_start_at(state: State[S], round: int) -> RoundStartReady | None:
    """The state that a round starts from, or started from, once it is here."""
    parent = state.view.settled[round - 1].verdict.state if round else None
    return state.entries.of(DoPrepareRoundStart, round, parent)


def parent_of(view: JobView) -> tuple[bytes, Digest] | None:
    """CID and digest of the certified state that the running round starts from; None before any."""
    return (view.model_cid, view.model) if view.model_cid else None
