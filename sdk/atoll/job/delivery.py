"""The model that is a job's result: the certified one; where somebody was slashed for the last
merge, what that merge gives without who was slashed; and where a round was struck, what the first
such round rightly merges to (SPEC-ROUNDS.md, 11).

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
        certified: digest of the model that the committee of `round` signed.
        round: the first that was struck, else the last that merged anything.
        slashed: seats whose updates that merge held and whose holders lost it.
        merged: how many updates it is made of, where it was made again.
        why_not: why the merge was not made again: then it is the certified model, or of a round
            that was struck the one that it opened from.
        is_struck: whether what was certified is no merge of the round's updates.
    """

    cid: bytes
    digest: Digest
    certified: Digest
    round: int
    slashed: Bitmap = NO_BITS
    merged: int | None = None
    why_not: str = ""
    is_struck: bool = False

    def rounds(self, settled: int) -> int:
        """How many of so many settled rounds are in it."""
        return self.round + (not self.why_not) if self.is_struck else settled

    @property
    def is_certified(self) -> bool:
        """Whether there is nothing to say of it."""
        return not self.slashed and not self.is_struck

    def text(self) -> str:
        """Sentences."""
        if self.is_struck:
            return self._of_struck()
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

    def _of_struck(self) -> str:
        struck = (
            f"round {self.round} was struck: its committee certified {self.certified.hex()}, which "
            f"its updates do not give, and no model behind it counts"
        )
        model = self.digest.hex()
        if self.why_not:
            return (
                f"{struck}; the model is {model}, which that round began with, since it could not "
                f"be merged once more: {self.why_not}"
            )
        without = f" without seats {numbers(self.slashed)}, slashed for it" if self.slashed else ""
        made = f"made of {self.merged} updates" if self.merged else (
            "what the round began with, since fewer updates are there than its rule needs"
        )  # fmt: skip
        return f"{struck}; merged once more{without} it is {model}, {made}"

    def signs(self, signs: Signs) -> Signs:
        """Of the job's signs, those of what is delivered."""
        signs = signs.after(self.rounds(len(signs.rounds)))
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
            "struck": self.is_struck,
            "text": self.text(),
        }


async def deliver(job: FollowedJob, view: JobView, manifest: Manifest) -> Delivery | None:
    """The result of a job whose rounds are all FINAL; None of one that merged nothing.

    Where it is made again it is in the store afterwards, which has to be held.

    Raises:
        ConfigError: somebody was slashed, or a round was struck, and the train extra is missing.
        NotFound: the first round was struck, and nobody serves what it began with.
    """
    last = last_merge(view)
    if last is None:
        return None
    round = last.settled_round.round
    rounds = round if last.is_struck else len(view.settled)
    cid, digest = cid_of(view, rounds), model_of(view, rounds)
    certified = last.settled_round.verdict.state if last.is_struck else digest
    delivery = Delivery(cid, digest, certified, round, last.slashed, is_struck=last.is_struck)
    if delivery.is_certified:
        return delivery
    if not can_evaluate():
        raise missing_extra("merging the last round once more")
    worker = Worker()
    recomputation = Recomputation(job, view, manifest, worker)
    try:
        if not delivery.cid:  # a struck round that opened from the model that no certificate names
            first = await recomputation.model(RoundIndex(0))
            delivery = replace(delivery, cid=first.cid, digest=first.digest)
        return await _merged_again(recomputation, last, delivery)
    finally:
        worker.kill()


async def _merged_again(
    recomputation: Recomputation, last: LastMerge, delivery: Delivery
) -> Delivery:
    try:
        made = await _made(recomputation, last)
    except NotFound as error:
        return replace(delivery, why_not=str(error))
    except NumericsMismatch as error:
        return replace(delivery, why_not=f"this machine does not come to the job's bits: {error}")
    except (ProtocolError, *UNFETCHABLE_CONTENT) as error:
        return replace(delivery, why_not=f"the model that it began with is not there: {error}")
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
