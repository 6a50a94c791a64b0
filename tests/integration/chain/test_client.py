"""The submitter's part, against real contracts: pay, watch, take the result, get the rest back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from structlog.testing import capture_logs
from tests.integration.chain.benches import NUMERICS, PLENTY, Bench, config
from tests.integration.chain.one_round import OneRound, initial_model
from tests.support.hub import local_hub, use_hub
from tests.unit.train.folders import make_folder

import atoll
from atoll import Client
from atoll.errors import (
    ConfigError,
    InsufficientFunds,
    NotFound,
    ProtocolError,
    TransactionFailed,
)
from atoll.job.model_card import FACTS, MODEL_CARD
from atoll.job.quote import SUBMIT_GAS
from atoll.numerics.init import initial_global_state
from atoll.numerics.tensors import tree_root
from atoll.protocol.types import Bitmap, Digest, JobStatus
from atoll.storage.cid import Cid
from atoll.storage.gateway import Gateway
from atoll.storage.local import LocalStore
from atoll.train.adapters import ADAPTER_FILES
from atoll.train.corpus.options import PUBLIC_NOTICE
from atoll.train.corpus.prepare import Progress
from atoll.train.export import FILES
from atoll.train.pretrained import read_params


async def test_submitting_pays_in_the_budget_and_opens_the_job(bench: Bench) -> None:
    manifest = await bench.manifest()
    estimate = await bench.client.estimate(manifest)
    job = await bench.client.submit(manifest, max_spend=estimate.budget)
    escrow = await bench.chain.escrow(job.id)
    assert (escrow.funded, escrow.balance) == (estimate.budget, estimate.budget)
    snapshot = await job.status()
    assert (snapshot.status, snapshot.rounds) == (JobStatus.OPEN, 1)
    assert await job.manifest() == manifest
    assert (await job.view()).gateway_urls() == (await bench.client.serve(),)


async def test_who_is_reached_by_nobody_announces_nothing_and_brings_the_data(
    bench: Bench,
) -> None:
    hidden = replace(config(bench.folder / "hidden"), announce=False)
    account = bench.accounts[0]
    async with Client(bench.anvil.url, bench.deployment, account, hidden) as client:
        manifest = await client.prepare(bench.job, NUMERICS)
        job = await client.submit(manifest, max_spend=PLENTY)
        assert client.session.gateway is None
        assert (await job.view()).gateway_urls() == ()
        told: list[str] = []
        handing = asyncio.create_task(job.hand_over(told.append))
        assert await job.cancel()
        assert await handing == ()  # the job has ended
        with pytest.raises(ConfigError, match="announces nothing"):
            await client.serve()


async def test_the_same_manifest_is_the_same_job(bench: Bench) -> None:
    manifest = await bench.manifest()
    first = await bench.client.submit(manifest, max_spend=PLENTY)
    balance = await bench.chain.token_balance(bench.client.address)
    assert (await bench.client.submit(manifest, max_spend=PLENTY)).id == first.id
    assert await bench.chain.token_balance(bench.client.address) == balance
    other = await bench.manifest(bench.job.but({"init.seed": 1}))
    assert (await bench.client.submit(other, max_spend=PLENTY)).id != first.id


async def test_the_record_of_a_job_names_commits_of_the_hub(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"line {i}: the quick brown fox jumps over lazy dogs\n" for i in range(800))
    with local_hub() as hub:
        use_hub(hub, tmp_path, monkeypatch)
        sha = hub.add("bob/lines", {"a.txt": text.encode()}, "datasets")
        named = bench.job.but({"data.paths": ["hf://datasets/bob/lines"]})
        draft = await bench.client.draft(named, NUMERICS)
        job = await bench.client.submit(draft, max_spend="1000")
    assert f"hf://datasets/bob/lines is commit {sha}" in draft.notes
    written = bench.client.submissions.of_job(job.id)
    assert written is not None
    assert f"hf://datasets/bob/lines@{sha}" in written.spec


async def test_max_spend_is_never_exceeded(bench: Bench) -> None:
    manifest = await bench.manifest()
    budget = (await bench.client.estimate(manifest)).budget
    before = await bench.chain.token_balance(bench.client.address)
    with pytest.raises(ConfigError, match=r"more than the .* allowed") as caught:
        await bench.client.submit(manifest, max_spend=budget - 1)
    assert caught.value.next_step
    assert await bench.chain.token_balance(bench.client.address) == before


async def test_an_account_without_tokens_is_told_so(bench: Bench) -> None:
    poor = Client(
        bench.anvil.url, bench.deployment, bench.accounts[2], config(bench.folder / "poor")
    )
    async with poor:
        with pytest.raises(InsufficientFunds, match="has 0 tokens"):
            manifest = await poor.prepare(bench.job, NUMERICS)
            await poor.submit(manifest, max_spend=PLENTY)


async def test_data_that_is_not_here_is_refused_before_paying(bench: Bench) -> None:
    manifest = await bench.manifest()
    elsewhere = Client(
        bench.anvil.url, bench.deployment, bench.accounts[0], config(bench.folder / "elsewhere")
    )
    async with elsewhere:
        with pytest.raises(NotFound, match="is not in"):
            await elsewhere.submit(manifest, max_spend=PLENTY)


async def test_a_contract_s_refusal_reaches_the_submitter(bench: Bench) -> None:
    cheap = await bench.manifest(bench.job.but({"money.provider_bond": 10**17}))
    with pytest.raises(TransactionFailed, match=r"create reverted: TermOutOfRange.*providerBond"):
        await bench.client.submit(cheap, max_spend=PLENTY)


async def test_an_allowance_that_something_else_used_up_is_given_again(bench: Bench) -> None:
    jobs, me = bench.deployment.addresses["Jobs"], bench.client.address
    for use in ("first", "second"):
        await bench.client.allow(5, "job")
        assert await bench.chain.allowance(me, jobs) == 5
        await bench.client.transact(f"used {use}", bench.chain.calls.approve(jobs, 0))


async def test_a_waiting_job_can_be_cancelled_and_refunded(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    funded = (await job.status()).funded_wei
    with pytest.raises(ConfigError, match="no result yet: 0 of 1"):
        await job.result(bench.folder / "model")
    assert await job.refund() == 0  # its rounds may still cost all of it
    assert await job.cancel()
    assert (await job.wait()).status is JobStatus.CANCELLED
    assert not await job.cancel()
    assert await job.refund() == funded
    assert await job.refund() == funded
    assert (await bench.chain.escrow(job.id)).balance == 0
    with pytest.raises(ConfigError, match="no result: no round was settled"):
        await job.result(bench.folder / "model")


async def test_a_job_that_nobody_joined_is_ended_by_who_wants_its_money_back(bench: Bench) -> None:
    """Else it waits for ever: members tell a chain that a lifetime is over, and there are none."""
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    funded, terms = (await job.status()).funded_wei, (await job.view()).require_terms()
    bench.members(job.id).wait_until(terms.expiry)
    assert await job.refund() == funded
    assert (await job.wait()).status is JobStatus.EXPIRED


async def test_what_a_running_job_cannot_cost_any_more_comes_back(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    await job.fund("3")
    assert await job.refund() == 3 * 10**18
    assert await job.refund() == 3 * 10**18
    assert (await job.status()).status is JobStatus.OPEN


async def test_a_job_from_submission_to_the_last_payment(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    manifest = await job.manifest()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    await members.work(manifest)
    with pytest.raises(ConfigError, match="0 of 1 rounds"):
        await job.result(bench.folder / "model")
    node = LocalStore(bench.folder / "node")
    gateway = Gateway(node)
    await gateway.start()
    members.send(members.verifier, bench.chain.calls.announce_gateway(gateway.url))
    members.settle(await job.view(), initial_model(manifest, node))
    await check_model(bench, job, members)
    await gateway.stop()

    terms = manifest.terms
    earned = terms.segments * terms.segment_pay
    assert await job.claim(members.provider) == earned
    assert await bench.chain.token_balance(members.provider) == earned
    assert await job.claim(members.provider) == earned
    # A certificate and an audit that was opened, and right.
    assert await job.claim(members.verifier) == terms.sign_fee + terms.duty_fee
    await check_rest(bench, job, members)
    await check_story(job)


async def check_model(bench: Bench, job: atoll.JobHandle, members: OneRound) -> None:
    """The model is there at once, and is the result once its round is FINAL."""
    manifest, folder = await job.manifest(), bench.folder
    assert (await job.status()).status is JobStatus.DONE
    with pytest.raises(ConfigError, match="1 of 1 rounds are settled, 0 are FINAL"):
        await job.result(folder / "model")
    with pytest.raises(ConfigError, match="no model of round 1 yet: 1 rounds"):
        await job.checkpoint(folder / "later", 1)
    assert await job.checkpoint(folder / "first", 0) == folder / "first"
    members.audit((await job.view()).settled[0], manifest)
    told: list[str] = []
    snapshot = await job.wait(told.append)
    assert told[0] == (await job.logs())[0].text
    assert any(text.startswith("held-out loss before training") for text in told)
    assert (snapshot.status, snapshot.final_rounds, snapshot.is_final) == (JobStatus.DONE, 1, True)
    assert await job.result(folder / "model") == folder / "model"
    written = {path.name for path in (folder / "model").iterdir()}
    assert written == {*FILES, MODEL_CARD, FACTS}
    tensors = load_file(folder / "model" / "model.safetensors")
    expected = initial_global_state(manifest).params
    assert all(tensors[name].equal(tensor) for name, tensor in expected.items())
    files = [(folder / name / "model.safetensors") for name in ("model", "first")]
    assert files[0].read_bytes() == files[1].read_bytes()


async def check_rest(bench: Bench, job: atoll.JobHandle, members: OneRound) -> None:
    """Home comes at once what nobody can earn any more; where all is claimed, nothing is left."""
    terms, funded = (await job.view()).require_terms(), (await job.status()).funded_wei
    paid = terms.segments * terms.segment_pay + terms.sign_fee + terms.duty_fee
    assert await job.refund() == funded - paid
    members.wait_until(await job.rest_due())
    assert await job.refund() == funded - paid
    escrow = await bench.chain.escrow(job.id)
    assert (escrow.balance, escrow.burnt) == (0, 0)
    assert escrow.funded == escrow.claimed + escrow.refunded


async def test_work_that_nobody_had_is_burnt_before_the_rest_comes_home(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    manifest = await job.manifest()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    await members.work(manifest, has=Bitmap(0))
    merged = initial_model(manifest, bench.client.store)
    members.settle(await job.view(), merged)
    members.wait_until(await job.rest_due())
    terms = manifest.terms
    worked, funded = terms.segments * terms.segment_pay, (await job.status()).funded_wei
    assert await job.refund() == funded - worked
    escrow = await bench.chain.escrow(job.id)
    assert (escrow.burnt, escrow.balance) == (worked, 0)
    assert await job.claim(members.provider) == 0


async def check_story(job: atoll.JobHandle) -> None:
    """What `watch` tells is complete, in order, and readable."""
    story = [update async for update in job.watch()]
    kinds = [update.kind for update in story]
    told = ["JobCreated", "RoundOpened", "Committed", "Revealed", "Voted", "Settled"]
    told += ["AuditReportSealed", "Opened", "KeyShown", "Claimed", "Refunded"]
    assert sorted(map(kinds.index, told)) == list(map(kinds.index, told))
    assert story[0].text.startswith("created with ")
    assert all(update.text and update.snapshot.job == job.id for update in story)
    assert [u.block.number for u in story] == sorted(u.block.number for u in story)


async def test_another_model_than_the_signed_one_is_refused(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    manifest = await job.manifest()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    await members.work(manifest)
    _, cid = initial_model(manifest, bench.client.store)
    members.settle(await job.view(), (Digest(b"\x01" * 32), cid))
    with pytest.raises(ProtocolError, match="not the one that the committee signed"):
        await job.checkpoint(bench.folder / "model")
    assert not (bench.folder / "model").exists()


async def test_a_reorg_is_told_to_whoever_watches(bench: Bench) -> None:
    manifest = await bench.manifest()
    job = await bench.client.submit(manifest, max_spend=PLENTY)
    bench.anvil.mine()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    follower = bench.client.follower
    assert (await follower.updates(job.id))[-1].kind == "Ready"
    bench.anvil.automine(False)
    bench.anvil.ask("anvil_reorg", 1, [])
    log = await follower.updates(job.id)
    assert [update.kind for update in log[-2:]] == ["Ready", "Rewound"]
    assert log[-1].event is None
    assert not any(member.is_ready for member in (await job.view()).verifiers.values())


async def test_a_submission_says_what_becomes_public_and_how_far_it_is(bench: Bench) -> None:
    seen: list[Progress] = []
    with capture_logs() as told:
        draft = await bench.client.draft(bench.job, NUMERICS, on_progress=seen.append)
        assert [line for line in told if line["event"] == PUBLIC_NOTICE] == []
        await bench.client.submit(draft, max_spend=PLENTY)
    assert [line["log_level"] for line in told if line["event"] == PUBLIC_NOTICE] == ["info"]
    assert seen[-1].bytes == seen[-1].bytes_total == 800 * 44
    data = draft.manifest.data
    assert seen[-1].tokens + 1 == data.train_tokens + data.eval_tokens  # the last document's end


async def test_a_draft_that_would_have_expired_is_written_anew(bench: Bench) -> None:
    brief = bench.job.but({"lifetime": "1h"})
    stale = await bench.client.draft(brief, NUMERICS)
    bench.client.submissions.write(stale.key, "demo", stale.manifest.to_bytes())
    assert (await bench.client.draft(brief, NUMERICS)).manifest == stale.manifest
    bench.anvil.ask("evm_increaseTime", 3300)
    bench.anvil.mine()
    fresh = await bench.client.draft(brief, NUMERICS)
    assert fresh.manifest.terms.expiry > stale.manifest.terms.expiry
    assert (await bench.client.submit(fresh, max_spend=PLENTY)).id == 1


async def test_what_is_excluded_is_at_least_what_the_network_asks(bench: Bench) -> None:
    open_ = {"windows.train": None, "windows.audit": None, "money.provider_bond": None}
    draft = await bench.client.draft(bench.job.but(open_), NUMERICS)
    assert {figure.path for figure in draft.figures} == set(open_)
    assert draft.manifest.terms.provider_bond >= 10**18
    await bench.client.submit(draft, max_spend=PLENTY)


async def test_a_submission_costs_no_more_gas_than_was_said(bench: Bench) -> None:
    await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    async with bench.client.sending() as queue:
        used = queue.gas_by_label()
    assert {label: use.gas for label, use in used.items()}.keys() == SUBMIT_GAS.keys()
    for label, use in used.items():
        assert SUBMIT_GAS[label] / 3 < use.gas <= SUBMIT_GAS[label], (label, use.gas)


async def test_a_job_takes_more_money_as_text(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    funded = (await job.status()).funded_wei
    assert await job.fund("0.5") == funded + 5 * 10**17
    with pytest.raises(ConfigError, match="no amount of tokens"):
        await job.fund("half")


async def test_a_job_of_a_manifest_cannot_be_continued_without_its_file(bench: Bench) -> None:
    job = await bench.client.submit(await bench.manifest(), max_spend=PLENTY)
    with pytest.raises(ConfigError, match="not submitted from a job file") as caught:
        await job.continued(bench.folder / "model", rounds=2)
    assert (
        caught.value.next_step
        == f"atoll job checkpoint {job.id} DIR, then atoll job new --init DIR"
    )


async def test_a_job_is_continued_from_its_model(bench: Bench) -> None:
    job = await bench.client.submit(await bench.client.draft(bench.job, NUMERICS), max_spend=PLENTY)
    manifest = await job.manifest()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    await members.work(manifest)
    merged = initial_model(manifest, bench.client.store)
    gateway = Gateway(bench.client.store)
    await gateway.start()
    members.send(members.verifier, bench.chain.calls.announce_gateway(gateway.url))
    members.settle(await job.view(), merged)
    following = await job.continued(str(bench.folder / "model"), rounds=7)
    await gateway.stop()
    changes = {"rounds": 7, "model": None, "init.folder": str(bench.folder / "model")}
    assert following == bench.job.but(changes | {"init.seq": manifest.model.seq})
    next_ = await bench.client.draft(following, NUMERICS)
    assert next_.manifest.model == manifest.model
    assert next_.manifest.init.cid is not None
    about = await job.logs(seat=0)
    assert {"Committed", "Revealed"} <= {update.kind for update in about}
    with pytest.raises(ConfigError, match="no seat 3"):
        await job.logs(seat=3)


async def test_adapters_come_alone_or_merged_and_are_continued_from_the_merged_model(
    bench: Bench,
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    start = make_folder(bench.folder / "start", "Qwen3")
    folder = {"model": None, "init.folder": str(bench.folder / "start"), "init.seq": 24}
    lora = {"rank": 2, "alpha": "4", "targets": ["q", "down"]}
    job = await bench.client.submit(
        await bench.client.draft(bench.job.but(folder | {"lora": lora}), NUMERICS),
        max_spend=PLENTY,
    )
    manifest = await job.manifest()
    members = bench.members(job.id)
    await members.join(bench.client.address)
    await members.work(manifest)
    state = initial_global_state(manifest)
    for name in (name for name in state.params if name.endswith("lora_B.weight")):
        state.params[name] += 0.25
    cid = bench.client.store.add_pieces(state.pieces()).to_bytes()
    members.settle(await job.view(), (state.digest(), cid))
    members.audit((await job.view()).settled[0], manifest)

    # Somebody else, who has neither the folder nor its weights.
    reader = Client(bench.anvil.url, bench.deployment, None, config(bench.folder / "reader"))
    async with reader:
        theirs = reader.attach(job.id)
        await theirs.result(bench.folder / "adapters")
        assert manifest.init.cid is not None
        assert not reader.store.has(Cid.from_bytes(manifest.init.cid))
        await theirs.result(bench.folder / "merged", merged=True)
    assert set(ADAPTER_FILES) <= {p.name for p in (bench.folder / "adapters").iterdir()}
    merged = AutoModelForCausalLM.from_pretrained(bench.folder / "merged").eval()
    base = AutoModelForCausalLM.from_pretrained(bench.folder / "start").eval()
    adapted = PeftModel.from_pretrained(base, str(bench.folder / "adapters")).eval()
    ids = torch.tensor([list(b"the quick brown fox")])
    with torch.no_grad():
        logits = [model(ids).logits for model in (start, adapted, merged)]
    assert (logits[1] - logits[0]).abs().max() > 0.05
    assert torch.allclose(logits[1], logits[2], atol=1e-4)

    following = await job.continued(bench.folder / "next", rounds=2)
    draft = await bench.client.draft(following, NUMERICS)
    assert (draft.manifest.lora, draft.manifest.model) == (manifest.lora, manifest.model)
    assert draft.manifest.init.root == tree_root(read_params(bench.folder / "next", manifest.model))
    assert draft.manifest.init.root != manifest.init.root
