"""Initial weights that are content: what a job opens with, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from tests.unit.train.factories import Job, make_job
from tests.unit.train.folders import make_folder
from torch import Tensor

from atoll.errors import NotFound, TooLarge
from atoll.numerics.errors import MalformedState
from atoll.numerics.init import initial_global_state
from atoll.numerics.tensors import tree_root, write_blob
from atoll.protocol.manifest import InitSpec
from atoll.service.tasks import check_data, make_initial_state
from atoll.storage.cid import RAW, Cid
from atoll.train.initial_model import open_initial_state
from atoll.train.pretrained import prepare_init, read_params
from atoll.train.round import train_round

Params = dict[str, Tensor]
GAIN = "model.norm.weight"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A job from a Qwen3-shaped folder."""
    folder = tmp_path_factory.mktemp("initial")
    made = make_job(folder / "job")
    make_folder(folder / "model", "Qwen3", torch.bfloat16)
    prepared = prepare_init(folder / "model", made.manifest.model.seq, made.store)
    parts = {"model": prepared.model, "init": prepared.init}
    job = made.of(made.manifest.model_copy(update=parts))
    params = read_params(folder / "model", prepared.model)
    assert all(torch.equal(params[name], p) for name, p in job.model.params.items())
    return job


def test_the_weights_are_the_first_models(job: Job) -> None:
    state = open_initial_state(job.manifest, job.store)
    assert state.params_root() == job.manifest.init.root == tree_root(state.params)
    assert (state.round, state.digest()) == (0, job.model.digest())
    ready = make_initial_state(job.manifest.to_bytes(), str(job.store.root))
    assert ready.digest == state.digest()
    check_data(job.manifest.to_bytes(), str(job.store.root))


def test_a_round_is_trained_and_replayed_from_them(job: Job) -> None:
    trained = train_round(job.task, job.store)
    assert trained.segments == 4
    assert job.replay(trained).mismatch_at is None


def test_a_manifest_that_names_content_is_not_opened_without_it(job: Job) -> None:
    with pytest.raises(ValueError, match="give them"):
        initial_global_state(job.manifest)


def named(job: Job, cid: Cid, root: bytes | None = None) -> Job:
    """The job with other content under its root."""
    old = job.manifest.init.root if root is None else root
    init = InitSpec(seed=None, cid=cid.to_bytes(), root=old)
    manifest = job.manifest.model_copy(update={"init": init})
    return Job(job.store, manifest, job.model, job.task)


def blob(params: Mapping[str, Tensor]) -> bytes:
    return b"".join(write_blob("atoll.params.v1", {}, params))


def changed(params: Params, name: str, value: Tensor) -> bytes:
    return blob(params | {name: value})


def with_nan(params: Params) -> bytes:
    gain = params[GAIN].clone()
    gain[3] = torch.nan
    return changed(params, GAIN, gain)


WRONG: dict[str, tuple[Callable[[Params], bytes], str]] = {
    "one bit": (lambda p: changed(p, GAIN, p[GAIN].nextafter(p[GAIN] * 2)), "another root"),
    "a zero of the other sign": (lambda p: changed(p, GAIN, p[GAIN] * -0.0), "another root"),
    "a tensor less": (lambda p: blob({n: t for n, t in p.items() if n != GAIN}), "not those"),
    "a tensor more": (lambda p: changed(p, "lm_head.bias", torch.ones(2)), "not those"),
    "another shape": (lambda p: changed(p, GAIN, torch.ones(31)), "not those"),
    "another type": (lambda p: changed(p, GAIN, p[GAIN].long()), "not float32"),
    "not a number": (with_nan, "not finite"),
    "a number too large": (
        lambda p: changed(p, GAIN, torch.full_like(p[GAIN], 2.0**64)),
        "too large",
    ),
    "a byte less": (lambda p: blob(p)[:-1], "header asks for"),
    "a byte more": (lambda p: blob(p) + b"\0", "header asks for"),
    "nothing": (lambda p: b"", "does not begin"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_weights_are_refused(job: Job, name: str) -> None:
    make, words = WRONG[name]
    broken = named(job, job.store.add_bytes(make(job.model.params)))
    with pytest.raises(MalformedState, match=words):
        open_initial_state(broken.manifest, job.store)
    with pytest.raises(MalformedState, match=words):
        check_data(broken.manifest.to_bytes(), str(job.store.root))


def test_a_state_of_the_job_is_no_parameter_set(job: Job) -> None:
    broken = named(job, job.store.add_bytes(job.model.to_bytes()), job.model.params_root())
    with pytest.raises(MalformedState, match="another kind"):
        open_initial_state(broken.manifest, job.store)


def test_weights_that_are_not_here_are_named(job: Job) -> None:
    absent = Cid.of(b"nobody has this", RAW)
    with pytest.raises(NotFound, match=str(absent)):
        open_initial_state(named(job, absent).manifest, job.store)


def test_more_bytes_than_the_model_has_are_not_read(job: Job, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 24)
    with pytest.raises(TooLarge):
        open_initial_state(named(job, job.store.add_file(large)).manifest, job.store)
