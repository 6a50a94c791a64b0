"""Which job a file is: by what it says and reads, wherever that lies."""

from __future__ import annotations

from tests.support.identities import cid
from tests.unit.job.test_spec import DATA

from atoll.job.presets import preset
from atoll.job.submissions import key_of


def test_files_that_lie_elsewhere_are_the_same_job() -> None:
    job = preset("nano").but({"data.paths": ["here/a"], "data.held_out_paths": ["here/b"]})
    moved = {"data.paths": ["there/a"], "data.held_out_paths": ["there/b"]}
    key = key_of(job, DATA, None)
    assert key_of(job.but(moved | {"data.tokenizer": "there/t.json"}), DATA, None) == key
    other_text = DATA.model_copy(update={"eval_cid": cid("another text to evaluate on")})
    assert key_of(job, other_text, None) != key
    assert key_of(job.but({"rounds": 9}), DATA, None) != key
