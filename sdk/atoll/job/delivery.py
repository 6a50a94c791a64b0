"""The model that is a job's result: the certified one, or where somebody was slashed for the last
merge, what that merge gives without who was slashed (SPEC-ROUNDS.md, 11).

Rule of this file: nothing is chosen. Who was slashed is on the chain, and whoever has the same
updates makes the same model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from atoll.errors import NotFound, NumericsMismatch, ProtocolError
from atoll.job.asking import missing_extra
from atoll.job.event_text import numbers
from atoll.job.figures import cid_of, model_of
from atoll.job.followed import FollowedJob
from atoll.job.own_evaluation import can_evaluate
from atoll.job.recomputation import Recomputation
from atoll.job.signs import Signs
from atoll.protocol.manifest import Manifest
from atoll.protocol.safety import LastMerge, last_merge
from atoll.protocol.types import NO_BITS, Bitmap, Digest, RoundIndex, Verdict, bits
from atoll.protocol.views import JobView
from atoll.service.duties.material import CHECK_MACHINE
from atoll.service.duties.merge import MERGE_AGAIN
from atoll.service.duties.round_start import RoundStartReady
from atoll.service.update_limits import UNFETCHABLE_CONTENT
from atoll.service.worker import Worker


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is delivered.

    Attributes:
        cid, digest: of the model.
        certified: digest of the newest model that a committee signed.
        round: the last that merged anything.
        slashed: seats whose updates that merge held and whose holders lost it.
        merged: how many updates it is made of, where it was made again.
        why_not: why the certified model is delivered although somebody was slashed.
    """

    cid: bytes
    digest: Digest
    certified: Digest
    round: int
    slashed: Bitmap = NO_BITS
    merged: int | None = None
    why_not: str = ""

    def text(self) -> str:
        """Sentences."""
        if not self.slashed:
            return f"the model is {self.digest.hex()}, as its committee certified it"
        seats = f"seat{'s' if self.slashed.bit_count() > 1 else ''} {numbers(self.slashed)}"
        if self.why_not:
            return (
                f"the model is {self.digest.hex()}, as its committee certified it: it holds what "
                f"{seats} sent in round {self.round} and was slashed for, since that round could "
                f"not be merged once more: {self.why_not}"
            )
        made = f"made of {self.merged} updates" if self.merged else (
            "what the round began with, since fewer updates are left than its rule needs"
        )  # fmt: skip
        return (
            f"round {self.round} was merged once more without {seats}, which was slashed for it: "
            f"the model is {self.digest.hex()}, {made}; "
            f"its committee certified {self.certified.hex()}"
        )

    def signs(self, signs: Signs) -> Signs:
        """Of the job's signs, those of what is delivered."""
        return signs if self.merged is None else signs.merged_again(self.round, self.slashed)

    def to_json_value(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "model_digest": self.digest.hex(),
            "certified_digest": self.certified.hex(),
            "round": self.round,
            "slashed": bits(self.slashed),
            "merged_again": self.merged,
            "not_merged_again": self.why_not or None,
            "text": self.text(),
        }


async def deliver(job: FollowedJob, view: JobView, manifest: Manifest) -> Delivery | None:
    """The result of a job whose rounds are all FINAL; None of one that merged nothing.

    Where it is made again it is in the store afterwards, which has to be held.

    Raises:
        ConfigError: somebody was slashed, and the train extra is missing.
    """
    last = last_merge(view)
    if last is None:
        return None
    cid, digest = cid_of(view, len(view.settled)), model_of(view, len(view.settled))
    delivery = Delivery(cid, digest, digest, last.settled_round.round, last.slashed)
    if not last.slashed:
        return delivery
    if not can_evaluate():
        raise missing_extra("merging the last round once more")
    worker = Worker()
    try:
        made = await _made(Recomputation(job, view, manifest, worker), last)
    except NotFound as error:
        return replace(delivery, why_not=str(error))
    except NumericsMismatch as error:
        return replace(delivery, why_not=f"this machine does not come to the job's bits: {error}")
    except (ProtocolError, *UNFETCHABLE_CONTENT) as error:
        return replace(delivery, why_not=f"the model that it began with is not there: {error}")
    finally:
        worker.kill()
    return replace(delivery, cid=made.cid, digest=made.state, merged=made.merged)


async def first_model(job: FollowedJob, view: JobView, manifest: Manifest) -> RoundStartReady:
    """The model that a job began with, which is in the store afterwards.

    Raises:
        ConfigError: the train extra is missing.
        NotFound: nobody serves the weights that it was given.
    """
    if not can_evaluate():
        raise missing_extra("making the job's first model")
    worker = Worker()
    try:
        return await Recomputation(job, view, manifest, worker).model(RoundIndex(0))
    finally:
        worker.kill()


async def _made(recomputation: Recomputation, last: LastMerge) -> Verdict:
    """The last merge once more. Raises NotFound, NumericsMismatch, and as `Recomputation.model`."""
    await recomputation.worker.run(CHECK_MACHINE(recomputation.manifest.to_bytes()))
    initial_state = await recomputation.model(last.settled_round.round)
    if not recomputation.is_certified(last.settled_round.round, initial_state):
        raise ProtocolError("the certified address has another model")
    command = await recomputation.merge_of(last.settled_round, last.record, initial_state.cid)
    return await recomputation.worker.run(MERGE_AGAIN(command, recomputation.store))
