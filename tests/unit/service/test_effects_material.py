"""Effects that fetch: manifests, data, weights, updates and states; and which process computes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.identities import JOB, digest
from tests.unit.protocol.network import Network
from tests.unit.protocol.script import Script
from tests.unit.service.contexts import MANIFEST, ME, effects, spec_of, view_at

from atoll.errors import (
    MachineFault,
    NotFound,
    NumericsMismatch,
    ProtocolError,
    TooLarge,
)
from atoll.numerics.errors import MalformedState
from atoll.numerics.state_layout import max_params_bytes
from atoll.protocol.hashing import terms_hash
from atoll.protocol.manifest import InitSpec
from atoll.protocol.obligations import committee_gateways
from atoll.protocol.types import (
    Role,
    SeatIndex,
    SlotIndex,
    bits,
)
from atoll.protocol.views import JobView
from atoll.service.duties.fetch_model import model_of_round
from atoll.service.duties.material import (
    DataReady,
    DoFetchData,
    DoFetchSpec,
    JobRefused,
    SpecReady,
    files_of,
)
from atoll.service.duties.round_start import (
    MAKE_INITIAL_STATE,
    DoPrepareRoundStart,
    RoundStartReady,
)
from atoll.service.duties.unpin import DoUnpin, RoundsUnpinned
from atoll.service.pace import promised_per_hour
from atoll.service.task import Task, TaskCall
from atoll.storage.cid import DAG_CBOR, DAG_PB, RAW, Cid
from atoll.storage.spread import Spread


async def test_a_manifest_that_fits_is_kept(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, spec_of(view))
    promised = promised_per_hour(Role.PROVIDER, MANIFEST.terms)
    assert done.entry == SpecReady(MANIFEST.to_bytes(), promised)
    assert [pin.reason for pin in context.store.pins()] == [f"job/{JOB}"]


async def test_a_manifest_that_nobody_has_is_asked_for_again(context: Any) -> None:
    view = view_at(1)
    with pytest.raises(NotFound):
        await effects(context).run(view, spec_of(view))


async def test_other_terms_than_the_chains_are_refused(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    done = await effects(context).run(view, replace(spec_of(view), terms_hash=digest("other")))
    assert isinstance(done.entry, JobRefused)
    assert "terms" in done.entry.reason


async def test_a_machine_of_another_class_refuses_the_job(context: Any) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    context.worker.results = [NumericsMismatch("another probe")]
    done = await effects(context).run(view, spec_of(view))
    assert done.entry == JobRefused("another probe")
    assert context.store.pins() == []  # else strangers fill the disk with jobs that nobody takes


async def test_who_has_a_place_tries_again_what_its_machine_did_not_come_to_once(
    context: Any,
) -> None:
    """A refusal lasts as long as the process, and what is owed has no such time."""
    net = Network(MANIFEST.terms)
    net.join(ME, 0)
    view = replace(net.view, spec_cid=MANIFEST.cid(), terms_hash=terms_hash(MANIFEST.terms))
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    context.worker.results = [MachineFault("a bit of the probe")]
    with pytest.raises(ProtocolError, match="a bit of the probe"):
        await effects(context).run(view, spec_of(view))
    weights = from_weights(context).to_bytes()
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = [MalformedState("another root")]
    with pytest.raises(ProtocolError, match="another root"):
        await effects(context).run(view, DoFetchData(weights))
    done = await effects(context).run(view, spec_of(view))
    assert done.entry == SpecReady(MANIFEST.to_bytes())


@pytest.mark.parametrize("is_known", [True, False])
async def test_data_of_a_journal_that_was_moved_without_its_store_is_kept_here(
    context: Any, is_known: bool
) -> None:
    view = view_at(1)
    context.fetcher.blocks[Cid.from_bytes(view.spec_cid)] = MANIFEST.to_bytes()
    if is_known:
        ready = DataReady(MANIFEST.data.cid, digest("model"))
        context.journal.write(JOB, DoFetchData(b"").key, ready)
    data = {Cid.from_bytes(cid) for cid, _ in files_of(MANIFEST)}
    carrier = effects(context)
    for _ in range(2):  # at every start
        await carrier.run(view, spec_of(view))
        kept = {pin.cid for pin in await carrier.kept_for(view)}
        assert kept == {Cid.from_bytes(view.spec_cid), *(data if is_known else ())}


async def test_bytes_that_are_no_manifest_are_refused(context: Any) -> None:
    view = view_at(1)
    data = b"\xa0"
    cid = Cid.of(data, DAG_CBOR)
    context.fetcher.blocks[cid] = data
    done = await effects(context).run(view, DoFetchSpec(cid.to_bytes(), view.terms_hash))
    assert isinstance(done.entry, JobRefused)


@pytest.mark.parametrize("codec", [RAW, DAG_PB])
async def test_a_manifest_is_never_looked_for_in_a_tree(context: Any, codec: int) -> None:
    """A stranger's tree costs more to walk than the one block that a manifest is."""
    view = view_at(1)
    cid = Cid.of(MANIFEST.to_bytes(), codec)
    context.fetcher.blocks[cid] = MANIFEST.to_bytes()
    done = await effects(context).run(view, DoFetchSpec(cid.to_bytes(), view.terms_hash))
    assert isinstance(done.entry, JobRefused)
    assert "DAG-CBOR" in done.entry.reason


CHECKED = (None, (MANIFEST.terms.program, digest("model")))
"""What a worker says of sound data: nothing, and the program that the terms name."""


@pytest.mark.parametrize("large", ["", "cid", "nodes_cid", "eval_cid"])
async def test_no_file_of_the_data_may_be_larger_than_the_manifest_says(
    context: Any, large: str
) -> None:
    """A free job must not fill a provider's disk with what its manifest does not speak of."""
    spec = MANIFEST.data
    held_out = spec.model_copy(update={"eval_cid": spec.cid, "eval_tokens": 50_000})
    sizes = {"cid": spec.train_tokens, "nodes_cid": 32, "eval_cid": 50_000, "tokenizer_cid": 9}
    blocks = {name: bytes(size + (name == large)) for name, size in sizes.items()}
    context.fetcher.blocks |= {Cid.of(block): block for block in blocks.values()}
    cids = {name: Cid.of(block).to_bytes() for name, block in blocks.items()}
    manifest = MANIFEST.model_copy(update={"data": held_out.model_copy(update=cids)})
    context.worker.results = list(CHECKED)
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(done.entry, JobRefused if large else DataReady)
    assert bool(context.store.pins()) is not bool(large)
    if large:
        assert not context.store.has(Cid.from_bytes(cids[large]))


WEIGHTS = Cid.of(b"the weights")


def from_weights(context: Any) -> Any:
    """A job that starts from content; its text is here, its weights are not."""
    blocks = {"cid": bytes(99), "nodes_cid": bytes(32), "tokenizer_cid": b"tokenizer"}
    context.fetcher.blocks |= {Cid.of(block): block for block in blocks.values()}
    named = {name: Cid.of(block).to_bytes() for name, block in blocks.items()}
    init = InitSpec(seed=None, cid=WEIGHTS.to_bytes(), root=digest("params"))
    data = MANIFEST.data.model_copy(update={**named, "train_tokens": 99})
    return MANIFEST.model_copy(update={"data": data, "init": init})


async def test_initial_weights_are_fetched_with_the_data_and_kept(context: Any) -> None:
    manifest = from_weights(context)
    assert manifest.content[-1] == WEIGHTS.to_bytes()
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = list(CHECKED)
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(done.entry, DataReady)
    assert WEIGHTS in {pin.cid for pin in context.store.pins()}
    assert context.fetcher.limits[WEIGHTS] == max_params_bytes(manifest.model)


async def test_a_job_is_not_ready_while_nobody_has_its_weights(context: Any) -> None:
    manifest = from_weights(context)
    with pytest.raises(NotFound, match=str(WEIGHTS)):
        await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert context.journal.read(JOB).of(DoFetchData) is None


@pytest.mark.parametrize("error", [MalformedState("another root"), TooLarge("too many bytes")])
async def test_a_job_whose_weights_are_wrong_is_refused_alone(context: Any, error: Any) -> None:
    manifest = from_weights(context)
    context.fetcher.blocks[WEIGHTS] = b"the weights"
    context.worker.results = [error, *CHECKED]
    done = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert done.entry == JobRefused(str(error))
    again = await effects(context).run(view_at(1), DoFetchData(manifest.to_bytes()))
    assert isinstance(again.entry, DataReady)  # what was refused is that job, not the service


async def test_an_update_is_waited_for_at_home_and_asked_of_the_committee_that_serves_it_on(
    context: Any,
) -> None:
    script = Script.ready()
    script.train()
    view = script.net.view
    running = view.open
    assert running is not None
    committee = [
        view.verifiers[running.slots[SlotIndex(p)]].account for p in bits(running.committee)
    ]
    author = running.reveals[SeatIndex(0)].account
    urls = {
        who: f"http://{i}.example" for i, who in enumerate((author, context.me, *committee[1:]))
    }
    cid = Cid.of(b"an update")
    context.fetcher.blocks[cid] = b"an update"
    view = replace(view, gateways=urls)
    await effects(context).fetch_spread(view, running.round, cid, 9)
    relays = [urls[member] for member in committee[1:]]  # the first has announced nothing
    patience = view.require_terms().merge_seconds / 4
    told = Spread("", frozenset(relays), urls[context.me], patience)
    assert context.fetcher.spreads == [told]
    assert committee_gateways(view, running.round + 1) == []


@pytest.mark.parametrize("found", ["merged", "other"])
async def test_an_opening_state_must_have_the_verdicts_digest(context: Any, found: str) -> None:
    data = b"a state"
    cid = Cid.of(data)
    context.fetcher.blocks[cid] = data
    initial_state = RoundStartReady(cid.to_bytes(), digest(found))
    context.worker.results = [initial_state]
    command = DoPrepareRoundStart(3, MANIFEST.to_bytes(), cid.to_bytes(), digest("merged"))
    if found == "other":
        with pytest.raises(ProtocolError, match="round 3 has digest"):
            await effects(context).run(view_at(1), command)
        return
    done = await effects(context).run(view_at(1), command)
    assert done.entry == initial_state
    journaled = context.journal.read(JOB)
    assert journaled.of(DoPrepareRoundStart, 3, digest("merged")) == initial_state


@pytest.mark.parametrize("is_right", [True, False])
async def test_the_first_rounds_model_is_held_against_what_the_terms_were(
    context: Any, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    """It is made here, and no certificate names it: a bit that flips would cost the bond."""
    here, model = effects(context), context.store.add_bytes(b"a model").to_bytes()
    made = RoundStartReady(model, digest("made" if is_right else "flipped"))

    async def work_soon(call: TaskCall[RoundStartReady]) -> RoundStartReady:
        assert call.task == MAKE_INITIAL_STATE
        return made

    monkeypatch.setattr(here, "work_soon", work_soon)
    context.journal.write(JOB, DoFetchData(b"").key, DataReady(b"data", digest("made")))
    initial_state = DoPrepareRoundStart(0, MANIFEST.to_bytes(), None, None)
    if is_right:
        assert (await initial_state.perform(here, view_at(1))).entry == made
        assert await model_of_round(here, view_at(1), 0, b"") == made.cid
        return
    with pytest.raises(MachineFault):
        await initial_state.perform(here, view_at(1))
    with pytest.raises(MachineFault):
        await model_of_round(here, view_at(1), 0, b"")


async def test_nobody_looks_twice_at_a_state_that_its_own_merge_made(context: Any) -> None:
    """The worker trains from it by then: a look would wait for, or take from, the training."""
    data = b"a state"
    cid = Cid.of(data)
    context.fetcher.blocks[cid] = data
    command = DoPrepareRoundStart(3, MANIFEST.to_bytes(), cid.to_bytes(), digest("merged"), True)
    done = await effects(context).run(view_at(1), command)
    assert done.entry == RoundStartReady(cid.to_bytes(), digest("merged"))
    assert context.worker.asked == []


async def test_blocks_of_final_rounds_are_let_go(context: Any) -> None:
    carrier = effects(context)
    for round_ in range(3):
        await carrier.keep(view_at(1), round_, Cid.of(bytes([round_])).to_bytes())
    done = await carrier.run(view_at(1), DoUnpin(0, 2))
    assert done.entry == RoundsUnpinned(2)
    assert [pin.reason for pin in context.store.pins()] == [f"job/{JOB}/round/2"]


# --- the worker ---

A_REPLAY: Task[[], str] = Task("test-replay.v1", __name__)
A_MOVE: Task[[], str] = Task("test-move.v1", __name__)
A_MERGE: Task[[], str] = Task("test-merge.v1", __name__)
A_ROUND: Task[[], str] = Task("test-round.v1", __name__)


@dataclass
class Lane:
    """A worker whose calls wait for the test, and say what they are of; who has no patience is told
    at once.
    """

    done: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[Task[..., Any], bool]] = field(default_factory=list)

    async def run(
        self,
        call: TaskCall[str],
        *,
        is_first: bool = False,
        due: int = 0,
        patience_s: float | None = None,
    ) -> Task[..., str]:
        self.asked.append((call.task, is_first))
        if patience_s is not None:
            raise TimeoutError
        await self.done.wait()
        return call.task


async def test_what_is_urgent_has_a_process_of_its_own_while_a_round_is_replayed(
    context: Any,
) -> None:
    main, spare = context.worker, context.spare_worker = Lane(), Lane()
    games = context.game_worker = Lane()
    spare.done.set()
    here = effects(context)
    replay = asyncio.create_task(here.work(A_REPLAY()))
    # Of a game, whose clock runs; its first one takes as long as a round, and whoever is disputed
    # has to merge, and say words, all the same.
    move = asyncio.create_task(here.play(A_MOVE()))
    await asyncio.sleep(0)
    assert (main.asked, games.asked) == ([(A_REPLAY, False)], [(A_MOVE, True)])
    assert await here.work_soon(A_MERGE()) == A_MERGE
    assert main.asked == [(A_REPLAY, False), (A_MERGE, True)]
    assert spare.asked == [(A_MERGE, False)]
    games.done.set()
    main.done.set()
    assert (await replay, await move) == (A_REPLAY, A_MOVE)
    assert await here.work_soon(A_MERGE()) == A_MERGE  # nothing is in its way now
    assert len(spare.asked) == 1


async def test_a_game_about_the_first_round_waits_for_no_round_that_is_trained(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is made anew, for each move, and the clock has no room for others' rounds."""
    main, spare = context.worker, context.spare_worker = Lane(), Lane()
    spare.done.set()
    here, kept = effects(context), list[bytes]()
    opened = RoundStartReady(b"initial", digest("initial"))

    async def keep(view: JobView, round: int, cid: bytes) -> None:
        kept.append(cid)

    async def work_soon(call: TaskCall[Any]) -> RoundStartReady:
        assert await soon(call) == call.task
        return opened

    soon = here.work_soon
    monkeypatch.setattr(here, "keep", keep)
    monkeypatch.setattr(here, "work_soon", work_soon)
    training = asyncio.create_task(here.work(A_ROUND()))
    await asyncio.sleep(0)
    made = asyncio.create_task(model_of_round(here, view_at(1), 0, b"manifest"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert made.done()
    assert spare.asked == [(MAKE_INITIAL_STATE, False)]
    assert kept == [await made]
    main.done.set()
    await training


async def test_a_rounds_model_is_looked_for_where_we_opened_it_from(context: Any) -> None:
    """Two thirds of a committee can sign the right model with a CID that nobody has, and then
    dispute what everybody trained from it, who merged themselves.
    """
    script = Script.ready()
    script.honest_round()
    view, manifest = script.net.view, MANIFEST.to_bytes()
    certified = view.settled[0].verdict
    own = Cid.of(b"the model")
    context.fetcher.blocks[own] = b"the model"
    with pytest.raises(NotFound):
        await model_of_round(effects(context), view, 1, manifest)
    for digest_, found in ((digest("another model"), None), (certified.state, own)):
        opened = DoPrepareRoundStart(1, manifest, own.to_bytes(), digest_, is_own=True)
        entry = RoundStartReady(own.to_bytes(), digest_)
        context.journal.write(view.job_id, opened.key, entry)
        if found is None:
            with pytest.raises(NotFound):
                await model_of_round(effects(context), view, 1, manifest)
        else:
            assert await model_of_round(effects(context), view, 1, manifest) == own.to_bytes()
