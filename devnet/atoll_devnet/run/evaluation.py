"""What the submitter computes in its worker process: manifest, losses, a sample of text."""

from __future__ import annotations

import time
from typing import Literal, cast

from atoll.bits.codec.layout import Layout
from atoll.bits.codec.registry import codec_of
from atoll.bits.init import initial_global_state
from atoll.content.cid import DAG_CBOR
from atoll.content.local import LocalStore
from atoll.job.presets import DemoConfig, demo_manifest
from atoll.law.manifest import DataSpec, Manifest
from atoll.train.data import open_tokenizer, prepare_dataset
from atoll.train.evaluate import evaluate
from atoll.train.generate import Sampling, generate
from atoll.train.probe import configure_native, numerics_spec
from atoll.train.round import read_global_state
from atoll_devnet.run.options import SEGMENTS, ManifestTask

PROMPT = "def "
SAMPLE_TOKENS = 240


def make_manifest(task: ManifestTask) -> bytes:
    """Prepares the dataset in the store; the manifest's bytes, stored too."""
    configure_native()
    job, store, now = task.job, LocalStore(task.store_dir), int(time.time())
    data = prepare_dataset(task.paths, store, max_tokens=job.max_tokens)
    spec = DataSpec(
        cid=data.train_cid,
        root=data.train_root,
        dtype=cast(Literal["uint8", "uint16", "uint32"], data.dtype),
        train_tokens=data.train_tokens,
        eval_cid=data.eval_cid,
        eval_batches=job.eval_batches,
        tokenizer_cid=data.tokenizer_cid,
    )
    manifest = demo_manifest(
        DemoConfig(
            data=spec,
            numerics=numerics_spec(job.numerics),
            expiry=now + job.expires_in,
            created=now,
            name="devnet",
            seed=job.seed,
            rounds=job.rounds,
            coverage=job.coverage,
            method=job.method,
            lr=job.lr,
            steps=job.segment * SEGMENTS,
            segment=job.segment,
            batch=job.batch,
            micro_batch=job.batch,
            model=job.model,
            members=task.members,
            windows=job.windows,
            money=job.money,
        )
    )
    store.add_block(manifest.to_bytes(), DAG_CBOR)
    return manifest.to_bytes()


def eval_loss(manifest: bytes, merged: bytes | None, store_dir: str) -> float:
    """Loss on the held-out text, nats a token; of the initial model where `merged` is None."""
    configure_native()
    spec, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = initial_global_state(spec) if merged is None else read_global_state(spec, merged, store)
    return evaluate(state.params, spec, store)


def sample_text(manifest: bytes, merged: bytes, store_dir: str) -> str:
    """A sample of text from a merged model."""
    configure_native()
    spec, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = read_global_state(spec, merged, store)
    tokenizer = open_tokenizer(store, spec.data.tokenizer_cid)
    sampling = Sampling(length=SAMPLE_TOKENS)
    return generate(state.params, spec.model, tokenizer, PROMPT, sampling)


def sizes(manifest: bytes) -> tuple[int, int]:
    """Bytes of an update in the codec the manifest names, and parameters of its model."""
    configure_native()
    spec = Manifest.from_bytes(manifest)
    state = initial_global_state(spec)
    parameters = sum(tensor.numel() for tensor in state.params.values())
    return codec_of(spec.codec).encoded_length(Layout.of_tensors(state.params)), parameters
