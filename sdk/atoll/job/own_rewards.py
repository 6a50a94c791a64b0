"""What a job's completions are worth, computed here: by the ids that merged updates end with, and
on prompts that the job's submitter kept back.

Rule of this file: for people. No chain knows these figures; of an update its last bytes are
fetched, and none of a model but where held-out prompts are.
"""

from __future__ import annotations

import structlog

from atoll.errors import NotFound
from atoll.job.figures import model_of
from atoll.job.followed import FollowedJob
from atoll.job.own_evaluation import bring_model
from atoll.job.prepare_manifest import prompt_options
from atoll.job.signs import merged_seats
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml
from atoll.protocol.manifest import Manifest
from atoll.protocol.settled_rounds import SettledRound
from atoll.protocol.types import SeatIndex
from atoll.protocol.views import JobView
from atoll.service.duties.material import files_of
from atoll.service.duties.sampled import HELD_OUT_REWARD, MEASURE_SAMPLED, HeldOut, SampledBySeat
from atoll.service.update_limits import UNFETCHABLE_CONTENT, max_update_bytes
from atoll.service.worker import Worker
from atoll.storage.cid import Cid
from atoll.storage.slices import FileSlices

log = structlog.get_logger("atoll.job.own_rewards")


async def measure_rewards_here(
    job: FollowedJob, manifest: Manifest, worker: Worker, gone: set[int] | None = None
) -> None:
    """Measures and keeps what is missing, the oldest round first; nothing of a job of text.

    Args:
        gone: rounds that are not asked for again; those with an update that nobody serves are
            added.

    Raises:
        NotFound: no gateway has the job's prompts, or a model.
        ProtocolError: a model is not the one that a committee signed.
    """
    if manifest.task is None:
        return
    view, gone = await job.view(), set() if gone is None else gone
    with job.client.store.holding():
        for settled in view.settled:
            if settled.round not in gone and not await _measure(job, settled, manifest, worker):
                gone.add(settled.round)
        await _ask_models(job, view, manifest, worker)


async def _measure(
    job: FollowedJob, settled: SettledRound, manifest: Manifest, worker: Worker
) -> bool:
    """Whether every merged seat's completions of a round are measured by now."""
    view, figures = await job.view(), job.client.figures
    missing = [
        seat
        for seat in merged_seats(view, settled)
        if figures.sampled(view.spec_digest, settled.reveals[seat].reveal.update_root) is None
    ]
    if missing:
        await _bring_prompts(job, manifest)
    is_whole = True
    for seat in missing:
        reveal = settled.reveals[seat].reveal
        try:
            await _bring_end(job, reveal.update_cid, manifest)
            command = _command(settled, seat, manifest)
            sampled = await worker.run(MEASURE_SAMPLED(command, str(job.client.store.root)))
        except (NotFound, *UNFETCHABLE_CONTENT) as error:
            log.info("a seat's rewards are not known", seat=seat, cause=str(error))
            is_whole = False
            continue
        if sampled is not None:
            figures.note_sampled(view.spec_digest, reveal.update_root, sampled)
    return is_whole


def _command(settled: SettledRound, seat: SeatIndex, manifest: Manifest) -> SampledBySeat:
    update, seed = settled.reveals[seat].reveal.update_cid, settled.record.seed
    return SampledBySeat(manifest.to_bytes(), settled.round_id, seat, seed, update)


async def _bring_prompts(job: FollowedJob, manifest: Manifest) -> None:
    """What rewards are counted by; not the weights that the job starts from."""
    fetcher = job.client.fetcher_of(job.id)
    for cid, most in files_of(manifest):
        if cid != manifest.init.cid:
            await fetcher.fetch(Cid.from_bytes(cid), most)


async def _bring_end(job: FollowedJob, update: bytes, manifest: Manifest) -> None:
    """The blocks of an update that its ids lie in."""
    fetcher, cid = job.client.fetcher_of(job.id), Cid.from_bytes(update)
    limit = max_update_bytes(manifest)
    await fetcher.fetch_spans(cid, limit, [])  # its nodes, which say how long it is
    size = len(FileSlices(job.client.store, cid, limit))
    await fetcher.fetch_spans(cid, limit, [slice(max(0, size - manifest.sampled_bytes), size)])


async def _ask_models(job: FollowedJob, view: JobView, manifest: Manifest, worker: Worker) -> None:
    """Has every settled model asked what the job's submitter kept back: it alone has that."""
    submission, figures = job.client.submissions.of_job(job.id), job.client.figures
    if submission is None or not submission.spec:
        return
    spec = JobSpec.of(parse_toml(submission.spec), "the job's file")
    if spec.task is None or not spec.task.held_out:
        return
    where, prompts = str(job.client.store.root), prompt_options(spec, spec.task.held_out)
    for merged in range(len(view.settled) + 1):
        model = model_of(view, merged)
        if figures.reward(view.spec_digest, merged, model) is None:
            cid = await bring_model(job, view, merged, manifest, worker)
            asked = HeldOut(manifest.to_bytes(), cid, prompts)
            reward = await worker.run(HELD_OUT_REWARD(asked, where))
            figures.note_reward(view.spec_digest, merged, model, reward)
