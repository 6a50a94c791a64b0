"""A settled round's model and merge, brought here or made here again from what gateways serve."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.errors import NotFound
from atoll.job.figures import cid_of, model_of
from atoll.job.followed import FollowedJob
from atoll.numerics.state_layout import max_params_bytes, max_state_bytes
from atoll.protocol.manifest import Manifest
from atoll.protocol.merge_inputs import MergeRecord, MergeTerms, candidates
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import to_bitmap
from atoll.protocol.views import JobView
from atoll.service.duties.merge import DoMerge
from atoll.service.duties.round_start import INSPECT_STATE, MAKE_INITIAL_STATE, RoundStartReady
from atoll.service.duties.updates import updates_of
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.service.worker import Worker
from atoll.storage.cid import Cid


@dataclass(frozen=True, slots=True)
class Recomputation:
    """One job's rounds, with a worker that computes; the store has to be held meanwhile."""

    job: FollowedJob
    view: JobView
    manifest: Manifest
    worker: Worker

    @property
    def store(self) -> str:
        return str(self.job.client.store.root)

    async def fetch(self, cid: bytes, most: int) -> None:
        """Raises as `Fetcher.fetch`, and ValueError for what is no CID."""
        fetcher = self.job.client.fetcher_of(self.job.id)
        await fetcher.fetch(Cid.from_bytes(cid), most)

    async def model(self, round: int) -> RoundStartReady:
        """The global state that a round opens with, in the store; see `is_certified`.

        Raises:
            NotFound: nobody serves it.
            ProtocolError, UNFETCHABLE_CONTENT: what the certificate names is no global state.
        """
        cid, spec = cid_of(self.view, round), self.manifest.to_bytes()
        if not cid:
            init = self.manifest.init.cid
            if init is not None:
                await self.fetch(init, max_params_bytes(self.manifest.model))
            return await self.worker.run(MAKE_INITIAL_STATE(spec, self.store))
        await self.fetch(cid, max_state_bytes(self.manifest))
        return await self.worker.run(INSPECT_STATE(spec, cid, self.store))

    def is_certified(self, round: int, opened: RoundStartReady) -> bool:
        """Whether that is the state that a committee signed; the first one nobody has to sign."""
        return not cid_of(self.view, round) or opened.digest == model_of(self.view, round)

    async def merge_of(
        self, settled_round: SettledRound, record: MergeRecord, initial_state: bytes
    ) -> DoMerge:
        """The merge by this record, whose updates are in the store.

        Raises NotFound where nobody serves an update that may count.
        """
        seats = to_bitmap(candidates(record, MergeTerms.of(self.manifest)))
        updates = updates_of(settled_round.reveals, seats)
        for update in updates:
            try:
                await self.fetch(update.cid, max_update_bytes(self.manifest))
            except UNFETCHABLE_CONTENT:
                continue  # no update, for everyone alike
            except NotFound as error:
                what = f"the update of seat {update.seat} is not served any more"
                raise NotFound(what) from error
        spec = self.manifest.to_bytes()
        return DoMerge(
            settled_round.round_id, settled_round.record.seed, record, updates, spec, initial_state
        )
