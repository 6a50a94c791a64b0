"""What the submitter computes in its worker process: losses, a sample of text, answers."""

from __future__ import annotations

from atoll.numerics.sections import UpdateLayout
from atoll.numerics.state_layout import param_count, trained_shapes
from atoll.protocol.manifest import Manifest
from atoll.storage.local import LocalStore
from atoll.train import answers
from atoll.train.continue_text import Sampling
from atoll.train.evaluate import evaluate
from atoll.train.initial_model import open_initial_state
from atoll.train.job_text import continue_by_job
from atoll.train.probe import pin_torch
from atoll.train.stored_states import read_global_state
from atoll_devnet.handles import ANSWER, EVAL_LOSS, SAMPLE_PROMPT, SAMPLE_TEXT, SIZES

SAMPLE_TOKENS = 240


@EVAL_LOSS.runs
def eval_loss(manifest: bytes, merged: bytes | None, store_dir: str) -> float:
    """Loss on the held-out text, nats a token; of the initial model where `merged` is None."""
    pin_torch()
    spec, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = (
        open_initial_state(spec, store)
        if merged is None
        else read_global_state(spec, merged, store)
    )
    return evaluate(state.params, spec, store)


@SAMPLE_TEXT.runs
def sample_text(manifest: bytes, merged: bytes, store_dir: str) -> str:
    """A sample of text from a merged model."""
    pin_torch()
    spec, store = Manifest.from_bytes(manifest), LocalStore(store_dir)
    state = read_global_state(spec, merged, store)
    return continue_by_job(state.params, spec, store, SAMPLE_PROMPT, Sampling(length=SAMPLE_TOKENS))


@SIZES.runs
def sizes(manifest: bytes) -> tuple[int, int]:
    """Bytes of an update, with its moments, and parameters of the model."""
    spec = Manifest.from_bytes(manifest)
    layout = UpdateLayout.of(spec, trained_shapes(spec), 0)
    return layout.encoded_length, param_count(spec.model)


@ANSWER.runs
def answer(question: dict[str, str]) -> object:
    """As `atoll.train.answers.answer`: JSON."""
    return answers.answer(question)
